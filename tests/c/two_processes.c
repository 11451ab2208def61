/* Two processes exchange data through liberd: written from erd.h and its man pages alone, as a
 * stranger would, and built with nothing but the installed package:
 *
 *     cc two_processes.c -o two_processes $(pkg-config --cflags --libs erd)
 *
 * The parent lends the child memory. The child writes to it, reads it back, counts in it, and sends a
 * long message; both compare every byte. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <erd.h>

#define MESSAGE_BYTES 300000
#define SHARED_BYTES 4096
#define WAIT_MS 20000

struct side {
    struct erd_context *context;
    struct erd_pd *pd;
    struct erd_cq *cq;
    struct erd_qp *qp;
    int pipe;
};

/* What the parent tells the child: where it is, and where its memory is. */
struct card {
    union erd_name name;
    socklen_t length;
    uint64_t addr, rkey;
};

static void die(const char *what)
{
    fprintf(stderr, "%s: %s (%s)\n", what, erd_last_error(), strerror(errno));
    exit(1);
}

static void check(int errnum, const char *what)
{
    errno = errnum;
    if (errnum != 0)
        die(what);
}

static unsigned char pattern(size_t at)
{
    return (unsigned char)(at * 7 + at / 251);
}

static void open_side(struct side *side)
{
    struct erd_qp_init_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.sq_sig_all = 1;
    if (!(side->context = erd_open_device("127.0.0.1", NULL)))
        die("erd_open_device");
    if (!(side->pd = erd_alloc_pd(side->context)))
        die("erd_alloc_pd");
    if (!(side->cq = erd_create_cq(side->context)))
        die("erd_create_cq");
    attr.send_cq = side->cq;
    attr.recv_cq = side->cq;
    if (!(side->qp = erd_create_qp(side->pd, &attr)))
        die("erd_create_qp");
}

static void close_side(struct side *side)
{
    check(erd_destroy_qp(side->qp), "erd_destroy_qp");
    check(erd_destroy_cq(side->cq), "erd_destroy_cq");
    check(erd_dealloc_pd(side->pd), "erd_dealloc_pd");
    check(erd_close_device(side->context), "erd_close_device");
}

/* Sleeps until the next request is done. */
static struct erd_wc next(struct side *side)
{
    struct erd_wc wc;
    int count;
    while ((count = erd_poll_cq(side->cq, 1, &wc)) == 0)
        check(erd_wait_cq(side->cq, WAIT_MS), "erd_wait_cq");
    if (count < 0)
        check(-count, "erd_poll_cq");
    if (wc.status != ERD_WC_SUCCESS) {
        fprintf(stderr, "a request: %s: %s\n", erd_wc_status_str(wc.status), erd_wc_reason(&wc));
        exit(1);
    }
    return wc;
}

static void receive(struct side *side, uint64_t number, void *memory, size_t length)
{
    struct erd_sge sge = {memory, length};
    struct erd_recv_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.wr_id = number;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    check(erd_post_recv(side->qp, &wr, NULL), "erd_post_recv");
}

/* Posts one request, and waits until it is done. */
static void ask(struct side *side, struct erd_send_wr wr, void *memory, size_t length)
{
    struct erd_sge sge = {memory, length};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    check(erd_post_send(side->qp, &wr, NULL), "erd_post_send");
    if (next(side).wr_id != wr.wr_id) {
        fprintf(stderr, "another request was done\n");
        exit(1);
    }
}

static void compare(const unsigned char *bytes, size_t length, const char *what)
{
    for (size_t at = 0; at < length; at++)
        if (bytes[at] != pattern(at)) {
            fprintf(stderr, "%s: byte %zu is %u, not %u\n", what, at, bytes[at], pattern(at));
            exit(1);
        }
}

static void parent(struct side *side)
{
    static unsigned char message[MESSAGE_BYTES];
    static uint64_t shared[SHARED_BYTES / sizeof(uint64_t)];
    uint32_t access = ERD_ACCESS_REMOTE_WRITE | ERD_ACCESS_REMOTE_READ | ERD_ACCESS_REMOTE_ATOMIC;
    struct card card;
    struct erd_mr *mr;
    struct erd_wc wc;
    memset(&card, 0, sizeof card);
    check(erd_query_qp_name(side->qp, &card.name, &card.length), "erd_query_qp_name");
    if (!(mr = erd_reg_mr(side->pd, shared, sizeof shared, access, &card.rkey)))
        die("erd_reg_mr");
    card.addr = (uintptr_t)shared;
    receive(side, 1, message, sizeof message);
    if (write(side->pipe, &card, sizeof card) != sizeof card)
        die("telling the child");
    wc = next(side);
    if (wc.opcode != ERD_WC_RECV_RDMA_WITH_IMM || wc.imm_data != 42 || !(wc.wc_flags & ERD_WC_WITH_IMM)) {
        fprintf(stderr, "not the child's write: opcode %u\n", wc.opcode);
        exit(1);
    }
    wc = next(side);
    if (wc.wr_id != 1 || wc.byte_len != MESSAGE_BYTES) {
        fprintf(stderr, "not the child's message: %llu bytes\n", (unsigned long long)wc.byte_len);
        exit(1);
    }
    compare(message, sizeof message, "the message");
    check(erd_dereg_mr(mr), "erd_dereg_mr");
    compare((unsigned char *)shared, sizeof shared - sizeof *shared, "the memory");
    if (shared[SHARED_BYTES / sizeof(uint64_t) - 1] != 12) {
        fprintf(stderr, "the child's count is not there\n");
        exit(1);
    }
    printf("%d bytes written, read and counted in, and a message of %d bytes\n", SHARED_BYTES, MESSAGE_BYTES);
}

static void child(struct side *side)
{
    static unsigned char bytes[MESSAGE_BYTES], back[SHARED_BYTES];
    size_t filled = SHARED_BYTES - sizeof(uint64_t);
    struct erd_send_wr wr;
    struct erd_ah *ah;
    struct card card;
    uint64_t old = 1;
    if (read(side->pipe, &card, sizeof card) != sizeof card)
        die("hearing of the parent");
    if (!(ah = erd_create_ah(side->pd, &card.name.sa, card.length)))
        die("erd_create_ah");
    for (size_t at = 0; at < sizeof bytes; at++)
        bytes[at] = pattern(at);
    memset(&wr, 0, sizeof wr);
    wr.ah = ah;
    wr.remote_addr = card.addr;
    wr.rkey = card.rkey;
    wr.wr_id = 10;
    wr.opcode = ERD_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = 42;
    ask(side, wr, bytes, filled);
    wr.wr_id = 11;
    wr.opcode = ERD_WR_RDMA_READ;
    ask(side, wr, back, filled);
    compare(back, filled, "what was read");
    wr.wr_id = 12;
    wr.remote_addr = card.addr + filled;
    wr.opcode = ERD_WR_ATOMIC_FETCH_AND_ADD;
    wr.compare_add = 5;
    ask(side, wr, &old, sizeof old);
    wr.wr_id = 13;
    wr.opcode = ERD_WR_ATOMIC_CMP_AND_SWP;
    wr.swap = 12;
    ask(side, wr, &old, sizeof old);
    if (old != 5) {
        fprintf(stderr, "the count was %llu, not 5\n", (unsigned long long)old);
        exit(1);
    }
    wr.wr_id = 14;
    wr.opcode = ERD_WR_SEND;
    ask(side, wr, bytes, sizeof bytes);
    check(erd_destroy_ah(ah), "erd_destroy_ah");
}

int main(void)
{
    struct side side;
    int pair[2], status = 0;
    pid_t pid;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || (pid = fork()) < 0) {
        perror("two processes");
        return 1;
    }
    side.pipe = pair[pid == 0];
    open_side(&side);
    if (pid == 0) {
        child(&side);
        close_side(&side);
        return 0;
    }
    parent(&side);
    close_side(&side);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 1;
    return WEXITSTATUS(status);
}
