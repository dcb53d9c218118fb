// SPDX-License-Identifier: Apache-2.0
/*
 * Delayed ACKs (RFC 9293 3.8.6.3) pay off if a response carries the ACK. With Nagle, a peer delays
 * its second short segment until the first is acknowledged, and the application waits for the
 * second: then the delay is lost time.
 *
 *     the application has read everything       acknowledge, while `patience` > 0
 *     the response is sent                      patience - 1; at 0, delay ACKs until the response
 *     after an ACK the peer sends more,     ┐
 *     before any response                   │   patience = DELAY_PATIENCE
 *     the delayed-ACK timer fired           ┘
 *
 * A read and a response in one poll iteration share a segment in any case: the read only marks the
 * ACK as due.
 *
 * Linux also acknowledges on reads (tcp_cleanup_rbuf), but resumes delaying after one response
 * within 40 ms (tcp_pingpong_thresh), so each request of two short segments takes 40 ms. This code
 * remembers useless delays. Instead of Linux' quick ACKs for a connection's first segments, it
 * acknowledges the first reads, which costs no segment if the response is ready.
 */
#ifndef ACK_DELAY_H
#define ACK_DELAY_H

#include <stdbool.h>
#include <stdint.h>

#define DELAY_FIRST    1  /* as Linux' tcp_pingpong_thresh */
#define DELAY_PATIENCE 8  /* responses */
#define DELAY_QUICK    16 /* first segments of a connection, as Linux' TCP_MAX_QUICKACKS */

struct delay {
	uint8_t patience : 4; /* responses until ACKs are delayed */
	bool pushed : 1;      /* a short segment or PSH arrived since the last ACK */
	bool acked_read : 1;  /* the last ACK was for a read; nothing was sent or received since */
};
_Static_assert(sizeof(struct delay) == 1, "a connection has no more space");

/* In-order data arrived. is_last: short or PSH, so more need not follow. */
static inline void delay_arrived(struct delay *d, bool is_last)
{
	d->pushed |= is_last;
	if (d->acked_read) /* the peer waited for that ACK */
		d->patience = DELAY_PATIENCE;
	d->acked_read = false;
}

/* The application has read everything and an ACK is delayed. Returns true to send it. received:
 * total bytes. */
static inline bool delay_read(struct delay *d, uint64_t received, uint32_t mss)
{
	if (d->patience == 0 || !(d->pushed || received <= (uint64_t)DELAY_QUICK * mss))
		return false;
	d->acked_read = true;
	return true;
}

/* A segment with an ACK is sent. is_due: the ACK was delayed or due. */
static inline void delay_acknowledged(struct delay *d, bool has_data, bool is_due)
{
	d->pushed = false;
	if (!has_data)
		return;
	if (d->patience > 0 && (is_due || d->acked_read))
		d->patience--;
	d->acked_read = false;
}

/* The delayed-ACK timer fired. */
static inline void delay_expired(struct delay *d)
{
	d->patience = DELAY_PATIENCE;
}

#endif
