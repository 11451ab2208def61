/* Children of a process that uses liberd: one does nothing, one ends by exit(), one calls every function
 * with its parent's objects and then works with objects of its own. None of this harms the parent. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <erd.h>

enum { ROUNDS = 200 };

struct side {
    struct erd_context *context;
    struct erd_pd *pd;
    struct erd_cq *cq;
    struct erd_qp *from, *to;
    struct erd_ah *ah;
    struct erd_mr *mr;
    char memory[64];
};

static int failures;

static void expect(int is, int should, const char *what)
{
    if (is == should)
        return;
    fprintf(stderr, "FAILED: %s is %d, not %d: %s\n", what, is, should, erd_last_error());
    failures++;
}

static void open_side(struct side *side)
{
    struct erd_qp_init_attr attr = {.size = sizeof attr, .sq_sig_all = 1};
    union erd_name name;
    socklen_t length;
    uint64_t rkey;
    side->context = erd_open_device("127.0.0.1", NULL);
    side->pd = erd_alloc_pd(side->context);
    side->cq = erd_create_cq(side->context);
    attr.send_cq = attr.recv_cq = side->cq;
    side->from = erd_create_qp(side->pd, &attr);
    side->to = erd_create_qp(side->pd, &attr);
    expect(erd_query_qp_name(side->to, &name, &length), 0, "erd_query_qp_name");
    side->ah = erd_create_ah(side->pd, &name.sa, length);
    side->mr = erd_reg_mr(side->pd, side->memory, sizeof side->memory, ERD_ACCESS_REMOTE_READ, &rkey);
    expect(side->from && side->to && side->ah && side->mr, 1, "opening");
}

static void close_side(struct side *side)
{
    expect(erd_destroy_qp(side->from), 0, "erd_destroy_qp");
    expect(erd_destroy_qp(side->to), 0, "erd_destroy_qp");
    expect(erd_destroy_ah(side->ah), 0, "erd_destroy_ah");
    expect(erd_dereg_mr(side->mr), 0, "erd_dereg_mr");
    expect(erd_destroy_cq(side->cq), 0, "erd_destroy_cq");
    expect(erd_dealloc_pd(side->pd), 0, "erd_dealloc_pd");
    expect(erd_close_device(side->context), 0, "erd_close_device");
}

static int post_send(const struct side *side, char *byte)
{
    struct erd_sge sge = {byte, 1};
    struct erd_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = ERD_WR_SEND, .ah = side->ah};
    return erd_post_send(side->from, &wr, NULL);
}

static int post_recv(const struct side *side, char *byte)
{
    struct erd_sge sge = {byte, 1};
    struct erd_recv_wr wr = {.sg_list = &sge, .num_sge = 1};
    return erd_post_recv(side->to, &wr, NULL);
}

/* A message from one of the side's queue pairs to the other. */
static void talk(struct side *side, char what)
{
    char out = what, in = 0;
    struct erd_wc wc[2];
    expect(post_recv(side, &in), 0, "erd_post_recv");
    expect(post_send(side, &out), 0, "erd_post_send");
    for (int done = 0, polled; done < 2; done += polled) {
        polled = erd_poll_cq(side->cq, 2, wc);
        if (polled == 0 && erd_wait_cq(side->cq, 20000) != 0)
            polled = -1;
        if (polled < 0) {
            expect(polled, 0, "erd_poll_cq");
            return;
        }
        for (int i = 0; i < polled; i++)
            expect((int)wc[i].status, ERD_WC_SUCCESS, "a status");
    }
    expect(in, what, "the message");
}

static void misuse(struct side *side)
{
    struct erd_qp_init_attr attr = {.size = sizeof attr, .send_cq = side->cq, .recv_cq = side->cq};
    struct erd_wc wc;
    union erd_name name;
    socklen_t length;
    char byte = 0;
    expect(post_send(side, &byte), EPERM, "a child's erd_post_send");
    expect(post_recv(side, &byte), EPERM, "a child's erd_post_recv");
    expect(erd_poll_cq(side->cq, 1, &wc), -EPERM, "a child's erd_poll_cq");
    expect(erd_wait_cq(side->cq, -1), EPERM, "a child's erd_wait_cq");
    expect(erd_req_notify_cq(side->cq), EPERM, "a child's erd_req_notify_cq");
    expect(erd_cq_fd(side->cq), -1, "a child's erd_cq_fd");
    expect(erd_query_qp_name(side->to, &name, &length), EPERM, "a child's erd_query_qp_name");
    expect((int)erd_qp_num(side->to), 0, "a child's erd_qp_num");
    expect(erd_alloc_pd(side->context) == NULL && errno == EPERM, 1, "a child's erd_alloc_pd");
    expect(erd_create_cq(side->context) == NULL && errno == EPERM, 1, "a child's erd_create_cq");
    expect(erd_create_qp(side->pd, &attr) == NULL && errno == EPERM, 1, "a child's erd_create_qp");
    expect(erd_reg_mr(side->pd, &byte, 1, 0, NULL) == NULL && errno == EPERM, 1, "a child's erd_reg_mr");
    expect(erd_create_ah_by_name(side->pd, "127.0.0.1:9") == NULL && errno == EPERM, 1, "a child's erd_create_ah_by_name");
    expect(erd_destroy_qp(side->from), EPERM, "a child's erd_destroy_qp");
    expect(erd_destroy_ah(side->ah), EPERM, "a child's erd_destroy_ah");
    expect(erd_dereg_mr(side->mr), EPERM, "a child's erd_dereg_mr");
    expect(erd_destroy_cq(side->cq), EPERM, "a child's erd_destroy_cq");
    expect(erd_dealloc_pd(side->pd), EPERM, "a child's erd_dealloc_pd");
    expect(erd_close_device(side->context), EPERM, "a child's erd_close_device");
    expect(strstr(erd_last_error(), "forked") != NULL, 1, "the reason");
}

static void child(struct side *parents, int number)
{
    struct side own;
    if (number == 0)
        _exit(0);
    if (number == 1)
        exit(0);
    misuse(parents);
    open_side(&own);
    talk(&own, 'c');
    close_side(&own);
    exit(failures ? 1 : 0);
}

int main(void)
{
    struct side side;
    open_side(&side);
    talk(&side, 'a');
    for (int number = 0; number < 3; number++) {
        int status = 1;
        pid_t pid = fork();
        if (pid == 0)
            child(&side, number);
        for (int i = 0; i < ROUNDS; i++)
            talk(&side, (char)i);
        expect(waitpid(pid, &status, 0), pid, "waitpid");
        expect(status, 0, "the child's status");
        talk(&side, 'b');
    }
    close_side(&side);
    if (!failures)
        printf("three children came and went\n");
    return failures ? 1 : 0;
}
