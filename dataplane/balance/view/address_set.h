// SPDX-License-Identifier: Apache-2.0
/* The addresses whose packets the forwarder takes, and the kind of each: an immutable
 * open-addressing table, which config/address.c builds and classify reads. */
#ifndef ADDRESS_SET_H
#define ADDRESS_SET_H

#include <sy_base.h>

enum address_set_kind {
	ADDRESS_SET_NONE,
	ADDRESS_SET_VIP,
	ADDRESS_SET_LOCAL,
	ADDRESS_SET_POOL,   /* of SNAT: the address that remote hosts answer to */
	ADDRESS_SET_SERVER, /* of a NAT service: its packets may need translation */
};

struct address_set_entry {
	struct sy_addr addr;
	uint8_t kind; /* enum address_set_kind; NONE: empty place */
};

struct address_set {
	uint32_t mask; /* places − 1; at most half are taken */
	uint64_t *v4;  /* as many places for IPv4 addresses again: address, kind << 32; 0: empty */
	struct address_set_entry entry[];
};

/* Uses both halves of the product: an IPv4 address's last bytes are the highest of its word, and a
 * product carries only upwards. The addresses are configured by us, so the constants need not be
 * secret. */
static inline uint32_t address_set_hash(const struct sy_addr *a)
{
	return (uint32_t)sy_hash_mix(a->d[0] ^ 0x9e3779b97f4a7c15u, a->d[1] ^ 0xd6e8feb86659fd93u);
}

static inline enum address_set_kind address_set_find(const struct address_set *set,
                                                     const struct sy_addr *a)
{
	for (uint32_t i = address_set_hash(a);; i++) {
		const struct address_set_entry *e = &set->entry[i & set->mask];
		if (e->kind == ADDRESS_SET_NONE || sy_addr_equal(&e->addr, a))
			return e->kind;
	}
}

/* Uses the product's upper half: an address's last byte, which varies most, is its highest. */
static inline uint32_t address_set_hash_v4(uint32_t address)
{
	return (uint32_t)(address * 0x9e3779b97f4a7c15u >> 40);
}

/* The same for an IPv4 address in network order. */
static inline enum address_set_kind address_set_find_v4(const struct address_set *set,
                                                        uint32_t address)
{
	for (uint32_t i = address_set_hash_v4(address);; i++) {
		uint64_t entry = set->v4[i & set->mask];
		if ((uint32_t)entry == address || entry == 0)
			return (enum address_set_kind)(entry >> 32);
	}
}

/* Builds the table; NULL when memory is short. Freed with free(). */
struct address_set *address_set_build(const struct address_set_entry *entries, unsigned count);

#endif
