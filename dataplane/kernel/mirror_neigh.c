// SPDX-License-Identifier: Apache-2.0
/*
 * Neighbours that the kernel keeps alive for us. It forgets them when their link goes down. Kernels
 * before 5.16 do not keep neighbours alive: then each stale or failed one is requested again.
 * A permanent entry is left alone: a request to use or keep it takes the permanence off, and the
 * neighbour would have to answer ARP.
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
	bool reported;  /* the kernel has told of it */
	bool permanent; /* the host's own entry: a request would make an ordinary one of it */
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

static struct nlmsghdr *request_begin(struct sy_mirror *m, char *buf, uint16_t type, uint16_t flags,
                                      uint8_t use, int ifindex, const struct sy_addr *addr)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ndmsg *ndm = mnl_nlmsg_put_extra_header(nlh, sizeof(*ndm));
	uint8_t raw[16];
	size_t len = sy_addr_to_bytes(addr, raw);

	nlh->nlmsg_type = type;
	nlh->nlmsg_flags = NLM_F_REQUEST | flags;
	nlh->nlmsg_seq = ++m->seq;
	ndm->ndm_family = len == 4 ? AF_INET : AF_INET6;
	ndm->ndm_ifindex = ifindex;
	ndm->ndm_state = NUD_NONE;
	ndm->ndm_flags = use;
	mnl_attr_put(nlh, NDA_DST, len, raw);
	return nlh;
}

static int neigh_request(struct sy_mirror *m, int ifindex, const struct sy_addr *addr,
                         uint16_t flags, bool manage)
{
	_Alignas(8) char buf[128];
	struct nlmsghdr *nlh = request_begin(m, buf, RTM_NEWNEIGH, flags, NTF_USE, ifindex, addr);

	mnl_attr_put_u32(nlh, NDA_FLAGS_EXT, manage ? NTF_EXT_MANAGED : 0);
	return mirror_send(m, nlh, nlh->nlmsg_len);
}

/* Makes the neighbour, or asks what the entry is that is there already: managed_on_neigh() gets the
 * answer. */
static int neigh_make(struct sy_mirror *m, int ifindex, const struct sy_addr *addr)
{
	_Alignas(8) char buf[128];
	struct nlmsghdr *nlh;
	int rc = neigh_request(m, ifindex, addr, NLM_F_CREATE | NLM_F_EXCL, true);

	if (rc)
		return rc;
	nlh = request_begin(m, buf, RTM_GETNEIGH, 0, 0, ifindex, addr);
	return mirror_send(m, nlh, nlh->nlmsg_len);
}

static int managed_renew(struct sy_mirror *m, const struct managed *n)
{
	return neigh_request(m, n->ifindex, &n->addr, NLM_F_CREATE | NLM_F_REPLACE, true);
}

int sy_mirror_neigh_manage(struct sy_mirror *m, int ifindex, const struct sy_addr *addr)
{
	struct managed *n = managed_find(m, ifindex, addr);
	struct sy_neigh known;

	if (n && n->reported && sy_mirror_find_neigh(m, ifindex, addr, &known))
		return n->permanent ? 0 : managed_renew(m, n);
	if (!n) {
		n = calloc(1, sizeof(*n));
		if (!n)
			return -ENOMEM;
		n->ifindex = ifindex;
		n->addr = *addr;
		table_insert(&m->managed, &n->node, store_hash(&m->store, addr, (uint32_t)ifindex));
	}
	return neigh_make(m, ifindex, addr);
}

int sy_mirror_neigh_release(struct sy_mirror *m, int ifindex, const struct sy_addr *addr)
{
	struct managed *n = managed_find(m, ifindex, addr);
	bool permanent = n && n->permanent;

	if (!n)
		return 0;
	table_remove(&m->managed, &n->node);
	free(n);
	/* Ending the management must not create the neighbour again if it was removed. */
	return permanent ? 0 : neigh_request(m, ifindex, addr, NLM_F_REPLACE, false);
}

static bool link_is_up(const struct sy_mirror *m, int ifindex)
{
	const struct sy_link *link = store_find_link(&m->store, ifindex);

	return link && link->up;
}

void managed_on_neigh(struct sy_mirror *m, const struct neigh_msg *msg, bool gone)
{
	struct managed *n = managed_find(m, msg->neigh.ifindex, &msg->neigh.addr);
	bool first;

	if (!n)
		return;
	first = !n->reported;
	n->reported = !gone;
	n->permanent = !gone && msg->permanent;
	if (n->permanent || !link_is_up(m, n->ifindex))
		return;
	/* The first report is of an entry that was there before, unless it says managed. */
	if (gone)
		neigh_make(m, n->ifindex, &n->addr);
	else if (!msg->managed && (msg->fading || first))
		managed_renew(m, n);
}

void managed_on_link_up(struct sy_mirror *m, int ifindex)
{
	for (uint32_t i = 0; i < m->managed.buckets; i++)
		for (struct table_node *at = m->managed.bucket[i]; at; at = at->next) {
			struct managed *n = (struct managed *)at;
			if (n->ifindex != ifindex || n->permanent)
				continue;
			if (n->reported)
				managed_renew(m, n);
			else
				neigh_make(m, ifindex, &n->addr);
		}
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
