// SPDX-License-Identifier: Apache-2.0
/*
 * A trial: traffic over a link for a while, and what became of it. And learning, which makes the
 * sessions of known flows and notes what their servers saw of them.
 */
#ifndef GENERATOR_TRIAL_H
#define GENERATOR_TRIAL_H

#include "histogram.h"
#include "link.h"

/* Flows and what is known of them. */
struct flows {
	struct frame_reply *reply;
	uint32_t capacity, learned; /* flows [0, learned) have replies */
	uint32_t next[FRAME_WAYS];  /* of these, to be sent */
	uint32_t next_fresh;        /* of flows that nobody has seen yet */
	uint64_t random;
};

struct traffic {
	unsigned family, size;
	uint32_t flows; /* known ones, one after the other; they were learned in another order */
	bool fresh;     /* instead: each packet a flow of its own */
	bool in, out;   /* the ways; both take turns, burst by burst */
	bool stamped;   /* each frame bears the time it was sent at */
	double rate;    /* packets a second; 0: as many as the link takes */
	double warm;    /* seconds before what is counted as the rate */
	double seconds; /* of it */
	unsigned watch; /* the other side's thread, 0: unknown */
	unsigned burst;
};

struct trial_result {
	uint64_t offered; /* put on the link, or due and refused by it */
	uint64_t refused; /* of these, at a given rate: the link was full. Counted as lost */
	uint64_t received;
	uint64_t alien;    /* of those looked at (the first of each burst), not ours */
	uint64_t forgiven; /* not offered: the generator was held up */
	double offered_pps, received_pps; /* while it was counted */
	double lost;                      /* share of what was offered */
	double full;                      /* share of sendings that found the link full */
	double burst;                     /* packets received at once, on average */
	uint64_t held_ns;                 /* the longest time that this core was away */
	uint64_t waited_ns;               /* that the watched thread waited for its core in all */
	struct histogram delay;           /* nanoseconds; of stamped frames */
};

/* Runs until the time is over and what is under way has come back. 0, or a negative errno. */
int trial_run(struct link *l, struct flows *f, const struct traffic *t, struct trial_result *r,
              struct sy_error *err);

/* Sends each flow up to `flows` until it came out at a server, and its answer at the client. 0, or
 * a negative errno. */
int flows_learn(struct link *l, struct flows *f, const struct traffic *t, struct sy_error *err);
/* For who sends back what comes without looking into it: servers' answers of any kind. */
int flows_invent(struct flows *f, uint32_t flows, struct sy_error *err);

#endif
