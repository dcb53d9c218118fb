// SPDX-License-Identifier: Apache-2.0
/*
 * States of recovery:
 *
 *     none ──loss──▶ fast ────────────┐
 *      │ ──ECE───▶ ECN ───────────────┤ all data sent before is acknowledged, or the loss
 *      └─RTO──▶ time-out ─────────────┘ was spurious ──▶ none
 *
 * In `fast` and `ECN`, proportional rate reduction limits what is sent; otherwise the window does.
 */
#include "recovery.h"
#include "emit.h"
#include "path_probe.h"
#include "priority.h"
#include "timer.h"

#define DUPLICATES  3  /* RFC 5681 3.2 */
#define FRTO_WINDOW 3u /* RFC 5682 2.1, step 3a */

static bool is_rated(const struct connection *c)
{
	return c->recovery == RECOVERY_FAST || c->recovery == RECOVERY_ECN;
}

uint32_t recovery_sendable(const struct sy_stack *s, const struct connection *c)
{
	uint32_t window = c->congestion.window, flight = flight_bytes(s, c);
	uint32_t space = window > flight ? window - flight : 0;

	if (is_rated(c))
		return c->allowance;
	/* After an RTO the first segment is sent, whatever is in flight. */
	return space > c->allowance ? space : c->allowance;
}

void recovery_sent(struct sy_stack *s, struct connection *c, uint32_t bytes)
{
	if (is_rated(c))
		prr_sent(&flight_of(s, c)->prr, bytes);
	c->allowance -= c->allowance < bytes ? c->allowance : bytes;
	congestion_sent(&c->congestion, c->snd_nxt - c->snd_una);
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* delivered: by the ACK that begins recovery. */
static void recovery_begin(struct sy_stack *s, struct connection *c, enum recovery kind,
                           uint32_t delivered)
{
	union flight *f = flight_of(s, c);
	uint32_t flight = c->snd_nxt - c->snd_una;
	/* RecoverFS (RFC 9937): excludes what was delivered before this ACK. */
	uint32_t under_way = sent_in_flight(&f->sent) + f->sent.lost + delivered;

	path_probe_forget(c);
	c->recovery = (uint8_t)kind;
	c->recover = c->snd_nxt;
	c->flags |= C_UNDO;
	congestion_reduce(&c->congestion, flight, time_ms64(s));
	prr_begin(&f->prr, under_way, c->congestion.ssthresh);
	c->allowance = c->mss;       /* the first segment is sent at once */
	if (c->flags & C_TAIL_TIMER) /* RFC 8985 7.2: no tail loss probe during recovery */
		timer_retransmit_set(s, c);
	if (c->flags & C_ECN)
		c->flags |= C_SEND_CWR;
	if (kind == RECOVERY_FAST)
		s->counters.recoveries++;
	if (s->priority)
		priority_lost(s, c);
	connection_schedule(s, c);
}

/* ---- F-RTO ----------------------------------------------------------------------------------- */

/* RFC 5682 2.1, step 1: not if an earlier RTO retransmitted this data. */
static bool frto_is_allowed(const struct connection *c, bool repeated)
{
	return !repeated && c->recovery != RECOVERY_TIMEOUT && c->state >= SY_STACK_ESTABLISHED &&
	       c->snd_wnd > 0;
}

/* Step 2b: the first ACK after the RTO was partial. Without timestamps it may answer either
 * transmission, so send two new segments and no retransmission until the next ACK. Without new data
 * or window, use conventional recovery. */
static void frto_probe(struct sy_stack *s, struct connection *c)
{
	union flight *f = flight_of(s, c);

	f->sent.frto = f->sent.lost > 0 && emit_backlog(c) > 0 ? FRTO_SECOND : FRTO_NONE;
	if (f->sent.frto == FRTO_SECOND)
		c->allowance = 2 * c->mss;
}

/* Step 3a: the RTO was genuine; retransmit in slow start. A duplicate ACK was caused by one of the
 * two new segments, which leave no room for another. */
static void frto_end(struct sy_stack *s, struct connection *c, bool duplicate)
{
	struct sent *sent = &flight_of(s, c)->sent;

	if (sent->frto == FRTO_SECOND && duplicate && c->congestion.window < FRTO_WINDOW * c->mss)
		c->congestion.window = FRTO_WINDOW * c->mss;
	sent->frto = FRTO_NONE;
	c->allowance = 0;
}

/* Processes an ACK that does not prove the RTO spurious. */
static void frto_acked(struct sy_stack *s, struct connection *c, const struct sent_outcome *outcome)
{
	const struct sent *sent = &flight_of(s, c)->sent;

	if (c->recovery != RECOVERY_TIMEOUT || sent->frto == FRTO_NONE)
		return;
	if (sent->frto == FRTO_FIRST && outcome->acked > 0)
		frto_probe(s, c);
	else if (outcome->acked > 0 || outcome->sacked > 0 || outcome->dsack)
		frto_end(s, c, outcome->acked == 0);
}

bool recovery_holds(struct sy_stack *s, struct connection *c, bool may_new)
{
	if (c->recovery != RECOVERY_TIMEOUT || flight_of(s, c)->sent.frto != FRTO_SECOND)
		return false;
	if (may_new || c->snd_nxt != c->recover)
		return true;
	frto_end(s, c, false);
	return false;
}

/* ---- end ------------------------------------------------------------------------------------- */

static void recovery_end(struct sy_stack *s, struct connection *c)
{
	if (is_rated(c))
		congestion_recovered(&c->congestion, time_ms64(s));
	c->recovery = RECOVERY_NONE;
	c->allowance = 0;
	c->flags &= ~(uint32_t)C_UNDO;
	sent_recovered(&flight_of(s, c)->sent);
}

/* The loss was spurious: restores the window. */
static void recovery_undo(struct sy_stack *s, struct connection *c)
{
	if (!(c->flags & C_UNDO) || c->recovery == RECOVERY_ECN)
		return;
	congestion_undo(&c->congestion);
	sent_undo_losses(&flight_of(s, c)->sent, &s->sent);
	s->counters.undone++;
	recovery_end(s, c);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void detect_losses(struct sy_stack *s, struct connection *c, uint32_t delivered)
{
	union flight *f = flight_of(s, c);
	uint64_t recheck_ns;
	uint32_t lost;

	if (!c->flight)
		return;
	lost = sent_detect(&f->sent, &s->sent, &c->rtt, c->mss, c->recovery != RECOVERY_NONE,
	                   s->now_ns, &recheck_ns);

	if (recheck_ns)
		timer_set(s, c, TIMER_REORDER,
		          recheck_ns > s->now_ns
		                  ? (uint32_t)((recheck_ns - s->now_ns + MS_NS - 1) / MS_NS)
		                  : 0);
	if (lost == 0)
		return;
	connection_schedule(s, c);
	if (c->recovery == RECOVERY_NONE && !path_probe_lost(s, c))
		recovery_begin(s, c, RECOVERY_FAST, delivered);
}

void recovery_detect_losses(struct sy_stack *s, struct connection *c)
{
	detect_losses(s, c, 0);
}

uint32_t recovery_duplicate(struct sy_stack *s, struct connection *c)
{
	union flight *f = flight_of(s, c);
	uint32_t bytes = sent_duplicate(&f->sent, c->mss);

	if (c->duplicates < UINT8_MAX)
		c->duplicates++;
	if (c->recovery == RECOVERY_TIMEOUT && f->sent.frto != FRTO_NONE)
		frto_end(s, c, true);
	connection_schedule(s, c); /* limited transmit (RFC 3042) */
	/* RFC 6582 3.2, step 2: one recovery per window of data. */
	if (c->duplicates != DUPLICATES || c->recovery != RECOVERY_NONE ||
	    sy_seq_before(c->snd_una, c->recover))
		return bytes;
	uint16_t first = c->probe_len && c->probe_from == c->snd_una ? c->probe_len : c->mss;
	if (sent_first_lost(&f->sent, &s->sent, first) > 0 && !path_probe_lost(s, c))
		recovery_begin(s, c, RECOVERY_FAST, bytes);
	return bytes;
}

/* RFC 6582 3.2, step 3: a partial ACK reveals the next loss. */
static void partial_ack(struct sy_stack *s, struct connection *c)
{
	if (!(c->flags & C_SACK) && c->recovery == RECOVERY_FAST)
		sent_first_lost(&flight_of(s, c)->sent, &s->sent, c->mss);
}

static void window_grow(struct sy_stack *s, struct connection *c,
                        const struct sent_outcome *outcome)
{
	const struct congestion_ack in = {.bytes = outcome->acked,
	                                  .una = c->snd_una,
	                                  .nxt = c->snd_nxt,
	                                  .rtt_us = outcome->rtt_us,
	                                  .now_ms = time_ms64(s),
	                                  .paced = c->flags & C_PACED};
	congestion_acked(&c->congestion, &in, &c->rtt);
}

void recovery_acked(struct sy_stack *s, struct connection *c, const struct sent_outcome *outcome,
                    bool ece)
{
	union flight *f = flight_of(s, c);
	bool progress = outcome->acked > 0, rated = is_rated(c);
	uint32_t lost;

	if (progress)
		c->duplicates = 0;
	if (outcome->undone || outcome->spurious || outcome->original)
		recovery_undo(s, c);
	if (outcome->spurious) /* no size was too large; a duplicate alone does not prove that */
		path_late(s, c);
	if (c->recovery != RECOVERY_NONE && !sy_seq_before(c->snd_una, c->recover))
		recovery_end(s, c);
	else if (progress)
		partial_ack(s, c);
	frto_acked(s, c, outcome);
	lost = f->sent.lost;
	detect_losses(s, c, outcome->delivered);
	if (c->recovery == RECOVERY_NONE && (ece || outcome->probe_lost) &&
	    !sy_seq_before(c->snd_una, c->recover)) {
		s->counters.ecn_reduced += ece;
		recovery_begin(s, c, RECOVERY_ECN, outcome->delivered);
	}
	if (is_rated(c))
		c->allowance = prr_acked(&f->prr, outcome->delivered, sent_in_flight(&f->sent),
		                         c->mss, progress && f->sent.lost <= lost);
	else if (progress && !rated) /* the ACK that ends recovery does not grow the window */
		window_grow(s, c, outcome);
	connection_schedule(s, c);
}

void recovery_timed_out(struct sy_stack *s, struct connection *c)
{
	union flight *f = flight_of(s, c);
	bool repeated = c->retries > 1;

	path_probe_forget(c);
	f->sent.frto = frto_is_allowed(c, repeated) ? FRTO_FIRST : FRTO_NONE;
	sent_timed_out(&f->sent, &s->sent, &c->rtt, c->mss, repeated, s->now_ns);
	if (c->state <
	    SY_STACK_ESTABLISHED) /* RFC 5681 3.1: a lost SYN reduces the initial window */
		c->congestion.window = c->mss;
	else
		congestion_timed_out(&c->congestion, c->snd_nxt - c->snd_una, repeated,
		                     time_ms64(s));
	c->recovery = RECOVERY_TIMEOUT;
	c->recover = c->snd_nxt;
	c->flags |= C_UNDO;
	c->allowance = c->mss;
	c->duplicates = 0;
	if (c->flags & C_ECN)
		c->flags |= C_SEND_CWR;
}
