/* A peer dies under traffic: killed, stopped, cut off, or killed and started again at its address.
 * Every operation that owed an answer ends with an error, traffic to another peer goes on, and
 * no message whose send failed reaches a new process.
 *
 * A controller forks three processes: the observer sends to the victim and to a bystander. */
#include "cases.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>

enum { WINDOW = 8, SMALL = 64, LARGE = 256 << 10, WARM_UP = 100, AFTER = 100, TAG = 5, SILENT_TAG = 6 };
enum { DEADLINE_MS = 1500 };

struct role {
    pid_t pid;
    int fd;
};

struct letter {
    uint8_t victim[NAME_BYTES], bystander[NAME_BYTES];
};

/* Where victim and others bind. */
struct place {
    const char *victim_address, *others_address, *victim_service;
    bool own_namespace;
};

enum { TO_BYSTANDER, TO_VICTIM };

/* What a message begins with. Serial numbers begin with 1. Once sends have failed, later messages tell which. */
struct head {
    uint32_t stream, serial, failed[WINDOW];
};

struct sink {
    struct node node;
    uint8_t *buffers[WINDOW];
    struct op recvs[WINDOW];
    /* Serial numbers: of the last messages that came before any told of failures, and of the sends that failed. */
    uint32_t early[WINDOW], failed[WINDOW];
    uint64_t received;
};

static void sink_post(struct sink *sink, int slot)
{
    sink->recvs[slot].state = 0;
    must(fi_trecv(sink->node.ep, sink->buffers[slot], LARGE, NULL, FI_ADDR_UNSPEC, TAG, 0, &sink->recvs[slot]),
         "fi_trecv");
}

/* Takes a message, which must be of this stream. What the observer posts after the death, and before it has read of it, may
 * reach the successor; but then the send does not fail. */
static void sink_take(struct sink *sink, const uint8_t *message, uint32_t stream)
{
    struct head head;
    memcpy(&head, message, sizeof head);
    check(head.stream == stream, "a message of stream %u has reached stream %u", head.stream, stream);
    if (head.failed[0])
        memcpy(sink->failed, head.failed, sizeof head.failed);
    else
        sink->early[sink->received++ % WINDOW] = head.serial;
    for (int at = 0; at < WINDOW * WINDOW; at++) {
        uint32_t failed = sink->failed[at / WINDOW];
        check(failed == 0 || failed != sink->early[at % WINDOW], "message %u, whose send failed, has reached a new process",
              failed);
    }
}

/* Receives until it is killed. */
static void be_sink(int fd, const char *address, const char *service, uint32_t stream)
{
    struct node_options options = {.provider = provider, .address = address, .service = service};
    struct fi_cq_tagged_entry entry;
    static struct sink sink;
    struct op *op;
    node_open(&sink.node, &options);
    for (int slot = 0; slot < WINDOW; slot++) {
        sink.buffers[slot] = malloc(LARGE);
        check(sink.buffers[slot] != NULL, "no memory");
        sink_post(&sink, slot);
    }
    oob_send(fd, sink.node.name, NAME_BYTES);
    for (;;) {
        int slot;
        if (node_poll(&sink.node, &op, &entry, NULL) != 1)
            continue;
        slot = (int)(op - sink.recvs);
        sink_take(&sink, sink.buffers[slot], stream);
        sink_post(&sink, slot);
    }
}

/* One stream of messages of the observer. */
struct stream {
    fi_addr_t to;
    struct op ops[WINDOW];
    uint8_t *bytes[WINDOW];
    uint64_t sent, ended_well, ended_badly;
    uint32_t failed[WINDOW]; /* serial numbers */
    bool stopped;
};

struct observer {
    struct node node;
    struct stream victim, bystander;
    struct op silent[2];
    uint8_t unused[2][SMALL];
    bool again; /* the victim has a successor */
};

static void stream_start(struct stream *stream, fi_addr_t to, uint32_t number)
{
    memset(stream, 0, sizeof *stream);
    stream->to = to;
    for (int slot = 0; slot < WINDOW; slot++) {
        stream->bytes[slot] = calloc(1, LARGE);
        check(stream->bytes[slot] != NULL, "no memory");
        memcpy(stream->bytes[slot], &number, sizeof number);
        stream->ops[slot].state = 1;
    }
}

/* Goes on after sends have failed, and tells of them. */
static void stream_go_on(struct stream *stream)
{
    stream->stopped = false;
    for (int slot = 0; slot < WINDOW; slot++)
        memcpy(stream->bytes[slot] + offsetof(struct head, failed), stream->failed, sizeof stream->failed);
}

/* Fills the stream's window. */
static void stream_push(struct observer *me, struct stream *stream)
{
    for (int slot = 0; slot < WINDOW && !stream->stopped; slot++) {
        size_t length = stream->sent % 3 == 0 ? LARGE : SMALL;
        uint32_t serial;
        ssize_t rc;
        if (stream->ops[slot].state == 0)
            continue;
        stream->ops[slot].state = 0;
        serial = (uint32_t)stream->sent + 1;
        memcpy(stream->bytes[slot] + offsetof(struct head, serial), &serial, sizeof serial);
        rc = fi_tsend(me->node.ep, stream->bytes[slot], length, NULL, stream->to, TAG, &stream->ops[slot]);
        if (rc == -FI_EAGAIN) {
            stream->ops[slot].state = 1;
            return;
        }
        must(rc, "fi_tsend");
        stream->sent++;
    }
}

static uint64_t outstanding(const struct stream *stream)
{
    return stream->sent - stream->ended_well - stream->ended_badly;
}

static bool holds(const struct stream *stream, const struct op *op)
{
    return op >= stream->ops && op < stream->ops + WINDOW;
}

static void stream_end(struct stream *stream, int slot, int rc)
{
    if (rc == 1) {
        stream->ended_well++;
        return;
    }
    check(stream->ended_badly < WINDOW, "more sends failed than were outstanding");
    memcpy(&stream->failed[stream->ended_badly++], stream->bytes[slot] + offsetof(struct head, serial),
           sizeof *stream->failed);
    stream->stopped = true;
}

static void observer_step(struct observer *me)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    int rc;
    stream_push(me, &me->victim);
    stream_push(me, &me->bystander);
    rc = node_poll(&me->node, &op, &entry, NULL);
    if (rc == 0 || !op)
        return;
    if (holds(&me->bystander, op)) {
        must(rc, "a send to the bystander");
        me->bystander.ended_well++;
    } else if (holds(&me->victim, op)) {
        stream_end(&me->victim, (int)(op - me->victim.ops), rc);
    } else {
        check(rc < 0, "a receive of what nobody sent has succeeded");
        me->victim.stopped |= me->again;
    }
}

/* True if all that the victim owed has ended. Sends complete once their bytes are copied, so there may have been none that
 * could fail. Without a successor the next one does. */
static bool saw_the_end(const struct observer *me)
{
    bool failed = me->victim.ended_badly > 0 || me->again;
    return failed && outstanding(&me->victim) == 0 && me->silent[0].state && me->silent[1].state;
}

static void run_until(struct observer *me, const uint64_t *count, uint64_t target)
{
    while (*count < target)
        observer_step(me);
}

/* Observes the victim's end, and with `again` sends to its successor. */
static void be_observer(int fd, const char *address, bool again)
{
    struct node_options options = {.provider = provider, .address = address, .caps = FI_DIRECTED_RECV};
    static struct observer me;
    struct letter names;
    uint64_t start, failed, word = 1;
    me.again = again;
    node_open(&me.node, &options);
    oob_recv(fd, &names, sizeof names, &me.node);
    stream_start(&me.victim, node_insert(&me.node, names.victim), TO_VICTIM);
    stream_start(&me.bystander, node_insert(&me.node, names.bystander), TO_BYSTANDER);
    run_until(&me, &me.victim.ended_well, WARM_UP);
    for (int i = 0; i < 2; i++)
        must(fi_trecv(me.node.ep, me.unused[i], SMALL, NULL, me.victim.to, SILENT_TAG, 0, &me.silent[i]),
             "a directed receive");
    oob_send(fd, &word, sizeof word);
    start = now_ns();
    while (!saw_the_end(&me))
        observer_step(&me);
    printf("  %llu sends failed, the last after %llu ms\n", (unsigned long long)me.victim.ended_badly,
           (unsigned long long)((now_ns() - start) / 1000000));
    run_until(&me, &me.bystander.ended_well, me.bystander.ended_well + AFTER);
    if (again) {
        oob_recv(fd, &word, sizeof word, NULL);
        failed = me.victim.ended_badly;
        stream_go_on(&me.victim);
        run_until(&me, &me.victim.ended_well, me.victim.ended_well + AFTER);
        check(me.victim.ended_badly == failed, "%llu sends to the new process failed",
              (unsigned long long)(me.victim.ended_badly - failed));
    }
    fflush(stdout);
    /* Its counters tell what carried all this. */
    node_close(&me.node);
}

static struct role begin(void (*run)(int, const struct place *), const struct place *place)
{
    struct role role;
    role.pid = fork_side(&role.fd);
    if (role.pid == 0) {
        run(role.fd, place);
        _exit(0);
    }
    return role;
}

static void shell(const char *format, ...)
{
    char command[512];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    check(system(command) == 0, "%s", command);
}

static void run_victim(int fd, const struct place *place)
{
    uint64_t word = 1;
    if (place->own_namespace) {
        check(unshare(CLONE_NEWNET) == 0, "unshare: %s", strerror(errno));
        oob_send(fd, &word, sizeof word);
        oob_recv(fd, &word, sizeof word, NULL);
        shell("ip link set lo up && ip addr add %s/24 dev erd1 && ip link set erd1 up", place->victim_address);
        /* The carrier comes a moment later. */
        shell("for i in $(seq 100); do ip link show erd1 | grep -q LOWER_UP && exit; sleep 0.05; done; exit 1");
    }
    be_sink(fd, place->victim_address, place->victim_service, TO_VICTIM);
}

static void run_successor(int fd, const struct place *place)
{
    be_sink(fd, place->victim_address, place->victim_service, TO_VICTIM);
}

static void run_bystander(int fd, const struct place *place)
{
    be_sink(fd, place->others_address, NULL, TO_BYSTANDER);
}

static void run_observer(int fd, const struct place *place)
{
    be_observer(fd, place->others_address, false);
}

static void run_observer_again(int fd, const struct place *place)
{
    be_observer(fd, place->others_address, true);
}

/* Joins the victim's namespace to ours with a pair of virtual interfaces. */
static void lay_link(struct role *victim, const struct place *place)
{
    uint64_t word = 1;
    oob_recv(victim->fd, &word, sizeof word, NULL);
    shell("ip link set lo up && ip link add erd0 type veth peer name erd1 netns %d", (int)victim->pid);
    shell("ip addr add %s/24 dev erd0 && ip link set erd0 up", place->others_address);
    oob_send(victim->fd, &word, sizeof word);
}

static void expect_success(struct role *role, const char *who)
{
    int status = 0;
    check(waitpid(role->pid, &status, 0) == role->pid, "waitpid: %s", strerror(errno));
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the %s failed", who);
}

static void still_runs(struct role *role, const char *who)
{
    int status = 0;
    check(waitpid(role->pid, &status, WNOHANG) == 0, "the %s has ended", who);
    kill(role->pid, SIGKILL);
}

static void die_under_traffic(const struct place *place, const char *how)
{
    bool again = strcmp(how, "restart") == 0;
    struct role victim, bystander, observer, successor = {0};
    struct letter names;
    uint64_t word;
    uint8_t name[NAME_BYTES];
    char deadline[16];
    snprintf(deadline, sizeof deadline, "%u", DEADLINE_MS * slowness());
    setenv("FI_ERD_PEER_TIMEOUT_MS", deadline, 1);
    victim = begin(run_victim, place);
    if (place->own_namespace)
        lay_link(&victim, place);
    oob_recv(victim.fd, names.victim, NAME_BYTES, NULL);
    bystander = begin(run_bystander, place);
    observer = begin(again ? run_observer_again : run_observer, place);
    oob_recv(bystander.fd, names.bystander, NAME_BYTES, NULL);
    oob_send(observer.fd, &names, sizeof names);
    oob_recv(observer.fd, &word, sizeof word, NULL);
    if (strcmp(how, "cut") == 0) {
        shell("nsenter -t %d -n ip link set erd1 down", (int)victim.pid);
    } else if (strcmp(how, "stop") == 0) {
        kill(victim.pid, SIGSTOP);
    } else {
        kill(victim.pid, SIGKILL);
        waitpid(victim.pid, NULL, 0);
    }
    if (again) {
        successor = begin(run_successor, place);
        oob_recv(successor.fd, name, NAME_BYTES, NULL);
        oob_send(observer.fd, &word, sizeof word);
    }
    expect_success(&observer, "observer");
    still_runs(&bystander, "bystander");
    if (again)
        still_runs(&successor, "successor");
    kill(victim.pid, SIGKILL);
}

static const struct place LOOPBACK = {"127.0.0.1", "127.0.0.1", NULL, false};

static void killed(void)
{
    die_under_traffic(&LOOPBACK, "kill");
}

static void stopped(void)
{
    die_under_traffic(&LOOPBACK, "stop");
}

static void cut_off(void)
{
    const struct place place = {"10.77.0.2", "10.77.0.1", NULL, true};
    unsetenv("FI_ERD_IFACE");
    unsetenv("FI_TCP_IFACE");
    die_under_traffic(&place, "cut");
}

static void restarted(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct place place = LOOPBACK;
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    char port[8];
    check(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
              getsockname(fd, (struct sockaddr *)&address, &bytes) == 0,
          "no UDP port: %s", strerror(errno));
    close(fd);
    snprintf(port, sizeof port, "%u", ntohs(address.sin_port));
    place.victim_service = port;
    die_under_traffic(&place, "restart");
}

static const struct test_case TESTS[] = {
    {"killed", killed, 30},
    {"stopped", stopped, 30},
    {"restarted", restarted, 30},
    {"cut_off", cut_off, 30}, /* wants to be root of its own network namespace */
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
