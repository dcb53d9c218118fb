// SPDX-License-Identifier: Apache-2.0
/* A hash table for the control thread. Elements contain their links, so only growing can fail; then
 * look-ups get slower. */
#ifndef NODES_H
#define NODES_H

#include <stdlib.h>
#include <string.h>

#include <rte_hash_crc.h>

struct node {
	struct node *next;
	uint32_t hash;
};

struct nodes {
	struct node **head;
	uint32_t heads, count; /* heads: a power of two */
};

/* Accepts keys of any alignment, unlike rte_hash_crc(). */
static inline uint32_t nodes_hash(const void *key, size_t len)
{
	const uint8_t *at = key;
	uint32_t hash = 0x5eed;
	uint64_t word = 0;
	for (; len >= sizeof(word); len -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		hash = rte_hash_crc_8byte(word, hash);
	}
	word = len;
	for (size_t i = 0; i < len; i++)
		word = word << 8 | at[i];
	return rte_hash_crc_8byte(word, hash);
}

static inline bool nodes_create(struct nodes *t)
{
	t->heads = 64;
	t->count = 0;
	t->head = calloc(t->heads, sizeof(*t->head));
	return t->head;
}

static inline void nodes_grow(struct nodes *t)
{
	struct node **head = calloc(2 * (size_t)t->heads, sizeof(*head));
	if (!head)
		return;
	for (uint32_t i = 0; i < t->heads; i++)
		for (struct node *n = t->head[i], *next; n; n = next) {
			struct node **to = &head[n->hash & (2 * t->heads - 1)];
			next = n->next;
			n->next = *to;
			*to = n;
		}
	free(t->head);
	t->head = head;
	t->heads *= 2;
}

static inline void nodes_add(struct nodes *t, struct node *n, uint32_t hash)
{
	if (t->count >= t->heads)
		nodes_grow(t);
	struct node **head = &t->head[hash & (t->heads - 1)];
	n->hash = hash;
	n->next = *head;
	*head = n;
	t->count++;
}

static inline void nodes_remove(struct nodes *t, struct node *n)
{
	struct node **at = &t->head[n->hash & (t->heads - 1)];
	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	t->count--;
}

/* The first node of a hash; n: the next one after it. NULL: none. */
static inline struct node *nodes_next(const struct nodes *t, struct node *n, uint32_t hash)
{
	for (n = n ? n->next : t->head[hash & (t->heads - 1)]; n && n->hash != hash; n = n->next)
		continue;
	return n;
}

#endif
