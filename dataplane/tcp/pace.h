// SPDX-License-Identifier: Apache-2.0
/*
 * Pacing: segments leave evenly over a round trip, not in the bursts in which acknowledgements let
 * them go (RFC 9002 7.7 has the factors: a little faster than the window, so that the window and
 * not the pace is what holds back). An application may want it slower still.
 *
 *     pace_us      when the next segment may leave, in microseconds modulo 2^32
 *
 * The wheel's ticks are 1 ms and a timer is a tick late, so what was missed is made up for:
 * PACE_LATE_US at most, which is also the largest burst after a silence.
 */
#ifndef PACE_H
#define PACE_H

#include "stack.h"

#define PACE_LATE_US 2000
#define PACE_MOST_US 1000000 /* that a segment waits for the one before it */

static inline uint32_t pace_now_us(const struct sy_stack *s)
{
	return (uint32_t)(s->now_ns / 1000);
}

/* How many microseconds the connection has to wait; 0: it may send. */
static inline uint32_t pace_wait_us(const struct sy_stack *s, const struct connection *c)
{
	int32_t wait = (int32_t)(c->pace_us - pace_now_us(s));

	/* More than pace_sent() ever adds is a time of long ago. */
	return c->flags & C_PACED && wait > 0 && wait <= PACE_MOST_US &&
	                       (rtt_smoothed_us(&c->rtt) || c->pace_most)
	               ? (uint32_t)wait
	               : 0;
}

/* So many bytes may leave at once, where the port cuts them: those of a tick of the wheel. */
static inline uint32_t pace_burst(const struct sy_stack *s, const struct connection *c)
{
	const struct congestion *o = &c->congestion;
	uint32_t rtt_us = rtt_smoothed_us(&c->rtt);
	uint64_t bytes = UINT32_MAX;

	if (!(c->flags & C_PACED))
		return UINT32_MAX;
	if (rtt_us) /* at the speed of pace_sent() */
		bytes = (uint64_t)o->window * (congestion_slow_start(o) ? 2000 : 1250) / rtt_us;
	if (c->pace_most && c->pace_most / 1000 < bytes)
		bytes = c->pace_most / 1000;
	return bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
}

/* A segment with so many bytes has left: the next one follows after its part of the round trip,
 * which is half as long in slow start, where the window doubles, and else four fifths. */
static inline void pace_sent(const struct sy_stack *s, struct connection *c, uint32_t bytes)
{
	const struct congestion *o = &c->congestion;
	uint64_t us = (uint64_t)bytes * rtt_smoothed_us(&c->rtt) / (o->window ? o->window : 1);
	uint32_t now = pace_now_us(s);

	if (!(c->flags & C_PACED))
		return;
	int32_t late = (int32_t)(now - c->pace_us);
	if (late > PACE_LATE_US || late < -PACE_MOST_US)
		c->pace_us = now - PACE_LATE_US;
	us = congestion_slow_start(o) ? us / 2 : us * 4 / 5;
	if (c->pace_most && bytes * UINT64_C(1000000) / c->pace_most > us)
		us = bytes * UINT64_C(1000000) / c->pace_most;
	c->pace_us +=
	        us < PACE_MOST_US ? (uint32_t)us : PACE_MOST_US; /* a window below one segment */
}

#endif
