// SPDX-License-Identifier: Apache-2.0
/*
 * Kinds of entries of a slot's log. sync_session.h has the contents of puts, changes and deletions
 * of sessions.
 */
#ifndef SYNC_ENTRY_H
#define SYNC_ENTRY_H

#include "sync_window.h"

#define SYNC_ENTRY 120 /* bytes of the longest one */

enum sync_entry_kind {
	SYNC_PUT = 1,    /* identity and full state of an object: a session or a dictionary entry */
	SYNC_CHANGE,     /* identity and new state of an object that was put before */
	SYNC_DELETE,     /* identity of a removed object */
	SYNC_COPY_BEGIN, /* a copy begins: the sender puts all its objects of the slot */
	SYNC_COPY_END,   /* the receiver removes the sender's objects that the copy did not put */
	SYNC_SUM,        /* struct sync_sum_entry */
};

/* Digest of the objects that the log has put and not deleted. */
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
