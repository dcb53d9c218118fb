// SPDX-License-Identifier: Apache-2.0
/* An intrusive hash table with chains. It doubles when it is full, so a million routes cost no more
 * each than ten; whoever iterates over buckets starts anew when `mask` has changed. */
#ifndef KERNEL_TABLE_H
#define KERNEL_TABLE_H

#include <stdint.h>

struct table_node {
	struct table_node *next;
	uint32_t hash;
};

struct table {
	struct table_node **bucket;
	uint32_t mask; /* buckets − 1 */
	uint32_t count;
};

/* Returns 0 or -ENOMEM. */
int table_init(struct table *t);
/* Frees the buckets; the nodes belong to the caller. */
void table_fini(struct table *t);
void table_insert(struct table *t, struct table_node *node, uint32_t hash);
void table_remove(struct table *t, struct table_node *node);

/* First node of the chain that holds `hash`; the caller compares hash and key. */
static inline struct table_node *table_chain(const struct table *t, uint32_t hash)
{
	return t->bucket[hash & t->mask];
}

#endif
