// SPDX-License-Identifier: Apache-2.0
/* Datagrams that are never completed, beside those of a client: in virtual time, at rates up to
 * 400 000 packets a second. */
#include "fragment_fixture.h"

#define MS      UINT64_C(1000000)
#define BUFFERS 16383

/* What a flood sends of each datagram, and in whose name. */
enum part { FIRST, LATER, ALL_BUT_ONE, TWICE, SPOILT, PARTS };
enum name { ANYBODY, ONE, CLIENT, NAMES };

struct flood {
	enum part part;
	enum name name;
	unsigned per_ms;
	struct sy_tuple to; /* the client's */
	uint32_t id;
	unsigned sent;
};

static void flood_address(struct flows *f, struct flood *flood, struct sy_tuple *t)
{
	if (flood->name == CLIENT)
		return;
	bool v4 = sy_addr_is_v4(&t->src);
	uint32_t one = flood->name == ONE ? 7 : rng_below(&f->rng, UINT32_MAX);
	/* in the last bytes of a network, or in those that name a /64 */
	memcpy(t->src.b + (v4 ? 13 : 4), &one, v4 ? 3 : 4);
}

/* Sends some packets more, at the time that it is. */
static void flood_send(struct flows *f, struct flood *flood, unsigned packets)
{
	static struct frame whole, piece[PIECES * 2];
	for (unsigned until = flood->sent + packets; flood->sent < until;) {
		struct sy_tuple t = flood->to;
		flood_address(f, flood, &t);
		frame_udp(&whole, &f->rng, &t, 24 * PIECES - 8);
		/* ids that the client does not use */
		frame_cut(&whole, 40000 + flood->id++ % 25000, 24, piece, PIECES);
		unsigned first = flood->part == LATER ? 1 : 0, count = 1;
		if (flood->part == ALL_BUT_ONE)
			count = PIECES - 1;
		if (flood->part == TWICE)
			piece[count++] = piece[0];
		if (flood->part == SPOILT) {
			frame_cut(&whole, 40000 + (flood->id - 1) % 25000, 16, piece + 2, PIECES);
			piece[1] = piece[3]; /* 16 to 32, across the end of the first */
			count = 2;
		}
		for (unsigned n = 0; n < count; n++, flood->sent++) {
			inject(f, HARNESS_WAN, &piece[first + n]);
			if (flood->sent % 1024 == 0)
				harness_poll(&f->harness);
		}
	}
	harness_poll(&f->harness);
}

static void flood_pass(struct flows *f, struct flood *flood, unsigned ms)
{
	for (; ms > 0; ms--) {
		harness_advance(&f->harness, MS);
		flood_send(f, flood, flood->per_ms);
	}
}

/* Each datagram of the client is served, though its fragments come `gap_ms` apart, each after the
 * flood's. */
static void check_served(struct flows *f, struct flood *flood, enum mode mode, unsigned gap_ms,
                         unsigned datagrams)
{
	for (unsigned n = 0; n < datagrams; n++) {
		struct frame piece[PIECES], out[MANY];
		unsigned at[PIECES], count = 0;
		cut(f, &flood->to, n, piece);
		permute(rng_below(&f->rng, 24), at);
		for (unsigned i = 0; i < PIECES; i++) {
			flood_pass(f, flood, i > 0 ? gap_ms : 0);
			assert_int_equal(count, 0);
			inject(f, HARNESS_WAN, &piece[at[i]]);
			count += collect(f, HARNESS_LAN, out, MANY);
		}
		for (unsigned i = 0; i < count && mode == MODE_IPIP; i++)
			decapsulate(&out[i], !sy_addr_is_v4(&flood->to.src));
		join(out, count);
	}
}

static void check_flood(struct flows *f, struct flood *flood, enum mode mode)
{
	unsigned workers = f->harness.rt->workers;
	flows_advance(f, 2); /* the flood before is forgotten */
	uint64_t live = harness_totals(&f->harness).live;
	uint64_t full = harness_drops(&f->harness, SY_DROP_FRAGMENT_WAIT_FULL);
	flood_send(f, flood, 3 * workers * FRAGMENT_MAX_WAITING);
	assert_true(harness_totals(&f->harness).live <= live);
	check_served(f, flood, mode, 1, 4);
	assert_true(harness_totals(&f->harness).live <= live + 1);
	/* spoilt datagrams have nothing left to drop */
	assert_true(flood->part == SPOILT ||
	            harness_drops(&f->harness, SY_DROP_FRAGMENT_WAIT_FULL) > full);
}

/* Nothing of incomplete datagrams reaches a server or begins a session, and complete ones pass,
 * whatever the flood sends, at 5000 to 400 000 packets a second. */
static void test_floods(void **state)
{
	static const unsigned per_ms[] = {5, 50, 400};
	struct flows *f = *state;
	f->options.mbufs = BUFFERS;
	for (unsigned workers = 1, n = 0; workers <= 2; workers++) {
		flows_reopen(f, workers, 0, true);
		for (; n < workers * PARTS * NAMES * SY_ARRAY_LEN(per_ms); n++) {
			enum mode mode = modes[n % SY_ARRAY_LEN(modes)];
			unsigned v6 = n / SY_ARRAY_LEN(modes) % 2;
			struct flood flood = {
			        .part = (enum part)(n % PARTS),
			        .name = (enum name)(n / PARTS % NAMES),
			        .per_ms = per_ms[n / PARTS / NAMES % SY_ARRAY_LEN(per_ms)],
			        .to = client_of(vip_text[mode][v6], v6, 7100)};
			check_flood(f, &flood, mode);
		}
	}
	flows_advance(f, 2);
	nothing_is_queued(f);
}

/* Sources above their share are evicted first, so that others have the full timeout. */
static void test_shares(void **state)
{
	struct flows *f = *state;
	f->options.mbufs = BUFFERS;
	for (unsigned n = 0; n < 4; n++) {
		unsigned v6 = n % 2;
		struct flood flood = {.part = n < 2 ? FIRST : ALL_BUT_ONE,
		                      .name = ONE,
		                      .per_ms = 50,
		                      .to = client_of(vip_text[MODE_NAT][v6], v6, 7200)};
		flows_reopen(f, 1, 0, true);
		flood_send(f, &flood, 2 * FRAGMENT_MAX_WAITING);
		uint64_t full = harness_drops(&f->harness, SY_DROP_FRAGMENT_WAIT_FULL);
		assert_in_range(full, FRAGMENT_MAX_WAITING, FRAGMENT_MAX_WAITING + PIECES);
		assert_in_range(rte_mempool_in_use_count(f->harness.rt->pool),
		                FRAGMENT_MAX_WAITING - PIECES, FRAGMENT_MAX_WAITING);
		check_served(f, &flood, MODE_NAT, 600, 1);
	}
}

/* With few packet buffers fewer fragments wait: a quarter of the buffers. The oldest datagram is
 * evicted. */
static void test_few_buffers(void **state)
{
	struct flows *f = *state;
	struct flood flood = {
	        .part = FIRST, .name = ANYBODY, .to = client_of(vip_text[MODE_FNAT][0], 0, 7300)};
	struct frame piece[PIECES], out[MANY];
	unsigned limit = HARNESS_MBUFS / 4;
	cut(f, &flood.to, 1, piece);
	assert_int_equal(send_all(f, HARNESS_WAN, piece, PIECES - 1, out), 0);
	flood_send(f, &flood, limit - (PIECES - 1));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_WAIT_FULL), 0);
	flood_send(f, &flood, 1);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_WAIT_FULL), PIECES - 1);
	flood_send(f, &flood, 4 * limit);
	assert_int_equal(rte_mempool_in_use_count(f->harness.rt->pool), limit);
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

/* A worker that is behind begins no sessions of unknown clients, in fragments or not. */
static void test_overload(void **state)
{
	struct flows *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		uint64_t before = harness_drops(&f->harness, SY_DROP_OVERLOAD);
		harness_crowd(&f->harness, HARNESS_WAN, HARNESS_CROWD, HARNESS_CROWD);
		for (uint16_t port = 0; port < SY_BURST / 2; port++) {
			struct frame whole, piece[2];
			const struct sy_tuple t =
			        client_of(vip_text[MODE_NAT][v6], v6, 7400 + port);
			frame_udp(&whole, &f->rng, &t, 400);
			assert_int_equal(frame_cut(&whole, port, 256, piece, 2), 2);
			inject(f, HARNESS_WAN, &piece[1]);
			inject(f, HARNESS_WAN, &piece[0]);
		}
		harness_poll(&f->harness);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_OVERLOAD),
		                 before + SY_BURST / 2);
	}
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

/* A complete datagram for which the pipeline has no capacity is dropped whole. */
static void test_no_capacity(void **state)
{
	struct flows *f = *state;
	struct sy_worker *w = &f->harness.rt->worker[0];
	const struct sy_tuple t = client_of(vip_text[MODE_NAT][0], 0, 7500);
	struct frame piece[PIECES], out[MANY];
	struct rte_mbuf *m;
	cut(f, &t, 1, piece);
	for (unsigned room = PIECES - 1; room <= PIECES; room++) {
		for (unsigned n = 0; n < WORKER_RESUBMITTED - room; n++) {
			m = rte_pktmbuf_alloc(f->harness.rt->pool); /* no packet */
			assert_non_null(m);
			assert_true(sy_packet_resubmit(w, m));
		}
		unsigned count = send_all(f, HARNESS_WAN, piece, PIECES, out);
		assert_int_equal(count, room == PIECES ? PIECES : 0);
	}
	join(out, PIECES);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_FRAGMENT_WAIT_FULL), PIECES);
	nothing_is_queued(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {TEST(floods), TEST(shares), TEST(few_buffers),
	                                   TEST(overload), TEST(no_capacity)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
