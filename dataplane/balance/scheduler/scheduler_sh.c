// SPDX-License-Identifier: Apache-2.0
/*
 * sh: divides the hash space among the servers that are up, by weight. Shares are exact and there
 * is no table, but whenever a server comes or goes, borders move, and about a third of all clients
 * change servers.
 */
#include <errno.h>
#include <stdlib.h>

#include "scheduler.h"

#define TRIES 16 /* max hashes to try while servers are full */

static int sh_build(struct pool *p, struct table_cache *s, int64_t *budget)
{
	pool_sort_by_name(p);
	*budget -= 8 * (int64_t)p->members;
	uint64_t *until = malloc((p->members + 1) * sizeof(*until)), sum = 0;
	if (!until)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->members; i++) {
		sum += p->candidate[i].share > 0 ? p->candidate[i].weight : 0;
		until[i] = sum;
	}
	p->made = until;
	return 0;
}

static void sh_discard(struct pool *p, struct table_cache *s)
{
	free(p->made);
}

/* The server whose part contains the hash: the first part with an end above it. */
static uint32_t sh_owner(const struct pool *p, uint64_t hash)
{
	const uint64_t *until = p->made;
	uint64_t at = (uint64_t)((__uint128_t)hash * p->weight >> 64);
	uint32_t low = 0, high = p->members - 1;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (until[middle] > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static uint32_t sh_pick(const struct pick *p)
{
	uint64_t hash = p->hash;
	uint32_t i = 0;
	if (p->pool->eligible == 0)
		return PICK_NONE;
	for (unsigned n = 0; n < TRIES; n++, hash = hash_next(hash)) {
		i = sh_owner(p->pool, hash);
		if (pick_is_below_limit(p, &p->pool->candidate[i]))
			return i;
	}
	return pick_any(p, i);
}

const struct scheduler_ops scheduler_sh = {.name = "sh",
                                           .by_weight = true,
                                           .by_hash = true,
                                           .build = sh_build,
                                           .discard = sh_discard,
                                           .pick = sh_pick};
