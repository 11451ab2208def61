"""Hammers memory of all ranks with one-sided atomic operations, and checks that each was done exactly
once: accumulate, fetch-and-op and compare-and-swap, on words that all ranks fight for.
Needs mpi4py and nothing else; run it under mpiexec with 2 or more ranks.

Rank 0 prints `hammer passed: ...` with the number of operations of all ranks.
"""

import argparse
import array
import random
import sys
import time

from mpi4py import MPI

# Words of each rank's window: for accumulates, for fetch-and-add, for compare-and-swap.
SUMS, TICKETS, SWAPS = range(0, 4), range(4, 6), range(6, 8)
WORDS = 8
# Operations between two flushes of one target.
BATCH = 16


class Hammer:
    """One rank: what it did to each word of each rank."""

    def __init__(self, seed):
        self.world = MPI.COMM_WORLD
        self.rank, self.size = self.world.rank, self.world.size
        # Memory of its own: what MPI allocates, ranks of one host may share behind libfabric's back.
        self.memory = array.array("q", [0] * WORDS)
        self.window = MPI.Win.Create(self.memory, 8, MPI.INFO_NULL, self.world)
        self.added = array.array("q", [0] * (WORDS * self.size))
        self.tickets = {(rank, word): [] for rank in range(self.size) for word in TICKETS}
        self.random = random.Random(seed * 1000 + self.rank)
        self.done = 0

    def note(self, rank, word, by):
        self.added[rank * WORDS + word] += by
        self.done += 1

    def accumulate(self, rank):
        """A batch of sums, two words in one operation now and then."""
        values = []
        for _ in range(BATCH):
            word, count = self.random.choice(list(SUMS)[:-1]), self.random.choice([1, 2])
            value = array.array("q", [self.random.randrange(-9, 10) for _ in range(count)])
            values.append(value)
            self.window.Accumulate([value, MPI.INT64_T], rank, [word, count, MPI.INT64_T], MPI.SUM)
            for nth in range(count):
                self.added[rank * WORDS + word + nth] += value[nth]
            self.done += 1
        self.window.Flush(rank)

    def take_ticket(self, rank):
        """Adds 1; nobody else may see the same value."""
        word = self.random.choice(TICKETS)
        one, old = array.array("q", [1]), array.array("q", [-1])
        self.window.Fetch_and_op([one, MPI.INT64_T], [old, MPI.INT64_T], rank, word, MPI.SUM)
        self.window.Flush(rank)
        self.tickets[rank, word].append(old[0])
        self.note(rank, word, 1)

    def swap(self, rank):
        """Adds 1 by compare-and-swap, which takes several where others are faster."""
        word, old = self.random.choice(SWAPS), 0
        while True:
            new, expected, found = (array.array("q", [value]) for value in (old + 1, old, -1))
            self.window.Compare_and_swap(
                [new, MPI.INT64_T], [expected, MPI.INT64_T], [found, MPI.INT64_T], rank, word
            )
            self.window.Flush(rank)
            self.done += 1
            if found[0] == old:
                break
            old = found[0]
        self.added[rank * WORDS + word] += 1

    def run(self, seconds):
        self.world.Barrier()
        self.window.Lock_all()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            rank = self.random.randrange(self.size)
            self.random.choice([self.accumulate, self.take_ticket, self.swap])(rank)
        self.window.Flush_all()
        self.window.Unlock_all()
        self.world.Barrier()

    def check(self):
        """What is wrong, in words."""
        self.world.Allreduce(MPI.IN_PLACE, [self.added, MPI.INT64_T], MPI.SUM)
        self.window.Lock(self.rank, MPI.LOCK_SHARED)
        found = list(self.memory)
        self.window.Unlock(self.rank)
        wanted = list(self.added[self.rank * WORDS : (self.rank + 1) * WORDS])
        wrong = [] if found == wanted else [f"rank {self.rank} has {found}, and should have {wanted}"]
        for (rank, word), mine in self.tickets.items():
            everyones = self.world.gather(mine, rank)
            if rank != self.rank:
                continue
            all_tickets = sorted(ticket for tickets in everyones for ticket in tickets)
            if all_tickets != list(range(len(all_tickets))):
                wrong.append(f"tickets of word {word} of rank {rank} are not all different")
        return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    hammer = Hammer(args.seed)
    hammer.run(args.seconds)
    wrong = hammer.world.allreduce(hammer.check())
    done = hammer.world.allreduce(hammer.done)
    hammer.window.Free()
    if hammer.rank == 0 and not wrong:
        print(f"hammer passed: {done} operations of {hammer.size} ranks, every one exactly once")
    if hammer.rank == 0:
        for line in wrong:
            print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
