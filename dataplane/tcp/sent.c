// SPDX-License-Identifier: Apache-2.0
#include "sent_range.h"

#define JOIN_PART 128 /* of the RTT */

void sent_init(struct sent *s, uint32_t first)
{
	*s = (struct sent){.una = first, .nxt = first, .fack = first, .widened = 1};
}

void sent_clear(struct sent *s, struct pool *p)
{
	while (s->first) {
		uint32_t index = s->first;
		s->first = range_at(p, index)->next;
		pool_free(p, index);
	}
	sent_init(s, s->nxt);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* Inserts in sequence order, after `prev`; 0: at the front. */
static void range_insert(struct sent *s, struct pool *p, uint32_t index, uint32_t prev)
{
	struct sent_range *r = range_at(p, index);
	r->prev = prev;
	r->next = prev ? range_at(p, prev)->next : s->first;
	*(r->next ? &range_at(p, r->next)->prev : &s->last) = index;
	*(prev ? &range_at(p, prev)->next : &s->first) = index;
	s->ranges++;
}

static void near_move(struct sent *s, uint32_t from, uint32_t to)
{
	for (unsigned n = 0; n < SENT_NEAR; n++)
		s->near[n] = s->near[n] == from ? to : s->near[n];
}

void range_remove(struct sent *s, struct pool *p, uint32_t index)
{
	struct sent_range *r = range_at(p, index);
	*(r->next ? &range_at(p, r->next)->prev : &s->last) = r->prev;
	*(r->prev ? &range_at(p, r->prev)->next : &s->first) = r->next;
	near_move(s, index, r->next);
	if (s->lost_at == index)
		s->lost_at = r->next;
	s->ranges--;
	pool_free(p, index);
}

uint32_t range_split(struct sent *s, struct pool *p, uint32_t index, uint32_t at, uint32_t max)
{
	struct sent_range *r = range_at(p, index);
	uint32_t second = range_may(s, p, max) ? pool_alloc(p) : POOL_NONE;
	if (second == POOL_NONE)
		return 0;
	*range_at(p, second) = *r;
	range_at(p, second)->from = at;
	r->to = at;
	range_insert(s, p, second, index);
	if (range_in_flight(r))
		time_insert(s, p, second, index);
	return second;
}

static bool alike(const struct sent_range *a, const struct sent_range *b)
{
	if (a->marks & b->marks & SENT_SACKED)
		return true;
	return a->marks == b->marks && a->sent_ns == b->sent_ns;
}

/* Merges the second of two neighbours into the first. */
static void range_absorb(struct sent *s, struct pool *p, uint32_t index, uint32_t second)
{
	struct sent_range *r = range_at(p, index), *gone = range_at(p, second);
	near_move(s, second, index);
	if (s->lost_at == second)
		s->lost_at = index;
	if (range_in_flight(gone))
		time_remove(s, p, second);
	r->to = gone->to;
	r->marks |= gone->marks;
	range_remove(s, p, second);
}

uint32_t range_join(struct sent *s, struct pool *p, uint32_t index)
{
	const struct sent_range *r = range_at(p, index);
	if (r->next && alike(r, range_at(p, r->next)))
		range_absorb(s, p, index, r->next);
	if (!r->prev || !alike(range_at(p, r->prev), r))
		return index;
	uint32_t prev = r->prev;
	range_absorb(s, p, prev, index);
	return prev;
}

static uint32_t distance(uint32_t a, uint32_t b)
{
	return sy_seq_before(a, b) ? b - a : a - b;
}

/* Returns where to start a search: at an end, or at one of near[], whose index it sets. */
static uint32_t nearest(const struct sent *s, const struct pool *p, uint32_t number,
                        unsigned *which)
{
	uint32_t index = s->nxt - number < number - s->una ? s->last : s->first;
	*which = SENT_NEAR;
	for (unsigned n = 0; n < SENT_NEAR; n++)
		if (s->near[n] && distance(range_at(p, s->near[n])->from, number) <
		                          distance(range_at(p, index)->from, number)) {
			index = s->near[n];
			*which = n;
		}
	return index;
}

uint32_t range_find(const struct sent *s, const struct pool *p, uint32_t number, uint32_t steps,
                    unsigned *which)
{
	uint32_t index = nearest(s, p, number, which);
	for (; steps > 0 && !range_holds(range_at(p, index), number); steps--)
		index = sy_seq_before(number, range_at(p, index)->from) ? range_at(p, index)->prev
		                                                        : range_at(p, index)->next;
	return index;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Extends the last range, which is in flight. */
static void last_extend(struct sent *s, struct pool *p, uint32_t bytes, uint64_t now_ns)
{
	struct sent_range *last = range_at(p, s->last);
	last->to += bytes;
	s->nxt += bytes;
	if (last->sent_ns == now_ns)
		return;
	last->sent_ns = now_ns;
	time_remove(s, p, s->last);
	time_insert(s, p, s->last, s->latest);
}

bool sent_add(struct sent *s, struct pool *p, uint32_t bytes, uint64_t now_ns)
{
	struct sent_range *last = s->last ? range_at(p, s->last) : NULL;
	bool plain = last && !(last->marks & ~SENT_AMBIGUOUS);

	/* Not if another range was sent in between: it would appear to be the earlier one. */
	bool soon = s->latest == s->last &&
	            now_ns - s->joined_ns < (uint64_t)s->rack_us * 1000 / JOIN_PART;

	/* Data sent before and after an RTO is different evidence. */
	bool apart = s->timed_out && s->nxt == s->timed_out_to;
	if (plain && !apart && (soon || last->sent_ns == now_ns)) {
		last_extend(s, p, bytes, now_ns);
		return true;
	}
	uint32_t index = range_may(s, p, SENT_RANGES) ? pool_alloc(p) : POOL_NONE;
	if (index == POOL_NONE) {
		if (!plain)
			return false;
		last->marks |= SENT_AMBIGUOUS;
		last_extend(s, p, bytes, now_ns);
		return true;
	}
	*range_at(p, index) =
	        (struct sent_range){.sent_ns = now_ns, .from = s->nxt, .to = s->nxt + bytes};
	range_insert(s, p, index, s->last);
	time_insert(s, p, index, s->latest);
	s->joined_ns = now_ns;
	s->nxt += bytes;
	return true;
}

void sent_mark_ambiguous(struct sent *s, struct pool *p)
{
	range_at(p, s->last)->marks |= SENT_AMBIGUOUS;
}

/* Retransmits a whole range. */
static void range_resend(struct sent *s, struct pool *p, uint32_t index, uint64_t now_ns)
{
	struct sent_range *r = range_at(p, index);
	range_uncount(s, p, index);
	r->marks = SENT_RETRANSMITTED;
	r->sent_ns = now_ns;
	time_insert(s, p, index, s->latest);
	s->undo_bytes += range_bytes(r);
}

void sent_retransmitted(struct sent *s, struct pool *p, uint32_t from, uint32_t to, uint64_t now_ns)
{
	const uint32_t max = SENT_RANGES + SENT_RANGES_RETRANSMIT;
	if (s->undo_ns == 0) {
		s->undo_ns = now_ns;
		s->undo_from = s->una;
	}
	from = sy_seq_before(from, s->una) ? s->una : from;
	to = sy_seq_before(s->nxt, to) ? s->nxt : to;
	unsigned which;
	uint32_t index = 0;
	if (sy_seq_before(from, to))
		index = s->lost && s->lost_at && range_at(p, s->lost_at)->from == from
		                ? s->lost_at
		                : range_find(s, p, from, UINT32_MAX, &which);
	while (index && sy_seq_before(range_at(p, index)->from, to)) {
		const struct sent_range *r = range_at(p, index);
		if (r->marks & SENT_SACKED) {
			index = r->next;
			continue;
		}
		/* Without a free cell, the whole range is marked as sent; the rest is found lost a
		 * round trip later. */
		if (sy_seq_before(r->from, from)) {
			uint32_t second = range_split(s, p, index, from, max);
			index = second ? second : index;
		}
		if (sy_seq_before(to, range_at(p, index)->to))
			range_split(s, p, index, to, max);
		range_resend(s, p, index, now_ns);
		index = range_at(p, range_join(s, p, index))->next;
	}
}

uint64_t sent_first_ns(const struct sent *s, const struct pool *p)
{
	return s->first ? range_at(p, s->first)->sent_ns : 0;
}

bool sent_next_lost(struct sent *s, const struct pool *p, uint32_t *from, uint32_t *to)
{
	if (s->lost == 0)
		return false;
	if (s->lost_at == 0)
		s->lost_at = s->first;
	while (!(range_at(p, s->lost_at)->marks & SENT_LOST))
		s->lost_at = range_at(p, s->lost_at)->next;
	*from = range_at(p, s->lost_at)->from;
	*to = range_at(p, s->lost_at)->to;
	return true;
}
