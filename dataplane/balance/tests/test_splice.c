// SPDX-License-Identifier: Apache-2.0
/* Spliced sessions with errors: bursts, ends, crashes, numbers of other connections. */
#include "access.h"
#include "client_sessions_check.h"
#include "defence_fixture.h"
#include "end.h"
#include "splice_path.h"

/* ---- bursts and ends ------------------------------------------------------------------------- */

/* Every server of a burst gets its ACK and all queued data. */
static void test_answers_in_one_burst(void **state)
{
	struct flows *f = *state;
	struct talk k[SY_BURST];
	struct got g;
	unsigned acks = 0, data = 0;
	for (unsigned i = 0; i < SY_BURST; i++) {
		talk_syn(f, &k[i], &kinds[0], (uint16_t)(1000 + i));
		talk_ack(&k[i], 10);
		for (unsigned n = 1; n < 4; n++)
			from_client(&k[i], ACK, C_NUMBER + 1 + 10 * n, k[i].cookie + 1, 10);
	}
	for (unsigned i = 0; i < SY_BURST; i++) {
		const struct sy_tcp_segment s =
		        server_segment(&k[i], SYN | ACK, S_NUMBER, C_NUMBER + 1, 7);
		inject_segment(&k[i], HARNESS_LAN, &k[i].server, &s, 0);
	}
	harness_poll(&f->harness);
	while (collect(&k[0], HARNESS_LAN, &g)) {
		acks += g.payload == 0;
		data += g.payload == 10;
	}
	assert_int_equal(acks, SY_BURST);
	assert_int_equal(data, 4 * SY_BURST);
}

/* What a client sent to a session that died while it opened never reaches its next session. */
static void test_data_dies_with_its_session(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	const struct service_key key = key_of(&kinds[0]);
	const struct sy_addr server = harness_addr(kinds[0].server);
	struct talk k;
	talk_syn(f, &k, &kinds[0], 1100);
	talk_ack(&k, 100);
	delete_server(&c, &key, &server, 8080);
	flows_commit(f, &c);
	from_client(&k, ACK, C_NUMBER + 101, k.cookie + 1, 100);
	assert_int_equal(state_of(&k), SESSION_DYING);
	flows_advance(f, 6);
	assert_int_equal(live(&k), 0);
	ignore_sent(&k);
	c = (struct changes){0};
	put_kind_server(&c, &kinds[0]);
	flows_commit(f, &c);
	talk_open(f, &k, &kinds[0], 1100);
	check_data(&k, 0);
}

static struct session_table *table_of(struct talk *k)
{
	return inspect_table(k->f->harness.b, sy_slot_of(&k->client.src, k->client.sport));
}

static uint32_t record_of(struct talk *k)
{
	return (uint32_t)(flows_find(k->f, &k->client) - session_at(table_of(k), 0));
}

/* An originated SYN whose session ends before it is forwarded is not treated as its client's. */
static void test_own_syn_without_session(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		struct sy_worker *w = &f->harness.rt->worker[0];
		uint64_t dropped;
		talk_syn(f, &k, &kinds[i], (uint16_t)(1200 + i));
		talk_ack(&k, 0);
		splice_syn_retransmit(w, table_of(&k), record_of(&k));
		session_end(w, table_of(&k), record_of(&k));
		dropped = harness_drops(&f->harness, SY_DROP_OPENING);
		harness_poll(&f->harness);
		check_silent(&k);
		assert_int_equal(live(&k), 0);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_OPENING), dropped + 1);
	}
}

/* ---- numbers and options --------------------------------------------------------------------- */

/* The server gets the options that the cookie granted, whatever the client repeats. */
static void test_repeated_syn(void **state)
{
	struct flows *f = *state;
	struct talk k;
	struct got g;
	talk_syn(f, &k, &kinds[5], 1300);
	talk_ack(&k, 0);
	k.times = true;
	from_client(&k, SYN, C_NUMBER, 0, 0);
	check_got(&k, HARNESS_LAN, &g, SYN, C_NUMBER, 0, 0);
	assert_false(g.o.timestamps);
	assert_int_equal(g.o.scale, 8);
	k.times = false;
	from_client(&k, SYN, C_NUMBER + 1, 0, 0);
	check_silent(&k);
	talk_splice(&k, 7);
	check_data(&k, 0);
}

/* Packets that were damaged on the way open no connection, and end none. */
static void test_damaged_packets(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		const uint64_t dropped = harness_drops(&f->harness, SY_DROP_BAD_L4_CHECKSUM);
		talk_syn(f, &k, &kinds[i], (uint16_t)(1350 + i));
		talk_ack(&k, 0);
		k.damaged = true;
		from_server(&k, SYN | ACK, S_NUMBER + 64, C_NUMBER + 1, 3, 0);
		from_server(&k, SY_TCP_RST | ACK, 0, C_NUMBER + 1, 0, 0);
		from_client(&k, SY_TCP_RST, C_NUMBER + 1, 0, 0);
		assert_int_equal(state_of(&k), SESSION_OPENING);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_L4_CHECKSUM), dropped + 3);
		check_silent(&k);
		k.damaged = false;
		talk_splice(&k, 7);
		check_data(&k, 0);
	}
}

/* Only the answer to a SYN of the client's ends a splice. */
static void test_syn_acks_of_other_connections(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		struct got g;
		talk_open(f, &k, &kinds[i], (uint16_t)(1400 + i));
		from_server(&k, SYN | ACK, S_NUMBER, C_NUMBER + 500, 7, 0);
		from_server(&k, SYN | ACK, S_NUMBER + 5, C_NUMBER, 7, 0);
		from_server(&k, SYN | ACK, S_NUMBER + 5, 0, 7, 0);
		check_silent(&k);
		check_data(&k, 0);
		from_client(&k, SYN, 5000, 0, 0);
		check_got(&k, HARNESS_LAN, &g, SYN, 5000, 0, 0);
		from_server(&k, SYN | ACK, S_NUMBER, 5000, 7, 0);
		check_silent(&k);
		check_data(&k, 0);
		from_server(&k, SYN | ACK, 7000, 5001, 7, 0);
		check_got(&k, HARNESS_WAN, &g, SYN | ACK, 7000, 5001, 0);
		from_client(&k, ACK, 5001, 7001, 10);
		check_got(&k, HARNESS_LAN, &g, ACK, 5001, 7001, 10);
		assert_int_equal(state_of(&k), SESSION_ESTABLISHED);
	}
}

/* ---- what servers refuse --------------------------------------------------------------------- */

/* Opens a connection as far as the server's answer. Was the client offered timestamps? */
static bool begin(struct flows *f, struct talk *k, uint16_t port)
{
	struct got g;
	*k = (struct talk){.f = f,
	                   .client = {harness_addr("198.18.0.1"), key_of(&kinds[0]).vip,
	                              htons(port), htons(80), SY_PROTO_TCP},
	                   .times = true};
	from_client(k, SYN, C_NUMBER, 0, 0);
	assert_true(collect(k, HARNESS_WAN, &g));
	k->cookie = ntohl(g.tcp.seq);
	k->echo = g.o.time;
	k->times = g.o.timestamps;
	from_client(k, ACK, C_NUMBER + 1, k->cookie + 1, 0);
	assert_true(collect(k, HARNESS_LAN, &g));
	assert_int_equal(g.tcp.flags, SYN);
	assert_int_equal(g.o.timestamps, k->times);
	k->server = (struct sy_tuple){g.v.tuple.dst, g.v.tuple.src, g.v.tuple.dport,
	                              g.v.tuple.sport, SY_PROTO_TCP};
	return k->times;
}

static void answer(struct talk *k, bool times)
{
	bool offered = k->times;
	k->times = times;
	from_server(k, SYN | ACK, S_NUMBER, C_NUMBER + 1, 7, 0);
	ignore_sent(k);
	assert_int_equal(state_of(k), offered && !times ? SESSION_RESET : SESSION_ESTABLISHED);
}

/* A server that never accepts timestamps costs one connection in REFUSED_SECONDS. */
static void test_refusals_cost_one_connection(void **state)
{
	struct flows *f = *state;
	struct talk k[20];
	uint16_t port = 2000;
	assert_true(begin(f, &k[0], port++));
	answer(&k[0], false);
	for (unsigned time = 0; time < 3; time++) {
		for (unsigned n = 0; n < 20; n++)
			assert_false(begin(f, &k[n], port++));
		for (unsigned n = 0; n < 20; n++)
			answer(&k[n], false);
		flows_advance(f, REFUSED_SECONDS);
		ignore_sent(&k[0]);
		for (unsigned n = 0; n < 20; n++)
			assert_int_equal(begin(f, &k[n], port++), n == 0);
		for (unsigned n = 0; n < 20; n++)
			answer(&k[n], false);
	}
}

/* After enough successful connections, all are offered them again. */
static void test_refusals_are_forgotten(void **state)
{
	struct flows *f = *state;
	struct talk k[2];
	uint16_t port = 3000;
	assert_true(begin(f, &k[0], port++));
	answer(&k[0], false);
	flows_advance(f, REFUSED_SECONDS);
	for (unsigned n = 0; n < REFUSED_TRIALS; n++) {
		ignore_sent(&k[0]);
		assert_true(begin(f, &k[0], port++));
		assert_false(begin(f, &k[1], port++));
		answer(&k[0], true);
		answer(&k[1], false);
		flows_advance(f, 1);
	}
	ignore_sent(&k[0]);
	for (unsigned n = 0; n < 2; n++)
		assert_true(begin(f, &k[n], port++));
}

/* The memory of a refusal does not come back with the 16 bits of a tick. */
static void test_refusal_long_ago(void **state)
{
	struct flows *f = *state;
	struct talk k;
	assert_true(begin(f, &k, 4000));
	answer(&k, false);
	flows_advance(f, 20);
	f->harness.now_ns += UINT64_C(65516) * 1000000000;
	flows_advance(f, 5);
	ignore_sent(&k);
	assert_true(begin(f, &k, 4001));
}

/* ---- configuration --------------------------------------------------------------------------- */

/* The defence is switched off: cookies under way are still worth a connection, wrong ones are what
 * they were before. */
static void test_switch_off(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct talk k[2], plain;
	struct got g;
	for (unsigned i = 0; i < 2; i++)
		talk_syn(f, &k[i], &kinds[0], (uint16_t)(1500 + i));
	flows_advance(f, 1);
	put_kind(&c, &kinds[0], NOT_DEFENDED);
	flows_commit(f, &c);
	uint64_t wrong = harness_drops(&f->harness, SY_DROP_BAD_COOKIE);
	from_client(&k[0], ACK, C_NUMBER + 1, k[0].cookie + 2, 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_COOKIE), wrong);
	plain = k[0];
	plain.client.sport = htons(1510);
	from_client(&plain, SYN, C_NUMBER, 0, 0);
	check_got(&plain, HARNESS_LAN, &g, SYN, C_NUMBER, 0, 0);
	assert_int_equal(state_of(&plain), SESSION_SYN_SENT);
	talk_ack(&k[0], 0);
	talk_splice(&k[0], 7);
	check_data(&k[0], 0);
	flows_advance(f, 130);
	ignore_sent(&k[1]);
	from_client(&k[1], ACK, C_NUMBER + 1, k[1].cookie + 1, 0);
	check_silent(&k[1]);
}

static uint64_t all_hits(struct flows *f)
{
	const struct balance_worker *bw = inspect_worker(f->harness.b, 0);
	uint64_t sum = 0;
	for (unsigned n = 0; n < ACCESS_COUNTERS; n++)
		sum += bw->access->hits[n];
	return sum;
}

/* An access list counts a connection once, though SYN and ACK are checked. */
static void test_access_lists_count_once(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct talk k;
	put_access_list(&c, "edge", STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW);
	put_global_access(&c, "edge");
	flows_commit(f, &c);
	for (uint16_t n = 0; n < 3; n++) {
		uint64_t before = all_hits(f);
		talk_open(f, &k, &kinds[n], (uint16_t)(1600 + n));
		assert_int_equal(all_hits(f), before + 1);
	}
	talk_syn(f, &k, &kinds[0], 1610);
	c = (struct changes){0};
	put_access_list(&c, "edge", STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP);
	flows_commit(f, &c);
	uint64_t before = all_hits(f);
	from_client(&k, ACK, C_NUMBER + 1, k.cookie + 1, 0);
	assert_int_equal(all_hits(f), before + 1);
}

/* ---- crashes --------------------------------------------------------------------------------- */

enum crash { TIME_ONLY, NO_STATE, NO_JOIN, CRASHES };

/* Leaves of a splice what its stores had reached. */
static void undo(struct talk *k, enum crash how)
{
	struct session *s = flows_find(k->f, &k->client);
	struct session_splice *splice = splice_at(table_of(k), record_of(k));
	if (how != NO_JOIN)
		s->state = SESSION_OPENING;
	if (how == NO_STATE)
		return;
	splice->spliced = 0;
	splice->echo = k->echo;
}

/* Whichever store was the last before a crash, the server's next SYN-ACK joins the session. */
static void test_crashes(void **state)
{
	struct flows *f = *state;
	for (enum crash how = 0; how < CRASHES; how++)
		for (unsigned i = 0; i < 6; i++) {
			struct talk k;
			talk_open(f, &k, &kinds[i], (uint16_t)(1700 + 10 * how + i));
			undo(&k, how);
			flows_reopen(f, 1, 0, true);
			assert_int_equal(state_of(&k),
			                 how == NO_STATE ? SESSION_ESTABLISHED : SESSION_OPENING);
			talk_splice(&k, 7);
			check_data(&k, 0);
		}
}

/* A spliced session counts for its client once its server has answered: the cookie has shown the
 * address. */
static void test_clients_sessions(void **state)
{
	struct flows *f = *state;
	struct talk k;
	for (unsigned i = 0; i < SY_ARRAY_LEN(kinds); i++) {
		struct changes c = {0};
		put_kind(&c, &kinds[i], DEFENDED);
		set_client_sessions(&c, c.change[0]->put_service, 2);
		flows_commit(f, &c);
		for (unsigned n = 0; n < 2; n++) {
			const uint64_t before = client_counts_sum(f->harness.b->client_counts);
			talk_syn(f, &k, &kinds[i], (uint16_t)(3000 + n));
			talk_ack(&k, 0);
			assert_int_equal(client_counts_sum(f->harness.b->client_counts), before);
			talk_splice(&k, 7);
			check_silent(&k);
			assert_int_equal(state_of(&k), SESSION_ESTABLISHED);
			assert_int_equal(client_counts_sum(f->harness.b->client_counts),
			                 before + 1);
			assert_true(client_sessions_are_right(f->harness.b, true));
		}
		const uint64_t dropped = harness_drops(&f->harness, SY_DROP_CLIENT_SESSIONS);
		talk_syn(f, &k, &kinds[i], 3100);
		from_client(&k, ACK, C_NUMBER + 1, k.cookie + 1, 0);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_CLIENT_SESSIONS), dropped + 1);
		ignore_sent(&k);
	}
	flows_advance(f, 2000);
	ignore_sent(&k);
	assert_true(client_sessions_are_right(f->harness.b, true));
	assert_int_equal(client_counts_sum(f->harness.b->client_counts), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {TEST(answers_in_one_burst),
	                                   TEST(data_dies_with_its_session),
	                                   TEST(own_syn_without_session),
	                                   TEST(repeated_syn),
	                                   TEST(damaged_packets),
	                                   TEST(syn_acks_of_other_connections),
	                                   TEST(refusals_cost_one_connection),
	                                   TEST(refusals_are_forgotten),
	                                   TEST(refusal_long_ago),
	                                   TEST(switch_off),
	                                   TEST(access_lists_count_once),
	                                   TEST(clients_sessions),
	                                   TEST(crashes)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
