/* What the provider "erd" offers beyond libfabric's own calls.
 *
 * Open the tables with fi_open_ops(3):
 *     struct erd_ops_domain *ops;
 *     fi_open_ops(&domain->fid, ERD_DOMAIN_OPS, 0, (void **)&ops, NULL);
 * A table grows at its end only. Its `size` says what the provider has.
 */
#ifndef FI_EXT_ERD_H
#define FI_EXT_ERD_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ERD_DOMAIN_OPS "erd_domain_ops"
#define ERD_EP_OPS "erd_ep_ops"

/* Operations on a domain. */
struct erd_ops_domain {
	size_t size;
	/* Chooses the congestion control of endpoints that are enabled from now on: a name as in
	 * FI_ERD_CC, and parameters as in FI_ERD_CC_OPTIONS ("name=number,..."; NULL for none).
	 * -FI_EINVAL: not valid; the log says what would be. The first endpoint that is enabled
	 * decides whether the domain's packets are ECN-capable. */
	int (*set_cc)(struct fid_domain *domain, const char *name, const char *options);
	/* Writes the name of the scheme, with its final zero. -FI_ETOOSMALL: `len` is too small. */
	int (*get_cc)(struct fid_domain *domain, char *name, size_t len);
};

/* A flow towards one peer, as it is now. Times in ns. Counters since the session began. */
struct erd_flow {
	uint64_t window_bytes;      /* may be in flight */
	uint64_t in_flight_bytes;
	uint64_t pace_bytes_per_s;  /* 0: not paced */
	uint64_t rtt_ns;            /* smoothed */
	uint64_t base_rtt_ns;       /* least lately; this and the next four: 0 if unknown */
	uint64_t typical_rtt_ns;    /* without queues, jitter included */
	uint64_t target_ns;         /* queueing delay that the controller aims at */
	uint64_t bdp_bytes;
	uint64_t paths;             /* that the controller uses now */
	uint64_t sent_bytes;        /* data on the wire, repetitions included */
	uint64_t acked_bytes;
	uint64_t ce_bytes;          /* arrived with a congestion mark */
	uint64_t rtx_nack;          /* packets sent again, by what told that they were lost: */
	uint64_t rtx_probe;
	uint64_t rtx_order;
	uint64_t rtx_trim;
	uint64_t rtx_spurious;      /* of these, not lost after all */
	uint64_t out_of_order_milli; /* mean number of packets that overtook one, times 1000 */
	uint64_t out_of_order_max;
};

/* Operations on an enabled endpoint. */
struct erd_ops_ep {
	size_t size;
	/* A snapshot of the flow to `peer`. `len` is sizeof *flow; as much of it is written as the
	 * provider has. -FI_ENODATA: no session with that peer; -FI_EINVAL: no such peer. */
	int (*flow)(struct fid_ep *ep, fi_addr_t peer, struct erd_flow *flow, size_t len);
	/* KiB sent to `peer` on each path since the flow was last idle, for at most `count` paths.
	 * Answers how many were written; negative as above. */
	ssize_t (*paths)(struct fid_ep *ep, fi_addr_t peer, uint64_t *kib, size_t count);
};

#ifdef __cplusplus
}
#endif

#endif
