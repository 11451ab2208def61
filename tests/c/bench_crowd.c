/* Round trips between one endpoint and many peers in turn, which `erd-crowd` plays. One message is under way at a time.
 * The program writes one JSON object a line, for each number of peers:
 *   first_us       this process's time for the first round trip with each new peer, with 64 of them at a time, in us
 *   messages_per_s round trips a second over all these peers in turn
 *   heap_bytes     what malloc has given out more than before the first peer, a peer, after a quiet second
 *   sockets, threads  of this process
 * The number of sockets and threads must stay, and with -b the memory of a peer at the last point must be at most that.
 * A point that doesn't end within its limit ends the program with status 3. */
#include "node.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <getopt.h>
#include <malloc.h>
#include <netinet/in.h>

enum { PEERS_MAX = 16384, COUNTS_MAX = 16, BYTES = 64, AT_ONCE = 64, FIRST = 0x7f010000, QUIET_NS = 1500000000 };

struct plan {
    const char *provider, *crowd;
    size_t counts[COUNTS_MAX], counts_count;
    uint64_t point_ns;
    unsigned limit_seconds;
    int cpus[2];
    double heap_bytes_max; /* a peer */
};

struct hub {
    struct node node;
    fi_addr_t *peers;
    size_t known;
    in_port_t port;
    size_t heap_bytes, sockets, threads; /* before the first peer */
    uint8_t tx[BYTES], rx[AT_ONCE][BYTES];
    struct op sends[AT_ONCE], recvs[AT_ONCE];
};

static void on_alarm(int signal)
{
    static const char late[] = "FAILED: a point did not end in time\n";
    (void)signal;
    _exit(write(STDERR_FILENO, late, sizeof late - 1) < 0 ? 4 : 3);
}

/* Starts the peers, which end when this process does. Answers their port. */
static in_port_t start_crowd(const struct plan *plan)
{
    char count[24], line[24];
    int in[2], out[2];
    FILE *told;
    check(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "pipe2: %s", strerror(errno));
    snprintf(count, sizeof count, "%d", PEERS_MAX);
    switch (fork()) {
    case -1: die("fork: %s", strerror(errno));
    case 0:
        pin_to_cpu(plan->cpus[1]);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execl(plan->crowd, plan->crowd, "--peers", count, (char *)NULL);
        die("%s: %s", plan->crowd, strerror(errno));
    default: break;
    }
    close(in[0]);
    close(out[1]);
    told = fdopen(out[0], "r");
    check(told && fgets(line, sizeof line, told), "%s told no port", plan->crowd);
    return (in_port_t)atoi(line);
}

static size_t heap_bytes(void)
{
    struct mallinfo2 all = mallinfo2();
    return all.uordblks + all.hblkhd;
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static size_t entries(const char *path, const char *kind)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    char name[300], target[64];
    size_t count = 0;
    check(dir != NULL, "%s: %s", path, strerror(errno));
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (!kind || (readlink(name, target, sizeof target) > 7 && memcmp(target, kind, strlen(kind)) == 0))
            count++;
    }
    closedir(dir);
    return count;
}

static void poll_once(struct hub *hub)
{
    struct fi_cq_tagged_entry entry;
    struct op *ended;
    must(node_poll(&hub->node, &ended, &entry, NULL), "an operation");
}

static void ask(struct hub *hub, size_t slot, size_t peer)
{
    struct op *send = &hub->sends[slot], *recv = &hub->recvs[slot];
    ssize_t rc;
    send->state = recv->state = 0;
    must(fi_trecv(hub->node.ep, hub->rx[slot], BYTES, NULL, hub->peers[peer], peer, 0, recv), "fi_trecv");
    while ((rc = fi_tsend(hub->node.ep, hub->tx, BYTES, NULL, hub->peers[peer], peer, send)) == -FI_EAGAIN)
        poll_once(hub);
    must(rc, "fi_tsend");
}

static void wait_for_answer(struct hub *hub, size_t slot)
{
    while (hub->sends[slot].state == 0 || hub->recvs[slot].state == 0)
        poll_once(hub);
}

/* Round trips with `count` peers from `first` on, all at once. */
static void trips(struct hub *hub, size_t first, size_t count)
{
    for (size_t slot = 0; slot < count; slot++)
        ask(hub, slot, first + slot);
    for (size_t slot = 0; slot < count; slot++)
        wait_for_answer(hub, slot);
}

/* Goes on to `count` peers. Answers the time of this process for each new one, in us. */
static double meet(struct hub *hub, size_t count)
{
    size_t before = hub->known;
    uint64_t start = cpu_ns();
    while (hub->known < count) {
        size_t batch = count - hub->known < AT_ONCE ? count - hub->known : AT_ONCE;
        for (size_t peer = hub->known; peer < hub->known + batch; peer++) {
            struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(hub->port)};
            name.sin_addr.s_addr = htonl(FIRST + (uint32_t)peer);
            hub->peers[peer] = node_insert(&hub->node, &name);
        }
        trips(hub, hub->known, batch);
        hub->known += batch;
    }
    return (double)(cpu_ns() - start) / 1e3 / (double)(count - before);
}

/* Round trips a second over all peers in turn, each at least twice. */
static double rate(struct hub *hub, uint64_t point_ns)
{
    uint64_t start = now_ns(), took, done = 0;
    do {
        for (size_t peer = 0; peer < hub->known; peer++)
            trips(hub, peer, 1);
        done += hub->known;
        took = now_ns() - start;
    } while (done < 2 * hub->known || took < point_ns);
    return (double)done * 1e9 / (double)took;
}

static void be_quiet(struct hub *hub)
{
    uint64_t end = now_ns() + QUIET_NS;
    struct fi_cq_tagged_entry entry;
    struct op *op;
    while (now_ns() < end) {
        node_poll(&hub->node, &op, &entry, NULL);
        usleep(100);
    }
}

/* Answers the memory of a peer, in bytes. */
static double measure(struct hub *hub, const struct plan *plan, size_t count)
{
    size_t sockets, threads;
    double first_us, per_s, heap;
    alarm(plan->limit_seconds);
    first_us = meet(hub, count);
    per_s = rate(hub, plan->point_ns);
    be_quiet(hub);
    heap = ((double)heap_bytes() - (double)hub->heap_bytes) / (double)count;
    sockets = entries("/proc/self/fd", "socket:");
    threads = entries("/proc/self/task", NULL);
    printf("{\"provider\":\"%s\",\"test\":\"crowd\",\"size\":%zu,\"first_us\":%.1f,\"messages_per_s\":%.1f,"
           "\"heap_bytes\":%.0f,\"sockets\":%zu,\"threads\":%zu}\n",
           plan->provider, count, first_us, per_s, heap, sockets, threads);
    fflush(stdout);
    check(sockets == hub->sockets, "%zu peers: %zu sockets, with none %zu", count, sockets, hub->sockets);
    check(threads == hub->threads, "%zu peers: %zu threads, with none %zu", count, threads, hub->threads);
    return heap;
}

static void parse_counts(struct plan *plan, char *text)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        size_t count = strtoull(word, NULL, 10);
        check(plan->counts_count < COUNTS_MAX, "-n: at most %d numbers", COUNTS_MAX);
        check(count >= 1 && count <= PEERS_MAX, "-n: 1 to %d peers", PEERS_MAX);
        check(plan->counts_count == 0 || count > plan->counts[plan->counts_count - 1], "-n: each number above the last");
        plan->counts[plan->counts_count++] = count;
    }
}

static void parse(struct plan *plan, int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "p:r:n:m:l:c:b:")) != -1) {
        switch (option) {
        case 'p': plan->provider = optarg; break;
        case 'r': plan->crowd = optarg; break;
        case 'n': parse_counts(plan, optarg); break;
        case 'm': plan->point_ns = strtoull(optarg, NULL, 10) * 1000000; break;
        case 'l': plan->limit_seconds = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'c': check(sscanf(optarg, "%d,%d", &plan->cpus[0], &plan->cpus[1]) == 2, "-c wants two CPUs"); break;
        case 'b': plan->heap_bytes_max = strtod(optarg, NULL); break;
        default:
            die("usage: bench_crowd -p PROVIDER -r ERD-CROWD -n PEERS,... [-m MS a point] [-l LIMIT in s a point] [-c CPU,CPU]\n"
                "                   [-b BYTES a peer]");
        }
    }
    check(plan->provider && plan->crowd && plan->counts_count, "-p, -r and -n are needed");
}

int main(int argc, char **argv)
{
    struct plan plan = {.point_ns = 500000000, .limit_seconds = 60, .cpus = {-1, -1}};
    struct node_options options = {.address = "127.0.0.1"};
    static struct hub hub;
    double heap = 0;
    parse(&plan, argc, argv);
    options.provider = plan.provider;
    signal(SIGALRM, on_alarm);
    hub.port = start_crowd(&plan);
    pin_to_cpu(plan.cpus[0]);
    hub.peers = calloc(PEERS_MAX, sizeof *hub.peers);
    check(hub.peers != NULL, "no memory for the peers");
    node_open(&hub.node, &options);
    hub.heap_bytes = heap_bytes();
    hub.sockets = entries("/proc/self/fd", "socket:");
    hub.threads = entries("/proc/self/task", NULL);
    for (size_t i = 0; i < plan.counts_count; i++)
        heap = measure(&hub, &plan, plan.counts[i]);
    check(plan.heap_bytes_max == 0 || heap <= plan.heap_bytes_max, "%.0f bytes a peer, %.0f are allowed", heap,
          plan.heap_bytes_max);
    printf("ok crowd\n  %.0f bytes a peer\n", heap);
    node_close(&hub.node);
    return 0;
}
