/* NCCL's traffic as aws-ofi-nccl's RDMA protocol makes it (as of its commit 2daf7d30), in host memory:
 * the receiver writes where it wants data into a mailbox of the sender's, the sender writes data with a
 * number there, and short messages go ahead of that into buffers that are always posted. Names, keys and
 * addresses go between the two processes over a socket here; the plugin's way is in nccl_sendrecv.c. */
#include "cases.h"
#include "nccl.h"

#include <rdma/fi_rma.h>

enum {
    SLOTS = 16,             /* messages outstanding, and places in the mailbox */
    MAIL_BYTES = 64,        /* of one receive, nccl_net_ofi_ctrl_msg_entry_t there */
    BUFFER_BYTES = 1 << 20,
    EAGER_BYTES = 8192,
    HEADER_BYTES = 16,      /* ahead of a short message */
    RX_BUFFERS = 32,
    LINE_BYTES = 64,        /* of a processor's cache: what a flush reads */
    EAGER_MARK = 1 << 20,   /* in the number that comes with a short message */
    OPT_INJECT_RMA_SIZE = 9,
};

/* The oldest API that has what the protocol asks for. */
static const uint32_t VERSION = FI_VERSION(1, 18);

struct work {
    struct fi_context2 provider_part;
    struct rx *rx; /* the buffer that it receives into, or NULL */
    int state;     /* 0 pending, 1 done, below 0 the negative error */
};

struct rx {
    struct work work;
    uint8_t bytes[HEADER_BYTES + EAGER_BYTES];
    size_t got;      /* of the message in it, 0 while there is none */
    uint32_t number; /* that came with it */
};

/* Where a receiver wants one message. */
struct mail {
    uint64_t offset, key;
    uint32_t length, sequence; /* counted from 1, so that empty mail is none */
    uint8_t rest[MAIL_BYTES - 24];
};

/* What one side tells the other. */
struct card {
    uint8_t data_name[EP_NAME_BYTES], ctrl_name[EP_NAME_BYTES];
    uint64_t mailbox, mailbox_key;
};

struct side {
    int fd;
    uint64_t rank;
    struct nic nic;
    struct fid_cq *cq;
    struct fid_av *av, *ctrl_av;
    struct fid_ep *ep, *ctrl;
    fi_addr_t self, peer, ctrl_peer;
    struct rx rx[RX_BUFFERS];
    struct fid_mr *rx_mr, *mail_mr, *out_mr, *in_mr, *flush_mr;
    struct mail mailbox[SLOTS], letters[SLOTS]; /* what the peer wants, and what we do */
    uint64_t their_mailbox, their_key;
    uint8_t *out, *in;
    uint8_t flush[2 * LINE_BYTES];
    uint32_t arrived[SLOTS]; /* bytes written to each slot, as the peer's numbers tell */
    uint32_t sequence;
};

static struct fi_info *rdma_hints(void)
{
    struct fi_info *hints = fi_allocinfo();
    check(hints != NULL, "fi_allocinfo found no memory");
    hints->caps = FI_MSG | FI_RMA | FI_HMEM | FI_LOCAL_COMM | FI_REMOTE_COMM;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_HMEM | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->mr_key_size = MR_KEY_BYTES;
    hints->domain_attr->threading = FI_THREAD_COMPLETION;
    hints->domain_attr->cq_data_size = 4;
    return hints;
}

static struct fid_mr *enroll(struct side *side, void *bytes, size_t length)
{
    int mode = side->nic.info->domain_attr->mr_mode;
    struct iovec piece = {.iov_base = bytes, .iov_len = length};
    struct fi_mr_attr attr = {.mr_iov = &piece, .iov_count = 1};
    struct fid_mr *mr;
    attr.access = FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE | FI_READ | FI_REMOTE_READ;
    attr.iface = FI_HMEM_SYSTEM;
    if (!(mode & FI_MR_PROV_KEY))
        attr.requested_key = side->nic.next_key++;
    must(fi_mr_regattr(side->nic.domain, &attr, 0, &mr), "fi_mr_regattr");
    if (mode & FI_MR_ENDPOINT) {
        must(fi_mr_bind(mr, &side->ep->fid, 0), "fi_mr_bind");
        must(fi_mr_enable(mr), "fi_mr_enable");
    }
    return mr;
}

/* How a peer addresses a byte of a region: as mr_mode says. */
static uint64_t remote(const struct side *side, const void *base, const void *at)
{
    bool is_virtual = side->nic.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
    return is_virtual ? (uintptr_t)at : (uintptr_t)at - (uintptr_t)base;
}

static void post_rx(struct side *side, struct rx *rx, uint64_t flags)
{
    struct iovec piece = {.iov_base = rx->bytes, .iov_len = sizeof rx->bytes};
    void *desc = fi_mr_desc(side->rx_mr);
    struct fi_msg msg = {.msg_iov = &piece, .desc = &desc, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    rx->work = (struct work){.rx = rx};
    rx->got = 0;
    msg.context = &rx->work;
    must(fi_recvmsg(side->ep, &msg, flags), "fi_recvmsg");
}

static void open_end(struct side *side, struct fid_av **av, struct fid_ep **ep)
{
    struct fi_av_attr attr = {0};
    size_t bytes, length = sizeof bytes;
    int rc;
    must(fi_av_open(side->nic.domain, &attr, av, NULL), "fi_av_open");
    must(fi_endpoint(side->nic.domain, side->nic.info, ep, NULL), "fi_endpoint");
    must(fi_ep_bind(*ep, &side->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the CQ");
    must(fi_ep_bind(*ep, &(*av)->fid, 0), "fi_ep_bind of the AV");
    nccl_set_options(*ep);
    must(fi_enable(*ep), "fi_enable");
    rc = fi_getopt(&(*ep)->fid, FI_OPT_ENDPOINT, OPT_INJECT_RMA_SIZE, &bytes, &length);
    check(rc == 0 || rc == -FI_ENOPROTOOPT, "INJECT_RMA_SIZE: %s", fi_strerror(-rc));
}

static void introduce(struct side *side)
{
    struct card own = {0}, theirs;
    uint64_t bytes;
    nccl_name(side->ep, own.data_name, &bytes);
    nccl_name(side->ctrl, own.ctrl_name, &bytes);
    own.mailbox = remote(side, side->mailbox, side->mailbox);
    own.mailbox_key = fi_mr_key(side->mail_mr);
    oob_send(side->fd, &own, sizeof own);
    oob_recv(side->fd, &theirs, sizeof theirs, NULL);
    side->self = nccl_insert(side->av, own.data_name);
    side->peer = nccl_insert(side->av, theirs.data_name);
    side->ctrl_peer = nccl_insert(side->ctrl_av, theirs.ctrl_name);
    side->their_mailbox = theirs.mailbox;
    side->their_key = theirs.mailbox_key;
}

static void side_open(struct side *side, int fd, uint64_t rank)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_DATA, .size = CQ_ENTRIES};
    struct fi_info *hints = rdma_hints(), *list;
    memset(side, 0, sizeof *side);
    side->fd = fd;
    side->rank = rank;
    must(fi_getinfo(VERSION, NULL, NULL, 0, hints, &list), "fi_getinfo");
    fi_freeinfo(hints);
    nccl_nic_open(&side->nic, list);
    fi_freeinfo(list);
    must(fi_cq_open(side->nic.domain, &cq, &side->cq, NULL), "fi_cq_open");
    open_end(side, &side->av, &side->ep);
    open_end(side, &side->ctrl_av, &side->ctrl);
    side->out = malloc(SLOTS * BUFFER_BYTES);
    side->in = malloc(SLOTS * BUFFER_BYTES);
    check(side->out && side->in, "no memory");
    side->rx_mr = enroll(side, side->rx, sizeof side->rx);
    side->mail_mr = enroll(side, side->mailbox, sizeof side->mailbox + sizeof side->letters);
    side->out_mr = enroll(side, side->out, SLOTS * BUFFER_BYTES);
    side->in_mr = enroll(side, side->in, SLOTS * BUFFER_BYTES);
    side->flush_mr = enroll(side, side->flush, sizeof side->flush);
    for (size_t i = 0; i < RX_BUFFERS; i++)
        post_rx(side, &side->rx[i], i + 1 < RX_BUFFERS ? FI_MORE : 0);
    introduce(side);
}

static void meet(const struct side *side)
{
    uint8_t byte = 0;
    oob_send(side->fd, &byte, sizeof byte);
    oob_recv(side->fd, &byte, sizeof byte, NULL);
}

static void side_close(struct side *side)
{
    struct fid_mr *regions[] = {side->rx_mr, side->mail_mr, side->out_mr, side->in_mr, side->flush_mr};
    meet(side);
    must(fi_close(&side->ep->fid), "fi_close of the endpoint");
    must(fi_close(&side->ctrl->fid), "fi_close of the control endpoint");
    for (size_t i = 0; i < COUNT_OF(regions); i++)
        nccl_deregister(regions[i]);
    must(fi_close(&side->av->fid), "fi_close of the AV");
    must(fi_close(&side->ctrl_av->fid), "fi_close of the control AV");
    must(fi_close(&side->cq->fid), "fi_close of the CQ");
    nccl_nic_close(&side->nic);
    free(side->out);
    free(side->in);
}

static void complete(struct side *side, const struct fi_cq_data_entry *entry)
{
    struct work *work = entry->op_context;
    if (entry->flags & FI_REMOTE_WRITE) {
        check(entry->flags & FI_REMOTE_CQ_DATA, "a remote write without its number");
        check(entry->data < SLOTS, "a write to slot %llu", (unsigned long long)entry->data);
        side->arrived[entry->data] += (uint32_t)entry->len;
        return;
    }
    check(work != NULL, "a completion without a context");
    work->state = 1;
    if (entry->flags & FI_RECV) {
        check(work->rx != NULL && (entry->flags & FI_REMOTE_CQ_DATA), "a message without its number");
        work->rx->got = entry->len;
        work->rx->number = (uint32_t)entry->data;
    } else {
        check(entry->flags & (FI_SEND | FI_WRITE | FI_READ), "flags %llx", (unsigned long long)entry->flags);
    }
}

static void progress(struct side *side)
{
    struct fi_cq_data_entry entries[CQ_READ_ENTRIES];
    ssize_t got;
    while ((got = fi_cq_read(side->cq, entries, CQ_READ_ENTRIES)) != -FI_EAGAIN) {
        if (got == -FI_EAVAIL) {
            struct fi_cq_err_entry error = {0};
            must(fi_cq_readerr(side->cq, &error, 0), "fi_cq_readerr");
            die("an operation failed: %s", fi_cq_strerror(side->cq, error.prov_errno, error.err_data, NULL, 0));
        }
        must(got, "fi_cq_read");
        for (ssize_t i = 0; i < got; i++)
            complete(side, &entries[i]);
    }
}

/* Posts again while the provider has no room. */
#define POST(side, call) \
    do { \
        ssize_t posted; \
        while ((posted = (call)) == -FI_EAGAIN) \
            progress(side); \
        must(posted, #call); \
    } while (0)

static void finish(struct side *side, struct work *work, size_t count)
{
    for (size_t i = 0; i < count; i++)
        while (work[i].state == 0)
            progress(side);
}

static uint64_t seed_of(uint64_t rank, size_t slot, size_t length)
{
    return rank << 60 | (uint64_t)slot << 40 | length;
}

/* Tells the peer where a full window of messages is wanted. */
static void ask(struct side *side, size_t length, struct work *work)
{
    for (size_t i = 0; i < SLOTS; i++) {
        uint8_t *place = side->in + i * BUFFER_BYTES;
        struct mail *letter = &side->letters[i];
        memset(place, 0, length + 1);
        side->arrived[i] = 0;
        *letter = (struct mail){remote(side, side->in, place), fi_mr_key(side->in_mr), (uint32_t)length,
                                side->sequence, {0}};
        work[i] = (struct work){0};
        POST(side, fi_write(side->ctrl, letter, sizeof *letter, fi_mr_desc(side->mail_mr), side->ctrl_peer,
                            side->their_mailbox + i * sizeof *letter, side->their_key, &work[i]));
    }
}

/* Writes each message as soon as the mailbox says where; in two pieces, as over two rails. */
static void answer(struct side *side, size_t length, struct work *work)
{
    for (size_t i = 0; i < SLOTS; i++) {
        volatile struct mail *mail = &side->mailbox[i];
        uint8_t *bytes = side->out + i * BUFFER_BYTES;
        size_t half = length / 2;
        pattern_fill(bytes, length, seed_of(side->rank, i, length));
        while (mail->sequence != side->sequence)
            progress(side);
        check(mail->length == length, "mail for %u bytes, not %zu", mail->length, length);
        work[2 * i] = work[2 * i + 1] = (struct work){0};
        POST(side, fi_writedata(side->ep, bytes, half, fi_mr_desc(side->out_mr), i, side->peer, mail->offset,
                                mail->key, &work[2 * i]));
        POST(side, fi_writedata(side->ep, bytes + half, length - half, fi_mr_desc(side->out_mr), i, side->peer,
                                mail->offset + half, mail->key, &work[2 * i + 1]));
    }
}

/* A read of the own endpoint, behind which NCCL takes what was written for visible. */
static void flush(struct side *side)
{
    struct work work = {0};
    memset(side->flush, 0, LINE_BYTES);
    memset(side->flush + LINE_BYTES, 0xA5, LINE_BYTES);
    POST(side, fi_read(side->ep, side->flush, LINE_BYTES, fi_mr_desc(side->flush_mr), side->self,
                       remote(side, side->flush, side->flush + LINE_BYTES), fi_mr_key(side->flush_mr), &work));
    finish(side, &work, 1);
    check(memcmp(side->flush, side->flush + LINE_BYTES, LINE_BYTES) == 0, "a flush read something else");
}

/* A full window of messages, both ways at once. */
static void exchange(struct side *side, size_t length)
{
    struct work letters[SLOTS], writes[2 * SLOTS];
    side->sequence++;
    ask(side, length, letters);
    answer(side, length, writes);
    for (size_t i = 0; i < SLOTS; i++) {
        const uint8_t *place = side->in + i * BUFFER_BYTES;
        while (side->arrived[i] < length)
            progress(side);
        flush(side);
        pattern_check(place, length, seed_of(1 - side->rank, i, length));
        check(length == BUFFER_BYTES || place[length] == 0, "%zu bytes wrote past their end", length);
    }
    finish(side, letters, SLOTS);
    finish(side, writes, 2 * SLOTS);
}

/* Sends header and payload as two pieces, with a number. */
static void send_eager(struct side *side, const uint8_t *header, size_t slot, size_t length, struct work *work)
{
    struct iovec pieces[2] = {{(void *)header, HEADER_BYTES}, {side->out + slot * BUFFER_BYTES, length}};
    void *descs[2] = {fi_mr_desc(side->flush_mr), fi_mr_desc(side->out_mr)};
    struct fi_msg msg = {.msg_iov = pieces, .desc = descs, .iov_count = 2, .addr = side->peer};
    pattern_fill(side->out + slot * BUFFER_BYTES, length, seed_of(side->rank, slot, length));
    *work = (struct work){0};
    msg.context = work;
    msg.data = EAGER_MARK | slot;
    POST(side, fi_sendmsg(side->ep, &msg, FI_REMOTE_CQ_DATA));
}

/* Reads a short message out of its buffer, on the own endpoint, to where it was wanted. */
static void take_eager(struct side *side, struct rx *rx, size_t length)
{
    size_t slot = rx->number & ~EAGER_MARK;
    uint8_t *place = side->in + slot * BUFFER_BYTES;
    struct work work = {0};
    check((rx->number & EAGER_MARK) && slot < SLOTS, "number %x", rx->number);
    check(rx->got == HEADER_BYTES + length, "a short message of %zu bytes", rx->got);
    POST(side, fi_read(side->ep, place, length, fi_mr_desc(side->in_mr), side->self,
                       remote(side, side->rx, rx->bytes + HEADER_BYTES), fi_mr_key(side->rx_mr), &work));
    finish(side, &work, 1);
    pattern_check(place, length, seed_of(1 - side->rank, slot, length));
    post_rx(side, rx, 0);
}

static void exchange_eager(struct side *side, size_t length)
{
    struct work sends[SLOTS];
    size_t taken = 0;
    memset(side->flush, 7, HEADER_BYTES);
    for (size_t i = 0; i < SLOTS; i++)
        send_eager(side, side->flush, i, length, &sends[i]);
    while (taken < SLOTS) {
        progress(side);
        for (size_t i = 0; i < RX_BUFFERS; i++) {
            if (side->rx[i].got == 0)
                continue;
            take_eager(side, &side->rx[i], length);
            taken++;
        }
    }
    finish(side, sends, SLOTS);
    meet(side); /* the next messages have another length */
}

/* The plugin's one-sided calls: a write described as a message, and a read of the peer. */
static void one_sided(struct side *side)
{
    struct card own = {.mailbox = remote(side, side->in, side->in), .mailbox_key = fi_mr_key(side->in_mr)}, theirs;
    struct iovec piece = {side->out, BUFFER_BYTES};
    void *desc = fi_mr_desc(side->out_mr);
    struct fi_rma_iov target = {.len = BUFFER_BYTES};
    struct fi_msg_rma msg = {.msg_iov = &piece, .desc = &desc, .iov_count = 1, .addr = side->peer};
    struct work work[2] = {{.state = 0}};
    oob_send(side->fd, &own, sizeof own);
    oob_recv(side->fd, &theirs, sizeof theirs, NULL);
    target.addr = theirs.mailbox;
    target.key = theirs.mailbox_key;
    msg.rma_iov = &target;
    msg.rma_iov_count = 1;
    msg.context = &work[0];
    pattern_fill(side->out, BUFFER_BYTES, seed_of(side->rank, 0, 1));
    POST(side, fi_writemsg(side->ep, &msg, 0));
    finish(side, work, 1);
    POST(side, fi_read(side->ep, side->out + BUFFER_BYTES, BUFFER_BYTES, desc, side->peer, target.addr, target.key,
                       &work[1]));
    finish(side, &work[1], 1);
    check(memcmp(side->out, side->out + BUFFER_BYTES, BUFFER_BYTES) == 0, "what was written is not what is read");
    meet(side);
    pattern_check(side->in, BUFFER_BYTES, seed_of(1 - side->rank, 0, 1));
}

static void run(int fd, uint64_t rank)
{
    static const size_t LENGTHS[] = {1, 64, 4096, 5000, 65537, BUFFER_BYTES};
    static const size_t SHORT[] = {1, 1024, EAGER_BYTES};
    static struct side side;
    side_open(&side, fd, rank);
    for (size_t i = 0; i < COUNT_OF(LENGTHS); i++)
        exchange(&side, LENGTHS[i]);
    for (size_t i = 0; i < COUNT_OF(SHORT); i++)
        exchange_eager(&side, SHORT[i]);
    one_sided(&side);
    side_close(&side);
}

static void transfers(void)
{
    int pair[2], status;
    pid_t child;
    oob_pair(pair);
    child = fork();
    check(child >= 0, "fork: %s", strerror(errno));
    close(pair[child ? 1 : 0]);
    run(pair[child ? 0 : 1], child ? 0 : 1);
    if (child == 0)
        _exit(0);
    check(waitpid(child, &status, 0) == child && status == 0, "the other process ended with %d", status);
}

/* FI_HMEM is granted, but not to old APIs, which take it for the GPU's. */
static void discovery(void)
{
    struct fi_info *hints = rdma_hints(), *list = NULL;
    int rc = fi_getinfo(FI_VERSION(1, 6), NULL, NULL, 0, hints, &list);
    check(rc == -FI_ENODATA, "FI_HMEM was granted to API 1.6");
    if (FI_VERSION_GE(fi_version(), VERSION)) {
        must(fi_getinfo(VERSION, NULL, NULL, 0, hints, &list), "fi_getinfo");
        check((list->caps & hints->caps) == hints->caps, "capabilities %llx", (unsigned long long)list->caps);
        check(list->domain_attr->threading == FI_THREAD_COMPLETION, "threading %d", list->domain_attr->threading);
        check(list->domain_attr->cq_data_size >= 4, "numbers of %zu bytes", list->domain_attr->cq_data_size);
        fi_freeinfo(list);
    }
    fi_freeinfo(hints);
}

static const struct test_case TESTS[] = {
    {"discovery", discovery, 20},
    {"transfers", transfers, 90},
};

int main(int argc, char **argv)
{
    if (FI_VERSION_GE(fi_version(), VERSION))
        return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
    printf("  transfers were left out: this library has no API 1.18, which the protocol asks for\n");
    return run_cases(TESTS, 1, argc, argv);
}
