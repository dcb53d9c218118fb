// SPDX-License-Identifier: Apache-2.0
/*
 * Adoption: validates every record of the file, and rebuilds the index and the free lists from
 * those that are kept. In place, the only change to a record is freeing it, commit word first: if
 * this process crashes, the next one finds each record either unchanged or free. Tables of another
 * size get copies.
 */
#include <errno.h>
#include <pthread.h>

#include "session_file.h"
#include "session_walk.h"

/* Records validated before the first is indexed: their cache misses overlap. */
#define BATCH 32

/* Max idle ticks. Above it, `seen` is later than the last heartbeat of the process that wrote it,
 * so the difference has wrapped: counts as idle 0. Timeouts are below 2^15 s. */
#define IDLE_MAX (UINT16_MAX - 60)

static const char *const result_names[] = {
#define X(id, name, help) name,
        SESSION_RESULTS(X)
#undef X
};
static const char *const result_helps[] = {
#define X(id, name, help) help,
        SESSION_RESULTS(X)
#undef X
};

const char *session_result_name(enum session_result v)
{
	return (unsigned)v < SESSION_RESULT_COUNT ? result_names[v] : "?";
}

const char *session_result_help(enum session_result v)
{
	return (unsigned)v < SESSION_RESULT_COUNT ? result_helps[v] : "?";
}

/* Shared by all threads; only next_slot changes. */
struct adoption {
	struct session_store *s;
	const struct session_validator *validator;
	const struct sy_hash_key *key; /* points into the file; a copy on the heap would
	                                * appear in core dumps */
	uint32_t servers;
	uint16_t left_tick; /* tick of the last heartbeat of the file's last process */
	uint32_t away_s;    /* seconds since then */
	unsigned next_slot; /* atomic; each thread claims one slot at a time */
};

/* One thread, and its current slot. */
struct adopter {
	struct adoption *a;
	pthread_t thread;
	struct session_table *to, *from; /* equal if adopted in place */
	struct session_table old;
	struct session_index old_index;
	uint64_t count[SESSION_RESULT_COUNT];
};

/* A complete record, before it is indexed. */
struct candidate {
	uint32_t record;       /* in `from` */
	struct session hot[2]; /* with its pair record, if it has one */
	uint64_t client_hash, server_hash;
};

/* ---- one record ------------------------------------------------------------------------------ */

/* Ignores `seen`: a worker may have written it while the session ended. */
static bool hot_is_empty(const struct session *hot)
{
	struct session rest = *hot;
	uint64_t w[4];
	rest.seen = 0;
	memcpy(w, &rest, sizeof(w));
	return (w[0] | w[1] | w[2] | w[3]) == 0;
}

static uint32_t idle_seconds(const struct adoption *a, const struct session *hot)
{
	uint16_t idle = session_idle(hot, a->left_tick);
	return a->away_s + (idle > IDLE_MAX ? 0 : idle);
}

/* Returns KEPT if the record is valid; then *c is complete. */
static enum session_result record_validate(const struct adopter *w, struct candidate *c)
{
	const struct adoption *a = w->a;
	const struct session_cold *cold = &w->from->cold[c->record];
	uint8_t slot = w->from->slot;
	struct sy_tuple client, server;

	if (cold->commit != session_check(c->hot) || c->hot->state == SESSION_FREE ||
	    c->hot->state == SESSION_PAIR_RECORD || c->hot->state >= SESSION_STATES)
		return SESSION_TORN;
	if (sy_slot_of(&c->hot->client, c->hot->client_port) != slot)
		return SESSION_MISPLACED;
	if (c->hot->server >= a->servers)
		return SESSION_UNKNOWN_ID;
	enum session_result v = a->validator->validate(a->validator->ctx, slot, c->hot, cold,
	                                               idle_seconds(a, c->hot), &client, &server);
	if (v != SESSION_KEPT)
		return v;
	c->client_hash = sy_hash_tuple(a->key, &client);
	session_prefetch_bucket(w->to->index, c->client_hash);
	if (server.proto == 0) {
		c->server_hash = SESSION_ONE_WAY;
		return SESSION_KEPT;
	}
	if (sy_slot_of(&server.dst, server.dport) != slot)
		return SESSION_MISPLACED;
	c->server_hash = sy_hash_tuple(a->key, &server);
	session_prefetch_bucket(w->to->index, c->server_hash);
	return SESSION_KEPT;
}

/* Frees a record if its table stays in use. */
static void record_free(struct adopter *w, uint32_t record)
{
	if (w->from != w->to)
		return;
	__atomic_store_n(&w->to->cold[record].commit, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	w->to->index->hot[record] = (struct session){.state = SESSION_FREE};
}

/* Is the record followed by a complete pair record that belongs to it? */
static bool record_has_pair(const struct session_table *t, uint32_t record)
{
	const struct session *hot = &t->index->hot[record];

	return session_is_pair(t, record) && hot[0].state != SESSION_FREE &&
	       t->cold[record + 1].commit == session_check(&hot[1]) &&
	       hot[1].delta == session_check(&hot[0]);
}

/* Counts the session's result and frees its record. Its pair record, even an incomplete one, is
 * freed when the loop reaches it. */
static void record_end(struct adopter *w, uint32_t record, enum session_result why)
{
	w->count[why]++;
	record_free(w, record);
}

struct duplicate {
	const struct session_validator *validator;
	const struct session_table *to;
	const struct session *hot;
	const struct session_cold *cold;
	enum session_direction side;
};

static bool duplicate_match(const void *ctx, const struct session *candidate,
                            enum session_direction direction)
{
	const struct duplicate *t = ctx;
	return direction == t->side &&
	       t->validator->same(t->validator->ctx, t->hot, t->cold, candidate,
	                          session_cold_beside(t->to, candidate), direction);
}

static bool has_duplicate(const struct adopter *w, const struct candidate *c)
{
	struct duplicate t = {w->a->validator, w->to, c->hot, &w->from->cold[c->record],
	                      SESSION_CLIENT};
	enum session_direction direction;

	if (session_find(w->to->index, c->client_hash, duplicate_match, &t, &direction) !=
	    SESSION_NONE)
		return true;
	if (c->server_hash == SESSION_ONE_WAY)
		return false;
	t.side = SESSION_SERVER;
	return session_find(w->to->index, c->server_hash, duplicate_match, &t, &direction) !=
	       SESSION_NONE;
}

static bool record_enter(struct adopter *w, struct candidate *c)
{
	struct session_table *to = w->to;
	bool pair = c->hot[1].state == SESSION_PAIR_RECORD;

	if (w->from == to) {
		if (!session_walk_enter(to->index, c->record, c->client_hash, c->server_hash))
			return false;
		struct session *hot = &to->index->hot[c->record];
		hot->seen = c->hot->seen; /* fields that the validator may have changed */
		hot->path = c->hot->path;
		hot->state = c->hot->state;
		hot->flags = c->hot->flags;
		if (pair)
			hot[1].path = c->hot[1].path;
		to->live++;
		to->top = c->record + 1 + pair;
		return true;
	}
	const struct session_cold *cold = &w->from->cold[c->record];
	return (pair ? session_insert_pair(to, c->hot, cold, c->client_hash, c->server_hash)
	             : session_insert(to, c->hot, cold, c->client_hash, c->server_hash)) !=
	       SESSION_NONE;
}

/* ---- one slot -------------------------------------------------------------------------------- */

/* Validates `count` records from `first` on. Stores those to keep in batch[] and returns their
 * number. */
static unsigned batch_validate(struct adopter *w, uint32_t first, uint32_t count,
                               struct candidate batch[static BATCH])
{
	const struct session_table *from = w->from;
	unsigned kept = 0;

	for (uint32_t record = first; record < first + count; record++) {
		struct candidate *c = &batch[kept];
		if (from->cold[record].commit == 0 && hot_is_empty(&from->index->hot[record]))
			continue;
		if (from->index->hot[record].state == SESSION_PAIR_RECORD) {
			/* validated with its session, unless that was never complete */
			if (record % 2 == 0 || !record_has_pair(from, record - 1))
				record_free(w, record);
			continue;
		}
		c->record = record;
		c->hot[0] = from->index->hot[record];
		c->hot[1] = record_has_pair(from, record) ? from->index->hot[record + 1]
		                                          : (struct session){.state = SESSION_FREE};
		enum session_result v = record_validate(w, c);
		if (v == SESSION_KEPT)
			kept++;
		else
			record_end(w, record, v);
	}
	return kept;
}

static void batch_enter(struct adopter *w, struct candidate *batch, unsigned count)
{
	for (struct candidate *c = batch; c < batch + count; c++) {
		bool duplicate = has_duplicate(w, c);
		if (!duplicate && record_enter(w, c)) {
			w->count[SESSION_KEPT]++;
			continue;
		}
		record_end(w, c->record, duplicate ? SESSION_DUPLICATE : SESSION_NO_ROOM);
		if (c->hot[1].state == SESSION_PAIR_RECORD)
			record_free(w, c->record + 1);
	}
}

static void slot_begin(struct adopter *w, uint8_t slot)
{
	const struct session_file *old = w->a->s->old.file;

	w->to = w->from = &w->a->s->tables[slot];
	if (old != NULL) {
		struct session_geometry g;
		session_slot_geometry(old, slot, &g);
		session_table_init(&w->old, &w->old_index, slot, session_slot_region(old, slot),
		                   &g);
		w->from = &w->old;
		memcpy(w->to->cursors, w->old.cursors, SESSION_PORT_CURSORS * sizeof(uint16_t));
		return;
	}
	const struct session_index *x = w->to->index;
	memset(session_buckets(x), 0, session_bucket_count(x) * sizeof(struct session_bucket));
}

static void slot_adopt(struct adopter *w, uint8_t slot)
{
	struct candidate batch[BATCH];

	slot_begin(w, slot);
	for (uint32_t at = 0, n; at < w->from->capacity; at += n) {
		n = w->from->capacity - at < BATCH ? w->from->capacity - at : BATCH;
		batch_enter(w, batch, batch_validate(w, at, n, batch));
	}
	if (w->from == w->to)
		session_table_list_free(w->to);
	session_table_recount(w->to);
}

/* ---- all slots ------------------------------------------------------------------------------- */

static void *adopter_run(void *adopter)
{
	struct adopter *w = adopter;

	for (unsigned slot;
	     (slot = __atomic_fetch_add(&w->a->next_slot, 1, __ATOMIC_RELAXED)) < SY_SLOTS;)
		slot_adopt(w, (uint8_t)slot);
	return NULL;
}

static void adopters_run(struct adoption *a, unsigned threads, uint64_t count[SESSION_RESULT_COUNT])
{
	struct adopter adopter[SY_SLOTS] = {0};
	unsigned started = 1;

	/* A thread that cannot be created only delays adoption. */
	for (unsigned i = 0; i < SY_SLOTS; i++)
		adopter[i].a = a;
	while (started < threads && started < SY_SLOTS &&
	       pthread_create(&adopter[started].thread, NULL, adopter_run, &adopter[started]) == 0)
		started++;
	adopter_run(&adopter[0]);
	for (unsigned i = 0; i < started; i++) {
		if (i > 0)
			pthread_join(adopter[i].thread, NULL);
		for (unsigned v = 0; v < SESSION_RESULT_COUNT; v++)
			count[v] += adopter[i].count[v];
	}
}

int session_store_adopt(struct session_store *s, const struct session_validator *validator,
                        unsigned threads, uint64_t count[SESSION_RESULT_COUNT],
                        struct sy_error *err)
{
	const uint64_t second = 1000000000;

	memset(count, 0, SESSION_RESULT_COUNT * sizeof(*count));
	if (!s->mine || !s->due)
		return sy_fail(err, EINVAL, "session table: there is nothing to adopt");
	/* whole seconds of the clock, like ticks */
	uint64_t now_s = sy_clock_ns() / second, left_s = s->left_ns / second;
	uint64_t away_s = now_s > left_s ? now_s - left_s : 0;
	struct adoption a = {
	        .s = s,
	        .validator = validator,
	        .key = session_store_key(s),
	        .servers = session_servers(s),
	        .left_tick = (uint16_t)left_s,
	        .away_s = away_s < INT32_MAX ? (uint32_t)away_s : INT32_MAX,
	};
	adopters_run(&a, threads, count);
	if (s->old.file != NULL) {
		int rc = session_resize_finish(s, err);
		if (rc != 0)
			return rc;
	}
	s->due = false;
	session_store_alive(s);
	return 0;
}
