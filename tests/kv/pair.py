"""Two processes that move memory through an engine for key-value caches: what the tests of the engines
share. The process that starts forks the other one, its peer, before either loads the engine.

The engine's script gives a class with these methods; offsets count from the start of the memory that
the constructor gets and registers:

    __init__(name, address, length)   card() -> what the peer must know   meet(card)
    start(op, pieces) -> handle       state(handle) -> BUSY, DONE or FAILED
    idle(), again and again while this side only serves the peer             close()

`op` is WRITE or READ, and a piece is (own offset, peer's offset, length). An engine forgets a handle
once its state is DONE or FAILED.
"""

import argparse
import ctypes
import faulthandler
import json
import mmap
import multiprocessing
import os
import signal
import sys
import time

import numpy

WRITE, READ = "WRITE", "READ"
BUSY, DONE, FAILED = "busy", "done", "failed"

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
# No multiple of a page or a word, so that pieces begin anywhere.
ODD_SIZE = 100_003
OUTSTANDING = 64
# Each process has two areas: it sends from one and receives in the other. The 64 transfers of a check
# have places of their own, so there are fewer of them where the area is too small: 16 of 16 MiB, 4 of 64 MiB.
AREA = 256 * MIB
SOURCE, SINK = 0, AREA
# Nobody may write behind the last piece.
GUARD = 4 * KIB
BLANK = 0xEE
MEMORY = 2 * AREA + GUARD

# Some providers complete a write before its bytes are in the peer's memory, which NIXL then tells by a
# message of its own. The peer looks at the bytes again for this long; erd needs none of it.
LATE_S = float(os.environ.get("KV_LATE_S", "0"))

# Time between two calls of `idle`.
IDLE_S = 0.002

# The size of a transfer in mid-flight when its peer dies, and the time before that.
KILL_SIZE, KILL_AFTER_S = 4 * MIB, 0.5
PR_SET_PDEATHSIG = 1


class Failure(Exception):
    """A check that failed."""


def pattern(seed, length):
    """`length` bytes that differ from those of another seed, and from their own at another offset."""
    words = numpy.arange((length + 7) // 8, dtype=numpy.uint64)
    words *= numpy.uint64(0x9E3779B97F4A7C15)
    words += numpy.uint64(seed * 0xD1B54A32D192ED03 % (1 << 64))
    return words.view(numpy.uint8)[:length]


class Side:
    """One of the two processes: its memory, its engine, and the pipe to the other one."""

    def __init__(self, make, name, pipe):
        self.pipe = pipe
        self.map = mmap.mmap(-1, MEMORY)
        self.memory = numpy.frombuffer(self.map, dtype=numpy.uint8)
        self.memory[:] = BLANK
        self.engine = make(name, self.memory.ctypes.data, MEMORY)
        pipe.send(self.engine.card())
        self.engine.meet(pipe.recv())
        self.transfers = self.bytes = 0

    def fill(self, seed, length):
        self.memory[SOURCE:SOURCE + length] = pattern(seed, length)

    def blank(self, length):
        self.memory[SINK:SINK + length + GUARD] = BLANK

    def differs(self, seed, length):
        """What is wrong with the received bytes, or None."""
        end = time.monotonic() + LATE_S
        while (wrong := self.differs_now(seed, length)) and time.monotonic() < end:
            time.sleep(0.01)
        return wrong

    def differs_now(self, seed, length):
        got = self.memory[SINK:SINK + length + GUARD]
        wrong = numpy.flatnonzero(got[:length] != pattern(seed, length))
        if wrong.size:
            return f"{wrong.size} of {length} bytes are wrong, the first at {wrong[0]}"
        if (got[length:] != BLANK).any():
            return f"the engine wrote behind {length} bytes"
        return None

    def ask(self, *request):
        """Has the peer do something; returns what that returned."""
        self.pipe.send(("do", *request))
        return self.answer()

    def answer(self):
        """What the peer answers, which may first ask for something itself. None ends the pair."""
        while True:
            while not self.pipe.poll(IDLE_S):
                self.engine.idle()
            kind, *values = self.pipe.recv()
            if kind == "done":
                return values[0]
            what, *values = values
            self.pipe.send(("done", getattr(self, what)(*values)))

    def counts(self):
        return self.transfers, self.bytes

    def start(self, op, pieces):
        self.transfers += 1
        self.bytes += sum(length for _, _, length in pieces)
        return self.engine.start(op, pieces)

    def wait(self, handle):
        """The state that a transfer ends in."""
        while True:
            state = self.engine.state(handle)
            if state != BUSY:
                return state
            os.sched_yield()

    def finish(self, handles, what):
        states = [self.wait(handle) for handle in handles]
        if FAILED in states:
            raise Failure(f"{what}: {states.count(FAILED)} of {len(states)} transfers failed")

    def case(self, op, size, count, together, seed):
        """Moves `count` pieces, as one transfer or as one each, and checks them."""
        total = size * count
        what = f"{op} of {count} times {size} bytes{' together' if together else ''}"
        if op == WRITE:
            self.fill(seed, total)
            self.ask("blank", total)
        else:
            self.ask("fill", seed, total)
            self.blank(total)
        own, other = (SOURCE, SINK) if op == WRITE else (SINK, SOURCE)
        pieces = [(own + at, other + at, size) for at in range(0, total, size)]
        parts = [pieces] if together else [[piece] for piece in pieces]
        self.finish([self.start(op, part) for part in parts], what)
        wrong = self.ask("differs", seed, total) if op == WRITE else self.differs(seed, total)
        if wrong:
            raise Failure(f"{what}: {wrong}")

    def lead(self, most, seed):
        """All cases, begun by this side."""
        for size in sorted({ODD_SIZE, *SIZES}):
            if size > most:
                continue
            many = min(OUTSTANDING, AREA // size)
            for count, together in ((1, False), (many, False), (many, True)):
                for op in (WRITE, READ):
                    seed += 1
                    self.case(op, size, count, together, seed)

    def cross(self, size):
        """Writes to the peer while the peer, which got the same request, writes here."""
        total = size * OUTSTANDING
        handles = [
            self.start(WRITE, [(SOURCE + at, SINK + at, size)]) for at in range(0, total, size)
        ]
        self.finish(handles, f"{WRITE} in both directions at once")

    def check_both(self, most, seed):
        """Both sides write at once."""
        size = min(MIB, most)
        total = size * OUTSTANDING
        self.fill(seed, total)
        self.blank(total)
        self.ask("fill", seed + 1, total)
        self.ask("blank", total)
        self.pipe.send(("do", "cross", size))
        self.cross(size)
        self.answer()
        for wrong in (self.differs(seed + 1, total), self.ask("differs", seed, total)):
            if wrong:
                raise Failure(f"both directions at once: {wrong}")


def check(side, args):
    """Every case in both directions, every byte compared."""
    began = time.monotonic()
    side.lead(args.most, 1000)
    side.ask("lead", args.most, 2000)
    side.check_both(args.most, 3000)
    transfers, moved = side.ask("counts")
    took = time.monotonic() - began
    print(f"kv passed: {side.transfers + transfers} transfers, {side.bytes + moved} bytes in {took:.1f} s",
          flush=True)


class Window:
    """Transfers that are under way at once; the oldest is waited for first."""

    def __init__(self, side, op, size, most):
        self.side, self.op, self.size, self.most = side, op, size, most
        self.places = max(1, min(most, AREA // size))
        self.under_way, self.nth = [], 0

    def fill(self):
        own, other = (SOURCE, SINK) if self.op == WRITE else (SINK, SOURCE)
        while len(self.under_way) < self.most:
            at = self.nth % self.places * self.size
            piece = (own + at, other + at, self.size)
            self.under_way.append(self.side.start(self.op, [piece]))
            self.nth += 1

    def next(self):
        return self.side.wait(self.under_way.pop(0))


def kill(side, args):
    """The peer dies in the middle of transfers: they fail, and so does a later one."""
    window = Window(side, args.op, KILL_SIZE, OUTSTANDING)
    window.fill()
    began = time.monotonic()
    completed = 0
    while time.monotonic() < began + KILL_AFTER_S:
        if window.next() == FAILED:
            raise Failure("a transfer failed before the peer died")
        completed += 1
        window.fill()
    os.kill(args.peer, signal.SIGKILL)
    died = time.monotonic()
    while window.next() == DONE:
        window.fill()
    first = time.monotonic() - died
    states = [FAILED] + [window.next() for _ in range(len(window.under_way))]
    last = time.monotonic() - died
    if side.wait(side.start(args.op, [(SOURCE, SINK, KIB * 4)])) != FAILED:
        raise Failure("a transfer to a dead peer succeeded")
    print(f"kv kill passed: {completed} transfers before the peer died; {states.count(FAILED)} failed, "
          f"the first after {first * 1000:.0f} ms, the last after {last * 1000:.0f} ms", flush=True)


def bench(side, args):
    """Times transfers one after another, and 64 at once; a line of JSON for each."""
    for size in SIZES:
        for outstanding in (1, OUTSTANDING):
            for op in (WRITE, READ):
                if args.least <= size <= args.most:
                    print(json.dumps(point(side, op, size, outstanding, args.seconds)), flush=True)


def point(side, op, size, outstanding, seconds):
    window = Window(side, op, size, outstanding)
    # The first one makes connections, and touches pages.
    side.finish([side.start(op, [(SOURCE, SINK, size)])], "the first transfer")
    began = time.perf_counter()
    ends = [began]
    window.fill()
    while ends[-1] < began + seconds:
        if window.next() == FAILED:
            raise Failure(f"{op} of {size} bytes failed")
        window.fill()
        ends.append(time.perf_counter())
    while window.under_way:
        if window.next() == FAILED:
            raise Failure(f"{op} of {size} bytes failed")
        ends.append(time.perf_counter())
    count = len(ends) - 1
    took = ends[-1] - began
    # With many at once, what counts is the time for each, not from start to end.
    between = numpy.median(numpy.diff(ends)) if outstanding == 1 else took / count
    return {
        "op": op, "size": size, "outstanding": outstanding, "transfers": count,
        "latency_us": round(between * 1e6, 1), "gb_per_s": round(count * size / took / 1e9, 3),
    }


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", action="store_true", help="the peer dies in mid-transfer")
    parser.add_argument("--bench", action="store_true", help="time transfers instead of checking them")
    parser.add_argument("--op", choices=(WRITE, READ), default=WRITE, help="what --kill transfers")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="bytes of the longest transfer")
    parser.add_argument("--least", type=int, default=0, help="bytes of the shortest transfer of --bench")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each point of --bench")
    parser.add_argument("--limit", type=int, default=120, help="seconds until both processes give up")
    return parser.parse_args()


def follow(make, pipe):
    """The process that was forked: it ends with the one that forked it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        side = Side(make, "follower", pipe)
        side.answer()
        side.engine.close()
    except Failure as failure:
        sys.exit(f"kv failed, the follower: {failure}")


def run(make, args, pipe):
    side = Side(make, "leader", pipe)
    if args.kill:
        kill(side, args)
    else:
        (bench if args.bench else check)(side, args)
        pipe.send(("done", None))
        # The follower's engine must find its peer alive while it closes.
        _, status = os.waitpid(args.peer, 0)
        if status:
            raise Failure(f"the follower ended with {os.waitstatus_to_exitcode(status)}")
    side.engine.close()


def main(make):
    """Runs what the command line asks for over the engine that `make` makes."""
    args = parse()
    # The timer is a thread of its own, so that it ends a process whose engine never returns.
    ours, theirs = multiprocessing.Pipe()
    args.peer = os.fork()
    faulthandler.dump_traceback_later(args.limit, exit=True)
    if args.peer == 0:
        ours.close()
        follow(make, theirs)
        sys.exit(0)
    theirs.close()
    try:
        run(make, args, ours)
    except (Failure, EOFError) as failure:
        sys.exit(f"kv failed: {failure or 'the follower ended'}")
