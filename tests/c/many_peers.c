/* Sockets and memory of one process that talks to one peer, and then to 256: the number of sockets
 * and of queue pairs stays, and memory grows by at most 2.5 KiB a peer once all is quiet: what malloc has
 * given out, and what is resident. ERD_PEER_BYTES allows more to be resident: memory shared with a peer on this host. */
#include "cases.h"

#include <dirent.h>
#include <malloc.h>

enum { PEERS = 256, BYTES = 1 << 20, TAG = 3, BYTES_PER_PEER_MAX = 2560, QUEUE_PAIRS_MAX = 8 };

static uint8_t buffer[BYTES];

/* Most resident bytes of each peer. */
static ssize_t resident_max(void)
{
    const char *told = getenv("ERD_PEER_BYTES");
    return told != NULL ? atol(told) : BYTES_PER_PEER_MAX;
}

/* Length of a message; emulated machines get less. */
static size_t length(void)
{
    return BYTES / slowness();
}

/* All peers are endpoints of one process, with one domain and one CQ. */
struct crowd {
    struct node first;
    struct fid_ep *others[PEERS];
    struct op recvs[PEERS];
};

static void crowd_join(struct crowd *crowd, int number, uint8_t *name)
{
    struct node *node = &crowd->first;
    struct fid_ep *ep = node->ep;
    size_t bytes = NAME_BYTES;
    if (number > 0) {
        must(fi_endpoint(node->domain, node->info, &ep, NULL), "fi_endpoint");
        must(fi_ep_bind(ep, &node->av->fid, 0), "fi_ep_bind of the AV");
        must(fi_ep_bind(ep, &node->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the CQ");
        must(fi_enable(ep), "fi_enable");
    }
    crowd->others[number] = ep;
    must(fi_getname(&ep->fid, name, &bytes), "fi_getname");
    must(fi_trecv(ep, buffer, length(), NULL, FI_ADDR_UNSPEC, TAG, 0, &crowd->recvs[number]), "fi_trecv");
}

static void be_crowd(int fd)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    static uint8_t names[PEERS][NAME_BYTES];
    static struct crowd crowd;
    struct fi_cq_tagged_entry entry;
    struct op *op;
    node_open(&crowd.first, &options);
    for (int i = 0; i < PEERS; i++)
        crowd_join(&crowd, i, names[i]);
    oob_send(fd, names, sizeof names);
    for (int i = 0; i < PEERS; i++) {
        uint64_t number;
        while (crowd.recvs[i].state == 0)
            must(node_poll(&crowd.first, &op, &entry, NULL), "a receive");
        pattern_check(buffer, length(), (uint64_t)i);
        memset(buffer, 0, BYTES);
        number = (uint64_t)i;
        oob_send(fd, &number, sizeof number);
    }
    for (;;)
        must(node_poll(&crowd.first, &op, &entry, NULL), "an operation");
}

static size_t sockets(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    char path[300], target[64];
    size_t count = 0;
    check(dir != NULL, "/proc/self/fd: %s", strerror(errno));
    while ((entry = readdir(dir))) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target) > 7 && memcmp(target, "socket:", 7) == 0)
            count++;
    }
    closedir(dir);
    return count;
}

/* Queue pairs of this process, where there are RDMA devices. */
static size_t queue_pairs(void)
{
    char command[80];
    size_t count = 0;
    FILE *told;
    snprintf(command, sizeof command, "rdma resource show qp 2>/dev/null | grep -c -w 'pid %d'", (int)getpid());
    told = popen(command, "r");
    check(told && fscanf(told, "%zu", &count) <= 1, "popen: %s", strerror(errno));
    pclose(told);
    return count;
}

/* /proc/self/statm would be quicker, and wrong by up to 64 pages a thread, as each counts by itself. */
static size_t resident_bytes(void)
{
    unsigned long kibibytes = 0;
    char line[200];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    check(file != NULL, "/proc/self/smaps_rollup: %s", strerror(errno));
    while (fgets(line, sizeof line, file) && sscanf(line, "Rss: %lu kB", &kibibytes) != 1)
        continue;
    fclose(file);
    check(kibibytes > 0, "/proc/self/smaps_rollup has no Rss");
    return kibibytes << 10;
}

/* What malloc has given out and not taken back: unlike what is resident, it does not depend on how much was
 * in use at a time before, and so neither on how fast this machine is. */
static size_t allocated_bytes(void)
{
    struct mallinfo2 all = mallinfo2();
    return all.uordblks + all.hblkhd;
}

static void talk_to(struct node *node, int fd, const uint8_t *name, uint64_t number)
{
    struct fi_cq_tagged_entry entry;
    struct op send = {0}, *op;
    fi_addr_t to = node_insert(node, name);
    uint64_t answer;
    ssize_t rc;
    pattern_fill(buffer, length(), number);
    while ((rc = fi_tsend(node->ep, buffer, length(), NULL, to, TAG, &send)) == -FI_EAGAIN)
        must(node_poll(node, &op, &entry, NULL), "an operation");
    must(rc, "fi_tsend");
    while (send.state == 0)
        must(node_poll(node, &op, &entry, NULL), "a send");
    oob_recv(fd, &answer, sizeof answer, node);
    check(answer == number, "peer %llu answered for peer %llu", (unsigned long long)answer,
          (unsigned long long)number);
}

static void be_quiet(struct node *node)
{
    uint64_t end = now_ns() + 1000000000;
    struct fi_cq_tagged_entry entry;
    struct op *op;
    while (now_ns() < end) {
        node_poll(node, &op, &entry, NULL);
        usleep(1000);
    }
}

static void be_hub(int fd)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    static uint8_t names[PEERS][NAME_BYTES];
    size_t sockets_first, pairs_first, bytes[3] = {0}, allocated = 0;
    ssize_t growth, kept, first, half;
    struct node node;
    node_open(&node, &options);
    oob_recv(fd, names, sizeof names, &node);
    talk_to(&node, fd, names[0], 0);
    be_quiet(&node);
    sockets_first = sockets();
    pairs_first = queue_pairs();
    /* Memory for what is in flight is needed once, for the peers of some hundred milliseconds: an eighth
     * of all has made it. What else is needed once, as when the helper thread first has something to do,
     * comes in one half of the others; what is kept of every peer comes in both. */
    first = PEERS / 8;
    half = (PEERS - first) / 2;
    for (int i = 1; i < PEERS; i++) {
        if (i == first || i == first + half) {
            be_quiet(&node);
            bytes[i != first] = resident_bytes();
        }
        if (i == first)
            allocated = allocated_bytes();
        talk_to(&node, fd, names[i], (uint64_t)i);
    }
    be_quiet(&node);
    bytes[2] = resident_bytes();
    kept = ((ssize_t)allocated_bytes() - (ssize_t)allocated) / (PEERS - first);
    growth = (ssize_t)bytes[1] - (ssize_t)bytes[0];
    if ((ssize_t)bytes[2] - (ssize_t)bytes[1] < growth)
        growth = (ssize_t)bytes[2] - (ssize_t)bytes[1];
    printf("  %zu sockets and %zu queue pairs with 1 peer, %zu and %zu with %d; %zd bytes allocated and %zd resident "
           "for each further peer\n",
           sockets_first, pairs_first, sockets(), queue_pairs(), PEERS, kept, growth / half);
    check(queue_pairs() == pairs_first && pairs_first <= QUEUE_PAIRS_MAX, "%zu queue pairs, and then %zu", pairs_first,
          queue_pairs());
    check(sockets() == sockets_first, "the number of sockets grew from %zu to %zu", sockets_first, sockets());
    check(kept <= BYTES_PER_PEER_MAX, "%zd bytes are allocated for each peer", kept);
    check(growth <= half * resident_max(), "%zd bytes for %zd peers", growth, half);
    node_close(&node);
}

static void many_peers(void)
{
    int oob;
    pid_t child = fork_side(&oob);
    if (child == 0)
        be_crowd(oob);
    be_hub(oob);
    kill(child, SIGKILL);
}

static const struct test_case TESTS[] = {{"many_peers", many_peers, 120}};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
