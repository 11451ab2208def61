/* Engines that choose a provider from a fixed table of names, and what they ask of it: NIXL and Mooncake of `efa`, NIXL
 * and Mercury of `tcp`. FI_ERD_PROV_NAME gives the provider the name that -p says. Two endpoints of one process stand for
 * two engines; each case moves bytes and looks at them. */
#include "cases.h"

#include <netinet/in.h>
#include <rdma/fi_rma.h>

enum { BYTES = 1 << 20, SMALL_BYTES = 512, NAME_ROOM = 56, PROTO_XNET = 25, RECEIVES = 1024 };

static const uint32_t API = FI_VERSION(1, 18);

/* An engine's endpoint, whose queue tells immediate data, and its memory. */
struct side {
    struct node node;
    struct fid_mr *mr;
    fi_addr_t peer;
    uint8_t *bytes;
};

static struct side sides[2];

static struct fi_info *hints_of(uint64_t caps, int mr_mode)
{
    struct fi_info *hints = fi_allocinfo();
    check(hints != NULL, "fi_allocinfo found no memory");
    hints->caps = caps;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = mr_mode;
    return hints;
}

/* What is found, or NULL. */
static struct fi_info *find(struct fi_info *hints)
{
    struct fi_info *list = NULL;
    int rc = fi_getinfo(API, NULL, NULL, 0, hints, &list);
    check(rc == 0 || rc == -FI_ENODATA, "fi_getinfo: %s", fi_strerror(-rc));
    fi_freeinfo(hints);
    return list;
}

static bool is_ours(const struct fi_info *info)
{
    return strcmp(info->fabric_attr->prov_name, provider) == 0;
}

/* An engine's search: all that can move messages and memory, of any provider. */
static struct fi_info *everything(void)
{
    struct fi_info *list = find(hints_of(FI_MSG | FI_RMA | FI_LOCAL_COMM | FI_REMOTE_COMM, ~3));
    check(list != NULL, "nothing found");
    return list;
}

/* The first domain of the name that the engine knows. */
static char *first_domain(void)
{
    struct fi_info *list = everything();
    char *name = NULL;
    for (struct fi_info *at = list; at && !name; at = at->next)
        if (is_ours(at))
            name = strdup(at->domain_attr->name);
    check(name != NULL, "no provider is called %s", provider);
    fi_freeinfo(list);
    return name;
}

/* Opens both sides by what `search` finds, and makes them known to each other. */
static void open_sides(struct fi_info *(*search)(void))
{
    static const struct node_options options = {.queue_size = 6144, .format = FI_CQ_FORMAT_DATA};
    for (int i = 0; i < 2; i++) {
        struct node *node = &sides[i].node;
        node->info = search();
        check(node->info != NULL, "no entry for the engine");
        check(is_ours(node->info), "the provider is %s", node->info->fabric_attr->prov_name);
        node_open_found(node, &options);
        check(node->name_bytes <= NAME_ROOM, "a name of %zu bytes", node->name_bytes);
        sides[i].bytes = calloc(1, BYTES);
        check(sides[i].bytes != NULL, "no memory");
    }
    for (int i = 0; i < 2; i++)
        sides[i].peer = node_insert(&sides[i].node, sides[1 - i].node.name);
}

static void register_sides(uint64_t access, uint64_t (*key)(int))
{
    for (int i = 0; i < 2; i++)
        must(fi_mr_reg(sides[i].node.domain, sides[i].bytes, BYTES, access, 0, key(i), 0, &sides[i].mr, NULL), "fi_mr_reg");
}

static uint64_t no_key(int side)
{
    (void)side;
    return 0;
}

static uint64_t address_as_key(int side)
{
    return (uint64_t)(uintptr_t)sides[side].bytes;
}

static void close_sides(void)
{
    for (int i = 0; i < 2; i++) {
        if (sides[i].mr)
            must(fi_close(&sides[i].mr->fid), "fi_close of the memory");
        node_close(&sides[i].node);
        free(sides[i].bytes);
    }
}

/* The next completion of a side; the other one progresses meanwhile. */
static struct fi_cq_data_entry completion(int side)
{
    struct fi_cq_data_entry entry, others;
    ssize_t got;
    while ((got = fi_cq_read(sides[side].node.cq, &entry, 1)) == -FI_EAGAIN) {
        ssize_t other = fi_cq_read(sides[1 - side].node.cq, &others, 0);
        check(other >= 0 || other == -FI_EAGAIN, "the other side: %s", fi_strerror((int)-other));
    }
    check(got == 1, "fi_cq_read: %s", fi_strerror((int)-got));
    return entry;
}

/* Where a transfer of the peer's memory begins: its address, or the offset 0. */
static uint64_t base_of_peer(void)
{
    bool by_address = sides[0].node.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
    return by_address ? (uint64_t)(uintptr_t)sides[1].bytes : 0;
}

/* Mooncake: a device's name with -rdm, addresses whatever `mr_mode` says, a descriptor, and bytes that are there when a
 * write is complete. */
static struct fi_info *mooncake_search(void)
{
    int modes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    uint64_t targets = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    struct fi_info *hints = hints_of(FI_MSG | FI_RMA | targets, modes);
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->fabric_attr->prov_name = strdup(provider);
    hints->domain_attr->name = strdup("lo-rdm");
    struct fi_info *found = find(hints);
    check(found != NULL, "there is no lo-rdm");
    check(strcmp(found->domain_attr->name, "lo-rdm") == 0, "the domain is %s", found->domain_attr->name);
    check(found->tx_attr->size > 0, "no room to post");
    return found;
}

static void mooncake_efa(void)
{
    static const size_t sizes[] = {1, SMALL_BYTES, 1024, 65536, BYTES};
    open_sides(mooncake_search);
    register_sides(FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, no_key);
    void *desc = fi_mr_desc(sides[0].mr);
    check(desc != NULL && fi_mr_desc(sides[1].mr) != NULL, "memory has no descriptor");
    uint64_t key = fi_mr_key(sides[1].mr), at = (uint64_t)(uintptr_t)sides[1].bytes;
    check(key != 0, "the key is 0");
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct fi_context context;
        pattern_fill(sides[0].bytes, sizes[i], i + 1);
        memset(sides[1].bytes, 0, sizes[i]);
        must(fi_write(sides[0].node.ep, sides[0].bytes, sizes[i], desc, sides[0].peer, at, key, &context), "fi_write");
        check(completion(0).op_context == &context, "another operation's completion");
        pattern_check(sides[1].bytes, sizes[i], i + 1);
        pattern_fill(sides[1].bytes, sizes[i], i + 100);
        must(fi_read(sides[0].node.ep, sides[0].bytes, sizes[i], desc, sides[0].peer, at, key, &context), "fi_read");
        check(completion(0).op_context == &context, "another operation's completion");
        pattern_check(sides[0].bytes, sizes[i], i + 100);
    }
    close_sides();
}

/* NIXL, a rail: named by its domain alone. Without FI_HMEM it would take memory of a GPU for the host's, and find the first
 * provider of all that has such a domain. */
static struct fi_info *nixl_search(void)
{
    bool is_tcp = strcmp(provider, "tcp") == 0;
    int all = FI_MR_LOCAL | FI_MR_HMEM | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    struct fi_info *hints = hints_of(FI_MSG | FI_RMA | FI_HMEM | FI_LOCAL_COMM | FI_REMOTE_COMM,
                                     is_tcp ? FI_MR_LOCAL | FI_MR_ALLOCATED : all);
    hints->domain_attr->threading = FI_THREAD_COMPLETION;
    hints->domain_attr->name = first_domain();
    return find(hints);
}

static struct fi_context receives[2][RECEIVES];
static uint8_t received[2][RECEIVES][SMALL_BYTES];

/* Posts the receives that NIXL posts ahead: none may be refused. */
static void post_receives(int side)
{
    for (int i = 0; i < RECEIVES; i++) {
        struct iovec iov = {received[side][i], SMALL_BYTES};
        struct fi_msg message = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
        message.context = &receives[side][i];
        must(fi_recvmsg(sides[side].node.ep, &message, 0), "a receive ahead");
    }
}

/* Writes with immediate data: the peer counts them, and takes no receive for them. */
static void nixl_writes(void)
{
    static const size_t sizes[] = {64, 4096, 131072, BYTES};
    uint64_t key = fi_mr_key(sides[1].mr);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct fi_context context;
        void *desc = fi_mr_desc(sides[0].mr);
        struct iovec iov = {sides[0].bytes, sizes[i]};
        struct fi_rma_iov target = {base_of_peer(), sizes[i], key};
        struct fi_msg_rma message = {.msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = sides[0].peer};
        message.rma_iov = &target;
        message.rma_iov_count = 1;
        message.context = &context;
        message.data = 0xabcd0000u + i;
        pattern_fill(sides[0].bytes, sizes[i], i + 7);
        must(fi_writemsg(sides[0].node.ep, &message, FI_REMOTE_CQ_DATA), "fi_writemsg");
        struct fi_cq_data_entry there = completion(1);
        check((there.flags & (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA)) == (FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA) &&
                  !(there.flags & (FI_RECV | FI_WRITE)),
              "flags %#llx", (unsigned long long)there.flags);
        check(there.data == message.data, "data %#llx", (unsigned long long)there.data);
        pattern_check(sides[1].bytes, sizes[i], i + 7);
        check(completion(0).op_context == &context, "another operation's completion");
    }
}

static void nixl(uint64_t (*key)(int))
{
    struct fi_context context;
    open_sides(nixl_search);
    register_sides(FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, key);
    post_receives(0);
    post_receives(1);
    nixl_writes();
    pattern_fill(sides[0].bytes, SMALL_BYTES, 3);
    must(fi_senddata(sides[0].node.ep, sides[0].bytes, SMALL_BYTES, fi_mr_desc(sides[0].mr), 0x1234, sides[0].peer, &context),
         "fi_senddata");
    struct fi_cq_data_entry there = completion(1);
    check(there.flags & FI_RECV && there.data == 0x1234, "flags %#llx", (unsigned long long)there.flags);
    /* No write took one before. */
    check(there.op_context == &receives[1][0], "the message took another receive than the first");
    pattern_check(received[1][0], SMALL_BYTES, 3);
    check(completion(0).op_context == &context, "another operation's completion");
    close_sides();
}

/* It opens every entry, and connects each with each of the peer's. */
static void nixl_efa(void)
{
    struct fi_info *list = everything();
    for (struct fi_info *at = list; at; at = at->next)
        for (struct fi_info *next = at->next; next; next = next->next) {
            if (!is_ours(at) || !is_ours(next))
                continue;
            check(strcmp(at->domain_attr->name, next->domain_attr->name) != 0, "%s is there twice", at->domain_attr->name);
            check(at->addr_format == next->addr_format, "%s and %s have addresses of two families", at->domain_attr->name,
                  next->domain_attr->name);
        }
    fi_freeinfo(list);
    nixl(no_key);
}

static void nixl_tcp(void)
{
    nixl(address_as_key);
}

/* A domain by its device's name alone. */
static void device_efa(void)
{
    struct fi_info *hints = hints_of(FI_MSG, 0);
    hints->fabric_attr->prov_name = strdup(provider);
    hints->domain_attr->name = strdup("lo");
    struct fi_info *info = find(hints);
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    check(info != NULL, "there is no lo");
    check(strcmp(info->domain_attr->name, "lo") == 0, "the domain is %s", info->domain_attr->name);
    must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    must(fi_close(&domain->fid), "fi_close of the domain");
    must(fi_close(&fabric->fid), "fi_close of the fabric");
    fi_freeinfo(info);
}

/* Mercury: the protocol of the provider that it knows, and tags. */
static struct fi_info *mercury_search(void)
{
    struct fi_info *hints = hints_of(FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV | FI_MULTI_RECV,
                                     FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL | FI_MR_ENDPOINT);
    hints->mode = FI_ASYNC_IOV | FI_CONTEXT;
    hints->ep_attr->protocol = PROTO_XNET;
    hints->tx_attr->op_flags = FI_INJECT_COMPLETE;
    hints->tx_attr->size = 4096;
    hints->rx_attr->size = 512;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->fabric_attr->prov_name = strdup(provider);
    struct fi_info *found = find(hints);
    check(found != NULL, "no entry for the engine");
    check(found->ep_attr->protocol == PROTO_XNET, "the protocol is %u", found->ep_attr->protocol);
    check(found->src_addrlen == sizeof(struct sockaddr_in), "an address of %zu bytes", found->src_addrlen);
    return found;
}

static void mercury_tcp(void)
{
    struct fi_context sent, awaited;
    open_sides(mercury_search);
    must(fi_trecv(sides[1].node.ep, sides[1].bytes, BYTES, NULL, sides[1].peer, 42, 0, &awaited), "fi_trecv");
    pattern_fill(sides[0].bytes, BYTES, 5);
    must(fi_tsend(sides[0].node.ep, sides[0].bytes, BYTES, NULL, sides[0].peer, 42, &sent), "fi_tsend");
    check(completion(1).op_context == &awaited, "another operation's completion");
    pattern_check(sides[1].bytes, BYTES, 5);
    check(completion(0).op_context == &sent, "another operation's completion");
    close_sides();
}

int main(int argc, char **argv)
{
    static const struct test_case tests[] = {
        {"nixl_efa", nixl_efa, 60},
        {"mooncake_efa", mooncake_efa, 60},
        {"device_efa", device_efa, 30},
        {"nixl_tcp", nixl_tcp, 60},
        {"mercury_tcp", mercury_tcp, 30},
    };
    return run_cases(tests, COUNT_OF(tests), argc, argv);
}
