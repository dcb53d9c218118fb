// SPDX-License-Identifier: Apache-2.0
/*
 * Counts segments lost between the forwarder and servers, from passing traffic
 * (docs/design/0043-shares.md).
 *
 * A worker watches a few TCP sessions at a time, for some hundred segments each. These sessions are
 * slow-only (SESSION_WATCHED); packets of all others cost nothing.
 *
 *   client ── forwarder ── server
 *        ──────▶ × ─ ─ ─ ▶   from the client: retransmitted bytes that have passed before, and that
 *                            the server has not acknowledged, were lost beyond the forwarder
 *          ◀─ ─ ─ × ◀──────   from the server: bytes that others have overtaken, and that come a
 *                            round trip later, were lost before the forwarder
 *
 * Losses on the client's side show the opposite pattern, or concern an acknowledgement that the
 * server has already sent. They are not counted. A client can still repeat bytes that the server
 * has not yet acknowledged. So a worker watches one session per client and server at a time, and
 * after LOSS_MAX lost segments no other one until LOSS_OLD_NS after that one began.
 */
#ifndef LOSS_H
#define LOSS_H

#include "balance.h"

#define LOSS_WATCHED  256                   /* sessions watched by a worker at once */
#define LOSS_GAP_NS   UINT64_C(1000000)     /* between the starts of two */
#define LOSS_SEGMENTS 256                   /* watched segments per session */
#define LOSS_MAX      8                     /* lost segments after which watching ends */
#define LOSS_OLD_NS   UINT64_C(10000000000) /* age after which the entry may be reused */
#define LOSS_HOLES    4                     /* per direction */

/* One direction of a session, in the sender's numbering. */
struct loss_side {
	bool known;         /* next is valid */
	uint32_t next;      /* number after the highest byte that has passed */
	uint64_t newest_ns; /* when that byte passed */
	struct loss_hole {
		uint32_t from, to; /* bytes that others have overtaken; equal: none */
		uint64_t at_ns;    /* when they were overtaken */
	} hole[LOSS_HOLES];
};

/* What a segment shows. */
enum loss_sign {
	LOSS_NOTHING, /* nothing: new bytes, or ambiguous */
	LOSS_REPEATS, /* a retransmission: all its bytes have passed before */
	LOSS_FILLS,   /* fills a hole older than a round trip */
};

/* Processes a segment of len > 0 bytes. round_trip_ns: to the server; bytes that fill a hole sooner
 * were reordered or duplicated, not retransmitted. */
enum loss_sign loss_note(struct loss_side *s, uint32_t seq, uint32_t len, uint64_t now_ns,
                         uint64_t round_trip_ns);

struct losses *losses_create(void);
/* l may be NULL. */
void losses_destroy(struct losses *l);

/* Begins to watch a session whose server has answered the SYN, if an entry is free and the server's
 * round trip is known. */
void loss_begin(struct sy_worker *w, uint8_t slot, uint32_t record, struct session *s);
/* Processes a packet of a watched session. payload: its bytes of data. */
void loss_count(struct sy_worker *w, uint8_t slot, uint32_t record, struct session *s,
                enum session_direction from, const struct sy_tcp *tcp, uint32_t payload);
/* Stops watching a session: a packet that was processed did not leave. */
void loss_forget(struct sy_worker *w, uint8_t slot, uint32_t record, struct session *s);
/* Stops watching all sessions. Control thread, when no worker runs. */
void loss_stop(struct sy_balance *b);

#endif
