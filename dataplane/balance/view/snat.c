// SPDX-License-Identifier: Apache-2.0
/* SNAT: finds the rule of an inside host. */
#include "snat.h"

#include <stdlib.h>

static struct sy_addr network_of(const struct sy_addr *addr, unsigned bits)
{
	struct sy_addr first = *addr;
	for (unsigned byte = bits / 8; byte < 16; byte++)
		first.b[byte] &= byte == bits / 8 ? (uint8_t)(0xff00 >> bits % 8) : 0;
	return first;
}

const struct snat_rule *snat_find(const struct snat *snat, const struct sy_addr *addr)
{
	for (unsigned i = 0; snat && i < snat->lengths; i++) {
		const struct sy_addr first = network_of(addr, snat->length[i]);
		for (uint32_t at = address_set_hash(&first);; at++) {
			const struct snat_entry *p = &snat->place[at & snat->mask];
			if (!p->bits)
				break;
			if (p->bits == snat->length[i] && sy_addr_equal(&p->first, &first))
				return &snat->rule[p->rule];
		}
	}
	return NULL;
}

static bool is_of_link(const struct sy_addr *a)
{
	bool group = sy_addr_is_v4(a) ? a->b[12] >= 224 : a->b[0] == 0xff;
	return group || sy_addr_is_link_local(a);
}

bool snat_matches(const struct snat *snat, const struct sy_tuple *t)
{
	return snat && snat_find(snat, &t->src) && !is_of_link(&t->dst) &&
	       !snat_find(snat, &t->dst);
}

static int source_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct sy_source));
}

static bool is_source(const struct snat *snat, const struct sy_addr *addr, uint16_t port,
                      uint32_t proto)
{
	const struct sy_source key = {*addr, port, (uint16_t)proto, 0};
	return bsearch(&key, snat->source, snat->sources, sizeof(key), source_compare) != NULL;
}

bool snat_is_of_inside(const struct snat *snat, const struct sy_tuple *t)
{
	return snat_matches(snat, t) && !is_source(snat, &t->src, t->sport, t->proto) &&
	       !is_source(snat, &t->src, 0, t->proto); /* a service on all ports */
}

bool snat_is_echo(const struct sy_view *v, bool to_pool)
{
	uint8_t request = v->v4 ? 8 : 128, reply = v->v4 ? 0 : 129;
	return (v->proto == SY_PROTO_ICMP || v->proto == SY_PROTO_ICMPV6) && v->icmp_code == 0 &&
	       v->icmp_type == (to_pool ? reply : request);
}

void snat_echo_ports(struct sy_view *v, bool to_pool)
{
	if (to_pool)
		v->tuple.dport = v->icmp_id;
	else
		v->tuple.sport = v->icmp_id;
}
