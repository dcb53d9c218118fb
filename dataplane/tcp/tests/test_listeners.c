// SPDX-License-Identifier: Apache-2.0
/* Thousands of listeners: each finds its connections and is reported, also in a reused slot. */
#include <arpa/inet.h>
#include <errno.h>

#include "script.h"

#define MS        UINT64_C(1000000)
#define LISTENERS 3000 /* no power of two */
#define FIRST     5000 /* port */
#define BURST     64
#define ACCEPTED  LISTENERS /* the cookie of a connection */

static struct sy_stack *server, *client;
static struct sy_stack_endpoint here, there;
static sy_stack_id listener[LISTENERS];

static void stacks_open(void)
{
	const struct sy_stack_options o = {
	        .pool = tests_pool(), .connections = 2 * LISTENERS, .listeners = LISTENERS};

	here = there = (struct sy_stack_endpoint){0};
	sy_addr_parse("10.0.0.1", &here.addr);
	sy_addr_parse("10.0.0.2", &there.addr);
	assert_int_equal(sy_stack_create(&o, MS, &server, NULL), 0);
	assert_int_equal(sy_stack_create(&o, MS, &client, NULL), 0);
}

static void stacks_close(void)
{
	sy_stack_destroy(server);
	sy_stack_destroy(client);
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

static int listen_at(unsigned number, uint64_t cookie)
{
	there.port = htons((uint16_t)(FIRST + number));
	return sy_stack_listen(server, &there, 4, cookie, &listener[number]);
}

static void connect_to(unsigned number)
{
	sy_stack_id id;

	there.port = htons((uint16_t)(FIRST + number));
	assert_int_equal(sy_stack_connect(client, &here, &there, 0, MS, &id), 0);
	while (bring(client, server) | bring(server, client))
		;
}

/* Accepts the connections of all events, and returns how many there are. */
static unsigned events_accept(void)
{
	struct sy_stack_event e[7];
	unsigned count, all = 0;

	while ((count = sy_stack_events(server, e, 7)) > 0)
		for (unsigned i = 0; i < count; i++) {
			struct sy_stack_info info;
			sy_stack_id id;
			if (e[i].cookie == ACCEPTED)
				continue;
			assert_int_equal(sy_stack_accept(server, e[i].id, ACCEPTED, NULL, &id), 0);
			assert_int_equal(sy_stack_info(server, id, &info), 0);
			assert_int_equal(ntohs(info.local.port), FIRST + e[i].cookie);
			all++;
		}
	return all;
}

static void test_each_finds_its_connections(void **state)
{
	stacks_open();
	for (unsigned i = 0; i < LISTENERS; i++)
		assert_int_equal(listen_at(i, i), 0);
	there.port = htons(80);
	sy_stack_id none;
	assert_int_equal(sy_stack_listen(server, &there, 4, 0, &none), -ENOMEM);
	assert_int_equal(listen_at(1, 1), -EADDRINUSE);
	for (unsigned i = 0; i < LISTENERS; i++)
		connect_to(i);
	assert_int_equal(events_accept(), LISTENERS);
	assert_int_equal(events_accept(), 0);
	stacks_close();
}

/* Half of them end while their connections are pending; others take their slots. */
static void test_reused_slots(void **state)
{
	uint64_t resets;

	stacks_open();
	for (unsigned i = 0; i < LISTENERS; i++)
		assert_int_equal(listen_at(i, i), 0);
	for (unsigned i = 0; i < LISTENERS; i++)
		connect_to(i);
	for (unsigned i = 0; i < LISTENERS; i += 2)
		sy_stack_close(server, listener[i], MS);
	for (unsigned i = 0; i < LISTENERS; i += 4)
		assert_int_equal(listen_at(i, i), 0);
	assert_int_equal(events_accept(), LISTENERS / 2);

	while (bring(client, server) | bring(server, client))
		;
	resets = sy_stack_counters(server)->resets_out;
	for (unsigned i = 0; i < LISTENERS; i += 2)
		connect_to(i);
	assert_int_equal(events_accept(), LISTENERS / 4);
	assert_int_equal(sy_stack_counters(server)->resets_out - resets, LISTENERS / 4);
	stacks_close();
}

static void test_ports_in_use(void **state)
{
	sy_stack_id id;

	stacks_open();
	assert_int_equal(listen_at(0, 0), 0);
	there.port = htons(FIRST);
	assert_false(sy_stack_uses_port(server, there.port));
	connect_to(0);
	connect_to(0);
	assert_int_equal(sy_stack_accept(server, listener[0], ACCEPTED, NULL, &id), 0);
	assert_true(sy_stack_uses_port(server, there.port));
	sy_stack_close(server, listener[0], MS); /* resets the other one */
	assert_true(sy_stack_uses_port(server, there.port));
	sy_stack_abort(server, id, MS);
	assert_false(sy_stack_uses_port(server, there.port));
	stacks_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_each_finds_its_connections),
	        cmocka_unit_test(test_reused_slots),
	        cmocka_unit_test(test_ports_in_use),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
