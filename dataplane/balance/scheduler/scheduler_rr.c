// SPDX-License-Identifier: Apache-2.0
/*
 * rr and wrr: round robin, by weight.
 *
 * Servers of one weight form a class. Classes are chosen by smooth weighted round robin: at each
 * pick every class gains its weight; the class with the highest value is chosen, and its value is
 * reduced by the sum of all weights. Weights 5,1,1 yield a b a a a c a, never a a a a a b c. Within
 * a class servers alternate. The cost of a pick is the number of different weights; rr is a pool of
 * one class. While a server is full, the others of its class get its sessions.
 */
#include <errno.h>
#include <stdlib.h>

#include "scheduler.h"

struct class
{
	uint32_t first, count; /* candidates */
	uint32_t leader;       /* its lowest server id, under which its running state is stored */
	uint64_t weight;       /* sum over all its servers */
};

struct classes {
	uint32_t count;
	struct class class[];
};

/* Heaviest first, each class by id; servers that accept no sessions last. */
static int compare_weights(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	if ((x->share > 0) != (y->share > 0))
		return x->share > 0 ? -1 : 1;
	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return x->server < y->server ? -1 : x->server > y->server;
}

/* Rounds measured weights to six binary digits, to keep the number of classes small: off by 1.6 %
 * at most. */
static void rr_round_weights(struct pool *p)
{
	p->weight = 0;
	for (uint32_t i = 0; i < p->members; i++) {
		struct candidate *c = &p->candidate[i];
		unsigned digits = 32 - (unsigned)__builtin_clz(c->weight | 1);
		uint32_t unit = digits > 6 ? UINT32_C(1) << (digits - 6) : 1;
		c->weight = (c->weight + unit / 2) / unit * unit;
		if (c->share > 0)
			p->weight += c->weight;
	}
}

static int rr_build(struct pool *p, struct table_cache *s, int64_t *budget)
{
	if (p->measured)
		rr_round_weights(p);
	qsort(p->candidate, p->members, sizeof(p->candidate[0]), compare_weights);
	*budget -= 8 * (int64_t)p->members;
	uint32_t count = 0;
	for (uint32_t i = 0; i < p->eligible; i++)
		count += i == 0 || p->candidate[i].weight != p->candidate[i - 1].weight;
	struct classes *made = malloc(sizeof(*made) + count * sizeof(made->class[0]));
	if (!made)
		return -ENOMEM;
	made->count = 0;
	for (uint32_t i = 0; i < p->eligible; i++) {
		const struct candidate *c = &p->candidate[i];
		if (i == 0 || c->weight != c[-1].weight)
			made->class[made->count++] = (struct class){i, 0, c->server, 0};
		made->class[made->count - 1].count++;
		made->class[made->count - 1].weight += c->weight;
	}
	p->made = made;
	return 0;
}

static void rr_discard(struct pool *p, struct table_cache *s)
{
	free(p->made);
}

/* The next server of a class below its limit, starting at the class's position; PICK_NONE: all are
 * full. */
static uint32_t class_next(const struct pick *p, const struct class *c)
{
	uint32_t at = p->state->position[c->leader];
	for (uint32_t n = 0; n < c->count; n++, at++) {
		if (at >= c->count)
			at = 0;
		if (pick_is_below_limit(p, &p->pool->candidate[c->first + at]))
			return c->first + at;
	}
	return PICK_NONE;
}

/* The class with the highest value; below_limit: only classes with a server below its limit. */
static const struct class *class_ahead(const struct pick *p, const struct classes *classes,
                                       bool below_limit)
{
	const struct class *best = NULL;
	for (uint32_t i = 0; i < classes->count; i++) {
		const struct class *c = &classes->class[i];
		if ((!best || p->state->current[c->leader] > p->state->current[best->leader]) &&
		    (!below_limit || class_next(p, c) != PICK_NONE))
			best = c;
	}
	return best;
}

static uint32_t rr_pick(const struct pick *p)
{
	const struct classes *classes = p->pool->made;
	int64_t total = (int64_t)p->pool->weight;
	/* Values never exceed the sum in either direction, unless weights were larger before. Clamp
	 * them: otherwise the class would get all or no sessions for as long as the larger weights
	 * had been in use. */
	for (uint32_t i = 0; i < classes->count; i++) {
		int64_t *current = &p->state->current[classes->class[i].leader];
		*current = *current > total ? total : *current < -total ? -total : *current;
		*current += (int64_t)classes->class[i].weight;
	}
	const struct class *best =
	        classes->count == 1 ? classes->class : class_ahead(p, classes, false);
	uint32_t chosen = best ? class_next(p, best) : PICK_NONE;
	if (best && chosen == PICK_NONE) {
		best = class_ahead(p, classes, true);
		if (best)
			chosen = class_next(p, best);
	}
	if (chosen != PICK_NONE) {
		p->state->current[best->leader] -= total;
		p->state->position[best->leader] = chosen - best->first + 1;
	}
	return chosen;
}

const struct scheduler_ops scheduler_rr = {
        .name = "rr", .build = rr_build, .discard = rr_discard, .pick = rr_pick};
const struct scheduler_ops scheduler_wrr = {.name = "wrr",
                                            .by_weight = true,
                                            .build = rr_build,
                                            .discard = rr_discard,
                                            .pick = rr_pick};
