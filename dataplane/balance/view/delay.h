// SPDX-License-Identifier: Apache-2.0
/*
 * Measures how long servers take to answer SYNs, and how many SYNs clients retransmit, from passing
 * traffic (docs/design/0043-shares.md). Packets of established sessions cost nothing.
 *
 * A worker stores when it forwarded a SYN, in a small table, and takes the difference when the
 * answer passes. Both times are read from the clock, not from the poll iteration: a server on a
 * veth answers within the system call that sends. A SYN repeated after a second or more counts as
 * retransmitted. Karn's algorithm (RFC 6298 3): do not time a session with a retransmitted SYN, the
 * answer may belong to either copy.
 */
#ifndef DELAY_H
#define DELAY_H

#include "balance.h"

/* Bucket i counts delays below 2^i µs and not below 2^(i−1); the last one all from 4.2 s on. */
#define DELAY_BUCKETS 24

/* One server, measured by one worker. Writer: that worker; readers: relaxed. */
struct delay_share {
	uint64_t sum_ns;
	uint64_t repeated;       /* SYNs that clients retransmitted */
	uint64_t segments, lost; /* of watched sessions: loss.h */
	uint64_t bucket[DELAY_BUCKETS];
};

/* Max SYNs timed at once, at least DELAY_GAP_NS apart: even at a million connections per second the
 * cost is not measurable. */
#define DELAY_PENDING 512
#define DELAY_GAP_NS  50000
#define DELAY_OLD_NS  UINT64_C(4000000000) /* then stop waiting for the answer */

/* Per worker. */
struct delays {
	struct delay_share *share; /* by server id */
	uint64_t began_ns;         /* when the last entry was stored */
	struct {
		uint64_t session; /* slot << 32 | record, + 1; 0: free */
		uint64_t sent_ns;
	} pending[DELAY_PENDING];
};

struct delays *delays_create(uint32_t servers);
/* d may be NULL. */
void delays_destroy(struct delays *d, uint32_t servers);

/* Call when the session's SYN was forwarded to the server. */
void delay_begin(struct sy_worker *w, uint8_t slot, uint32_t record);
/* Call when the server's answer passes. */
void delay_answer(struct sy_worker *w, uint8_t slot, uint32_t record, uint32_t server);
/* Call when a duplicate of the SYN has come: its answer would be ambiguous. */
void delay_clear(struct sy_worker *w, uint8_t slot, uint32_t record);
/* Counts a SYN that the client retransmitted. */
void delay_note_repeated(struct sy_worker *w, uint32_t server);

/* The sum over all workers. Control thread. */
struct delay_share delay_sum(const struct sy_balance *b, uint32_t server);
/* Forgets a server that no worker measures any more. Control thread. */
void delay_forget(struct sy_balance *b, uint32_t server);

#endif
