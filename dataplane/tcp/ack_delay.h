// SPDX-License-Identifier: Apache-2.0
/*
 * When is an acknowledgement worth delaying (RFC 9293 3.8.6.3)? When the answer will carry it. A
 * peer that keeps its second short segment back (Nagle) waits for the first one's acknowledgement,
 * and the application for the second segment: then the delay is lost time.
 *
 *     the application has read all       acknowledge, while `patience` lasts
 *     the answer leaves                  patience - 1: at 0 acknowledgements wait for answers
 *     after an acknowledgement the peer sends more, before any answer ┐ patience = DELAY_PATIENCE
 *     the timer had to acknowledge                                    ┘
 *
 * A read and the answer in the same poll iteration are one segment in any case: the read only marks
 * the acknowledgement as due.
 *
 * Linux does the same on reading (tcp_cleanup_rbuf), but one answer within 40 ms makes it delay
 * again (tcp_pingpong_thresh), so each request of two short segments takes 40 ms. Here a useless
 * delay is remembered. Linux' quick acknowledgements of a connection's first segments are here
 * those of the first reads: they take no segment where the answer is ready.
 */
#ifndef ACK_DELAY_H
#define ACK_DELAY_H

#include <stdbool.h>
#include <stdint.h>

#define DELAY_FIRST    1  /* as Linux' tcp_pingpong_thresh */
#define DELAY_PATIENCE 8  /* answers */
#define DELAY_QUICK    16 /* segments of a connection, as Linux' TCP_MAX_QUICKACKS */

struct delay {
	uint8_t patience : 4; /* answers until acknowledgements wait for them */
	bool pushed : 1;      /* a short segment came, or PSH, since the last acknowledgement */
	bool acked_read : 1;  /* the last one was for a read, and nothing was sent or came since */
};
_Static_assert(sizeof(struct delay) == 1, "a connection has no more room");

/* Data has come in order. is_last: nothing need follow it, as it is short, or has PSH. */
static inline void delay_arrived(struct delay *d, bool is_last)
{
	d->pushed |= is_last;
	if (d->acked_read) /* the peer has waited for it */
		d->patience = DELAY_PATIENCE;
	d->acked_read = false;
}

/* The application has read all; an acknowledgement is delayed. Returns true if it is due.
 * received: bytes, since the connection began. */
static inline bool delay_read(struct delay *d, uint64_t received, uint32_t mss)
{
	if (d->patience == 0 || !(d->pushed || received <= (uint64_t)DELAY_QUICK * mss))
		return false;
	d->acked_read = true;
	return true;
}

/* A segment with an acknowledgement leaves. is_due: it was delayed, or due. */
static inline void delay_acknowledged(struct delay *d, bool has_data, bool is_due)
{
	d->pushed = false;
	if (!has_data)
		return;
	if (d->patience > 0 && (is_due || d->acked_read))
		d->patience--;
	d->acked_read = false;
}

/* The timer acknowledges: no answer came in time. */
static inline void delay_expired(struct delay *d)
{
	d->patience = DELAY_PATIENCE;
}

#endif
