// SPDX-License-Identifier: Apache-2.0
/*
 * conhash: servers have points on a ring. A client belongs to the first point after its hash whose
 * server accepts it. A server that leaves or joins moves only its own clients.
 *
 * point | place on the ring, 48 bits | member, 16 bits | sorted
 *
 * The upper bits of a hash select a bucket of about four points, so searches are short.
 */
#include <errno.h>
#include <stdlib.h>

#include "scheduler.h"

#define POINTS     512  /* points of the heaviest server */
#define POINTS_MIN 32   /* min, in the largest services */
#define HALVED     1024 /* beyond this number of servers each has fewer points */
#define WALK       512  /* max points that one pick visits */

struct ring {
	struct table table;
	uint32_t points, bits; /* 2^bits buckets */
	uint32_t *start;       /* [buckets + 1]: a bucket's first point */
	uint64_t *point;
	/* used until the ring is built: */
	enum { RING_COUNT, RING_PLACE, RING_SORT } phase;
	uint32_t at; /* current member or bucket */
	uint64_t heaviest;
	uint32_t max; /* points of the heaviest server */
};

static void ring_free(struct table *t)
{
	struct ring *r = SY_CONTAINER_OF(t, struct ring, table);
	free(r->start);
	free(r->point);
}

static uint32_t ring_points_of(const struct ring *r, uint32_t member)
{
	uint64_t n = r->table.member[member].weight * r->max / r->heaviest;
	return n > 0 ? (uint32_t)n : 1;
}

static uint64_t ring_point(const struct ring *r, uint32_t member, uint32_t n)
{
	uint64_t h = hash_next(r->table.member[member].name ^ hash_next(n));
	return (h & ~UINT64_C(0xffff)) | member;
}

static uint32_t ring_bucket(const struct ring *r, uint64_t point)
{
	return (uint32_t)(point >> (64 - r->bits));
}

static bool ring_make(struct table *t)
{
	struct ring *r = SY_CONTAINER_OF(t, struct ring, table);
	r->max = POINTS;
	for (uint32_t n = HALVED; t->members > n && r->max > POINTS_MIN; n *= 2)
		r->max /= 2;
	for (uint32_t i = 0; i < t->members; i++)
		if (t->member[i].weight > r->heaviest)
			r->heaviest = t->member[i].weight;
	for (uint32_t i = 0; i < t->members; i++)
		r->points += ring_points_of(r, i);
	r->bits = 1;
	while (UINT32_C(4) << r->bits < r->points)
		r->bits++;
	/* One element more than boundaries: placing moves each start to its bucket's end. */
	size_t starts = ((size_t)1 << r->bits) + 2;
	r->start = calloc(starts, sizeof(*r->start));
	r->point = malloc(r->points * sizeof(*r->point));
	if (!r->start || !r->point) {
		ring_free(t);
		return false;
	}
	t->bytes = starts * sizeof(*r->start) + r->points * sizeof(*r->point);
	return true;
}

static void ring_count(struct ring *r, uint32_t member)
{
	for (uint32_t n = ring_points_of(r, member); n-- > 0;)
		r->start[ring_bucket(r, ring_point(r, member, n)) + 2]++;
}

/* A counting sort: afterwards start[b + 1] is the end of bucket b. */
static void ring_place(struct ring *r, uint32_t member)
{
	for (uint32_t n = ring_points_of(r, member); n-- > 0;) {
		uint64_t point = ring_point(r, member, n);
		r->point[r->start[ring_bucket(r, point) + 1]++] = point;
	}
}

static void ring_sort(struct ring *r, uint32_t bucket)
{
	for (uint32_t i = r->start[bucket] + 1; i < r->start[bucket + 1]; i++)
		for (uint32_t k = i; k > r->start[bucket] && r->point[k] < r->point[k - 1]; k--) {
			uint64_t lower = r->point[k];
			r->point[k] = r->point[k - 1];
			r->point[k - 1] = lower;
		}
}

/* Processes one member or bucket. Returns true when the ring is complete. */
static bool ring_step(struct ring *r, int64_t *budget)
{
	uint32_t buckets = UINT32_C(1) << r->bits;
	if (r->phase == RING_SORT) {
		*budget -= 4;
		ring_sort(r, r->at);
		return ++r->at == buckets;
	}
	*budget -= ring_points_of(r, r->at);
	if (r->phase == RING_COUNT)
		ring_count(r, r->at);
	else
		ring_place(r, r->at);
	if (++r->at < r->table.members)
		return false;
	if (r->phase == RING_COUNT)
		for (uint32_t b = 2; b <= buckets + 1; b++)
			r->start[b] += r->start[b - 1];
	r->phase++;
	r->at = 0;
	return false;
}

static int ring_build(struct pool *p, struct table_cache *s, int64_t *budget)
{
	if (p->members == 0)
		return 0;
	if (!p->made) {
		pool_sort_by_name(p);
		*budget -= 16 * (int64_t)p->members;
		p->made = table_cache_acquire(s, p, sizeof(struct ring), ring_make);
		if (!p->made)
			return -ENOMEM;
	}
	struct ring *r = p->made;
	while (!r->table.built) {
		if (*budget <= 0)
			return 1;
		r->table.built = ring_step(r, budget);
	}
	return 0;
}

static void ring_discard(struct pool *p, struct table_cache *s)
{
	table_cache_release(s, p->made, ring_free);
}

static uint32_t ring_pick(const struct pick *p)
{
	const struct ring *r = p->pool->made;
	if (p->pool->eligible == 0)
		return PICK_NONE;
	uint32_t at = r->start[ring_bucket(r, p->hash)], i = 0;
	while (at < r->points && r->point[at] < p->hash)
		at++;
	for (unsigned n = 0; n < WALK; n++, at++) {
		if (at >= r->points)
			at = 0;
		i = r->point[at] & 0xffff;
		/* During slow start only part of its points count, always the same ones. */
		if (pick_accepts(p, &p->pool->candidate[i], (uint32_t)(r->point[at] >> 16)))
			return i;
	}
	return pick_any(p, i);
}

const struct scheduler_ops scheduler_conhash = {.name = "conhash",
                                                .by_weight = true,
                                                .by_hash = true,
                                                .by_table = true,
                                                .build = ring_build,
                                                .discard = ring_discard,
                                                .pick = ring_pick};
