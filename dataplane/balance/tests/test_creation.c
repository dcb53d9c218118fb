// SPDX-License-Identifier: Apache-2.0
/* Many sessions created in one burst, with all servers chosen before the first session is
 * created. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../../tests/soak/soak_frame.h"
#include "harness.h"

#define SECOND_NS UINT64_C(1000000000)
#define UP        STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define RR        STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR
#define LIMIT     3

struct fixture {
	struct harness harness;
	struct rng rng;
	struct service_key key;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct sy_static_route route[2] = {
	        {"net_ring_wan", harness_addr("198.18.0.0"), harness_addr("192.0.2.1"), 16},
	        {"net_ring_lan", harness_addr("10.0.0.0"), harness_addr("10.0.0.254"), 16}};
	struct sy_static_neigh neigh[2] = {
	        {"net_ring_wan", harness_addr("192.0.2.1"), {2, 0, 0, 0, 1, 1}},
	        {"net_ring_lan", harness_addr("10.0.0.254"), {2, 0, 0, 0, 1, 2}}};
	const struct harness_options o = {.sessions = 256 * SY_SLOTS,
	                                  .route = route,
	                                  .routes = 2,
	                                  .neigh = neigh,
	                                  .neighs = 2};
	const pb_timeouts timeouts = {
	        .base = PROTOBUF_C_MESSAGE_INIT(&steelyard__forwarder__v1__timeouts__descriptor),
	        .syn_sent_s = 1};
	struct sy_error err;
	struct changes c = {0};
	const struct sy_addr server = harness_addr("10.0.0.1"), local = harness_addr("10.0.1.1");
	if (harness_open(&f->harness, &o, &err) < 0)
		fail_msg("%s", err.text);
	f->rng.state = 1;
	f->key = harness_key("192.0.2.10", 80, SY_PROTO_TCP);
	put_local(&c, &local);
	put_service(&c, &f->key, "web", RR, &timeouts)->max_sessions = LIMIT;
	put_server(&c, &f->key, &server, 8080, 1, UP);
	if (!harness_commit(&f->harness, &c))
		fail_msg("%s", f->harness.error);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	harness_close(&f->harness);
	free(f);
	return 0;
}

static void syn_waits(struct fixture *f, uint16_t port, uint8_t ttl)
{
	const struct sy_tuple t = {harness_addr("198.18.0.1"), f->key.vip, htons(port),
	                           f->key.vport, SY_PROTO_TCP};
	const struct segment s = {SY_TCP_SYN, 1, 0, 0};
	struct frame frame;
	struct sy_view v;
	frame_tcp(&frame, &f->rng, &t, &s, 0);
	assert_int_equal(sy_packet_parse(frame.bytes, frame.len, &v), SY_DROP_NONE);
	struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame.bytes + v.l3);
	ip->checksum = sy_csum_apply(ip->checksum, sy_csum_delta(htons((uint16_t)(ip->ttl << 8)),
	                                                         htons((uint16_t)(ttl << 8))));
	ip->ttl = ttl;
	assert_true(harness_inject(&f->harness, HARNESS_WAN, frame.bytes, frame.len));
}

static void datagram_waits(struct fixture *f, uint16_t port)
{
	const struct sy_tuple t = {harness_addr("198.18.0.1"), f->key.vip, htons(port),
	                           f->key.vport, SY_PROTO_UDP};
	struct frame frame;
	frame_udp(&frame, &f->rng, &t, 20);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, frame.bytes, frame.len));
}

static unsigned turn(struct fixture *f, unsigned port)
{
	unsigned sent = 0;
	harness_poll(&f->harness);
	for (struct rte_mbuf *m; (m = harness_collect(&f->harness, port)); sent++)
		rte_pktmbuf_free(m);
	return sent;
}

/* A duplicate SYN counts once towards the connection limit. */
static void duplicates_take_one_place(void **state)
{
	struct fixture *f = *state;
	for (uint16_t port = 40000; port < 40000 + LIMIT; port++) {
		syn_waits(f, port, 64);
		syn_waits(f, port, 64);
	}
	assert_int_equal(turn(f, HARNESS_LAN), 2 * LIMIT);
	assert_int_equal(harness_totals(&f->harness).live, LIMIT);
	assert_int_equal(inspect_server_active(f->harness.b, 0), LIMIT);
	syn_waits(f, 41000, 64);
	syn_waits(f, 40000, 64);
	assert_int_equal(turn(f, HARNESS_LAN), 1);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_CONNECTION_LIMIT), 1);
}

/* Packets that create no session do not count towards the limit, even in the same burst: a
 * traceroute. */
static void traceroutes_take_no_place(void **state)
{
	struct fixture *f = *state;
	for (unsigned round = 0; round < 2 * LIMIT; round++)
		syn_waits(f, (uint16_t)(42000 + round), 1);
	turn(f, HARNESS_WAN);
	assert_int_equal(harness_totals(&f->harness).live, 0);
	assert_int_equal(inspect_server_active(f->harness.b, 0), 0);
	assert_int_equal(inspect_service_active(f->harness.b, 0), 0);
	for (uint16_t port = 43000; port < 43000 + LIMIT; port++) {
		syn_waits(f, (uint16_t)(port - 1000), 1);
		syn_waits(f, port, 64);
	}
	assert_int_equal(turn(f, HARNESS_LAN), LIMIT);
}

/* First packets of both protocols to one VIP and port in one burst: each creates a session with its
 * own service's server, or none if there is no such service. */
static void protocols_are_separate(void **state)
{
	struct fixture *f = *state;
	const struct sy_addr server = harness_addr("10.0.0.2");
	struct changes c = {0};
	for (unsigned services = 1; services <= 2; services++) {
		for (uint16_t port = 44000; port < 44000 + LIMIT; port++) {
			syn_waits(f, (uint16_t)(port + 10 * services), 64);
			datagram_waits(f, (uint16_t)(port + 10 * services));
		}
		assert_int_equal(turn(f, HARNESS_LAN), services * LIMIT);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SERVICE), LIMIT);
		assert_int_equal(inspect_server_active(f->harness.b, 0), LIMIT);
		if (services == 2)
			break;
		harness_advance(&f->harness, 4 * SECOND_NS);
		assert_int_equal(inspect_server_active(f->harness.b, 0), 0);
		struct service_key key = f->key;
		key.proto = SY_PROTO_UDP;
		put_service(&c, &key, "datagrams", RR, NULL);
		put_server(&c, &key, &server, 8080, 1, UP);
		assert_true(harness_commit(&f->harness, &c));
	}
	assert_int_equal(inspect_server_active(f->harness.b, 1), LIMIT);
}

/* Session creations advance the sweep: expired sessions are removed without any round. */
static void creations_sweep(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	const pb_timeouts timeouts = {
	        .base = PROTOBUF_C_MESSAGE_INIT(&steelyard__forwarder__v1__timeouts__descriptor),
	        .syn_sent_s = 1};
	put_service(&c, &f->key, "web", RR, &timeouts);
	assert_true(harness_commit(&f->harness, &c));
	for (unsigned round = 0; round < 400; round++) {
		for (unsigned i = 0; i < SY_BURST; i++)
			syn_waits(f, (uint16_t)(1024 + round * SY_BURST + i), 64);
		assert_int_equal(turn(f, HARNESS_LAN), SY_BURST);
		struct sy_worker *w = &f->harness.rt->worker[0];
		w->now_ns += SECOND_NS / 100;
		w->private->clock = (struct worker_clock){.ns = w->now_ns};
	}
	/* 400 rounds are 4 seconds; each session ended within 2 seconds and a sweep. */
	struct sy_balance_totals t = harness_totals(&f->harness);
	assert_int_equal(t.created, 400 * SY_BURST);
	assert_in_range(t.live, 100 * SY_BURST, 350 * SY_BURST);
	assert_int_equal(t.created - t.ended, t.live);
	assert_int_equal(inspect_server_active(f->harness.b, 0), t.live);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(duplicates_take_one_place, setup, teardown),
	        cmocka_unit_test_setup_teardown(traceroutes_take_no_place, setup, teardown),
	        cmocka_unit_test_setup_teardown(protocols_are_separate, setup, teardown),
	        cmocka_unit_test_setup_teardown(creations_sweep, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
