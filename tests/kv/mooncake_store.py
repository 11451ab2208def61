"""Mooncake's store: a master, a client that puts values, and one that gets them from the first one's memory.
KV_PROTOCOL names the transport, as for mooncake_pair.py: efa with MC_CUSTOM_TOPO_JSON, or tcp.

The master is the package's program. python3 mooncake_store.py [--most BYTES]
"""

import argparse
import ctypes
import faulthandler
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time

import pair

PROTOCOL = os.environ.get("KV_PROTOCOL", "efa")
HOST = "127.0.0.1"
SEGMENT, BUFFER = 512 * pair.MIB, 128 * pair.MIB
START_S = 20
SIZES = (4 * pair.KIB, 64 * pair.KIB, pair.ODD_SIZE, pair.MIB, 16 * pair.MIB, 64 * pair.MIB)
VALUES = 4


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def die_with_parent():
    ctypes.CDLL(None).prctl(pair.PR_SET_PDEATHSIG, signal.SIGKILL)


def start_master(port):
    """The master, once it listens."""
    import mooncake

    program = os.path.join(os.path.dirname(mooncake.__file__), "mooncake_master")
    flags = [f"--rpc_port={port}", f"--metrics_port={free_port()}"]
    # A value in use may not leave the store while the test looks at it.
    flags.append("--default_kv_lease_ttl=60000")
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    master = subprocess.Popen([program, *flags], env=environment, preexec_fn=die_with_parent,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + START_S
    while time.monotonic() < end and master.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return master
        time.sleep(0.05)
    raise pair.Failure("the master does not listen")


def client(port, segment):
    """A client of the store that offers `segment` bytes of its memory."""
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    code = store.setup(HOST, "P2PHANDSHAKE", segment, BUFFER, PROTOCOL, "", f"{HOST}:{port}")
    if code != 0:
        raise pair.Failure(f"setup returned {code}")
    return store


def names(most):
    return [(f"{size}-{nth}", size, size + nth) for size in SIZES if size <= most for nth in range(VALUES)]


def put_all(pipe, port, most):
    """The process that has the memory: it puts every value, and stays until the other one has them."""
    die_with_parent()
    store = client(port, SEGMENT)
    for name, size, seed in names(most):
        code = store.put(name, pair.pattern(seed, size).tobytes())
        if code != 0:
            sys.exit(f"kv failed: put of {size} bytes returned {code}")
    pipe.send("put")
    pipe.recv()
    store.close()


def get_all(port, most):
    """Gets every value from the other client, and compares all bytes; returns their number."""
    # Without memory of its own: all values are in the other process.
    store = client(port, 0)
    moved = 0
    for name, size, seed in names(most):
        value = store.get(name)
        if value != pair.pattern(seed, size).tobytes():
            raise pair.Failure(f"get of {size} bytes: {len(value)} came, or they differ")
        moved += size
    store.close()
    return moved


def run(args):
    port = free_port()
    ours, theirs = multiprocessing.Pipe()
    putter = os.fork()
    faulthandler.dump_traceback_later(args.limit, exit=True)
    if putter == 0:
        ours.close()
        # The master comes first, and the engine's threads after the fork.
        theirs.recv()
        put_all(theirs, port, args.most)
        sys.exit(0)
    theirs.close()
    master = start_master(port)
    try:
        ours.send("listens")
        ours.recv()
        began = time.monotonic()
        moved = get_all(port, args.most)
        took = time.monotonic() - began
        ours.send("got")
        _, status = os.waitpid(putter, 0)
        if status:
            raise pair.Failure(f"the other client ended with {os.waitstatus_to_exitcode(status)}")
    finally:
        master.kill()
    print(f"kv store passed: {len(names(args.most))} values, {moved} bytes in {took:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=SIZES[-1], help="bytes of the longest value")
    parser.add_argument("--limit", type=int, default=120, help="seconds until all processes give up")
    try:
        run(parser.parse_args())
    except (pair.Failure, EOFError) as failure:
        sys.exit(f"kv failed: {failure or 'the other client ended'}")


if __name__ == "__main__":
    main()
