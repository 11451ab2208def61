/* A stream of messages from one network namespace to another, with every byte checked, while a
 * schedule of commands changes the network under it.
 *
 *     multipath [-p PROVIDER] -a NETNS -b NETNS [-m BYTES] [-w COUNT] [-g SECONDS] -t SECONDS[:COMMAND]...
 *
 * Each -t is a time since the first message arrived. At it the COMMAND is run by the shell, and a line of
 * JSON says what arrived since the one before: milliseconds, bytes, the longest time without a message, KiB
 * sent on each path, and for how long the machine let this program wait for a processor, in one go for more
 * than a millisecond. After the last the stream ends; what was sent must then arrive within the
 * grace (-g). Messages are of BYTES, COUNT of them outstanding. */
#include "node.h"

#include <rdma/fi_ext_erd.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum {
    EVENTS_MAX = 32,
    SLOTS_MAX = 256,
    PATHS_MAX = 256,
    TAG = 0x6d70,
    START_LIMIT_MS = 20000,
    LOOK_EVERY_NS = 2000000,
    NAP_NS = 2000000,
    LATE_NS = 1000000,
};

struct event {
    double seconds;
    const char *command;
};

static struct {
    const char *provider;
    const char *netns[2];
    size_t bytes, slots;
    struct event events[EVENTS_MAX];
    size_t events_count;
    double grace_seconds;
} options = {.provider = "erd", .bytes = 256 << 10, .slots = 16, .grace_seconds = 30};

/* What the three processes share. Each field has one writer. */
static struct shared {
    _Atomic uint64_t sent_messages; /* posted; final once `ended` */
    _Atomic uint64_t received_messages;
    _Atomic uint64_t longest_wait_ns; /* of the receiver for a message; the watcher sets it back to 0 */
    _Atomic uint64_t path_kib[PATHS_MAX];
    _Atomic uint64_t paths;
    _Atomic uint64_t window_bytes, rtt_ns, base_rtt_ns, typical_rtt_ns, target_ns, rtx; /* of the sender's flow */
    _Atomic bool stop;  /* the watcher asks the sender to end */
    _Atomic bool ended; /* the sender posts nothing more */
} *shared;

/* Word `index` of message `seed`. */
static inline uint64_t pattern_word(uint64_t seed, size_t index)
{
    return (seed + 1) * 0x9e3779b97f4a7c15u ^ index * 0xbf58476d1ce4e5b9u;
}

static void words_fill(uint64_t *words, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        words[i] = pattern_word(seed, i);
}

static void words_check(const uint64_t *words, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        check(words[i] == pattern_word(seed, i), "message %llu differs at byte %zu", (unsigned long long)seed, i * 8);
}

static void enter(const char *netns)
{
    char path[256];
    int fd;
    snprintf(path, sizeof path, "/run/netns/%s", netns);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    check(fd >= 0, "%s: %s", path, strerror(errno));
    check(setns(fd, CLONE_NEWNET) == 0, "entering %s: %s", netns, strerror(errno));
    close(fd);
}

/* Sleeps until a completion is there; answers its op, or NULL after `ms` without one. */
static struct op *node_sleep(struct node *node, int ms)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    ssize_t got = fi_cq_sread(node->cq, &entry, 1, NULL, ms);
    if (got == 1)
        return entry.op_context;
    if (got == -FI_EAGAIN || got == -FI_EINTR)
        return NULL;
    check(got == -FI_EAVAIL, "fi_cq_sread: %s", fi_strerror((int)-got));
    must(node_poll(node, &op, &entry, NULL), "an operation");
    return op;
}

struct slot {
    struct op op; /* first, so that a completion names the slot */
    uint64_t *words;
};

static struct slot slots[SLOTS_MAX];

static void slots_make(void)
{
    for (size_t i = 0; i < options.slots; i++) {
        slots[i].words = malloc(options.bytes);
        check(slots[i].words != NULL, "no memory");
    }
}

static void look_at_flow(struct erd_ops_ep *ops, struct node *node, fi_addr_t peer)
{
    uint64_t kib[PATHS_MAX];
    struct erd_flow flow;
    ssize_t paths;
    if (!ops || ops->flow(node->ep, peer, &flow, sizeof flow) != 0)
        return;
    atomic_store(&shared->window_bytes, flow.window_bytes);
    atomic_store(&shared->rtt_ns, flow.rtt_ns);
    atomic_store(&shared->base_rtt_ns, flow.base_rtt_ns);
    atomic_store(&shared->typical_rtt_ns, flow.typical_rtt_ns);
    atomic_store(&shared->target_ns, flow.target_ns);
    atomic_store(&shared->rtx, flow.rtx_nack + flow.rtx_probe + flow.rtx_order + flow.rtx_trim);
    paths = ops->paths(node->ep, peer, kib, PATHS_MAX);
    for (ssize_t i = 0; i < paths; i++)
        atomic_store(&shared->path_kib[i], kib[i]);
    if (paths > 0)
        atomic_store(&shared->paths, (uint64_t)paths);
}

static void post_send(struct node *node, fi_addr_t peer, struct slot *slot)
{
    ssize_t rc;
    slot->op.id = atomic_fetch_add(&shared->sent_messages, 1);
    words_fill(slot->words, options.bytes / 8, slot->op.id);
    while ((rc = fi_tsend(node->ep, slot->words, options.bytes, NULL, peer, TAG, &slot->op)) == -FI_EAGAIN)
        node_sleep(node, 1);
    must(rc, "fi_tsend");
}

static void run_sender(int fd)
{
    struct node_options open = {.provider = options.provider, .wait = FI_WAIT_UNSPEC};
    struct node node;
    struct erd_ops_ep *ops = NULL;
    uint64_t look_at = 0;
    size_t outstanding = 0;
    fi_addr_t peer;
    enter(options.netns[0]);
    node_open(&node, &open);
    peer = node_meet(&node, fd);
    if (fi_open_ops(&node.ep->fid, ERD_EP_OPS, 0, (void **)&ops, NULL) != 0)
        ops = NULL;
    slots_make();
    for (; outstanding < options.slots; outstanding++)
        post_send(&node, peer, &slots[outstanding]);
    while (outstanding > 0) {
        struct slot *slot = (struct slot *)node_sleep(&node, 10);
        if (slot && !atomic_load(&shared->stop))
            post_send(&node, peer, slot);
        else if (slot)
            outstanding--;
        if (now_ns() >= look_at) {
            look_at_flow(ops, &node, peer);
            look_at = now_ns() + LOOK_EVERY_NS;
        }
    }
    atomic_store(&shared->ended, true);
    oob_recv(fd, &(char){0}, 1, &node);
    node_close(&node);
}

static void post_recv(struct node *node, struct slot *slot, uint64_t id)
{
    slot->op.id = id;
    must(fi_trecv(node->ep, slot->words, options.bytes, NULL, FI_ADDR_UNSPEC, TAG, 0, &slot->op), "fi_trecv");
}

/* Whether all that was sent has come. */
static bool all_received(uint64_t received)
{
    return atomic_load(&shared->ended) && received == atomic_load(&shared->sent_messages);
}

static void run_receiver(int fd)
{
    struct node_options open = {.provider = options.provider, .wait = FI_WAIT_UNSPEC};
    struct node node;
    uint64_t posted = 0, received = 0, last = 0;
    enter(options.netns[1]);
    node_open(&node, &open);
    slots_make();
    node_meet(&node, fd);
    for (; posted < options.slots; posted++)
        post_recv(&node, &slots[posted], posted);
    while (!all_received(received)) {
        struct slot *slot = (struct slot *)node_sleep(&node, 10);
        uint64_t now = now_ns();
        if (last && now - last > atomic_load(&shared->longest_wait_ns) && !atomic_load(&shared->ended))
            atomic_store(&shared->longest_wait_ns, now - last);
        if (!slot)
            continue;
        last = now;
        /* Messages are matched in the order in which they were sent, and receives in theirs. */
        words_check(slot->words, options.bytes / 8, slot->op.id);
        post_recv(&node, slot, posted++);
        received++;
        atomic_store(&shared->received_messages, received);
    }
    oob_send(fd, "", 1);
    node_close(&node);
}

static pid_t start(void (*run)(int), int fd, int other_fd)
{
    pid_t child = fork();
    check(child >= 0, "fork: %s", strerror(errno));
    if (child > 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(other_fd);
    run(fd);
    fflush(NULL);
    _exit(0);
}

static void sleep_until_ns(uint64_t at)
{
    struct timespec time = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

/* Time by which naps have ended later than they were to, beyond LATE_NS each: who is not let run for so long
 * does not find the others let run either. */
static uint64_t late_ns;

static void nap_until_ns(uint64_t at)
{
    uint64_t now;
    sleep_until_ns(at);
    now = now_ns();
    if (now > at + LATE_NS)
        late_ns += now - at - LATE_NS;
}

/* Ends all if one of the two processes has failed; answers how many have ended. */
static int ended_children(void)
{
    static int ended;
    int status;
    while (ended < 2 && waitpid(-1, &status, WNOHANG) > 0) {
        check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a process failed");
        ended++;
    }
    return ended;
}

/* Waits for `count` processes to have ended, or for a message to have arrived if it is 0. */
static void wait_for(int count, uint64_t limit_ms, const char *what)
{
    uint64_t limit = now_ns() + limit_ms * 1000000;
    while (count ? ended_children() < count : atomic_load(&shared->received_messages) == 0) {
        check(now_ns() < limit, "%s: nothing for %llu ms; %llu messages sent, %llu received", what,
              (unsigned long long)limit_ms, (unsigned long long)atomic_load(&shared->sent_messages),
              (unsigned long long)atomic_load(&shared->received_messages));
        ended_children();
        sleep_until_ns(now_ns() + 1000000);
    }
}

/* What arrived in one phase. The numbers of paths and of messages only grow. */
static void tell(uint64_t began, uint64_t before_messages, const uint64_t *before_kib, uint64_t now, uint64_t messages)
{
    uint64_t paths = atomic_load(&shared->paths);
    printf("{\"phase_ms\": %.1f, \"bytes\": %llu, \"longest_wait_ms\": %.1f, \"path_kib\": [", (double)(now - began) / 1e6,
           (unsigned long long)((messages - before_messages) * options.bytes),
           (double)atomic_exchange(&shared->longest_wait_ns, 0) / 1e6);
    for (uint64_t i = 0; i < paths; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)(atomic_load(&shared->path_kib[i]) - before_kib[i]));
    printf("], \"window_kib\": %llu, \"rtt_us\": %llu, \"base_rtt_us\": %llu, \"typical_rtt_us\": %llu, \"target_us\": %llu, \"rtx\": %llu, \"late_ms\": %.1f}\n",
           (unsigned long long)atomic_load(&shared->window_bytes) >> 10, (unsigned long long)atomic_load(&shared->rtt_ns) / 1000,
           (unsigned long long)atomic_load(&shared->base_rtt_ns) / 1000, (unsigned long long)atomic_load(&shared->typical_rtt_ns) / 1000,
           (unsigned long long)atomic_load(&shared->target_ns) / 1000, (unsigned long long)atomic_load(&shared->rtx), (double)late_ns / 1e6);
    late_ns = 0;
}

static void watch(void)
{
    uint64_t kib[PATHS_MAX] = {0}, messages = 0, start, began;
    wait_for(0, START_LIMIT_MS, "the first message");
    start = began = now_ns();
    late_ns = 0;
    for (size_t i = 0; i < options.events_count; i++) {
        uint64_t at = start + (uint64_t)(options.events[i].seconds * 1e9), now, count;
        while (now_ns() < at) {
            ended_children();
            nap_until_ns(now_ns() + NAP_NS < at ? now_ns() + NAP_NS : at);
        }
        count = atomic_load(&shared->received_messages);
        now = now_ns();
        tell(began, messages, kib, now, count);
        for (size_t path = 0; path < PATHS_MAX; path++)
            kib[path] = atomic_load(&shared->path_kib[path]);
        began = now;
        messages = count;
        if (options.events[i].command)
            check(system(options.events[i].command) == 0, "%s failed", options.events[i].command);
    }
    atomic_store(&shared->stop, true);
    wait_for(2, (uint64_t)(options.grace_seconds * 1000), "the end");
    printf("{\"messages\": %llu, \"end_ms\": %.1f}\n", (unsigned long long)atomic_load(&shared->received_messages),
           (double)(now_ns() - began) / 1e6);
}

static void add_event(char *text)
{
    struct event *event = &options.events[options.events_count++];
    char *end;
    check(options.events_count <= EVENTS_MAX, "more than %d times", EVENTS_MAX);
    event->seconds = strtod(text, &end);
    check(end != text && (*end == 0 || *end == ':'), "-t %s: SECONDS[:COMMAND] is wanted", text);
    event->command = *end ? end + 1 : NULL;
}

int main(int argc, char **argv)
{
    int option, pair[2];
    while ((option = getopt(argc, argv, "p:a:b:m:w:g:t:")) != -1) {
        switch (option) {
        case 'p': options.provider = optarg; break;
        case 'a': options.netns[0] = optarg; break;
        case 'b': options.netns[1] = optarg; break;
        case 'm': options.bytes = strtoul(optarg, NULL, 10); break;
        case 'w': options.slots = strtoul(optarg, NULL, 10); break;
        case 'g': options.grace_seconds = strtod(optarg, NULL); break;
        case 't': add_event(optarg); break;
        default: die("see the top of the source for the options");
        }
    }
    check(options.netns[0] && options.netns[1] && options.events_count, "-a, -b and -t are needed");
    check(options.bytes >= 8 && options.bytes % 8 == 0, "-m wants a multiple of 8");
    check(options.slots >= 1 && options.slots <= SLOTS_MAX, "-w wants 1 to %d", SLOTS_MAX);
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED, "mmap: %s", strerror(errno));
    oob_pair(pair);
    start(run_receiver, pair[1], pair[0]);
    start(run_sender, pair[0], pair[1]);
    close(pair[0]);
    close(pair[1]);
    watch();
    return 0;
}
