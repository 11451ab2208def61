/* Every form of FI_MSG and FI_TAGGED calls, completion queue and counter, between endpoints of one
 * process. */
#include "cases.h"
#include "talk.h"

#include <poll.h>
#include <rdma/fi_eq.h>
#include <sys/uio.h>

static struct group group;
static fi_addr_t to; /* node 1 as node 0 knows it */

/* Completions of each node that came while the other's were waited for, oldest first. */
enum { KEPT_MAX = 128 };
static struct kept {
    struct fi_cq_tagged_entry entries[KEPT_MAX];
    size_t first, count;
} kept[2];

static void open_with(struct node_options options)
{
    memset(kept, 0, sizeof kept);
    options.provider = provider;
    options.address = "127.0.0.1";
    group_open(&group, 2, &options);
    to = node_insert(&group.nodes[0], group.nodes[1].name);
}

static struct node *sender(void)
{
    return &group.nodes[0];
}

static struct node *receiver(void)
{
    return &group.nodes[1];
}

/* Lets node `at` progress, and keeps what it completes. What it failed at is told as node_poll does. */
static int progress(size_t at)
{
    struct kept *own = &kept[at];
    struct op *op;
    check(own->first + own->count < KEPT_MAX, "node %zu completes more than is kept", at);
    int rc = node_poll(&group.nodes[at], &op, &own->entries[own->first + own->count], NULL);
    if (rc == 1)
        own->count++;
    return rc;
}

/* The next completion of node `at`, while the other node progresses. */
static struct fi_cq_tagged_entry next_entry(size_t at)
{
    struct kept *own = &kept[at];
    struct fi_cq_tagged_entry entry;
    struct op *op;
    if (own->count > 0) {
        own->count--;
        return own->entries[own->first++];
    }
    own->first = 0;
    for (;;) {
        int rc = node_poll(&group.nodes[at], &op, &entry, NULL);
        must(rc, "an operation");
        if (rc == 1)
            return entry;
        progress(1 - at);
    }
}

static void no_entry(size_t at, const char *what)
{
    uint64_t end = now_ns() + 100000000;
    while (now_ns() < end) {
        check(progress(at) == 0 && kept[at].count == 0, "%s", what);
        progress(1 - at);
    }
}

static void untagged_forms(void)
{
    uint8_t tx[300], rx[300];
    struct op send = {0}, recv = {0};
    struct iovec pieces[2] = {{tx, 100}, {tx + 100, 200}};
    struct fi_msg msg = {.msg_iov = pieces, .iov_count = 2, .context = &send, .data = 77};
    struct fi_cq_tagged_entry entry;
    open_with((struct node_options){0});
    msg.addr = to;
    for (int form = 0; form < 6; form++) {
        bool has_data = form >= 3, completes = form != 2 && form != 5;
        pattern_fill(tx, sizeof tx, (uint64_t)form);
        must(fi_recv(receiver()->ep, rx, sizeof rx, NULL, FI_ADDR_UNSPEC, &recv), "fi_recv");
        switch (form) {
        case 0: must(fi_send(sender()->ep, tx, sizeof tx, NULL, to, &send), "fi_send"); break;
        case 1: must(fi_sendv(sender()->ep, pieces, NULL, 2, to, &send), "fi_sendv"); break;
        case 2: must(fi_inject(sender()->ep, tx, sizeof tx, to), "fi_inject"); break;
        case 3: must(fi_senddata(sender()->ep, tx, sizeof tx, NULL, 77, to, &send), "fi_senddata"); break;
        case 4: must(fi_sendmsg(sender()->ep, &msg, FI_REMOTE_CQ_DATA | FI_COMPLETION), "fi_sendmsg"); break;
        default: must(fi_injectdata(sender()->ep, tx, sizeof tx, 77, to), "fi_injectdata");
        }
        entry = next_entry(1);
        check(entry.op_context == &recv && (entry.flags & FI_RECV) && (entry.flags & FI_MSG), "form %d: flags %llx",
              form, (unsigned long long)entry.flags);
        check(entry.len == sizeof rx, "form %d: %zu bytes", form, entry.len);
        check(!(entry.flags & FI_REMOTE_CQ_DATA) == !has_data && (!has_data || entry.data == 77), "form %d: data", form);
        pattern_check(rx, sizeof rx, (uint64_t)form);
        if (completes)
            check(next_entry(0).op_context == &send, "form %d: another operation completed", form);
    }
    no_entry(0, "an injected message completed at its sender");
    group_close(&group);
}

static void tagged_forms(void)
{
    uint8_t tx[300], rx[300];
    struct op send = {0}, recv = {0};
    struct iovec pieces[2] = {{tx, 1}, {tx + 1, 299}}, places[3] = {{rx, 7}, {rx + 7, 0}, {rx + 7, 293}};
    struct fi_msg_tagged out = {.msg_iov = pieces, .iov_count = 2, .tag = 44, .context = &send, .data = 9};
    struct fi_msg_tagged in = {.msg_iov = places, .iov_count = 3, .tag = 40, .ignore = 7, .context = &recv};
    struct fi_cq_tagged_entry entry;
    open_with((struct node_options){0});
    out.addr = to;
    in.addr = FI_ADDR_UNSPEC;
    for (int form = 0; form < 6; form++) {
        pattern_fill(tx, sizeof tx, (uint64_t)form);
        memset(rx, 0, sizeof rx);
        if (form % 2)
            must(fi_trecvv(receiver()->ep, places, NULL, 3, FI_ADDR_UNSPEC, 40, 7, &recv), "fi_trecvv");
        else
            must(fi_trecvmsg(receiver()->ep, &in, FI_COMPLETION), "fi_trecvmsg");
        switch (form) {
        case 0: must(fi_tsend(sender()->ep, tx, sizeof tx, NULL, to, 44, &send), "fi_tsend"); break;
        case 1: must(fi_tsendv(sender()->ep, pieces, NULL, 2, to, 44, &send), "fi_tsendv"); break;
        case 2: must(fi_tinject(sender()->ep, tx, sizeof tx, to, 44), "fi_tinject"); break;
        case 3: must(fi_tsenddata(sender()->ep, tx, sizeof tx, NULL, 9, to, 44, &send), "fi_tsenddata"); break;
        case 4: must(fi_tsendmsg(sender()->ep, &out, FI_REMOTE_CQ_DATA | FI_COMPLETION), "fi_tsendmsg"); break;
        default: must(fi_tinjectdata(sender()->ep, tx, sizeof tx, 9, to, 44), "fi_tinjectdata");
        }
        entry = next_entry(1);
        check((entry.flags & FI_RECV) && (entry.flags & FI_TAGGED) && entry.tag == 44, "form %d: flags %llx, tag %llu",
              form, (unsigned long long)entry.flags, (unsigned long long)entry.tag);
        check(form < 3 || entry.data == 9, "form %d: data %llu", form, (unsigned long long)entry.data);
        pattern_check(rx, sizeof rx, (uint64_t)form);
        if (form != 2 && form != 5)
            next_entry(0);
    }
    group_close(&group);
}

static void tags_and_order(void)
{
    uint64_t out[40], in[40];
    struct op sends[40], recvs[40];
    open_with((struct node_options){0});
    for (uint64_t i = 0; i < 40; i++) {
        out[i] = i;
        sends[i].state = recvs[i].state = 0;
        must(fi_tsend(sender()->ep, &out[i], 8, NULL, to, i % 4, &sends[i]), "fi_tsend");
    }
    /* The tags are asked for backwards, half of them before the messages are there. */
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t tag = 3 - i / 10;
        if (i == 20)
            group_step_for_ms(&group, 50);
        must(fi_trecv(receiver()->ep, &in[i], 8, NULL, FI_ADDR_UNSPEC, tag, 0, &recvs[i]), "fi_trecv");
    }
    for (uint64_t i = 0; i < 40; i++) {
        must(group_wait(&group, &recvs[i]), "a receive");
        check(in[i] == (i % 10) * 4 + 3 - i / 10, "receive %llu got message %llu", (unsigned long long)i,
              (unsigned long long)in[i]);
    }
    group_close(&group);
}

/* Lengths of eager messages of one datagram and of several, and of one that waits for its receive. */
enum { MIXED = 32, LONG_BYTES = 100000, ROUNDS = 40 };
static const size_t LENGTHS[] = {8, 5000, 16, 3000, 8, LONG_BYTES, 2000, 64};

static void receive_mixed(uint8_t (*in)[LONG_BYTES], struct op *recvs, uint64_t tag)
{
    must(fi_trecv(receiver()->ep, in[tag], LONG_BYTES, NULL, FI_ADDR_UNSPEC, tag, 0, &recvs[tag]), "fi_trecv");
}

/* Whichever message is whole first: eager ones complete in the order of their matches. */
static void match_order(void)
{
    static uint8_t out[LONG_BYTES], in[MIXED][LONG_BYTES];
    /* Loopback would carry each eager message in one datagram. */
    setenv("FI_ERD_MTU", "1500", 1);
    setenv("FI_ERD_PATHS", "4", 1);
    open_with((struct node_options){0});
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct op recvs[MIXED] = {0}, sends[MIXED] = {0};
        long last = -1;
        unsigned count = 0;
        /* In every other round messages are there before their receives, some of them in part. */
        for (unsigned i = 0; i < MIXED && round % 2 == 0; i++)
            receive_mixed(in, recvs, i);
        for (unsigned i = 0; i < MIXED; i++)
            must(fi_tsend(sender()->ep, out, LENGTHS[i % COUNT_OF(LENGTHS)], NULL, to, i, &sends[i]), "fi_tsend");
        for (unsigned i = 0; i < MIXED && round % 2 == 1; i++) {
            progress(i % 2);
            receive_mixed(in, recvs, i);
        }
        for (; count < MIXED; count++) {
            struct fi_cq_tagged_entry entry = next_entry(1);
            long at = (struct op *)entry.op_context - recvs;
            check(entry.len == LENGTHS[(size_t)at % COUNT_OF(LENGTHS)], "message %ld has %zu bytes", at, entry.len);
            if (entry.len == LONG_BYTES)
                continue;
            check(at > last, "round %u: message %ld completes after %ld", round, at, last);
            last = at;
        }
        for (count = 0; count < MIXED; count++)
            next_entry(0);
    }
    group_close(&group);
}

static void multi_recv(void)
{
    static uint8_t room[4096];
    uint8_t tx[1000];
    struct op recv = {0}, send = {0};
    struct iovec iov = {room, sizeof room};
    struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &recv};
    size_t least = 1000, used = 0;
    bool released = false;
    open_with((struct node_options){.caps = FI_MULTI_RECV});
    must(fi_setopt(&receiver()->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), "fi_setopt");
    must(fi_recvmsg(receiver()->ep, &msg, FI_MULTI_RECV), "fi_recvmsg with FI_MULTI_RECV");
    for (uint64_t i = 0; !released; i++) {
        struct fi_cq_tagged_entry entry;
        check(i < 8, "the buffer was never released");
        pattern_fill(tx, sizeof tx, i);
        must(fi_send(sender()->ep, tx, sizeof tx, NULL, to, &send), "fi_send");
        entry = next_entry(1);
        next_entry(0);
        check(entry.op_context == &recv && entry.buf == room + used && entry.len == sizeof tx,
              "message %llu lies at %zd with %zu bytes, not at %zu", (unsigned long long)i,
              (uint8_t *)entry.buf - room, entry.len, used);
        pattern_check(entry.buf, entry.len, i);
        used += entry.len;
        released = entry.flags & FI_MULTI_RECV;
        check(released == (sizeof room - used < least), "released after %zu bytes", used);
    }
    group_close(&group);
}

static struct fi_cq_err_entry next_error_of_receiver(void)
{
    struct fi_cq_err_entry error;
    struct fi_cq_tagged_entry entry;
    struct op *op;
    int rc;
    do {
        progress(0);
        rc = node_poll(receiver(), &op, &entry, &error);
        check(rc != 1, "an operation succeeded");
    } while (rc == 0);
    return error;
}

static void peek(uint64_t tag, uint64_t flags, struct op *op)
{
    struct fi_msg_tagged msg = {.addr = FI_ADDR_UNSPEC, .tag = tag, .context = op};
    must(fi_trecvmsg(receiver()->ep, &msg, FI_PEEK | flags), "fi_trecvmsg with FI_PEEK");
}

static void peek_claim_discard(void)
{
    static uint8_t tx[100000], rx[100000];
    struct op send = {0}, look = {0}, recv = {0};
    struct iovec iov = {rx, sizeof rx};
    struct fi_msg_tagged claim = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &look};
    open_with((struct node_options){0});
    peek(1, 0, &look);
    check(next_error_of_receiver().err == FI_ENOMSG, "a peek found what nobody sent");
    for (uint64_t tag = 1; tag <= 3; tag++) {
        size_t length = tag == 2 ? 100 : sizeof tx;
        pattern_fill(tx, length, tag);
        must(fi_tsend(sender()->ep, tx, length, NULL, to, tag, &send), "fi_tsend");
        group_step_for_ms(&group, 50);
        peek(tag, tag == 1 ? 0 : tag == 2 ? FI_CLAIM : FI_DISCARD, &look);
        check(next_entry(1).len == length, "a peek of tag %llu", (unsigned long long)tag);
        claim.tag = tag;
        if (tag == 1)
            must(fi_trecv(receiver()->ep, rx, sizeof rx, NULL, FI_ADDR_UNSPEC, tag, 0, &recv), "fi_trecv");
        else if (tag == 2)
            must(fi_trecvmsg(receiver()->ep, &claim, FI_CLAIM), "fi_trecvmsg with FI_CLAIM");
        if (tag < 3) {
            check(next_entry(1).len == length, "the message of tag %llu", (unsigned long long)tag);
            pattern_check(rx, length, tag);
        }
        while (send.state == 0)
            group_step(&group);
        send.state = 0;
    }
    peek(3, 0, &look);
    check(next_error_of_receiver().err == FI_ENOMSG, "a discarded message is still there");
    group_close(&group);
}

static void directed_and_source(void)
{
    struct node_options options = {
        .provider = provider, .address = "127.0.0.1", .caps = FI_DIRECTED_RECV | FI_SOURCE};
    uint64_t rx[2], values[2] = {100, 101};
    struct op recvs[2], sends[2];
    fi_addr_t from[2], source;
    group_open(&group, 3, &options);
    for (size_t i = 0; i < 2; i++) {
        from[i] = node_insert(&group.nodes[2], group.nodes[i].name);
        recvs[i].state = 0;
        must(fi_trecv(group.nodes[2].ep, &rx[i], 8, NULL, from[i], 1, 0, &recvs[i]), "a directed fi_trecv");
    }
    /* Node 1 is the first to send, and yet its message goes to the second receive. */
    for (size_t i = 2; i-- > 0;) {
        fi_addr_t third = node_insert(&group.nodes[i], group.nodes[2].name);
        must(fi_tsend(group.nodes[i].ep, &values[i], 8, NULL, third, 1, &sends[i]), "fi_tsend");
        while (recvs[i].state == 0) {
            struct fi_cq_tagged_entry entry;
            struct op *op;
            for (size_t other = 0; other < 2; other++)
                node_poll(&group.nodes[other], &op, &entry, NULL);
            if (fi_cq_readfrom(group.nodes[2].cq, &entry, 1, &source) != 1)
                continue;
            check(entry.op_context == &recvs[i] && source == from[i], "source %llu, not %llu",
                  (unsigned long long)source, (unsigned long long)from[i]);
            recvs[i].state = 1;
        }
        check(rx[i] == values[i], "a directed receive got %llu", (unsigned long long)rx[i]);
    }
    group_close(&group);
}

static void selective_completion(void)
{
    uint64_t tx = 5, rx[3];
    struct iovec iov = {&tx, sizeof tx};
    struct op silent = {0}, loud = {0};
    struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .tag = 1, .context = &loud};
    struct fi_cq_tagged_entry entry;
    open_with((struct node_options){.bind_flags = FI_SELECTIVE_COMPLETION});
    msg.addr = to;
    for (int i = 0; i < 3; i++)
        must(fi_trecv(receiver()->ep, &rx[i], 8, NULL, FI_ADDR_UNSPEC, 1, 0, &silent), "fi_trecv");
    must(fi_tsend(sender()->ep, &tx, 8, NULL, to, 1, &silent), "fi_tsend");
    must(fi_tsendmsg(sender()->ep, &msg, 0), "fi_tsendmsg without FI_COMPLETION");
    must(fi_tsendmsg(sender()->ep, &msg, FI_COMPLETION), "fi_tsendmsg with FI_COMPLETION");
    entry = next_entry(0);
    check(entry.op_context == &loud, "an operation completed that did not ask for it");
    no_entry(0, "a second completion");
    no_entry(1, "a receive completed that did not ask for it");
    check(rx[0] == 5 && rx[1] == 5 && rx[2] == 5, "the messages");
    group_close(&group);
}

static void completion_levels(void)
{
    static const uint64_t levels[] = {FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE};
    uint64_t tx = 5, rx;
    struct iovec iov = {&tx, sizeof tx};
    struct op send = {0}, recv = {0};
    struct fi_msg_tagged msg = {.msg_iov = &iov, .iov_count = 1, .tag = 1, .context = &send};
    open_with((struct node_options){0});
    msg.addr = to;
    for (size_t i = 0; i < COUNT_OF(levels); i++) {
        must(fi_tsendmsg(sender()->ep, &msg, levels[i] | FI_COMPLETION), "fi_tsendmsg");
        if (levels[i] == FI_MATCH_COMPLETE)
            no_entry(0, "FI_MATCH_COMPLETE before there was a receive");
        else
            next_entry(0);
        must(fi_trecv(receiver()->ep, &rx, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &recv), "fi_trecv");
        next_entry(1);
        if (levels[i] == FI_MATCH_COMPLETE)
            next_entry(0);
    }
    group_close(&group);
}

static void blocking_read(void)
{
    uint64_t tx = 5, rx;
    struct op send = {0}, recv = {0};
    struct fi_cq_tagged_entry entry;
    ssize_t rc;
    open_with((struct node_options){.wait = FI_WAIT_UNSPEC});
    rc = fi_cq_sread(receiver()->cq, &entry, 1, NULL, 50);
    check(rc == -FI_EAGAIN, "fi_cq_sread without anything to read: %zd", rc);
    for (int i = 0; i < 100; i++) {
        must(fi_trecv(receiver()->ep, &rx, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &recv), "fi_trecv");
        must(fi_tsend(sender()->ep, &tx, 8, NULL, to, 1, &send), "fi_tsend");
        rc = fi_cq_sread(receiver()->cq, &entry, 1, NULL, 10000);
        check(rc == 1 && entry.op_context == &recv, "fi_cq_sread: %zd", rc);
        rc = fi_cq_sread(sender()->cq, &entry, 1, NULL, 10000);
        check(rc == 1 && entry.op_context == &send, "fi_cq_sread of the sender: %zd", rc);
    }
    group_close(&group);
}

/* Waits for node `at` with nothing but its file descriptor. */
static void wait_by_fd(size_t at)
{
    struct fid *fids[1] = {&group.nodes[at].cq->fid};
    struct fi_cq_tagged_entry entry;
    struct op *op;
    struct pollfd pollfd = {.events = POLLIN};
    must(fi_control(&group.nodes[at].cq->fid, FI_GETWAIT, &pollfd.fd), "FI_GETWAIT");
    while (node_poll(&group.nodes[at], &op, &entry, NULL) != 1) {
        if (fi_trywait(group.nodes[at].fabric, fids, 1) == 0)
            check(poll(&pollfd, 1, 10000) > 0, "nothing happened for 10 s");
    }
}

static void wait_fd(void)
{
    static uint8_t tx[1 << 20], rx[1 << 20];
    struct op send = {0}, recv = {0};
    open_with((struct node_options){.wait = FI_WAIT_FD});
    for (uint64_t i = 0; i < 20; i++) {
        size_t length = i % 2 ? sizeof tx : 8;
        pattern_fill(tx, length, i);
        must(fi_trecv(receiver()->ep, rx, length, NULL, FI_ADDR_UNSPEC, 1, 0, &recv), "fi_trecv");
        must(fi_tsend(sender()->ep, tx, length, NULL, to, 1, &send), "fi_tsend");
        wait_by_fd(1);
        wait_by_fd(0);
        pattern_check(rx, length, i);
    }
    group_close(&group);
}

static struct fid_cntr *add_counter(struct node *node, uint64_t flags)
{
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *counter;
    must(fi_cntr_open(node->domain, &attr, &counter, NULL), "fi_cntr_open");
    must(fi_ep_bind(node->ep, &counter->fid, flags), "fi_ep_bind of a counter");
    return counter;
}

static void counters(void)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    struct fid_cntr *sent, *received;
    struct fid_ep *ep;
    struct node *node = &group.nodes[0];
    uint64_t tx = 5, rx;
    uint8_t name[NAME_BYTES];
    size_t bytes = sizeof name;
    fi_addr_t self;
    group_open(&group, 1, &options);
    ep = node->ep;
    must(fi_endpoint(node->domain, node->info, &node->ep, NULL), "fi_endpoint");
    must(fi_ep_bind(node->ep, &node->av->fid, 0), "fi_ep_bind of the AV");
    sent = add_counter(node, FI_SEND);
    received = add_counter(node, FI_RECV);
    must(fi_enable(node->ep), "fi_enable with counters and without a CQ");
    must(fi_getname(&node->ep->fid, name, &bytes), "fi_getname");
    self = node_insert(node, name);
    for (uint64_t i = 1; i <= 50; i++) {
        must(fi_trecv(node->ep, &rx, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), "fi_trecv");
        must(fi_tsend(node->ep, &tx, 8, NULL, self, 1, NULL), "fi_tsend to itself");
        must(fi_cntr_wait(received, i, 10000), "fi_cntr_wait");
        must(fi_cntr_wait(sent, i, 10000), "fi_cntr_wait of the sends");
        check(fi_cntr_read(received) == i && fi_cntr_readerr(received) == 0, "the counter of receives");
    }
    check(fi_cntr_wait(received, 51, 50) == -FI_ETIMEDOUT, "a wait for what does not come");
    must(fi_close(&node->ep->fid), "fi_close");
    must(fi_close(&sent->fid), "fi_close of a counter");
    must(fi_close(&received->fid), "fi_close of a counter");
    node->ep = ep;
    group_close(&group);
}

static const struct test_case TESTS[] = {
    {"untagged_forms", untagged_forms, 20},
    {"tagged_forms", tagged_forms, 20},
    {"tags_and_order", tags_and_order, 20},
    {"match_order", match_order, 30},
    {"multi_recv", multi_recv, 20},
    {"peek_claim_discard", peek_claim_discard, 20},
    {"directed_and_source", directed_and_source, 20},
    {"selective_completion", selective_completion, 20},
    {"completion_levels", completion_levels, 20},
    {"blocking_read", blocking_read, 30},
    {"wait_fd", wait_fd, 30},
    {"counters", counters, 30},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
