/* NCCL's traffic as aws-ofi-nccl's SENDRECV protocol makes it, in host memory: what it asks of
 * fi_getinfo, and data between two processes over several connections of one endpoint. */
#include "cases.h"
#include "nccl.h"

#include <pthread.h>

enum {
    LINKS = 4,              /* connections each way between two endpoints: NCCL's channels */
    SLOTS = 8,              /* messages outstanding on a connection: NCCL_STEPS */
    SPARE_BYTES = 200,      /* by which a receive is longer than its message */
    BUFFER_BYTES = 1 << 19, /* a step of NCCL's 4 MiB buffers */
    THREADS = 4,
};

/* API versions that the plugin asks for, newest first. */
static const uint32_t VERSIONS[] = {FI_VERSION(1, 20), FI_VERSION(1, 18), FI_VERSION(1, 6)};

/* What it asks for last, which every library has. */
static const struct nccl_ask OLDEST = {.version = FI_VERSION(1, 6)};

struct slot {
    uint8_t *bytes;
    struct fid_mr *mr;
    struct request request;
};

struct link {
    struct comm send, recv;
    struct slot out[SLOTS], in[SLOTS];
};

/* One thread of NCCL's that talks to its opposite in the other process. */
struct proxy {
    int fd;
    uint64_t rank;
    struct net_ep ep;
    struct link links[LINKS];
};

/* The plugin takes the first provider, whichever it is. */
static void check_provider(const struct fi_info *info)
{
    const char *name = info->fabric_attr->prov_name;
    check(strcmp(name, provider) == 0, "the first provider is %s: set FI_PROVIDER=%s", name, provider);
}

static void nic_open(struct nic *nic, struct nccl_ask ask)
{
    struct fi_info *list;
    must(nccl_find(&ask, &list), "fi_getinfo");
    check_provider(list);
    nccl_nic_open(nic, list);
    fi_freeinfo(list);
}

static void connect_all(struct proxy *proxy)
{
    struct handle own[LINKS], theirs[LINKS];
    size_t connected;
    for (size_t i = 0; i < LINKS; i++)
        nccl_listen(&proxy->ep, &own[i]);
    oob_send(proxy->fd, own, sizeof own);
    oob_recv(proxy->fd, theirs, sizeof theirs, NULL);
    do {
        connected = 0;
        for (size_t i = 0; i < LINKS; i++) {
            connected += nccl_connect(&proxy->ep, &theirs[i], &proxy->links[i].send);
            connected += nccl_accept(&proxy->ep, &own[i], &proxy->links[i].recv);
        }
        sched_yield();
    } while (connected < 2 * LINKS);
}

static void slots_open(struct proxy *proxy, struct slot *slots)
{
    for (size_t i = 0; i < SLOTS; i++) {
        slots[i].bytes = malloc(BUFFER_BYTES + SPARE_BYTES);
        check(slots[i].bytes != NULL, "no memory");
        slots[i].mr = nccl_register(proxy->ep.nic, proxy->ep.ep, slots[i].bytes, BUFFER_BYTES + SPARE_BYTES);
    }
}

static void slots_close(struct slot *slots)
{
    for (size_t i = 0; i < SLOTS; i++) {
        nccl_deregister(slots[i].mr);
        free(slots[i].bytes);
    }
}

static void proxy_open(struct proxy *proxy, struct nic *nic, int fd, uint64_t rank)
{
    memset(proxy, 0, sizeof *proxy);
    proxy->fd = fd;
    proxy->rank = rank;
    nccl_ep_open(&proxy->ep, nic);
    connect_all(proxy);
    for (size_t i = 0; i < LINKS; i++) {
        slots_open(proxy, proxy->links[i].out);
        slots_open(proxy, proxy->links[i].in);
    }
}

/* Waits for the other process without a call to the provider, as an idle thread of NCCL's does. */
static void meet(struct proxy *proxy)
{
    uint8_t byte = 0;
    oob_send(proxy->fd, &byte, sizeof byte);
    oob_recv(proxy->fd, &byte, sizeof byte, NULL);
}

static void proxy_close(struct proxy *proxy)
{
    meet(proxy);
    for (size_t i = 0; i < LINKS; i++) {
        slots_close(proxy->links[i].out);
        slots_close(proxy->links[i].in);
    }
    nccl_ep_close(&proxy->ep);
}

/* What is sent differs by sender, connection, place in line and size. */
static uint64_t seed_of(uint64_t rank, size_t link, size_t slot, size_t length)
{
    return rank << 60 | (uint64_t)link << 50 | (uint64_t)slot << 40 | length;
}

static void post_recvs(struct proxy *proxy, size_t length)
{
    for (size_t l = 0; l < LINKS; l++) {
        for (size_t i = 0; i < SLOTS; i++) {
            struct slot *in = &proxy->links[l].in[i];
            memset(in->bytes, 0, length + SPARE_BYTES);
            nccl_irecv(&proxy->links[l].recv, in->bytes, length + SPARE_BYTES, in->mr, &in->request);
        }
    }
}

static void post_sends(struct proxy *proxy, size_t length)
{
    for (size_t l = 0; l < LINKS; l++) {
        for (size_t i = 0; i < SLOTS; i++) {
            struct slot *out = &proxy->links[l].out[i];
            pattern_fill(out->bytes, length, seed_of(proxy->rank, l, i, length));
            nccl_isend(&proxy->links[l].send, out->bytes, length, out->mr, &out->request);
        }
    }
}

static void wait_recvs(struct proxy *proxy, size_t length)
{
    for (size_t l = 0; l < LINKS; l++) {
        for (size_t i = 0; i < SLOTS; i++) {
            struct slot *in = &proxy->links[l].in[i];
            must(nccl_wait(&proxy->ep, &in->request), "a receive");
            check(in->request.bytes == length, "connection %zu received %zu bytes, not %zu", l, in->request.bytes,
                  length);
            pattern_check(in->bytes, length, seed_of(1 - proxy->rank, l, i, length));
            check(in->bytes[length] == 0, "a message of %zu bytes wrote past its end", length);
        }
    }
}

static void wait_sends(struct proxy *proxy)
{
    for (size_t l = 0; l < LINKS; l++)
        for (size_t i = 0; i < SLOTS; i++)
            must(nccl_wait(&proxy->ep, &proxy->links[l].out[i].request), "a send");
}

/* A full window of messages on every connection, both ways at once. */
static void exchange(struct proxy *proxy, size_t length)
{
    post_recvs(proxy, length);
    post_sends(proxy, length);
    wait_recvs(proxy, length);
    wait_sends(proxy);
}

/* Runs both ranks, rank 1 in a process of its own, with a socket between them for each thread. */
static void two_processes(void (*run)(const int *fds, uint64_t rank))
{
    int pairs[THREADS][2], mine[THREADS], status;
    pid_t child;
    for (size_t i = 0; i < THREADS; i++)
        oob_pair(pairs[i]);
    child = fork();
    check(child >= 0, "fork: %s", strerror(errno));
    for (size_t i = 0; i < THREADS; i++) {
        mine[i] = pairs[i][child ? 0 : 1];
        close(pairs[i][child ? 1 : 0]);
    }
    run(mine, child ? 0 : 1);
    if (child == 0)
        _exit(0);
    check(waitpid(child, &status, 0) == child && status == 0, "the other process ended with %d", status);
}

/* A card as the plugin reads it. */
static void check_nic(const struct fi_info *info, const struct fi_info *hints)
{
    uint64_t tag_bits = 64, format = info->ep_attr->mem_tag_format;
    check_provider(info);
    check((info->caps & hints->caps) == hints->caps, "capabilities %llx", (unsigned long long)info->caps);
    check((info->mode & ~hints->mode) == 0, "mode %llx", (unsigned long long)info->mode);
    check((info->domain_attr->mr_mode & ~hints->domain_attr->mr_mode) == 0, "mr_mode %x", info->domain_attr->mr_mode);
    check(info->domain_attr->threading == FI_THREAD_SAFE, "threading %d", info->domain_attr->threading);
    check((info->tx_attr->msg_order & FI_ORDER_SAS) && (info->rx_attr->msg_order & FI_ORDER_SAS), "message order");
    check(info->domain_attr->mr_key_size >= MR_KEY_BYTES, "keys of %zu bytes", info->domain_attr->mr_key_size);
    check(info->domain_attr->name && info->fabric_attr->name, "a card without names");
    while (tag_bits && !(format >> (tag_bits - 1) & 1))
        tag_bits--;
    check(tag_bits >= TAG_BITS_MIN, "%llu tag bits", (unsigned long long)tag_bits);
    if (info->nic)
        check(info->nic->device_attr && info->nic->bus_attr && info->nic->link_attr, "a NIC without its attributes");
}

/* Every result of one kind is a card to NCCL, so that an address must appear once. */
static void check_distinct(const struct fi_info *list)
{
    for (const struct fi_info *a = list; a; a = a->next)
        for (const struct fi_info *b = a->next; b; b = b->next)
            check(a->src_addrlen != b->src_addrlen || memcmp(a->src_addr, b->src_addr, a->src_addrlen) != 0,
                  "one address is offered twice on %s", a->domain_attr->name);
}

static void discovery(void)
{
    struct fi_info *hints = nccl_sendrecv_hints(&OLDEST), *list = NULL;
    struct nccl_ask gpu = {.version = FI_VERSION(1, 6), .hmem = true};
    unsetenv("FI_ERD_IFACE");
    for (size_t i = 0; i < COUNT_OF(VERSIONS); i++) {
        int rc = nccl_find(&(struct nccl_ask){.version = VERSIONS[i]}, &list);
        if (FI_VERSION_LT(fi_version(), VERSIONS[i])) {
            check(rc == -FI_ENOSYS, "an API newer than the library: %s", fi_strerror(-rc));
            continue;
        }
        must(rc, "fi_getinfo");
        check_provider(list);
        check_distinct(list);
        for (struct fi_info *info = list; info; info = info->next)
            check_nic(info, hints);
        fi_freeinfo(list);
    }
    /* With FI_HMEM under an API of before 1.18, NCCL takes GPU memory for granted. */
    check(nccl_find(&gpu, &list) == -FI_ENODATA, "FI_HMEM was granted to API 1.6");
    fi_freeinfo(hints);
}

static void run_transfers(const int *fds, uint64_t rank)
{
    static const size_t LENGTHS[] = {0, 1, 4, 4096, 5000, 65536, 65537, BUFFER_BYTES};
    static struct proxy proxy;
    struct nic nic;
    for (size_t v = 0; v < COUNT_OF(VERSIONS); v++) {
        if (FI_VERSION_LT(fi_version(), VERSIONS[v]))
            continue;
        nic_open(&nic, (struct nccl_ask){.version = VERSIONS[v]});
        proxy_open(&proxy, &nic, fds[0], rank);
        for (size_t i = 0; i < COUNT_OF(LENGTHS); i++)
            exchange(&proxy, LENGTHS[i]);
        proxy_close(&proxy);
        nccl_nic_close(&nic);
    }
}

static void transfers(void)
{
    two_processes(run_transfers);
}

/* Rank 1 posts its receives and calls nothing until rank 0 has sent everything. */
static void stay_idle(const int *fds, uint64_t rank, struct nccl_ask ask)
{
    static struct proxy proxy;
    struct nic nic;
    nic_open(&nic, ask);
    proxy_open(&proxy, &nic, fds[0], rank);
    if (rank == 1)
        post_recvs(&proxy, BUFFER_BYTES);
    meet(&proxy);
    if (rank == 0) {
        post_sends(&proxy, BUFFER_BYTES);
        wait_sends(&proxy);
    }
    meet(&proxy);
    if (rank == 1)
        wait_recvs(&proxy, BUFFER_BYTES);
    proxy_close(&proxy);
    nccl_nic_close(&nic);
}

static void run_idle(const int *fds, uint64_t rank)
{
    stay_idle(fds, rank, OLDEST);
    stay_idle(fds, rank, (struct nccl_ask){.version = FI_VERSION(1, 6), .progress = FI_PROGRESS_AUTO});
}

static void idle_receiver(void)
{
    two_processes(run_idle);
}

struct thread_start {
    struct nic *nic;
    int fd;
    uint64_t rank;
};

static void *run_thread(void *start)
{
    struct thread_start *it = start;
    struct proxy *proxy = malloc(sizeof *proxy);
    check(proxy != NULL, "no memory");
    proxy_open(proxy, it->nic, it->fd, it->rank);
    exchange(proxy, 8);
    exchange(proxy, BUFFER_BYTES);
    proxy_close(proxy);
    free(proxy);
    return NULL;
}

/* Each thread has its own endpoints, address vectors and queue, on one domain. */
static void run_threads(const int *fds, uint64_t rank)
{
    struct thread_start starts[THREADS];
    pthread_t threads[THREADS];
    struct nic nic;
    nic_open(&nic, OLDEST);
    for (size_t i = 0; i < THREADS; i++) {
        starts[i] = (struct thread_start){&nic, fds[i], rank};
        check(pthread_create(&threads[i], NULL, run_thread, &starts[i]) == 0, "pthread_create");
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    nccl_nic_close(&nic);
}

static void endpoint_per_thread(void)
{
    two_processes(run_threads);
}

/* Closes everything with a full window on its way, memory first, and starts afresh. */
static void run_abort(const int *fds, uint64_t rank)
{
    static struct proxy proxy;
    struct nic nic;
    nic_open(&nic, OLDEST);
    for (int round = 0; round < 5; round++) {
        proxy_open(&proxy, &nic, fds[0], rank);
        if (rank == 0)
            post_sends(&proxy, BUFFER_BYTES);
        else
            post_recvs(&proxy, BUFFER_BYTES);
        for (size_t l = 0; l < LINKS; l++) {
            for (size_t i = 0; i < SLOTS; i++) {
                nccl_deregister(proxy.links[l].out[i].mr);
                nccl_deregister(proxy.links[l].in[i].mr);
            }
        }
        nccl_ep_close(&proxy.ep);
        for (size_t l = 0; l < LINKS; l++) {
            for (size_t i = 0; i < SLOTS; i++) {
                free(proxy.links[l].out[i].bytes);
                free(proxy.links[l].in[i].bytes);
            }
        }
        meet(&proxy);
    }
    nccl_nic_close(&nic);
}

static void close_in_flight(void)
{
    two_processes(run_abort);
}

/* A message longer than its receive is an error with a text; the connection goes on. */
static void run_too_long(const int *fds, uint64_t rank)
{
    static struct proxy proxy;
    struct link *link = &proxy.links[0];
    struct slot *in = &link->in[0], *out = &link->out[0];
    struct nic nic;
    int rc;
    nic_open(&nic, OLDEST);
    proxy_open(&proxy, &nic, fds[0], rank);
    if (rank == 0) {
        memset(out->bytes, 1, 1000);
        nccl_isend(&link->send, out->bytes, 1000, out->mr, &out->request);
        nccl_wait(&proxy.ep, &out->request);
    } else {
        nccl_irecv(&link->recv, in->bytes, 100, in->mr, &in->request);
        rc = nccl_wait(&proxy.ep, &in->request);
        check(rc == -FI_ETRUNC, "1000 bytes into 100 ended with %d", rc);
    }
    exchange(&proxy, 4096);
    proxy_close(&proxy);
    nccl_nic_close(&nic);
}

static void too_long(void)
{
    two_processes(run_too_long);
}

static const struct test_case TESTS[] = {
    {"discovery", discovery, 20},
    {"transfers", transfers, 90},
    {"idle_receiver", idle_receiver, 60},
    {"endpoint_per_thread", endpoint_per_thread, 90},
    {"close_in_flight", close_in_flight, 60},
    {"too_long", too_long, 30},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
