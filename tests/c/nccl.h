/* The calls that aws-ofi-nccl, NCCL's plugin for libfabric, makes of a provider, in its order and with
 * its arguments (as of its commit 2daf7d30): how it chooses and opens a provider, registers memory,
 * connects, and reads completions. Connections are made over an endpoint of their own that shares the
 * completion queue of the endpoint for data. */
#ifndef ERD_TESTS_NCCL_H
#define ERD_TESTS_NCCL_H

#include "node.h"

#include <sys/uio.h>

enum {
    EP_NAME_BYTES = 56,   /* longest endpoint name, MAX_EP_ADDR there */
    CQ_ENTRIES = 12288,   /* OFI_NCCL_CQ_SIZE */
    CQ_READ_ENTRIES = 4,  /* OFI_NCCL_CQ_READ_COUNT */
    MR_KEY_BYTES = 2,     /* OFI_NCCL_MR_KEY_SIZE */
    TAG_BITS_MIN = 33,    /* of the ring's id and one for control messages */
    CM_RECVS = 32,        /* OFI_NCCL_CM_NUM_RX_BUFFERS */
    CM_INBOX = 64,        /* connection messages not yet looked at */
    /* Endpoint options of headers newer than the oldest that this compiles against. */
    OPT_CUDA_API_PERMITTED = 10,
    OPT_SHARED_MEMORY_PERMITTED = 11,
};

/* What the plugin asks fi_getinfo for. */
struct nccl_ask {
    uint32_t version;
    bool hmem;                 /* memory of GPUs too */
    enum fi_progress progress; /* OFI_NCCL_PROGRESS_MODEL, by default unspecified */
};

/* One network card, as NCCL sees it: one fi_info and the domain opened from it. */
struct nic {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    uint64_t next_key;
};

/* An operation; the plugin finds its own part of it from the context. */
struct request {
    struct fi_context2 provider_part;
    struct cm_recv *cm; /* the buffer that it receives a connection message into, or NULL */
    size_t bytes;       /* sent, or received */
    int state;          /* 0 pending, 1 done, below 0 the negative error */
};

struct data_info {
    uint8_t name[EP_NAME_BYTES];
    uint64_t name_bytes, tag;
};

struct cm_message {
    uint64_t is_reply, local_id, remote_id;
    uint8_t name[EP_NAME_BYTES];
    uint64_t name_bytes;
    struct data_info data;
};

struct cm_recv {
    struct request request;
    struct cm_message message;
    struct fid_mr *mr;
};

/* What a thread of NCCL's has on a card. */
struct net_ep {
    struct nic *nic;
    struct fid_cq *cq;
    struct fid_av *av, *cm_av;
    struct fid_ep *ep, *cm_ep;
    struct cm_recv recvs[CM_RECVS];
    struct cm_message inbox[CM_INBOX];
    size_t inbox_count;
    uint64_t next_id, tag;
};

/* What NCCL carries from the listening process to the connecting one. */
struct handle {
    uint8_t name[EP_NAME_BYTES];
    uint64_t listener_id;
};

/* One direction of a connection. The sender's tag is what the receiver chose. */
struct comm {
    struct net_ep *ep;
    fi_addr_t peer, cm_peer;
    uint64_t id, tag;
    int stage; /* 0 not begun, 1 message made, 2 sent, 3 connected */
    struct request request;
    struct cm_message message;
    struct fid_mr *message_mr;
};

static inline struct fi_info *nccl_sendrecv_hints(const struct nccl_ask *ask)
{
    struct fi_info *hints = fi_allocinfo();
    check(hints != NULL, "fi_allocinfo found no memory");
    hints->caps = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_TAGGED | FI_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT;
    hints->domain_attr->mr_key_size = MR_KEY_BYTES;
    if (ask->hmem) {
        hints->caps |= FI_HMEM | FI_RMA | FI_READ;
        hints->domain_attr->mr_mode |= FI_MR_HMEM;
    }
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->control_progress = ask->progress;
    hints->domain_attr->data_progress = ask->progress;
    hints->domain_attr->mr_mode |= FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    return hints;
}

/* Whether two results are cards of one kind: only those like the first are used. */
static inline bool nccl_same_kind(const struct fi_info *a, const struct fi_info *b)
{
    return a->caps == b->caps && a->mode == b->mode && a->addr_format == b->addr_format &&
           a->ep_attr->type == b->ep_attr->type && a->ep_attr->protocol == b->ep_attr->protocol &&
           a->ep_attr->protocol_version == b->ep_attr->protocol_version &&
           strcmp(a->fabric_attr->prov_name, b->fabric_attr->prov_name) == 0 &&
           strcmp(a->fabric_attr->name, b->fabric_attr->name) == 0;
}

/* The cards, or the negative error. */
static inline int nccl_find(const struct nccl_ask *ask, struct fi_info **list)
{
    struct fi_info *hints = nccl_sendrecv_hints(ask), **at;
    int rc = fi_getinfo(ask->version, NULL, NULL, 0, hints, list);
    fi_freeinfo(hints);
    if (rc != 0)
        return rc;
    for (at = &(*list)->next; *at;) {
        struct fi_info *other = *at;
        if (nccl_same_kind(other, *list)) {
            at = &other->next;
            continue;
        }
        *at = other->next;
        other->next = NULL;
        fi_freeinfo(other);
    }
    return 0;
}

static inline void nccl_nic_open(struct nic *nic, const struct fi_info *info)
{
    nic->info = fi_dupinfo(info);
    check(nic->info != NULL, "fi_dupinfo found no memory");
    nic->next_key = 0;
    must(fi_fabric(nic->info->fabric_attr, &nic->fabric, NULL), "fi_fabric");
    must(fi_domain(nic->fabric, nic->info, &nic->domain, NULL), "fi_domain");
}

static inline void nccl_nic_close(struct nic *nic)
{
    must(fi_close(&nic->domain->fid), "fi_close of the domain");
    must(fi_close(&nic->fabric->fid), "fi_close of the fabric");
    fi_freeinfo(nic->info);
}

/* Registers memory for sends and receives. Keys are the plugin's where the provider chooses none. */
static inline struct fid_mr *nccl_register(struct nic *nic, struct fid_ep *ep, void *bytes, size_t length)
{
    int mode = nic->info->domain_attr->mr_mode;
    struct iovec piece = {.iov_base = bytes, .iov_len = length};
    struct fi_mr_attr attr = {.mr_iov = &piece, .iov_count = 1, .access = FI_SEND | FI_RECV};
    struct fid_mr *mr;
    attr.iface = FI_HMEM_SYSTEM;
    if (!(mode & FI_MR_PROV_KEY))
        attr.requested_key = __atomic_fetch_add(&nic->next_key, 1, __ATOMIC_RELAXED) % (1 << 8 * MR_KEY_BYTES);
    must(fi_mr_regattr(nic->domain, &attr, 0, &mr), "fi_mr_regattr");
    if (mode & FI_MR_ENDPOINT) {
        must(fi_mr_bind(mr, &ep->fid, 0), "fi_mr_bind");
        must(fi_mr_enable(mr), "fi_mr_enable");
    }
    return mr;
}

static inline void nccl_deregister(struct fid_mr *mr)
{
    must(fi_close(&mr->fid), "fi_close of the memory region");
}

/* Asks that something be left alone; a provider that does not know the option may say so. Were
 * CUDA_API_PERMITTED accepted, NCCL would hand over addresses of GPU memory. */
static inline void nccl_set_options(struct fid_ep *ep)
{
    bool permitted = false;
    int rc = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, OPT_SHARED_MEMORY_PERMITTED, &permitted, sizeof permitted);
    check(rc == 0 || rc == -FI_EOPNOTSUPP || rc == -FI_ENOPROTOOPT, "SHARED_MEMORY_PERMITTED: %s", fi_strerror(-rc));
    rc = fi_setopt(&ep->fid, FI_OPT_ENDPOINT, OPT_CUDA_API_PERMITTED, &permitted, sizeof permitted);
    check(rc == -FI_EOPNOTSUPP || rc == -FI_ENOPROTOOPT, "CUDA_API_PERMITTED: %s", fi_strerror(-rc));
}

static inline void nccl_open_pair(struct net_ep *ep, struct fid_av **av, struct fid_ep **end)
{
    struct fi_av_attr attr = {0};
    must(fi_av_open(ep->nic->domain, &attr, av, NULL), "fi_av_open");
    must(fi_endpoint(ep->nic->domain, ep->nic->info, end, NULL), "fi_endpoint");
    must(fi_ep_bind(*end, &ep->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the CQ");
    must(fi_ep_bind(*end, &(*av)->fid, 0), "fi_ep_bind of the AV");
    nccl_set_options(*end);
    must(fi_enable(*end), "fi_enable");
}

static inline void cm_post(struct net_ep *ep, struct cm_recv *recv)
{
    recv->request = (struct request){.cm = recv};
    memset(&recv->message, 0, sizeof recv->message);
    must(fi_recv(ep->cm_ep, &recv->message, sizeof recv->message, fi_mr_desc(recv->mr), FI_ADDR_UNSPEC,
                 &recv->request),
         "fi_recv");
}

static inline void nccl_ep_open(struct net_ep *ep, struct nic *nic)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .size = CQ_ENTRIES};
    memset(ep, 0, sizeof *ep);
    ep->nic = nic;
    must(fi_cq_open(nic->domain, &cq, &ep->cq, NULL), "fi_cq_open");
    nccl_open_pair(ep, &ep->av, &ep->ep);
    nccl_open_pair(ep, &ep->cm_av, &ep->cm_ep);
    for (size_t i = 0; i < CM_RECVS; i++) {
        ep->recvs[i].mr = nccl_register(nic, ep->cm_ep, &ep->recvs[i].message, sizeof ep->recvs[i].message);
        cm_post(ep, &ep->recvs[i]);
    }
}

/* Endpoints go first, with receives still posted on them; the order is the plugin's. */
static inline void nccl_ep_close(struct net_ep *ep)
{
    must(fi_close(&ep->cm_ep->fid), "fi_close of the connection endpoint");
    for (size_t i = 0; i < CM_RECVS; i++)
        nccl_deregister(ep->recvs[i].mr);
    must(fi_close(&ep->cm_av->fid), "fi_close of the connection AV");
    must(fi_close(&ep->ep->fid), "fi_close of the endpoint");
    must(fi_close(&ep->av->fid), "fi_close of the AV");
    must(fi_close(&ep->cq->fid), "fi_close of the CQ");
}

static inline void nccl_complete(struct net_ep *ep, const struct fi_cq_tagged_entry *entry)
{
    struct request *request = entry->op_context;
    check(request != NULL, "a completion without a context");
    if (entry->flags & FI_RECV)
        request->bytes = entry->len;
    request->state = 1;
    if (!request->cm)
        return;
    check(ep->inbox_count < CM_INBOX, "too many connection messages");
    check(request->bytes == sizeof(struct cm_message), "a connection message of %zu bytes", request->bytes);
    ep->inbox[ep->inbox_count++] = request->cm->message;
    cm_post(ep, request->cm);
}

/* The plugin prints what fi_cq_strerror answers, and gives it no buffer. */
static inline void nccl_fail(struct net_ep *ep)
{
    struct fi_cq_err_entry error = {0};
    struct request *request;
    const char *text;
    ssize_t rc = fi_cq_readerr(ep->cq, &error, 0);
    if (rc == -FI_EAGAIN)
        return;
    must(rc, "fi_cq_readerr");
    text = fi_cq_strerror(ep->cq, error.prov_errno, error.err_data, NULL, 0);
    check(text && *text, "fi_cq_strerror has no words for %d", error.prov_errno);
    request = error.op_context;
    check(request != NULL, "an error without a context: %s", text);
    request->state = -error.err;
}

/* Reads all that has completed. */
static inline void nccl_progress(struct net_ep *ep)
{
    struct fi_cq_tagged_entry entries[CQ_READ_ENTRIES];
    for (;;) {
        ssize_t got = fi_cq_read(ep->cq, entries, CQ_READ_ENTRIES);
        if (got == -FI_EAGAIN)
            return;
        if (got == -FI_EAVAIL) {
            nccl_fail(ep);
            continue;
        }
        must(got, "fi_cq_read");
        for (ssize_t i = 0; i < got; i++)
            nccl_complete(ep, &entries[i]);
    }
}

static inline void nccl_name(struct fid_ep *ep, uint8_t *name, uint64_t *bytes)
{
    size_t length = EP_NAME_BYTES;
    memset(name, 0, EP_NAME_BYTES);
    must(fi_getname(&ep->fid, name, &length), "fi_getname into 56 bytes");
    *bytes = length;
}

static inline fi_addr_t nccl_insert(struct fid_av *av, const uint8_t *name)
{
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    int inserted = fi_av_insert(av, name, 1, &address, 0, NULL);
    check(inserted == 1, "fi_av_insert answered %d", inserted);
    return address;
}

/* Listens; the endpoint's own address goes into its AV too, for reads of itself. */
static inline void nccl_listen(struct net_ep *ep, struct handle *handle)
{
    uint8_t self[EP_NAME_BYTES];
    uint64_t bytes;
    nccl_name(ep->ep, self, &bytes);
    nccl_insert(ep->av, self);
    nccl_name(ep->cm_ep, handle->name, &bytes);
    handle->listener_id = ep->next_id++;
}

/* Takes the connection message for `id` out of the inbox. */
static inline bool cm_take(struct net_ep *ep, uint64_t id, struct cm_message *message)
{
    for (size_t i = 0; i < ep->inbox_count; i++) {
        if (ep->inbox[i].remote_id != id)
            continue;
        *message = ep->inbox[i];
        ep->inbox[i] = ep->inbox[--ep->inbox_count];
        return true;
    }
    return false;
}

static inline void cm_prepare(struct comm *comm, struct net_ep *ep, uint64_t remote_id, const uint8_t *cm_name)
{
    comm->ep = ep;
    comm->cm_peer = nccl_insert(ep->cm_av, cm_name);
    comm->message.local_id = comm->id;
    comm->message.remote_id = remote_id;
    comm->message.data.tag = comm->tag;
    nccl_name(ep->cm_ep, comm->message.name, &comm->message.name_bytes);
    nccl_name(ep->ep, comm->message.data.name, &comm->message.data.name_bytes);
    comm->message_mr = nccl_register(ep->nic, ep->cm_ep, &comm->message, sizeof comm->message);
    comm->stage = 1;
}

static inline void cm_send(struct comm *comm)
{
    ssize_t rc = fi_send(comm->ep->cm_ep, &comm->message, sizeof comm->message, fi_mr_desc(comm->message_mr),
                         comm->cm_peer, &comm->request);
    if (rc == -FI_EAGAIN)
        return;
    must(rc, "fi_send");
    comm->stage = 2;
}

static inline bool cm_finish(struct comm *comm)
{
    must(comm->request.state, "a connection message");
    nccl_deregister(comm->message_mr);
    comm->stage = 3;
    return true;
}

/* A step of connecting to a listener; true once there is a connection to send on. */
static inline bool nccl_connect(struct net_ep *ep, const struct handle *handle, struct comm *comm)
{
    struct cm_message reply;
    if (comm->stage == 3)
        return true;
    if (comm->stage == 0) {
        comm->id = ep->next_id++;
        cm_prepare(comm, ep, handle->listener_id, handle->name);
    }
    if (comm->stage == 1)
        cm_send(comm);
    nccl_progress(ep);
    if (comm->stage != 2 || comm->request.state == 0 || !cm_take(ep, comm->id, &reply))
        return false;
    comm->tag = reply.data.tag;
    comm->peer = nccl_insert(ep->av, reply.data.name);
    return cm_finish(comm);
}

/* A step of accepting; true once there is a connection to receive on. */
static inline bool nccl_accept(struct net_ep *ep, const struct handle *listener, struct comm *comm)
{
    struct cm_message request;
    if (comm->stage == 3)
        return true;
    nccl_progress(ep);
    if (comm->stage == 0) {
        if (!cm_take(ep, listener->listener_id, &request))
            return false;
        comm->peer = nccl_insert(ep->av, request.data.name);
        comm->tag = ++ep->tag;
        comm->message.is_reply = 1;
        cm_prepare(comm, ep, request.local_id, request.name);
    }
    if (comm->stage == 1)
        cm_send(comm);
    nccl_progress(ep);
    return comm->request.state != 0 && cm_finish(comm);
}

/* Posts a receive from whoever has the connection's tag. */
static inline void nccl_irecv(struct comm *comm, void *bytes, size_t length, struct fid_mr *mr, struct request *request)
{
    ssize_t rc;
    *request = (struct request){0};
    nccl_progress(comm->ep);
    while ((rc = fi_trecv(comm->ep->ep, bytes, length, fi_mr_desc(mr), FI_ADDR_UNSPEC, comm->tag, 0, request)) ==
           -FI_EAGAIN)
        nccl_progress(comm->ep);
    must(rc, "fi_trecv");
}

static inline void nccl_isend(struct comm *comm, const void *bytes, size_t length, struct fid_mr *mr,
                              struct request *request)
{
    ssize_t rc;
    *request = (struct request){.bytes = length};
    while ((rc = fi_tsend(comm->ep->ep, bytes, length, fi_mr_desc(mr), comm->peer, comm->tag, request)) == -FI_EAGAIN)
        nccl_progress(comm->ep);
    must(rc, "fi_tsend");
}

/* Waits for a request of `ep`; answers its state: 1, or the negative error. NCCL's thread lets others
 * run when nothing has completed. */
static inline int nccl_wait(struct net_ep *ep, const struct request *request)
{
    for (nccl_progress(ep); request->state == 0; nccl_progress(ep))
        sched_yield();
    return request->state;
}

#endif
