// SPDX-License-Identifier: Apache-2.0
/*
 * share: draws a number for each new session; the server whose range contains it gets the session.
 * Ranges are as long as shares (design/0043, equation 10), or as weights while nothing is measured.
 *
 * A worker's numbers for a service are spread evenly over [0,1), from a random one on: each is the
 * previous one plus the golden ratio, modulo 1. Of any n consecutive numbers, a range contains its
 * share, give or take about one; independent numbers would be off by the root of that. The state is
 * the last number alone: shares may change at any time without an effect of earlier draws, and
 * workers need no coordination.
 */
#include <errno.h>
#include <stdlib.h>

#include "draw.h"

#define TRIES  16         /* max numbers to draw while servers are full */
#define GOLDEN 0x9e3779b9 /* 2^32 divided by the golden ratio */

struct draw *draw_create(const struct pool *p, int64_t *budget)
{
	unsigned bits = 1;
	while (UINT32_C(1) << bits < p->members)
		bits++;
	size_t parts = (size_t)1 << bits;
	struct draw *d =
	        malloc(sizeof(*d) + p->members * sizeof(d->until[0]) + parts * sizeof(*d->guide));
	if (!d)
		return NULL;
	*budget -= 2 * (int64_t)parts;
	d->shift = 64 - bits;
	d->guide = (uint32_t *)&d->until[p->members];
	uint64_t sum = 0;
	for (uint32_t i = 0; i < p->members; i++) {
		sum += p->candidate[i].share > 0 ? p->candidate[i].weight : 0;
		d->until[i] = sum;
	}
	for (size_t part = 0, i = 0; part < parts; part++) {
		uint64_t at = (uint64_t)((__uint128_t)((uint64_t)part << d->shift) * sum >> 64);
		while (i + 1 < p->members && d->until[i] <= at)
			i++;
		d->guide[part] = (uint32_t)i;
	}
	return d;
}

static int share_build(struct pool *p, struct table_cache *s, int64_t *budget)
{
	p->made = draw_create(p, budget);
	return p->made ? 0 : -ENOMEM;
}

static void share_discard(struct pool *p, struct table_cache *s)
{
	free(p->made);
}

/* The next of the service's evenly spread numbers. */
static uint64_t share_next(const struct pick *p)
{
	uint32_t *last = &p->state->cursor[p->service];
	if (*last == 0) /* the first one */
		*last = (uint32_t)scheduler_random(p->state);
	*last += GOLDEN;
	return (uint64_t)*last << 32;
}

static uint32_t share_pick(const struct pick *p)
{
	if (p->pool->eligible == 0)
		return PICK_NONE;
	uint32_t i = draw_find(p->pool->made, p->pool, share_next(p));
	/* Now independent numbers: the next one of the sequence would pass a full server's sessions
	 * to the same others each time. */
	for (unsigned n = 1; n < TRIES && !pick_is_below_limit(p, &p->pool->candidate[i]); n++)
		i = draw_find(p->pool->made, p->pool, scheduler_random(p->state));
	return pick_is_below_limit(p, &p->pool->candidate[i]) ? i : pick_any(p, i);
}

const struct scheduler_ops scheduler_share = {.name = "share",
                                              .by_weight = true,
                                              .build = share_build,
                                              .discard = share_discard,
                                              .pick = share_pick};
