/* What is lost, and what is not, of short messages that were complete when they were copied: the peer is
 * killed after the completions, or the sender's process ends right after them. */
#include "cases.h"

enum { TAG = 5, COUNT = 20, SMALL = 64, LONGER = 1000, MANY_MS = 60000, DEADLINE_MS = 1500 };

static size_t length_of(int number)
{
    return number % 5 == 4 ? LONGER : SMALL;
}

/* One side of two processes, with a message of each number. */
struct side {
    struct node node;
    fi_addr_t peer;
    struct op ops[COUNT + 1], after;
    uint8_t bytes[COUNT + 1][LONGER];
};

static void open_side(struct side *side, int oob)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    node_open(&side->node, &options);
    side->peer = node_meet(&side->node, oob);
}

static void expect(struct side *side, int number)
{
    must(fi_trecv(side->node.ep, side->bytes[number], LONGER, NULL, FI_ADDR_UNSPEC, TAG, 0, &side->ops[number]),
         "fi_trecv");
}

/* Until an operation has ended well. */
static void wait_for(struct side *side, struct op *awaited)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    while (awaited->state == 0)
        must(node_poll(&side->node, &op, &entry, NULL), "a message");
}

static void send_one(struct side *side, int number, struct op *op)
{
    pattern_fill(side->bytes[number], length_of(number), (uint64_t)number);
    must(fi_tsend(side->node.ep, side->bytes[number], length_of(number), NULL, side->peer, TAG, op), "fi_tsend");
}

/* The first message of a session is complete when it has been acknowledged. */
static void send_first(struct side *side)
{
    send_one(side, COUNT, &side->ops[COUNT]);
    wait_for(side, &side->ops[COUNT]);
}

/* All others, and their completions; no buffer is touched by erd afterwards. */
static void send_all(struct side *side)
{
    for (int number = 0; number < COUNT; number++) {
        send_one(side, number, &side->ops[number]);
        wait_for(side, &side->ops[number]);
        memset(side->bytes[number], 0xee, LONGER);
    }
}

static pid_t begin(void (*run)(struct side *, int), int *oob)
{
    pid_t pid = fork_side(oob);
    if (pid == 0) {
        static struct side side;
        open_side(&side, *oob);
        run(&side, *oob);
        /* Nothing is closed. */
        exit(0);
    }
    return pid;
}

static void set_peer_timeout(unsigned ms)
{
    char text[16];
    snprintf(text, sizeof text, "%u", ms * slowness());
    setenv("FI_ERD_PEER_TIMEOUT_MS", text, 1);
}

/* Takes the first message, then does nothing: it is stopped, and killed. */
static void be_victim(struct side *side, int oob)
{
    uint64_t word = 1;
    expect(side, COUNT);
    oob_send(oob, &word, sizeof word);
    wait_for(side, &side->ops[COUNT]);
    oob_recv(oob, &word, sizeof word, &side->node);
}

static void stop(pid_t pid)
{
    int status = 0;
    kill(pid, SIGSTOP);
    check(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "the other process was to stop");
}

/* Errors until one tells of this operation, or of none (NULL). */
static void await_failure(struct side *side, struct op *expected)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error;
    struct op *op;
    int rc;
    while ((rc = node_poll(&side->node, &op, &entry, &error)) >= 0)
        check(rc == 0, "a completion of a dead peer's");
    check(op == expected, "the error names another operation");
    check(error.err == FI_EHOSTUNREACH || error.err == FI_ETIMEDOUT, "the error is %s", fi_strerror(error.err));
    check(error.err_data_size > 0, "the error does not name the peer");
}

/* Sends all to a process that answers no longer once it has the first. Answers that process. */
static pid_t send_to_one_that_is_stopped(struct side *side, unsigned timeout_ms)
{
    uint64_t word;
    pid_t victim;
    int oob;
    set_peer_timeout(timeout_ms);
    victim = begin(be_victim, &oob);
    open_side(side, oob);
    oob_recv(oob, &word, sizeof word, &side->node);
    send_first(side);
    stop(victim);
    send_all(side);
    return victim;
}

static void killed_afterwards(void)
{
    static struct side side;
    kill(send_to_one_that_is_stopped(&side, DEADLINE_MS), SIGKILL);
    /* The endpoint's context is NULL. */
    await_failure(&side, NULL);
    for (int number = 0; number < COUNT; number++)
        check(side.ops[number].state == 1, "message %d was complete before", number);
    send_one(&side, 0, &side.after);
    await_failure(&side, &side.after);
    node_close(&side.node);
}

static void be_leaver(struct side *side, int oob)
{
    uint64_t word;
    oob_recv(oob, &word, sizeof word, &side->node);
    send_first(side);
    send_all(side);
}

/* The receiver looks at nothing before the sender has ended or waits for it. */
static void exits_at_once(void)
{
    static struct side side;
    uint64_t word = 1;
    pid_t leaver;
    int oob;
    leaver = begin(be_leaver, &oob);
    open_side(&side, oob);
    expect(&side, COUNT);
    for (int number = 0; number < COUNT; number++)
        expect(&side, number);
    oob_send(oob, &word, sizeof word);
    for (int number = COUNT; number >= 0; number--)
        wait_for(&side, &side.ops[number]);
    for (int number = 0; number < COUNT; number++)
        pattern_check(side.bytes[number], length_of(number), (uint64_t)number);
    check(end_of(leaver) == 0, "the sender failed");
    node_close(&side.node);
}

/* The receiver is stopped, and stays so: the sender's end waits for it no longer than a bound, which is less
 * than the peer's time to answer. */
static void exits_though_nobody_answers(void)
{
    static struct side side;
    send_to_one_that_is_stopped(&side, MANY_MS);
    exit(0);
}

static const struct test_case TESTS[] = {
    {"killed_afterwards", killed_afterwards, 30},
    {"exits_at_once", exits_at_once, 30},
    {"exits_though_nobody_answers", exits_though_nobody_answers, 20},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
