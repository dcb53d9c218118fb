// SPDX-License-Identifier: Apache-2.0
/* The id dictionary: names that outlive their process, whole or not at all. */
#include "session_dictionary_check.h"

static void names_outlive_their_process(void **state)
{
	struct session_server_name name;
	struct sy_addr addr;
	struct network n;

	network_init(&n, 6, PLACE_SESSIONS, 3);
	struct session_store *s = place_open();
	assert_int_equal(session_servers(s), PLACE_SERVERS);
	for (uint32_t id = 0; id < PLACE_SERVERS; id++)
		assert_false(session_server_named(s, id, &name));
	name_all(s, &n);
	id_dictionary_are(s, &n);
	session_store_close(s);
	s = place_open();
	id_dictionary_are(s, &n);
	/* a field that changes while the name stays */
	session_server_set_active(s, 3, 99);
	assert_true(session_server_named(s, 3, &name));
	assert_int_equal(name.active, 99);
	session_name_server(s, 3, NULL);
	session_name_local(s, 2, NULL);
	/* beyond the end */
	session_name_server(s, PLACE_SERVERS, &name);
	session_name_server(s, UINT32_MAX, NULL);
	session_server_set_active(s, UINT32_MAX, 1);
	session_store_close(s);
	s = place_open();
	assert_false(session_server_named(s, 3, &name));
	assert_false(session_server_named(s, PLACE_SERVERS, &name));
	assert_false(session_server_named(s, UINT32_MAX, &name));
	assert_false(session_local_named(s, 2, &addr));
	assert_true(session_local_named(s, 0, &addr));
	session_store_discard(s);
	network_free(&n);
}

/* Every byte of a name counts, except for the bytes that may change alone. */
static void torn_names_mean_nothing(void **state)
{
	struct session_server_name name;
	struct sy_addr addr;
	struct network n;

	network_init(&n, 4, PLACE_SESSIONS, 3);
	struct session_store *s = place_open();
	name_all(s, &n);
	session_store_close(s);
	size_t size;
	uint8_t *bytes = place_read("", &size);
	const struct session_file *f = (const struct session_file *)bytes;
	struct session_server_name *servers = (struct session_server_name *)(bytes + f->servers_at);
	struct session_local_name *locals = (struct session_local_name *)(bytes + f->locals_at);
	unsigned named = 0;
	for (size_t at = 0; at < sizeof(*servers); at++) {
		((uint8_t *)&servers[1])[at] ^= 1;
		place_write("", bytes, size);
		((uint8_t *)&servers[1])[at] ^= 1;
		s = place_open();
		named += session_server_named(s, 1, &name);
		assert_true(session_server_named(s, 0, &name));
		session_store_close(s);
	}
	assert_int_equal(named, sizeof(name.active));
	named = 0;
	for (size_t at = 0; at < sizeof(*locals); at++) {
		((uint8_t *)&locals[1])[at] ^= 1;
		place_write("", bytes, size);
		((uint8_t *)&locals[1])[at] ^= 1;
		s = place_open();
		named += session_local_named(s, 1, &addr);
		session_store_close(s);
	}
	assert_int_equal(named, sizeof(locals->reserved));
	/* another server's name */
	servers[1] = servers[2];
	locals[1] = locals[2];
	place_write("", bytes, size);
	s = place_open();
	assert_false(session_server_named(s, 1, &name));
	assert_false(session_local_named(s, 1, &addr));
	session_store_discard(s);
	free(bytes);
	network_free(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(names_outlive_their_process, position_clear),
	        cmocka_unit_test_teardown(torn_names_mean_nothing, position_clear),
	};
	return cmocka_run_group_tests(tests, place_make, place_unmake);
}
