/* Two libfabrics in one process, as an MPI and NCCL's plugin bring them: TWO_CORES names both files, separated by a colon.
 * When the program closes the second one, what it opened with the first one goes on, and erd's helper thread with it. */
#include "cases.h"

#include <dirent.h>
#include <dlfcn.h>

/* Of fi_peer(3), as since libfabric 2.3; older headers have none, or another form. */
#define PEER (1ULL << 43)

struct peer_cq {
    struct fid fid;
    const void *const *owner_ops;
};
struct peer_cq_context {
    size_t size;
    struct peer_cq *cq;
};

/* A queue's owner, whose functions nobody calls. */
static void never_called(void)
{
    die("the owner was called");
}
static const void *const OWNER_OPS[] = {(const void *)(3 * sizeof(void *)), (const void *)never_called, (const void *)never_called};
static struct peer_cq owner_cq = {.owner_ops = OWNER_OPS};

struct core {
    void *library;
    int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
    void (*freeinfo)(struct fi_info *);
    int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
    struct fi_info *(*dupinfo)(const struct fi_info *);
    uint32_t (*version)(void);
};

static void *symbol(struct core *core, const char *name)
{
    void *found = dlsym(core->library, name);
    check(found != NULL, "%s", dlerror());
    return found;
}

static void core_open(struct core *core, const char *path)
{
    /* This program is linked with one of them, whose functions the other one must not call. */
    core->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    check(core->library != NULL, "%s", dlerror());
    core->getinfo = symbol(core, "fi_getinfo");
    core->freeinfo = symbol(core, "fi_freeinfo");
    core->fabric = symbol(core, "fi_fabric");
    core->dupinfo = symbol(core, "fi_dupinfo");
    core->version = symbol(core, "fi_version");
}

static void end_open(struct core *core, struct node *end)
{
    struct fi_info *hints = core->dupinfo(NULL);
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT};
    size_t bytes = NAME_BYTES;
    hints->caps = FI_MSG;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
    hints->fabric_attr->prov_name = strdup(provider);
    must(core->getinfo(core->version(), NULL, NULL, 0, hints, &end->info), "fi_getinfo");
    core->freeinfo(hints);
    must(core->fabric(end->info->fabric_attr, &end->fabric, NULL), "fi_fabric");
    must(fi_domain(end->fabric, end->info, &end->domain, NULL), "fi_domain");
    must(fi_av_open(end->domain, &av, &end->av, NULL), "fi_av_open");
    must(fi_cq_open(end->domain, &cq, &end->cq, NULL), "fi_cq_open");
    must(fi_endpoint(end->domain, end->info, &end->ep, NULL), "fi_endpoint");
    must(fi_ep_bind(end->ep, &end->av->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(end->ep), "fi_enable");
    must(fi_getname(&end->ep->fid, end->name, &bytes), "fi_getname");
}

static void end_close(struct core *core, struct node *end)
{
    must(fi_close(&end->ep->fid), "fi_close of the endpoint");
    must(fi_close(&end->cq->fid), "fi_close of the queue");
    must(fi_close(&end->av->fid), "fi_close of the addresses");
    must(fi_close(&end->domain->fid), "fi_close of the domain");
    must(fi_close(&end->fabric->fid), "fi_close of the fabric");
    core->freeinfo(end->info);
}

/* The threads of this process with erd's name. */
static int helpers(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    int count = 0;
    check(tasks != NULL, "no /proc/self/task");
    while ((task = readdir(tasks))) {
        char path[300], name[32] = "";
        FILE *file;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        file = fopen(path, "r");
        if (file) {
            if (fgets(name, sizeof name, file))
                count += strncmp(name, "erd-progress", 12) == 0;
            fclose(file);
        }
    }
    closedir(tasks);
    return count;
}

/* A message from one to the other, which makes no call until it is there. */
static void send_to_idle(struct node *from, struct node *to)
{
    uint8_t out[64] = {7}, in[64] = {0};
    struct op send = {0}, recv = {0};
    struct fi_cq_entry entry;
    fi_addr_t address;
    check(fi_av_insert(from->av, to->name, 1, &address, 0, NULL) == 1, "fi_av_insert");
    must(fi_recv(to->ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, &recv), "fi_recv");
    must(fi_send(from->ep, out, sizeof out, NULL, address, &send), "fi_send");
    while (fi_cq_read(from->cq, &entry, 1) == -FI_EAGAIN)
        ;
    while (fi_cq_read(to->cq, &entry, 1) == -FI_EAGAIN)
        ;
    check(memcmp(out, in, sizeof in) == 0, "the message is another one");
}

static void one_is_closed(void)
{
    char *paths = strdup(getenv("TWO_CORES") ? getenv("TWO_CORES") : ""), *second = strchr(paths, ':');
    static struct core cores[2];
    static struct node ends[2], other;
    check(second != NULL, "TWO_CORES names no two files");
    *second++ = '\0';
    core_open(&cores[0], paths);
    core_open(&cores[1], second);
    check(cores[0].getinfo != cores[1].getinfo, "both names are one library");
    for (int i = 0; i < 2; i++)
        end_open(&cores[0], &ends[i]);
    end_open(&cores[1], &other);
    /* The thread names itself once it runs. */
    while (helpers() != 1)
        sched_yield();
    end_close(&cores[1], &other);
    check(dlclose(cores[1].library) == 0, "%s", dlerror());
    check(helpers() == 1, "%d helper threads after the second libfabric has gone", helpers());
    send_to_idle(&ends[0], &ends[1]);
    for (int i = 0; i < 2; i++)
        end_close(&cores[0], &ends[i]);
}

/* Whether this libfabric has the form of FI_PEER that erd knows. */
static bool takes_peers(const struct core *core)
{
    return FI_VERSION_GE(core->version(), FI_VERSION(2, 3));
}

/* What erd answers to a libfabric about FI_PEER is about that one, and so is what a domain of its takes. */
static void check_peers(struct core *core)
{
    struct fi_info *hints = core->dupinfo(NULL), *info = NULL;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_cq *cq = NULL;
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_CONTEXT};
    struct peer_cq_context context = {sizeof context, &owner_cq};
    bool granted;
    int rc;
    hints->caps = FI_MSG | PEER;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup(provider);
    rc = core->getinfo(core->version(), NULL, NULL, 0, hints, &info);
    granted = rc == 0 && (info->caps & PEER) != 0;
    check(granted == takes_peers(core), "libfabric %u.%u: FI_PEER is %sgranted", FI_MAJOR(core->version()),
          FI_MINOR(core->version()), granted ? "" : "not ");
    if (rc != 0) {
        hints->caps = FI_MSG;
        must(core->getinfo(core->version(), NULL, NULL, 0, hints, &info), "fi_getinfo without FI_PEER");
    }
    core->freeinfo(hints);
    /* A program may set it itself. */
    info->caps |= PEER;
    must(core->fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    attr.flags = PEER;
    rc = fi_cq_open(domain, &attr, &cq, &context);
    check(rc == (takes_peers(core) ? 0 : -FI_EINVAL), "libfabric %u.%u: fi_cq_open with FI_PEER: %s",
          FI_MAJOR(core->version()), FI_MINOR(core->version()), fi_strerror(-rc));
    if (cq)
        must(fi_close(&cq->fid), "fi_close of the queue");
    must(fi_close(&domain->fid), "fi_close of the domain");
    must(fi_close(&fabric->fid), "fi_close of the fabric");
    core->freeinfo(info);
}

/* One has the interface, the other does not, whichever was loaded first. */
static void each_is_judged_by_itself(void)
{
    char *paths = strdup(getenv("TWO_CORES") ? getenv("TWO_CORES") : ""), *second = strchr(paths, ':');
    static struct core cores[2];
    check(second != NULL, "TWO_CORES names no two files");
    *second++ = '\0';
    core_open(&cores[0], paths);
    core_open(&cores[1], second);
    for (int i = 0; i < 4; i++)
        check_peers(&cores[i % 2]);
}

static const struct test_case TESTS[] = {
    {"one_is_closed", one_is_closed, 30},
    {"each_is_judged_by_itself", each_is_judged_by_itself, 30},
};

int main(int argc, char **argv)
{
    return run_cases(TESTS, COUNT_OF(TESTS), argc, argv);
}
