// SPDX-License-Identifier: Apache-2.0
/* One slot's table: records, their free list, insertion, removal, sweeping. Called by
 * path/create.c, end.c and sweep.c, on the slot's worker. */
#include "session_file.h"

#include "session_hot.h"
#include "session_walk.h"

void session_table_init(struct session_table *t, struct session_index *index, uint8_t slot,
                        void *region, const struct session_geometry *g)
{
	uint8_t *base = region;

	*t = (struct session_table){
	        .index = index,
	        .cold = (struct session_cold *)(base + g->cold_at),
	        .cursors = (uint16_t *)(base + g->cursors_at),
	        .capacity = g->records,
	        .slot = slot,
	        .free_head = SESSION_NONE,
	        .counted = true,
	};
	session_index_set(index, (struct session_bucket *)(base + g->buckets_at), g->buckets,
	                  (struct session *)(base + g->hot_at));
}

uint16_t session_check(const struct session *hot)
{
	uint64_t ids = (uint64_t)hot->client_port << 48 | (uint64_t)hot->local_port << 32 |
	               (uint64_t)hot->server << 8 | hot->local;
	/* any odd constants: this detects accidents, not forgery */
	uint64_t h = sy_hash_mix(hot->client.d[0] ^ 0x9e3779b97f4a7c15,
	                         hot->client.d[1] ^ 0xbf58476d1ce4e5b9);
	h = sy_hash_mix(h ^ hot->delta, ids ^ 0x94d049bb133111eb);
	return (uint16_t)(1 + h % UINT16_MAX);
}

/* ---- free records: a doubly linked list through the cold halves ------------------------------ */

/* The head's free_prev is undefined: allocating the head touches no other record, which saves a
 * cache miss per creation. */

static void free_push(struct session_table *t, uint32_t record)
{
	struct session_cold *cold = &t->cold[record];

	cold->free_next = t->free_head;
	if (t->free_head != SESSION_NONE)
		t->cold[t->free_head].free_prev = record;
	t->free_head = record;
}

static void free_unlink(struct session_table *t, uint32_t record)
{
	const struct session_cold *cold = &t->cold[record];

	if (record == t->free_head) {
		t->free_head = cold->free_next;
		return;
	}
	t->cold[cold->free_prev].free_next = cold->free_next;
	if (cold->free_next != SESSION_NONE)
		t->cold[cold->free_next].free_prev = cold->free_prev;
}

static void free_list_remove(struct session_table *t, uint32_t record)
{
	if (record == t->top)
		t->top++;
	else
		free_unlink(t, record);
}

void session_table_list_free(struct session_table *t)
{
	t->free_head = SESSION_NONE;
	for (uint32_t record = t->top; record-- > 0;)
		if (t->index->hot[record].state == SESSION_FREE)
			free_push(t, record);
}

/* ---- pairs: an even record and the next one -------------------------------------------------- */

/* Max free records that a search for a pair visits: single sessions fragment the list. */
#define PAIR_PROBES 32

static bool pair_is_free(const struct session_table *t, uint32_t first)
{
	return t->index->hot[first].state == SESSION_FREE &&
	       t->index->hot[first + 1].state == SESSION_FREE;
}

/* The first of two free records, both below top or starting at top. */
static uint32_t pair_first(struct session_table *t)
{
	uint32_t record = t->free_head;

	for (unsigned n = 0; n < PAIR_PROBES && record != SESSION_NONE; n++) {
		uint32_t first = record & ~1u;
		/* records above top are free but not on the list */
		if (first + 1 < t->top && pair_is_free(t, first))
			return first;
		record = t->cold[record].free_next;
	}
	if (t->top % 2 == 1) /* capacity is even */
		free_push(t, t->top++);
	if (t->top >= 2 && pair_is_free(t, t->top - 2))
		return t->top - 2;
	return t->top < t->capacity ? t->top : SESSION_NONE;
}

bool session_is_pair(const struct session_table *t, uint32_t record)
{
	return record % 2 == 0 && t->index->hot[record + 1].state == SESSION_PAIR_RECORD;
}

/* ---- creation and end ------------------------------------------------------------------------ */

static void record_write(struct session_table *t, uint32_t record, const struct session *hot,
                         const struct session_cold *cold)
{
	struct session_cold *at = &t->cold[record], whole = *cold;

	free_list_remove(t, record);
	hot_write(&t->index->hot[record], hot);
	whole.commit = 0;
	*at = whole;
	__atomic_store_n(&at->commit, session_check(hot), __ATOMIC_RELEASE);
}

static bool record_enter(struct session_table *t, uint32_t record, uint64_t client_hash,
                         uint64_t server_hash)
{
	if (record == SESSION_NONE)
		return false;
	if (!session_walk_enter(t->index, record, client_hash, server_hash))
		return false;
	__atomic_store_n(&t->live, t->live + 1, __ATOMIC_RELAXED);
	return true;
}

uint32_t session_insert(struct session_table *t, const struct session *hot,
                        const struct session_cold *cold, uint64_t client_hash, uint64_t server_hash)
{
	uint32_t record = session_free_first(t);

	if (!record_enter(t, record, client_hash, server_hash))
		return SESSION_NONE;
	record_write(t, record, hot, cold);
	return record;
}

uint32_t session_insert_pair(struct session_table *t, struct session hot[2],
                             const struct session_cold cold[2], uint64_t client_hash,
                             uint64_t server_hash)
{
	uint32_t record = pair_first(t);

	if (!record_enter(t, record, client_hash, server_hash))
		return SESSION_NONE;
	hot[1].server = hot[0].server;
	hot[1].local = hot[0].local;
	hot[1].local_port = hot[0].local_port;
	hot[1].delta = session_check(&hot[0]);
	hot[1].state = SESSION_PAIR_RECORD;
	if (record == t->top) { /* put both on the free list; the first is allocated last */
		free_push(t, t->top++);
		free_push(t, t->top++);
	}
	/* after a crash in between, adoption finds a pair record without a session */
	record_write(t, record + 1, &hot[1], &cold[1]);
	record_write(t, record, &hot[0], &cold[0]);
	return record;
}

static void record_clear(struct session_table *t, uint32_t record)
{
	__atomic_store_n(&t->cold[record].commit, 0, __ATOMIC_RELAXED);
	/* after a crash, adoption must not find a commit word that does not match the record */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	hot_clear(&t->index->hot[record]);
	free_push(t, record);
}

void session_remove(struct session_table *t, uint32_t record, uint64_t client_hash,
                    uint64_t server_hash)
{
	bool pair = session_is_pair(t, record);

	session_walk_remove(t->index, client_hash, record << 1 | SESSION_CLIENT);
	if (server_hash != SESSION_ONE_WAY)
		session_walk_remove(t->index, server_hash, record << 1 | SESSION_SERVER);
	record_clear(t, record);
	if (pair)
		record_clear(t, record + 1);
	__atomic_store_n(&t->live, t->live - 1, __ATOMIC_RELAXED);
}

uint32_t session_count(const struct session_table *t)
{
	return __atomic_load_n(&t->live, __ATOMIC_RELAXED);
}

uint32_t session_capacity(const struct session_table *t)
{
	return __atomic_load_n(&t->capacity, __ATOMIC_RELAXED);
}

/* ---- visits ---------------------------------------------------------------------------------- */

static bool record_is_session(const struct session_table *t, uint32_t record)
{
	uint8_t state = t->index->hot[record].state;

	return state != SESSION_FREE && state != SESSION_PAIR_RECORD;
}

/* Lowers top past the free records just below it. Returns the number of steps used of the
 * budget. */
static uint32_t table_trim(struct session_table *t, uint32_t budget)
{
	uint32_t done = 0;

	for (; done < budget && t->top > 0 && t->index->hot[t->top - 1].state == SESSION_FREE;
	     done++)
		free_unlink(t, --t->top);
	return done;
}

/* Records, about thirty lines; the hardware prefetcher stops at the next 4 KB boundary. */
#define SWEEP_AHEAD 64

bool session_sweep(struct session_table *t, uint32_t records,
                   void (*visit)(void *ctx, struct session_table *t, uint32_t record), void *ctx)
{
	while (records > 0) {
		if (t->sweep_at >= t->top) {
			/* Trim within the same budget: one session near the top may have kept a
			 * whole table of free records below it. */
			records -= table_trim(t, records);
			if (records == 0)
				return false;
			t->sweep_at = 0;
			return true;
		}
		uint32_t record = t->sweep_at++;
		records--;
		__builtin_prefetch(&t->index->hot[record + SWEEP_AHEAD]);
		if (record_is_session(t, record))
			visit(ctx, t, record);
	}
	return false;
}

uint32_t session_next(const struct session_table *t, uint32_t *cursor)
{
	while (*cursor < t->top) {
		uint32_t record = (*cursor)++;
		if (record_is_session(t, record))
			return record;
	}
	return SESSION_NONE;
}
