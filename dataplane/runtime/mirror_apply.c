// SPDX-License-Identifier: Apache-2.0
/* Applies the kernel mirror's reports to ports, routes and neighbours. The static configuration
 * supplies the same for ports without a kernel interface. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "reconcile.h"
#include "route.h"

#define BUDGET 256 /* max messages per loop iteration, to leave time for the control socket */

struct vlan_link {
	int ifindex, lower;
};

/* If a port is part of a bridge or bond, VLAN interfaces may be on top of that. */
static void ports_note_vlans(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < rt->ports; i++) {
		struct port *p = rt->port[i];
		bool vlans = p->master;
		for (unsigned k = 0; k < rt->vlans; k++)
			vlans |= p->ifindex && rt->vlan[k].lower == p->ifindex;
		if (p->ops->set_vlans)
			p->ops->set_vlans(p, vlans);
	}
}

/* A VLAN interface was added to a port or removed from it. */
static void vlans_note(struct sy_runtime *rt, const struct sy_link *link, bool gone)
{
	unsigned i = 0;
	while (i < rt->vlans && rt->vlan[i].ifindex != link->ifindex)
		i++;
	bool vlan = !gone && link->lower && !strcmp(link->kind, "vlan");
	if (!vlan && i == rt->vlans)
		return;
	if (!vlan) {
		rt->vlan[i] = rt->vlan[--rt->vlans];
	} else {
		struct vlan_link *more = realloc(rt->vlan, (rt->vlans + 1) * sizeof(*more));
		if (!more)
			return;
		rt->vlan = more;
		rt->vlan[i] = (struct vlan_link){link->ifindex, link->lower};
		rt->vlans += i == rt->vlans;
	}
	ports_note_vlans(rt);
}

/* A deleted interface, or one of the same name, has appeared. Its routes follow. */
static unsigned port_of_link(struct sy_runtime *rt, const struct sy_link *link)
{
	unsigned id = port_by_ifindex(rt, link->ifindex);
	if (id != SY_PORT_NONE)
		return id;
	id = port_by_name(rt, link->name);
	if (id == SY_PORT_NONE || !rt->port[id]->gone || rt->port[id]->ifindex)
		return SY_PORT_NONE;
	rt->port[id]->ifindex = link->ifindex;
	return id;
}

static void on_link(void *ctx, const struct sy_link *link, bool gone)
{
	struct sy_runtime *rt = ctx;
	vlans_note(rt, link, gone);
	unsigned id = gone ? port_by_ifindex(rt, link->ifindex) : port_of_link(rt, link);
	if (id == SY_PORT_NONE)
		return;
	struct port *p = rt->port[id];
	uint64_t mac = 0, before = p->mac;
	if (gone) {
		port_lose(rt, p);
		return;
	}
	p->master = link->master;
	ports_note_vlans(rt);
	if (port_set_mtu(p, link->mtu))
		paths_measure(rt);
	memcpy(&mac, link->mac, sizeof(link->mac));
	__atomic_store_n(&p->mac, mac, __ATOMIC_RELAXED);
	if (p->gone) /* until the port is reattached */
		return;
	if (link->up != p->up)
		sy_log(SY_LOG_INFO, "runtime", "port %s is %s", p->name, link->up ? "up" : "down");
	bool came = link->up && !p->up;
	int rc = came && rt->claims ? sy_claims_renew(rt->claims, link->ifindex) : 0;
	if (rc)
		sy_log(SY_LOG_ERROR, "runtime",
		       "port %s: the kernel does not answer for its IPv6 VIPs: %s", p->name,
		       strerror(-rc));
	__atomic_store_n(&p->up, link->up, __ATOMIC_RELAXED);
	if (came || (link->up && mac != before))
		announce_port(rt, id);
}

static bool host_has(const struct sy_runtime *rt, const struct sy_addr *addr)
{
	for (unsigned i = 0; i < rt->connected_count; i++)
		if (sy_addr_equal(&rt->connected[i].addr, addr))
			return true;
	return false;
}

static void on_addr(void *ctx, const struct sy_link_addr *addr, bool gone)
{
	struct sy_runtime *rt = ctx;
	unsigned i = 0, port = port_by_ifindex(rt, addr->ifindex);
	rt->own_stale = true;
	rt->connected_version++;
	while (i < rt->connected_count && (rt->connected[i].ifindex != addr->ifindex ||
	                                   rt->connected[i].prefix_len != addr->prefix_len ||
	                                   !sy_addr_equal(&rt->connected[i].addr, &addr->addr)))
		i++;
	if (gone && i < rt->connected_count)
		rt->connected[i] = rt->connected[--rt->connected_count];
	if (gone && !host_has(rt, &addr->addr))
		address_host(rt, &addr->addr, false);
	if (gone || i < rt->connected_count)
		return;
	struct sy_link_addr *more =
	        realloc(rt->connected, (rt->connected_count + 1) * sizeof(*more));
	if (!more) {
		sy_log(SY_LOG_ERROR, "runtime", "no memory for an interface's address");
		return;
	}
	rt->connected = more;
	rt->connected[rt->connected_count++] = *addr;
	address_host(rt, &addr->addr, true);
	/* The port now has a network, and it answers for that network's addresses. */
	if (port != SY_PORT_NONE && rt->port[port]->bound &&
	    addr->prefix_len < (sy_addr_is_v4(&addr->addr) ? 32 : 128))
		announce_port(rt, port);
}

static void on_route(void *ctx, const struct sy_route *route, bool gone)
{
	routes_apply(ctx, route, gone);
}

static void on_neigh(void *ctx, const struct sy_neigh *neigh, bool gone)
{
	struct sy_runtime *rt = ctx;
	unsigned port = port_by_ifindex(rt, neigh->ifindex);
	if (port != SY_PORT_NONE)
		adjacency_publish(rt, port, neigh, gone);
}

static void on_synced(void *ctx)
{
	struct sy_runtime *rt = ctx;
	routes_flush(rt);
	rt->synced = true;
}

static void on_refused(void *ctx, const char *text)
{
	struct sy_runtime *rt = ctx;
	bool before = rt->refusal[0], now = text;
	snprintf(rt->refusal, sizeof(rt->refusal), "%s", now ? text : "");
	if (now)
		sy_log(SY_LOG_ERROR, "runtime", "no packet is routed: %s", text);
	else if (before)
		sy_log(SY_LOG_INFO, "runtime", "routing again");
	if (now != before)
		routes_refuse(rt, now);
}

static void on_policies(void *ctx, const struct sy_policy *list, unsigned count)
{
	policies_set(ctx, list, count);
	reconcile_disturb(ctx, RECONCILE_ROUTING);
}

static bool is_used(void *ctx, const char *name)
{
	return port_by_name(ctx, name) != SY_PORT_NONE;
}

static void on_disturbed(void *ctx, unsigned what)
{
	reconcile_disturb(ctx, (what & SY_DISTURBED_CLAIMS ? RECONCILE_CLAIMS : 0) |
	                               (what & SY_DISTURBED_CHECKS ? RECONCILE_CHECKS : 0));
}

static void mirror_readable(void *ctx)
{
	struct sy_runtime *rt = ctx;
	int n = sy_mirror_process(rt->mirror, BUDGET);
	if (n < 0)
		sy_log(SY_LOG_ERROR, "runtime", "netlink mirror: %s", strerror(-n));
	if (routes_flush_is_cheap(rt))
		routes_flush(rt);
}

/* ---- static configuration -------------------------------------------------------------------- */

static int static_route(struct sy_runtime *rt, const struct sy_static_route *s,
                        struct sy_error *err)
{
	unsigned port = port_by_name(rt, s->port);
	struct sy_route route = {.prefix = s->prefix, .prefix_len = s->prefix_len, .hop_count = 1};
	if (port == SY_PORT_NONE)
		return sy_fail(err, EINVAL, "static route: no port is named \"%s\"", s->port);
	if (s->prefix_len > (sy_addr_is_v4(&s->prefix) ? 32 : 128))
		return sy_fail(err, EINVAL, "static route on port %s: prefix length %u", s->port,
		               s->prefix_len);
	route.hop[0] = (struct sy_route_hop){.ifindex = -(int)port - 1, .via = s->via, .weight = 1};
	routes_apply(rt, &route, false);
	return 0;
}

static int static_apply(struct sy_runtime *rt, struct sy_error *err)
{
	const struct sy_runtime_options *o = &rt->options;
	for (unsigned i = 0; i < o->neighs; i++) {
		unsigned port = port_by_name(rt, o->neigh[i].port);
		if (port == SY_PORT_NONE)
			return sy_fail(err, EINVAL, "static neighbour: no port is named \"%s\"",
			               o->neigh[i].port);
		if (!adjacency_fix(rt, port, &o->neigh[i].addr, o->neigh[i].mac))
			return sy_fail(err, ENOSPC, "more than %u static neighbours",
			               ADJACENCIES - 1);
	}
	for (unsigned i = 0; i < o->routes; i++) {
		int rc = static_route(rt, &o->route[i], err);
		if (rc)
			return rc;
	}
	routes_flush(rt);
	return 0;
}

int mirror_start(struct sy_runtime *rt, struct sy_error *err)
{
	struct sy_mirror_handler handler = {
	        .ctx = rt,
	        .link = on_link,
	        .addr = on_addr,
	        .route = on_route,
	        .neigh = on_neigh,
	        .synced = on_synced,
	        .refused = on_refused,
	        .policies = on_policies,
	        .uses = is_used,
	        .disturbed = on_disturbed,
	};
	int rc = static_apply(rt, err);
	if (rc)
		return rc;
	if (!rt->options.kernel) {
		rt->synced = true;
		return 0;
	}
	rc = sy_mirror_open(&handler, &rt->mirror, err);
	if (rc)
		return rc;
	rc = loop_watch(rt->loop, sy_mirror_fd(rt->mirror), mirror_readable, rt);
	return rc ? sy_fail(err, -rc, "watching the netlink mirror: %s", strerror(-rc)) : 0;
}

void mirror_stop(struct sy_runtime *rt)
{
	if (rt->mirror) {
		loop_unwatch(rt->loop, sy_mirror_fd(rt->mirror));
		sy_mirror_close(rt->mirror);
	}
	rt->mirror = NULL;
	free(rt->connected);
	free(rt->own);
	rt->connected = NULL;
	free(rt->vlan);
	rt->vlan = NULL;
	rt->vlans = 0;
	rt->own = NULL;
	rt->own_count = 0;
}
