/* One endpoint over two providers, which libfabric's lnx links: shared memory for a process of the same
 * host name, erd for one of another, which here is a process that has taken another name. Both send to a
 * third, whose receives are in one queue: from anyone or from one of them, before the messages and after. */
#include "cases.h"


enum { PEERS = 2, NEAR = 0, FAR = 1, BLOB = 1024, LONG = 1 << 20, MASS = 48, ROUNDS = 200 };

/* Kinds of messages, in the upper half of a tag; the lower half is a number. */
enum { FOR_ANY = 1, EARLY, DIRECTED, BACK, ROUND, MANY };
#define TAG(kind, number) ((uint64_t)(kind) << 32 | (uint64_t)(number))

static struct node node;
static uint8_t name[BLOB];
static int pipes[PEERS][2];
static fi_addr_t peers[PEERS];

static void open_node(void)
{
    struct node_options options = {.provider = "lnx"};
    struct fi_info *hints = node_hints(&options);
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .size = 1024};
    size_t length = sizeof name;
    hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
    /* Some tests are told to have one provider alone. */
    unsetenv("FI_PROVIDER");
    setenv("FI_LNX_PROV_LINKS", "shm+erd:lo", 1);
    must(fi_getinfo(fi_version(), NULL, NULL, 0, hints, &node.info), "fi_getinfo of lnx");
    fi_freeinfo(hints);
    must(fi_fabric(node.info->fabric_attr, &node.fabric, NULL), "fi_fabric");
    must(fi_domain(node.fabric, node.info, &node.domain, NULL), "fi_domain");
    must(fi_av_open(node.domain, &av, &node.av, NULL), "fi_av_open");
    must(fi_cq_open(node.domain, &cq, &node.cq, NULL), "fi_cq_open");
    must(fi_endpoint(node.domain, node.info, &node.ep, NULL), "fi_endpoint");
    must(fi_ep_bind(node.ep, &node.av->fid, 0), "fi_ep_bind of the AV");
    must(fi_ep_bind(node.ep, &node.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the CQ");
    must(fi_enable(node.ep), "fi_enable");
    must(fi_getname(&node.ep->fid, name, &length), "fi_getname");
}

static fi_addr_t meet(int fd)
{
    uint8_t theirs[BLOB];
    oob_send(fd, name, sizeof name);
    oob_recv(fd, theirs, sizeof theirs, NULL);
    return node_insert(&node, theirs);
}

static void step(void)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error;
    struct op *op;
    int got = node_poll(&node, &op, &entry, &error);
    check(got >= 0, "a completion of tag %#llx with error %d", (unsigned long long)error.tag, got);
    if (got == 1 && op)
        op->id = entry.tag;
}

static void finish(struct op *op)
{
    while (!op->state)
        step();
}

static void post_send(fi_addr_t to, const void *bytes, size_t length, uint64_t tag, struct op *op)
{
    ssize_t rc;
    op->state = 0;
    while ((rc = fi_tsend(node.ep, bytes, length, NULL, to, tag, op)) == -FI_EAGAIN)
        step();
    must(rc, "fi_tsend");
}

static void send_whole(fi_addr_t to, const void *bytes, size_t length, uint64_t tag)
{
    struct op op;
    post_send(to, bytes, length, tag, &op);
    finish(&op);
}

static void post_recv(fi_addr_t from, void *room, size_t length, uint64_t tag, uint64_t ignore, struct op *op)
{
    op->state = 0;
    must(fi_trecv(node.ep, room, length, NULL, from, tag, ignore, op), "fi_trecv");
}

static void recv_whole(fi_addr_t from, void *room, size_t length, uint64_t tag)
{
    struct op op;
    post_recv(from, room, length, tag, 0, &op);
    finish(&op);
}

static uint8_t byte_of(size_t at, uint64_t seed)
{
    return (uint8_t)(at * 31 + seed * 17 + (at >> 8));
}

static void fill(uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = byte_of(i, seed);
}

static void is_filled(const uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++)
        check(bytes[i] == byte_of(i, seed), "byte %zu of %zu is not that of message %llu", i, length,
              (unsigned long long)seed);
}

static const size_t LENGTHS[] = {8, 1 << 10, 64 << 10, LONG};

/* What each of the two does. */
static void be_peer(int which, int fd)
{
    uint8_t *bytes = malloc(LONG);
    struct op early[3];
    fi_addr_t to;
    char word;
    check(bytes != NULL, "no memory");
    if (which == FAR) {
        check(unshare(CLONE_NEWUTS) == 0, "no other host name without rights: %s", strerror(errno));
        check(sethostname("erd-elsewhere", 13) == 0, "sethostname: %s", strerror(errno));
    }
    open_node();
    to = meet(fd);
    oob_recv(fd, &word, 1, NULL);
    for (size_t i = 0; i < COUNT_OF(LENGTHS); i++) {
        fill(bytes, LENGTHS[i], TAG(which, i));
        send_whole(to, bytes, LENGTHS[i], TAG(FOR_ANY, (size_t)which << 8 | i));
    }
    fill(bytes, LONG, TAG(which, EARLY));
    for (int i = 0; i < 3; i++)
        post_send(to, bytes, LONG >> (7 * i), TAG(EARLY, i), &early[i]);
    for (int i = 0; i < 3; i++)
        finish(&early[i]);
    oob_send(fd, "s", 1);
    recv_whole(FI_ADDR_UNSPEC, bytes, LONG, TAG(BACK, which));
    is_filled(bytes, LONG, TAG(which, BACK));
    for (int i = 0; i < ROUNDS; i++) {
        recv_whole(to, bytes, 64, TAG(ROUND, i));
        send_whole(to, bytes, 64, TAG(ROUND, i));
    }
    fill(bytes, LONG, TAG(which, MANY));
    for (int i = 0; which == NEAR && i < MASS; i++)
        send_whole(to, bytes, LONG, TAG(MANY, i));
    oob_recv(fd, &word, 1, NULL);
    node_close(&node);
}

static void start_peers(void)
{
    for (int which = 0; which < PEERS; which++) {
        pid_t child;
        oob_pair(pipes[which]);
        child = fork();
        check(child >= 0, "fork: %s", strerror(errno));
        if (child == 0) {
            be_peer(which, pipes[which][1]);
            fflush(NULL);
            _exit(0);
        }
        close(pipes[which][1]);
    }
    open_node();
    for (int which = 0; which < PEERS; which++)
        peers[which] = meet(pipes[which][0]);
}

static void tell_peers(void)
{
    for (int which = 0; which < PEERS; which++)
        oob_send(pipes[which][0], "g", 1);
}

/* Posted first, from anyone and for any number: what comes from both meets the same receives. */
static void receives_for_anyone(void)
{
    enum { COUNT = PEERS * COUNT_OF(LENGTHS) };
    struct op ops[COUNT];
    uint8_t *rooms[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        rooms[i] = calloc(1, LONG);
        check(rooms[i] != NULL, "no memory");
        post_recv(FI_ADDR_UNSPEC, rooms[i], LONG, TAG(FOR_ANY, 0), 0xffffffff, &ops[i]);
    }
    tell_peers();
    unsigned seen = 0;
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t number;
        finish(&ops[i]);
        number = ops[i].id & 0xffffffff;
        is_filled(rooms[i], LENGTHS[number & 0xff], TAG(number >> 8, number & 0xff));
        seen |= 1u << (number >> 8) * COUNT_OF(LENGTHS) << (number & 0xff);
    }
    check(seen == (1u << COUNT) - 1, "messages %#x", seen);
}

/* Messages of both wait before anything is posted for them. */
static void receives_after_their_messages(void)
{
    uint8_t *room = malloc(LONG);
    uint64_t end = now_ns() + 200000000;
    struct op op;
    check(room != NULL, "no memory");
    while (now_ns() < end)
        step();
    for (int which = PEERS - 1; which >= 0; which--) {
        for (int i = 2; i >= 0; i--) {
            post_recv(peers[which], room, LONG, TAG(EARLY, i), 0, &op);
            finish(&op);
            is_filled(room, LONG >> (7 * i), TAG(which, EARLY));
        }
    }
    for (int which = 0; which < PEERS; which++) {
        char word;
        oob_recv(pipes[which][0], &word, 1, &node);
    }
}

static void answers(void)
{
    uint8_t *bytes = malloc(LONG), small[64] = {0};
    check(bytes != NULL, "no memory");
    for (int which = 0; which < PEERS; which++) {
        fill(bytes, LONG, TAG(which, BACK));
        send_whole(peers[which], bytes, LONG, TAG(BACK, which));
    }
    for (int i = 0; i < ROUNDS; i++) {
        for (int which = 0; which < PEERS; which++)
            send_whole(peers[which], small, sizeof small, TAG(ROUND, i));
        for (int which = 0; which < PEERS; which++)
            recv_whole(FI_ADDR_UNSPEC, small, sizeof small, TAG(ROUND, i));
    }
    for (int i = 0; i < MASS; i++)
        recv_whole(peers[NEAR], bytes, LONG, TAG(MANY, i));
    is_filled(bytes, LONG, TAG(NEAR, MANY));
}

static void near_and_far(void)
{
    start_peers();
    receives_for_anyone();
    receives_after_their_messages();
    answers();
    tell_peers();
    for (int which = 0; which < PEERS; which++) {
        int status = 0;
        while (waitpid(-1, &status, WNOHANG) == 0)
            step();
        check(status == 0, "a peer ended with %d", status);
    }
    node_close(&node);
}

static const struct test_case TESTS[] = {
    {"near_and_far", near_and_far, 90},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
