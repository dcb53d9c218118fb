// SPDX-License-Identifier: Apache-2.0
/*
 * The unacknowledged end of a slot's log (docs/design/0068-session-sync.md). Entries are numbered
 * from 1. The sender buffers them until the peer acknowledges them. If one is lost, it retransmits
 * all of them (go-back-N): a window is one datagram or two.
 *
 *      first          cursor            next        numbers
 *     ┌──────────────┬─────────────────┬───────────┐
 *     │ sent         │ not sent, or    │ free      │ bytes
 *     │              │ to be sent again│           │
 *     └──────────────┴─────────────────┴───────────┘
 *
 * Writer and reader: the worker that owns the slot.
 */
#ifndef SYNC_WINDOW_H
#define SYNC_WINDOW_H

#include <sy_base.h>

#define SYNC_WINDOW 8192 /* bytes */

/* The head of every entry. A receiver skips kinds of later versions. */
struct sync_entry_head {
	uint8_t kind;
	uint8_t len; /* of the whole entry in bytes, these two included */
};
_Static_assert(sizeof(struct sync_entry_head) == 2, "a wire format");

struct sync_window {
	uint32_t first;  /* the oldest entry that is not acknowledged */
	uint32_t cursor; /* the next entry to send */
	uint32_t next;   /* the number of the next entry that is added */
	uint32_t sent;   /* entries before this one have been sent at least once */
	uint16_t cursor_at, used;
	uint8_t bytes[SYNC_WINDOW];
};

void sync_window_begin(struct sync_window *w);

static inline bool sync_window_is_empty(const struct sync_window *w)
{
	return w->first == w->next;
}

/* Returns true if entries are to be sent or retransmitted. */
static inline bool sync_window_has_unsent(const struct sync_window *w)
{
	return w->cursor != w->next;
}

static inline size_t sync_window_space(const struct sync_window *w)
{
	return SYNC_WINDOW - w->used;
}

/* Appends an entry. Returns false if it does not fit. */
bool sync_window_add(struct sync_window *w, const void *entry);

/* Copies complete entries from the cursor on, at most `space` bytes, and advances the cursor.
 * Returns the number of bytes; stores the first entry's number. */
size_t sync_window_read(struct sync_window *w, uint8_t *to, size_t space, uint32_t *number);

/* Processes the acknowledgement of all entries before `next`. Returns how many entries it frees; 0:
 * it is old or invalid. */
uint32_t sync_window_acknowledge(struct sync_window *w, uint32_t next);

/* Schedules all unacknowledged entries for retransmission. */
static inline void sync_window_rewind(struct sync_window *w)
{
	w->cursor = w->first;
	w->cursor_at = 0;
}

#endif
