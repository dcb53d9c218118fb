// SPDX-License-Identifier: Apache-2.0
/* The receive window: advertisement with silly window avoidance (RFC 9293 3.8.6.2.2), and
 * autotuning by what the application reads per round trip (dynamic right-sizing, Fisk and Feng).
 * Also the send buffer's limit. */
#ifndef WINDOW_H
#define WINDOW_H

#include <stdint.h>

struct sy_stack;
struct connection;
struct segment;

void window_init(struct sy_stack *s, struct connection *c);
/* The handshake is complete. */
void window_begin(struct sy_stack *s, struct connection *c);
/* Returns the window field for a segment sent now, and advances the advertised right edge. */
uint16_t window_offer(struct sy_stack *s, struct connection *c, uint8_t flags);
/* In-order data arrived. */
void window_arrived(struct sy_stack *s, struct connection *c, const struct segment *seg);
/* The application has read data; may schedule a window update. */
void window_read(struct sy_stack *s, struct connection *c);
/* Returns the limit of the send buffer, bytes. */
uint32_t window_send_limit(const struct sy_stack *s, struct connection *c);

#endif
