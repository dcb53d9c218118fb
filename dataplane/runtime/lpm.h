// SPDX-License-Identifier: Apache-2.0
/*
 * Longest prefix match over 4- or 16-byte addresses, by steps of 16, 8, 8, … bits. Each entry is a
 * leaf (value and length of the longest prefix that covers it) or refers to a node. One writer.
 * Readers are lock-free, but a result during a write may be stale, or belong to another address if
 * one write freed a node and the next one reused it. So readers must check that no write began
 * meanwhile.
 */
#ifndef LPM_H
#define LPM_H

#include <stdint.h>

#define LPM_NODES (1u << 18) /* 1 KB each; unused ones are never touched */
#define LPM_CHILD (1u << 31)

/* Leaf: prefix length << 16 | value; 0: nothing. */
struct lpm {
	unsigned bytes;  /* bytes of an address */
	uint32_t *root;  /* [65536] */
	uint32_t *nodes; /* [LPM_NODES][256] */
	uint32_t high;   /* nodes from this index on were never used */
	uint32_t free;   /* first free node, chained by their first entries; 0: none */
};

/* Returns 0 or -ENOMEM. */
int lpm_open(struct lpm *l, unsigned bytes);
void lpm_close(struct lpm *l);
/* Sets the prefix to value (15 bits), whether it is new or not. Returns 0, or -ENOSPC with nothing
 * changed. */
int lpm_set(struct lpm *l, const uint8_t *prefix, unsigned len, uint16_t value);
/* Removes a prefix that was set. outer_len, outer_value: the next shorter prefix that covers it (0
 * and 0: none). */
void lpm_unset(struct lpm *l, const uint8_t *prefix, unsigned len, unsigned outer_len,
               uint16_t outer_value);

static inline uint16_t lpm_find(const struct lpm *l, const uint8_t *address)
{
	uint32_t entry = __atomic_load_n(&l->root[address[0] << 8 | address[1]], __ATOMIC_ACQUIRE);
	for (unsigned i = 2; entry & LPM_CHILD && i < l->bytes; i++) {
		const uint32_t *node = l->nodes + (size_t)(entry & ~LPM_CHILD) * 256;
		entry = __atomic_load_n(&node[address[i]], __ATOMIC_ACQUIRE);
	}
	return (uint16_t)entry;
}

#endif
