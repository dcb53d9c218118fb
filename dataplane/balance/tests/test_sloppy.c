// SPDX-License-Identifier: Apache-2.0
/* sloppy_tcp: segments from the middle of a connection create its session. */
#include "direct_fixture.h"
#include "end.h"

#define MAGLEV STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_MAGLEV
#define TUPLE  STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_TUPLE

static void put_sloppy(struct flows *f, unsigned service, bool sloppy)
{
	struct changes c = {0};
	struct service_key key = key_of(service);
	pb_service *s = put_service(&c, &key, "direct", MAGLEV, NULL);
	s->hash_on = TUPLE;
	s->sloppy_tcp = sloppy;
	set_mode(&c, MODE_DR);
	flows_commit(f, &c);
}

/* The state of a forwarder to which a router has just moved all connections. */
static void forget_sessions(struct flows *f)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		uint32_t cursor = 0, record;
		while ((record = session_next(inspect_table(f->harness.b, slot), &cursor)) !=
		       SESSION_NONE)
			session_end(&f->harness.rt->worker[0], inspect_table(f->harness.b, slot),
			            record);
	}
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

static bool passes(struct flows *f, const struct sy_tuple *t, uint8_t flags)
{
	struct frame in, out;
	flows_frame(f, &in, t, flags, 1, 0);
	return flows_through(f, HARNESS_WAN, &in, &out);
}

/* Connections stay with their server, by their hash alone. */
static void test_sloppy_tcp(void **state)
{
	static const uint8_t refused[] = {SY_TCP_RST, SY_TCP_RST | SY_TCP_ACK,
	                                  SY_TCP_SYN | SY_TCP_ACK, SY_TCP_FIN, 0};
	enum { CONNECTIONS = 30 };
	struct flows *f = *state;
	for (unsigned service = 0; service < SERVICES; service += 2) {
		unsigned server[CONNECTIONS], load[3] = {0};
		put_sloppy(f, service, true);
		for (unsigned i = 0; i < CONNECTIONS; i++) {
			const struct sy_tuple t = client_of(service, (uint16_t)(1000 + i));
			server[i] = pass(f, &t, SY_TCP_SYN, 0);
			load[server[i]]++;
		}
		assert_true(load[1] > 0 && load[2] > 0);
		forget_sessions(f);
		for (unsigned i = 0; i < CONNECTIONS; i++) {
			const struct sy_tuple t = client_of(service, (uint16_t)(1000 + i));
			assert_false(passes(f, &t, refused[i % SY_ARRAY_LEN(refused)]));
			assert_null(flows_find(f, &t));
			uint8_t flags = SY_TCP_ACK | (i % 2 ? SY_TCP_PSH : 0);
			assert_int_equal(pass(f, &t, flags, 10 * i), server[i]);
			/* A client that sends only one packet does not occupy a record for long. */
			assert_int_equal(flows_find(f, &t)->state, SESSION_SYN_SENT);
			assert_int_equal(pass(f, &t, flags, 10 * i), server[i]);
			assert_int_equal(flows_find(f, &t)->state, SESSION_ESTABLISHED);
		}
		/* A packet with a wrong checksum creates no session. */
		struct frame in, out;
		const struct sy_tuple t = client_of(service, 999);
		flows_frame(f, &in, &t, SY_TCP_ACK, 1, 50);
		in.bytes[in.len - 1] ^= 1;
		assert_false(flows_through(f, HARNESS_WAN, &in, &out));
		assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_L4_CHECKSUM),
		                 service / 2 + 1);
		/* Without the sloppy option. */
		put_sloppy(f, service, false);
		forget_sessions(f);
		uint64_t before = harness_drops(&f->harness, SY_DROP_NO_SESSION);
		assert_false(passes(f, &t, SY_TCP_ACK));
		assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SESSION), before + 1);
	}
}

static unsigned sessions_of(struct flows *f, const struct sy_tuple *t)
{
	unsigned count = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *table = inspect_table(f->harness.b, (uint8_t)slot);
		uint32_t cursor = 0, record;
		while ((record = session_next(table, &cursor)) != SESSION_NONE)
			count += session_at(table, record)->client_port == t->sport;
	}
	return count;
}

/* Each two segments of a connection arrive in one burst, in either order, and get one session. */
static void test_sloppy_burst(void **state)
{
	static const uint8_t flags[][2] = {{SY_TCP_ACK, SY_TCP_SYN},
	                                   {SY_TCP_SYN, SY_TCP_ACK},
	                                   {SY_TCP_ACK, SY_TCP_ACK},
	                                   {SY_TCP_SYN, SY_TCP_SYN}};
	struct flows *f = *state;
	struct rte_mbuf *m;
	struct frame in;
	for (unsigned service = 0; service < SERVICES; service += 2) {
		put_sloppy(f, service, true);
		for (unsigned i = 0; i < SY_ARRAY_LEN(flags); i++) {
			const struct sy_tuple t = client_of(service, (uint16_t)(3000 + i));
			unsigned passed = 0, to = 0;
			for (unsigned k = 0; k < 2; k++) {
				flows_frame(f, &in, &t, flags[i][k], 1, 0);
				assert_true(
				        harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
			}
			harness_poll(&f->harness);
			for (; (m = harness_collect(&f->harness, HARNESS_LAN));
			     rte_pktmbuf_free(m)) {
				unsigned server = rte_pktmbuf_mtod(m, uint8_t *)[5];
				assert_true(!passed++ || server == to);
				to = server;
			}
			assert_int_equal(passed, 2);
			assert_int_equal(sessions_of(f, &t), 1);
		}
		/* Each session counts once on its server. */
		uint64_t active = 0;
		for (uint32_t e = 0; e < 4096; e++)
			active += inspect_server_active(f->harness.b, e);
		assert_int_equal(active, SY_ARRAY_LEN(flags));
		forget_sessions(f);
	}
}

static void test_sloppy_refusals(void **state)
{
	static const struct {
		unsigned service;
		enum mode mode;
		int scheduler;
		bool persistence;
		uint32_t slow_start;
		const char *why;
	} cases[] = {
	        {1, MODE_DR, MAGLEV, false, 0, "sloppy_tcp is for TCP"},
	        {0, MODE_FNAT, MAGLEV, false, 0, "sloppy_tcp is for dr and ipip"},
	        {0, MODE_NAT, MAGLEV, false, 0, "sloppy_tcp is for dr and ipip"},
	        {0, MODE_DR, FLOW_RR, false, 0, "sloppy_tcp is for maglev and conhash"},
	        {0, MODE_DR, MAGLEV, true, 0, "by hash only"},
	        {0, MODE_DR, MAGLEV, false, 9, "by hash only"},
	};
	struct flows *f = *state;
	for (unsigned i = 0; i < SY_ARRAY_LEN(cases); i++) {
		struct changes c = {0};
		struct service_key key = key_of(cases[i].service);
		key.vip = harness_addr("192.0.2.99");
		pb_service *s = put_service(&c, &key, "other", cases[i].scheduler, NULL);
		s->sloppy_tcp = true;
		s->slow_start_s = cases[i].slow_start;
		if (cases[i].persistence)
			set_persistence(&c, s, 60, 32, 128);
		set_mode(&c, cases[i].mode);
		flows_check_refused(f, &c, cases[i].why);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(sloppy_tcp),
	        TEST(sloppy_burst),
	        TEST(sloppy_refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
