"""Runs the cases of libfabric's fabtests that a provider of reliable datagrams can be asked for, none left
out, over erd on loopback, and writes a line for each: pass, notrun (the test says that something is not
offered) or FAIL with the last words of both sides.

usage: fabtests.py BIN PROVIDER_DIR [--lists unit,functional,short,multinode] [--only TEXT]... [--limit SECONDS]
       fabtests.py BIN PROVIDER_DIR --uber CONFIG

BIN is where an installation of fabtests has its programs and runfabtests.sh, from which the lists are read;
PROVIDER_DIR has liberd_fi.so. The lists are unit, functional, short, standard, threaded and multinode.
--uber runs fi_ubertest with a configuration (tests/ubertest.test) instead, within --limit. Run it in a network namespace of its own (`unshare -rn`, `ip link set lo up`):
the tests use fixed ports. FI_ERD_TEST_FAULTS and FI_ERD_CC work as everywhere. Ends with 1 if a case failed.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HOST = "127.0.0.1"
# Endpoints of other types, and what only they have.
OTHER_TYPES = re.compile(r"-e (msg|dgram)|fi_dgram|fi_msg|fi_cm_data|g00n13s")
# How a test says that something is not offered: ENODATA, ENOSYS.
NOT_OFFERED = (0, 61, 38)
LAST_LINES = 8


def cases(script, name):
    found = re.search(r"(?<![a-z_])" + name + r"_tests=\((.*?)\n\)", script, re.S)
    tests = re.findall(r'"([^"]+)"', found.group(1)) if found else []
    tests = [test for test in tests if not OTHER_TYPES.search(test)]
    return [test.replace("GOOD_ADDR", HOST).replace("SERVER_ADDR", HOST) for test in tests]


class Runner:
    def __init__(self, options):
        self.bin, self.limit = options.bin, options.limit
        self.env = dict(os.environ, FI_PROVIDER_PATH=options.provider, FI_LOG_LEVEL="warn")
        self.env.setdefault("FI_ERD_IFACE", "lo")

    def start(self, words, out):
        command = [os.path.join(self.bin, words[0])] + words[1:]
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=self.env, start_new_session=True)

    def end(self, process, limit):
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "timeout"

    def run(self, kind, words, outs):
        """What each process of a case ended with."""
        name, rest = words[:1], words[1:]
        erd = ["-p", "erd"]
        if kind == "unit":
            return [self.end(self.start(name + erd + rest, outs[0]), self.limit)]
        if kind == "multinode":
            node = name + rest + ["-n", "3"] + erd + ["-s", HOST]
            nodes = [self.start(node, outs[0])]
            time.sleep(1)
            nodes += [self.start(node, outs[1]) for _ in range(2)]
            return [self.end(process, self.limit) for process in nodes]
        server = self.start(name + erd + rest + ["-s", HOST], outs[0])
        time.sleep(0.5)
        client = self.start(name + erd + rest + ["-s", HOST, HOST], outs[1])
        return [self.end(client, self.limit), self.end(server, 20)]

    def case(self, kind, test):
        """The verdict, and what was said."""
        words = test.split()
        if not os.path.exists(os.path.join(self.bin, words[0])):
            return "absent", ""
        with tempfile.TemporaryFile("w+") as one, tempfile.TemporaryFile("w+") as other:
            ends = self.run(kind, words, (one, other))
            said = []
            for out in (one, other):
                out.seek(0)
                said += out.read().strip().split("\n")[-LAST_LINES:]
        if all(end == 0 for end in ends):
            return "pass", ""
        verdict = "notrun" if all(end in NOT_OFFERED for end in ends) else "FAIL"
        return verdict, "\n".join([f"ended with {ends}"] + said)

    def uber(self, config):
        """Runs fi_ubertest; true if it tried something and nothing failed."""
        test = os.path.join(self.bin, "fi_ubertest")
        with tempfile.TemporaryFile("w+") as one, tempfile.TemporaryFile("w+") as other:
            server = self.start([test, "-x"], one)
            time.sleep(1)
            client = self.start([test, "-u", config, HOST], other)
            ends = [self.end(client, self.limit), self.end(server, 20)]
            other.seek(0)
            said = other.read()
        results = re.findall(r"^Ending test \d+ / \d+, result: (.*)$", said, re.M)
        verdicts = {result: results.count(result) for result in results}
        print(f"fi_ubertest ended with {ends}: {verdicts}")
        bad = [line for line in said.split("\n") if "failed" in line or "ret=" in line]
        print("\n".join(bad[:40] + said.strip().split("\n")[-6:]))
        return ends == [0, 0] and set(verdicts) == {"Success"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("provider")
    parser.add_argument("--lists", default="unit,functional,short,multinode")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--uber")
    options = parser.parse_args()
    if options.uber:
        return 0 if Runner(options).uber(options.uber) else 1
    with open(os.path.join(options.bin, "runfabtests.sh"), encoding="utf-8") as script:
        script = script.read()
    runner, count, seen = Runner(options), {}, set()
    for name in options.lists.split(","):
        kind = name if name in ("unit", "multinode") else "pair"
        for test in cases(script, name):
            if test in seen or (options.only and not any(text in test for text in options.only)):
                continue
            seen.add(test)
            begun = time.monotonic()
            verdict, said = runner.case(kind, test)
            count[verdict] = count.get(verdict, 0) + 1
            print(f"{verdict:6} {time.monotonic() - begun:6.1f} s  {test}", flush=True)
            if said:
                print("    " + said.replace("\n", "\n    "), flush=True)
    print(count)
    return 1 if count.get("FAIL") else 0


if __name__ == "__main__":
    sys.exit(main())
