/* Shared by the C programs under tests/c: one endpoint with its domain, one CQ and one AV, and a
 * small out-of-band channel between two processes of one host. Header only; every program is one
 * file and links libfabric and nothing else. */
#ifndef ERD_TESTS_NODE_H
#define ERD_TESTS_NODE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define NAME_BYTES 128

struct node {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    uint8_t name[NAME_BYTES];
    size_t name_bytes;
};

/* What a program asks of node_open; zero is the default of each field. */
struct node_options {
    const char *provider;  /* as FI_PROVIDER names it */
    const char *address;   /* local address to bind, NULL for the provider's choice */
    const char *service;   /* local port, NULL for any */
    uint64_t caps;         /* added to FI_TAGGED | FI_MSG */
    size_t queue_size;     /* least transmit and receive queue */
    uint64_t tx_flags;     /* default flags of sends */
    uint64_t bind_flags;   /* added to those that bind the CQ */
    int mr_mode;           /* what the program is ready to do about registered memory */
    enum fi_wait_obj wait; /* of the CQ, by default FI_WAIT_NONE */
    enum fi_cq_format format; /* of the CQ, by default FI_CQ_FORMAT_TAGGED */
};

/* One operation's context; the first member is what FI_CONTEXT2 asks for. */
struct op {
    struct fi_context2 provider_part;
    uint64_t id;
    int state; /* 0 pending, 1 done, below 0 the negative error */
};

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "FAILED: ");
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    _exit(1);
}

/* Ends the program with the text of the libfabric error. */
static inline void must(int64_t rc, const char *what)
{
    if (rc < 0)
        die("%s: %s (%lld)", what, fi_strerror((int)-rc), (long long)rc);
}

#define check(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            die(__VA_ARGS__);                                                                      \
    } while (0)

/* Zeroed memory from a page's start on. */
static inline void *node_memory(size_t count, size_t bytes)
{
    void *memory = NULL;
    check(posix_memalign(&memory, 4096, count * bytes) == 0, "no memory for %zu bytes", count * bytes);
    memset(memory, 0, count * bytes);
    return memory;
}

/* Binds this process to one CPU, where there is such a CPU. */
static inline void pin_to_cpu(int cpu)
{
    cpu_set_t set;
    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        fprintf(stderr, "cannot pin to CPU %d: %s\n", cpu, strerror(errno));
}

static inline struct fi_info *node_hints(const struct node_options *options)
{
    struct fi_info *hints = fi_allocinfo();
    check(hints != NULL, "fi_allocinfo found no memory");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_TAGGED | options->caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->domain_attr->mr_mode = options->mr_mode;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->tx_attr->op_flags = options->tx_flags;
    hints->tx_attr->size = options->queue_size;
    hints->rx_attr->size = options->queue_size;
    hints->fabric_attr->prov_name = strdup(options->provider);
    return hints;
}

/* Where a test that says loopback is to run: ERD_TEST_ADDRESSES may name two other addresses of this
 * host, one for the leader of a group of processes and one for those it forks. */
static inline const char *node_address(const char *address)
{
    static char first[64], second[64];
    const char *others = getenv("ERD_TEST_ADDRESSES");
    if (!address || !others || strcmp(address, "127.0.0.1") != 0)
        return address;
    check(sscanf(others, "%63s %63s", first, second) == 2, "ERD_TEST_ADDRESSES is \"%s\", not two addresses", others);
    return getpid() == getpgrp() ? first : second;
}

/* The negative error of fi_getinfo, or 0 with node->info set. */
static inline int node_find(struct node *node, const struct node_options *options)
{
    struct fi_info *hints = node_hints(options);
    const char *address = node_address(options->address);
    uint64_t flags = address || options->service ? FI_SOURCE : 0;
    int rc = fi_getinfo(FI_VERSION(1, 17), address, options->service, flags, hints, &node->info);
    fi_freeinfo(hints);
    return rc;
}

/* ERD_TEST_EP_KEY, 32 characters, is a key of each endpoint alone: its domain knows nothing of it. */
static inline void node_give_key(struct fi_info *info)
{
    const char *key = getenv("ERD_TEST_EP_KEY");
    if (!key)
        return;
    check(strlen(key) == 32, "ERD_TEST_EP_KEY has %zu characters", strlen(key));
    info->ep_attr->auth_key = (uint8_t *)strdup(key);
    info->ep_attr->auth_key_size = strlen(key);
}

/* Opens what node->info describes. */
static inline void node_open_found(struct node *node, const struct node_options *options)
{
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = options->wait};
    if (options->format)
        cq.format = options->format;
    cq.size = options->queue_size ? options->queue_size * 2 : 1024;
    must(fi_fabric(node->info->fabric_attr, &node->fabric, NULL), "fi_fabric");
    must(fi_domain(node->fabric, node->info, &node->domain, NULL), "fi_domain");
    must(fi_av_open(node->domain, &av, &node->av, NULL), "fi_av_open");
    must(fi_cq_open(node->domain, &cq, &node->cq, NULL), "fi_cq_open");
    node_give_key(node->info);
    must(fi_endpoint(node->domain, node->info, &node->ep, NULL), "fi_endpoint");
    must(fi_ep_bind(node->ep, &node->av->fid, 0), "fi_ep_bind of the AV");
    must(fi_ep_bind(node->ep, &node->cq->fid, FI_TRANSMIT | FI_RECV | options->bind_flags), "fi_ep_bind of the CQ");
    must(fi_enable(node->ep), "fi_enable");
    node->name_bytes = sizeof node->name;
    must(fi_getname(&node->ep->fid, node->name, &node->name_bytes), "fi_getname");
}

static inline void node_open(struct node *node, const struct node_options *options)
{
    memset(node, 0, sizeof *node);
    must(node_find(node, options), "fi_getinfo");
    node_open_found(node, options);
}

static inline void node_close(struct node *node)
{
    must(fi_close(&node->ep->fid), "fi_close of the endpoint");
    must(fi_close(&node->cq->fid), "fi_close of the CQ");
    must(fi_close(&node->av->fid), "fi_close of the AV");
    must(fi_close(&node->domain->fid), "fi_close of the domain");
    must(fi_close(&node->fabric->fid), "fi_close of the fabric");
    fi_freeinfo(node->info);
    memset(node, 0, sizeof *node);
}

static inline fi_addr_t node_insert(struct node *node, const void *name)
{
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    int64_t inserted = fi_av_insert(node->av, name, 1, &address, 0, NULL);
    check(inserted == 1, "fi_av_insert answered %lld", (long long)inserted);
    return address;
}

/* Reads at most one completion: 1 and *op done, 0 nothing there, below 0 the error that *op ended
 * with. `error` may be NULL. */
static inline int node_poll(struct node *node, struct op **op, struct fi_cq_tagged_entry *entry,
                            struct fi_cq_err_entry *error)
{
    struct fi_cq_err_entry own = {0};
    ssize_t got = fi_cq_read(node->cq, entry, 1);
    *op = NULL;
    if (got == 1) {
        *op = entry->op_context;
        if (*op)
            (*op)->state = 1;
        return 1;
    }
    if (got == -FI_EAGAIN)
        return 0;
    check(got == -FI_EAVAIL, "fi_cq_read: %s", fi_strerror((int)-got));
    if (!error)
        error = &own;
    memset(error, 0, sizeof *error);
    got = fi_cq_readerr(node->cq, error, 0);
    if (got == 0 || got == -FI_EAGAIN)
        return 0;
    check(got == 1, "fi_cq_readerr: %s", fi_strerror((int)-got));
    *op = error->op_context;
    if (*op)
        (*op)->state = -error->err;
    return -error->err;
}

static inline void oob_pair(int pair[2])
{
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair: %s", strerror(errno));
}

static inline void oob_send(int fd, const void *bytes, size_t length)
{
    ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
    check(sent == (ssize_t)length, "the other process has gone");
}

/* Receives from the other process; keeps `node` progressing meanwhile when it is not NULL. The
 * completions of such a time are dropped, so only ask when none is awaited. */
static inline void oob_recv(int fd, void *bytes, size_t length, struct node *node)
{
    size_t have = 0;
    while (have < length) {
        ssize_t got = recv(fd, (char *)bytes + have, length - have, node ? MSG_DONTWAIT : 0);
        check(got != 0, "the other process has gone");
        if (got > 0) {
            have += (size_t)got;
        } else if (errno == EAGAIN && node) {
            struct op *op;
            struct fi_cq_tagged_entry entry;
            node_poll(node, &op, &entry, NULL);
        } else {
            check(errno == EINTR || errno == EAGAIN, "recv: %s", strerror(errno));
        }
    }
}

/* Forks the other side, which ends when this thread does. Answers its process, 0 in the other side itself, and
 * in `oob` the own end of a channel between the two. */
static inline pid_t fork_side(int *oob)
{
    int pair[2];
    pid_t pid;
    oob_pair(pair);
    fflush(NULL);
    pid = fork();
    check(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(pair[pid ? 1 : 0]);
    *oob = pair[pid ? 0 : 1];
    return pid;
}

/* Waits for the other side to end. Answers the exit status that it has, or 1 if it was killed. */
static inline int end_of(pid_t side)
{
    int status = 0;
    check(waitpid(side, &status, 0) == side, "waitpid: %s", strerror(errno));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Exchanges names over the out-of-band channel; answers the peer's address. */
static inline fi_addr_t node_meet(struct node *node, int fd)
{
    uint8_t theirs[NAME_BYTES] = {0};
    oob_send(fd, node->name, sizeof node->name);
    oob_recv(fd, theirs, sizeof theirs, node);
    return node_insert(node, theirs);
}

/* Byte `offset` of message `seed`: position-dependent, so that a misplaced piece is seen. */
static inline uint8_t pattern_byte(uint64_t seed, size_t offset)
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + offset * 0xbf58476d1ce4e5b9u;
    return (uint8_t)(x >> 56 ^ x >> 29);
}

static inline void pattern_fill(uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = pattern_byte(seed, i);
}

static inline void pattern_check(const uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++)
        check(bytes[i] == pattern_byte(seed, i), "message %llu of %zu bytes differs at byte %zu: %u, not %u",
              (unsigned long long)seed, length, i, bytes[i], pattern_byte(seed, i));
}

#endif
