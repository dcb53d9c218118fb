// SPDX-License-Identifier: Apache-2.0
/* What is due for a connection. */
#ifndef TIMER_H
#define TIMER_H

#include "connection.h"

#define TIMER_ACK_MS  40      /* RFC 9293 3.8.6.3: below 500 ms */
#define ORPHAN_MS     100000u /* R2 of RFC 9293 3.8.3, and what Linux' 8 attempts take */
#define FIN_WAIT_2_MS 60000u  /* without an application nobody waits longer for the peer's FIN */

/* Sets the deadline, delay_ms from now. The place in the wheel moves only if it is too late. */
void timer_set(struct sy_stack *s, struct connection *c, enum timer timer, uint32_t delay_ms);

static inline void timer_clear(struct connection *c, enum timer timer)
{
	c->armed &= (uint8_t) ~(1u << timer);
}

static inline bool timer_is_set(const struct connection *c, enum timer timer)
{
	return c->armed >> timer & 1;
}

/* The retransmission timer for what is under way, or waits for a window; restarts it (RFC 6298 5).
 */
void timer_retransmit_set(struct sy_stack *s, struct connection *c);

/* A time-out was spurious: the answer came after so long. */
void timer_late(struct sy_stack *s, uint32_t us);
/* An answer came so soon that no time-out could have passed. first: it is the handshake's. Counts
 * once in a second for each connection; call it before the connection takes the answer. */
void timer_quick(struct sy_stack *s, const struct connection *c, bool first);

/* The connection's place in the wheel has come. */
void timer_run(struct sy_stack *s, struct connection *c);

#endif
