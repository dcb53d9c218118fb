// SPDX-License-Identifier: Apache-2.0
/* The SYN defence: a client and a server on both sides of the balancer, segment by segment. */
#include "defence_fixture.h"
#include "service_dropped.h"

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_whole_lives(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		struct got g;
		talk_open(f, &k, &kinds[i], (uint16_t)(1000 + i));
		check_data(&k, 0);
		from_client(&k, ACK | FIN, C_NUMBER + 101, k.cookie + 201, 0);
		check_got(&k, HARNESS_LAN, &g, ACK | FIN, C_NUMBER + 101, S_NUMBER + 201, 0);
		from_server(&k, ACK | FIN, S_NUMBER + 201, C_NUMBER + 102, 0, 0);
		check_got(&k, HARNESS_WAN, &g, ACK | FIN, k.cookie + 201, C_NUMBER + 102, 0);
		from_client(&k, ACK, C_NUMBER + 102, k.cookie + 202, 0);
		check_got(&k, HARNESS_LAN, &g, ACK, C_NUMBER + 102, S_NUMBER + 202, 0);
		assert_int_equal(state_of(&k), SESSION_TIME_WAIT);
		/* the tuple again */
		talk_open(f, &k, &kinds[i], (uint16_t)(1000 + i));
		check_data(&k, 0);
	}
	flows_advance(f, 2000);
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

/* The client's data that came with its ACK, and before the server's answer, reaches the server. */
static void test_held(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		struct got g;
		uint64_t dropped;
		talk_syn(f, &k, &kinds[i], (uint16_t)(1100 + i));
		talk_ack(&k, 300);
		from_client(&k, ACK, C_NUMBER + 301, k.cookie + 1, 100);
		dropped = harness_drops(&f->harness, SY_DROP_OPENING);
		from_client(&k, ACK, C_NUMBER + 1, k.cookie + 1, 0);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_OPENING), dropped + 1);
		from_client(&k, ACK | FIN, C_NUMBER + 401, k.cookie + 1, 0);
		from_client(&k, ACK, C_NUMBER + 1, k.cookie, 100); /* not of this connection */
		from_client(&k, SYN, C_NUMBER + 7, 0, 0);
		check_silent(&k);
		talk_splice(&k, 7);
		check_got(&k, HARNESS_LAN, &g, ACK, C_NUMBER + 1, S_NUMBER + 1, 300);
		check_got(&k, HARNESS_LAN, &g, ACK, C_NUMBER + 301, S_NUMBER + 1, 100);
		check_got(&k, HARNESS_LAN, &g, ACK | FIN, C_NUMBER + 401, S_NUMBER + 1, 0);
		check_silent(&k);
		assert_int_equal(state_of(&k), SESSION_FIN_WAIT);
	}
}

/* The oldest of five is dropped. */
static void test_held_has_a_limit(void **state)
{
	struct flows *f = *state;
	struct talk k;
	struct got g;
	talk_syn(f, &k, &kinds[0], 1200);
	talk_ack(&k, 10);
	for (unsigned n = 1; n < 5; n++)
		from_client(&k, ACK, C_NUMBER + 1 + 10 * n, k.cookie + 1, 10);
	talk_splice(&k, 7);
	for (unsigned n = 1; n < 5; n++)
		check_got(&k, HARNESS_LAN, &g, ACK, C_NUMBER + 1 + 10 * n, S_NUMBER + 1, 10);
	check_silent(&k);
	assert_int_equal(services_dropped(f, SY_DROP_OPENING), 1);
}

static void test_wrong_cookies(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 2; i++) {
		struct talk k;
		uint64_t wrong = harness_drops(&f->harness, SY_DROP_BAD_COOKIE);
		talk_syn(f, &k, &kinds[i], (uint16_t)(1300 + i));
		for (unsigned bit = 0; bit < 25; bit++)
			from_client(&k, ACK, C_NUMBER + 1, (k.cookie ^ 1u << bit) + 1, 100);
		from_client(&k, ACK, C_NUMBER, k.cookie + 1, 0);
		from_client(&k, ACK, C_NUMBER + 2, k.cookie + 1, 0);
		from_client(&k, ACK, C_NUMBER + 1, k.cookie, 0);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_COOKIE) - wrong, 28);
		assert_int_equal(live(&k), 0);
		check_silent(&k);
		flows_advance(f, 64); /* the next epoch */
		talk_ack(&k, 0);
		talk_syn(f, &k, &kinds[i], (uint16_t)(1310 + i));
		flows_advance(f, 129);
		wrong = harness_drops(&f->harness, SY_DROP_BAD_COOKIE);
		from_client(&k, ACK, C_NUMBER + 1, k.cookie + 1, 0);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_COOKIE), wrong + 1);
		struct got g;
		while (collect(&k, HARNESS_WAN, &g) || collect(&k, HARNESS_LAN, &g))
			;
	}
}

/* A lost ACK is repeated when the server repeats its SYN-ACK; the client sees neither. */
static void test_repetitions(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		talk_open(f, &k, &kinds[i], (uint16_t)(1400 + i));
		talk_splice(&k, 7);
		check_silent(&k);
		check_data(&k, 0);
	}
}

/* The server does not answer: its SYN is repeated, and in the end both get resets. */
static void test_silent_server(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		struct got g;
		unsigned syns = 0, resets[2] = {0};
		talk_syn(f, &k, &kinds[i], (uint16_t)(1500 + i));
		talk_ack(&k, 100);
		flows_advance(f, 15);
		while (collect(&k, HARNESS_LAN, &g)) {
			syns += g.tcp.flags == SYN && ntohl(g.tcp.seq) == C_NUMBER;
			resets[0] += g.tcp.flags == RST && ntohl(g.tcp.seq) == C_NUMBER + 1;
		}
		while (collect(&k, HARNESS_WAN, &g))
			resets[1] += g.tcp.flags == RST && ntohl(g.tcp.seq) == k.cookie + 1;
		assert_in_range(syns, 5, 15);
		assert_int_equal(resets[0], 1);
		assert_int_equal(resets[1], 1);
		assert_int_equal(live(&k), 0);
	}
}

static void test_server_resets(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		struct got g;
		talk_syn(f, &k, &kinds[i], (uint16_t)(1600 + i));
		talk_ack(&k, 100);
		from_server(&k, RST | ACK, 0, C_NUMBER + 2, 0, 0); /* not for this SYN */
		check_silent(&k);
		from_server(&k, RST | ACK, 0, C_NUMBER + 1, 0, 0);
		check_got(&k, HARNESS_WAN, &g, RST | ACK, k.cookie + 1, C_NUMBER + 1, 0);
		assert_int_equal(state_of(&k), SESSION_RESET);
	}
}

/* A server that remembers the tuple answers by an ACK: it gets a reset, and the SYN again. */
static void test_server_remembers(void **state)
{
	struct flows *f = *state;
	struct talk k;
	struct got g;
	talk_syn(f, &k, &kinds[0], 1700);
	talk_ack(&k, 0);
	from_server(&k, ACK, 5000, 6000, 0, 0);
	check_got(&k, HARNESS_LAN, &g, RST, 6000, 0, 0);
	check_got(&k, HARNESS_LAN, &g, SYN, C_NUMBER, 0, 0);
	check_silent(&k);
	talk_splice(&k, 7);
}

/* Windows reach the other end in its own scale. */
static void test_scales(void **state)
{
	struct flows *f = *state;
	for (unsigned scale = 0; scale <= SY_TCP_NO_SCALE; scale++) {
		struct talk k;
		struct got g;
		unsigned bits = scale == SY_TCP_NO_SCALE ? 0 : scale;
		talk_syn(f, &k, &kinds[0], (uint16_t)(1800 + scale));
		talk_ack(&k, 0);
		from_server(&k, SYN | ACK, S_NUMBER, C_NUMBER + 1, (uint8_t)scale, 0);
		assert_true(collect(&k, HARNESS_LAN, &g));
		uint32_t want = scale == SY_TCP_NO_SCALE ? 65535 : 1000;
		assert_int_equal(ntohs(g.tcp.window), want);
		from_server(&k, ACK, S_NUMBER + 1, C_NUMBER + 1, 0, 0);
		assert_true(collect(&k, HARNESS_WAN, &g));
		want = (500u << bits) >> 7;
		assert_int_equal(ntohs(g.tcp.window), want < 65535 ? want : 65535);
	}
}

/* Servers that do not take options: the first connection with a promised timestamp is reset, the
 * next ones do not promise it. */
static void test_refused_options(void **state)
{
	struct flows *f = *state;
	struct talk k;
	struct got g;
	talk_syn(f, &k, &kinds[0], 1900);
	talk_ack(&k, 0);
	k.times = false;
	from_server(&k, SYN | ACK, S_NUMBER, C_NUMBER + 1, 7, 0);
	check_got(&k, HARNESS_LAN, &g, RST, C_NUMBER + 1, 0, 0);
	check_got(&k, HARNESS_WAN, &g, RST, k.cookie + 1, 0, 0);
	k.times = true;
	k.client.sport = htons(1901);
	from_client(&k, SYN, C_NUMBER, 0, 0);
	assert_true(collect(&k, HARNESS_WAN, &g));
	assert_false(g.o.timestamps);
	assert_true(g.o.sack);
	flows_advance(f, 600);
	while (collect(&k, HARNESS_WAN, &g) || collect(&k, HARNESS_LAN, &g))
		;
	talk_open(f, &k, &kinds[0], 1902);
}

static void test_client_resets(void **state)
{
	struct flows *f = *state;
	struct talk k;
	struct got g;
	talk_syn(f, &k, &kinds[0], 2000);
	talk_ack(&k, 100);
	from_client(&k, RST, C_NUMBER + 2, 0, 0);
	check_silent(&k);
	assert_int_equal(state_of(&k), SESSION_OPENING);
	from_client(&k, RST, C_NUMBER + 1, 0, 0);
	check_got(&k, HARNESS_LAN, &g, RST, C_NUMBER + 1, 0, 0);
	assert_int_equal(state_of(&k), SESSION_RESET);
}

/* The server gets the client's address with the ACK of ours, and all later numbers fit. */
static void test_client_address(void **state)
{
	struct flows *f = *state;
	struct talk k;
	struct got g;
	const unsigned header = 52;
	talk_syn(f, &k, &kinds[6], 2100);
	talk_ack(&k, 0);
	talk_splice(&k, 7);
	check_silent(&k);
	from_client(&k, ACK, C_NUMBER + 1, k.cookie + 1, 100);
	check_got(&k, HARNESS_LAN, &g, ACK, C_NUMBER + 1, S_NUMBER + 1, 100);
	assert_int_equal(g.frame.bytes[g.v.l4 + 20], SY_TOA);

	talk_syn(f, &k, &kinds[7], 2101);
	talk_ack(&k, 0);
	from_server(&k, SYN | ACK, S_NUMBER, C_NUMBER + 1, 7, 0);
	check_got(&k, HARNESS_LAN, &g, ACK, C_NUMBER + 1, S_NUMBER + 1, header);
	from_server(&k, ACK, S_NUMBER + 1, C_NUMBER + 1 + header, 0, 0);
	check_got(&k, HARNESS_WAN, &g, ACK, k.cookie + 1, C_NUMBER + 1, 0);
	check_data(&k, header);

	talk_syn(f, &k, &kinds[7], 2102); /* with data in the ACK */
	talk_ack(&k, 300);
	from_server(&k, SYN | ACK, S_NUMBER, C_NUMBER + 1, 7, 0);
	check_got(&k, HARNESS_LAN, &g, ACK, C_NUMBER + 1, S_NUMBER + 1, header);
	check_got(&k, HARNESS_LAN, &g, ACK, C_NUMBER + 1, S_NUMBER + 1, header + 300);
}

/* Without a server the client is reset by its exact number. */
static void test_no_server(void **state)
{
	struct flows *f = *state;
	struct talk k;
	struct got g;
	struct changes c = {0};
	const struct service_key key = key_of(&kinds[0]);
	const struct sy_addr server = harness_addr(kinds[0].server);
	talk_syn(f, &k, &kinds[0], 2200);
	put_server(&c, &key, &server, 8080, 1,
	           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN);
	flows_commit(f, &c);
	from_client(&k, ACK, C_NUMBER + 1, k.cookie + 1, 100);
	check_got(&k, HARNESS_WAN, &g, RST, k.cookie + 1, 0, 0);
	assert_int_equal(live(&k), 0);
	check_silent(&k);
}

static void put_list(struct flows *f, int otherwise)
{
	struct changes c = {0};
	put_access_list(&c, "edge", otherwise);
	put_global_access(&c, "edge");
	flows_commit(f, &c);
}

/* Access lists are checked before a SYN is answered, and again when its cookie returns. */
static void test_access_lists(void **state)
{
	struct flows *f = *state;
	struct talk k[3];
	struct got g;
	for (unsigned i = 0; i < 3; i++)
		talk_syn(f, &k[i], &kinds[0], (uint16_t)(2250 + i));
	put_list(f, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP);
	from_client(&k[0], ACK, C_NUMBER + 1, k[0].cookie + 1, 100);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_ACL_DROP), 1);
	from_client(&k[0], SYN, C_NUMBER, 0, 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_ACL_DROP), 2);
	check_silent(&k[0]);
	put_list(f, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_RESET);
	from_client(&k[1], ACK, C_NUMBER + 1, k[1].cookie + 1, 100);
	check_got(&k[1], HARNESS_WAN, &g, RST, k[1].cookie + 1, 0, 0);
	from_client(&k[1], SYN, C_NUMBER, 0, 0);
	check_got(&k[1], HARNESS_WAN, &g, RST | ACK, 0, C_NUMBER + 1, 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_ACL_RESET), 2);
	check_silent(&k[1]);
	assert_int_equal(live(&k[1]), 0);
	put_list(f, STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_ALLOW);
	talk_ack(&k[2], 0);
	talk_splice(&k[2], 7);
}

/* A SYN in fragments is not answered, and begins no session. */
static void test_fragments(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < SY_ARRAY_LEN(kinds); i++) {
		const struct service_key key = key_of(&kinds[i]);
		const bool v4 = sy_addr_is_v4(&key.vip);
		const struct sy_tuple t = {harness_addr(v4 ? "198.18.0.1" : "2001:db8:c::1"),
		                           key.vip, htons(2400), htons(80), SY_PROTO_TCP};
		struct frame in, piece[4];
		flows_frame(f, &in, &t, SYN, C_NUMBER, 100);
		frame_let_fragment(&in);
		assert_int_equal(frame_cut(&in, 7, 64, piece, 4), 2);
		for (unsigned n = 0; n < 2; n++)
			assert_true(harness_inject(&f->harness, HARNESS_WAN, piece[n].bytes,
			                           piece[n].len));
		harness_poll(&f->harness);
		check_silent(&(struct talk){.f = f});
		assert_int_equal(harness_totals(&f->harness).live, 0);
	}
}

/* After a crash, cookies remain valid, sessions open, and spliced ones stay spliced. */
static void test_restart(void **state)
{
	struct flows *f = *state;
	for (unsigned life = 0; life < 4; life++) {
		struct talk asked[2], opening[2], joined[2];
		for (unsigned i = 0; i < 2; i++) {
			uint16_t port = (uint16_t)(2300 + 10 * life + i);
			talk_open(f, &joined[i], &kinds[i], port);
			talk_syn(f, &opening[i], &kinds[i], (uint16_t)(port + 2));
			talk_ack(&opening[i], 100);
			talk_syn(f, &asked[i], &kinds[i], (uint16_t)(port + 4));
		}
		f->options.sessions *= 1 + life % 2;
		flows_reopen(f, 1 + life / 2, life & 1 ? 77 : 0, !(life & 1));
		for (unsigned i = 0; i < 2; i++) {
			check_data(&joined[i], 0);
			talk_ack(&asked[i], 0);
			talk_splice(&asked[i], 7);
			check_data(&asked[i], 0);
			talk_splice(&opening[i], 7);
			check_data(&opening[i], 0);
		}
		flows_advance(f, 2000);
		assert_int_equal(harness_totals(&f->harness).live, 0);
	}
}

/* A client resets its connection, and again after a challenge (RFC 5961 3.2). Nothing is left. */
static void end_by_client(struct talk *k, uint32_t number)
{
	struct got g;
	from_client(k, RST, number, 0, 0);
	check_got(k, HARNESS_LAN, &g, RST, number, 0, 0);
	assert_int_equal(state_of(k), SESSION_RESET_BY_CLIENT);
	assert_true(collect(k, HARNESS_WAN, &g)); /* the challenge */
	from_client(k, RST, ntohl(g.tcp.ack), 0, 0);
	assert_int_equal(state_of(k), SESSION_RESET);
	flows_advance(k->f, 10);
	ignore_sent(k);
	const struct sy_balance_totals totals = harness_totals(&k->f->harness);
	assert_int_equal(totals.live, 0);
	assert_int_equal(totals.created, totals.ended);
}

/* An attacker who saw the ACK with the cookie and a request replays it after the session is gone.
 * It opens a connection; the server's answer reaches the client, whose stack has none. Its reset
 * ends everything. */
static void check_replay(struct talk *k)
{
	struct got g;
	uint32_t cookie = k->cookie;
	check_silent(k);
	assert_int_equal(live(k), 0);
	talk_ack(k, 100);
	talk_splice(k, 7);
	check_got(k, HARNESS_LAN, &g, ACK, C_NUMBER + 1, S_NUMBER + 1, 100);
	from_server(k, ACK, S_NUMBER + 1, C_NUMBER + 101, 0, 200);
	check_got(k, HARNESS_WAN, &g, ACK, cookie + 1, C_NUMBER + 101, 200);
	end_by_client(k, C_NUMBER + 101);
}

static void test_replay_after_reset(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		talk_open(f, &k, &kinds[i], (uint16_t)(2500 + i));
		end_by_client(&k, C_NUMBER + 1);
		check_replay(&k);
		check_replay(&k); /* and again */
	}
}

static void test_replay_after_time_wait(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		struct got g;
		talk_open(f, &k, &kinds[i], (uint16_t)(2600 + i));
		from_client(&k, ACK | FIN, C_NUMBER + 1, k.cookie + 1, 0);
		from_server(&k, ACK | FIN, S_NUMBER + 1, C_NUMBER + 2, 0, 0);
		from_client(&k, ACK, C_NUMBER + 2, k.cookie + 2, 0);
		assert_int_equal(state_of(&k), SESSION_TIME_WAIT);
		ignore_sent(&k);
		/* until its end, it is a repetition of that connection, and begins nothing */
		from_client(&k, ACK, C_NUMBER + 1, k.cookie + 1, 100);
		check_got(&k, HARNESS_LAN, &g, ACK, C_NUMBER + 1, S_NUMBER + 1, 100);
		check_silent(&k);
		assert_int_equal(state_of(&k), SESSION_TIME_WAIT);
		assert_int_equal(live(&k), 1);
		flows_advance(f, 16);
		check_replay(&k);
	}
}

/* A replay without a server's answer: the session times out. */
static void test_replay_in_vain(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 6; i++) {
		struct talk k;
		uint64_t wrong;
		talk_open(f, &k, &kinds[i], (uint16_t)(2700 + i));
		from_client(&k, RST, C_NUMBER + 1, 0, 0);
		flows_advance(f, 30);
		ignore_sent(&k);
		talk_ack(&k, 0);
		flows_advance(f, 30); /* the server is silent */
		ignore_sent(&k);
		assert_int_equal(live(&k), 0);
		flows_advance(f, 128); /* the life of a cookie */
		wrong = harness_drops(&f->harness, SY_DROP_BAD_COOKIE);
		from_client(&k, ACK, C_NUMBER + 1, k.cookie + 1, 100);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_COOKIE), wrong + 1);
		assert_int_equal(live(&k), 0);
		check_silent(&k);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {TEST(whole_lives),
	                                   TEST(held),
	                                   TEST(held_has_a_limit),
	                                   TEST(wrong_cookies),
	                                   TEST(repetitions),
	                                   TEST(silent_server),
	                                   TEST(server_resets),
	                                   TEST(server_remembers),
	                                   TEST(scales),
	                                   TEST(refused_options),
	                                   TEST(client_resets),
	                                   TEST(client_address),
	                                   TEST(no_server),
	                                   TEST(access_lists),
	                                   TEST(restart),
	                                   TEST(fragments),
	                                   TEST(replay_after_reset),
	                                   TEST(replay_after_time_wait),
	                                   TEST(replay_in_vain)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
