/* Latency, bandwidth and message rate of one libfabric provider between two processes of one host.
 *
 * The parent is the server, the child the client; both are forked before libfabric starts, poll
 * without pause (FI_PROGRESS_MANUAL, FI_WAIT_NONE, FI_THREAD_DOMAIN) and use tagged messages.
 * The client writes one JSON object a line to its output:
 *   latency    half of a round trip, percentiles in us
 *   sleep      the same, but both sleep in fi_cq_sread until an answer comes
 *   exchange   both send at once, and wait for both completions, percentiles in us
 *   bandwidth  one way, `window` messages outstanding, until the receiver has said that it has all
 *   reuse      the same with one buffer a side for all messages, which stays in the cache
 *   rate       one way, an acknowledgement after every `window` messages
 *   write      into the server's memory, `window` writes outstanding
 *   read       out of it, likewise
 *   fetch      an atomic fetch and add of 8 bytes, from the call to the completion
 * With -n each point also tells how far apart the two processors are, before it and after it: line_ns is
 * what a cache line takes there and back. A virtual machine's processors move between its host's.
 * A point that doesn't end within its limit is reported as such and ends the program with status 3. */
#include "line.h"

#include <getopt.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

enum { DATA_TAG = 7, ACK_TAG = 9, SIZES_MAX = 32, SAMPLES_MAX = 200000, WINDOW_MAX = 1024, BATCH = 16, SLEEP_MS = 1000 };
enum test { LATENCY, SLEEP, EXCHANGE, BANDWIDTH, REUSE, RATE, WRITE, READ, FETCH, TESTS, LINE, END };
static const char *const TEST_NAMES[TESTS] = {"latency", "sleep", "exchange", "bandwidth", "reuse", "rate", "write", "read", "fetch"};

/* What both processes know from the command line. */
struct plan {
    const char *provider, *address;
    bool tests[TESTS];
    size_t sizes[SIZES_MAX], sizes_count;
    uint64_t point_ns;
    unsigned limit_seconds;
    int cpus[2];
    size_t window;
    bool verify;
    _Atomic uint64_t *line; /* in memory of both; NULL where it is not to be timed */
};

struct command {
    uint64_t test, size, count;
};

/* The server's receive buffers, as the client reaches them. */
struct exposed {
    uint64_t addr, key;
};

struct side {
    const struct plan *plan;
    struct node node;
    fi_addr_t peer;
    int oob;
    uint8_t *tx, *rx; /* `window` slots of the largest size each */
    size_t slot_bytes;
    struct op *tx_ops, *rx_ops, ack_op, through_op;
    struct fid_mr *mr;
    struct exposed exposed;
    uint64_t received;
    struct command command;
};

static char late_line[256];
static size_t late_bytes;

static void on_alarm(int signal)
{
    (void)signal;
    if (late_bytes && write(STDOUT_FILENO, late_line, late_bytes) < 0)
        _exit(4);
    _exit(3);
}

/* Where the buffers of a message start, in bytes. */
static size_t place(const struct side *side, size_t slot)
{
    return side->command.test == REUSE ? 0 : slot * side->slot_bytes;
}

/* Tests of the server's memory: it only progresses. */
static bool reaches_memory(uint64_t test)
{
    return test == WRITE || test == READ || test == FETCH;
}

/* One message a side at a time. */
static bool is_in_turns(uint64_t test)
{
    return test == LATENCY || test == SLEEP || test == EXCHANGE;
}

/* Contents tell messages apart, unless all lie in the same place. */
static bool verifies(const struct side *side)
{
    return side->plan->verify && side->command.test != REUSE;
}

static void arrived(struct side *side, const struct fi_cq_tagged_entry *entry)
{
    struct op *op = entry->op_context;
    op->state = 1;
    if (!(entry->flags & FI_RECV) || op == &side->ack_op || op == &side->through_op)
        return;
    side->received++;
    check(entry->len == side->command.size, "a message of %llu bytes came with %zu",
          (unsigned long long)side->command.size, entry->len);
    if (verifies(side))
        pattern_check(side->rx + place(side, (size_t)(op - side->rx_ops)), entry->len, op->id);
}

/* Progresses once; counts and checks what arrived. */
static void step(struct side *side)
{
    struct fi_cq_tagged_entry entries[BATCH];
    bool sleeps = side->command.test == SLEEP;
    ssize_t got = sleeps ? fi_cq_sread(side->node.cq, entries, BATCH, NULL, SLEEP_MS)
                         : fi_cq_read(side->node.cq, entries, BATCH);
    struct op *op;
    if (got == -FI_EAVAIL)
        must(node_poll(&side->node, &op, entries, NULL), "an operation");
    else if (got != -FI_EAGAIN)
        must(got, "fi_cq_read");
    for (ssize_t i = 0; i < got; i++)
        arrived(side, &entries[i]);
}

static void wait_for(struct side *side, const struct op *op)
{
    while (op->state == 0)
        step(side);
}

static void post_recv(struct side *side, uint64_t number)
{
    size_t slot = number % side->plan->window;
    struct op *op = &side->rx_ops[slot];
    ssize_t rc;
    op->id = number;
    op->state = 0;
    while ((rc = fi_trecv(side->node.ep, side->rx + place(side, slot), side->command.size, NULL,
                          FI_ADDR_UNSPEC, DATA_TAG, 0, op)) == -FI_EAGAIN)
        step(side);
    must(rc, "fi_trecv");
}

static void post_send(struct side *side, uint64_t number)
{
    size_t slot = number % side->plan->window;
    struct op *op = &side->tx_ops[slot];
    uint8_t *bytes = side->tx + place(side, slot);
    ssize_t rc;
    wait_for(side, op);
    op->state = 0;
    if (verifies(side))
        pattern_fill(bytes, side->command.size, number);
    while ((rc = fi_tsend(side->node.ep, bytes, side->command.size, NULL, side->peer, DATA_TAG, op)) == -FI_EAGAIN)
        step(side);
    must(rc, "fi_tsend");
}

static void post_access(struct side *side, uint64_t number)
{
    static uint64_t one = 1;
    size_t slot = number % side->plan->window, at = place(side, slot), bytes = side->command.size;
    struct op *op = &side->tx_ops[slot];
    const struct exposed *to = &side->exposed;
    ssize_t rc;
    wait_for(side, op);
    op->state = 0;
    do {
        if (side->command.test == WRITE)
            rc = fi_write(side->node.ep, side->tx + at, bytes, NULL, side->peer, to->addr + at, to->key, op);
        else if (side->command.test == READ)
            rc = fi_read(side->node.ep, side->tx + at, bytes, NULL, side->peer, to->addr + at, to->key, op);
        else
            rc = fi_fetch_atomic(side->node.ep, &one, 1, NULL, side->tx, NULL, side->peer, to->addr, to->key, FI_UINT64,
                                 FI_SUM, op);
        if (rc == -FI_EAGAIN)
            step(side);
    } while (rc == -FI_EAGAIN);
    must(rc, "a request to the server's memory");
}

static void drain_sends(struct side *side)
{
    for (size_t slot = 0; slot < side->plan->window; slot++)
        wait_for(side, &side->tx_ops[slot]);
}

static void post_ack_recv(struct side *side)
{
    side->ack_op.state = 0;
    must(fi_trecv(side->node.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, ACK_TAG, 0, &side->ack_op), "fi_trecv of an ack");
}

static void send_ack(struct side *side)
{
    ssize_t rc;
    side->ack_op.state = 0;
    while ((rc = fi_tsend(side->node.ep, NULL, 0, NULL, side->peer, ACK_TAG, &side->ack_op)) == -FI_EAGAIN)
        step(side);
    must(rc, "fi_tsend of an ack");
    wait_for(side, &side->ack_op);
}

static void serve_latency(struct side *side)
{
    for (uint64_t i = 0; i < side->command.count; i++) {
        while (side->received <= i)
            step(side);
        if (i + 1 < side->command.count)
            post_recv(side, i + 1);
        post_send(side, i);
    }
    drain_sends(side);
}

/* One message each way, of both sides the same. The receive of the next is posted before the send, so that
 * none comes unexpected. */
static void exchange(struct side *side, uint64_t number)
{
    if (number + 1 < side->command.count)
        post_recv(side, number + 1);
    post_send(side, number);
    while (side->received <= number || side->tx_ops[number % side->plan->window].state == 0)
        step(side);
}

/* Until the client is through, which is what it says last. */
static void serve_memory(struct side *side)
{
    wait_for(side, &side->ack_op);
    send_ack(side);
}

static void serve_stream(struct side *side)
{
    uint64_t count = side->command.count, window = side->plan->window, posted = window < count ? window : count;
    while (side->received < count) {
        step(side);
        /* Messages may complete out of order: a slot is free when its own has. */
        for (; posted < count && side->rx_ops[posted % window].state; posted++)
            post_recv(side, posted);
        if (side->command.test == RATE && side->received && side->received % window == 0 &&
            side->ack_op.id != side->received) {
            side->ack_op.id = side->received;
            send_ack(side);
        }
    }
    if (side->command.test != RATE)
        send_ack(side);
}

static void serve(struct side *side)
{
    for (;;) {
        uint64_t ready = 1, first;
        alarm(0);
        oob_recv(side->oob, &side->command, sizeof side->command, &side->node);
        if (side->command.test == END)
            return;
        alarm(side->plan->limit_seconds + 2);
        if (side->command.test == LINE) {
            line_answer(side->plan->line);
            continue;
        }
        side->received = 0;
        side->ack_op.id = 0;
        first = reaches_memory(side->command.test) ? 0 : is_in_turns(side->command.test) ? 1 : side->plan->window;
        if (reaches_memory(side->command.test))
            post_ack_recv(side);
        for (uint64_t i = 0; i < first && i < side->command.count; i++)
            post_recv(side, i);
        oob_send(side->oob, &ready, sizeof ready);
        if (side->command.test == LATENCY || side->command.test == SLEEP)
            serve_latency(side);
        else if (side->command.test == EXCHANGE)
            for (uint64_t i = 0; i < side->command.count; i++)
                exchange(side, i);
        else if (reaches_memory(side->command.test))
            serve_memory(side);
        else
            serve_stream(side);
        oob_send(side->oob, &ready, sizeof ready);
    }
}

/* Fills samples (ns of half round trips) and answers how many it filled. */
static void ask_latency(struct side *side, uint64_t *samples)
{
    for (uint64_t i = 0; i < side->command.count; i++) {
        uint64_t start;
        post_recv(side, i);
        start = now_ns();
        post_send(side, i);
        while (side->received <= i)
            step(side);
        samples[i] = (now_ns() - start) / 2;
    }
    drain_sends(side);
}

/* Fills samples (ns from the send to both completions). */
static void ask_exchange(struct side *side, uint64_t *samples)
{
    post_recv(side, 0);
    for (uint64_t i = 0; i < side->command.count; i++) {
        uint64_t start = now_ns();
        exchange(side, i);
        samples[i] = now_ns() - start;
    }
}

static void ask_stream(struct side *side)
{
    uint64_t window = side->plan->window;
    if (side->command.test != RATE)
        post_ack_recv(side);
    for (uint64_t i = 0; i < side->command.count; i++) {
        if (side->command.test == RATE && i % window == 0)
            post_ack_recv(side);
        post_send(side, i);
        if (side->command.test == RATE && i % window == window - 1)
            wait_for(side, &side->ack_op);
    }
    wait_for(side, &side->ack_op);
    drain_sends(side);
}

/* Fills samples (ns from call to completion) of a fetch. What is written has arrived before the word
 * that follows it is answered. */
static void ask_memory(struct side *side, uint64_t *samples)
{
    ssize_t rc;
    for (uint64_t i = 0; i < side->command.count; i++) {
        uint64_t start = now_ns();
        post_access(side, i);
        if (side->command.test != FETCH)
            continue;
        wait_for(side, &side->tx_ops[i % side->plan->window]);
        samples[i] = now_ns() - start;
    }
    drain_sends(side);
    post_ack_recv(side);
    side->through_op.state = 0;
    while ((rc = fi_tsend(side->node.ep, NULL, 0, NULL, side->peer, ACK_TAG, &side->through_op)) == -FI_EAGAIN)
        step(side);
    must(rc, "fi_tsend of the last word");
    wait_for(side, &side->through_op);
    wait_for(side, &side->ack_op);
}

/* One command to the server, from its word that it is ready to its word that it is through.
 * Answers the time in ns. */
static uint64_t ask(struct side *side, uint64_t count, uint64_t *samples)
{
    uint64_t ready, start, took;
    side->command.count = count;
    side->received = 0;
    oob_send(side->oob, &side->command, sizeof side->command);
    oob_recv(side->oob, &ready, sizeof ready, &side->node);
    start = now_ns();
    if (side->command.test == LATENCY || side->command.test == SLEEP)
        ask_latency(side, samples);
    else if (side->command.test == EXCHANGE)
        ask_exchange(side, samples);
    else if (reaches_memory(side->command.test))
        ask_memory(side, samples);
    else
        ask_stream(side);
    took = now_ns() - start;
    oob_recv(side->oob, &ready, sizeof ready, &side->node);
    return took ? took : 1;
}

/* Bytes sent on `lo` of this process's network namespace; 0 where that can't be read. */
static uint64_t bytes_on_loopback(void)
{
    unsigned long long bytes = 0;
    char line[512];
    FILE *file = fopen("/proc/self/net/dev", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, " lo: %*u %*u %*u %*u %*u %*u %*u %*u %llu", &bytes) == 1)
            break;
    }
    if (file)
        fclose(file);
    return bytes;
}

/* What a cache line takes there and back in ns; 0 where it is not to be timed. */
static uint64_t time_line(struct side *side)
{
    struct command command = {.test = LINE};
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

/* `lines`: what time_line answered before and after. */
static void print_point(struct side *side, uint64_t took_ns, uint64_t *samples, uint64_t lo_bytes,
                        const uint64_t lines[2])
{
    struct command *command = &side->command;
    double seconds = (double)took_ns / 1e9, count = (double)command->count;
    printf("{\"provider\":\"%s\",\"test\":\"%s\",\"size\":%llu,\"count\":%llu,\"lo_bytes\":%llu", side->plan->provider,
           TEST_NAMES[command->test], (unsigned long long)command->size, (unsigned long long)command->count,
           (unsigned long long)lo_bytes);
    if (side->plan->line)
        printf(",\"line_ns\":[%llu,%llu]", (unsigned long long)lines[0], (unsigned long long)lines[1]);
    if (is_in_turns(command->test) || command->test == FETCH) {
        qsort(samples, command->count, sizeof *samples, ascending);
        printf(",\"p50_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f", (double)samples[command->count / 2] / 1e3,
               (double)samples[command->count * 99 / 100] / 1e3, (double)samples[command->count * 999 / 1000] / 1e3);
    } else {
        printf(",\"messages_per_s\":%.1f,\"bytes_per_s\":%.1f", count / seconds,
               count * (double)command->size / seconds);
    }
    printf("}\n");
    fflush(stdout);
}

static void measure(struct side *side, uint64_t *samples)
{
    const struct plan *plan = side->plan;
    bool latency = is_in_turns(side->command.test) || side->command.test == FETCH;
    uint64_t unit = latency ? 1 : plan->window, most = latency ? SAMPLES_MAX : 1u << 24, count = latency ? 20 : unit;
    uint64_t took, before, lines[2];
    late_bytes = (size_t)snprintf(
        late_line, sizeof late_line,
        "{\"provider\":\"%s\",\"test\":\"%s\",\"size\":%llu,\"error\":\"no end within %u s\"}\n", plan->provider,
        TEST_NAMES[side->command.test], (unsigned long long)side->command.size, plan->limit_seconds);
    alarm(plan->limit_seconds);
    /* The first run warms up, the second, four times as long, tells how many fit the time. */
    ask(side, count, samples);
    count *= 4;
    took = ask(side, count, samples);
    count = plan->point_ns * count / took;
    count = count < unit * 4 ? unit * 4 : count > most ? most : count;
    count -= count % unit;
    before = bytes_on_loopback();
    lines[0] = time_line(side);
    took = ask(side, count, samples);
    lines[1] = time_line(side);
    print_point(side, took, samples, bytes_on_loopback() - before, lines);
    alarm(0);
}

static void client(struct side *side)
{
    uint64_t *samples = calloc(SAMPLES_MAX, sizeof *samples);
    uint32_t version = fi_version();
    check(samples != NULL, "no memory");
    printf("{\"provider\":\"%s\",\"runs\":\"%s\",\"libfabric\":\"%u.%u\"}\n", side->plan->provider,
           side->node.info->fabric_attr->prov_name, FI_MAJOR(version), FI_MINOR(version));
    fflush(stdout);
    for (int test = 0; test < TESTS; test++) {
        for (size_t i = 0; side->plan->tests[test] && i < side->plan->sizes_count; i++) {
            bool stream = test == BANDWIDTH || test == REUSE || test == WRITE || test == READ;
            if ((stream && side->plan->sizes[i] == 0) || (test == FETCH && side->plan->sizes[i] != sizeof(uint64_t)))
                continue;
            side->command.test = (uint64_t)test;
            side->command.size = side->plan->sizes[i];
            measure(side, samples);
        }
    }
    side->command.test = END;
    oob_send(side->oob, &side->command, sizeof side->command);
    free(samples);
}

/* The server lets the client reach its receive buffers. */
static void expose(struct side *side, bool server)
{
    size_t bytes = side->plan->window * side->slot_bytes;
    uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    if (!server) {
        oob_recv(side->oob, &side->exposed, sizeof side->exposed, &side->node);
        return;
    }
    must(fi_mr_reg(side->node.domain, side->rx, bytes, access, 0, 1, 0, &side->mr, NULL), "fi_mr_reg");
    side->exposed.key = fi_mr_key(side->mr);
    if (side->node.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
        side->exposed.addr = (uintptr_t)side->rx;
    oob_send(side->oob, &side->exposed, sizeof side->exposed);
}

static void run_side(const struct plan *plan, int oob, bool server)
{
    struct side side = {.plan = plan, .oob = oob};
    struct node_options options = {.provider = plan->provider, .address = plan->address, .queue_size = plan->window * 2};
    bool memory = plan->tests[WRITE] || plan->tests[READ] || plan->tests[FETCH];
    uint64_t gone = 0;
    signal(SIGALRM, on_alarm);
    alarm(20);
    pin_to_cpu(plan->cpus[server ? 0 : 1]);
    for (size_t i = 0; i < plan->sizes_count; i++)
        side.slot_bytes = plan->sizes[i] > side.slot_bytes ? plan->sizes[i] : side.slot_bytes;
    side.slot_bytes = (side.slot_bytes + 4096) / 4096 * 4096;
    side.tx = node_memory(plan->window, side.slot_bytes);
    side.rx = node_memory(plan->window, side.slot_bytes);
    side.tx_ops = node_memory(plan->window, sizeof(struct op));
    side.rx_ops = node_memory(plan->window, sizeof(struct op));
    for (size_t i = 0; i < plan->window; i++)
        side.tx_ops[i].state = 1;
    options.wait = plan->tests[SLEEP] ? FI_WAIT_UNSPEC : FI_WAIT_NONE;
    options.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    options.caps = (memory ? FI_RMA : 0) | (plan->tests[FETCH] ? FI_ATOMIC : 0);
    node_open(&side.node, &options);
    side.peer = node_meet(&side.node, oob);
    if (memory)
        expose(&side, server);
    if (server)
        serve(&side);
    else
        client(&side);
    /* Both stay until the other is through, so that neither closes under the other's last words. */
    late_bytes = 0;
    alarm(20);
    oob_send(oob, &gone, sizeof gone);
    oob_recv(oob, &gone, sizeof gone, &side.node);
    if (side.mr)
        must(fi_close(&side.mr->fid), "fi_close of the registration");
    node_close(&side.node);
}

static void parse_list(char *text, void (*each)(struct plan *, const char *), struct plan *plan)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        each(plan, word);
}

static void add_test(struct plan *plan, const char *word)
{
    for (int test = 0; test < TESTS; test++) {
        if (strcmp(word, TEST_NAMES[test]) == 0) {
            plan->tests[test] = true;
            return;
        }
    }
    die("-t %s: there are latency, sleep, exchange, bandwidth, reuse, rate, write, read and fetch", word);
}

static void add_size(struct plan *plan, const char *word)
{
    check(plan->sizes_count < SIZES_MAX, "-s: at most %d sizes", SIZES_MAX);
    plan->sizes[plan->sizes_count++] = strtoull(word, NULL, 10);
}

static void parse(struct plan *plan, int argc, char **argv)
{
    bool lines = false;
    int option;
    while ((option = getopt(argc, argv, "p:a:t:s:m:l:c:w:kn")) != -1) {
        switch (option) {
        case 'p': plan->provider = optarg; break;
        case 'a': plan->address = optarg; break;
        case 't': parse_list(optarg, add_test, plan); break;
        case 's': parse_list(optarg, add_size, plan); break;
        case 'm': plan->point_ns = strtoull(optarg, NULL, 10) * 1000000; break;
        case 'l': plan->limit_seconds = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'c': check(sscanf(optarg, "%d,%d", &plan->cpus[0], &plan->cpus[1]) == 2, "-c wants two CPUs"); break;
        case 'w': plan->window = strtoull(optarg, NULL, 10); break;
        case 'k': plan->verify = true; break;
        case 'n': lines = true; break;
        default:
            die("usage: bench -p PROVIDER [-a ADDRESS] -t TEST,... -s SIZE,... [-m MS a point]\n"
                "             [-l LIMIT in s a point] [-c CPU,CPU] [-w WINDOW] [-k checks all data]\n"
                "             [-n times a cache line between the CPUs]");
        }
    }
    check(plan->provider && plan->sizes_count, "-p, -t and -s are needed");
    check(plan->window >= 1 && plan->window <= WINDOW_MAX, "-w: 1 to %d", WINDOW_MAX);
    if (lines)
        plan->line = line_share(plan->cpus);
}

int main(int argc, char **argv)
{
    struct plan plan = {.point_ns = 200000000, .limit_seconds = 20, .cpus = {-1, -1}, .window = 64};
    int oob;
    pid_t other;
    parse(&plan, argc, argv);
    other = fork_side(&oob);
    run_side(&plan, oob, other != 0);
    return other == 0 ? 0 : end_of(other);
}
