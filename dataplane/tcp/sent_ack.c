// SPDX-License-Identifier: Apache-2.0
/* Processing of ACKs: RFC 2018, 2883, 6675; RFC 8985 6.2 steps 1 to 3, and 7.4. */
#include "sent_range.h"

#define WIDENED_MAX 250
#define PERSIST     16 /* recoveries that keep a wider reordering window (RFC 8985 6.2 step 4) */

/* An ACK being applied to ranges. */
struct acking {
	struct sent *s;
	struct pool *p;
	const struct sent_ack *in;
	struct sent_outcome *outcome;
	uint32_t min_us;  /* RACK.min_RTT */
	uint32_t sack_us; /* RTT sample of SACKed data, used if there is no other */
	bool ambiguous;   /* retransmitted data was cumulatively acknowledged (Karn) */
};

/* ---- delivery of a range --------------------------------------------------------------------- */

static void sample(struct acking *a, uint32_t us, bool cumulative)
{
	uint32_t *slowest = cumulative ? &a->outcome->rtt_us : &a->sack_us;
	*slowest = us > *slowest ? us : *slowest;
	if (a->outcome->min_us == 0 || us < a->outcome->min_us)
		a->outcome->min_us = us;
}

/* RFC 8985 6.2 step 2: an ACK of a retransmission within min_RTT is ambiguous. */
static void rack_update(struct acking *a, const struct sent_range *r, uint32_t to, uint32_t us)
{
	struct sent *s = a->s;
	if (r->marks & SENT_AMBIGUOUS)
		return;
	if (r->marks & SENT_RETRANSMITTED) {
		if (a->in->echo_ns && r->sent_ns >= a->in->echo_ns)
			return;
		if (us < a->min_us)
			return;
	}
	s->rack_us = us;
	if (sent_after(r->sent_ns, to, s->rack_ns, s->rack_to)) {
		s->rack_ns = r->sent_ns;
		s->rack_to = to;
	}
}

/* RFC 3522 3.2 (Eifel): retransmitted in this recovery, but the echo is from the original. */
static bool eifel(const struct sent *s, const struct sent_range *r, uint64_t echo_ns)
{
	return !(r->marks & SENT_AMBIGUOUS) && echo_ns && s->undo_ns && r->sent_ns >= s->undo_ns &&
	       echo_ns <= s->undo_ns;
}

/* Processes the first delivery of bytes of a range, up to `to`. */
static void deliver(struct acking *a, const struct sent_range *r, uint32_t to, bool cumulative)
{
	struct sent *s = a->s;
	uint64_t ns = a->in->now_ns - r->sent_ns;
	uint32_t us = ns == 0 ? 1 : ns > MAX_RTT_US * 1000ull ? MAX_RTT_US : (ns + 999) / 1000;
	bool once = !(r->marks & SENT_RETRANSMITTED);
	bool before = sy_seq_before(r->from, s->timed_out_to);

	a->outcome->delivered += to - r->from;
	/* Data sent before an RTO may have been SACKed long ago by a lost ACK: no sample, even if
	 * the RTO proved spurious since. */
	if (once && !(r->marks & SENT_AMBIGUOUS) && (cumulative || !(s->rto_ambiguous && before)))
		sample(a, us, cumulative);
	/* RFC 8985, 6.2, step 3 */
	if (!sy_seq_before(to, s->fack))
		s->fack = to;
	else if (once)
		s->reordered = true;
	if (once && s->timed_out && before)
		a->outcome->original = true;
	if (!once && cumulative && eifel(s, r, a->in->echo_ns))
		a->outcome->spurious = true;
	rack_update(a, r, to, us);
}

/* ---- SND.UNA --------------------------------------------------------------------------------- */

static void advance(struct acking *a)
{
	struct sent *s = a->s;
	uint32_t ack = a->in->ack;
	if (!sy_seq_before(s->una, ack) || sy_seq_before(s->nxt, ack))
		return;
	a->outcome->acked = ack - s->una;
	while (s->first && sy_seq_before(range_at(a->p, s->first)->from, ack)) {
		uint32_t index = s->first;
		struct sent_range *r = range_at(a->p, index);
		uint32_t to = sy_seq_before(ack, r->to) ? ack : r->to;
		if (!(r->marks & SENT_SACKED)) {
			a->ambiguous |= r->marks & SENT_RETRANSMITTED;
			deliver(a, r, to, true);
		}
		if (to == r->to) {
			range_uncount(s, a->p, index);
			range_remove(s, a->p, index);
			continue;
		}
		if (r->marks & SENT_SACKED)
			s->sacked -= to - r->from;
		else if (r->marks & SENT_LOST)
			s->lost -= to - r->from;
		r->from = to;
	}
	s->una = ack;
	if (sy_seq_before(s->fack, ack))
		s->fack = ack;
	/* A retransmission filled a hole: data behind it may have arrived long before, so it yields
	 * no RTT sample and no evidence about the RTO. */
	if (a->ambiguous) {
		a->outcome->rtt_us = a->outcome->min_us = 0;
		a->outcome->original = false;
	}
}

/* Without SACK: subtracts what duplicate ACKs have already counted. */
static void guess_less(struct acking *a)
{
	struct sent *s = a->s;
	uint32_t rest = a->outcome->acked > a->in->mss ? a->outcome->acked - a->in->mss : 0;
	rest = rest < s->guessed ? rest : s->guessed;
	s->guessed -= rest;
	a->outcome->delivered -= rest < a->outcome->delivered ? rest : a->outcome->delivered;
	if (s->una == s->nxt)
		s->guessed = 0;
}

uint32_t sent_duplicate(struct sent *s, uint16_t mss)
{
	uint32_t all = s->nxt - s->una, first = s->lost > mss ? s->lost : mss;
	uint32_t max = all > first ? all - first : 0;
	uint32_t before = s->guessed;
	if (before >= max)
		return 0;
	s->guessed = before + mss < max ? before + mss : max;
	return s->guessed - before;
}

/* ---- SACK ------------------------------------------------------------------------------------ */

/* SACKs the part of a range within a block. Returns the range to continue with. */
static uint32_t range_sack(struct acking *a, uint32_t index, const struct sack_block *b)
{
	struct sent *s = a->s;
	struct sent_range *r = range_at(a->p, index);
	if (r->marks & SENT_SACKED)
		return index;
	if (sy_seq_before(r->from, b->from)) {
		uint32_t second = range_split(s, a->p, index, b->from, SENT_RANGES);
		if (second == 0)
			return index;
		index = second;
		r = range_at(a->p, index);
	}
	if (sy_seq_before(b->to, r->to) && range_split(s, a->p, index, b->to, SENT_RANGES) == 0)
		return index;
	deliver(a, r, r->to, false);
	a->outcome->sacked += range_bytes(r);
	range_uncount(s, a->p, index);
	s->sacked += range_bytes(r);
	r->marks |= SENT_SACKED;
	return range_join(s, a->p, index);
}

static void sack(struct acking *a, struct sack_block b)
{
	struct sent *s = a->s;
	if (!sy_seq_before(b.from, b.to) || sy_seq_before(s->nxt, b.to) ||
	    !sy_seq_before(s->una, b.to))
		return;
	if (sy_seq_before(b.from, s->una))
		b.from = s->una;
	unsigned which;
	uint32_t index = range_find(s, a->p, b.from, SENT_STEPS, &which);
	bool found = range_holds(range_at(a->p, index), b.from);
	/* Too far from both ends: remember the position, as the block will be reported again. */
	if (which == SENT_NEAR && !found)
		which = s->near_turn ^= 1;
	if (which < SENT_NEAR)
		s->near[which] = index;
	while (found && index && sy_seq_before(range_at(a->p, index)->from, b.to)) {
		index = range_sack(a, index, &b);
		if (which < SENT_NEAR)
			s->near[which] = index;
		index = range_at(a->p, index)->next;
	}
}

/* In sequence order: an ACK contains no order of arrival. */
static void sack_all(struct acking *a, unsigned first)
{
	struct sack_block sorted[SACK_BLOCKS];
	unsigned count = 0;
	for (unsigned n = first; n < a->in->count && n < SACK_BLOCKS; n++) {
		unsigned at = count++;
		for (; at > 0 && sy_seq_before(a->in->blocks[n].from, sorted[at - 1].from); at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = a->in->blocks[n];
	}
	for (unsigned n = 0; n < count; n++)
		sack(a, sorted[n]);
}

/* RFC 2883 4: the first block is a D-SACK if it is acknowledged or contained in the second. */
static bool is_dsack(const struct sent_ack *in, uint32_t una)
{
	const struct sack_block *b = in->blocks;
	if (in->count == 0 || !sy_seq_before(b->from, b->to))
		return false;
	if (!sy_seq_before(sy_seq_before(in->ack, una) ? una : in->ack, b->to))
		return true;
	return in->count > 1 && !sy_seq_before(b->from, b[1].from) &&
	       !sy_seq_before(b[1].to, b->to);
}

/* Counts D-SACKed retransmissions: if all were, nothing had been lost. */
static void dsack_note(struct acking *a)
{
	struct sent *s = a->s;
	const struct sack_block *b = a->in->blocks;
	a->outcome->dsack = true;
	if (s->undo_bytes == 0 || sy_seq_before(b->from, s->undo_from) ||
	    sy_seq_before(s->nxt, b->to))
		return;
	uint32_t bytes = b->to - b->from;
	s->undo_bytes -= bytes < s->undo_bytes ? bytes : s->undo_bytes;
	a->outcome->undone = s->undo_bytes == 0;
}

/* ---- consequences ---------------------------------------------------------------------------- */

/* RFC 8985 7.4.2. Returns true if the D-SACK is for the probe. */
static bool probe_check(struct acking *a)
{
	struct sent *s = a->s;
	if (!s->probing || sy_seq_before(s->una, s->probe_to))
		return false;
	bool twice = a->outcome->dsack && a->in->blocks[0].to == s->probe_to;
	if (!s->probe_is_retransmission || twice) {
		s->probing = false;
	} else if (sy_seq_before(s->probe_to, s->una)) {
		s->probing = false;
		a->outcome->probe_lost = true;
	} else if (a->outcome->acked == 0 && a->in->count == 0 && a->in->pure) {
		s->probing = false;
	}
	return twice && s->probe_is_retransmission;
}

/* RFC 8985 6.2 step 4: a D-SACK widens the reordering window, once per round trip. */
static void window_widen(struct sent *s, bool dsack)
{
	if (s->in_dsack_round && !sy_seq_before(s->una, s->dsack_round))
		s->in_dsack_round = false;
	if (!dsack || s->in_dsack_round)
		return;
	s->in_dsack_round = true;
	s->dsack_round = s->nxt;
	s->widened += s->widened < WIDENED_MAX;
	s->persist = PERSIST;
}

void sent_acked(struct sent *s, struct pool *p, const struct rtt *r, const struct sent_ack *in,
                struct sent_outcome *outcome)
{
	struct acking a = {.s = s, .p = p, .in = in, .outcome = outcome, .min_us = rtt_min_us(r)};
	bool dsack = is_dsack(in, s->una);

	*outcome = (struct sent_outcome){0};
	if (dsack)
		dsack_note(&a);
	advance(&a);
	sack_all(&a, dsack);
	if (s->guessed && outcome->acked)
		guess_less(&a);
	if (outcome->rtt_us == 0)
		outcome->rtt_us = a.sack_us;
	if (outcome->rtt_us)
		s->probe_unsampled = false;
	bool of_probe = probe_check(&a);
	window_widen(s, dsack && !of_probe);
	if (s->rto_ambiguous && !sy_seq_before(s->una, s->timed_out_to))
		s->timed_out = s->rto_ambiguous = false;
}
