/* Children of fork outlive the process that forked them, as the workers of a trainer do. The port of that process is
 * free as soon as it is dead, and a child's own endpoint works. */
#include "cases.h"

#include <arpa/inet.h>
#include <dirent.h>

enum { TAG = 7 };

static const char WORD[] = "from a child";

/* What the parent tells of itself and its child. */
struct told {
    pid_t child;
    /* Sockets that it had before it used the library. */
    unsigned sockets;
    char port[8];
};

static void open_at(struct node *node, const char *port)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1", .service = port};
    node_open(node, &options);
}

static unsigned port_of(const struct node *node)
{
    uint16_t port;
    memcpy(&port, node->name + 2, sizeof port);
    return ntohs(port);
}

static void poll_until(struct node *node, const struct op *op)
{
    struct fi_cq_tagged_entry entry;
    struct op *ended;
    while (op->state == 0)
        node_poll(node, &ended, &entry, NULL);
    check(op->state == 1, "an operation ended with %d", op->state);
}

/* The descriptors of a process that are sockets. */
static unsigned sockets_of(pid_t pid)
{
    char path[300], target[64];
    struct dirent *entry;
    unsigned count = 0;
    DIR *dir;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    check(dir != NULL, "%s: %s", path, strerror(errno));
    while ((entry = readdir(dir))) {
        ssize_t bytes;
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, entry->d_name);
        bytes = readlink(path, target, sizeof target);
        count += bytes > 7 && strncmp(target, "socket:", 7) == 0;
    }
    closedir(dir);
    return count;
}

/* Sends a word by an endpoint of its own, then lives on. It cannot use its parent's domain. */
static void be_child(int fd, int done, const uint8_t *to, struct node *parents)
{
    struct node own;
    struct fid_ep *ep;
    int ret;
    struct op op = {.state = 0};
    uint8_t byte = 1;
    close(fd);
    oob_send(done, &byte, sizeof byte);
    oob_recv(done, &byte, sizeof byte, NULL);
    ret = fi_endpoint(parents->domain, parents->info, &ep, NULL);
    check(ret == -FI_EOTHER, "an endpoint of the parent's domain gave %d", ret);
    open_at(&own, NULL);
    must(fi_tsend(own.ep, WORD, sizeof WORD, NULL, node_insert(&own, to), TAG, &op), "fi_tsend");
    poll_until(&own, &op);
    node_close(&own);
    oob_send(done, &byte, sizeof byte);
    for (;;)
        pause();
}

/* The process that forks a child, and is killed. */
static void be_parent(int fd, int done)
{
    struct node node;
    struct told told = {.child = -1, .sockets = sockets_of(getpid())};
    fi_addr_t peer;
    struct op op = {.state = 0};
    uint8_t theirs[NAME_BYTES];
    open_at(&node, NULL);
    oob_send(fd, node.name, sizeof node.name);
    oob_recv(fd, theirs, sizeof theirs, &node);
    peer = node_insert(&node, theirs);
    /* A session, and shared memory where there is some. */
    must(fi_tsend(node.ep, WORD, sizeof WORD, NULL, peer, TAG, &op), "fi_tsend");
    poll_until(&node, &op);
    snprintf(told.port, sizeof told.port, "%u", port_of(&node));
    fflush(NULL);
    told.child = fork();
    check(told.child >= 0, "fork: %s", strerror(errno));
    if (told.child == 0) {
        prctl(PR_SET_PDEATHSIG, 0);
        be_child(fd, done, theirs, &node);
    }
    oob_send(fd, &told, sizeof told);
    for (;;)
        pause();
}

static void receive(struct node *node)
{
    char word[sizeof WORD] = "";
    struct op op = {.state = 0};
    must(fi_trecv(node->ep, word, sizeof word, NULL, FI_ADDR_UNSPEC, TAG, 0, &op), "fi_trecv");
    poll_until(node, &op);
    check(strcmp(word, WORD) == 0, "the message says \"%s\"", word);
}

static void a_port_is_free_though_a_child_lives(void)
{
    static struct node mine, heir;
    struct told told;
    int fd, done[2];
    uint8_t byte = 1;
    pid_t parent;
    oob_pair(done);
    parent = fork_side(&fd);
    if (parent == 0)
        be_parent(fd, done[1]);
    close(done[1]);
    open_at(&mine, NULL);
    node_meet(&mine, fd);
    receive(&mine);
    oob_recv(fd, &told, sizeof told, &mine);
    oob_recv(done[0], &byte, sizeof byte, &mine);
    kill(parent, SIGKILL);
    end_of(parent);
    check(kill(told.child, 0) == 0, "the child lives");
    check(sockets_of(told.child) <= told.sockets, "the child has %u sockets, not %u", sockets_of(told.child), told.sockets);
    open_at(&heir, told.port);
    oob_send(done[0], &byte, sizeof byte);
    receive(&mine);
    oob_recv(done[0], &byte, sizeof byte, &mine);
    check(kill(told.child, 0) == 0, "the child lives");
    kill(told.child, SIGKILL);
    node_close(&heir);
    node_close(&mine);
}

static const struct test_case TESTS[] = {
    {"a_port_is_free_though_a_child_lives", a_port_is_free_though_a_child_lives, 60},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
