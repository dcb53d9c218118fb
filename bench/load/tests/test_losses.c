// SPDX-License-Identifier: Apache-2.0
/* Failures: each lost request has its cause, and the clients continue. */
#include <errno.h>

#include "load_world.h"

static void test_refused(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.requests = 16;
	world_run(&w, false);
	const struct client_counts *n = client_counts(w.client);
	assert_int_equal(client_connect_error(w.client), ECONNREFUSED);
	assert_int_equal(n->connect, 16);
	assert_int_equal(n->opened, 0);
	assert_int_equal(n->open_failed, 8 * 3 + 16);
	assert_int_equal(measured(&w), 0);
	world_close(&w);
}

/* Eight connections with ports for four: connecting fails immediately. The others retry. */
static void no_ports(bool open, uint32_t each)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	sy_stack_destroy(w.s[0]);
	w.s[0] = stack_of_ports(5000, 5000); /* of each of four sources */
	w.o.open = open;
	w.o.rate = open ? 1000 : 0;
	w.o.each = each;
	w.o.depth = 2;
	w.o.requests = 500;
	world_run(&w, true);
	const struct client_counts *n = client_counts(w.client);
	assert_true(n->connect > 0 && n->open_failed > 0);
	assert_true(n->answered > 0);
	assert_int_equal(n->answered + n->connect, 500);
	world_close(&w);
}

static void test_no_ports(void **state)
{
	for (uint32_t each = 1; each <= 3; each++) {
		no_ports(false, each);
		no_ports(true, each);
	}
}

/* A server without responses that closes idle connections from `from` on. */
static void world_run_impatient(struct world *w, uint64_t from)
{
	struct sy_stack_endpoint local = server_at();
	sy_stack_id listener, id[64];
	unsigned ids = 0;
	const void *bytes;

	assert_int_equal(sy_stack_listen(w->s[1], &local, 64, 0, &listener), 0);
	assert_int_equal(mix_complete(&w->mix, NULL), 0);
	w->client = client_new(&w->o);
	client_go(w->client);
	while (client_phase(w->client) != CLIENT_DONE) {
		for (unsigned i = 0; i < 2; i++)
			sy_stack_advance(w->s[i], w->now);
		client_poll(w->client, w->s[0], w->now);
		packets_move(w, 0);
		while (ids < SY_ARRAY_LEN(id) &&
		       sy_stack_accept(w->s[1], listener, 0, NULL, &id[ids]) == 0)
			ids++;
		for (unsigned i = ids; i-- > 0 && w->now >= from;) {
			if (sy_stack_peek(w->s[1], id[i], &bytes) > 0)
				continue;
			sy_stack_close(w->s[1], id[i], w->now);
			id[i] = id[--ids];
		}
		packets_move(w, 1);
		w->now += STEP;
		assert_true(w->now < START + 100 * SEC);
	}
}

/* While connections are opened, too: each is tried three times, and once more for its request. */
static void test_impatient_at_once(void **state)
{
	for (unsigned active = 0; active <= 8; active += 4) {
		struct world w;
		world_open(&w, PROTOCOL_RAW);
		w.o.active = active;
		w.o.requests = active ? active : 0;
		w.o.duration_ns = active ? 0 : 10 * MS;
		w.o.timeout_ns = 10 * MS;
		world_run_impatient(&w, 0);
		const struct client_counts *n = client_counts(w.client);
		/* Idle connections that were open then: every 20 ms in 100 ms of sweeping. */
		assert_in_range(n->reopened, 8 * 3, 8 * 3 + (8 - active) * 6);
		assert_in_range(n->opened, n->reopened + active, n->reopened + 8);
		assert_int_equal(n->timeout, active);
		assert_int_equal(n->connect + n->reset + n->closed + n->wrong + n->lost, 0);
		world_close(&w);
	}
}

/* Later: idle connections are reopened, but not immediately. */
static void test_impatient_later(void **state)
{
	for (unsigned open = 0; open < 2; open++) {
		struct world w;
		world_open(&w, PROTOCOL_RAW);
		w.o.connections = 2;
		w.o.active = 1;
		w.o.open = open;
		w.o.rate = open ? 1000 : 0;
		w.o.requests = 1;
		w.o.timeout_ns = SEC;
		world_run_impatient(&w, START + 100 * MS);
		const struct client_counts *n = client_counts(w.client);
		assert_int_equal(n->timeout, 1);
		assert_in_range(n->opened, n->reopened + 1, n->reopened + 2);
		assert_in_range(n->reopened, 20, 50); /* in 0.9 s, each after 20 ms */
		world_close(&w);
	}
}

static void lost_and_found(bool open)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.open = open;
	w.o.rate = open ? 5000 : 0;
	w.o.depth = 2;
	w.o.duration_ns = 2 * SEC;
	w.resets_at = START + SEC;
	world_run(&w, true);
	const struct client_counts *n = client_counts(w.client);
	assert_in_range(n->reset, open ? 0 : 1, 16);
	assert_in_range(n->opened, 9, 16 + 16);
	assert_int_equal(n->closed + n->timeout + n->wrong + n->unsent, 0);
	/* After it, it goes on as before. */
	assert_true(n->answered > (open ? 9000u : 20000u));
	assert_int_equal(n->sent, n->answered + n->reset);
	world_close(&w);
}

static void test_resets(void **state)
{
	lost_and_found(false);
	lost_and_found(true);
}

/* A time-out is detected within a twentieth of its length. */
static void test_long_timeout(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.timeout_ns = 40 * SEC;
	w.o.requests = 8;
	world_run_impatient(&w, UINT64_MAX);
	const struct client_counts *n = client_counts(w.client);
	assert_int_equal(n->timeout, 8);
	assert_in_range(w.now - START, 40 * SEC, 42 * SEC + 10 * MS);
	world_close(&w);
}

static void test_timeout(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.requests = 1000;
	w.o.timeout_ns = 500 * MS;
	w.stalled_from = START + 1 * MS;
	w.stalled_until = UINT64_MAX;
	world_run(&w, true);
	const struct client_counts *n = client_counts(w.client);
	assert_true(n->timeout >= 8);
	assert_int_equal(n->answered + n->timeout + n->connect, 1000);
	world_close(&w);
}

/* An echoed raw request is no response. */
static void test_wrong(void **state)
{
	struct world w;

	world_open(&w, PROTOCOL_RAW);
	w.o.requests = 20;
	static struct sy_stack_endpoint local;
	local = server_at();
	w.server = server_new(&(struct server_options){
	        .echo = true, .local = &local, .locals = 1, .connections = 64});
	assert_int_equal(server_listen(w.server, w.s[1], NULL), 0);
	assert_int_equal(mix_complete(&w.mix, NULL), 0);
	w.client = client_new(&w.o);
	client_go(w.client);
	while (client_phase(w.client) != CLIENT_DONE) {
		for (unsigned i = 0; i < 2; i++)
			sy_stack_advance(w.s[i], w.now);
		client_poll(w.client, w.s[0], w.now);
		packets_move(&w, 0);
		while (server_poll(w.server, w.s[1], w.now))
			;
		packets_move(&w, 1);
		w.now += STEP;
	}
	assert_int_equal(client_counts(w.client)->wrong, 20);
	assert_int_equal(client_counts(w.client)->answered, 0);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_no_ports),
	        cmocka_unit_test(test_impatient_at_once),
	        cmocka_unit_test(test_impatient_later),
	        cmocka_unit_test(test_resets),
	        cmocka_unit_test(test_timeout),
	        cmocka_unit_test(test_long_timeout),
	        cmocka_unit_test(test_wrong),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
