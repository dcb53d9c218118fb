// SPDX-License-Identifier: Apache-2.0
/*
 * Receiver of one slot's log, at the node that keeps the replicas
 * (docs/design/0068-session-sync.md). Entries are applied in the order of their numbers; duplicates
 * and entries behind a gap are ignored.
 *
 * Writer and reader: the worker that owns the slot.
 */
#ifndef SYNC_REPLICA_H
#define SYNC_REPLICA_H

#include "sync_entry.h"
#include "sync_part.h"

enum sync_result {
	SYNC_DONE,    /* applied; the object was in the sum already */
	SYNC_NEW,     /* applied; the object was not in the sum */
	SYNC_MISSING, /* a change or a deletion of an object that is not stored */
	SYNC_REFUSED, /* a put that cannot be stored; the sink counts the reason */
	SYNC_LATER,   /* not applied: the dictionary entry of an id has not arrived; try again */
	SYNC_INVALID, /* malformed: it is skipped */
};

struct sync_sink {
	void *context;
	/* Applies SYNC_PUT, SYNC_CHANGE or SYNC_DELETE; stores the hash of the object's identity,
	 * unless it returns SYNC_LATER or SYNC_INVALID. For a deletion, SYNC_NEW means that the
	 * object was not counted. */
	enum sync_result (*apply)(void *context, unsigned node, unsigned slot, const uint8_t *entry,
	                          uint64_t *hash);
	/* Called when a copy begins: clears SYNC_KEPT of the node's objects in the slot. */
	void (*copy_begin)(void *context, unsigned node, unsigned slot);
	/* Removes the node's objects without SYNC_KEPT: the copy has not put them. */
	void (*copy_end)(void *context, unsigned node, unsigned slot);
	/* Applies a SYNC_OWNED part: transfers the session to its owner. If that is the node that
	 * says so (!decided), not if this node has used it later. NULL: there are no such parts. */
	void (*owned)(void *context, unsigned owner, unsigned slot, const uint8_t *entry,
	              bool decided);
};

struct sync_replica {
	uint32_t expected;       /* the next entry to apply; 0: no log has begun */
	uint32_t generation;     /* of the log */
	uint32_t epoch;          /* of the peer's incarnation; sync_node.c sets it */
	struct sync_sum stored;  /* objects that are stored */
	struct sync_sum refused; /* objects that could not be stored */
	bool copy_due;           /* a copy was requested, and has not begun */
	bool copying;            /* a copy is in progress */
	bool verified;           /* the last sum was equal */
	uint64_t mismatches;     /* number of sums that differed */
	uint64_t verified_ns;    /* time of the last equal sum */
	uint32_t unreadable;     /* entries since the last copy began: sums cannot be equal */
	uint64_t asked_ns;       /* time of the last request for a copy */
	uint64_t generation_ns, copy_ns; /* time of the last begin of each; 0: none */
	uint64_t part_ns;                /* time of the last part */
};

/* How to answer a part. */
enum sync_reply {
	SYNC_REPLY_APPLIED,
	SYNC_REPLY_GAP,
	SYNC_REPLY_COPY, /* applied, but the sums differ: request a copy */
};

/* Min. interval between generations, and between copies: each costs a pass over the slot's records.
 * A part that begins one earlier is not applied: the peer retransmits it. */
#define SYNC_BEGIN_NS UINT64_C(100000000)
/* Interval of requests for copies while entries are malformed: each copy would have them, too. */
#define SYNC_UNREADABLE_NS UINT64_C(60000000000)

/* Returns true if all of the log's objects were stored or refused, as of its last sum. epoch: of
 * the peer's accepted incarnation. For reports of other threads, too. */
static inline bool sync_replica_is_complete(const struct sync_replica *r, uint32_t epoch)
{
	return __atomic_load_n(&r->verified, __ATOMIC_RELAXED) && r->epoch == epoch &&
	       !__atomic_load_n(&r->copying, __ATOMIC_RELAXED);
}

/* Requests a copy: until it begins, each sum counts as different. */
static inline void sync_replica_request_copy(struct sync_replica *r)
{
	r->copy_due = true;
	r->verified = false;
}

/* Returns true if another generation of the log may begin now. */
bool sync_replica_may_begin(const struct sync_replica *r, uint64_t now_ns);
/* Begins a generation of the log. stored: the sum of the sender's objects that are stored. */
void sync_replica_begin(struct sync_replica *r, uint32_t generation, const struct sync_sum *stored,
                        uint64_t now_ns);

/* Applies a part of kind SYNC_ENTRIES, of this generation. */
enum sync_reply sync_replica_apply(struct sync_replica *r, const struct sync_sink *sink,
                                   unsigned node, const struct sync_part *part, uint64_t now_ns);

#endif
