// SPDX-License-Identifier: Apache-2.0
/* Limits of each client: buckets, the clients above their limit, clients without a bucket. */
#include "limit_fixture.h"

#define BURST 10

/* Sends a datagram of a client of 198.18.0.0/16 to service 1. */
static bool client_sends(struct flows *f, uint16_t host)
{
	struct sy_tuple t = {harness_addr("198.18.0.0"), f->service[1].vip, htons(4000),
	                     f->service[1].vport, SY_PROTO_UDP};
	struct frame in, out;
	t.src.h[7] = htons(host);
	flows_frame(f, &in, &t, 0, 0, 100);
	return flows_through(f, HARNESS_WAN, &in, &out);
}

static unsigned client_sends_many(struct flows *f, uint16_t host, unsigned n)
{
	unsigned through = 0;
	while (n-- > 0)
		through += client_sends(f, host);
	return through;
}

static void test_clients(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	pb_limit *l = put_limit(&c, "a", PACKETS, 1, BURST);
	set_limit_clients(&c, l, 0);
	add_limit_within(&c, l, "2001:db8:c::", 48);
	add_limit_within(&c, l, "198.18.1.0", 24);
	flows_commit(f, &c);
	for (uint16_t host = 0x101; host < 0x106; host++)
		assert_int_equal(client_sends_many(f, host, 4 * host - 0x400),
		                 BURST < 4 * host - 0x400u ? BURST : 4 * host - 0x400u);
	assert_int_equal(client_sends_many(f, 1, 30), 30); /* of another prefix */
	struct shown a = limit_show(f, "a");
	assert_string_equal(a.engine, "cas");
	assert_int_equal(a.clients, 5);
	assert_int_equal(a.worst, 3); /* 20, 16, 12 packets */
	for (unsigned i = 0; i < a.worst; i++) {
		assert_int_equal(a.client[i].addr.b[15], 5 - i);
		assert_int_equal(a.client[i].length, 32);
		assert_int_equal(a.client[i].passed, BURST);
		assert_int_equal(a.client[i].above, 10 - 4 * i);
	}
	/* Clients above the limit are still listed after their bucket is full again. */
	flows_advance(f, 20);
	a = limit_show(f, "a");
	assert_int_equal(a.clients, 0);
	assert_int_equal(a.worst, 3);
	assert_int_equal(client_sends_many(f, 0x105, 30), BURST);
	/* a client is a /24 now, with one bucket */
	l = put_limit(&c, "a", PACKETS, 1, BURST);
	set_limit_clients(&c, l, 0);
	l->clients->prefix4 = 24;
	flows_commit(f, &c);
	assert_int_equal(client_sends_many(f, 0x101, 6), 6);
	assert_int_equal(client_sends_many(f, 0x105, 6), 4);
	a = limit_show(f, "a");
	assert_int_equal(a.clients, 1);
	assert_int_equal(a.client[0].addr.b[15], 0);
	assert_int_equal(a.client[0].length, 24);
}

/* Clients without a place pass, and are counted. */
static void test_clients_full(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	set_limit_clients(&c, put_limit(&c, "a", PACKETS, 1, BURST), 2);
	flows_commit(f, &c);
	for (uint16_t host = 1; host <= 5; host++)
		client_sends_many(f, host, 20);
	const struct shown a = limit_show(f, "a");
	assert_int_equal(a.clients, 2);
	assert_int_equal(a.passed, 2 * BURST);
	assert_int_equal(a.above, 2 * (20 - BURST));
	assert_int_equal(a.unlimited, 60);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, limits_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_clients),
	        TEST(test_clients_full),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
