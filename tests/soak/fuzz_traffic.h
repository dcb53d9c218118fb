// SPDX-License-Identifier: Apache-2.0
/* What the soak is made of: bursts of frames, scenarios that aim at one weakness, and the calm
 * after, when everything is counted. */
#ifndef FUZZ_TRAFFIC_H
#define FUZZ_TRAFFIC_H

#include "topology.h"

#define PENDING 1024 /* valid frames that wait for their turn */
#define HISTORY 512  /* frames to repeat and to spoil */

struct fuzz_tally {
	uint64_t in, out, answered, suppressed, dropped, handed;
	uint64_t reached, fast;        /* frames that got past classify; the fast path's */
	uint64_t created, ended, live; /* sessions */
	uint64_t ids, buffers;         /* still in use at the end */
	uint64_t active;               /* sessions that servers and services still count */
	uint64_t ugly;                 /* sent frames that must not be sent */
	uint64_t commits, refusals;
	uint64_t drop[SY_DROP_COUNT];
};

struct fuzz_traffic {
	struct topology topology;
	struct rng rng;
	struct fuzz_tally tally;
	struct frame pending[PENDING], history[HISTORY];
	unsigned pending_count, history_at, history_count;
};

bool fuzz_traffic_open(struct fuzz_traffic *w, uint64_t seed, unsigned workers);
void fuzz_traffic_close(struct fuzz_traffic *w);
/* Lets so many frames come in. */
void fuzz_traffic_run(struct fuzz_traffic *w, uint64_t frames);
/* Lets everything expire, and fills in the tally. */
void fuzz_traffic_settle(struct fuzz_traffic *w);
void fuzz_traffic_add(struct fuzz_tally *sum, const struct fuzz_tally *t);
void fuzz_traffic_print(const struct fuzz_tally *t);

/* ---- scenario.c ---- */
void scenario_all(struct fuzz_traffic *w);

/* ---- for scenarios ---- */

/* Counts it and sends it in; lost when the port's ring is full. */
void fuzz_traffic_send(struct fuzz_traffic *w, const struct frame *f);
/* Workers and control thread have their turn; what comes out is looked at and answered. */
void fuzz_traffic_turn(struct fuzz_traffic *w);
/* Takes what was sent. react: valid answers to it become pending. */
void fuzz_traffic_collect(struct fuzz_traffic *w, bool react);
/* A client's tuple towards a service, and its first frame. */
struct sy_tuple fuzz_traffic_client(struct fuzz_traffic *w, const struct service_key *key);
void fuzz_traffic_greet(struct fuzz_traffic *w, struct frame *f, const struct sy_tuple *t);

#endif
