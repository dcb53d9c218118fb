// SPDX-License-Identifier: Apache-2.0
/*
 * One slot's log to the node that keeps its replicas: the sender's side
 * (docs/design/0068-session-sync.md).
 *
 *     a record changes ─▶ queue, or a scan of marks ─▶ window ─▶ datagram ─▶ acknowledged
 *
 * The log knows records by their numbers alone; a struct sync_source describes them. It neither
 * reads clocks nor sends.
 *
 * Writer and reader: the worker that owns the slot.
 */
#ifndef SYNC_LOG_H
#define SYNC_LOG_H

#include "sync_entry.h"
#include "sync_part.h"

/* A record's mark. */
enum {
	SYNC_OWNER = 0x1f,   /* the node that serves the session; 0: this one */
	SYNC_KNOWN = 0x20,   /* its put is in the log */
	SYNC_CHANGED = 0x40, /* its present state is not */
	SYNC_KEPT = 0x80,    /* a replica that was put since the copy began */
};

#define SYNC_NO_RECORD UINT32_MAX

struct sync_source {
	void *context;
	/* Writes the record's present state into `entry`, as a change if the peer knows it, and
	 * stores the hash of its identity. Returns false if it is not to be replicated (yet). */
	bool (*describe)(void *context, unsigned slot, uint32_t record, bool known,
	                 uint8_t entry[static SYNC_ENTRY], uint64_t *hash);
	/* Writes its deletion, while the record is still there. given: the record stays, as a
	 * replica of the peer, which is to serve it. */
	void (*describe_end)(void *context, unsigned slot, uint32_t record, bool given,
	                     uint8_t entry[static SYNC_ENTRY], uint64_t *hash);
	/* The first live record from `record` on, or SYNC_NO_RECORD. */
	uint32_t (*next)(void *context, unsigned slot, uint32_t record);
	/* The marks of a slot's records, and how many there are. They move when the table grows.
	 * The dictionary has a log and marks for each peer. */
	uint8_t *(*marks)(void *context, unsigned slot, uint8_t peer, uint32_t *count);
};

#define SYNC_QUEUE 64 /* records */

enum sync_copy {
	SYNC_COPY_NONE,
	SYNC_COPY_DUE, /* begins as soon as the window has space */
	SYNC_COPY_RUNS,
};

struct sync_log {
	struct sync_window window;
	struct sync_sum sum; /* of the known records */
	uint32_t queue[SYNC_QUEUE];
	uint16_t queued; /* the first `queued` of them have changed */
	uint16_t slot;
	uint8_t peer; /* the node number of the dictionary's reader; else 0 */
	uint32_t generation;
	bool overflowed; /* others have since the scan began: their marks say which */
	bool scans;
	bool rewound;              /* entries go out again, and no acknowledgement has come since */
	uint8_t copy;              /* enum sync_copy */
	uint8_t timeouts;          /* in a row */
	uint32_t scan_at, copy_at; /* records */
	uint64_t sent_ns;          /* the cursor was at the window's first entry */
	uint64_t sum_ns;           /* the last sum is as old */
	uint64_t copied, retransmitted; /* entries */
};

void sync_log_begin(struct sync_log *log, unsigned slot, uint8_t peer);

/* The peer has restarted: numbers begin again. What it has not acknowledged is sent first. */
void sync_log_renumber(struct sync_log *log);

/* Another node is to keep the replicas, or this process does not know what the peer has: everything
 * is to be copied. */
void sync_log_restart(struct sync_log *log, const struct sync_source *source);

/* The record's state has changed; call it before its next change, or later. */
void sync_log_change(struct sync_log *log, const struct sync_source *source, uint32_t record);

/* The record is about to be removed, or given to the peer. */
void sync_log_end(struct sync_log *log, const struct sync_source *source, uint32_t record,
                  bool given);

/* Has something to enter into the window, or to send from it. */
bool sync_log_is_due(const struct sync_log *log);

/* Changes that are not in the window, as far as they are counted: SYNC_QUEUE or more. */
static inline unsigned sync_log_waiting(const struct sync_log *log)
{
	return log->overflowed || log->scans ? SYNC_QUEUE : log->queued;
}

/*
 * Enters changes into the window, then up to `copies` records of a copy, of which it returns the
 * number. sum_due: enters the sum, too, once all changes are in.
 */
unsigned sync_log_fill(struct sync_log *log, const struct sync_source *source, unsigned copies,
                       bool sum_due, uint64_t now_ns);

/* Adds unsent entries to the datagram. Returns false if none was added. */
bool sync_log_send(struct sync_log *log, struct sync_payload *to, uint64_t now_ns);

/* A part of the peer about this slot, other than SYNC_ENTRIES. */
void sync_log_answer(struct sync_log *log, const struct sync_part *part, uint64_t now_ns);
/* Everything is to be copied. */
void sync_log_copy(struct sync_log *log);

/* Nothing was acknowledged for a time-out: the window is sent again. timeout_ns doubles with each
 * one in a row, up to max_ns. */
void sync_log_expire(struct sync_log *log, uint64_t timeout_ns, uint64_t max_ns, uint64_t now_ns);

#endif
