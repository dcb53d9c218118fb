// SPDX-License-Identifier: Apache-2.0
/*
 * lc, wlc and sed: the server with the fewest sessions by weight, counted over all workers.
 *
 * Each pick scans all counters, which are adjacent: sixteen servers per cache line. The scan begins
 * after the last choice: equal servers alternate.
 */
#include "scheduler.h"

/* The candidate with the lowest (active + ahead) / weight. ahead 1: includes the new session (sed),
 * so that a heavy server gets the first session. */
static inline uint32_t least_pick(const struct pick *p, uint32_t ahead)
{
	const struct pool *pool = p->pool;
	uint32_t *cursor = &p->state->cursor[p->service], best = PICK_NONE;
	uint64_t best_load = 0, best_weight = 1;
	uint32_t at = *cursor;
	for (uint32_t n = 0; n < pool->members; n++, at++) {
		if (at >= pool->members)
			at = 0;
		const struct candidate *c = &pool->candidate[at];
		uint64_t active = __atomic_load_n(&p->active[c->server], __ATOMIC_RELAXED);
		if (c->share == 0 || (c->limit != UINT32_MAX && active >= c->limit))
			continue;
		/* active/weight < best, without a division */
		if (best == PICK_NONE ||
		    (active + ahead) * best_weight < best_load * (uint64_t)c->weight) {
			best = at;
			best_load = active + ahead;
			best_weight = c->weight;
		}
	}
	if (best != PICK_NONE)
		*cursor = best + 1;
	return best;
}

static uint32_t pick_connections(const struct pick *p)
{
	return least_pick(p, 0);
}

static uint32_t pick_delay(const struct pick *p)
{
	return least_pick(p, 1);
}

const struct scheduler_ops scheduler_lc = {.name = "lc", .pick = pick_connections};
const struct scheduler_ops scheduler_wlc = {
        .name = "wlc", .by_weight = true, .pick = pick_connections};
const struct scheduler_ops scheduler_sed = {.name = "sed", .by_weight = true, .pick = pick_delay};
