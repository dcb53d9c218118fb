// SPDX-License-Identifier: Apache-2.0
/*
 * Kinds of entries of a slot's log. sync_session.h has what a put, a change and a deletion say
 * about a session.
 */
#ifndef SYNC_ENTRY_H
#define SYNC_ENTRY_H

#include "sync_window.h"

#define SYNC_ENTRY 120 /* bytes of the longest one */

enum sync_entry_kind {
	SYNC_PUT = 1,    /* an object: its identity and its state */
	SYNC_CHANGE,     /* its identity, and the state that changes; it was put before */
	SYNC_DELETE,     /* its identity */
	SYNC_COPY_BEGIN, /* all objects of this slot follow, among other entries */
	SYNC_COPY_END,   /* those of the sender that were not put since then do not exist */
	SYNC_SUM,        /* struct sync_sum_entry */
};

/* What the receiver has after all entries before this one, if it has everything. */
struct sync_sum {
	uint64_t hash; /* of identities, their keyed hashes added modulo 2^64 */
	uint32_t count;
};

struct __attribute__((packed)) sync_sum_entry {
	struct sync_entry_head head;
	uint64_t hash;
	uint32_t count;
};
_Static_assert(sizeof(struct sync_sum_entry) == 14, "a wire format");

static inline void sync_sum_add(struct sync_sum *sum, uint64_t hash)
{
	sum->hash += hash;
	sum->count++;
}

static inline void sync_sum_subtract(struct sync_sum *sum, uint64_t hash)
{
	sum->hash -= hash;
	sum->count--;
}

static inline bool sync_sum_equal(const struct sync_sum *a, const struct sync_sum *b)
{
	return a->hash == b->hash && a->count == b->count;
}

#endif
