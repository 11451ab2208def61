/* A tagged ping-pong between two processes over libfabric.
 *
 *     cc pingpong.c -o pingpong -lfabric
 *     FI_PROVIDER_PATH=target/release ./pingpong erd
 *
 * One program starts both sides: it forks before libfabric is used, and the two tell each other
 * their names over a socket pair. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "together.h"

enum { ROUNDS = 1000, BYTES = 64, TAG = 1, NAME_BYTES = 64 };

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;

static void must(long rc, const char *what)
{
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-rc));
        exit(1);
    }
}

static void open_endpoint(const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider);
    must(fi_getinfo(FI_VERSION(1, 11), "127.0.0.1", NULL, FI_SOURCE, hints, &info), "fi_getinfo");
    must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    must(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    must(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
    must(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
    must(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(ep), "fi_enable");
    fi_freeinfo(hints);
}

/* Tells the other side our name over `pipe`, and answers where the other side is. */
static fi_addr_t meet(int pipe)
{
    char name[NAME_BYTES] = {0};
    size_t bytes = sizeof name;
    fi_addr_t other;
    must(fi_getname(&ep->fid, name, &bytes), "fi_getname");
    if (write(pipe, name, sizeof name) != sizeof name || read(pipe, name, sizeof name) != sizeof name)
        must(-FI_EIO, "exchanging names");
    if (fi_av_insert(av, name, 1, &other, 0, NULL) != 1)
        must(-FI_EADDRNOTAVAIL, "fi_av_insert");
    return other;
}

/* Waits until `count` operations have completed. */
static void complete(int count)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    while (count > 0) {
        ssize_t rc = fi_cq_read(cq, &entry, 1);
        if (rc == -FI_EAVAIL && fi_cq_readerr(cq, &error, 0) == 1)
            must(-error.err, "an operation");
        if (rc != -FI_EAGAIN)
            must(rc, "fi_cq_read");
        count -= rc == 1;
    }
}

static void play(int pipe, int starts)
{
    struct fi_context2 send_context, recv_context;
    char out[BYTES] = "ping", in[BYTES];
    fi_addr_t other = meet(pipe);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < ROUNDS; i++) {
        must(fi_trecv(ep, in, BYTES, NULL, other, TAG, 0, &recv_context), "fi_trecv");
        if (!starts)
            complete(1);
        must(fi_tsend(ep, out, BYTES, NULL, other, TAG, &send_context), "fi_tsend");
        complete(starts ? 2 : 1);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (starts)
        printf("%d rounds of %d bytes over %s: %.2f us one way\n", ROUNDS, BYTES, info->fabric_attr->prov_name,
               ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3) / ROUNDS / 2);
}

static void close_all(void)
{
    fi_close(&ep->fid);
    fi_close(&cq->fid);
    fi_close(&av->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
    fi_freeinfo(info);
}

int main(int argc, char **argv)
{
    int pair[2], number;
    if (argc != 2) {
        fprintf(stderr, "usage: pingpong PROVIDER\n");
        return 2;
    }
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 ? 0 : -FI_EIO, "socketpair");
    number = fork_together(2);
    open_endpoint(argv[1]);
    play(pair[number], number == 0);
    close_all();
    return others_failed();
}
