// SPDX-License-Identifier: Apache-2.0
/* Numbers that attackers must not guess: ISN (RFC 6528), timestamps (RFC 7323 5.4), ports (RFC
 * 6056). */
#include <arpa/inet.h>

#include "../arrive.h"
#include "../stack.h"
#include "script.h"

#define MS    UINT64_C(1000000)
#define START (UINT64_C(1000000) * MS)

static struct sy_stack *stack_new(const char *secret)
{
	struct sy_stack_options o = {.pool = tests_pool(), .connections = 16};
	struct sy_stack *s;

	memcpy(o.secret, secret, strlen(secret));
	assert_int_equal(sy_stack_create(&o, START, &s, NULL), 0);
	return s;
}

static struct sy_tuple tuple(uint16_t port)
{
	struct sy_tuple t = {.sport = htons(port), .dport = htons(80), .proto = SY_PROTO_TCP};

	sy_addr_parse("198.51.100.1", &t.src);
	sy_addr_parse("192.0.2.1", &t.dst);
	return t;
}

/* A clock of 4 µs, plus an offset per tuple and secret. */
static void test_first_number(void **state)
{
	struct sy_stack *a = stack_new("one secret"), *b = stack_new("another one");
	struct sy_tuple t = tuple(1000), other = tuple(1001);
	uint32_t first = connection_iss(a, &t);

	assert_int_equal(connection_iss(a, &t), first);
	stack_time(a, START + 4 * MS);
	assert_int_equal(connection_iss(a, &t) - first, 1000);
	stack_time(a, START); /* time does not decrease */
	assert_int_equal(connection_iss(a, &t) - first, 1000);
	stack_time(b, START + 4 * MS);
	assert_int_not_equal(connection_iss(a, &t), connection_iss(b, &t));
	assert_int_not_equal(connection_iss(a, &t), connection_iss(a, &other));
	sy_stack_destroy(a);
	sy_stack_destroy(b);
}

/* One offset for all connections to a host: RFC 6191 compares timestamps over connections. */
static void test_timestamps(void **state)
{
	struct sy_stack *a = stack_new("one secret"), *b = stack_new("another one");
	struct sy_tuple t = tuple(1000), same = tuple(1001), other = tuple(1000);

	sy_addr_parse("198.51.100.2", &other.src);
	assert_int_equal(connection_ts_offset(a, &t), connection_ts_offset(a, &same));
	assert_int_not_equal(connection_ts_offset(a, &t), connection_ts_offset(a, &other));
	assert_int_not_equal(connection_ts_offset(a, &t), connection_ts_offset(b, &t));
	sy_stack_destroy(a);
	sy_stack_destroy(b);
}

/* Ephemeral ports start at random, and are limited to those of the owner. */
static bool odd(void *owner, const struct sy_tuple *from_peer)
{
	return ntohs(from_peer->dport) & 1;
}

static void test_ports(void **state)
{
	struct sy_stack_options o = {
	        .pool = tests_pool(), .connections = 16, .owns = odd, .secret = "s"};
	struct sy_stack_endpoint from = {.port = 0}, to = {.port = htons(80)};
	uint16_t port[2][8];

	sy_addr_parse("192.0.2.1", &from.addr);
	sy_addr_parse("198.51.100.1", &to.addr);
	for (unsigned k = 0; k < 2; k++) {
		struct sy_stack *s;
		struct sy_stack_info info;
		sy_stack_id id;
		o.secret[1] = (uint8_t)k;
		assert_int_equal(sy_stack_create(&o, START, &s, NULL), 0);
		for (unsigned i = 0; i < 8; i++) {
			assert_int_equal(sy_stack_connect(s, &from, &to, 0, START, &id), 0);
			sy_stack_info(s, id, &info);
			port[k][i] = ntohs(info.local.port);
			assert_true(port[k][i] >= 49152 && port[k][i] & 1);
		}
		sy_stack_destroy(s);
	}
	assert_memory_not_equal(port[0], port[1], sizeof(port[0]));
}

/* CVE-2016-5696: the number of challenge ACKs per second is unpredictable. */
static unsigned challenges_in(struct sy_stack *s, unsigned connections)
{
	uint64_t before = s->counters.challenges;

	for (unsigned i = 0; i < connections; i++) {
		for (unsigned k = 0; k < 10; k++)
			arrive_challenge(s, &s->connection[i]);
		while (s->control_count > 0)
			rte_pktmbuf_free(stack_next_control(s));
	}
	return (unsigned)(s->counters.challenges - before);
}

static void test_challenges(void **state)
{
	struct sy_stack_options o = {.pool = tests_pool(), .connections = 200};
	unsigned count[2][20], lowest = UINT32_MAX, highest = 0;

	for (unsigned k = 0; k < 2; k++) {
		struct sy_stack *s;
		o.secret[0] = (uint8_t)k;
		assert_int_equal(sy_stack_create(&o, START, &s, NULL), 0);
		for (uint16_t i = 0; i < 200; i++) {
			const struct sy_tuple t = tuple(1000 + i);
			connection_make(s, &t)->state = SY_STACK_ESTABLISHED;
		}
		for (unsigned n = 0; n < 20; n++) {
			stack_time(s, START + n * 1000 * MS);
			count[k][n] = challenges_in(s, 200);
			assert_in_range(count[k][n], 500, 1499);
			assert_int_equal(challenges_in(s, 200), 0);
			lowest = count[k][n] < lowest ? count[k][n] : lowest;
			highest = count[k][n] > highest ? count[k][n] : highest;
		}
		sy_stack_destroy(s);
	}
	assert_true(highest - lowest > 500);
	assert_memory_not_equal(count[0], count[1], sizeof(count[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_first_number),
	        cmocka_unit_test(test_timestamps),
	        cmocka_unit_test(test_ports),
	        cmocka_unit_test(test_challenges),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
