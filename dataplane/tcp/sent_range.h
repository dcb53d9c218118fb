// SPDX-License-Identifier: Apache-2.0
/* The two lists of ranges, for sent*.c. */
#ifndef TCP_SENT_RANGE_H
#define TCP_SENT_RANGE_H

#include <sy_base.h>

#include "sent.h"

static inline struct sent_range *range_at(const struct pool *p, uint32_t index)
{
	return (struct sent_range *)p->cells + index;
}

static inline uint32_t range_bytes(const struct sent_range *r)
{
	return r->to - r->from;
}

static inline bool range_in_flight(const struct sent_range *r)
{
	return !(r->marks & (SENT_SACKED | SENT_LOST));
}

/* RFC 8985 6.2 step 2: data ending at `to` was sent after data ending at `than_to`. */
static inline bool sent_after(uint64_t ns, uint32_t to, uint64_t than_ns, uint32_t than_to)
{
	return ns > than_ns || (ns == than_ns && sy_seq_before(than_to, to));
}

/* Inserts in the order of transmission, after `sooner`; 0: at the front. */
static inline void time_insert(struct sent *s, struct pool *p, uint32_t index, uint32_t sooner)
{
	struct sent_range *r = range_at(p, index);
	r->sooner = sooner;
	r->later = sooner ? range_at(p, sooner)->later : s->soonest;
	*(r->later ? &range_at(p, r->later)->sooner : &s->latest) = index;
	*(sooner ? &range_at(p, sooner)->later : &s->soonest) = index;
}

static inline void time_remove(struct sent *s, struct pool *p, uint32_t index)
{
	struct sent_range *r = range_at(p, index);
	*(r->later ? &range_at(p, r->later)->sooner : &s->latest) = r->sooner;
	*(r->sooner ? &range_at(p, r->sooner)->later : &s->soonest) = r->later;
	r->later = r->sooner = 0;
}

/* Subtracts a range from the counters, before its mark changes or it is removed. */
static inline void range_uncount(struct sent *s, struct pool *p, uint32_t index)
{
	struct sent_range *r = range_at(p, index);
	if (r->marks & SENT_SACKED)
		s->sacked -= range_bytes(r);
	else if (r->marks & SENT_LOST)
		s->lost -= range_bytes(r);
	else
		time_remove(s, p, index);
	r->marks &= (uint8_t) ~(SENT_SACKED | SENT_LOST);
}

static inline void range_lose(struct sent *s, struct pool *p, uint32_t index)
{
	struct sent_range *r = range_at(p, index);
	range_uncount(s, p, index);
	if (s->lost == 0)
		s->lost_at = index;
	else if (s->lost_at && sy_seq_before(r->from, range_at(p, s->lost_at)->from))
		s->lost_at = index;
	r->marks |= SENT_LOST;
	s->lost += range_bytes(r);
}

/* Returns true if a range may be allocated. The pool is shared: its last quarter is reserved for
 * connections with few ranges, so that peers cannot starve others by their SACKs. */
static inline bool range_may(const struct sent *s, const struct pool *p, uint32_t max)
{
	return s->ranges < max && (s->ranges < SENT_RANGES_RESERVED || pool_left(p) > p->count / 4);
}

/* Removes a range that is in no counter. */
void range_remove(struct sent *s, struct pool *p, uint32_t index);

/* Splits a range and returns the second part; 0: no free cell, or `max` ranges. */
uint32_t range_split(struct sent *s, struct pool *p, uint32_t index, uint32_t at, uint32_t max);

/* Merges a range with equal neighbours. Returns the resulting range. */
uint32_t range_join(struct sent *s, struct pool *p, uint32_t index);

/* Returns the range that contains a sequence number, or the last one within the allowed steps.
 * which: the entry of near[] where the search began; SENT_NEAR: an end. */
uint32_t range_find(const struct sent *s, const struct pool *p, uint32_t number, uint32_t steps,
                    unsigned *which);

static inline bool range_holds(const struct sent_range *r, uint32_t number)
{
	return number - r->from < r->to - r->from;
}

/* The reordering window in ns (RFC 8985 6.2 step 4). */
uint64_t reordering_window(const struct sent *s, const struct rtt *r, uint16_t mss,
                           bool recovering);

#endif
