// SPDX-License-Identifier: Apache-2.0
/*
 * The mirror's objects, and reports of their changes. Every object has the generation of the last
 * dump or event that confirmed it. When a dump of its kind is complete, objects with an older
 * generation are removed (swept).
 */
#ifndef KERNEL_MIRROR_STORE_H
#define KERNEL_MIRROR_STORE_H

#include "hash_table.h"
#include "mirror_rule.h"

/* Of routes by source address or type of service. */
#define STORE_POLICIES 32

/* In the order of the dumps: see mirror.c. */
enum store_kind {
	KIND_LINK,
	KIND_ADDR,
	KIND_RULE4,
	KIND_RULE6,
	KIND_ROUTE4,
	KIND_ROUTE6,
	KIND_NEIGH,
	KIND_COUNT
};

struct store {
	struct sy_mirror_handler handler;
	struct sy_hash_key key; /* secret: routes come from peers, who must not craft collisions */
	struct table links, addrs, routes, neighs;
	uint8_t gen[KIND_COUNT];
	unsigned vrf_members;
	unsigned unsupported_routes[ROUTE_UNSUPPORTED_COUNT]; /* by reason; [ROUTE_PLAIN] is not
	                                                         used */
	unsigned object_routes;                               /* routes that use nexthop objects */
	uint32_t prefixes[2][129]; /* number of prefixes by family (v6) and length */
	struct store_policy {
		const void *route;
		struct sy_policy policy;
	} policy[STORE_POLICIES];
	unsigned policies, policies_lost; /* policies_lost: those without a slot */
	bool policies_changed;            /* or unsupported_routes */
	bool out_of_memory;               /* an object could not be stored */
};

enum route_change { ROUTE_DUMPED, ROUTE_PREPENDED, ROUTE_APPENDED, ROUTE_REPLACED, ROUTE_DELETED };

int store_init(struct store *s, const struct sy_mirror_handler *handler);
void store_fini(struct store *s);

static inline uint32_t store_hash(const struct store *s, const struct sy_addr *addr, uint32_t extra)
{
	return (uint32_t)sy_hash_mix(addr->d[0] ^ s->key.k[0] ^ extra, addr->d[1] ^ s->key.k[1]);
}

/* Returns true if the link was added, removed, or went up or down: objects that depend on it may
 * have changed without an event. */
bool store_link(struct store *s, const struct sy_link *link, bool gone);
void store_addr(struct store *s, const struct sy_link_addr *addr, bool gone);
void store_neigh(struct store *s, const struct sy_neigh *neigh, bool gone);
/* Returns true if the message is ambiguous between several alternates: dump again. */
bool store_route(struct store *s, const struct route_msg *msg, enum route_change how);

const struct sy_link *store_find_link(const struct store *s, int ifindex);
/* A member of a VRF among the interfaces in use (uses NULL: all); NULL: none. */
const struct sy_link *store_find_vrf_member(const struct store *s,
                                            bool (*uses)(void *ctx, const char *name), void *ctx);
/* Returns NULL if the neighbour is unknown. */
const struct sy_neigh *store_find_neigh(const struct store *s, int ifindex,
                                        const struct sy_addr *addr);
bool store_lookup(const struct store *s, const struct sy_addr *dst, struct sy_route *out);

/* Sweeps bucket *bucket (initially 0) of the kind and advances it. Returns false after the last
 * one. */
bool store_sweep(struct store *s, enum store_kind kind, uint32_t *bucket);

/* in mirror_route.c, for mirror_store.c only */
void route_sweep_bucket(struct store *s, struct table_node *first, bool v6);
void route_free_all(struct store *s);

#endif
