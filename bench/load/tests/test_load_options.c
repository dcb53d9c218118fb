// SPDX-License-Identifier: Apache-2.0
/* Checks of options that depend on each other. */
#include <errno.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "load_options.h"

/* Parses these options together with the required ones. */
static int options_read(const char *more, struct load_options *o, struct sy_error *err)
{
	char line[400], *save, *argv[32];
	int argc = 0, rc;

	snprintf(line, sizeof(line), "load --port e0 --source 10.0.0.1 --to 10.0.0.2:80 %s", more);
	for (char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	argv[argc] = NULL;
	optind = 0; /* restarts getopt_long() */
	rc = load_options_read(argc, argv, o, err);
	load_options_free(o);
	return rc;
}

static void accepted(const char *more, uint32_t connections, uint32_t active)
{
	static struct load_options o;
	struct sy_error err = {0};

	if (options_read(more, &o, &err))
		fail_msg("%s: %s", more, err.text);
	assert_int_equal(o.connections, connections);
	assert_int_equal(o.active, active);
}

static void refused(const char *more, const char *text)
{
	static struct load_options o;
	struct sy_error err = {0};

	if (options_read(more, &o, &err) != -EINVAL)
		fail_msg("\"%s\" is accepted", more);
	if (!strstr(err.text, text))
		fail_msg("\"%s\": %s", more, err.text);
}

/* Each worker needs a connection that sends requests, unless no connection does. */
static void test_active(void **state)
{
	accepted("", 1, 1);
	accepted("--connections 100", 100, 100);
	accepted("--connections 100 --active 10", 100, 10);
	accepted("--connections 100 --active 1000 --requests 10", 100, 100);
	accepted("--connections 100 --active 4 --workers 4", 100, 4);
	accepted("--connections 100 --active 4 --workers 4 --rate 100", 100, 4);
	accepted("--connections 100 --active 0", 100, 0);
	accepted("--connections 100 --active 0 --workers 4", 100, 0);
	refused("--connections 100 --active 3 --workers 4", "--active 3");
	refused("--connections 100 --active 1 --workers 2 --requests 10", "--active 1");
	refused("--connections 100 --active 0 --requests 10", "--requests");
	refused("--connections 100 --active 0 --rate 10", "--rate");
	refused("--connections 3 --workers 4", "--connections 3");
}

static void test_stamp(void **state)
{
	accepted("--stamp", 1, 1);
	refused("--stamp --protocol http", "--stamp");
}

static void test_unsent(void **state)
{
	accepted("--rate 10 --class a,unsent=2us", 1, 1);
	refused("--class a,unsent=2us", "unsent");
	refused("--rate 10 --class a,unsent=2", "unsent");
}

static void test_at(void **state)
{
	static struct load_options o;

	assert_int_equal(options_read("--at 100s", &o, NULL), 0);
	assert_int_equal(o.at_ns, UINT64_C(100000000000));
	refused("--at soon", "--at");
	assert_int_equal(options_read("--turn 8", &o, NULL), 0);
	assert_int_equal(o.turn, 8);
	refused("--turn 65", "--turn");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_active),
	        cmocka_unit_test(test_unsent),
	        cmocka_unit_test(test_stamp),
	        cmocka_unit_test(test_at),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
