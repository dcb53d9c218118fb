// SPDX-License-Identifier: Apache-2.0
/* Segment arrival, in the order of steps of RFC 9293 3.10.7.3 and 3.10.7.4. */
#ifndef ARRIVE_H
#define ARRIVE_H

#include "segment.h"

struct sy_stack;
struct connection;

/* Processes a segment of a connection, which may be freed. A segment that is unacceptable or
 * answered by a challenge ACK changes no state. */
void arrive(struct sy_stack *s, struct connection *c, struct segment *seg);

/* SYN-SENT (3.10.7.3). */
void arrive_syn_sent(struct sy_stack *s, struct connection *c, struct segment *seg);

/* Step 5, ACK: the last check and the first step that changes state. Returns false if processing
 * ends here; the connection may be freed. */
bool arrive_ack(struct sy_stack *s, struct connection *c, const struct segment *seg);
/* Updates SND.WND (RFC 9293 3.10.7.4). */
void arrive_window(struct sy_stack *s, struct connection *c, const struct segment *seg);

/* The segment has passed steps 1 to 5. Only now may it update TS.Recent (RFC 7323 5.3), keepalive
 * and client address: an off-path attacker could set them earlier. */
void segment_accept(struct sy_stack *s, struct connection *c, const struct segment *seg);

/* Steps 6 to 8: URG, payload, FIN. Returns false if the connection was freed. */
bool arrive_text(struct sy_stack *s, struct connection *c, struct segment *seg);

/* Sends a challenge ACK (RFC 5961), rate-limited (RFC 5961 7). */
void arrive_challenge(struct sy_stack *s, struct connection *c);
/* Schedules an ACK: now, or by the delayed-ACK timer. */
void ack_schedule(struct sy_stack *s, struct connection *c, bool now);

#endif
