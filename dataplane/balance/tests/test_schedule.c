// SPDX-License-Identifier: Apache-2.0
/* Which server gets a new session, on two workers: load, limits, backups, slow start, one-packet
 * sessions. */
#include "schedule_fixture.h"

/* ---- load ------------------------------------------------------------------------------------ */

/* Bursts spread over both workers are scheduled by the existing sessions. */
static void check_load(struct fixture *f, int scheduler)
{
	put(f, scheduler);
	for (unsigned i = 0; i < 4; i++)
		put_up(f, i, 1 + i);
	commit(f);
	for (unsigned n = 0; n < 400; n++)
		assert_true(connects(f, n, 1000));
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(active(f, i), scheduler == S(LC) ? 100 : 40 * (1 + i));
	for (unsigned w = 0; w < 2; w++)
		assert_true(f->harness.rt->worker[w].counters.steered_in > 0 || w == 0);
}

static void test_lc(void **state)
{
	check_load(*state, S(LC));
}

static void test_wlc(void **state)
{
	check_load(*state, S(WLC));
}

static void test_sed(void **state)
{
	check_load(*state, S(SED));
}

/* Another scheduler, or new weights: existing clients stay with their server. */
static void test_change_of_scheduler(void **state)
{
	struct fixture *f = *state;
	put(f, S(RR));
	for (unsigned i = 0; i < 4; i++)
		put_up(f, i, 1);
	commit(f);
	for (unsigned n = 0; n < 80; n++)
		assert_true(connects(f, n, 1000));
	uint32_t before[4];
	for (unsigned i = 0; i < 4; i++) {
		before[i] = active(f, i);
		/* each of the two workers rotates independently */
		assert_in_range(before[i], 20 - 1, 20 + 1);
	}
	for (int scheduler = 1; scheduler <= SCHEDULERS; scheduler++) {
		put(f, scheduler);
		for (unsigned i = 0; i < 4; i++)
			put_up(f, i, (uint32_t)(scheduler * (int)(1 + i)));
		commit(f);
		for (unsigned n = 0; n < 80; n++)
			assert_true(client_sends(f, &f->key, n, 1000, SY_TCP_ACK));
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(active(f, i), before[i]);
	}
	assert_int_equal(harness_totals(&f->harness).created, 80);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_server_limit(void **state)
{
	struct fixture *f = *state;
	for (int scheduler = 1; scheduler <= SCHEDULERS; scheduler++) {
		put(f, scheduler);
		for (unsigned i = 0; i < 4; i++)
			put_up(f, i, 1 + i)->max_sessions = 10 + i;
		commit(f);
		unsigned done = 0;
		for (unsigned n = 0; n < 60; n++)
			done += connects(f, n, 1000);
		assert_int_equal(done, 46);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(active(f, i), 10 + i);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_CONNECTION_LIMIT),
		                 14 * scheduler);
		/* Existing clients continue; a session that ended makes a place free. */
		assert_true(client_sends(f, &f->key, 0, 1000, SY_TCP_ACK));
		harness_advance(&f->harness, 13 * SECOND_NS);
		assert_int_equal(harness_totals(&f->harness).live, 0);
		assert_true(connects(f, 99, 1000));
		harness_advance(&f->harness, 13 * SECOND_NS);
	}
}

static void test_service_limit(void **state)
{
	struct fixture *f = *state;
	put(f, S(WRR))->max_sessions = 25;
	put_up(f, 0, 1);
	put_up(f, 1, 1);
	commit(f);
	unsigned done = 0;
	for (unsigned n = 0; n < 40; n++)
		done += connects(f, n, 1000);
	assert_int_equal(done, 25);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_CONNECTION_LIMIT), 15);
	/* Lowered below the current count: existing sessions stay, no new ones are accepted. */
	put(f, S(WRR))->max_sessions = 5;
	commit(f);
	assert_int_equal(harness_totals(&f->harness).live, 25);
	assert_true(client_sends(f, &f->key, 3, 1000, SY_TCP_ACK));
	assert_false(connects(f, 77, 1000));
	put(f, S(WRR));
	commit(f);
	assert_true(connects(f, 77, 1000));
}

static unsigned connects_often(struct fixture *f, unsigned client, uint16_t port, unsigned times)
{
	unsigned done = 0;
	for (unsigned n = 0; n < times; n++)
		done += connects(f, client, (uint16_t)(port + n));
	return done;
}

/* A client's sessions are those of all its ports, and so of both workers. */
static void test_client_limits(void **state)
{
	struct fixture *f = *state;
	Steelyard__Forwarder__V1__ClientLimits limits =
	        STEELYARD__FORWARDER__V1__CLIENT_LIMITS__INIT;
	limits.new_per_second = 5;
	limits.burst = 10;
	put(f, S(RR))->client_limits = &limits;
	put_up(f, 0, 1);
	commit(f);
	assert_int_equal(connects_often(f, 7, 1000, 40), 10);
	assert_int_equal(connects_often(f, 8, 1000, 40), 10);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_CLIENT_RATE), 60);
	assert_int_equal(active(f, 0), 20);
	assert_true(client_sends(f, &f->key, 7, 1000, SY_TCP_ACK));
	harness_advance(&f->harness, SECOND_NS);
	assert_int_equal(connects_often(f, 7, 2000, 40), 5);
	/* Another service does not count, nor does this one without its limit. */
	put_service(&f->c, &f->udp, "dns", S(RR), NULL);
	put_server(&f->c, &f->udp, &f->server[1], 53, 1, UP);
	commit(f);
	assert_true(client_sends(f, &f->udp, 7, 1000, 0));
	put(f, S(RR));
	commit(f);
	assert_int_equal(connects_often(f, 7, 3000, 40), 40);
}

/* A packet that acquires a server but creates no session releases it. */
static void test_place_given_back(void **state)
{
	struct fixture *f = *state;
	f->server[0] = harness_addr("10.77.0.1"); /* no route */
	put(f, S(RR))->max_sessions = 3;
	put_up(f, 0, 1)->max_sessions = 2;
	commit(f);
	for (unsigned n = 0; n < 20; n++)
		assert_false(connects(f, n, 1000));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_ROUTE), 20);
	assert_int_equal(active(f, 0), 0);
	assert_int_equal(inspect_service_active(f->harness.b, 0), 0);
}

/* ---- backups --------------------------------------------------------------------------------- */

static void test_backup(void **state)
{
	struct fixture *f = *state;
	put(f, S(RR));
	put_up(f, 0, 1)->max_sessions = 5;
	put_up(f, 1, 1)->backup = true;
	put_up(f, 2, 1)->backup = true;
	commit(f);
	for (unsigned n = 0; n < 5; n++)
		assert_int_equal(server_of(f, 3, n, 1000), 0);
	for (unsigned n = 5; n < 15; n++) /* full */
		assert_int_not_equal(server_of(f, 3, n, 1000), 0);
	assert_true(active(f, 1) > 0 && active(f, 2) > 0);
	put_state(f, 0, 1, DOWN);
	commit(f);
	assert_int_not_equal(server_of(f, 3, 20, 1000), 0);
	put_state(f, 0, 1, UP);
	commit(f);
	for (unsigned n = 30; n < 40; n++)
		assert_int_equal(server_of(f, 3, n, 1000), 0);
	put_state(f, 0, 0, UP);
	delete_server(&f->c, &f->key, &f->server[2], 8080);
	commit(f);
	assert_int_equal(server_of(f, 2, 50, 1000), 1);
}

/* ---- slow start ------------------------------------------------------------------------------ */

/* Of 310 new clients, how many got server i. */
static unsigned share_of(struct fixture *f, unsigned i, unsigned *client)
{
	uint64_t before = created(f, i);
	for (unsigned n = 0; n < 310; n++)
		assert_true(connects(f, n, (uint16_t)++ * client));
	return (unsigned)(created(f, i) - before);
}

static void test_slow_start(void **state)
{
	struct fixture *f = *state;
	unsigned client = 0, last = 0;
	put(f, S(RR))->slow_start_s = 32;
	put_up(f, 0, 3);
	put_up(f, 1, 3);
	commit(f);
	assert_in_range(share_of(f, 1, &client), 150,
	                160); /* the service had no servers before: no ramp */
	put_state(f, 1, 3, DOWN);
	commit(f);
	harness_advance(&f->harness, 5 * SECOND_NS);
	put_up(f, 1, 3);
	commit(f);
	for (unsigned step = 1; step < 16; step++) {
		unsigned now = share_of(f, 1, &client), want = 310 * step / (16 + step);
		assert_in_range(now, want - 4, want + 4);
		assert_true(now > last);
		last = now;
		harness_advance(&f->harness, 2 * SECOND_NS);
	}
	assert_in_range(share_of(f, 1, &client), 150, 160);
	assert_int_equal(inspect_model(f->harness.b)->ramps, 0);
	/* A change during the ramp does not restart it; nor does a refused transaction. */
	put_state(f, 1, 3, DRAIN);
	commit(f);
	put_up(f, 1, 3);
	commit(f);
	harness_advance(&f->harness, 20 * SECOND_NS);
	put_up(f, 1, 4);
	put_up(f, 0, 4);
	commit(f);
	put_up(f, 1, 70000);
	assert_false(harness_commit(&f->harness, &f->c));
	unsigned want = 310 * 11 / 27;
	assert_in_range(share_of(f, 1, &client), want - 5, want + 5);
	/* A server added beside others also starts slowly; a deleted service loses its ramp. */
	put_up(f, 2, 4);
	commit(f);
	assert_in_range(share_of(f, 2, &client), 5, 20);
	delete_service(&f->c, &f->key);
	commit(f);
	harness_advance(&f->harness, 3 * SECOND_NS);
	assert_int_equal(inspect_model(f->harness.b)->ramps, 0);
}

/* ---- one-packet sessions --------------------------------------------------------------------- */

/* The server answers the packet that reached it; false: none came. */
static bool answer(struct fixture *f, struct sy_tuple *seen)
{
	struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_LAN);
	struct sy_view v;
	if (!m)
		return false;
	assert_int_equal(sy_packet_parse(rte_pktmbuf_mtod(m, uint8_t *), m->data_len, &v), 0);
	*seen = v.tuple;
	rte_pktmbuf_free(m);
	return true;
}

static void send_datagram(struct fixture *f, unsigned port, const struct sy_tuple *t)
{
	struct frame frame;
	frame_udp(&frame, &f->rng, t, 20);
	assert_true(harness_inject(&f->harness, port, frame.bytes, frame.len));
	harness_poll(&f->harness);
}

static void test_one_packet(void **state)
{
	struct fixture *f = *state;
	const struct sy_tuple query = {harness_addr("198.18.0.1"), f->udp.vip, htons(5000),
	                               f->udp.vport, SY_PROTO_UDP};
	struct sy_tuple at[12];
	unsigned got[4] = {0};
	put_service(&f->c, &f->udp, "dns", S(RR), NULL)->one_packet = true;
	for (unsigned i = 0; i < 4; i++)
		put_server(&f->c, &f->udp, &f->server[i], 53, 1, UP);
	commit(f);
	/* One client, one port: its datagrams go round the servers, each from a local port of its
	 * own. */
	for (unsigned n = 0; n < 12; n++) {
		send_datagram(f, HARNESS_WAN, &query);
		assert_true(answer(f, &at[n]));
		got[at[n].dst.b[15] - 1]++;
		for (unsigned k = 0; k < n; k++)
			assert_true(at[k].sport != at[n].sport ||
			            !sy_addr_equal(&at[k].dst, &at[n].dst));
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(got[i], 3);
	assert_int_equal(harness_totals(&f->harness).live, 12);
	/* Answers reach the client, and each one ends its session. */
	for (unsigned n = 0; n < 12; n += 2) {
		const struct sy_tuple back = {at[n].dst, at[n].src, at[n].dport, at[n].sport,
		                              SY_PROTO_UDP};
		struct sy_view v;
		send_datagram(f, HARNESS_LAN, &back);
		struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_WAN);
		assert_non_null(m);
		assert_int_equal(sy_packet_parse(rte_pktmbuf_mtod(m, uint8_t *), m->data_len, &v),
		                 0);
		assert_true(sy_addr_equal(&v.tuple.src, &query.dst));
		assert_true(sy_addr_equal(&v.tuple.dst, &query.src));
		assert_int_equal(v.tuple.dport, query.sport);
		assert_int_equal(v.tuple.sport, query.dport);
		rte_pktmbuf_free(m);
		send_datagram(f, HARNESS_LAN, &back); /* a second answer comes too late */
		assert_null(harness_collect(&f->harness, HARNESS_WAN));
	}
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SESSION), 6);
	assert_int_equal(harness_totals(&f->harness).live, 6);
	harness_advance(&f->harness, 33 * SECOND_NS);
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

/* ---- publishing ------------------------------------------------------------------------------ */

/* A large table is built over many iterations of the control loop. In between the old table is in
 * use and netlink is served; then the service switches at once. */
static void test_publish_in_pieces(void **state)
{
	struct fixture *f = *state;
	struct sy_balance *b = f->harness.b;
	struct sy_error err;
	struct sy_addr server = harness_addr("10.0.2.0");
	unsigned turns = 0;
	put(f, S(MAGLEV))->hash_on = STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_TUPLE;
	put_up(f, 0, 1);
	commit(f);
	for (unsigned n = 0; n < 120; n++) {
		server.b[15] = (uint8_t)(1 + n);
		put_server(&f->c, &f->key, &server, 8080, 1, UP);
	}
	model_begin(b);
	for (size_t i = 0; i < f->c.count; i++)
		assert_int_equal(model_change_apply(b, f->c.change[i], &err), 0);
	assert_int_equal(model_check(b, &err), 0);
	model_publish_addresses(b);
	const struct service *before = inspect_service(b, 0);
	for (; !model_publish(b, PUBLISH_PIECE); turns++) {
		assert_ptr_equal(inspect_service(b, 0), before);
		assert_int_equal(server_of(f, 1, turns, 1000), 0);
	}
	/* 262 139 entries, several steps for each. */
	assert_in_range(turns, 5, 100);
	assert_int_equal(inspect_service(b, 0)->pool->eligible, 121);
	model_finish(b);
	changes_free(&f->c);
	uint64_t first = created(f, 0);
	for (unsigned n = 0; n < 500; n++)
		assert_true(connects(f, 1000 + n, 1000));
	assert_in_range(created(f, 0) - first, 0, 20);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuse(struct fixture *f, const char *because)
{
	assert_false(harness_commit(&f->harness, &f->c));
	assert_non_null(strstr(f->harness.error, because));
}

static void test_refused(void **state)
{
	struct fixture *f = *state;
	pb_service *s;
	put(f, S(RR))->hash_on = STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_TUPLE;
	refuse(f, "hash_on is for sh, maglev and conhash");
	put(f, S(SH))->hash_on = (Steelyard__Forwarder__V1__HashOn)3;
	refuse(f, "unknown hash_on");
	put(f, SCHEDULERS + 1);
	refuse(f, "unknown scheduler");
	put(f, S(RR))->one_packet = true;
	refuse(f, "one_packet is for UDP");
	put(f, S(RR))->slow_start_s = 3601;
	refuse(f, "slow start");
	for (unsigned n = 0; n < 3; n++) {
		set_persistence(&f->c, put(f, S(RR)), n ? 60 : 0, n == 1 ? 33 : 0,
		                n == 2 ? 129 : 0);
		refuse(f, "persistence");
	}
	for (unsigned n = 0; n < 4; n++) {
		Steelyard__Forwarder__V1__ClientLimits limits =
		        STEELYARD__FORWARDER__V1__CLIENT_LIMITS__INIT;
		limits.new_per_second = n == 0 ? 0 : n == 1 ? 10001 : 1;
		limits.burst = n == 2 ? 0 : n == 3 ? 100001 : 1;
		put(f, S(RR))->client_limits = &limits;
		refuse(f, "client_limits");
	}
	s = put_service(&f->c, &f->udp, "dns", S(RR), NULL);
	s->one_packet = true;
	set_persistence(&f->c, s, 60, 0, 0);
	refuse(f, "remove one");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_lc),
	        TEST(test_wlc),
	        TEST(test_sed),
	        TEST(test_change_of_scheduler),
	        TEST(test_server_limit),
	        TEST(test_service_limit),
	        TEST(test_client_limits),
	        TEST(test_place_given_back),
	        TEST(test_backup),
	        TEST(test_slow_start),
	        TEST(test_one_packet),
	        TEST(test_publish_in_pieces),
	        TEST(test_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
