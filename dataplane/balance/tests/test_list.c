// SPDX-License-Identifier: Apache-2.0
/* Session lists: across all pages each session appears once, with every filter. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

/* More than one request scans, and more in a slot than a worker copies at a time. */
#define MANY 40000
#define FEW  300 /* of another family */
#define UDP4 1   /* services of flows.h */
#define TCP6 2
#define UDP6 3

typedef Steelyard__Forwarder__V1__ListSessionsRequest pb_list;

static void sessions_make(struct flows *f)
{
	struct flow flow;
	f->options.sessions = 4 * MANY; /* half of it for unanswered ones */
	flows_reopen(f, 1, 0, false);
	for (unsigned n = 0; n < MANY; n++)
		flow_begin(f, &flow, UDP4, (uint16_t)(n + 1));
	for (unsigned n = 0; n < FEW; n++)
		flow_begin(f, &flow, UDP6, (uint16_t)(n + 1));
}

/* The result: clients' ports by family, and the number of pages. */
struct found {
	bool port[2][MANY + 1]; /* [1]: IPv6 */
	unsigned count[2], pages;
};

static void session_note(struct found *found, const Steelyard__Forwarder__V1__Session *s)
{
	unsigned v6 = s->client.len == 16;
	assert_in_range(s->client_port, 1, MANY);
	assert_false(found->port[v6][s->client_port]); /* once */
	assert_int_equal(s->vport, 53);
	found->port[v6][s->client_port] = true;
	found->count[v6]++;
}

/* Fetches all pages of a list. */
static struct found *list(struct flows *f, pb_list *ask)
{
	static struct found found;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	found = (struct found){0};
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SESSIONS;
	q.list_sessions = ask;
	do {
		uint64_t before = ask->cursor;
		pb_response *response = harness_request(&f->harness, &q);
		assert_null(response->error);
		const Steelyard__Forwarder__V1__SessionList *l = response->list_sessions;
		assert_in_range(l->n_sessions, 0, ask->limit ? ask->limit : 1000);
		for (size_t i = 0; i < l->n_sessions; i++)
			session_note(&found, l->sessions[i]);
		ask->cursor = l->next_cursor;
		assert_true(ask->cursor == 0 || ask->cursor > before);
		found.pages++;
		steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	} while (ask->cursor);
	return &found;
}

static void client_set(pb_list *ask, uint8_t bytes[16], const char *client)
{
	struct sy_addr addr = harness_addr(client);
	ask->client.len = sy_addr_to_bytes(&addr, bytes);
	ask->client.data = bytes;
}

static void test_pages(void **state)
{
	struct flows *f = *state;
	pb_list ask = STEELYARD__FORWARDER__V1__LIST_SESSIONS_REQUEST__INIT;
	uint8_t bytes[16];
	sessions_make(f);

	const struct found *found = list(f, &ask);
	assert_int_equal(found->count[0], MANY);
	assert_int_equal(found->count[1], FEW);
	assert_in_range(found->pages, (MANY + FEW) / 1000, (MANY + FEW) / 1000 + 2);
	ask.limit = 7;
	client_set(&ask, bytes, "2001:db8:c::1");
	found = list(f, &ask);
	assert_int_equal(found->count[0], 0);
	assert_int_equal(found->count[1], FEW);
	/* a client with no session: one page does not wait until all records were scanned */
	client_set(&ask, bytes, "198.18.0.2");
	found = list(f, &ask);
	assert_int_equal(found->count[0] + found->count[1], 0);
	assert_int_equal(found->pages, 2);
}

/* Sends one request; returns the number of its sessions, or the error's code. */
static size_t list_count(struct flows *f, pb_list *ask)
{
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SESSIONS;
	q.list_sessions = ask;
	pb_response *response = harness_request(&f->harness, &q);
	size_t count = response->error ? 1000 + response->error->code
	                               : response->list_sessions->n_sessions;
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return count;
}

/* Sessions of a client's network, and those whose client has completed a handshake. */
static void test_network_and_validated(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	pb_list ask = STEELYARD__FORWARDER__V1__LIST_SESSIONS_REQUEST__INIT;
	uint8_t bytes[16];
	flow_begin(f, &flow, TCP6, 1); /* half open */
	client_set(&ask, bytes, "2001:db8:c:ffff::");
	assert_int_equal(list_count(f, &ask), 0);
	ask.client_bits = 48;
	assert_int_equal(list_count(f, &ask), 1);
	ask.client_bits = 64;
	assert_int_equal(list_count(f, &ask), 0);
	ask.client_bits = 48;
	ask.validated = true;
	assert_int_equal(list_count(f, &ask), 0);
	flow_open(f, &flow, TCP6, 2);
	assert_int_equal(list_count(f, &ask), 1);
	ask.validated = false;
	assert_int_equal(list_count(f, &ask), 2);
	ask.client_bits = 129;
	assert_int_equal(list_count(f, &ask), 1000 + STEELYARD__FORWARDER__V1__CODE__CODE_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_pages, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_network_and_validated, flows_setup,
	                                        flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
