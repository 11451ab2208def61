#!/usr/bin/env python3
"""Runs NSCC in uet-htsim and in erd-sim on uet-htsim's own matrices and topologies, and prints a table of both.

    cargo build --release -p erd-sim
    tests/htsim/compare.py HTSIM_DIR [--seeds 10] [--rows NAME ...] [--jobs 1]

HTSIM_DIR is a checkout of uet-htsim, built as its README says. docs/htsim.md explains the table.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

END_US = 100_000
RTO_US = 100.656  # main_uec.cpp: 15 us and the time to send six queues of 178450 bytes at 100 Gb/s
# The tree that uet-htsim builds for 16 hosts without a topology file.
DEFAULT_TREE = """
[links]
rate_gbps = 100
delay_ns = 1000
[topology.tree]
tiers = [{ children = 2, links_up = 2 }, { children = 2, links_up = 2 }, { children = 4 }]
"""


@dataclass
class Row:
    name: str
    matrix: str
    topology: str | None = None
    paths: int = 64


PERM_1024 = "perm_1024n_1024c_0u_2000000b.cm"
ROWS = [
    Row("one message", "one.cm"),
    Row("both ways", "bidir.cm"),
    Row("permutation, 16", "perm_16n_16c_2MB.cm"),
    Row("incast, 15 to 1", "incast.cm"),
    Row("serial all-to-all, 16", "alltoall_serial_16n.cm"),
    Row("permutation, 32, leaf-spine 4:1", "perm_32n_32c_2MB.cm", "leaf_spine_tiny.topo"),
    Row("permutation, 128, 1:1", "perm_128n_128c_2MB.cm", "fat_tree_128_1os.topo"),
    Row("permutation, 128, 4:1", "perm_128n_128c_2MB.cm", "fat_tree_128_4os.topo"),
    Row("permutation, 128, 8:1", "perm_128n_128c_2MB.cm", "fat_tree_128_8os.topo"),
    Row("incast, 2 to 1, 128", "incast_2to1_size4194304B.cm", "fat_tree_128_1os.topo"),
    Row("incast, 127 to 1", "incast_128.cm", "fat_tree_128_1os.topo"),
    Row("outcast and incast, 128", "outcast_incast.cm", "fat_tree_128_1os.topo"),
    Row("permutation of 20 kB, 1024", "perm_1024n_1024c_0u_20000b.cm", "fat_tree_1024.topo"),
    Row("permutation, 1024", PERM_1024, "fat_tree_1024.topo"),
    Row("permutation, 1024, leaf-spine 4:1", PERM_1024, "leaf_spine_1024_oversub.topo"),
    Row("one path: permutation, 16", "perm_16n_16c_2MB.cm", paths=1),
    Row("one path: permutation, 32, leaf-spine 4:1", "perm_32n_32c_2MB.cm", "leaf_spine_tiny.topo", 1),
    Row("one path: permutation, 128, 1:1", "perm_128n_128c_2MB.cm", "fat_tree_128_1os.topo", 1),
]


@dataclass
class Outcome:
    """Completion times of one run in us: from a message's start until its sender has the last acknowledgement."""

    median: float
    p99: float
    last: float
    trims: int


def at(values, percent):
    """The least value that so many of a hundred do not exceed."""
    return values[max(-(-len(values) * percent // 100), 1) - 1]


def run(command, folder=None):
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr or done.stdout[-500:]}")
    return done.stdout


def htsim(program, data, row, seed, scratch):
    command = [program, "-o", scratch / f"{seed}.log", "-tm", data / "connection_matrices" / row.matrix]
    command += ["-end", str(END_US), "-seed", str(seed), "-paths", str(row.paths)]
    if row.topology:
        command += ["-topo", data / "topologies" / row.topology]
    # It leaves a file where it runs.
    text = run(command, scratch)
    event = re.compile(r"^Flow \S+ flowId (\d+) .*? (starting|finished) at (\S+)", re.M)
    starts, ends = {}, {}
    for flow, what, time in event.findall(text):
        (starts if what == "starting" else ends)[flow] = float(time)
    if not starts or starts.keys() != ends.keys():
        sys.exit(f"uet-htsim, {row.name}, seed {seed}: {len(ends)} of {len(starts)} messages ended")
    times = sorted(ends[flow] - starts[flow] for flow in starts)
    trims = int(re.search(r"NACKs: (\d+)", text)[1])
    return Outcome(at(times, 50), at(times, 99), times[-1], trims)


def erd(program, data, row, seed, scratch):
    topology = DEFAULT_TREE
    if row.topology:
        topology = f"[topology.topo]\npath = {json.dumps(str(data / 'topologies' / row.topology))}\n"
    matrix = json.dumps(str(data / "connection_matrices" / row.matrix))
    scenario = scratch / f"{seed}.toml"
    scenario.write_text(
        f'seed = {seed}\nlimit_ms = {END_US / 1000}\nwire = "htsim"\n{topology}\n[[work]]\n'
        f"matrix = {{ path = {matrix} }}\n[engines]\n"
        f'scheme = "nscc:htsim"\npaths = {row.paths}\nrto_min_us = {RTO_US}\nwarm = true\n'
    )
    summary = json.loads(run([program, "scenario", scenario, "--json"]))
    times = summary["acknowledged_us"]
    return Outcome(times["p50"], times["p99"], times["max"], summary["links"]["trims"])


def median(outcomes, field):
    return statistics.median(getattr(outcome, field) for outcome in outcomes)


def line(row, theirs, ours):
    tails = [median(outcomes, "last") for outcomes in (theirs, ours)]
    cells = [row.name]
    for field in ("median", "p99"):
        cells += [f"{median(theirs, field):.1f}, {median(ours, field):.1f}"]
    cells += [f"{tails[0]:.1f}, {tails[1]:.1f}", f"{(tails[1] / tails[0] - 1) * 100:+.1f} %"]
    spans = [[getattr(outcome, "last") for outcome in outcomes] for outcomes in (theirs, ours)]
    cells += [", ".join(f"{min(span):.0f} to {max(span):.0f}" for span in spans)]
    cells += [f"{median(theirs, 'trims'):.0f}, {median(ours, 'trims'):.0f}"]
    return "| " + " | ".join(cells) + " |"


def find_program(checkout):
    names = ["htsim_uec", "build/datacenter/htsim_uec", "datacenter/htsim_uec"]
    for folder in (checkout, checkout / "htsim/sim"):
        for program in (folder / name for name in names):
            if program.is_file():
                return program
    sys.exit(f"no htsim_uec below {checkout}: build uet-htsim as its README says")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("htsim", type=Path, help="checkout of uet-htsim")
    parser.add_argument("--htsim-program", type=Path, help="its htsim_uec, if it lies elsewhere")
    parser.add_argument("--erd-sim", type=Path, default=Path("target/release/erd-sim"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", nargs="*", help="rows whose name has one of these words; all without it")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    args = parser.parse_args()
    program = (args.htsim_program or find_program(args.htsim)).resolve()
    data = (args.htsim / "htsim/sim/datacenter").resolve()
    print("| row | median | 99 % | last | difference | range of the last | trims |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in ROWS:
        if args.rows and not any(word in row.name for word in args.rows):
            continue
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
            scratch, seeds = Path(folder), range(1, args.seeds + 1)
            theirs = list(pool.map(lambda seed: htsim(program, data, row, seed, scratch), seeds))
            ours = list(pool.map(lambda seed: erd(args.erd_sim, data, row, seed, scratch), seeds))
        print(line(row, theirs, ours), flush=True)


if __name__ == "__main__":
    main()
