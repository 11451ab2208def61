/* What messages wait for while 512 MiB are under way to the same peer, and what the long message loses by them.
 *
 * The parent is the server, the child the client; both poll without pause. The client sends the long message alone and then
 * beside short ones, in turns: one short message after the other, a pause apart. It writes two JSON objects a size:
 *   behind  from the short message's send to the server's word that it has come, percentiles in us
 *   bulk    bytes a second of the long message and the short ones together, as a share of the long one's alone
 * With -n both also tell how far apart the two processors are, as in bench.c.
 * A point that doesn't end within its limit ends the program with status 3. */
#include "line.h"

#include <getopt.h>

enum { BULK_TAG = 7, SHORT_TAG = 8, ECHO_TAG = 9, DONE_TAG = 10, SIZES_MAX = 16, SAMPLES_MAX = 4096, ROUNDS = 3 };
/* The pause grows with the message, so that the short ones are a small part of what flows. */
enum { PAUSE_NS = 2000000, PAUSE_NS_A_BYTE = 20 };
static const size_t BULK_BYTES = (size_t)512 << 20;

struct plan {
    const char *provider, *address;
    size_t sizes[SIZES_MAX], sizes_count;
    unsigned limit_seconds;
    int cpus[2];
    _Atomic uint64_t *line; /* in memory of both; NULL where it is not to be timed */
};

/* What the client asks of the server. */
enum command { POINT, LINE, END };

struct side {
    const struct plan *plan;
    struct node node;
    fi_addr_t peer;
    int oob;
    uint8_t *bulk, *message;
    size_t message_bytes; /* room for the longest */
    struct op bulk_op, short_op, echo_op, done_op;
};

/* Short messages of a size: their times in ns, and what the long one took beside them and alone. */
struct point {
    size_t bytes, count;
    uint64_t samples[SAMPLES_MAX], beside_ns, alone_ns;
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

static void wait_for(struct side *side, const struct op *op)
{
    while (!op->state)
        step(side);
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

/* Progresses once, and answers a short message that has come. */
static void answer(struct side *side)
{
    step(side);
    if (!side->short_op.state || !side->echo_op.state)
        return;
    post_recv(side, side->message, side->message_bytes, SHORT_TAG, &side->short_op);
    post_send(side, NULL, 0, ECHO_TAG, &side->echo_op);
}

static void serve_point(struct side *side)
{
    uint64_t ready = 1;
    post_recv(side, side->bulk, BULK_BYTES, BULK_TAG, &side->bulk_op);
    oob_send(side->oob, &ready, sizeof ready);
    while (!side->bulk_op.state)
        answer(side);
    post_send(side, NULL, 0, DONE_TAG, &side->done_op);
    /* The last short message may come after the long one. */
    while (recv(side->oob, &ready, sizeof ready, MSG_DONTWAIT) < 0)
        answer(side);
    wait_for(side, &side->done_op);
}

static void serve(struct side *side)
{
    enum command command;
    side->echo_op.state = 1;
    post_recv(side, side->message, side->message_bytes, SHORT_TAG, &side->short_op);
    for (;;) {
        alarm(0);
        oob_recv(side->oob, &command, sizeof command, &side->node);
        if (command == END)
            return;
        alarm(side->plan->limit_seconds);
        if (command == LINE)
            line_answer(side->plan->line);
        else
            serve_point(side);
    }
}

/* Sends the long message, beside short ones if there is a `point` to take their times. Answers how long it took in ns. */
static uint64_t send_bulk(struct side *side, struct point *point)
{
    enum command command = POINT;
    uint64_t ready, begin, start = 0, took = 0, pause = point ? PAUSE_NS + PAUSE_NS_A_BYTE * point->bytes : 0, next;
    bool waits = false;
    oob_send(side->oob, &command, sizeof command);
    oob_recv(side->oob, &ready, sizeof ready, &side->node);
    post_recv(side, NULL, 0, DONE_TAG, &side->done_op);
    begin = now_ns();
    next = begin + pause;
    post_send(side, side->bulk, BULK_BYTES, BULK_TAG, &side->bulk_op);
    while (!took || waits) {
        step(side);
        if (side->done_op.state && !took)
            took = now_ns() - begin;
        if (waits && side->echo_op.state) {
            point->samples[point->count++] = now_ns() - start;
            waits = false;
            next = now_ns() + pause;
        }
        if (point && !waits && !took && now_ns() >= next && point->count < SAMPLES_MAX) {
            post_recv(side, NULL, 0, ECHO_TAG, &side->echo_op);
            start = now_ns();
            post_send(side, side->message, point->bytes, SHORT_TAG, &side->short_op);
            waits = true;
        }
    }
    wait_for(side, &side->bulk_op);
    wait_for(side, &side->short_op);
    oob_send(side->oob, &ready, sizeof ready);
    return took;
}

/* What a cache line takes there and back in ns; 0 where it is not to be timed. */
static uint64_t time_line(struct side *side)
{
    enum command command = LINE;
    if (!side->plan->line)
        return 0;
    atomic_store(side->plan->line, 0);
    oob_send(side->oob, &command, sizeof command);
    return line_ns(side->plan->line);
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void begin_line(struct side *side, const char *test, const struct point *point, const uint64_t lines[2])
{
    printf("{\"provider\":\"%s\",\"test\":\"%s\",\"size\":%zu,\"count\":%zu", side->plan->provider, test, point->bytes,
           point->count);
    if (side->plan->line)
        printf(",\"line_ns\":[%llu,%llu]", (unsigned long long)lines[0], (unsigned long long)lines[1]);
}

static void print_point(struct side *side, struct point *point, const uint64_t lines[2])
{
    double bulk = (double)BULK_BYTES * ROUNDS, shorts = (double)point->bytes * (double)point->count;
    double alone = bulk / ((double)point->alone_ns / 1e9), beside = (bulk + shorts) / ((double)point->beside_ns / 1e9);
    qsort(point->samples, point->count, sizeof *point->samples, ascending);
    begin_line(side, "behind", point, lines);
    printf(",\"p50_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f}\n", (double)point->samples[point->count / 2] / 1e3,
           (double)point->samples[point->count * 99 / 100] / 1e3, (double)point->samples[point->count * 999 / 1000] / 1e3);
    begin_line(side, "bulk", point, lines);
    printf(",\"share\":%.4f,\"bytes_per_s\":%.1f,\"alone_bytes_per_s\":%.1f}\n", beside / alone, beside, alone);
    fflush(stdout);
}

static void measure(struct side *side, size_t bytes)
{
    static struct point point;
    uint64_t lines[2];
    memset(&point, 0, sizeof point);
    point.bytes = bytes;
    side->short_op.state = 1;
    alarm(side->plan->limit_seconds);
    lines[0] = time_line(side);
    for (int round = 0; round < ROUNDS; round++) {
        point.alone_ns += send_bulk(side, NULL);
        point.beside_ns += send_bulk(side, &point);
    }
    lines[1] = time_line(side);
    check(point.count > 0, "512 MiB took less than a pause: no message was sent beside them");
    print_point(side, &point, lines);
    alarm(0);
}

static void client(struct side *side)
{
    enum command end = END;
    uint32_t version = fi_version();
    printf("{\"provider\":\"%s\",\"runs\":\"%s\",\"libfabric\":\"%u.%u\"}\n", side->plan->provider,
           side->node.info->fabric_attr->prov_name, FI_MAJOR(version), FI_MINOR(version));
    for (size_t i = 0; i < side->plan->sizes_count; i++)
        measure(side, side->plan->sizes[i]);
    oob_send(side->oob, &end, sizeof end);
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
    side.bulk = node_memory(1, BULK_BYTES);
    side.message = node_memory(1, side.message_bytes);
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

static void add_sizes(struct plan *plan, char *list)
{
    for (char *rest = NULL, *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        check(plan->sizes_count < SIZES_MAX, "-s: at most %d sizes", SIZES_MAX);
        plan->sizes[plan->sizes_count] = strtoull(word, NULL, 10);
        check(plan->sizes[plan->sizes_count++] > 0, "-s: a size is a number of bytes, not %s", word);
    }
}

static void parse(struct plan *plan, int argc, char **argv)
{
    bool lines = false;
    int option;
    while ((option = getopt(argc, argv, "p:a:s:l:c:n")) != -1) {
        switch (option) {
        case 'p': plan->provider = optarg; break;
        case 'a': plan->address = optarg; break;
        case 's': add_sizes(plan, optarg); break;
        case 'l': plan->limit_seconds = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'c': check(sscanf(optarg, "%d,%d", &plan->cpus[0], &plan->cpus[1]) == 2, "-c wants two CPUs"); break;
        case 'n': lines = true; break;
        default:
            die("usage: bench_behind -p PROVIDER [-a ADDRESS] -s SIZE,... [-l LIMIT in s a point] [-c CPU,CPU]\n"
                "                    [-n times a cache line between the CPUs]");
        }
    }
    check(plan->provider && plan->sizes_count, "-p and -s are needed");
    if (lines)
        plan->line = line_share(plan->cpus);
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
