/* What a caller or the network can do wrong: each case gives the error that libfabric documents, and
 * leaves other operations and peers unharmed. */
#include "cases.h"
#include "talk.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/uio.h>

static void open_group(struct group *group, size_t count)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    group_open(group, count, &options);
}

/* What this process wrote to its standard error since `capture_start`. */
static char captured[65536];

static void capture_start(void)
{
    FILE *file = tmpfile();
    check(file && dup2(fileno(file), STDERR_FILENO) >= 0, "no temporary file");
}

static const char *capture_end(void)
{
    ssize_t got = pread(STDERR_FILENO, captured, sizeof captured - 1, 0);
    captured[got > 0 ? got : 0] = 0;
    dup2(STDOUT_FILENO, STDERR_FILENO);
    return captured;
}

/* A setting with a value that isn't valid: there is no erd, and the log says why. */
static void refused_setting(const char *name, const char *value)
{
    struct node node = {0};
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    const char *log;
    int rc;
    setenv(name, value, 1);
    setenv("FI_LOG_LEVEL", "warn", 1);
    capture_start();
    rc = node_find(&node, &options);
    log = capture_end();
    check(rc == -FI_ENODATA, "fi_getinfo with %s=%s: %s, not %s", name, value, fi_strerror(-rc),
          fi_strerror(FI_ENODATA));
    check(strstr(log, name) && strstr(log, value), "the log names neither %s nor %s: %s", name, value, log);
}

static void setting_unknown_value(void)
{
    refused_setting("FI_ERD_CC", "nonsense");
}

static void setting_path_count_zero(void)
{
    refused_setting("FI_ERD_PATHS", "0");
}

static void setting_not_a_number(void)
{
    refused_setting("FI_ERD_PEER_TIMEOUT_MS", "soon");
}

static void setting_unusable_interface(void)
{
    refused_setting("FI_ERD_IFACE", "nosuch0");
}

static void address_wrong_family(void)
{
    struct sockaddr_in addresses[3];
    fi_addr_t found[3];
    int errors[3] = {0};
    struct group group;
    int rc;
    open_group(&group, 2);
    for (int i = 0; i < 3; i++)
        memcpy(&addresses[i], group.nodes[1].name, sizeof addresses[i]);
    addresses[1].sin_family = AF_INET6;
    rc = fi_av_insert(group.nodes[0].av, addresses, 3, found, FI_SYNC_ERR, errors);
    check(rc == 2, "of three addresses, one of a wrong family, %d were inserted", rc);
    check(found[1] == FI_ADDR_NOTAVAIL && errors[1] == FI_EINVAL, "the wrong one got fi_addr %llu and error %d",
          (unsigned long long)found[1], errors[1]);
    check(found[0] != FI_ADDR_NOTAVAIL && errors[0] == 0, "the good one was refused with %d", errors[0]);
    exchange(&group, 0, 1, 5000);
    group_close(&group);
}

static void address_port_zero(void)
{
    struct sockaddr_in address;
    fi_addr_t found = 0;
    struct group group;
    open_group(&group, 1);
    memcpy(&address, group.nodes[0].name, sizeof address);
    address.sin_port = 0;
    check(fi_av_insert(group.nodes[0].av, &address, 1, &found, 0, NULL) == 0 && found == FI_ADDR_NOTAVAIL,
          "an address with port 0 was inserted");
    group_close(&group);
}

static void address_unresolvable(void)
{
    fi_addr_t found = 0;
    struct group group;
    int rc;
    open_group(&group, 1);
    rc = fi_av_insertsvc(group.nodes[0].av, "no.such.host.invalid", "7471", &found, 0, NULL);
    check(rc <= 0, "a name without an address was inserted");
    check(rc < 0 || found == FI_ADDR_NOTAVAIL, "it got fi_addr %llu", (unsigned long long)found);
    group_close(&group);
}

static void address_wrong_length(void)
{
    struct node_options options = {.provider = provider};
    struct fi_info *hints = node_hints(&options), *found = NULL;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int rc;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->src_addr = malloc(sizeof address);
    check(hints->src_addr != NULL, "no memory");
    memcpy(hints->src_addr, &address, sizeof address);
    hints->src_addrlen = 3;
    rc = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found);
    check(rc == -FI_ENODATA, "a source address of 3 bytes: %s", rc ? fi_strerror(-rc) : "accepted");
    fi_freeinfo(hints);
}

static void name_buffer_too_small(void)
{
    uint8_t name[4];
    size_t bytes = sizeof name;
    struct group group;
    int rc;
    open_group(&group, 1);
    rc = fi_getname(&group.nodes[0].ep->fid, name, &bytes);
    check(rc == -FI_ETOOSMALL, "fi_getname into 4 bytes: %s", fi_strerror(-rc));
    check(bytes == group.nodes[0].name_bytes, "it asks for %zu bytes, not %zu", bytes, group.nodes[0].name_bytes);
    group_close(&group);
}

static void message_over_limit(void)
{
    static uint8_t bytes[1 << 20];
    struct group group;
    struct op op;
    struct iovec pieces[64];
    struct fi_info *info;
    fi_addr_t to;
    ssize_t rc;
    open_group(&group, 2);
    info = group.nodes[0].info;
    to = node_insert(&group.nodes[0], group.nodes[1].name);
    if (info->ep_attr->max_msg_size < SIZE_MAX) {
        rc = fi_tsend(group.nodes[0].ep, bytes, info->ep_attr->max_msg_size + 1, NULL, to, 1, &op);
        check(rc == -FI_EMSGSIZE, "a message over max_msg_size: %s", fi_strerror((int)-rc));
    }
    check(info->tx_attr->inject_size < sizeof bytes, "inject_size is %zu", info->tx_attr->inject_size);
    rc = fi_tinject(group.nodes[0].ep, bytes, info->tx_attr->inject_size + 1, to, 1);
    check(rc == -FI_EMSGSIZE, "fi_tinject over inject_size: %s", fi_strerror((int)-rc));
    check(info->tx_attr->iov_limit < 64, "iov_limit is %zu", info->tx_attr->iov_limit);
    for (size_t i = 0; i < 64; i++)
        pieces[i] = (struct iovec){bytes + i, 1};
    rc = fi_tsendv(group.nodes[0].ep, pieces, NULL, info->tx_attr->iov_limit + 1, to, 1, &op);
    check(rc == -FI_EINVAL, "more pieces than iov_limit: %s", fi_strerror((int)-rc));
    exchange(&group, 0, 1, 5000);
    group_close(&group);
}

static void unknown_fi_addr(void)
{
    struct group group;
    struct op op;
    ssize_t rc;
    open_group(&group, 2);
    rc = fi_tsend(group.nodes[0].ep, "x", 1, NULL, 12345, 1, &op);
    check(rc == -FI_EINVAL, "a send to an fi_addr that is not there: %s", fi_strerror((int)-rc));
    rc = fi_av_remove(group.nodes[0].av, &(fi_addr_t){12345}, 1, 0);
    check(rc == -FI_EINVAL, "its removal: %s", fi_strerror((int)-rc));
    exchange(&group, 0, 1, 5000);
    group_close(&group);
}

/* The next error completion of node 1. */
static void next_error(struct group *group, struct fi_cq_err_entry *error)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    int rc;
    do {
        node_poll(&group->nodes[0], &op, &entry, NULL);
        rc = node_poll(&group->nodes[1], &op, &entry, error);
        check(rc != 1, "an operation of node 1 succeeded");
    } while (rc == 0);
}

static void truncation(size_t sent, size_t room)
{
    struct fi_cq_err_entry error;
    struct group group;
    struct op send, recv;
    uint8_t *tx = malloc(sent), *rx = calloc(1, sent);
    fi_addr_t to;
    check(tx && rx, "no memory");
    pattern_fill(tx, sent, 1);
    open_group(&group, 2);
    to = node_insert(&group.nodes[0], group.nodes[1].name);
    post_trecv(&group, 1, rx, room, &recv);
    post_tsend(&group, 0, to, tx, sent, &send);
    next_error(&group, &error);
    check(error.op_context == &recv && error.err == FI_ETRUNC, "error %s", fi_strerror(error.err));
    check(error.len == room && error.olen == sent - room, "%zu bytes into %zu: len %zu, olen %zu", sent, room,
          error.len, error.olen);
    pattern_check(rx, room, 1);
    for (size_t i = room; i < sent; i++)
        check(rx[i] == 0, "byte %zu beyond the buffer was written", i);
    must(group_wait(&group, &send), "the send of a message that is cut");
    exchange(&group, 0, 1, 5000);
    exchange(&group, 1, 0, 500000);
    group_close(&group);
}

static void truncated_receive(void)
{
    truncation(100, 60);
    truncation(100, 0);
    truncation(9000, 8999);
    truncation(1 << 20, 1 << 16);
    truncation(3 << 20, 1);
}

static void endpoint_not_ready(void)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    struct node node = {0};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
    struct op op;
    ssize_t rc;
    must(node_find(&node, &options), "fi_getinfo");
    must(fi_fabric(node.info->fabric_attr, &node.fabric, NULL), "fi_fabric");
    must(fi_domain(node.fabric, node.info, &node.domain, NULL), "fi_domain");
    must(fi_endpoint(node.domain, node.info, &node.ep, NULL), "fi_endpoint");
    rc = fi_enable(node.ep);
    check(rc == -FI_ENOAV || rc == -FI_ENOCQ, "fi_enable without AV and CQ: %s", fi_strerror((int)-rc));
    rc = fi_tsend(node.ep, "x", 1, NULL, 0, 1, &op);
    check(rc == -FI_EOPBADSTATE, "a send before fi_enable: %s", fi_strerror((int)-rc));
    cq.format = 77;
    rc = fi_cq_open(node.domain, &cq, &node.cq, NULL);
    check(rc < 0, "a CQ of an unknown format was opened");
    rc = fi_close(&node.domain->fid);
    check(rc == -FI_EBUSY, "closing a domain under its endpoint: %s", fi_strerror((int)-rc));
    must(fi_close(&node.ep->fid), "fi_close of the endpoint");
    must(fi_close(&node.domain->fid), "fi_close of the domain");
    must(fi_close(&node.fabric->fid), "fi_close of the fabric");
    fi_freeinfo(node.info);
}

/* A UDP port of loopback where nobody listens: one that was ours until just now. */
static void silent_address(struct sockaddr_in *address)
{
    socklen_t bytes = sizeof *address;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    check(fd >= 0 && bind(fd, (struct sockaddr *)address, sizeof *address) == 0 &&
              getsockname(fd, (struct sockaddr *)address, &bytes) == 0,
          "no UDP socket: %s", strerror(errno));
    close(fd);
}

static void unreachable_peer(void)
{
    static uint8_t large[1 << 20];
    struct sockaddr_in address;
    struct group group;
    struct op sends[3];
    fi_addr_t nowhere;
    setenv("FI_ERD_PEER_TIMEOUT_MS", "700", 1);
    open_group(&group, 2);
    silent_address(&address);
    nowhere = node_insert(&group.nodes[0], &address);
    for (int i = 0; i < 3; i++)
        post_tsend(&group, 0, nowhere, large, i == 2 ? sizeof large : 8, &sends[i]);
    exchange(&group, 0, 1, 500000);
    for (int i = 0; i < 3; i++)
        check(group_wait(&group, &sends[i]) < 0, "a send to nobody succeeded");
    exchange(&group, 0, 1, 500000);
    exchange(&group, 1, 0, 10);
    group_close(&group);
}

static void closed_peer(void)
{
    /* A short send that asks for no level may complete when it is copied. */
    struct node_options options = {.provider = provider, .address = "127.0.0.1", .tx_flags = FI_TRANSMIT_COMPLETE};
    struct group group;
    struct op send;
    fi_addr_t to;
    setenv("FI_ERD_PEER_TIMEOUT_MS", "700", 1);
    group_open(&group, 3, &options);
    exchange(&group, 0, 2, 100);
    to = node_insert(&group.nodes[0], group.nodes[2].name);
    node_close(&group.nodes[2]);
    group.count = 2;
    post_tsend(&group, 0, to, "late", 4, &send);
    check(group_wait(&group, &send) < 0, "a send to a closed endpoint succeeded");
    exchange(&group, 0, 1, 500000);
    group_close(&group);
}

static void close_with_receives_posted(void)
{
    static uint8_t buffers[16][64];
    struct group group;
    struct op recvs[16];
    open_group(&group, 3);
    exchange(&group, 0, 2, 100);
    for (int i = 0; i < 16; i++)
        post_trecv(&group, 2, buffers[i], sizeof buffers[i], &recvs[i]);
    node_close(&group.nodes[2]);
    group.count = 2;
    exchange(&group, 0, 1, 500000);
    group_close(&group);
}

static void canceled_receive(void)
{
    struct fi_cq_err_entry error;
    uint8_t buffer[8];
    struct group group;
    struct op recv;
    open_group(&group, 2);
    post_trecv(&group, 1, buffer, sizeof buffer, &recv);
    must(fi_cancel(&group.nodes[1].ep->fid, &recv), "fi_cancel");
    next_error(&group, &error);
    check(error.op_context == &recv && error.err == FI_ECANCELED, "error %s", fi_strerror(error.err));
    exchange(&group, 0, 1, 8);
    group_close(&group);
}

/* What becomes of operations under way is undefined (fi_av(3)); everything else goes on. */
static void removed_address(void)
{
    static uint8_t large[1 << 20];
    struct group group;
    struct op send;
    fi_addr_t to;
    ssize_t rc;
    open_group(&group, 3);
    to = node_insert(&group.nodes[0], group.nodes[2].name);
    post_tsend(&group, 0, to, large, sizeof large, &send);
    group_step_for_ms(&group, 50);
    must(fi_av_remove(group.nodes[0].av, &to, 1, 0), "fi_av_remove");
    rc = fi_tsend(group.nodes[0].ep, "x", 1, NULL, to, 1, &(struct op){0});
    check(rc == -FI_EINVAL, "a send to a removed address: %s", fi_strerror((int)-rc));
    exchange(&group, 0, 1, 500000);
    exchange(&group, 2, 1, 500000);
    group_close(&group);
}

/* A send from memory that is not there ends with an error; the endpoint goes on, with that peer too. */
static void unreadable_send(void)
{
    size_t length = 1 << 20;
    void *gone = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *received = malloc(length);
    struct group group;
    struct op send, recv;
    fi_addr_t to;
    int rc;
    check(gone != MAP_FAILED && received, "no memory");
    open_group(&group, 3);
    exchange(&group, 0, 1, 100);
    to = node_insert(&group.nodes[0], group.nodes[1].name);
    post_trecv(&group, 1, received, length, &recv);
    post_tsend(&group, 0, to, gone, length, &send);
    rc = group_wait(&group, &send);
    check(rc == -FI_EFAULT, "a send from unreadable memory: %s", rc < 0 ? fi_strerror(-rc) : "success");
    exchange(&group, 0, 2, 500000);
    exchange(&group, 1, 2, 500000);
    rc = group_wait(&group, &recv);
    check(rc < 0, "its receive succeeded");
    exchange(&group, 0, 1, 500000);
    munmap(gone, length);
    free(received);
    group_close(&group);
}

/* Datagrams that no erd sent, of every length, amid traffic: they are dropped. */
static void hostile_datagrams(void)
{
    uint8_t bytes[2048];
    uint64_t x = 88172645463325252u;
    struct group group;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    check(fd >= 0, "no UDP socket");
    open_group(&group, 2);
    exchange(&group, 0, 1, 100);
    for (int round = 0; round < 4000; round++) {
        size_t length = (size_t)round % sizeof bytes;
        for (size_t i = 0; i < length; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            bytes[i] = round % 3 == 0 ? (uint8_t)round : (uint8_t)x;
        }
        sendto(fd, bytes, length, 0, (struct sockaddr *)group.nodes[round % 2].name, sizeof(struct sockaddr_in));
        group_step(&group);
        if (round % 100 == 0)
            exchange(&group, round % 200 == 0, round % 200 != 0, (size_t)round * 50);
    }
    close(fd);
    group_close(&group);
}

static const struct test_case TESTS[] = {
    {"setting_unknown_value", setting_unknown_value, 10},
    {"setting_path_count_zero", setting_path_count_zero, 10},
    {"setting_not_a_number", setting_not_a_number, 10},
    {"setting_unusable_interface", setting_unusable_interface, 10},
    {"address_wrong_family", address_wrong_family, 20},
    {"address_wrong_length", address_wrong_length, 20},
    {"address_port_zero", address_port_zero, 20},
    {"address_unresolvable", address_unresolvable, 30},
    {"name_buffer_too_small", name_buffer_too_small, 20},
    {"message_over_limit", message_over_limit, 20},
    {"unknown_fi_addr", unknown_fi_addr, 20},
    {"truncated_receive", truncated_receive, 30},
    {"endpoint_not_ready", endpoint_not_ready, 20},
    {"unreachable_peer", unreachable_peer, 30},
    {"closed_peer", closed_peer, 30},
    {"close_with_receives_posted", close_with_receives_posted, 30},
    {"canceled_receive", canceled_receive, 20},
    {"removed_address", removed_address, 30},
    {"unreadable_send", unreadable_send, 30},
    {"hostile_datagrams", hostile_datagrams, 60},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
