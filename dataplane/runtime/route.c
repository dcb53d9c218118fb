// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_rib.h>
#include <rte_rib6.h>

#include "route.h"

/* Nodes of the tree behind each FIB take 128 bytes, at most two for a route. */
static int routes_for(unsigned memory_mb, unsigned share)
{
	unsigned n = memory_mb * share;
	return (int)(n > 1u << 20 ? 1u << 20 : n);
}

int routes_open(struct sy_runtime *rt, struct sy_error *err)
{
	struct rte_fib_conf v4 = {
	        .type = RTE_FIB_DIR24_8,
	        .max_routes = routes_for(rt->options.memory_mb, 512),
	        .dir24_8 = {.nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = TBL8_V4},
	};
	struct rte_fib6_conf v6 = {
	        .type = RTE_FIB6_TRIE,
	        .max_routes = routes_for(rt->options.memory_mb, 128),
	        .trie = {.nh_sz = RTE_FIB6_TRIE_2B, .num_tbl8 = TBL8_V6},
	};
	struct routes *r = calloc(1, sizeof(*r));
	if (!r)
		return sy_fail(err, ENOMEM, "no memory for paths");
	rt->routes = r;
	paths_init(r);
	r->v4 = rte_fib_create("sy_v4", SOCKET_ID_ANY, &v4);
	r->v6 = r->v4 ? rte_fib6_create("sy_v6", SOCKET_ID_ANY, &v6) : NULL;
	if (!r->v6)
		return sy_fail(err, rte_errno,
		               "routing tables for %d IPv4 and %d IPv6 routes: %s; raise --memory",
		               v4.max_routes, v6.max_routes, rte_strerror(rte_errno));
	return 0;
}

void routes_close(struct sy_runtime *rt)
{
	struct routes *r = rt->routes;
	if (!r)
		return;
	if (r->v6)
		rte_fib6_free(r->v6);
	if (r->v4)
		rte_fib_free(r->v4);
	paths_close(r);
	free(r);
	rt->routes = NULL;
}

/* ---- the two families ---- */

static uint32_t host_v4(const struct sy_addr *a)
{
	return rte_be_to_cpu_32(a->w[3]);
}

/* Group of exactly this prefix, and of the next shorter one around it; 0: none. The second is known
 * only while the prefix is in. */
static void prefix_groups(const struct routes *r, const struct sy_route *route, uint16_t *exact,
                          uint16_t *around)
{
	uint64_t found = 0, outer = 0;
	if (sy_addr_is_v4(&route->prefix)) {
		struct rte_rib_node *n = rte_rib_lookup_exact(
		        rte_fib_get_rib(r->v4), host_v4(&route->prefix), route->prefix_len);
		struct rte_rib_node *parent = n ? rte_rib_lookup_parent(n) : NULL;
		if (n)
			rte_rib_get_nh(n, &found);
		if (parent)
			rte_rib_get_nh(parent, &outer);
	} else {
		struct rte_rib6_node *n = rte_rib6_lookup_exact(rte_fib6_get_rib(r->v6),
		                                                route->prefix.b, route->prefix_len);
		struct rte_rib6_node *parent = n ? rte_rib6_lookup_parent(n) : NULL;
		if (n)
			rte_rib6_get_nh(n, &found);
		if (parent)
			rte_rib6_get_nh(parent, &outer);
	}
	*exact = (uint16_t)found;
	*around = (uint16_t)outer;
}

/* group 0: deletes. */
static int prefix_write(struct routes *r, const struct sy_route *route, uint16_t group)
{
	uint8_t len = route->prefix_len;
	generation_grow(r);
	if (sy_addr_is_v4(&route->prefix)) {
		uint32_t ip = host_v4(&route->prefix);
		return group ? rte_fib_add(r->v4, ip, len, group) : rte_fib_delete(r->v4, ip, len);
	}
	return group ? rte_fib6_add(r->v6, route->prefix.b, len, group)
	             : rte_fib6_delete(r->v6, route->prefix.b, len);
}

/* ---- changes ---- */

static void group_leave(struct routes *r, uint16_t group)
{
	r->group[group]->refs--;
	group_dirty(r, group);
}

static void route_gone(struct sy_runtime *rt, const struct sy_route *route)
{
	uint16_t old, around;
	prefix_groups(rt->routes, route, &old, &around);
	if (!old)
		return; /* it never found room */
	prefix_write(rt->routes, route, 0);
	group_leave(rt->routes, old);
}

static void route_full(struct routes *r, int rc)
{
	if (!r->fib_told)
		sy_log(SY_LOG_ERROR, "runtime",
		       "the routing table is full (%s): further routes are not used, their packets "
		       "follow shorter prefixes; raise --memory",
		       strerror(-rc));
	r->fib_told = true;
}

void routes_apply(struct sy_runtime *rt, const struct sy_route *route, bool gone)
{
	struct routes *r = rt->routes;
	uint16_t old, around;
	if (gone) {
		route_gone(rt, route);
		return;
	}
	prefix_groups(r, route, &old, &around);
	uint16_t group = group_find(r, route);
	if (group && group == old)
		return;
	if (old && !group && r->group[old]->refs == 1) {
		generation_grow(r);
		group_change(rt, old, route);
		return;
	}
	if (!group)
		group = group_make(rt, route);
	if (!group) {
		route_gone(rt, route); /* better no route than a wrong one */
		return;
	}
	int rc = prefix_write(r, route, group);
	if (rc) {
		route_full(r, rc);
		group_dirty(r, group); /* unless another route has it, it goes again */
		return;
	}
	r->group[group]->refs++;
	if (old) {
		group_leave(r, old);
		return;
	}
	prefix_groups(r, route, &old, &around);
	if (around != group) /* its holders may mean what is more specific now */
		group_dirty(r, around);
}

void routes_refuse(struct sy_runtime *rt, bool refused)
{
	struct routes *r = rt->routes;
	__atomic_store_n(&r->refused, refused, __ATOMIC_RELAXED);
	generation_grow(r);
	for (unsigned i = 1; i < GROUPS; i++)
		if (r->group[i])
			group_dirty(r, (uint16_t)i);
	routes_flush(rt);
}

/* ---- look-up ---- */

/*
 * The generation before and after: if it grew, what was read may be of two worlds (a group number
 * from before a write, its path from after; or a tbl8 block that was freed and used again).
 */
uint16_t sy_path_lookup(const struct sy_runtime *rt, const struct sy_addr *dst)
{
	const struct routes *r = rt->routes;
	uint32_t before, after = SY_RCU_READ(r->generation);
	uint16_t path;
	do {
		uint64_t group = 0;
		before = after;
		if (sy_addr_is_v4(dst)) {
			uint32_t ip = host_v4(dst);
			rte_fib_lookup_bulk(r->v4, &ip, &group, 1);
		} else {
			uint8_t ip[1][16];
			memcpy(ip[0], dst->b, 16);
			rte_fib6_lookup_bulk(r->v6, ip, &group, 1);
		}
		path = SY_RCU_READ(r->current[group]);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		after = SY_READ(r->generation);
	} while (before != after);
	return SY_READ(r->refused) ? SY_PATH_NONE : path;
}
