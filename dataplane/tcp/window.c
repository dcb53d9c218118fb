// SPDX-License-Identifier: Apache-2.0
#include "window.h"
#include "arrive.h"
#include "stack.h"

#define RECEIVE_FIRST 65535u /* initial limit */
#define SEND_FIRST    65536u
#define MAX_RTT_MS    1000u

void window_init(struct sy_stack *s, struct connection *c)
{
	uint32_t max = s->options.receive_max;

	c->receive_limit = max < RECEIVE_FIRST ? max : RECEIVE_FIRST;
	c->send_limit = s->options.send_max < SEND_FIRST ? s->options.send_max : SEND_FIRST;
}

void window_begin(struct sy_stack *s, struct connection *c)
{
	c->read_seq = c->rcv_nxt;
	c->read_ms = s->now_ms;
	if (c->flags & C_TIMESTAMPS)
		return;
	c->rtt_ms = s->now_ms;
	c->rtt_edge = c->rcv_edge;
}

/* ---- advertisement --------------------------------------------------------------------------- */

static uint32_t window_space(const struct sy_stack *s, const struct connection *c)
{
	uint32_t used = c->received.bytes;

	if (s->receive_queued >= s->options.receive_all)
		return 0;
	return used < c->receive_limit ? c->receive_limit - used : 0;
}

/* RFC 9293 3.8.6.2.2: advance by at least min(half the buffer, MSS). */
static uint32_t window_step(const struct sy_stack *s, const struct connection *c)
{
	uint32_t half = c->receive_limit / 2, mss = connection_local_mss(s, c);

	return half < mss ? half : mss;
}

/* Returns the new right edge if the step suffices, otherwise the present one. */
static uint32_t window_edge(const struct sy_stack *s, const struct connection *c)
{
	uint32_t edge = c->rcv_nxt + window_space(s, c);

	return seq_after(edge, c->rcv_edge) && edge - c->rcv_edge >= window_step(s, c)
	               ? edge
	               : c->rcv_edge;
}

uint16_t window_offer(struct sy_stack *s, struct connection *c, uint8_t flags)
{
	uint8_t scale = flags & SY_TCP_SYN ? 0 : c->rcv_scale; /* RFC 7323 2.2 */
	uint32_t field = (window_edge(s, c) - c->rcv_nxt) >> scale, edge;

	if (field > UINT16_MAX)
		field = UINT16_MAX;
	/* The right edge never moves back: bytes lost to scaling stay acceptable. */
	edge = c->rcv_nxt + (field << scale);
	if (seq_after(edge, c->rcv_edge))
		c->rcv_edge = edge;
	return (uint16_t)field;
}

/* ---- autotuning ------------------------------------------------------------------------------ */

static void rtt_seen(struct connection *c, uint32_t ms)
{
	uint32_t us = (ms ? ms : 1) * 1000;

	if (!c->receive_rtt_us || us < c->receive_rtt_us)
		c->receive_rtt_us = us;
	else
		c->receive_rtt_us += (us - c->receive_rtt_us) / 8;
}

/* Measures the RTT by echoed timestamps, or by the time a window takes to arrive. */
void window_arrived(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	if (c->flags & C_TIMESTAMPS) {
		uint32_t ms = s->now_ms + c->ts_offset - seg->options.echo;
		if (seg->options.timestamps && ms < MAX_RTT_MS && seg->len >= c->rcv_mss)
			rtt_seen(c, ms);
		return;
	}
	if (sy_seq_before(c->rcv_nxt, c->rtt_edge))
		return;
	if (s->now_ms - c->rtt_ms < MAX_RTT_MS)
		rtt_seen(c, s->now_ms - c->rtt_ms);
	c->rtt_edge = c->rcv_edge;
	c->rtt_ms = s->now_ms;
}

/* A window of twice the bytes read per round trip lets the peer double its rate. */
static void window_grow(struct sy_stack *s, struct connection *c)
{
	uint32_t read = c->rcv_nxt - c->received.bytes, now, want;

	if (!c->receive_rtt_us || s->now_ms - c->read_ms < (c->receive_rtt_us + 999) / 1000)
		return;
	now = read - c->read_seq;
	if (now > c->read_round) {
		want = 2 * now + 16u * c->mss;
		if (want > s->options.receive_max)
			want = s->options.receive_max;
		if (want > c->receive_limit && !(c->flags & C_RECEIVE_FIXED) &&
		    s->receive_queued < s->options.receive_all / 2)
			c->receive_limit = want;
		c->read_round = now;
	}
	c->read_seq = read;
	c->read_ms = s->now_ms;
}

void window_read(struct sy_stack *s, struct connection *c)
{
	uint32_t open, edge;

	if (!connection_receives(c))
		return;
	window_grow(s, c);
	open = c->rcv_edge - c->rcv_nxt;
	edge = window_edge(s, c);
	/* Send a window update if the window has at least doubled. */
	if (edge != c->rcv_edge && open <= c->receive_limit / 2 && edge - c->rcv_nxt >= 2 * open)
		ack_schedule(s, c, true);
	else if (c->flags & C_ACK_LATER && c->received.bytes == 0 &&
	         delay_read(&c->delay, c->bytes_received, c->rcv_mss))
		ack_schedule(s, c, true);
}

uint32_t window_send_limit(const struct sy_stack *s, struct connection *c)
{
	uint32_t window = 2 * c->congestion.window;

	if (!(c->flags & C_SEND_FIXED) && window > c->send_limit)
		c->send_limit = window < s->options.send_max ? window : s->options.send_max;
	return c->send_limit;
}
