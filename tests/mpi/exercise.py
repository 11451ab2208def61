"""Exercises an MPI implementation and checks every byte: point to point, wildcards, probes, and all
collectives on communicators of several sizes. Needs mpi4py and nothing else; run it under mpiexec
with 2 to 8 ranks. `--short` leaves out repetitions; `--most BYTES` bounds the messages.

Every rank prints what it did last when something is wrong; rank 0 prints `exercise passed: ...`
with the payload bytes that all ranks have sent point to point.
"""

import argparse
import random
import sys
import traceback

from mpi4py import MPI

SIZES = [0, 1, 3, 64, 1000, 8192, 16384, 16385, 65536, 1 << 20, (1 << 22) + 1, 1 << 26]
WORDS = [0, 1, 5, 1000, 20000]


class Work:
    """State of one rank."""

    def __init__(self, most, repeats, seed):
        self.world = MPI.COMM_WORLD
        self.rank, self.size = self.world.rank, self.world.size
        self.sizes = [size for size in SIZES if size <= most]
        self.words = [words for words in WORDS if 8 * words <= most]
        self.repeats = repeats
        self.random = random.Random(seed)
        self.sent = 0
        self.doing = "starting"


def pattern(size, seed):
    """Bytes that depend on the place, so that a misplaced piece is seen."""
    block = random.Random(seed).randbytes(min(size, 65521))
    return bytearray((block * (size // len(block) + 1))[:size]) if size else bytearray()


def expect(good, what):
    if not good:
        raise AssertionError(what)


def neighbours(work):
    return (work.rank + 1) % work.size, (work.rank - 1) % work.size


def ping_pong(work):
    """Every pair of ranks, every size, there and back."""
    for low in range(work.size):
        for high in range(low + 1, work.size):
            if work.rank not in (low, high):
                continue
            other = high if work.rank == low else low
            for size in work.sizes:
                data, room = pattern(size, size + low), bytearray(size)
                if work.rank == low:
                    work.world.Send([data, MPI.BYTE], other, tag=size % 1000)
                    work.world.Recv([room, MPI.BYTE], other, tag=size % 1000)
                else:
                    work.world.Recv([room, MPI.BYTE], other, tag=size % 1000)
                    work.world.Send([data, MPI.BYTE], other, tag=size % 1000)
                work.sent += size
                expect(room == data, f"ping-pong of {size} bytes with {other}")


def ring(work):
    """All at once: every rank sends to the next and receives from the one before."""
    after, before = neighbours(work)
    for size in work.sizes:
        data, room = pattern(size, work.rank), bytearray(size)
        work.world.Sendrecv([data, MPI.BYTE], after, 1, [room, MPI.BYTE], before, 1)
        work.sent += size
        expect(room == pattern(size, before), f"ring of {size} bytes")


def send_modes(work):
    """Synchronous, ready, buffered and persistent sends."""
    after, before = neighbours(work)
    comm = work.world
    MPI.Attach_buffer(bytearray(1 << 20))
    for size in [0, 100, 16385, 100000]:
        data = pattern(size, work.rank)
        for mode in (comm.Issend, comm.Ibsend, comm.Isend, comm.Irsend):
            room = bytearray(size)
            receive = comm.Irecv([room, MPI.BYTE], before, 2)
            comm.Barrier()
            send = mode([data, MPI.BYTE], after, 2)
            MPI.Request.Waitall([receive, send])
            work.sent += size
            expect(room == pattern(size, before), f"{mode.__name__} of {size} bytes")
        room = bytearray(size)
        requests = [comm.Send_init([data, MPI.BYTE], after, 3), comm.Recv_init([room, MPI.BYTE], before, 3)]
        for _ in range(3):
            room[:] = bytes(size)
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
            work.sent += size
            expect(room == pattern(size, before), f"persistent send of {size} bytes")
        for request in requests:
            request.Free()
    MPI.Detach_buffer()


def many_outstanding(work):
    """Hundreds of messages under way, received in another order of tags than they were sent."""
    after, before = neighbours(work)
    count, size = 300, 700
    rooms = [bytearray(size) for _ in range(count)]
    receives = [work.world.Irecv([rooms[i], MPI.BYTE], before, i) for i in reversed(range(count))]
    sends = [work.world.Isend([pattern(size, i), MPI.BYTE], after, i) for i in range(count)]
    MPI.Request.Waitall(receives + sends)
    work.sent += count * size
    for i, room in enumerate(rooms):
        expect(room == pattern(size, i), f"message {i} of {count}")


def unexpected(work):
    """Messages that arrive before their receives, small and large."""
    after, before = neighbours(work)
    sizes = [0, 10, 5000, 16384, 40000, 1 << 20]
    sends = [work.world.Isend([pattern(s, s), MPI.BYTE], after, i) for i, s in enumerate(sizes) for _ in range(5)]
    work.world.Barrier()
    for i, size in reversed(list(enumerate(sizes))):
        for _ in range(5):
            room = bytearray(size)
            work.world.Recv([room, MPI.BYTE], before, i)
            expect(room == pattern(size, size), f"unexpected message of {size} bytes")
            work.sent += size
    MPI.Request.Waitall(sends)


def order(work):
    """Messages of one source and tag arrive in the order of their sending, whatever their size."""
    after, before = neighbours(work)
    sizes = [work.random.choice([1, 50, 9000, 16384, 16400, 300000]) for _ in range(60)]
    sizes = work.world.bcast(sizes)
    sends = [work.world.Isend([pattern(size, i), MPI.BYTE], after, 4) for i, size in enumerate(sizes)]
    for i, size in enumerate(sizes):
        room, status = bytearray(300000), MPI.Status()
        work.world.Recv([room, MPI.BYTE], before, 4, status)
        expect(status.Get_count(MPI.BYTE) == size, f"message {i}: {status.Get_count(MPI.BYTE)} bytes, not {size}")
        expect(room[:size] == pattern(size, i), f"message {i} of {size} bytes")
        work.sent += size
    MPI.Request.Waitall(sends)


def wildcards(work):
    """Any source and any tag: rank 0 takes what comes, and knows from the status whose it is."""
    each = 40
    if work.rank:
        for i in range(each):
            size = (work.rank * 7919 + i * 977) % 20000
            work.world.Send([pattern(size, work.rank * 1000 + i), MPI.BYTE], 0, i)
            work.sent += size
        return
    seen = {source: 0 for source in range(1, work.size)}
    for _ in range(each * (work.size - 1)):
        room, status = bytearray(20000), MPI.Status()
        work.world.Recv([room, MPI.BYTE], MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        source, tag, size = status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)
        expect(tag == seen[source], f"rank {source} sent message {seen[source]}, {tag} came")
        expect(room[:size] == pattern((source * 7919 + tag * 977) % 20000, source * 1000 + tag), "its bytes")
        seen[source] += 1


def probes(work):
    """Probe, matched probe and their immediate forms, with and without wildcards."""
    after, before = neighbours(work)
    comm = work.world
    expect(not comm.Iprobe(before, 99), "a probe saw a message that nobody sent")
    for i, size in enumerate([0, 300, 16385, 200000]):
        sends = [comm.Isend([pattern(size, i), MPI.BYTE], after, 50 + k) for k in range(4)]
        status = MPI.Status()
        comm.Probe(before, 50, status)
        expect(status.Get_count(MPI.BYTE) == size, f"probe: {status.Get_count(MPI.BYTE)} bytes, not {size}")
        rooms = [bytearray(size) for _ in range(4)]
        comm.Recv([rooms[0], MPI.BYTE], before, 50)
        comm.Mprobe(before, 51).Recv([rooms[1], MPI.BYTE])
        while not comm.Iprobe(before, 52):
            pass
        comm.Recv([rooms[2], MPI.BYTE], before, 52)
        message = None
        while message is None:
            message = comm.Improbe(MPI.ANY_SOURCE, 53)
        message.Irecv([rooms[3], MPI.BYTE]).Wait()
        for room in rooms:
            expect(room == pattern(size, i), f"probed message of {size} bytes")
        work.sent += 4 * size
        MPI.Request.Waitall(sends)
        comm.Barrier()


def cancel(work):
    """A receive that nobody answers is cancelled, and the next one is served."""
    room, status = bytearray(10), MPI.Status()
    receive = work.world.Irecv([room, MPI.BYTE], MPI.ANY_SOURCE, 77)
    receive.Cancel()
    receive.Wait(status)
    expect(status.Is_cancelled(), "a receive was not cancelled")
    ring(work)


def truncation(work):
    """A message longer than its receive is an error at the receiver, and nothing else."""
    after, before = neighbours(work)
    work.world.Set_errhandler(MPI.ERRORS_RETURN)
    send = work.world.Isend([pattern(5000, 1), MPI.BYTE], after, 5)
    room = bytearray(100)
    try:
        work.world.Recv([room, MPI.BYTE], before, 5)
        expect(False, "a message that was cut gave no error")
    except MPI.Exception as error:
        expect(error.Get_error_class() == MPI.ERR_TRUNCATE, f"a message that was cut: {error}")
    send.Wait()
    work.world.Set_errhandler(MPI.ERRORS_ARE_FATAL)
    work.world.Barrier()


def vector(count, seed):
    """Words that depend on the place and the seed."""
    words = zeros(count)
    for i in range(count):
        words[i] = (seed * 1000003 + i * 7919) % 2**40
    return words


def zeros(count):
    return memoryview(bytearray(8 * max(count, 1))).cast("q")[:count]


def long(view, count=None):
    """A view as MPI takes it; `count` is the part of one rank, where the view has all parts."""
    return [view, len(view) if count is None else count, MPI.INT64_T]


def same(view, values, what):
    expect(list(view) == list(values), what)


def collectives_rooted(comm, words):
    """Broadcast, gather, scatter, reduce, from and to every root."""
    n, me = comm.size, comm.rank
    everyone = [vector(words, rank) for rank in range(n)]
    for root in range(n):
        room = vector(words, root) if me == root else zeros(words)
        comm.Bcast(long(room), root)
        same(room, everyone[root], f"Bcast of {words} words from {root} of {n}")
        room = zeros(words * n)
        comm.Gather(long(everyone[me]), long(room, words) if me == root else None, root)
        if me == root:
            same(room, [x for view in everyone for x in view], f"Gather of {words} words to {root} of {n}")
        part = zeros(words)
        comm.Scatter(long(room, words) if me == root else None, long(part), root)
        same(part, everyone[me], f"Scatter of {words} words from {root} of {n}")
        total = zeros(words)
        comm.Reduce(long(everyone[me]), long(total) if me == root else None, MPI.SUM, root)
        if me == root:
            same(total, [sum(column) for column in zip(*everyone)], f"Reduce of {words} words to {root} of {n}")


def collectives_flat(comm, words):
    """Barrier, allgather, allreduce, alltoall, reduce-scatter, scans."""
    n, me = comm.size, comm.rank
    everyone = [vector(words, rank) for rank in range(n)]
    comm.Barrier()
    room = zeros(words * n)
    comm.Allgather(long(everyone[me]), long(room, words))
    same(room, [x for view in everyone for x in view], f"Allgather of {words} words by {n}")
    total = zeros(words)
    comm.Allreduce(long(everyone[me]), long(total), MPI.SUM)
    same(total, [sum(column) for column in zip(*everyone)], f"Allreduce of {words} words by {n}")
    comm.Allreduce(long(everyone[me]), long(total), MPI.MAX)
    same(total, [max(column) for column in zip(*everyone)], f"Allreduce (MAX) of {words} words by {n}")
    comm.Scan(long(everyone[me]), long(total), MPI.SUM)
    same(total, [sum(column) for column in zip(*everyone[: me + 1])], f"Scan of {words} words by {n}")
    comm.Exscan(long(everyone[me]), long(total), MPI.SUM)
    if me:
        same(total, [sum(column) for column in zip(*everyone[:me])], f"Exscan of {words} words by {n}")
    grid = [[vector(words, 100 * source + target) for target in range(n)] for source in range(n)]
    flat = zeros(words * n)
    for target in range(n):
        flat[words * target : words * (target + 1)] = grid[me][target]
    comm.Alltoall(long(flat, words), long(room, words))
    same(room, [x for source in range(n) for x in grid[source][me]], f"Alltoall of {words} words by {n}")
    comm.Reduce_scatter_block(long(flat, words), long(total), MPI.SUM)
    same(total, [sum(column) for column in zip(*(grid[source][me] for source in range(n)))],
         f"Reduce_scatter_block of {words} words by {n}")


def collectives_uneven(comm, words):
    """The forms with a count for each rank."""
    n, me = comm.size, comm.rank
    counts = [words * (rank + 1) // 2 for rank in range(n)]
    starts = [sum(counts[:rank]) for rank in range(n)]
    parts = [vector(count, rank) for rank, count in enumerate(counts)]
    all_parts = [x for part in parts for x in part]
    room = zeros(sum(counts))
    comm.Allgatherv(long(parts[me]), [room, counts, starts, MPI.INT64_T])
    same(room, all_parts, f"Allgatherv of {words} words by {n}")
    room = zeros(sum(counts))
    comm.Gatherv(long(parts[me]), [room, counts, starts, MPI.INT64_T] if me == 0 else None, 0)
    if me == 0:
        same(room, all_parts, f"Gatherv of {words} words by {n}")
    part = zeros(counts[me])
    comm.Scatterv([room, counts, starts, MPI.INT64_T] if me == 0 else None, long(part), 0)
    same(part, parts[me], f"Scatterv of {words} words by {n}")
    mine = [counts[me]] * n
    places = [counts[me] * rank for rank in range(n)]
    out = zeros(counts[me] * n)
    for target in range(n):
        out[places[target] : places[target] + counts[me]] = vector(counts[me], 10 * me + target)
    room = zeros(sum(counts))
    comm.Alltoallv([out, mine, places, MPI.INT64_T], [room, counts, starts, MPI.INT64_T])
    same(room, [x for source in range(n) for x in vector(counts[source], 10 * source + me)],
         f"Alltoallv of {words} words by {n}")
    total = zeros(counts[me])
    comm.Reduce_scatter(long(vector(sum(counts), me)), long(total), counts, MPI.SUM)
    columns = list(zip(*(vector(sum(counts), rank) for rank in range(n))))
    same(total, [sum(c) for c in columns[starts[me] : starts[me] + counts[me]]], f"Reduce_scatter by {n}")


def collectives_immediate(comm, words):
    """Several non-blocking collectives under way at once."""
    n, me = comm.size, comm.rank
    everyone = [vector(words, rank) for rank in range(n)]
    totals = [zeros(words) for _ in range(4)]
    room, cast = zeros(words * n), vector(words, 0) if me == 0 else zeros(words)
    requests = [comm.Iallreduce(long(everyone[me]), long(total), MPI.SUM) for total in totals]
    requests += [comm.Iallgather(long(everyone[me]), long(room, words)), comm.Ibcast(long(cast), 0), comm.Ibarrier()]
    MPI.Request.Waitall(requests)
    for total in totals:
        same(total, [sum(column) for column in zip(*everyone)], f"Iallreduce of {words} words by {n}")
    same(room, [x for view in everyone for x in view], f"Iallgather of {words} words by {n}")
    same(cast, everyone[0], f"Ibcast of {words} words by {n}")


def communicators(work):
    """Communicators of every size: the world, its leading ranks, halves, reversed, duplicates."""
    world = work.world
    yield world
    yield MPI.COMM_SELF
    duplicate = world.Dup()
    yield duplicate
    duplicate.Free()
    for size in range(1, work.size):
        part = world.Split(0 if work.rank < size else 1, work.rank)
        yield part
        part.Free()
    mixed = world.Split(work.rank % 2, -work.rank)
    yield mixed
    mixed.Free()


def collectives(work):
    for comm in communicators(work):
        for words in work.words:
            for group in (collectives_rooted, collectives_flat, collectives_uneven, collectives_immediate):
                work.doing = f"{group.__name__} of {words} words by {comm.size} ranks"
                group(comm, words)


def objects(work):
    """Pickled objects, as Python programs send them."""
    after, before = neighbours(work)
    mine = {"rank": work.rank, "text": "x" * 100000, "list": list(range(1000))}
    got = work.world.sendrecv(mine, after, source=before)
    expect(got["rank"] == before and got["text"] == mine["text"] and got["list"] == mine["list"], "sendrecv")
    expect(work.world.allgather(work.rank) == list(range(work.size)), "allgather")
    expect(work.world.alltoall([(work.rank, i) for i in range(work.size)])
           == [(i, work.rank) for i in range(work.size)], "alltoall")


def random_traffic(work):
    """Everyone to everyone: random sizes, all under way together."""
    plan = work.world.bcast([(work.random.randrange(work.size), work.random.randrange(work.size),
                              min(int(work.random.paretovariate(0.4)) * 10, 400000)) for _ in range(150 * work.repeats)])
    requests, rooms = [], []
    for i, (source, target, size) in enumerate(plan):
        if target == work.rank:
            rooms.append((i, size, bytearray(size)))
            requests.append(work.world.Irecv([rooms[-1][2], MPI.BYTE], source, i))
        if source == work.rank:
            requests.append(work.world.Isend([pattern(size, i), MPI.BYTE], target, i))
            work.sent += size if source != target else 0
    MPI.Request.Waitall(requests)
    for i, size, room in rooms:
        expect(room == pattern(size, i), f"message {i} of {size} bytes")


STEPS = [ping_pong, ring, send_modes, many_outstanding, unexpected, order, wildcards, probes, cancel, truncation,
         collectives, objects, random_traffic]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="one round instead of three")
    parser.add_argument("--most", type=int, default=1 << 26, help="longest message in bytes")
    parser.add_argument("--seed", type=int, default=1, help="of the random traffic")
    parser.add_argument("--skip", action="append", default=[], help="a step to leave out")
    options = parser.parse_args()
    work = Work(options.most, 1 if options.short else 3, options.seed)
    steps = [step for step in STEPS if step.__name__ not in options.skip]
    try:
        for round_number in range(work.repeats):
            for step in steps:
                work.doing = step.__name__
                step(work)
                work.world.Barrier()
    except BaseException:
        traceback.print_exc()
        print(f"rank {work.rank} failed in {work.doing}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
    total = work.world.allreduce(work.sent)
    if work.rank == 0:
        library = MPI.Get_library_version().split("\n")[0].split(",")[0].strip("\0")
        print(f"exercise passed: {len(steps)} steps, {work.repeats} rounds, {work.size} ranks, {total} bytes, {library}")


if __name__ == "__main__":
    main()
