// SPDX-License-Identifier: Apache-2.0
/*
 * What workers hand each other: packets of another's slots, and packets for a transmit queue that
 * another owns. One ring for each ordered pair and purpose has one producer and one consumer.
 */
#include <stdlib.h>

#include <rte_malloc.h>

#include "runtime.h"

/* In memory of our own: W × W named rings would use up EAL's memory zones. */
static struct rte_ring *ring_make(unsigned count)
{
	struct rte_ring *r =
	        rte_zmalloc("sy_ring", (size_t)rte_ring_get_memsize(count), SY_CACHE_LINE);
	if (r && rte_ring_init(r, "sy_ring", count, RING_F_SP_ENQ | RING_F_SC_DEQ)) {
		rte_free(r);
		return NULL;
	}
	return r;
}

static void ring_end(struct rte_ring *r)
{
	struct rte_mbuf *m;
	while (r && !rte_ring_sc_dequeue(r, (void **)&m))
		rte_pktmbuf_free(m);
	rte_free(r);
}

static int worker_open(struct sy_runtime *rt, struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	p->flow_in = calloc(rt->workers, sizeof(*p->flow_in));
	p->transmit_in = calloc(rt->workers, sizeof(*p->transmit_in));
	p->hand_over = calloc(rt->workers, sizeof(*p->hand_over));
	p->transmit_by = calloc(rt->workers, sizeof(*p->transmit_by));
	if (!p->flow_in || !p->transmit_in || !p->hand_over || !p->transmit_by)
		return -ENOMEM;
	for (unsigned from = 0; from < rt->workers; from++) {
		if (from == w->id)
			continue;
		p->flow_in[from] = ring_make(WORKER_FLOW_RING);
		p->transmit_in[from] = ring_make(WORKER_TRANSMIT_RING);
		if (!p->flow_in[from] || !p->transmit_in[from])
			return -ENOMEM;
	}
	return 0;
}

int handover_open(struct sy_runtime *rt, struct sy_error *err)
{
	for (unsigned i = 0; i < rt->workers; i++)
		if (worker_open(rt, &rt->worker[i]))
			return sy_fail(err, ENOMEM,
			               "rings between %u workers: no memory; raise --memory or use "
			               "fewer workers",
			               rt->workers);
	return 0;
}

void handover_close(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < rt->workers; i++) {
		struct sy_worker_private *p = rt->worker[i].private;
		if (!p)
			continue;
		for (unsigned from = 0; from < rt->workers; from++) {
			if (p->flow_in)
				ring_end(p->flow_in[from]);
			if (p->transmit_in)
				ring_end(p->transmit_in[from]);
		}
		free(p->flow_in);
		free(p->transmit_in);
		free(p->hand_over);
		free(p->transmit_by);
		p->flow_in = p->transmit_in = NULL;
		p->hand_over = p->transmit_by = NULL;
	}
}

bool handover_is_empty(const struct sy_worker *w)
{
	const struct sy_worker_private *p = w->private;
	for (unsigned from = 0; from < w->rt->workers; from++)
		if (from != w->id &&
		    (!rte_ring_empty(p->flow_in[from]) || !rte_ring_empty(p->transmit_in[from])))
			return false;
	return true;
}

/* Returns how many did not fit and were dropped. */
static unsigned gather_send(struct sy_worker *w, struct gather *g, struct rte_ring *ring,
                            enum sy_drop reason)
{
	unsigned sent = rte_ring_sp_enqueue_burst(ring, (void **)g->mbuf, g->count, NULL);
	unsigned lost = g->count - sent;
	for (unsigned i = sent; i < g->count; i++)
		sy_packet_drop(w, g->mbuf[i], reason);
	g->count = 0;
	return lost;
}

static void flow_send(struct sy_worker *w, unsigned owner)
{
	struct gather *g = &w->private->hand_over[owner];
	unsigned n = g->count;
	struct rte_ring *ring = w->rt->worker[owner].private->flow_in[w->id];
	n -= gather_send(w, g, ring, SY_DROP_HANDOVER_FULL);
	SY_COUNT(w->counters.handed_out, n);
}

static void transmit_send(struct sy_worker *w, unsigned owner)
{
	gather_send(w, &w->private->transmit_by[owner],
	            w->rt->worker[owner].private->transmit_in[w->id], SY_DROP_TX_FULL);
}

unsigned handover_receive(struct sy_worker *w, unsigned from, struct rte_mbuf **m)
{
	unsigned n =
	        rte_ring_sc_dequeue_burst(w->private->flow_in[from], (void **)m, SY_BURST, NULL);
	/* Where frames begin, but for those that a device or the sender has moved: to look it up
	 * would be to wait for the buffer. */
	size_t frame =
	        sizeof(struct rte_mbuf) + rte_pktmbuf_priv_size(w->rt->pool) + RTE_PKTMBUF_HEADROOM;
	for (unsigned i = 0; i < n; i++) {
		rte_prefetch0(m[i]);
		rte_prefetch0((const uint8_t *)m[i] + frame);
	}
	return n;
}

void sy_burst_hand_over(struct sy_worker *w, struct sy_burst *b, unsigned i)
{
	unsigned owner = sy_slot_worker(w->rt, b->slot[i]);
	b->next[i] = SY_NEXT_GONE;
	if (owner == w->id) { /* the slot came to us since the caller looked: nobody to send to */
		sy_packet_drop(w, b->mbuf[i], SY_DROP_HANDOVER_FULL);
		return;
	}
	struct gather *g = &w->private->hand_over[owner];
	if (g->count == SY_BURST)
		flow_send(w, owner);
	g->mbuf[g->count++] = b->mbuf[i];
	w->private->hand_over_to |= UINT64_C(1) << owner;
}

void handover_transmit(struct sy_worker *w, unsigned owner, struct rte_mbuf *m)
{
	struct gather *g = &w->private->transmit_by[owner];
	if (g->count == SY_BURST)
		transmit_send(w, owner);
	g->mbuf[g->count++] = m;
	w->private->transmit_to |= UINT64_C(1) << owner;
}

void handover_flush(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	uint64_t wake = p->hand_over_to | p->transmit_to;
	for (uint64_t to = p->hand_over_to; to; to &= to - 1)
		flow_send(w, (unsigned)__builtin_ctzll(to));
	for (uint64_t to = p->transmit_to; to; to &= to - 1)
		transmit_send(w, (unsigned)__builtin_ctzll(to));
	p->hand_over_to = p->transmit_to = 0;
	for (; wake; wake &= wake - 1)
		worker_wake(&w->rt->worker[__builtin_ctzll(wake)]);
}
