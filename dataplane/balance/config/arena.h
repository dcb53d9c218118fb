// SPDX-License-Identifier: Apache-2.0
/* Memory for one reply: allocated piece by piece, freed as a whole. */
#ifndef ARENA_H
#define ARENA_H

#include <stddef.h>

struct arena_chunk;

struct arena {
	struct arena_chunk *chunk;
};

/* Zeroed, aligned for any type; NULL: no memory. */
void *arena_alloc(struct arena *a, size_t size);
void arena_free(struct arena *a);

#endif
