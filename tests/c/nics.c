/* Prints what a program sees of a host's cards, a line each: domain, fabric, address, place on the PCI bus. The word `all`
 * stands for a program without wishes, `nccl` for what NCCL's plugin takes for its network, `openshmem` for the entries that
 * Sandia OpenSHMEM spreads its processes over, `domain NAME` for a program that names a domain. */
#include "nccl.h"

#include <arpa/inet.h>

static struct fi_info *search(const char *domain)
{
    struct fi_info *hints = fi_allocinfo(), *list = NULL;
    int rc;
    check(hints != NULL, "fi_allocinfo found no memory");
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA;
    hints->ep_attr->type = FI_EP_RDM;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->fabric_attr->prov_name = strdup("erd");
    hints->domain_attr->name = domain ? strdup(domain) : NULL;
    rc = fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &list);
    check(rc == 0, "fi_getinfo: %s", fi_strerror(-rc));
    fi_freeinfo(hints);
    return list;
}

static void show(const struct fi_info *info)
{
    const struct sockaddr_in *at = info->src_addr;
    const struct fid_nic *nic = info->nic;
    char address[INET_ADDRSTRLEN] = "?", place[32] = "no-card";
    if (info->addr_format == FI_SOCKADDR_IN)
        inet_ntop(AF_INET, &at->sin_addr, address, sizeof address);
    if (nic && nic->bus_attr && nic->bus_attr->bus_type == FI_BUS_PCI) {
        const struct fi_pci_attr *pci = &nic->bus_attr->attr.pci;
        snprintf(place, sizeof place, "%04x:%02x:%02x.%x", pci->domain_id, pci->bus_id, pci->device_id,
                 pci->function_id);
    } else if (nic) {
        snprintf(place, sizeof place, "no-bus");
    }
    printf("%s %s %s %s\n", info->domain_attr->name, info->fabric_attr->name, address, place);
}

int main(int argc, char **argv)
{
    const char *who = argc > 1 ? argv[1] : "all";
    bool openshmem = strcmp(who, "openshmem") == 0;
    struct fi_info *list = NULL;
    if (strcmp(who, "nccl") == 0)
        must(nccl_find(&(struct nccl_ask){.version = FI_VERSION(1, 15)}, &list), "fi_getinfo");
    else
        list = search(argc > 2 ? argv[2] : NULL);
    for (struct fi_info *info = list; info; info = info->next)
        if (!openshmem || info->nic)
            show(info);
    fi_freeinfo(list);
    return 0;
}
