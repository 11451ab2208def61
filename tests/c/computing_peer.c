/* A peer that computes for three deadlines without calling libfabric, under manual progress, is not
 * dead: no operation fails, and all data is right, in both directions. Run it over a lossy network. */
#include "cases.h"

enum { DEADLINE_MS = 1000, ROUNDS = 3, MESSAGES = 24, TAG_TO = 100, TAG_FRO = 200 };
static const size_t SIZES[] = {0, 8, 1000, 9000, 70000, 1 << 20};

struct side {
    struct node node;
    fi_addr_t peer;
    struct op sends[MESSAGES], recvs[MESSAGES];
    uint8_t *tx[MESSAGES], *rx[MESSAGES];
    size_t ended;
};

static size_t size_of(int message)
{
    return SIZES[(size_t)message % COUNT_OF(SIZES)];
}

static void step(struct side *side)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    int rc = node_poll(&side->node, &op, &entry, NULL);
    must(rc, "an operation");
    side->ended += rc == 1;
}

static void post_round(struct side *side, int round, uint64_t tag_out, uint64_t tag_in)
{
    for (int i = 0; i < MESSAGES; i++) {
        side->rx[i] = calloc(1, size_of(i) + 1);
        side->tx[i] = malloc(size_of(i) + 1);
        check(side->rx[i] && side->tx[i], "no memory");
        pattern_fill(side->tx[i], size_of(i), tag_out + (uint64_t)(round * MESSAGES + i));
        must(fi_trecv(side->node.ep, side->rx[i], size_of(i), NULL, FI_ADDR_UNSPEC, tag_in + (uint64_t)i, 0,
                      &side->recvs[i]),
             "fi_trecv");
    }
    for (int i = 0; i < MESSAGES; i++) {
        ssize_t rc;
        while ((rc = fi_tsend(side->node.ep, side->tx[i], size_of(i), NULL, side->peer, tag_out + (uint64_t)i,
                              &side->sends[i])) == -FI_EAGAIN)
            step(side);
        must(rc, "fi_tsend");
    }
}

static void compute(uint64_t ms)
{
    uint64_t end = now_ns() + ms * 1000000;
    volatile double x = 1;
    while (now_ns() < end)
        for (int i = 0; i < 100000; i++)
            x = x * 1.0000001 + 1e-9;
}

static void run_side(int fd, bool computes)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    uint64_t out = computes ? TAG_FRO : TAG_TO, in = computes ? TAG_TO : TAG_FRO, word = 1;
    static struct side side;
    node_open(&side.node, &options);
    side.peer = node_meet(&side.node, fd);
    for (int round = 0; round < ROUNDS; round++) {
        side.ended = 0;
        post_round(&side, round, out, in);
        if (computes)
            compute(3 * DEADLINE_MS + DEADLINE_MS / 2);
        while (side.ended < 2 * MESSAGES)
            step(&side);
        for (int i = 0; i < MESSAGES; i++) {
            pattern_check(side.rx[i], size_of(i), in + (uint64_t)(round * MESSAGES + i));
            free(side.rx[i]);
            free(side.tx[i]);
        }
        oob_send(fd, &word, sizeof word);
        oob_recv(fd, &word, sizeof word, &side.node);
    }
    node_close(&side.node);
}

static void computing_peer(void)
{
    char text[16];
    int oob;
    pid_t child;
    snprintf(text, sizeof text, "%d", DEADLINE_MS);
    setenv("FI_ERD_PEER_TIMEOUT_MS", text, 1);
    child = fork_side(&oob);
    run_side(oob, child == 0);
    if (child == 0)
        _exit(0);
    check(end_of(child) == 0, "the computing side failed");
}

/* The computing side is the child of a process that has an endpoint already: it needs a helper thread of its own. */
static void computing_child(void)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    struct node before;
    node_open(&before, &options);
    computing_peer();
    node_close(&before);
}

static const struct test_case TESTS[] = {
    {"computing_peer", computing_peer, 60},
    {"computing_child", computing_child, 60},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
