// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <errno.h>
#include <stdlib.h>

#define TABLE_FIRST_BUCKETS 64

int table_init(struct table *t)
{
	t->bucket = calloc(TABLE_FIRST_BUCKETS, sizeof(*t->bucket));
	t->mask = TABLE_FIRST_BUCKETS - 1;
	t->count = 0;
	return t->bucket ? 0 : -ENOMEM;
}

void table_fini(struct table *t)
{
	free(t->bucket);
	*t = (struct table){0};
}

static void table_grow(struct table *t)
{
	uint32_t mask = t->mask * 2 + 1;
	struct table_node **bucket = calloc((size_t)mask + 1, sizeof(*bucket));

	if (!bucket)
		return; /* longer chains, still right; the next insertion tries again */
	for (uint32_t i = 0; i <= t->mask; i++) {
		for (struct table_node *node = t->bucket[i], *next; node; node = next) {
			next = node->next;
			node->next = bucket[node->hash & mask];
			bucket[node->hash & mask] = node;
		}
	}
	free(t->bucket);
	t->bucket = bucket;
	t->mask = mask;
}

void table_insert(struct table *t, struct table_node *node, uint32_t hash)
{
	if (t->count > t->mask)
		table_grow(t);
	node->hash = hash;
	node->next = t->bucket[hash & t->mask];
	t->bucket[hash & t->mask] = node;
	t->count++;
}

void table_remove(struct table *t, struct table_node *node)
{
	struct table_node **link = &t->bucket[node->hash & t->mask];

	while (*link != node)
		link = &(*link)->next;
	*link = node->next;
	t->count--;
}
