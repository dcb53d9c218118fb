// SPDX-License-Identifier: Apache-2.0
#include "arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#define CHUNK_BYTES (64u << 10)

struct arena_chunk {
	struct arena_chunk *next;
	size_t used, size;
	alignas(max_align_t) uint8_t bytes[];
};

void *arena_alloc(struct arena *a, size_t size)
{
	size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	struct arena_chunk *c = a->chunk;
	if (!c || c->size - c->used < size) {
		size_t capacity = size > CHUNK_BYTES ? size : CHUNK_BYTES;
		c = calloc(1, sizeof(*c) + capacity);
		if (!c)
			return NULL;
		c->size = capacity;
		c->next = a->chunk;
		a->chunk = c;
	}
	void *out = c->bytes + c->used;
	c->used += size;
	return out;
}

void arena_free(struct arena *a)
{
	while (a->chunk) {
		struct arena_chunk *next = a->chunk->next;
		free(a->chunk);
		a->chunk = next;
	}
}
