/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that get no CPU for a while: what they are to do meanwhile, and for how long it was. */
#ifndef SY_POST_H
#define SY_POST_H

#include "sy_runtime.h"

/* A function that a worker runs between two bursts, as soon as it can. The caller fills in the
 * first three fields, and keeps the post until it has run. */
struct sy_worker_post {
	void (*fn)(struct sy_worker *w, void *ctx); /* as for sy_worker_call() */
	void (*done)(void *ctx); /* on the control thread's loop, after fn; may post again */
	void *ctx;
	struct sy_worker_post *next, *next_of_worker; /* the runtime's, like the state */
	uint32_t state;
};

/* Posts a function to a worker, and waits less than a millisecond for it. Returns true if it has
 * run; otherwise done() follows. Control thread only. */
bool sy_worker_post(struct sy_worker *w, struct sy_worker_post *post);
/* After sy_worker_post() has returned false: waits until it has run, instead of done(). */
void sy_worker_post_wait(struct sy_runtime *rt, struct sy_worker_post *post);

/* For how long the worker has not run, in ns, if packets of this burst may have come meanwhile. */
uint64_t sy_worker_lag_ns(const struct sy_worker *w);

#endif
