// SPDX-License-Identifier: Apache-2.0
/* Receive path: parses and verifies packets in batches, then passes each to its connection. */
#include <arpa/inet.h>

#include <rte_ether.h>

#include "arrive.h"
#include "chain.h"
#include "icmp_error.h"
#include "priority.h"
#include "reassembly.h"

#define POOL_CHECK_PACKETS 512 /* packets between two checks of the pool's fill level */
#define RECEIVE_BATCH      16  /* packets whose connections are prefetched together */
#define AHEAD              4   /* packets to prefetch ahead */
#define PREFETCH_BYTES     192 /* prefetched bytes per packet */

/* The second of three points where priorities apply: the connection or listener of a segment is
 * known. */
static void segment_arrive(struct sy_stack *s, struct segment *seg, const uint32_t *bucket)
{
	const struct sy_tuple *t = &seg->view->tuple;
	struct connection *c = bucket_find(s, bucket, t);

	if (!c) {
		struct listener *l = listener_find(s, t);
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
		connection_prefetch(s, id & INDEX_MASK);
}

bool sy_stack_has_connection(struct sy_stack *s, const struct sy_tuple *from_peer)
{
	return connection_find(s, from_peer) != NULL;
}

bool sy_stack_expects_ack(struct sy_stack *s, const struct sy_tuple *from_peer, uint32_t ack)
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

/* Returns true if an invalid checksum is the bare pseudo-header sum, and options.unfinished accepts
 * that. */
static bool checksum_is_unfinished(struct sy_stack *s, const struct sy_view *v,
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

	/* NONE: the checksum field is not valid, but the device vouches for the data. virtio
	 * reports this for packets from the same host. */
	if (s->options.trust_checksum || device == RTE_MBUF_F_RX_L4_CKSUM_GOOD ||
	    device == RTE_MBUF_F_RX_L4_CKSUM_NONE)
		return true;
	if (device == RTE_MBUF_F_RX_L4_CKSUM_BAD)
		return false;
	/* LRO joins verified segments; no checksum covers the result. */
	if (m->ol_flags & RTE_MBUF_F_RX_LRO)
		return true;
	state = SY_LIKELY(m->nb_segs == 1)
	                ? sy_packet_check_l4(rte_pktmbuf_mtod(m, const uint8_t *), v)
	                : chain_check(m, v);
	return SY_LIKELY(state == SY_CSUM_OK) || checksum_is_unfinished(s, v, state);
}

/* Counts an unparsable packet. ARP and multicast are expected and counted separately. */
static void count_unparsed(struct sy_stack *s, const struct rte_mbuf *m)
{
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);

	if (m->data_len >= sizeof(*eth) && (rte_is_multicast_ether_addr(&eth->dst_addr) ||
	                                    eth->ether_type == htons(RTE_ETHER_TYPE_ARP)))
		s->counters.not_ours++;
	else
		s->counters.malformed++;
}

/* Processing a packet has three dependent cache misses: headers, bucket, connection. The passes
 * over a batch overlap them: each pass prefetches what the next one reads. */
struct parsed {
	struct sy_view view;
	struct rte_mbuf *packet;
	const uint32_t *bucket;
} __attribute__((aligned(SY_CACHE_LINE)));

/* Prefetches headers, the first payload bytes, and the mbuf's second cache line. */
static SY_PREFETCH_INLINE void bytes_prefetch(const struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);

	for (unsigned at = 0; at < PREFETCH_BYTES; at += SY_CACHE_LINE)
		__builtin_prefetch(frame + at);
	__builtin_prefetch(&m->next);
}

/* Returns true if the bucket's first connection may match. In a flood of unknown tuples,
 * prefetching would otherwise load eight lines of an unrelated connection per packet. */
static inline bool may_belong(const struct sy_stack *s, const struct parsed *l)
{
	return *l->bucket && s->connection[*l->bucket - 1].tuple.sport == l->view.tuple.sport;
}

/* Returns the reassembled packet if this fragment completes one, or NULL. */
static __attribute__((cold, noinline)) struct rte_mbuf *
fragment_receive(struct sy_stack *s, struct rte_mbuf *m, struct parsed *l)
{
	m = reassembly_add(s, m, &l->view);
	if (!m || (packet_parse(m, &l->view) && l->view.fragment == SY_FRAGMENT_NONE))
		return m;
	count_unparsed(s, m);
	spent_add(&s->spent, m);
	return NULL;
}

/* The first of three points where priorities apply: the driver has received a packet, which only a
 * packet hook has read. Returns false if it is not for the stack. */
static inline bool packet_receive(struct sy_stack *s, struct rte_mbuf *m, struct parsed *l)
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
		s->counters.bad_checksums++; /* also unfinished ones */
	} else {
		l->packet = m;
		return true;
	}
	spent_add(&s->spent, m);
	return false;
}

static inline void packet_arrive(struct sy_stack *s, const struct parsed *l)
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
	struct parsed parsed[RECEIVE_BATCH];
	unsigned good = 0;

	for (unsigned i = 0; i < count && i < AHEAD; i++)
		bytes_prefetch(packet[i]);
	for (unsigned i = 0; i < count; i++) {
		struct parsed *l = &parsed[good];
		if (i + AHEAD < count)
			bytes_prefetch(packet[i + AHEAD]);
		if (!packet_receive(s, packet[i], l))
			continue;
		l->bucket = bucket_of(s, &l->view.tuple);
		__builtin_prefetch(l->bucket);
		good++;
	}
	for (unsigned i = 0; i < good; i++)
		if (*parsed[i].bucket)
			__builtin_prefetch(&s->connection[*parsed[i].bucket - 1], 1);
	for (unsigned i = 0; i < good; i++)
		if (may_belong(s, &parsed[i]))
			connection_prefetch(s, *parsed[i].bucket - 1);
	for (unsigned i = 0; i < good; i++)
		packet_arrive(s, &parsed[i]);
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

/* The count reads the caches of all cores: check once per millisecond or POOL_CHECK_PACKETS. */
static void pool_check(struct sy_stack *s, unsigned count)
{
	const struct rte_mempool *pool = s->options.pool;
	unsigned free;

	s->unchecked += count;
	if (!s->options.copies || (s->checked_ms == s->now_ms && s->unchecked < POOL_CHECK_PACKETS))
		return;
	s->unchecked = 0;
	s->checked_ms = s->now_ms;
	free = rte_mempool_avail_count(pool);
	s->scarce = free < pool->size / 4;
	s->very_scarce = free < pool->size / 8;
}

void sy_stack_receive(struct sy_stack *s, struct rte_mbuf **packet, unsigned count, uint64_t now_ns)
{
	stack_time(s, now_ns);
	pool_check(s, count);
	if (SY_UNLIKELY(s->ranked != NULL)) {
		if (packet_hook_in_use(s)) {
			packets_queue(s, packet, count);
			return;
		}
		for (unsigned i = 0; i < count; i++)
			packet_set_level(packet[i], SY_USUAL);
	}
	packets_receive(s, packet, count);
}
