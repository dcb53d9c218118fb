// SPDX-License-Identifier: Apache-2.0
/* One connection, and what it does for its job. All of it on the worker's thread. */
#ifndef PEER_TALK_H
#define PEER_TALK_H

#include "job.h"

struct peer;

struct talk {
	struct talk *next;
	struct job *job;
	sy_stack_id id;
	unsigned number;
	uint64_t written, received; /* bytes given to the stack, and taken from it */
	uint64_t round;             /* of its job */
	uint64_t answered;          /* bytes of all questions' answers */
	uint64_t asked;             /* bytes of all questions so far */
	uint64_t wake_at;           /* the end of a pause of reading or asking, ns; 0: none yet */
	int64_t wrong_at;           /* the first wrong byte; -1: none */
	unsigned urgent;            /* events that told of urgent data */
	int error;                  /* a positive errno */
	bool connected, held, ended, peer_ended, hung_up, reset, over;
};

/* Begins what the job says: listens, or connects. Returns 0 or a negative errno. */
int job_begin(struct peer *p, struct job *j, uint64_t now);
/* Its connections are reset, its listener is closed. Returns 0 or -ENOENT. */
int job_close(struct peer *p, unsigned job, uint64_t now);
/* The events of a listener's or a connection's, given by its cookie. */
void talk_event(struct peer *p, const struct sy_stack_event *e, uint64_t now);
/* Connections whose pause is over; and forgets those that are. */
void talks_turn(struct peer *p, uint64_t now);
/* Connections of the job read again. */
void talks_resume(struct peer *p, unsigned job, uint64_t now);

#endif
