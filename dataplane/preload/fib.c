// SPDX-License-Identifier: Apache-2.0
/*
 * Most servers have a handful of routes and no rules of their own: then the next hop of a new
 * client is found here, without a query to the kernel. Everything else is left to the kernel.
 * Netlink without libmnl, for the reasons in route_cache.c.
 */
#include "fib.h"

#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include "preload.h"
#include "real.h"

#define ROUTES_MAX 256
#define ANSWER     32768
#define DUMPS      (1u << 31) /* sequence numbers; those of route_cache.c are below */

struct fib_route {
	struct sy_addr dst, hop; /* hop: all zero: the destination itself */
	uint32_t priority;
	int ifindex; /* 0: none (unreachable, blackhole, …) */
	uint8_t bits;
	bool v4;
};

static struct {
	struct fib_route route[ROUTES_MAX];
	unsigned count;
	bool plain[2]; /* IPv6, IPv4 */
} fib;

/* ---- reading --------------------------------------------------------------------------------- */

static void attributes_read(struct rtattr *a, int left, struct rtattr **to, unsigned max)
{
	memset(to, 0, (max + 1) * sizeof(*to));
	for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if ((a->rta_type & NLA_TYPE_MASK) <= max)
			to[a->rta_type & NLA_TYPE_MASK] = a;
}

static uint32_t number_of(const struct rtattr *a, uint32_t otherwise)
{
	uint32_t value = otherwise;

	if (a)
		memcpy(&value, RTA_DATA(a), sizeof(value));
	return value;
}

/* Returns whether it is a rule that a kernel starts with: look up local, main and default. */
static bool rule_is_plain(struct nlmsghdr *h)
{
	const struct fib_rule_hdr *r = NLMSG_DATA(h);
	struct rtattr *a[FRA_MAX + 1];

	attributes_read((void *)((char *)r + NLMSG_ALIGN(sizeof(*r))),
	                (int)(h->nlmsg_len - NLMSG_LENGTH(sizeof(*r))), a, FRA_MAX);
	for (unsigned i = 0; i <= FRA_MAX; i++)
		if (a[i] && i != FRA_TABLE && i != FRA_PRIORITY && i != FRA_PROTOCOL &&
		    i != FRA_SUPPRESS_PREFIXLEN)
			return false;
	uint32_t table = number_of(a[FRA_TABLE], r->table);
	return r->action == FR_ACT_TO_TBL && !r->src_len && !r->dst_len && !r->tos && !r->flags &&
	       number_of(a[FRA_SUPPRESS_PREFIXLEN], UINT32_MAX) == UINT32_MAX &&
	       table >= RT_TABLE_DEFAULT && table <= RT_TABLE_LOCAL;
}

static bool route_equal(const struct fib_route *a, const struct fib_route *b)
{
	return a->v4 == b->v4 && a->bits == b->bits && a->priority == b->priority &&
	       sy_addr_equal(&a->dst, &b->dst);
}

static bool route_is_plain(const struct rtmsg *r, struct rtattr *const *a)
{
	return !r->rtm_src_len && !r->rtm_tos && !a[RTA_MULTIPATH] && !a[RTA_NH_ID] &&
	       !a[RTA_ENCAP] && !(r->rtm_flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN)) &&
	       fib.count < ROUTES_MAX;
}

/* Adds a route. Returns false if the family is not plain. */
static bool route_add(struct nlmsghdr *h)
{
	struct rtmsg *r = NLMSG_DATA(h);
	struct rtattr *a[RTA_MAX + 1];
	struct fib_route w = {.v4 = r->rtm_family == AF_INET};

	attributes_read(RTM_RTA(r), (int)RTM_PAYLOAD(h), a, RTA_MAX);
	uint32_t table = number_of(a[RTA_TABLE], r->rtm_table);
	if ((table != RT_TABLE_MAIN && table != RT_TABLE_DEFAULT) || r->rtm_flags & RTM_F_CLONED ||
	    r->rtm_type == RTN_MULTICAST || r->rtm_type == RTN_ANYCAST)
		return true;
	if (table == RT_TABLE_DEFAULT || !route_is_plain(r, a))
		return false;
	w.bits = (uint8_t)(r->rtm_dst_len + (w.v4 ? 96 : 0));
	if (w.v4)
		w.dst = sy_addr_v4(0);
	if (a[RTA_DST])
		sy_addr_from_bytes(RTA_DATA(a[RTA_DST]), RTA_PAYLOAD(a[RTA_DST]), &w.dst);
	if (a[RTA_GATEWAY])
		sy_addr_from_bytes(RTA_DATA(a[RTA_GATEWAY]), RTA_PAYLOAD(a[RTA_GATEWAY]), &w.hop);
	else if (a[RTA_VIA])
		sy_addr_from_bytes((uint8_t *)RTA_DATA(a[RTA_VIA]) + 2, RTA_PAYLOAD(a[RTA_VIA]) - 2,
		                   &w.hop);
	w.priority = number_of(a[RTA_PRIORITY], 0);
	w.ifindex = r->rtm_type == RTN_UNICAST ? (int)number_of(a[RTA_OIF], 0) : 0;
	for (unsigned i = 0; i < fib.count; i++)
		if (route_equal(&fib.route[i], &w))
			return false; /* several paths, in IPv6's older form */
	fib.route[fib.count++] = w;
	return true;
}

/* Calls `each` for all answers. Returns false if some are missing or not plain. */
static bool dump_read(int netlink, uint16_t type, int family, bool (*each)(struct nlmsghdr *))
{
	static _Alignas(8) char answer[ANSWER];
	static uint32_t sequence;
	struct {
		struct nlmsghdr header;
		struct rtmsg route; /* a rule's message begins with the family, too */
	} q = {.header = {.nlmsg_len = sizeof(q),
	                  .nlmsg_type = type,
	                  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
	                  .nlmsg_seq = ++sequence | DUMPS},
	       .route = {.rtm_family = (uint8_t)family}};
	bool is_plain = true;

	if (REAL(send)(netlink, &q, sizeof(q), 0) < 0)
		return false;
	for (;;) {
		ssize_t n = REAL(recv)(netlink, answer, sizeof(answer), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		unsigned left = (unsigned)n;
		for (struct nlmsghdr *h = (void *)answer; NLMSG_OK(h, left);
		     h = NLMSG_NEXT(h, left)) {
			if (h->nlmsg_seq != q.header.nlmsg_seq)
				continue;
			if (h->nlmsg_type == NLMSG_DONE)
				return is_plain;
			if (h->nlmsg_type == NLMSG_ERROR)
				return false;
			is_plain &= !(h->nlmsg_flags & NLM_F_DUMP_INTR) && each(h);
		}
	}
}

bool fib_read(int netlink)
{
	static const int family[] = {AF_INET6, AF_INET};

	fib.count = 0;
	for (unsigned i = 0; i < 2; i++)
		fib.plain[i] = dump_read(netlink, RTM_GETRULE, family[i], rule_is_plain) &&
		               dump_read(netlink, RTM_GETROUTE, family[i], route_add);
	return fib.plain[0] && fib.plain[1];
}

/* ---- finding --------------------------------------------------------------------------------- */

static bool route_covers(const struct fib_route *w, const struct sy_addr *dst)
{
	unsigned bytes = w->bits / 8, bits = w->bits % 8;

	return memcmp(w->dst.b, dst->b, bytes) == 0 &&
	       (bits == 0 || (w->dst.b[bytes] ^ dst->b[bytes]) >> (8 - bits) == 0);
}

enum fib_answer fib_find(const struct sy_addr *dst, struct sy_addr *hop, int *ifindex)
{
	const struct fib_route *best = NULL;
	bool v4 = sy_addr_is_v4(dst);

	if (!fib.plain[v4])
		return FIB_UNKNOWN;
	for (unsigned i = 0; i < fib.count; i++) {
		const struct fib_route *w = &fib.route[i];
		if (w->v4 == v4 && route_covers(w, dst) &&
		    (!best || w->bits > best->bits ||
		     (w->bits == best->bits && w->priority < best->priority)))
			best = w;
	}
	if (!best || !best->ifindex)
		return FIB_NONE;
	*hop = best->hop.d[0] || best->hop.d[1] ? best->hop : *dst;
	*ifindex = best->ifindex;
	return FIB_ROUTE;
}
