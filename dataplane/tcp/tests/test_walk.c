// SPDX-License-Identifier: Apache-2.0
/* What `steelyard stack connections` shows: each listener and connection, once. */
#include <arpa/inet.h>

#include "script.h"

#define MS          UINT64_C(1000000)
#define CONNECTIONS 2500 /* more than a walk looks at in one go */
#define BURST       64
#define PIECE       100

static struct sy_stack *server, *client;

static struct sy_stack *stack_open(void)
{
	const struct sy_stack_options o = {.pool = tests_pool(), .connections = CONNECTIONS};
	struct sy_stack *s;

	assert_int_equal(sy_stack_create(&o, MS, &s, NULL), 0);
	return s;
}

static bool bring(struct sy_stack *from, struct sy_stack *to)
{
	struct rte_mbuf *m[BURST];
	unsigned count, all = 0;

	while ((count = sy_stack_transmit(from, m, BURST, MS)) > 0) {
		sy_stack_receive(to, m, count, MS);
		all += count;
	}
	return all > 0;
}

static void settle(void)
{
	while (bring(client, server) | bring(server, client))
		;
}

/* How often each port of the client's was seen; index 0: listeners. */
static unsigned walk(unsigned seen[UINT16_MAX + 1], enum sy_stack_state state)
{
	struct sy_stack_info info[PIECE];
	uint32_t at = 0;
	unsigned all = 0;

	memset(seen, 0, (UINT16_MAX + 1) * sizeof(*seen));
	do {
		unsigned count = sy_stack_walk(server, &at, info, PIECE);
		assert_in_range(count, 0, PIECE);
		for (unsigned i = 0; i < count; i++) {
			assert_int_equal(info[i].state,
			                 info[i].peer.port ? state : SY_STACK_LISTEN);
			seen[ntohs(info[i].peer.port)]++;
		}
		all += count;
	} while (at);
	return all;
}

static void test_each_once(void **state)
{
	static unsigned seen[UINT16_MAX + 1];
	static sy_stack_id id[CONNECTIONS];
	struct sy_stack_endpoint here = {.port = 0}, there = {.port = htons(80)}, other = there;
	struct sy_stack_info info;
	uint32_t at = 0;
	sy_stack_id listener;

	server = stack_open();
	client = stack_open();
	sy_addr_parse("10.0.0.1", &here.addr);
	sy_addr_parse("10.0.0.2", &there.addr);
	other.port = htons(81);
	assert_int_equal(sy_stack_listen(server, &there, CONNECTIONS, 0, &listener), 0);
	assert_int_equal(sy_stack_listen(server, &other, 4, 0, &id[0]), 0);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		assert_int_equal(sy_stack_connect(client, &here, &there, 0, MS, &id[i]), 0);
		if (i % BURST == 0)
			settle();
	}
	settle();
	/* Not accepted. */
	assert_int_equal(sy_stack_walk(server, &at, &info, 1), 1);
	assert_int_equal(info.unread, CONNECTIONS);
	assert_int_equal(info.unsent, CONNECTIONS);
	assert_int_equal(info.local.port, htons(80));
	assert_int_equal(walk(seen, SY_STACK_ESTABLISHED), CONNECTIONS + 2);
	assert_int_equal(seen[0], 2);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		sy_stack_info(client, id[i], &info);
		assert_int_equal(seen[ntohs(info.local.port)], 1);
	}
	/* Places of those that are gone are passed over. */
	for (unsigned i = 0; i < CONNECTIONS - 1; i++) {
		sy_stack_abort(client, id[i], MS);
		settle();
	}
	assert_int_equal(walk(seen, SY_STACK_ESTABLISHED), 1 + 2);
	sy_stack_destroy(server);
	sy_stack_destroy(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_once)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
