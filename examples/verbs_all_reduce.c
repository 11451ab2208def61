/* A ring all-reduce across processes over erd's queue pairs, without libfabric: each begins with
 * numbers of its own, and ends with the sums.
 *
 *     cc verbs_all_reduce.c -o verbs_all_reduce $(pkg-config --cflags --libs erd)
 *     ./verbs_all_reduce 4 1000000        # processes, numbers
 *
 * The processes are forked before the library is used, and tell each other their names in shared
 * memory. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <erd.h>

#include "together.h"

enum { RANKS_MAX = 64, RECV = 1 };

/* What all processes see. */
static struct shared {
    pthread_barrier_t met;
    union erd_name names[RANKS_MAX];
    socklen_t bytes;
} *shared;

static struct erd_context *context;
static struct erd_pd *pd;
static struct erd_cq *cq;
static struct erd_qp *qp;
static struct erd_ah *next;

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, erd_last_error());
        exit(1);
    }
}

static void join(int rank, int ranks)
{
    struct erd_qp_init_attr attr = {.size = sizeof attr, .sq_sig_all = 1};
    context = erd_open_device("127.0.0.1", NULL);
    pd = erd_alloc_pd(context);
    cq = erd_create_cq(context);
    attr.send_cq = attr.recv_cq = cq;
    qp = erd_create_qp(pd, &attr);
    must(qp != NULL, "cannot open a queue pair");
    must(!erd_query_qp_name(qp, &shared->names[rank], &shared->bytes), "erd_query_qp_name");
    pthread_barrier_wait(&shared->met);
    next = erd_create_ah(pd, &shared->names[(rank + 1) % ranks].sa, shared->bytes);
    must(next != NULL, "erd_create_ah");
}

/* Sends to the neighbour, and receives from the other one. */
static void shift(const float *out, size_t out_count, float *in, size_t in_count)
{
    struct erd_sge out_sge = {(void *)out, out_count * sizeof *out}, in_sge = {in, in_count * sizeof *in};
    struct erd_recv_wr recv = {.wr_id = RECV, .sg_list = &in_sge, .num_sge = 1};
    struct erd_send_wr send = {.sg_list = &out_sge, .num_sge = 1, .opcode = ERD_WR_SEND, .ah = next};
    must(!erd_post_recv(qp, &recv, NULL), "erd_post_recv");
    must(!erd_post_send(qp, &send, NULL), "erd_post_send");
    for (int left = 2; left > 0;) {
        struct erd_wc wc[2];
        /* The end of a process ends the sleep as well. */
        int polled, woken = erd_wait_cq(cq, -1);
        must(!woken || woken == ETIMEDOUT, "erd_wait_cq");
        polled = erd_poll_cq(cq, left, wc);
        must(polled >= 0, "erd_poll_cq");
        for (int i = 0; i < polled; i++)
            if (wc[i].status != ERD_WC_SUCCESS) {
                fprintf(stderr, "an operation: %s\n", erd_wc_reason(&wc[i]));
                exit(1);
            }
        left -= polled;
    }
}

/* One piece for each rank goes around twice, first to be summed, then to be told. */
static void all_reduce(int rank, int ranks, float *numbers, size_t count, float *room)
{
    for (int step = 0; step < 2 * (ranks - 1); step++) {
        int summing = step < ranks - 1;
        size_t out = (size_t)(rank + 3 * ranks - step) % ranks, in = (size_t)(rank + 3 * ranks - step - 1) % ranks;
        size_t out_at = count * out / ranks, out_end = count * (out + 1) / ranks;
        size_t in_at = count * in / ranks, in_end = count * (in + 1) / ranks;
        shift(numbers + out_at, out_end - out_at, summing ? room : numbers + in_at, in_end - in_at);
        for (size_t i = 0; summing && i < in_end - in_at; i++)
            numbers[in_at + i] += room[i];
    }
}

static int run(int rank, int ranks, size_t count)
{
    float *numbers = malloc(count * sizeof *numbers), *room = malloc(count * sizeof *room);
    struct timespec from, to;
    double seconds;
    join(rank, ranks);
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)(rank + (int)(i % 100));
    clock_gettime(CLOCK_MONOTONIC, &from);
    all_reduce(rank, ranks, numbers, count, room);
    clock_gettime(CLOCK_MONOTONIC, &to);
    for (size_t i = 0; i < count; i++)
        if (numbers[i] != (float)(ranks * (ranks - 1) / 2 + ranks * (int)(i % 100))) {
            fprintf(stderr, "rank %d: number %zu is %f\n", rank, i, (double)numbers[i]);
            return 1;
        }
    seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    if (rank == 0)
        printf("%zu numbers of %d ranks summed at %.2f GB/s\n", count, ranks,
               (double)(count * sizeof *numbers) / 1e9 / seconds);
    must(!erd_destroy_qp(qp) && !erd_destroy_ah(next) && !erd_destroy_cq(cq) && !erd_dealloc_pd(pd) &&
             !erd_close_device(context),
         "closing");
    free(numbers);
    free(room);
    return 0;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 4, rank;
    size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000000;
    pthread_barrierattr_t attr;
    if (ranks < 1 || ranks > RANKS_MAX)
        return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (shared == MAP_FAILED || pthread_barrier_init(&shared->met, &attr, (unsigned)ranks))
        return 1;
    rank = fork_together(ranks);
    if (run(rank, ranks, count))
        return 1;
    return others_failed();
}
