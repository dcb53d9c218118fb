// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "probe.h"
#include "runtime.h"

#define CLAIM_WAIT_MS 2000 /* max wait until a predecessor releases its claims */

static bool prefix_holds(const struct sy_link_addr *prefix, const struct sy_addr *addr)
{
	bool v4 = sy_addr_is_v4(addr);
	if (sy_addr_is_v4(&prefix->addr) != v4)
		return false;
	unsigned bits = prefix->prefix_len + (v4 ? 96u : 0u), bytes = bits / 8;
	if (memcmp(prefix->addr.b, addr->b, bytes))
		return false;
	return bits % 8 == 0 || (prefix->addr.b[bytes] ^ addr->b[bytes]) >> (8 - bits % 8) == 0;
}

/* The interface that answers neighbour solicitations for an IPv6 address: the port on whose network
 * the address lies, otherwise the first port with a kernel interface. */
static int answering_ifindex(const struct sy_runtime *rt, const struct sy_addr *addr)
{
	if (sy_addr_is_v4(addr))
		return 0;
	for (unsigned i = 0; i < rt->connected_count; i++)
		if (port_by_ifindex(rt, rt->connected[i].ifindex) != SY_PORT_NONE &&
		    rt->connected[i].prefix_len < 128 && prefix_holds(&rt->connected[i], addr))
			return rt->connected[i].ifindex;
	for (unsigned i = 0; i < rt->ports; i++)
		if (rt->port[i]->ifindex)
			return rt->port[i]->ifindex;
	return 0;
}

bool address_is_answered_on(const struct sy_runtime *rt, const struct sy_addr *addr, unsigned port)
{
	bool connected = false;
	int ifindex = rt->port[port]->ifindex;
	if (!sy_addr_is_v4(addr))
		return ifindex && answering_ifindex(rt, addr) == ifindex;
	for (unsigned i = 0; i < rt->connected_count; i++) {
		const struct sy_link_addr *c = &rt->connected[i];
		if (c->prefix_len == 32 || !prefix_holds(c, addr) ||
		    port_by_ifindex(rt, c->ifindex) == SY_PORT_NONE)
			continue;
		if (c->ifindex == ifindex)
			return true;
		connected = true;
	}
	return ifindex && !connected; /* on no port's network: answer every request */
}

static int source_steer(struct sy_runtime *rt, const struct sy_source *source, bool on)
{
	for (unsigned i = 0; i < rt->ports; i++) {
		struct sy_director *d = port_director(rt->port[i]);
		int rc = d ? sy_director_steer_source(d, source, on) : 0;
		if (rc && on)
			return rc;
	}
	return 0;
}

static int address_steer(struct sy_runtime *rt, const struct sy_addr *addr, bool on)
{
	return source_steer(rt, &(struct sy_source){.addr = *addr}, on);
}

void address_host(struct sy_runtime *rt, const struct sy_addr *addr, bool on)
{
	char text[SY_ADDR_TEXT];
	for (unsigned i = 0; i < rt->ports && !rt->remembering; i++) {
		struct sy_director *d = port_director(rt->port[i]);
		int rc = d ? sy_director_host(d, addr, on) : 0;
		if (rc)
			sy_log(SY_LOG_ERROR, "runtime",
			       "port %s: NAT servers cannot reach %s of this host: %s",
			       rt->port[i]->name, sy_addr_format(addr, text), strerror(-rc));
	}
}

/* ---- inherit: changes are deferred until the predecessor has released the addresses ---------- */

static int source_remember(struct sy_runtime *rt, const struct sy_source *source,
                           struct sy_error *err)
{
	if (rt->inherited_count == rt->inherited_capacity) {
		unsigned capacity = rt->inherited_capacity ? 2 * rt->inherited_capacity : 64;
		struct sy_source *more = realloc(rt->inherited, capacity * sizeof(*more));
		if (!more)
			return sy_fail(err, ENOMEM, "no memory for an address");
		rt->inherited = more;
		rt->inherited_capacity = capacity;
	}
	rt->inherited[rt->inherited_count++] = *source;
	return 0;
}

static void source_unremember(struct sy_runtime *rt, const struct sy_source *source)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < rt->inherited_count; i++)
		if (memcmp(&rt->inherited[i], source, sizeof(*source)))
			rt->inherited[kept++] = rt->inherited[i];
	rt->inherited_count = kept;
}

void addresses_forget(struct sy_runtime *rt)
{
	free(rt->inherited);
	rt->inherited = NULL;
	rt->inherited_count = rt->inherited_capacity = 0;
}

static int directors_update(struct sy_runtime *rt, struct sy_error *err)
{
	for (unsigned i = 0; i < rt->ports; i++) {
		struct sy_director *d = port_director(rt->port[i]);
		int rc = d ? sy_director_update(d, err) : 0;
		if (rc)
			return rc;
	}
	return 0;
}

int sy_runtime_claim(struct sy_runtime *rt, struct sy_error *err)
{
	if (!rt->remembering)
		return 0;
	int first = directors_update(rt, err);
	if (!first)
		first = claims_open(rt, CLAIM_WAIT_MS, err);
	if (first)
		return first;
	rt->remembering = false;
	marks_attach(rt);
	for (unsigned i = 0; i < rt->inherited_count; i++) {
		struct sy_error one = {0};
		const struct sy_source *t = &rt->inherited[i];
		int rc = t->proto || t->bits ? sy_source_divert(rt, t, &one)
		                             : sy_address_claim(rt, &t->addr, &one);
		if (!rc)
			continue;
		sy_log(SY_LOG_ERROR, "runtime", "%s", one.text);
		if (!first && err)
			*err = one;
		first = first ? first : rc;
	}
	addresses_forget(rt);
	for (unsigned i = 0; i < rt->connected_count; i++)
		address_host(rt, &rt->connected[i].addr, true);
	block_claim(rt);
	if (rt->settling)
		sy_address_settle(rt);
	return first;
}

/* ---- claiming and releasing ------------------------------------------------------------------ */

bool address_is_connected(const struct sy_runtime *rt, const struct sy_addr *addr, int ifindex)
{
	unsigned whole = sy_addr_is_v4(addr) ? 32 : 128;
	for (unsigned i = 0; i < rt->connected_count; i++)
		if (rt->connected[i].ifindex == ifindex && rt->connected[i].prefix_len < whole &&
		    prefix_holds(&rt->connected[i], addr))
			return true;
	return false;
}

int sy_address_claim(struct sy_runtime *rt, const struct sy_addr *addr, struct sy_error *err)
{
	if (rt->remembering)
		return source_remember(rt, &(struct sy_source){.addr = *addr}, err);
	return probe_begin(rt, addr) ? 0 : address_claim(rt, addr, err);
}

int sy_address_claim_now(struct sy_runtime *rt, const struct sy_addr *addr, struct sy_error *err)
{
	if (rt->remembering)
		return source_remember(rt, &(struct sy_source){.addr = *addr}, err);
	return address_claim(rt, addr, err);
}

int address_claim(struct sy_runtime *rt, const struct sy_addr *addr, struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	if (rt->claims) {
		int rc = sy_claims_add(rt->claims, addr, answering_ifindex(rt, addr), err);
		if (rc)
			return rc;
	}
	int rc = address_steer(rt, addr, true);
	if (!rc && rt->claims)
		announce_address(rt, addr);
	if (!rc)
		return 0;
	sy_address_release(rt, addr);
	return sy_fail(err, -rc, "XDP cannot redirect address %s: %s", sy_addr_format(addr, text),
	               strerror(-rc));
}

void sy_address_release(struct sy_runtime *rt, const struct sy_addr *addr)
{
	char text[SY_ADDR_TEXT];
	if (rt->remembering) {
		source_unremember(rt, &(struct sy_source){.addr = *addr});
		return;
	}
	announce_forget(rt, addr);
	probe_forget(rt, addr);
	/* Remove the claim first: while XDP still redirects the address, the kernel receives none
	 * of its packets. */
	int rc = rt->claims ? sy_claims_remove(rt->claims, addr) : 0;
	if (rc)
		sy_log(SY_LOG_WARN, "runtime", "address %s cannot be released to the kernel: %s",
		       sy_addr_format(addr, text), strerror(-rc));
	address_steer(rt, addr, false);
}

bool sy_runtime_is_claimed(const struct sy_runtime *rt)
{
	return !rt->remembering;
}

int sy_address_serve(struct sy_runtime *rt, const struct sy_addr *addr,
                     const struct sy_port_range *range, size_t count)
{
	int first = 0;
	if (rt->remembering)
		return -EBUSY;
	if (probe_has(rt, addr)) /* another host uses it: claim it later */
		return 0;
	for (unsigned i = 0; i < rt->ports; i++) {
		struct sy_director *d = port_director(rt->port[i]);
		int rc = d ? sy_director_serve(d, addr, range, count) : 0;
		first = first ? first : rc;
	}
	return first;
}

int sy_source_divert(struct sy_runtime *rt, const struct sy_source *source, struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	if (rt->remembering)
		return source_remember(rt, source, err);
	int rc = source_steer(rt, source, true);
	return rc ? sy_fail(err, -rc, "XDP cannot redirect packets from %s%s: %s",
	                    sy_addr_format(&source->addr, text),
	                    source->bits ? " and its network" : "", strerror(-rc))
	          : 0;
}

void sy_source_release(struct sy_runtime *rt, const struct sy_source *source)
{
	if (rt->remembering)
		source_unremember(rt, source);
	else
		source_steer(rt, source, false);
}

void sy_address_settle(struct sy_runtime *rt)
{
	if (rt->remembering) {
		rt->settling = true;
		return;
	}
	int rc = rt->claims ? sy_claims_settle(rt->claims) : 0;
	if (rc)
		sy_log(SY_LOG_WARN, "runtime", "addresses of an earlier process stay claimed: %s",
		       strerror(-rc));
	for (unsigned i = 0; i < rt->ports; i++) {
		struct sy_director *d = port_director(rt->port[i]);
		rc = d ? sy_director_settle(d) : 0;
		if (rc)
			sy_log(SY_LOG_WARN, "runtime",
			       "port %s: XDP still redirects addresses of an earlier process: %s",
			       rt->port[i]->name, strerror(-rc));
	}
}
