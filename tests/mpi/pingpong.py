"""Half a round trip between two ranks, in microseconds, for 8 B, 64 KiB and 1 MiB.

For who measures by hand (docs/troubleshooting.md): mpiexec -n 2 python tests/mpi/pingpong.py
"""

import sys
from mpi4py import MPI

LENGTHS = {8: 2000, 64 << 10: 1000, 1 << 20: 200}


def half_us(comm, length, rounds):
    """Mean of half a round trip of `length` bytes."""
    out, back = bytearray(b"\7" * length), bytearray(length)
    peer = 1 - comm.rank
    for turn in range(rounds + rounds // 4):
        if turn == rounds // 4:
            comm.Barrier()
            start = MPI.Wtime()
        if comm.rank == 0:
            comm.Send(out, dest=peer)
            comm.Recv(back, source=peer)
        else:
            comm.Recv(back, source=peer)
            comm.Send(out, dest=peer)
    took = MPI.Wtime() - start
    assert back == out, "what came is not what was sent"
    return took / rounds / 2 * 1e6


def main():
    comm = MPI.COMM_WORLD
    assert comm.size == 2, "two ranks"
    took = [half_us(comm, length, rounds) for length, rounds in LENGTHS.items()]
    if comm.rank == 0:
        print("pingpong", *(f"{us:.2f}" for us in took))
    sys.stdout.flush()


main()
