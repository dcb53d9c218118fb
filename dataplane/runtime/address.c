// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

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

/* Where an IPv6 address is answered for: the port on whose network it lies, else the first that has
 * a kernel interface. */
static int answering_ifindex(const struct sy_runtime *rt, const struct sy_addr *addr)
{
	if (sy_addr_is_v4(addr))
		return 0;
	for (unsigned i = 0; i < rt->connected_count; i++)
		if (rt->connected[i].prefix_len < 128 && prefix_holds(&rt->connected[i], addr))
			return rt->connected[i].ifindex;
	for (unsigned i = 0; i < rt->ports; i++)
		if (rt->port[i]->ifindex)
			return rt->port[i]->ifindex;
	return 0;
}

static int address_steer(struct sy_runtime *rt, const struct sy_addr *addr, bool on)
{
	for (unsigned i = 0; i < rt->ports; i++) {
		struct sy_director *d = port_xsk_director(rt->port[i]);
		int rc = d ? sy_director_steer(d, addr, on) : 0;
		if (rc && on)
			return rc;
	}
	return 0;
}

int sy_address_take(struct sy_runtime *rt, const struct sy_addr *addr, struct sy_error *err)
{
	char text[SY_ADDR_TEXT];
	if (rt->claims) {
		int rc = sy_claims_add(rt->claims, addr, answering_ifindex(rt, addr), err);
		if (rc)
			return rc;
	}
	int rc = address_steer(rt, addr, true);
	if (!rc)
		return 0;
	sy_address_release(rt, addr);
	return sy_fail(err, -rc, "address %s cannot be steered: %s", sy_addr_format(addr, text),
	               strerror(-rc));
}

void sy_address_release(struct sy_runtime *rt, const struct sy_addr *addr)
{
	char text[SY_ADDR_TEXT];
	/* The claim first: while it is steered still, the kernel sees none of its packets. */
	int rc = rt->claims ? sy_claims_remove(rt->claims, addr) : 0;
	if (rc)
		sy_log(SY_LOG_WARN, "runtime", "address %s cannot be given back to the kernel: %s",
		       sy_addr_format(addr, text), strerror(-rc));
	address_steer(rt, addr, false);
}

void sy_address_settle(struct sy_runtime *rt)
{
	int rc = rt->claims ? sy_claims_settle(rt->claims) : 0;
	if (rc)
		sy_log(SY_LOG_WARN, "runtime", "addresses of an earlier process stay claimed: %s",
		       strerror(-rc));
	for (unsigned i = 0; i < rt->ports; i++) {
		struct sy_director *d = port_xsk_director(rt->port[i]);
		rc = d ? sy_director_settle(d) : 0;
		if (rc)
			sy_log(SY_LOG_WARN, "runtime",
			       "port %s: addresses of an earlier process stay steered: %s",
			       rt->port[i]->name, strerror(-rc));
	}
}
