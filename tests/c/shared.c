/* Payload that a peer on this host reads where it lies, with no copy at the sender: what arrives is what was
 * sent, also where the sender has its memory back since and uses it for something else. */
#include "cases.h"

#include <rdma/fi_rma.h>

enum { BYTES = 64 << 20, SEED = 11, TAG = 3, OTHER = 0xee, ROUNDS = 4, DEADLINE_MS = 300, PATIENCE_S = 20 };
/* Less than is under way at a time. */
enum { ANSWER_BYTES = 400000 };

/* What one of the two processes does. */
struct side {
    struct node node;
    fi_addr_t peer;
    uint8_t *bytes;
    int oob;
    pid_t other; /* 0 in the child */
};

static void step(struct side *side)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    node_poll(&side->node, &op, &entry, NULL);
}

/* How the operation ended: 0, or its negative error. */
static int outcome(struct side *side, const struct op *op)
{
    uint64_t end = now_ns() + (uint64_t)PATIENCE_S * 1000000000u * slowness();
    while (op->state == 0) {
        step(side);
        check(now_ns() < end, "an operation has no end");
    }
    return op->state > 0 ? 0 : op->state;
}

static void progress_for(struct side *side, unsigned ms)
{
    uint64_t end = now_ns() + ms * 1000000u;
    while (now_ns() < end)
        step(side);
}

/* Runs `sender` here and `receiver` in a child; the sender's memory holds the pattern. */
static void pair_up(void (*sender)(struct side *, unsigned), void (*receiver)(struct side *), unsigned delay_ms)
{
    const char *card = getenv("CARD_ADDRESS");
    struct node_options options = {.provider = provider, .address = card ? card : "127.0.0.1", .caps = FI_RMA};
    struct side side = {0};
    int pair[2], status = 0;
    oob_pair(pair);
    side.other = fork();
    check(side.other >= 0, "fork: %s", strerror(errno));
    close(pair[side.other ? 1 : 0]);
    side.oob = pair[side.other ? 0 : 1];
    side.bytes = calloc(1, BYTES);
    check(side.bytes != NULL, "no memory");
    if (side.other)
        pattern_fill(side.bytes, BYTES, SEED);
    node_open(&side.node, &options);
    side.peer = node_meet(&side.node, side.oob);
    if (side.other)
        sender(&side, delay_ms);
    else
        receiver(&side);
    oob_send(side.oob, &status, sizeof status);
    oob_recv(side.oob, &status, sizeof status, &side.node);
    node_close(&side.node);
    free(side.bytes);
    close(side.oob);
    if (!side.other)
        _exit(0);
    check(waitpid(side.other, &status, 0) == side.other && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the other process failed");
}

static void post_send(struct side *side, const uint8_t *bytes, size_t count, struct op *op)
{
    ssize_t rc;
    op->state = 0;
    while ((rc = fi_tsend(side->node.ep, bytes, count, NULL, side->peer, TAG, op)) == -FI_EAGAIN)
        step(side);
    must(rc, "fi_tsend");
}

static void post_recv(struct side *side, uint8_t *bytes, size_t count, struct op *op)
{
    op->state = 0;
    must(fi_trecv(side->node.ep, bytes, count, NULL, FI_ADDR_UNSPEC, TAG, 0, op), "fi_trecv");
}

/* Places and lengths that begin and end anywhere in a page, and around the shortest that is shared. */
static const size_t PLACES[][2] = {
    {0, BYTES}, {1, 57344}, {4095, 57345}, {100, 200000}, {16, 70000}, {64, 1 << 20}, {4096, 98304}, {7, 131071},
};

static void send_all(struct side *side, unsigned delay_ms)
{
    struct op op;
    (void)delay_ms;
    for (size_t i = 0; i < COUNT_OF(PLACES); i++) {
        post_send(side, side->bytes + PLACES[i][0], PLACES[i][1], &op);
        check(outcome(side, &op) == 0, "a send failed");
        /* What was sent is the sender's again. */
        memset(side->bytes + PLACES[i][0], OTHER, PLACES[i][1]);
        pattern_fill(side->bytes, BYTES, SEED);
    }
}

static void receive_all(struct side *side)
{
    struct op op;
    for (size_t i = 0; i < COUNT_OF(PLACES); i++) {
        size_t at = PLACES[i][0], bytes = PLACES[i][1];
        post_recv(side, side->bytes, bytes, &op);
        check(outcome(side, &op) == 0, "a receive failed");
        for (size_t j = 0; j < bytes; j++)
            check(side->bytes[j] == pattern_byte(SEED, at + j), "byte %zu of %zu from %zu differs", j, bytes, at);
    }
}

static void messages(void)
{
    pair_up(send_all, receive_all, 0);
}

/* Both know each other from here on: what one sends, the other hears of, however late it runs. */
static void meet(struct side *side)
{
    struct op op;
    char met = 1;
    if (side->other) {
        post_send(side, side->bytes, 8, &op);
        check(outcome(side, &op) == 0, "the first send failed");
        oob_recv(side->oob, &met, sizeof met, &side->node);
    } else {
        post_recv(side, side->bytes, 8, &op);
        check(outcome(side, &op) == 0, "the first receive failed");
        oob_send(side->oob, &met, sizeof met);
    }
}

/* The peer stands still with datagrams unread until the send has failed, and its memory holds other bytes. */
static void send_in_vain(struct side *side, unsigned delay_ms)
{
    struct op op;
    int failed;
    meet(side);
    post_send(side, side->bytes, BYTES, &op);
    progress_for(side, delay_ms);
    kill(side->other, SIGSTOP);
    failed = outcome(side, &op);
    memset(side->bytes, OTHER, BYTES);
    kill(side->other, SIGCONT);
    if (!failed)
        fprintf(stderr, "after %u ms all had been sent\n", delay_ms);
}

static void receive_late(struct side *side)
{
    struct op op;
    meet(side);
    post_recv(side, side->bytes, BYTES, &op);
    if (outcome(side, &op) == 0)
        pattern_check(side->bytes, BYTES, SEED);
}

static void failed_sends(void)
{
    char text[16];
    snprintf(text, sizeof text, "%d", DEADLINE_MS);
    setenv("FI_ERD_PEER_TIMEOUT_MS", text, 1);
    for (unsigned round = 1; round <= ROUNDS; round++)
        pair_up(send_in_vain, receive_late, 3 * round);
}

/* The peer stands still with the whole answer to its read unread until the region is closed, and holds
 * other bytes: the read must not succeed with them. */
static void take_back(struct side *side, unsigned delay_ms)
{
    struct fid_mr *mr;
    uint64_t key;
    int status;
    must(fi_mr_reg(side->node.domain, side->bytes, ANSWER_BYTES, FI_REMOTE_READ, 0, 5, 0, &mr, NULL), "fi_mr_reg");
    key = fi_mr_key(mr);
    oob_send(side->oob, &key, sizeof key);
    while (waitpid(side->other, &status, WUNTRACED | WNOHANG) == 0)
        step(side);
    check(WIFSTOPPED(status), "the other process did not stop");
    progress_for(side, delay_ms);
    must(fi_close(&mr->fid), "fi_close of the registration");
    memset(side->bytes, OTHER, ANSWER_BYTES);
    kill(side->other, SIGCONT);
}

static void post_read(struct side *side, size_t count, uint64_t key, struct op *op)
{
    ssize_t rc;
    op->state = 0;
    while ((rc = fi_read(side->node.ep, side->bytes, count, NULL, side->peer, 0, key, op)) == -FI_EAGAIN)
        step(side);
    must(rc, "fi_read");
}

static void read_late(struct side *side)
{
    struct op op;
    uint64_t key;
    oob_recv(side->oob, &key, sizeof key, &side->node);
    /* The session is open then, and the next request goes out at once. */
    post_read(side, 8, key, &op);
    check(outcome(side, &op) == 0, "a short read failed");
    post_read(side, ANSWER_BYTES, key, &op);
    raise(SIGSTOP);
    if (outcome(side, &op) == 0)
        pattern_check(side->bytes, ANSWER_BYTES, SEED);
}

static void closed_regions(void)
{
    for (unsigned round = 1; round <= ROUNDS; round++)
        pair_up(take_back, read_late, 20 * round);
}

static const struct test_case TESTS[] = {
    {"messages", messages, 60},
    {"failed_sends", failed_sends, 60},
    {"closed_regions", closed_regions, 60},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
