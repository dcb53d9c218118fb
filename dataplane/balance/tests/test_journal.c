// SPDX-License-Identifier: Apache-2.0
/* The journal: what a killed forwarder had accepted is in force after the next start. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../../tests/folder.h"
#include "file.h"
#include "harness.h"
#include "model.h"
#include "newer_file.h"
#include "saved.h"

#define UP     STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define RR     STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR
#define HEADER 16 /* bytes of the journal's header */

struct fixture {
	struct harness harness;
	struct service_key key;
	char directory[FOLDER_NAME], config[96], journal[96], aside[96];
};

static void harness_start(struct fixture *f)
{
	struct sy_error err;
	const struct harness_options o = {.state_directory = f->directory};
	if (harness_open(&f->harness, &o, &err) < 0)
		fail_msg("%s", err.text);
}

static void commit(struct fixture *f, struct changes *c)
{
	if (!harness_commit(&f->harness, c))
		fail_msg("%s", f->harness.error);
}

/* One transaction per server. */
static void put_servers(struct fixture *f, unsigned first, unsigned count)
{
	for (unsigned i = first; i < first + count; i++) {
		struct changes c = {0};
		struct sy_addr server = harness_addr("10.0.0.0");
		server.b[15] = (uint8_t)i;
		put_server(&c, &f->key, &server, 80, 1, UP);
		commit(f, &c);
	}
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct changes c = {0};
	struct sy_addr local = harness_addr("10.1.0.1");
	assert_true(folder_make(f->directory, "/dev/shm"));
	snprintf(f->config, sizeof(f->config), "%s/config", f->directory);
	snprintf(f->journal, sizeof(f->journal), "%s/journal", f->directory);
	snprintf(f->aside, sizeof(f->aside), "%s/journal.damaged", f->directory);
	f->key = harness_key("192.0.2.1", 80, SY_PROTO_TCP);
	harness_start(f);
	inspect_hold(f->harness.b, true); /* everything stays in the journal */
	put_local(&c, &local);
	put_service(&c, &f->key, "journal", RR, NULL);
	commit(f, &c);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	harness_close(&f->harness);
	unlink(f->config);
	unlink(f->journal);
	unlink(f->aside);
	assert_int_equal(rmdir(f->directory), 0); /* fails if a temporary file is left */
	free(f);
	return 0;
}

static off_t size_of(const char *path)
{
	struct stat st;
	return stat(path, &st) < 0 ? -1 : st.st_size;
}

static void check(struct fixture *f, uint64_t revision, unsigned servers)
{
	assert_int_equal(inspect_model(f->harness.b)->revision, revision);
	assert_int_equal(inspect_model(f->harness.b)->servers, servers);
}

/* Without a snapshot, with one, and across several processes. */
static void test_crash(void **state)
{
	struct fixture *f = *state;
	put_servers(f, 1, 5);
	harness_crash(&f->harness);
	assert_int_equal(size_of(f->config), -1);
	harness_start(f);
	check(f, 6, 5);
	inspect_hold(f->harness.b, false);
	config_file_flush(f->harness.b, true);
	assert_int_equal(size_of(f->journal), HEADER);
	inspect_hold(f->harness.b, true);
	put_servers(f, 6, 5);
	harness_crash(&f->harness);
	harness_start(f);
	check(f, 11, 10);
	harness_crash(&f->harness);
	harness_start(f);
	check(f, 11, 10);
	put_servers(f, 11, 5);
	harness_close(&f->harness); /* a clean stop saves everything */
	assert_int_equal(size_of(f->journal), HEADER);
	harness_start(f);
	check(f, 16, 15);
}

/* Killed after the snapshot's rename and before the journal was emptied: no entry is applied
 * twice. */
static void test_not_emptied(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	struct sy_error err;
	struct sy_addr server = harness_addr("10.0.0.1");
	put_servers(f, 1, 5);
	delete_server(&c, &f->key, &server, 80); /* cannot be applied twice */
	commit(f, &c);
	assert_int_equal(config_file_save(f->harness.b, &err), 0);
	harness_crash(&f->harness);
	assert_true(size_of(f->journal) > HEADER);
	harness_start(f);
	check(f, 7, 4);
	assert_int_equal(size_of(f->aside), -1);
}

/* A refused transaction leaves no entry. */
static void test_refused_change(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	off_t before = size_of(f->journal);
	put_server(&c, &f->key, &f->key.vip, 80, 1, UP);
	assert_false(harness_commit(&f->harness, &c));
	assert_int_equal(size_of(f->journal), before);
}

/* More changes than one request holds. */
static void test_large(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	for (unsigned i = 0; i < 3000; i++) {
		struct sy_addr server = harness_addr("10.0.0.0");
		server.b[14] = (uint8_t)(1 + i / 200);
		server.b[15] = (uint8_t)(1 + i % 200);
		put_server(&c, &f->key, &server, 80, 1, UP);
	}
	commit(f, &c);
	harness_crash(&f->harness);
	harness_start(f);
	check(f, 2, 3000);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Starts from this journal alone, then from the files that this start left, and makes a change. */
static uint64_t start_from(struct fixture *f, const uint8_t *bytes, size_t len)
{
	file_write(f->journal, bytes, len);
	unlink(f->config);
	unlink(f->aside);
	harness_start(f);
	uint64_t revision = inspect_model(f->harness.b)->revision;
	harness_crash(&f->harness);
	harness_start(f);
	assert_int_equal(inspect_model(f->harness.b)->revision, revision);
	if (inspect_model(f->harness.b)->services > 0) {
		put_servers(f, 100, 1);
		harness_crash(&f->harness);
		harness_start(f);
		assert_int_equal(inspect_model(f->harness.b)->revision, revision + 1);
	}
	harness_crash(&f->harness);
	return revision;
}

/* Cut at any byte, the complete entries count, and no file is kept aside. */
static void test_torn(void **state)
{
	struct fixture *f = *state;
	size_t len, at[4];
	for (unsigned i = 0; i < 4; i++) {
		at[i] = (size_t)size_of(f->journal);
		put_servers(f, 1 + i, 1);
	}
	harness_crash(&f->harness);
	uint8_t *bytes = file_read(f->journal, &len);
	for (size_t cut = 0; cut <= len; cut += 1 + len / 24) {
		uint64_t whole = 0;
		for (unsigned i = 0; i < 4; i++)
			whole += cut >= at[i];
		whole += cut == len;
		assert_int_equal(start_from(f, bytes, cut), whole);
		assert_int_equal(size_of(f->aside), -1);
	}
	free(bytes);
	harness_start(f);
}

/* A flipped bit ends the journal there: it is kept aside unchanged, and the entries before it
 * count. */
static void test_damaged(void **state)
{
	struct fixture *f = *state;
	size_t len, kept;
	off_t second = size_of(f->journal);
	put_servers(f, 1, 3);
	harness_crash(&f->harness);
	uint8_t *bytes = file_read(f->journal, &len);
	for (size_t at = 0; at < len; at += 1 + len / 24) {
		bytes[at] ^= 1u << at % 8;
		uint64_t revision = start_from(f, bytes, len);
		assert_true(at >= 12 || revision == 0);
		assert_true((off_t)at < second || revision >= 1);
		assert_true(revision < 4 || (at >= 12 && at < 16)); /* unused bytes */
		if (size_of(f->aside) >= 0) {
			uint8_t *aside = file_read(f->aside, &kept);
			assert_int_equal(kept, len);
			assert_memory_equal(aside, bytes, len);
			free(aside);
		}
		bytes[at] ^= 1u << at % 8;
	}
	free(bytes);
	harness_start(f);
}

/* What a power failure may leave: zeros. A missing entry: all entries after it are refused. */
static void test_gap(void **state)
{
	struct fixture *f = *state;
	size_t len;
	off_t from = size_of(f->journal), to;
	put_servers(f, 1, 1);
	to = size_of(f->journal);
	put_servers(f, 2, 1);
	harness_crash(&f->harness);
	uint8_t *bytes = file_read(f->journal, &len);
	memset(bytes + len, 0, 64);
	assert_int_equal(start_from(f, bytes, len + 64), 3);
	assert_int_equal(size_of(f->aside), (off_t)len + 64);
	memmove(bytes + from, bytes + to, len - (size_t)to);
	assert_int_equal(start_from(f, bytes, len - (size_t)(to - from)), 1);
	assert_true(size_of(f->aside) > 0);
	free(bytes);
	harness_start(f);
}

/* A change of a newer version: a start of its own does without it, and those after it count. */
static void test_newer(void **state)
{
	struct fixture *f = *state;
	harness_crash(&f->harness);
	newer_journal(f->journal, 2);
	harness_start(f);
	check(f, 2, 0);
	assert_int_equal(size_of(f->aside), -1);
	put_servers(f, 1, 1);
	check(f, 3, 1);
}

/* ---- disk full ------------------------------------------------------------------------------- */

/* The change is in force nevertheless, and the next snapshot makes the journal usable again. */
static void test_disk_full(void **state)
{
	struct fixture *f = *state;
	struct rlimit limit, small;
	off_t before = size_of(f->journal);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = limit;
	small.rlim_cur = (rlim_t)before + 20; /* in the middle of an entry */
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	put_servers(f, 1, 2);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	check(f, 3, 2);
	assert_int_equal(size_of(f->journal), before);
	put_servers(f, 3, 1); /* without the entry before it, this one would be wrong */
	assert_int_equal(size_of(f->journal), before);
	inspect_hold(f->harness.b, false);
	config_file_flush(f->harness.b, true);
	inspect_hold(f->harness.b, true);
	put_servers(f, 4, 1);
	assert_true(size_of(f->journal) > HEADER);
	harness_crash(&f->harness);
	harness_start(f);
	check(f, 5, 4);
}

/* The journal's size is bounded, even within the second between two snapshots. */
static void test_long(void **state)
{
	struct fixture *f = *state;
	unsigned emptied = 0;
	inspect_hold(f->harness.b, false);
	for (unsigned n = 0; n < 6; n++) {
		struct changes c = {0};
		for (unsigned i = 0; i < 40000; i++)
			put_service(&c, &f->key, "a name that is rather long, so that it counts",
			            RR, NULL);
		inspect_set_saved(f->harness.b, sy_clock_ns());
		commit(f, &c);
		emptied += size_of(f->journal) == HEADER;
	}
	assert_in_range(emptied, 1, 2);
}

/* Another forwarder holds the state directory: this one neither reads nor writes there. */
static void test_shared(void **state)
{
	struct fixture *f = *state;
	const struct harness_options o = {.state_directory = f->directory};
	struct sy_error err;
	struct stat before, after;
	put_servers(f, 1, 2);
	int other = open(f->directory, O_RDONLY | O_DIRECTORY);
	assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
	harness_crash(&f->harness);
	assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(stat(f->journal, &before), 0);
	assert_int_equal(harness_open(&f->harness, &o, &err), -EBUSY);
	assert_non_null(strstr(err.text, "--state"));
	assert_int_equal(stat(f->journal, &after), 0);
	assert_int_equal(after.st_size, before.st_size);
	close(other);
	harness_start(f);
	assert_int_equal(inspect_model(f->harness.b)->servers, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_crash),  TEST(test_not_emptied), TEST(test_refused_change),
	        TEST(test_large),  TEST(test_torn),        TEST(test_damaged),
	        TEST(test_gap),    TEST(test_disk_full),   TEST(test_long),
	        TEST(test_shared), TEST(test_newer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
