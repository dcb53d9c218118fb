// SPDX-License-Identifier: Apache-2.0
/* A script that is being played. */
#ifndef PLAY_H
#define PLAY_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "script_segment.h"

#define MS_NS   UINT64_C(1000000)
#define PEER    4000
#define PEERS   8 /* ports from there on */
#define OUT_MAX 256

struct play {
	const struct script *script;
	struct sy_stack *s;
	struct rte_mempool *pool;
	bool v4, ts_known, ours_known[PEERS];
	uint64_t now;
	sy_stack_id listener, c;
	struct sy_stack_endpoint local, peer;
	uint32_t ours[PEERS]; /* the stack's first numbers, by the peer's port */
	uint32_t ts_base;
	uint32_t written, read;
	unsigned packets;        /* of the pool, at the beginning */
	struct rte_mbuf **taken; /* of them, by the script */
	unsigned taken_count;
	struct rte_mbuf *out[OUT_MAX];
	unsigned first, count;
	const char *line;
	unsigned number;
};

#define FAIL(p, ...)                                                                               \
	do {                                                                                       \
		fprintf(stderr, "%s (%s): line %u \"%s\": ", (p)->script->section,                 \
		        (p)->v4 ? "IPv4" : "IPv6", (p)->number, (p)->line);                        \
		fprintf(stderr, __VA_ARGS__);                                                      \
		fprintf(stderr, "\n");                                                             \
		fail();                                                                            \
	} while (0)

#define WANT(p, condition)                                                                         \
	do {                                                                                       \
		if (!(condition))                                                                  \
			FAIL(p, "%s", #condition);                                                 \
	} while (0)

/* What the stack has to send. */
void pump(struct play *p);

/* The steps that are not segments (play_steps.c). False: there is no such step. */
bool step_play(struct play *p, const char *step, char *words);

#endif
