// SPDX-License-Identifier: Apache-2.0
/*
 * The switch of `syn_defence: auto` (docs/design/0025-syn-defence.md, "Switching"). The control
 * thread compares counters of each such service four times a second, and writes one flag that
 * workers read.
 */
#ifndef WATCH_H
#define WATCH_H

#include "balance.h"

/* ---- watch_switch.c: when to switch ---------------------------------------------------------- */

/* id, what operators read */
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

/* Counters of a service, of all workers: so far, but for half_open. */
struct watch_counts {
	uint64_t begun, established; /* sessions; of them, handshakes that were completed */
	uint64_t answered, returned; /* SYNs that the defence answered; right returns of that */
	uint64_t half_open;          /* sessions now */
};

/* What all services have in common at a look. */
struct watch_look {
	uint64_t now_ns, elapsed_ns; /* since the look before */
	uint64_t capacity;           /* records of all tables */
	unsigned workers;
};

/* All zero: not looked at yet. */
struct watch_switch {
	struct watch_counts last;
	uint64_t until_ns;   /* on: when it goes off, unless more answers stay without return */
	uint64_t over_ns;    /* off: for how long a reason has held */
	uint64_t calm_ns;    /* off: for how long none has */
	uint64_t learned_ns; /* of what is usual */
	float usual;         /* sessions begun in a second, while there is no reason */
	enum watch_reason reason; /* of the last switch */
	bool seen;                /* last is set */
	bool on;
	bool forged;  /* on: answers have stayed without return */
	uint8_t vain; /* switches in sequence for which none did */
};

/* Takes the counters at this look. */
enum watch_change watch_switch_look(struct watch_switch *s, const struct watch_counts *counts,
                                    const struct watch_look *look);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* A service whose defence is `auto`. */
struct watched {
	struct watch_switch now;
	uint64_t since_ms;    /* Unix time of the last switch; 0: there was none */
	uint64_t switched_on; /* times */
	uint64_t answered;    /* SYNs, when it was last switched on */
};

struct watch {
	struct watched *of_service; /* by service id */
	struct watch_look look;     /* of this pass */
	uint64_t pass_ns;           /* when it began */
	uint32_t at;                /* the next service of this pass; 0: wait */
	struct rate_limit log_rate;
	uint64_t not_logged; /* switches since the last line */
};

int watch_create(struct sy_balance *b, struct sy_error *err);
void watch_destroy(struct sy_balance *b);
/* Looks at some services; at each of them four times a second. Control thread. */
void watch_tick(struct sy_balance *b);
struct watch_counts watch_counts_of(const struct sy_balance *b, uint32_t service);
/* What operators read; empty: it was never switched. */
const char *watch_reason_text(enum watch_reason reason);

#endif
