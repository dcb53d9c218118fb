// SPDX-License-Identifier: Apache-2.0
/*
 * Weighted random choice: [0,1) is divided into ranges, one per candidate, as long as its share; a
 * random number falls into one of them. Here [0,1) is [0, sum of the weights).
 *
 *      a          b      c                 d
 *   ├────────┼────────┼──────┼────────────────────────────┤
 *   0      until[0] until[1] until[2]                until[3]
 *      ▲      ▲      ▲      ▲      ▲      ▲      ▲      ▲
 *    guide: the range in which each of at least as many equal parts begins: on average less than
 * one range is skipped before the right one
 */
#ifndef DRAW_H
#define DRAW_H

#include "scheduler.h"

struct draw {
	unsigned shift; /* from a random number to its place in the guide */
	uint32_t *guide;
	uint64_t until[];
};

/* For a pool's eligible candidates, in order. Returns NULL without memory. */
struct draw *draw_create(const struct pool *p, int64_t *budget);

/* The candidate whose range contains a random number. At least one is eligible. */
static inline uint32_t draw_find(const struct draw *d, const struct pool *p, uint64_t random)
{
	uint64_t at = (uint64_t)((__uint128_t)random * p->weight >> 64);
	uint32_t i = d->guide[random >> d->shift];
	while (d->until[i] <= at)
		i++;
	return i;
}

#endif
