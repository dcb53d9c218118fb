// SPDX-License-Identifier: Apache-2.0
#ifndef PEER_H
#define PEER_H

#include <sy_stack_port.h>

#include "peer_talk.h"

#define PEER_ADDRESSES 16
#define PEER_JOBS      32
#define PEER_LINE      1024

struct peer_options {
	const char *port; /* a kernel interface */
	struct sy_addr address[PEER_ADDRESSES];
	unsigned addresses;
	char *job[PEER_JOBS];
	unsigned jobs;
	bool input, verbose;
	struct sy_stack_options stack;
};

/* Returns 0; 1: the help was wanted; or a negative errno, after a message. */
int peer_options_read(struct peer_options *o, int argc, char **argv);

struct peer {
	struct peer_options options;
	struct sy_runtime *rt;
	struct sy_stack_port *port;
	struct sy_stack *stack;
	struct job *jobs; /* the worker's, once it runs */
	struct talk *talks;
	unsigned job_count, talk_count;
	unsigned failed; /* jobs and connections */
	unsigned timed;  /* connections that pause, or are over */
};

/* A job has ended; the program ends after the last job, unless it accepts commands. */
void peer_job_over(struct peer *p);

/* Lines of JSON (peer_report.c). */
void report_talk(struct peer *p, const struct talk *t, const char *event);
void report_stats(struct peer *p);
void report_job(const struct job *j);
void report_error(const char *text);

#endif
