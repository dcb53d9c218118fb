// SPDX-License-Identifier: Apache-2.0
/* Two stacks and a connection: `a` sends, `b` listens and reads. large.h simulates the port between
 * them. Checks each byte. */
#ifndef TCP_TESTS_DUO_H
#define TCP_TESTS_DUO_H

#include "script.h"

#include "../stack.h"

#include "large.h"

#define DUO_START UINT64_C(1000000000)
#define DUO_MS    UINT64_C(1000000)
#define DUO_MAX   64

static struct duo {
	struct sy_stack *a, *b; /* a sends, b listens */
	sy_stack_id from, to, listener;
	uint64_t now;
	unsigned before;
	uint32_t written, read;
	uint32_t largest, max_buffers; /* of the packets of duo_fetch_all() */
	uint32_t seq[DUO_MAX];         /* of its last packets */
} duo;

static inline uint8_t duo_byte_of(uint32_t n)
{
	return (uint8_t)(n ^ n >> 8 ^ n >> 16);
}

static inline struct connection *duo_sender(void)
{
	return connection_of(duo.a, duo.from);
}

/* Delivers b's packets to a. */
static inline void duo_back(void)
{
	struct rte_mbuf *m[DUO_MAX];
	unsigned count;

	while ((count = sy_stack_transmit(duo.b, m, DUO_MAX, duo.now)) > 0)
		sy_stack_receive(duo.a, m, count, duo.now);
}

static inline void duo_pass(uint64_t ms)
{
	duo.now += ms * DUO_MS;
	sy_stack_advance(duo.a, duo.now);
	sy_stack_advance(duo.b, duo.now);
}

/* Fetches a's packets, as the port receives them. */
static inline unsigned duo_fetch(struct rte_mbuf **m)
{
	struct rte_mbuf *all[DUO_MAX]; /* `m` may be sized for the expected number */
	unsigned count = sy_stack_transmit(duo.a, all, DUO_MAX, duo.now);

	memcpy(m, all, count * sizeof(all[0]));
	return count;
}

/* Delivers a packet's pieces to b, except those in the bitmap `lost`. Returns the number of pieces.
 */
static inline unsigned duo_deliver(struct rte_mbuf *m, uint64_t lost)
{
	struct rte_mbuf *piece[LARGE_PIECES];
	unsigned count = large_cut(m, piece);

	for (unsigned i = 0; i < count; i++) {
		if (lost >> i & 1)
			rte_pktmbuf_free(piece[i]);
		else
			sy_stack_receive(duo.b, &piece[i], 1, duo.now);
	}
	return count;
}

static inline uint32_t duo_payload_of(struct rte_mbuf *m)
{
	return m->pkt_len - segment_headers(m);
}

/* Delivers a's packets to b. Returns the number of packets at the port. */
static inline unsigned duo_fetch_all(void)
{
	struct rte_mbuf *m[DUO_MAX];
	unsigned all = 0, count, l3_len;

	while ((count = duo_fetch(m)) > 0) {
		for (unsigned i = 0; i < count; i++, all++) {
			duo.largest = duo_payload_of(m[i]) > duo.largest ? duo_payload_of(m[i])
			                                                 : duo.largest;
			duo.max_buffers =
			        m[i]->nb_segs > duo.max_buffers ? m[i]->nb_segs : duo.max_buffers;
			duo.seq[i] = ntohl(large_tcp(m[i], &l3_len)->sent_seq);
			duo_deliver(m[i], 0);
		}
	}
	return all;
}

/* Exchanges packets until both are idle. */
static inline void duo_settle(void)
{
	struct rte_mbuf *m[DUO_MAX];
	unsigned count;

	do {
		count = duo_fetch(m);
		for (unsigned i = 0; i < count; i++)
			duo_deliver(m[i], 0);
		duo_back();
	} while (count > 0);
}

static inline void duo_write(uint32_t len, int flags)
{
	uint8_t bytes[4096];

	while (len > 0) {
		uint32_t piece = len < sizeof(bytes) ? len : sizeof(bytes);
		for (uint32_t i = 0; i < piece; i++)
			bytes[i] = duo_byte_of(duo.written + i);
		assert_int_equal(sy_stack_send(duo.a, duo.from, bytes, piece,
		                               len > piece ? SY_STACK_MORE : flags, duo.now),
		                 piece);
		duo.written += piece;
		len -= piece;
	}
}

/* Reads and checks all data. Returns its length. */
static inline uint32_t duo_read(void)
{
	uint8_t bytes[4096];
	uint32_t first = duo.read;
	int64_t got;

	while ((got = sy_stack_receive_bytes(duo.b, duo.to, bytes, sizeof(bytes), duo.now)) > 0)
		for (int64_t i = 0; i < got; i++)
			assert_int_equal(bytes[i], duo_byte_of(duo.read++));
	return duo.read - first;
}

static inline void duo_begin(struct sy_stack_options o, struct sy_stack_options peer, bool v4)
{
	struct sy_stack_endpoint a = {.port = 0}, b = {.port = htons(80)};

	memset(&duo, 0, sizeof(duo));
	duo.now = DUO_START;
	duo.before = rte_mempool_avail_count(tests_pool());
	o.connections = peer.connections = 4;
	o.pool = o.pool ? o.pool : tests_pool();
	peer.pool = peer.pool ? peer.pool : tests_pool();
	sy_addr_parse(v4 ? "10.0.0.1" : "fd00::1", &a.addr);
	sy_addr_parse(v4 ? "10.0.0.2" : "fd00::2", &b.addr);
	assert_int_equal(sy_stack_create(&o, duo.now, &duo.a, NULL), 0);
	assert_int_equal(sy_stack_create(&peer, duo.now, &duo.b, NULL), 0);
	assert_int_equal(sy_stack_listen(duo.b, &b, 4, 0, &duo.listener), 0);
	assert_int_equal(sy_stack_connect(duo.a, &a, &b, 0, duo.now, &duo.from), 0);
	duo_settle();
	assert_int_equal(sy_stack_accept(duo.b, duo.listener, 0, NULL, &duo.to), 0);
	sy_stack_set(duo.a, duo.from, SY_STACK_SEND_BYTES, 1 << 20, duo.now);
}

static inline void duo_end(void)
{
	sy_stack_abort(duo.a, duo.from, duo.now);
	duo_settle();
	sy_stack_destroy(duo.a);
	sy_stack_destroy(duo.b);
	assert_int_equal(rte_mempool_avail_count(tests_pool()), duo.before);
}

static inline uint8_t duo_flags_of(struct rte_mbuf *m)
{
	unsigned l3_len;
	return large_tcp(m, &l3_len)->tcp_flags;
}

#endif
