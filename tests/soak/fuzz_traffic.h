// SPDX-License-Identifier: Apache-2.0
/* The soak test's traffic: bursts of frames, scenarios that each test one weakness, and a quiet
 * time at the end in which everything is counted. */
#ifndef FUZZ_TRAFFIC_H
#define FUZZ_TRAFFIC_H

#include "soak_topology.h"

#define PENDING 1024 /* valid frames to be sent */
#define HISTORY 512  /* frames to repeat and to damage */

struct fuzz_tally {
	uint64_t in, out, originated, suppressed, dropped, handed;
	uint64_t reached, fast;        /* frames past classify; frames on the fast path */
	uint64_t created, ended, live; /* sessions */
	uint64_t ids, buffers;         /* still in use at the end */
	uint64_t active;               /* sessions that servers and services still count */
	uint64_t miscounted;           /* times that clients' sessions differed from their counts */
	uint64_t stayed;               /* sessions that an access list should have ended */
	uint64_t ugly;                 /* frames sent that must not be sent */
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
/* Runs until this many frames have arrived. */
void fuzz_traffic_run(struct fuzz_traffic *w, uint64_t frames);
/* Lets every session expire, and fills in the tally. */
void fuzz_traffic_settle(struct fuzz_traffic *w);
/* Compares the counts of clients' sessions with the sessions. */
void fuzz_traffic_check_clients(struct fuzz_traffic *w);
void fuzz_traffic_add(struct fuzz_tally *sum, const struct fuzz_tally *t);
void fuzz_traffic_print(const struct fuzz_tally *t);

/* ---- scenario.c ------------------------------------------------------------------------------ */
void scenario_all(struct fuzz_traffic *w);

/* ---- for scenarios --------------------------------------------------------------------------- */

/* Counts the frame and puts it into its port; it is lost if the port's ring is full. */
void fuzz_traffic_send(struct fuzz_traffic *w, const struct frame *f);
/* One poll iteration of workers and control thread; their frames are checked and answered. */
void fuzz_traffic_turn(struct fuzz_traffic *w);
/* Dequeues the frames that were sent. react: valid answers to them become pending. */
void fuzz_traffic_collect(struct fuzz_traffic *w, bool react);
/* A client's tuple towards a service, and its first frame. */
struct sy_tuple fuzz_traffic_client(struct fuzz_traffic *w, const struct service_key *key);
void fuzz_traffic_greet(struct fuzz_traffic *w, struct frame *f, const struct sy_tuple *t);

/* ---- for reactions --------------------------------------------------------------------------- */

/* Keeps a copy to repeat and to damage. */
void fuzz_traffic_remember(struct fuzz_traffic *w, const struct frame *f);
/* Returns a slot for a valid pending frame; if all are used, replaces another frame. */
struct frame *fuzz_traffic_pend(struct fuzz_traffic *w);
/* Draws a payload's length: below the limit, or sometimes more than the next network's MTU. */
uint32_t fuzz_traffic_payload(struct rng *d, uint32_t below);

#endif
