// SPDX-License-Identifier: Apache-2.0
/* The file: its size, its header, which users may open it, and the error when it cannot be used. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../../../tests/folder.h"
#include "session_fixture.h"

static char directory[FOLDER_NAME];

static int directory_make(void **state)
{
	return !folder_make(directory, folder_large());
}

static int directory_remove(void **state)
{
	return rmdir(directory); /* fails if a test left its file */
}

static struct session_store *store_open(uint64_t sessions, const char *where)
{
	struct session_store_options o = {
	        .sessions = sessions, .directory = where, .name = "table"};
	struct session_store *s;
	struct sy_error err = {0};
	int rc = session_store_open(&o, &s, &err);

	if (rc != 0)
		fail_msg("%s", err.text);
	return s;
}

static int store_refused(uint64_t sessions, const char *where, const char *word)
{
	struct session_store_options o = {
	        .sessions = sessions, .directory = where, .name = "table"};
	struct session_store *s;
	struct sy_error err = {0};
	int rc = session_store_open(&o, &s, &err);

	assert_int_not_equal(rc, 0);
	assert_int_equal(rc, -err.code);
	if (strstr(err.text, word) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", err.text, word);
	return rc;
}

static void path_of(char out[static PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s/table", directory);
}

static void capacity_is_at_least_what_was_asked(void **state)
{
	const uint64_t asked[] = {1, 255, 256, 1000, 4096, 100000, 1000001};

	for (unsigned i = 0; i < SY_ARRAY_LEN(asked); i++) {
		struct session_store *s = store_open(asked[i], NULL);
		uint64_t capacity = 0;
		for (unsigned slot = 0; slot < SY_SLOTS; slot++)
			capacity += session_capacity(session_store_table(s, (uint8_t)slot));
		assert_true(capacity >= asked[i]);
		assert_true(capacity < asked[i] + (uint64_t)SESSION_RECORDS_STEP * SY_SLOTS);
		session_store_close(s);
	}
}

/* Fills every slot at once: overlapping regions would show. */
static void slots_do_not_overlap(void **state)
{
	struct session_store *s = store_open(20000, NULL);
	uint32_t records = session_capacity(session_store_table(s, 0));
	uint64_t seed = 5;

	for (unsigned pass = 0; pass < 2; pass++) {
		seed = 5;
		for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
			struct session_table *t = session_store_table(s, (uint8_t)slot);
			for (uint32_t i = 0; i < records / 2; i++) {
				uint64_t name = slot * 1000 + i;
				uint64_t client = random_next(&seed), server = random_next(&seed);
				if (pass == 0)
					assert_int_equal(insert_named(t, name, client, server), i);
				assert_int_equal(find_named(t, client, name, SESSION_CLIENT), i);
				assert_int_equal(find_named(t, server, name, SESSION_SERVER), i);
			}
			struct session *last = session_at(t, records - 1);
			struct session_cold *last_cold = session_cold_at(t, records - 1);
			if (pass == 0) {
				last->path = (uint16_t)slot;
				memset(last_cold, (int)slot, sizeof(*last_cold));
			}
			assert_int_equal(last->path, slot);
			assert_int_equal(last_cold->vport, slot * 0x0101u);
			assert_int_equal(last_cold->created,
			                 (slot * 0x010101u & SESSION_CREATED_MASK));
			for (uint32_t c = 0; c < SESSION_PORT_CURSORS; c++) {
				if (pass == 0)
					*session_port_cursor(t, c) = (uint16_t)(slot + c);
				assert_int_equal(*session_port_cursor(t, c), slot + c);
			}
		}
	}
	session_store_close(s);
}

static void file_has_a_whole_header(void **state)
{
	char path[PATH_MAX];
	struct session_file header;
	struct stat st;
	struct session_store *s = store_open(10000, directory);

	path_of(path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	int fd = open(path, O_RDONLY);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	close(fd);
	assert_memory_equal(header.magic, SESSION_FILE_MAGIC, sizeof(header.magic));
	assert_int_equal(header.version, SESSION_FILE_VERSION);
	assert_int_equal(header.bucket_size, 64);
	assert_int_equal(header.hot_size, 32);
	assert_int_equal(header.cold_size, 16);
	assert_int_equal(header.cursors, SESSION_PORT_CURSORS);
	assert_int_equal(header.slots, SY_SLOTS);
	assert_int_equal(header.file_size, st.st_size);
	assert_true(SESSION_FILE_FIRST + header.slot.size * SY_SLOTS <= header.file_size);
	assert_int_equal(header.slot.records, session_capacity(session_store_table(s, 0)));
	assert_memory_equal(&header.key, session_store_key(s), sizeof(header.key));
	assert_true(header.check == session_file_check(&header));
	header.slots ^= 1;
	assert_true(header.check != session_file_check(&header));
	assert_true(session_store_mapped(s) >= header.file_size);
	session_store_close(s);
	assert_int_equal(access(path, F_OK), 0);
	s = store_open(10000, directory);
	session_store_discard(s);
	assert_int_equal(access(path, F_OK), -1);
}

static void keys_differ(void **state)
{
	struct session_store *a = store_open(1, NULL), *b = store_open(1, NULL);

	assert_memory_not_equal(session_store_key(a), session_store_key(b),
	                        sizeof(struct sy_hash_key));
	session_store_close(a);
	session_store_close(b);
}

static void file_in_use_is_refused_and_kept(void **state)
{
	struct session_store *s = store_open(5000, directory);
	struct session_table *t = session_store_table(s, 9);

	insert_named(t, 1, 111, 222);
	assert_int_equal(store_refused(5000, directory, "another running forwarder"), -EBUSY);
	assert_int_equal(find_named(t, 111, 1, SESSION_CLIENT), 0);
	char path[PATH_MAX];
	path_of(path);
	assert_int_equal(access(path, F_OK), 0);
	session_store_discard(s);
}

/* An interrupted start left nothing, or zeros, or a header without its checksum. */
static void unfinished_file_is_finished(void **state)
{
	const struct session_file begun = {
	        .magic = SESSION_FILE_MAGIC, .version = SESSION_FILE_VERSION, .slots = SY_SLOTS};
	char path[PATH_MAX];

	path_of(path);
	for (unsigned i = 0; i < 3; i++) {
		int fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (i > 0)
			assert_int_equal(ftruncate(fd, 3 << 20), 0);
		if (i > 1)
			assert_int_equal(pwrite(fd, &begun, sizeof(begun), 0), sizeof(begun));
		close(fd);
		struct session_store *s = store_open(5000, directory);
		assert_int_equal(session_store_found(s)->source, SESSION_SOURCE_NEW);
		assert_string_equal(session_store_found(s)->refused, "");
		assert_true(*session_port_cursor(session_store_table(s, 0), 0) < SY_SLOT_PORTS);
		assert_int_equal(index_used(session_store_table(s, 0)), 0);
		session_store_discard(s);
	}
}

static void searches_begin_anywhere(void **state)
{
	struct session_store *s = store_open(5000, NULL);
	unsigned first = *session_port_cursor(session_store_table(s, 0), 0), different = 0;

	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		different +=
		        *session_port_cursor(session_store_table(s, (uint8_t)slot), 0) != first;
	assert_true(different > SY_SLOTS / 2);
	session_store_close(s);
}

static void failures_say_what_to_do(void **state)
{
	char path[PATH_MAX];

	assert_int_equal(store_refused(UINT64_MAX, NULL, "--sessions"), -EINVAL);
	assert_int_equal(store_refused(1, "/nonexistent/place", "/nonexistent/place/table"),
	                 -ENOENT);
	/* in effect a full file system */
	struct rlimit unlimited, little = {.rlim_cur = 1 << 20};
	getrlimit(RLIMIT_FSIZE, &unlimited);
	little.rlim_max = unlimited.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &little);
	store_refused(100000, directory, "free some space or lower --sessions");
	setrlimit(RLIMIT_FSIZE, &unlimited);
	path_of(path);
	assert_int_equal(access(path, F_OK), -1);

	/* never through a link: the balancer must not empty the link's target */
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_int_equal(store_refused(1, directory, path), -ELOOP);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(store_refused(1, directory, "not a regular file"), -EINVAL);
	assert_int_equal(unlink(path), 0);
}

#define HUGE "/dev/hugepages"

static bool huge_pages_are_mounted(void)
{
	struct statfs fs;
	return statfs(HUGE, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC && access(HUGE, W_OK) == 0;
}

static void missing_huge_pages_are_reported(void **state)
{
	if (!huge_pages_are_mounted())
		skip();
	/* a terabyte */
	assert_int_equal(store_refused(UINT64_C(1) << 31, HUGE, "huge pages of"), -ENOMEM);
	store_refused(UINT64_C(1) << 31, HUGE, " are free: ");
	store_refused(UINT64_C(1) << 31, HUGE, "nr_hugepages=");
}

/* One page is enough; if another program holds all of them, there is nothing to test. */
static void huge_pages_outlive_their_process(void **state)
{
	char name[64];
	struct session_store_options o = {.sessions = 1000, .directory = HUGE, .name = name};
	struct session_store *s = NULL;

	snprintf(name, sizeof(name), "steelyard-test-%d", getpid());
	if (!huge_pages_are_mounted() || session_store_open(&o, &s, NULL) != 0)
		skip();
	insert_named(session_store_table(s, 3), 8, 1, 2);
	session_store_close(s);
	assert_int_equal(session_store_open(&o, &s, NULL), 0);
	enum session_source source = session_store_found(s)->source;
	struct session left = *session_at(session_store_table(s, 3), 0);
	session_store_discard(s);
	assert_int_equal(source, SESSION_SOURCE_CRASHED);
	assert_int_equal(left.client.d[1], 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(capacity_is_at_least_what_was_asked),
	        cmocka_unit_test(slots_do_not_overlap),
	        cmocka_unit_test(file_has_a_whole_header),
	        cmocka_unit_test(keys_differ),
	        cmocka_unit_test(file_in_use_is_refused_and_kept),
	        cmocka_unit_test(unfinished_file_is_finished),
	        cmocka_unit_test(searches_begin_anywhere),
	        cmocka_unit_test(failures_say_what_to_do),
	        cmocka_unit_test(missing_huge_pages_are_reported),
	        cmocka_unit_test(huge_pages_outlive_their_process),
	};
	return cmocka_run_group_tests(tests, directory_make, directory_remove);
}
