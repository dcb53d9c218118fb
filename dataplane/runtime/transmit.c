// SPDX-License-Identifier: Apache-2.0
/*
 * The last stage, sy_transmit_stage(): path → hop → neighbour → Ethernet header → port. Packets are
 * gathered per port; transmit_flush() sends them when the worker's burst ends.
 *
 *   ready ──────────────► gathered for the port, or for the worker that owns its queue
 *   neighbour unknown ──► queued (unresolved.c) ──► ready, or no-neighbour
 */
#include <rte_byteorder.h>

#include <sy_post.h>
#include <sy_tx_cache.h>

#include "runtime.h"

unsigned transmit_now(struct sy_worker *w, struct port *port, struct rte_mbuf **m, unsigned n)
{
	unsigned total = 0;
	for (unsigned i = 0; i < n; i++)
		total += m[i]->pkt_len; /* the port owns accepted packets */
	unsigned sent = port->ops->tx(port, w->id, m, n);
	for (unsigned i = sent; i < n; i++)
		total -= m[i]->pkt_len;
	struct port_queue_counters *c = &port->counters[w->id];
	SY_COUNT(c->tx_packets, sent);
	SY_COUNT(c->tx_bytes, total);
	SY_COUNT(w->counters.tx_packets, sent);
	SY_COUNT(w->counters.tx_bytes, total);
	return sent;
}

static void gather_flush(struct sy_worker *w, unsigned id)
{
	struct sy_gather *g = &w->private->transmit[id];
	struct port *port = w->rt->port[id];
	if (!g->count)
		return;
	unsigned to = SY_READ(port->shaper); /* read once: the owner may clear it meanwhile */
	if (SY_UNLIKELY(to | g->owner) && (to = shaping_way(w, port, g))) {
		shaping_enter(w, port, to - 1, g);
		return;
	}
	unsigned sent = transmit_now(w, port, g->mbuf, g->count);
	SY_COUNT(port->counters[w->id].tx_failed, g->count - sent);
	for (unsigned i = sent; i < g->count; i++)
		sy_packet_drop(w, g->mbuf[i], SY_DROP_TX_FULL);
	g->count = 0;
}

void transmit_flush(struct sy_worker *w)
{
	struct sy_worker_private *p = w->private;
	for (; p->transmit_ports; p->transmit_ports &= p->transmit_ports - 1)
		gather_flush(w, (unsigned)__builtin_ctz(p->transmit_ports));
}

/* Gathers a packet for a queue of this worker. */
static inline void gather_add(struct sy_worker *w, struct rte_mbuf *m)
{
	struct sy_worker_private *p = w->private;
	struct sy_gather *g = &p->transmit[m->port];
	if (SY_UNLIKELY(g->count == SY_BURST))
		gather_flush(w, m->port);
	g->mbuf[g->count++] = m;
	p->transmit_ports |= 1u << m->port;
}

/* A worker sends on the queue with its own number; it only receives from the other queues that it
 * polls. */
void transmit_gather(struct sy_worker *w, struct rte_mbuf *m)
{
	unsigned queues = w->rt->port[m->port]->queues;
	if (w->id >= queues) {
		steer_transmit(w, w->id % queues, m);
		return;
	}
	gather_add(w, m);
}

static bool frame_destination(const struct rte_mbuf *m, struct sy_addr *out)
{
	const struct sy_eth *eth = rte_pktmbuf_mtod(m, const struct sy_eth *);
	const void *l3 = eth + 1;
	if (m->data_len >= SY_ETH_LEN + sizeof(struct sy_ipv4) &&
	    eth->type == rte_cpu_to_be_16(SY_ETH_IPV4)) {
		*out = sy_addr_v4(((const struct sy_ipv4 *)l3)->dst);
		return true;
	}
	if (m->data_len < SY_ETH_LEN + sizeof(struct sy_ipv6))
		return false;
	memcpy(out->b, ((const struct sy_ipv6 *)l3)->dst, sizeof(out->b));
	return true;
}

void sy_transmit_back(struct sy_worker *w, struct rte_mbuf *m, uint16_t port)
{
	struct sy_addr to;
	if (SY_UNLIKELY(port == RTE_MBUF_PORT_INVALID)) {
		if (frame_destination(m, &to))
			sy_transmit_path(w, m, sy_path_lookup(w->rt, &to), NULL, 0);
		else
			sy_packet_drop(w, m, SY_DROP_TRUNCATED);
		return;
	}
	if (!SY_READ(w->rt->port[port]->up)) {
		sy_packet_drop(w, m, SY_DROP_PORT_DOWN);
		return;
	}
	/* the received frame may have been sent to a group or to another host */
	uint64_t mac = SY_READ(w->rt->port[port]->mac);
	memcpy(((struct sy_eth *)sy_frame(m))->src, &mac, 6);
	m->port = port;
	transmit_gather(w, m);
}

#define MAC_MASK UINT64_C(0xffffffffffff)

/* Writes both MAC addresses of a frame; the neighbour's is in the low 48 bits of a link. */
static void macs_write(uint8_t *frame, uint64_t link, uint64_t mac)
{
	memcpy(frame, &link, 6);
	memcpy(frame + 6, &mac, 6);
}

void transmit_to(struct sy_worker *w, struct rte_mbuf *m, uint64_t link)
{
	if (!SY_READ(w->rt->port[m->port]->up)) {
		sy_packet_drop(w, m, SY_DROP_PORT_DOWN);
		return;
	}
	macs_write(sy_frame(m), link, SY_READ(w->rt->port[m->port]->mac));
	transmit_gather(w, m);
}

/* Length of the longest frame that results: the port may segment the packet. */
static uint32_t frame_len(const struct rte_mbuf *m)
{
	if (SY_LIKELY(!(m->ol_flags & RTE_MBUF_F_TX_TCP_SEG)))
		return m->pkt_len;
	return (uint32_t)(m->l2_len + m->l3_len + m->l4_len + m->tso_segsz);
}

/* The neighbour of a packet's hop. */
struct resolved {
	uint64_t link;
	const struct sy_addr *addr;
	enum adjacency_state state; /* ADJACENCY_FAILED: the packet was dropped */
	struct sy_addr destination;
};

/* Finds port and neighbour of a packet. via: the neighbour, if it is not the frame's
 * destination. */
static void packet_resolve(struct sy_worker *w, struct rte_mbuf *m, uint16_t id,
                           const struct sy_addr *via, uint32_t flow, struct resolved *out)
{
	const struct sy_runtime *rt = w->rt;
	const struct path *path = path_get(rt, id);
	out->state = ADJACENCY_FAILED;
	if (!path || !path->hops) {
		sy_packet_drop(w, m,
		               path && path->blackhole ? SY_DROP_BLACKHOLE : SY_DROP_NO_ROUTE);
		return;
	}
	/* Flow numbers may be consecutive: the upper bits of a product spread them. */
	const struct path_hop *hop = &path->hop[path->pick[(flow * 0x9e3779b1u) >> 26]];
	const struct port *port = rt->port[hop->port];
	if (!SY_READ(port->up)) {
		sy_packet_drop(w, m, SY_DROP_PORT_DOWN);
		return;
	}
	if (frame_len(m) > (uint32_t)SY_READ(port->mtu) + SY_ETH_LEN) {
		sy_packet_drop(w, m, SY_DROP_TOO_BIG);
		return;
	}
	m->port = hop->port;
	uint32_t index = hop->adjacency;
	if (via && index != ADJACENCY_NONE) {
		sy_packet_drop(w, m, SY_DROP_NOT_ON_LINK);
		return;
	}
	if (index == ADJACENCY_NONE) {
		if (via) {
			out->destination = *via;
		} else if (!frame_destination(m, &out->destination)) {
			sy_packet_drop(w, m, SY_DROP_TRUNCATED);
			return;
		}
		index = adjacency_find(rt->adjacencies, hop->port, &out->destination);
		if (index == ADJACENCY_NONE) {
			out->state = ADJACENCY_PENDING;
			out->addr = &out->destination;
			return;
		}
	}
	struct adjacency *r = &rt->adjacencies->record[index];
	adjacency_use(r, w->private->now_s);
	out->link = SY_RCU_READ(r->link);
	out->addr = &r->addr;
	out->state = adjacency_link_state(out->link);
	if (out->state == ADJACENCY_FAILED)
		sy_packet_drop(w, m, SY_DROP_NO_NEIGHBOUR);
}

static void packet_transmit(struct sy_worker *w, struct rte_mbuf *m, uint16_t id,
                            const struct sy_addr *via, uint32_t flow)
{
	struct resolved to;
	packet_resolve(w, m, id, via, flow, &to);
	if (SY_LIKELY(to.state == ADJACENCY_VALID))
		transmit_to(w, m, to.link);
	else if (to.state == ADJACENCY_PENDING)
		unresolved_add(w, m, to.addr);
}

void sy_transmit_path(struct sy_worker *w, struct rte_mbuf *m, uint16_t path,
                      const struct sy_addr *via, uint32_t flow)
{
	packet_transmit(w, m, path, via, flow);
}

bool sy_tx_cache_set(struct sy_worker *w, struct sy_tx_cache *tx, uint16_t id)
{
	const struct sy_runtime *rt = w->rt;
	const struct path *path = path_get(rt, id);
	uint32_t path_mtu = SY_RCU_READ(w->path_mtu[id]);
	*tx = (struct sy_tx_cache){.path = SY_TX_CACHE_NONE};
	if (!path_mtu || !path || path->hops != 1)
		return false;
	const struct path_hop *hop = &path->hop[0];
	const struct port *port = rt->port[hop->port];
	if (!SY_READ(port->up) || w->id >= port->queues)
		return false;
	tx->on_link = hop->adjacency == ADJACENCY_NONE;
	if (!tx->on_link) {
		struct adjacency *r = &rt->adjacencies->record[hop->adjacency];
		uint64_t link = SY_RCU_READ(r->link);
		if (adjacency_link_state(link) != ADJACENCY_VALID)
			return false;
		tx->neighbour = link & MAC_MASK;
		adjacency_use(r, w->private->now_s);
	}
	tx->path = id;
	tx->port = hop->port;
	uint32_t mtu = SY_READ(port->mtu);
	tx->len_max = SY_ETH_LEN + (path_mtu < mtu ? path_mtu : mtu);
	uint64_t mac = SY_READ(port->mac);
	tx->head = mac << 48;
	tx->tail = (uint32_t)(mac >> 16);
	tx->gather = &w->private->transmit[hop->port];
	w->private->transmit_ports |= 1u << hop->port;
	tx->epoch = w->link_epoch | (uint64_t)(hop->port + 1) << 32;
	return true;
}

bool sy_tx_cache_link(struct sy_worker *w, const struct sy_tx_cache *tx,
                      const struct sy_addr *neighbour, struct sy_tx_cache_link *out)
{
	const struct adjacencies *a = w->rt->adjacencies;
	uint32_t index = adjacency_find(a, tx->port, neighbour);
	if (index == ADJACENCY_NONE)
		return false;
	uint64_t link = SY_RCU_READ(a->record[index].link);
	if (adjacency_link_state(link) != ADJACENCY_VALID)
		return false;
	adjacency_use(&a->record[index], w->private->now_s);
	*out = (struct sy_tx_cache_link){tx->epoch, link & MAC_MASK};
	return true;
}

/* By the tx cache if possible. */
static void packet_send(struct sy_worker *w, struct sy_tx_cache *tx, struct sy_burst *b, unsigned i)
{
	struct rte_mbuf *m = b->mbuf[i];
	const struct sy_addr *via = b->via[i];
	struct sy_tx_cache_link link = {0};
	struct sy_addr to;
	if ((via || frame_destination(m, &to)) &&
	    sy_tx_cache_use(w, tx, m, b->path[i], via ? via : &to, &link, via != NULL))
		transmit_gather(w, m);
	else
		packet_transmit(w, m, b->path[i], via, b->flow[i]);
}

void sy_transmit_prepare(struct sy_worker *w, struct sy_burst *b, unsigned i)
{
	struct rte_mbuf *m = b->mbuf[i];
	struct resolved to;
	packet_resolve(w, m, b->path[i], b->via[i], b->flow[i], &to);
	if (to.state == ADJACENCY_PENDING)
		return;
	b->next[i] = to.state == ADJACENCY_VALID ? SY_NEXT_READY : SY_NEXT_DROPPED;
	if (to.state == ADJACENCY_VALID)
		macs_write(sy_frame(m), to.link, SY_READ(w->rt->port[m->port]->mac));
}

void sy_transmit_ready(struct sy_worker *w, struct rte_mbuf *m)
{
	if (SY_READ(w->rt->port[m->port]->up))
		transmit_gather(w, m);
	else /* the port is down; its interface may be gone */
		sy_packet_drop(w, m, SY_DROP_PORT_DOWN);
}

void sy_transmit_now(struct sy_worker *w)
{
	transmit_flush(w);
}

void sy_transmit_before(struct sy_worker *w, struct sy_burst *b, unsigned end)
{
	struct sy_tx_cache tx = {.path = SY_TX_CACHE_NONE};
	for (unsigned i = 0; i < end; i++) {
		if (b->next[i] == SY_NEXT_READY)
			gather_add(w, b->mbuf[i]);
		else if (b->next[i] == SY_NEXT_TRANSMIT)
			packet_send(w, &tx, b, i);
		else
			continue;
		b->next[i] = SY_NEXT_SENT;
	}
}

void sy_transmit_stage(struct sy_worker *w, struct sy_burst *b)
{
	sy_transmit_before(w, b, b->count);
}
