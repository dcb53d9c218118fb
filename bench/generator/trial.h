// SPDX-License-Identifier: Apache-2.0
/* A trial: traffic over a link for some time, and its result. Also learning, which creates the
 * sessions of known flows and records what their servers see. */
#ifndef GENERATOR_TRIAL_H
#define GENERATOR_TRIAL_H

#include "generator_link.h"
#include "histogram.h"

/* Flows and what is known about them. */
struct flows {
	struct frame_reply *reply;
	uint32_t capacity, learned; /* flows [0, learned) have replies */
	uint32_t next[FRAME_WAYS];  /* of these, the next to send */
	uint32_t next_fresh;        /* of unused flows */
	uint64_t random;
};

struct traffic {
	unsigned family, size;
	uint32_t flows; /* known flows, in sequence; they were learned in another order */
	bool fresh;     /* instead: each packet is a flow of its own */
	bool in, out;   /* the directions; both alternate, burst by burst */
	bool stamped;   /* each frame contains its send time */
	double rate;    /* packets per second; 0: as many as the link accepts */
	double warm;    /* seconds before the measurement */
	double seconds; /* of measurement */
	unsigned watch; /* the other side's thread, 0: unknown */
	unsigned burst;
};

struct trial_result {
	uint64_t offered; /* put on the link, or due and refused by it */
	uint64_t refused; /* of these, at a given rate: the link was full. Counted as lost */
	uint64_t received;
	uint64_t alien;    /* of those inspected (the first of each burst), another program's */
	uint64_t forgiven; /* not offered: the generator was interrupted */
	double offered_pps, received_pps; /* during the measurement */
	double lost;                      /* share of the packets offered */
	double full;                      /* share of send calls that found the link full */
	double burst;                     /* packets received at once, on average */
	uint64_t held_ns;                 /* the longest interruption of this core */
	uint64_t waited_ns;     /* total time that the watched thread waited for its core */
	struct histogram delay; /* nanoseconds, of stamped frames */
};

/* Runs until the time is over and packets in flight have come back. 0, or a negative errno. */
int trial_run(struct link *l, struct flows *f, const struct traffic *t, struct trial_result *r,
              struct sy_error *err);

/* Sends each flow up to `flows` until it came out at a server, and its answer until it came out at
 * the client. 0, or a negative errno. */
int flows_learn(struct link *l, struct flows *f, const struct traffic *t, struct sy_error *err);
/* For forwarders that send frames back without parsing them: any server answers will do. */
int flows_invent(struct flows *f, uint32_t flows, struct sy_error *err);

#endif
