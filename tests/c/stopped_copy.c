/* A process is stopped while it copies a long message, a write or a read out of another process's memory
 * (docs/protocol.md, section 12.6). Before it goes on, the owner of that memory gets it back, and overwrites or
 * unmaps it. The operation must not succeed with other bytes than those that were sent.
 *
 * The owner forks the copier, and stops it at random moments. The memory goes as one piece, or as many, between which
 * the copier has no reason to look for other news. A case ends after enough stops in the midst of a copy. */
#include "cases.h"

#include <rdma/fi_rma.h>
#include <sys/mman.h>

enum { BYTES = 64 << 20, WORDS = BYTES / 8, PIECES_MAX = 256, KEY = 9, DEADLINE_MS = 500, MIDST_MIN = 4 };

enum kind { MESSAGE, WRITE, READ };

/* What the owner says of a round. Its number is 0 if it is none, but the end. */
struct round {
    uint64_t number;
    size_t pieces;
};

/* What the copier says of it. */
struct outcome {
    bool succeeded[PIECES_MAX];
    size_t successes;
    uint64_t right_words, ended_ns;
};

struct copier {
    struct node node;
    fi_addr_t owner;
    enum kind kind;
    int fd;
    uint64_t *place;
    struct op ops[PIECES_MAX], end;
    struct outcome outcome;
};

struct owner {
    struct node node;
    fi_addr_t copier;
    enum kind kind;
    pid_t pid;
    int fd;
    struct round round;
    uint64_t random, whole_ns;
    uint64_t *memory;
    struct fid_mr *region;
    struct op ops[PIECES_MAX];
};

/* The word of which the memory is full in a round. */
static uint64_t word_of(uint64_t round)
{
    return round * 0x9e3779b97f4a7c15u | 1;
}

static const uint64_t CHANGED = 0xeeeeeeeeeeeeeeeeu;

static uint64_t *map_memory(void)
{
    void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check(at != MAP_FAILED, "mmap: %s", strerror(errno));
    return at;
}

static void fill(uint64_t *memory, uint64_t word)
{
    for (size_t i = 0; i < WORDS; i++)
        memory[i] = word;
}

static uint64_t count(const uint64_t *memory, size_t words, uint64_t word)
{
    uint64_t found = 0;
    for (size_t i = 0; i < words; i++)
        found += memory[i] == word;
    return found;
}

static void open_node(struct node *node)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1", .caps = FI_RMA};
    options.queue_size = PIECES_MAX + 1;
    node_open(node, &options);
}

static struct fid_mr *expose(struct node *node, uint64_t *memory, uint64_t access)
{
    struct fid_mr *mr;
    must(fi_mr_reg(node->domain, memory, BYTES, access, 0, KEY, 0, &mr, NULL), "fi_mr_reg");
    return mr;
}

/* The tag of a piece's message; behind the last, of the round's end. No other round has it. */
static uint64_t tag_of(const struct round *round, size_t piece)
{
    return round->number * (PIECES_MAX + 1) + piece;
}

static void copier_step(struct copier *me, const struct round *round)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    if (node_poll(&me->node, &op, &entry, NULL) == 1 && entry.flags & FI_REMOTE_CQ_DATA) {
        size_t piece = entry.data - tag_of(round, 0);
        check(piece < round->pieces && me->ops[piece].state == 0, "a write of another round, or a second time");
        op = &me->ops[piece];
        op->state = 1;
    }
    if (op && op->state == 1 && op != &me->end) {
        me->outcome.successes++;
        me->outcome.ended_ns = now_ns();
    }
}

static void copier_wait(struct copier *me, const struct round *round, const struct op *op)
{
    while (op->state == 0)
        copier_step(me, round);
}

/* Copies until the owner has ended the round, and until nothing is left to wait for. */
static void copy(struct copier *me, const struct round *round)
{
    size_t bytes = BYTES / round->pieces, words = bytes / 8;
    struct fid_ep *ep = me->node.ep;
    uint64_t word;
    memset(me->ops, 0, sizeof me->ops);
    memset(&me->outcome, 0, sizeof me->outcome);
    me->end.state = 0;
    fill(me->place, 0);
    must(fi_trecv(ep, NULL, 0, NULL, FI_ADDR_UNSPEC, tag_of(round, round->pieces), 0, &me->end), "fi_trecv");
    for (size_t i = 0; i < round->pieces && me->kind == MESSAGE; i++)
        must(fi_trecv(ep, me->place + i * words, bytes, NULL, FI_ADDR_UNSPEC, tag_of(round, i), 0, &me->ops[i]), "fi_trecv");
    oob_send(me->fd, &round->number, sizeof round->number);
    for (size_t i = 0; i < round->pieces && me->kind == READ; i++) {
        ssize_t rc;
        while ((rc = fi_read(ep, me->place + i * words, bytes, NULL, me->owner, i * bytes, KEY, &me->ops[i])) == -FI_EAGAIN)
            copier_step(me, round);
        must(rc, "fi_read");
    }
    /* All is announced by then. */
    oob_recv(me->fd, &word, sizeof word, NULL);
    copier_wait(me, round, &me->end);
    must(me->end.state, "the end of a round");
    for (size_t i = 0; i < round->pieces; i++) {
        uint64_t right;
        /* What has ended meanwhile cannot be cancelled. */
        if (me->kind == MESSAGE && me->ops[i].state == 0)
            fi_cancel(&ep->fid, &me->ops[i]);
        if (me->kind != WRITE)
            copier_wait(me, round, &me->ops[i]);
        right = count(me->place + i * words, words, word_of(round->number));
        me->outcome.succeeded[i] = me->ops[i].state == 1;
        me->outcome.right_words += right;
        check(!me->outcome.succeeded[i] || right == words, "piece %zu of %zu has %llu words of %zu, and success", i,
              round->pieces, (unsigned long long)right, words);
    }
}

static void be_copier(int fd, enum kind kind)
{
    static struct copier me;
    struct fid_mr *mr = NULL;
    struct round round;
    me.kind = kind;
    me.fd = fd;
    me.place = map_memory();
    open_node(&me.node);
    if (kind == WRITE)
        mr = expose(&me.node, me.place, FI_REMOTE_WRITE);
    me.owner = node_meet(&me.node, fd);
    for (;;) {
        oob_recv(fd, &round, sizeof round, &me.node);
        if (round.number == 0)
            break;
        copy(&me, &round);
        oob_send(fd, &me.outcome, sizeof me.outcome);
    }
    if (mr)
        must(fi_close(&mr->fid), "fi_close of a registration");
    node_close(&me.node);
}

static uint64_t below(struct owner *me, uint64_t end)
{
    me->random ^= me->random << 13;
    me->random ^= me->random >> 7;
    me->random ^= me->random << 17;
    return me->random % (end + 1);
}

static void owner_step(struct owner *me)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    node_poll(&me->node, &op, &entry, NULL);
}

static void step_until_ns(struct owner *me, uint64_t end)
{
    while (now_ns() < end)
        owner_step(me);
}

/* Starts the operations of a round, if they are the owner's. */
static void start(struct owner *me)
{
    size_t bytes = BYTES / me->round.pieces;
    memset(me->ops, 0, sizeof me->ops);
    for (size_t i = 0; i < me->round.pieces && me->kind != READ; i++) {
        void *from = (uint8_t *)me->memory + i * bytes;
        uint64_t tag = tag_of(&me->round, i);
        ssize_t rc = -FI_EAGAIN;
        while (rc == -FI_EAGAIN) {
            owner_step(me);
            if (me->kind == MESSAGE)
                rc = fi_tsend(me->node.ep, from, bytes, NULL, me->copier, tag, &me->ops[i]);
            else
                rc = fi_writedata(me->node.ep, from, bytes, NULL, tag, me->copier, i * bytes, KEY, &me->ops[i]);
        }
        must(rc, "an operation");
    }
}

/* Waits for the ends of the owner's operations: the other side has copied, or has been silent for too long. */
static void wait_for_ends(struct owner *me)
{
    for (size_t i = 0; i < me->round.pieces && me->kind != READ; i++)
        while (me->ops[i].state == 0)
            owner_step(me);
}

/* Stops the copier after a random time, takes the memory back, and lets the copier go on. */
static void stop_copier(struct owner *me, bool unmaps)
{
    int status;
    step_until_ns(me, now_ns() + below(me, me->whole_ns));
    kill(me->pid, SIGSTOP);
    check(waitpid(me->pid, &status, WUNTRACED) == me->pid && WIFSTOPPED(status), "the copier has ended");
    wait_for_ends(me);
    if (me->kind == READ) {
        /* After the time in which other operations end, or at once. */
        if (below(me, 3) == 0)
            step_until_ns(me, now_ns() + 2u * DEADLINE_MS * slowness() * 1000000u);
        must(fi_close(&me->region->fid), "fi_close of a registration");
    }
    if (unmaps)
        check(munmap(me->memory, BYTES) == 0, "munmap: %s", strerror(errno));
    else
        fill(me->memory, CHANGED);
    kill(me->pid, SIGCONT);
}

/* Tells the copier that nothing more comes in this round. The session may be a new one. */
static void end_round(struct owner *me)
{
    uint64_t tag = tag_of(&me->round, me->round.pieces);
    struct op op = {0};
    do {
        ssize_t rc;
        op.state = 0;
        while ((rc = fi_tsend(me->node.ep, NULL, 0, NULL, me->copier, tag, &op)) == -FI_EAGAIN)
            owner_step(me);
        must(rc, "fi_tsend");
        while (op.state == 0)
            owner_step(me);
    } while (op.state < 0);
}

/* A round. Answers whether the copier was stopped in the midst of its copies. */
static bool run_round(struct owner *me, size_t pieces, bool stops)
{
    bool unmaps = stops && below(me, 1);
    struct outcome outcome;
    uint64_t begun, word;
    me->round.number++;
    me->round.pieces = pieces;
    fill(me->memory, word_of(me->round.number));
    if (me->kind == READ)
        me->region = expose(&me->node, me->memory, FI_REMOTE_READ);
    oob_send(me->fd, &me->round, sizeof me->round);
    oob_recv(me->fd, &word, sizeof word, &me->node);
    start(me);
    /* The other side's reads are answered. */
    step_until_ns(me, now_ns() + 10000000);
    begun = now_ns();
    oob_send(me->fd, &word, sizeof word);
    if (stops)
        stop_copier(me, unmaps);
    wait_for_ends(me);
    end_round(me);
    oob_recv(me->fd, &outcome, sizeof outcome, &me->node);
    for (size_t i = 0; i < pieces; i++)
        check(me->ops[i].state != 1 || outcome.succeeded[i], "piece %zu of %zu succeeded at the owner alone", i, pieces);
    if (!stops) {
        check(outcome.successes == pieces, "%zu of %zu pieces succeeded", outcome.successes, pieces);
        me->whole_ns = outcome.ended_ns - begun;
        if (me->kind == READ)
            must(fi_close(&me->region->fid), "fi_close of a registration");
    } else if (unmaps) {
        me->memory = map_memory();
    } else {
        check(count(me->memory, WORDS, CHANGED) == WORDS, "somebody wrote into the owner's memory");
    }
    return outcome.successes < pieces && outcome.right_words > 0;
}

static void stop_in_the_midst(enum kind kind)
{
    static const size_t PIECES[] = {1, PIECES_MAX};
    static struct owner me;
    unsigned midst = 0, stops = 0;
    char deadline[16];
    snprintf(deadline, sizeof deadline, "%u", DEADLINE_MS * slowness());
    setenv("FI_ERD_PEER_TIMEOUT_MS", deadline, 1);
    me.kind = kind;
    me.random = now_ns() | 1;
    me.pid = fork_side(&me.fd);
    if (me.pid == 0) {
        be_copier(me.fd, kind);
        _exit(0);
    }
    me.memory = map_memory();
    open_node(&me.node);
    me.copier = node_meet(&me.node, me.fd);
    /* The session begins in it. */
    run_round(&me, 1, false);
    for (size_t i = 0; i < COUNT_OF(PIECES); i++) {
        /* That takes as long as others do. */
        run_round(&me, PIECES[i], false);
        for (; midst < MIDST_MIN * (i + 1); stops++)
            midst += run_round(&me, PIECES[i], true);
    }
    run_round(&me, 1, false);
    me.round.number = 0;
    oob_send(me.fd, &me.round, sizeof me.round);
    node_close(&me.node);
    check(end_of(me.pid) == 0, "the copier failed");
    printf("  %u of %u stops in the midst of a copy\n", midst, stops);
}

static void stopped_in_a_message(void)
{
    stop_in_the_midst(MESSAGE);
}

static void stopped_in_a_write(void)
{
    stop_in_the_midst(WRITE);
}

static void stopped_in_a_read(void)
{
    stop_in_the_midst(READ);
}

static const struct test_case TESTS[] = {
    {"stopped_in_a_message", stopped_in_a_message, 100},
    {"stopped_in_a_write", stopped_in_a_write, 100},
    {"stopped_in_a_read", stopped_in_a_read, 100},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
