// SPDX-License-Identifier: Apache-2.0
/* For tests of fragments: services of every mode, and datagrams in PIECES fragments. */
#ifndef FRAGMENT_FIXTURE_H
#define FRAGMENT_FIXTURE_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_mempool.h>

#include <cmocka.h>

#include "flows.h"
#include "fragment_table.h"

#define PIECE  256 /* bytes per fragment */
#define PIECES 4   /* per datagram */
#define MANY   160

static const enum mode modes[] = {MODE_FNAT, MODE_NAT, MODE_DR, MODE_IPIP};
static const char *const client_text[2] = {"198.18.0.1", "2001:db8:c::1"};
/* by mode, as in enum mode */
static const char *const vip_text[][2] = {{NULL, NULL},
                                          {"192.0.2.10", "2001:db8:a::10"},
                                          {"192.0.2.20", "2001:db8:a::20"},
                                          {"192.0.2.30", "2001:db8:a::30"},
                                          {"192.0.2.40", "2001:db8:a::40"}};
static const char *const near_text[2] = {"10.3.0.1", "2001:db8:d::1"};
static const char *const far_text[2] = {"10.0.0.91", "2001:db8:b::91"};
static const char *const one_packet_text[2] = {"192.0.2.50", "2001:db8:a::50"};

static inline int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	for (unsigned v6 = 0; v6 < 2; v6++) {
		for (enum mode mode = MODE_DR; mode <= MODE_IPIP; mode++) {
			struct service_key key = harness_key(vip_text[mode][v6], 53, SY_PROTO_UDP);
			struct sy_addr server =
			        harness_addr(mode == MODE_IPIP ? far_text[v6] : near_text[v6]);
			put_service(&c, &key, "cut", FLOW_RR, NULL);
			set_mode(&c, mode);
			put_server(&c, &key, &server, 53, 1, FLOW_UP);
		}
		struct service_key key = harness_key(one_packet_text[v6], 53, SY_PROTO_UDP);
		struct sy_addr server = harness_addr(far_text[v6]);
		put_service(&c, &key, "one packet", FLOW_RR, NULL)->one_packet = true;
		put_server(&c, &key, &server, 5353, 1, FLOW_UP);
	}
	flows_commit(*state, &c);
	return rc;
}

/* ---- sending and receiving ------------------------------------------------------------------- */

static inline struct sy_tuple client_of(const char *vip, unsigned v6, uint16_t port)
{
	return (struct sy_tuple){harness_addr(client_text[v6]), harness_addr(vip), htons(port),
	                         htons(53), SY_PROTO_UDP};
}

/* Makes a datagram of PIECES fragments. */
static inline void cut(struct flows *f, const struct sy_tuple *t, uint32_t id,
                       struct frame piece[static PIECES])
{
	struct frame whole;
	frame_udp(&whole, &f->rng, t, PIECE * PIECES - 20);
	assert_int_equal(frame_cut(&whole, id, PIECE, piece, PIECES), PIECES);
}

static inline void inject(struct flows *f, unsigned port, const struct frame *in)
{
	assert_true(harness_inject(&f->harness, port, in->bytes, in->len));
}

/* The frames that leave a port, in order. */
static inline unsigned collect(struct flows *f, unsigned port, struct frame *out, unsigned capacity)
{
	struct rte_mbuf *m;
	unsigned n = 0;
	harness_poll(&f->harness);
	harness_attend(&f->harness);
	for (; (m = harness_collect(&f->harness, port)); n++) {
		assert_true(n < capacity);
		out[n].len = rte_pktmbuf_data_len(m);
		memcpy(out[n].bytes, rte_pktmbuf_mtod(m, void *), out[n].len);
		rte_pktmbuf_free(m);
	}
	assert_null(harness_collect(&f->harness, 1 - port));
	return n;
}

static inline unsigned send_all(struct flows *f, unsigned port, const struct frame *in,
                                unsigned count, struct frame *out)
{
	for (unsigned i = 0; i < count; i++)
		inject(f, port, &in[i]);
	return collect(f, 1 - port, out, MANY);
}

static inline void nothing_is_queued(struct flows *f)
{
	assert_int_equal(rte_mempool_in_use_count(f->harness.rt->pool), 0);
}

/* Removes the tunnel header. */
static inline void decapsulate(struct frame *f, bool v6)
{
	unsigned outer = v6 ? sizeof(struct sy_ipv6) : sizeof(struct sy_ipv4);
	memmove(f->bytes + SY_ETH_LEN, f->bytes + SY_ETH_LEN + outer, f->len - SY_ETH_LEN - outer);
	f->len = (uint16_t)(f->len - outer);
}

/* What a receiver reassembles from all PIECES fragments, which are in order: all have one id and
 * fit together, and the datagram's checksum is right. Returns its view; fragment_id is the common
 * id.
 */
static inline struct sy_view join(struct frame *out, unsigned count)
{
	static uint8_t whole[4096];
	struct sy_view v, all = {.fragment = SY_FRAGMENT_NONE};
	unsigned bytes = 0, headers = 0;
	uint32_t id = 0;
	assert_int_equal(count, PIECES);
	for (unsigned i = 0; i < count; i++) {
		const uint8_t *frame = out[i].bytes;
		assert_int_equal(sy_packet_parse(frame, out[i].len, &v), SY_DROP_NONE);
		if (i == 0) {
			assert_int_equal(v.fragment, SY_FRAGMENT_FIRST);
			headers = v.v4 ? v.l4 : v.l4 - 8u;
			memcpy(whole, frame, headers);
			id = v.fragment_id;
		}
		assert_int_equal(v.fragment_id, id);
		assert_int_equal(v.fragment_offset, bytes);
		assert_int_equal(sy_packet_ttl(frame, &v), 63);
		memcpy(whole + headers + v.fragment_offset, frame + v.l4, v.l4_len);
		bytes += v.l4_len;
	}
	if (v.v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(whole + SY_ETH_LEN);
		ip->fragment = 0;
		ip->total_length = htons((uint16_t)(sizeof(*ip) + bytes));
		ip->checksum = 0;
		ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip)));
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)(whole + SY_ETH_LEN);
		ip->payload_length = htons((uint16_t)bytes);
		ip->next_header = v.proto;
	}
	assert_int_equal(sy_packet_parse(whole, headers + bytes, &all), SY_DROP_NONE);
	assert_int_equal(sy_packet_check_l4(whole, &all), SY_CSUM_OK);
	all.fragment_id = id;
	return all;
}

/* The n-th permutation of PIECES numbers. */
static inline void permute(unsigned n, unsigned order[static PIECES])
{
	unsigned left[PIECES] = {0, 1, 2, 3};
	for (unsigned i = 0; i < PIECES; i++) {
		unsigned pick = n % (PIECES - i);
		n /= PIECES - i;
		order[i] = left[pick];
		memmove(left + pick, left + pick + 1, (PIECES - i - pick - 1) * sizeof(left[0]));
	}
}

/* Sends a datagram in some order, in one burst or one burst per fragment. */
static inline struct sy_view pass(struct flows *f, unsigned port, const struct sy_tuple *t,
                                  uint32_t id, unsigned order, bool together, enum mode mode)
{
	struct frame piece[PIECES], out[MANY];
	unsigned at[PIECES], count = 0;
	cut(f, t, id, piece);
	permute(order, at);
	for (unsigned i = 0; i < PIECES; i++) {
		inject(f, port, &piece[at[i]]);
		if (!together)
			count += collect(f, 1 - port, out + count, MANY - count);
	}
	count += collect(f, 1 - port, out + count, MANY - count);
	for (unsigned i = 0; i < count && mode == MODE_IPIP; i++)
		decapsulate(&out[i], !sy_addr_is_v4(&t->src));
	return join(out, count);
}

static inline struct sy_tuple turned(const struct sy_tuple *t)
{
	return (struct sy_tuple){t->dst, t->src, t->dport, t->sport, t->proto};
}

static inline struct session *find(struct flows *f, const struct sy_tuple *t)
{
	const struct flow flow = {.client = *t};
	return flow_session(f, &flow);
}

#endif
