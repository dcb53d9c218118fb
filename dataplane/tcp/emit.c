// SPDX-License-Identifier: Apache-2.0
/*
 * What is sent, in this order:
 *
 *     lost ranges, again           as recovery allows        (RFC 8985, RFC 6937)
 *     new bytes, FIN after them    as both windows allow     (RFC 9293 3.8.6, RFC 5681)
 *     an acknowledgement           if it is due and went with none of these
 *
 * SYN and FIN have sequence numbers like bytes, and are sent again like bytes.
 *
 * Where the port cuts segments (TSO), new bytes go in segments of many pieces, each of which is
 * what a segment would else be. What is sent again goes in single ones: pieces are lost alone.
 */
#include "emit.h"
#include "pace.h"
#include "path_probe.h"
#include "recovery.h"
#include "stack.h"
#include "timer.h"
#include "window.h"

#define RETRY_MS    10  /* no buffer: again after this time */
#define PIECES_MOST 64  /* of a large segment: some drivers have room for no more */
#define PIECE_LEAST 256 /* some cards take smaller ones for an attack, and refuse them */

enum kind {
	KIND_NEW,   /* one segment of new bytes, or SYN, FIN */
	KIND_LARGE, /* of several pieces */
	KIND_AGAIN, /* what was sent before */
};

/* ---- one segment ----------------------------------------------------------------------------- */

static void plan_options(struct sy_stack *s, struct connection *c, struct segment_plan *plan)
{
	struct sy_tcp_options *o = &plan->options;
	bool first =
	        c->state == SY_STACK_SYN_SENT; /* offers all; an answer only what was offered */
	const struct sy_stack_options *own = &s->options;

	o->scale = SY_TCP_NO_SCALE;
	o->timestamps = first ? !own->no_timestamps : c->flags & C_TIMESTAMPS;
	if (o->timestamps) {
		o->time = s->now_ms + c->ts_offset;
		o->echo = plan->flags & SY_TCP_ACK ? c->ts_recent : 0;
	}
	if (plan->flags & SY_TCP_SYN) {
		o->mss = connection_offer(s, c);
		o->sack = first ? !own->no_sack : c->flags & C_SACK;
		if (first ? !own->no_scale : c->flags & C_SCALE)
			o->scale = s->receive_scale;
	} else if (c->flags & C_SACK && !(plan->flags & SY_TCP_RST)) {
		plan->blocks = (uint8_t)arrived_blocks(&c->arrived, &s->arrived, plan->block,
		                                       o->timestamps ? 3 : 4);
	}
}

static void plan_ecn(const struct sy_stack *s, const struct connection *c,
                     struct segment_plan *plan)
{
	if (plan->flags & SY_TCP_SYN) { /* RFC 3168 6.1.1 */
		if (c->state == SY_STACK_SYN_SENT && s->options.ecn && c->retries == 0)
			plan->flags |= TCP_ECE | TCP_CWR;
		else if (c->state != SY_STACK_SYN_SENT && c->flags & C_ECN)
			plan->flags |= TCP_ECE;
	} else if (c->flags & C_ECHO_CE) {
		plan->flags |= TCP_ECE;
	}
}

/* All but the payload. What it acknowledges is then no longer due. */
static struct segment_plan plan_make(struct sy_stack *s, struct connection *c, uint32_t seq,
                                     uint8_t flags)
{
	struct segment_plan plan = {.from_peer = &c->tuple,
	                            .seq = seq,
	                            .ack = c->rcv_nxt,
	                            .flags = flags,
	                            .tos = c->tos & (uint8_t)~IP_ECN,
	                            .fragile = !path_mtu_whole(&c->path_mtu)};

	plan_options(s, c, &plan);
	plan_ecn(s, c, &plan);
	plan.window = window_offer(s, c, flags);
	return plan;
}

static void acknowledged(struct connection *c, bool has_data)
{
	delay_acknowledged(&c->delay, has_data, c->flags & (C_ACK_NOW | C_ACK_LATER));
	c->flags &= ~(uint32_t)(C_ACK_NOW | C_ACK_LATER);
	timer_clear(c, TIMER_ACK);
	c->rcv_acked = c->rcv_nxt;
}

/* There is no buffer: a timer tries again. */
static struct rte_mbuf *no_buffer(struct sy_stack *s, struct connection *c)
{
	s->counters.no_buffer++;
	timer_set(s, c, TIMER_REORDER, RETRY_MS);
	return NULL;
}

static struct rte_mbuf *one_make(struct sy_stack *s, struct connection *c,
                                 const struct segment_plan *plan)
{
	uint8_t *payload;
	struct rte_mbuf *m = segment_make(s->options.pool, plan, &payload);

	if (!m)
		return NULL;
	if (plan->len > 0)
		send_buffer_read(&c->unsent, &s->chunks, plan->seq + !!(plan->flags & SY_TCP_SYN),
		                 payload, plan->len);
	segment_finish(m, plan, s->options.offload_checksum);
	s->counters.offloaded += s->options.offload_checksum;
	return m;
}

static struct rte_mbuf *large_make(struct sy_stack *s, struct connection *c,
                                   const struct segment_plan *plan)
{
	struct rte_mbuf *m = segment_make_large(s->options.pool, plan);
	uint32_t at = plan->seq, offset;

	if (!m)
		return NULL;
	offset = segment_headers(m);
	for (struct rte_mbuf *b = m; b; b = b->next, offset = 0) {
		uint32_t len = b->data_len - offset;
		send_buffer_read(&c->unsent, &s->chunks, at,
		                 rte_pktmbuf_mtod_offset(b, uint8_t *, offset), len);
		at += len;
	}
	segment_finish_large(m, plan);
	s->counters.tso_segments++;
	s->counters.tso_pieces += segment_pieces(m);
	return m;
}

static struct rte_mbuf *plan_finish(struct sy_stack *s, struct connection *c,
                                    const struct segment_plan *plan)
{
	struct rte_mbuf *m;

	do {
		m = plan->piece ? large_make(s, c, plan) : one_make(s, c, plan);
	} while (SY_UNLIKELY(!m) && stack_spares(s));
	if (!m)
		return plan->piece ? NULL : no_buffer(s, c);
	if (plan->flags & SY_TCP_ACK)
		acknowledged(c, plan->len > 0);
	return m;
}

static struct rte_mbuf *ack_make(struct sy_stack *s, struct connection *c, uint32_t seq,
                                 uint8_t flags)
{
	struct segment_plan plan = plan_make(s, c, seq, flags);
	return plan_finish(s, c, &plan);
}

/* What else a segment with bytes says. */
static void plan_text(struct connection *c, struct segment_plan *plan, bool again)
{
	uint32_t end = plan->seq + plan->len;

	if (end == c->unsent.end || (end == c->held_from && connection_holds(c)))
		plan->flags |= SY_TCP_PSH;
	if (c->flags & C_URGENT_OUT && seq_after(c->urgent_out, plan->seq)) {
		uint32_t ahead = c->urgent_out - plan->seq;
		plan->flags |= SY_TCP_URG;
		plan->urgent = ahead < UINT16_MAX ? (uint16_t)ahead : UINT16_MAX;
	}
	if (c->flags & C_ECN && !again) { /* RFC 3168 6.1.5: what is sent again is not marked */
		plan->tos |= IP_ECT0;
		if (c->flags & C_TELL_CWR) {
			plan->flags |= TCP_CWR;
			c->flags &= ~(uint32_t)C_TELL_CWR;
		}
	}
}

/* What the port cuts a connection's segments into: an even number of bytes (segment.c). */
static uint16_t piece_of(const struct sy_stack *s, const struct connection *c)
{
	uint32_t piece = c->mss, frame = s->options.tso.frame, headers = connection_headers(c);

	if (frame && piece + headers > frame)
		piece = frame > headers ? frame - headers : 0;
	return (uint16_t)(piece & ~1u);
}

/* A large segment finds no buffers: its first piece alone. */
static struct rte_mbuf *piece_make(struct sy_stack *s, struct connection *c,
                                   struct segment_plan *plan, uint32_t *end)
{
	plan->len = plan->piece;
	plan->piece = 0;
	plan->flags &= (uint8_t) ~(SY_TCP_PSH | SY_TCP_FIN);
	*end = plan->seq + plan->len;
	return plan_finish(s, c, plan);
}

/* A segment from *from on, up to `to`: SYN, bytes and FIN as the numbers say, as many as fit in
 * mss, less what options take that it has; but all of a large one. Moves *from behind it. */
static struct rte_mbuf *range_make(struct sy_stack *s, struct connection *c, uint32_t *from,
                                   uint32_t to, uint32_t mss, enum kind kind)
{
	bool syn = c->state == SY_STACK_SYN_SENT || c->state == SY_STACK_SYN_RECEIVED;
	uint8_t flags = syn && c->state == SY_STACK_SYN_SENT ? SY_TCP_SYN
	                : syn                                ? SY_TCP_SYN | SY_TCP_ACK
	                                                     : SY_TCP_ACK;
	struct segment_plan plan = plan_make(s, c, *from, flags);
	uint32_t end = *from + syn, room;

	if (!syn) {
		room = mss - (plan.blocks ? 4 + 8u * plan.blocks : 0);
		end = seq_after(to, c->unsent.end) ? c->unsent.end : to;
		if (kind == KIND_LARGE)
			plan.piece = piece_of(s, c);
		else if (end - *from > room)
			end = *from + room;
		plan.len = end - *from;
		if (plan.len > 0)
			plan_text(c, &plan, kind == KIND_AGAIN);
		if (end == c->unsent.end && seq_after(to, end)) {
			plan.flags |= SY_TCP_FIN;
			end++;
		}
	}
	struct rte_mbuf *m = plan_finish(s, c, &plan);
	if (!m && plan.piece)
		m = piece_make(s, c, &plan, &end);
	if (m)
		*from = end;
	return m;
}

/* ---- again ----------------------------------------------------------------------------------- */

static struct rte_mbuf *range_again(struct sy_stack *s, struct connection *c, uint32_t from,
                                    uint32_t to)
{
	uint32_t end = from;
	struct rte_mbuf *m = range_make(s, c, &end, to, c->mss, KIND_AGAIN);

	if (!m)
		return NULL;
	sent_again(&flight_of(s, c)->sent, &s->sent, from, end, s->now_ns);
	recovery_sent(s, c, end - from);
	c->retransmitted++;
	s->counters.retransmitted++;
	return m;
}

/* ---- new ------------------------------------------------------------------------------------- */

uint32_t emit_waiting(const struct connection *c)
{
	uint32_t end = c->unsent.end + !!(c->flags & C_FIN_WANTED);

	return c->state >= SY_STACK_ESTABLISHED && seq_after(end, c->snd_nxt) ? end - c->snd_nxt
	                                                                      : 0;
}

/* Is a segment that is not full worth being sent (RFC 9293 3.8.6.2.1, 3.7.4)? */
static inline __attribute__((always_inline)) bool short_may_go(const struct connection *c,
                                                               uint32_t len, bool all)
{
	if (len > 0 && len >= c->snd_wnd_max / 2)
		return true;
	if (!all) /* the window ends within it; its fourth case is the override timer */
		return c->flags & C_CORK_OVER;
	if (c->flags & (C_FIN_WANTED | C_CORK_OVER | C_URGENT_OUT))
		return true;
	if (c->flags & (C_CORK | C_MORE))
		return false;
	return connection_may_short(c);
}

/* The end of what was pushed before the application said that more follows; SND.NXT: there is
 * nothing, or it may not go. */
static uint32_t pushed_end(const struct connection *c)
{
	uint32_t pushed = c->held_from - c->snd_nxt, bytes = c->unsent.end - c->snd_nxt;

	return connection_holds(c) && pushed <= bytes && connection_may_short(c) ? c->held_from
	                                                                         : c->snd_nxt;
}

/* The end of the new segment that may go now; SND.NXT: none. */
static uint32_t new_end(const struct connection *c)
{
	uint32_t waiting = emit_waiting(c), edge = c->snd_una + c->snd_wnd, open, len;
	uint32_t bytes = seq_after(c->unsent.end, c->snd_nxt) ? c->unsent.end - c->snd_nxt : 0;

	if (waiting == 0)
		return c->snd_nxt;
	if (bytes == 0) /* FIN alone: the window does not hold it back */
		return c->snd_nxt + 1;
	open = seq_after(edge, c->snd_nxt) ? edge - c->snd_nxt : 0;
	len = bytes < c->mss ? bytes : c->mss;
	len = len < open ? len : open;
	if (len == 0)
		return c->snd_nxt;
	if (len < c->mss && !short_may_go(c, len, len == bytes))
		return len == bytes ? pushed_end(c) : c->snd_nxt;
	return c->snd_nxt + len + (len == bytes && waiting > bytes);
}

/* May the port cut it? It would copy the mark that the window is reduced, and an urgent pointer,
 * into each piece; and SACK blocks take place in each. */
static bool large_may(const struct sy_stack *s, const struct connection *c)
{
	const struct sy_stack_tso *t = &s->options.tso;

	return s->large_most > 0 && (connection_v4(c) ? t->ipv4 : t->ipv6) && !s->scarce &&
	       !(c->flags & (C_TELL_CWR | C_URGENT_OUT)) && path_mtu_whole(&c->path_mtu) &&
	       c->arrived.blocks == 0 && c->arrived.duplicate.from == c->arrived.duplicate.to;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* The end of a large segment, where a full one may go: as many whole pieces, up to `pieces`, as
 * both windows, and a tick of pacing, let go; and what is left behind them, if that is all and may
 * go. SND.NXT: a single one goes. */
static uint32_t large_end(const struct sy_stack *s, const struct connection *c, uint32_t room,
                          uint32_t pieces)
{
	uint32_t piece = piece_of(s, c), bytes = c->unsent.end - c->snd_nxt, most, whole;

	if (piece < PIECE_LEAST)
		return c->snd_nxt;
	most = least(bytes, c->snd_una + c->snd_wnd - c->snd_nxt);
	most = least(most, least(room, pace_burst(s, c)));
	most = least(most, least(s->large_most, pieces * piece));
	whole = most - most % piece;
	if (whole < 2 * piece)
		return c->snd_nxt;
	if (most == bytes && (whole == bytes || short_may_go(c, bytes - whole, true)))
		return c->unsent.end + !!(c->flags & C_FIN_WANTED);
	return c->snd_nxt + whole;
}

static struct rte_mbuf *range_new(struct sy_stack *s, struct connection *c, uint32_t to,
                                  uint32_t mss, enum kind kind)
{
	uint32_t from = c->snd_nxt, end = from;
	struct rte_mbuf *m = range_make(s, c, &end, to, mss, kind);

	if (!m)
		return NULL;
	if (!sent_add(&flight_begin(s, c)->sent, &s->sent, end - from,
	              s->now_ns)) { /* too many ranges */
		rte_pktmbuf_free(m);
		return no_buffer(s, c);
	}
	if (end - from < c->mss || (kind == KIND_LARGE && (end - from) % piece_of(s, c) != 0))
		c->small_end = end;
	c->snd_nxt = end;
	c->flags &= ~(uint32_t)C_PROBED; /* the probe's byte is in a range now */
	recovery_sent(s, c, end - from);
	if (end == c->unsent.end || end - from < c->mss)
		c->flags &= ~(uint32_t)C_CORK_OVER;
	return m;
}

/* Something goes after an idle time: the window is restarted before it says how much, as a large
 * segment may be all of it (RFC 5681 4.1). */
static void window_restart(const struct sy_stack *s, struct connection *c)
{
	if (!c->flight)
		congestion_idle(&c->congestion, s->now_ms - c->congestion.seen_ms,
		                rtt_timeout_ms(&c->rtt));
}

static struct rte_mbuf *new_next(struct sy_stack *s, struct connection *c, uint32_t pieces)
{
	uint32_t to = new_end(c), room, large;

	if (to == c->snd_nxt)
		return NULL;
	window_restart(s, c);
	room = recovery_room(s, c);
	/* Whole segments; but if nothing is under way, something always goes. */
	if (room < to - c->snd_nxt && room < c->mss && flight_bytes(s, c) > 0)
		return NULL;
	if (to - c->snd_nxt == c->mss && large_may(s, c) &&
	    (large = large_end(s, c, room, pieces)) != c->snd_nxt)
		return range_new(s, c, large, c->mss, KIND_LARGE);
	return range_new(s, c, to, c->mss, KIND_NEW);
}

static struct rte_mbuf *lost_again(struct sy_stack *s, struct connection *c)
{
	uint32_t from, to;

	if (!c->flight || !sent_next_lost(&flight_of(s, c)->sent, &s->sent, &from, &to))
		return NULL;
	/* A segment is the least that is sent, whatever is left of the allowance. */
	if (recovery_room(s, c) == 0 || recovery_holds(s, c, new_end(c) != c->snd_nxt))
		return NULL;
	/* What a window that has shrunk leaves out waits, but for the first (RFC 9293 3.8.6). */
	if (from != c->snd_una && seq_after(from, c->snd_una + c->snd_wnd))
		return NULL;
	return range_again(s, c, from, to);
}

static struct rte_mbuf *probe_next(struct sy_stack *s, struct connection *c)
{
	uint32_t payload = path_probe_room(s, c), from = c->snd_nxt;
	struct rte_mbuf *m;

	if (payload == 0)
		return NULL;
	window_restart(s, c);
	m = range_new(s, c, from + payload, payload, KIND_NEW);
	if (m) {
		s->counters.path_probes++;
		path_probe_sent(c, from, payload, c->snd_nxt - from);
	}
	return m;
}

/* ---- all of a connection --------------------------------------------------------------------- */

/* pieces: of a large one, at most. */
static struct rte_mbuf *emit_next(struct sy_stack *s, struct connection *c, uint32_t pieces)
{
	struct rte_mbuf *m = lost_again(s, c);

	if (m)
		return m;
	if (c->state == SY_STACK_SYN_SENT || c->state == SY_STACK_SYN_RECEIVED)
		return c->snd_nxt == c->snd_una ? range_new(s, c, c->snd_una + 1, c->mss, KIND_NEW)
		                                : NULL;
	m = probe_next(s, c);
	return m ? m : new_next(s, c, pieces);
}

/* May a segment with bytes leave now? Else the timer wakes the connection. */
static bool pace_admits(struct sy_stack *s, struct connection *c)
{
	uint32_t wait_ms = pace_wait_us(s, c), due;

	if (SY_LIKELY(wait_ms == 0))
		return true;
	wait_ms /= 1000; /* timer_set() adds one */
	due = s->now_ms + wait_ms + 1;
	if (!timer_is_set(c, TIMER_REORDER) || sy_seq_before(due, c->due_ms[TIMER_REORDER]))
		timer_set(s, c, TIMER_REORDER, wait_ms);
	return false;
}

unsigned emit(struct sy_stack *s, struct connection *c, struct rte_mbuf **out, unsigned most,
              unsigned turn)
{
	unsigned count = 0;
	uint32_t sent = c->snd_nxt, again = c->retransmitted, pieces = 0;

	while (count < most && pieces < turn && pace_admits(s, c) &&
	       (out[count] = emit_next(s, c, turn < EMIT_TURN ? turn - pieces : PIECES_MOST)) !=
	               NULL) {
		const struct rte_mbuf *m = out[count++];
		uint32_t more = segment_pieces(m) - 1, bytes = m->pkt_len;
		if (SY_UNLIKELY(more > 0))
			bytes += more * segment_headers(m);
		pieces += more + 1;
		pace_sent(s, c, bytes);
	}
	if (pieces >= turn) /* maybe more: after the others */
		connection_wants(s, c);
	if (c->flags & C_ACK_NOW && count < most) {
		out[count] = ack_make(s, c, c->snd_nxt, SY_TCP_ACK);
		count += out[count] != NULL;
	}
	if (sent != c->snd_nxt || again != c->retransmitted) {
		/* RFC 6298 5.1: if it does not run. For what is first, the persist timer may. */
		if (!timer_is_set(c, TIMER_RETRANSMIT) || sent == c->snd_una)
			timer_retransmit_set(s, c);
	} else if (c->snd_una == c->snd_nxt && emit_waiting(c) > 0 &&
	           !timer_is_set(c, TIMER_RETRANSMIT)) {
		timer_retransmit_set(s, c); /* the persist timer */
	}
	return count;
}

/* ---- before all others ----------------------------------------------------------------------- */

void emit_ack_loose(struct sy_stack *s, struct connection *c)
{
	stack_send_loose(s, ack_make(s, c, c->snd_nxt, SY_TCP_ACK));
}

void emit_syn_again(struct sy_stack *s, struct connection *c)
{
	if (c->snd_nxt != c->snd_una) /* else the first is still to be sent */
		stack_send_loose(s, range_again(s, c, c->snd_una, c->snd_nxt));
}

void emit_reset(struct sy_stack *s, struct connection *c)
{
	s->counters.resets_out++;
	stack_send_loose(s, ack_make(s, c, c->snd_nxt, SY_TCP_RST | SY_TCP_ACK));
}

void emit_keepalive(struct sy_stack *s, struct connection *c)
{
	stack_send_loose(s, ack_make(s, c, c->snd_una - 1, SY_TCP_ACK));
}

void emit_window_probe(struct sy_stack *s, struct connection *c)
{
	uint32_t to = new_end(c);

	if (to != c->snd_nxt) {
		connection_wants(s, c);
		return;
	}
	if (seq_after(c->unsent.end, c->snd_nxt)) {
		struct segment_plan plan = plan_make(s, c, c->snd_nxt, SY_TCP_ACK);
		plan.len = 1;
		c->flags |= C_PROBED;
		stack_send_loose(s, plan_finish(s, c, &plan));
	}
}

bool emit_tail_probe(struct sy_stack *s, struct connection *c)
{
	uint32_t to = new_end(c), from;
	bool again = to == c->snd_nxt;
	struct rte_mbuf *m;

	if (again) {
		sent_probe_range(&flight_of(s, c)->sent, c->mss, &from, &to);
		m = range_again(s, c, from, to);
	} else {
		m = range_new(s, c, to, c->mss, KIND_NEW);
	}
	if (m)
		sent_probed(&flight_of(s, c)->sent, again);
	stack_send_loose(s, m);
	return m != NULL;
}
