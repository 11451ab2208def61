/* An owner of libfabric's peer interface (fi_peer(3), as it is since 2.3) with one queue and one receive
 * context, which remembers all that a provider calls it for. The declarations are here because the headers
 * of older versions have none, or others. */
#ifndef ERD_TESTS_PEER_OWNER_H
#define ERD_TESTS_PEER_OWNER_H

#include "node.h"

#include <rdma/fi_eq.h>
#include <sys/uio.h>

#define PEER (1ULL << 43)
#define USER_ID (1ULL << 41)

struct peer_cq;
struct peer_cq_ops {
    size_t size;
    ssize_t (*write)(struct peer_cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data,
                     uint64_t tag, fi_addr_t src);
    ssize_t (*writeerr)(struct peer_cq *cq, const struct fi_cq_err_entry *entry);
};
struct peer_cq {
    struct fid fid;
    const struct peer_cq_ops *owner_ops;
};
struct peer_cq_context {
    size_t size;
    struct peer_cq *cq;
};

struct peer_cntr;
struct peer_cntr_ops {
    size_t size;
    void (*inc)(struct peer_cntr *cntr);
    void (*incerr)(struct peer_cntr *cntr);
};
struct peer_cntr {
    struct fid fid;
    const struct peer_cntr_ops *owner_ops;
};
struct peer_cntr_context {
    size_t size;
    struct peer_cntr *cntr;
};

struct peer_srx;
struct rx_entry {
    struct peer_srx *srx;
    fi_addr_t addr;
    size_t msg_size;
    uint64_t tag, cq_data, flags;
    void *context;
    size_t count;
    void **desc;
    void *peer_context, *owner_context;
    struct iovec *iov;
};
struct match_attr {
    fi_addr_t addr;
    size_t msg_size;
    uint64_t tag;
};
struct srx_owner_ops {
    size_t size;
    int (*get_msg)(struct peer_srx *srx, struct match_attr *attr, struct rx_entry **entry);
    int (*get_tag)(struct peer_srx *srx, struct match_attr *attr, struct rx_entry **entry);
    int (*queue_msg)(struct rx_entry *entry);
    int (*queue_tag)(struct rx_entry *entry);
    void (*foreach_unspec_addr)(struct peer_srx *srx, fi_addr_t (*get_addr)(struct rx_entry *entry));
    void (*free_entry)(struct rx_entry *entry);
};
struct srx_peer_ops {
    size_t size;
    int (*start_msg)(struct rx_entry *entry);
    int (*start_tag)(struct rx_entry *entry);
    int (*discard_msg)(struct rx_entry *entry);
    int (*discard_tag)(struct rx_entry *entry);
};
struct peer_srx {
    struct fid_ep ep_fid;
    const struct srx_owner_ops *owner_ops;
    const struct srx_peer_ops *peer_ops;
};
struct peer_srx_context {
    size_t size;
    struct peer_srx *srx;
};

enum { ENTRIES_MAX = 64 };

/* Of an entry: unused, a receive that is posted, a message that is queued, lent to the provider. */
enum entry_state { FREE, POSTED, QUEUED, LENT };

struct own_entry {
    struct rx_entry entry; /* first, so that the provider's pointer is ours */
    struct iovec iov;
    enum entry_state state;
    uint64_t order;
};

/* What the provider wrote to the queue. */
struct written {
    struct fi_cq_err_entry entry; /* err is 0 where it was no error */
    fi_addr_t src;
};

static struct {
    struct own_entry entries[ENTRIES_MAX];
    struct written log[4 * ENTRIES_MAX];
    size_t logged, read;
    uint64_t order, counted, count_failures;
    int inside;         /* calls of ours that the provider is in */
    bool full, queueless; /* the queue has no room; messages cannot be queued */
    struct peer_cq cq;
    struct peer_cntr cntr;
    struct peer_srx srx;
} owner;

/* The provider may call only from within calls of ours. */
static void is_inside(const char *call)
{
    check(owner.inside > 0, "%s was called out of turn", call);
}

static ssize_t owner_write(struct peer_cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data,
                           uint64_t tag, fi_addr_t src)
{
    struct fi_cq_err_entry entry = {.op_context = context, .flags = flags, .len = len, .buf = buf};
    entry.data = data;
    entry.tag = tag;
    is_inside("write");
    check(cq == &owner.cq, "write to another queue");
    if (owner.full)
        return -FI_EAGAIN;
    owner.log[owner.logged++] = (struct written){entry, src};
    return 0;
}

static ssize_t owner_writeerr(struct peer_cq *cq, const struct fi_cq_err_entry *entry)
{
    is_inside("writeerr");
    check(cq == &owner.cq && entry->err > 0, "writeerr of error %d", entry->err);
    owner.log[owner.logged++].entry = *entry;
    return 0;
}

static void owner_inc(struct peer_cntr *cntr)
{
    is_inside("inc");
    check(cntr == &owner.cntr, "inc of another counter");
    owner.counted++;
}

static void owner_incerr(struct peer_cntr *cntr)
{
    is_inside("incerr");
    check(cntr == &owner.cntr, "incerr of another counter");
    owner.count_failures++;
}

static struct own_entry *entry_in(enum entry_state state, const struct rx_entry *like)
{
    struct own_entry *found = NULL;
    for (int i = 0; i < ENTRIES_MAX; i++) {
        struct own_entry *own = &owner.entries[i];
        bool fits = own->state == state;
        if (fits && like) {
            bool any = own->entry.addr == FI_ADDR_UNSPEC || like->addr == FI_ADDR_UNSPEC;
            fits = own->entry.tag == like->tag && (own->entry.flags & FI_TAGGED) == (like->flags & FI_TAGGED);
            fits &= any || own->entry.addr == like->addr;
        }
        if (fits && (!found || own->order < found->order))
            found = own;
    }
    return found;
}

static struct own_entry *new_entry(enum entry_state state, struct rx_entry with)
{
    struct own_entry *own = entry_in(FREE, NULL);
    check(own != NULL, "entries are not given back");
    *own = (struct own_entry){.entry = with, .state = state, .order = ++owner.order};
    own->entry.iov = &own->iov;
    return own;
}

static int owner_get(struct peer_srx *srx, struct match_attr *attr, struct rx_entry **entry, uint64_t kind)
{
    struct rx_entry like = {.addr = attr->addr, .tag = attr->tag, .flags = kind | FI_RECV, .msg_size = attr->msg_size};
    struct own_entry *own;
    is_inside("get");
    check(srx == &owner.srx, "get from another context");
    own = entry_in(POSTED, &like);
    if (own) {
        own->state = LENT;
        own->entry.addr = attr->addr;
        own->entry.msg_size = attr->msg_size;
        *entry = &own->entry;
        return 0;
    }
    *entry = &new_entry(LENT, like)->entry;
    return -FI_ENOENT;
}

static int owner_get_msg(struct peer_srx *srx, struct match_attr *attr, struct rx_entry **entry)
{
    check(attr->tag == 0, "an untagged message with tag %llu", (unsigned long long)attr->tag);
    return owner_get(srx, attr, entry, FI_MSG);
}

static int owner_get_tag(struct peer_srx *srx, struct match_attr *attr, struct rx_entry **entry)
{
    return owner_get(srx, attr, entry, FI_TAGGED);
}

static int owner_queue(struct rx_entry *entry, uint64_t kind)
{
    struct own_entry *own = (struct own_entry *)entry;
    is_inside("queue");
    check(own->state == LENT && (entry->flags & kind), "queue of an entry that was not given for it");
    check(entry->peer_context != NULL, "a queued message without a context");
    if (owner.queueless)
        return -FI_ENOMEM;
    own->state = QUEUED;
    return 0;
}

static int owner_queue_msg(struct rx_entry *entry)
{
    return owner_queue(entry, FI_MSG);
}

static int owner_queue_tag(struct rx_entry *entry)
{
    return owner_queue(entry, FI_TAGGED);
}

static void owner_foreach(struct peer_srx *srx, fi_addr_t (*get_addr)(struct rx_entry *entry))
{
    is_inside("foreach_unspec_addr");
    check(srx == &owner.srx, "foreach_unspec_addr of another context");
    for (int i = 0; i < ENTRIES_MAX; i++) {
        struct own_entry *own = &owner.entries[i];
        if (own->state == QUEUED && own->entry.addr == FI_ADDR_UNSPEC)
            own->entry.addr = get_addr(&own->entry);
    }
}

static void owner_free(struct rx_entry *entry)
{
    struct own_entry *own = (struct own_entry *)entry;
    is_inside("free_entry");
    check(own->state == LENT, "free_entry of an entry in state %d", own->state);
    own->state = FREE;
}

static const struct peer_cq_ops CQ_OPS = {sizeof CQ_OPS, owner_write, owner_writeerr};
static const struct peer_cntr_ops CNTR_OPS = {sizeof CNTR_OPS, owner_inc, owner_incerr};
static const struct srx_owner_ops SRX_OPS = {sizeof SRX_OPS,  owner_get_msg,   owner_get_tag, owner_queue_msg,
                                             owner_queue_tag, owner_foreach, owner_free};

/* `call` as one of the owner's calls. */
#define OWNER(call)                                                                                            \
    ({                                                                                                         \
        owner.inside++;                                                                                        \
        __auto_type answer_ = (call);                                                                          \
        owner.inside--;                                                                                        \
        answer_;                                                                                               \
    })

/* Posts a receive: to a message that waits, or to be found. */
static void owner_recv(uint64_t kind, void *buffer, size_t length, fi_addr_t from, uint64_t tag, void *context)
{
    struct rx_entry like = {.addr = from, .tag = tag, .flags = kind | FI_RECV | FI_COMPLETION};
    struct own_entry *own = entry_in(QUEUED, &like);
    bool waits = own != NULL;
    if (waits) {
        own->state = LENT;
        own->entry.flags |= like.flags;
    } else {
        own = new_entry(POSTED, like);
    }
    own->iov = (struct iovec){.iov_base = buffer, .iov_len = length};
    own->entry.iov = &own->iov;
    own->entry.count = 1;
    own->entry.context = context;
    if (waits && kind == FI_TAGGED)
        must(OWNER(owner.srx.peer_ops->start_tag(&own->entry)), "start_tag");
    else if (waits)
        must(OWNER(owner.srx.peer_ops->start_msg(&own->entry)), "start_msg");
}

static size_t entries_in(enum entry_state state)
{
    size_t count = 0;
    for (int i = 0; i < ENTRIES_MAX; i++)
        count += owner.entries[i].state == state;
    return count;
}

#endif
