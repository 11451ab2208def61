/* The cost of idle peers on this host: one endpoint, the hub, has many peers, and talks to one of them.
 *
 * The parent of each run is the hub. One process has the peer that talks, and others have the idle peers, each of which
 * has sent one message. The hub measures its memory, and polls in vain. Then the peer that talks measures half round
 * trips. The processes of the idle peers are stopped meanwhile: their helper threads look at each endpoint every 20 ms,
 * and would take the processor from the peer that talks. Both measure batches, and take the best tenth of these: others use the processors too. The
 * program repeats that with each number of peers in turn, and writes the medians. */
#include "node.h"

#include <sys/resource.h>

enum { BYTES = 64, RECVS = 64, COUNTS_MAX = 8, RUNS_MAX = 31, BATCH = 1000, POLL_BATCHES = 400, TRIP_BATCHES = 100 };
enum { IDLE_TAG = 1, TALK_TAG = 2, QUIET_MS = 2500 };
enum { POLL, MESSAGE, LINKS, OWN, SHARED, FIGURES };

static const char *const NAMES[FIGURES] = {
    "ns of a poll in vain", "ns of a message", "links", "bytes of the hub's own memory for each idle peer",
    "bytes of shared memory on this host for each idle peer",
};

/* A process of idle peers. */
struct idle {
    pid_t pid;
    int oob;
};

struct plan {
    const char *provider, *address;
    size_t counts[COUNTS_MAX], counts_count, processes, runs;
    int cpus[2];
};

static uint8_t tx[BYTES], rx[RECVS * BYTES];
static struct op recvs[RECVS];

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* The value that one in `part` of all are below. */
static double quantile(double *values, size_t count, size_t part)
{
    qsort(values, count, sizeof *values, by_size);
    return values[count / part];
}

/* Sum of the lines of a file of the kernel's that begin with `name`, in bytes. */
static double kibibytes(const char *path, const char *name)
{
    FILE *file = fopen(path, "r");
    size_t length = strlen(name);
    char line[200];
    double sum = 0;
    check(file != NULL, "%s: %s", path, strerror(errno));
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, name, length) == 0)
            sum += atof(line + length);
    }
    fclose(file);
    return sum * 1024;
}

/* Links of this process, by their mappings: the other mappings of the kind are bells of one page. */
static double links(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    unsigned long start, end;
    char line[300];
    double count = 0;
    check(file != NULL, "/proc/self/maps: %s", strerror(errno));
    while (fgets(line, sizeof line, file)) {
        if (strstr(line, "memfd:erd") && sscanf(line, "%lx-%lx", &start, &end) == 2)
            count += end - start > 4096;
    }
    fclose(file);
    return count;
}

static void want(struct node *node, struct op *op)
{
    must(fi_trecv(node->ep, rx + (op - recvs) * BYTES, BYTES, NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX, op), "fi_trecv");
}

static void send_one(struct node *node, struct fid_ep *ep, fi_addr_t to, uint64_t tag)
{
    static struct op op;
    struct op *ended;
    struct fi_cq_tagged_entry entry;
    ssize_t rc;
    op.state = 0;
    while ((rc = fi_tsend(ep, tx, BYTES, NULL, to, tag, &op)) == -FI_EAGAIN)
        must(node_poll(node, &ended, &entry, NULL), "an operation");
    must(rc, "fi_tsend");
    while (op.state == 0)
        must(node_poll(node, &ended, &entry, NULL), "a send");
}

/* The endpoints of one process, each of which says hello to the hub. */
static fi_addr_t join(struct node *node, int oob, size_t endpoints)
{
    uint8_t name[NAME_BYTES];
    fi_addr_t hub;
    oob_recv(oob, name, sizeof name, NULL);
    hub = node_insert(node, name);
    for (size_t i = 0; i < endpoints; i++) {
        struct fid_ep *ep = node->ep;
        if (i > 0) {
            must(fi_endpoint(node->domain, node->info, &ep, NULL), "fi_endpoint");
            must(fi_ep_bind(ep, &node->av->fid, 0), "fi_ep_bind of the AV");
            must(fi_ep_bind(ep, &node->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the CQ");
            must(fi_enable(ep), "fi_enable");
        }
        send_one(node, ep, hub, IDLE_TAG);
    }
    oob_send(oob, node->name, sizeof node->name);
    return hub;
}

static void be_idle(const struct plan *plan, int oob, size_t endpoints)
{
    struct node_options options = {.provider = plan->provider, .address = plan->address};
    struct node node;
    uint8_t end;
    pin_to_cpu(plan->cpus[1]);
    node_open(&node, &options);
    join(&node, oob, endpoints);
    _exit(read(oob, &end, 1) < 0);
}

static void be_talker(const struct plan *plan, int oob)
{
    struct node_options options = {.provider = plan->provider, .address = plan->address};
    double batches[TRIP_BATCHES], half;
    struct fi_cq_tagged_entry entry;
    struct node node;
    struct op *op, answer;
    fi_addr_t hub;
    uint8_t go;
    pin_to_cpu(plan->cpus[1]);
    node_open(&node, &options);
    hub = join(&node, oob, 1);
    oob_recv(oob, &go, 1, NULL);
    for (int batch = 0; batch < TRIP_BATCHES; batch++) {
        uint64_t start = now_ns();
        for (int i = 0; i < BATCH; i++) {
            answer.state = 0;
            must(fi_trecv(node.ep, rx, BYTES, NULL, FI_ADDR_UNSPEC, TALK_TAG, 0, &answer), "fi_trecv");
            must(fi_tinject(node.ep, tx, BYTES, hub, TALK_TAG), "fi_tinject");
            while (answer.state == 0)
                must(node_poll(&node, &op, &entry, NULL), "an answer");
        }
        batches[batch] = (double)(now_ns() - start) / (2 * BATCH);
    }
    half = quantile(batches, TRIP_BATCHES, 10);
    oob_send(oob, &half, sizeof half);
    _exit(read(oob, &go, 1) < 0);
}

/* Polls; answers the peer that talks, if there is one. */
static void serve(struct node *node, const fi_addr_t *talker)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    ssize_t rc = 0;
    must(node_poll(node, &op, &entry, NULL), "an operation");
    if (op == NULL)
        return;
    if (talker && entry.tag == TALK_TAG)
        while ((rc = fi_tinject(node->ep, tx, BYTES, *talker, TALK_TAG)) == -FI_EAGAIN)
            fi_cq_read(node->cq, NULL, 0);
    must(rc, "fi_tinject of the hub");
    want(node, op);
}

static void be_quiet(struct node *node)
{
    for (uint64_t end = now_ns() + QUIET_MS * 1000000ull; now_ns() < end; usleep(1000))
        serve(node, NULL);
}

/* Lets a process join; its first endpoint's name. */
static void admit(struct node *node, int oob, uint8_t *name)
{
    size_t have = 0;
    oob_send(oob, node->name, sizeof node->name);
    while (have < NAME_BYTES) {
        ssize_t got = recv(oob, name + have, NAME_BYTES - have, MSG_DONTWAIT);
        check(got != 0, "the other process has gone");
        have += got > 0 ? (size_t)got : 0;
        serve(node, NULL);
    }
}

static double poll_ns(struct node *node)
{
    static double batches[POLL_BATCHES];
    struct fi_cq_tagged_entry entry;
    for (int batch = 0; batch < POLL_BATCHES; batch++) {
        uint64_t start = now_ns();
        for (int i = 0; i < BATCH; i++)
            check(fi_cq_read(node->cq, &entry, 1) == -FI_EAGAIN, "a completion while all are idle");
        batches[batch] = (double)(now_ns() - start) / BATCH;
    }
    return quantile(batches, POLL_BATCHES, 10);
}

static void be_hub(const struct plan *plan, size_t peers, int talks, const struct idle *idle, double *figures)
{
    struct node_options options = {.provider = plan->provider, .address = plan->address, .queue_size = 1024};
    uint8_t name[NAME_BYTES], other[NAME_BYTES];
    double own, shared;
    struct node node;
    fi_addr_t talker;
    pin_to_cpu(plan->cpus[0]);
    node_open(&node, &options);
    for (int i = 0; i < RECVS; i++)
        want(&node, &recvs[i]);
    admit(&node, talks, name);
    talker = node_insert(&node, name);
    be_quiet(&node);
    own = kibibytes("/proc/self/smaps_rollup", "Anonymous:");
    shared = kibibytes("/proc/meminfo", "Shmem:");
    for (size_t i = 0; i < plan->processes; i++) {
        if (idle[i].pid != 0)
            admit(&node, idle[i].oob, other);
    }
    be_quiet(&node);
    figures[OWN] = (kibibytes("/proc/self/smaps_rollup", "Anonymous:") - own) / (double)(peers - 1);
    figures[SHARED] = (kibibytes("/proc/meminfo", "Shmem:") - shared) / (double)(peers - 1);
    figures[LINKS] = links();
    for (size_t i = 0; i < plan->processes; i++) {
        if (idle[i].pid != 0)
            check(kill(idle[i].pid, SIGSTOP) == 0, "kill: %s", strerror(errno));
    }
    figures[POLL] = poll_ns(&node);
    oob_send(talks, "", 1);
    for (ssize_t got = -1; got < 0; got = recv(talks, &figures[MESSAGE], sizeof(double), MSG_DONTWAIT)) {
        for (int i = 0; i < 1000; i++)
            serve(&node, &talker);
    }
}

/* One run, in processes of its own. */
static void run_once(const struct plan *plan, size_t peers, double *figures)
{
    struct idle idle[64] = {{0}};
    int talks, told;
    pid_t hub;
    hub = fork_side(&told);
    if (hub != 0) {
        oob_recv(told, figures, FIGURES * sizeof *figures, NULL);
        check(end_of(hub) == 0, "the hub failed");
        close(told);
        return;
    }
    if (fork_side(&talks) == 0)
        be_talker(plan, talks);
    for (size_t i = 0; i < plan->processes; i++) {
        size_t share = (peers - 1) / plan->processes + (i < (peers - 1) % plan->processes);
        if (share > 0 && (idle[i].pid = fork_side(&idle[i].oob)) == 0)
            be_idle(plan, idle[i].oob, share);
    }
    be_hub(plan, peers, talks, idle, figures);
    oob_send(told, figures, FIGURES * sizeof *figures);
    _exit(0);
}

static void parse(struct plan *plan, int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "p:a:n:k:r:c:")) != -1) {
        switch (option) {
        case 'p': plan->provider = optarg; break;
        case 'a': plan->address = optarg; break;
        case 'n':
            for (char *rest = NULL, *word = strtok_r(optarg, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
                check(plan->counts_count < COUNTS_MAX, "-n: at most %d numbers", COUNTS_MAX);
                plan->counts[plan->counts_count++] = strtoull(word, NULL, 10);
                check(plan->counts[plan->counts_count - 1] >= 2, "-n: at least 2 peers");
            }
            break;
        case 'k': plan->processes = strtoull(optarg, NULL, 10); break;
        case 'r': plan->runs = strtoull(optarg, NULL, 10); break;
        case 'c': check(sscanf(optarg, "%d,%d", &plan->cpus[0], &plan->cpus[1]) == 2, "-c wants two CPUs"); break;
        default: die("usage: bench_idle -p PROVIDER [-a ADDRESS] -n PEERS,... [-k PROCESSES] [-r RUNS] [-c CPU,CPU]");
        }
    }
    check(plan->provider && plan->counts_count, "-p and -n are needed");
    check(plan->processes >= 1 && plan->processes <= 64, "-k: 1 to 64 processes");
    check(plan->runs >= 1 && plan->runs <= RUNS_MAX, "-r: 1 to %d runs", RUNS_MAX);
}

int main(int argc, char **argv)
{
    struct plan plan = {.processes = 1, .runs = 1, .cpus = {-1, -1}};
    static double all[COUNTS_MAX][FIGURES][RUNS_MAX];
    struct rlimit limit;
    parse(&plan, argc, argv);
    check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit: %s", strerror(errno));
    limit.rlim_cur = limit.rlim_max;
    check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit: %s", strerror(errno));
    for (size_t run = 0; run < plan.runs; run++) {
        for (size_t at = 0; at < plan.counts_count; at++) {
            double figures[FIGURES];
            run_once(&plan, plan.counts[at], figures);
            for (int figure = 0; figure < FIGURES; figure++)
                all[at][figure][run] = figures[figure];
        }
    }
    for (size_t at = 0; at < plan.counts_count; at++) {
        printf("%zu peers:\n", plan.counts[at]);
        for (int figure = 0; figure < FIGURES; figure++)
            printf("  %10.1f %s\n", quantile(all[at][figure], plan.runs, 2), NAMES[figure]);
    }
    return 0;
}
