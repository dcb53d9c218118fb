// SPDX-License-Identifier: Apache-2.0
/*
 * One thread of the synthetic server: its context, its connections, and what the experiment wants
 * of it. Experiments change settings between runs, while no request is under way.
 */
#ifndef PRIORITY_WORKER_H
#define PRIORITY_WORKER_H

#include <sy_tcp.h>

#include "priority_serve.h"
#include "rule.h"

#define WORKER_CONNECTIONS 16384u
#define WORKER_FETCH       64u

/* What the experiment wants: one line on standard input. */
enum transport { TRANSPORT_NONE, TRANSPORT_SAYS, TRANSPORT_NOTES }; /* the segment hook */
struct setting {
	const char *schedule; /* none, lns, darc, ours */
	const struct rule *rule;
	unsigned driver;    /* the packet hook is asked */
	unsigned transport; /* an enum transport */
	unsigned aside;     /* requests of levels other than 0 go to the desk */
	unsigned fetch;     /* events that are fetched at a time */
	unsigned awake;     /* looks for packets all the time, as drivers that poll do */
	unsigned stack_us;  /* that TCP takes longer for a segment; with a segment hook */
	unsigned sleep_us;  /* services of at least so long are slept; 0: none is */
};

struct worker;

struct worker *worker_new(struct sy_tcp_library *library, unsigned port, struct sy_tcp_desk *desk);
/* The thread: serves until worker_stop(); ends the process if it cannot. arg: a worker. */
void *worker_main(void *arg);
void worker_stop(struct worker *w);
/* From another thread; waits until it has happened. Returns 0, or what the stack says to it. */
int worker_set(struct worker *w, const struct setting *s);
/* Takes the counts since the last time. */
void worker_counts(struct worker *w, struct serve_counts *out);
bool worker_is_ready(const struct worker *w);

#endif
