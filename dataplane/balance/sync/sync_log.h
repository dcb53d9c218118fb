// SPDX-License-Identifier: Apache-2.0
/*
 * One slot's log to the node that keeps its replicas: the sender's side
 * (docs/design/0068-session-sync.md).
 *
 *     a record changes ─▶ queue, or a scan of marks ─▶ window ─▶ datagram ─▶ acknowledged
 *
 * The log refers to records by number; a struct sync_source serialises them. These functions
 * neither read clocks nor send.
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
	SYNC_CHANGED = 0x40, /* its present state is not in the log yet */
	SYNC_KEPT = 0x80,    /* a replica that the owner's sum counts */
};

#define SYNC_NO_RECORD UINT32_MAX

struct sync_source {
	void *context;
	/* Serialises the record's present state into `entry`: as a change if `known`, otherwise as
	 * a put. Stores the hash of its identity. Returns false if the record is not to be
	 * replicated, or not yet. */
	bool (*describe)(void *context, unsigned slot, uint32_t record, bool known,
	                 uint8_t entry[static SYNC_ENTRY], uint64_t *hash);
	/* Serialises its deletion, before the record is removed. transferred: the record stays as a
	 * replica, and the peer serves the session. */
	void (*describe_end)(void *context, unsigned slot, uint32_t record, bool transferred,
	                     uint8_t entry[static SYNC_ENTRY], uint64_t *hash);
	/* Returns the first record in use from `record` on, or SYNC_NO_RECORD. */
	uint32_t (*next)(void *context, unsigned slot, uint32_t record);
	/* Returns the marks of a slot's records, and stores their number. The array moves when the
	 * table grows. The dictionary has a log and marks for each peer. */
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
	uint16_t queued; /* number of changed records in queue[] */
	uint16_t slot;
	uint8_t peer; /* the node number of the dictionary's reader; else 0 */
	uint32_t generation;
	bool overflowed; /* records changed that did not fit into queue[]: scan the marks */
	bool scans;      /* a scan of the marks is in progress */
	bool rewound;    /* the window is being retransmitted, and nothing was acknowledged since */
	uint8_t copy;    /* enum sync_copy */
	uint8_t timeouts;               /* consecutive */
	uint32_t scan_at, copy_at;      /* records */
	uint64_t sent_ns;               /* when the window's first entry was last sent */
	uint64_t sum_ns;                /* time of the last sum */
	uint64_t copied, retransmitted; /* entries */
};

void sync_log_begin(struct sync_log *log, unsigned slot, uint8_t peer);

/* Call when the peer has restarted: begins a new generation, with the unacknowledged entries. */
void sync_log_renumber(struct sync_log *log);

/* Begins a new generation with a copy of all records: for a new target, or if the peer's contents
 * are unknown. */
void sync_log_restart(struct sync_log *log, const struct sync_source *source);

/* Call after the record's state has changed. One call may cover several changes. */
void sync_log_change(struct sync_log *log, const struct sync_source *source, uint32_t record);

/* Call before the record is removed or, if `transferred`, becomes a replica of the peer. */
void sync_log_end(struct sync_log *log, const struct sync_source *source, uint32_t record,
                  bool transferred);

/* Returns true if there are records to serialise or entries to send. */
bool sync_log_is_due(const struct sync_log *log);

/* Returns the number of changed records that are not in the window; SYNC_QUEUE: at least that. */
static inline unsigned sync_log_waiting(const struct sync_log *log)
{
	return log->overflowed || log->scans ? SYNC_QUEUE : log->queued;
}

/* Serialises changed records into the window, then up to `copies` records of a copy. sum_due:
 * appends the sum after all changes. Returns the number of copied records. */
unsigned sync_log_fill(struct sync_log *log, const struct sync_source *source, unsigned copies,
                       bool sum_due, uint64_t now_ns);

/* Adds unsent entries to the datagram. Returns false if none was added. */
bool sync_log_send(struct sync_log *log, struct sync_payload *to, uint64_t now_ns);

/* Processes a part of the peer about this log: SYNC_APPLIED, SYNC_GAP or SYNC_COPY. */
void sync_log_answer(struct sync_log *log, const struct sync_part *part, uint64_t now_ns);
/* Schedules a copy of all records. */
void sync_log_copy(struct sync_log *log);

/* Retransmits the window if nothing was acknowledged for a time-out. timeout_ns doubles with each
 * consecutive time-out, up to max_ns. */
void sync_log_expire(struct sync_log *log, uint64_t timeout_ns, uint64_t max_ns, uint64_t now_ns);

#endif
