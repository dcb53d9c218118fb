// SPDX-License-Identifier: Apache-2.0
/*
 * Growth of session tables (docs/design/0019-slots.md): doubles a slot's table when it is nearly
 * full. The control thread reserves memory; the slot's worker copies and indexes the sessions
 * between two bursts. The old table's region is reused once every worker has completed a sweep
 * since.
 */
#include "grow.h"

#include "control_plane.h"
#include "end.h"

#define GROW_AT_EIGHTHS 7 /* growth is due when this many eighths of its records are in use */
/* Max time of the workers per tick: a tenth of GROW_PERIOD_MS. */
#define GROW_TICK_NS  UINT64_C(2000000)
#define GROW_RETRY_NS (10 * UINT64_C(1000000000)) /* wait after a lack of memory */
#define GROW_BATCH    32                          /* sessions whose cache misses overlap */

struct move {
	struct sy_balance *b;
	struct session_growth growth;
	bool moved;
};

/* Indexes some sessions of the table in the larger one. */
static bool move_batch(struct move *m, const struct session_table *t, const uint32_t *record,
                       unsigned count)
{
	struct session_hashes h[GROW_BATCH];

	for (unsigned i = 0; i < count; i++) {
		h[i] = session_get_hashes(m->b, session_at(t, record[i]),
		                          session_cold_at(t, record[i]));
		session_prefetch_bucket(&m->growth.index, h[i].client);
		session_prefetch_bucket(&m->growth.index, h[i].server);
	}
	for (unsigned i = 0; i < count; i++)
		if (!session_grow_enter(&m->growth, record[i], h[i].client, h[i].server))
			return false;
	return true;
}

static bool move_sessions(struct move *m, const struct session_table *t)
{
	uint32_t record[GROW_BATCH], cursor = 0;
	unsigned count = 0;

	while ((record[count] = session_next(t, &cursor)) != SESSION_NONE)
		if (++count == GROW_BATCH) {
			if (!move_batch(m, t, record, count))
				return false;
			count = 0;
		}
	return move_batch(m, t, record, count);
}

/* Runs on the slot's worker, between two bursts. */
static void move_run(struct sy_worker *w, void *ctx)
{
	struct move *m = ctx;
	struct sy_balance *b = m->b;
	struct session_table *t = b->table[m->growth.table.slot];

	(void)w;
	session_grow_copy(t, &m->growth);
	m->moved = move_sessions(m, t);
	if (!m->moved)
		return;
	session_grow_finish(b->ctl->store, &m->growth);
}

static void passes_note(struct sy_balance *b)
{
	for (unsigned w = 0; w < b->workers; w++)
		b->ctl->growth.passes[w] = __atomic_load_n(&b->worker[w].passes, __ATOMIC_ACQUIRE);
}

static bool passes_are_over(const struct sy_balance *b)
{
	for (unsigned w = 0; w < b->workers; w++)
		if (__atomic_load_n(&b->worker[w].passes, __ATOMIC_ACQUIRE) ==
		    b->ctl->growth.passes[w])
			return false;
	return true;
}

/* A region left before passes_note() is free once every worker has finished a sweep since. */
static void grow_release(struct sy_balance *b)
{
	if (b->ctl->growth.leaving && passes_are_over(b)) {
		session_grow_release(b->ctl->store, b->ctl->growth.leaving);
		b->ctl->growth.left -= b->ctl->growth.leaving;
		b->ctl->growth.leaving = 0;
	}
	if (b->ctl->growth.left && !b->ctl->growth.leaving) {
		b->ctl->growth.leaving = b->ctl->growth.left;
		passes_note(b);
	}
}

static int grow_slot(struct sy_balance *b, uint8_t slot)
{
	struct move m = {.b = b};
	struct sy_error err;
	int rc = session_grow_prepare(b->ctl->store, slot, &m.growth, &err);
	if (rc < 0) {
		sy_log(SY_LOG_WARN, "sessions", "%s; sessions may be evicted or refused", err.text);
		return rc;
	}
	unsigned owner = sy_slot_worker(b->rt, slot);
	rc = sy_worker_call(sy_worker_at(b->rt, owner), move_run, &m);
	if (rc < 0) /* the worker did not run it and will not: the prepared region is free again */
		return rc;
	session_grow_leave(b->ctl->store, &m.growth);
	b->ctl->growth.left++;
	b->ctl->growth.grown += m.moved;
	return m.moved ? 0 : -ENOSPC;
}

/* SNAT sessions use two records and count once, so a slot may be full before the count of sessions
 * shows it: then an insertion has failed. */
static bool slot_is_nearly_full(const struct session_table *t)
{
	return __atomic_load_n(&t->refused, __ATOMIC_RELAXED) != 0 ||
	       (uint64_t)session_count(t) * 8 >= (uint64_t)session_capacity(t) * GROW_AT_EIGHTHS;
}

void grow_tick(void *balance)
{
	struct sy_balance *b = balance;
	uint64_t began = sy_clock_ns();

	if (!b->ctl->store || !b->ctl->dictionary.settled || b->ctl->hold)
		return;
	grow_release(b);
	if (b->ctl->growth.retry_ns > began)
		return;
	for (unsigned n = 0; n < SY_SLOTS; n++) {
		uint8_t slot = b->ctl->growth.at++;
		if (!slot_is_nearly_full(b->table[slot]) ||
		    !session_grow_is_possible(b->ctl->store, slot))
			continue;
		if (grow_slot(b, slot) < 0) {
			b->ctl->growth.retry_ns = began + GROW_RETRY_NS;
			return;
		}
		if (sy_clock_ns() - began > GROW_TICK_NS)
			return;
	}
}
