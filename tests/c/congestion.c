/* Congestion control by domain, and what a flow tells of itself, through the provider's own
 * operations. */
#include "cases.h"
#include "talk.h"

#include <rdma/fi_ext_erd.h>

enum { PATHS_MAX = 256, LENGTH = 3 << 20 };

static struct group group;

static struct erd_ops_domain *domain_ops(struct fid_domain *domain)
{
    struct erd_ops_domain *ops = NULL;
    must(fi_open_ops(&domain->fid, ERD_DOMAIN_OPS, 0, (void **)&ops, NULL), "fi_open_ops of a domain");
    check(ops->size >= sizeof *ops, "a table of %zu bytes", ops->size);
    return ops;
}

static struct erd_ops_ep *ep_ops(struct fid_ep *ep)
{
    struct erd_ops_ep *ops = NULL;
    must(fi_open_ops(&ep->fid, ERD_EP_OPS, 0, (void **)&ops, NULL), "fi_open_ops of an endpoint");
    check(ops->size >= sizeof *ops, "a table of %zu bytes", ops->size);
    return ops;
}

/* Another endpoint in place of the node's, under the scheme that its domain has now. */
static void open_again(struct node *node)
{
    must(fi_close(&node->ep->fid), "fi_close");
    must(fi_endpoint(node->domain, node->info, &node->ep, NULL), "fi_endpoint");
    must(fi_ep_bind(node->ep, &node->av->fid, 0), "fi_ep_bind of the AV");
    must(fi_ep_bind(node->ep, &node->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the CQ");
    must(fi_enable(node->ep), "fi_enable");
    node->name_bytes = sizeof node->name;
    must(fi_getname(&node->ep->fid, node->name, &node->name_bytes), "fi_getname");
}

static void is_called(struct node *node, const char *expected)
{
    char name[32];
    must(domain_ops(node->domain)->get_cc(node->domain, name, sizeof name), "get_cc");
    check(strcmp(name, expected) == 0, "the scheme is %s, not %s", name, expected);
}

static void two_domains_differ(void)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    struct node *a = &group.nodes[0], *b = &group.nodes[1];
    struct erd_flow flow;
    uint64_t kib[PATHS_MAX], sent_kib = 0;
    fi_addr_t to;
    ssize_t paths;
    group_open(&group, 2, &options);
    must(domain_ops(a->domain)->set_cc(a->domain, "strack", NULL), "set_cc");
    must(domain_ops(b->domain)->set_cc(b->domain, "spray", "window_kib=256"), "set_cc");
    open_again(a);
    open_again(b);
    is_called(a, "strack");
    is_called(b, "spray");
    exchange(&group, 0, 1, LENGTH);
    exchange(&group, 1, 0, LENGTH);

    to = node_insert(a, b->name);
    must(ep_ops(a->ep)->flow(a->ep, to, &flow, sizeof flow), "flow");
    check(flow.sent_bytes >= LENGTH && flow.acked_bytes >= LENGTH, "%llu bytes sent, %llu acknowledged",
          (unsigned long long)flow.sent_bytes, (unsigned long long)flow.acked_bytes);
    check(flow.window_bytes > 0 && flow.rtt_ns > 0 && flow.base_rtt_ns > 0 && flow.target_ns > 0,
          "a flow of strack knows its window and its round trips");
    paths = ep_ops(a->ep)->paths(a->ep, to, kib, PATHS_MAX);
    check(paths > 0, "%zd paths", paths);
    for (ssize_t i = 0; i < paths; i++)
        sent_kib += kib[i];
    check(sent_kib <= flow.sent_bytes >> 10 && sent_kib + (uint64_t)paths >= flow.sent_bytes >> 10,
          "the paths carried %llu KiB of %llu bytes", (unsigned long long)sent_kib, (unsigned long long)flow.sent_bytes);

    must(ep_ops(b->ep)->flow(b->ep, node_insert(b, a->name), &flow, sizeof flow), "flow");
    check(flow.window_bytes == 256 << 10, "a window of %llu bytes", (unsigned long long)flow.window_bytes);
    group_close(&group);
}

static void bad_choices(void)
{
    struct node_options options = {.provider = provider, .address = "127.0.0.1"};
    struct node *node = &group.nodes[0];
    struct erd_ops_domain *ops;
    struct erd_flow flow;
    void *none = NULL;
    char name[4];
    group_open(&group, 2, &options);
    ops = domain_ops(node->domain);
    check(ops->set_cc(node->domain, "cubic", NULL) == -FI_EINVAL, "an unknown scheme");
    check(ops->set_cc(node->domain, "erd", "gain=1") == -FI_EINVAL, "an unknown parameter");
    check(ops->set_cc(node->domain, "erd", "window_kib=0") == -FI_EINVAL, "a parameter out of range");
    check(ops->set_cc(node->domain, "erd", "window_kib") == -FI_EINVAL, "a parameter without a value");
    check(ops->set_cc(node->domain, NULL, NULL) == -FI_EINVAL, "no name");
    is_called(node, "erd");
    check(ops->get_cc(node->domain, name, 3) == -FI_ETOOSMALL, "a buffer too small");
    check(fi_open_ops(&node->domain->fid, "other_ops", 0, &none, NULL) == -FI_ENOSYS, "an unknown table");
    check(fi_open_ops(&node->domain->fid, ERD_EP_OPS, 0, &none, NULL) == -FI_ENOSYS, "another object's table");
    check(ep_ops(node->ep)->flow(node->ep, 77, &flow, sizeof flow) == -FI_EINVAL, "no such peer");
    check(ep_ops(node->ep)->flow(node->ep, node_insert(node, group.nodes[1].name), &flow, sizeof flow) == -FI_ENODATA,
          "a peer without a session");
    group_close(&group);
}

static const struct test_case TESTS[] = {
    {"two_domains_differ", two_domains_differ, 30},
    {"bad_choices", bad_choices, 20},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
