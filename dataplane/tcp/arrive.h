// SPDX-License-Identifier: Apache-2.0
/* A segment arrives, in the order of steps of RFC 9293 3.10.7.3 and 3.10.7.4. */
#ifndef ARRIVE_H
#define ARRIVE_H

#include "segment.h"

struct sy_stack;
struct connection;

/* A segment for a connection. Afterwards the connection may be gone. A segment that is dropped as
 * unacceptable, or answered with a challenge ACK, changes nothing in it. */
void arrive(struct sy_stack *s, struct connection *c, struct segment *seg);

/* The third step of three of an opening side (3.10.7.3). */
void arrive_syn_sent(struct sy_stack *s, struct connection *c, struct segment *seg);

/* Step 5, ACK, of a connection that is open: the last check, and the first step that changes the
 * connection. False: the segment goes no further; the connection may be gone. */
bool arrive_ack(struct sy_stack *s, struct connection *c, const struct segment *seg);
/* The peer's window (RFC 9293 3.10.7.4). */
void arrive_window(struct sy_stack *s, struct connection *c, const struct segment *seg);

/* The segment has passed all checks of steps 1 to 5: it is the peer's. Before them an off-path
 * attacker could set TS.Recent (RFC 7323 5.3), stop keepalive or name the client. */
void segment_accept(struct sy_stack *s, struct connection *c, const struct segment *seg);

/* Steps 6 to 8: URG, the payload, FIN. False: the connection is gone. */
bool arrive_text(struct sy_stack *s, struct connection *c, struct segment *seg);

/* An acknowledgement that shows the peer where we are (RFC 5961 7), within limits. */
void arrive_challenge(struct sy_stack *s, struct connection *c);
/* An acknowledgement is due: at once, or soon. */
void arrive_owe(struct sy_stack *s, struct connection *c, bool now);

#endif
