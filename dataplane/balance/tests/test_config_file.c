// SPDX-License-Identifier: Apache-2.0
/* The saved configuration: what a start reads from it, and how a start handles a damaged file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../../tests/folder.h"
#include "file.h"
#include "harness.h"
#include "model.h"
#include "newer_file.h"
#include "saved.h"

#define UP  STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define RR  STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR
#define WRR STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_WRR

/* Few in most tests, as test_damaged() opens hundreds of balancers. */
#define SERVERS 128

struct fixture {
	struct harness harness;
	uint32_t max_servers;
	char directory[FOLDER_NAME], path[96], aside[96], journal[96], newer[96];
};

static void harness_start(struct fixture *f)
{
	struct sy_error err;
	const struct harness_options o = {
	        .state_directory = f->directory, .max_servers = f->max_servers, .max_services = 64};
	if (harness_open(&f->harness, &o, &err) < 0)
		fail_msg("%s", err.text);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	f->max_servers = SERVERS;
	assert_true(folder_make(f->directory, "/dev/shm"));
	snprintf(f->path, sizeof(f->path), "%s/config", f->directory);
	snprintf(f->aside, sizeof(f->aside), "%s/config.damaged", f->directory);
	snprintf(f->journal, sizeof(f->journal), "%s/journal", f->directory);
	snprintf(f->newer, sizeof(f->newer), "%s/config.newer", f->directory);
	harness_start(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	harness_close(&f->harness);
	unlink(f->path);
	unlink(f->aside);
	unlink(f->newer);
	assert_int_equal(unlink(f->journal), 0);
	assert_int_equal(rmdir(f->directory), 0); /* fails if a temporary file is left */
	free(f);
	return 0;
}

/* At least one of each kind of object that is saved. */
static void fill(struct fixture *f, unsigned servers)
{
	struct changes c = {0};
	struct sy_addr v4 = harness_addr("10.1.0.1"), v6 = harness_addr("2001:db8::1"), server;
	struct service_key first = harness_key("192.0.2.1", 80, SY_PROTO_TCP);
	struct service_key second = harness_key("2001:db8:1::1", 53, SY_PROTO_UDP);
	pb_timeouts t = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
	t.established_s = 4711;
	t.udp_s = 12;
	put_local(&c, &v4);
	put_local(&c, &v6);
	put_service(&c, &first, "first", WRR, &t);
	put_service(&c, &second, "second", RR, NULL);
	server = harness_addr("10.0.0.0");
	for (unsigned i = 0; i < servers; i++) {
		server.b[14] = (uint8_t)(i >> 8);
		server.b[15] = (uint8_t)i;
		put_server(&c, &first, &server, (uint16_t)(1 + i), i % 100, 1 + (int)i % 3);
	}
	for (unsigned i = 0; i < servers / 2; i++) {
		server = harness_addr("2001:db8:2::");
		server.b[14] = (uint8_t)(i >> 8);
		server.b[15] = (uint8_t)(i | 1);
		put_server(&c, &second, &server, (uint16_t)(1 + i), 1, UP);
	}
	if (!harness_commit(&f->harness, &c))
		fail_msg("%s", f->harness.error);
}

static void check_restart(struct fixture *f, unsigned servers)
{
	size_t len_before, len_after;
	fill(f, servers);
	fill(f, servers);
	uint8_t *before = harness_config(&f->harness, &len_before);
	harness_close(&f->harness);
	harness_start(f);
	uint8_t *after = harness_config(&f->harness, &len_after);
	assert_int_equal(len_before, len_after);
	assert_memory_equal(before, after, len_before);
	assert_int_equal(inspect_model(f->harness.b)->revision, 2);
	assert_int_equal(inspect_model(f->harness.b)->servers, servers + servers / 2);
	assert_int_not_equal(access(f->aside, F_OK), 0);
	free(before);
	free(after);
}

static void test_restart(void **state)
{
	check_restart(*state, 50);
}

/* More than one control response can hold. */
static void test_restart_large(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	struct service_key third = harness_key("192.0.2.3", 80, SY_PROTO_TCP);
	put_service(&c, &third, "third", RR, NULL);
	harness_close(&f->harness);
	f->max_servers = 30000;
	harness_start(f);
	check_restart(f, 13400);
	assert_true(harness_commit(&f->harness, &c));
	harness_close(&f->harness);
	harness_start(f);
	assert_int_equal(inspect_model(f->harness.b)->services, 3);
	assert_int_equal(inspect_model(f->harness.b)->servers, 20100);
}

/* A refused change saves nothing; without a file the forwarder starts empty. */
static void test_nothing_saved(void **state)
{
	struct fixture *f = *state;
	struct changes c = {0};
	struct sy_addr bogus = harness_addr("127.0.0.1");
	put_local(&c, &bogus);
	assert_false(harness_commit(&f->harness, &c));
	assert_int_not_equal(access(f->path, F_OK), 0);
	harness_close(&f->harness);
	harness_start(f);
	assert_int_equal(inspect_model(f->harness.b)->revision, 0);
}

/* A failed save is retried without another change. */
static void test_save_again(void **state)
{
	struct fixture *f = *state;
	struct sy_balance *b = f->harness.b;
	char elsewhere[96];
	snprintf(elsewhere, sizeof(elsewhere), "%s-away", f->directory);
	assert_int_equal(rename(f->directory, elsewhere), 0);
	fill(f, 3);
	assert_true(inspect_is_unsaved(b) && inspect_save_failed(b));
	assert_int_equal(rename(elsewhere, f->directory), 0);
	assert_int_not_equal(access(f->path, F_OK), 0);
	inspect_set_saved(b, 0); /* long ago */
	harness_attend(&f->harness);
	assert_int_equal(access(f->path, F_OK), 0);
	assert_false(inspect_is_unsaved(b) || inspect_save_failed(b));
}

/* In the middle of a transaction the model contains changes that are not accepted yet. */
static void test_not_halfway(void **state)
{
	struct fixture *f = *state;
	struct sy_balance *b = f->harness.b;
	inspect_set_unsaved(b);
	inspect_model(b)->open = true;
	config_file_flush(b, true);
	assert_int_not_equal(access(f->path, F_OK), 0);
	inspect_model(b)->open = false;
	config_file_flush(b, true);
	assert_int_equal(access(f->path, F_OK), 0);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* The file is kept aside unchanged, and the forwarder starts empty and works. */
static void check_refused(struct fixture *f, const uint8_t *bytes, size_t len)
{
	size_t kept_len;
	harness_close(&f->harness);
	file_write(f->path, bytes, len);
	unlink(f->aside);
	harness_start(f);
	assert_int_equal(inspect_model(f->harness.b)->services, 0);
	assert_int_equal(inspect_model(f->harness.b)->servers, 0);
	assert_int_equal(inspect_model(f->harness.b)->revision, 0);
	assert_int_not_equal(access(f->path, F_OK), 0);
	uint8_t *kept = file_read(f->aside, &kept_len);
	assert_int_equal(kept_len, len);
	if (len > 0)
		assert_memory_equal(kept, bytes, len);
	free(kept);
}

static void test_damaged(void **state)
{
	struct fixture *f = *state;
	size_t len;
	fill(f, 3);
	config_file_flush(f->harness.b, true);
	uint8_t *whole = file_read(f->path, &len), *bytes = malloc(len);
	/* each byte of what is read first, then some of each record */
	for (size_t at = 0; at < len; at += at < 64 ? 1 : 13) {
		memcpy(bytes, whole, len);
		bytes[at] ^= 1u << at % 8;
		check_refused(f, bytes, len);
	}
	for (size_t cut = 0; cut < len; cut += 1 + len / 25)
		check_refused(f, whole, cut);
	fill(f, 3); /* and works on */
	free(bytes);
	free(whole);
}

/* A well-formed file whose contents are refused: it is also kept aside, and none of it takes
 * effect. */
static void test_contradictory(void **state)
{
	struct fixture *f = *state;
	size_t len;
	fill(f, 3);
	struct model_service *s = inspect_model(f->harness.b)->service[0];
	s->server[2].addr = s->key.vip; /* no transaction would accept it */
	struct changes c = {0};
	struct service_key key = harness_key("2001:db8:1::1", 53, SY_PROTO_UDP);
	put_service(&c, &key, "second", WRR, NULL);
	assert_true(harness_commit(&f->harness, &c));
	config_file_flush(f->harness.b, true);
	uint8_t *bytes = file_read(f->path, &len);
	check_refused(f, bytes, len);
	free(bytes);
}

static void test_remote(void **state)
{
	static const uint8_t text[] = "# steelyard.yaml\nservices: []\nand some more lines\n";
	check_refused(*state, text, sizeof(text));
}

/* ---- of a newer version ---------------------------------------------------------------------- */

/* Settings unknown to this build have no effect, and are not lost. */
static void test_newer_settings(void **state)
{
	struct fixture *f = *state;
	size_t len_before, len_after, len_newer;
	fill(f, 3);
	assert_int_equal(harness_warnings(&f->harness, "of a newer one"), 0);
	uint8_t *before = harness_config(&f->harness, &len_before);
	harness_close(&f->harness);
	newer_config(f->path);
	uint8_t *newer = file_read(f->path, &len_newer);
	harness_start(f);
	uint8_t *after = harness_config(&f->harness, &len_after);
	assert_int_equal(len_before, len_after);
	assert_memory_equal(before, after, len_before);
	assert_true(harness_warnings(&f->harness, "of a newer one"));
	assert_true(harness_warnings(&f->harness, "(2; first: field 900 of "));
	free(after);
	assert_true(inspect_is_unsaved(f->harness.b));
	config_file_flush(f->harness.b, true); /* in this build's way */
	uint8_t *kept = file_read(f->newer, &len_after);
	assert_int_equal(len_after, len_newer);
	assert_memory_equal(kept, newer, len_newer);
	harness_close(&f->harness);
	harness_start(f);
	assert_int_equal(harness_warnings(&f->harness, "of a newer one"), 0);
	assert_int_not_equal(access(f->aside, F_OK), 0);
	free(before);
	free(newer);
	free(kept);
}

/* The sender of such a setting gets an error; the transaction has no effect. */
static void test_newer_changes(void **state)
{
	struct fixture *f = *state;
	struct service_key key = harness_key("192.0.2.9", 80, SY_PROTO_TCP);
	struct service_key known = harness_key("192.0.2.8", 80, SY_PROTO_TCP);
	for (unsigned where = 0; where < 3; where++) {
		struct changes c = {0};
		pb_timeouts t = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
		fill(f, 1);
		uint64_t revision = inspect_model(f->harness.b)->revision;
		put_service(&c, &known, "known", RR, NULL);
		pb_service *s = put_service(&c, &key, "newer", RR, &t);
		newer_add(where == 0   ? &s->base
		          : where == 1 ? &s->timeouts->base
		                       : &c.change[c.count - 1]->base);
		assert_false(harness_commit(&f->harness, &c));
		assert_int_equal(f->harness.code, STEELYARD__FORWARDER__V1__CODE__CODE_UNSUPPORTED);
		assert_int_equal(f->harness.change_index, 1);
		assert_non_null(strstr(f->harness.error, "(field 900)"));
		assert_int_equal(inspect_model(f->harness.b)->revision, revision);
		assert_int_equal(inspect_model(f->harness.b)->services, 2);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_restart),       TEST(test_restart_large), TEST(test_nothing_saved),
	        TEST(test_save_again),    TEST(test_not_halfway),   TEST(test_damaged),
	        TEST(test_contradictory), TEST(test_remote),        TEST(test_newer_settings),
	        TEST(test_newer_changes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
