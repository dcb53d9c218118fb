// SPDX-License-Identifier: Apache-2.0
/*
 * Steering between workers: packets of another worker's slots, and packets for a transmit queue
 * that another worker owns. Each ordered pair of workers has a ring for each purpose, with one
 * producer and one consumer.
 */
#include <stdlib.h>

#include <rte_malloc.h>

#include "runtime.h"

/* Not rte_ring: W × W named rings would exceed EAL's memory zones. */
struct ring *ring_open(unsigned slots)
{
	struct ring *r =
	        rte_zmalloc("sy_ring", sizeof(*r) + slots * sizeof(r->slot[0]), 2 * SY_CACHE_LINE);
	if (r)
		r->mask = slots - 1;
	return r;
}

void ring_close(struct ring *r)
{
	struct rte_mbuf *m;
	while (r && ring_dequeue(r, &m, 1))
		rte_pktmbuf_free(m);
	rte_free(r);
}

static int worker_open(struct sy_runtime *rt, struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	p->flow_in = calloc(rt->workers, sizeof(*p->flow_in));
	p->transmit_in = calloc(rt->workers, sizeof(*p->transmit_in));
	p->steer_out = calloc(rt->workers, sizeof(*p->steer_out));
	p->transmit_by = calloc(rt->workers, sizeof(*p->transmit_by));
	if (!p->flow_in || !p->transmit_in || !p->steer_out || !p->transmit_by)
		return -ENOMEM;
	for (unsigned from = 0; from < rt->workers; from++) {
		if (from == w->id)
			continue;
		p->flow_in[from] = ring_open(WORKER_FLOW_RING);
		p->transmit_in[from] = ring_open(WORKER_TRANSMIT_RING);
		if (!p->flow_in[from] || !p->transmit_in[from])
			return -ENOMEM;
	}
	return 0;
}

int steer_open(struct sy_runtime *rt, struct sy_error *err)
{
	for (unsigned i = 0; i < rt->workers; i++)
		if (worker_open(rt, &rt->worker[i]))
			return sy_fail(err, ENOMEM,
			               "rings between %u workers: no memory; raise --memory or use "
			               "fewer workers",
			               rt->workers);
	return 0;
}

void steer_close(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < rt->workers; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		if (!p)
			continue;
		for (unsigned from = 0; from < rt->workers; from++) {
			if (p->flow_in)
				ring_close(p->flow_in[from]);
			if (p->transmit_in)
				ring_close(p->transmit_in[from]);
		}
		free(p->flow_in);
		free(p->transmit_in);
		free(p->steer_out);
		free(p->transmit_by);
		p->flow_in = p->transmit_in = NULL;
		p->steer_out = NULL;
		p->transmit_by = NULL;
	}
}

bool steer_is_empty(const struct sy_worker *w)
{
	const struct sy_worker_private *p = w->private;
	for (unsigned from = 0; from < w->rt->workers; from++)
		if (from != w->id &&
		    (ring_count(p->flow_in[from]) || ring_count(p->transmit_in[from])))
			return false;
	return true;
}

/* Enqueues packets; drops those that do not fit. Returns how many did. */
static unsigned packets_put(struct sy_worker *w, struct ring *ring, struct rte_mbuf *const *m,
                            unsigned count, enum sy_drop reason)
{
	unsigned sent = ring_enqueue(ring, m, count);
	for (unsigned i = sent; i < count; i++)
		sy_packet_drop(w, m[i], reason);
	return sent;
}

/* The ring to the owner of a slot. */
static struct ring *flow_ring(const struct sy_worker *w, unsigned owner)
{
	return w->rt->worker[owner].private->flow_in[w->id];
}

static void flow_send(struct sy_worker *w, unsigned owner)
{
	struct outbound *o = &w->private->steer_out[owner];
	SY_COUNT(w->counters.steered_out,
	         packets_put(w, flow_ring(w, owner), o->mbuf, o->count, SY_DROP_STEERING_FULL));
	o->count = 0;
}

/* The ring to the owner of a transmit queue. */
static struct ring *transmit_ring(const struct sy_worker *w, unsigned owner)
{
	return w->rt->worker[owner].private->transmit_in[w->id];
}

static void transmit_send(struct sy_worker *w, unsigned owner)
{
	struct sy_gather *g = &w->private->transmit_by[owner];
	packets_put(w, transmit_ring(w, owner), g->mbuf, g->count, SY_DROP_TX_FULL);
	g->count = 0;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Packets prefetched just before the burst is processed: as many as a core can have outstanding. */
#define PREFETCH_LATE 12

static void next_find(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	struct next_burst *next = &p->next;
	unsigned n = 0;
	unsigned from = 0;
	while (!n && next->from < w->rt->workers) {
		from = next->from;
		if (from != w->id)
			n = ring_dequeue(p->flow_in[from], next->mbuf, SY_BURST);
		if (n < SY_BURST || ++next->bursts == RING_BURSTS) {
			next->cut |= n == SY_BURST;
			next->from++;
			next->bursts = 0;
		}
	}
	next->behind = n == SY_BURST && ring_is_half_full(p->flow_in[from]) &&
	               !worker_is_excused(&next->excused, p->stalled && next->from == 0, n,
	                                  WORKER_FLOW_RING);
	next->count = n;
	next->prefetched = 0;
}

void steer_begin(struct sy_worker *w)
{
	struct next_burst *next = &w->private->next;
	next->from = next->bursts = 0;
	next->cut = false;
	next_find(w);
}

/* Polls until all packets of a full ring are dequeued, whatever arrives behind them. */
#define RING_POLLS (WORKER_FLOW_RING / (RING_BURSTS * SY_BURST) + 1)

void steer_note_seen(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	if (!p->next.cut) {
		p->steered.seen_ns = w->now_ns;
		p->steered.polls = 0;
	} else if (p->steered.polls == 0) {
		p->steered.marked_ns = w->now_ns;
		p->steered.polls = RING_POLLS;
	} else if (--p->steered.polls == 0) {
		p->steered.seen_ns = p->steered.marked_ns;
	}
}

void sy_steer_prefetch(struct sy_worker *w, unsigned n)
{
	struct next_burst *next = &w->private->next;
	for (; n && next->prefetched < next->count; n--) {
		const uint8_t *m = (const uint8_t *)next->mbuf[next->prefetched++];
		__builtin_prefetch(m, 1);
		__builtin_prefetch(m + next->frame, 1);
	}
}

unsigned steer_receive(struct sy_worker *w, struct sy_burst *b)
{
	struct next_burst *next = &w->private->next;
	unsigned n = next->count;
	if (!n)
		return 0;
	sy_steer_prefetch(w, PREFETCH_LATE);
	memcpy(b->mbuf, next->mbuf, n * sizeof(b->mbuf[0]));
	b->behind = next->behind;
	next_find(w);
	next->frame = (size_t)(sy_frame(b->mbuf[0]) - (uint8_t *)b->mbuf[0]);
	SY_COUNT(w->counters.steered_in, n);
	return n;
}

void steer_notify(struct sy_worker *w)
{
	const struct sy_worker_private *p = w->private;
	for (unsigned from = 0; from < w->rt->workers; from++) {
		struct ring *ring = p->flow_in[from];
		if (from != w->id && ring->left != ring->tail)
			__atomic_store_n(&ring->left, ring->tail, __ATOMIC_RELEASE);
	}
}

/* ---- sending --------------------------------------------------------------------------------- */

uint32_t sy_steer_position(const struct sy_worker *w, unsigned owner)
{
	return flow_ring(w, owner)->head + w->private->steer_out[owner].count;
}

uint32_t sy_steer_left(const struct sy_worker *w, unsigned owner)
{
	return __atomic_load_n(&flow_ring(w, owner)->left, __ATOMIC_ACQUIRE);
}

void sy_burst_steer(struct sy_worker *w, struct sy_burst *b, unsigned i)
{
	unsigned owner = sy_slot_worker(w->rt, b->slot[i]);
	if (owner == w->id) { /* this worker has become the slot's owner since the caller's check */
		sy_burst_drop(w, b, i, SY_DROP_STEERING_FULL);
		return;
	}
	b->next[i] = SY_NEXT_STEERED;
	struct outbound *o = &w->private->steer_out[owner];
	o->mbuf[o->count++] = b->mbuf[i];
	w->private->steer_to |= UINT64_C(1) << owner;
}

uint32_t steer_transmit(struct sy_worker *w, unsigned owner, struct rte_mbuf *m)
{
	struct sy_gather *g = &w->private->transmit_by[owner];
	if (g->count == SY_BURST)
		transmit_send(w, owner);
	g->mbuf[g->count++] = m;
	w->private->transmit_to |= UINT64_C(1) << owner;
	return transmit_ring(w, owner)->head + g->count;
}

/* A position whose packet was dropped, because the ring was full, is never reached: then the ring's
 * end counts. */
bool steer_transmitted(const struct sy_worker *w, unsigned owner, uint32_t position)
{
	const struct ring *ring = transmit_ring(w, owner);
	const uint32_t end = ring->head + w->private->transmit_by[owner].count;
	const uint32_t left = __atomic_load_n(&ring->left, __ATOMIC_ACQUIRE);
	return (int32_t)(left - position) >= 0 || left == end;
}

void steer_push(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	for (uint64_t to = p->steer_to; to; to &= to - 1) {
		unsigned owner = (unsigned)__builtin_ctzll(to);
		if (p->steer_out[owner].count >= STEER_BATCH_MIN)
			flow_send(w, owner);
	}
}

void steer_flush(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	uint64_t wake = p->steer_to | p->transmit_to;
	if (!wake)
		return;
	for (uint64_t to = p->steer_to; to; to &= to - 1)
		flow_send(w, (unsigned)__builtin_ctzll(to));
	for (uint64_t to = p->transmit_to; to; to &= to - 1)
		transmit_send(w, (unsigned)__builtin_ctzll(to));
	p->steer_to = p->transmit_to = 0;
	workers_wake(w->rt, wake);
}
