// SPDX-License-Identifier: Apache-2.0
/* Socket options: limits as on Linux, values as they were set, and what the stack gets. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include <sy_socket_option.h>

#include "pair.h"

static struct sy_socket_options o;

static int set(int level, int name, int value)
{
	return sy_socket_option_set(&o, level, name, &value, sizeof(value));
}

static int get(int level, int name)
{
	uint8_t value[SY_SOCKET_OPTION_BYTES];
	int number;

	assert_int_equal(sy_socket_option_get(&o, level, name, sizeof(number), value),
	                 sizeof(number));
	memcpy(&number, value, sizeof(number));
	return number;
}

static void test_limits(void **state)
{
	static const struct {
		int level, name, min, max;
	} limits[] = {
	        {IPPROTO_TCP, TCP_KEEPIDLE, 1, 32767},
	        {IPPROTO_TCP, TCP_KEEPINTVL, 1, 32767},
	        {IPPROTO_TCP, TCP_KEEPCNT, 1, 127},
	        {IPPROTO_TCP, TCP_MAXSEG, 88, 32767},
	        {IPPROTO_TCP, TCP_USER_TIMEOUT, 0, INT32_MAX},
	};
	for (unsigned i = 0; i < SY_ARRAY_LEN(limits); i++) {
		const int level = limits[i].level, name = limits[i].name;
		assert_int_equal(set(level, name, limits[i].min - 1), -EINVAL);
		assert_int_equal(set(level, name, limits[i].min), 0);
		assert_int_equal(get(level, name), limits[i].min);
		assert_int_equal(set(level, name, limits[i].max), 0);
		assert_int_equal(get(level, name), limits[i].max);
		if (limits[i].max < INT32_MAX)
			assert_int_equal(set(level, name, limits[i].max + 1), -EINVAL);
		assert_int_equal(get(level, name), limits[i].max);
	}
	assert_int_equal(set(IPPROTO_TCP, TCP_MAXSEG, 0), 0);
	assert_int_equal(set(IPPROTO_IPV6, IPV6_TCLASS, 256), -EINVAL);
	assert_int_equal(set(IPPROTO_IPV6, IPV6_TCLASS, -2), -EINVAL);
	assert_int_equal(set(IPPROTO_IPV6, IPV6_TCLASS, 0x2b), 0);
	assert_int_equal(get(IPPROTO_IP, IP_TOS), 0x28); /* ECN bits are TCP's */
	assert_int_equal(set(IPPROTO_IPV6, IPV6_TCLASS, -1), 0);
	assert_int_equal(get(IPPROTO_IPV6, IPV6_TCLASS), 0);
	assert_int_equal(set(IPPROTO_IP, IP_TOS, 0x12c), 0); /* its low byte */
	assert_int_equal(get(IPPROTO_IP, IP_TOS), 0x2c);
}

static void test_flags(void **state)
{
	assert_int_equal(get(SOL_SOCKET, SO_REUSEADDR), 0);
	assert_int_equal(set(SOL_SOCKET, SO_REUSEADDR, -7), 0);
	assert_int_equal(get(SOL_SOCKET, SO_REUSEADDR), 1);
	assert_int_equal(get(IPPROTO_TCP, TCP_QUICKACK), 1); /* Linux begins so */
	assert_int_equal(set(IPPROTO_TCP, TCP_QUICKACK, 0), 0);
	assert_int_equal(get(IPPROTO_TCP, TCP_QUICKACK), 0);
}

static void test_what_is_no_option(void **state)
{
	uint8_t value[SY_SOCKET_OPTION_BYTES];

	assert_int_equal(set(SOL_SOCKET, SO_SNDBUF, 1), -ENOPROTOOPT); /* the caller's */
	assert_int_equal(set(IPPROTO_TCP, 999, 1), -ENOPROTOOPT);
	assert_int_equal(sy_socket_option_set(&o, SOL_SOCKET, 999, value, 3), -EINVAL);
	assert_int_equal(sy_socket_option_get(&o, SOL_SOCKET, 999, 4, value), 0);
}

static void test_linger(void **state)
{
	struct linger l = {.l_onoff = 5, .l_linger = 40000};
	uint8_t value[SY_SOCKET_OPTION_BYTES];

	assert_int_equal(sy_socket_option_set(&o, SOL_SOCKET, SO_LINGER, &l, 4), -EINVAL);
	assert_int_equal(sy_socket_option_set(&o, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
	assert_int_equal(sy_socket_option_get(&o, SOL_SOCKET, SO_LINGER, sizeof(l), value),
	                 sizeof(l));
	memcpy(&l, value, sizeof(l));
	assert_int_equal(l.l_onoff, 1);
	assert_int_equal(l.l_linger, 40000);
}

static int timeout_set(long s, long us)
{
	struct timeval t = {s, us};
	return sy_socket_option_set(&o, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
}

static void test_timeouts(void **state)
{
	uint8_t value[SY_SOCKET_OPTION_BYTES];
	struct timeval t;

	assert_int_equal(timeout_set(5, 6), 0);
	assert_int_equal(o.receive_timeout_ns, 5000006000);
	assert_int_equal(timeout_set(0, 1000000), -EDOM);
	assert_int_equal(timeout_set(0, -1), -EDOM);
	assert_int_equal(sy_socket_option_get(&o, SOL_SOCKET, SO_RCVTIMEO, sizeof(t), value),
	                 sizeof(t));
	memcpy(&t, value, sizeof(t));
	assert_int_equal(t.tv_sec, 5);
	assert_int_equal(t.tv_usec, 6);
	assert_int_equal(timeout_set(-1, 0), 0); /* over at once */
	assert_int_equal(o.receive_timeout_ns, 1);
	assert_int_equal(timeout_set(INT64_MAX, 0), 0);
	assert_int_equal(o.receive_timeout_ns, 0);
	assert_int_equal(o.send_timeout_ns, 0);
}

static void test_rate(void **state)
{
	const uint64_t rate = 5000000000;
	uint8_t value[SY_SOCKET_OPTION_BYTES];

	assert_int_equal(get(SOL_SOCKET, SO_MAX_PACING_RATE), -1);
	assert_int_equal(set(SOL_SOCKET, SO_MAX_PACING_RATE, 1000), 0);
	assert_int_equal(o.pacing_rate, 1000);
	assert_int_equal(
	        sy_socket_option_set(&o, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate)), 0);
	assert_int_equal(get(SOL_SOCKET, SO_MAX_PACING_RATE), -1);
	assert_int_equal(
	        sy_socket_option_get(&o, SOL_SOCKET, SO_MAX_PACING_RATE, sizeof(rate), value),
	        sizeof(rate));
	assert_memory_equal(value, &rate, sizeof(rate));
	assert_int_equal(set(SOL_SOCKET, SO_MAX_PACING_RATE, -1), 0);
	assert_int_equal(o.pacing_rate, UINT64_MAX);
}

/* All at once, and one by one. */
static void test_the_stack_gets_them(void **state)
{
	sy_socket_options_init(&o);
	pair_connect(1);
	struct connection *c = connection_of(pair.server, pair.to[0]);
	set(IPPROTO_TCP, TCP_KEEPIDLE, 50);
	set(IPPROTO_TCP, TCP_NODELAY, 1);
	set(IPPROTO_IP, IP_TOS, 0x20);
	sy_socket_options_apply(&o, pair.server, pair.to[0], pair.now);
	assert_true(c->flags & C_NO_DELAY);
	assert_int_equal(c->tos, 0x20);
	assert_int_equal(c->keepalive_s, 0); /* SO_KEEPALIVE is off */
	set(SOL_SOCKET, SO_KEEPALIVE, 1);
	sy_socket_option_apply(&o, SOL_SOCKET, SO_KEEPALIVE, pair.server, pair.to[0], pair.now);
	assert_int_equal(c->keepalive_s, 50);
	set(IPPROTO_TCP, TCP_NODELAY, 0);
	sy_socket_option_apply(&o, IPPROTO_TCP, TCP_NODELAY, pair.server, pair.to[0], pair.now);
	assert_false(c->flags & C_NO_DELAY);
	sy_socket_option_apply(&o, SOL_SOCKET, SO_REUSEADDR, pair.server, pair.to[0], pair.now);
}

static int setup(void **state)
{
	sy_socket_options_init(&o);
	return 0;
}

#define CASE(name) cmocka_unit_test_setup(test_##name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(limits),   CASE(flags), CASE(what_is_no_option),        CASE(linger),
	        CASE(timeouts), CASE(rate),  PAIR_TEST(the_stack_gets_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
