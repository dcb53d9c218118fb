// SPDX-License-Identifier: Apache-2.0
/* Upgrades and restarts at the control interface: requests, their answers, and when they come. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "control.h"
#include "file.h"
#include "flows.h"
#include "newer_file.h"

#define UNSUPPORTED STEELYARD__FORWARDER__V1__CODE__CODE_UNSUPPORTED
#define INVALID     STEELYARD__FORWARDER__V1__CODE__CODE_INVALID
#define INTERNAL    STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL

/* What the hook was called with, and what it does. */
struct hook {
	unsigned calls;
	char binary[32], args[64];
	bool given;
	int rc;
	struct sy_balance *answer_at_once;
};

static const struct sy_balance_upgraded done = {"2.0", 4711, 12345678, 99};

static int on_upgrade(void *ctx, const struct sy_balance_upgrade *wanted, struct sy_error *err)
{
	struct hook *h = ctx;
	h->calls++;
	snprintf(h->binary, sizeof(h->binary), "%s", wanted->binary ? wanted->binary : "-");
	h->given = wanted->argv;
	h->args[0] = '\0';
	for (unsigned i = 0; i < wanted->argc; i++) {
		strcat(h->args, wanted->argv[i]);
		strcat(h->args, ";");
	}
	if (h->rc)
		return sy_fail(err, -h->rc, "the hook says no");
	if (h->answer_at_once)
		sy_balance_upgrade_answer(h->answer_at_once, &done, NULL);
	return 0;
}

/* The last reply, and the number of replies. */
struct reply {
	unsigned count;
	pb_response *response;
};

static void reply_free(struct reply *r)
{
	if (r->response)
		steelyard__forwarder__v1__response__free_unpacked(r->response, NULL);
	r->response = NULL;
}

static void on_reply(void *ctx, const uint8_t *bytes, size_t len)
{
	struct reply *r = ctx;
	reply_free(r);
	r->count++;
	r->response = steelyard__forwarder__v1__response__unpack(NULL, len, bytes);
	assert_non_null(r->response);
}

static void ask(struct flows *f, Steelyard__Forwarder__V1__UpgradeRequest *upgrade, uint64_t id,
                struct reply *r)
{
	Steelyard__Forwarder__V1__UpgradeRequest plain =
	        STEELYARD__FORWARDER__V1__UPGRADE_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	uint8_t bytes[256];
	q.version = STEELYARD__FORWARDER__V1__VERSION__VERSION_CURRENT;
	q.id = id;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_UPGRADE;
	q.upgrade = upgrade ? upgrade : &plain;
	sy_balance_request(f->harness.b, bytes, steelyard__forwarder__v1__request__pack(&q, bytes),
	                   on_reply, r);
}

static void check_error(struct reply *r, unsigned count, int code)
{
	assert_int_equal(r->count, count);
	assert_non_null(r->response->error);
	assert_int_equal(r->response->error->code, code);
}

static void hook_set(struct flows *f, struct hook *h)
{
	inspect_set_upgrade(f->harness.b, on_upgrade, h);
}

static pb_response *status(struct flows *f)
{
	Steelyard__Forwarder__V1__StatusRequest get =
	        STEELYARD__FORWARDER__V1__STATUS_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_STATUS;
	q.status = &get;
	return harness_request(&f->harness, &q);
}

static bool is_upgrading(struct flows *f)
{
	pb_response *response = status(f);
	bool upgrading = response->status->upgrading;
	assert_int_equal(response->status->pid, getpid());
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	return upgrading;
}

static void test_refused(void **state)
{
	struct flows *f = *state;
	struct hook h = {.rc = -ENOENT};
	struct reply r = {0};
	ask(f, NULL, 1, &r);
	check_error(&r, 1, UNSUPPORTED);
	hook_set(f, &h);
	ask(f, NULL, 2, &r);
	check_error(&r, 2, INVALID);
	assert_string_equal(r.response->error->text, "the hook says no");
	h.rc = -ENOMEM;
	ask(f, NULL, 3, &r);
	check_error(&r, 3, INTERNAL);
	assert_int_equal(h.calls, 2);
	assert_false(is_upgrading(f));
	reply_free(&r);
}

static void test_wishes(void **state)
{
	struct flows *f = *state;
	struct hook h = {.answer_at_once = f->harness.b};
	struct reply r = {0};
	char *args[] = {"--workers", "2"};
	Steelyard__Forwarder__V1__UpgradeRequest upgrade =
	        STEELYARD__FORWARDER__V1__UPGRADE_REQUEST__INIT;
	hook_set(f, &h);
	ask(f, &upgrade, 1, &r);
	assert_string_equal(h.binary, "-");
	assert_false(h.given);
	upgrade.binary = "/usr/bin/other";
	upgrade.args = args;
	upgrade.n_args = 2;
	ask(f, &upgrade, 2, &r);
	assert_string_equal(h.binary, "/usr/bin/other");
	assert_false(h.given); /* not without set_args */
	upgrade.set_args = true;
	ask(f, &upgrade, 3, &r);
	assert_true(h.given);
	assert_string_equal(h.args, "--workers;2;");
	assert_int_equal(r.count, 3);
	assert_null(r.response->error);
	assert_int_equal(r.response->id, 3);
	assert_string_equal(r.response->upgrade->build, done.build);
	assert_int_equal(r.response->upgrade->pid, done.pid);
	assert_int_equal(r.response->upgrade->gap_ns, done.gap_ns);
	assert_int_equal(r.response->upgrade->sessions, done.sessions);
	reply_free(&r);
}

/* Answered long after the request; another request has to wait. */
static void test_later(void **state)
{
	struct flows *f = *state;
	struct hook h = {0};
	struct reply r = {0}, other = {0};
	const struct sy_error failed = {EIO, "the new one has died"};
	hook_set(f, &h);
	for (unsigned i = 0; i < 2; i++) {
		ask(f, NULL, 7 + i, &r);
		assert_int_equal(r.count, i);
		assert_true(is_upgrading(f));
		ask(f, NULL, 9, &other);
		check_error(&other, 1 + i, INVALID);
		inspect_control(f->harness.b)->local.reply = on_reply;
		inspect_control(f->harness.b)->local.reply_ctx = &r;
		sy_balance_upgrade_answer(f->harness.b, i ? &done : NULL, i ? NULL : &failed);
		assert_int_equal(r.count, i + 1);
		assert_int_equal(r.response->id, 7 + i);
		assert_int_equal(!r.response->error, i);
		assert_false(is_upgrading(f));
	}
	assert_int_equal(h.calls, 2);
	reply_free(&r);
	reply_free(&other);
}

/* ---- what status reports about the start ----------------------------------------------------- */

static uint64_t sessions_of(const Steelyard__Forwarder__V1__Adoption *a, const char *result)
{
	for (size_t i = 0; i < a->n_results; i++) {
		assert_true(*a->results[i]->help);
		if (strcmp(a->results[i]->name, result) == 0)
			return a->results[i]->sessions;
	}
	fail_msg("no result %s", result);
	return 0;
}

static void test_status(void **state)
{
	struct flows *f = *state;
	struct flow syn, flow;
	pb_response *response = status(f);
	assert_int_equal(response->status->adoption->source,
	                 STEELYARD__FORWARDER__V1__ADOPTION__SOURCE__SOURCE_NEW);
	assert_int_equal(response->status->adoption->n_results, 0);
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	flow_begin(f, &syn, 0, 1000);
	flow_open(f, &flow, 1, 1001);
	harness_stop(&f->harness, 0);
	flows_pass(f, 20);
	flows_open(f);
	response = status(f);
	const Steelyard__Forwarder__V1__Adoption *a = response->status->adoption;
	assert_int_equal(a->source, STEELYARD__FORWARDER__V1__ADOPTION__SOURCE__SOURCE_STOPPED);
	assert_int_equal(a->away_ns, UINT64_C(20000000000));
	assert_int_equal(a->n_results, SESSION_RESULT_COUNT);
	assert_int_equal(sessions_of(a, "kept"), 1);
	assert_int_equal(sessions_of(a, "expired"), 1);
	assert_int_equal(sessions_of(a, "torn"), 0);
	assert_string_equal(a->refused, "");
	assert_int_equal(response->status->sessions, 1);
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
}

/* A file that is not a session file is kept aside, with a reason that status reports. */
static void test_status_refused(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	char path[96], aside[96];
	flow_open(f, &flow, 0, 1000);
	harness_crash(&f->harness);
	snprintf(path, sizeof(path), "%s/harness", f->store);
	snprintf(aside, sizeof(aside), "%s/harness.refused", f->store);
	assert_int_equal(truncate(path, 5000), 0);
	flows_open(f);
	pb_response *response = status(f);
	const Steelyard__Forwarder__V1__Adoption *a = response->status->adoption;
	assert_int_equal(a->source, STEELYARD__FORWARDER__V1__ADOPTION__SOURCE__SOURCE_NEW);
	assert_non_null(strstr(a->refused, aside));
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
	assert_int_equal(unlink(aside), 0);
	flow_check_dropped(f, &flow, SY_DROP_NO_SESSION);
}

/* Without its configuration no session can continue, but the forwarder can. */
static void test_config_refused(void **state)
{
	struct flows *f = *state;
	struct flow flow[2];
	char path[96];
	flow_open(f, &flow[0], 0, 1000);
	flow_open(f, &flow[1], 3, 1001);
	harness_stop(&f->harness, 0);
	snprintf(path, sizeof(path), "%s/config", f->state);
	assert_int_equal(truncate(path, 30), 0);
	flows_open(f);
	assert_int_equal(inspect_model(f->harness.b)->services, 0);
	assert_int_equal(flows_result(f, SESSION_SERVER_GONE), 2);
	assert_int_equal(harness_totals(&f->harness).live, 0);
	static const unsigned order[FLOW_SERVICES] = {0, 1, 2, 3};
	flows_configure(f, order);
	flow_open(f, &flow[0], 0, 1000);
	flow_check(f, &flow[0]);
}

/* A successor leaves its predecessor's file alone, and reports what it cannot read. */
static void test_config_inherited(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	struct harness_options o = f->options;
	struct sy_error err;
	char path[96], kept[96];
	flow_open(f, &flow, 0, 1000);
	harness_stop(&f->harness, 5);
	snprintf(path, sizeof(path), "%s/config", f->state);
	snprintf(kept, sizeof(kept), "%s/kept", f->state);
	assert_int_equal(rename(path, kept), 0);
	FILE *out = fopen(path, "wb");
	assert_non_null(out);
	fclose(out);
	o.ticket = 5;
	o.start_ns = sy_clock_ns();
	assert_true(harness_open(&f->harness, &o, &err) < 0);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(rename(kept, path), 0);
	flows_open(f); /* as the predecessor would, after a restart */
	flow_check(f, &flow);
}

/* A successor of an older build gives up instead of losing settings; what the predecessor saved
 * stays, and it continues with its sessions. */
static void test_newer_inherited(void **state)
{
	struct flows *f = *state;
	struct harness_options o = f->options;
	struct flow flow;
	struct sy_error err;
	size_t len, len_after;
	char path[96];
	for (unsigned i = 0; i < 2; i++) {
		flow_open(f, &flow, 0, (uint16_t)(1000 + i));
		uint64_t revision = inspect_model(f->harness.b)->revision;
		harness_stop(&f->harness, 5);
		snprintf(path, sizeof(path), "%s/%s", f->state, i ? "journal" : "config");
		uint8_t *known = file_read(path, &len);
		if (i)
			newer_journal(path, revision + 1);
		else
			newer_config(path);
		uint8_t *newer = file_read(path, &len_after);
		o.ticket = 5;
		o.start_ns = sy_clock_ns();
		assert_int_equal(harness_open(&f->harness, &o, &err), -ENOTSUP);
		assert_non_null(strstr(err.text, path));
		assert_non_null(strstr(err.text, "(field 900)"));
		size_t len_now;
		uint8_t *now = file_read(path, &len_now);
		assert_int_equal(len_now, len_after);
		assert_memory_equal(now, newer, len_now);
		free(now);
		free(newer);
		file_write(path, known, len);
		free(known);
		flows_open(f);
		flow_check(f, &flow);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, flows_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_refused),          TEST(test_wishes),          TEST(test_later),
	        TEST(test_status),           TEST(test_status_refused),  TEST(test_config_refused),
	        TEST(test_config_inherited), TEST(test_newer_inherited),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
