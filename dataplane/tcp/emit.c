// SPDX-License-Identifier: Apache-2.0
/*
 * Output of a connection, in this order:
 *
 *     retransmissions              as recovery allows        (RFC 8985, RFC 6937)
 *     new bytes, then FIN          as both windows allow     (RFC 9293 3.8.6, RFC 5681)
 *     a pure ACK                   if one is due and none of the above carried it
 *
 * SYN and FIN occupy sequence numbers and are retransmitted like bytes.
 *
 * With TSO, new bytes go out in large segments, of which the port makes packets of MSS size
 * (pieces). Retransmissions are single segments: pieces are lost separately.
 */
#include "emit.h"
#include "pace.h"
#include "path_probe.h"
#include "recovery.h"
#include "stack.h"
#include "timer.h"
#include "window.h"

#define RETRY_MS   10  /* retry after a failed allocation */
#define MAX_PIECES 64  /* per large segment: a limit of some drivers */
#define MIN_PIECE  256 /* some NICs drop smaller ones as an attack */

enum kind {
	KIND_NEW,        /* one segment of new bytes, or SYN, FIN */
	KIND_LARGE,      /* TSO: several pieces */
	KIND_RETRANSMIT, /* a retransmission */
};

/* ---- one segment ----------------------------------------------------------------------------- */

static void plan_options(struct sy_stack *s, struct connection *c, struct segment_plan *plan)
{
	struct sy_tcp_options *o = &plan->options;
	bool first =
	        /* A SYN offers all options; a SYN-ACK only those that the SYN offered. */
	        c->state == SY_STACK_SYN_SENT;
	const struct sy_stack_options *own = &s->options;

	o->scale = SY_TCP_NO_SCALE;
	o->timestamps = first ? !own->no_timestamps : c->flags & C_TIMESTAMPS;
	if (o->timestamps) {
		o->time = s->now_ms + c->ts_offset;
		o->echo = plan->flags & SY_TCP_ACK ? c->ts_recent : 0;
	}
	if (plan->flags & SY_TCP_SYN) {
		o->mss = connection_local_mss(s, c);
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

/* Plans a segment without payload and advances the offered window. */
static struct segment_plan plan_make(struct sy_stack *s, struct connection *c, uint32_t seq,
                                     uint8_t flags)
{
	struct segment_plan plan = {.from_peer = &c->tuple,
	                            .seq = seq,
	                            .ack = c->rcv_nxt,
	                            .flags = flags,
	                            .tos = c->tos & (uint8_t)~IP_ECN,
	                            .fragile = !path_mtu_needs_df(&c->path_mtu)};

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

/* Schedules a retry by timer. */
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
	} while (SY_UNLIKELY(!m) && stack_reclaim(s));
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

/* Sets PSH, URG and ECN of a segment with payload. */
static void plan_text(struct connection *c, struct segment_plan *plan, bool again)
{
	uint32_t end = plan->seq + plan->len;

	if (end == c->unsent.end || (end == c->cork_from && connection_is_corked(c)))
		plan->flags |= SY_TCP_PSH;
	if (c->flags & C_URGENT_OUT && seq_after(c->urgent_out, plan->seq)) {
		uint32_t ahead = c->urgent_out - plan->seq;
		plan->flags |= SY_TCP_URG;
		plan->urgent = ahead < UINT16_MAX ? (uint16_t)ahead : UINT16_MAX;
	}
	if (c->flags & C_ECN && !again) { /* RFC 3168 6.1.5: retransmissions are not ECT */
		plan->tos |= IP_ECT0;
		if (c->flags & C_SEND_CWR) {
			plan->flags |= TCP_CWR;
			c->flags &= ~(uint32_t)C_SEND_CWR;
		}
	}
}

/* The size of a connection's pieces: even (segment.c). */
static uint16_t piece_of(const struct sy_stack *s, const struct connection *c)
{
	uint32_t piece = c->mss, frame = s->options.tso.frame, headers = connection_headers(c);

	if (frame && piece + headers > frame)
		piece = frame > headers ? frame - headers : 0;
	return (uint16_t)(piece & ~1u);
}

/* Falls back to the first piece of a large segment if there are too few buffers. */
static struct rte_mbuf *piece_make(struct sy_stack *s, struct connection *c,
                                   struct segment_plan *plan, uint32_t *end)
{
	plan->len = plan->piece;
	plan->piece = 0;
	plan->flags &= (uint8_t) ~(SY_TCP_PSH | SY_TCP_FIN);
	*end = plan->seq + plan->len;
	return plan_finish(s, c, plan);
}

/* Builds a segment of the sequence range *from to `to` and advances *from. SYN, bytes and FIN
 * follow from the sequence numbers. Limited to mss minus options, except for large segments. */
static struct rte_mbuf *range_make(struct sy_stack *s, struct connection *c, uint32_t *from,
                                   uint32_t to, uint32_t mss, enum kind kind)
{
	bool syn = c->state == SY_STACK_SYN_SENT || c->state == SY_STACK_SYN_RECEIVED;
	uint8_t flags = syn && c->state == SY_STACK_SYN_SENT ? SY_TCP_SYN
	                : syn                                ? SY_TCP_SYN | SY_TCP_ACK
	                                                     : SY_TCP_ACK;
	struct segment_plan plan = plan_make(s, c, *from, flags);
	uint32_t end = *from + syn, space;

	if (!syn) {
		space = mss - (plan.blocks ? 4 + 8u * plan.blocks : 0);
		end = seq_after(to, c->unsent.end) ? c->unsent.end : to;
		if (kind == KIND_LARGE)
			plan.piece = piece_of(s, c);
		else if (end - *from > space)
			end = *from + space;
		plan.len = end - *from;
		if (plan.len > 0)
			plan_text(c, &plan, kind == KIND_RETRANSMIT);
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

/* ---- retransmissions ------------------------------------------------------------------------- */

static struct rte_mbuf *range_retransmit(struct sy_stack *s, struct connection *c, uint32_t from,
                                         uint32_t to)
{
	uint32_t end = from;
	struct rte_mbuf *m = range_make(s, c, &end, to, c->mss, KIND_RETRANSMIT);

	if (!m)
		return NULL;
	sent_retransmitted(&flight_of(s, c)->sent, &s->sent, from, end, s->now_ns);
	recovery_sent(s, c, end - from);
	c->retransmitted++;
	s->counters.retransmitted++;
	return m;
}

/* ---- new data -------------------------------------------------------------------------------- */

uint32_t emit_backlog(const struct connection *c)
{
	uint32_t end = c->unsent.end + !!(c->flags & C_FIN_WANTED);

	return c->state >= SY_STACK_ESTABLISHED && seq_after(end, c->snd_nxt) ? end - c->snd_nxt
	                                                                      : 0;
}

/* Sender's silly window avoidance (RFC 9293 3.8.6.2.1) and Nagle (3.7.4): may this partial segment
 * be sent? all: it contains all queued bytes. */
static inline __attribute__((always_inline)) bool short_may_go(const struct connection *c,
                                                               uint32_t len, bool all)
{
	if (len > 0 && len >= c->snd_wnd_max / 2)
		return true;
	if (!all) /* limited by the window; the override timer is case (4) */
		return c->flags & C_CORK_OVER;
	if (c->flags & (C_FIN_WANTED | C_CORK_OVER | C_URGENT_OUT))
		return true;
	if (c->flags & (C_CORK | C_MORE))
		return false;
	return connection_may_short(c);
}

/* Returns the end of the bytes before a cork or MSG_MORE, if they may be sent now; otherwise
 * SND.NXT. */
static uint32_t pushed_end(const struct connection *c)
{
	uint32_t pushed = c->cork_from - c->snd_nxt, bytes = c->unsent.end - c->snd_nxt;

	return connection_is_corked(c) && pushed <= bytes && connection_may_short(c) ? c->cork_from
	                                                                             : c->snd_nxt;
}

/* Returns the end of the next new segment; SND.NXT: none. */
static uint32_t new_end(const struct connection *c)
{
	uint32_t waiting = emit_backlog(c), edge = c->snd_una + c->snd_wnd, open, len;
	uint32_t bytes = seq_after(c->unsent.end, c->snd_nxt) ? c->unsent.end - c->snd_nxt : 0;

	if (waiting == 0)
		return c->snd_nxt;
	if (bytes == 0) /* a FIN needs no window */
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

/* Returns true if TSO may be used. Not with CWR or URG, which the port would copy into each piece,
 * nor with SACK blocks, which would take space in each. */
static bool large_may(const struct sy_stack *s, const struct connection *c)
{
	const struct sy_stack_tso *t = &s->options.tso;

	return s->max_large > 0 && (connection_v4(c) ? t->ipv4 : t->ipv6) && !s->scarce &&
	       !(c->flags & (C_SEND_CWR | C_URGENT_OUT)) && path_mtu_needs_df(&c->path_mtu) &&
	       c->arrived.blocks == 0 && c->arrived.duplicate.from == c->arrived.duplicate.to;
}

static uint32_t min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Returns the end of a large segment: whole pieces, at most `pieces`, within both windows and one
 * tick of pacing; with a partial piece at the end if it is the last data and may be sent. SND.NXT:
 * send a single segment. */
static uint32_t large_end(const struct sy_stack *s, const struct connection *c, uint32_t space,
                          uint32_t pieces)
{
	uint32_t piece = piece_of(s, c), bytes = c->unsent.end - c->snd_nxt, max, whole;

	if (piece < MIN_PIECE)
		return c->snd_nxt;
	max = min(bytes, c->snd_una + c->snd_wnd - c->snd_nxt);
	max = min(max, min(space, pace_burst(s, c)));
	max = min(max, min(s->max_large, pieces * piece));
	whole = max - max % piece;
	if (whole < 2 * piece)
		return c->snd_nxt;
	if (max == bytes && (whole == bytes || short_may_go(c, bytes - whole, true)))
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
	              s->now_ns)) { /* no range left */
		rte_pktmbuf_free(m);
		return no_buffer(s, c);
	}
	if (end - from < c->mss || (kind == KIND_LARGE && (end - from) % piece_of(s, c) != 0))
		c->small_end = end;
	c->snd_nxt = end;
	c->flags &= ~(uint32_t)C_PROBED; /* a range now covers the probe's byte */
	recovery_sent(s, c, end - from);
	if (end == c->unsent.end || end - from < c->mss)
		c->flags &= ~(uint32_t)C_CORK_OVER;
	return m;
}

/* RFC 5681 4.1: restart the window after an idle time, before it is used as a limit. */
static void window_restart(const struct sy_stack *s, struct connection *c)
{
	if (!c->flight)
		congestion_idle(&c->congestion, s->now_ms - c->congestion.seen_ms,
		                rtt_timeout_ms(&c->rtt));
}

static struct rte_mbuf *new_next(struct sy_stack *s, struct connection *c, uint32_t pieces)
{
	uint32_t to = new_end(c), space, large;

	if (to == c->snd_nxt)
		return NULL;
	window_restart(s, c);
	space = recovery_sendable(s, c);
	/* Send whole segments, but always something if nothing is in flight. */
	if (space < to - c->snd_nxt && space < c->mss && flight_bytes(s, c) > 0)
		return NULL;
	if (to - c->snd_nxt == c->mss && large_may(s, c) &&
	    (large = large_end(s, c, space, pieces)) != c->snd_nxt)
		return range_new(s, c, large, c->mss, KIND_LARGE);
	return range_new(s, c, to, c->mss, KIND_NEW);
}

static struct rte_mbuf *lost_retransmit(struct sy_stack *s, struct connection *c)
{
	uint32_t from, to;

	if (!c->flight || !sent_next_lost(&flight_of(s, c)->sent, &s->sent, &from, &to))
		return NULL;
	/* Any allowance above 0 permits a whole segment. */
	if (recovery_sendable(s, c) == 0 || recovery_holds(s, c, new_end(c) != c->snd_nxt))
		return NULL;
	/* RFC 9293 3.8.6: beyond a shrunken window, retransmit only the first segment. */
	if (from != c->snd_una && seq_after(from, c->snd_una + c->snd_wnd))
		return NULL;
	return range_retransmit(s, c, from, to);
}

static struct rte_mbuf *probe_next(struct sy_stack *s, struct connection *c)
{
	uint32_t payload = path_probe_payload(s, c), from = c->snd_nxt;
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

/* ---- one poll iteration of a connection ------------------------------------------------------ */

/* pieces: limit for a large segment. */
static struct rte_mbuf *emit_next(struct sy_stack *s, struct connection *c, uint32_t pieces)
{
	struct rte_mbuf *m = lost_retransmit(s, c);

	if (m)
		return m;
	if (c->state == SY_STACK_SYN_SENT || c->state == SY_STACK_SYN_RECEIVED)
		return c->snd_nxt == c->snd_una ? range_new(s, c, c->snd_una + 1, c->mss, KIND_NEW)
		                                : NULL;
	m = probe_next(s, c);
	return m ? m : new_next(s, c, pieces);
}

/* Returns true if pacing permits a segment now; otherwise sets the timer. */
static bool pace_allows(struct sy_stack *s, struct connection *c)
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

unsigned emit(struct sy_stack *s, struct connection *c, struct rte_mbuf **out, unsigned max,
              unsigned quota)
{
	unsigned count = 0;
	uint32_t sent = c->snd_nxt, again = c->retransmitted, pieces = 0;

	while (count < max && pieces < quota && pace_allows(s, c) &&
	       (out[count] = emit_next(s, c, quota < EMIT_QUOTA ? quota - pieces : MAX_PIECES)) !=
	               NULL) {
		const struct rte_mbuf *m = out[count++];
		uint32_t more = segment_pieces(m) - 1, bytes = m->pkt_len;
		if (SY_UNLIKELY(more > 0))
			bytes += more * segment_headers(m);
		pieces += more + 1;
		pace_sent(s, c, bytes);
	}
	if (pieces >= quota) /* requeue behind the other connections */
		connection_schedule(s, c);
	if (c->flags & C_ACK_NOW && count < max) {
		out[count] = ack_make(s, c, c->snd_nxt, SY_TCP_ACK);
		count += out[count] != NULL;
	}
	if (sent != c->snd_nxt || again != c->retransmitted) {
		/* RFC 6298 5.1: start it if it is not running. At SND.UNA it may run as persist
		 * timer. */
		if (!timer_is_set(c, TIMER_RETRANSMIT) || sent == c->snd_una)
			timer_retransmit_set(s, c);
	} else if (c->snd_una == c->snd_nxt && emit_backlog(c) > 0 &&
	           !timer_is_set(c, TIMER_RETRANSMIT)) {
		timer_retransmit_set(s, c); /* persist timer */
	}
	return count;
}

/* ---- control segments ------------------------------------------------------------------------ */

void emit_ack_now(struct sy_stack *s, struct connection *c)
{
	stack_send_control(s, ack_make(s, c, c->snd_nxt, SY_TCP_ACK));
}

void emit_syn_retransmit(struct sy_stack *s, struct connection *c)
{
	if (c->snd_nxt != c->snd_una) /* otherwise the SYN is still queued */
		stack_send_control(s, range_retransmit(s, c, c->snd_una, c->snd_nxt));
}

void emit_reset(struct sy_stack *s, struct connection *c)
{
	s->counters.resets_out++;
	stack_send_control(s, ack_make(s, c, c->snd_nxt, SY_TCP_RST | SY_TCP_ACK));
}

void emit_keepalive(struct sy_stack *s, struct connection *c)
{
	stack_send_control(s, ack_make(s, c, c->snd_una - 1, SY_TCP_ACK));
}

void emit_window_probe(struct sy_stack *s, struct connection *c)
{
	uint32_t to = new_end(c);

	if (to != c->snd_nxt) {
		connection_schedule(s, c);
		return;
	}
	if (seq_after(c->unsent.end, c->snd_nxt)) {
		struct segment_plan plan = plan_make(s, c, c->snd_nxt, SY_TCP_ACK);
		plan.len = 1;
		c->flags |= C_PROBED;
		stack_send_control(s, plan_finish(s, c, &plan));
	}
}

bool emit_tail_probe(struct sy_stack *s, struct connection *c)
{
	uint32_t to = new_end(c), from;
	bool again = to == c->snd_nxt;
	struct rte_mbuf *m;

	if (again) {
		sent_probe_range(&flight_of(s, c)->sent, c->mss, &from, &to);
		m = range_retransmit(s, c, from, to);
	} else {
		m = range_new(s, c, to, c->mss, KIND_NEW);
	}
	if (m)
		sent_probed(&flight_of(s, c)->sent, again);
	stack_send_control(s, m);
	return m != NULL;
}
