// SPDX-License-Identifier: Apache-2.0
/* What the storm is made of: gusts of frames, squalls that aim at one weakness, and the calm after,
 * when everything is counted. */
#ifndef WEATHER_H
#define WEATHER_H

#include "world.h"

#define PENDING 1024 /* valid frames that wait for their turn */
#define HISTORY 512  /* frames to repeat and to spoil */

struct weather_tally {
	uint64_t in, out, answered, suppressed, dropped, handed;
	uint64_t reached, fast;        /* frames that got past classify; the fast path's */
	uint64_t created, ended, live; /* sessions */
	uint64_t ids, buffers;         /* still in use at the end */
	uint64_t active;               /* sessions that servers and services still count */
	uint64_t ugly;                 /* sent frames that must not be sent */
	uint64_t commits, refusals;
	uint64_t drop[SY_DROP_COUNT];
};

struct weather {
	struct world world;
	struct rng rng;
	struct weather_tally tally;
	struct frame pending[PENDING], history[HISTORY];
	unsigned pending_count, history_at, history_count;
};

bool weather_open(struct weather *w, uint64_t seed, unsigned workers);
void weather_close(struct weather *w);
/* Lets so many frames come in. */
void weather_blow(struct weather *w, uint64_t frames);
/* Lets everything expire, and fills in the tally. */
void weather_calm(struct weather *w);
void weather_add(struct weather_tally *sum, const struct weather_tally *t);
void weather_print(const struct weather_tally *t);

/* ---- squall.c ---- */
void squall_all(struct weather *w);

/* ---- for squalls ---- */

/* Counts it and sends it in; lost when the port's ring is full. */
void weather_send(struct weather *w, const struct frame *f);
/* Workers and control thread have their turn; what comes out is looked at and answered. */
void weather_turn(struct weather *w);
/* Takes what was sent. react: valid answers to it become pending. */
void weather_collect(struct weather *w, bool react);
/* A client's tuple towards a service, and its first frame. */
struct sy_tuple weather_client(struct weather *w, const struct service_key *key);
void weather_hello(struct weather *w, struct frame *f, const struct sy_tuple *t);

#endif
