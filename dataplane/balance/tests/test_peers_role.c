// SPDX-License-Identifier: Apache-2.0
/* When a node of a pair changes its role: no session is lost by it, and no node waits for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pair_fixture.h"
#include "saved.h"

#define ALIVE_MS    (SYNC_ALIVE_NS / 1000000)
#define UNSERVED_MS 15000

static enum sync_role role_of(const struct flows *f)
{
	return (enum sync_role)f->harness.b->peers->role;
}

/* Runs until the harness has the role that was set. Returns the time. */
static unsigned wait_role(struct flows *f, struct mirror *m, unsigned max_ms)
{
	unsigned ms = 0;
	while (role_of(f) != f->harness.b->peers->wanted && ms < max_ms) {
		mirror_run(m, 10);
		ms += 10;
	}
	assert_int_equal(role_of(f), f->harness.b->peers->wanted);
	return ms;
}

static void run_alive(struct flows *f, struct mirror *m)
{
	const struct sync_peer *peer = sync_node_peer(f->harness.b->sync, m->number);
	for (unsigned ms = 0; ms < 2000 && !sync_peer_is_alive(peer, f->harness.now_ns); ms++)
		mirror_run(m, 1);
	assert_true(sync_peer_is_alive(peer, f->harness.now_ns));
}

/* A node that joins has none of the master's sessions when keepalived elects it. */
static void test_a_joining_node_waits_for_the_sessions(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {.lossy = true, .role = MASTER};
	pair_depart(f, &m, flow, 1, 2);
	pair_return(&m, f);
	peers_set_role(f->harness.b, MASTER, false);
	assert_int_equal(role_of(f), BACKUP);
	wait_role(f, &m, 60000);
	flows_check_active(f, FLOWS);
	pair_check(f, flow);
	mirror_free(&m);
}

static void test_it_waits_as_long_as_the_master_serves(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {.role = MASTER};
	pair_depart(f, &m, flow, 1, 1);
	m.wrong_sums = true;
	pair_return(&m, f);
	run_alive(f, &m);
	peers_set_role(f->harness.b, MASTER, false);
	mirror_run(&m, 4 * UNSERVED_MS);
	assert_int_equal(role_of(f), BACKUP);
	peers_set_role(f->harness.b, MASTER, true);
	assert_int_equal(role_of(f), MASTER);
	mirror_free(&m);
}

/* The master's other links fail: it is a backup then, and no node serves meanwhile. */
static void test_no_service_is_worse_than_lost_sessions(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {.role = BACKUP};
	pair_depart(f, &m, flow, 1, 1);
	m.only_hellos = true;
	pair_return(&m, f);
	mirror_run(&m, 1000); /* its hellos say that it has sessions */
	peers_set_role(f->harness.b, MASTER, false);
	assert_int_equal(role_of(f), BACKUP);
	assert_true(wait_role(f, &m, 2 * UNSERVED_MS) >= UNSERVED_MS - 50);
	mirror_free(&m);
}

/* It is alone then. */
static void test_the_peer_dies_during_the_copy(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {.role = MASTER};
	pair_depart(f, &m, flow, 1, 1);
	m.wrong_sums = true;
	pair_return(&m, f);
	mirror_run(&m, 5000);
	peers_set_role(f->harness.b, MASTER, false);
	assert_int_equal(role_of(f), BACKUP);
	mirror_close(&m);
	const uint64_t dead_ns = f->harness.now_ns;
	while (role_of(f) == BACKUP && f->harness.now_ns - dead_ns < 2 * SYNC_ALIVE_NS)
		harness_advance(&f->harness, 10000000);
	pair_check(f, flow);
	mirror_free(&m);
}

static void test_nodes_that_start_together_do_not_wait_for_each_other(void **state)
{
	struct flows *f = *state;
	struct mirror m = {.role = BACKUP};
	pair_become(f, 1, 1, BACKUP);
	peers_set_role(f->harness.b, MASTER, false);
	assert_int_equal(role_of(f), BACKUP); /* the peer may be about to appear */
	mirror_open(&m, f, 2);
	assert_in_range(wait_role(f, &m, 5000), 1, 2 * ALIVE_MS);

	mirror_close(&m); /* no peer appears */
	pair_become(f, 1, 1, BACKUP);
	peers_set_role(f->harness.b, MASTER, false);
	harness_advance(&f->harness, SYNC_ALIVE_NS / 2);
	assert_int_equal(role_of(f), BACKUP);
	harness_advance(&f->harness, SYNC_ALIVE_NS);
	assert_int_equal(role_of(f), MASTER);
	mirror_free(&m);
}

/* Sessions of a server that this node does not have would block for ever. */
static void test_refused_sessions_are_not_waited_for(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {.role = MASTER};
	pair_depart(f, &m, flow, 1, 1);
	pair_begin(f, 2);
	pair_return(&m, f);
	run_alive(f, &m);
	peers_set_role(f->harness.b, MASTER, false);
	assert_int_equal(role_of(f), BACKUP);
	wait_role(f, &m, 10000);
	flows_check_active(f, 0);
	mirror_free(&m);
}

/* The session file is gone, and the saved role is `master`: the peer has the sessions. */
static void test_a_master_without_its_sessions_waits_for_them(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {.role = BACKUP};
	pair_become(f, 1, 1, MASTER);
	mirror_open(&m, f, 2);
	pair_open(f, flow);
	pair_settle(&m);
	mirror_close(&m);
	for (unsigned starts = 0; starts < 2; starts++) { /* nor at a restart meanwhile */
		harness_discard(&f->harness);
		flows_open(f);
		assert_int_equal(role_of(f), BACKUP);
		assert_int_equal(f->harness.b->peers->wanted, MASTER);
	}
	mirror_open(&m, f, 2);
	mirror_offer(&m);
	wait_role(f, &m, 60000);
	pair_check(f, flow);
	mirror_free(&m);
}

static void test_a_master_with_its_sessions_waits_for_nothing(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	pair_become(f, 1, 1, MASTER);
	pair_open(f, flow);
	for (unsigned crash = 0; crash < 2; crash++) {
		flows_reopen(f, 1, 0, crash);
		assert_int_equal(role_of(f), MASTER);
		pair_check(f, flow);
	}
}

/* The master has lost its sessions and is a backup: its new log, which has none, must not end the
 * replicas. */
static void test_replicas_outlive_a_peer_that_starts_as_backup(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {.role = MASTER};
	pair_move(f, &m, flow, 2, 2);
	mirror_free(&m);
	m = (struct mirror){.role = BACKUP};
	mirror_open(&m, f, 1);
	run_alive(f, &m);
	pair_settle(&m);
	flows_check_active(f, FLOWS);
	assert_int_equal(mirror_count(&m), FLOWS);
	peers_set_role(f->harness.b, MASTER, true);
	pair_check(f, flow);
	mirror_free(&m);
}

static void test_a_master_serves_until_its_peer_has_the_sessions(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {.role = BACKUP, .only_hellos = true};
	pair_become(f, 1, 1, MASTER);
	pair_open(f, flow);
	mirror_open(&m, f, 2);
	mirror_run(&m, 1000); /* the peer reports that it lacks them */
	peers_set_role(f->harness.b, BACKUP, false);
	assert_int_equal(role_of(f), MASTER);
	m.only_hellos = false;
	wait_role(f, &m, 60000);
	assert_int_equal(mirror_count(&m), FLOWS);

	peers_set_role(f->harness.b, MASTER, true);
	mirror_close(&m); /* without a peer it changes at once */
	harness_advance(&f->harness, 2 * SYNC_ALIVE_NS);
	peers_set_role(f->harness.b, BACKUP, false);
	assert_int_equal(role_of(f), BACKUP);
	mirror_free(&m);
}

static void test_a_change_that_waits_is_saved(void **state)
{
	struct flows *f = *state;
	const char *directory = f->options.state_directory;
	for (unsigned i = 0; i < 4; i++) {
		const struct saved_role role = {i / 2, i % 2};
		assert_int_equal(role_file_save(directory, role), 0);
		const struct saved_role loaded = role_file_load(directory);
		assert_int_equal(loaded.master, role.master);
		assert_int_equal(loaded.wanted_master, role.wanted_master);
		assert_int_equal(sy_balance_resign(directory), 0);
		assert_false(role_file_load(directory).master ||
		             role_file_load(directory).wanted_master);
	}
	assert_false(role_file_load(NULL).master);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, flows_setup, pair_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(test_a_joining_node_waits_for_the_sessions),
	        TEST(test_it_waits_as_long_as_the_master_serves),
	        TEST(test_no_service_is_worse_than_lost_sessions),
	        TEST(test_the_peer_dies_during_the_copy),
	        TEST(test_nodes_that_start_together_do_not_wait_for_each_other),
	        TEST(test_refused_sessions_are_not_waited_for),
	        TEST(test_a_master_without_its_sessions_waits_for_them),
	        TEST(test_a_master_with_its_sessions_waits_for_nothing),
	        TEST(test_replicas_outlive_a_peer_that_starts_as_backup),
	        TEST(test_a_master_serves_until_its_peer_has_the_sessions),
	        TEST(test_a_change_that_waits_is_saved),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
