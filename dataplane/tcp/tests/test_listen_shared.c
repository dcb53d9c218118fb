// SPDX-License-Identifier: Apache-2.0
/* Several listeners at one port (Linux's SO_REUSEPORT): sy_stack_listen_shared(). */
#include <arpa/inet.h>
#include <errno.h>

#include "pair.h"

#define SHARING 3
#define ROUNDS  (4 * PAIR_MAX) /* connections, in groups of PAIR_MAX */

static struct sy_stack_endpoint from, to, any;

static void endpoints_set(void)
{
	from = (struct sy_stack_endpoint){0};
	to = (struct sy_stack_endpoint){.port = htons(90)};
	any = (struct sy_stack_endpoint){.port = htons(90)};
	sy_addr_parse("10.0.0.1", &from.addr);
	sy_addr_parse("10.0.0.2", &to.addr);
}

/* Opens ROUNDS connections, and counts by listener those that it accepts. */
static unsigned connections_count(const sy_stack_id *listener, unsigned accepted[SHARING])
{
	unsigned all = 0;

	memset(accepted, 0, SHARING * sizeof(*accepted));
	for (unsigned i = 0; i < ROUNDS; i++) {
		sy_stack_id client, server;
		assert_int_equal(sy_stack_connect(pair.client, &from, &to, 0, pair.now, &client),
		                 0);
		pair_settle();
		for (unsigned l = 0; l < SHARING; l++) {
			if (!listener[l] ||
			    sy_stack_accept(pair.server, listener[l], 0, NULL, &server))
				continue;
			accepted[l]++;
			all++;
			sy_stack_abort(pair.server, server, pair.now);
		}
		pair_settle();
		sy_stack_abort(pair.client, client, pair.now);
	}
	return all;
}

static void test_each_listener_gets_its_share(void **state)
{
	sy_stack_id listener[SHARING], other;
	unsigned accepted[SHARING];

	endpoints_set();
	for (unsigned l = 0; l < SHARING; l++)
		assert_int_equal(
		        sy_stack_listen_shared(pair.server, &to, PAIR_MAX, 1, &listener[l]), 0);
	assert_int_equal(sy_stack_listen_shared(pair.server, &any, 4, 1, &other), 0);
	assert_int_equal(connections_count(listener, accepted), ROUNDS);
	for (unsigned l = 0; l < SHARING; l++)
		assert_in_range(accepted[l], ROUNDS / SHARING / 2, ROUNDS);

	sy_stack_close(pair.server, listener[1], pair.now);
	listener[1] = 0;
	assert_int_equal(connections_count(listener, accepted), ROUNDS);
	assert_in_range(accepted[0], ROUNDS / 4, ROUNDS);
	assert_in_range(accepted[2], ROUNDS / 4, ROUNDS);

	sy_stack_close(pair.server, listener[0], pair.now);
	listener[0] = 0;
	assert_int_equal(connections_count(listener, accepted), ROUNDS);
	assert_int_equal(accepted[2], ROUNDS);
	sy_stack_close(pair.server, listener[2], pair.now);
	sy_stack_close(pair.server, other, pair.now);
}

static void test_only_listeners_that_share_do(void **state)
{
	sy_stack_id one, two;

	endpoints_set();
	assert_int_equal(sy_stack_listen_shared(pair.server, &to, 4, 1, &one), 0);
	assert_int_equal(sy_stack_listen(pair.server, &to, 4, 1, &two), -EADDRINUSE);
	sy_stack_close(pair.server, one, pair.now);
	assert_int_equal(sy_stack_listen(pair.server, &to, 4, 1, &one), 0);
	assert_int_equal(sy_stack_listen_shared(pair.server, &to, 4, 1, &two), -EADDRINUSE);
	sy_stack_close(pair.server, one, pair.now);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        PAIR_TEST(each_listener_gets_its_share),
	        PAIR_TEST(only_listeners_that_share_do),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
