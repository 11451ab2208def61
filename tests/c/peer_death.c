/* A peer dies under traffic: killed, stopped, cut off, or killed and started again at its address.
 * Every operation that owed an answer ends with an error, traffic to another peer goes on, and
 * nothing of the old session reaches a new process.
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

/* Messages start with the generation of the victim that they are meant for. */
struct sink {
    struct node node;
    uint8_t *buffers[WINDOW];
    struct op recvs[WINDOW];
    uint64_t received;
};

static void sink_post(struct sink *sink, int slot)
{
    sink->recvs[slot].state = 0;
    must(fi_trecv(sink->node.ep, sink->buffers[slot], LARGE, NULL, FI_ADDR_UNSPEC, TAG, 0, &sink->recvs[slot]),
         "fi_trecv");
}

/* Receives until it is killed. Every message must be of this generation. */
static void be_sink(int fd, const char *address, const char *service, uint64_t generation)
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
        check(memcmp(sink.buffers[slot], &generation, sizeof generation) == 0,
              "a message for another process reached generation %llu", (unsigned long long)generation);
        sink_post(&sink, slot);
    }
}

/* One stream of messages of the observer. */
struct stream {
    fi_addr_t to;
    struct op ops[WINDOW];
    uint8_t *bytes;
    uint64_t sent, ended_well, ended_badly;
    bool stopped;
};

struct observer {
    struct node node;
    struct stream victim, bystander;
    struct op silent[2];
    uint8_t unused[2][SMALL];
};

static void stream_start(struct stream *stream, fi_addr_t to, uint64_t generation)
{
    memset(stream, 0, sizeof *stream);
    stream->to = to;
    stream->bytes = calloc(1, LARGE);
    check(stream->bytes != NULL, "no memory");
    memcpy(stream->bytes, &generation, sizeof generation);
    for (int slot = 0; slot < WINDOW; slot++)
        stream->ops[slot].state = 1;
}

/* Fills the stream's window. */
static void stream_push(struct observer *me, struct stream *stream)
{
    for (int slot = 0; slot < WINDOW && !stream->stopped; slot++) {
        size_t length = stream->sent % 3 == 0 ? LARGE : SMALL;
        ssize_t rc;
        if (stream->ops[slot].state == 0)
            continue;
        stream->ops[slot].state = 0;
        rc = fi_tsend(me->node.ep, stream->bytes, length, NULL, stream->to, TAG, &stream->ops[slot]);
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
        *(rc == 1 ? &me->victim.ended_well : &me->victim.ended_badly) += 1;
        me->victim.stopped |= rc < 0;
    } else {
        check(rc < 0, "a receive of what nobody sent has succeeded");
    }
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
    uint64_t start, word = 1;
    node_open(&me.node, &options);
    oob_recv(fd, &names, sizeof names, &me.node);
    stream_start(&me.victim, node_insert(&me.node, names.victim), 1);
    stream_start(&me.bystander, node_insert(&me.node, names.bystander), 0);
    run_until(&me, &me.victim.ended_well, WARM_UP);
    for (int i = 0; i < 2; i++)
        must(fi_trecv(me.node.ep, me.unused[i], SMALL, NULL, me.victim.to, SILENT_TAG, 0, &me.silent[i]),
             "a directed receive");
    oob_send(fd, &word, sizeof word);
    start = now_ns();
    while (me.victim.ended_badly == 0 || outstanding(&me.victim) || !me.silent[0].state || !me.silent[1].state)
        observer_step(&me);
    printf("  %llu sends failed, the last after %llu ms\n", (unsigned long long)me.victim.ended_badly,
           (unsigned long long)((now_ns() - start) / 1000000));
    run_until(&me, &me.bystander.ended_well, me.bystander.ended_well + AFTER);
    if (again) {
        oob_recv(fd, &word, sizeof word, NULL);
        stream_start(&me.victim, me.victim.to, 2);
        run_until(&me, &me.victim.ended_well, AFTER);
        check(me.victim.ended_badly == 0, "%llu sends to the new process failed",
              (unsigned long long)me.victim.ended_badly);
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
    be_sink(fd, place->victim_address, place->victim_service, 1);
}

static void run_successor(int fd, const struct place *place)
{
    be_sink(fd, place->victim_address, place->victim_service, 2);
}

static void run_bystander(int fd, const struct place *place)
{
    be_sink(fd, place->others_address, NULL, 0);
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
