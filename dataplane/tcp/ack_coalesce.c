// SPDX-License-Identifier: Apache-2.0
#include "ack_coalesce.h"
#include "arrive.h"
#include "stack.h"

static bool is_held(const struct sy_stack *s, uint32_t index)
{
	for (uint32_t i = 0; i < s->coalesced_count; i++)
		if (s->coalesced[i] == index)
			return true;
	return false;
}

static bool is_stream(struct connection *c, uint32_t len)
{
	if (len < c->rcv_mss) {
		c->streak = 0;
		return false;
	}
	if ((c->streak & ~COALESCE_PAID) < COALESCE_AFTER)
		c->streak++;
	return (c->streak & ~COALESCE_PAID) == COALESCE_AFTER;
}

/* The window must stay wide enough that the peer never waits for the ACK. */
static bool window_is_wide(const struct connection *c)
{
	return c->rcv_edge - c->rcv_nxt > 4u * COALESCE_SEGMENTS * c->rcv_mss;
}

bool ack_coalesce(struct sy_stack *s, struct connection *c, uint32_t len)
{
	uint32_t index = connection_index(s, c);

	if (!is_stream(c, len) || !s->options.coalesce_acks || c->flags & (C_QUICK_ACK | C_ECHO_CE))
		return false;
	if (c->rcv_nxt - c->rcv_acked >= (uint32_t)COALESCE_SEGMENTS * c->rcv_mss) {
		c->streak |= COALESCE_PAID;
		return false;
	}
	if (c->rcv_nxt - c->rcv_acked <= c->rcv_mss)
		return false; /* delayed ACK */
	if (is_held(s, index))
		return true;
	if (s->coalesced_count == MAX_COALESCED || !window_is_wide(c))
		return false;
	if (s->coalesced_count == 0)
		s->coalesced_ns = s->now_ns + COALESCE_NS;
	s->coalesced[s->coalesced_count++] = index;
	s->counters.held++;
	return true;
}

void ack_coalesce_flush(struct sy_stack *s)
{
	for (uint32_t i = 0; i < s->coalesced_count; i++) {
		struct connection *c = &s->connection[s->coalesced[i]];
		uint32_t bytes = c->rcv_nxt - c->rcv_acked;
		if (!(c->streak & COALESCE_PAID) && bytes < (uint32_t)COALESCE_FEW * c->rcv_mss)
			c->streak = 0;
		c->streak &= (uint8_t)~COALESCE_PAID;
		if (c->flags & C_ACK_LATER && bytes > c->rcv_mss)
			ack_schedule(s, c, true);
	}
	s->coalesced_count = 0;
}
