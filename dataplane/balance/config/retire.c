// SPDX-License-Identifier: Apache-2.0
/*
 * Retired ids. Sessions refer to servers, services and local addresses by id, so an id may be
 * reused only when no session refers to it any more. That takes these steps of every worker:
 *
 *   1 sweep               may have been in progress when the id was retired
 *   1 sweep               ends the id's sessions, or begins to reset both their ends; new sessions
 *                         no longer get the id
 *   RESET_BOTH_SECONDS    resets are sent and answered
 *   2 sweeps              remove the sessions that were reset
 *
 * Path ids: after a change of routes, the first two sweeps renew the paths of sessions. Old path
 * ids are free after one more sweep, because workers also read sessions of other workers: a worker
 * sweeps between bursts, when it uses no copy of a path id.
 */
#include <stdlib.h>

#include "delay.h"
#include "model.h"

#define PASSES_NEEDED 2
#define SECOND_NS     UINT64_C(1000000000)
/* Seconds are counted in ticks, which each worker sees slightly earlier or later. */
#define RESETTING_NS ((RESET_BOTH_SECONDS + 2) * SECOND_NS)

struct retired_entry {
	enum retired_kind kind;
	uint32_t id;
	struct traffic counted; /* of a server: already added to its service */
};

enum retired_stage {
	RETIRED_OPEN,    /* more may be added */
	RETIRED_FINDING, /* waiting for sweeps to visit all sessions with it */
	RETIRED_RESETTING,
	RETIRED_ENDING,
};

/* The ids retired within one tick. */
struct retired {
	struct retired *next;
	enum retired_stage stage;
	uint64_t passes[SY_MAX_WORKERS], due_ns; /* for this stage */
	unsigned count, capacity;
	struct retired_entry *entry;
};

static void passes_note(const struct sy_balance *b, uint64_t passes[SY_MAX_WORKERS])
{
	for (unsigned w = 0; w < b->workers; w++)
		passes[w] = __atomic_load_n(&b->worker[w].passes, __ATOMIC_ACQUIRE);
}

static bool passes_are_over(const struct sy_balance *b, const uint64_t passes[SY_MAX_WORKERS],
                            unsigned needed)
{
	for (unsigned w = 0; w < b->workers; w++)
		if (__atomic_load_n(&b->worker[w].passes, __ATOMIC_ACQUIRE) < passes[w] + needed)
			return false;
	return true;
}

bool retire_swept(const struct sy_balance *b)
{
	static const uint64_t start[SY_MAX_WORKERS];
	return passes_are_over(b, start, PASSES_NEEDED);
}

struct traffic traffic_sum(const struct sy_balance *b, uint32_t server)
{
	struct traffic sum = {0};
	for (unsigned w = 0; w < b->workers; w++) {
		const struct traffic *t = &b->worker[w].share[server].traffic;
		sum.packets_in += SY_READ(t->packets_in);
		sum.bytes_in += SY_READ(t->bytes_in);
		sum.packets_out += SY_READ(t->packets_out);
		sum.bytes_out += SY_READ(t->bytes_out);
		sum.created += SY_READ(t->created);
		sum.ended += SY_READ(t->ended);
	}
	return sum;
}

void traffic_add(struct traffic *sum, const struct traffic *t)
{
	sum->packets_in += t->packets_in;
	sum->bytes_in += t->bytes_in;
	sum->packets_out += t->packets_out;
	sum->bytes_out += t->bytes_out;
	sum->created += t->created;
	sum->ended += t->ended;
}

/* Adds to the service what its retired server has counted since the last call. Called at once when
 * the server is retired, so that a service's counters never decrease. */
static void retired_counters_add(struct sy_balance *b, struct retired_entry *entry)
{
	uint32_t service = b->endpoint[entry->id].service;
	struct model_service *s = service == SERVICE_NONE ? NULL : b->ctl->model->service[service];
	struct traffic now = traffic_sum(b, entry->id), *then = &entry->counted;
	const struct traffic since = {
	        .packets_in = now.packets_in - then->packets_in,
	        .bytes_in = now.bytes_in - then->bytes_in,
	        .packets_out = now.packets_out - then->packets_out,
	        .bytes_out = now.bytes_out - then->bytes_out,
	        .created = now.created - then->created,
	        .ended = now.ended - then->ended,
	};
	if (s)
		traffic_add(&s->gone, &since);
	*then = now;
}

void retire_id(struct sy_balance *b, enum retired_kind kind, uint32_t id)
{
	struct retired **last = &b->ctl->retired;
	while (*last && (*last)->stage != RETIRED_OPEN)
		last = &(*last)->next;
	struct retired *batch = *last;
	if (!batch) {
		batch = *last = calloc(1, sizeof(*batch));
		if (!batch)
			return; /* without memory the id stays unused forever, which is safe */
	}
	if (batch->count == batch->capacity) {
		unsigned capacity = batch->capacity ? 2 * batch->capacity : 16;
		struct retired_entry *grown = realloc(batch->entry, capacity * sizeof(*grown));
		if (!grown)
			return;
		batch->entry = grown;
		batch->capacity = capacity;
	}
	struct retired_entry *entry = &batch->entry[batch->count++];
	*entry = (struct retired_entry){.kind = kind, .id = id};
	if (kind == RETIRED_SERVER)
		retired_counters_add(b, entry);
}

void retire_forget(struct sy_balance *b, enum retired_kind kind, uint32_t id)
{
	for (struct retired *batch = b->ctl->retired; batch; batch = batch->next)
		for (unsigned i = batch->count; i-- > 0;)
			if (batch->entry[i].kind == kind && batch->entry[i].id == id)
				batch->entry[i] = batch->entry[--batch->count];
}

/* No worker writes the id's counters any more: resets them and the scheduler's state. */
static void free_server(struct sy_balance *b, struct retired_entry *entry)
{
	uint32_t id = entry->id;
	struct traffic sum = traffic_sum(b, id);
	retired_counters_add(b, entry);
	b->ctl->gone.created += sum.created;
	b->ctl->gone.ended += sum.ended;
	for (unsigned w = 0; w < b->workers; w++) {
		b->worker[w].share[id] = (struct server_share){0};
		b->worker[w].scheduler.current[id] = 0;
		b->worker[w].scheduler.position[id] = 0;
	}
	delay_forget(b, id);
	server_id_free(b, id);
}

/* Writes only where something was counted: other pages remain untouched. */
static void service_drops_clear(struct service_drops *d)
{
	for (unsigned reason = 0; reason < SY_DROP_COUNT; reason++)
		if (d->packets[reason])
			d->packets[reason] = 0;
}

static void free_entry(struct sy_balance *b, struct retired_entry *e)
{
	switch (e->kind) {
	case RETIRED_SERVER:
		free_server(b, e);
		break;
	case RETIRED_SERVICE:
		for (unsigned w = 0; w < b->workers; w++) {
			b->worker[w].counts[e->id] = (struct service_counts){0};
			b->worker[w].load[e->id].client_refused = 0;
			memset(b->worker[w].load[e->id].unavailable, 0,
			       sizeof(b->worker[w].load[e->id].unavailable));
			service_drops_clear(&b->worker[w].drops[e->id]);
		}
		early_remove(b, e->id);
		id_free(&b->ctl->model->service_ids, e->id);
		break;
	case RETIRED_LOCAL:
		local_id_free(b, (uint8_t)e->id);
		break;
	}
}

static void batch_free(struct retired *batch)
{
	free(batch->entry);
	free(batch);
}

/* Does no session refer to its ids any more? */
static bool batch_advance(const struct sy_balance *b, struct retired *batch)
{
	switch (batch->stage) {
	case RETIRED_OPEN:
		passes_note(b, batch->passes);
		batch->stage = RETIRED_FINDING;
		return false;
	case RETIRED_FINDING:
		if (passes_are_over(b, batch->passes, PASSES_NEEDED)) {
			batch->due_ns = balance_now(b) + RESETTING_NS;
			batch->stage = RETIRED_RESETTING;
		}
		return false;
	case RETIRED_RESETTING:
		if (balance_now(b) >= batch->due_ns) {
			passes_note(b, batch->passes);
			batch->stage = RETIRED_ENDING;
		}
		return false;
	case RETIRED_ENDING:
		break;
	}
	return passes_are_over(b, batch->passes, PASSES_NEEDED);
}

static void batch_end(struct sy_balance *b, struct retired *batch)
{
	/* Servers first: they look up the ids of their services. */
	for (int kind = RETIRED_SERVER; kind <= RETIRED_LOCAL; kind++)
		for (unsigned i = 0; i < batch->count; i++)
			if ((int)batch->entry[i].kind == kind)
				free_entry(b, &batch->entry[i]);
	batch_free(batch);
}

static void retire_batches(struct sy_balance *b)
{
	for (struct retired **at = &b->ctl->retired; *at;) {
		struct retired *batch = *at;
		if (!batch_advance(b, batch)) {
			at = &batch->next;
			continue;
		}
		*at = batch->next;
		batch_end(b, batch);
	}
}

void endpoint_renew_path(struct sy_balance *b, struct endpoint *e)
{
	if (e->mode != MODE_SNAT && sy_path_is_stale(b->rt, e->path))
		__atomic_store_n(&e->path, sy_path_lookup(b->rt, &e->addr), __ATOMIC_RELAXED);
}

/* After a change of routes: renews servers' paths at once; the sweeps renew sessions' paths. */
static void renew_paths(struct sy_balance *b)
{
	address_follow_host(b);
	uint32_t generation = sy_path_generation(b->rt);
	if (generation != b->ctl->path_generation) {
		b->ctl->path_generation = generation;
		for (uint32_t id = 0; id < b->ctl->model->server_ids.fresh; id++) {
			struct endpoint *e = &b->endpoint[id];
			if (!e->removed)
				endpoint_renew_path(b, e);
		}
		if (!b->ctl->path_sweep.pending) {
			b->ctl->path_sweep.pending = true;
			b->ctl->path_sweep.generation = generation;
			passes_note(b, b->ctl->path_sweep.passes);
		}
	}
	if (!b->ctl->path_sweep.pending ||
	    !passes_are_over(b, b->ctl->path_sweep.passes,
	                     b->ctl->path_sweep.renewed ? 1 : PASSES_NEEDED))
		return;
	b->ctl->path_sweep.renewed = !b->ctl->path_sweep.renewed;
	passes_note(b, b->ctl->path_sweep.passes);
	if (b->ctl->path_sweep.renewed)
		return;
	sy_path_sweep_done(b->rt, b->ctl->path_sweep.generation);
	b->ctl->path_sweep.pending = b->ctl->path_sweep.generation != b->ctl->path_generation;
	b->ctl->path_sweep.generation = b->ctl->path_generation;
}

void retire_tick(struct sy_balance *b)
{
	renew_paths(b);
	if (!b->ctl->hold) /* a successor depends on the ids' meanings when it read the dictionary
	                    */
		retire_batches(b);
	early_tick(b);
}

void retire_close(struct sy_balance *b)
{
	while (b->ctl->retired) {
		struct retired *next = b->ctl->retired->next;
		batch_free(b->ctl->retired);
		b->ctl->retired = next;
	}
}
