/* Round trips between one endpoint, the hub, and many endpoints of another process, which have one CQ.
 *
 * The parent is the hub: it answers each message to the endpoint that sent it. The child opens the endpoints in
 * one domain; `outstanding` of them wait for an answer at any time, and the endpoint that follows takes the
 * turn of one that got its answer. Both poll without pause. The child writes one JSON object a line:
 *   hub  round trips a second, all endpoints together, for each number of endpoints
 * A point that doesn't end within its limit ends the program with status 3. */
#include "node.h"

#include <getopt.h>
#include <sys/resource.h>

enum { ENDPOINTS_MAX = 4096, COUNTS_MAX = 16, RECVS = 256, SENDS = 4 * ENDPOINTS_MAX, BATCH = 16, DESCRIPTORS = 6 };

struct plan {
    const char *provider, *address;
    size_t counts[COUNTS_MAX], counts_count, outstanding, bytes;
    uint64_t point_ns;
    unsigned limit_seconds;
    int cpus[2];
};

/* What the child says before a point; no endpoints end the program. */
struct command {
    uint64_t endpoints;
};

struct side {
    const struct plan *plan;
    struct node node;
    int oob;
    uint8_t *tx, *rx;
    struct op *sends, *recvs;
    struct fid_ep **endpoints; /* the child's, by number; its first is the node's */
    fi_addr_t *peers;          /* the hub's, by number; the child's only one */
    size_t opened;
    uint64_t answered, posted, most; /* messages; the child's of a point */
    size_t next;                     /* whose turn is next */
};

static void on_alarm(int signal)
{
    static const char late[] = "FAILED: a point did not end in time\n";
    (void)signal;
    _exit(write(STDERR_FILENO, late, sizeof late - 1) < 0 ? 4 : 3);
}

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    check(memory != NULL, "no memory for %zu times %zu bytes", count, bytes);
    return memory;
}

static void step(struct side *side, void (*each)(struct side *, const struct fi_cq_tagged_entry *))
{
    struct fi_cq_tagged_entry entries[BATCH];
    ssize_t got = fi_cq_read(side->node.cq, entries, BATCH);
    struct op *op;
    if (got == -FI_EAVAIL)
        must(node_poll(&side->node, &op, entries, NULL), "an operation");
    else if (got != -FI_EAGAIN)
        must(got, "fi_cq_read");
    for (ssize_t i = 0; i < got; i++) {
        if (entries[i].flags & FI_RECV)
            each(side, &entries[i]);
    }
}

static void hub_recv(struct side *side, struct op *op)
{
    uint8_t *to = side->rx + (size_t)(op - side->recvs) * side->plan->bytes;
    must(fi_trecv(side->node.ep, to, side->plan->bytes, NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX, op), "fi_trecv of the hub");
}

static void hub_got(struct side *side, const struct fi_cq_tagged_entry *entry)
{
    struct op *op = &side->sends[side->posted++ % SENDS];
    ssize_t rc;
    check(entry->tag < side->opened, "a message of endpoint %llu came", (unsigned long long)entry->tag);
    while ((rc = fi_tsend(side->node.ep, side->tx, side->plan->bytes, NULL, side->peers[entry->tag], entry->tag, op)) ==
           -FI_EAGAIN)
        step(side, hub_got);
    must(rc, "fi_tsend of the hub");
    hub_recv(side, entry->op_context);
}

static void run_hub(struct side *side)
{
    struct command command;
    uint8_t name[NAME_BYTES];
    for (size_t slot = 0; slot < RECVS; slot++)
        hub_recv(side, &side->recvs[slot]);
    oob_send(side->oob, side->node.name, sizeof side->node.name);
    for (;;) {
        uint64_t done = 0;
        alarm(0);
        oob_recv(side->oob, &command, sizeof command, NULL);
        if (command.endpoints == 0)
            return;
        for (; side->opened < command.endpoints; side->opened++) {
            oob_recv(side->oob, name, sizeof name, NULL);
            side->peers[side->opened] = node_insert(&side->node, name);
        }
        oob_send(side->oob, &done, sizeof done);
        alarm(side->plan->limit_seconds + 5);
        for (ssize_t got = -1; got != 1; got = recv(side->oob, &done, 1, MSG_DONTWAIT)) {
            check(got != 0, "the other process has gone");
            for (int i = 0; i < 100; i++)
                step(side, hub_got);
        }
    }
}

static void ask(struct side *side)
{
    size_t number = side->next;
    struct op *op = &side->sends[side->posted++ % SENDS];
    ssize_t rc;
    side->next = (number + 1) % side->opened;
    must(fi_trecv(side->endpoints[number], side->rx + number * side->plan->bytes, side->plan->bytes, NULL, FI_ADDR_UNSPEC,
                  number, 0, &side->recvs[number]),
         "fi_trecv");
    while ((rc = fi_tsend(side->endpoints[number], side->tx, side->plan->bytes, NULL, side->peers[0], number, op)) ==
           -FI_EAGAIN)
        ;
    must(rc, "fi_tsend");
}

static void answered(struct side *side, const struct fi_cq_tagged_entry *entry)
{
    (void)entry;
    side->answered++;
    if (side->posted < side->most)
        ask(side);
}

/* `count` round trips; the time in ns. */
static uint64_t trips(struct side *side, uint64_t count)
{
    size_t outstanding = side->plan->outstanding;
    uint64_t start = now_ns(), took;
    if (outstanding == 0 || outstanding > side->opened)
        outstanding = side->opened;
    side->answered = side->posted = 0;
    side->most = count;
    while (side->posted < outstanding && side->posted < count)
        ask(side);
    while (side->answered < count)
        step(side, answered);
    took = now_ns() - start;
    return took ? took : 1;
}

static void join(struct side *side)
{
    struct node *node = &side->node;
    struct fid_ep *ep = node->ep;
    uint8_t name[NAME_BYTES] = {0};
    size_t bytes = sizeof name;
    if (side->opened > 0) {
        must(fi_endpoint(node->domain, node->info, &ep, NULL), "fi_endpoint");
        must(fi_ep_bind(ep, &node->av->fid, 0), "fi_ep_bind of the AV");
        must(fi_ep_bind(ep, &node->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the CQ");
        must(fi_enable(ep), "fi_enable");
    }
    side->endpoints[side->opened++] = ep;
    must(fi_getname(&ep->fid, name, &bytes), "fi_getname");
    oob_send(side->oob, name, sizeof name);
}

static void measure(struct side *side, uint64_t endpoints)
{
    struct command command = {.endpoints = endpoints};
    uint64_t count = 4 * endpoints, took, ready;
    alarm(side->plan->limit_seconds);
    oob_send(side->oob, &command, sizeof command);
    while (side->opened < endpoints)
        join(side);
    oob_recv(side->oob, &ready, sizeof ready, NULL);
    /* The first run makes the sessions, the second tells how many round trips fit the time. */
    trips(side, endpoints);
    took = trips(side, count);
    count = side->plan->point_ns * count / took;
    if (count < endpoints)
        count = endpoints;
    took = trips(side, count);
    printf("{\"provider\":\"%s\",\"test\":\"hub\",\"size\":%llu,\"count\":%llu,\"lo_bytes\":0,\"messages_per_s\":%.1f}\n",
           side->plan->provider, (unsigned long long)endpoints, (unsigned long long)count,
           (double)count * 1e9 / (double)took);
    fflush(stdout);
    oob_send(side->oob, "", 1);
}

static void run_child(struct side *side)
{
    struct command end = {0};
    uint8_t name[NAME_BYTES];
    uint32_t version = fi_version();
    printf("{\"provider\":\"%s\",\"runs\":\"%s\",\"libfabric\":\"%u.%u\"}\n", side->plan->provider,
           side->node.info->fabric_attr->prov_name, FI_MAJOR(version), FI_MINOR(version));
    fflush(stdout);
    oob_recv(side->oob, name, sizeof name, NULL);
    side->peers[0] = node_insert(&side->node, name);
    for (size_t i = 0; i < side->plan->counts_count; i++)
        measure(side, side->plan->counts[i]);
    oob_send(side->oob, &end, sizeof end);
}

static void run_side(const struct plan *plan, int oob, bool hub)
{
    struct side side = {.plan = plan, .oob = oob};
    struct node_options options = {.provider = plan->provider, .address = plan->address, .queue_size = hub ? 1024 : 0};
    signal(SIGALRM, on_alarm);
    alarm(20);
    pin_to_cpu(plan->cpus[hub ? 0 : 1]);
    side.tx = zeroed(1, plan->bytes);
    side.rx = zeroed(ENDPOINTS_MAX, plan->bytes);
    side.sends = zeroed(SENDS, sizeof(struct op)); /* the oldest has long been done when its turn comes */
    side.recvs = zeroed(ENDPOINTS_MAX, sizeof(struct op));
    side.endpoints = zeroed(ENDPOINTS_MAX, sizeof *side.endpoints);
    side.peers = zeroed(ENDPOINTS_MAX, sizeof *side.peers);
    node_open(&side.node, &options);
    if (hub)
        run_hub(&side);
    else
        run_child(&side);
    alarm(60);
    for (size_t number = 1; !hub && number < side.opened; number++)
        must(fi_close(&side.endpoints[number]->fid), "fi_close of an endpoint");
    node_close(&side.node);
}

static void parse_counts(struct plan *plan, char *text)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        size_t count = strtoull(word, NULL, 10);
        check(plan->counts_count < COUNTS_MAX, "-n: at most %d numbers", COUNTS_MAX);
        check(count >= 1 && count <= ENDPOINTS_MAX, "-n: 1 to %d endpoints", ENDPOINTS_MAX);
        check(plan->counts_count == 0 || count > plan->counts[plan->counts_count - 1], "-n: each number above the last");
        plan->counts[plan->counts_count++] = count;
    }
}

static void parse(struct plan *plan, int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "p:a:n:o:s:m:l:c:")) != -1) {
        switch (option) {
        case 'p': plan->provider = optarg; break;
        case 'a': plan->address = optarg; break;
        case 'n': parse_counts(plan, optarg); break;
        case 'o': plan->outstanding = strtoull(optarg, NULL, 10); break;
        case 's': plan->bytes = strtoull(optarg, NULL, 10); break;
        case 'm': plan->point_ns = strtoull(optarg, NULL, 10) * 1000000; break;
        case 'l': plan->limit_seconds = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'c': check(sscanf(optarg, "%d,%d", &plan->cpus[0], &plan->cpus[1]) == 2, "-c wants two CPUs"); break;
        default:
            die("usage: bench_hub -p PROVIDER [-a ADDRESS] -n ENDPOINTS,... [-o OUTSTANDING, 0 for one an endpoint] [-s BYTES]\n"
                "                 [-m MS a point] [-l LIMIT in s a point] [-c CPU,CPU]");
        }
    }
    check(plan->provider && plan->counts_count, "-p and -n are needed");
    check(plan->bytes >= 1, "-s: at least 1 byte");
}

/* Some providers take several descriptors an endpoint. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit: %s", strerror(errno));
    if (limit.rlim_cur < ENDPOINTS_MAX * DESCRIPTORS && limit.rlim_max > limit.rlim_cur) {
        limit.rlim_cur = limit.rlim_max < ENDPOINTS_MAX * DESCRIPTORS ? limit.rlim_max : ENDPOINTS_MAX * DESCRIPTORS;
        check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit: %s", strerror(errno));
    }
}

int main(int argc, char **argv)
{
    struct plan plan = {.point_ns = 200000000, .limit_seconds = 20, .cpus = {-1, -1}, .bytes = 64};
    int oob;
    pid_t other;
    parse(&plan, argc, argv);
    raise_descriptors();
    other = fork_side(&oob);
    run_side(&plan, oob, other != 0);
    return other == 0 ? 0 : end_of(other);
}
