// SPDX-License-Identifier: Apache-2.0
/*
 * An intrusive hash table with chains. It grows by one bucket per insertion (linear hashing), so
 * that no insertion takes long, even in a table of a million. Nodes only move to later buckets: a
 * walk over ascending buckets misses none during insertions.
 */
#ifndef HASH_TABLE_H
#define HASH_TABLE_H

#include <stdint.h>

struct table_node {
	struct table_node *next;
	uint32_t hash;
};

struct table {
	struct table_node **bucket;
	uint32_t buckets;
	uint32_t low; /* largest power of two ≤ buckets */
	uint32_t capacity;
	uint32_t count;
};

/* Returns 0 or -ENOMEM. */
int table_init(struct table *t);
/* Frees the buckets; the nodes belong to the caller. */
void table_fini(struct table *t);
void table_insert(struct table *t, struct table_node *node, uint32_t hash);
void table_remove(struct table *t, struct table_node *node);

static inline uint32_t table_index(const struct table *t, uint32_t hash)
{
	uint32_t i = hash & (2 * t->low - 1);

	return i < t->buckets ? i : i & (t->low - 1);
}

/* First node of the chain that holds `hash`; the caller compares hash and key. */
static inline struct table_node *table_chain(const struct table *t, uint32_t hash)
{
	return t->bucket[table_index(t, hash)];
}

#endif
