// SPDX-License-Identifier: Apache-2.0
/* Loss: when recovery begins and ends, and what the window is meanwhile (RFC 6675, RFC 6582,
 * RFC 8985, RFC 6937, RFC 3168). */
#ifndef RECOVERY_H
#define RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "flight.h"

struct sy_stack;
struct connection;

/* Bytes that may be sent now. */
uint32_t recovery_room(const struct sy_stack *s, const struct connection *c);
/* Nothing is sent again until the next ACK, but new segments: F-RTO (RFC 5682 2.1). may_new: one
 * may go now; without any, recovery is the usual one. */
bool recovery_holds(struct sy_stack *s, struct connection *c, bool may_new);
/* Bytes were sent, new or again. */
void recovery_sent(struct sy_stack *s, struct connection *c, uint32_t bytes);

/* What an acknowledgement meant. ece: the peer tells of congestion. */
void recovery_acked(struct sy_stack *s, struct connection *c, const struct sent_news *news,
                    bool ece);
/* A duplicate of a peer without SACK. Returns the bytes that count as delivered. */
uint32_t recovery_duplicate(struct sy_stack *s, struct connection *c);
/* Looks for losses now. */
void recovery_look(struct sy_stack *s, struct connection *c);
/* The retransmission time is over. */
void recovery_timed_out(struct sy_stack *s, struct connection *c);

#endif
