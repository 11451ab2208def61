/* Half round trips over erd.h between two processes of one host, made as tests/c/bench.c makes those
 * over libfabric: two pinned processes that poll, a receive posted ahead, every send reported.
 *
 *     bench_verbs BYTES ROUNDS CPU CPU
 *
 * The child's line is of the form of that program's. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <erd.h>

enum { SLOTS = 64, BATCH = 16, WARM_UP = 2000 };

static struct erd_context *context;
static struct erd_pd *pd;
static struct erd_cq *cq;
static struct erd_qp *qp;
static struct erd_ah *other;
static char *tx, *rx;
static size_t bytes, slot_bytes;
static unsigned long received, sent;

static void must(int fine, const char *what)
{
    if (fine)
        return;
    fprintf(stderr, "FAILED: %s: %s\n", what, erd_last_error());
    _exit(1);
}

static unsigned long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long)t.tv_sec * 1000000000u + (unsigned long)t.tv_nsec;
}

static void begin(int pair, int cpu)
{
    struct erd_qp_init_attr attr = {.size = sizeof attr, .max_send_wr = 2 * SLOTS, .max_recv_wr = 2 * SLOTS};
    union erd_name name = {0};
    socklen_t length = 0;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    must(cpu < 0 || sched_setaffinity(0, sizeof cpus, &cpus) == 0, "sched_setaffinity");
    slot_bytes = (bytes + 4096) / 4096 * 4096;
    tx = aligned_alloc(4096, SLOTS * slot_bytes);
    rx = aligned_alloc(4096, SLOTS * slot_bytes);
    must(tx && rx, "no memory");
    memset(tx, 0, SLOTS * slot_bytes);
    memset(rx, 0, SLOTS * slot_bytes);
    context = erd_open_device("127.0.0.1", NULL);
    pd = erd_alloc_pd(context);
    cq = erd_create_cq(context);
    attr.send_cq = attr.recv_cq = cq;
    attr.sq_sig_all = 1;
    qp = erd_create_qp(pd, &attr);
    must(qp != NULL, "erd_create_qp");
    must(erd_query_qp_name(qp, &name, &length) == 0, "erd_query_qp_name");
    must(write(pair, &name, sizeof name) == sizeof name, "telling the name");
    must(read(pair, &name, sizeof name) == sizeof name, "hearing the name");
    other = erd_create_ah(pd, &name.sa, length);
    must(other != NULL, "erd_create_ah");
}

static void step(void)
{
    struct erd_wc wc[BATCH];
    int polled = erd_poll_cq(cq, BATCH, wc);
    must(polled >= 0, "erd_poll_cq");
    for (int i = 0; i < polled; i++) {
        if (wc[i].status != ERD_WC_SUCCESS) {
            fprintf(stderr, "FAILED: an operation: %s\n", erd_wc_reason(&wc[i]));
            _exit(1);
        }
        if (wc[i].opcode == ERD_WC_RECV)
            received++;
        else
            sent++;
    }
}

static void post_recv(unsigned long number)
{
    struct erd_sge sge = {rx + number % SLOTS * slot_bytes, bytes};
    struct erd_recv_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1};
    must(erd_post_recv(qp, &wr, NULL) == 0, "erd_post_recv");
}

static void post_send(unsigned long number)
{
    struct erd_sge sge = {tx + number % SLOTS * slot_bytes, bytes};
    struct erd_send_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = ERD_WR_SEND, .ah = other};
    while (number >= sent + SLOTS)
        step();
    must(erd_post_send(qp, &wr, NULL) == 0, "erd_post_send");
}

static void serve(unsigned long rounds)
{
    for (unsigned long i = 0; i < rounds; i++) {
        while (received <= i)
            step();
        if (i + 1 < rounds)
            post_recv(i + 1);
        post_send(i);
    }
}

static void ask(unsigned long rounds, unsigned long *samples)
{
    for (unsigned long i = 0; i < rounds; i++) {
        unsigned long start;
        post_recv(i);
        start = now_ns();
        post_send(i);
        while (received <= i)
            step();
        samples[i] = (now_ns() - start) / 2;
    }
}

static int ascending(const void *a, const void *b)
{
    unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;
    return x < y ? -1 : x > y;
}

static void tell(unsigned long *samples, unsigned long count)
{
    qsort(samples, count, sizeof *samples, ascending);
    printf("{\"provider\":\"erd.h\",\"test\":\"latency\",\"size\":%zu,\"count\":%lu,\"p50_us\":%.3f,"
           "\"p99_us\":%.3f,\"p999_us\":%.3f}\n",
           bytes, count, (double)samples[count / 2] / 1e3, (double)samples[count * 99 / 100] / 1e3,
           (double)samples[count * 999 / 1000] / 1e3);
}

static void end(int pair, unsigned long rounds)
{
    char word = 0;
    while (sent < rounds)
        step();
    /* Neither closes under the other's last words. */
    must(write(pair, &word, 1) == 1 && read(pair, &word, 1) == 1, "the end");
    must(erd_destroy_qp(qp) == 0 && erd_destroy_ah(other) == 0 && erd_destroy_cq(cq) == 0 &&
             erd_dealloc_pd(pd) == 0 && erd_close_device(context) == 0,
         "closing");
}

int main(int argc, char **argv)
{
    unsigned long rounds, *samples;
    int pair[2], status = 0;
    pid_t child;
    if (argc != 5) {
        fprintf(stderr, "usage: bench_verbs BYTES ROUNDS CPU CPU\n");
        return 2;
    }
    bytes = strtoul(argv[1], NULL, 10);
    rounds = strtoul(argv[2], NULL, 10) + WARM_UP;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || (child = fork()) < 0) {
        perror("two processes");
        return 1;
    }
    close(pair[child != 0]);
    if (child) {
        begin(pair[0], atoi(argv[3]));
        post_recv(0);
        serve(rounds);
        end(pair[0], rounds);
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    begin(pair[1], atoi(argv[4]));
    samples = calloc(rounds, sizeof *samples);
    must(samples != NULL, "no memory");
    ask(rounds, samples);
    tell(samples + WARM_UP, rounds - WARM_UP);
    end(pair[1], rounds);
    return 0;
}
