// SPDX-License-Identifier: Apache-2.0
/* Loss detection (RFC 8985 6.2 steps 4 and 5, 6.3, 7.2) and its reversal (RFC 4015 3.2). */
#include "sent_range.h"

#define DUPLICATES 3 /* DupThresh: RFC 5681, 3.2 */

/* ---- RACK ------------------------------------------------------------------------------------ */

uint64_t reordering_window(const struct sent *s, const struct rtt *r, uint16_t mss, bool recovering)
{
	/* DupThresh by bytes: RFC 6675 4, IsLost() */
	if (!s->reordered && (recovering || s->sacked > (DUPLICATES - 1) * (uint32_t)mss))
		return 0;
	uint64_t us = (uint64_t)s->widened * rtt_min_us(r) / 4;
	return 1000 * (us < rtt_smoothed_us(r) ? us : rtt_smoothed_us(r));
}

uint32_t sent_detect(struct sent *s, struct pool *p, const struct rtt *r, uint16_t mss,
                     bool recovering, uint64_t now_ns, uint64_t *recheck_ns)
{
	uint32_t lost = s->lost, next, steps = SENT_STEPS;
	*recheck_ns = 0;
	if (s->rack_ns == 0)
		return 0;
	uint64_t loss_delay_ns =
	        s->rack_us * UINT64_C(1000) + reordering_window(s, r, mss, recovering);
	for (uint32_t index = s->soonest; index; index = next) {
		const struct sent_range *range = range_at(p, index);
		next = range->later;
		if (range->sent_ns > s->rack_ns || steps == 0)
			break;
		if (!sent_after(s->rack_ns, s->rack_to, range->sent_ns, range->to)) {
			steps--; /* later in the same burst */
			continue;
		}
		if (range->sent_ns + loss_delay_ns > now_ns) {
			/* The earliest deadline. The RFC uses the latest; the wheel's ticks
			 * coalesce them as well. */
			*recheck_ns = range->sent_ns + loss_delay_ns;
			break;
		}
		range_lose(s, p, index);
	}
	return s->lost - lost;
}

uint32_t sent_first_lost(struct sent *s, struct pool *p, uint16_t mss)
{
	if (s->first == 0 || range_at(p, s->first)->marks & (SENT_LOST | SENT_SACKED))
		return 0;
	if (range_bytes(range_at(p, s->first)) > mss)
		range_split(s, p, s->first, s->una + mss, SENT_RANGES + SENT_RANGES_RETRANSMIT);
	range_lose(s, p, s->first);
	return range_bytes(range_at(p, s->first));
}

/* ---- RTO ------------------------------------------------------------------------------------- */

/* Reneging: the peer may have discarded SACKed data (RFC 2018 8). */
static void sacks_forget(struct sent *s, struct pool *p)
{
	for (uint32_t index = s->first; index; index = range_at(p, index)->next) {
		struct sent_range *r = range_at(p, index);
		if (r->marks & SENT_SACKED)
			r->marks |= SENT_AMBIGUOUS; /* merged from several transmission times */
		range_lose(s, p, index);
	}
	s->fack = s->una;
}

void sent_timed_out(struct sent *s, struct pool *p, const struct rtt *r, uint16_t mss,
                    bool repeated, uint64_t now_ns)
{
	uint32_t next;
	s->probing = false;
	s->guessed = 0;
	if (s->first == 0)
		return;
	s->timed_out = s->rto_ambiguous = true;
	s->timed_out_to = s->nxt;
	if (repeated || range_at(p, s->first)->marks & SENT_SACKED) {
		sacks_forget(s, p);
		return;
	}
	uint64_t loss_delay_ns = s->rack_us * UINT64_C(1000) + reordering_window(s, r, mss, true);
	range_lose(s, p, s->first);
	for (uint32_t index = s->soonest; index; index = next) {
		next = range_at(p, index)->later;
		if (range_at(p, index)->sent_ns + loss_delay_ns > now_ns)
			break;
		range_lose(s, p, index);
	}
}

/* ---- spurious losses ------------------------------------------------------------------------- */

/* Returns the range after which a range of this time belongs in the order of transmission; 0: at
 * the front. near: where to start; ranges come in sequence order, which is mostly the order of
 * transmission. */
static uint32_t time_place(const struct sent *s, const struct pool *p, const struct sent_range *r,
                           uint32_t near)
{
	uint32_t at = near, next;

	while (at && sent_after(range_at(p, at)->sent_ns, range_at(p, at)->to, r->sent_ns, r->to))
		at = range_at(p, at)->sooner;
	for (;; at = next) {
		next = at ? range_at(p, at)->later : s->soonest;
		if (!next || sent_after(range_at(p, next)->sent_ns, range_at(p, next)->to,
		                        r->sent_ns, r->to))
			return at;
	}
}

void sent_undo_losses(struct sent *s, struct pool *p)
{
	uint32_t near = 0;

	for (uint32_t index = s->first; s->lost > 0 && index; index = range_at(p, index)->next) {
		struct sent_range *r = range_at(p, index);
		if (!(r->marks & SENT_LOST))
			continue;
		s->lost -= range_bytes(r);
		r->marks &= (uint8_t)~SENT_LOST;
		time_insert(s, p, index, time_place(s, p, r, near));
		near = index;
	}
	s->lost_at = 0;
	/* ACKs attributed to retransmissions were of the originals: by their times everything would
	 * be marked lost again. */
	if (s->timed_out)
		s->rack_ns = 0;
}

/* ---- the end of recovery --------------------------------------------------------------------- */

void sent_recovered(struct sent *s)
{
	s->undo_bytes = 0;
	s->undo_ns = 0;
	s->timed_out = false;
	s->frto = FRTO_NONE;
	if (s->persist > 0 && --s->persist == 0)
		s->widened = 1;
}

/* ---- the tail loss probe --------------------------------------------------------------------- */

uint64_t sent_probe_wait(const struct sent *s, const struct rtt *r, uint16_t mss,
                         uint32_t ack_delay_us)
{
	if (s->first == 0 || s->sacked || s->probing || s->probe_unsampled)
		return 0;
	if (rtt_smoothed_us(r) == 0)
		return UINT64_C(1000000000);
	uint64_t us = 2 * (uint64_t)rtt_smoothed_us(r);
	if (s->nxt - s->una <= mss)
		us += ack_delay_us;
	return 1000 * us;
}
