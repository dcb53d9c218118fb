// SPDX-License-Identifier: Apache-2.0
/* Tables of a network's sessions that grow: each session is found as before, and new ones fit.
 * Prints the time to copy one slot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "network.h"
#include "session_file.h"

/* CPU time of this thread: other programs may use the CPU in between. */
static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t grow(struct network *n, uint8_t slot)
{
	struct session_table *t = session_store_table(n->store, slot);
	struct session_growth g;
	struct sy_error err;
	uint32_t cursor = 0, record;

	if (session_grow_prepare(n->store, slot, &g, &err) != 0)
		fail_msg("%s", err.text);
	uint64_t began = cpu_ns();
	session_grow_copy(t, &g);
	while ((record = session_next(t, &cursor)) != SESSION_NONE) {
		const struct sy_tuple client = network_client_tuple(n, session_at(t, record));
		const struct sy_tuple server = network_server_tuple(n, session_at(t, record));
		assert_true(session_grow_enter(&g, record, sy_hash_tuple(&n->key, &client),
		                               sy_hash_tuple(&n->key, &server)));
	}
	session_grow_finish(n->store, &g);
	uint64_t took = cpu_ns() - began;
	session_grow_leave(n->store, &g);
	session_grow_release(n->store, 1);
	return took;
}

static void fill(struct network *n, uint64_t sessions)
{
	struct session_table *t;
	uint32_t record;
	for (uint64_t live = 0; live < sessions;)
		switch (network_create(n, &t, &record)) {
		case NETWORK_INSERTED:
			live++;
			break;
		case NETWORK_KNOWN:
			break;
		case NETWORK_FULL:
		case NETWORK_NO_PORT:
			fail_msg("no room for session %lu", live);
		}
}

static void verify(const struct network *n, uint64_t sessions)
{
	uint64_t live = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = session_store_table(n->store, (uint8_t)slot);
		uint32_t cursor = 0, record;
		for (; (record = session_next(t, &cursor)) != SESSION_NONE; live++)
			assert_true(network_verify(n, t, record));
	}
	assert_int_equal(live, sessions);
}

static void sessions_are_found_after_growth(void **state)
{
	const char *much = getenv("SY_GROW_SESSIONS"); /* to measure larger tables */
	const uint64_t sessions = much ? strtoull(much, NULL, 10) : 100000;
	const struct session_store_options o = {
	        .sessions = sessions, .limit = 8 * sessions, .servers = 4096};
	struct session_store *store;
	struct network n;
	struct sy_error err;
	uint64_t max = 0, sum = 0;

	sy_slot_init();
	assert_true(network_init(&n, 4, 4 * sessions, 1));
	assert_int_equal(session_store_open(&o, &store, &err), 0);
	network_use(&n, store);
	fill(&n, sessions * 85 / 100);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
			uint64_t took = grow(&n, (uint8_t)slot);
			max = took > max ? took : max;
			sum += took;
		}
		print_message("growth of a slot: %lu µs on average, %lu µs at most\n",
		              sum / SY_SLOTS / 1000, max / 1000);
		max = sum = 0;
		verify(&n, sessions * 85 / 100);
	}
	fill(&n, 2 * sessions);
	verify(&n, sessions * 85 / 100 + 2 * sessions);
	session_store_close(store);
	network_free(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(sessions_are_found_after_growth)};
	return cmocka_run_group_tests_name("session growth", tests, NULL, NULL);
}
