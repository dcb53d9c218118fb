// SPDX-License-Identifier: Apache-2.0
/*
 * Work that takes the control thread too long: a thread does it, and the control thread goes on.
 *
 * Control thread only, but for work(), which sees nothing else that changes meanwhile.
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

/* 0: done() will be called once work() has returned, unless job_wait() is called before; or a
 * negative errno. The job must stay where it is until then. */
int job_begin(struct job *j, struct sy_runtime *rt, void (*work)(void *work_ctx),
              void (*done)(void *done_ctx), void *work_ctx, void *done_ctx);
/* Waits for work() instead; done() is not called. Nothing if it has been, or none has begun. */
void job_wait(struct job *j);

#endif
