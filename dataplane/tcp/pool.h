// SPDX-License-Identifier: Apache-2.0
/* A pool of fixed-size cells with 32-bit indices, for one thread. Memory of cells that were never
 * allocated is untouched. */
#ifndef TCP_POOL_H
#define TCP_POOL_H

#include <stdint.h>

#define POOL_NONE 0 /* not a valid index */

/* First member of all cells: in free ones, the next free cell. */
struct pool_cell {
	uint32_t next;
};

struct pool {
	void *cells; /* array; cell 0 is unused */
	uint32_t size, count;
	uint32_t fresh; /* first cell that was never allocated */
	uint32_t free;  /* head of the free list */
	uint32_t taken;
};

static inline void pool_init(struct pool *p, void *cells, uint32_t size, uint32_t count)
{
	*p = (struct pool){.cells = cells, .size = size, .count = count, .fresh = 1};
}

static inline struct pool_cell *pool_at(const struct pool *p, uint32_t index)
{
	return (struct pool_cell *)((char *)p->cells + (uint64_t)index * p->size);
}

/* Returns POOL_NONE if the pool is exhausted. */
static inline uint32_t pool_alloc(struct pool *p)
{
	uint32_t index = p->free;
	if (index != POOL_NONE)
		p->free = pool_at(p, index)->next;
	else if (p->fresh < p->count)
		index = p->fresh++;
	p->taken += index != POOL_NONE;
	return index;
}

static inline void pool_free(struct pool *p, uint32_t index)
{
	pool_at(p, index)->next = p->free;
	p->free = index;
	p->taken--;
}

/* Returns the number of free cells. */
static inline uint32_t pool_left(const struct pool *p)
{
	return p->count > 0 ? p->count - 1 - p->taken : 0;
}

#endif
