// SPDX-License-Identifier: Apache-2.0
/* Paths: ids, objects and MTUs, and the groups of routes with equal hops (route.h). route.c calls
 * this when routes change; workers read paths under RCU. */
#include <stdlib.h>

#include "route.h"

void generation_grow(struct routes *r)
{
	__atomic_store_n(&r->generation, r->generation + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* before the write that it announces */
}

void paths_init(struct routes *r, unsigned half)
{
	for (unsigned i = GROUPS - 1; i; i--)
		r->group_free[r->group_free_count++] = (uint16_t)i;
	/* Id 0 means none: the lower half has one id less. */
	for (unsigned i = half ? PATH_HALF : 1; i < (half + 1) * PATH_HALF; i++)
		r->path_free[r->path_free_count++] = (uint16_t)i;
}

/* ---- path objects ---------------------------------------------------------------------------- */

static void path_end(void *ptr)
{
	struct path *p = ptr;
	for (unsigned i = 0; i < p->hops; i++)
		if (p->hop[i].adjacency != ADJACENCY_NONE)
			adjacency_drop(p->rt, p->hop[i].adjacency);
	free(p);
}

static unsigned hop_port(const struct sy_runtime *rt, const struct sy_route_hop *hop)
{
	/* Static routes name ports without an interface by negative numbers. */
	return hop->ifindex < 0 ? (unsigned)-hop->ifindex - 1 : port_by_ifindex(rt, hop->ifindex);
}

static struct path *path_make(struct sy_runtime *rt, const struct group *g)
{
	static const struct sy_addr on_link;
	unsigned weight[SY_ROUTE_HOPS], total = 0;
	struct path *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->rt = rt;
	p->blackhole = g->blackhole;
	for (unsigned i = 0; i < g->hop_count; i++) {
		const struct sy_route_hop *from = &g->hop[i];
		struct path_hop *to = &p->hop[p->hops];
		unsigned port = hop_port(rt, from);
		if (port == SY_PORT_NONE)
			continue;
		to->port = (uint8_t)port;
		if (sy_addr_equal(&from->via, &on_link))
			to->adjacency = ADJACENCY_NONE;
		else if (!(to->adjacency = adjacency_acquire(rt, port, &from->via)))
			continue;
		weight[p->hops++] = from->weight ? from->weight : 1;
		total += weight[p->hops - 1];
		p->ports |= (uint16_t)(1u << port);
	}
	for (unsigned i = 0, hop = 0, until = 0; i < PATH_PICKS && p->hops; i++) {
		if (!i)
			until = weight[0];
		while (i * total >= until * PATH_PICKS)
			until += weight[++hop];
		p->pick[i] = (uint8_t)hop;
	}
	return p;
}

/* The largest IP packet that fits through all hops; 65535 if no hop leaves by a port. */
static uint16_t path_mtu(const struct sy_runtime *rt, const struct path *p)
{
	unsigned smallest = UINT16_MAX;
	for (unsigned ports = p->ports; ports; ports &= ports - 1) {
		unsigned mtu = SY_READ(rt->port[__builtin_ctz(ports)]->mtu);
		smallest = mtu < smallest ? mtu : smallest;
	}
	return (uint16_t)(smallest ? smallest : 1); /* 0 would mean stale */
}

void paths_measure(struct sy_runtime *rt)
{
	struct routes *r = rt->routes;
	for (unsigned id = 1; r && id < PATHS; id++)
		if (r->mtu[id])
			SY_RCU_PUBLISH(r->mtu[id], path_mtu(rt, r->path[id]));
}

/* ---- groups ---------------------------------------------------------------------------------- */

static bool group_says(const struct group *g, const struct sy_route *route)
{
	if (g->blackhole != route->blackhole || g->hop_count != route->hop_count)
		return false;
	for (unsigned i = 0; i < g->hop_count; i++)
		if (g->hop[i].ifindex != route->hop[i].ifindex ||
		    g->hop[i].weight != route->hop[i].weight ||
		    !sy_addr_equal(&g->hop[i].via, &route->hop[i].via))
			return false;
	return true;
}

static unsigned chain_of(bool blackhole, unsigned hops, const struct sy_route_hop *hop)
{
	uint64_t h = hops * 2 + blackhole;
	for (unsigned i = 0; i < hops; i++)
		h = sy_hash_mix(h ^ hop[i].via.d[0] ^ UINT64_C(0x9e3779b97f4a7c15),
		                hop[i].via.d[1] ^ (uint64_t)(uint32_t)hop[i].ifindex << 8 ^
		                        hop[i].weight ^ UINT64_C(0xd1b54a32d192ed03));
	return (unsigned)(h ^ h >> 32) % GROUP_CHAINS;
}

static void group_link(struct routes *r, uint16_t id)
{
	struct group *g = r->group[id];
	uint16_t *head = &r->chain[chain_of(g->blackhole, g->hop_count, g->hop)];
	g->next = *head;
	*head = id;
}

static void group_unlink(struct routes *r, uint16_t id)
{
	struct group *g = r->group[id];
	uint16_t *at = &r->chain[chain_of(g->blackhole, g->hop_count, g->hop)];
	while (*at != id)
		at = &r->group[*at]->next;
	*at = g->next;
}

static void group_fill(struct group *g, const struct sy_route *route)
{
	g->blackhole = route->blackhole;
	g->hop_count = route->hop_count;
	memcpy(g->hop, route->hop, sizeof(g->hop));
}

uint16_t group_find(const struct routes *r, const struct sy_route *route)
{
	uint16_t id = r->chain[chain_of(route->blackhole, route->hop_count, route->hop)];
	while (id && !group_says(r->group[id], route))
		id = r->group[id]->next;
	return id;
}

static uint16_t path_id_alloc(struct routes *r)
{
	if (!r->path_free_count) {
		if (!r->paths_logged)
			sy_log(SY_LOG_WARN, "runtime",
			       "routes change faster than sessions are swept: some sessions keep "
			       "their "
			       "former path for a while");
		r->paths_logged = true;
		return SY_PATH_NONE;
	}
	r->path_free_count--;
	return r->path_free[r->path_free_first++ % PATH_HALF];
}

static void path_id_free(struct routes *r, uint16_t id)
{
	r->path_free[(r->path_free_first + r->path_free_count++) % PATH_HALF] = id;
	r->paths_logged = false;
}

/* Publishes a new path for the group under a new id. Returns false without an id or memory. */
static bool group_publish(struct sy_runtime *rt, uint16_t group)
{
	struct routes *r = rt->routes;
	struct path *p = path_make(rt, r->group[group]);
	uint16_t id = p ? path_id_alloc(r) : SY_PATH_NONE;
	if (!id) {
		if (p)
			path_end(p);
		return false;
	}
	SY_RCU_PUBLISH(r->path[id], p);
	SY_RCU_PUBLISH(r->mtu[id], path_mtu(rt, p));
	SY_RCU_PUBLISH(r->current[group], id);
	return true;
}

uint16_t group_make(struct sy_runtime *rt, const struct sy_route *route)
{
	struct routes *r = rt->routes;
	struct group *g = r->group_free_count ? calloc(1, sizeof(*g)) : NULL;
	if (!g) {
		if (!r->groups_logged)
			sy_log(SY_LOG_ERROR, "runtime",
			       "more than %u different sets of next hops: further routes are not "
			       "used",
			       GROUPS - 1);
		r->groups_logged = true;
		return 0;
	}
	uint16_t id = r->group_free[--r->group_free_count];
	group_fill(g, route);
	r->group[id] = g;
	group_link(r, id);
	if (!group_publish(rt, id))
		group_dirty(r, id); /* no path until an id is free */
	return id;
}

void group_change(struct sy_runtime *rt, uint16_t group, const struct sy_route *route)
{
	struct routes *r = rt->routes;
	struct group *g = r->group[group];
	group_unlink(r, group);
	group_fill(g, route);
	group_link(r, group);
	struct path *p = path_make(rt, g), *old = r->path[r->current[group]];
	if (!p || !old) { /* the next flush creates one */
		if (p)
			path_end(p);
		group_dirty(r, group);
		return;
	}
	uint16_t id = r->current[group], mtu = path_mtu(rt, p);
	if (r->mtu[id] > mtu) /* until then, only packets that fit both paths pass */
		SY_RCU_PUBLISH(r->mtu[id], mtu);
	SY_RCU_PUBLISH(r->path[id], p);
	if (r->mtu[id])
		SY_RCU_PUBLISH(r->mtu[id], mtu);
	sy_rcu_retire(rt, old, path_end);
}

void group_dirty(struct routes *r, uint16_t group)
{
	if (!group || r->group[group]->dirty)
		return;
	r->group[group]->dirty = true;
	r->dirty[r->dirty_count++] = group;
}

/* ---- ageing ---------------------------------------------------------------------------------- */

static void path_stale(struct routes *r, uint16_t id)
{
	if (!id)
		return;
	r->stale_at[id] = r->generation;
	SY_RCU_PUBLISH(r->mtu[id], 0);
}

static void group_end(struct routes *r, uint16_t id)
{
	SY_RCU_PUBLISH(r->current[id], SY_PATH_NONE);
	group_unlink(r, id);
	free(r->group[id]);
	r->group[id] = NULL;
	r->group_free[r->group_free_count++] = id;
	r->groups_logged = false;
}

bool routes_flush_is_cheap(const struct sy_runtime *rt)
{
	return rt->routes->path_free_count > PATH_HALF / 4;
}

void routes_flush(struct sy_runtime *rt)
{
	struct routes *r = rt->routes;
	unsigned kept = 0;
	if (!r->dirty_count)
		return;
	generation_grow(r);
	for (unsigned i = 0; i < r->dirty_count; i++) {
		uint16_t group = r->dirty[i], old = r->current[group];
		if (!r->group[group]->refs) {
			group_end(r, group);
		} else if (group_publish(rt, group)) {
			r->group[group]->dirty = false;
		} else {
			r->dirty[kept++] = group;
			continue;
		}
		path_stale(r, old);
	}
	r->dirty_count = kept;
	generation_grow(r);
}

void sy_path_sweep_done(struct sy_runtime *rt, uint32_t generation)
{
	struct routes *r = rt->routes;
	for (unsigned id = 1; id < PATHS; id++) {
		struct path *p = r->path[id];
		if (!p || r->mtu[id] || (int32_t)(r->stale_at[id] - generation) >= 0)
			continue;
		SY_RCU_PUBLISH(r->path[id], NULL);
		sy_rcu_retire(rt, p, path_end);
		path_id_free(r, (uint16_t)id);
	}
	routes_flush(rt);
}

void paths_close(struct routes *r)
{
	for (unsigned i = 0; i < GROUPS; i++)
		free(r->group[i]);
	for (unsigned i = 0; i < PATHS; i++)
		if (r->path[i])
			path_end(r->path[i]);
}

/* ---- readers --------------------------------------------------------------------------------- */

const struct path *path_get(const struct sy_runtime *rt, uint16_t id)
{
	return SY_RCU_READ(rt->routes->path[id]);
}

bool sy_path_is_stale(const struct sy_runtime *rt, uint16_t path)
{
	return SY_RCU_READ(rt->routes->mtu[path]) == 0;
}

uint16_t sy_path_mtu(const struct sy_runtime *rt, uint16_t path)
{
	const struct path *p = path_get(rt, path);
	return p ? path_mtu(rt, p) : UINT16_MAX;
}

bool sy_path_is_blackhole(const struct sy_runtime *rt, uint16_t path)
{
	const struct path *p = path_get(rt, path);
	return p && p->blackhole;
}

bool sy_path_is_on_link(const struct sy_runtime *rt, uint16_t path)
{
	const struct path *p = path_get(rt, path);
	for (unsigned i = 0; p && i < p->hops; i++)
		if (p->hop[i].adjacency != ADJACENCY_NONE)
			return false;
	return p && p->hops;
}

uint32_t sy_path_generation(const struct sy_runtime *rt)
{
	return SY_RCU_READ(rt->routes->generation);
}
