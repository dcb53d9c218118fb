// SPDX-License-Identifier: Apache-2.0
#include "delay.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "table_map.h"

struct delays *delays_create(uint32_t servers)
{
	struct delays *d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->share = table_map(servers, sizeof(*d->share));
	if (!d->share) {
		free(d);
		return NULL;
	}
	return d;
}

void delays_destroy(struct delays *d, uint32_t servers)
{
	if (!d)
		return;
	table_unmap(d->share, servers, sizeof(*d->share));
	free(d);
}

static uint64_t session_name(uint8_t slot, uint32_t record)
{
	return ((uint64_t)slot << 32 | record) + 1;
}

static unsigned place_of(uint64_t session)
{
	return (unsigned)(sy_hash_mix(session, 0x9e3779b97f4a7c15) % DELAY_PENDING);
}

void delay_begin(struct sy_worker *w, uint8_t slot, uint32_t record)
{
	struct delays *d = balance_worker_of(w)->delays;
	uint64_t session = session_name(slot, record);
	unsigned at = place_of(session);
	/* sent_ns may be later than now_ns if it was stored in this poll iteration */
	bool taken = d->pending[at].session && w->now_ns < d->pending[at].sent_ns + DELAY_OLD_NS;
	/* A pending entry stays: replacing it would bias against long delays. */
	if (w->now_ns - d->began_ns < DELAY_GAP_NS || taken) {
		if (d->pending[at].session == session) /* of an earlier session */
			d->pending[at].session = 0;
		return;
	}
	d->began_ns = w->now_ns;
	d->pending[at].session = session;
	d->pending[at].sent_ns = sy_worker_clock_ns(w);
}

static unsigned bucket_of(uint64_t ns)
{
	uint64_t us = ns / 1000;
	unsigned bucket = us ? 64 - (unsigned)__builtin_clzll(us) : 0;
	return bucket < DELAY_BUCKETS ? bucket : DELAY_BUCKETS - 1;
}

/* Two workers may overwrite each other's step: one measurement then counts less. */
static void smooth(uint32_t *smoothed, uint64_t ns)
{
	uint32_t now = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
	uint32_t before = __atomic_load_n(smoothed, __ATOMIC_RELAXED);
	int64_t step = ((int64_t)now - (int64_t)before) / 8; /* RFC 6298 section 2 */
	uint32_t after = before ? (uint32_t)((int64_t)before + step) : now;
	__atomic_store_n(smoothed, after ? after : 1, __ATOMIC_RELAXED);
}

void delay_answer(struct sy_worker *w, uint8_t slot, uint32_t record, uint32_t server)
{
	struct sy_balance *b = w->app;
	struct delays *d = balance_worker_of(w)->delays;
	uint64_t session = session_name(slot, record);
	unsigned at = place_of(session);
	if (d->pending[at].session != session)
		return;
	uint64_t now_ns = sy_worker_clock_ns(w), sent_ns = d->pending[at].sent_ns;
	uint64_t ns = now_ns > sent_ns ? now_ns - sent_ns : 0;
	d->pending[at].session = 0;
	SY_COUNT(d->share[server].sum_ns, ns);
	SY_COUNT(d->share[server].bucket[bucket_of(ns)], 1);
	smooth(&b->server_delay[server], ns);
}

void delay_clear(struct sy_worker *w, uint8_t slot, uint32_t record)
{
	struct delays *d = balance_worker_of(w)->delays;
	uint64_t session = session_name(slot, record);
	unsigned at = place_of(session);
	if (d->pending[at].session == session)
		d->pending[at].session = 0;
}

void delay_note_repeated(struct sy_worker *w, uint32_t server)
{
	SY_COUNT(balance_worker_of(w)->delays->share[server].repeated, 1);
}

struct delay_share delay_sum(const struct sy_balance *b, uint32_t server)
{
	struct delay_share sum = {0};
	for (unsigned w = 0; w < b->workers; w++) {
		const struct delay_share *one = &b->worker[w].delays->share[server];
		sum.sum_ns += SY_READ(one->sum_ns);
		sum.repeated += SY_READ(one->repeated);
		sum.segments += SY_READ(one->segments);
		sum.lost += SY_READ(one->lost);
		for (unsigned i = 0; i < DELAY_BUCKETS; i++)
			sum.bucket[i] += SY_READ(one->bucket[i]);
	}
	return sum;
}

void delay_forget(struct sy_balance *b, uint32_t server)
{
	for (unsigned w = 0; w < b->workers; w++)
		b->worker[w].delays->share[server] = (struct delay_share){0};
	__atomic_store_n(&b->server_delay[server], 0, __ATOMIC_RELAXED);
}
