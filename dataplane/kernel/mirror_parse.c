// SPDX-License-Identifier: Apache-2.0
#include "mirror_parse.h"

#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#ifndef IFF_LOWER_UP
#define IFF_LOWER_UP 0x10000 /* from linux/if.h, which conflicts with net/if.h */
#endif

#define PARSE_MAX_ATTR 64

/* Attributes by type; types beyond the table are ignored. */
struct attrs {
	const struct nlattr *at[PARSE_MAX_ATTR];
};

static void attrs_add(struct attrs *a, const struct nlattr *attr)
{
	uint16_t type = mnl_attr_get_type(attr);

	if (type < PARSE_MAX_ATTR)
		a->at[type] = attr;
}

static bool attrs_collect(struct attrs *a, const struct nlmsghdr *nlh, size_t header)
{
	const struct nlattr *attr;

	memset(a, 0, sizeof(*a));
	if (mnl_nlmsg_get_payload_len(nlh) < header)
		return false;
	mnl_attr_for_each(attr, nlh, header) attrs_add(a, attr);
	return true;
}

static void attrs_collect_nested(struct attrs *a, const struct nlattr *nest)
{
	const struct nlattr *attr;

	memset(a, 0, sizeof(*a));
	mnl_attr_for_each_nested(attr, nest) attrs_add(a, attr);
}

/* Copies exactly len bytes; false if the attribute is missing or shorter. */
static bool attr_copy(const struct attrs *a, unsigned type, void *out, size_t len)
{
	if (!a->at[type] || mnl_attr_get_payload_len(a->at[type]) < len)
		return false;
	memcpy(out, mnl_attr_get_payload(a->at[type]), len);
	return true;
}

static uint32_t attr_u32(const struct attrs *a, unsigned type, uint32_t otherwise)
{
	uint32_t value;

	return attr_copy(a, type, &value, sizeof(value)) ? value : otherwise;
}

static void attr_string(const struct attrs *a, unsigned type, char *out, size_t len)
{
	if (a->at[type])
		snprintf(out, len, "%.*s", (int)mnl_attr_get_payload_len(a->at[type]),
		         (const char *)mnl_attr_get_payload(a->at[type]));
}

static bool attr_addr(const struct attrs *a, unsigned type, bool v6, struct sy_addr *out)
{
	uint8_t raw[16];
	size_t len = v6 ? 16 : 4;

	return attr_copy(a, type, raw, len) && sy_addr_from_bytes(raw, len, out) == 0;
}

static bool family_is_ip(uint8_t family)
{
	return family == AF_INET || family == AF_INET6;
}

/* ---- links ----------------------------------------------------------------------------------- */

bool link_parse(const struct nlmsghdr *nlh, struct sy_link *out)
{
	const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(nlh);
	struct attrs a, info;
	uint32_t mtu;

	memset(out, 0, sizeof(*out));
	if (!attrs_collect(&a, nlh, sizeof(*ifi)))
		return false;
	/* Bridge port and wireless events are RTM_NEWLINK messages too, but lack the link's own
	 * attributes. */
	if (ifi->ifi_family != AF_UNSPEC || ifi->ifi_index <= 0 || !a.at[IFLA_MTU] ||
	    !a.at[IFLA_IFNAME])
		return false;
	out->ifindex = ifi->ifi_index;
	out->up = (ifi->ifi_flags & IFF_UP) && (ifi->ifi_flags & IFF_LOWER_UP);
	attr_string(&a, IFLA_IFNAME, out->name, sizeof(out->name));
	mtu = attr_u32(&a, IFLA_MTU, 0);
	out->mtu = mtu > UINT16_MAX ? UINT16_MAX : (uint16_t)mtu;
	out->master = (int)attr_u32(&a, IFLA_MASTER, 0);
	out->lower = (int)attr_u32(&a, IFLA_LINK, 0);
	if (a.at[IFLA_ADDRESS] && mnl_attr_get_payload_len(a.at[IFLA_ADDRESS]) == sizeof(out->mac))
		attr_copy(&a, IFLA_ADDRESS, out->mac, sizeof(out->mac));
	if (a.at[IFLA_LINKINFO]) {
		char above[sizeof(out->kind)] = "";

		attrs_collect_nested(&info, a.at[IFLA_LINKINFO]);
		attr_string(&info, IFLA_INFO_KIND, out->kind, sizeof(out->kind));
		attr_string(&info, IFLA_INFO_SLAVE_KIND, above, sizeof(above));
		out->vrf_member = strcmp(above, "vrf") == 0;
	}
	return true;
}

/* ---- addresses ------------------------------------------------------------------------------- */

bool addr_parse(const struct nlmsghdr *nlh, struct sy_link_addr *out)
{
	const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(nlh);
	struct attrs a;

	memset(out, 0, sizeof(*out));
	if (!attrs_collect(&a, nlh, sizeof(*ifa)) || !family_is_ip(ifa->ifa_family))
		return false;
	out->ifindex = (int)ifa->ifa_index;
	out->prefix_len = ifa->ifa_prefixlen;
	/* With a peer, IFA_ADDRESS is the peer's address. */
	return attr_addr(&a, IFA_LOCAL, ifa->ifa_family == AF_INET6, &out->addr) ||
	       attr_addr(&a, IFA_ADDRESS, ifa->ifa_family == AF_INET6, &out->addr);
}

/* ---- routes ---------------------------------------------------------------------------------- */

static int hop_compare(const void *left, const void *right)
{
	const struct route_hop *a = left, *b = right;

	if (a->ifindex != b->ifindex)
		return a->ifindex < b->ifindex ? -1 : 1;
	return memcmp(&a->via, &b->via, sizeof(a->via));
}

/* RTA_VIA: a gateway of another family than the route (RFC 5549). */
static void hop_read_via(const struct attrs *a, struct sy_addr *out)
{
	const struct nlattr *attr = a->at[RTA_VIA];
	size_t len = attr ? mnl_attr_get_payload_len(attr) : 0;
	const struct rtvia *via = attr ? mnl_attr_get_payload(attr) : NULL;

	if (len >= sizeof(*via) + 16 && via->rtvia_family == AF_INET6)
		sy_addr_from_bytes(via->rtvia_addr, 16, out);
	else if (len >= sizeof(*via) + 4 && via->rtvia_family == AF_INET)
		sy_addr_from_bytes(via->rtvia_addr, 4, out);
}

static void route_add_hop(struct route_msg *r, const struct attrs *a, int ifindex, unsigned flags,
                          unsigned weight)
{
	struct route_hop *hop;

	if (r->hop_count == SY_ROUTE_HOPS) {
		r->hops_lost = true;
		return;
	}
	hop = &r->hop[r->hop_count++];
	hop->ifindex = ifindex;
	hop->dead = flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN);
	hop->weight = weight > UINT8_MAX ? UINT8_MAX : (uint8_t)weight;
	if (!attr_addr(a, RTA_GATEWAY, r->v6, &hop->via))
		hop_read_via(a, &hop->via);
	if (a->at[RTA_ENCAP])
		r->unsupported = ROUTE_ENCAP;
}

static void route_read_multipath(struct route_msg *r, const struct nlattr *attr)
{
	const char *at = mnl_attr_get_payload(attr);
	size_t left = mnl_attr_get_payload_len(attr);

	while (left >= sizeof(struct rtnexthop)) {
		const struct rtnexthop *nh = (const void *)at;
		const struct nlattr *inner = (const void *)(at + sizeof(*nh));
		size_t step = NLA_ALIGN(nh->rtnh_len), rest;
		struct attrs a = {0};

		if (nh->rtnh_len < sizeof(*nh) || nh->rtnh_len > left)
			return;
		rest = nh->rtnh_len - sizeof(*nh);
		while (mnl_attr_ok(inner, (int)rest)) {
			size_t used = NLA_ALIGN(inner->nla_len);

			attrs_add(&a, inner);
			if (used >= rest)
				break;
			rest -= used;
			inner = mnl_attr_next(inner);
		}
		route_add_hop(r, &a, nh->rtnh_ifindex, nh->rtnh_flags, nh->rtnh_hops + 1u);
		if (step >= left)
			return;
		at += step;
		left -= step;
	}
}

static void route_find_unsupported(struct route_msg *r, const struct rtmsg *rtm,
                                   const struct attrs *a)
{
	if (rtm->rtm_src_len) {
		attr_addr(a, RTA_SRC, r->v6, &r->from);
		r->from_len = rtm->rtm_src_len > 128 ? 128 : rtm->rtm_src_len;
		r->unsupported = ROUTE_BY_SOURCE;
	} else if (rtm->rtm_tos) {
		r->tos = rtm->rtm_tos;
		r->unsupported = ROUTE_BY_TOS;
	} else if (a->at[RTA_NH_ID] && !r->hop_count && !r->blackhole) {
		r->unsupported = ROUTE_BARE_NEXTHOP;
	}
	if (r->unsupported != ROUTE_PLAIN)
		r->unsupported_id = (uint32_t)sy_hash_mix(r->from.d[0] ^ rtm->rtm_src_len,
		                                          r->from.d[1] ^ ~0ull) ^
		                    (uint32_t)rtm->rtm_tos << 8 ^ r->unsupported;
}

bool route_parse(const struct nlmsghdr *nlh, struct route_msg *out)
{
	const struct rtmsg *rtm = mnl_nlmsg_get_payload(nlh);
	struct attrs a;

	memset(out, 0, sizeof(*out));
	if (!attrs_collect(&a, nlh, sizeof(*rtm)) || !family_is_ip(rtm->rtm_family) ||
	    (rtm->rtm_flags & RTM_F_CLONED))
		return false;
	out->v6 = rtm->rtm_family == AF_INET6;
	out->table = attr_u32(&a, RTA_TABLE, rtm->rtm_table);
	if (out->table != RT_TABLE_MAIN && out->table != RT_TABLE_DEFAULT)
		return false;
	switch (rtm->rtm_type) {
	case RTN_UNICAST:
		break;
	case RTN_BLACKHOLE:
	case RTN_UNREACHABLE:
	case RTN_PROHIBIT:
	case RTN_THROW: /* after main comes only default, and after that no table */
		out->blackhole = true;
		break;
	default:
		return false;
	}
	out->prefix_len = rtm->rtm_dst_len;
	if (out->prefix_len > (out->v6 ? 128 : 32))
		return false;
	out->prefix = out->v6 ? (struct sy_addr){0} : sy_addr_v4(0);
	if (out->prefix_len && !attr_addr(&a, RTA_DST, out->v6, &out->prefix))
		return false;
	if (out->v6 && sy_addr_is_v4(&out->prefix))
		return false; /* ::ffff:0:0/96 is never in a packet, and means IPv4 here */
	out->metric = attr_u32(&a, RTA_PRIORITY, 0);
	out->by_object = a.at[RTA_NH_ID] != NULL;
	if (!out->blackhole && a.at[RTA_MULTIPATH])
		route_read_multipath(out, a.at[RTA_MULTIPATH]);
	else if (!out->blackhole && a.at[RTA_OIF])
		route_add_hop(out, &a, (int)attr_u32(&a, RTA_OIF, 0), rtm->rtm_flags, 1);
	qsort(out->hop, out->hop_count, sizeof(out->hop[0]), hop_compare);
	route_find_unsupported(out, rtm, &a);
	return true;
}

/* ---- neighbours ------------------------------------------------------------------------------ */

#define NEIGH_USABLE (NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY)

bool neigh_parse(const struct nlmsghdr *nlh, struct neigh_msg *out)
{
	const struct ndmsg *ndm = mnl_nlmsg_get_payload(nlh);
	struct sy_neigh *n = &out->neigh;
	struct attrs a;

	memset(out, 0, sizeof(*out));
	if (!attrs_collect(&a, nlh, sizeof(*ndm)) || !family_is_ip(ndm->ndm_family) ||
	    (ndm->ndm_flags & NTF_PROXY) ||
	    !attr_addr(&a, NDA_DST, ndm->ndm_family == AF_INET6, &n->addr))
		return false;
	n->ifindex = ndm->ndm_ifindex;
	n->failed = ndm->ndm_state & NUD_FAILED;
	n->valid = (ndm->ndm_state & NEIGH_USABLE) && a.at[NDA_LLADDR] &&
	           mnl_attr_get_payload_len(a.at[NDA_LLADDR]) == sizeof(n->mac) &&
	           attr_copy(&a, NDA_LLADDR, n->mac, sizeof(n->mac));
	out->managed = attr_u32(&a, NDA_FLAGS_EXT, 0) & NTF_EXT_MANAGED;
	out->fading = ndm->ndm_state & (NUD_STALE | NUD_FAILED);
	out->permanent = ndm->ndm_state & NUD_PERMANENT;
	return true;
}
