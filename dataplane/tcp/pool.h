// SPDX-License-Identifier: Apache-2.0
/* Cells of one size, named by 32-bit indices, of one core. Memory of cells that were never taken is
 * not touched. */
#ifndef TCP_POOL_H
#define TCP_POOL_H

#include <stdint.h>

#define POOL_NONE 0 /* no cell has this index */

/* What all cells begin with; in free ones, the next free one. */
struct pool_cell {
	uint32_t next;
};

struct pool {
	void *cells; /* an array; the first one is not used */
	uint32_t size, count;
	uint32_t fresh; /* cells from here on were never taken */
	uint32_t free;  /* the first of those that were given back */
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

/* POOL_NONE: none is left. */
static inline uint32_t pool_take(struct pool *p)
{
	uint32_t index = p->free;
	if (index != POOL_NONE)
		p->free = pool_at(p, index)->next;
	else if (p->fresh < p->count)
		index = p->fresh++;
	p->taken += index != POOL_NONE;
	return index;
}

static inline void pool_give(struct pool *p, uint32_t index)
{
	pool_at(p, index)->next = p->free;
	p->free = index;
	p->taken--;
}

/* How many more pool_take() would give. */
static inline uint32_t pool_left(const struct pool *p)
{
	return p->count > 0 ? p->count - 1 - p->taken : 0;
}

#endif
