/* Two processes write a number to each other's memory in turn, under automatic progress. Each waits for the other's number
 * with its eyes on its own memory, and makes no call meanwhile, as programs of SHMEM and of MPI's windows do.
 * Usage: bench_hops [-p PROVIDER] [-n HOPS] [-q]; -q: each write is completed before the wait. It prints the time of a hop. */
#include "node.h"

#include <rdma/fi_rma.h>

enum { KEY = 3, SKIPPED = 64 };

struct side {
    struct node node;
    struct fid_mr *region;
    fi_addr_t to;
    volatile uint64_t word;
    uint64_t base, key;
};

static void side_open(struct side *me, const char *provider, int fd)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1", .caps = FI_RMA};
    struct fi_info *hints = node_hints(&options);
    uint64_t own[2], theirs[2];
    hints->domain_attr->data_progress = hints->domain_attr->control_progress = FI_PROGRESS_AUTO;
    must(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &me->node.info), "fi_getinfo");
    fi_freeinfo(hints);
    node_open_found(&me->node, &options);
    must(fi_mr_reg(me->node.domain, (void *)&me->word, sizeof me->word, FI_REMOTE_WRITE, 0, KEY, 0, &me->region, NULL),
         "fi_mr_reg");
    me->to = node_meet(&me->node, fd);
    own[0] = me->node.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)&me->word : 0;
    own[1] = fi_mr_key(me->region);
    oob_send(fd, own, sizeof own);
    oob_recv(fd, theirs, sizeof theirs, &me->node);
    me->base = theirs[0];
    me->key = theirs[1];
}

static void write_word(struct side *me, uint64_t value, bool completes)
{
    struct fi_cq_tagged_entry entry;
    struct op op = {.state = 0}, *ended;
    ssize_t rc;
    do
        rc = completes ? fi_write(me->node.ep, &value, sizeof value, NULL, me->to, me->base, me->key, &op)
                       : fi_inject_write(me->node.ep, &value, sizeof value, me->to, me->base, me->key);
    while (rc == -FI_EAGAIN);
    must(rc, "a write");
    while (completes && op.state == 0)
        node_poll(&me->node, &ended, &entry, NULL);
}

static int by_time(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

int main(int argc, char **argv)
{
    static struct side me;
    const char *provider = "erd";
    uint64_t hops = 4000, *took, ready = 1;
    bool completes = false;
    int fd, option;
    pid_t other;
    while ((option = getopt(argc, argv, "p:n:q")) != -1) {
        check(option != '?', "usage: %s [-p PROVIDER] [-n HOPS] [-q]", argv[0]);
        if (option == 'p')
            provider = optarg;
        else if (option == 'n')
            hops = strtoull(optarg, NULL, 10);
        else
            completes = true;
    }
    took = calloc(hops, sizeof *took);
    check(took != NULL && hops > SKIPPED, "not %llu hops", (unsigned long long)hops);
    other = fork_side(&fd);
    side_open(&me, provider, fd);
    oob_send(fd, &ready, sizeof ready);
    oob_recv(fd, &ready, sizeof ready, &me.node);
    for (uint64_t hop = 0; hop < hops; hop++) {
        uint64_t begin = now_ns();
        if (other != 0)
            write_word(&me, hop + 1, completes);
        while (me.word != hop + 1)
            ;
        if (other == 0)
            write_word(&me, hop + 1, completes);
        took[hop] = (now_ns() - begin) / 2;
    }
    if (other == 0) {
        oob_recv(fd, &ready, sizeof ready, &me.node);
        _exit(0);
    }
    qsort(took + SKIPPED, hops - SKIPPED, sizeof *took, by_time);
    printf("%llu hops: %.1f us in the middle, %.1f us at 90 %%, %.1f us at most\n", (unsigned long long)hops,
           (double)took[SKIPPED + (hops - SKIPPED) / 2] / 1e3, (double)took[SKIPPED + (hops - SKIPPED) * 9 / 10] / 1e3,
           (double)took[hops - 1] / 1e3);
    oob_send(fd, &ready, sizeof ready);
    return end_of(other);
}
