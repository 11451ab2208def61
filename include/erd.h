/* erd: reliable datagrams with the names and semantics of libibverbs.
 *
 *     cc program.c $(pkg-config --cflags --libs erd)
 *
 * erd(3) is an overview, and every function has a page in section 3. Objects are handles: never
 * looked into, and refused once they are destroyed. Functions that answer an int answer 0 or a
 * positive error number, those that answer an object NULL with errno set, unless their page says
 * otherwise; erd_last_error() has the reason in words. All functions may be called by several
 * threads at once.
 *
 * ABI: structures that begin with `size` may grow at their end, the others never do while the
 * library is liberd.so.1. Reserved fields are zero. */
#ifndef ERD_H
#define ERD_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

struct erd_context; /* A device that is open. */
struct erd_pd;      /* A protection domain. */
struct erd_mr;      /* Memory that peers may reach. */
struct erd_cq;      /* A completion queue. */
struct erd_qp;      /* A queue pair. */
struct erd_ah;      /* The address of a peer's queue pair. */

/* A name of a queue pair: IP address and UDP port. */
union erd_name {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

/* ---- Devices ---- */

enum erd_device_flags {
    ERD_DEVICE_LOOPBACK = 1 << 0, /* It is the loopback. */
    ERD_DEVICE_RDMA = 1 << 1      /* An RDMA device carries data. */
};

struct erd_device_info {
    char name[64];       /* Of the interface or RDMA device. */
    char address[48];    /* IP address, in text. */
    uint32_t mtu_bytes;  /* Of the interface, IP header included. */
    uint32_t flags;      /* enum erd_device_flags */
    uint64_t speed_mbps; /* Of the link; 0 if the interface does not say. */
};

/* A setting: `name` is that of FI_ERD_<NAME>, in lower case and without FI_ERD_. */
struct erd_setting {
    const char *name;
    const char *value;
};

struct erd_context_attr {
    size_t size;                         /* sizeof(struct erd_context_attr) */
    const char *controller;              /* Congestion controller; NULL for the environment's. */
    const char *controller_options;      /* name=number,...; NULL for none. */
    const struct erd_setting *settings;  /* They come before those of the environment. */
    uint32_t num_settings;
    uint32_t paths;                      /* 1 to 256; 0 for the environment's. */
    uint32_t key_size;                   /* 32 with a key, else 0. */
    const uint8_t *key;                  /* The key of the job; NULL for the environment's. */
};

const char *erd_version(void);
const char *erd_last_error(void);
int erd_query_devices(struct erd_device_info *list, int count);
struct erd_context *erd_open_device(const char *name, const struct erd_context_attr *attr);
int erd_close_device(struct erd_context *context);

/* ---- Protection domains and memory ---- */

enum erd_access_flags {
    ERD_ACCESS_REMOTE_WRITE = 1 << 1,
    ERD_ACCESS_REMOTE_READ = 1 << 2,
    ERD_ACCESS_REMOTE_ATOMIC = 1 << 3
};

struct erd_pd *erd_alloc_pd(struct erd_context *context);
int erd_dealloc_pd(struct erd_pd *pd);
struct erd_mr *erd_reg_mr(struct erd_pd *pd, void *addr, size_t length, uint32_t access, uint64_t *rkey);
int erd_dereg_mr(struct erd_mr *mr);

/* ---- Addresses ---- */

struct erd_wc;

struct erd_ah *erd_create_ah(struct erd_pd *pd, const struct sockaddr *name, socklen_t length);
struct erd_ah *erd_create_ah_by_name(struct erd_pd *pd, const char *host_and_port);
struct erd_ah *erd_create_ah_from_wc(struct erd_pd *pd, const struct erd_wc *wc);
int erd_destroy_ah(struct erd_ah *ah);

/* ---- Completions ---- */

enum erd_wc_status {
    ERD_WC_SUCCESS = 0,
    ERD_WC_LOC_LEN_ERR = 1,      /* The message was longer than the receive's memory. */
    ERD_WC_LOC_PROT_ERR = 4,     /* The kernel could not read the request's memory: erd_poll_cq(3). */
    ERD_WC_WR_FLUSH_ERR = 5,     /* The request was withdrawn. */
    ERD_WC_REM_INV_REQ_ERR = 9,  /* The peer cannot do what was asked for. */
    ERD_WC_REM_ACCESS_ERR = 10,  /* No such memory at the peer, or not for this access. */
    ERD_WC_REM_OP_ERR = 11,      /* The peer had no room for its completion. */
    ERD_WC_RETRY_EXC_ERR = 12,   /* The peer did not answer in time. */
    ERD_WC_REM_ABORT_ERR = 16,   /* The peer closed its queue pair, or was replaced. */
    ERD_WC_GENERAL_ERR = 21
};

enum erd_wc_opcode {
    ERD_WC_SEND = 0,
    ERD_WC_RDMA_WRITE = 1,
    ERD_WC_RDMA_READ = 2,
    ERD_WC_ATOMIC = 3,
    ERD_WC_RECV = 128,
    ERD_WC_RECV_RDMA_WITH_IMM = 129
};

enum erd_wc_flags {
    ERD_WC_WITH_IMM = 1 << 1 /* imm_data is there. */
};

struct erd_wc {
    uint64_t wr_id;
    uint32_t status; /* enum erd_wc_status */
    uint32_t opcode; /* enum erd_wc_opcode */
    uint64_t byte_len;
    uint64_t imm_data;
    uint32_t qp_num;
    uint32_t wc_flags;    /* enum erd_wc_flags */
    uint32_t vendor_err;  /* For erd_wc_reason(). */
    uint32_t peer_length; /* Bytes of peer; 0 if it is not known. */
    union erd_name peer;  /* Who sent, or failed. */
    uint32_t reserved;
};

struct erd_cq *erd_create_cq(struct erd_context *context);
int erd_destroy_cq(struct erd_cq *cq);
int erd_poll_cq(struct erd_cq *cq, int num_entries, struct erd_wc *wc);
int erd_wait_cq(struct erd_cq *cq, int timeout_ms);
int erd_cq_fd(struct erd_cq *cq);
int erd_req_notify_cq(struct erd_cq *cq);
const char *erd_wc_status_str(uint32_t status);
const char *erd_wc_reason(const struct erd_wc *wc);

/* ---- Queue pairs ---- */

struct erd_qp_init_attr {
    size_t size; /* sizeof(struct erd_qp_init_attr) */
    struct erd_cq *send_cq;
    struct erd_cq *recv_cq;
    uint32_t max_send_wr; /* 1 to 65536, or 0 for FI_ERD_TX_SIZE. */
    uint32_t max_recv_wr; /* 1 to 65536, or 0 for FI_ERD_RX_SIZE, of which 65536 at most. */
    uint32_t sq_sig_all;  /* Not 0: every request is signaled. */
    uint16_t port;        /* UDP port; 0 for a free one. */
    uint16_t reserved;
};

struct erd_sge {
    void *addr;
    size_t length;
};

enum erd_wr_opcode {
    ERD_WR_RDMA_WRITE = 0,
    ERD_WR_RDMA_WRITE_WITH_IMM = 1,
    ERD_WR_SEND = 2,
    ERD_WR_SEND_WITH_IMM = 3,
    ERD_WR_RDMA_READ = 4,
    ERD_WR_ATOMIC_CMP_AND_SWP = 5,
    ERD_WR_ATOMIC_FETCH_AND_ADD = 6
};

enum erd_send_flags {
    ERD_SEND_FENCE = 1 << 0,
    ERD_SEND_SIGNALED = 1 << 1,
    ERD_SEND_INLINE = 1 << 3
};

struct erd_send_wr {
    uint64_t wr_id;
    const struct erd_send_wr *next;
    const struct erd_sge *sg_list;
    uint32_t num_sge; /* At most 8. */
    uint32_t opcode;  /* enum erd_wr_opcode */
    uint32_t send_flags; /* enum erd_send_flags */
    uint32_t reserved;
    struct erd_ah *ah;
    uint64_t imm_data;
    uint64_t remote_addr;
    uint64_t rkey;
    uint64_t compare_add; /* What is added, or what must be there. */
    uint64_t swap;
};

struct erd_recv_wr {
    uint64_t wr_id;
    const struct erd_recv_wr *next;
    const struct erd_sge *sg_list;
    uint32_t num_sge; /* At most 8. */
    uint32_t reserved;
};

struct erd_qp *erd_create_qp(struct erd_pd *pd, const struct erd_qp_init_attr *attr);
int erd_destroy_qp(struct erd_qp *qp);
int erd_query_qp_name(struct erd_qp *qp, union erd_name *name, socklen_t *length);
uint32_t erd_qp_num(struct erd_qp *qp);
int erd_post_send(struct erd_qp *qp, const struct erd_send_wr *wr, const struct erd_send_wr **bad_wr);
int erd_post_recv(struct erd_qp *qp, const struct erd_recv_wr *wr, const struct erd_recv_wr **bad_wr);

#ifdef __cplusplus
}
#endif

#endif
