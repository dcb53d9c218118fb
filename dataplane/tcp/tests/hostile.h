// SPDX-License-Identifier: Apache-2.0
/*
 * A peer, an application and a network that follow bytes, however wrong. The stack's structures
 * stay consistent, it sends valid packets, and no memory leaks.
 *
 *     1 byte: operation │ its arguments, as many bytes as it needs; 0 where the input has ended
 *
 * Half of the inputs have a port with TSO and LRO, where the bytes also determine the layout of
 * buffers.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <arpa/inet.h>

#include "../stack.h"

#include "large.h"

#define HOSTILE_NS    UINT64_C(3000000000000)
#define HOSTILE_PORTS 4 /* of the peer */
#define HOSTILE_IDS   8

struct hostile {
	struct sy_stack *s;
	struct rte_mempool *pool;
	const uint8_t *data;
	size_t size;
	uint64_t now;
	bool v4, port;
	struct sy_addr local, peer;
	sy_stack_id listener, id[HOSTILE_IDS];
	unsigned ids;
	/* By the peer's port: the stack's last segment. */
	struct {
		uint32_t seq, ack, time;
		uint16_t port;
	} last[HOSTILE_PORTS];
};

static inline uint8_t hostile_byte(struct hostile *h)
{
	if (h->size == 0)
		return 0;
	h->size--;
	return *h->data++;
}

static inline uint32_t hostile_number(struct hostile *h)
{
	uint32_t low = hostile_byte(h);
	return low | (uint32_t)hostile_byte(h) << 8;
}

/* ---- consistency ----------------------------------------------------------------------------- */

/* In a function that returns whether something holds; a fuzz target's HOLDS() also prints it. */
#ifndef HOLDS
#define HOLDS(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return false;                                                              \
	} while (0)
#endif

static inline bool hostile_list_is_consistent(const struct sy_stack *s, const struct list *l,
                                              enum list_kind kind)
{
	uint32_t before = INDEX_NONE, count = 0;

	for (uint32_t at = l->first; at != INDEX_NONE; count++) {
		HOLDS(at < s->fresh && count < l->count);
		HOLDS(s->connection[at].place[kind].before == before);
		before = at;
		at = s->connection[at].place[kind].after;
	}
	return l->last == before && l->count == count;
}

/* Adds the bytes of its queued packets. */
static inline bool hostile_connection_is_consistent(struct sy_stack *s, const struct connection *c,
                                                    uint64_t *queued)
{
	uint64_t bytes = 0;

	for (const struct rte_mbuf *m = c->received.first; m; m = m->next) {
		HOLDS(m->data_len > 0 && m->refcnt == 1);
		bytes += m->data_len;
	}
	HOLDS(bytes == c->received.bytes);
	if (c->flags & C_HASHED)
		HOLDS(connection_find(s, &c->tuple) == c && c->state != SY_STACK_CLOSED);
	HOLDS(!sy_seq_before(c->snd_nxt, c->snd_una));
	HOLDS(!sy_seq_before(c->rcv_edge, c->rcv_nxt) || c->state == SY_STACK_SYN_SENT ||
	      c->state == SY_STACK_CLOSED);
	HOLDS((c->snd_una == c->snd_nxt) == (c->flight == 0) || c->state == SY_STACK_CLOSED);
	if (c->flight) {
		const struct sent *sent = &flight_of(s, c)->sent;
		HOLDS(sent->una == c->snd_una && sent->nxt == c->snd_nxt);
	}
	if (c->armed)
		HOLDS(c->in_wheel);
	*queued += c->received.memory;
	return true;
}

static inline bool hostile_is_consistent(struct sy_stack *s)
{
	uint64_t held = 0;
	uint32_t free = 0, flights = 0;

	for (uint32_t i = s->free; i != INDEX_NONE; i = s->connection[i].bucket_next)
		free++;
	HOLDS(s->fresh == s->used + free);
	for (uint32_t i = 0; i < s->fresh; i++) {
		HOLDS(hostile_connection_is_consistent(s, &s->connection[i], &held));
		flights += s->connection[i].flight != 0;
	}
	HOLDS(held == s->receive_queued && flights == s->flights.taken);
	for (unsigned i = 0; i < SY_PRIORITIES; i++) {
		HOLDS(hostile_list_is_consistent(s, &s->send[i], LIST_SEND));
		HOLDS((s->send[i].count > 0) == !!(s->send_levels & 1u << i));
		HOLDS(hostile_list_is_consistent(s, &s->event[i], LIST_EVENT));
		HOLDS(!s->priority || (s->event[i].count > 0) == !!(s->event_levels & 1u << i));
	}
	HOLDS(hostile_list_is_consistent(s, &s->space, LIST_ROLE));
	HOLDS(hostile_list_is_consistent(s, &s->time_wait, LIST_ROLE));
	for (uint32_t i = 0; i < s->options.listeners; i++) {
		if (!s->listeners.slot[i].used)
			continue;
		HOLDS(hostile_list_is_consistent(s, &s->listeners.slot[i].half, LIST_ROLE));
		HOLDS(hostile_list_is_consistent(s, &s->listeners.slot[i].ready, LIST_ROLE));
	}
	return true;
}

/* ---- what the stack sends -------------------------------------------------------------------- */

static inline void hostile_sent_one(struct hostile *h, struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	struct segment seg;
	struct sy_view v;

	CHECK(sy_packet_parse(frame, m->data_len, &v) == SY_DROP_NONE);
	CHECK(sy_packet_check_l4(frame, &v) == SY_CSUM_OK && v.proto == SY_PROTO_TCP);
	CHECK(v.frame_len == m->data_len && m->data_len <= SY_ETH_LEN + h->s->options.mtu);
	segment_read(&seg, m, &v);
	unsigned peer = ntohs(v.tuple.dport) % HOSTILE_PORTS;
	h->last[peer].seq = seg.seq + segment_span(&seg);
	h->last[peer].ack = seg.ack;
	h->last[peer].port = v.tuple.sport;
	if (seg.options.timestamps)
		h->last[peer].time = seg.options.time;
	rte_pktmbuf_free(m);
}

static inline void hostile_sent(struct hostile *h, struct rte_mbuf *m)
{
	struct rte_mbuf *piece[LARGE_PIECES];
	unsigned count = large_cut(m, piece);

	CHECK(count == 1 || h->port);
	for (unsigned i = 0; i < count; i++)
		hostile_sent_one(h, piece[i]);
}

static inline void hostile_pump(struct hostile *h)
{
	struct rte_mbuf *m[8];
	unsigned count, turns = 0;

	while ((count = sy_stack_transmit(h->s, m, 8, h->now)) > 0) {
		for (unsigned i = 0; i < count; i++)
			hostile_sent(h, m[i]);
		CHECK(++turns < 10000);
	}
}

/* ---- what the peer does ---------------------------------------------------------------------- */

static inline struct sy_tuple hostile_tuple(struct hostile *h, unsigned peer)
{
	return (struct sy_tuple){.src = h->peer,
	                         .dst = h->local,
	                         .sport = htons((uint16_t)(5000 + peer)),
	                         .dport = h->last[peer].port ? h->last[peer].port : htons(80),
	                         .proto = SY_PROTO_TCP};
}

/* Passes a packet to the stack, in the buffers of the port. */
static inline void hostile_give(struct hostile *h, struct rte_mbuf *m)
{
	unsigned how = h->port ? hostile_byte(h) : 0;

	if (how & 1)
		large_split(m, hostile_byte(h));
	if (how & 2)
		large_split(m, (uint16_t)hostile_number(h));
	if ((how & 12) == 12) {
		m->ol_flags |= RTE_MBUF_F_RX_LRO;
		m->tso_segsz = (uint16_t)hostile_number(h);
	}
	sy_stack_receive(h->s, &m, 1, h->now);
}

/* Mostly flags of real segments. */
static inline uint8_t hostile_flags(uint8_t byte)
{
	static const uint8_t usual[8] = {SY_TCP_ACK,
	                                 SY_TCP_ACK | SY_TCP_PSH,
	                                 SY_TCP_ACK,
	                                 SY_TCP_ACK | SY_TCP_FIN,
	                                 SY_TCP_SYN,
	                                 SY_TCP_RST,
	                                 SY_TCP_ACK | SY_TCP_URG,
	                                 SY_TCP_SYN | SY_TCP_ACK};
	return byte & 128 ? byte & 127 : usual[byte % 8] | (byte & 64 ? TCP_ECE : 0);
}

/* 0, or a small distance to either side. */
static inline uint32_t hostile_near(struct hostile *h)
{
	uint8_t byte = hostile_byte(h);
	return byte < 160 ? 0 : (uint32_t)(int8_t)(byte << 3) * 40;
}

/* A segment close to a valid one. */
static inline void hostile_segment(struct hostile *h)
{
	unsigned what = hostile_byte(h), peer = what % HOSTILE_PORTS;
	struct sy_tuple t = hostile_tuple(h, peer);
	struct segment_plan plan = {
	        .from_peer = &(struct sy_tuple){t.dst, t.src, t.dport, t.sport, t.proto},
	        .tos = what >> 6,
	        .options = {.scale = SY_TCP_NO_SCALE},
	};
	plan.flags = hostile_flags(hostile_byte(h));
	plan.seq = h->last[peer].ack + hostile_near(h);
	plan.ack = h->last[peer].seq - hostile_near(h);
	plan.window = (uint16_t)hostile_number(h);
	if (what & 4)
		plan.len = hostile_number(h) % 1300;
	if (what & 24) {
		plan.options.timestamps = true;
		plan.options.time = hostile_byte(h);
		plan.options.echo = h->last[peer].time;
	}
	if (what & 8) {
		plan.options.mss = (uint16_t)hostile_number(h);
		plan.options.scale = hostile_byte(h) % 16;
		plan.options.sack = true;
	}
	for (unsigned i = what & 32 && !(plan.flags & SY_TCP_SYN) ? 1 + hostile_byte(h) % 2 : 0;
	     i > 0; i--) {
		struct sack_block *block = &plan.block[plan.blocks++];
		block->from = h->last[peer].seq - hostile_number(h) % 8000;
		block->to = block->from + hostile_number(h) % 4000;
	}
	if (plan.flags & SY_TCP_URG)
		plan.urgent = hostile_byte(h);
	uint8_t *payload;
	struct rte_mbuf *m = segment_make(h->pool, &plan, &payload);
	CHECK(m);
	memset(payload, (int)plan.seq, plan.len);
	/* Arbitrary options; the checksum so far is valid for them. */
	if (what % 64 == 63 && m->l4_len > sizeof(struct sy_tcp)) {
		unsigned back = 1 + hostile_byte(h) % (m->l4_len - (unsigned)sizeof(struct sy_tcp));
		struct sy_tcp *tcp = (struct sy_tcp *)(payload - m->l4_len);
		const uint8_t *pair = payload - (back + 1) / 2 * 2;
		uint16_t old, new;
		memcpy(&old, pair, sizeof(old));
		payload[-(int)back] ^= (uint8_t)plan.window;
		memcpy(&new, pair, sizeof(new));
		tcp->checksum = sy_csum_fold((uint64_t)tcp->checksum + (uint16_t)~old + new);
	}
	segment_finish(m, &plan, false);
	hostile_give(h, m);
}

/* Any bytes as a frame; beyond them zeros. */
static inline void hostile_frame(struct hostile *h)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(h->pool);
	uint16_t len = 14 + hostile_byte(h);
	uint8_t *frame = (uint8_t *)rte_pktmbuf_append(m, len);

	memset(frame, 0, len);
	for (uint16_t i = 0; i < len && h->size > 0; i++)
		frame[i] = hostile_byte(h);
	hostile_give(h, m);
}

static inline void hostile_icmp(struct hostile *h)
{
	unsigned peer = hostile_byte(h) % HOSTILE_PORTS;
	struct sy_tuple t = hostile_tuple(h, peer);
	struct segment_plan plan = {
	        .from_peer = &t, .flags = SY_TCP_ACK, .options = {.scale = SY_TCP_NO_SCALE}};
	plan.seq = h->last[peer].seq - hostile_number(h) % 4000;
	plan.len = hostile_number(h) % 1400;
	struct rte_mbuf *quoted = segment_make(h->pool, &plan, NULL);
	struct rte_mbuf *m = rte_pktmbuf_alloc(h->pool);
	struct sy_view v;
	const uint8_t *frame = rte_pktmbuf_mtod(quoted, const uint8_t *);

	CHECK(sy_packet_parse(frame, quoted->data_len, &v) == SY_DROP_NONE);
	enum sy_icmp_error kind = (enum sy_icmp_error)(hostile_byte(h) % 5);
	uint16_t mtu = (uint16_t)hostile_number(h);
	m->data_len = (uint16_t)sy_packet_icmp_error(rte_pktmbuf_mtod(m, uint8_t *), 1400, frame,
	                                             &v, kind, &h->peer, mtu);
	m->pkt_len = m->data_len;
	rte_pktmbuf_free(quoted);
	hostile_give(h, m);
}

/* ---- what the application does --------------------------------------------------------------- */

static inline void hostile_keep(struct hostile *h, sy_stack_id id)
{
	h->id[h->ids++ % HOSTILE_IDS] = id;
}

static inline void hostile_call(struct hostile *h)
{
	static uint8_t bytes[20000];
	unsigned what = hostile_byte(h);
	sy_stack_id id = h->id[what / 16 % HOSTILE_IDS], made;
	struct sy_stack_endpoint local = {h->local, 0}, peer = {h->peer, 0};
	const void *at;
	int64_t len;

	switch (what % 16) {
	case 0:
	case 1:
		if (sy_stack_accept(h->s, h->listener, what, NULL, &made) == 0)
			hostile_keep(h, made);
		break;
	case 2:
		peer.port = htons((uint16_t)(5000 + hostile_byte(h) % HOSTILE_PORTS));
		local.port = hostile_byte(h) % 2 ? htons(81) : 0;
		if (sy_stack_connect(h->s, &local, &peer, what, h->now, &made) == 0)
			hostile_keep(h, made);
		break;
	case 3:
		sy_stack_close(h->s, id, h->now);
		break;
	case 4:
		sy_stack_shutdown(h->s, id, h->now);
		break;
	case 5:
		sy_stack_abort(h->s, id, h->now);
		break;
	case 6:
		local.port = hostile_byte(h) % 13;
		sy_stack_set(h->s, id, (enum sy_stack_option)local.port, hostile_number(h), h->now);
		break;
	case 7:
		len = sy_stack_peek(h->s, id, &at);
		sy_stack_consume(h->s, id, len > 0 ? hostile_number(h) % (size_t)(len + 1) : 0,
		                 h->now);
		break;
	case 8:
		sy_stack_close(h->s, h->listener, h->now);
		sy_stack_listen(h->s, &(struct sy_stack_endpoint){h->local, htons(80)}, 2, 0,
		                &h->listener);
		break;
	case 9:
	case 10:
		sy_stack_receive_bytes(h->s, id, bytes, hostile_number(h) % sizeof(bytes), h->now);
		break;
	default:
		sy_stack_send(h->s, id, bytes, hostile_number(h) % sizeof(bytes), what / 64,
		              h->now);
	}
}

static inline void hostile_events(struct hostile *h)
{
	struct sy_stack_event e[4];
	struct sy_stack_info info;

	for (unsigned i = 0, count = sy_stack_events(h->s, e, 4); i < count; i++)
		CHECK(e[i].what &&
		      (e[i].id == h->listener || sy_stack_info(h->s, e[i].id, &info) == 0));
}

static inline void hostile_step(struct hostile *h)
{
	unsigned what = hostile_byte(h);

	switch (what % 8) {
	case 0:
	case 1:
	case 2:
		hostile_segment(h);
		break;
	case 3:
	case 4:
		hostile_call(h);
		break;
	case 5:
		h->now += UINT64_C(1000000) << what / 8 % 20;
		sy_stack_advance(h->s, h->now);
		break;
	case 6:
		hostile_events(h);
		break;
	case 7:
		if (what & 8)
			hostile_icmp(h);
		else
			hostile_frame(h);
	}
	if (!(what & 128))
		hostile_pump(h);
}

/* Opens a stack with the options of the input's first byte. */
static inline bool hostile_open(struct hostile *h, struct rte_mempool *pool, const uint8_t *data,
                                size_t size)
{
	*h = (struct hostile){.pool = pool, .data = data, .size = size, .now = HOSTILE_NS};
	unsigned kind = hostile_byte(h);
	struct sy_stack_options o = {.pool = pool,
	                             .connections = 8,
	                             .listeners = 2,
	                             .receive_max = kind & 4 ? 3000 : 0,
	                             .send_all = 16 * CHUNK_SIZE,
	                             .receive_all = 65536,
	                             .congestion = kind & 8 ? "newreno" : "cubic",
	                             .no_sack = kind & 16,
	                             .no_timestamps = kind & 32,
	                             .ecn = kind & 64,
	                             .toa = kind & 128,
	                             .tso = {.ipv4 = kind & 2, .ipv6 = kind & 2}};

	h->v4 = kind & 1;
	h->port = kind & 2;
	sy_addr_parse(h->v4 ? "192.0.2.1" : "2001:db8::1", &h->local);
	sy_addr_parse(h->v4 ? "198.51.100.2" : "2001:db8:1::2", &h->peer);
	return sy_stack_create(&o, h->now, &h->s, NULL) == 0 &&
	       sy_stack_listen(h->s, &(struct sy_stack_endpoint){h->local, htons(80)}, 2, 0,
	                       &h->listener) == 0;
}

static inline void hostile_close(struct hostile *h)
{
	hostile_pump(h);
	sy_stack_destroy(h->s);
}

#endif
