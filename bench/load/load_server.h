// SPDX-License-Identifier: Apache-2.0
/*
 * Server of one worker: echoes bytes, or answers the raw protocol after each request's service
 * time. Serves requests in the order of arrival, one per connection in turn.
 */
#ifndef LOAD_SERVER_H
#define LOAD_SERVER_H

#include <sy_stack.h>

#include "raw_protocol.h"

struct server_options {
	bool echo; /* otherwise the raw protocol */
	const struct sy_stack_endpoint *local;
	unsigned locals;
	uint32_t connections;
	/* Is busy for ns; returns the actual time. */
	uint64_t (*busy)(uint64_t ns);
};

#define SERVER_COUNTS(X)                                                                           \
	X(accepted, "connections accepted")                                                        \
	X(requests, "requests answered")                                                           \
	X(bad, "connections ended for bytes that are no request")                                  \
	X(reset, "connections that were reset or broke")                                           \
	X(bytes_in, "bytes received")                                                              \
	X(bytes_out, "bytes sent")                                                                 \
	X(busy_ns, "time that requests took, ns")

struct server_counts {
#define X(name, help) uint64_t name;
	SERVER_COUNTS(X)
#undef X
};

struct server;

/* NULL: no memory. */
struct server *server_new(const struct server_options *o);
void server_free(struct server *v);
/* Call before the first poll. */
int server_listen(struct server *v, struct sy_stack *s, struct sy_error *err);
/* One poll iteration: fetches events and answers a bounded number of requests. Returns true if
 * there is more to do. */
bool server_poll(struct server *v, struct sy_stack *s, uint64_t now_ns);
/* Relaxed. */
const struct server_counts *server_counts(const struct server *v);
uint32_t server_connected(const struct server *v);

#endif
