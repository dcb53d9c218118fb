/* SPDX-License-Identifier: Apache-2.0 */
/* Posts: work for workers that may get no CPU for a while; how long that was. */
#ifndef SY_POST_H
#define SY_POST_H

#include "sy_runtime.h"

/* A function that a worker runs between two bursts, as soon as it can. The caller sets the first
 * three fields, and keeps the post until it has run. */
struct sy_worker_post {
	void (*fn)(struct sy_worker *w, void *ctx); /* as for sy_worker_call() */
	void (*done)(void *ctx); /* called in the control thread's loop after fn; may post again */
	void *ctx;
	struct sy_worker_post *next, *next_of_worker; /* private to the runtime, like the state */
	uint32_t state;
};

/* Posts a function to a worker, and waits for it for less than a millisecond. Returns true if it
 * has run; otherwise done() is called later. Control thread only. */
bool sy_worker_post(struct sy_worker *w, struct sy_worker_post *post);
/* After sy_worker_post() returned false: waits until it has run; done() is not called. */
void sy_worker_post_wait(struct sy_runtime *rt, struct sy_worker_post *post);

/* How long the worker did not run, in ns, if packets of this burst may have arrived meanwhile. */
uint64_t sy_worker_lag_ns(const struct sy_worker *w);

#endif
