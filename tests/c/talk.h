/* Messages between endpoints of one process, for tests that need no second one. */
#ifndef ERD_TESTS_TALK_H
#define ERD_TESTS_TALK_H

#include "node.h"

enum { TALK_TAG = 0x7a1c };

/* Endpoints that are progressed together. */
struct group {
    struct node nodes[4];
    size_t count;
};

static inline void group_open(struct group *group, size_t count, const struct node_options *options)
{
    memset(group, 0, sizeof *group);
    for (size_t i = 0; i < count; i++)
        node_open(&group->nodes[i], options);
    group->count = count;
}

static inline void group_close(struct group *group)
{
    for (size_t i = 0; i < group->count; i++)
        node_close(&group->nodes[i]);
}

/* Progresses all; what ends is told to its op alone. */
static inline void group_step(struct group *group)
{
    struct fi_cq_tagged_entry entry;
    struct op *op;
    for (size_t i = 0; i < group->count; i++)
        node_poll(&group->nodes[i], &op, &entry, NULL);
}

/* Progresses all until `op` has ended; answers its state: 1, or the negative error. */
static inline int group_wait(struct group *group, const struct op *op)
{
    while (op->state == 0)
        group_step(group);
    return op->state;
}

static inline void group_step_for_ms(struct group *group, uint64_t ms)
{
    uint64_t end = now_ns() + ms * 1000000;
    while (now_ns() < end)
        group_step(group);
}

static inline void post_tsend(struct group *group, size_t from, fi_addr_t to, const void *bytes, size_t length,
                              struct op *op)
{
    ssize_t rc;
    op->state = 0;
    while ((rc = fi_tsend(group->nodes[from].ep, bytes, length, NULL, to, TALK_TAG, op)) == -FI_EAGAIN)
        group_step(group);
    must(rc, "fi_tsend");
}

static inline void post_trecv(struct group *group, size_t at, void *bytes, size_t length, struct op *op)
{
    op->state = 0;
    must(fi_trecv(group->nodes[at].ep, bytes, length, NULL, FI_ADDR_UNSPEC, TALK_TAG, 0, op), "fi_trecv");
}

/* One message of `length` bytes from node `from` to node `to`, which must arrive whole. */
static inline void exchange(struct group *group, size_t from, size_t to, size_t length)
{
    fi_addr_t address = node_insert(&group->nodes[from], group->nodes[to].name);
    uint8_t *tx = malloc(length + 1), *rx = calloc(1, length + 1);
    struct op send, recv;
    check(tx && rx, "no memory");
    pattern_fill(tx, length, length);
    post_trecv(group, to, rx, length, &recv);
    post_tsend(group, from, address, tx, length, &send);
    must(group_wait(group, &recv), "a receive");
    must(group_wait(group, &send), "a send");
    pattern_check(rx, length, length);
    free(tx);
    free(rx);
}

#endif
