/* NCCL's traffic as aws-ofi-nccl's RDMA protocol makes it, in host memory: the receiver writes where it
 * wants the data into a mailbox of the sender, who polls its own memory for that, and writes the data
 * there, in stripes that each complete with data; short messages are sent ahead, to buffers that wait
 * for anyone. Every message ends with reads of the own endpoint, by which the plugin flushes. */
#include "cases.h"
#include "nccl.h"

#include <rdma/fi_rma.h>

enum {
    SLOTS = 8,             /* messages outstanding, and entries of the mailbox */
    BOUNCES = 32,          /* buffers for what is sent ahead */
    EAGER_BYTES = 8192,    /* OFI_NCCL_EAGER_MAX_SIZE */
    HEADER_BYTES = 16,
    STRIPES_MAX = 4,
    BUFFER_BYTES = 4 << 20,
    ENTRY_BYTES = 64,
};

/* What a receiver writes into the mailbox. The sequence number comes last: once the sender sees it,
 * the rest must be there. */
struct entry {
    uint64_t address, key, bytes;
    uint8_t unused[ENTRY_BYTES - 26];
    uint16_t seq;
};
_Static_assert(sizeof(struct entry) == ENTRY_BYTES, "the plugin's size");

struct memory {
    uint8_t *bytes;
    struct fid_mr *mr;
    uint64_t key, address;
};

/* What an operation's context leads to; an own one for every operation under way. */
struct job {
    struct fi_context2 provider_part;
    int state;
};

struct rank {
    int fd;
    uint64_t number;
    struct nic nic;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
    fi_addr_t peer, self;
    struct memory mailbox, control, source, target, flush, bounce[BOUNCES];
    struct job bounce_jobs[BOUNCES];
    struct {
        uint8_t name[EP_NAME_BYTES];
        uint64_t mailbox, key;
    } theirs;
    uint16_t next_seq;
    /* Of each sequence number: stripes that have come, and the bounce buffer with what came ahead. */
    unsigned stripes[1 << 16];
    int ahead[1 << 16];
    size_t ahead_bytes[1 << 16];
};

static struct fi_info *rdma_hints(enum fi_threading threading)
{
    struct fi_info *hints = fi_allocinfo();
    check(hints != NULL, "fi_allocinfo found no memory");
    hints->caps = FI_MSG | FI_RMA | FI_HMEM | FI_LOCAL_COMM | FI_REMOTE_COMM;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_HMEM | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->mr_key_size = MR_KEY_BYTES;
    hints->domain_attr->cq_data_size = 4;
    hints->domain_attr->threading = threading;
    return hints;
}

/* False if the library does not know the version. */
static bool find(uint32_t version, struct fi_info **list)
{
    struct fi_info *hints = rdma_hints(FI_THREAD_COMPLETION);
    int rc = fi_getinfo(version, NULL, NULL, 0, hints, list);
    fi_freeinfo(hints);
    if (rc == -FI_ENOSYS)
        return false;
    must(rc, "fi_getinfo");
    return true;
}

static struct memory expose(struct rank *rank, size_t bytes)
{
    struct memory memory = {.bytes = calloc(1, bytes)};
    struct iovec piece = {.iov_base = memory.bytes, .iov_len = bytes};
    struct fi_mr_attr attr = {.mr_iov = &piece, .iov_count = 1};
    int mode = rank->nic.info->domain_attr->mr_mode;
    check(memory.bytes != NULL, "no memory");
    attr.access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    attr.iface = FI_HMEM_SYSTEM;
    attr.requested_key = mode & FI_MR_PROV_KEY ? 0 : rank->nic.next_key++;
    must(fi_mr_regattr(rank->nic.domain, &attr, 0, &memory.mr), "fi_mr_regattr");
    memory.key = fi_mr_key(memory.mr);
    check(memory.key != FI_KEY_NOTAVAIL && (mode & FI_MR_PROV_KEY || memory.key >> 8 * MR_KEY_BYTES == 0), "a key");
    memory.address = mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)memory.bytes : 0;
    return memory;
}

static void forget(struct memory *memory)
{
    must(fi_close(&memory->mr->fid), "fi_close of memory");
    free(memory->bytes);
}

static void post_bounce(struct rank *rank, size_t nth, bool more)
{
    struct iovec piece = {.iov_base = rank->bounce[nth].bytes, .iov_len = HEADER_BYTES + EAGER_BYTES};
    void *desc = fi_mr_desc(rank->bounce[nth].mr);
    struct fi_msg msg = {.msg_iov = &piece, .desc = &desc, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    rank->bounce_jobs[nth].state = 0;
    msg.context = &rank->bounce_jobs[nth];
    must(fi_recvmsg(rank->ep, &msg, more ? FI_MORE : 0), "fi_recvmsg");
}

static void took(struct rank *rank, const struct fi_cq_data_entry *entry)
{
    struct job *job = entry->op_context;
    if (entry->flags & FI_REMOTE_WRITE) {
        check(entry->flags & FI_REMOTE_CQ_DATA, "a peer's write without data");
        rank->stripes[entry->data & 0xffff]++;
        return;
    }
    check(job != NULL, "a completion without a context");
    job->state = 1;
    if (entry->flags & FI_RECV) {
        check(entry->flags & FI_REMOTE_CQ_DATA, "a message without data");
        rank->ahead[entry->data & 0xffff] = (int)(job - rank->bounce_jobs);
        rank->ahead_bytes[entry->data & 0xffff] = entry->len - HEADER_BYTES;
    }
}

static void progress(struct rank *rank)
{
    struct fi_cq_data_entry entries[CQ_READ_ENTRIES];
    ssize_t got = fi_cq_read(rank->cq, entries, CQ_READ_ENTRIES);
    if (got == -FI_EAGAIN)
        return;
    must(got, "fi_cq_read");
    for (ssize_t i = 0; i < got; i++)
        took(rank, &entries[i]);
}

static void wait_for(struct rank *rank, const struct job *job)
{
    for (progress(rank); job->state == 0; progress(rank))
        sched_yield();
}

/* Repeats a call while the provider has no room. */
#define POST(rank, call)                             \
    do {                                             \
        ssize_t rc_;                                 \
        while ((rc_ = (call)) == -FI_EAGAIN)         \
            progress(rank);                          \
        must(rc_, #call);                            \
    } while (0)

static void open_rank(struct rank *rank, uint32_t version, int fd, uint64_t number)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_DATA, .size = CQ_ENTRIES};
    struct fi_av_attr av = {0};
    struct fi_info *list;
    uint8_t name[EP_NAME_BYTES];
    uint64_t bytes;
    memset(rank, 0, sizeof *rank);
    memset(rank->ahead, -1, sizeof rank->ahead);
    (rank->fd = fd, rank->number = number);
    find(version, &list);
    nccl_nic_open(&rank->nic, list);
    fi_freeinfo(list);
    must(fi_cq_open(rank->nic.domain, &cq, &rank->cq, NULL), "fi_cq_open");
    must(fi_av_open(rank->nic.domain, &av, &rank->av, NULL), "fi_av_open");
    must(fi_endpoint(rank->nic.domain, rank->nic.info, &rank->ep, NULL), "fi_endpoint");
    must(fi_ep_bind(rank->ep, &rank->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the CQ");
    must(fi_ep_bind(rank->ep, &rank->av->fid, 0), "fi_ep_bind of the AV");
    nccl_set_options(rank->ep);
    must(fi_enable(rank->ep), "fi_enable");
    rank->mailbox = expose(rank, SLOTS * ENTRY_BYTES);
    rank->control = expose(rank, SLOTS * ENTRY_BYTES);
    rank->source = expose(rank, BUFFER_BYTES);
    rank->target = expose(rank, BUFFER_BYTES);
    rank->flush = expose(rank, sizeof(uint64_t));
    for (size_t i = 0; i < BOUNCES; i++)
        rank->bounce[i] = expose(rank, HEADER_BYTES + EAGER_BYTES);
    for (size_t i = 0; i < BOUNCES; i++)
        post_bounce(rank, i, i + 1 < BOUNCES);
    nccl_name(rank->ep, name, &bytes);
    rank->self = nccl_insert(rank->av, name);
    memcpy(rank->theirs.name, name, sizeof name);
    rank->theirs.mailbox = rank->mailbox.address;
    rank->theirs.key = rank->mailbox.key;
    oob_send(fd, &rank->theirs, sizeof rank->theirs);
    oob_recv(fd, &rank->theirs, sizeof rank->theirs, NULL);
    rank->peer = nccl_insert(rank->av, rank->theirs.name);
}

static void close_rank(struct rank *rank)
{
    uint8_t byte = 0;
    oob_send(rank->fd, &byte, sizeof byte);
    oob_recv(rank->fd, &byte, sizeof byte, NULL);
    must(fi_close(&rank->ep->fid), "fi_close of the endpoint");
    for (size_t i = 0; i < BOUNCES; i++)
        forget(&rank->bounce[i]);
    forget(&rank->mailbox);
    forget(&rank->control);
    forget(&rank->source);
    forget(&rank->target);
    forget(&rank->flush);
    must(fi_close(&rank->av->fid), "fi_close of the AV");
    must(fi_close(&rank->cq->fid), "fi_close of the CQ");
    nccl_nic_close(&rank->nic);
}

static uint64_t seed_of(uint16_t seq, size_t length)
{
    return (uint64_t)seq << 40 | length;
}

/* The sender's part of a message; short ones go ahead of the mailbox now and then. */
static void send_one(struct rank *rank, size_t length, bool eager)
{
    uint16_t seq = ++rank->next_seq;
    volatile struct entry *entry = (struct entry *)rank->mailbox.bytes + seq % SLOTS;
    struct job jobs[STRIPES_MAX] = {0};
    size_t stripes = length >= 1 << 20 ? STRIPES_MAX : 1, each;
    pattern_fill(rank->source.bytes, length, seed_of(seq, length));
    if (eager) {
        uint8_t header[HEADER_BYTES] = {(uint8_t)seq};
        struct iovec pieces[] = {{header, sizeof header}, {rank->source.bytes, length}};
        void *desc[] = {fi_mr_desc(rank->control.mr), fi_mr_desc(rank->source.mr)};
        struct fi_msg msg = {pieces, desc, 2, rank->peer, &jobs[0], seq};
        POST(rank, fi_sendmsg(rank->ep, &msg, FI_REMOTE_CQ_DATA));
        wait_for(rank, &jobs[0]);
    }
    while (entry->seq != seq) {
        progress(rank);
        sched_yield();
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    check(entry->bytes >= length, "the receiver has room for %llu bytes", (unsigned long long)entry->bytes);
    if (eager)
        return;
    each = (length / stripes + 127) / 128 * 128;
    for (size_t i = 0; i < stripes; i++) {
        size_t from = i * each, bytes = i + 1 < stripes ? each : length - from;
        POST(rank, fi_writedata(rank->ep, rank->source.bytes + from, bytes, fi_mr_desc(rank->source.mr), seq,
                                rank->peer, entry->address + from, entry->key, &jobs[i]));
    }
    for (size_t i = 0; i < stripes; i++)
        wait_for(rank, &jobs[i]);
}

/* Reads the own endpoint's memory, as a flush does and as what came ahead is moved to its place. */
static void read_self(struct rank *rank, struct memory *to, size_t bytes, const struct memory *from, size_t offset)
{
    struct job job = {0};
    POST(rank, fi_read(rank->ep, to->bytes, bytes, fi_mr_desc(to->mr), rank->self, from->address + offset, from->key,
                       &job));
    wait_for(rank, &job);
}

static void receive_one(struct rank *rank, size_t length)
{
    uint16_t seq = ++rank->next_seq;
    struct entry *mine = (struct entry *)rank->control.bytes + seq % SLOTS;
    struct job job = {0};
    size_t stripes = length >= 1 << 20 ? STRIPES_MAX : 1;
    uint64_t at = rank->theirs.mailbox + seq % SLOTS * ENTRY_BYTES;
    memset(rank->target.bytes, 0, length);
    *mine = (struct entry){.address = rank->target.address, .key = rank->target.key, .bytes = length, .seq = seq};
    POST(rank, fi_write(rank->ep, mine, ENTRY_BYTES, fi_mr_desc(rank->control.mr), rank->peer, at, rank->theirs.key,
                        &job));
    while (rank->ahead[seq] < 0 && rank->stripes[seq] < stripes) {
        progress(rank);
        sched_yield();
    }
    wait_for(rank, &job);
    if (rank->ahead[seq] >= 0) {
        check(rank->ahead_bytes[seq] == length, "%zu bytes came ahead", rank->ahead_bytes[seq]);
        if (length > 0)
            read_self(rank, &rank->target, length, &rank->bounce[rank->ahead[seq]], HEADER_BYTES);
        post_bounce(rank, (size_t)rank->ahead[seq], false);
    }
    read_self(rank, &rank->flush, 4, &rank->target, 0);
    pattern_check(rank->target.bytes, length, seed_of(seq, length));
}

static void run(int fd, uint64_t number, uint32_t version)
{
    static const size_t LENGTHS[] = {0, 1, 64, 4096, EAGER_BYTES, EAGER_BYTES + 1, 65536, 1 << 20, BUFFER_BYTES};
    static struct rank rank;
    open_rank(&rank, version, fd, number);
    for (size_t round = 0; round < 60; round++) {
        size_t length = LENGTHS[round % COUNT_OF(LENGTHS)];
        bool eager = length <= EAGER_BYTES && length > 0 && round % 2;
        if ((round / 4 + number) % 2)
            send_one(&rank, length, eager);
        else
            receive_one(&rank, length);
    }
    close_rank(&rank);
}

static void transfers(void)
{
    static const uint32_t VERSIONS[] = {FI_VERSION(1, 20), FI_VERSION(1, 18)};
    for (size_t v = 0; v < COUNT_OF(VERSIONS); v++) {
        int oob;
        pid_t child;
        if (FI_VERSION_LT(fi_version(), VERSIONS[v]))
            continue;
        child = fork_side(&oob);
        run(oob, child ? 0 : 1, VERSIONS[v]);
        if (child == 0)
            _exit(0);
        check(end_of(child) == 0, "the other process failed");
        close(oob);
    }
}

/* What the plugin reads of each card. */
static void discovery(void)
{
    struct fi_info *list, *hints = rdma_hints(FI_THREAD_COMPLETION);
    if (FI_VERSION_LT(fi_version(), FI_VERSION(1, 18))) {
        fi_freeinfo(hints);
        return;
    }
    check(find(FI_VERSION(1, 18), &list), "API 1.18");
    for (const struct fi_info *info = list; info; info = info->next) {
        check((info->caps & hints->caps) == hints->caps, "capabilities %llx", (unsigned long long)info->caps);
        check((info->domain_attr->mr_mode & ~hints->domain_attr->mr_mode) == 0, "mr_mode");
        check(info->domain_attr->cq_data_size >= 4, "%zu bytes of data", info->domain_attr->cq_data_size);
        check(info->tx_attr->iov_limit >= 2, "%zu pieces", info->tx_attr->iov_limit);
        check(info->ep_attr->max_msg_size >= 1 << 30, "%zu bytes at most", info->ep_attr->max_msg_size);
        check(info->domain_attr->threading == FI_THREAD_COMPLETION, "threading %d", info->domain_attr->threading);
    }
    fi_freeinfo(list);
    fi_freeinfo(hints);
}

static const struct test_case TESTS[] = {
    {"discovery", discovery, 20},
    {"transfers", transfers, 90},
};

/* Without the setting the plugin finds nothing for this protocol, and takes the other. */
static void check_setting(void)
{
    struct fi_info *hints = rdma_hints(FI_THREAD_COMPLETION), *list = NULL;
    unsetenv("FI_ERD_HMEM");
    check(fi_getinfo(FI_VERSION(1, 18), NULL, NULL, 0, hints, &list) != 0, "FI_HMEM was granted unasked");
    fi_freeinfo(hints);
    setenv("FI_ERD_HMEM", "1", 1);
}

int main(int argc, char **argv)
{
    check_setting();
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
