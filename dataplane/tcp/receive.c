// SPDX-License-Identifier: Apache-2.0
/* Packets come in: parsed and checked in batches, then each to its connection. */
#include <arpa/inet.h>

#include <rte_ether.h>

#include "arrive.h"
#include "chain.h"
#include "icmp_error.h"
#include "priority.h"
#include "reassembly.h"

#define POOL_LOOK     512 /* packets between two looks at how many buffers are free */
#define RECEIVE_BATCH 16  /* packets whose connections are asked for at a time */
#define AHEAD         4   /* packets whose bytes are asked for */
#define BYTES_ASKED   192 /* of a packet */

/* The second of three steps on which priorities act: a segment arrives, and its connection is
 * known; or its listener's, or nobody's. */
static void segment_arrive(struct sy_stack *s, struct segment *seg, const uint32_t *bucket)
{
	const struct sy_tuple *t = &seg->view->tuple;
	struct connection *c = bucket_find(s, bucket, t);

	if (!c) {
		struct listener *l = listener_find(s, &t->dst, t->dport);
		if (l) {
			c = listener_arrive(s, l, seg);
		} else {
			stack_refuse(s, seg);
			return;
		}
	}
	if (c)
		arrive(s, c, seg);
}

void sy_stack_prefetch(const struct sy_stack *s, sy_stack_id id)
{
	if ((id & INDEX_MASK) < s->fresh)
		connection_ask(s, id & INDEX_MASK);
}

bool sy_stack_knows(struct sy_stack *s, const struct sy_tuple *from_peer)
{
	return connection_find(s, from_peer) != NULL;
}

bool sy_stack_expects(struct sy_stack *s, const struct sy_tuple *from_peer, uint32_t ack)
{
	const struct connection *c = connection_find(s, from_peer);

	return c && (c->state != SY_STACK_SYN_RECEIVED || ack == c->snd_nxt);
}

static inline bool packet_parse(struct rte_mbuf *m, struct sy_view *v)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);

	return SY_LIKELY(m->nb_segs == 1) ? sy_packet_parse(frame, m->data_len, v) == SY_DROP_NONE
	                                  : chain_parse(m, v);
}

bool sy_stack_parse(struct rte_mbuf *m, struct sy_view *v)
{
	return packet_parse(m, v);
}

/* Is what is no right checksum the sum of the pseudo-header, and may it be? */
static bool checksum_may_be_left(struct sy_stack *s, const struct sy_view *v,
                                 enum sy_csum_state state)
{
	if (state != SY_CSUM_UNFINISHED || v->proto != SY_PROTO_TCP)
		return false;
	s->counters.unfinished += s->options.unfinished;
	s->counters.unfinished_dropped += !s->options.unfinished;
	return s->options.unfinished;
}

static bool checksum_is_right(struct sy_stack *s, const struct rte_mbuf *m, const struct sy_view *v)
{
	uint64_t device = m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
	enum sy_csum_state state;

	/* NONE: the sum is not in the data, yet the device answers for the data. So virtual ones
	 * say of what a neighbour on the same machine has sent. */
	if (s->options.trust_checksum || device == RTE_MBUF_F_RX_L4_CKSUM_GOOD ||
	    device == RTE_MBUF_F_RX_L4_CKSUM_NONE)
		return true;
	if (device == RTE_MBUF_F_RX_L4_CKSUM_BAD)
		return false;
	/* It joins what it has checked, and the sum of all is nowhere. */
	if (m->ol_flags & RTE_MBUF_F_RX_LRO)
		return true;
	state = SY_LIKELY(m->nb_segs == 1)
	                ? sy_packet_check_l4(rte_pktmbuf_mtod(m, const uint8_t *), v)
	                : chain_check(m, v);
	return SY_LIKELY(state == SY_CSUM_OK) || checksum_may_be_left(s, v, state);
}

/* Counts a packet that cannot be parsed. A host gets ARP, and what is for a group of hosts, without
 * anybody's fault. */
static void count_unparsed(struct sy_stack *s, const struct rte_mbuf *m)
{
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);

	if (m->data_len >= sizeof(*eth) && (rte_is_multicast_ether_addr(&eth->dst_addr) ||
	                                    eth->ether_type == htons(RTE_ETHER_TYPE_ARP)))
		s->counters.not_ours++;
	else
		s->counters.malformed++;
}

/* A packet waits for memory three times in a row: for its bytes, its bucket, its connection. A
 * burst waits for those of all side by side: each pass asks for what later ones read. */
struct looked {
	struct sy_view view;
	struct rte_mbuf *packet;
	const uint32_t *bucket;
} __attribute__((aligned(SY_CACHE_LINE)));

/* Headers and the first bytes behind them; and what the packet's own struct has of chains. */
static inline void bytes_ask(const struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);

	for (unsigned at = 0; at < BYTES_ASKED; at += SY_CACHE_LINE)
		__builtin_prefetch(frame + at);
	__builtin_prefetch(&m->next);
}

/* Is it of the connection that its bucket names? Of a flood, nothing is: eight lines of somebody
 * else's connection would come for each packet. */
static inline bool may_be_of(const struct sy_stack *s, const struct looked *l)
{
	return *l->bucket && s->connection[*l->bucket - 1].tuple.sport == l->view.tuple.sport;
}

/* Returns the whole packet, if this fragment completes one for the stack, or NULL. */
static __attribute__((cold, noinline)) struct rte_mbuf *
fragment_receive(struct sy_stack *s, struct rte_mbuf *m, struct looked *l)
{
	m = reassembly_add(s, m, &l->view);
	if (!m || (packet_parse(m, &l->view) && l->view.fragment == SY_FRAGMENT_NONE))
		return m;
	count_unparsed(s, m);
	spent_add(&s->spent, m);
	return NULL;
}

/* The first of three steps on which priorities act: the driver has received a packet, and nothing
 * has looked at it yet but a packet hook. Returns false if it is no packet for the stack. */
static inline bool packet_receive(struct sy_stack *s, struct rte_mbuf *m, struct looked *l)
{
	s->counters.packets_in++;
	s->counters.bytes_in += m->pkt_len;
	s->counters.lro_packets += !!(m->ol_flags & RTE_MBUF_F_RX_LRO);
	bool parsed = packet_parse(m, &l->view);
	if (SY_UNLIKELY(parsed && l->view.fragment != SY_FRAGMENT_NONE)) {
		m = fragment_receive(s, m, l);
		if (!m)
			return false;
	}
	if (!parsed) {
		count_unparsed(s, m);
	} else if (!checksum_is_right(s, m, &l->view)) {
		s->counters.bad_checksums++; /* unfinished ones, too */
	} else {
		l->packet = m;
		return true;
	}
	spent_add(&s->spent, m);
	return false;
}

static inline void packet_arrive(struct sy_stack *s, const struct looked *l)
{
	struct segment seg;

	if (l->view.proto != SY_PROTO_TCP) {
		icmp_error_arrive(s, rte_pktmbuf_mtod(l->packet, const uint8_t *), &l->view);
		spent_add(&s->spent, l->packet);
		return;
	}
	segment_read(&seg, l->packet, &l->view);
	segment_arrive(s, &seg, l->bucket);
	if (seg.packet)
		spent_add(&s->spent, seg.packet);
}

static void batch_receive(struct sy_stack *s, struct rte_mbuf **packet, unsigned count)
{
	struct looked looked[RECEIVE_BATCH];
	unsigned good = 0;

	for (unsigned i = 0; i < count && i < AHEAD; i++)
		bytes_ask(packet[i]);
	for (unsigned i = 0; i < count; i++) {
		struct looked *l = &looked[good];
		if (i + AHEAD < count)
			bytes_ask(packet[i + AHEAD]);
		if (!packet_receive(s, packet[i], l))
			continue;
		l->bucket = bucket_of(s, &l->view.tuple);
		__builtin_prefetch(l->bucket);
		good++;
	}
	for (unsigned i = 0; i < good; i++)
		if (*looked[i].bucket)
			__builtin_prefetch(&s->connection[*looked[i].bucket - 1], 1);
	for (unsigned i = 0; i < good; i++)
		if (may_be_of(s, &looked[i]))
			connection_ask(s, *looked[i].bucket - 1);
	for (unsigned i = 0; i < good; i++)
		packet_arrive(s, &looked[i]);
}

void packets_receive(struct sy_stack *s, struct rte_mbuf **packet, unsigned count)
{
	for (unsigned n; count > 0; packet += n, count -= n) {
		n = count < RECEIVE_BATCH ? count : RECEIVE_BATCH;
		batch_receive(s, packet, n);
	}
	if (SY_UNLIKELY(s->scarce))
		spent_free(&s->spent);
}

/* Counting takes a look at the caches of all cores: once in a millisecond, or so many packets. */
static void pool_look(struct sy_stack *s, unsigned count)
{
	const struct rte_mempool *pool = s->options.pool;
	unsigned free;

	s->unlooked += count;
	if (!s->options.copies || (s->looked_ms == s->now_ms && s->unlooked < POOL_LOOK))
		return;
	s->unlooked = 0;
	s->looked_ms = s->now_ms;
	free = rte_mempool_avail_count(pool);
	s->scarce = free < pool->size / 4;
	s->very_scarce = free < pool->size / 8;
}

void sy_stack_receive(struct sy_stack *s, struct rte_mbuf **packet, unsigned count, uint64_t now_ns)
{
	stack_time(s, now_ns);
	pool_look(s, count);
	if (SY_UNLIKELY(s->ranked != NULL)) {
		if (packets_are_asked(s)) {
			packets_wait(s, packet, count);
			return;
		}
		for (unsigned i = 0; i < count; i++)
			packet_set_level(packet[i], SY_USUAL);
	}
	packets_receive(s, packet, count);
}
