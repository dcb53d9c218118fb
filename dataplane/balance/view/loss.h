// SPDX-License-Identifier: Apache-2.0
/*
 * How many segments get lost between the forwarder and servers, from the traffic that passes
 * (docs/design/0043-shares.md).
 *
 * A worker watches few TCP sessions at a time, for some hundred segments each. These sessions are
 * slow-only (SESSION_WATCHED); packets of all others cost nothing.
 *
 *   client ── forwarder ── server
 *        ──────▶ × ─ ─ ─ ▶   from the client: bytes that have passed before, and that the
 *                            server has not acknowledged, were lost beyond
 *          ◀─ ─ ─ × ◀──────   from the server: bytes that others have overtaken, and that come a
 *                            round trip later, were lost on their way here
 *
 * What was lost on the client's side looks the other way round, or, an acknowledgement, comes after
 * the server's. It is not counted. A client can still repeat what its server has not yet
 * acknowledged: of a client and a server a worker watches one session at a time, and after
 * LOSS_MOST lost segments no other one until LOSS_OLD_NS after that one began.
 */
#ifndef LOSS_H
#define LOSS_H

#include "balance.h"

#define LOSS_WATCHED  256                   /* sessions of a worker at once */
#define LOSS_GAP_NS   UINT64_C(1000000)     /* between the first packets of two */
#define LOSS_SEGMENTS 256                   /* of one session */
#define LOSS_MOST     8                     /* lost ones: then it is watched no longer */
#define LOSS_OLD_NS   UINT64_C(10000000000) /* then another session may take its place */
#define LOSS_HOLES    4                     /* of a direction */

/* One direction of a session. Numbers are the sender's. */
struct loss_side {
	bool known;         /* next is */
	uint32_t next;      /* after the highest byte that has passed */
	uint64_t newest_ns; /* when that byte passed */
	struct loss_hole {
		uint32_t from, to; /* bytes that others have overtaken; equal: none */
		uint64_t at_ns;    /* when they were */
	} hole[LOSS_HOLES];
};

/* What a segment says. */
enum loss_sign {
	LOSS_NOTHING, /* new, or of no meaning */
	LOSS_REPEATS, /* all its bytes have passed before */
	LOSS_FILLS,   /* some of its bytes were missing for a round trip */
};

/* Takes note of a segment of len > 0 bytes. round_trip_ns: to the server; what comes sooner was not
 * sent again, but delayed or copied on its way. */
enum loss_sign loss_note(struct loss_side *s, uint32_t seq, uint32_t len, uint64_t now_ns,
                         uint64_t round_trip_ns);

struct losses *losses_create(void);
/* l may be NULL. */
void losses_destroy(struct losses *l);

/* The session's server has answered its SYN: watches it, if there is room and the server's round
 * trip is known. */
void loss_begin(struct sy_worker *w, uint8_t slot, uint32_t record, struct session *s);
/* A packet of a watched session passes. payload: its bytes of data. */
void loss_count(struct sy_worker *w, uint8_t slot, uint32_t record, struct session *s,
                enum session_direction from, const struct sy_tcp *tcp, uint32_t payload);
/* Watches this TCP session no longer: a packet that was seen did not leave. */
void loss_forget(struct sy_worker *w, uint8_t slot, uint32_t record, struct session *s);
/* Watches no session any more. Control thread, once no worker runs. */
void loss_stop(struct sy_balance *b);

#endif
