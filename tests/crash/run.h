// SPDX-License-Identifier: Apache-2.0
/* One run of a balancer, from finding its predecessor's file until it is killed. */
#ifndef RUN_H
#define RUN_H

#include "../../dataplane/balance/tests/harness.h"
#include "plain.h"

/* What all runs of one file have in common. */
struct scenario {
	const char *name;
	uint64_t sessions, sessions_other; /* capacity; other: in some runs, 0: never */
	uint64_t sessions_limit;           /* that tables grow to; 0: they do not */
	unsigned slots;                    /* that clients fall into; 0: all */
	unsigned services;                 /* that they want, the first ones; 0: all */
	unsigned flows;                    /* that the clients keep up */
	bool still;                        /* one server, one local address, no changes */
};

/* How a table is spoilt to prove that it is noticed: name, what is done to it. */
#define SPOILS(X)                                                                                  \
	X(SESSION, "session", "a session is removed")                                              \
	X(PORT, "port", "a session's local port changes")                                          \
	X(DUPLICATE, "duplicate", "a session is there twice")                                      \
	X(INDEX, "index", "an index entry is gone")                                                \
	X(GUESTS, "guests", "a bucket counts an entry elsewhere too many")                         \
	X(FREE, "free", "a free record is on no list")                                             \
	X(LIVE, "live", "the count of live sessions is wrong")                                     \
	X(STATE, "state", "a session's state is another")                                          \
	X(DELTA, "delta", "a session's checksum delta is wrong")                                   \
	X(SHIFT, "shift", "how far a client's numbers are moved is forgotten")                     \
	X(CONFIG, "config", "an accepted change is forgotten")

enum spoil {
	SPOIL_NOTHING,
#define X(id, name, help) SPOIL_##id,
	SPOILS(X)
#undef X
	        SPOIL_COUNT
};

struct run {
	struct harness harness;
	struct chronicle *h;
	const struct scenario *scenario;
	const char *directory;
	struct rng rng;
	bool last;      /* it ends by itself */
	bool slow;      /* tables are chilled again and again */
	uint64_t found; /* records in the file before it was opened */
	enum spoil spoil;
	char label[80]; /* seed, scenario and run, for messages */
};

/* Lives until killed; `last`: only until everything was checked, and a little longer. */
_Noreturn void run_start(struct chronicle *h, const struct scenario *scenario,
                         const char *directory, const char *label, uint64_t seed, enum spoil spoil,
                         bool last);

/* Says what is wrong and ends the process. */
_Noreturn void run_fail(const char *fmt, ...) SY_PRINTF(1, 2);
#define MUST(condition, ...)                                                                       \
	do {                                                                                       \
		if (!(condition))                                                                  \
			run_fail(__VA_ARGS__);                                                     \
	} while (0)

/* "tcp 198.18.0.3:4711 → 192.0.2.100:80 by …", in a buffer that the next call uses again. */
const char *flow_text(const struct flow *f);

/* ---- workload.c: packets, time ---- */

/* What was under way when the predecessor was killed is sent once more; then adopted sessions are
 * asked from both sides. */
void workload_resume(struct run *l);
/* One burst of packets, or time that passes. */
void workload_step(struct run *l);

/* ---- settings.c: configuration ---- */

/* Which configuration is in force after a kill, and that it is one that was accepted. */
void settings_validate(struct run *l);
/* The first one of all. */
void settings_begin(struct run *l);
void settings_change(struct run *l);

/* ---- validate.c, anatomy.c ---- */

/* Compares what was adopted with the plain model, as the control requests tell it. */
void validate(struct run *l);
/* The tables themselves: records, free lists, index. Returns how many sessions live. */
uint64_t anatomy_check(struct run *l);
/* Records in the file that hold anything, before it is opened. */
uint64_t anatomy_count(const char *path);
/* Takes the tables' pages away, not what is in them: every first touch is a fault then, so that
 * more kills hit between two writes that belong together. */
void anatomy_chill(const struct run *l);
/* Does harm to the adopted tables; false: there is nothing that it could be done to. */
bool anatomy_spoil(struct run *l);

#endif
