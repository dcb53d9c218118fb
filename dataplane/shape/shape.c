// SPDX-License-Identifier: Apache-2.0
/* Enqueues packets into a tree and dequeues them. build.c builds and moves trees. */
#include "shape.h"

#include <sy_packet.h>

/* Min capacity, whatever sy_shape_hold() says. */
#define MIN_CAPACITY 64

/* The DSCP of a frame; 0 if it is no IP packet. */
static unsigned frame_dscp(const struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	if (m->data_len < SY_ETH_LEN + 2)
		return 0;
	const uint8_t *ip = frame + SY_ETH_LEN;
	const unsigned type = (unsigned)frame[12] << 8 | frame[13];
	if (type == SY_ETH_IPV4)
		return ip[1] >> 2;
	return type == SY_ETH_IPV6 ? (ip[0] & 0xfu) << 2 | ip[1] >> 6 : 0;
}

/* Drop precedence of the assured classes, AF11 to AF43 (RFC 2597); 0 for all others. */
static unsigned dscp_precedence(unsigned dscp)
{
	const unsigned class = dscp >> 3, precedence = dscp >> 1 & 3;
	return class >= 1 && class <= 4 && !(dscp & 1) && precedence > 0 ? precedence - 1 : 0;
}

static uint32_t frame_bytes(const struct sy_shape *s, const struct rte_mbuf *m)
{
	const int32_t bytes = (int32_t)m->pkt_len + s->config.header;
	return bytes > s->config.min ? (uint32_t)bytes : s->config.min;
}

enum sy_drop sy_shape_put(struct sy_shape *s, struct rte_mbuf *m, unsigned service, uint64_t now_ns)
{
	const struct sy_shape_config *c = &s->config;
	const unsigned dscp = frame_dscp(m);
	service = service < c->services ? service : 0;
	const unsigned class = c->service[service].class == SY_SHAPE_BY_DSCP
	                               ? c->class_of[dscp]
	                               : c->service[service].class;
	const uint32_t index = class_index(s, service, class);
	struct queue *q = &s->node[index].queue;
	const enum sy_drop reason =
	        queue_check(s, q, dscp_precedence(dscp), now_ns, s->node[0].maximum.ns_per_byte);
	if (SY_UNLIKELY(reason != SY_DROP_NONE)) {
		uint64_t *n = reason == SY_DROP_SHAPING_EARLY ? &q->counts.early : &q->counts.full;
		SY_SHAPE_COUNT(*n, 1);
		SY_SHAPE_COUNT(q->counts.dropped_bytes, m->pkt_len);
		return reason;
	}
	queue_add(q, m);
	s->waiting++;
	if (q->count == 1)
		node_refresh(s, index, false, now_ns);
	return SY_DROP_NONE;
}

/* Dequeues the next packet; there is one. */
static struct rte_mbuf *shape_dequeue(struct sy_shape *s, uint64_t now_ns)
{
	struct {
		uint32_t index;
		unsigned priority;
		enum rings ring;
	} way[LEVELS] = {{0}};
	for (unsigned l = LEVEL_TENANT; l <= LEVEL_CLASS; l++)
		way[l].index =
		        child_pick(&s->node[way[l - 1].index], &way[l].priority, &way[l].ring);
	struct node *leaf = &s->node[way[LEVEL_CLASS].index];
	struct rte_mbuf *m = queue_remove(&leaf->queue, now_ns);
	const uint32_t bytes = frame_bytes(s, m);
	s->waiting--;
	SY_SHAPE_COUNT(leaf->queue.counts.sent, 1);
	SY_SHAPE_COUNT(leaf->queue.counts.sent_bytes, m->pkt_len);
	for (unsigned l = LEVEL_PORT; l < LEVELS; l++) {
		struct node *n = &s->node[way[l].index];
		n->maximum.level += bytes;
		if (l > LEVEL_PORT && way[l].ring != ANY)
			n->guaranteed.level += bytes;
		if (l > LEVEL_PORT)
			child_sent(s, &s->node[n->parent], way[l].index, way[l].priority,
			           way[l].ring, bytes);
	}
	node_refresh(s, way[LEVEL_CLASS].index, true, now_ns);
	return m;
}

unsigned sy_shape_dequeue(struct sy_shape *s, struct rte_mbuf **m, unsigned n, uint64_t now_ns)
{
	unsigned taken = 0;
	nodes_wake(s, now_ns);
	while (taken < n && s->node[0].has)
		m[taken++] = shape_dequeue(s, now_ns);
	return taken;
}

uint64_t sy_shape_next(const struct sy_shape *s)
{
	if (s->waiting == 0)
		return SY_SHAPE_NEVER;
	if (s->node[0].has)
		return 0;
	/* while the port has no credit, other nodes' times do not matter */
	if (s->node[0].heap_at != NODE_NONE)
		return s->node[0].wake_ns;
	return s->waits > 0 ? s->node[s->heap[0]].wake_ns : SY_SHAPE_NEVER;
}

void sy_shape_open(struct sy_shape *s)
{
	s->open = true;
	for (uint32_t i = s->nodes; i-- > 0;)
		node_refresh(s, i, false, 0);
}

void sy_shape_hold(struct sy_shape *s, unsigned elsewhere)
{
	const uint32_t min = s->capacity_all < MIN_CAPACITY ? s->capacity_all : MIN_CAPACITY;
	s->capacity = s->capacity_all > elsewhere + min ? s->capacity_all - elsewhere : min;
}

unsigned sy_shape_waiting(const struct sy_shape *s)
{
	return SY_SHAPE_READ(s->waiting);
}

const struct sy_shape_config *sy_shape_config(const struct sy_shape *s)
{
	return &s->config;
}

struct sy_shape_counts sy_shape_read(const struct sy_shape *s, unsigned service, unsigned class)
{
	const struct queue *q = &s->node[class_index(s, service, class)].queue;
	return (struct sy_shape_counts){
	        .sent = SY_SHAPE_READ(q->counts.sent),
	        .sent_bytes = SY_SHAPE_READ(q->counts.sent_bytes),
	        .full = SY_SHAPE_READ(q->counts.full),
	        .early = SY_SHAPE_READ(q->counts.early),
	        .dropped_bytes = SY_SHAPE_READ(q->counts.dropped_bytes),
	        .waiting = SY_SHAPE_READ(q->count),
	};
}
