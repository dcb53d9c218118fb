// SPDX-License-Identifier: Apache-2.0
/*
 * A thread of the synthetic server: context, connections and the experiment's settings, which
 * change between runs while no request is in progress.
 */
#ifndef PRIORITY_WORKER_H
#define PRIORITY_WORKER_H

#include <sy_tcp.h>

#include "priority_serve.h"
#include "rule.h"

#define WORKER_CONNECTIONS 16384u
#define WORKER_FETCH       64u

/* A setting: one line on standard input. */
enum transport { TRANSPORT_NONE, TRANSPORT_SAYS, TRANSPORT_NOTES }; /* the segment hook */
struct setting {
	const char *schedule; /* none, lns, darc, ours */
	const struct rule *rule;
	unsigned driver;    /* run the packet hook */
	unsigned transport; /* an enum transport */
	unsigned aside;     /* requests of levels other than 0 go to the queue */
	unsigned fetch;     /* events per fetch */
	unsigned awake;     /* busy polling */
	unsigned stack_us;  /* additional cost per segment in TCP; with a segment hook */
	unsigned sleep_us;  /* services of at least this time sleep; 0: none */
};

struct worker;

struct worker *worker_new(struct sy_tcp_library *library, unsigned port,
                          struct sy_tcp_queue *queue);
/* Thread function: serves until worker_stop(); exits the process on failure. arg: a worker. */
void *worker_main(void *arg);
void worker_stop(struct worker *w);
/* Call from another thread; waits until it is applied. Returns 0 or the stack's error. */
int worker_set(struct worker *w, const struct setting *s);
/* Returns the counters since the last call. */
void worker_counts(struct worker *w, struct serve_counts *out);
bool worker_is_ready(const struct worker *w);

#endif
