// SPDX-License-Identifier: Apache-2.0
/*
 * When requests are due, in virtual time. In an open loop, a request's due time is independent of
 * free connections, and its latency counts from that time (no coordinated omission).
 */
#ifndef LOAD_SCHEDULE_H
#define LOAD_SCHEDULE_H

#include "load_chance.h"

/* ---- an open loop's arrivals ----------------------------------------------------------------- */

struct arrivals {
	double per_ns;                    /* requests; 0: none */
	bool poisson;                     /* exponential gaps; otherwise equal ones */
	const struct distribution *burst; /* requests per burst, at least 1 */
	double next_ns;
	uint64_t left; /* left of the burst due at next_ns */
};

/* The first burst is due one gap after now. */
void arrivals_start(struct arrivals *a, struct chance *c, uint64_t now_ns);
/* Consumes one request due by now and returns its time; false: none. */
bool arrivals_take(struct arrivals *a, struct chance *c, uint64_t now_ns, uint64_t *due_ns);

/* ---- things to do at their times: a heap ----------------------------------------------------- */

struct due {
	uint64_t at_ns;
	uint32_t conn; /* a connection */
};

struct agenda {
	struct due *entry;
	size_t count, capacity;
};

/* Fails with -ENOMEM. */
int agenda_add(struct agenda *a, struct due what);
/* Removes the earliest entry if it is due by now. */
bool agenda_take(struct agenda *a, uint64_t now_ns, struct due *out);
/* Returns UINT64_MAX if it is empty. */
uint64_t agenda_next(const struct agenda *a);
void agenda_free(struct agenda *a);

/* ---- times of requests for which no connection is free: a queue ------------------------------ */

struct backlog {
	uint64_t *time;
	size_t first, count, capacity; /* capacity: a power of two or 0 */
};

int backlog_add(struct backlog *b, uint64_t due_ns);
bool backlog_take(struct backlog *b, uint64_t *due_ns);
void backlog_free(struct backlog *b);

#endif
