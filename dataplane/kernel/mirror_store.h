// SPDX-License-Identifier: Apache-2.0
/*
 * What the mirror knows, and the telling of differences. Every object carries the generation of the
 * last dump or event that confirmed it; when a dump of its kind is complete, those left behind are
 * swept out.
 */
#ifndef KERNEL_MIRROR_STORE_H
#define KERNEL_MIRROR_STORE_H

#include "mirror_parse.h"
#include "table.h"

/* In the order in which they are dumped: see mirror.c. */
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
	struct sy_mirror_handler told;
	struct sy_hash_key key; /* routes come from peers: no crafted collisions */
	struct table links, addrs, routes, neighs;
	uint8_t gen[KIND_COUNT];
	unsigned vrf_members;
	unsigned unsupported_routes[ROUTE_UNSUPPORTED_COUNT]; /* by oddity; [ROUTE_PLAIN] is not
	                                                         used */
	unsigned object_routes;                               /* those that use nexthop objects */
	uint32_t prefixes[2][129]; /* prefixes in store by family (v6) and length */
	bool out_of_memory;        /* something could not be stored */
};

enum route_change { ROUTE_DUMPED, ROUTE_PREPENDED, ROUTE_APPENDED, ROUTE_REPLACED, ROUTE_DELETED };

int store_init(struct store *s, const struct sy_mirror_handler *handler);
void store_fini(struct store *s);

static inline uint32_t store_hash(const struct store *s, const struct sy_addr *addr, uint32_t extra)
{
	return (uint32_t)sy_hash_mix(addr->d[0] ^ s->key.k[0] ^ extra, addr->d[1] ^ s->key.k[1]);
}

/* True if the link came, went, or changed its being up: what hangs on it may have changed
 * silently. */
bool store_link(struct store *s, const struct sy_link *link, bool gone);
void store_addr(struct store *s, const struct sy_link_addr *addr, bool gone);
void store_neigh(struct store *s, const struct sy_neigh *neigh, bool gone);
/* True if the message does not say which of several alternates it means: dump again. */
bool store_route(struct store *s, const struct route_msg *msg, enum route_change how);

const struct sy_link *store_find_link(const struct store *s, int ifindex);
/* Any member of a VRF, NULL if there is none. */
const struct sy_link *store_find_vrf_member(const struct store *s);
/* NULL: not known. */
const struct sy_neigh *store_find_neigh(const struct store *s, int ifindex,
                                        const struct sy_addr *addr);
bool store_lookup(const struct store *s, const struct sy_addr *dst, struct sy_route *out);

/* Sweeps one bucket of the kind, *bucket, 0 at first; false: that was the last. */
bool store_sweep(struct store *s, enum store_kind kind, uint32_t *bucket);

/* mirror_route.c, for mirror_store.c only */
void route_sweep_bucket(struct store *s, struct table_node *first, bool v6);
void route_free_all(struct store *s);

#endif
