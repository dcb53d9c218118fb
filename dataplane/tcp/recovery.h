// SPDX-License-Identifier: Apache-2.0
/* Loss recovery: its begin and end, and the window meanwhile (RFC 6675, RFC 6582, RFC 8985, RFC
 * 6937, RFC 3168). */
#ifndef RECOVERY_H
#define RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "flight.h"

struct sy_stack;
struct connection;

/* Returns how many bytes may be sent now. */
uint32_t recovery_sendable(const struct sy_stack *s, const struct connection *c);
/* F-RTO (RFC 5682 2.1): returns true if only new segments may be sent until the next ACK. may_new:
 * one may be sent; without any, falls back to conventional recovery. */
bool recovery_holds(struct sy_stack *s, struct connection *c, bool may_new);
/* Accounts for sent bytes, new or retransmitted. */
void recovery_sent(struct sy_stack *s, struct connection *c, uint32_t bytes);

/* Processes the result of an ACK. ece: it carried ECE. */
void recovery_acked(struct sy_stack *s, struct connection *c, const struct sent_outcome *outcome,
                    bool ece);
/* Processes a duplicate ACK without SACK. Returns the bytes counted as delivered. */
uint32_t recovery_duplicate(struct sy_stack *s, struct connection *c);
/* Runs loss detection. */
void recovery_detect_losses(struct sy_stack *s, struct connection *c);
/* The retransmission timer fired. */
void recovery_timed_out(struct sy_stack *s, struct connection *c);

#endif
