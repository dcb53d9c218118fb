// SPDX-License-Identifier: Apache-2.0
/* The receive window: what is offered, without silly steps (RFC 9293 3.8.6.2.2), and how it grows
 * with what the application reads in a round trip (Fisk and Feng's dynamic right-sizing). Also the
 * send buffer's limit. */
#ifndef WINDOW_H
#define WINDOW_H

#include <stdint.h>

struct sy_stack;
struct connection;
struct segment;

void window_init(struct sy_stack *s, struct connection *c);
/* The handshake is done. */
void window_begin(struct sy_stack *s, struct connection *c);
/* The header's field of a segment that is sent now; the right edge moves to what it offers. */
uint16_t window_offer(struct sy_stack *s, struct connection *c, uint8_t flags);
/* Bytes have arrived in order. */
void window_arrived(struct sy_stack *s, struct connection *c, const struct segment *seg);
/* The application has read. The peer may have to know. */
void window_read(struct sy_stack *s, struct connection *c);
/* How many bytes the application may have in its send buffer. */
uint32_t window_send_limit(const struct sy_stack *s, struct connection *c);

#endif
