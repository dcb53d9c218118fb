// SPDX-License-Identifier: Apache-2.0
/* Parses netlink messages to plain structures: pure functions, fuzzed. Each returns false for a
 * message that the mirror does not use. */
#ifndef KERNEL_MIRROR_PARSE_H
#define KERNEL_MIRROR_PARSE_H

#include <linux/netlink.h>
#include <sy_kernel.h>

/* Why a route cannot be used by destination address alone. */
enum route_unsupported {
	ROUTE_PLAIN,
	ROUTE_BY_TOS,
	ROUTE_BY_SOURCE,
	ROUTE_ENCAP,
	ROUTE_BARE_NEXTHOP, /* a nexthop object whose hops the kernel does not list */
	ROUTE_UNSUPPORTED_COUNT
};

struct route_hop {
	int ifindex;
	struct sy_addr via;
	uint8_t weight;
	bool dead; /* RTNH_F_DEAD or RTNH_F_LINKDOWN */
};

/* One route of the kernel. (prefix, table, metric, unsupported_id) is its key; IPv4 may have
 * several alternates with one key. */
struct route_msg {
	struct sy_addr prefix;
	uint8_t prefix_len;
	bool v6;
	bool blackhole;
	bool by_object;          /* uses a nexthop object */
	bool hops_lost;          /* more hops than SY_ROUTE_HOPS */
	uint32_t table;          /* RT_TABLE_MAIN or RT_TABLE_DEFAULT */
	uint32_t metric;         /* RTA_PRIORITY */
	uint32_t unsupported_id; /* 0: supported; else distinguishes unsupported routes of one
	                            prefix */
	enum route_unsupported unsupported;
	struct sy_addr from; /* ROUTE_BY_SOURCE */
	uint8_t from_len, tos;
	uint8_t hop_count;
	struct route_hop hop[SY_ROUTE_HOPS]; /* sorted, for comparing sets */
};

bool link_parse(const struct nlmsghdr *nlh, struct sy_link *out);
bool addr_parse(const struct nlmsghdr *nlh, struct sy_link_addr *out);
bool route_parse(const struct nlmsghdr *nlh, struct route_msg *out);

/* A neighbour, with fields that only the mirror needs. */
struct neigh_msg {
	struct sy_neigh neigh;
	bool managed;   /* NTF_EXT_MANAGED took effect */
	bool fading;    /* stale or failed: request it again if it is not managed */
	bool permanent; /* NUD_PERMANENT: set by an administrator */
};

bool neigh_parse(const struct nlmsghdr *nlh, struct neigh_msg *out);

#endif
