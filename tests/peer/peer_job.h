// SPDX-License-Identifier: Apache-2.0
/* Jobs of connections: a line of words, from the command line or standard input. */
#ifndef PEER_JOB_H
#define PEER_JOB_H

#include <stdio.h>

#include <sy_stack.h>

#include "stream.h"

#define JOB_PARTS   4
#define JOB_OPTIONS 16
#define JOB_ERROR   160

struct job {
	struct job *next;
	unsigned number;
	bool listens;
	struct sy_stack_endpoint from, to;
	sy_stack_id listener;
	uint64_t seed, send, max; /* most: bytes per call */
	uint64_t urgent;          /* the byte before this one is urgent; 0: none */
	uint64_t reset_after;     /* bytes sent or received; 0: never */
	uint64_t asks;            /* questions, each answered by as many bytes */
	uint64_t part[JOB_PARTS]; /* the calls that a question is made of */
	unsigned parts;
	uint64_t part_ms;       /* a pause before each but the first */
	uint64_t answer;        /* echoes so many bytes at once; 0: all that have arrived */
	uint64_t read, read_ms; /* reads so much so often; 0: all at once */
	uint64_t times, rounds; /* connections at a time, and one after the other; listen: in all */
	bool echo, after_end, end_first, hold, more;
	struct {
		enum sy_stack_option option;
		uint32_t value;
	} option[JOB_OPTIONS];
	unsigned options;
	struct stream *stream;
	uint64_t left; /* connections that are not finished; of a listener without times: 1 */
};

/* Parses a line, which it modifies. Returns NULL on errors, with the reason in `error`. */
struct job *job_read(char *line, char error[static JOB_ERROR]);
void job_free(struct job *j);
void job_help(FILE *out);

#endif
