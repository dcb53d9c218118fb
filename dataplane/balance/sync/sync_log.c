// SPDX-License-Identifier: Apache-2.0
#include "sync_log.h"

#define SCAN_STEP 4096 /* marks in one call */
/* Bytes of the window that are reserved for deletions: a later scan of the marks cannot find
 * these. */
#define DELETIONS 1024

static uint8_t *log_marks(const struct sync_log *log, const struct sync_source *source,
                          uint32_t *count)
{
	return source->marks(source->context, log->slot, log->peer, count);
}

void sync_log_begin(struct sync_log *log, unsigned slot, uint8_t peer)
{
	*log = (struct sync_log){.slot = (uint16_t)slot, .peer = peer};
	sync_window_begin(&log->window);
}

void sync_log_renumber(struct sync_log *log)
{
	struct sync_window *w = &log->window;

	w->next = 1 + w->next - w->first;
	w->first = w->sent = 1;
	sync_window_rewind(w);
	log->generation++;
	log->rewound = false;
	log->timeouts = 0;
	log->sum_ns = 0; /* send a sum now: the peer may have lost its replicas */
}

void sync_log_restart(struct sync_log *log, const struct sync_source *source)
{
	uint32_t count;
	uint8_t *mark = log_marks(log, source, &count);

	for (uint32_t i = 0; i < count; i++)
		mark[i] &= (uint8_t) ~(SYNC_KNOWN | SYNC_CHANGED);
	uint32_t generation = log->generation;
	sync_log_begin(log, log->slot, log->peer);
	log->generation = generation + 1;
	log->copy = SYNC_COPY_DUE;
}

/* ---- changes --------------------------------------------------------------------------------- */

void sync_log_change(struct sync_log *log, const struct sync_source *source, uint32_t record)
{
	uint32_t count;
	uint8_t *mark = log_marks(log, source, &count) + record;

	if (*mark & SYNC_CHANGED)
		return;
	*mark |= SYNC_CHANGED;
	if (log->queued < SYNC_QUEUE)
		log->queue[log->queued++] = record;
	else
		log->overflowed = true;
}

/* If the window has no space, a full copy follows: the receiver removes all records that the copy
 * lacks. */
static void deletion_enter(struct sync_log *log, const struct sync_source *source, uint8_t *mark,
                           uint32_t record, bool transferred)
{
	uint8_t entry[SYNC_ENTRY];
	uint64_t hash;

	source->describe_end(source->context, log->slot, record, transferred, entry, &hash);
	sync_sum_subtract(&log->sum, hash);
	*mark &= (uint8_t)~SYNC_KNOWN;
	if (!sync_window_add(&log->window, entry))
		log->copy = SYNC_COPY_DUE;
}

void sync_log_end(struct sync_log *log, const struct sync_source *source, uint32_t record,
                  bool transferred)
{
	uint32_t count;
	uint8_t *mark = log_marks(log, source, &count) + record;

	if (*mark & SYNC_KNOWN)
		deletion_enter(log, source, mark, record, transferred);
	*mark = 0; /* queue[] may still have its number: queue_enter() skips clear marks */
}

/* Returns false if the window has no space for it. */
static bool record_enter(struct sync_log *log, const struct sync_source *source, uint8_t *mark,
                         uint32_t record)
{
	uint8_t entry[SYNC_ENTRY];
	uint64_t hash;
	bool known = *mark & SYNC_KNOWN;

	if (sync_window_space(&log->window) < SYNC_ENTRY + DELETIONS)
		return false;
	*mark &= (uint8_t)~SYNC_CHANGED;
	if (source->describe(source->context, log->slot, record, known, entry, &hash)) {
		if (!known)
			sync_sum_add(&log->sum, hash);
		*mark |= SYNC_KNOWN;
		sync_window_add(&log->window, entry);
	} else if (known) {
		deletion_enter(log, source, mark, record, false);
	}
	return true;
}

/* Returns whether all changed records are in the window. */
static bool queue_enter(struct sync_log *log, const struct sync_source *source, uint8_t *mark)
{
	unsigned done = 0;

	while (done < log->queued) {
		uint32_t record = log->queue[done];
		if (mark[record] & SYNC_CHANGED &&
		    !record_enter(log, source, mark + record, record))
			break;
		done++;
	}
	log->queued = (uint16_t)(log->queued - done);
	memmove(log->queue, log->queue + done, log->queued * sizeof(*log->queue));
	return log->queued == 0;
}

/* The same for records that did not fit into the queue, found by a scan of the marks. */
static bool scan_enter(struct sync_log *log, const struct sync_source *source, uint8_t *mark,
                       uint32_t count)
{
	if (!log->scans && log->overflowed) {
		log->scans = true;
		log->overflowed =
		        false; /* set again if a record changes that the scan has passed */
		log->scan_at = 0;
	}
	if (log->scans) {
		uint32_t at = log->scan_at, end = count - at < SCAN_STEP ? count : at + SCAN_STEP;
		while (at < end &&
		       (!(mark[at] & SYNC_CHANGED) || record_enter(log, source, mark + at, at)))
			at++;
		log->scan_at = at;
		log->scans = at < count;
	}
	return !log->scans && !log->overflowed;
}

/* ---- copies, sums ---------------------------------------------------------------------------- */

static bool head_enter(struct sync_log *log, enum sync_entry_kind kind)
{
	const struct sync_entry_head head = {(uint8_t)kind, sizeof(head)};

	return sync_window_add(&log->window, &head);
}

/* Clears SYNC_KNOWN everywhere: from here on it marks the records that the copy has put. */
static void copy_begin(struct sync_log *log, uint8_t *mark, uint32_t count)
{
	if (!head_enter(log, SYNC_COPY_BEGIN))
		return;
	for (uint32_t i = 0; i < count; i++)
		mark[i] &= (uint8_t)~SYNC_KNOWN;
	log->sum = (struct sync_sum){0};
	log->copy = SYNC_COPY_RUNS;
	log->copy_at = 0;
}

static unsigned copy_enter(struct sync_log *log, const struct sync_source *source, uint8_t *mark,
                           uint32_t count, unsigned copies)
{
	unsigned done = 0;

	while (done < copies) {
		uint32_t record = source->next(source->context, log->slot, log->copy_at);
		if (record >= count) {
			if (head_enter(log, SYNC_COPY_END))
				log->copy = SYNC_COPY_NONE;
			break;
		}
		if (!(mark[record] & (SYNC_KNOWN | SYNC_OWNER))) {
			if (!record_enter(log, source, mark + record, record))
				break;
			log->copied++;
			done++;
		}
		log->copy_at = record + 1;
	}
	return done;
}

static void sum_enter(struct sync_log *log, uint64_t now_ns)
{
	const struct sync_sum_entry entry = {
	        .head = {SYNC_SUM, sizeof(entry)}, .hash = log->sum.hash, .count = log->sum.count};

	if (sync_window_add(&log->window, &entry))
		log->sum_ns = now_ns;
}

unsigned sync_log_fill(struct sync_log *log, const struct sync_source *source, unsigned copies,
                       bool sum_due, uint64_t now_ns)
{
	uint32_t count;
	uint8_t *mark = log_marks(log, source, &count);
	unsigned copied = 0;
	bool all = queue_enter(log, source, mark) && scan_enter(log, source, mark, count);

	if (log->copy == SYNC_COPY_DUE && copies > 0)
		copy_begin(log, mark, count);
	if (all && log->copy == SYNC_COPY_RUNS)
		copied = copy_enter(log, source, mark, count, copies);
	if (sum_due && log->copy == SYNC_COPY_NONE)
		sum_enter(log, now_ns);
	return copied;
}

bool sync_log_is_due(const struct sync_log *log)
{
	return log->queued || log->overflowed || log->scans || log->copy != SYNC_COPY_NONE ||
	       sync_window_has_unsent(&log->window);
}

/* ---- sending --------------------------------------------------------------------------------- */

bool sync_log_send(struct sync_log *log, struct sync_payload *to, uint64_t now_ns)
{
	struct sync_window *w = &log->window;
	struct sync_part part = {
	        .slot = log->slot, .kind = SYNC_ENTRIES, .generation = log->generation};
	uint32_t resent = w->sent - w->cursor; /* entries to retransmit */

	if (!sync_window_has_unsent(w))
		return false;
	if (w->cursor == w->first)
		log->sent_ns = now_ns;
	part.len = (uint16_t)sync_window_read(w, sync_part_bytes(to), sync_payload_space(to),
	                                      &part.number);
	if (part.len == 0)
		return false;
	if (resent)
		log->retransmitted +=
		        w->cursor - part.number < resent ? w->cursor - part.number : resent;
	sync_part_end(to, &part);
	return true;
}

static void acknowledge(struct sync_log *log, uint32_t number, bool gap, uint64_t now_ns)
{
	if (sync_window_acknowledge(&log->window, number)) {
		log->sent_ns = now_ns; /* restart the timer for the remaining entries */
		log->timeouts = 0;
		log->rewound = false;
	}
	/* The peer reports the gap for each part behind the lost one: react to the first report. */
	if (gap && !log->rewound && number == log->window.first &&
	    !sync_window_is_empty(&log->window)) {
		sync_window_rewind(&log->window);
		log->rewound = true;
	}
}

void sync_log_answer(struct sync_log *log, const struct sync_part *part, uint64_t now_ns)
{
	if (part->generation != log->generation)
		return;
	if (part->kind == SYNC_COPY)
		sync_log_copy(log);
	else if (part->kind == SYNC_APPLIED || part->kind == SYNC_GAP)
		acknowledge(log, part->number, part->kind == SYNC_GAP, now_ns);
}

void sync_log_copy(struct sync_log *log)
{
	if (log->copy == SYNC_COPY_NONE)
		log->copy = SYNC_COPY_DUE;
}

void sync_log_expire(struct sync_log *log, uint64_t timeout_ns, uint64_t max_ns, uint64_t now_ns)
{
	uint64_t timeout = timeout_ns << (log->timeouts < 16 ? log->timeouts : 16);

	if (log->window.sent == log->window.first || sync_window_has_unsent(&log->window) ||
	    now_ns - log->sent_ns < (timeout < max_ns ? timeout : max_ns))
		return;
	sync_window_rewind(&log->window);
	log->rewound = true; /* ignore reports of gaps: they may be from before */
	log->timeouts += log->timeouts < UINT8_MAX;
}
