// SPDX-License-Identifier: Apache-2.0
/* What to send now, and the segments made (RFC 9293 3.8, RFC 1122 4.2.3, RFC 896, RFC 3168). */
#ifndef EMIT_H
#define EMIT_H

#include <stdbool.h>
#include <stdint.h>

struct rte_mbuf;
struct sy_stack;
struct connection;

/* Segments of a connection before the next one has its turn; pieces of large ones count. The last
 * large one of a turn is whole, but those that are passed have no more than their two pieces. */
#define EMIT_TURN   16
#define EMIT_PASSED 2 /* of one that more urgent ones have passed */

/* Makes up to `most` segments that may be sent now, of a turn (EMIT_*). Returns how many. */
unsigned emit(struct sy_stack *s, struct connection *c, struct rte_mbuf **out, unsigned most,
              unsigned turn);

/* These go before all others. */
void emit_ack_loose(struct sy_stack *s, struct connection *c);
/* The SYN or SYN-ACK again, because the peer asked. */
void emit_syn_again(struct sy_stack *s, struct connection *c);
void emit_reset(struct sy_stack *s, struct connection *c);
/* A keepalive probe (RFC 9293 3.8.4): the peer has to answer. */
void emit_keepalive(struct sy_stack *s, struct connection *c);
/* A byte beyond a closed window (RFC 9293 3.8.6.1), or what the window lets go. */
void emit_window_probe(struct sy_stack *s, struct connection *c);
/* New data if there is any, or the last segment again (RFC 8985 7.3). False: nothing is sent. */
bool emit_tail_probe(struct sy_stack *s, struct connection *c);

/* Bytes and FIN that wait and were not sent yet. */
uint32_t emit_waiting(const struct connection *c);

#endif
