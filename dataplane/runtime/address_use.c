// SPDX-License-Identifier: Apache-2.0
/* Finds how this host or its networks already use an address that the balancer is to claim. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "route.h"
#include "runtime.h"

/* Is this a claim? Claims of IPv6 addresses are /128 on a port's interface, which the mirror still
 * shows for a moment after their release. */
static bool is_claim(const struct sy_runtime *rt, const struct sy_link_addr *at)
{
	return !sy_addr_is_v4(&at->addr) && at->prefix_len == 128 &&
	       port_by_ifindex(rt, at->ifindex) != SY_PORT_NONE;
}

/* Caches the host's own addresses: the mirror may have thousands of claims among its addresses, and
 * there may be thousands of servers to check. Without memory the list stays empty. */
static void own_renew(struct sy_runtime *rt)
{
	struct sy_addr *own = realloc(rt->own, (rt->connected_count + 1) * sizeof(*own));
	rt->own_count = 0;
	if (!own)
		return;
	rt->own = own;
	rt->own_stale = false;
	for (unsigned i = 0; i < rt->connected_count; i++)
		if (!is_claim(rt, &rt->connected[i]))
			own[rt->own_count++] = rt->connected[i].addr;
}

static bool is_host(struct sy_runtime *rt, const struct sy_addr *addr)
{
	if (rt->own_stale)
		own_renew(rt);
	for (unsigned i = 0; i < rt->own_count; i++)
		if (sy_addr_equal(&rt->own[i], addr))
			return true;
	return false;
}

static bool is_gateway(const struct sy_runtime *rt, const struct sy_addr *addr)
{
	const struct routes *r = rt->routes;
	unsigned left = r ? GROUPS - 1 - r->group_free_count : 0; /* low ids are allocated first */
	for (unsigned id = 1; left > 0 && id < GROUPS; id++) {
		const struct group *g = r->group[id];
		left -= g != NULL;
		for (unsigned i = 0; g && g->refs && i < g->hop_count; i++)
			if (sy_addr_equal(&g->hop[i].via, addr))
				return true;
	}
	return false;
}

static bool is_neighbour(const struct sy_runtime *rt, const struct sy_addr *addr, uint8_t mac[6])
{
	struct sy_neigh neigh;
	for (unsigned i = 0; rt->mirror && i < rt->ports; i++) {
		if (!rt->port[i]->ifindex ||
		    !sy_mirror_find_neigh(rt->mirror, rt->port[i]->ifindex, addr, &neigh) ||
		    !neigh.valid)
			continue;
		memcpy(mac, neigh.mac, sizeof(neigh.mac));
		return true;
	}
	return false;
}

enum sy_address_use sy_address_use(struct sy_runtime *rt, const struct sy_addr *addr,
                                   uint8_t mac[static 6])
{
	if (is_host(rt, addr))
		return SY_ADDRESS_HOST;
	if (is_gateway(rt, addr))
		return SY_ADDRESS_GATEWAY;
	return is_neighbour(rt, addr, mac) ? SY_ADDRESS_NEIGHBOUR : SY_ADDRESS_FREE;
}

/* ---- sources that no packet of another host has ---------------------------------------------- */

/* Appends the broadcast addresses of an interface's IPv4 networks. Networks of one or two addresses
 * have none (RFC 3021). */
static unsigned broadcasts_add(const struct sy_link_addr *at, struct sy_addr *out)
{
	if (!sy_addr_is_v4(&at->addr) || at->prefix_len == 0 || at->prefix_len > 30)
		return 0;
	uint32_t hosts = htonl(UINT32_MAX >> at->prefix_len);
	out[0] = sy_addr_v4(at->addr.w[3] & ~hosts);
	out[1] = sy_addr_v4(at->addr.w[3] | hosts);
	return 2;
}

int sy_own_sources(const struct sy_runtime *rt, struct sy_addr **out)
{
	unsigned n = 0;
	*out = malloc((3 * (size_t)rt->connected_count + 1) * sizeof(**out));
	if (!*out)
		return -ENOMEM;
	for (unsigned i = 0; i < rt->connected_count; i++) {
		(*out)[n++] = rt->connected[i].addr;
		n += broadcasts_add(&rt->connected[i], *out + n);
	}
	return (int)n;
}

uint32_t sy_own_sources_version(const struct sy_runtime *rt)
{
	return rt->connected_version;
}
