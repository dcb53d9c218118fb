// SPDX-License-Identifier: Apache-2.0
/* Tables that grow while sessions continue, and what a crash leaves of a table that was growing. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"
#include "session_file.h"

#define RECORDS 64 /* per slot, initially */
#define FLOWS   200
#define SLOT    77

static uint16_t port_of(unsigned n)
{
	const struct sy_addr client = harness_addr("198.18.0.1");
	return ntohs(sy_slot_port(SLOT, &client, 4 + n));
}

static uint32_t capacity(const struct flows *f)
{
	return session_capacity(inspect_table(f->harness.b, SLOT));
}

static void flows_fill(struct flows *f, struct flow *flow, unsigned from, unsigned to)
{
	for (unsigned n = from; n < to; n++)
		flow_open(f, &flow[n], 0, port_of(n));
}

static void flows_go_on(struct flows *f, const struct flow *flow, unsigned count)
{
	for (unsigned n = 0; n < count; n++)
		flow_check(f, &flow[n]);
	flows_check_active(f, count);
}

/* Far more established connections than a slot held go into it. They stay unchanged through a
 * crash, a hand-over and a clean stop. */
static void a_slot_grows(void **state)
{
	struct flows *f = *state;
	static struct flow flow[FLOWS];
	assert_int_equal(capacity(f), RECORDS);
	flows_fill(f, flow, 0, FLOWS);
	assert_true(capacity(f) >= FLOWS);
	assert_int_equal(session_capacity(inspect_table(f->harness.b, SLOT + 1)), RECORDS);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_TABLE_FULL), 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SESSION_EVICTED), 0);
	flows_go_on(f, flow, FLOWS);
	for (unsigned end = 0; end < 3; end++) {
		flows_reopen(f, 1, end == 1 ? 99 : 0, end == 0);
		assert_true(capacity(f) >= FLOWS);
		flows_go_on(f, flow, FLOWS);
	}
	f->options.sessions = UINT64_C(2) * RECORDS *
	                      SY_SLOTS; /* tables of another size, and the slot as it is */
	flows_reopen(f, 1, 0, false);
	assert_int_equal(session_capacity(inspect_table(f->harness.b, SLOT + 1)), 2 * RECORDS);
	assert_true(capacity(f) >= FLOWS);
	flows_go_on(f, flow, FLOWS);
	flows_advance(f, 2); /* the old tables' space is free */
	assert_int_equal(inspect_store(f->harness.b)->left_count, 0);
}

/* A forwarder killed while a table grows leaves the table as it was. */
static void a_crash_in_growth_loses_nothing(void **state)
{
	struct flows *f = *state;
	static struct flow flow[FLOWS];
	struct sy_error err;
	for (unsigned step = 0; step < 3; step++) {
		struct session_growth g;
		unsigned count = (step + 1) * RECORDS / 4;
		flows_fill(f, flow, step * RECORDS / 4, count);
		assert_int_equal(session_grow_prepare(inspect_store(f->harness.b), SLOT, &g, &err),
		                 0);
		if (step > 0)
			session_grow_copy(inspect_table(f->harness.b, SLOT), &g);
		if (step > 1)
			assert_true(session_grow_enter(&g, 0, 1, 2));
		flows_reopen(f, 1, 0, true);
		assert_int_equal(capacity(f), RECORDS);
		flows_go_on(f, flow, count);
	}
}

/* All tables grow and use space that others released: the file stays within three times its
 * content. */
static void all_slots_grow(void **state)
{
	struct flows *f = *state;
	for (unsigned round = 0; round < 2; round++)
		for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
			struct session_growth g;
			struct sy_error err;
			if (session_grow_prepare(inspect_store(f->harness.b), (uint8_t)slot, &g,
			                         &err) != 0)
				fail_msg("%s", err.text);
			session_grow_copy(inspect_table(f->harness.b, slot), &g);
			session_grow_finish(inspect_store(f->harness.b), &g);
			session_grow_leave(inspect_store(f->harness.b), &g);
			session_grow_release(inspect_store(f->harness.b), 1);
		}
	struct flow flow;
	flow_open(f, &flow, 0, port_of(1));
	uint64_t bytes = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		bytes += session_slot_location(inspect_store(f->harness.b)->now.file, (uint8_t)slot)
		                 .lines *
		         SY_CACHE_LINE;
	assert_true(session_store_mapped(inspect_store(f->harness.b)) < 3 * bytes + (8 << 20));
	flows_reopen(f, 1, 0, true);
	assert_int_equal(capacity(f), 4 * RECORDS);
	flows_go_on(f, &flow, 1);
}

/* Tables stop growing at their limit. */
static void the_limit_holds(void **state)
{
	struct flows *f = *state;
	struct flow flow[2 * RECORDS];
	f->options.sessions_limit = (SY_SLOTS + 1) * RECORDS;
	flows_reopen(f, 1, 0, true);
	flows_fill(f, flow, 0, 2 * RECORDS);
	assert_int_equal(capacity(f), 2 * RECORDS);
	flows_advance(f, 1);
	assert_int_equal(capacity(f), 2 * RECORDS);
	flows_go_on(f, flow, 2 * RECORDS);
}

/* A SNAT session uses two records and counts once. The slot grows when an insertion has failed,
 * though the count is below the share that makes a slot nearly full. */
static void a_slot_of_pairs_grows(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	const char *pool = "192.0.2.50";
	const struct sy_addr inside = harness_addr("10.3.0.1");
	put_snat(&c, "out", "10.3.0.0", 24, &pool, 1);
	flows_commit(f, &c);
	for (unsigned n = 0; n < RECORDS / 2 + 1; n++) {
		struct sy_tuple t = {inside, harness_addr("198.18.0.9"),
		                     sy_slot_port(SLOT, &inside, 8 + n), htons(53), SY_PROTO_UDP};
		struct frame in, out;
		flows_frame(f, &in, &t, 0, 1, 10);
		assert_true(flows_through(f, HARNESS_LAN, &in, &out));
	}
	flows_advance(f, 1);
	assert_true(session_count(inspect_table(f->harness.b, SLOT)) <= RECORDS / 2);
	assert_int_equal(capacity(f), 2 * RECORDS);
}

/* A successor has mapped the file and relies on where tables are. */
static void nothing_grows_during_an_upgrade(void **state)
{
	struct flows *f = *state;
	static struct flow flow[RECORDS];
	sy_balance_hold_snapshots(f->harness.b, true);
	flows_fill(f, flow, 0, RECORDS);
	assert_int_equal(capacity(f), RECORDS);
	sy_balance_hold_snapshots(f->harness.b, false);
	flows_advance(f, 1);
	assert_int_equal(capacity(f), 2 * RECORDS);
	flows_go_on(f, flow, RECORDS);
}

static int setup(void **state)
{
	int rc = flows_setup(state);
	struct flows *f = *state;
	f->options.sessions_limit = UINT64_C(16) * RECORDS * SY_SLOTS;
	flows_reopen(f, 1, 0, true);
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(a_slot_grows, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(a_crash_in_growth_loses_nothing, setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(all_slots_grow, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(the_limit_holds, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(a_slot_of_pairs_grows, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(nothing_grows_during_an_upgrade, setup,
	                                        flows_teardown),
	};
	return cmocka_run_group_tests_name("grow", tests, NULL, NULL);
}
