/* RMA and atomics between endpoints of one process: every form of call, what is refused, what is
 * ordered, and registrations that end while peers read. */
#include "cases.h"
#include "talk.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* FI_DIFF, which the headers of libfabric 1.17 do not have. */
#define DIFFERENCE ((enum fi_op)(FI_MSWAP + 1))

/* FI_OPT_MAX_RMA_SIZE and its like, which they do not have either. */
enum { OPT_MAX_RMA = 14, OPT_MAX_ATOMIC = 15, OPT_INJECT_RMA = 18, OPT_INJECT_ATOMIC = 19 };

enum { KEY = 7, AREA_BYTES = 1 << 20, KEPT = 0x3c };

static struct group group;
static fi_addr_t to; /* node 1 as node 0 knows it */
static uint8_t *area; /* memory of node 1 */
static struct fid_mr *region;

static struct fid_ep *asker(void)
{
    return group.nodes[0].ep;
}

static struct fid_mr *expose(void *at, size_t bytes, uint64_t access, uint64_t key)
{
    struct fid_mr *mr;
    must(fi_mr_reg(group.nodes[1].domain, at, bytes, access, 0, key, 0, &mr, NULL), "fi_mr_reg");
    return mr;
}

static void open_nodes(size_t count)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    options.caps = FI_RMA | FI_ATOMIC | FI_RMA_EVENT | FI_FENCE;
    /* The cases look at the target's memory, or for a refusal, when a write has completed. */
    options.tx_flags = FI_DELIVERY_COMPLETE;
    group_open(&group, count, &options);
    to = node_insert(&group.nodes[0], group.nodes[1].name);
    /* The key is ours, so the target serves only hosts that it knows. */
    node_insert(&group.nodes[1], group.nodes[0].name);
    area = calloc(1, AREA_BYTES);
    check(area != NULL, "no memory");
    region = expose(area, AREA_BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, KEY);
    check(fi_mr_key(region) == KEY, "the key is %llu", (unsigned long long)fi_mr_key(region));
}

static void close_nodes(void)
{
    must(fi_close(&region->fid), "fi_close of a registration");
    group_close(&group);
    free(area);
}

static struct fid_cntr *counter(size_t node)
{
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *cntr;
    must(fi_cntr_open(group.nodes[node].domain, &attr, &cntr, NULL), "fi_cntr_open");
    return cntr;
}

/* Waits until `op` has ended, and expects that it ended well. */
static void done(const struct op *op, const char *what)
{
    must(group_wait(&group, op), what);
}

/* The next completion of node 1, which no operation of its own has. */
static struct fi_cq_tagged_entry remote_entry(void)
{
    struct fi_cq_tagged_entry entry, other;
    struct op *op;
    for (;;) {
        if (node_poll(&group.nodes[1], &op, &entry, NULL) == 1)
            return entry;
        node_poll(&group.nodes[0], &op, &other, NULL);
    }
}

static void progress_until(const volatile uint8_t *at, uint8_t value)
{
    while (*at != value)
        group_step(&group);
}

static void write_forms(void)
{
    uint8_t tx[900];
    struct op op = {0};
    struct iovec pieces[2] = {{tx, 100}, {tx + 100, 800}};
    struct fi_rma_iov places[3] = {{5000, 300, KEY}, {5300, 0, KEY}, {5300, 600, KEY}};
    struct fi_msg_rma msg = {.msg_iov = pieces, .iov_count = 2, .rma_iov = places, .rma_iov_count = 3};
    struct fi_cq_tagged_entry entry;
    open_nodes(2);
    msg.addr = to;
    msg.context = &op;
    msg.data = 99;
    for (int form = 0; form < 6; form++) {
        bool silent = form == 2 || form == 5;
        pattern_fill(tx, sizeof tx, (uint64_t)form);
        op.state = 0;
        switch (form) {
        case 0: must(fi_write(asker(), tx, sizeof tx, NULL, to, 5000, KEY, &op), "fi_write"); break;
        case 1: must(fi_writev(asker(), pieces, NULL, 2, to, 5000, KEY, &op), "fi_writev"); break;
        case 2: must(fi_inject_write(asker(), tx, sizeof tx, to, 5000, KEY), "fi_inject_write"); break;
        case 3: must(fi_writedata(asker(), tx, sizeof tx, NULL, 99, to, 5000, KEY, &op), "fi_writedata"); break;
        case 4: must(fi_writemsg(asker(), &msg, FI_REMOTE_CQ_DATA | FI_COMPLETION), "fi_writemsg"); break;
        default: must(fi_inject_writedata(asker(), tx, sizeof tx, 99, to, 5000, KEY), "fi_inject_writedata");
        }
        if (form >= 3) {
            entry = remote_entry();
            check((entry.flags & FI_REMOTE_WRITE) && (entry.flags & FI_REMOTE_CQ_DATA) && entry.data == 99,
                  "form %d: flags %llx", form, (unsigned long long)entry.flags);
            check(entry.len == sizeof tx, "form %d: %zu bytes", form, entry.len);
        }
        if (silent)
            progress_until(&area[5899], tx[899]);
        else
            done(&op, "a write");
        pattern_check(area + 5000, sizeof tx, (uint64_t)form);
        check(area[4999] == 0 && area[5900] == 0, "form %d wrote past its place", form);
    }
    close_nodes();
}

/* Writes and reads of every size up to several datagrams and links' worth. */
static void sizes(void)
{
    static const size_t SIZES[] = {0, 1, 7, 511, 513, 1023, 1025, 4096, 65000, 70000, 300001, AREA_BYTES};
    uint8_t *tx = malloc(AREA_BYTES), *rx = malloc(AREA_BYTES);
    struct op op = {0};
    open_nodes(2);
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        size_t length = SIZES[i], at = (AREA_BYTES - length) / 2;
        pattern_fill(tx, length, i);
        memset(rx, 0, AREA_BYTES);
        op.state = 0;
        must(fi_write(asker(), tx, length, NULL, to, at, KEY, &op), "fi_write");
        done(&op, "a write");
        pattern_check(area + at, length, i);
        op.state = 0;
        must(fi_read(asker(), rx, length, NULL, to, at, KEY, &op), "fi_read");
        done(&op, "a read");
        pattern_check(rx, length, i);
    }
    close_nodes();
    free(tx);
    free(rx);
}

static void read_forms(void)
{
    uint8_t rx[900];
    struct op op = {0};
    struct iovec pieces[2] = {{rx, 1}, {rx + 1, 899}};
    struct fi_rma_iov places[2] = {{100, 500, KEY}, {600, 400, KEY}};
    struct fi_msg_rma msg = {.msg_iov = pieces, .iov_count = 2, .rma_iov = places, .rma_iov_count = 2};
    open_nodes(2);
    pattern_fill(area + 100, 900, 3);
    msg.addr = to;
    msg.context = &op;
    for (int form = 0; form < 3; form++) {
        memset(rx, 0, sizeof rx);
        op.state = 0;
        switch (form) {
        case 0: must(fi_read(asker(), rx, sizeof rx, NULL, to, 100, KEY, &op), "fi_read"); break;
        case 1: must(fi_readv(asker(), pieces, NULL, 2, to, 100, KEY, &op), "fi_readv"); break;
        default: must(fi_readmsg(asker(), &msg, FI_COMPLETION), "fi_readmsg");
        }
        done(&op, "a read");
        pattern_check(rx, sizeof rx, 3);
    }
    places[1].len = 300;
    check(fi_readmsg(asker(), &msg, 0) == -FI_EINVAL, "lists of different lengths were taken");
    close_nodes();
}

/* What the peer does not allow fails at the asker with its reason, changes nothing, and disturbs
 * nothing else. */
static void refusals(void)
{
    uint8_t *bytes = calloc(1, AREA_BYTES);
    struct fid_mr *read_only, *write_only;
    struct op op = {0};
    uint64_t one = 1, result;
    open_nodes(2);
    read_only = expose(area, 4096, FI_REMOTE_READ, 8);
    write_only = expose(area, 4096, FI_REMOTE_WRITE, 9);
    bytes[0] = 1;
    static const struct {
        bool is_read;
        size_t length;
        uint64_t addr, key;
        int error;
    } CASES[] = {
        {false, 8, 0, 1234, FI_EKEYREJECTED},        {true, 8, 0, 1234, FI_EKEYREJECTED},
        {false, 8, AREA_BYTES - 7, KEY, FI_EINVAL},  {true, AREA_BYTES, 1, KEY, FI_EINVAL},
        {false, AREA_BYTES, 1, KEY, FI_EINVAL},      {true, 8, UINT64_MAX - 3, KEY, FI_EINVAL},
        {false, 4096, 0, 8, FI_EACCES},              {false, 200000, 0, 8, FI_EACCES},
        {true, 8, 0, 9, FI_EACCES},
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        op.state = 0;
        must(CASES[i].is_read
                 ? fi_read(asker(), bytes, CASES[i].length, NULL, to, CASES[i].addr, CASES[i].key, &op)
                 : fi_write(asker(), bytes, CASES[i].length, NULL, to, CASES[i].addr, CASES[i].key, &op),
             "a request");
        check(group_wait(&group, &op) == -CASES[i].error, "case %zu ended with %d", i, op.state);
        exchange(&group, 0, 1, 100);
    }
    op.state = 0;
    must(fi_fetch_atomic(asker(), &one, 1, NULL, &result, NULL, to, 0, 9, FI_UINT64, FI_SUM, &op), "fi_fetch_atomic");
    check(group_wait(&group, &op) == -FI_EACCES, "a fetch from write-only memory ended with %d", op.state);
    for (size_t i = 0; i < AREA_BYTES; i++)
        check(area[i] == 0, "byte %zu was written", i);
    must(fi_close(&read_only->fid), "fi_close");
    must(fi_close(&write_only->fid), "fi_close");
    op.state = 0;
    must(fi_read(asker(), bytes, 8, NULL, to, 0, 8, &op), "fi_read");
    check(group_wait(&group, &op) == -FI_EKEYREJECTED, "a key outlives its registration: %d", op.state);
    close_nodes();
    free(bytes);
}

/* Registrations are closed, and their memory unmapped, while peers read and write it. */
static void memory_goes(void)
{
    enum { ROUNDS = 40, READS = 8, BYTES = 1 << 20, OPS = 2 * READS + 1 };
    uint8_t *buffers = malloc((size_t)READS * BYTES);
    struct op ops[OPS];
    unsigned refused = 0, served = 0;
    open_nodes(2);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint8_t *gone = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct fid_mr *mr = expose(gone, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 50);
        struct fid_cntr *cntr = counter(1);
        must(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE), "fi_mr_bind of a counter");
        memset(ops, 0, sizeof ops);
        pattern_fill(gone, 4096, round);
        for (size_t i = 0; i < READS; i++) {
            must(fi_read(asker(), buffers + i * BYTES, BYTES, NULL, to, 0, 50, &ops[i]), "fi_read");
            must(fi_write(asker(), area, 8192, NULL, to, 4096 + i * 8192, 50, &ops[READS + i]), "fi_write");
        }
        must(fi_write(asker(), area, BYTES - 4096, NULL, to, 4096, 50, &ops[2 * READS]), "fi_write");
        for (unsigned step = 0; step < round; step++)
            group_step(&group);
        must(fi_close(&mr->fid), "fi_close of a registration in use");
        must(fi_close(&cntr->fid), "fi_close of its counter");
        /* From here on the memory is not there, or is there and may not be changed. */
        bool stays = round % 2 == 1;
        if (stays)
            memset(gone, KEPT, BYTES);
        else
            munmap(gone, BYTES);
        for (size_t i = 0; i < OPS; i++) {
            int state = group_wait(&group, &ops[i]);
            check(state == 1 || state == -FI_EKEYREJECTED, "a transfer ended with %d", state);
            if (state == 1 && i < READS)
                pattern_check(buffers + i * BYTES, 4096, round);
            *(state == 1 ? &served : &refused) += 1;
        }
        for (size_t i = 0; stays && i < BYTES; i++)
            check(gone[i] == KEPT, "round %u: byte %zu came after the registration was closed", round, i);
        if (stays)
            munmap(gone, BYTES);
    }
    exchange(&group, 0, 1, 100000);
    printf("  memory went: %u transfers refused, %u served\n", refused, served);
    check(refused > 0, "no transfer was refused");
    close_nodes();
    free(buffers);
}

static void atomic_forms(void)
{
    uint64_t *cells = (uint64_t *)area, value[2] = {3, 4}, compare[2] = {8, 4}, result[2] = {0};
    struct op op = {0};
    struct fi_ioc in = {value, 2}, with = {compare, 2}, out = {result, 2};
    struct fi_rma_ioc at[2] = {{0, 1, KEY}, {8, 1, KEY}};
    struct fi_msg_atomic msg = {.msg_iov = &in, .iov_count = 1, .rma_iov = at, .rma_iov_count = 2};
    size_t count = 0;
    open_nodes(2);
    cells = (uint64_t *)area;
    msg.addr = to, msg.context = &op, msg.datatype = FI_UINT64, msg.op = FI_SUM;
    must(fi_atomicvalid(asker(), FI_UINT64, FI_SUM, &count), "fi_atomicvalid");
    check(count >= 2, "%zu elements", count);
    check(fi_compare_atomicvalid(asker(), FI_FLOAT, FI_MSWAP, &count) == -FI_EOPNOTSUPP, "a mask of floats");
    must(fi_atomic(asker(), value, 2, NULL, to, 0, KEY, FI_UINT64, FI_SUM, &op), "fi_atomic");
    done(&op, "fi_atomic");
    op.state = 0;
    must(fi_atomicv(asker(), &in, NULL, 1, to, 0, KEY, FI_UINT64, FI_SUM, &op), "fi_atomicv");
    done(&op, "fi_atomicv");
    op.state = 0;
    must(fi_atomicmsg(asker(), &msg, FI_COMPLETION), "fi_atomicmsg");
    done(&op, "fi_atomicmsg");
    must(fi_inject_atomic(asker(), value, 2, to, 0, KEY, FI_UINT64, FI_SUM), "fi_inject_atomic");
    op.state = 0;
    must(fi_fetch_atomic(asker(), NULL, 2, NULL, result, NULL, to, 0, KEY, FI_UINT64, FI_ATOMIC_READ, &op), "a read");
    done(&op, "an atomic read");
    check(result[0] == 12 && result[1] == 16, "four sums are %llu", (unsigned long long)result[0]);
    op.state = 0;
    must(fi_fetch_atomicv(asker(), &in, NULL, 1, &out, NULL, 1, to, 0, KEY, FI_UINT64, DIFFERENCE, &op), "a difference");
    int rc = group_wait(&group, &op);
    check(rc == 1 && result[0] == 12 && cells[0] == 9, "a difference: %d", rc);
    op.state = 0;
    must(fi_fetch_atomicmsg(asker(), &msg, &out, NULL, 1, 0), "fi_fetch_atomicmsg");
    done(&op, "fi_fetch_atomicmsg");
    check(result[0] == 9 && cells[0] == 12 && cells[1] == 16, "a fetch through a message");
    op.state = 0;
    must(fi_compare_atomic(asker(), value, 2, NULL, compare, NULL, result, NULL, to, 0, KEY, FI_UINT64, FI_CSWAP_LT, &op),
         "fi_compare_atomic");
    done(&op, "fi_compare_atomic");
    check(result[0] == 12 && cells[0] == 3 && cells[1] == 4, "swapped where the comparand is less");
    op.state = 0;
    compare[0] = 3, compare[1] = 5, value[0] = 70, value[1] = 80, msg.op = FI_CSWAP;
    must(fi_compare_atomicmsg(asker(), &msg, &with, NULL, 1, &out, NULL, 1, 0), "fi_compare_atomicmsg");
    done(&op, "fi_compare_atomicmsg");
    check(cells[0] == 70 && cells[1] == 4, "swapped where equal");
    close_nodes();
}

/* Three endpoints add to one counter; every earlier value is seen once. */
static void fetch_and_add(void)
{
    enum { ASKERS = 3, EACH = 400, AHEAD = 16 };
    static uint8_t seen[ASKERS * EACH];
    static uint64_t results[ASKERS][AHEAD];
    struct op ops[ASKERS][AHEAD];
    fi_addr_t target[ASKERS];
    uint64_t one = 1;
    open_nodes(4);
    memset(ops, 0, sizeof ops);
    for (size_t a = 0; a < ASKERS; a++)
        target[a] = node_insert(&group.nodes[a == 1 ? 3 : a], group.nodes[1].name);
    for (size_t i = 0; i < EACH + AHEAD; i++) {
        for (size_t a = 0; a < ASKERS; a++) {
            struct op *op = &ops[a][i % AHEAD];
            if (i >= AHEAD) {
                done(op, "a fetch");
                uint64_t old = results[a][i % AHEAD];
                check(old < sizeof seen && !seen[old], "%llu was fetched twice", (unsigned long long)old);
                seen[old] = 1;
            }
            op->state = 0;
            if (i < EACH)
                must(fi_fetch_atomic(group.nodes[a == 1 ? 3 : a].ep, &one, 1, NULL, &results[a][i % AHEAD], NULL,
                                     target[a], 0, KEY, FI_UINT64, FI_SUM, op),
                     "fi_fetch_atomic");
        }
    }
    check(*(uint64_t *)area == ASKERS * EACH, "the counter is %llu", (unsigned long long)*(uint64_t *)area);
    close_nodes();
}

/* What is promised of order, without waiting in between: accesses of up to 1 KiB, atomics, and
 * whatever follows a fence. */
static void order(void)
{
    static uint8_t tx[AREA_BYTES], rx[1024], large[AREA_BYTES];
    struct op ops[5];
    uint64_t one = 1, before;
    open_nodes(2);
    check(group.nodes[0].info->ep_attr->max_order_waw_size >= 1024, "writes of 1 KiB are in order");
    for (unsigned round = 0; round < 200; round++) {
        struct iovec piece = {large, AREA_BYTES};
        struct fi_rma_iov all = {0, AREA_BYTES, KEY};
        struct fi_msg_rma fenced = {
            .msg_iov = &piece, .iov_count = 1, .addr = to, .rma_iov = &all, .rma_iov_count = 1, .context = &ops[4]};
        memset(ops, 0, sizeof ops);
        memset(tx, (int)round, sizeof tx);
        tx[0] = (uint8_t)(round + 1);
        must(fi_write(asker(), tx + 1, 1024, NULL, to, 0, KEY, &ops[0]), "fi_write");
        must(fi_fetch_atomic(asker(), &one, 1, NULL, &before, NULL, to, 8, KEY, FI_UINT64, FI_SUM, &ops[1]), "a fetch");
        must(fi_read(asker(), rx, 1024, NULL, to, 0, KEY, &ops[2]), "fi_read");
        must(fi_write(asker(), tx, 1, NULL, to, 0, KEY, &ops[3]), "fi_write");
        if (round % 20 == 0) {

            struct op long_write = {0};
            must(fi_write(asker(), tx, AREA_BYTES, NULL, to, 0, KEY, &long_write), "a long write");
            must(fi_readmsg(asker(), &fenced, FI_FENCE | FI_COMPLETION), "a fenced read");
            done(&ops[4], "a fenced read");
            check(long_write.state == 1, "the fence let a read pass a write");
            check(memcmp(large, tx, AREA_BYTES) == 0, "the fenced read saw other bytes");
        }
        for (size_t i = 0; i < 4; i++)
            done(&ops[i], "an access");
        uint64_t word;
        memcpy(&word, rx + 8, sizeof word);
        check(rx[0] == (uint8_t)round, "the read saw the later write, or not the earlier one");
        check(word == before + 1, "the read did not see the atomic");
        check(area[0] == (uint8_t)(round + 1), "the later write is not there");
    }
    close_nodes();
}

static void whole_address_space(void)
{
    static uint64_t somewhere = 5;
    uint64_t value = 41, old = 0;
    struct op op = {0};
    struct fid_mr *all;
    open_nodes(2);
    all = expose(NULL, SIZE_MAX, FI_REMOTE_READ | FI_REMOTE_WRITE, 77);
    must(fi_fetch_atomic(asker(), &value, 1, NULL, &old, NULL, to, (uintptr_t)&somewhere, 77, FI_UINT64, FI_SUM, &op),
         "fi_fetch_atomic");
    done(&op, "a fetch at an address");
    check(old == 5 && somewhere == 46, "%llu", (unsigned long long)somewhere);
    op.state = 0;
    must(fi_read(asker(), &old, 8, NULL, to, (uintptr_t)&somewhere, 77, &op), "fi_read");
    done(&op, "a read at an address");
    check(old == 46, "%llu", (unsigned long long)old);
    must(fi_close(&all->fid), "fi_close");
    close_nodes();
}

/* Where the kernel does not let the provider ask what is mapped, all goes on as if all were. */
static void forbidden_question(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = COUNT_OF(code), .filter = code};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS: %s", strerror(errno));
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        printf("  nothing can be forbidden here: %s\n", strerror(errno));
    whole_address_space();
}

enum access { WRITE, READ, UPDATE, FETCH };

static int attempt(enum access access, uint64_t addr, size_t length)
{
    static uint8_t buffer[1 << 20];
    static uint64_t one, old;
    struct op op = {0};
    switch (access) {
    case WRITE: must(fi_write(asker(), buffer, length, NULL, to, addr, 77, &op), "fi_write"); break;
    case READ: must(fi_read(asker(), buffer, length, NULL, to, addr, 77, &op), "fi_read"); break;
    case UPDATE: must(fi_atomic(asker(), &one, 1, NULL, to, addr, 77, FI_UINT64, FI_SUM, &op), "fi_atomic"); break;
    default:
        must(fi_fetch_atomic(asker(), NULL, 1, NULL, &old, NULL, to, addr, 77, FI_UINT64, FI_ATOMIC_READ, &op),
             "fi_fetch_atomic");
    }
    return group_wait(&group, &op);
}

/* Who exposes the whole address space exposes addresses where nothing is mapped: a peer that names
 * one is refused, and nobody dies. */
static void missing_memory(void)
{
    static const size_t LENGTHS[] = {8, 2000, 30000, 1 << 20};
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 1024 * page;
    uint8_t *there = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t hole = (uintptr_t)there + 512 * page, constant = (uintptr_t)there + 768 * page;
    uint64_t missing[] = {0, 16, hole, hole + page - 8, UINT64_MAX - 7 - (1 << 20), 1ull << 55};
    struct fid_mr *all;
    open_nodes(2);
    munmap((void *)hole, page);
    mprotect((void *)constant, page, PROT_READ);
    all = expose(NULL, SIZE_MAX, FI_REMOTE_READ | FI_REMOTE_WRITE, 77);
    for (size_t i = 0; i < COUNT_OF(missing); i++) {
        for (enum access access = WRITE; access <= FETCH; access++) {
            for (size_t at = 0; at < (access <= READ ? COUNT_OF(LENGTHS) : 1); at++) {
                int state = attempt(access, missing[i], LENGTHS[at]);
                check(state == -FI_EINVAL, "access %d of %zu bytes at %llx ended with %d", access, LENGTHS[at],
                      (unsigned long long)missing[i], state);
            }
        }
        exchange(&group, 0, 1, 100);
    }
    check(attempt(WRITE, constant, 8) == -FI_EINVAL, "a write where only reads are allowed");
    check(attempt(UPDATE, constant, 8) == -FI_EINVAL, "an update where only reads are allowed");
    check(attempt(READ, constant, 8) == 1 && attempt(FETCH, constant, 8) == 1, "reads of constant memory");
    check(attempt(UPDATE, hole - 4, 8) == -FI_EINVAL, "an update half of which is missing");
    /* The ends are there, but not what is between. */
    int state = attempt(READ, hole - (1 << 19), 1 << 20);
    check(state == -FI_EKEYREJECTED || state == -FI_EINVAL, "a long read over a hole ended with %d", state);
    state = attempt(WRITE, hole - (1 << 19), 1 << 20);
    check(state == -FI_EINVAL, "a long write over a hole ended with %d", state);
    for (size_t at = 0; at < COUNT_OF(LENGTHS); at++)
        check(attempt(WRITE, (uintptr_t)there + 3, LENGTHS[at]) == 1 && attempt(READ, (uintptr_t)there + 3, LENGTHS[at]) == 1,
              "%zu bytes that are there", LENGTHS[at]);
    exchange(&group, 0, 1, 100000);
    must(fi_close(&all->fid), "fi_close");
    close_nodes();
    munmap(there, bytes);
}

/* The provider picks keys, and peers count in virtual addresses, where the application asks so. */
static void keys_of_the_provider(void)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1", .caps = FI_RMA};
    options.mr_mode = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED;
    options.tx_flags = FI_DELIVERY_COMPLETE;
    struct fid_mr *mrs[8];
    uint64_t cells[8] = {0}, value = 9;
    struct op op = {0};
    memset(&group, 0, sizeof group);
    for (size_t i = 0; i < 2; i++) {
        must(node_find(&group.nodes[i], &options), "fi_getinfo");
        check(group.nodes[i].info->domain_attr->mr_mode == FI_MR_PROV_KEY, "of what we are ready for erd wants %#x",
              (unsigned)group.nodes[i].info->domain_attr->mr_mode);
        group.nodes[i].info->domain_attr->mr_mode = FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
        node_open_found(&group.nodes[i], &options);
    }
    group.count = 2;
    to = node_insert(&group.nodes[0], group.nodes[1].name);
    for (size_t i = 0; i < 8; i++) {
        mrs[i] = expose(&cells[i], 8, FI_REMOTE_WRITE, 1);
        for (size_t other = 0; other < i; other++)
            check(fi_mr_key(mrs[i]) != fi_mr_key(mrs[other]), "a key was given twice");
        check(fi_mr_key(mrs[i]) >> 32 != 0, "the key is %llx", (unsigned long long)fi_mr_key(mrs[i]));
    }
    must(fi_write(asker(), &value, 8, NULL, to, (uintptr_t)&cells[3], fi_mr_key(mrs[3]), &op), "fi_write");
    done(&op, "a write at an address");
    check(cells[3] == 9, "the cell is %llu", (unsigned long long)cells[3]);
    for (size_t i = 0; i < 8; i++)
        must(fi_close(&mrs[i]->fid), "fi_close");
    group_close(&group);
}

/* A write to the own endpoint, counted at both ends, and by the region. */
static void counters(void)
{
    static const uint64_t KINDS[] = {FI_WRITE, FI_READ, FI_REMOTE_WRITE, FI_REMOTE_READ};
    struct fid_cntr *cntrs[5];
    struct fid_ep *ep;
    struct node *node;
    uint64_t value = 3, old;
    fi_addr_t self;
    struct iovec piece = {&value, 8};
    struct fi_rma_iov halves[2] = {{128, 4, KEY}, {256, 4, KEY}};
    struct fi_msg_rma two = {.msg_iov = &piece, .iov_count = 1, .rma_iov = halves, .rma_iov_count = 2};
    open_nodes(2);
    node = &group.nodes[1];
    must(fi_endpoint(node->domain, node->info, &ep, NULL), "fi_endpoint");
    must(fi_ep_bind(ep, &node->av->fid, 0), "fi_ep_bind of the AV");
    for (size_t i = 0; i < 5; i++)
        cntrs[i] = counter(1);
    for (size_t i = 0; i < 4; i++)
        must(fi_ep_bind(ep, &cntrs[i]->fid, KINDS[i]), "fi_ep_bind of a counter");
    must(fi_mr_bind(region, &cntrs[4]->fid, FI_REMOTE_WRITE), "fi_mr_bind of a counter");
    must(fi_enable(ep), "fi_enable");
    struct node own = *node;
    own.ep = ep;
    own.name_bytes = sizeof own.name;
    must(fi_getname(&ep->fid, own.name, &own.name_bytes), "fi_getname");
    self = node_insert(&own, own.name);
    for (uint64_t i = 1; i <= 30; i++) {
        must(fi_inject_write(ep, &value, 8, self, 64, KEY), "fi_inject_write to itself");
        must(fi_fetch_atomic(ep, &value, 1, NULL, &old, NULL, self, 0, KEY, FI_UINT64, FI_SUM, NULL), "a fetch");
        for (size_t c = 0; c < 4; c++)
            must(fi_cntr_wait(cntrs[c], i, 10000), "fi_cntr_wait");
        must(fi_cntr_wait(cntrs[4], 2 * i, 10000), "fi_cntr_wait for all that changed the region");
        check(old == 3 * (i - 1), "fetched %llu", (unsigned long long)old);
    }
    two.addr = self;
    must(fi_writemsg(ep, &two, FI_INJECT), "fi_writemsg of two stretches");
    must(fi_cntr_wait(cntrs[2], 31, 10000), "fi_cntr_wait");
    check(fi_cntr_read(cntrs[4]) == 61, "one write of two stretches counts as %llu",
          (unsigned long long)fi_cntr_read(cntrs[4]) - 60);
    must(fi_close(&ep->fid), "fi_close");
    must(fi_close(&region->fid), "fi_close of the registration");
    for (size_t i = 0; i < 5; i++)
        must(fi_close(&cntrs[i]->fid), "fi_close of a counter");
    region = expose(area, 8, FI_REMOTE_READ, KEY);
    close_nodes();
}

/* Flags that do not belong to an operation change nothing, those that cannot be met are refused. */
static void flags(void)
{
    static uint8_t rx[100000];
    uint64_t one = 1;
    struct op op = {0};
    struct iovec piece = {rx, sizeof rx};
    struct fi_rma_iov place = {0, sizeof rx, KEY};
    struct fi_msg_rma msg = {.msg_iov = &piece, .iov_count = 1, .rma_iov = &place, .rma_iov_count = 1, .context = &op};
    struct fi_msg receive = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    struct fi_ioc operand = {&one, 1};
    struct fi_rma_ioc cell = {0, 1, KEY};
    struct fi_msg_atomic tagged = {.msg_iov = &operand, .iov_count = 1, .rma_iov = &cell, .rma_iov_count = 1};
    struct fi_cq_tagged_entry entry;
    struct op *other;
    open_nodes(2);
    msg.addr = tagged.addr = to;
    tagged.datatype = FI_UINT64, tagged.op = FI_SUM, tagged.context = &op, msg.data = 5;
    pattern_fill(area, sizeof rx, 1);
    must(fi_readmsg(asker(), &msg, FI_INJECT | FI_REMOTE_CQ_DATA | FI_COMPLETION), "fi_readmsg");
    while (op.state == 0) {
        node_poll(&group.nodes[0], &other, &entry, NULL);
        check(node_poll(&group.nodes[1], &other, &entry, NULL) == 0, "a read has completion data");
    }
    done(&op, "a read");
    pattern_check(rx, sizeof rx, 1);
    for (int i = 0; i < 1000; i++)
        check(node_poll(&group.nodes[1], &other, &entry, NULL) == 0, "a read has completion data");
    check(fi_atomicmsg(asker(), &tagged, FI_TAGGED | FI_COMPLETION) == -FI_EOPNOTSUPP, "an atomic on a tagged buffer");
    tagged.context = msg.context = receive.context = NULL;
    check(fi_atomicmsg(asker(), &tagged, FI_TRIGGER) == -FI_EINVAL, "an atomic that nothing triggers");
    check(fi_writemsg(asker(), &msg, FI_TRIGGER) == -FI_EINVAL, "a write that nothing triggers");
    check(fi_recvmsg(asker(), &receive, FI_TRIGGER) == -FI_EINVAL, "a receive that nothing triggers");
    check(fi_query_atomic(group.nodes[0].domain, FI_UINT64, FI_SUM, &(struct fi_atomic_attr){0}, FI_TAGGED) ==
              -FI_EOPNOTSUPP,
          "fi_query_atomic of tagged buffers");
    close_nodes();
}

static size_t option(int name)
{
    size_t bytes = 0, length = sizeof bytes;
    must(fi_getopt(&asker()->fid, FI_OPT_ENDPOINT, name, &bytes, &length), "fi_getopt");
    return bytes;
}

/* What a caller can do wrong, and what the page allows although it looks wrong. */
static void callers(void)
{
    uint64_t one = 1, old;
    struct op op = {0};
    struct fi_rma_iov nowhere = {0, 0, KEY};
    struct fi_msg_rma empty = {.msg_iov = NULL, .iov_count = 1, .rma_iov = &nowhere, .rma_iov_count = 1, .context = &op};
    open_nodes(2);
    empty.addr = to;
    must(fi_writemsg(asker(), &empty, FI_COMPLETION), "a write of nothing from nowhere");
    done(&op, "a write of nothing");
    nowhere.len = 8;
    check(fi_writemsg(asker(), &empty, 0) == -FI_EINVAL, "a write from nowhere");
    check(fi_inject_write(asker(), NULL, 8, to, 0, KEY) == -FI_EINVAL, "an injected write from nowhere");
    check(fi_read(asker(), NULL, 8, NULL, to, 0, KEY, &op) == -FI_EINVAL, "a read to nowhere");
    check(fi_atomic(asker(), NULL, 1, NULL, to, 0, KEY, FI_UINT64, FI_SUM, &op) == -FI_EINVAL, "an operand from nowhere");
    check(fi_fetch_atomic(asker(), &one, 1, NULL, NULL, NULL, to, 0, KEY, FI_UINT64, FI_SUM, &op) == -FI_EINVAL,
          "a fetch to nowhere");
    check(fi_atomic(asker(), &one, 1, NULL, 77, 0, KEY, FI_UINT64, FI_SUM, &op) == -FI_EINVAL, "an unknown peer");
    check(fi_atomic(asker(), &one, 65, NULL, to, 0, KEY, FI_UINT64, FI_SUM, &op) == -FI_EMSGSIZE, "65 elements");
    check(fi_fetch_atomic(asker(), &one, (size_t)1 << 45, NULL, &old, NULL, to, 0, KEY, FI_UINT64, FI_SUM, &op) ==
              -FI_EMSGSIZE,
          "2^45 elements");
    check(fi_atomic(asker(), &one, SIZE_MAX / 4, NULL, to, 0, KEY, FI_UINT64, FI_SUM, &op) == -FI_EINVAL,
          "more bytes than there are addresses");
    check(option(OPT_MAX_RMA) == group.nodes[0].info->ep_attr->max_msg_size, "%zu bytes a write", option(OPT_MAX_RMA));
    check(option(OPT_INJECT_RMA) == group.nodes[0].info->tx_attr->inject_size, "%zu injected", option(OPT_INJECT_RMA));
    check(option(OPT_MAX_ATOMIC) == 64 * 8 && option(OPT_INJECT_ATOMIC) <= 64 * 8, "%zu bytes an atomic, %zu injected",
          option(OPT_MAX_ATOMIC), option(OPT_INJECT_ATOMIC));
    exchange(&group, 0, 1, 100);
    close_nodes();
}

static const struct test_case TESTS[] = {
    {"write_forms", write_forms, 20},
    {"read_forms", read_forms, 20},
    {"sizes", sizes, 20},
    {"refusals", refusals, 20},
    {"memory_goes", memory_goes, 120},
    {"atomic_forms", atomic_forms, 20},
    {"fetch_and_add", fetch_and_add, 30},
    {"order", order, 60},
    {"whole_address_space", whole_address_space, 20},
    {"forbidden_question", forbidden_question, 20},
    {"missing_memory", missing_memory, 60},
    {"keys_of_the_provider", keys_of_the_provider, 20},
    {"counters", counters, 30},
    {"flags", flags, 20},
    {"callers", callers, 20},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
