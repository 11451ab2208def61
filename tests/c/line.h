/* How far apart two processors are: what a cache line takes there and back between two processes of one host. A virtual
 * machine's processors move between its host's. */
#ifndef ERD_TESTS_LINE_H
#define ERD_TESTS_LINE_H

#include "node.h"

#include <stdatomic.h>
#include <sys/mman.h>

/* Turns of a cache line: in all, and for each time that is taken. */
enum { LINE_TURNS = 2000, LINE_BATCH = 100 };

/* A word that both processes see, on two processors that spinning can hold. Call it before the fork. */
static inline _Atomic uint64_t *line_share(const int cpus[2])
{
    _Atomic uint64_t *line;
    check(cpus[0] >= 0 && cpus[1] >= 0 && cpus[0] != cpus[1], "-n wants two CPUs in -c");
    line = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(line != MAP_FAILED, "mmap: %s", strerror(errno));
    return line;
}

/* Answers each odd number in the line with the even one that follows. The other side has set it to 0 before. */
static inline void line_answer(_Atomic uint64_t *line)
{
    for (uint64_t turn = 0; turn < LINE_TURNS; turn++) {
        while (atomic_load(line) != 2 * turn + 1)
            ;
        atomic_store(line, 2 * turn + 2);
    }
}

/* ns there and back, of the fastest batch, as others may interrupt one. The other side is in line_answer. */
static inline uint64_t line_ns(_Atomic uint64_t *line)
{
    uint64_t least = UINT64_MAX, start = 0;
    for (uint64_t turn = 0; turn < LINE_TURNS; turn++) {
        if (turn % LINE_BATCH == 0)
            start = now_ns();
        atomic_store(line, 2 * turn + 1);
        while (atomic_load(line) != 2 * turn + 2)
            ;
        if (turn % LINE_BATCH == LINE_BATCH - 1 && now_ns() - start < least)
            least = now_ns() - start;
    }
    return least / LINE_BATCH;
}

#endif
