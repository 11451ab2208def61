"""Two ranks: a ping-pong and an all-reduce. Run it under mpiexec."""

from mpi4py import MPI

world = MPI.COMM_WORLD
other = 1 - world.rank


def half_round_trip_us(size, count):
    room = bytearray(size)
    world.Barrier()
    start = MPI.Wtime()
    for _ in range(count):
        if world.rank == 0:
            world.Send([room, MPI.BYTE], other)
            world.Recv([room, MPI.BYTE], other)
        else:
            world.Recv([room, MPI.BYTE], other)
            world.Send([room, MPI.BYTE], other)
    return (MPI.Wtime() - start) / count / 2 * 1e6


def report(text):
    if world.rank == 0:
        print(text, flush=True)


assert world.size == 2, "run this with two ranks"
report(MPI.Get_library_version().split("\n")[0])
for size, count in [(8, 2000), (1024, 2000), (65536, 500), (1 << 20, 100), (1 << 24, 10)]:
    half_round_trip_us(size, 5)
    took = half_round_trip_us(size, count)
    report(f"  {size:>9} bytes: {took:10.1f} us one way, {size / took:8.0f} MB/s")
total = world.allreduce(world.rank + 1)
assert total == 3
report(f"  all-reduce of 1 and 2: {total}")
