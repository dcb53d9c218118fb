// SPDX-License-Identifier: Apache-2.0
/* What a connection has under way. An idle one has nothing: the memory belongs to those that send,
 * and is the warmest in the cache. What is forgotten with it (how packets are reordered) is soon
 * learned again. */
#ifndef FLIGHT_H
#define FLIGHT_H

#include "prr.h"
#include "sent.h"

struct sy_stack;
struct connection;

/* A cell of a pool with one for each connection. */
union flight {
	struct pool_cell cell;
	struct {
		struct sent sent;
		struct prr prr;
	};
};

/* Of a connection that has one. */
union flight *flight_of(const struct sy_stack *s, const struct connection *c);
/* Of a connection that begins to send, from SND.NXT on. */
union flight *flight_begin(struct sy_stack *s, struct connection *c);
/* Nothing is under way any more; or what is, is forgotten. */
void flight_end(struct sy_stack *s, struct connection *c);
/* RFC 6675's pipe, in bytes. */
uint32_t flight_bytes(const struct sy_stack *s, const struct connection *c);

#endif
