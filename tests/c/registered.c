/* Payload that a device takes from registered memory without a copy: it is what the memory holds when
 * it is sent, whatever becomes of the memory before and after. */
#include "cases.h"
#include "talk.h"

#include <rdma/fi_rma.h>
#include <sys/mman.h>

enum { BYTES = 1 << 20, AREA_BYTES = BYTES + 8192, MODES = FI_MR_LOCAL | FI_MR_ALLOCATED };

static struct group group;
static fi_addr_t to; /* node 1 as node 0 knows it */
static uint8_t *area, *rx;

static void map_area(int flags)
{
    void *at = mmap(area, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    check(at != MAP_FAILED, "mmap: %s", strerror(errno));
    area = at;
}

static void open_nodes(void)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1", .mr_mode = MODES};
    options.caps = FI_RMA;
    group_open(&group, 2, &options);
    for (size_t i = 0; i < 2; i++) {
        int mode = group.nodes[i].info->domain_attr->mr_mode;
        check(mode == MODES, "mr_mode is %#x: memory is to be registered", (unsigned)mode);
    }
    to = node_insert(&group.nodes[0], group.nodes[1].name);
    /* The keys are ours, so a target serves only hosts that it knows. */
    node_insert(&group.nodes[1], group.nodes[0].name);
    map_area(0);
    rx = calloc(1, BYTES);
    check(rx != NULL, "no memory");
}

static void close_nodes(void)
{
    group_close(&group);
    munmap(area, AREA_BYTES);
    free(rx);
}

static struct fid_mr *registered(size_t node, uint64_t access)
{
    struct fid_mr *mr;
    must(fi_mr_reg(group.nodes[node].domain, area, AREA_BYTES, access, 0, 5, 0, &mr, NULL), "fi_mr_reg");
    check(fi_mr_desc(mr) != NULL, "the registration has no descriptor");
    return mr;
}

static void deregister(struct fid_mr *mr)
{
    must(fi_close(&mr->fid), "fi_close of a registration");
}

/* Sends `bytes` from `offset` of the area, which hold the pattern of `seed`, and looks at what arrives. */
static void send_area(size_t offset, size_t bytes, void *desc, uint64_t seed)
{
    struct op sent, received;
    ssize_t rc;
    pattern_fill(area + offset, bytes, seed);
    memset(rx, 0, bytes);
    post_trecv(&group, 1, rx, bytes, &received);
    sent.state = 0;
    while ((rc = fi_tsend(group.nodes[0].ep, area + offset, bytes, desc, to, TALK_TAG, &sent)) == -FI_EAGAIN)
        group_step(&group);
    must(rc, "fi_tsend");
    must(group_wait(&group, &sent), "a send");
    /* From here on it is the program's. */
    memset(area + offset, 0xee, bytes);
    must(group_wait(&group, &received), "a receive");
    pattern_check(rx, bytes, seed);
}

static void messages(void)
{
    static const size_t sizes[] = {BYTES, 65537, 65536, 20000, 16384, 16383, 5000, 4096, 600, 64, 1};
    open_nodes();
    struct fid_mr *mr = registered(0, FI_SEND);
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (size_t offset = 0; offset < 3; offset++)
            send_area(offset * 1111, sizes[i], fi_mr_desc(mr), i * 3 + offset + 1);
    deregister(mr);
    close_nodes();
}

/* Pieces of which the first alone is registered. */
static void pieces(void)
{
    static uint8_t other[30000];
    struct op sent = {0}, received;
    open_nodes();
    struct fid_mr *mr = registered(0, FI_SEND);
    struct iovec iov[] = {{area + 5, 100000}, {other, sizeof other}, {area + 300000, 70000}};
    void *desc[] = {fi_mr_desc(mr), NULL, fi_mr_desc(mr)};
    size_t total = 100000 + sizeof other + 70000;
    uint8_t *all = malloc(total);
    check(all != NULL, "no memory");
    pattern_fill(all, total, 9);
    memcpy(iov[0].iov_base, all, iov[0].iov_len);
    memcpy(other, all + 100000, sizeof other);
    memcpy(iov[2].iov_base, all + 100000 + sizeof other, iov[2].iov_len);
    post_trecv(&group, 1, rx, total, &received);
    must(fi_tsendv(group.nodes[0].ep, iov, desc, 3, to, TALK_TAG, &sent), "fi_tsendv");
    must(group_wait(&group, &sent), "a send");
    must(group_wait(&group, &received), "a receive");
    check(memcmp(rx, all, total) == 0, "pieces arrived changed");
    deregister(mr);
    free(all);
    close_nodes();
}

/* Other memory at the same address, registered anew or not at all. */
static void other_memory_at_the_address(void)
{
    open_nodes();
    for (uint64_t round = 0; round < 8; round++) {
        struct fid_mr *mr = registered(0, FI_SEND);
        void *old = fi_mr_desc(mr);
        send_area(0, 200000, old, 10 * round + 1);
        deregister(mr);
        map_area(MAP_FIXED);
        /* Too late a descriptor names nothing. */
        send_area(0, 200000, old, 10 * round + 2);
        send_area(0, 200000, NULL, 10 * round + 3);
    }
    close_nodes();
}

/* A forked child writes to the memory, and so does the parent. */
static void fork_in_between(void)
{
    open_nodes();
    struct fid_mr *mr = registered(0, FI_SEND);
    send_area(0, 200000, fi_mr_desc(mr), 1);
    int go[2];
    must(pipe(go), "pipe");
    pid_t child = fork();
    check(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        char byte;
        memset(area, 0x11, AREA_BYTES);
        _exit(read(go[0], &byte, 1) == 1 && area[0] == 0x11 && area[199999] == 0x11 ? 0 : 1);
    }
    for (uint64_t seed = 2; seed < 10; seed++)
        send_area(0, 200000, fi_mr_desc(mr), seed);
    int status = 1;
    check(write(go[1], "g", 1) == 1 && waitpid(child, &status, 0) == child, "the child");
    check(status == 0, "the child found other bytes than its own");
    deregister(mr);
    close_nodes();
}

/* Writes from registered memory, and reads of it by a peer. */
static void writes_and_reads(void)
{
    struct fid_mr *remote;
    struct op op;
    open_nodes();
    for (int reads = 0; reads < 2; reads++) {
        /* Node 0 asks: it writes the area to node 1, or reads it there. */
        struct fid_mr *mr = registered(reads ? 1 : 0, reads ? FI_REMOTE_READ : FI_WRITE);
        pattern_fill(area, BYTES, 70 + (uint64_t)reads);
        memset(rx, 0, BYTES);
        op.state = 0;
        if (reads) {
            must(fi_read(group.nodes[0].ep, rx, BYTES, NULL, to, 0, fi_mr_key(mr), &op), "fi_read");
            must(group_wait(&group, &op), "a read");
        } else {
            must(fi_mr_reg(group.nodes[1].domain, rx, BYTES, FI_REMOTE_WRITE, 0, 6, 0, &remote, NULL), "fi_mr_reg");
            must(fi_write(group.nodes[0].ep, area, BYTES, fi_mr_desc(mr), to, 0, 6, &op), "fi_write");
            must(group_wait(&group, &op), "a write");
            deregister(remote);
        }
        pattern_check(rx, BYTES, 70 + (uint64_t)reads);
        deregister(mr);
        map_area(MAP_FIXED);
    }
    close_nodes();
}

/* The endpoint is closed, the registration ends and the memory goes, in the middle of a message. */
static void closed_in_the_middle(void)
{
    for (int round = 0; round < 10; round++) {
        struct op sent = {0}, received, *ended;
        struct fi_cq_tagged_entry entry;
        open_nodes();
        struct fid_mr *mr = registered(0, FI_SEND);
        /* So that there is a session. */
        send_area(0, 5000, fi_mr_desc(mr), 3);
        pattern_fill(area, BYTES, 4);
        post_trecv(&group, 1, rx, BYTES, &received);
        must(fi_tsend(group.nodes[0].ep, area, BYTES, fi_mr_desc(mr), to, TALK_TAG, &sent), "fi_tsend");
        for (int step = 0; step < round * 3; step++)
            group_step(&group);
        must(fi_close(&group.nodes[0].ep->fid), "fi_close of the endpoint");
        /* What was not sent must not become part of the message. */
        memset(area, 0xee, AREA_BYTES);
        deregister(mr);
        map_area(MAP_FIXED);
        while (received.state == 0)
            node_poll(&group.nodes[1], &ended, &entry, NULL);
        if (received.state == 1)
            pattern_check(rx, BYTES, 4);
        must(fi_close(&group.nodes[0].cq->fid), "fi_close of the CQ");
        must(fi_close(&group.nodes[0].av->fid), "fi_close of the AV");
        must(fi_close(&group.nodes[0].domain->fid), "fi_close of the domain");
        must(fi_close(&group.nodes[0].fabric->fid), "fi_close of the fabric");
        fi_freeinfo(group.nodes[0].info);
        node_close(&group.nodes[1]);
        munmap(area, AREA_BYTES);
        area = NULL;
        free(rx);
    }
}

static const struct test_case tests[] = {
    {"messages", messages, 20},
    {"pieces", pieces, 20},
    {"other_memory_at_the_address", other_memory_at_the_address, 20},
    {"fork_in_between", fork_in_between, 20},
    {"writes_and_reads", writes_and_reads, 20},
    {"closed_in_the_middle", closed_in_the_middle, 60},
};

int main(int argc, char **argv)
{
    return run_cases(tests, COUNT_OF(tests), argc, argv);
}
