// SPDX-License-Identifier: Apache-2.0
/*
 * When requests are due, in virtual time. In an open loop a request has its time before anybody
 * knows whether a connection is free; its latency counts from that time (no coordinated omission).
 */
#ifndef LOAD_SCHEDULE_H
#define LOAD_SCHEDULE_H

#include "load_chance.h"

/* ---- an open loop's arrivals ----------------------------------------------------------------- */

struct arrivals {
	double per_ns;                    /* requests; 0: none */
	bool poisson;                     /* exponential gaps, else equal ones */
	const struct distribution *burst; /* requests of one time, at least 1 */
	double next_ns;
	uint64_t left; /* of the burst that is due at next_ns */
};

/* The first burst is due at a gap after now. */
void arrivals_start(struct arrivals *a, struct chance *c, uint64_t now_ns);
/* Whether a request is due by now; its time. Each call takes one. */
bool arrivals_take(struct arrivals *a, struct chance *c, uint64_t now_ns, uint64_t *due_ns);

/* ---- things to do at their times: a heap ----------------------------------------------------- */

struct due {
	uint64_t at_ns;
	uint32_t who; /* a connection */
};

struct agenda {
	struct due *entry;
	size_t count, room;
};

/* -ENOMEM. */
int agenda_add(struct agenda *a, struct due what);
/* The earliest, if it is due by now. */
bool agenda_take(struct agenda *a, uint64_t now_ns, struct due *out);
/* UINT64_MAX: nothing is on it. */
uint64_t agenda_next(const struct agenda *a);
void agenda_free(struct agenda *a);

/* ---- times of requests for which no connection is free: a queue ------------------------------ */

struct backlog {
	uint64_t *time;
	size_t first, count, room; /* room: a power of two, or 0 */
};

int backlog_add(struct backlog *b, uint64_t due_ns);
bool backlog_take(struct backlog *b, uint64_t *due_ns);
void backlog_free(struct backlog *b);

#endif
