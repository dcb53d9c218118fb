// SPDX-License-Identifier: Apache-2.0
/*
 * Detects attacks: packets of a kind far above the usual rate, per service or, without one, for the
 * whole forwarder. The control thread compares counters once a second. It only reports.
 */
#ifndef ATTACKS_H
#define ATTACKS_H

#include "balance.h"

#define ATTACKS_KEPT 256u

/* id, name, help, countermeasure (services' kinds: see counters) */
#define ATTACK_KINDS(X)                                                                            \
	X(SYN_FLOOD, "syn-flood", "new TCP connections, at many times the usual rate", "")         \
	X(UDP_FLOOD, "udp-flood", "new UDP sessions, at many times the usual rate", "")            \
	X(STRAY_TCP, "stray-tcp", "TCP segments of no connection: ACK, RST or FIN floods",         \
	  "dropped as no-session, without a trace in the table")                                   \
	X(NO_SERVICE, "no-service", "packets to VIPs, on ports that have no service",              \
	  "dropped as no-service or unknown-destination")                                          \
	X(FRAGMENTS, "fragment-flood", "fragments whose other parts do not come",                  \
	  "dropped; memory and time for fragments are bounded")                                    \
	X(ICMP, "icmp-flood", "ICMP that belongs to no session, or asks for too much",             \
	  "dropped; answers of our own are limited")                                               \
	X(MALFORMED, "malformed", "packets that no honest sender makes", "dropped")                \
	X(OVERRUN, "overrun", "packets that came faster than workers took them",                   \
	  "new sessions wait their turn, the rest is lost at the receive queue: more "             \
	  "workers, queues, or a larger ring help")

enum attack_kind {
#define X(id, name, help, done) ATTACK_##id,
	ATTACK_KINDS(X)
#undef X
	        ATTACK_KIND_COUNT
};
#define ATTACK_FIRST_TOTAL ATTACK_NO_SERVICE /* first kind without a service */

/* ---- attack_rate.c: the rate of one kind, against its own past ------------------------------- */

enum attack_change { ATTACK_NONE, ATTACK_BEGINS, ATTACK_GOES_ON, ATTACK_ENDS };

struct attack_rate {
	uint64_t last;       /* the counter at the last sample */
	float usual;         /* packets/s; frozen during an attack */
	uint16_t attack;     /* 1 + its index in struct attacks; 0: none */
	uint8_t samples : 7; /* samples so far, up to the number that the first usual rate needs */
	uint8_t under_way : 1;
	uint8_t seconds; /* consecutive seconds above the threshold, or below it during an attack */
};
_Static_assert(sizeof(struct attack_rate) == 16, "four a cache line");

/* Updates the counter, `elapsed_ns` after the previous sample, and returns the rate in between. A
 * counter that decreased starts anew. */
enum attack_change attack_rate_update(struct attack_rate *r, uint64_t count, uint64_t elapsed_ns,
                                      uint64_t *rate);

/* ---- attacks.c ------------------------------------------------------------------------------- */

struct attack {
	enum attack_kind kind;
	uint32_t service; /* SERVICE_NONE: of none */
	struct service_key key;
	char name[64];
	uint64_t began_ms, ended_ms; /* Unix time; 0: none, or in progress */
	uint64_t packets, rate, peak, usual;
	bool subsided; /* in progress, but its last rate was low enough to end it */
	struct service_counts before, after; /* of the service, at its begin and end */
};

struct attacks {
	struct attack_rate (*of_service)[ATTACK_FIRST_TOTAL]; /* by service id */
	struct attack_rate total[ATTACK_KIND_COUNT];
	struct attack attack[ATTACKS_KEPT]; /* began_ms 0: free entry */
	uint64_t left_out;                  /* attacks without a free entry */
	uint64_t pass_ns, elapsed_ns;       /* begin of this pass; time since the previous one */
	uint32_t at;                        /* the next service of this pass; 0: wait */
};

int attacks_create(struct sy_balance *b, struct sy_error *err);
void attacks_destroy(struct sy_balance *b);
/* Called by the control thread: checks some services, each once a second. */
void attacks_tick(struct sy_balance *b);
/* A service's counts over all workers. */
struct service_counts attacks_counts(const struct sy_balance *b, uint32_t service);

const char *attack_kind_name(enum attack_kind kind);
const char *attack_kind_help(enum attack_kind kind);
/* The countermeasure for this kind; empty: see counters. */
const char *attack_kind_done(enum attack_kind kind);

#endif
