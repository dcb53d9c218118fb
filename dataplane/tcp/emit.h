// SPDX-License-Identifier: Apache-2.0
/* Output: what to send now, and its segments (RFC 9293 3.8, RFC 1122 4.2.3, RFC 896, RFC 3168). */
#ifndef EMIT_H
#define EMIT_H

#include <stdbool.h>
#include <stdint.h>

struct rte_mbuf;
struct sy_stack;
struct connection;

/* Segments of a connection per quota; TSO pieces count. The last large segment of a quota is sent
 * whole, except for connections that more urgent ones have passed: those send at most EMIT_PASSED
 * pieces. */
#define EMIT_QUOTA  16
#define EMIT_PASSED 2 /* of a connection passed by more urgent ones */

/* Emits up to `max` segments within a quota (EMIT_*). Returns their number. */
unsigned emit(struct sy_stack *s, struct connection *c, struct rte_mbuf **out, unsigned max,
              unsigned quota);

/* Control segments: queued before those of all connections. */
void emit_ack_now(struct sy_stack *s, struct connection *c);
/* Retransmits SYN or SYN-ACK after a retransmitted SYN. */
void emit_syn_retransmit(struct sy_stack *s, struct connection *c);
void emit_reset(struct sy_stack *s, struct connection *c);
/* Sends a keepalive probe (RFC 9293 3.8.4). */
void emit_keepalive(struct sy_stack *s, struct connection *c);
/* Sends a zero-window probe of one byte (RFC 9293 3.8.6.1), or schedules what the window allows. */
void emit_window_probe(struct sy_stack *s, struct connection *c);
/* Sends a tail loss probe (RFC 8985 7.3): new data, or the last segment again. Returns false if
 * nothing was sent. */
bool emit_tail_probe(struct sy_stack *s, struct connection *c);

/* Returns the unsent sequence space: bytes and FIN. */
uint32_t emit_backlog(const struct connection *c);

#endif
