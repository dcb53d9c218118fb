// SPDX-License-Identifier: Apache-2.0
/*
 * Clients of one worker: connections of one stack that send requests and verify responses.
 * Independent of clock and ports: the caller passes the time, and everything happens in
 * client_poll().
 *
 *   OPENING ──▶ WARMING ──▶ MEASURING ──▶ DRAINING ──▶ CLOSING ──▶ DONE
 *   all connections,        requests count  requests in progress
 *   or the first one
 */
#ifndef LOAD_CLIENT_H
#define LOAD_CLIENT_H

#include <sy_stack.h>

#include "histogram.h"
#include "load_schedule.h"
#include "mix.h"

/* Per worker: totals are divided among workers. */
struct client_options {
	const struct mix *mix;
	const struct sy_addr *source;
	unsigned sources;
	struct sy_stack_endpoint target;
	uint32_t connections;
	uint32_t active; /* of these, this many send requests; the others idle */
	uint32_t
	        first; /* index of the first among all workers' connections, for source addresses */
	uint32_t connecting; /* concurrent connects */
	uint32_t depth;      /* concurrent requests per connection */
	uint32_t each;       /* requests per connection; 0: unlimited */
	bool open;           /* open loop: requests by a rate */
	double rate;         /* per second */
	bool poisson;
	const struct distribution *burst; /* requests per burst; NULL: 1 */
	const struct distribution *think; /* closed loop: think time; NULL: 0 */
	uint64_t warm_ns, duration_ns;    /* duration 0: until all requests are answered */
	uint64_t requests;                /* 0: no limit */
	uint64_t timeout_ns;
	bool reset; /* close connections by a reset */
	uint64_t seed;
	uint32_t turn; /* open loop: requests per poll iteration; 0: 64 */
};

#define CLIENT_ERRORS(X)                                                                           \
	X(connect, "requests lost: no connection")                                                 \
	X(reset, "requests lost: the connection was reset or broke")                               \
	X(closed, "requests lost: the server closed too early")                                    \
	X(timeout, "requests without an answer in time")                                           \
	X(wrong, "answers that are not what was asked for")                                        \
	X(unsent, "requests of an open loop that found no connection until the end")

struct client_counts {
	uint64_t opened, open_failed; /* connections; attempts */
	uint64_t lost;                /* idle connections that were reset */
	uint64_t reopened;            /* closed by the server as announced, or idle */
	uint64_t sent, answered;      /* requests, also while warming up */
	uint64_t bytes_out, bytes_in; /* of these, while measuring */
	uint64_t in_window;           /* responses received while measuring */
#define X(name, help) uint64_t name;
	CLIENT_ERRORS(X)
#undef X
};

/* Per class: requests due while measuring that were answered. */
struct client_class {
	struct histogram latency; /* from the due time, ns */
	struct histogram service; /* from sending */
};

enum client_phase {
	CLIENT_OPENING,
	CLIENT_WARMING,
	CLIENT_MEASURING,
	CLIENT_DRAINING,
	CLIENT_CLOSING,
	CLIENT_DONE
};

struct client;

/* Returns NULL if there is no memory. The options' pointers must stay valid. */
struct client *client_new(const struct client_options *o);
void client_free(struct client *c);

/* One poll iteration: fetches events and issues due requests. Returns the next deadline. */
uint64_t client_poll(struct client *c, struct sy_stack *s, uint64_t now_ns);
/* Returns true once all connections are open: workers start measuring together. */
bool client_is_ready(const struct client *c);
/* Starts warming with the next poll. */
void client_go(struct client *c);
/* Ends measuring with the next poll; before measuring, ends everything. */
void client_stop(struct client *c);

/* For other threads while it runs; relaxed. */
enum client_phase client_phase(const struct client *c);
const struct client_counts *client_counts(const struct client *c);
uint32_t client_connected(const struct client *c);
/* Call when it is done or no longer polled. */
bool client_has_measured(const struct client *c);
const struct client_class *client_class(const struct client *c, unsigned class);
uint64_t client_measured_ns(const struct client *c);
/* Returns the last error of connecting, a positive errno; 0: none. */
int client_connect_error(const struct client *c);

#endif
