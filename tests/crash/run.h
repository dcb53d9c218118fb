// SPDX-License-Identifier: Apache-2.0
/* One run of a balancer, from finding its predecessor's file until it is killed. */
#ifndef RUN_H
#define RUN_H

#include "../../dataplane/balance/tests/harness.h"
#include "plain.h"

/* Common to all runs of one file. */
struct scenario {
	const char *name;
	uint64_t sessions, sessions_other; /* capacity; other: in some runs, 0: never */
	uint64_t sessions_limit;           /* to which tables grow; 0: they do not grow */
	unsigned slots;                    /* into which clients fall; 0: all */
	unsigned services;                 /* that clients use, the first ones; 0: all */
	unsigned flows;                    /* that clients keep open */
	bool still;                        /* one server, one local address, no changes */
};

/* Ways to damage a table, which the checks must detect: name, damage. */
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
	bool last;      /* ends by itself */
	bool evicted;   /* some sessions were evicted in the current burst */
	bool slow;      /* the tables' pages are dropped repeatedly */
	uint64_t found; /* records in the file before it was opened */
	enum spoil spoil;
	char label[80]; /* seed, scenario and run, for messages */
};

/* Exit status of a run that found nothing to damage. */
#define RUN_NOTHING_THERE 3

/* Runs until killed; `last`: only until all checks are done, and a little longer. */
_Noreturn void run_start(struct chronicle *h, const struct scenario *scenario,
                         const char *directory, const char *label, uint64_t seed, enum spoil spoil,
                         bool last);

/* Reports the error and ends the process. */
_Noreturn void run_fail(const char *fmt, ...) SY_PRINTF(1, 2);
#define MUST(condition, ...)                                                                       \
	do {                                                                                       \
		if (!(condition))                                                                  \
			run_fail(__VA_ARGS__);                                                     \
	} while (0)

/* Returns "tcp 198.18.0.3:4711 → 192.0.2.100:80 by …", in a buffer that the next call overwrites.
 */
const char *flow_text(const struct flow *f);

/* ---- workload.c: packets, time --------------------------------------------------------------- */

/* Repeats the packets that were in flight when the predecessor was killed, then probes adopted
 * sessions from both sides. */
void workload_resume(struct run *l);
/* One burst of packets, or an advance of time. */
void workload_step(struct run *l);

/* ---- settings.c: configuration --------------------------------------------------------------- */

/* Finds the configuration in force after a kill, and checks that it was accepted. */
void settings_validate(struct run *l);
/* Applies the very first configuration. */
void settings_begin(struct run *l);
void settings_change(struct run *l);

/* ---- validate.c, anatomy.c ------------------------------------------------------------------- */

/* Compares the adopted sessions, as control requests report them, with the plain model. */
void validate(struct run *l);
/* Checks the tables themselves: records, free lists, index. Returns the number of live sessions. */
uint64_t anatomy_check(struct run *l);
/* The number of used records in the file before it is opened. */
uint64_t anatomy_count(const char *path);
/* Drops the tables' pages but not their contents: every first access then faults, and more kills
 * hit between two writes that belong together. */
void anatomy_chill(const struct run *l);
/* Damages the adopted tables; false: there is no record to damage. */
bool anatomy_spoil(struct run *l);

#endif
