// SPDX-License-Identifier: Apache-2.0
/*
 * Pacing spreads segments evenly over the round trip instead of sending bursts on ACKs. The rate is
 * a little above window/RTT (factors of RFC 9002 7.7), so the window remains the limit.
 * SO_MAX_PACING_RATE may lower it.
 *
 *     pace_us      earliest time of the next segment, in microseconds modulo 2^32
 *
 * The wheel ticks in 1 ms and fires up to a tick late; so the pace may catch up by PACE_LATE_US,
 * which is also the largest burst after an idle time.
 */
#ifndef PACE_H
#define PACE_H

#include "stack.h"

#define PACE_LATE_US 2000
#define MAX_PACE_US  1000000 /* max. gap between two segments */

static inline uint32_t pace_now_us(const struct sy_stack *s)
{
	return (uint32_t)(s->now_ns / 1000);
}

/* Returns the microseconds until the next segment may be sent; 0: now. */
static inline uint32_t pace_wait_us(const struct sy_stack *s, const struct connection *c)
{
	int32_t wait = (int32_t)(c->pace_us - pace_now_us(s));

	/* A gap above the maximum is a stale time. */
	return c->flags & C_PACED && wait > 0 && wait <= MAX_PACE_US &&
	                       (rtt_smoothed_us(&c->rtt) || c->max_pace)
	               ? (uint32_t)wait
	               : 0;
}

/* Returns the bytes of one wheel tick, the limit of a TSO segment. */
static inline uint32_t pace_burst(const struct sy_stack *s, const struct connection *c)
{
	const struct congestion *o = &c->congestion;
	uint32_t rtt_us = rtt_smoothed_us(&c->rtt);
	uint64_t bytes = UINT32_MAX;

	if (!(c->flags & C_PACED))
		return UINT32_MAX;
	if (rtt_us) /* the rate of pace_sent() */
		bytes = (uint64_t)o->window * (congestion_slow_start(o) ? 2000 : 1250) / rtt_us;
	if (c->max_pace && c->max_pace / 1000 < bytes)
		bytes = c->max_pace / 1000;
	return bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
}

/* Accounts for a sent segment: the gap is its share of the round trip, times 1/2 in slow start,
 * else 4/5. */
static inline void pace_sent(const struct sy_stack *s, struct connection *c, uint32_t bytes)
{
	const struct congestion *o = &c->congestion;
	uint64_t us = (uint64_t)bytes * rtt_smoothed_us(&c->rtt) / (o->window ? o->window : 1);
	uint32_t now = pace_now_us(s);

	if (!(c->flags & C_PACED))
		return;
	int32_t late = (int32_t)(now - c->pace_us);
	if (late > PACE_LATE_US || late < -MAX_PACE_US)
		c->pace_us = now - PACE_LATE_US;
	us = congestion_slow_start(o) ? us / 2 : us * 4 / 5;
	if (c->max_pace && bytes * UINT64_C(1000000) / c->max_pace > us)
		us = bytes * UINT64_C(1000000) / c->max_pace;
	c->pace_us +=
	        us < MAX_PACE_US ? (uint32_t)us : MAX_PACE_US; /* for windows below one segment */
}

#endif
