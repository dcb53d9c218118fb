// SPDX-License-Identifier: Apache-2.0
/* Timers: retransmission (RFC 6298), tail loss probes and reordering (RFC 8985), zero-window probes
 * (RFC 9293 3.8.6.1), delayed ACKs, keepalive (3.8.4), time-outs of states. */
#include <errno.h>

#include "arrive.h"
#include "emit.h"
#include "path_probe.h"
#include "priority.h"
#include "recovery.h"
#include "stack.h"
#include "timer.h"

#define PERSIST_MIN_MS        200
#define PERSIST_MAX_MS        60000
#define GIVE_UP_MS            900000u /* R2 of RFC 9293 3.8.3: at least 100 s */
#define GIVE_UP_SYN_MS        180000u /* of a SYN: at least 3 minutes */
#define GIVE_UP_HALF_MS       60000u  /* of a SYN-ACK */
#define PTO_MIN_MS            10
#define FLOOR_MIN_CONNECTIONS 16   /* connections with spurious time-outs in a second, */
#define FLOOR_SHARE           64   /* and one in this many connections, */
#define FLOOR_QUICK           8    /* and one in this many connections with a short RTT */
#define FLOOR_MAX_MS          3000 /* as after a lost SYN: RFC 6298 5.7 */
#define FLOOR_VALID_MS        10000
#define LEVEL_MS              200    /* grace time for packets queued in levels */
#define LEVEL_RECHECK_MS      10     /* recheck interval of queued packets */
#define PEER_ACK_US           200000 /* RFC 8985 7.2: max. delay of the peer's ACK */

/* ---- the wheel ------------------------------------------------------------------------------- */

static void wheel_place(struct sy_stack *s, struct connection *c, uint32_t due_ms)
{
	int32_t left = (int32_t)(due_ms - s->now_ms);

	if (c->in_wheel && !sy_seq_before(due_ms, c->wheel_ms))
		return; /* the entry fires early, and is then set to this deadline */
	wheel_set(&s->wheel, connection_index(s, c),
	          time_ms64(s) + (left > 0 ? (uint32_t)left : 0));
	c->wheel_ms = due_ms;
	c->in_wheel = true;
}

void timer_set(struct sy_stack *s, struct connection *c, enum timer timer, uint32_t delay_ms)
{
	/* plus one, because the current tick has already begun */
	c->due_ms[timer] = s->now_ms + delay_ms + 1;
	c->armed |= (uint8_t)(1u << timer);
	wheel_place(s, c, c->due_ms[timer]);
}

/* ---- retransmission -------------------------------------------------------------------------- */

static uint32_t give_up_after(const struct connection *c)
{
	if (c->state == SY_STACK_SYN_SENT)
		return c->user_timeout_ms ? c->user_timeout_ms : GIVE_UP_SYN_MS;
	if (c->state == SY_STACK_SYN_RECEIVED)
		return GIVE_UP_HALF_MS;
	if (c->flags & C_ORPHAN && (c->user_timeout_ms == 0 || c->user_timeout_ms > ORPHAN_MS))
		return ORPHAN_MS;
	return c->user_timeout_ms ? c->user_timeout_ms : GIVE_UP_MS;
}

/* Returns the time until the connection times out; 0: now. */
static uint32_t time_left_ms(const struct sy_stack *s, const struct connection *c)
{
	uint32_t waited = s->now_ms - c->retry_ms, max = give_up_after(c);

	return waited < max ? max - waited : 0;
}

static uint32_t persist_ms(const struct connection *c)
{
	uint64_t ms = (uint64_t)rtt_timeout_ms(&c->rtt) << (c->retries < 10 ? c->retries : 10);

	if (ms < PERSIST_MIN_MS)
		ms = PERSIST_MIN_MS;
	return ms < PERSIST_MAX_MS ? (uint32_t)ms : PERSIST_MAX_MS;
}

/* ---- minimum RTO shared by all connections --------------------------------------------------- */

/* RFC 9040 2: connections share an RTT that many of them have observed. Otherwise each of thousands
 * of mostly idle connections would learn by its own spurious time-out that the RTT has grown, and
 * the retransmissions may keep it high. Starts a new second of counting if the last one is over. */
static void rto_floor_second(struct sy_stack *s)
{
	struct rto_floor *f = &s->rto_floor;

	if (s->now_ms - f->begins_ms < 1000)
		return;
	f->begins_ms = s->now_ms;
	f->sum_ms = f->count = f->quick = 0;
}

/* Counts each connection once per second: a busy stream must not outweigh the others. A connection
 * is not counted during recovery, when the time of its last ACK is unknown. */
void rto_floor_note_quick(struct sy_stack *s, const struct connection *c, bool first)
{
	rto_floor_second(s);
	if (c->recovery == RECOVERY_NONE &&
	    (first || sy_seq_before(c->congestion.seen_ms, s->rto_floor.begins_ms)))
		s->rto_floor.quick++;
}

void rto_floor_note_spurious(struct sy_stack *s, uint32_t us)
{
	struct rto_floor *f = &s->rto_floor;
	uint32_t min;

	rto_floor_second(s);
	f->sum_ms += us / 1000;
	/* A few slow peers must not raise everyone's RTO. It stays unchanged while enough other
	 * peers respond quickly. */
	if (++f->count < FLOOR_MIN_CONNECTIONS || f->count < s->used / FLOOR_SHARE ||
	    f->count < f->quick / FLOOR_QUICK)
		return;
	min = (uint32_t)(2 * f->sum_ms / f->count);
	f->min_ms = min < FLOOR_MAX_MS ? min : FLOOR_MAX_MS;
	f->since_ms = s->now_ms;
}

/* Returns the shared minimum RTO; 0: none. */
static uint32_t shared_min_rto_ms(const struct sy_stack *s)
{
	return s->now_ms - s->rto_floor.since_ms < FLOOR_VALID_MS ? s->rto_floor.min_ms : 0;
}

static uint32_t timeout_ms(const struct sy_stack *s, const struct connection *c)
{
	uint32_t own = rtt_timeout_ms(&c->rtt), shared = shared_min_rto_ms(s);

	return own > shared ? own : shared;
}

/* Returns when the first segment in flight was sent; 0: none. */
static uint32_t first_ms(const struct sy_stack *s, const struct connection *c)
{
	if (!c->flight)
		return 0;
	return (uint32_t)(sent_first_ns(&flight_of(s, c)->sent, &s->sent) / MS_NS);
}

/* Returns true and re-arms the timer if the first segment's age is below the shared minimum RTO or
 * the user time-out. */
static bool rto_is_early(struct sy_stack *s, struct connection *c)
{
	uint32_t min = shared_min_rto_ms(s), max = give_up_after(c);
	uint32_t due = first_ms(s, c) + (min < max ? min : max);

	if (c->retries > 0 || c->state < SY_STACK_ESTABLISHED || !seq_after(due, s->due_ms))
		return false;
	timer_set(s, c, TIMER_RETRANSMIT, due - s->due_ms);
	return true;
}

/* ---- retransmission timer -------------------------------------------------------------------- */

/* RFC 8985 7.2: sets a probe only if it precedes the RTO. */
static bool tail_timer_set(struct sy_stack *s, struct connection *c, uint32_t rto_ms)
{
	uint64_t ms;

	if (c->recovery != RECOVERY_NONE || !(c->flags & C_SACK) || c->state < SY_STACK_ESTABLISHED)
		return false;
	ms = (sent_probe_wait(&flight_of(s, c)->sent, &c->rtt, c->mss, PEER_ACK_US) + MS_NS - 1) /
	     MS_NS;
	if (ms == 0 || ms >= rto_ms || ms < shared_min_rto_ms(s))
		return false;
	c->flags |= C_TAIL_TIMER;
	timer_set(s, c, TIMER_RETRANSMIT, ms < PTO_MIN_MS ? PTO_MIN_MS : (uint32_t)ms);
	return true;
}

void timer_retransmit_set(struct sy_stack *s, struct connection *c)
{
	uint32_t rto_ms = timeout_ms(s, c), left;

	c->flags &= ~(uint32_t)C_TAIL_TIMER;
	if (c->snd_una == c->snd_nxt) {
		if (emit_backlog(c) > 0)
			timer_set(s, c, TIMER_RETRANSMIT, persist_ms(c));
		else
			timer_clear(c, TIMER_RETRANSMIT);
		return;
	}
	if (tail_timer_set(s, c, rto_ms))
		return;
	left = c->retries ? time_left_ms(s, c) : give_up_after(c);
	timer_set(s, c, TIMER_RETRANSMIT, rto_ms < left ? rto_ms : left);
}

/* The peer does not respond: ends the connection. */
static void give_up(struct sy_stack *s, struct connection *c)
{
	s->counters.timed_out++;
	connection_end(s, c, c->flags & C_SOFT_ERROR ? c->error : ETIMEDOUT);
}

/* Returns since when the peer has not responded: the timer's start, unless it was re-armed. */
static uint32_t unanswered_ms(const struct sy_stack *s, const struct connection *c)
{
	uint32_t own = rtt_timeout_ms(&c->rtt), first = first_ms(s, c);

	if (c->state >= SY_STACK_ESTABLISHED && first && shared_min_rto_ms(s) > own)
		return first;
	return c->due_ms[TIMER_RETRANSMIT] - own - 1;
}

static void timed_out(struct sy_stack *s, struct connection *c)
{
	if (c->retries == 0)
		c->retry_ms = unanswered_ms(s, c);
	/* The peer closed the window: retransmissions are zero-window probes, and the connection
	 * lives while they are answered (RFC 9293 3.8.6, 3.8.6.1). If none is, the path may drop
	 * them: a reordered ACK can leave a stale zero window. */
	const bool probed = c->snd_wnd == 0 && sy_seq_before(c->retry_ms, c->alive_ms);
	if (probed)
		c->retry_ms = c->alive_ms;
	if (time_left_ms(s, c) == 0) {
		give_up(s, c);
		return;
	}
	s->counters.timeouts++;
	if (c->retries < UINT8_MAX)
		c->retries++;
	if (c->state >= SY_STACK_ESTABLISHED && !probed)
		path_black_hole(s, c);
	recovery_timed_out(s, c);
	rtt_back_off(&c->rtt);
	timer_retransmit_set(s, c);
	connection_schedule(s, c);
}

/* Zero window, or a partial segment after the override time-out. */
static void persist(struct sy_stack *s, struct connection *c)
{
	if (emit_backlog(c) == 0)
		return;
	if (c->probes == 0) /* RFC 1122 4.2.2.17: the last probe was answered */
		c->retry_ms = s->now_ms;
	if (time_left_ms(s, c) == 0) {
		give_up(s, c);
		return;
	}
	if (c->snd_wnd == 0) {
		s->counters.window_probes++;
		c->probes += c->probes < UINT8_MAX;
		if (c->retries < UINT8_MAX)
			c->retries++;
	} else {
		c->flags |= C_CORK_OVER;
	}
	emit_window_probe(s, c);
	uint32_t wait = persist_ms(c), left = time_left_ms(s, c);
	timer_set(s, c, TIMER_RETRANSMIT, wait < left ? wait : left);
}

/* The peer's ACK may be queued here at a low priority. Returns true and re-arms the timer until
 * LEVEL_MS after the regular RTO, once and counted from the segment's transmission, because low
 * priorities may starve. */
static bool ack_may_be_queued(struct sy_stack *s, struct connection *c)
{
	uint32_t wait = timeout_ms(s, c) + LEVEL_MS, max = give_up_after(c);
	uint32_t first = first_ms(s, c), until = first + (wait < max ? wait : max);

	if (!s->priority || s->priority->waiting.count == 0 || c->retries > 0 ||
	    c->state < SY_STACK_ESTABLISHED || !first || !seq_after(until, s->due_ms))
		return false;
	timer_set(s, c, TIMER_RETRANSMIT,
	          until - s->due_ms < LEVEL_RECHECK_MS ? until - s->due_ms : LEVEL_RECHECK_MS);
	return true;
}

static void retransmit_due(struct sy_stack *s, struct connection *c)
{
	if (c->snd_una == c->snd_nxt) {
		persist(s, c);
	} else if (ack_may_be_queued(s, c)) {
		return;
	} else if (c->flags & C_TAIL_TIMER) {
		if (emit_tail_probe(s, c))
			s->counters.tail_probes++;
		timer_retransmit_set(s, c);
	} else if (!rto_is_early(s, c)) {
		timed_out(s, c);
	}
}

/* ---- other timers ---------------------------------------------------------------------------- */

static void keepalive_due(struct sy_stack *s, struct connection *c)
{
	uint32_t silent = s->now_ms - c->alive_ms, idle = c->keepalive_s * 1000u;

	if (idle == 0 || c->state < SY_STACK_ESTABLISHED)
		return;
	if (c->snd_una != c->snd_nxt || emit_backlog(c) > 0 || silent < idle) {
		/* Data in flight probes already. */
		timer_set(s, c, TIMER_KEEPALIVE, silent < idle ? idle - silent : idle);
		return;
	}
	/* TCP_USER_TIMEOUT overrides the number of probes, as on Linux (tcp(7)). */
	bool over = c->user_timeout_ms ? c->probes > 0 && silent >= c->user_timeout_ms
	                               : c->probes >= c->keepalive_probes;
	if (over) {
		emit_reset(s, c);
		give_up(s, c);
		return;
	}
	c->probes += c->probes < UINT8_MAX;
	s->counters.keepalives++;
	emit_keepalive(s, c);
	timer_set(s, c, TIMER_KEEPALIVE, c->keepalive_interval_s * 1000u);
}

static void end_due(struct sy_stack *s, struct connection *c)
{
	if (c->flags & C_ORPHAN) {
		s->counters.orphans_ended++;
		emit_reset(s, c);
	}
	connection_end(s, c, c->state == SY_STACK_TIME_WAIT ? 0 : ETIMEDOUT);
}

static void timer_due(struct sy_stack *s, struct connection *c, enum timer timer)
{
	timer_clear(c, timer);
	switch (timer) {
	case TIMER_RETRANSMIT:
		retransmit_due(s, c);
		break;
	case TIMER_REORDER:
		recovery_detect_losses(s, c);
		connection_schedule(s, c);
		break;
	case TIMER_ACK:
		if (c->flags & C_ACK_LATER) {
			delay_expired(&c->delay);
			ack_schedule(s, c, true);
		}
		break;
	case TIMER_KEEPALIVE:
		keepalive_due(s, c);
		break;
	case TIMER_END:
		end_due(s, c);
		break;
	case TIMERS:
		break;
	}
}

void timer_run(struct sy_stack *s, struct connection *c)
{
	uint32_t earliest = 0;
	bool any = false;

	for (unsigned i = 0; i < TIMERS; i++) {
		if (c->armed >> i & 1 && !sy_seq_before(s->due_ms, c->due_ms[i]))
			timer_due(s, c, (enum timer)i);
		if (c->state == SY_STACK_CLOSED)
			return;
	}
	for (unsigned i = 0; i < TIMERS; i++) {
		if (!(c->armed >> i & 1) || (any && !sy_seq_before(c->due_ms[i], earliest)))
			continue;
		earliest = c->due_ms[i];
		any = true;
	}
	if (any)
		wheel_place(s, c, earliest);
}
