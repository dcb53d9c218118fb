// SPDX-License-Identifier: Apache-2.0
/* Policy routing: packets that the kernel would not route by their destination alone. A session's
 * path depends on the destination only, so sessions with such packets are refused. */
#include <stdlib.h>

#include <rte_byteorder.h>

#include "runtime.h"

struct policies {
	unsigned count;
	struct sy_policy at[];
};

void policies_set(struct sy_runtime *rt, const struct sy_policy *list, unsigned count)
{
	struct policies *old = rt->policies, *now = NULL;
	if (count && (now = calloc(1, sizeof(*now) + count * sizeof(*list)))) {
		now->count = count;
		memcpy(now->at, list, count * sizeof(*list));
	}
	SY_RCU_PUBLISH(rt->policies, now);
	if (old)
		sy_rcu_retire(rt, old, free);
}

static bool prefix_holds(const struct sy_addr *prefix, unsigned bits, const struct sy_addr *addr)
{
	unsigned bytes = bits / 8;
	if (memcmp(prefix->b, addr->b, bytes))
		return false;
	return bits % 8 == 0 || (prefix->b[bytes] ^ addr->b[bytes]) >> (8 - bits % 8) == 0;
}

static bool port_is_in(const uint16_t range[2], uint16_t port)
{
	port = rte_be_to_cpu_16(port);
	return !range[1] || (port >= range[0] && port <= range[1]);
}

/* Compares like the kernel: without the ECN bits (RFC 3168), and for IPv4 without the precedence
 * (RFC 1349). */
static bool tos_matches(const struct sy_policy *p, uint8_t tos)
{
	return !p->tos || ((p->tos ^ tos) & (p->v6 ? 0xfc : 0x1c)) == 0;
}

static bool policy_matches(const struct sy_policy *p, const struct sy_tuple *t, uint8_t tos)
{
	return p->v6 != sy_addr_is_v4(&t->dst) && tos_matches(p, tos) &&
	       (!p->proto || p->proto == t->proto) && port_is_in(p->sport, t->sport) &&
	       port_is_in(p->dport, t->dport) && prefix_holds(&p->from, p->from_bits, &t->src) &&
	       prefix_holds(&p->to, p->to_bits, &t->dst);
}

bool sy_policies_exist(const struct sy_runtime *rt)
{
	return SY_RCU_READ(rt->policies);
}

bool sy_policy_refuses(const struct sy_runtime *rt, const struct sy_tuple *t, uint8_t tos)
{
	const struct policies *set = SY_RCU_READ(rt->policies);
	for (unsigned i = 0; set && i < set->count; i++)
		if (policy_matches(&set->at[i], t, tos))
			return true;
	return false;
}

const char *policy_text(const struct sy_runtime *rt, unsigned i)
{
	return rt->policies && i < rt->policies->count ? rt->policies->at[i].text : NULL;
}
