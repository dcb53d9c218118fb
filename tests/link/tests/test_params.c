// SPDX-License-Identifier: Apache-2.0
/* Parameters as text, and the commands that carry them. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "link_control.h"

static int read_text(struct params *p, const char *text, char error[static PARAMS_ERROR])
{
	char *copy = strdup(text);
	int failed = params_read(p, copy, error);
	free(copy);
	return failed;
}

static void test_units_are_converted(void **state)
{
	struct params p;
	char error[PARAMS_ERROR], address[INET6_ADDRSTRLEN];
	params_default(&p);
	assert_int_equal(read_text(&p,
	                           "delay 20ms jitter 1.5us rate 1.5mbit loss 2% corrupt 0.5 "
	                           "order free  ecn on mtu 1280 router4 10.0.0.9 router6 fd00::9",
	                           error),
	                 0);
	assert_int_equal(p.delay, 20000000);
	assert_int_equal(p.jitter, 1500);
	assert_int_equal(p.rate, 1500000);
	assert_true(p.loss > 0.0199 && p.loss < 0.0201);
	assert_true(p.corrupt == 0.5);
	assert_int_equal(p.order, ORDER_FREE);
	assert_int_equal(p.ecn, 1);
	assert_int_equal(p.mtu, 1280);
	assert_string_equal(inet_ntop(AF_INET, &p.router4, address, sizeof(address)), "10.0.0.9");
	assert_string_equal(inet_ntop(AF_INET6, &p.router6, address, sizeof(address)), "fd00::9");
	assert_int_equal(read_text(&p, "delay 0 rate 0", error), 0);
	assert_int_equal(p.delay, 0);
	assert_int_equal(p.rate, 0);
	assert_int_equal(read_text(&p, "mtu 99 defaults jitter 1us", error), 0);
	assert_int_equal(p.mtu, 0);
	assert_true(p.loss == 0);
	assert_int_equal(p.jitter, 1000);
}

/* A refused line changes nothing; the error names the expected value. */
static void test_invalid_values_change_nothing(void **state)
{
	static const char *const cases[][2] = {
	        {"delay 20", "delay needs a time"},
	        {"delay -1ms", "delay needs a time"},
	        {"delay 1e99s", "delay needs a time"},
	        {"delay nan", "delay needs a time"},
	        {"delay", "not \"\""},
	        {"rate 10mb", "rate needs a rate"},
	        {"loss 101%", "loss needs a share"},
	        {"loss 1.5", "loss needs a share"},
	        {"mtu 1k", "mtu needs a number"},
	        {"mtu 20", "RFC 791"},
	        {"ecn yes", "ecn needs off or on"},
	        {"order 1", "order needs keep or free"},
	        {"router4 fd00::1", "an IPv4 address"},
	        {"router6 1.2.3.4", "an IPv6 address"},
	        {"slowness 3", "no parameter slowness"},
	        {"red_min 5 red_max 4", "red_max is below"},
	        {"burst_enter 0.1 burst_leave 0", "never end"},
	        {"reorder 1% reorder_delay 0", "reorder_delay"},
	};
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct params p, before;
		char error[PARAMS_ERROR] = "", text[CONTROL_LINE];
		params_default(&p);
		before = p;
		/* Words before the mistake have no effect either. */
		snprintf(text, sizeof(text), "duplicate 0.5 %s", cases[i][0]);
		assert_true(read_text(&p, text, error) < 0);
		if (!strstr(error, cases[i][1]))
			fail_msg("%s: %s", cases[i][0], error);
		assert_memory_equal(&p, &before, sizeof(p));
	}
}

/* Printed parameters can be parsed: each name and value. */
static void test_printed_parameters_are_parsed_back(void **state)
{
	struct params p;
	char error[PARAMS_ERROR], *text = NULL;
	size_t size;
	params_default(&p);
	assert_int_equal(read_text(&p, "delay 7ns loss 0.125 too_big silent", error), 0);
	FILE *out = open_memstream(&text, &size);
	params_print(&p, out);
	fclose(out);
	assert_non_null(strstr(text, "{\"delay\": 7, "));
	assert_non_null(strstr(text, "\"loss\": 0.125, "));
	assert_non_null(strstr(text, "\"too_big\": \"silent\", "));
	assert_non_null(strstr(text, "\"router4\": \"192.0.0.8\", "));
	assert_non_null(strstr(text, "\"router6\": \"fd00:ffff::1\"}"));
	free(text);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void expect(struct control *c, struct link *l, const char *command, const char *answer)
{
	char *line = strdup(command), *got = control_execute(c, l, line);
	if (!got || strncmp(got, answer, strlen(answer)) != 0)
		fail_msg("%s: %s", command, got ? got : "no answer");
	free(got);
	free(line);
}

static void test_commands_are_executed_or_refused(void **state)
{
	struct control c = {.listener = -1};
	static struct link l;
	const struct params *ab = &l.lane[0].direction.params, *ba = &l.lane[1].direction.params;
	assert_int_equal(link_open(&l, 16, 2048, 9), 0);
	expect(&c, &l, "set ab delay 1ms", "ok");
	assert_int_equal(ab->delay, 1000000);
	assert_int_equal(ba->delay, 0);
	expect(&c, &l, "set ba delay 2ms", "ok");
	assert_int_equal(ab->delay, 1000000);
	assert_int_equal(ba->delay, 2000000);
	expect(&c, &l, "set both loss 1%", "ok");
	assert_true(ab->loss == ba->loss && ab->loss > 0);
	/* One direction conflicts: neither changes. */
	expect(&c, &l, "set ba red_min 500 red_max 500", "ok");
	expect(&c, &l, "set both red_max 400", "error: red_max");
	assert_int_equal(ab->red_max, 0);
	expect(&c, &l, "set up delay 1ms", "error: set ab, ba or both");
	expect(&c, &l, "set", "error: the commands");
	expect(&c, &l, "seed 5", "ok");
	assert_int_equal(l.seed, 5);
	assert_int_not_equal(l.lane[0].direction.seed, l.lane[1].direction.seed);
	expect(&c, &l, "seed five", "error: seed");
	expect(&c, &l, "stats", "{\"seed\": 5, \"ab\": {\"params\": {\"delay\": 1000000, ");
	expect(&c, &l, "hurry", "ok");
	/* Three packets have arrived, and one is on its way. */
	l.lane[0].direction.counts.arrived = 3;
	l.lane[0].direction.counts.delivered = 2;
	uint32_t one = pool_take(&l.pool);
	heap_put(&l.lane[0].direction.wire, 1, one);
	expect(&c, &l, "clear", "ok");
	assert_int_equal(l.lane[0].direction.counts.arrived, 1);
	assert_int_equal(l.lane[0].direction.counts.delivered, 0);
	assert_false(c.quit);
	expect(&c, &l, "quit", "ok");
	assert_true(c.quit);
	expect(&c, &l, "", "error: the commands");
	link_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_units_are_converted),
	        cmocka_unit_test(test_invalid_values_change_nothing),
	        cmocka_unit_test(test_printed_parameters_are_parsed_back),
	        cmocka_unit_test(test_commands_are_executed_or_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
