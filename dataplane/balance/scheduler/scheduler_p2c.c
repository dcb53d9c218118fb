// SPDX-License-Identifier: Apache-2.0
/*
 * p2c: draws two servers by weight, and picks the one with the lower expected cost: live sessions
 * per weight, times the time to answer (Mitzenmacher's power of two choices; the cost is that of
 * Twitter's Finagle). Both are current values of this forwarder, so a slow link loses sessions
 * within a few handshakes. Measured shares already include delays as weights: then only sessions
 * per share count.
 *
 * Two draws suffice: the worst server is picked only if both draws hit it. Since not all sessions
 * go to the best server at once, the load does not swing between servers.
 */
#include <errno.h>
#include <stdlib.h>

#include "draw.h"

#define TRIES 16
#define PROBE                                                                                      \
	32 /* one pick in PROBE ignores delays: a server that has become fast must be noticed */

static int p2c_build(struct pool *p, struct table_cache *s, int64_t *budget)
{
	p->made = draw_create(p, budget);
	return p->made ? 0 : -ENOMEM;
}

static void p2c_discard(struct pool *p, struct table_cache *s)
{
	free(p->made);
}

/* An eligible candidate below its limit, other than `but`; PICK_NONE: none found. */
static uint32_t p2c_draw(const struct pick *p, uint32_t but)
{
	for (unsigned n = 0; n < TRIES; n++) {
		uint32_t i = draw_find(p->pool->made, p->pool, scheduler_random(p->state));
		if (i != but && pick_is_below_limit(p, &p->pool->candidate[i]))
			return i;
	}
	return PICK_NONE;
}

/* ns; 0: unknown */
static double p2c_delay(const struct pick *p, uint32_t i)
{
	uint32_t server = p->pool->candidate[i].server;
	return p->delay ? __atomic_load_n(&p->delay[server], __ATOMIC_RELAXED) : 0;
}

/* Sessions per weight, including the new one. */
static double p2c_load(const struct pick *p, uint32_t i)
{
	const struct candidate *c = &p->pool->candidate[i];
	return (1.0 + __atomic_load_n(&p->active[c->server], __ATOMIC_RELAXED)) / c->weight;
}

static uint32_t p2c_pick(const struct pick *p)
{
	if (p->pool->eligible == 0)
		return PICK_NONE;
	uint32_t one = p2c_draw(p, PICK_NONE);
	uint32_t two = one == PICK_NONE || p->pool->eligible == 1 ? PICK_NONE : p2c_draw(p, one);
	if (one == PICK_NONE)
		return pick_any(p, 0);
	if (two == PICK_NONE)
		return one;
	double delay_one = p2c_delay(p, one), delay_two = p2c_delay(p, two);
	if (p->pool->measured || delay_one == 0 || delay_two == 0 ||
	    scheduler_random(p->state) % PROBE == 0)
		delay_one = delay_two = 1;
	return p2c_load(p, two) * delay_two < p2c_load(p, one) * delay_one ? two : one;
}

const struct scheduler_ops scheduler_p2c = {.name = "p2c",
                                            .by_weight = true,
                                            .build = p2c_build,
                                            .discard = p2c_discard,
                                            .pick = p2c_pick};
