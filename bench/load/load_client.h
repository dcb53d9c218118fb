// SPDX-License-Identifier: Apache-2.0
/*
 * One worker's clients: connections of one stack that ask and check the answers. It knows neither
 * clock nor port: the time is given, and nothing happens outside of client_turn().
 *
 *   OPENING ──▶ WARMING ──▶ MEASURING ──▶ DRAINING ──▶ CLOSING ──▶ DONE
 *   all connections,        requests count  what is under way
 *   or the first one
 */
#ifndef LOAD_CLIENT_H
#define LOAD_CLIENT_H

#include <sy_stack.h>

#include "histogram.h"
#include "load_schedule.h"
#include "mix.h"

/* Of one worker: the whole's are divided among them. */
struct client_options {
	const struct mix *mix;
	const struct sy_addr *source;
	unsigned sources;
	struct sy_stack_endpoint target;
	uint32_t connections;
	uint32_t active;     /* of them, so many are asked anything; the others idle */
	uint32_t first;      /* their number among those of all workers, for their sources */
	uint32_t connecting; /* at a time */
	uint32_t depth;      /* requests under way per connection */
	uint32_t each;       /* requests after which a connection is closed; 0: never */
	bool open;           /* an open loop: requests come by the rate */
	double rate;         /* per second */
	bool poisson;
	const struct distribution *burst; /* requests of one time; NULL: 1 */
	const struct distribution *think; /* closed loop: before the next request; NULL: 0 */
	uint64_t warm_ns, duration_ns;    /* duration 0: until all requests are answered */
	uint64_t requests;                /* 0: no limit */
	uint64_t timeout_ns;
	bool reset; /* connections end by a reset */
	uint64_t seed;
	uint32_t turn; /* open loop: requests before what has come is looked at; 0: 64 */
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
	uint64_t lost;                /* connections that idled and ended by a reset */
	uint64_t reopened;            /* ended by the server as agreed, or idle */
	uint64_t sent, answered;      /* requests, also while warming */
	uint64_t bytes_out, bytes_in; /* of them, while measuring */
	uint64_t in_window;           /* answers that came while measuring */
#define X(name, help) uint64_t name;
	CLIENT_ERRORS(X)
#undef X
};

/* Of a class, requests that were due while measuring and were answered. */
struct client_class {
	struct histogram latency; /* since it was due, ns */
	struct histogram service; /* since it was sent */
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

/* NULL: no memory. The options' pointers stay valid. */
struct client *client_new(const struct client_options *o);
void client_free(struct client *c);

/* Fetches events and does what is due. Returns the time at which something else is due. */
uint64_t client_turn(struct client *c, struct sy_stack *s, uint64_t now_ns);
/* Workers measure at the same time: true, once all its connections are open. */
bool client_is_ready(const struct client *c);
/* May be called while it waits: then warming begins with the next turn. */
void client_go(struct client *c);
/* Measuring ends with the next turn; before it, all ends, and nothing was measured. */
void client_stop(struct client *c);

/* For other threads while it runs; relaxed. */
enum client_phase client_phase(const struct client *c);
const struct client_counts *client_counts(const struct client *c);
uint32_t client_connected(const struct client *c);
/* When it is done, or no longer runs. */
bool client_has_measured(const struct client *c);
const struct client_class *client_class(const struct client *c, unsigned class);
uint64_t client_measured_ns(const struct client *c);
/* The last failure to connect, a positive errno; 0: none. */
int client_connect_error(const struct client *c);

#endif
