/* Queues of another provider (fi_peer(3)): this program is the owner of a completion queue, a counter and
 * a receive context, which an endpoint of the provider imports. A plain endpoint talks to it. */
#include "cases.h"
#include "peer_owner.h"
#include "talk.h"

enum { SHORT = 8, LONG = 1 << 20, ID = 0x1234500 };

/* What imports, with its own numbers for objects, and the plain endpoint. */
static struct node plain;
static struct {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_cntr *cntr;
    struct fid_ep *srx, *ep;
    uint8_t name[NAME_BYTES];
} peer;
static fi_addr_t to_peer;
static struct peer_cq_context cq_context = {sizeof cq_context, &owner.cq};
static struct peer_cntr_context cntr_context = {sizeof cntr_context, &owner.cntr};
static struct peer_srx_context srx_context = {sizeof srx_context, &owner.srx};

static struct fid_cq *open_cq(void)
{
    struct fi_cq_attr attr = {.flags = PEER};
    struct fid_cq *cq;
    must(fi_cq_open(peer.domain, &attr, &cq, &cq_context), "fi_cq_open");
    return cq;
}

static void open_domain(uint64_t caps)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1", .caps = caps};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct node found = {0};
    must(node_find(&found, &options), "fi_getinfo");
    peer.info = found.info;
    must(fi_fabric(peer.info->fabric_attr, &peer.fabric, NULL), "fi_fabric");
    must(fi_domain(peer.fabric, peer.info, &peer.domain, NULL), "fi_domain");
    must(fi_av_open(peer.domain, &av, &peer.av, NULL), "fi_av_open");
    owner.cq.owner_ops = &CQ_OPS;
    owner.cntr.owner_ops = &CNTR_OPS;
    owner.srx.owner_ops = &SRX_OPS;
}

/* Everything, up to an endpoint that is bound to all but its receive context. */
static void open_bound(void)
{
    struct fi_cntr_attr cntr = {.flags = PEER};
    struct fi_rx_attr rx = {.op_flags = PEER};
    open_domain(PEER | USER_ID | FI_SOURCE | FI_DIRECTED_RECV);
    check((peer.info->caps & peer.info->domain_attr->caps & PEER) != 0, "FI_PEER is not granted");
    peer.cq = open_cq();
    must(fi_cntr_open(peer.domain, &cntr, &peer.cntr, &cntr_context), "fi_cntr_open");
    must(fi_srx_context(peer.domain, &rx, &peer.srx, &srx_context), "fi_srx_context");
    check(owner.srx.peer_ops && owner.srx.peer_ops->size >= sizeof *owner.srx.peer_ops, "no peer_ops");
    must(fi_endpoint(peer.domain, peer.info, &peer.ep, NULL), "fi_endpoint");
    must(fi_ep_bind(peer.ep, &peer.av->fid, 0), "fi_ep_bind of the AV");
    must(fi_ep_bind(peer.ep, &peer.cntr->fid, FI_SEND | FI_RECV), "fi_ep_bind of the counter");
    must(fi_ep_bind(peer.ep, &peer.srx->fid, 0), "fi_ep_bind of the receive context");
}

static void open_both(void)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    size_t length = sizeof peer.name;
    open_bound();
    must(fi_ep_bind(peer.ep, &peer.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the CQ");
    must(fi_enable(peer.ep), "fi_enable");
    must(fi_getname(&peer.ep->fid, peer.name, &length), "fi_getname");
    node_open(&plain, &options);
    to_peer = node_insert(&plain, peer.name);
}

/* The plain endpoint's name gets the number ID at the importer; answers where it is. */
static fi_addr_t insert_plain(void)
{
    fi_addr_t address = ID;
    check(OWNER(fi_av_insert(peer.av, plain.name, 1, &address, USER_ID, NULL)) == 1, "fi_av_insert");
    check(address != ID, "fi_av_insert leaves the identifier where the address belongs");
    return address;
}

static void close_both(void)
{
    must(OWNER(fi_close(&peer.ep->fid)), "fi_close of the endpoint");
    must(OWNER(fi_close(&peer.srx->fid)), "fi_close of the receive context");
    must(OWNER(fi_close(&peer.cq->fid)), "fi_close of the CQ");
    must(OWNER(fi_close(&peer.cntr->fid)), "fi_close of the counter");
    must(fi_close(&peer.av->fid), "fi_close of the AV");
    must(fi_close(&peer.domain->fid), "fi_close of the domain");
    must(fi_close(&peer.fabric->fid), "fi_close of the fabric");
    fi_freeinfo(peer.info);
    if (plain.ep)
        node_close(&plain);
    check(entries_in(LENT) == 0, "%zu entries were not given back", entries_in(LENT));
}

/* Both progress once. */
static void step(void)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    check(OWNER(fi_cq_read(peer.cq, NULL, 0)) == 0, "fi_cq_read of the peer's CQ");
    if (plain.ep)
        node_poll(&plain, &op, &entry, NULL);
}

/* The next entry that was written to the owner's queue. */
static struct fi_cq_err_entry *next_written(void)
{
    while (owner.read == owner.logged)
        step();
    return &owner.log[owner.read++].entry;
}

static void wait_queued(size_t count)
{
    while (entries_in(QUEUED) < count)
        step();
}

static void *pattern(size_t length, uint8_t seed)
{
    uint8_t *bytes = malloc(length);
    check(bytes != NULL, "no memory");
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(i * 7 + seed);
    return bytes;
}

/* `entry` is the one that was read last. */
static void is_receive(const struct fi_cq_err_entry *entry, void *context, uint64_t kind, size_t length, fi_addr_t src)
{
    check(entry->err == 0, "error %d", entry->err);
    check(entry->op_context == context, "another receive's context");
    check((entry->flags & ~FI_REMOTE_CQ_DATA) == (FI_RECV | kind), "flags %#llx", (unsigned long long)entry->flags);
    check(entry->len == length, "%zu bytes", entry->len);
    check(owner.log[owner.read - 1].src == src, "from %#llx", (unsigned long long)owner.log[owner.read - 1].src);
}

static void expected_messages(void)
{
    struct op ops[3] = {0};
    uint8_t *bytes = pattern(LONG, 1), *room = calloc(1, LONG), small[SHORT];
    struct fi_cq_err_entry *entry;
    open_both();
    insert_plain();
    owner_recv(FI_TAGGED, room, LONG, ID, 7, &ops[0]);
    owner_recv(FI_MSG, small, sizeof small, FI_ADDR_UNSPEC, 0, &ops[1]);
    must(fi_senddata(plain.ep, bytes, SHORT, NULL, 99, to_peer, &ops[2]), "fi_senddata");
    entry = next_written();
    is_receive(entry, &ops[1], FI_MSG, SHORT, ID);
    check((entry->flags & FI_REMOTE_CQ_DATA) && entry->data == 99, "no data with the message");
    check(memcmp(small, bytes, SHORT) == 0, "other bytes");
    must(fi_tsend(plain.ep, bytes, LONG, NULL, to_peer, 7, &ops[2]), "fi_tsend");
    entry = next_written();
    is_receive(entry, &ops[0], FI_TAGGED, LONG, ID);
    check(entry->tag == 7 && memcmp(room, bytes, LONG) == 0, "other bytes or tag");
    check(entries_in(FREE) == ENTRIES_MAX, "entries are not given back with their completions");
    close_both();
}

static void unexpected_messages(void)
{
    struct op ops[5] = {0};
    uint8_t *bytes = pattern(LONG, 2), *rooms[4];
    struct own_entry *queued;
    open_both();
    insert_plain();
    for (uint64_t i = 0; i < 4; i++) {
        rooms[i] = calloc(1, LONG);
        must(fi_tsenddata(plain.ep, bytes, i % 2 ? LONG : SHORT, NULL, 40 + i, to_peer, i, &ops[4]), "fi_tsenddata");
    }
    wait_queued(4);
    queued = entry_in(QUEUED, NULL);
    check(queued->entry.tag == 0 && queued->entry.msg_size == SHORT && queued->entry.addr == ID,
          "the first that is queued is not the first that was sent");
    check((queued->entry.flags & FI_REMOTE_CQ_DATA) && queued->entry.cq_data == 40, "no data with a queued message");
    /* In another order than they came in, the last from anyone. */
    for (int i = 3; i >= 0; i--) {
        struct fi_cq_err_entry *entry;
        size_t length = i % 2 ? LONG : SHORT;
        owner_recv(FI_TAGGED, rooms[i], LONG, i ? ID : FI_ADDR_UNSPEC, (uint64_t)i, &ops[i]);
        entry = next_written();
        is_receive(entry, &ops[i], FI_TAGGED, length, ID);
        check(entry->tag == (uint64_t)i && entry->data == 40 + (uint64_t)i, "tag or data of another");
        check(memcmp(rooms[i], bytes, length) == 0, "other bytes");
    }
    check(entries_in(FREE) == ENTRIES_MAX, "entries are not given back with their completions");
    close_both();
}

static void discarded_messages(void)
{
    struct op op = {0};
    uint8_t *bytes = pattern(LONG, 3), small[SHORT];
    open_both();
    for (int i = 0; i < 2; i++)
        must(fi_tsend(plain.ep, bytes, i ? LONG : SHORT, NULL, to_peer, 1, &op), "fi_tsend");
    must(fi_send(plain.ep, bytes, SHORT, NULL, to_peer, &op), "fi_send");
    wait_queued(3);
    for (int i = 0; i < 3; i++) {
        struct own_entry *own = entry_in(QUEUED, NULL);
        bool tagged = own->entry.flags & FI_TAGGED;
        own->state = FREE;
        must(OWNER(tagged ? owner.srx.peer_ops->discard_tag(&own->entry) : owner.srx.peer_ops->discard_msg(&own->entry)),
             "discard");
    }
    /* Nothing is said of them, and the next message comes as ever. */
    owner_recv(FI_MSG, small, sizeof small, FI_ADDR_UNSPEC, 0, &op);
    must(fi_send(plain.ep, bytes, SHORT, NULL, to_peer, NULL), "fi_send");
    is_receive(next_written(), &op, FI_MSG, SHORT, FI_ADDR_NOTAVAIL);
    check(owner.logged == 1, "%zu completions", owner.logged);
    close_both();
}

static void truncated_messages(void)
{
    struct op op = {0};
    uint8_t *bytes = pattern(LONG, 4), small[SHORT];
    struct fi_cq_err_entry *entry;
    open_both();
    for (int waits = 0; waits < 2; waits++) {
        if (!waits)
            owner_recv(FI_TAGGED, small, sizeof small, FI_ADDR_UNSPEC, 5, &op);
        must(fi_tsend(plain.ep, bytes, LONG, NULL, to_peer, 5, NULL), "fi_tsend");
        if (waits) {
            wait_queued(1);
            owner_recv(FI_TAGGED, small, sizeof small, FI_ADDR_UNSPEC, 5, &op);
        }
        entry = next_written();
        check(entry->err == FI_ETRUNC && entry->op_context == &op && entry->tag == 5, "error %d", entry->err);
        check(entry->len == SHORT && entry->olen == LONG - SHORT, "%zu and %zu bytes", entry->len, entry->olen);
        check(memcmp(small, bytes, SHORT) == 0, "other bytes");
    }
    check(entries_in(FREE) == ENTRIES_MAX, "entries are not given back with their errors");
    close_both();
}

/* Who is not in the AV has no number until it is inserted, which the owner is told of. */
static void senders_that_become_known(void)
{
    struct op op = {0};
    uint8_t bytes[SHORT] = "unknown", small[SHORT];
    open_both();
    must(fi_tsend(plain.ep, bytes, SHORT, NULL, to_peer, 6, NULL), "fi_tsend");
    wait_queued(1);
    check(entry_in(QUEUED, NULL)->entry.addr == FI_ADDR_UNSPEC, "a sender that is not in the AV");
    insert_plain();
    check(entry_in(QUEUED, NULL)->entry.addr == ID, "the owner was not told of the sender");
    owner_recv(FI_TAGGED, small, sizeof small, ID, 6, &op);
    is_receive(next_written(), &op, FI_TAGGED, SHORT, ID);
    close_both();
}

/* What comes while nobody calls is acknowledged, and waits: the owner may have no locks but its callers'. */
static void only_within_calls_of_the_owner(void)
{
    struct op ops[2] = {0};
    uint8_t bytes[SHORT] = "helper", small[SHORT];
    uint64_t end;
    open_both();
    insert_plain();
    owner_recv(FI_TAGGED, small, sizeof small, ID, 8, &ops[0]);
    must(fi_tsend(plain.ep, bytes, SHORT, NULL, to_peer, 8, &ops[1]), "fi_tsend");
    while (!ops[1].state) {
        struct fi_cq_tagged_entry entry;
        struct op *op;
        check(node_poll(&plain, &op, &entry, NULL) >= 0, "the send failed");
    }
    must(fi_tsend(peer.ep, bytes, SHORT, NULL, insert_plain(), 8, &ops[1]), "fi_tsend of the peer");
    end = now_ns() + 200000000;
    while (now_ns() < end)
        usleep(1000);
    check(owner.logged == 0 && entries_in(POSTED) == 1, "something was written out of turn");
    for (int sends = 0, receives = 0; sends + receives < 2;) {
        struct fi_cq_err_entry *entry = next_written();
        sends += entry->op_context == &ops[1];
        if (entry->op_context != &ops[1])
            is_receive(entry, &ops[receives++], FI_TAGGED, SHORT, ID);
    }
    close_both();
}

static void sends_and_counters(void)
{
    struct op ops[2] = {0};
    uint8_t bytes[SHORT] = "counted", small[SHORT];
    fi_addr_t to;
    struct fi_cq_err_entry *entry;
    open_both();
    to = insert_plain();
    must(fi_trecv(plain.ep, small, sizeof small, NULL, FI_ADDR_UNSPEC, 2, 0, &ops[0]), "fi_trecv");
    must(fi_tsend(peer.ep, bytes, SHORT, NULL, to, 2, &ops[1]), "fi_tsend");
    entry = next_written();
    check(entry->op_context == &ops[1] && entry->flags == (FI_SEND | FI_TAGGED) && entry->err == 0, "another completion");
    check(owner.counted == 0, "counted without a call");
    check(OWNER(fi_cntr_read(peer.cntr)) == 0, "the value is the owner's");
    check(owner.counted == 1 && owner.count_failures == 0, "%zu completions counted", owner.counted);
    while (!ops[0].state)
        step();
    close_both();
}

/* The queue of the owner is full for a while, and messages cannot be queued for a while. */
static void an_owner_without_room(void)
{
    struct op ops[2] = {0};
    uint8_t bytes[SHORT] = "patient", small[SHORT];
    open_both();
    insert_plain();
    owner.full = owner.queueless = true;
    owner_recv(FI_TAGGED, small, sizeof small, ID, 3, &ops[0]);
    must(fi_tsend(plain.ep, bytes, SHORT, NULL, to_peer, 3, NULL), "fi_tsend");
    must(fi_tsend(plain.ep, bytes, SHORT, NULL, to_peer, 4, NULL), "fi_tsend");
    for (int i = 0; i < 2000; i++)
        step();
    check(owner.logged == 0 && entries_in(QUEUED) == 0, "the owner had no room");
    owner.full = owner.queueless = false;
    is_receive(next_written(), &ops[0], FI_TAGGED, SHORT, ID);
    wait_queued(1);
    owner_recv(FI_TAGGED, small, sizeof small, ID, 4, &ops[1]);
    is_receive(next_written(), &ops[1], FI_TAGGED, SHORT, ID);
    close_both();
}

/* A queued message whose sender has gone before it was fetched is an error of the receive that gets it. */
static void a_sender_that_goes(void)
{
    struct op op = {0};
    uint8_t *bytes = pattern(LONG, 5), *room = calloc(1, LONG);
    struct fi_cq_err_entry *entry;
    uint64_t end;
    open_both();
    insert_plain();
    must(fi_tsend(plain.ep, bytes, LONG, NULL, to_peer, 9, NULL), "fi_tsend");
    wait_queued(1);
    node_close(&plain);
    end = now_ns() + 100000000;
    while (now_ns() < end)
        step();
    owner_recv(FI_TAGGED, room, LONG, ID, 9, &op);
    entry = next_written();
    check(entry->err > 0 && entry->op_context == &op, "a message whose sender has gone");
    close_both();
}

/* What the owner still has of an endpoint that is closed is void, and does no harm. */
static void closed_before_its_messages(void)
{
    struct own_entry *own;
    uint8_t bytes[SHORT] = "closed";
    open_both();
    must(fi_tsend(plain.ep, bytes, SHORT, NULL, to_peer, 1, NULL), "fi_tsend");
    must(fi_tsend(plain.ep, bytes, SHORT, NULL, to_peer, 2, NULL), "fi_tsend");
    wait_queued(2);
    must(OWNER(fi_close(&peer.ep->fid)), "fi_close");
    own = entry_in(QUEUED, NULL);
    own->state = LENT;
    check(OWNER(owner.srx.peer_ops->start_tag(&own->entry)) == -FI_EINVAL, "a message of a closed endpoint starts");
    own->state = FREE;
    own = entry_in(QUEUED, NULL);
    must(OWNER(owner.srx.peer_ops->discard_tag(&own->entry)), "discard_tag");
    own->state = FREE;
    must(fi_endpoint(peer.domain, peer.info, &peer.ep, NULL), "fi_endpoint");
    close_both();
}

/* A receive that is under way when its endpoint is closed is the owner's again. */
static void closed_while_receiving(void)
{
    struct op op = {0};
    uint8_t *bytes = pattern(LONG, 6), *room = calloc(1, LONG);
    open_both();
    must(fi_tsend(plain.ep, bytes, LONG, NULL, to_peer, 1, NULL), "fi_tsend");
    wait_queued(1);
    owner_recv(FI_TAGGED, room, LONG, FI_ADDR_UNSPEC, 1, &op);
    check(entries_in(LENT) == 1, "the message is there without its sender");
    must(OWNER(fi_close(&peer.ep->fid)), "fi_close");
    check(entries_in(LENT) == 0, "the receive is not given back");
    must(fi_endpoint(peer.domain, peer.info, &peer.ep, NULL), "fi_endpoint");
    close_both();
}

static void refused_calls(void)
{
    struct fi_cq_attr plain_cq = {0}, peer_cq = {.flags = PEER}, other_cq = {.flags = PEER | FI_AFFINITY};
    struct fi_cntr_attr bytes_cntr = {.flags = PEER, .events = (enum fi_cntr_events)1}, cntr = {.flags = PEER};
    struct fi_av_attr av = {.flags = PEER};
    struct fi_eq_attr eq = {.flags = PEER};
    struct fi_rx_attr rx = {.op_flags = PEER};
    struct peer_cq_context short_context = {8, &owner.cq};
    struct fi_cq_err_entry error = {0};
    struct fid_cq *cq;
    struct fid_cntr *counter;
    struct fid_ep *ep;
    struct fid_av *vector;
    struct fid_eq *events;
    char byte = 0;
    open_bound();
    check(fi_cq_open(peer.domain, &peer_cq, &cq, NULL) == -FI_EINVAL, "a CQ without a context");
    check(fi_cq_open(peer.domain, &peer_cq, &cq, &short_context) == -FI_EINVAL, "a CQ with half a context");
    check(fi_cq_open(peer.domain, &other_cq, &cq, &cq_context) == -FI_EINVAL, "a CQ with other flags");
    check(fi_cntr_open(peer.domain, &cntr, &counter, NULL) == -FI_EINVAL, "a counter without a context");
    check(fi_srx_context(peer.domain, &rx, &ep, NULL) == -FI_EINVAL, "a receive context without a context");
    check(fi_av_open(peer.domain, &av, &vector, NULL) == -FI_EINVAL, "an AV of another provider");
    check(fi_eq_open(peer.fabric, &eq, &events, NULL) == -FI_EINVAL, "an event queue of another provider");
    if (bytes_cntr.events)
        check(fi_cntr_open(peer.domain, &bytes_cntr, &counter, &cntr_context) == -FI_EINVAL, "a counter of bytes");
    owner.cq.owner_ops = NULL;
    check(fi_cq_open(peer.domain, &peer_cq, &cq, &cq_context) == -FI_EINVAL, "an owner without functions");
    owner.cq.owner_ops = &CQ_OPS;

    must(fi_cq_open(peer.domain, &plain_cq, &cq, NULL), "fi_cq_open");
    must(fi_ep_bind(peer.ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_enable(peer.ep) == -FI_ENOCQ, "receives of another provider complete in a CQ of our own");
    must(fi_close(&peer.ep->fid), "fi_close");
    must(fi_close(&cq->fid), "fi_close");
    must(fi_endpoint(peer.domain, peer.info, &peer.ep, NULL), "fi_endpoint");
    must(fi_ep_bind(peer.ep, &peer.av->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(peer.ep, &peer.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_ep_bind(peer.ep, &peer.srx->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(peer.ep, &peer.srx->fid, 0) == -FI_EINVAL, "two receive contexts");
    must(fi_enable(peer.ep), "fi_enable");

    check(fi_recv(peer.ep, &byte, 1, NULL, FI_ADDR_UNSPEC, NULL) == -FI_EOPNOTSUPP, "a receive that is the owner's");
    check(fi_recv(peer.srx, &byte, 1, NULL, FI_ADDR_UNSPEC, NULL) == -FI_ENOSYS, "a receive that is the owner's");
    check(fi_cancel(&peer.ep->fid, &byte) == -FI_ENOSYS, "fi_cancel of what is the owner's");
    check(OWNER(fi_cq_read(peer.cq, &error, 1)) == -FI_EINVAL, "entries that are the owner's");
    check(fi_cq_readerr(peer.cq, &error, 0) == -FI_ENOSYS, "entries that are the owner's");
    check(fi_cq_sread(peer.cq, &error, 1, NULL, 0) == -FI_ENOSYS, "entries that are the owner's");
    check(fi_cntr_add(peer.cntr, 1) == -FI_ENOSYS, "a value that is the owner's");
    check(OWNER(owner.srx.peer_ops->start_tag(NULL)) == -FI_EINVAL, "no entry");
    close_both();
}

static void not_without_the_capability(void)
{
    struct fi_cq_attr attr = {.flags = PEER};
    struct fi_rx_attr rx = {.op_flags = PEER};
    struct fid_cq *cq;
    struct fid_ep *ep;
    open_domain(0);
    check(((peer.info->caps | peer.info->domain_attr->caps) & PEER) == 0, "FI_PEER is granted unasked");
    check(fi_cq_open(peer.domain, &attr, &cq, &cq_context) == -FI_EINVAL, "a CQ of another provider");
    check(fi_srx_context(peer.domain, &rx, &ep, &srx_context) == -FI_EINVAL, "a receive context of another provider");
    must(fi_close(&peer.av->fid), "fi_close");
    must(fi_close(&peer.domain->fid), "fi_close");
    must(fi_close(&peer.fabric->fid), "fi_close");
    fi_freeinfo(peer.info);
}

/* Before 2.3 the interface was another. */
static void not_with_an_old_libfabric(void)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1", .caps = PEER};
    struct node found = {0};
    bool is_old = FI_VERSION_LT(fi_version(), FI_VERSION(2, 3));
    int rc = node_find(&found, &options);
    check(rc == (is_old ? -FI_ENODATA : 0), "fi_getinfo: %s", fi_strerror(-rc));
}

static const struct test_case TESTS[] = {
    {"not_with_an_old_libfabric", not_with_an_old_libfabric, 20},
    {"not_without_the_capability", not_without_the_capability, 20},
    {"refused_calls", refused_calls, 20},
    {"expected_messages", expected_messages, 30},
    {"unexpected_messages", unexpected_messages, 30},
    {"discarded_messages", discarded_messages, 30},
    {"truncated_messages", truncated_messages, 30},
    {"senders_that_become_known", senders_that_become_known, 30},
    {"only_within_calls_of_the_owner", only_within_calls_of_the_owner, 30},
    {"sends_and_counters", sends_and_counters, 30},
    {"an_owner_without_room", an_owner_without_room, 30},
    {"a_sender_that_goes", a_sender_that_goes, 30},
    {"closed_before_its_messages", closed_before_its_messages, 30},
    {"closed_while_receiving", closed_while_receiving, 30},
};

int main(int argc, char **argv)
{
    /* With an old libfabric there is the first to see. */
    size_t count = FI_VERSION_LT(fi_version(), FI_VERSION(2, 3)) ? 2 : COUNT_OF(TESTS);
    return run_cases(TESTS, count, argc, argv);
}
