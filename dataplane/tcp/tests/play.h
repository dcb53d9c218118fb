// SPDX-License-Identifier: Apache-2.0
/* A running script. */
#ifndef PLAY_H
#define PLAY_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "script_segment.h"

#define MS_NS    UINT64_C(1000000)
#define PEER     4000
#define PEER_ISS UINT32_C(0xfffffa00) /* wraps early */
#define PEERS    8                    /* consecutive ports */
#define OUT_MAX  256
#define KEPT     26   /* names are letters */
#define ENDS     1024 /* segments per round */

/* An initial sequence number of the stack, and its time. */
struct kept {
	uint32_t number;
	uint64_t ns;
};

struct play {
	const struct script *script;
	struct sy_stack *s;
	struct rte_mempool *pool;
	bool v4, ts_known, ours_known[PEERS];
	uint64_t now;
	sy_stack_id listener, c;
	struct sy_stack_endpoint local, peer;
	uint32_t ours[PEERS];  /* the stack's initial sequence numbers, by the peer's port */
	uint64_t begun[PEERS]; /* when they were chosen */
	struct kept kept[KEPT];
	uint32_t end[ENDS]; /* ends of the segments in flight */
	unsigned ends;
	uint32_t ts_base;
	uint32_t written, read;
	unsigned packets;        /* of the pool, at the beginning */
	struct rte_mbuf **taken; /* allocated by the script */
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

/* Fetches the stack's packets. */
void pump(struct play *p);
/* Fails the script if there is a packet. */
void nothing_left(struct play *p);
/* Sends a segment of the peer, described in words, which are modified. */
void inject(struct play *p, char *words);
/* Advances the time; wait: at most until the stack sends. */
void pass(struct play *p, const char *words, bool wait);
/* Starts a stack with this secret. */
void stack_start(struct play *p, const char *secret);

/* Plays a step that is not a segment (play_steps.c). Returns false if unknown. */
bool step_play(struct play *p, const char *step, char *words);

/* Steps of many segments (play_many.c). */
void do_rounds(struct play *p, char *words);
void do_lost(struct play *p, char *words);
void do_gaps(struct play *p, char *words);
/* FLAGS FIRST:END LEN: expects these bytes in segments of this length. */
void run_expect(struct play *p, char *words);

/* Steps about initial sequence numbers (play_numbers.c). */
void do_keep(struct play *p, char *words);
void do_apart(struct play *p, char *words);
void do_unlike(struct play *p, char *words);
void do_reboot(struct play *p, char *words);

/* Steps about connections that another TCP goes on with (play_export.c). */
void do_retire(struct play *p, char *words);
void do_export(struct play *p, char *words);
void do_stays(struct play *p, char *words);
void do_forget(struct play *p, char *words);

#endif
