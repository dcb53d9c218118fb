// SPDX-License-Identifier: Apache-2.0
/*
 * Switches `syn_defence: auto` (docs/design/0025-syn-defence.md, "Switching"). The control thread
 * compares each such service's counters four times a second, and sets a flag that workers read.
 */
#ifndef WATCH_H
#define WATCH_H

#include "balance.h"

/* ---- watch_switch.c: when to switch ---------------------------------------------------------- */

/* id, text for operators */
#define WATCH_REASONS(X)                                                                           \
	X(NONE, "")                                                                                \
	X(SHARE, "half-open sessions take much of the session table")                              \
	X(UNFINISHED, "most handshakes are not completed")                                         \
	X(RATE, "many more new connections than usual")                                            \
	X(CALM, "clients return its answers, or few SYNs come")

enum watch_reason {
#define X(id, text) WATCH_##id,
	WATCH_REASONS(X)
#undef X
};

enum watch_change { WATCH_STAYS, WATCH_ON, WATCH_OFF };

/* A service's counts over all workers, since the start except half_open. */
struct watch_counts {
	uint64_t begun, established; /* sessions; completed handshakes of them */
	uint64_t answered, returned; /* SYNs that the defence answered; valid answers to these */
	uint64_t half_open;          /* current number of sessions */
};

/* Values of one pass that all services share. */
struct watch_sample {
	uint64_t now_ns, elapsed_ns; /* time since the previous pass */
	uint64_t capacity;           /* records of all tables */
	unsigned workers;
};

/* Per service. All zero: no sample yet. */
struct watch_switch {
	struct watch_counts last;
	uint64_t until_ns;        /* on: end of the hold time; unreturned answers extend it */
	uint64_t over_ns;         /* off: duration of a reason */
	uint64_t calm_ns;         /* off: time without a reason */
	uint64_t learned_ns;      /* learning time of `usual` */
	float usual;              /* sessions begun per second without an attack */
	enum watch_reason reason; /* of the last switch */
	bool seen;                /* last is set */
	bool on;
	bool forged;      /* on: clients did not return answers */
	uint8_t needless; /* consecutive switches in which clients returned all answers */
};

/* Updates the switch with the counters of this pass. */
enum watch_change watch_switch_update(struct watch_switch *s, const struct watch_counts *counts,
                                      const struct watch_sample *sample);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* State of a service with `syn_defence: auto`. */
struct watched {
	struct watch_switch now;
	uint64_t since_ms;    /* Unix time of the last switch; 0: never */
	uint64_t switched_on; /* number of times */
	uint64_t answered;    /* SYNs answered when it was last switched on */
};

struct watch {
	struct watched *of_service; /* by service id */
	struct watch_sample sample; /* of this pass */
	uint64_t pass_ns;           /* begin of this pass */
	uint32_t at;                /* the next service of this pass; 0: wait */
	struct rate_limit log_rate;
	uint64_t not_logged; /* switches since the last log line */
};

int watch_create(struct sy_balance *b, struct sy_error *err);
void watch_destroy(struct sy_balance *b);
/* Called by the control thread: updates some services, each four times a second. */
void watch_tick(struct sy_balance *b);
struct watch_counts watch_counts_of(const struct sy_balance *b, uint32_t service);
/* Text for operators; empty: never switched. */
const char *watch_reason_text(enum watch_reason reason);

#endif
