// SPDX-License-Identifier: Apache-2.0
/*
 * Neighbours that the kernel keeps alive for us. It forgets them when their link goes down. Kernels
 * before 5.16 do not keep neighbours alive: then each stale or failed one is requested again.
 */
#include "mirror.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <sys/socket.h>

struct managed {
	struct table_node node;
	int ifindex;
	struct sy_addr addr;
};

static struct managed *managed_find(const struct sy_mirror *m, int ifindex,
                                    const struct sy_addr *addr)
{
	uint32_t hash = store_hash(&m->store, addr, (uint32_t)ifindex);

	for (struct table_node *n = table_chain(&m->managed, hash); n; n = n->next) {
		struct managed *at = (struct managed *)n;

		if (at->ifindex == ifindex && sy_addr_equal(&at->addr, addr))
			return at;
	}
	return NULL;
}

static int neigh_request(struct sy_mirror *m, int ifindex, const struct sy_addr *addr, bool manage)
{
	_Alignas(8) char buf[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ndmsg *ndm = mnl_nlmsg_put_extra_header(nlh, sizeof(*ndm));
	uint8_t raw[16];
	size_t len = sy_addr_to_bytes(addr, raw);

	nlh->nlmsg_type = RTM_NEWNEIGH;
	/* Ending the management must not create the neighbour again if it was removed. */
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_REPLACE | (manage ? NLM_F_CREATE : 0);
	nlh->nlmsg_seq = ++m->seq;
	ndm->ndm_family = len == 4 ? AF_INET : AF_INET6;
	ndm->ndm_ifindex = ifindex;
	ndm->ndm_state = NUD_NONE;
	ndm->ndm_flags = NTF_USE;
	mnl_attr_put(nlh, NDA_DST, len, raw);
	mnl_attr_put_u32(nlh, NDA_FLAGS_EXT, manage ? NTF_EXT_MANAGED : 0);
	return mirror_send(m, nlh, nlh->nlmsg_len);
}

int sy_mirror_neigh_manage(struct sy_mirror *m, int ifindex, const struct sy_addr *addr)
{
	if (!managed_find(m, ifindex, addr)) {
		struct managed *n = calloc(1, sizeof(*n));

		if (!n)
			return -ENOMEM;
		n->ifindex = ifindex;
		n->addr = *addr;
		table_insert(&m->managed, &n->node, store_hash(&m->store, addr, (uint32_t)ifindex));
	}
	return neigh_request(m, ifindex, addr, true);
}

int sy_mirror_neigh_release(struct sy_mirror *m, int ifindex, const struct sy_addr *addr)
{
	struct managed *n = managed_find(m, ifindex, addr);

	if (!n)
		return 0;
	table_remove(&m->managed, &n->node);
	free(n);
	return neigh_request(m, ifindex, addr, false);
}

static void managed_renew(struct sy_mirror *m, const struct managed *n)
{
	const struct sy_link *link = store_find_link(&m->store, n->ifindex);

	if (link && link->up)
		neigh_request(m, n->ifindex, &n->addr, true);
}

void managed_on_neigh(struct sy_mirror *m, const struct neigh_msg *msg, bool gone)
{
	const struct managed *n;

	if (!gone && (msg->managed || !msg->fading))
		return;
	n = managed_find(m, msg->neigh.ifindex, &msg->neigh.addr);
	if (n)
		managed_renew(m, n);
}

void managed_on_link_up(struct sy_mirror *m, int ifindex)
{
	for (uint32_t i = 0; i < m->managed.buckets; i++)
		for (struct table_node *n = m->managed.bucket[i]; n; n = n->next)
			if (((struct managed *)n)->ifindex == ifindex)
				managed_renew(m, (struct managed *)n);
}

void managed_free(struct sy_mirror *m)
{
	for (uint32_t i = 0; i < m->managed.buckets; i++) {
		for (struct table_node *n = m->managed.bucket[i], *next; n; n = next) {
			next = n->next;
			free(n);
		}
	}
	table_fini(&m->managed);
}
