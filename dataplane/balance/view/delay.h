// SPDX-License-Identifier: Apache-2.0
/*
 * How long servers take to answer SYNs, and how many SYNs clients repeat, from the traffic that
 * passes (docs/design/0043-shares.md). Established sessions' packets cost nothing.
 *
 * A worker notes when it forwarded a SYN, in a small table, and takes the time when the answer
 * passes. Both times are read from the clock: the answer may pass in the poll iteration in which
 * the SYN left, as a server on a veth answers within the system call that sends. A SYN that is
 * repeated after a second or more is counted. Karn's algorithm (RFC 6298 3): a session with a
 * repeated SYN is not timed, as the answer may belong to either copy.
 */
#ifndef DELAY_H
#define DELAY_H

#include "balance.h"

/* Bucket i holds delays below 2^i µs that the ones before do not; the last one all others, from
 * 4.2 s on. */
#define DELAY_BUCKETS 24

/* One server, as one worker has measured it. Writer: that worker; readers: relaxed. */
struct delay_share {
	uint64_t sum_ns;
	uint64_t repeated;       /* SYNs that clients repeated, as no answer had come */
	uint64_t segments, lost; /* of sessions that were watched: loss.h */
	uint64_t bucket[DELAY_BUCKETS];
};

/* At most so many SYNs under way are timed at once, and no two within DELAY_GAP_NS: at a million
 * connections a second what they cost is not measurable. */
#define DELAY_PENDING 512
#define DELAY_GAP_NS  50000
#define DELAY_OLD_NS  UINT64_C(4000000000) /* the answer is not waited for */

/* Per worker. */
struct delays {
	struct delay_share *share; /* by server id */
	uint64_t began_ns;         /* when the last one was noted */
	struct {
		uint64_t session; /* slot << 32 | record, + 1; 0: none */
		uint64_t sent_ns;
	} pending[DELAY_PENDING];
};

struct delays *delays_create(uint32_t servers);
/* d may be NULL. */
void delays_destroy(struct delays *d, uint32_t servers);

/* The session's SYN is on its way to the server. */
void delay_begin(struct sy_worker *w, uint8_t slot, uint32_t record);
/* The server has answered it. */
void delay_answer(struct sy_worker *w, uint8_t slot, uint32_t record, uint32_t server);
/* Another copy of it has come: which of them is answered will not be known. */
void delay_clear(struct sy_worker *w, uint8_t slot, uint32_t record);
/* The client has repeated it, as no answer came. */
void delay_note_repeated(struct sy_worker *w, uint32_t server);

/* The sum over all workers. Control thread. */
struct delay_share delay_sum(const struct sy_balance *b, uint32_t server);
/* No worker measures the server any more: forgets it. Control thread. */
void delay_forget(struct sy_balance *b, uint32_t server);

#endif
