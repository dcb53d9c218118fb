// SPDX-License-Identifier: Apache-2.0
/* redis requests, and which responses are valid. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mix.h"
#include "redis.h"

static const struct {
	const char *bytes;
	unsigned right, wrong; /* answers */
	bool none;             /* followed by an invalid response */
} cases[] = {
        {"$5\r\nhello\r\n", 1, 0, false},
        {"$0\r\n\r\n+OK\r\n:17\r\n", 3, 0, false},
        {"$4\r\na\r\nb\r\n$1\r\nx\r\n", 2, 0, false},
        {"$-1\r\n-ERR unknown command\r\n$1\r\nx\r\n", 1, 2, false},
        {"$5\r\nhel", 0, 0, false},
        {"$5x\r\nhello\r\n", 0, 0, true},
        {"$-2\r\n", 0, 0, true},
        {"$999999999999\r\n", 0, 0, true},
        {"*1\r\n$1\r\nx\r\n", 0, 0, true},
        {"\r\n", 0, 0, true},
        {"\n", 0, 0, true},
        {"+OK\n", 0, 0, true},
};

static void case_run(const char *bytes, unsigned wanted_right, unsigned wanted_wrong, bool none,
                     size_t piece)
{
	size_t whole = strlen(bytes), at = 0;
	struct redis_reader r = {0};
	unsigned right = 0, wrong = 0;
	int64_t taken = 0;
	bool done;

	while (at < whole) {
		size_t len = whole - at < piece ? whole - at : piece;
		taken = redis_take(&r, (const uint8_t *)bytes + at, len, &done);
		if (taken < 0)
			break;
		at += (size_t)taken;
		right += done && !r.wrong;
		wrong += done && r.wrong;
	}
	if (right != wanted_right || wrong != wanted_wrong || (taken < 0) != none)
		fail_msg("\"%s\" in pieces of %zu: %u right, %u wrong, %d", bytes, piece, right,
		         wrong, (int)taken);
}

static void test_answers(void **state)
{
	for (unsigned i = 0; i < SY_ARRAY_LEN(cases); i++)
		for (size_t piece = 1; piece <= strlen(cases[i].bytes); piece++)
			case_run(cases[i].bytes, cases[i].right, cases[i].wrong, cases[i].none,
			         piece);
}

/* An error text longer than the parser's limit. */
static void test_long_line(void **state)
{
	char line[3 * REDIS_LINE + 3];

	memset(line, 'x', sizeof(line));
	line[0] = '-';
	memcpy(line + sizeof(line) - 3, "\r\n", 3);
	for (size_t piece = 1; piece <= sizeof(line); piece += 50)
		case_run(line, 0, 1, false, piece);
}

static void test_request(void **state)
{
	struct mix m = {.protocol = PROTOCOL_REDIS};
	struct request r = {0};
	char bytes[REQUEST_HEADER];
	struct sy_error err;

	assert_int_equal(class_read(&m, "a,key=page:7", &err), 0);
	assert_int_equal(class_read(&m, "b", &err), 0);
	assert_int_equal(mix_complete(&m, &err), 0);
	size_t len = request_header(&m, &r, bytes);
	assert_int_equal(len, strlen(bytes));
	assert_string_equal(bytes, "*2\r\n$3\r\nGET\r\n$6\r\npage:7\r\n");
	assert_int_equal(request_rest(&m, &r), 0);
	r.class = 1;
	request_header(&m, &r, bytes);
	assert_string_equal(bytes, "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
}

static void test_keys(void **state)
{
	struct sy_error err;

	for (enum protocol p = PROTOCOL_RAW; p <= PROTOCOL_REDIS; p++) {
		struct mix key = {.protocol = p}, length = {.protocol = p}, path = {.protocol = p};
		bool redis = p == PROTOCOL_REDIS;
		assert_int_equal(class_read(&key, "x,key=k", &err), 0);
		assert_int_equal(mix_complete(&key, &err), redis ? 0 : -EINVAL);
		assert_int_equal(class_read(&length, "x,length=40", &err), 0);
		assert_int_equal(mix_complete(&length, &err), redis ? -EINVAL : 0);
		assert_int_equal(class_read(&path, "x,path=/a", &err), 0);
		assert_int_equal(mix_complete(&path, &err), p == PROTOCOL_HTTP ? 0 : -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_answers),
	        cmocka_unit_test(test_long_line),
	        cmocka_unit_test(test_request),
	        cmocka_unit_test(test_keys),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
