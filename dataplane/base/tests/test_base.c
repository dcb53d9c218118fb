// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sy_base.h>
#include <sy_patience.h>
#include <sy_seen.h>
#include <unistd.h>
/* cmocka needs the above */
#include <cmocka.h>

#include "test_random.h"

static struct sy_addr addr_of(const char *text)
{
	struct sy_addr a;
	assert_int_equal(sy_addr_parse(text, &a), 0);
	return a;
}

/* ---- errors and log -------------------------------------------------------------------------- */

static void test_fail(void **state)
{
	struct sy_error err = {0};

	assert_int_equal(sy_fail(&err, ENOENT, "no port '%s'", "veth0"), -ENOENT);
	assert_int_equal(err.code, ENOENT);
	assert_string_equal(err.text, "no port 'veth0'");
	assert_int_equal(sy_fail_in(&err, "service %d", 7), -ENOENT);
	assert_string_equal(err.text, "service 7: no port 'veth0'");
	assert_int_equal(sy_fail(NULL, EPERM, "no listener"), -EPERM);
	assert_int_equal(sy_fail_in(NULL, "no listener"), -EIO);
}

static void test_fail_long(void **state)
{
	struct sy_error err = {0};
	char context[400];

	memset(context, 'c', sizeof(context) - 1);
	context[sizeof(context) - 1] = 0;
	assert_int_equal(sy_fail(&err, EINVAL, "%s", context), -EINVAL);
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	for (size_t cut = 0; cut < sizeof(context); cut++)
		assert_int_equal(sy_fail_in(&err, "%s", context + cut), -EINVAL);
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
}

/* Runs sy_log() with standard error in a pipe; returns the output. */
static size_t log_capture(char *out, size_t cap, enum sy_log_level level, const char *text)
{
	int fds[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	assert_true(saved >= 0);
	assert_int_equal(pipe(fds), 0);
	assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
	close(fds[1]);
	sy_log(level, "area", "%s", text);
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	n = read(fds[0], out, cap - 1);
	close(fds[0]);
	assert_true(n >= 0);
	out[n] = 0;
	return (size_t)n;
}

static void test_log(void **state)
{
	char out[2048], text[1500];

	log_capture(out, sizeof(out), SY_LOG_WARN, "two\nlines\x1b[0m");
	assert_string_equal(out, "warning area: two lines [0m\n");
	assert_int_equal(log_capture(out, sizeof(out), SY_LOG_DEBUG, "quiet"), 0);
	sy_log_set_level(SY_LOG_DEBUG);
	log_capture(out, sizeof(out), SY_LOG_DEBUG, "");
	assert_string_equal(out, "debug area: \n");
	sy_log_set_level(SY_LOG_ERROR);
	assert_int_equal(log_capture(out, sizeof(out), SY_LOG_WARN, "quiet"), 0);
	for (size_t len = 900; len < sizeof(text); len++) {
		memset(text, 'x', len);
		text[len] = 0;
		size_t n = log_capture(out, sizeof(out), SY_LOG_ERROR, text);
		assert_true(n <= 1024);
		assert_ptr_equal(strchr(out, '\n'), out + n - 1);
	}
	sy_log_set_level(SY_LOG_INFO);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void test_addr_text(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
	        {"192.0.2.1", "192.0.2.1"},
	        {"0.0.0.0", "0.0.0.0"},
	        {"255.255.255.255", "255.255.255.255"},
	        {"::ffff:192.0.2.1", "192.0.2.1"},
	        {"::", "::"},
	        {"::1", "::1"},
	        {"2001:DB8:0:0:0:0:0:1", "2001:db8::1"},
	        {"2001:db8:0:1:0:1:0:1", "2001:db8:0:1:0:1:0:1"},
	        {"2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"},
	        {"fe80::0202:b3ff:fe1e:8329", "fe80::202:b3ff:fe1e:8329"},
	        {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	         "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	};
	static const char *const bad[] = {"",    "1.2.3",     "1.2.3.4.5", "256.1.1.1",
	                                  "::g", "1.2.3.4/8", " 1.2.3.4",  "fe80::1%eth0",
	                                  ":::", "1::2::3"};
	char text[SY_ADDR_TEXT];
	struct sy_addr a;

	for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
		a = addr_of(cases[i].in);
		assert_string_equal(sy_addr_format(&a, text), cases[i].out);
	}
	for (size_t i = 0; i < SY_ARRAY_LEN(bad); i++)
		assert_int_equal(sy_addr_parse(bad[i], &a), -EINVAL);
}

static void test_addr_bytes(void **state)
{
	const uint8_t v4[4] = {192, 0, 2, 1};
	uint8_t v6[16], back[16];
	struct sy_addr a, b;

	assert_int_equal(sy_addr_from_bytes(v4, 4, &a), 0);
	b = addr_of("192.0.2.1");
	assert_true(sy_addr_equal(&a, &b));
	assert_true(sy_addr_is_v4(&a));
	assert_int_equal(sy_addr_to_bytes(&a, back), 4);
	assert_memory_equal(back, v4, 4);
	random_fill(v6, sizeof(v6));
	assert_int_equal(sy_addr_from_bytes(v6, 16, &a), 0);
	assert_false(sy_addr_is_v4(&a));
	assert_false(sy_addr_equal(&a, &b));
	assert_int_equal(sy_addr_to_bytes(&a, back), 16);
	assert_memory_equal(back, v6, 16);
	for (size_t len = 0; len <= 16; len++) {
		if (len != 4 && len != 16)
			assert_int_equal(sy_addr_from_bytes(v6, len, &a), -EINVAL);
	}
}

static void test_addr_bogus(void **state)
{
	static const char *const bogus[] = {
	        "0.0.0.0",
	        "0.0.0.1",
	        "0.255.255.255",
	        "240.0.0.1",
	        "255.255.255.254",
	        "127.0.0.1",
	        "127.255.255.255",
	        "224.0.0.1",
	        "239.255.255.255",
	        "255.255.255.255",
	        "::",
	        "::1",
	        "ff02::1",
	        "ffff::",
	};
	static const char *const fine[] = {
	        "1.2.3.4",   "126.255.255.255",
	        "128.0.0.0", "223.255.255.255",
	        "1.0.0.0",   "::2",
	        "::1:0:0:1", "1::1",
	        "1::",       "2001:db8::1",
	        "fe80::1",   "fdff::1",
	        "::100:0",
	};

	for (size_t i = 0; i < SY_ARRAY_LEN(bogus); i++) {
		struct sy_addr a = addr_of(bogus[i]);
		assert_true(sy_addr_is_bogus_source(&a));
	}
	for (size_t i = 0; i < SY_ARRAY_LEN(fine); i++) {
		struct sy_addr a = addr_of(fine[i]);
		assert_false(sy_addr_is_bogus_source(&a));
	}
}

/* ---- drops and the rest ---------------------------------------------------------------------- */

static void test_drops(void **state)
{
	for (unsigned i = 0; i < SY_DROP_COUNT; i++) {
		assert_true(strlen(sy_drop_name(i)) > 0);
		assert_true(strlen(sy_drop_help(i)) > 0);
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(sy_drop_name(i), sy_drop_name(j));
	}
	assert_string_equal(sy_drop_name(SY_DROP_LAND), "land");
	assert_string_equal(sy_drop_name(SY_DROP_COUNT), "unknown");
	assert_string_equal(sy_drop_help(SY_DROP_COUNT), "unknown");
}

static void test_seq(void **state)
{
	assert_true(sy_seq_before(1, 2));
	assert_false(sy_seq_before(2, 2));
	assert_false(sy_seq_before(3, 2));
	assert_true(sy_seq_before(0xffffffff, 0));
	assert_true(sy_seq_before(0x80000001, 0));
}

static void test_clock(void **state)
{
	uint64_t before = sy_clock_ns();

	assert_true(before > 0);
	assert_true(sy_clock_ns() >= before);
}

/* 300 are waiting, 64 are dequeued at a time, and 10 more arrive meanwhile. */
static void test_seen(void **state)
{
	struct sy_seen s = {.ns = 1};

	sy_seen_burst(&s, 64, 236, 100);
	assert_int_equal(s.ns, 1); /* these may be the last of those that came before */
	sy_seen_burst(&s, 64, 182, 101);
	sy_seen_burst(&s, 64, 118, 102);
	sy_seen_burst(&s, 64, 54, 103);
	assert_int_equal(s.ns, 1);
	sy_seen_burst(&s, 44, 10, 104); /* all of the 236, to the packet */
	assert_int_equal(s.ns, 100);
	sy_seen_burst(&s, 9, 1, 105);
	assert_int_equal(s.ns, 100);
	sy_seen_burst(&s, 1, 0, 106);
	assert_int_equal(s.ns, 106);
	sy_seen_burst(&s, 64, 5, 107); /* nothing of the old mark is left */
	assert_int_equal(s.ns, 106);
	sy_seen_burst(&s, 5, 5, 108);
	assert_int_equal(s.ns, 107);
}

/* The queue is never empty: the time advances with what is dequeued. */
static void test_seen_never_empty(void **state)
{
	struct sy_seen s = {0};

	for (uint64_t now = 1; now < 1000; now++) {
		sy_seen_burst(&s, 64, 640, now);
		assert_true(now - s.ns <= 20);
	}
}

/* A stall costs one step, however long it is. */
static void test_patience(void **state)
{
	const uint64_t step = 1000000, whole = 3 * step;
	struct sy_patience p = sy_patience_begin(whole, step);

	for (unsigned stalls = 1; stalls <= 3; stalls++) {
		usleep(5 * 1000); /* all of it, and more */
		assert_int_equal(sy_patience_left(&p), whole - stalls * step);
	}
	assert_int_equal(sy_patience_left(&p), 0);
	p = sy_patience_begin(0, step);
	assert_int_equal(sy_patience_left(&p), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_fail),       cmocka_unit_test(test_fail_long),
	        cmocka_unit_test(test_log),        cmocka_unit_test(test_addr_text),
	        cmocka_unit_test(test_addr_bytes), cmocka_unit_test(test_addr_bogus),
	        cmocka_unit_test(test_drops),      cmocka_unit_test(test_seq),
	        cmocka_unit_test(test_clock),      cmocka_unit_test(test_patience),
	        cmocka_unit_test(test_seen),       cmocka_unit_test(test_seen_never_empty),
	};
	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
