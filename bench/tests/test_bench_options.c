// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* cmocka needs the above */
#include <cmocka.h>

#include "bench_options.h"

static struct {
	bool loud;
	const char *family, *directory;
	unsigned runs;
	uint64_t sessions;
	double fill;
} got;

static char said[4096];

/* Captures standard output and standard error in `said`. */
static int read_line(int argc, char **argv)
{
	const struct option_entry options[] = {
	        {"loud", NULL, OPTION_FLAG, &got.loud, 0, 0, "says more"},
	        {"family", "4|64", OPTION_WORD, &got.family, 0, 0, NULL},
	        {"directory", "DIR", OPTION_WORD, &got.directory, 0, 0, "where it goes"},
	        {"runs", "N", OPTION_UNSIGNED, &got.runs, 2, 9, NULL},
	        {"sessions", "N", OPTION_COUNT, &got.sessions, 0, 0,
	         "so many that what is said of them does not fit into what is left of a line"},
	        {"fill", "F", OPTION_REAL, &got.fill, 0.1, 0.9, "of the table"},
	};
	int keep[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
	FILE *file = tmpfile();
	assert_non_null(file);
	memset(&got, 0, sizeof(got));
	got.family = "4";
	got.runs = 7;
	got.sessions = 10000000000;
	got.fill = 0.85;
	fflush(stdout);
	for (int fd = 1; fd <= 2; fd++)
		assert_true(dup2(fileno(file), fd) >= 0);
	int status = options_read(argc, argv, "Tells nothing.", options,
	                          sizeof(options) / sizeof(*options));
	fflush(stdout);
	for (int fd = 1; fd <= 2; fd++) {
		assert_true(dup2(keep[fd - 1], fd) >= 0);
		close(keep[fd - 1]);
	}
	rewind(file);
	said[fread(said, 1, sizeof(said) - 1, file)] = 0;
	fclose(file);
	return status;
}

#define READ(...)                                                                                  \
	read_line(sizeof((char *[]){"steelyard-test", __VA_ARGS__}) / sizeof(char *),              \
	          (char *[]){"steelyard-test", __VA_ARGS__, NULL})

static void test_values_are_read(void **state)
{
	assert_int_equal(READ("--loud", "--family", "64", "--runs=9", "--sessions",
	                      "18446744073709551615", "--fill", "0.1", "--directory", "/x|y"),
	                 -1);
	assert_true(got.loud);
	assert_string_equal(got.family, "64");
	assert_string_equal(got.directory, "/x|y");
	assert_int_equal(got.runs, 9);
	assert_true(got.sessions == UINT64_MAX);
	assert_true(got.fill > 0.09 && got.fill < 0.11);
}

static void test_what_is_not_said_stays(void **state)
{
	assert_int_equal(READ("--runs", "2"), -1);
	assert_false(got.loud);
	assert_string_equal(got.family, "4");
	assert_null(got.directory);
	assert_true(got.sessions == 10000000000);
}

static void test_help_tells_values_and_defaults(void **state)
{
	assert_int_equal(READ("--help"), 0);
	assert_non_null(strstr(said,
	                       "\n"
	                       "\n"
	                       "Tells nothing.\n"
	                       "\n"
	                       "  --loud           says more\n"
	                       "  --family 4|64    (4)\n"
	                       "  --directory DIR  where it goes\n"
	                       "  --runs N         (7)\n"
	                       "  --sessions N     so many that what is said of them does not "
	                       "fit into what is\n"
	                       "                   left of a line (10000000000)\n"
	                       "  --fill F         of the table (0.85)\n"));
}

static void assert_refused(int status, const char *why)
{
	assert_int_equal(status, 2);
	if (!strstr(said, why))
		fail_msg("'%s' is not in: %s", why, said);
}

static void test_what_may_not_be_is_refused(void **state)
{
	assert_refused(READ("--family", "6"), "--family 6: it takes one of 4|64");
	assert_refused(READ("--family", ""), "one of 4|64");
	assert_refused(READ("--family", "4|64"), "one of 4|64");
	assert_refused(READ("--runs", "1"), "--runs 1: it takes a number from 2 to 9");
	assert_refused(READ("--runs", "4294967298"), "from 2 to 9");
	assert_refused(READ("--runs", "3x"), "from 2 to 9");
	assert_refused(READ("--sessions", "0"), "a number above 0");
	assert_refused(READ("--sessions", "-1"), "a number above 0");
	assert_refused(READ("--sessions", "18446744073709551616"), "a number above 0");
	assert_refused(READ("--fill", "nan"), "from 0.1 to 0.9");
	assert_refused(READ("--fill", "0.95"), "from 0.1 to 0.9");
	assert_refused(READ("--nothing"), "--nothing");
	assert_refused(READ("--runs"), "--runs");
	assert_refused(READ("5"), "5: there are only options");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_values_are_read),
	        cmocka_unit_test(test_what_is_not_said_stays),
	        cmocka_unit_test(test_help_tells_values_and_defaults),
	        cmocka_unit_test(test_what_may_not_be_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
