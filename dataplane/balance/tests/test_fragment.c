// SPDX-License-Identifier: Apache-2.0
/* Fragments follow their first fragment, in every mode and order; wrong ones are dropped with a
 * specific reason. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_mempool.h>

#include <cmocka.h>

#include "flows.h"
#include "fragment.h"

#define PIECE  256 /* bytes per fragment */
#define PIECES 4   /* per datagram */
#define MANY   64

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

static int setup(void **state)
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

static struct sy_tuple client_of(const char *vip, unsigned v6, uint16_t port)
{
	return (struct sy_tuple){harness_addr(client_text[v6]), harness_addr(vip), htons(port),
	                         htons(53), SY_PROTO_UDP};
}

/* Makes a datagram of PIECES fragments. */
static void cut(struct flows *f, const struct sy_tuple *t, uint32_t id,
                struct frame piece[static PIECES])
{
	struct frame whole;
	frame_udp(&whole, &f->rng, t, PIECE * PIECES - 20);
	assert_int_equal(frame_cut(&whole, id, PIECE, piece, PIECES), PIECES);
}

static void inject(struct flows *f, unsigned port, const struct frame *in)
{
	assert_true(harness_inject(&f->harness, port, in->bytes, in->len));
}

/* The frames that leave a port, in order. */
static unsigned collect(struct flows *f, unsigned port, struct frame *out, unsigned capacity)
{
	struct rte_mbuf *m;
	unsigned n = 0;
	harness_turn(&f->harness);
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

static unsigned send_all(struct flows *f, unsigned port, const struct frame *in, unsigned count,
                         struct frame *out)
{
	for (unsigned i = 0; i < count; i++)
		inject(f, port, &in[i]);
	return collect(f, 1 - port, out, MANY);
}

static void nothing_is_held(struct flows *f)
{
	assert_int_equal(rte_mempool_in_use_count(f->harness.rt->pool), 0);
}

/* Removes the tunnel header. */
static void decapsulate(struct frame *f, bool v6)
{
	unsigned outer = v6 ? sizeof(struct sy_ipv6) : sizeof(struct sy_ipv4);
	memmove(f->bytes + SY_ETH_LEN, f->bytes + SY_ETH_LEN + outer, f->len - SY_ETH_LEN - outer);
	f->len = (uint16_t)(f->len - outer);
}

/* What a receiver reassembles from all PIECES fragments: the first one comes first, all have one id
 * and fit together, and the datagram's checksum is right. Returns its view; fragment_id is the
 * common id. */
static struct sy_view join(struct frame *out, unsigned count)
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
static void permute(unsigned n, unsigned order[static PIECES])
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
static struct sy_view pass(struct flows *f, unsigned port, const struct sy_tuple *t, uint32_t id,
                           unsigned order, bool together, enum mode mode)
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

static struct sy_tuple turned(const struct sy_tuple *t)
{
	return (struct sy_tuple){t->dst, t->src, t->dport, t->sport, t->proto};
}

static struct session *find(struct flows *f, const struct sy_tuple *t)
{
	const struct flow flow = {.client = *t};
	return flow_session(f, &flow);
}

/* ---- valid fragments ------------------------------------------------------------------------- */

static void check_mode(struct flows *f, enum mode mode, unsigned v6, uint16_t port)
{
	const struct sy_tuple client = client_of(vip_text[mode][v6], v6, port);
	for (unsigned order = 0; order < 24; order++) {
		uint32_t id = port + order;
		bool together = order % 2 == port % 2;
		struct sy_view there = pass(f, HARNESS_WAN, &client, id, order, together, mode);
		struct session *s = find(f, &client);
		assert_non_null(s);
		if (mode != MODE_FNAT) {
			assert_true(sy_addr_equal(&there.tuple.src, &client.src));
			assert_int_equal(there.fragment_id, id);
		}
		if (mode != MODE_FNAT && mode != MODE_NAT)
			continue;
		const struct sy_tuple answer = turned(&there.tuple);
		struct sy_view back = pass(f, HARNESS_LAN, &answer, id, 23 - order, together, mode);
		const struct sy_tuple want = turned(&client);
		assert_memory_equal(&back.tuple, &want, sizeof(want));
		if (order > 0)
			assert_int_equal(s->state, SESSION_UDP_BOTH_WAYS);
	}
	const struct traffic t = traffic_sum(f->harness.b, find(f, &client)->server);
	assert_true(t.packets_in >= 24 * PIECES);
}

static void test_every_mode_and_order(void **state)
{
	struct flows *f = *state;
	for (unsigned workers = 1; workers <= 2; workers++) {
		flows_reopen(f, workers, 0, true);
		for (unsigned m = 0; m < SY_ARRAY_LEN(modes); m++)
			for (unsigned v6 = 0; v6 < 2; v6++)
				for (uint16_t port = 1000; port < 1004; port++)
					check_mode(f, modes[m], v6, port);
		nothing_is_held(f);
		for (unsigned reason = 1; reason < SY_DROP_COUNT; reason++)
			assert_int_equal(harness_drops(&f->harness, reason), 0);
	}
}

/* Clients that chose the same fragment id must not collide at the server. */
static void test_ids_differ(void **state)
{
	static uint8_t used[65536];
	struct flows *f = *state;
	for (unsigned round = 0; round < 4; round++) {
		unsigned v6 = round % 2;
		flows_reopen(f, 1 + round / 2, 0, true);
		memset(used, 0, sizeof(used));
		for (uint16_t port = 2000; port < 2300; port++) {
			const struct sy_tuple client = client_of(vip_text[MODE_FNAT][v6], v6, port);
			struct sy_view there = pass(f, HARNESS_WAN, &client, 7, 0, true, MODE_FNAT);
			assert_int_equal(used[there.fragment_id & 0xffff]++, 0);
			const struct sy_tuple answer = turned(&there.tuple);
			struct sy_view back = pass(f, HARNESS_LAN, &answer, 7, 0, true, MODE_FNAT);
			assert_int_equal(used[back.fragment_id & 0xffff]++, 0);
		}
	}
}

/* Data of a connection, and a SYN with data. */
static void test_tcp(void **state)
{
	struct flows *f = *state;
	struct frame whole, piece[PIECES], out[MANY];
	for (unsigned s = 0; s < FLOW_SERVICES; s += 2) {
		const struct segment data = {SY_TCP_ACK | SY_TCP_PSH, 100, 1, 0},
		                     syn = {SY_TCP_SYN, 1, 0, 1460};
		struct flow flow;
		flow_open(f, &flow, s, 1000);
		frame_tcp(&whole, &f->rng, &flow.client, &data, PIECE * PIECES - 20);
		assert_int_equal(frame_cut(&whole, 9, PIECE, piece, PIECES), PIECES);
		for (unsigned i = 0; i < PIECES / 2; i++) {
			struct frame last = piece[PIECES - 1 - i];
			piece[PIECES - 1 - i] = piece[i];
			piece[i] = last;
		}
		join(out, send_all(f, HARNESS_WAN, piece, PIECES, out));
		assert_int_equal(flow_session(f, &flow)->state, SESSION_ESTABLISHED);
		struct sy_tuple fresh = flow.client;
		fresh.sport = htons(1001);
		frame_tcp(&whole, &f->rng, &fresh, &syn, PIECE * PIECES - 24);
		frame_cut(&whole, 10, PIECE, piece, PIECES);
		assert_int_equal(send_all(f, HARNESS_WAN, piece, PIECES, out), PIECES);
		assert_int_equal(find(f, &fresh)->state, SESSION_SYN_SENT);
		/* a middle fragment without the first one creates no session */
		fresh.sport = htons(1002);
		frame_tcp(&whole, &f->rng, &fresh, &data, PIECE * PIECES - 20);
		frame_cut(&whole, 11, PIECE, piece, PIECES);
		uint64_t before = harness_drops(&f->harness, SY_DROP_NO_SESSION);
		assert_int_equal(send_all(f, HARNESS_WAN, piece, PIECES, out), 0);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SESSION), before + PIECES);
		assert_null(find(f, &fresh));
	}
	nothing_is_held(f);
}

/* A one-packet session ends with the last arriving fragment of its answer. */
static void test_one_packet(void **state)
{
	struct flows *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		for (unsigned order = 0; order < 24; order++) {
			struct frame whole, out;
			struct sy_view v;
			const struct sy_tuple client = client_of(one_packet_text[v6], v6, 3000);
			frame_udp(&whole, &f->rng, &client, 30);
			assert_true(flows_through(f, HARNESS_WAN, &whole, &out));
			assert_int_equal(harness_totals(&f->harness).live, 1);
			sy_packet_parse(out.bytes, out.len, &v);
			const struct sy_tuple answer = turned(&v.tuple);
			pass(f, HARNESS_LAN, &answer, order, order, order % 3, MODE_FNAT);
			assert_int_equal(harness_totals(&f->harness).live, 0);
		}
	}
}

/* ---- wrong fragments ------------------------------------------------------------------------- */

static void check_dropped(struct flows *f, const struct frame *in, enum sy_drop reason)
{
	struct frame out;
	uint64_t before = harness_drops(&f->harness, reason);
	assert_int_equal(send_all(f, HARNESS_WAN, in, 1, &out), 0);
	assert_int_equal(harness_drops(&f->harness, reason), before + 1);
}

/* Duplicates before and after the first fragment; the datagram is still complete afterwards. */
static void test_duplicates(void **state)
{
	struct flows *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct frame piece[PIECES], out[MANY];
		const struct sy_tuple t = client_of(vip_text[MODE_FNAT][v6], v6, 4000);
		cut(f, &t, 1, piece);
		assert_int_equal(send_all(f, HARNESS_WAN, &piece[2], 1, out), 0);
		check_dropped(f, &piece[2], SY_DROP_FRAGMENT_DUPLICATE);
		unsigned count = send_all(f, HARNESS_WAN, &piece[0], 2, out);
		assert_int_equal(count, 3);
		for (unsigned i = 0; i < 3; i++)
			check_dropped(f, &piece[i], SY_DROP_FRAGMENT_DUPLICATE);
		count += send_all(f, HARNESS_WAN, &piece[3], 1, out + count);
		join(out, count);
	}
	nothing_is_held(f);
}

/* Fragments that overlap in part, that extend beyond the end, and a second last fragment. From then
 * on the whole datagram is dropped, including its waiting fragments. */
static void test_overlaps(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 12; n++) {
		unsigned v6 = n % 2, kind = n / 2;
		bool waits = kind >= 3;
		struct frame whole, piece[PIECES], bad[PIECES * 4], out[MANY];
		const struct sy_tuple t = client_of(vip_text[MODE_FNAT][v6], v6, 5000);
		frame_udp(&whole, &f->rng, &t, PIECE * PIECES - 20);
		frame_cut(&whole, n, PIECE, piece, PIECES);
		uint64_t before = harness_drops(&f->harness, SY_DROP_FRAGMENT_OVERLAP);
		unsigned sent = 0;
		inject(f, HARNESS_WAN, &piece[waits ? 1 : 0]);
		inject(f, HARNESS_WAN, &piece[PIECES - 1]);
		assert_int_equal(collect(f, HARNESS_LAN, out, MANY), waits ? 0 : 2);
		switch (kind % 3) {
		case 0: /* 192 to 384, across the end of the first or the start of the second */
			frame_cut(&whole, n, 192, bad, PIECES * 4);
			inject(f, HARNESS_WAN, &bad[1]);
			break;
		case 1: /* longer */
			frame_udp(&whole, &f->rng, &t, PIECE * PIECES + 400);
			frame_cut(&whole, n, PIECE, bad, PIECES * 4);
			inject(f, HARNESS_WAN, &bad[PIECES]);
			break;
		default: /* shorter */
			frame_udp(&whole, &f->rng, &t, PIECE * (PIECES - 1) - 20);
			frame_cut(&whole, n, PIECE, bad, PIECES * 4);
			inject(f, HARNESS_WAN, &bad[PIECES - 2]);
		}
		sent = 1 + (waits ? 2 : 0);
		assert_int_equal(collect(f, HARNESS_LAN, out, MANY), 0);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_OVERLAP),
		                 before + sent);
		for (unsigned i = 0; i < PIECES; i++)
			check_dropped(f, &piece[i], SY_DROP_FRAGMENT_OVERLAP);
		nothing_is_held(f);
		flows_advance(f, HARNESS_RETIRED); /* the id is free again */
		pass(f, HARNESS_WAN, &t, n, n, true, MODE_FNAT);
	}
}

/* Waiting fragments are dropped when their time is up, and not earlier. */
static void test_waiting_ends(void **state)
{
	struct flows *f = *state;
	for (unsigned workers = 1; workers <= 2; workers++) {
		flows_reopen(f, workers, 0, true);
		for (unsigned v6 = 0; v6 < 2; v6++) {
			struct frame piece[PIECES], out[MANY];
			uint64_t before = harness_drops(&f->harness, SY_DROP_FRAGMENT_TIMEOUT);
			const struct sy_tuple t = client_of(vip_text[MODE_FNAT][v6], v6, 6000);
			cut(f, &t, 1, piece);
			assert_int_equal(send_all(f, HARNESS_WAN, &piece[1], PIECES - 1, out), 0);
			flows_advance(f, 1);
			assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_TIMEOUT),
			                 before);
			assert_int_equal(rte_mempool_in_use_count(f->harness.rt->pool), PIECES - 1);
			flows_advance(f, 1);
			assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_TIMEOUT),
			                 before + PIECES - 1);
			nothing_is_held(f);
			/* too late for the dropped ones, but it is forwarded */
			assert_int_equal(send_all(f, HARNESS_WAN, &piece[0], 1, out), 1);
			flows_advance(f, 2);
		}
	}
}

static void test_waiting_is_bounded(void **state)
{
	struct flows *f = *state;
	struct frame whole, piece[MANY], out[MANY];
	struct sy_tuple t = client_of(vip_text[MODE_FNAT][0], 0, 7000);
	frame_udp(&whole, &f->rng, &t, 1300);
	unsigned count = frame_cut(&whole, 1, 64, piece, MANY);
	assert_true(count > FRAGMENT_WAITING_MAX + 1);
	send_all(f, HARNESS_WAN, &piece[1], count - 1, out);
	uint64_t full = count - 1 - FRAGMENT_WAITING_MAX;
	assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_WAIT_FULL), full);
	assert_int_equal(send_all(f, HARNESS_WAN, piece, 1, out), 1 + FRAGMENT_WAITING_MAX);
	/* per worker, where the oldest are dropped first */
	for (unsigned id = 97; id < 100 + FRAGMENT_WAITING; id++) {
		cut(f, &t, id, piece);
		send_all(f, HARNESS_WAN, &piece[1], 1, out);
	}
	full += 3;
	assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_WAIT_FULL), full);
	assert_int_equal(rte_mempool_in_use_count(f->harness.rt->pool), FRAGMENT_WAITING);
	/* and their first fragments release them all */
	for (unsigned id = 100; id < 100 + FRAGMENT_WAITING; id++) {
		cut(f, &t, id, piece);
		assert_int_equal(send_all(f, HARNESS_WAN, piece, 1, out), 2);
	}
	nothing_is_held(f);
}

/* Datagrams with fragments in any order pass, while datagrams whose first fragment never comes fill
 * the waiting table, with one fragment each or with many. */
static void test_strays(void **state)
{
	struct flows *f = *state;
	struct frame whole, stray[MANY];
	struct sy_tuple t = client_of(vip_text[MODE_FNAT][0], 0, 7100);
	struct sy_tuple honest = client_of(vip_text[MODE_FNAT][0], 0, 7200);
	uint64_t sent = 0;
	for (unsigned id = 0; id < 600; id++) {
		frame_udp(&whole, &f->rng, &t, 1300);
		frame_cut(&whole, id, 64, stray, MANY);
		for (unsigned n = 1; n <= 1 + id % FRAGMENT_WAITING_MAX; n++, sent++)
			inject(f, HARNESS_WAN, &stray[n]);
		pass(f, HARNESS_WAN, &honest, 5000 + id, id % 24, id % 2, MODE_FNAT);
		if (id % 7 == 0) /* the first fragment still comes, once */
			send_all(f, HARNESS_WAN, stray, 1, stray + 1);
	}
	assert_true(harness_drops(&f->harness, SY_DROP_FRAGMENT_WAIT_FULL) > sent / 2);
	flows_advance(f, 2);
	nothing_is_held(f);
}

/* The oldest datagrams are dropped with their waiting fragments. */
static void test_table_is_bounded(void **state)
{
	struct flows *f = *state;
	struct frame piece[PIECES], out[MANY];
	struct sy_tuple t = client_of(vip_text[MODE_FNAT][0], 0, 8000);
	for (unsigned id = 0; id < FRAGMENT_WAITING; id++) {
		cut(f, &t, id, piece);
		assert_int_equal(send_all(f, HARNESS_WAN, &piece[1], 1, out), 0);
	}
	harness_advance(&f->harness, 1000000);
	for (unsigned id = 1000; id < 1000 + 4 * FRAGMENT_DATAGRAMS; id++) {
		cut(f, &t, id, piece);
		assert_int_equal(send_all(f, HARNESS_WAN, piece, 1, out), 1);
	}
	assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_TABLE_FULL), FRAGMENT_WAITING);
	nothing_is_held(f);
	/* a new datagram does not evict itself */
	pass(f, HARNESS_WAN, &t, 99999, 23, false, MODE_FNAT);
}

static void test_icmp(void **state)
{
	struct flows *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct frame whole, piece[PIECES];
		struct sy_tuple t = client_of(vip_text[MODE_FNAT][v6], v6, 0);
		frame_icmp(&whole, &f->rng, &t, v6 ? 128 : 8, 0, PIECE * PIECES - 8);
		frame_cut(&whole, 1, PIECE, piece, PIECES);
		for (unsigned i = 0; i < PIECES; i++)
			check_dropped(f, &piece[i], SY_DROP_ICMP_FRAGMENT);
	}
}

/* Fragments that are waiting when the process ends. */
static void test_end(void **state)
{
	struct flows *f = *state;
	struct frame piece[PIECES], out[MANY];
	struct sy_tuple t = client_of(vip_text[MODE_FNAT][0], 0, 9000);
	cut(f, &t, 1, piece);
	assert_int_equal(send_all(f, HARNESS_WAN, &piece[1], 2, out), 0);
	flows_reopen(f, 2, 0, false);
	pass(f, HARNESS_WAN, &t, 1, 0, true, MODE_FNAT);
	nothing_is_held(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(every_mode_and_order),
	        TEST(ids_differ),
	        TEST(tcp),
	        TEST(one_packet),
	        TEST(duplicates),
	        TEST(overlaps),
	        TEST(waiting_ends),
	        TEST(waiting_is_bounded),
	        TEST(strays),
	        TEST(table_is_bounded),
	        TEST(icmp),
	        TEST(end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
