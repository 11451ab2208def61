/* A peer is stopped for longer than the deadline, as by a debugger or a frozen container. While the file of
 * FI_ERD_PAUSE_FILE exists its sessions go on, and what is under way arrives once the peer runs again. Without the file it
 * counts as dead. */
#include "cases.h"

enum { TAG = 9, WINDOW = 4, LENGTH = 256 << 10, DEADLINE_MS = 600 };

static char pause_file[64];

/* Receives until it is killed. */
static void be_receiver(int fd)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    struct fi_cq_tagged_entry entry;
    static struct node node;
    static uint8_t bytes[LENGTH];
    struct op op, *ended;
    node_open(&node, &options);
    node_meet(&node, fd);
    for (uint64_t count = 0;; count++) {
        op.state = 0;
        must(fi_trecv(node.ep, bytes, LENGTH, NULL, FI_ADDR_UNSPEC, TAG, 0, &op), "fi_trecv");
        while (op.state == 0)
            node_poll(&node, &ended, &entry, NULL);
        check(op.state == 1, "a receive ended with %d", op.state);
        pattern_check(bytes, LENGTH, count);
    }
}

struct sender {
    struct node node;
    fi_addr_t to;
    uint64_t sent;
    struct op ops[WINDOW];
    uint8_t bytes[WINDOW][LENGTH];
};

static void post_all(struct sender *me)
{
    for (int i = 0; i < WINDOW; i++) {
        struct op *op = &me->ops[i];
        pattern_fill(me->bytes[i], LENGTH, me->sent++);
        op->state = 0;
        must(fi_tsend(me->node.ep, me->bytes[i], LENGTH, NULL, me->to, TAG, op), "fi_tsend");
    }
}

/* Polls for this time, or until all sends have ended; answers how many have failed. */
static int poll_for_ms(struct sender *me, uint64_t ms)
{
    uint64_t end = now_ns() + ms * 1000000;
    int pending, failed;
    do {
        struct fi_cq_tagged_entry entry;
        struct op *ended;
        node_poll(&me->node, &ended, &entry, NULL);
        pending = failed = 0;
        for (int i = 0; i < WINDOW; i++) {
            pending += me->ops[i].state == 0;
            failed += me->ops[i].state < 0;
        }
    } while (pending && now_ns() < end);
    return failed;
}

static bool all_arrived(struct sender *me)
{
    for (int i = 0; i < WINDOW; i++)
        if (me->ops[i].state != 1)
            return false;
    return true;
}

static void make_file(void)
{
    int fd = open(pause_file, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    check(fd >= 0, "%s: %s", pause_file, strerror(errno));
    close(fd);
}

static pid_t begin(struct sender *me)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    char text[16];
    int fd;
    pid_t peer;
    snprintf(text, sizeof text, "%d", DEADLINE_MS);
    snprintf(pause_file, sizeof pause_file, "/tmp/erd-paused-peer-%d", (int)getpid());
    setenv("FI_ERD_PEER_TIMEOUT_MS", text, 1);
    setenv("FI_ERD_PAUSE_FILE", pause_file, 1);
    peer = fork_side(&fd);
    if (peer == 0)
        be_receiver(fd);
    node_open(&me->node, &options);
    me->to = node_meet(&me->node, fd);
    post_all(me);
    poll_for_ms(me, 20000);
    check(all_arrived(me), "the first messages did not arrive");
    check(kill(peer, SIGSTOP) == 0 && waitpid(peer, NULL, WUNTRACED) == peer, "the peer is stopped");
    return peer;
}

static void waited_for(bool stays)
{
    static struct sender me;
    pid_t peer = begin(&me);
    make_file();
    post_all(&me);
    check(poll_for_ms(&me, 5 * DEADLINE_MS) == 0, "a send failed though the deadline is paused");
    check(!all_arrived(&me), "nobody was there to receive");
    kill(peer, SIGCONT);
    if (!stays)
        unlink(pause_file);
    check(poll_for_ms(&me, 20000) == 0 && all_arrived(&me), "the messages did not arrive after the pause");
    post_all(&me);
    check(poll_for_ms(&me, 20000) == 0 && all_arrived(&me), "messages after the pause did not arrive");
    unlink(pause_file);
    node_close(&me.node);
}

static void a_stopped_peer_is_waited_for(void)
{
    waited_for(true);
}

static void the_pause_ends_with_the_file(void)
{
    waited_for(false);
}

static void without_the_file_a_stopped_peer_counts_as_dead(void)
{
    static struct sender me;
    pid_t peer = begin(&me);
    post_all(&me);
    check(poll_for_ms(&me, 20000) == WINDOW, "sends to a stopped peer ended well, or not at all");
    check(me.ops[0].state == -FI_ETIMEDOUT, "a send failed with %d", me.ops[0].state);
    kill(peer, SIGKILL);
    node_close(&me.node);
}

/* The file comes, and goes again while the peer stands still. */
static void after_the_pause_a_stopped_peer_counts_as_dead(void)
{
    static struct sender me;
    pid_t peer = begin(&me);
    make_file();
    post_all(&me);
    check(poll_for_ms(&me, 3 * DEADLINE_MS) == 0, "a send failed though the deadline is paused");
    unlink(pause_file);
    check(poll_for_ms(&me, 20000) == WINDOW, "sends to a stopped peer ended well, or not at all");
    kill(peer, SIGKILL);
    node_close(&me.node);
}

static const struct test_case TESTS[] = {
    {"a_stopped_peer_is_waited_for", a_stopped_peer_is_waited_for, 60},
    {"the_pause_ends_with_the_file", the_pause_ends_with_the_file, 60},
    {"without_the_file_a_stopped_peer_counts_as_dead", without_the_file_a_stopped_peer_counts_as_dead, 60},
    {"after_the_pause_a_stopped_peer_counts_as_dead", after_the_pause_a_stopped_peer_counts_as_dead, 60},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
