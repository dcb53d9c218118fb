// SPDX-License-Identifier: Apache-2.0
/*
 * Neighbours that the kernel keeps resolved for the forwarder. It forgets them when their link goes
 * down. Kernels before 5.16 do not keep neighbours resolved: then each stale or failed one is
 * requested again. A permanent entry is left alone: a request to use or keep it would make it an
 * ordinary one, which must answer ARP.
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
	bool reported;  /* the kernel has reported it since the last request */
	bool released;  /* released before that: the report decides how */
	bool permanent; /* the host's own entry: a request would make it an ordinary one */
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

/* Creates the neighbour, or queries the existing entry: managed_on_neigh() gets the reply. */
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
	n->released = false;
	return neigh_make(m, ifindex, addr);
}

/* Ends the management. The request must not create the neighbour again if it was removed. */
static int managed_end(struct sy_mirror *m, struct managed *n, bool is_managed)
{
	struct managed end = *n;

	table_remove(&m->managed, &n->node);
	free(n);
	return is_managed ? neigh_request(m, end.ifindex, &end.addr, NLM_F_REPLACE, false) : 0;
}

int sy_mirror_neigh_release(struct sy_mirror *m, int ifindex, const struct sy_addr *addr)
{
	struct managed *n = managed_find(m, ifindex, addr);

	if (!n)
		return 0;
	if (n->reported)
		return managed_end(m, n, !n->permanent);
	n->released = true;
	return 0;
}

static bool link_is_up(const struct sy_mirror *m, int ifindex)
{
	const struct sy_link *link = store_find_link(&m->store, ifindex);

	return link && link->up;
}

/* An event may be outdated: an administrator may have set a permanent entry since. So it only
 * triggers a query, and the reply is the first report that counts. */
void managed_on_neigh(struct sy_mirror *m, const struct neigh_msg *msg, bool gone)
{
	struct managed *n = managed_find(m, msg->neigh.ifindex, &msg->neigh.addr);
	bool first, fades = msg->fading && !msg->managed;

	if (!n)
		return;
	if (n->released) {
		managed_end(m, n, !gone && msg->managed);
		return;
	}
	first = !n->reported;
	n->permanent = !gone && msg->permanent;
	n->reported = !gone && (first || n->permanent || !fades);
	if (n->permanent || !link_is_up(m, n->ifindex))
		return;
	if (!n->reported)
		neigh_make(m, n->ifindex, &n->addr);
	else if (first && (!msg->managed || msg->neigh.failed))
		managed_renew(m, n);
}

void managed_on_link_up(struct sy_mirror *m, int ifindex)
{
	for (uint32_t i = 0; i < m->managed.buckets; i++)
		for (struct table_node *at = m->managed.bucket[i]; at; at = at->next) {
			struct managed *n = (struct managed *)at;
			if (n->ifindex != ifindex || n->released)
				continue;
			n->reported = n->permanent = false;
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
