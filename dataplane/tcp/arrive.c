// SPDX-License-Identifier: Apache-2.0
/*
 * Segment arrival for a connection after its first SYN.
 *
 *     first     sequence number: PAWS (RFC 7323 5), the window (RFC 9293 3.4)
 *     second    RST                                     (RFC 5961 3)
 *     third     security: none
 *     fourth    SYN                                     (RFC 5961 4)
 *     fifth     ACK                                     arrive_ack.c; then segment_accept()
 *     sixth     URG ┐
 *     seventh   text├                                   arrive_text.c
 *     eighth    FIN ┘
 */
#include <errno.h>

#include "arrive.h"
#include "client.h"
#include "emit.h"
#include "stack.h"
#include "timer.h"

#define CHALLENGES     10                   /* per connection and second */
#define CHALLENGES_ALL 1000                 /* per second, on average */
#define TS_OLD_MS      (24u * 86400 * 1000) /* RFC 7323 5.5: TS.Recent is invalid after that */

void ack_schedule(struct sy_stack *s, struct connection *c, bool now)
{
	if (now || c->flags & C_QUICK_ACK) {
		c->flags |= C_ACK_NOW;
		connection_schedule(s, c);
	} else if (!(c->flags & (C_ACK_NOW | C_ACK_LATER))) {
		c->flags |= C_ACK_LATER;
		timer_set(s, c, TIMER_ACK, TIMER_ACK_MS);
	}
}

/* The limit for all connections varies per second. If it were fixed, an attacker could count the
 * challenge ACKs left for his own connection, and so test guesses about others (CVE-2016-5696). */
static uint32_t challenges_draw(const struct sy_stack *s, uint64_t second)
{
	return CHALLENGES_ALL / 2 +
	       (uint32_t)(sy_siphash(&s->challenge_key, &second, sizeof(second)) % CHALLENGES_ALL);
}

void arrive_challenge(struct sy_stack *s, struct connection *c)
{
	uint64_t second = time_ms64(s) / 1000;

	if (c->challenge_s != (uint8_t)second) {
		c->challenge_s = (uint8_t)second;
		c->challenges = 0;
	}
	if (s->challenge_s != second) {
		s->challenge_s = second;
		s->challenges = challenges_draw(s, second);
	}
	if (c->challenges >= CHALLENGES || s->challenges == 0) {
		s->counters.challenges_limited++;
		return;
	}
	c->challenges++;
	s->challenges--;
	s->counters.challenges++;
	emit_ack_now(s, c);
}

/* ---- first: sequence number ------------------------------------------------------------------ */

static bool ts_is_old(const struct sy_stack *s, const struct connection *c, uint32_t time)
{
	return sy_seq_before(time, c->ts_recent) && s->now_ms - c->ts_recent_ms < TS_OLD_MS;
}

/* RFC 7323 5.3 R1. */
static bool paws_passes(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	if (!(c->flags & C_TIMESTAMPS) || seg->flags & SY_TCP_RST)
		return true;
	if (!seg->options.timestamps) /* 3.2: the peer always sends timestamps */
		return false;
	if (!ts_is_old(s, c, seg->options.time))
		return true;
	s->counters.paws++;
	if (segment_span(seg) > 0)
		emit_ack_now(s, c);
	else
		arrive_challenge(s, c);
	return false;
}

/* RFC 9293 3.4: part of the segment is in the receive window. */
static bool window_has(const struct connection *c, const struct segment *seg)
{
	uint32_t window = c->rcv_edge - c->rcv_nxt, span = segment_span(seg);
	uint32_t at = seg->seq - c->rcv_nxt, last = at + span - 1;

	if (at == 0)
		return true; /* a zero window: text_arrive() trims the payload */
	if (span == 0)
		return at <= window;
	return at < window || last < window;
}

/* Both sides probe a zero window, and each accepted the other's probe byte. Then each side's ACKs
 * would be unacceptable to the other (SEQ + 1 = RCV.NXT): process the ACK of such a segment. */
static bool acks_beside_probe(const struct connection *c, const struct segment *seg)
{
	return c->state >= SY_STACK_ESTABLISHED && segment_span(seg) == 0 &&
	       seg->seq + 1 == c->rcv_nxt &&
	       (seg->flags & (SY_TCP_ACK | SY_TCP_RST)) == SY_TCP_ACK &&
	       seq_after(seg->ack, c->snd_una);
}

static bool ack_is_acceptable(const struct connection *c, const struct segment *seg)
{
	return seg->flags & SY_TCP_ACK &&
	       sy_tcp_check_ack(seg->ack, c->snd_una, c->snd_nxt, c->snd_wnd_max);
}

/* Two segments before the window are legitimate if their ACK is acceptable: a keepalive probe (RFC
 * 9293 3.8.4), and a retransmitted FIN in TIME-WAIT (3.10.7.4, eighth). */
static void before_window(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	uint32_t end = seg->seq + segment_span(seg);

	if (seg->flags & SY_TCP_SYN || !ack_is_acceptable(c, seg))
		return;
	if (c->state == SY_STACK_TIME_WAIT && seg->flags & SY_TCP_FIN && end == c->rcv_nxt)
		connection_time_wait(s, c); /* restart 2 MSL */
	if (seg->seq + 1 == c->rcv_nxt && seg->len <= 1 && !(seg->flags & SY_TCP_FIN))
		connection_mark_alive(s, c);
}

/* Old data, or a segment outside the window: answer with an ACK. */
static void window_miss(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	uint32_t end = seg->seq + segment_span(seg);
	bool carries = segment_span(seg) > 0 && !(seg->flags & SY_TCP_SYN);

	s->counters.out_of_window++;
	if (seg->flags & SY_TCP_RST)
		return;
	if (seg->len > 0 && !seq_after(end, c->rcv_nxt)) {
		s->counters.duplicates++;
		if (carries && c->flags & C_SACK) /* reported by the ACK below as D-SACK */
			arrived_duplicate(&c->arrived, seg->seq, seg->seq + seg->len);
	}
	before_window(s, c, seg);
	if (carries)
		emit_ack_now(s, c);
	else
		arrive_challenge(s, c);
}

/* RFC 7323 4.3 (2), (3). */
static inline void ts_keep(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	if (!(c->flags & C_TIMESTAMPS) || !seg->options.timestamps ||
	    seq_after(seg->seq, c->rcv_acked))
		return;
	if (sy_seq_before(seg->options.time, c->ts_recent) && ts_is_old(s, c, seg->options.time))
		return;
	c->ts_recent = seg->options.time;
	c->ts_recent_ms = s->now_ms;
}

void segment_accept(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	connection_mark_alive(s, c);
	ts_keep(s, c, seg);
	if (SY_UNLIKELY(s->client != NULL))
		client_arrive(s, c, seg);
}

/* ---- second and fourth: RST and SYN ---------------------------------------------------------- */

/* RFC 5961 3.2: only SEG.SEQ = RCV.NXT resets. This includes TIME-WAIT (RFC 9293 3.10.7.4), as on
 * Linux without tcp_rfc1337: a load balancer resets a tuple before it reuses it. */
static void reset_arrive(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	if (seg->seq != c->rcv_nxt) {
		arrive_challenge(s, c);
		return;
	}
	s->counters.resets_in++;
	if (c->state == SY_STACK_SYN_RECEIVED)
		connection_end(s, c, ECONNREFUSED);
	else if (c->state == SY_STACK_LAST_ACK || c->state == SY_STACK_CLOSING ||
	         c->state == SY_STACK_TIME_WAIT)
		connection_end(s, c, 0);
	else
		connection_end(s, c, c->state == SY_STACK_CLOSE_WAIT ? EPIPE : ECONNRESET);
}

/* A retransmitted SYN. Returns true if the rest of the segment is to be processed. */
static bool syn_received_again(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	if (seg->flags & SY_TCP_ACK) { /* simultaneous open (RFC 9293 3.5, figure 7) */
		seg->flags &= (uint8_t) ~(SY_TCP_SYN | TCP_ECE | TCP_CWR);
		seg->seq++;
		seg->unscaled = true;
		return true;
	}
	emit_syn_retransmit(s, c); /* our SYN-ACK was lost */
	return false;
}

/* ---- TIME-WAIT ------------------------------------------------------------------------------- */

/* Returns true if this SYN may replace the connection (RFC 6191 2; RFC 9293 3.10.7.4, fourth). */
static bool time_wait_gives_way(const struct connection *c, const struct segment *seg)
{
	if (c->state != SY_STACK_TIME_WAIT || !(seg->flags & SY_TCP_SYN) ||
	    seg->flags & (SY_TCP_ACK | SY_TCP_RST))
		return false;
	if (c->flags & C_TIMESTAMPS && seg->options.timestamps && seg->options.time != c->ts_recent)
		return seq_after(seg->options.time, c->ts_recent);
	return seq_after(seg->seq, c->rcv_nxt);
}

/* The new ISS is beyond the old SND.NXT. If there is no slot for a new connection, the old one
 * stays: it must still absorb old duplicates (RFC 9293 3.4.2). */
static void time_wait_replace(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	const struct sy_tuple *t = &seg->view->tuple;
	struct listener *l = listener_find(s, t);
	uint32_t min = c->snd_nxt;

	if (!l || l->retired) {
		stack_refuse(s, seg);
		return;
	}
	c = listener_replace(s, l, c, seg);
	if (!c)
		return;
	s->counters.time_wait_reused++;
	if (!seq_after(c->snd_nxt, min))
		connection_begin(s, c, min + UINT16_MAX);
}

/* ---- the steps ------------------------------------------------------------------------------- */

static void arrive_open(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	if (time_wait_gives_way(c, seg)) {
		time_wait_replace(s, c, seg);
		return;
	}
	/* First: sequence number. */
	if (!paws_passes(s, c, seg))
		return;
	if (seg->flags & SY_TCP_SYN && c->state == SY_STACK_SYN_RECEIVED &&
	    seg->seq == c->rcv_nxt - 1 && !syn_received_again(s, c, seg))
		return;
	if (!window_has(c, seg)) {
		if (!acks_beside_probe(c, seg) || arrive_ack(s, c, seg))
			window_miss(s, c, seg);
		return;
	}
	/* Second: RST. */
	if (seg->flags & SY_TCP_RST) {
		reset_arrive(s, c, seg);
		return;
	}
	/* Fourth: SYN (RFC 5961 4.2). */
	if (seg->flags & SY_TCP_SYN) {
		arrive_challenge(s, c);
		return;
	}
	/* Fifth: ACK. */
	if (!(seg->flags & SY_TCP_ACK))
		return;
	if (!arrive_ack(s, c, seg))
		return;
	/* Sixth to eighth: URG, text, FIN. */
	arrive_text(s, c, seg);
}

/* Fast path: in-order data or an ACK, and nothing else. Its conditions are a subset of the checks
 * above. */
static bool arrive_fast(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	const uint8_t plain = SY_TCP_ACK, ignored = SY_TCP_PSH;

	if (c->state != SY_STACK_ESTABLISHED || (seg->flags & ~ignored) != plain ||
	    seg->seq != c->rcv_nxt || seg->blocks || seg->ecn == IP_CE ||
	    seg->len > c->rcv_edge - c->rcv_nxt || seq_after(seg->ack, c->snd_nxt) ||
	    sy_seq_before(seg->ack, c->snd_una))
		return false;
	if (c->flags & C_TIMESTAMPS &&
	    (!seg->options.timestamps || sy_seq_before(seg->options.time, c->ts_recent)))
		return false;
	s->counters.fast++;
	if (seg->ack == c->snd_una && c->snd_nxt == c->snd_una &&
	    (uint32_t)seg->window << c->snd_scale == c->snd_wnd) {
		segment_accept(s, c, seg);
		c->snd_wl1 = seg->seq; /* the window is unchanged */
	} else if (!arrive_ack(s, c, seg)) {
		return true;
	}
	if (seg->len > 0)
		arrive_text(s, c, seg);
	return true;
}

void arrive(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	if (c->state == SY_STACK_SYN_SENT)
		arrive_syn_sent(s, c, seg);
	else if (!arrive_fast(s, c, seg))
		arrive_open(s, c, seg);
}
