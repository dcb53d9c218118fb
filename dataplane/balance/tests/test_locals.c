// SPDX-License-Identifier: Apache-2.0
/* Under FNAT all sessions of a client come from one local address (RFC 4787 REQ-2): with any
 * server, service and protocol, and after a restart. Clients are spread over all addresses. New
 * sessions do not use addresses of peers. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"
#include "inspect.h"

#define LOCALS  8 /* of each family, with the fixture's own */
#define CLIENTS 200

static const char *const local_text[2][LOCALS - 1] = {
        {"10.1.0.201", "10.1.0.202", "10.1.0.203", "10.1.0.204", "10.1.0.205", "10.1.0.206",
         "10.1.0.207"},
        {"2001:db8:e::201", "2001:db8:e::202", "2001:db8:e::203", "2001:db8:e::204",
         "2001:db8:e::205", "2001:db8:e::206", "2001:db8:e::207"},
};

static int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	for (unsigned v6 = 0; v6 < 2; v6++)
		for (unsigned i = 0; i < LOCALS - 1; i++) {
			const struct sy_addr local = harness_addr(local_text[v6][i]);
			put_local(&c, &local);
		}
	flows_commit(*state, &c);
	return rc;
}

/* Begins a session of client n, and returns its local address. */
static struct sy_addr begin(struct flows *f, struct flow *flow, unsigned n, unsigned service,
                            uint16_t port)
{
	f->client = n;
	flow_begin(f, flow, service, port);
	return flow->server.dst;
}

static void test_one_address_per_client(void **state)
{
	struct flows *f = *state;
	struct sy_addr home[2][CLIENTS];
	struct flow flow;
	uint16_t port = 1024;
	for (unsigned cycle = 0; cycle < 2; cycle++) {
		for (unsigned n = 0; n < CLIENTS; n++)
			for (unsigned i = 0; i < 3 * FLOW_SERVICES; i++) {
				const unsigned service = i % FLOW_SERVICES, v6 = service / 2;
				struct sy_addr local = begin(f, &flow, n, service, port++);
				if (cycle == 0 && i == 2 * v6)
					home[v6][n] = local;
				assert_memory_equal(&local, &home[v6][n], sizeof(local));
			}
		if (cycle == 0)
			flows_reopen(f, 2, 0, true);
	}
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct sy_addr seen[LOCALS];
		unsigned clients[LOCALS] = {0}, count = 0;
		for (unsigned n = 0; n < CLIENTS; n++) {
			unsigned i = 0;
			while (i < count && !sy_addr_equal(&seen[i], &home[v6][n]))
				i++;
			if (i == count) {
				assert_true(count < LOCALS);
				seen[count++] = home[v6][n];
			}
			clients[i]++;
		}
		assert_int_equal(count, LOCALS);
		for (unsigned i = 0; i < LOCALS; i++)
			assert_in_range(clients[i], 5, 60); /* 25 on average */
	}
}

/* Another address gets clients of all others, and moves no others. */
static void test_few_move(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct sy_addr home[CLIENTS];
	const struct sy_addr more = harness_addr("10.1.0.220");
	struct flow flow;
	unsigned moved = 0;
	for (unsigned n = 0; n < CLIENTS; n++)
		home[n] = begin(f, &flow, n, 0, 2000);
	put_local(&c, &more);
	flows_commit(f, &c);
	for (unsigned n = 0; n < CLIENTS; n++) {
		struct sy_addr local = begin(f, &flow, n, 0, 2001);
		if (sy_addr_equal(&local, &home[n]))
			continue;
		assert_memory_equal(&local, &more, sizeof(more));
		moved++;
	}
	assert_in_range(moved, 5, 60); /* 22 on average */
	delete_local(&c, &more);
	flows_commit(f, &c);
	for (unsigned n = 0; n < CLIENTS; n++) {
		struct sy_addr local = begin(f, &flow, n, 0, 2002);
		assert_memory_equal(&local, &home[n], sizeof(local));
	}
}

/* Returns the number of addresses of peers in the configuration. */
static unsigned count_of_peers(struct flows *f)
{
	Steelyard__Forwarder__V1__GetConfigRequest get =
	        STEELYARD__FORWARDER__V1__GET_CONFIG_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	unsigned count = 0;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_GET_CONFIG;
	q.get_config = &get;
	pb_response *r = harness_request(&f->harness, &q);
	assert_null(r->error);
	for (size_t i = 0; i < r->get_config->n_local_addresses; i++)
		count += r->get_config->local_addresses[i]->of_peer;
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
	return count;
}

/* Sessions of an address continue when it becomes a peer's, also after a restart; new ones use the
 * others. */
static void test_of_peer(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	const struct sy_addr peer = harness_addr("10.1.0.230");
	struct flow old, flow;
	f->client = 1;
	flow_open(f, &old, 0, 3000);
	const struct sy_addr moved = old.server.dst;
	put_peer_local(&c, &moved);
	put_peer_local(&c, &peer);
	flows_commit(f, &c);
	for (unsigned cycle = 0; cycle < 3; cycle++) {
		assert_int_equal(count_of_peers(f), 2);
		assert_int_equal(inspect_locals(f->harness.b, true)->count, LOCALS - 1);
		flow_check(f, &old);
		for (unsigned n = 0; n < CLIENTS; n++) {
			const struct sy_addr local =
			        begin(f, &flow, n, 0, (uint16_t)(3001 + cycle));
			assert_false(sy_addr_equal(&local, &moved) || sy_addr_equal(&local, &peer));
		}
		if (cycle < 2) /* first from the journal, then from a snapshot */
			flows_reopen(f, 1, cycle, cycle == 0);
	}
	put_local(&c, &moved);
	flows_commit(f, &c);
	assert_int_equal(count_of_peers(f), 1);
	const struct sy_addr again = begin(f, &flow, 1, 0, 3005);
	assert_memory_equal(&again, &moved, sizeof(moved));
	flow_check(f, &old);
}

/* Servers need an own address, not a peer's. */
static void test_last_own(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	for (unsigned i = 0; i < LOCALS - 1; i++) {
		const struct sy_addr local = harness_addr(local_text[0][i]);
		put_peer_local(&c, &local);
	}
	put_peer_local(&c, &f->local[0]);
	flows_check_refused(f, &c, "no IPv4 local address");
	assert_int_equal(count_of_peers(f), 0);
	assert_int_equal(inspect_locals(f->harness.b, true)->count, LOCALS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(one_address_per_client),
	        TEST(few_move),
	        TEST(of_peer),
	        TEST(last_own),
	};
	return cmocka_run_group_tests_name("local addresses", tests, NULL, NULL);
}
