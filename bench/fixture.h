// SPDX-License-Identifier: Apache-2.0
/*
 * What the packet path is measured with: a forwarder between two fed ports, a service, and
 * sessions that were made the way they always are, by the first packets of their clients.
 */
#ifndef BENCH_SCENE_H
#define BENCH_SCENE_H

#include "injector.h"
#include "session.h"

struct fixture_options {
	enum mode mode;
	bool client_v6, server_v6;
	bool tcp; /* else UDP */
	uint64_t sessions;
	double fill;              /* of the session table */
	unsigned servers, locals; /* at most SCENE_SERVERS, SCENE_LOCALS */
	unsigned workers;         /* 0: 1 */
	uint32_t frame_len;       /* without FCS; less than the headers: those */
	const char *store;        /* directory on hugetlbfs, and all is huge; NULL: nothing is */
	bool brief; /* there is a service, too, whose sessions are over after a second of silence */
	uint64_t seed;
};
#define SCENE_SERVERS  256
#define SCENE_LOCALS   64
#define SCENE_SESSIONS (1u << 29) /* clients there are */
#define SCENE_FRAMES   (1u << 24) /* of a direction: a few GB */

/* An entry of options.h: where the fixture's session table lies. */
#define SCENE_DIRECTORY(options)                                                                   \
	{                                                                                          \
		"directory", "DIR", OPTION_WORD, &(options).store, 0, 0, OPTIONS_DIRECTORY         \
	}

/* FNAT over IPv4, UDP, a table that is 85 % full, one worker. */
struct fixture_options fixture_defaults(uint64_t sessions);

struct fixture {
	struct fixture_options options;
	struct harness harness;
	struct injector injector;
	/* Packets of the sessions by enum session_direction, in the order they were made; those of
	 * a one-way mode's servers are none. Of more than SCENE_FRAMES sessions, one in `every` has
	 * one. */
	struct injector_stream stream[2];
	uint64_t every;
	unsigned port[2];           /* by which they come in */
	struct service_key service; /* theirs; of SNAT none */
	uint64_t clients;           /* that there have been so far */
	uint64_t random;
};

/* Makes all that; a process has one fixture. What fails is told on stderr. */
bool fixture_open(struct fixture *s, const struct fixture_options *o);
void fixture_close(struct fixture *s);
static inline bool fixture_is_one_way(const struct fixture *s)
{
	return s->options.mode == MODE_DR || s->options.mode == MODE_IPIP;
}
/* Server n; after the last one, one that is there and not yet configured. Port SCENE_PORT. */
struct sy_addr fixture_server(const struct fixture *s, unsigned n);
#define SCENE_PORT 80
/* Packets of so many new clients to the brief service; false: no memory. */
bool fixture_brief(struct fixture *s, struct injector_stream *to, uint64_t count);
/* Puts a direction's packets into random order. */
void fixture_shuffle(struct fixture *s, enum session_direction from);
/* Replaces them by so many of sessions of which the n-th most popular has a share of 1/n (Zipf's
 * law); false: no memory. */
bool fixture_draw_zipf(struct fixture *s, enum session_direction from, uint64_t count);
/* Lets n packets of each of these directions through; false, and said on stderr: not all of them
 * came out, or by a way that is not the fast path. */
bool fixture_check(struct fixture *s, uint64_t n);
/* Packets dropped so far, for whatever reason. */
uint64_t fixture_drops(const struct fixture *s);

#endif
