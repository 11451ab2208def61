/* A ping-pong between two processes over erd's queue pairs, without libfabric.
 *
 *     cc verbs_pingpong.c -o verbs_pingpong $(pkg-config --cflags --libs erd)
 *     ./verbs_pingpong [ROUNDS]
 *
 * One program starts both sides: it forks before the library is used, and the two tell each other
 * their names over a socket pair. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <erd.h>

#include "together.h"

enum { ROUNDS = 20000, BYTES = 64 };

static struct erd_context *context;
static struct erd_pd *pd;
static struct erd_cq *cq;
static struct erd_qp *qp;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, erd_last_error());
    exit(1);
}

static void open_queue_pair(void)
{
    struct erd_qp_init_attr attr = {.size = sizeof attr};
    context = erd_open_device("127.0.0.1", NULL);
    pd = erd_alloc_pd(context);
    cq = erd_create_cq(context);
    attr.send_cq = attr.recv_cq = cq;
    qp = erd_create_qp(pd, &attr);
    if (!qp)
        fail("cannot open a queue pair");
}

/* Tells the other side our name over `pair`, and answers where the other side is. */
static struct erd_ah *meet(int pair)
{
    union erd_name name = {0};
    socklen_t bytes;
    struct erd_ah *other;
    if (erd_query_qp_name(qp, &name, &bytes))
        fail("erd_query_qp_name");
    if (write(pair, &name, sizeof name) != sizeof name || read(pair, &name, sizeof name) != sizeof name) {
        perror("exchanging names");
        exit(1);
    }
    other = erd_create_ah(pd, &name.sa, bytes);
    if (!other)
        fail("erd_create_ah");
    return other;
}

/* Waits until `count` receives have completed; sends report only failures. */
static void complete(int count)
{
    struct erd_wc wc[2];
    while (count > 0) {
        int polled = erd_poll_cq(cq, 2, wc);
        if (polled < 0)
            fail("erd_poll_cq");
        for (int i = 0; i < polled; i++)
            if (wc[i].status != ERD_WC_SUCCESS) {
                fprintf(stderr, "an operation: %s\n", erd_wc_reason(&wc[i]));
                exit(1);
            }
        count -= polled;
    }
}

static void play(struct erd_ah *other, int starts, int rounds)
{
    char out[BYTES] = "ping", in[BYTES];
    struct erd_sge out_sge = {out, BYTES}, in_sge = {in, BYTES};
    struct erd_send_wr send = {.sg_list = &out_sge,
                               .num_sge = 1,
                               .opcode = ERD_WR_SEND,
                               .send_flags = ERD_SEND_INLINE,
                               .ah = other};
    struct erd_recv_wr recv = {.sg_list = &in_sge, .num_sge = 1};
    struct timespec from = {0}, to;
    int warm_up = rounds / 10;
    for (int i = 0; i < rounds + warm_up; i++) {
        if (i == warm_up)
            clock_gettime(CLOCK_MONOTONIC, &from);
        if (erd_post_recv(qp, &recv, NULL))
            fail("erd_post_recv");
        if (!starts)
            complete(1);
        if (erd_post_send(qp, &send, NULL))
            fail("erd_post_send");
        if (starts)
            complete(1);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (starts)
        printf("%d rounds of %d bytes: %.2f us one way\n", rounds, BYTES,
               ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3) / rounds / 2);
}

int main(int argc, char **argv)
{
    int pair[2], number, rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;
    struct erd_ah *other;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) {
        perror("socketpair");
        return 1;
    }
    number = fork_together(2);
    open_queue_pair();
    other = meet(pair[number]);
    play(other, number == 0, rounds);
    if (erd_destroy_qp(qp) || erd_destroy_ah(other) || erd_destroy_cq(cq) || erd_dealloc_pd(pd) ||
        erd_close_device(context))
        fail("closing");
    return others_failed();
}
