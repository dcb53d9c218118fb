// SPDX-License-Identifier: Apache-2.0
/* Sessions continue across a crash, a stop and a hand-over. Those that cannot continue end with a
 * specific result. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "flows.h"

#define FLOWS  40
#define TICKET 0x1234

enum end { CRASH, STOP, HAND_OVER };

/* Ends one forwarder and starts the next. */
static void restart(struct flows *f, enum end end, unsigned workers)
{
	f->options.workers = workers;
	f->options.ticket = end == HAND_OVER ? TICKET : 0;
	if (end == CRASH)
		harness_crash(&f->harness);
	else
		harness_stop(&f->harness, f->options.ticket);
	flows_open(f);
}

static void open_all(struct flows *f, struct flow flow[FLOWS])
{
	for (unsigned i = 0; i < FLOWS; i++)
		flow_open(f, &flow[i], i % FLOW_SERVICES, (uint16_t)(1000 + i));
}

static void check_all(struct flows *f, const struct flow flow[FLOWS])
{
	for (unsigned i = 0; i < FLOWS; i++)
		flow_check(f, &flow[i]);
	flows_check_active(f, FLOWS);
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		for (unsigned i = 0; i < FLOW_SERVERS; i++)
			assert_int_equal(flows_active(f, s, &f->server[s][i]),
			                 FLOWS / FLOW_SERVICES / FLOW_SERVERS);
}

/* Every way of ending, with one worker and two, and with one adopting thread and two. */
static void test_goes_on(void **state)
{
	static const enum session_source source[] = {
	        [CRASH] = SESSION_SOURCE_CRASHED,
	        [STOP] = SESSION_SOURCE_STOPPED,
	        [HAND_OVER] = SESSION_SOURCE_HANDED_OVER,
	};
	struct flows *f = *state;
	struct flow flow[FLOWS], more;
	open_all(f, flow);
	check_all(f, flow);
	for (unsigned cycle = 0; cycle < 12; cycle++) {
		enum end end = cycle % 3;
		flows_advance(f, 3);
		f->options.adopters = 1 + cycle % 2;
		restart(f, end, 1 + cycle / 3 % 2);
		assert_int_equal(inspect_found(f->harness.b)->source, source[end]);
		assert_int_equal(flows_result(f, SESSION_KEPT), FLOWS);
		assert_int_equal(harness_totals(&f->harness).created, 0);
		check_all(f, flow);
		flow_open(f, &more, cycle % FLOW_SERVICES, (uint16_t)(2000 + cycle));
		flow_check(f, &more);
		struct session *s = flow_session(f, &more); /* expires soon */
		s->state = more.client.proto == SY_PROTO_TCP ? SESSION_RESET : SESSION_UDP_ONE_WAY;
		flows_advance(f, 33);
		check_all(f, flow);
	}
	flows_advance(f, 901);
	flows_check_active(f, 0);
}

/* Killed while it adopts or earlier: the next forwarder finds the same sessions. */
static void test_failed_start(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct sy_balance *b;
	struct sy_error err;
	const struct sy_balance_options o = {.sessions = 64 * SY_SLOTS,
	                                     .store_directory = f->store,
	                                     .store_name = "harness",
	                                     .max_services = 1024,
	                                     .max_servers = 4096};
	open_all(f, flow);
	harness_crash(&f->harness);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(sy_balance_create(&o, &b, &err), 0);
		sy_balance_destroy(b);
	}
	flows_pass(f, 5);
	flows_open(f);
	harness_crash(&f->harness);
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_KEPT), FLOWS);
	check_all(f, flow);
}

/* A first start that fails leaves no memory allocated; nor does one that had nothing to adopt. */
static void test_failed_first_start(void **state)
{
	struct flows *f = *state;
	char path[96];
	snprintf(path, sizeof(path), "%s/harness", f->store);
	assert_int_equal(access(path, F_OK), 0);
	harness_crash(&f->harness);
	assert_int_equal(access(path, F_OK), -1);
	flows_open(f);
	assert_int_equal(inspect_found(f->harness.b)->source, SESSION_SOURCE_NEW);
}

/* Time counts while no forwarder runs, with each state's own timeout. */
static void test_expired(void **state)
{
	struct flows *f = *state;
	struct flow syn, udp, kept[2];
	flow_begin(f, &syn, 0, 1000);    /* 10 s */
	flow_begin(f, &udp, 1, 1001);    /* 30 s */
	flow_open(f, &kept[0], 2, 1002); /* 900 s */
	flow_open(f, &kept[1], 3, 1003); /* 300 s */
	flows_advance(f, 6);
	harness_crash(&f->harness);
	flows_pass(f, 6);
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_EXPIRED), 1);
	assert_null(flow_session(f, &syn));
	assert_non_null(flow_session(f, &udp));
	flows_check_active(f, 3);
	harness_stop(&f->harness, 0);
	flows_pass(f, 25);
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_EXPIRED), 1);
	assert_null(flow_session(f, &udp));
	assert_int_equal(flows_result(f, SESSION_KEPT), 2);
	flow_check(f, &kept[0]);
	flow_check(f, &kept[1]);
	flows_check_active(f, 2);
	harness_crash(&f->harness);
	flows_pass(f, 100000); /* more than ticks can represent */
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_EXPIRED), 2);
	flows_check_active(f, 0);
}

/* Records that no forwarder has written. */
static void test_damaged(void **state)
{
	struct flows *f = *state;
	struct flow flow[6];
	for (unsigned i = 0; i < 6; i++)
		flow_open(f, &flow[i], i % FLOW_SERVICES, (uint16_t)(1000 + i));
	flow_session(f, &flow[0])->state = SESSION_UDP_ONE_WAY; /* a TCP session */
	flow_session(f, &flow[1])->client_port ^= 1;            /* contradicts its commit word */
	flow_session(f, &flow[2])->state = SESSION_STATES;
	harness_crash(&f->harness);
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_TORN), 3);
	assert_int_equal(flows_result(f, SESSION_KEPT), 3);
	for (unsigned i = 3; i < 6; i++)
		flow_check(f, &flow[i]);
	flows_check_active(f, 3);
}

/* With larger tables, and with fewer servers. */
static void test_resized(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	open_all(f, flow);
	f->options.sessions = 256 * SY_SLOTS;
	restart(f, CRASH, 1);
	assert_true(inspect_found(f->harness.b)->resized);
	check_all(f, flow);
	f->options.max_servers = 16;
	restart(f, STOP, 2);
	assert_true(inspect_found(f->harness.b)->resized);
	check_all(f, flow);
	f->options.sessions = 64 * SY_SLOTS;
	restart(f, HAND_OVER, 1); /* validated despite the hand-over */
	assert_int_equal(inspect_found(f->harness.b)->source, SESSION_SOURCE_STOPPED);
	check_all(f, flow);
}

/* ---- hand-over ------------------------------------------------------------------------------- */

/* Sessions refer to the next hops of two processes ago: the file is validated instead of
 * trusted. */
static void test_hand_over_at_once(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	open_all(f, flow);
	restart(f, HAND_OVER, 1);
	assert_int_equal(inspect_found(f->harness.b)->source, SESSION_SOURCE_HANDED_OVER);
	restart(f, HAND_OVER, 2);
	assert_int_equal(inspect_found(f->harness.b)->source, SESSION_SOURCE_STOPPED);
	check_all(f, flow);
	restart(f, HAND_OVER, 2); /* validated sessions refer to no predecessor's next hop */
	assert_int_equal(inspect_found(f->harness.b)->source, SESSION_SOURCE_HANDED_OVER);
	for (unsigned i = 0; i < FLOWS; i++)
		assert_true(sy_path_is_stale(f->harness.rt, flow_session(f, &flow[i])->path));
	check_all(f, flow);
	for (unsigned i = 0; i < FLOWS; i++)
		assert_false(sy_path_is_stale(f->harness.rt, flow_session(f, &flow[i])->path));
}

/* Changes accepted while snapshots are suspended reach the successor through the journal. */
static void test_hand_over_changes(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES], more[2];
	struct changes c = {0};
	struct sy_addr added = harness_addr("10.0.0.77");
	for (unsigned i = 0; i < FLOW_SERVICES; i++)
		flow_open(f, &flow[i], i, (uint16_t)(1000 + i));
	sy_balance_hold_snapshots(f->harness.b, true);
	delete_server(&c, &f->service[1], &f->server[1][0], 5353);
	put_server(&c, &f->service[0], &added, 8080, 1, FLOW_UP);
	flows_commit(f, &c);
	uint32_t freed = inspect_model(f->harness.b)->server_ids.count;
	flows_advance(f, 5);
	/* no id is freed meanwhile: the successor may have read its name */
	assert_int_equal(inspect_model(f->harness.b)->server_ids.count, freed);
	uint16_t port = 2000;
	do {
		flow_open(f, &more[0], 0, port++);
	} while (!sy_addr_equal(&more[0].server.src, &added));
	restart(f, HAND_OVER, 1);
	assert_int_equal(inspect_found(f->harness.b)->source, SESSION_SOURCE_HANDED_OVER);
	assert_int_equal(inspect_model(f->harness.b)->revision, 2);
	flow_check(f, &flow[0]);
	flow_check(f, &more[0]);
	flow_open(f, &more[1], 1, 3000);
	assert_int_not_equal(more[1].server_id, flow[1].server_id);
}

/* A sealed balancer refuses requests and commits with a reason. */
static void test_sealed(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	Steelyard__Forwarder__V1__StatusRequest status =
	        STEELYARD__FORWARDER__V1__STATUS_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	struct changes c = {0};
	flow_open(f, &flow, 0, 1000);
	sy_balance_seal(f->harness.b, 0);
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_STATUS;
	q.status = &status;
	pb_response *response = harness_request(&f->harness, &q);
	assert_non_null(response->error);
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	delete_service(&c, &f->service[0]);
	assert_false(harness_commit(&f->harness, &c));
	harness_attend(&f->harness);
	assert_int_equal(harness_totals(&f->harness).live, 1);
	harness_close(&f->harness);
	flows_open(f);
	flow_check(f, &flow);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, flows_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_goes_on),
	        TEST(test_failed_start),
	        TEST(test_failed_first_start),
	        TEST(test_expired),
	        TEST(test_damaged),
	        TEST(test_resized),
	        TEST(test_hand_over_at_once),
	        TEST(test_hand_over_changes),
	        TEST(test_sealed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
