// SPDX-License-Identifier: Apache-2.0
/* One connection, and its work for a job, on the worker's thread. */
#ifndef PEER_TALK_H
#define PEER_TALK_H

#include "peer_job.h"

struct peer;

struct talk {
	struct talk *next;
	struct job *job;
	sy_stack_id id;
	unsigned number;
	uint64_t written, received; /* bytes sent to the stack, and received from it */
	uint64_t round;             /* of its job */
	uint64_t answered;          /* bytes of all questions' answers */
	uint64_t asked;             /* bytes of all questions so far */
	uint64_t wake_at;           /* end of a pause before reading or sending, ns; 0: none yet */
	int64_t wrong_at;           /* the first wrong byte; -1: none */
	unsigned urgent;            /* events that reported urgent data */
	int error;                  /* a positive errno */
	bool connected, held, ended, peer_ended, hung_up, reset, over;
};

/* Starts a job: listens, or connects. Returns 0 or a negative errno. */
int job_begin(struct peer *p, struct job *j, uint64_t now);
/* Its connections are reset, its listener is closed. Returns 0 or -ENOENT. */
int job_close(struct peer *p, unsigned job, uint64_t now);
/* Handles events of a listener or a connection, identified by its cookie. */
void talk_event(struct peer *p, const struct sy_stack_event *e, uint64_t now);
/* Resumes connections whose pause is over, and frees ended ones. */
void talks_turn(struct peer *p, uint64_t now);
/* Lets the job's connections read again. */
void talks_resume(struct peer *p, unsigned job, uint64_t now);

#endif
