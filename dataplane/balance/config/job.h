// SPDX-License-Identifier: Apache-2.0
/*
 * Work that would block the control thread for too long: a background thread does it.
 *
 * Control thread only, except work(), which must not access anything that changes meanwhile.
 */
#ifndef JOB_H
#define JOB_H

#include <pthread.h>

#include "balance.h"

struct job {
	struct sy_runtime *rt;
	pthread_t thread;
	int fd; /* eventfd: work() has returned */
	bool running;
	void (*work)(void *work_ctx);
	void (*done)(void *done_ctx); /* on the control thread */
	void *work_ctx, *done_ctx;
};

/* Returns 0: done() is called once work() has returned, unless job_wait() is called before; or a
 * negative errno. The job must not move until then. */
int job_begin(struct job *j, struct sy_runtime *rt, void (*work)(void *work_ctx),
              void (*done)(void *done_ctx), void *work_ctx, void *done_ctx);
/* Waits for work() instead of done(). Does nothing if done() was called, or no job has begun. */
void job_wait(struct job *j);

#endif
