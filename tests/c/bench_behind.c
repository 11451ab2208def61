/* What messages wait for while 512 MiB are under way to the same peer.
 *
 * The parent is the server, the child the client; both poll without pause. The client sends the long message and, as long
 * as it lasts, one short message after the other, a pause apart. It writes one JSON object a line:
 *   behind  from the short message's send to the server's word that it has come, percentiles in us
 *   bulk    bytes a second of the long message and the short ones together; size 0 is the long one alone
 * A point that doesn't end within its limit ends the program with status 3. */
#include "node.h"

#include <getopt.h>

enum { BULK_TAG = 7, SHORT_TAG = 8, ECHO_TAG = 9, DONE_TAG = 10, SIZES_MAX = 16, SAMPLES_MAX = 4096, ROUNDS = 3 };
/* The pause grows with the message, so that the short ones are a small part of what flows. */
enum { PAUSE_NS = 2000000, PAUSE_NS_A_BYTE = 20 };
static const size_t BULK_BYTES = (size_t)512 << 20;

struct plan {
    const char *provider, *address, *test;
    size_t sizes[SIZES_MAX], sizes_count;
    unsigned limit_seconds;
    int cpus[2];
};

struct side {
    const struct plan *plan;
    struct node node;
    fi_addr_t peer;
    int oob;
    uint8_t *bulk, *message;
    size_t message_bytes; /* room for the longest */
    struct op bulk_op, short_op, echo_op, done_op;
};

struct command {
    uint64_t bytes;
    bool ends;
};

static void on_alarm(int signal)
{
    static const char late[] = "FAILED: a point did not end in time\n";
    (void)signal;
    _exit(write(STDERR_FILENO, late, sizeof late - 1) < 0 ? 4 : 3);
}

static void step(struct side *side)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    must(node_poll(&side->node, &op, &entry, NULL), "an operation");
}

static void post_recv(struct side *side, void *bytes, size_t length, uint64_t tag, struct op *op)
{
    op->state = 0;
    must(fi_trecv(side->node.ep, bytes, length, NULL, FI_ADDR_UNSPEC, tag, 0, op), "fi_trecv");
}

static void post_send(struct side *side, const void *bytes, size_t length, uint64_t tag, struct op *op)
{
    ssize_t rc;
    op->state = 0;
    while ((rc = fi_tsend(side->node.ep, bytes, length, NULL, side->peer, tag, op)) == -FI_EAGAIN)
        step(side);
    must(rc, "fi_tsend");
}

/* Answers short messages until the long one is there. */
static void serve_point(struct side *side)
{
    side->echo_op.state = 1;
    while (!side->bulk_op.state) {
        step(side);
        if (side->short_op.state && side->echo_op.state) {
            post_recv(side, side->message, side->message_bytes, SHORT_TAG, &side->short_op);
            post_send(side, NULL, 0, ECHO_TAG, &side->echo_op);
        }
    }
    post_send(side, NULL, 0, DONE_TAG, &side->done_op);
    while (!side->done_op.state)
        step(side);
}

static void serve(struct side *side)
{
    uint64_t ready = 1;
    post_recv(side, side->message, side->message_bytes, SHORT_TAG, &side->short_op);
    for (;;) {
        struct command command;
        alarm(0);
        oob_recv(side->oob, &command, sizeof command, NULL);
        if (command.ends)
            return;
        alarm(side->plan->limit_seconds);
        post_recv(side, side->bulk, BULK_BYTES, BULK_TAG, &side->bulk_op);
        oob_send(side->oob, &ready, sizeof ready);
        serve_point(side);
        /* The last short message may come after the long one. */
        while (recv(side->oob, &ready, sizeof ready, MSG_DONTWAIT) < 0) {
            step(side);
            if (side->short_op.state && side->echo_op.state) {
                post_recv(side, side->message, side->message_bytes, SHORT_TAG, &side->short_op);
                post_send(side, NULL, 0, ECHO_TAG, &side->echo_op);
            }
        }
    }
}

/* Sends the long message once; adds samples, and answers how many there are. */
static size_t ask(struct side *side, size_t bytes, uint64_t *samples, size_t count, uint64_t *took, uint64_t *sent)
{
    struct command command = {.bytes = bytes};
    uint64_t ready, begin, next, start = 0, pause = PAUSE_NS + PAUSE_NS_A_BYTE * bytes;
    bool waits = false;
    oob_send(side->oob, &command, sizeof command);
    oob_recv(side->oob, &ready, sizeof ready, &side->node);
    post_recv(side, NULL, 0, DONE_TAG, &side->done_op);
    begin = now_ns();
    next = begin + pause;
    post_send(side, side->bulk, BULK_BYTES, BULK_TAG, &side->bulk_op);
    while (!side->done_op.state || waits) {
        step(side);
        if (side->done_op.state && *took == 0)
            *took = now_ns() - begin;
        if (waits && side->echo_op.state) {
            samples[count++] = now_ns() - start;
            *sent += bytes;
            waits = false;
            next = now_ns() + pause;
        }
        if (bytes && !waits && !side->done_op.state && now_ns() >= next && count < SAMPLES_MAX) {
            post_recv(side, NULL, 0, ECHO_TAG, &side->echo_op);
            start = now_ns();
            post_send(side, side->message, bytes, SHORT_TAG, &side->short_op);
            waits = true;
        }
    }
    while (!side->bulk_op.state || (bytes && !side->short_op.state))
        step(side);
    oob_send(side->oob, &ready, sizeof ready);
    return count;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void measure(struct side *side, size_t bytes)
{
    static uint64_t samples[SAMPLES_MAX];
    uint64_t took = 0, sent = 0, all = 0;
    size_t count = 0;
    alarm(side->plan->limit_seconds);
    side->short_op.state = 1;
    for (int round = 0; round < ROUNDS; round++) {
        took = 0;
        count = ask(side, bytes, samples, count, &took, &sent);
        all += took;
    }
    qsort(samples, count, sizeof *samples, ascending);
    printf("{\"provider\":\"%s\",\"test\":\"%s\",\"size\":%zu", side->plan->provider, side->plan->test, bytes);
    if (strcmp(side->plan->test, "bulk") == 0)
        printf(",\"bytes_per_s\":%.1f}\n", ((double)BULK_BYTES * ROUNDS + (double)sent) / ((double)all / 1e9));
    else
        printf(",\"count\":%zu,\"p50_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f}\n", count,
               count ? (double)samples[count / 2] / 1e3 : 0, count ? (double)samples[count * 99 / 100] / 1e3 : 0,
               count ? (double)samples[count * 999 / 1000] / 1e3 : 0);
    fflush(stdout);
    alarm(0);
}

static void client(struct side *side)
{
    struct command end = {.ends = true};
    uint32_t version = fi_version();
    printf("{\"provider\":\"%s\",\"runs\":\"%s\",\"libfabric\":\"%u.%u\"}\n", side->plan->provider,
           side->node.info->fabric_attr->prov_name, FI_MAJOR(version), FI_MINOR(version));
    for (size_t i = 0; i < side->plan->sizes_count; i++)
        measure(side, side->plan->sizes[i]);
    oob_send(side->oob, &end, sizeof end);
}

static uint8_t *filled(size_t bytes)
{
    void *memory = NULL;
    check(posix_memalign(&memory, 4096, bytes) == 0, "no memory for %zu bytes", bytes);
    memset(memory, 1, bytes);
    return memory;
}

static void run_side(const struct plan *plan, int oob, bool server)
{
    struct side side = {.plan = plan, .oob = oob};
    struct node_options options = {.provider = plan->provider, .address = plan->address};
    uint64_t gone = 0;
    signal(SIGALRM, on_alarm);
    alarm(20);
    pin_to_cpu(plan->cpus[server ? 0 : 1]);
    for (size_t i = 0; i < plan->sizes_count; i++)
        side.message_bytes = plan->sizes[i] > side.message_bytes ? plan->sizes[i] : side.message_bytes;
    side.message_bytes += 64;
    side.bulk = filled(BULK_BYTES);
    side.message = filled(side.message_bytes);
    node_open(&side.node, &options);
    side.peer = node_meet(&side.node, oob);
    if (server)
        serve(&side);
    else
        client(&side);
    alarm(20);
    oob_send(oob, &gone, sizeof gone);
    oob_recv(oob, &gone, sizeof gone, &side.node);
    node_close(&side.node);
}

static void parse(struct plan *plan, int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "p:a:t:s:m:l:c:n")) != -1) {
        switch (option) {
        case 'p': plan->provider = optarg; break;
        case 'a': plan->address = optarg; break;
        case 't': plan->test = optarg; break;
        case 's':
            for (char *rest = NULL, *word = strtok_r(optarg, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
                check(plan->sizes_count < SIZES_MAX, "-s: at most %d sizes", SIZES_MAX);
                plan->sizes[plan->sizes_count++] = strtoull(word, NULL, 10);
            }
            break;
        case 'm': break; /* a point lasts as long as the long message */
        case 'l': plan->limit_seconds = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'c': check(sscanf(optarg, "%d,%d", &plan->cpus[0], &plan->cpus[1]) == 2, "-c wants two CPUs"); break;
        default:
            die("usage: bench_behind -p PROVIDER [-a ADDRESS] -t behind|bulk -s SIZE,... [-l LIMIT in s a point] [-c CPU,CPU]");
        }
    }
    check(plan->provider && plan->test && plan->sizes_count, "-p, -t and -s are needed");
}

int main(int argc, char **argv)
{
    struct plan plan = {.limit_seconds = 20, .cpus = {-1, -1}};
    int oob;
    pid_t child;
    parse(&plan, argc, argv);
    child = fork_side(&oob);
    run_side(&plan, oob, child != 0);
    return child ? end_of(child) : 0;
}
