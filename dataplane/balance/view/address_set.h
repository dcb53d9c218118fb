// SPDX-License-Identifier: Apache-2.0
/* The addresses whose packets the forwarder accepts, and the kind of each: an immutable
 * open-addressing table, built by config/address_publish.c and read by classify. */
#ifndef ADDRESS_SET_H
#define ADDRESS_SET_H

#include <sy_base.h>

enum address_set_kind {
	ADDRESS_SET_NONE,
	ADDRESS_SET_VIP,
	ADDRESS_SET_LOCAL,
	ADDRESS_SET_POOL,   /* SNAT pool: remote hosts reply to it */
	ADDRESS_SET_SERVER, /* server of a NAT service: its packets may need translation */
};

struct address_set_entry {
	struct sy_addr addr;
	uint8_t kind; /* enum address_set_kind; NONE: free entry */
};

struct address_set {
	uint32_t mask; /* number of entries − 1; at most half are used */
	uint64_t *v4;  /* a second table for IPv4: address, kind << 32; 0: free entry */
	struct address_set_entry entry[];
};

/* Uses both halves of the product: the last bytes of an IPv4 address are the highest of its word,
 * and multiplication carries upwards only. Addresses come from the configuration, so the constants
 * need not be secret. */
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

/* Uses the product's upper half: the last byte of an address varies most, and is the highest. */
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

/* Builds the table; free it with free(). Returns NULL without memory. */
struct address_set *address_set_build(const struct address_set_entry *entries, unsigned count);

#endif
