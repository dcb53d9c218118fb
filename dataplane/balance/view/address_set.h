// SPDX-License-Identifier: Apache-2.0
/* Which destination addresses are ours, and what they are: an immutable open-addressing table. */
#ifndef ADDRESS_SET_H
#define ADDRESS_SET_H

#include <sy_base.h>

enum address_set_kind {
	ADDRESS_SET_NONE,
	ADDRESS_SET_VIP,
	ADDRESS_SET_LOCAL,
	ADDRESS_SET_POOL,   /* of SNAT: what remote hosts answer to */
	ADDRESS_SET_SERVER, /* of a NAT service: not ours, but what it sends may be for us to
	                       translate */
};

struct address_set_entry {
	struct sy_addr addr;
	uint8_t kind; /* enum address_set_kind; NONE: empty place */
};

struct address_set {
	uint32_t mask; /* places − 1; at most half are taken */
	uint64_t *v4; /* as many for those of IPv4 once more: address, kind << 32; 0: empty place */
	struct address_set_entry entry[];
};

/* Both halves of the product count: IPv4's last bytes are a word's highest, and a product carries
 * only upwards. Addresses come from our own configuration, so the constants need no secret. */
static inline uint32_t address_set_hash(const struct sy_addr *a)
{
	return (uint32_t)sy_hash_mix(a->d[0] ^ 0x9e3779b97f4a7c15u, a->d[1] ^ 0xd6e8feb86659fd93u);
}

static inline enum address_set_kind address_set_find(const struct address_set *o,
                                                     const struct sy_addr *a)
{
	for (uint32_t i = address_set_hash(a);; i++) {
		const struct address_set_entry *e = &o->entry[i & o->mask];
		if (e->kind == ADDRESS_SET_NONE || sy_addr_equal(&e->addr, a))
			return e->kind;
	}
}

/* From the product's upper half: an address's last byte, which differs most, is its highest. */
static inline uint32_t address_set_hash_v4(uint32_t address)
{
	return (uint32_t)(address * 0x9e3779b97f4a7c15u >> 40);
}

/* The same for an address of IPv4, as it stands in a header. */
static inline enum address_set_kind address_set_find_v4(const struct address_set *o,
                                                        uint32_t address)
{
	for (uint32_t i = address_set_hash_v4(address);; i++) {
		uint64_t entry = o->v4[i & o->mask];
		if ((uint32_t)entry == address || entry == 0)
			return (enum address_set_kind)(entry >> 32);
	}
}

/* Builds the table; NULL when memory is short. Freed with free(). */
struct address_set *address_set_build(const struct address_set_entry *entries, unsigned count);

#endif
