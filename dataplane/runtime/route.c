// SPDX-License-Identifier: Apache-2.0
/* Applies the mirror's routes to the prefix trees, and looks paths up: sy_path_lookup(). */
#include <stdlib.h>

#include <rte_byteorder.h>
#include <rte_errno.h>

#include "route.h"

/* Nodes of the prefix trees use 128 bytes of EAL memory; a route needs at most two. */
static int nodes_for(unsigned memory_mb, unsigned share)
{
	unsigned n = 2 * memory_mb * share;
	return (int)(n > 2u << 20 ? 2u << 20 : n);
}

int routes_open(struct sy_runtime *rt, struct sy_error *err)
{
	struct rte_rib_conf v4 = {.max_nodes = nodes_for(rt->options.memory_mb, 512)};
	struct rte_rib6_conf v6 = {.max_nodes = nodes_for(rt->options.memory_mb, 128)};
	struct routes *r = calloc(1, sizeof(*r));
	if (!r)
		return sy_fail(err, ENOMEM, "no memory for paths");
	rt->routes = r;
	paths_init(r, rt->options.path_half);
	if (lpm_open(&r->v4, 4) || lpm_open(&r->v6, 16))
		return sy_fail(err, ENOMEM, "no memory for routing tables");
	r->rib4 = rte_rib_create("sy_v4", SOCKET_ID_ANY, &v4);
	r->rib6 = r->rib4 ? rte_rib6_create("sy_v6", SOCKET_ID_ANY, &v6) : NULL;
	if (!r->rib6)
		return sy_fail(err, rte_errno,
		               "routing tables for %d IPv4 and %d IPv6 routes: %s; raise --memory",
		               v4.max_nodes / 2, v6.max_nodes / 2, rte_strerror(rte_errno));
	return 0;
}

void routes_close(struct sy_runtime *rt)
{
	struct routes *r = rt->routes;
	if (!r)
		return;
	if (r->rib6)
		rte_rib6_free(r->rib6);
	if (r->rib4)
		rte_rib_free(r->rib4);
	lpm_close(&r->v4);
	lpm_close(&r->v6);
	paths_close(r);
	free(r);
	rt->routes = NULL;
}

/* ---- the two families ------------------------------------------------------------------------ */

static uint32_t host_v4(const struct sy_addr *a)
{
	return rte_be_to_cpu_32(a->w[3]);
}

/* A prefix in its tree: its group, and the next shorter prefix that covers it; groups 0: none. */
struct prefix {
	uint16_t group, outer;
	uint8_t outer_len;
};

static struct prefix prefix_find(const struct routes *r, const struct sy_route *route)
{
	uint64_t group = 0, outer = 0;
	uint8_t outer_len = 0;
	if (sy_addr_is_v4(&route->prefix)) {
		struct rte_rib_node *n =
		        rte_rib_lookup_exact(r->rib4, host_v4(&route->prefix), route->prefix_len);
		struct rte_rib_node *parent = n ? rte_rib_lookup_parent(n) : NULL;
		if (n)
			rte_rib_get_nh(n, &group);
		if (parent) {
			rte_rib_get_nh(parent, &outer);
			rte_rib_get_depth(parent, &outer_len);
		}
	} else {
		struct rte_rib6_node *n =
		        rte_rib6_lookup_exact(r->rib6, route->prefix.b, route->prefix_len);
		struct rte_rib6_node *parent = n ? rte_rib6_lookup_parent(n) : NULL;
		if (n)
			rte_rib6_get_nh(n, &group);
		if (parent) {
			rte_rib6_get_nh(parent, &outer);
			rte_rib6_get_depth(parent, &outer_len);
		}
	}
	return (struct prefix){(uint16_t)group, (uint16_t)outer, outer_len};
}

static void prefix_remove(struct routes *r, const struct sy_route *route)
{
	if (sy_addr_is_v4(&route->prefix))
		rte_rib_remove(r->rib4, host_v4(&route->prefix), route->prefix_len);
	else
		rte_rib6_remove(r->rib6, route->prefix.b, route->prefix_len);
}

/* Adds a prefix or finds it, and stores its group. */
static bool prefix_put(struct routes *r, const struct sy_route *route, uint16_t group)
{
	const struct sy_addr *a = &route->prefix;
	uint8_t len = route->prefix_len;
	if (sy_addr_is_v4(a)) {
		struct rte_rib_node *n = rte_rib_lookup_exact(r->rib4, host_v4(a), len);
		n = n ? n : rte_rib_insert(r->rib4, host_v4(a), len);
		return n && !rte_rib_set_nh(n, group);
	}
	struct rte_rib6_node *n = rte_rib6_lookup_exact(r->rib6, a->b, len);
	n = n ? n : rte_rib6_insert(r->rib6, a->b, len);
	return n && !rte_rib6_set_nh(n, group);
}

static struct lpm *family_of(struct routes *r, const struct sy_addr *a, const uint8_t **bytes)
{
	bool v4 = sy_addr_is_v4(a);
	*bytes = v4 ? a->b + 12 : a->b;
	return v4 ? &r->v4 : &r->v6;
}

static int prefix_set(struct routes *r, const struct sy_route *route, uint16_t group)
{
	const uint8_t *bytes;
	struct lpm *l = family_of(r, &route->prefix, &bytes);
	bool is_new = !prefix_find(r, route).group;
	if (is_new && !prefix_put(r, route, group))
		return -ENOMEM;
	generation_grow(r);
	int rc = lpm_set(l, bytes, route->prefix_len, group);
	if (rc && is_new)
		prefix_remove(r, route);
	else if (!is_new)
		prefix_put(r, route, group);
	return rc;
}

static void prefix_unset(struct routes *r, const struct sy_route *route, const struct prefix *found)
{
	const uint8_t *bytes;
	struct lpm *l = family_of(r, &route->prefix, &bytes);
	generation_grow(r);
	lpm_unset(l, bytes, route->prefix_len, found->outer_len, found->outer);
	prefix_remove(r, route);
}

/* ---- changes --------------------------------------------------------------------------------- */

static void group_leave(struct routes *r, uint16_t group)
{
	r->group[group]->refs--;
	group_dirty(r, group);
}

static void route_gone(struct sy_runtime *rt, const struct sy_route *route)
{
	struct prefix found = prefix_find(rt->routes, route);
	if (!found.group)
		return; /* there was no space for it */
	prefix_unset(rt->routes, route, &found);
	group_leave(rt->routes, found.group);
}

static void route_full(struct routes *r, int rc)
{
	if (!r->full_logged)
		sy_log(SY_LOG_ERROR, "runtime",
		       "the routing table is full (%s): further routes are not used, their packets "
		       "follow shorter prefixes; raise --memory",
		       strerror(-rc));
	r->full_logged = true;
}

void routes_apply(struct sy_runtime *rt, const struct sy_route *route, bool gone)
{
	struct routes *r = rt->routes;
	if (gone) {
		route_gone(rt, route);
		return;
	}
	uint16_t old = prefix_find(r, route).group, group = group_find(r, route);
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
		route_gone(rt, route); /* no route is better than a wrong one */
		return;
	}
	int rc = prefix_set(r, route, group);
	if (rc) {
		route_full(r, rc);
		if (!r->group[group]->refs)
			group_dirty(r, group); /* the flush removes it */
		return;
	}
	r->group[group]->refs++;
	if (old) {
		group_leave(r, old);
		return;
	}
	uint16_t outer = prefix_find(r, route).outer;
	if (outer != group) /* sessions with its path may now match the longer prefix */
		group_dirty(r, outer);
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

/* ---- look-up --------------------------------------------------------------------------------- */

/*
 * Compares the generation before and after. If it has changed, the reads may mix two states: a
 * group from before a write and its path from after, or a node that was freed and reused.
 */
uint16_t sy_path_lookup(const struct sy_runtime *rt, const struct sy_addr *dst)
{
	const struct routes *r = rt->routes;
	uint32_t before, after = SY_RCU_READ(r->generation);
	uint16_t path;
	do {
		before = after;
		uint16_t group = sy_addr_is_v4(dst) ? lpm_find(&r->v4, dst->b + 12)
		                                    : lpm_find(&r->v6, dst->b);
		path = group < GROUPS ? SY_RCU_READ(r->current[group]) : SY_PATH_NONE;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		after = SY_READ(r->generation);
	} while (before != after);
	return SY_READ(r->refused) ? SY_PATH_NONE : path;
}
