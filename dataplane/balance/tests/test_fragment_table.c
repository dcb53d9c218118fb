// SPDX-License-Identifier: Apache-2.0
/* Fragments leave when their datagram is complete, in every mode and in any order of arrival; wrong
 * ones are dropped with a specific reason. */
#include "fragment_fixture.h"

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
		nothing_is_queued(f);
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
	nothing_is_queued(f);
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

/* A fragment that waits is not replaced by its duplicate: the datagram leaves once, whole. */
static void test_duplicates(void **state)
{
	struct flows *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct frame piece[PIECES], out[MANY];
		const struct sy_tuple t = client_of(vip_text[MODE_FNAT][v6], v6, 4000);
		cut(f, &t, 1, piece);
		for (unsigned n = 0; n < PIECES - 1; n++) {
			assert_int_equal(send_all(f, HARNESS_WAN, &piece[(n + 2) % PIECES], 1, out),
			                 0);
			for (unsigned again = 0; again <= n; again++)
				check_dropped(f, &piece[(again + 2) % PIECES],
				              SY_DROP_FRAGMENT_DUPLICATE);
		}
		join(out, send_all(f, HARNESS_WAN, &piece[1], 1, out));
	}
	nothing_is_queued(f);
}

/* Fragments that overlap in part, that extend beyond the end, and a second last fragment. From then
 * on the whole datagram is dropped, including its waiting fragments. */
static void test_overlaps(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 12; n++) {
		unsigned v6 = n % 2, kind = n / 2;
		struct frame whole, piece[PIECES], bad[PIECES * 4], out[MANY];
		const struct sy_tuple t = client_of(vip_text[MODE_FNAT][v6], v6, 5000);
		frame_udp(&whole, &f->rng, &t, PIECE * PIECES - 20);
		frame_cut(&whole, n, PIECE, piece, PIECES);
		uint64_t before = harness_drops(&f->harness, SY_DROP_FRAGMENT_OVERLAP);
		inject(f, HARNESS_WAN, &piece[kind >= 3 ? 1 : 0]);
		inject(f, HARNESS_WAN, &piece[PIECES - 1]);
		assert_int_equal(collect(f, HARNESS_LAN, out, MANY), 0);
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
		assert_int_equal(collect(f, HARNESS_LAN, out, MANY), 0);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_OVERLAP), before + 3);
		for (unsigned i = 0; i < PIECES; i++)
			check_dropped(f, &piece[i], SY_DROP_FRAGMENT_OVERLAP);
		nothing_is_queued(f);
		flows_advance(f, HARNESS_RETIRED); /* the id is free again */
		pass(f, HARNESS_WAN, &t, n, n, true, MODE_FNAT);
	}
}

/* All fragments but one wait, in every mode: nothing leaves and no session begins. They are dropped
 * when their time is up, and not earlier. */
static void test_waiting_ends(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 2 * 2 * PIECES * SY_ARRAY_LEN(modes); n++) {
		unsigned lost = n % PIECES, v6 = n / PIECES % 2;
		enum mode mode = modes[n / PIECES / 2 % SY_ARRAY_LEN(modes)];
		if (n % (2 * PIECES * SY_ARRAY_LEN(modes)) == 0)
			flows_reopen(f, 1 + n / (2 * PIECES * SY_ARRAY_LEN(modes)), 0, true);
		struct frame piece[PIECES], out[MANY];
		uint64_t before = harness_drops(&f->harness, SY_DROP_FRAGMENT_TIMEOUT);
		const struct sy_tuple t = client_of(vip_text[mode][v6], v6, (uint16_t)(6000 + n));
		cut(f, &t, 1, piece);
		const struct frame missing = piece[lost];
		memmove(piece + lost, piece + lost + 1, (PIECES - 1 - lost) * sizeof(piece[0]));
		assert_int_equal(send_all(f, HARNESS_WAN, piece, PIECES - 1, out), 0);
		flows_advance(f, 1);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_TIMEOUT), before);
		assert_int_equal(rte_mempool_in_use_count(f->harness.rt->pool), PIECES - 1);
		flows_advance(f, 1);
		before += PIECES - 1;
		assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_TIMEOUT), before);
		nothing_is_queued(f);
		/* too late: it waits in vain itself */
		assert_int_equal(send_all(f, HARNESS_WAN, &missing, 1, out), 0);
		flows_advance(f, 2);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_TIMEOUT), before + 1);
		nothing_is_queued(f);
		assert_null(find(f, &t));
	}
}

/* As many fragments as one datagram may have leave in order; with one more it is spoilt. */
static void test_pieces_are_bounded(void **state)
{
	struct flows *f = *state;
	static struct frame piece[MANY], out[MANY];
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct frame whole;
		struct sy_view v;
		const struct sy_tuple t = client_of(vip_text[MODE_FNAT][v6], v6, 7000);
		frame_udp(&whole, &f->rng, &t, 8 * (FRAGMENT_PIECES - 1));
		unsigned count = frame_cut(&whole, 1, 8, piece, MANY);
		assert_int_equal(count, FRAGMENT_PIECES);
		for (unsigned i = 0; i < count; i++) /* an order without an order */
			inject(f, HARNESS_WAN, &piece[i * 37 % count]);
		assert_int_equal(collect(f, HARNESS_LAN, out, MANY), count);
		for (unsigned i = 0; i < count; i++) {
			assert_int_equal(sy_packet_parse(out[i].bytes, out[i].len, &v),
			                 SY_DROP_NONE);
			assert_int_equal(v.fragment_offset, 8 * i);
		}
		uint64_t before = harness_drops(&f->harness, SY_DROP_FRAGMENT_TOO_MANY);
		frame_udp(&whole, &f->rng, &t, 8 * (FRAGMENT_PIECES + 1));
		count = frame_cut(&whole, 2, 8, piece, MANY);
		assert_int_equal(send_all(f, HARNESS_WAN, piece, count, out), 0);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_TOO_MANY),
		                 before + count);
		nothing_is_queued(f);
	}
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
	nothing_is_queued(f);
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
	        TEST(pieces_are_bounded),
	        TEST(icmp),
	        TEST(end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
