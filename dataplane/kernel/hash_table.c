// SPDX-License-Identifier: Apache-2.0
#include "hash_table.h"

#include <errno.h>
#include <stdlib.h>

#define TABLE_FIRST_BUCKETS 64

int table_init(struct table *t)
{
	*t = (struct table){.bucket = calloc(TABLE_FIRST_BUCKETS, sizeof(*t->bucket))};
	if (!t->bucket)
		return -ENOMEM;
	t->buckets = t->low = t->capacity = TABLE_FIRST_BUCKETS;
	return 0;
}

void table_fini(struct table *t)
{
	free(t->bucket);
	*t = (struct table){0};
}

/* Adds a bucket, and moves to it its nodes from the bucket that is split. */
static void table_split(struct table *t)
{
	uint32_t from = t->buckets - t->low, to = t->buckets;
	struct table_node *node;

	if (t->buckets == t->capacity) {
		struct table_node **more =
		        realloc(t->bucket, 2 * (size_t)t->capacity * sizeof(*t->bucket));

		if (!more)
			return; /* chains get longer; the next insertion tries again */
		t->bucket = more;
		t->capacity *= 2;
	}
	node = t->bucket[from];
	t->bucket[from] = t->bucket[to] = NULL;
	while (node) {
		struct table_node *next = node->next;
		uint32_t i = node->hash & (2 * t->low - 1);

		node->next = t->bucket[i];
		t->bucket[i] = node;
		node = next;
	}
	if (++t->buckets == 2 * t->low)
		t->low *= 2;
}

void table_insert(struct table *t, struct table_node *node, uint32_t hash)
{
	uint32_t i;

	if (t->count >= t->buckets)
		table_split(t);
	i = table_index(t, hash);
	node->hash = hash;
	node->next = t->bucket[i];
	t->bucket[i] = node;
	t->count++;
}

void table_remove(struct table *t, struct table_node *node)
{
	struct table_node **link = &t->bucket[table_index(t, node->hash)];

	while (*link != node)
		link = &(*link)->next;
	*link = node->next;
	t->count--;
}
