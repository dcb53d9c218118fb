// SPDX-License-Identifier: Apache-2.0
/* Timers of a connection. */
#ifndef TIMER_H
#define TIMER_H

#include "connection.h"

#define TIMER_ACK_MS  40      /* RFC 9293 3.8.6.3: below 500 ms */
#define ORPHAN_MS     100000u /* R2 of RFC 9293 3.8.3; about the duration of Linux' 8 retries */
#define FIN_WAIT_2_MS 60000u  /* orphans wait no longer for the peer's FIN */

/* Sets the deadline, delay_ms from now. Moves the wheel's entry only if it would be late. */
void timer_set(struct sy_stack *s, struct connection *c, enum timer timer, uint32_t delay_ms);

static inline void timer_clear(struct connection *c, enum timer timer)
{
	c->armed &= (uint8_t) ~(1u << timer);
}

static inline bool timer_is_set(const struct connection *c, enum timer timer)
{
	return c->armed >> timer & 1;
}

/* Restarts the retransmission or persist timer (RFC 6298 5). */
void timer_retransmit_set(struct sy_stack *s, struct connection *c);

/* Notes the RTT of a spurious time-out for the shared minimum RTO. */
void rto_floor_note_spurious(struct sy_stack *s, uint32_t us);
/* Notes that the peer responded within the minimum RTO. first: to the handshake. Counts a
 * connection once per second; call it before the connection processes the ACK. */
void rto_floor_note_quick(struct sy_stack *s, const struct connection *c, bool first);

/* Runs the connection's due timers. */
void timer_run(struct sy_stack *s, struct connection *c);

#endif
