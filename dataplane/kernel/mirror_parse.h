// SPDX-License-Identifier: Apache-2.0
/* From netlink messages to plain structures: pure functions, fuzzed. Each returns false for a
 * message that the mirror has no use for. */
#ifndef KERNEL_MIRROR_PARSE_H
#define KERNEL_MIRROR_PARSE_H

#include <linux/netlink.h>
#include <sy_kernel.h>

/* Why a route cannot be followed by destination address alone. */
enum route_unsupported {
	ROUTE_PLAIN,
	ROUTE_BY_TOS,
	ROUTE_BY_SOURCE,
	ROUTE_ENCAP,
	ROUTE_BARE_NEXTHOP, /* a nexthop object whose hops the kernel does not spell out */
	ROUTE_UNSUPPORTED_COUNT
};

struct route_hop {
	int ifindex;
	struct sy_addr via;
	uint8_t weight;
	bool dead; /* RTNH_F_DEAD or RTNH_F_LINKDOWN */
};

/* One route as the kernel has it. (prefix, table, metric, unsupported_id) is its key; IPv4 may hold
 * several alternates under one key. */
struct route_msg {
	struct sy_addr prefix;
	uint8_t prefix_len;
	bool v6;
	bool blackhole;
	bool by_object;          /* uses a nexthop object */
	bool hops_lost;          /* more hops than SY_ROUTE_HOPS */
	uint32_t table;          /* RT_TABLE_MAIN or RT_TABLE_DEFAULT */
	uint32_t metric;         /* RTA_PRIORITY */
	uint32_t unsupported_id; /* 0: plain; else tells odd routes of one prefix apart */
	enum route_unsupported unsupported;
	uint8_t hop_count;
	struct route_hop hop[SY_ROUTE_HOPS]; /* sorted, so that equal sets compare equal */
};

bool link_parse(const struct nlmsghdr *nlh, struct sy_link *out);
bool addr_parse(const struct nlmsghdr *nlh, struct sy_link_addr *out);
bool route_parse(const struct nlmsghdr *nlh, struct route_msg *out);

/* What the mirror wants to know of a neighbour beyond what it tells. */
struct neigh_msg {
	struct sy_neigh neigh;
	bool managed; /* NTF_EXT_MANAGED took effect */
	bool fading;  /* stale or failed: an unmanaged one wants a poke */
};

bool neigh_parse(const struct nlmsghdr *nlh, struct neigh_msg *out);

/* True if the rule is beyond the kernel's default ones; text then says which and the remedy. */
bool rule_parse(const struct nlmsghdr *nlh, char *text, size_t len);

#endif
