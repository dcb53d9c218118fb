// SPDX-License-Identifier: Apache-2.0
/* Which new sessions begin while the worker is behind. */
#include <sy_tcp_segment.h>

#include "defence_fixture.h"
#include "repeat.h"
#include "stalled.h"

#define ROOM   HARNESS_CROWD
#define SECOND UINT64_C(1000000000)

static int overload_setup(void **state)
{
	int rc = setup(state);
	struct flows *f = *state;
	if (!rc)
		harness_crowd(&f->harness, HARNESS_WAN, ROOM, ROOM);
	return rc;
}

static uint64_t dropped(const struct flows *f)
{
	return harness_drops(&f->harness, SY_DROP_OVERLOAD);
}

/* Puts so many SYNs into the queue, of as many clients, from this one on. */
static void put_clients(struct flows *f, const struct kind *kind, uint32_t clients, unsigned count)
{
	const struct service_key key = key_of(kind);
	const struct sy_tcp_segment s = {
	        .seq = 7, .flags = SYN, .options = {.scale = SY_TCP_NO_SCALE}};
	struct talk k = {.f = f};
	for (unsigned n = 0; n < count; n++, clients++) {
		char text[64];
		snprintf(text, sizeof(text),
		         sy_addr_is_v4(&key.vip) ? "198.19.%u.%u" : "2001:db8:f:%x:%x::1",
		         clients >> 8 & 255, clients & 255);
		const struct sy_tuple t = {harness_addr(text), key.vip, htons(4000), htons(80),
		                           SY_PROTO_TCP};
		inject_segment(&k, HARNESS_WAN, &t, &s, 0);
	}
}

/* The same, of clients that sent nothing before. */
static void put_flood(struct flows *f, const struct kind *kind, unsigned count)
{
	static uint32_t clients = 20000;
	put_clients(f, kind, clients, count);
	clients += count;
}

/* A SYN of this client, after a burst's worth of a flood. Returns whether it was answered. */
static bool asks(struct flows *f, struct talk *k, const struct kind *kind, uint16_t port)
{
	const struct service_key key = key_of(kind);
	struct got g;
	*k = (struct talk){
	        .f = f,
	        .client = {harness_addr(sy_addr_is_v4(&key.vip) ? "198.18.0.1" : "2001:db8:c::1"),
	                   key.vip, htons(port), htons(80), SY_PROTO_TCP},
	        .times = kind->times};
	put_flood(f, kind, SY_BURST - 1);
	from_client(k, SYN, C_NUMBER, 0, 0);
	if (!collect(k, HARNESS_WAN, &g))
		return false;
	assert_int_equal(g.tcp.flags, SYN | ACK);
	assert_true(sy_addr_equal(&g.v.tuple.dst, &k->client.src));
	k->cookie = ntohl(g.tcp.seq);
	k->echo = g.o.time;
	check_silent(k);
	return true;
}

/* Sessions of a flood do not begin. A client that repeats its SYN is served, and is known from then
 * on. */
static void test_clients(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 5; i++) {
		struct talk k, other;
		uint64_t before = dropped(f);
		assert_false(asks(f, &k, &kinds[i], 1000));
		assert_int_equal(dropped(f), before + SY_BURST);
		assert_false(asks(f, &k, &kinds[i], 1000)); /* too soon */
		flows_advance(f, 1);
		assert_true(asks(f, &k, &kinds[i], 1000));
		assert_int_equal(dropped(f), before + 3 * SY_BURST - 1);
		put_flood(f, &kinds[i], SY_BURST - 1);
		talk_ack(&k, 0);
		talk_splice(&k, 7);
		check_data(&k, 0);
		assert_true(asks(f, &other, &kinds[i], 1001));
		flows_advance(f, 100);
	}
}

/* Sessions that exist go on beside it. */
static void test_sessions(void **state)
{
	struct flows *f = *state;
	struct talk k[2];
	for (unsigned i = 0; i < 2; i++)
		talk_open(f, &k[i], &kinds[i], 2000);
	for (unsigned i = 0; i < 2; i++) {
		put_flood(f, &kinds[i], SY_BURST - 1);
		check_data(&k[i], 0);
	}
	assert_int_equal(dropped(f), 2 * (SY_BURST - 1));
}

/* Neither does a flood that repeats itself get through, while the worker is behind because of it:
 * of repetitions not all begin. Known clients do. */
static void test_loop(void **state)
{
	struct flows *f = *state;
	const unsigned loop = 16 * SY_BURST;
	struct talk k, known;
	uint64_t before = 0;
	assert_false(asks(f, &k, &kinds[0], 2200));
	flows_advance(f, 1);
	assert_true(asks(f, &k, &kinds[0], 2200));
	talk_ack(&k, 0);
	talk_splice(&k, 7);
	for (unsigned burst = 0; burst < 1000; burst++) { /* 5 s */
		if (burst == 900)
			before = dropped(f);
		put_clients(f, &kinds[0], burst * SY_BURST % loop, SY_BURST);
		harness_poll(&f->harness);
		harness_advance(&f->harness, 5000000);
		ignore_sent(&k);
	}
	assert_true(dropped(f) - before > 90 * SY_BURST);
	assert_true(asks(f, &known, &kinds[0], 2201));
	ignore_sent(&k);
}

/* If sessions that exist are why the worker is behind, new ones begin as ever. */
static void test_few_new_ones(void **state)
{
	struct flows *f = *state;
	const unsigned few = SY_BURST / 4 - 1;
	struct talk k;
	talk_open(f, &k, &kinds[0], 2100);
	const struct sy_tcp_segment data = {.seq = C_NUMBER + 1,
	                                    .ack = k.cookie + 1,
	                                    .flags = ACK,
	                                    .window = 1000,
	                                    .options = {.scale = SY_TCP_NO_SCALE,
	                                                .timestamps = true,
	                                                .time = C_TIME,
	                                                .echo = k.echo}};
	for (unsigned n = 0; n < SY_BURST - few; n++)
		inject_segment(&k, HARNESS_WAN, &k.client, &data, 10);
	put_flood(f, &kinds[0], few);
	harness_poll(&f->harness);
	assert_int_equal(dropped(f), 0);
	ignore_sent(&k);
}

/* Fewer sessions begin for a while after the worker was behind; then all do again. If it serves
 * slower than packets come, it is behind repeatedly, and the share settles. */
static void test_share(void **state)
{
	struct flows *f = *state;
	struct talk k = {.f = f};
	uint64_t before;
	put_flood(f, &kinds[0], SY_BURST);
	harness_poll(&f->harness);
	assert_int_equal(dropped(f), SY_BURST);
	harness_crowd(&f->harness, HARNESS_WAN, 0, 0);
	for (unsigned n = 0; n < 16; n++) {
		put_flood(f, &kinds[0], SY_BURST);
		harness_poll(&f->harness);
	}
	/* A quarter of 1024, by their hashes. */
	assert_in_range(dropped(f) - SY_BURST, 180, 340);
	flows_advance(f, 1);
	before = dropped(f);
	put_flood(f, &kinds[0], SY_BURST);
	harness_poll(&f->harness);
	assert_int_equal(dropped(f), before);
	ignore_sent(&k);
}

/* From half full until a quarter is left, and only while bursts are full. */
static void test_when(void **state)
{
	struct flows *f = *state;
	struct talk k = {.f = f};
	const struct {
		unsigned waiting, then;    /* after the first burst, after the second */
		unsigned packets, dropped; /* at least so many */
	} step[] = {
	        {ROOM / 2, ROOM / 4 + 1, 2 * SY_BURST, 0},
	        {ROOM / 2 + 1, ROOM / 4 + 1, 2 * SY_BURST, 2 * SY_BURST},
	        {ROOM / 2 + 1, ROOM / 4, 2 * SY_BURST, SY_BURST},
	        {ROOM - 1, ROOM - 1, SY_BURST - 1, 0},
	};
	for (unsigned i = 0; i < SY_ARRAY_LEN(step); i++) {
		uint64_t before = dropped(f);
		harness_crowd(&f->harness, HARNESS_WAN, step[i].waiting, step[i].then);
		put_flood(f, &kinds[0], step[i].packets);
		harness_poll(&f->harness);
		/* After it was behind, not all of a burst begins. */
		assert_in_range(dropped(f) - before, step[i].dropped,
		                step[i].dropped + SY_BURST / 2);
		if (step[i].dropped != SY_BURST)
			assert_int_equal(dropped(f) - before, step[i].dropped);
		flows_advance(f, 2);
	}
	ignore_sent(&k);
}

/* A burst's worth of datagrams to the UDP service, less one, of as many clients. */
static void put_datagrams(struct flows *f)
{
	static uint32_t clients = 0;
	struct frame in;
	for (unsigned n = 0; n < SY_BURST - 1; n++, clients++) {
		const struct sy_tuple t = {sy_addr_v4(htonl(0xc6130000 + clients)),
		                           f->service[1].vip, htons(4000), f->service[1].vport,
		                           SY_PROTO_UDP};
		flows_frame(f, &in, &t, 0, 0, 20);
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
	}
}

/* A repeated datagram begins a session, even from another port. */
static void test_datagrams(void **state)
{
	struct flows *f = *state;
	struct frame in, out;
	for (unsigned n = 0; n < 2; n++) {
		struct sy_tuple t = {harness_addr("198.18.0.9"), f->service[1].vip, htons(5000),
		                     f->service[1].vport, SY_PROTO_UDP};
		assert_int_equal(f->service[1].proto, SY_PROTO_UDP);
		for (unsigned again = 0; again < 3; again++) {
			t.sport = htons((uint16_t)(5000 + 10 * n + again));
			put_datagrams(f);
			flows_frame(f, &in, &t, 0, 0, 20);
			assert_int_equal(flows_through(f, HARNESS_WAN, &in, &out), again > 0);
			flows_advance(f, REPEAT_SECONDS);
		}
		flows_advance(f, 2 * REPEAT_SECONDS);
	}
}

/* Packets that came while a worker did not run begin sessions: they say nothing about its capacity.
 * Later packets do, and so does another stall at once. */
static void test_stall(void **state)
{
	struct flows *f = *state;
	struct talk k = {.f = f};
	const uint64_t before = dropped(f);
	harness_stall(&f->harness, SECOND);
	for (unsigned burst = 0; burst <= ROOM / SY_BURST; burst++) {
		put_flood(f, &kinds[0], SY_BURST);
		harness_poll_worker(&f->harness, 0); /* once: the queue is said to have more */
		ignore_sent(&k);
		assert_int_equal(dropped(f), before);
	}
	for (unsigned times = 1; times <= 2; times++) {
		put_flood(f, &kinds[0], SY_BURST);
		harness_poll_worker(&f->harness, 0);
		assert_int_equal(dropped(f), before + times * SY_BURST);
		harness_stall(&f->harness, SECOND / 4);
	}
	harness_stall(&f->harness, SECOND);
	put_flood(f, &kinds[0], SY_BURST);
	harness_poll_worker(&f->harness, 0);
	assert_int_equal(dropped(f), before + 2 * SY_BURST);
	ignore_sent(&k);
}

/* A flood at one service, of TCP or UDP, does not use another one's share: all its clients are
 * served at once, while the flood is dropped. */
static void test_services(void **state)
{
	struct flows *f = *state;
	struct frame in;
	struct got left;
	struct talk k = {.f = f};
	unsigned begun = 0;
	for (unsigned n = 0; n < 200; n++) {
		const bool tcp = n >= 100; /* the flood */
		struct sy_tuple t = {harness_addr("198.18.0.9"), f->service[1].vip,
		                     htons((uint16_t)(6000 + n)), f->service[1].vport,
		                     SY_PROTO_UDP};
		if (n == 100)
			flows_advance(f, 5); /* the first flood is over */
		const uint64_t before = dropped(f);
		if (tcp) {
			put_flood(f, &kinds[0], SY_BURST - 1);
			flows_frame(f, &in, &t, 0, 0, 20);
			assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
		} else {
			put_datagrams(f);
			put_flood(f, &kinds[0], 1);
		}
		harness_poll(&f->harness);
		if (tcp)
			assert_true(collect(&k, HARNESS_LAN, &left) &&
			            left.v.proto == SY_PROTO_UDP);
		ignore_sent(&k);
		assert_in_range(dropped(f) - before, 0, SY_BURST - 1);
		begun += SY_BURST - 1 - (unsigned)(dropped(f) - before);
		harness_advance(&f->harness, 100000);
	}
	/* false positives of the Bloom filter: one in some 100 000 */
	assert_in_range(begun, 0, 8);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, overload_setup, flows_teardown)
	const struct CMUnitTest tests[] = {TEST(clients),   TEST(sessions), TEST(few_new_ones),
	                                   TEST(loop),      TEST(share),    TEST(when),
	                                   TEST(datagrams), TEST(stall),    TEST(services)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
