// SPDX-License-Identifier: Apache-2.0
/*
 * Receiver of one slot's log, at the node that keeps the replicas
 * (docs/design/0068-session-sync.md). Entries are applied in the order of their numbers; what comes
 * too early or twice is ignored.
 *
 * Writer and reader: the worker that owns the slot.
 */
#ifndef SYNC_REPLICA_H
#define SYNC_REPLICA_H

#include "sync_entry.h"
#include "sync_part.h"

enum sync_result {
	SYNC_DONE,    /* an object that was known, or a deletion */
	SYNC_NEW,     /* an object that was not in the sum of what is here */
	SYNC_MISSING, /* a change or a deletion of an object that is not here */
	SYNC_REFUSED, /* a put that cannot be stored; the sink counts why */
	SYNC_LATER,   /* it names an id whose dictionary entry has not arrived */
	SYNC_INVALID, /* it cannot be read: it is skipped */
};

struct sync_sink {
	void *context;
	/* Applies SYNC_PUT, SYNC_CHANGE or SYNC_DELETE; stores the hash of the object's identity,
	 * unless it returns SYNC_LATER or SYNC_INVALID. For a deletion, SYNC_NEW means that the
	 * object was not counted. */
	enum sync_result (*apply)(void *context, unsigned node, unsigned slot, const uint8_t *entry,
	                          uint64_t *hash);
	/* A full copy begins: no object of the node in this slot is confirmed any more. */
	void (*copy_begin)(void *context, unsigned node, unsigned slot);
	/* Removes those that the copy has not put. */
	void (*copy_end)(void *context, unsigned node, unsigned slot);
};

struct sync_replica {
	uint32_t expected;       /* the next entry to apply; 0: no log has begun */
	uint32_t generation;     /* of the log */
	uint32_t epoch;          /* of the peer's incarnation; sync_node.c sets it */
	struct sync_sum here;    /* objects that are stored and counted */
	struct sync_sum refused; /* and those that could not be stored */
	bool copying;            /* a copy has begun and not ended */
	bool verified;           /* the last sum was equal */
	uint64_t mismatches;     /* sums that differed */
	uint64_t verified_ns;    /* time of the last equal sum */
	uint32_t unreadable;     /* entries since the last copy began: sums cannot be equal */
	uint64_t asked_ns;       /* time of the last request for a copy */
	uint64_t generation_ns, copy_ns; /* time of the last begin of each; 0: none */
};

/* How to answer a part. */
enum sync_reply {
	SYNC_REPLY_APPLIED,
	SYNC_REPLY_GAP,
	SYNC_REPLY_COPY, /* applied, but the sums differ: asks for a full copy */
};

/* A generation, like a copy, costs a pass over the slot's records. A peer that begins more often
 * than this waits: its part is not applied, and it sends it again. */
#define SYNC_BEGIN_NS UINT64_C(100000000)
/* Entries that cannot be read would be in each copy, too: that often another one is requested. */
#define SYNC_UNREADABLE_NS UINT64_C(60000000000)

/* Is it time for another generation of the log? */
bool sync_replica_may_begin(const struct sync_replica *r, uint64_t now_ns);
/* A generation of the log begins. `here`: the sum of its objects that are stored already. */
void sync_replica_begin(struct sync_replica *r, uint32_t generation, const struct sync_sum *here,
                        uint64_t now_ns);

/* Applies a part of kind SYNC_ENTRIES, of this generation. */
enum sync_reply sync_replica_apply(struct sync_replica *r, const struct sync_sink *sink,
                                   unsigned node, const struct sync_part *part, uint64_t now_ns);

#endif
