// SPDX-License-Identifier: Apache-2.0
/*
 * A segment arrives for a connection that is past its first SYN.
 *
 *     first     sequence number: PAWS (RFC 7323 5), the window (RFC 9293 3.4)
 *     second    RST                                     (RFC 5961 3)
 *     third     security: there is none
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

#define CHALLENGES     10                   /* of a connection in a second */
#define CHALLENGES_ALL 1000                 /* of all connections: on average */
#define TS_OLD_MS      (24u * 86400 * 1000) /* RFC 7323 5.5: TS.Recent means nothing any more */

void arrive_owe(struct sy_stack *s, struct connection *c, bool now)
{
	if (now || c->flags & C_QUICK_ACK) {
		c->flags |= C_ACK_NOW;
		connection_wants(s, c);
	} else if (!(c->flags & (C_ACK_NOW | C_ACK_LATER))) {
		c->flags |= C_ACK_LATER;
		timer_set(s, c, TIMER_ACK, TIMER_ACK_MS);
	}
}

/* All connections share a limit. Were it a known number, a stranger could count how many of them
 * are left for his own connection, and so learn whether a guess about another one was challenged
 * (CVE-2016-5696). So it is drawn anew for each second. */
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
	emit_ack_loose(s, c);
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
	if (!seg->options.timestamps) /* 3.2: it was not sent by this peer */
		return false;
	if (!ts_is_old(s, c, seg->options.time))
		return true;
	s->counters.paws++;
	if (segment_span(seg) > 0)
		emit_ack_loose(s, c);
	else
		arrive_challenge(s, c);
	return false;
}

/* Is a part of it in the window (RFC 9293 3.4)? */
static bool window_has(const struct connection *c, const struct segment *seg)
{
	uint32_t window = c->rcv_edge - c->rcv_nxt, span = segment_span(seg);
	uint32_t at = seg->seq - c->rcv_nxt, last = at + span - 1;

	if (at == 0)
		return true; /* with a window of 0 the payload is cut off later */
	if (span == 0)
		return at <= window;
	return at < window || last < window;
}

/* The peer has probed our window with a byte, which we took, and does not know it. If our probe's
 * byte was taken as well, each would hold the other's acknowledgements for old, and learn nothing.
 */
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

/* The two segments in front of the window that a live peer sends, with an ACK that it can know: a
 * keepalive probe (RFC 9293 3.8.4), and in TIME-WAIT its FIN again (3.10.7.4, eighth). */
static void before_window(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	uint32_t end = seg->seq + segment_span(seg);

	if (seg->flags & SY_TCP_SYN || !ack_is_acceptable(c, seg))
		return;
	if (c->state == SY_STACK_TIME_WAIT && seg->flags & SY_TCP_FIN && end == c->rcv_nxt)
		connection_time_wait(s, c); /* the time starts anew */
	if (seg->seq + 1 == c->rcv_nxt && seg->len <= 1 && !(seg->flags & SY_TCP_FIN))
		connection_heard(s, c);
}

/* Old data, or a segment outside of the window: the peer learns where we are. */
static void window_miss(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	uint32_t end = seg->seq + segment_span(seg);
	bool carries = segment_span(seg) > 0 && !(seg->flags & SY_TCP_SYN);

	s->counters.out_of_window++;
	if (seg->flags & SY_TCP_RST)
		return;
	if (seg->len > 0 && !seq_after(end, c->rcv_nxt)) {
		s->counters.duplicates++;
		if (carries && c->flags & C_SACK) /* the acknowledgement below reports it */
			arrived_duplicate(&c->arrived, seg->seq, seg->seq + seg->len);
	}
	before_window(s, c, seg);
	if (carries)
		emit_ack_loose(s, c);
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
	connection_heard(s, c);
	ts_keep(s, c, seg);
	if (SY_UNLIKELY(s->client != NULL))
		client_arrive(s, c, seg);
}

/* ---- second and fourth: RST and SYN ---------------------------------------------------------- */

/* RFC 5961 3.2: only the exact number resets. It ends TIME-WAIT too (RFC 9293 3.10.7.4), as on
 * Linux unless tcp_rfc1337 is set: a balancer clears a tuple so, which its next client will use. */
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

/* The peer's SYN again. True: the segment has a part that is new. */
static bool syn_received_again(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	if (seg->flags & SY_TCP_ACK) { /* both sides opened (RFC 9293 3.5, figure 7) */
		seg->flags &= (uint8_t) ~(SY_TCP_SYN | TCP_ECE | TCP_CWR);
		seg->seq++;
		seg->unscaled = true;
		return true;
	}
	emit_syn_again(s, c); /* ours was lost */
	return false;
}

/* ---- TIME-WAIT ------------------------------------------------------------------------------- */

/* May this SYN begin a new connection (RFC 6191 2; RFC 9293 3.10.7.4, fourth)? */
static bool time_wait_gives_way(const struct connection *c, const struct segment *seg)
{
	if (c->state != SY_STACK_TIME_WAIT || !(seg->flags & SY_TCP_SYN) ||
	    seg->flags & (SY_TCP_ACK | SY_TCP_RST))
		return false;
	if (c->flags & C_TIMESTAMPS && seg->options.timestamps && seg->options.time != c->ts_recent)
		return seq_after(seg->options.time, c->ts_recent);
	return seq_after(seg->seq, c->rcv_nxt);
}

/* The new connection's numbers are beyond those of the old one, which stays if there is no place
 * for a new one: else segments of before would meet nobody who knows them (RFC 9293 3.4.2). */
static void time_wait_replace(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	const struct sy_tuple *t = &seg->view->tuple;
	struct listener *l = listener_find(s, &t->dst, t->dport);
	uint32_t least = c->snd_nxt;

	if (!l || l->retired) {
		stack_refuse(s, seg);
		return;
	}
	c = listener_replace(s, l, c, seg);
	if (!c)
		return;
	s->counters.time_wait_reused++;
	if (!seq_after(c->snd_nxt, least))
		connection_begin(s, c, least + UINT16_MAX);
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

/* The common case: the next bytes in order, or an acknowledgement, and nothing else. All that is
 * asked here would be asked above as well. */
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
		c->snd_wl1 = seg->seq; /* the window is the same, and no older than this */
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
