// SPDX-License-Identifier: Apache-2.0
/*
 * Samples of packets. A worker counts down per burst or dropped packet; all other code runs only
 * when a sample is due, or once a round.
 */
#include "sample.h"

#include <stdlib.h>

#include <rte_cycles.h>

#include "runtime.h"

#define NEVER INT64_MAX

_Static_assert(SY_DROP_COUNT <= UINT8_MAX, "struct sy_sample has a byte for the reason");

int sampler_open(struct sy_worker *w)
{
	struct sampler *s = &w->private->sampler;
	for (unsigned kind = 0; kind < SY_SAMPLE_KINDS; kind++)
		w->private->sample_left[kind] = NEVER;
	s->random = (rte_rdtsc() ^ (uint64_t)w->id << 32) | 1;
	s->place = calloc(SY_SAMPLE_PLACES, sizeof(*s->place)); /* pages are untouched until used */
	return s->place ? 0 : -ENOMEM;
}

void sampler_close(struct sy_worker *w)
{
	free(w->private->sampler.place);
	w->private->sampler.place = NULL;
}

/* The distance to the next sample: random from 1 to 2 × one_in − 1, with mean one_in, so that
 * regular traffic cannot pass between the samples or be all of them. (xorshift64) */
static int64_t gap_draw(struct sampler *s, uint32_t one_in)
{
	uint64_t x = s->random;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	s->random = x;
	return 1 + (int64_t)((x >> 32) * (2 * (uint64_t)one_in - 1) >> 32);
}

void sample_round(struct sy_worker *w)
{
	const struct sampling *wanted = &w->rt->sampling;
	struct sampler *s = &w->private->sampler;
	for (unsigned kind = 0; kind < SY_SAMPLE_KINDS; kind++) {
		bool on = w->now_ns < SY_READ(wanted->until_ns[kind]);
		uint32_t one_in = on ? SY_READ(wanted->one_in[kind]) : 0;
		if (one_in == s->one_in[kind])
			continue;
		s->one_in[kind] = one_in;
		w->private->sample_left[kind] = one_in ? gap_draw(s, one_in) - 1 : NEVER;
	}
}

static void sample_put(struct sy_worker *w, const struct rte_mbuf *m, uint32_t one_in,
                       enum sy_drop reason)
{
	struct sampler *s = &w->private->sampler;
	if (s->head - __atomic_load_n(&s->tail, __ATOMIC_ACQUIRE) == SY_SAMPLE_PLACES) {
		SY_COUNT(s->lost, 1);
		return;
	}
	struct sy_sample *out = &s->place[s->head % SY_SAMPLE_PLACES];
	uint16_t have = rte_pktmbuf_data_len(m);
	out->one_in = one_in;
	out->length = rte_pktmbuf_pkt_len(m);
	out->port = m->port < w->rt->ports ? (uint8_t)m->port : SY_PORT_NONE;
	out->drop = (uint8_t)reason;
	out->header_length = have < SY_SAMPLE_HEADER ? (uint8_t)have : SY_SAMPLE_HEADER;
	memcpy(out->header, rte_pktmbuf_mtod(m, const uint8_t *), out->header_length);
	SY_COUNT(s->enqueued, 1);
	__atomic_store_n(&s->head, s->head + 1, __ATOMIC_RELEASE);
}

void sample_burst(struct sy_worker *w, struct rte_mbuf *const *m, unsigned n)
{
	struct sampler *s = &w->private->sampler;
	int64_t *left = &w->private->sample_left[SY_SAMPLE_RECEIVED];
	uint32_t one_in = s->one_in[SY_SAMPLE_RECEIVED];
	while (*left < 0) {
		sample_put(w, m[*left + n], one_in, SY_DROP_NONE);
		*left += gap_draw(s, one_in);
	}
}

void sample_drop(struct sy_worker *w, const struct rte_mbuf *m, enum sy_drop reason)
{
	struct sampler *s = &w->private->sampler;
	uint32_t one_in = s->one_in[SY_SAMPLE_DROPPED];
	uint64_t second = w->now_ns / 1000000000u;
	w->private->sample_left[SY_SAMPLE_DROPPED] += gap_draw(s, one_in);
	if (second != s->second) {
		s->second = second;
		s->dropped = 0;
	}
	if (s->dropped == SY_SAMPLE_DROPS) {
		SY_COUNT(s->lost, 1);
		return;
	}
	s->dropped++;
	sample_put(w, m, one_in, reason);
}

/* ---- the control thread's side --------------------------------------------------------------- */

void sy_samples_want(struct sy_runtime *rt, enum sy_sample_kind kind, uint32_t one_in,
                     uint64_t until_ns)
{
	__atomic_store_n(&rt->sampling.one_in[kind], one_in, __ATOMIC_RELAXED);
	__atomic_store_n(&rt->sampling.until_ns[kind], until_ns, __ATOMIC_RELAXED);
}

unsigned sy_samples_dequeue(struct sy_runtime *rt, unsigned worker, struct sy_sample *out,
                            unsigned max)
{
	struct sampler *s = &rt->worker[worker].private->sampler;
	uint32_t tail = s->tail, count = __atomic_load_n(&s->head, __ATOMIC_ACQUIRE) - tail;
	if (count > max)
		count = max;
	for (uint32_t i = 0; i < count; i++)
		out[i] = s->place[(tail + i) % SY_SAMPLE_PLACES];
	__atomic_store_n(&s->tail, tail + count, __ATOMIC_RELEASE);
	return count;
}

struct sy_sample_counts sy_samples_count(const struct sy_runtime *rt)
{
	struct sy_sample_counts sum = {0};
	for (unsigned i = 0; i < rt->workers; i++) {
		const struct sampler *s = &rt->worker[i].private->sampler;
		sum.enqueued += SY_READ(s->enqueued);
		sum.lost += SY_READ(s->lost);
	}
	return sum;
}
