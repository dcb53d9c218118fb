// SPDX-License-Identifier: Apache-2.0
/* State of a connection with data in flight, allocated only then: idle connections use no memory
 * for it, and active ones share cells that are warm in the cache. Learned state (reordering) is
 * lost, but soon learned again. */
#ifndef FLIGHT_H
#define FLIGHT_H

#include "prr.h"
#include "sent.h"

struct sy_stack;
struct connection;

/* A cell of a pool that has one per connection. */
union flight {
	struct pool_cell cell;
	struct {
		struct sent sent;
		struct prr prr;
	};
};

/* Requires that the connection has one. */
union flight *flight_of(const struct sy_stack *s, const struct connection *c);
/* Allocates it at the first transmission, from SND.NXT on. */
union flight *flight_begin(struct sy_stack *s, struct connection *c);
/* Frees it: everything is acknowledged, or discarded. */
void flight_end(struct sy_stack *s, struct connection *c);
/* RFC 6675's pipe, in bytes. */
uint32_t flight_bytes(const struct sy_stack *s, const struct connection *c);

#endif
