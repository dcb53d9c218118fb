// SPDX-License-Identifier: Apache-2.0
/* What clients of unavailable services get where something else is at its end, too: rates of
 * answers, local ports, sessions of an earlier server, the process. */
#include "unavailable_fixture.h"

/* Each packet is answered, or suppressed by the rate and counted. */
static void test_rate(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 2; n++) {
		struct trial t = {.f = f,
		                  .way = &ways[0],
		                  .setting = RESET,
		                  .cause = DOWN,
		                  .proto = n ? SY_PROTO_UDP : SY_PROTO_TCP,
		                  .port = 5000};
		const enum sy_drop suppressed = n ? SY_DROP_ICMP_RATE : SY_DROP_RESET_RATE;
		const struct service_key key = key_of(t.way, t.proto);
		const unsigned packets = 2000;
		unsigned answered = 0;
		flows_advance(f, 1);
		begin(&t);
		const uint64_t before = harness_drops(&f->harness, suppressed);
		for (unsigned k = 0; k < packets; k++) {
			const struct sy_tuple client = next_client(&t);
			struct frame in;
			flows_frame(f, &in, &client, SY_TCP_SYN, 41, 0);
			inject(f, &in);
			harness_poll(&f->harness);
			for (struct rte_mbuf *m; (m = harness_collect(&f->harness, HARNESS_WAN));) {
				answered++;
				rte_pktmbuf_free(m);
			}
		}
		const struct counted sent = counted(f, &key);
		assert_true(answered > 0 && answered < packets / 2);
		assert_int_equal(n ? sent.icmp : sent.resets, answered);
		assert_int_equal(harness_drops(&f->harness, suppressed) - before,
		                 packets - answered);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SERVER), packets * (n + 1));
	}
}

/* All ports towards the server have connections. */
static void test_no_local_port(void **state)
{
	struct flows *f = *state;
	const struct sy_addr client = harness_addr("198.18.0.1");
	const uint8_t slot = sy_slot_of(&client, htons(2000));
	struct changes c = {0};
	struct flow flow;
	unsigned opened = 0;
	put_server(&c, &f->service[0], &f->server[0][1], 8080, 1,
	           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN);
	flows_commit(f, &c);
	f->options.sessions = 1024 * SY_SLOTS;
	flows_reopen(f, f->options.workers, 0, false);
	for (unsigned n = 0; n < SY_SLOT_PORTS - 4; n++, opened++) {
		f->client = n / 100;
		struct sy_addr from = client;
		from.h[7] ^= htons((uint16_t)f->client);
		flow_open(f, &flow, 0, ntohs(sy_slot_port(slot, &from, n % 100 + 8)));
	}
	for (unsigned setting = 0; setting < SETTINGS; setting++) {
		struct frame in;
		struct sy_tuple t = flow.client;
		put_service(&c, &f->service[0], "service", FLOW_RR, NULL)->when_unavailable =
		        on_wire[setting];
		flows_commit(f, &c);
		t.src.h[7] ^= htons(0x700);
		t.sport = sy_slot_port(slot, &t.src, 20);
		flows_frame(f, &in, &t, SY_TCP_SYN, 41, 0);
		check(f, &in, answer_of(setting, SY_PROTO_TCP), SY_DROP_NO_LOCAL_PORT);
	}
}

/* A client's session stays on a server that is down; its SYN from the same port is refused. */
static void test_reopened(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct frame in;
	struct flow flow, udp;
	flow_open(f, &flow, 0, 6000);
	flow_open(f, &udp, 1, 6000);
	for (unsigned n = 0; n < 2 * FLOW_SERVERS; n++)
		put_server(&c, &f->service[n % 2], &f->server[n % 2][n / 2], n % 2 ? 5353 : 8080, 1,
		           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN);
	flows_commit(f, &c);
	flows_frame(f, &in, &flow.client, SY_TCP_SYN, 41, 0);
	check(f, &in, A_RESET, SY_DROP_NO_SERVER);
	assert_non_null(flow_session(f, &flow));
	flows_frame(f, &in, &udp.client, 0, 0, 100);
	check(f, &in, AN_ERROR, SY_DROP_NO_SERVER);
	assert_null(flow_session(f, &udp));
}

/* With `resets: unknown` a segment gets one reset, not two. */
static void test_resets_unknown(void **state)
{
	struct trial t = {.f = *state,
	                  .way = &ways[0],
	                  .setting = RESET,
	                  .cause = DOWN,
	                  .proto = SY_PROTO_TCP,
	                  .port = 7000};
	const struct service_key key = key_of(t.way, t.proto);
	struct changes c = {0};
	struct frame in;
	begin(&t);
	pb_service *s = put_service(&c, &key, "way", FLOW_RR, NULL);
	set_resets(&c, s, false, false, true);
	flows_commit(t.f, &c);
	const struct sy_tuple client = next_client(&t);
	flows_frame(t.f, &in, &client, SY_TCP_ACK, 77, 100);
	check(t.f, &in, A_RESET, SY_DROP_NO_SESSION);
}

/* The next process answers as this one did, whether it reads the snapshot or the journal; a setting
 * that no forwarder knows is refused. */
static void test_saved(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	const struct sy_addr server = harness_addr(ways[0].server);
	const struct service_key key = key_of(&ways[0], SY_PROTO_TCP);
	for (unsigned setting = 0; setting < SETTINGS; setting++)
		for (unsigned crash = 0; crash < 2; crash++) {
			struct trial t = {.f = f,
			                  .way = &ways[0],
			                  .setting = setting,
			                  .cause = DOWN,
			                  .proto = SY_PROTO_TCP,
			                  .port = 8000};
			begin(&t);
			flows_reopen(f, 1 + crash, crash ? 0 : 7, crash);
			const struct sy_tuple client = next_client(&t);
			struct frame in;
			flows_frame(f, &in, &client, SY_TCP_SYN, 41, 0);
			check(f, &in, answer_of(setting, SY_PROTO_TCP), SY_DROP_NO_SERVER);
		}
	pb_service *s = put_service(&c, &key, "way", FLOW_RR, NULL);
	s->when_unavailable = 9;
	put_server(&c, &key, &server, 8140, 1, FLOW_UP);
	flows_check_refused(f, &c, "unknown when_unavailable 9; known: drop, reset, icmp");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(rate), TEST(no_local_port), TEST(reopened), TEST(resets_unknown), TEST(saved),
	};
	return cmocka_run_group_tests_name("unavailable-limits", tests, NULL, NULL);
}
