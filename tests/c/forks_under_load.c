/* A process forks children again and again while messages go both ways over shared memory. Every message arrives as
 * it was sent, whatever the children do, and at last a peer sees the end of the process though a child of it lives. */
#include "cases.h"

enum { WINDOW = 16, MESSAGES = 6000, LONGEST = 300000, FORKS = 300, LAST_TAG = MESSAGES };

/* One of two processes that send each other MESSAGES messages. */
struct side {
    struct node node;
    fi_addr_t peer;
    uint64_t seed;
    uint8_t *tx[WINDOW], *rx[WINDOW];
    struct op sends[WINDOW], recvs[WINDOW];
    uint64_t sent, sends_ended, received;
};

static size_t length_of(uint64_t number)
{
    /* In the ring as a whole, in pieces, and copied by the other side. */
    static const size_t lengths[] = {64, 4000, 20000, LONGEST, 0, 8000, 100, 70000};
    return lengths[number % COUNT_OF(lengths)];
}

static void receive(struct side *me, uint64_t number)
{
    struct op *op = &me->recvs[number % WINDOW];
    *op = (struct op){.id = number};
    must(fi_trecv(me->node.ep, me->rx[number % WINDOW], LONGEST, NULL, FI_ADDR_UNSPEC, number, 0, op), "fi_trecv");
}

static void side_open(struct side *me, int fd, uint64_t seed)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    node_open(&me->node, &options);
    me->seed = seed;
    for (int slot = 0; slot < WINDOW; slot++) {
        me->tx[slot] = malloc(LONGEST);
        me->rx[slot] = malloc(LONGEST);
        check(me->tx[slot] && me->rx[slot], "no memory");
        me->sends[slot].state = 1;
        receive(me, (uint64_t)slot);
    }
    me->peer = node_meet(&me->node, fd);
}

static void push(struct side *me)
{
    while (me->sent < MESSAGES && me->sends[me->sent % WINDOW].state == 1) {
        uint8_t *bytes = me->tx[me->sent % WINDOW];
        struct op *op = &me->sends[me->sent % WINDOW];
        size_t length = length_of(me->sent);
        ssize_t rc;
        pattern_fill(bytes, length, 2 * me->sent + me->seed);
        op->state = 0;
        rc = fi_tsend(me->node.ep, bytes, length, NULL, me->peer, me->sent, op);
        if (rc == -FI_EAGAIN) {
            op->state = 1;
            return;
        }
        must(rc, "fi_tsend");
        me->sent++;
    }
}

static void side_step(struct side *me)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    push(me);
    must(node_poll(&me->node, &op, &entry, NULL), "a message");
    if (op >= me->recvs && op < me->recvs + WINDOW) {
        check(entry.len == length_of(op->id), "message %llu has %zu bytes", (unsigned long long)op->id, entry.len);
        pattern_check(me->rx[op->id % WINDOW], entry.len, 2 * op->id + 1 - me->seed);
        me->received++;
        if (op->id + WINDOW < MESSAGES)
            receive(me, op->id + WINDOW);
    } else if (op) {
        me->sends_ended++;
    }
}

static bool has_all(const struct side *me)
{
    return me->received == MESSAGES && me->sends_ended == MESSAGES;
}

static pid_t fork_child(unsigned number)
{
    pid_t child;
    fflush(NULL);
    child = fork();
    check(child >= 0, "fork: %s", strerror(errno));
    if (child)
        return child;
    switch (number % 4) {
    case 0:
        _exit(0);
    case 1:
        execl("/bin/true", "true", NULL);
        _exit(1);
    case 2:
        usleep(100000);
        _exit(0);
    default:
        exit(0);
    }
}

/* Takes children that have ended; answers how many. */
static unsigned reap(int options)
{
    unsigned ended = 0;
    int status;
    while (waitpid(-1, &status, options) > 0) {
        check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child ended with %#x", (unsigned)status);
        ended++;
    }
    return ended;
}

/* Forks as messages come, and at last leaves a child behind. */
static void be_forker(int fd)
{
    static struct side me;
    unsigned forks = 0, ended = 0;
    uint64_t word = 1;
    side_open(&me, fd, 0);
    while (!has_all(&me)) {
        side_step(&me);
        while (forks < FORKS && me.received * FORKS >= (uint64_t)(forks + 1) * MESSAGES)
            fork_child(forks++);
        ended += reap(WNOHANG);
    }
    ended += reap(0);
    check(forks == FORKS && ended == FORKS, "%u children came and %u went", forks, ended);
    fflush(NULL);
    if (fork() == 0) {
        sleep(60);
        _exit(0);
    }
    oob_send(fd, &word, sizeof word);
    for (;;)
        side_step(&me);
}

/* The other of the two, which sees the end of the first. */
static void children_come_and_go(void)
{
    static struct side me;
    struct fi_cq_tagged_entry entry;
    struct op op, *ended;
    uint64_t word;
    int fd, status;
    pid_t forker;
    /* Nobody waits so long: the end of the process is what tells. */
    setenv("FI_ERD_PEER_TIMEOUT_MS", "600000", 1);
    forker = fork_side(&fd);
    if (forker == 0)
        be_forker(fd);
    side_open(&me, fd, 1);
    while (!has_all(&me))
        side_step(&me);
    oob_recv(fd, &word, sizeof word, &me.node);
    /* Nobody receives it. */
    op.state = 0;
    must(fi_tsend(me.node.ep, me.tx[0], LONGEST, NULL, me.peer, LAST_TAG, &op), "fi_tsend");
    kill(forker, SIGKILL);
    check(waitpid(forker, &status, 0) == forker, "waitpid: %s", strerror(errno));
    while (op.state == 0)
        node_poll(&me.node, &ended, &entry, NULL);
    check(op.state < 0, "a send to nobody has succeeded");
    printf("  %d messages each way, %d children\n", MESSAGES, FORKS + 1);
    node_close(&me.node);
}

static const struct test_case TESTS[] = {
    {"children_come_and_go", children_come_and_go, 40},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
