// SPDX-License-Identifier: Apache-2.0
#include "hold.h"
#include "arrive.h"
#include "stack.h"

static bool is_held(const struct sy_stack *s, uint32_t index)
{
	for (uint32_t i = 0; i < s->held_count; i++)
		if (s->held[i] == index)
			return true;
	return false;
}

static bool is_stream(struct connection *c, uint32_t len)
{
	if (len < c->rcv_mss) {
		c->streak = 0;
		return false;
	}
	if ((c->streak & ~HOLD_PAID) < HOLD_AFTER)
		c->streak++;
	return (c->streak & ~HOLD_PAID) == HOLD_AFTER;
}

/* The peer must never wait for it. */
static bool window_is_wide(const struct connection *c)
{
	return c->rcv_edge - c->rcv_nxt > 4u * HOLD_SEGMENTS * c->rcv_mss;
}

bool hold_may(struct sy_stack *s, struct connection *c, uint32_t len)
{
	uint32_t index = connection_index(s, c);

	if (!is_stream(c, len) || !s->options.hold_acks || c->flags & (C_QUICK_ACK | C_ECHO_CE))
		return false;
	if (c->rcv_nxt - c->rcv_acked >= (uint32_t)HOLD_SEGMENTS * c->rcv_mss) {
		c->streak |= HOLD_PAID;
		return false;
	}
	if (c->rcv_nxt - c->rcv_acked <= c->rcv_mss)
		return false; /* it may wait for the timer */
	if (is_held(s, index))
		return true;
	if (s->held_count == HOLD_MOST || !window_is_wide(c))
		return false;
	if (s->held_count == 0)
		s->held_ns = s->now_ns + HOLD_NS;
	s->held[s->held_count++] = index;
	s->counters.held++;
	return true;
}

void hold_end(struct sy_stack *s)
{
	for (uint32_t i = 0; i < s->held_count; i++) {
		struct connection *c = &s->connection[s->held[i]];
		uint32_t bytes = c->rcv_nxt - c->rcv_acked;
		if (!(c->streak & HOLD_PAID) && bytes < (uint32_t)HOLD_FEW * c->rcv_mss)
			c->streak = 0;
		c->streak &= (uint8_t)~HOLD_PAID;
		if (c->flags & C_ACK_LATER && bytes > c->rcv_mss)
			arrive_owe(s, c, true);
	}
	s->held_count = 0;
}
