// SPDX-License-Identifier: Apache-2.0
/* Adoption into tables and an id dictionary of another size. */
#include <signal.h>
#include <sys/resource.h>

#include "session_dictionary_check.h"

/* Fills, crashes, and adopts with other options. */
static void resize(struct network *n, uint64_t sessions, uint32_t servers, uint64_t filled,
                   uint64_t count[SESSION_RESULT_COUNT])
{
	struct session_store_options o = place_options();

	network_init(n, 6, PLACE_SESSIONS, sessions);
	network_use(n, place_open());
	name_all(n->store, n);
	place_fill(n, filled);
	*session_port_cursor(session_store_table(n->store, 7), 9) = 123;
	session_cold_at(session_store_table(n->store, 0), 0)->fin_seq[1] = 4711;
	session_store_close(n->store);
	o.sessions = sessions;
	o.servers = servers;
	/* closed before any adoption: the file is unchanged */
	session_store_close(place_open_as(o));
	assert_false(place_has(".next"));
	network_use(n, place_open_as(o));
	assert_true(session_store_found(n->store)->resized);
	assert_true(place_has(".next"));
	id_dictionary_are(n->store, n);
	place_adopt(n->store, n, 2, count);
	assert_false(place_has(".next"));
	id_dictionary_are(n->store, n);
	assert_int_equal(place_check(n), count[SESSION_KEPT]);
	assert_int_equal(*session_port_cursor(session_store_table(n->store, 7), 9), 123);
	assert_int_equal(session_cold_at(session_store_table(n->store, 0), 0)->fin_seq[1], 4711);
	assert_true(session_capacity(session_store_table(n->store, 0)) * SY_SLOTS >= sessions);
	/* the new file has the old name */
	session_store_close(n->store);
	network_use(n, place_open_as(o));
	assert_int_equal(session_store_found(n->store)->source, SESSION_SOURCE_CRASHED);
	assert_false(session_store_found(n->store)->resized);
	uint64_t again[SESSION_RESULT_COUNT];
	place_adopt(n->store, n, 1, again);
	assert_int_equal(again[SESSION_KEPT], count[SESSION_KEPT]);
	assert_int_equal(place_check(n), count[SESSION_KEPT]);
}

static void larger_tables_take_all(void **state)
{
	uint64_t count[SESSION_RESULT_COUNT];
	struct network n;

	resize(&n, 8 * PLACE_SESSIONS, 4 * PLACE_SERVERS, 3000, count);
	assert_int_equal(count[SESSION_KEPT], 3000);
	assert_int_equal(session_servers(n.store), 4 * PLACE_SERVERS);
	place_fill(&n, 4 * PLACE_SESSIONS);
	place_check(&n);
	session_store_discard(n.store);
	network_free(&n);
}

static void smaller_tables_take_what_fits(void **state)
{
	uint64_t count[SESSION_RESULT_COUNT];
	struct network n;

	resize(&n, PLACE_SESSIONS / 4, PLACE_SERVERS, 3000, count);
	assert_int_equal(count[SESSION_KEPT] + count[SESSION_NO_ROOM], 3000);
	assert_true(count[SESSION_KEPT] > PLACE_SESSIONS / 4 * 9 / 10);
	session_store_discard(n.store);
	network_free(&n);
}

static void fewer_names_end_the_sessions_of_others(void **state)
{
	uint64_t count[SESSION_RESULT_COUNT], left = 0;
	struct network n;

	resize(&n, PLACE_SESSIONS, 5, 2000, count);
	assert_int_equal(count[SESSION_KEPT] + count[SESSION_UNKNOWN_ID], 2000);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct session_table *t = session_store_table(n.store, (uint8_t)slot);
		uint32_t cursor = 0;
		for (uint32_t r; (r = session_next(t, &cursor)) != SESSION_NONE; left++)
			assert_true(session_at(t, r)->server < 5);
	}
	assert_int_equal(left, count[SESSION_KEPT]);
	assert_true(left > 400);
	session_store_discard(n.store);
	network_free(&n);
}

/* A hand-over into another size is validated, after the old process released the file. */
static void a_hand_over_may_change_the_size(void **state)
{
	uint64_t count[SESSION_RESULT_COUNT];
	struct session_store_options o = place_options();
	struct network n;

	network_init(&n, 4, PLACE_SESSIONS, 3);
	network_use(&n, place_open());
	place_fill(&n, 1000);
	o.sessions *= 2;
	o.inherit = true;
	struct session_store *new = place_open_as(o);
	place_fill(&n, 500);
	name_all(n.store, &n);
	session_store_seal(n.store, 9, true);
	assert_int_equal(session_store_acquire(new, 9, NULL), 0);
	assert_int_equal(session_store_found(new)->source, SESSION_SOURCE_STOPPED);
	assert_true(session_store_found(new)->resized);
	network_use(&n, new);
	id_dictionary_are(new, &n);
	place_adopt(new, &n, 1, count);
	assert_int_equal(count[SESSION_KEPT], 1500);
	assert_int_equal(place_check(&n), 1500);
	/* the new file is locked too */
	struct session_store *second;
	o.inherit = false;
	assert_int_equal(session_store_open(&o, &second, NULL), -EBUSY);
	session_store_discard(new);
	network_free(&n);
}

static void without_memory_the_old_size_goes_on(void **state)
{
	uint64_t count[SESSION_RESULT_COUNT];
	struct session_store_options o = place_options();
	struct rlimit unlimited, little;
	struct network n;
	struct stat st;
	char path[PATH_MAX];

	network_init(&n, 4, PLACE_SESSIONS, 3);
	network_use(&n, place_open());
	place_fill(&n, 1000);
	session_store_close(n.store);
	place_path("", path);
	assert_int_equal(stat(path, &st), 0);
	getrlimit(RLIMIT_FSIZE, &unlimited);
	little = unlimited;
	little.rlim_cur = (rlim_t)st.st_size + 4096;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &little);
	o.sessions *= 2;
	network_use(&n, place_open_as(o));
	setrlimit(RLIMIT_FSIZE, &unlimited);
	assert_false(session_store_found(n.store)->resized);
	assert_string_equal(session_store_found(n.store)->refused, "");
	assert_false(place_has(".next"));
	assert_int_equal(session_capacity(session_store_table(n.store, 0)),
	                 PLACE_SESSIONS / SY_SLOTS);
	place_adopt(n.store, &n, 1, count);
	assert_int_equal(count[SESSION_KEPT], 1000);
	assert_int_equal(place_check(&n), 1000);
	session_store_discard(n.store);
	network_free(&n);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, position_clear)
	const struct CMUnitTest tests[] = {
	        TEST(larger_tables_take_all),
	        TEST(smaller_tables_take_what_fits),
	        TEST(fewer_names_end_the_sessions_of_others),
	        TEST(a_hand_over_may_change_the_size),
	        TEST(without_memory_the_old_size_goes_on),
	};
	return cmocka_run_group_tests(tests, place_make, place_unmake);
}
