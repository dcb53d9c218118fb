// SPDX-License-Identifier: Apache-2.0
/*
 * Of a stream of full segments, an acknowledgement for each eight. On a fast link they come one by
 * one to a core that polls, and each second one would be answered by a packet, which costs more
 * than all else that is done for the two. Other receivers see such a stream in pieces of up to 64
 * KB, which their drivers have put together (GRO), and acknowledge these.
 *
 *     streak ≥ HOLD_AFTER     it is a stream
 *     eight are there         acknowledged at once
 *     HOLD_NS have passed     acknowledged; and if that were fewer than four, each second one of
 * the next HOLD_AFTER is
 *
 * Eight are what a sender counts in slow start (RFC 9406 4.2).
 */
#ifndef HOLD_H
#define HOLD_H

#include <stdbool.h>
#include <stdint.h>

#define HOLD_MOST     16 /* connections at a time */
#define HOLD_AFTER    64 /* segments */
#define HOLD_SEGMENTS 8
#define HOLD_FEW      4
#define HOLD_NS       30000
#define HOLD_PAID     0x80 /* in `streak`: eight came in time */

struct sy_stack;
struct connection;

/* A segment of so many bytes has come in order. True: it and others before it are acknowledged
 * later. */
bool hold_may(struct sy_stack *s, struct connection *c, uint32_t len);
/* Their time is over: what they have got is acknowledged. */
void hold_end(struct sy_stack *s);

#endif
