// SPDX-License-Identifier: Apache-2.0
/* Distributions, schedules, protocols. Seeds are fixed: nothing is random. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "http.h"
#include "load_schedule.h"
#include "mix.h"
#include "raw_protocol.h"

#define DRAWS 200000

/* ---- distributions --------------------------------------------------------------------------- */

static struct distribution read_right(const char *text, enum unit unit)
{
	struct distribution d;
	struct sy_error err = {0};

	if (distribution_read(&d, "test", text, unit, &err))
		fail_msg("%s: %s", text, err.text);
	return d;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* The sample mean matches the formula, and this share is at most `at`. */
static void draws_are(const char *text, double mean, uint64_t at, double share)
{
	struct distribution d = read_right(text, UNIT_COUNT);
	uint64_t *value = malloc(DRAWS * sizeof(*value));
	struct chance c = {7};
	double sum = 0;
	unsigned below = 0;

	for (unsigned i = 0; i < DRAWS; i++) {
		value[i] = distribution_draw(&d, &c);
		sum += (double)value[i];
		below += value[i] <= at;
	}
	qsort(value, DRAWS, sizeof(*value), compare);
	if (fabs(distribution_mean(&d) / mean - 1) > 1e-6)
		fail_msg("%s: its mean is said to be %g, not %g", text, distribution_mean(&d),
		         mean);
	if (fabs(sum / DRAWS / mean - 1) > 0.02)
		fail_msg("%s: the mean is %g, not %g", text, sum / DRAWS, mean);
	if (fabs((double)below / DRAWS - share) > 0.005)
		fail_msg("%s: %g are up to %lu, not %g", text, (double)below / DRAWS, at, share);
	distribution_free(&d);
	free(value);
}

static void test_distributions(void **state)
{
	draws_are("1234", 1234, 1233, 0);
	draws_are("const:5k", 5000, 5000, 1);
	draws_are("uniform:1000:3000", 2000, 1500, 0.25);
	draws_are("exp:10000", 10000, 10000, 1 - exp(-1));
	draws_are("bimodal:100:100k:0.25", 25075, 100, 0.75);
	draws_are("pareto:1000:3", 1500, 2000, 1 - 1.0 / 8);
	/* Bounded: F(2000) of the formula, and the mean by integration. */
	draws_are("pareto:1000:1:10k", 1000 * log(10) / 0.9, 2000, 0.5 / 0.9);
	draws_are("pareto:1000:2:10k", 2000 * (1 - 0.1) / (1 - 0.01), 2000, 0.75 / 0.99);
}

static void test_of_file(void **state)
{
	char path[] = "/tmp/sy-load-XXXXXX", text[64];
	int fd = mkstemp(path);
	FILE *file = fdopen(fd, "w");

	fputs("# value weight\n10 1\n\n20\t6 # most\n30 2\n40\n50 0\n", file);
	fclose(file);
	snprintf(text, sizeof(text), "file:%s", path);
	draws_are(text, (10 + 120 + 60 + 40) / 10.0, 20, 0.7);
	file = fopen(path, "w");
	fputs("10 0\n", file);
	fclose(file);
	struct distribution d;
	struct sy_error err;
	assert_int_equal(distribution_read(&d, "x", text, UNIT_COUNT, &err), -EINVAL);
	distribution_free(&d);
	file = fopen(path, "w");
	fputs("10\nabc\n", file);
	fclose(file);
	assert_int_equal(distribution_read(&d, "x", text, UNIT_COUNT, &err), -EINVAL);
	distribution_free(&d);
	unlink(path);
	assert_int_equal(distribution_read(&d, "x", text, UNIT_COUNT, &err), -ENOENT);
}

static void test_refused(void **state)
{
	static const char *const wrong[] = {
	        "",     "x",          "-5",          "uniform:5",    "uniform:9:5",
	        "exp:", "exp:1:2",    "bimodal:1:2", "normal:1:2",   "bimodal:1:2:1.5",
	        "5q",   "pareto:0:1", "pareto:5:0",  "pareto:5:1:4", "const:1:2:3:4",
	        "nan",  "inf",        "1e30",
	};
	struct distribution d;
	struct sy_error err;

	for (unsigned i = 0; i < SY_ARRAY_LEN(wrong); i++)
		if (distribution_read(&d, "test", wrong[i], UNIT_COUNT, &err) != -EINVAL)
			fail_msg("\"%s\" is taken", wrong[i]);
	assert_int_equal(distribution_read(&d, "test", "5", UNIT_TIME, &err), -EINVAL);
	d = read_right("bimodal:1us:2ms:0.5", UNIT_TIME);
	assert_true(d.a == 1000 && d.b == 2000000 && d.c == 0.5);
	d = read_right("1.5m", UNIT_TIME);
	assert_true(d.a == 9e10);
	d = read_right("0", UNIT_TIME);
	assert_true(d.a == 0);
}

/* ---- the open loop's schedule, in virtual time ----------------------------------------------- */

static void test_arrivals_even(void **state)
{
	struct arrivals a = {.per_ns = 1e-6}; /* 1000 a second */
	struct chance c = {1};
	uint64_t due, count = 0;

	arrivals_start(&a, &c, 5000000);
	assert_false(arrivals_take(&a, &c, 5999999, &due));
	/* After a pause each request still has its own due time. */
	while (arrivals_take(&a, &c, 15000000, &due))
		assert_int_equal(due, 5000000 + ++count * 1000000);
	assert_int_equal(count, 10);
}

static void arrivals_rate(bool poisson, const struct distribution *burst)
{
	struct arrivals a = {.per_ns = 1e-5, .poisson = poisson, .burst = burst};
	struct chance c = {3};
	uint64_t due, last = 0, count = 0, alone = 0, same = 0;

	arrivals_start(&a, &c, 0);
	for (uint64_t now = 0; now < 10000000000; now += 777777)
		for (; arrivals_take(&a, &c, now, &due); count++) {
			assert_true(due >= last && due <= now);
			same += due == last;
			alone += due != last;
			last = due;
		}
	assert_in_range(count, 98500, 101500); /* 100 000 a second, in 1 s of 10: 1e10 × 1e-5 */
	if (burst)
		assert_in_range(count / alone, 9, 11);
	else
		assert_in_range(same, 0, 20);
}

static void test_arrivals_rates(void **state)
{
	struct distribution ten = distribution_constant(10),
	                    spread = {.kind = DISTRIBUTION_UNIFORM, .b = 20};
	arrivals_rate(false, NULL);
	arrivals_rate(true, NULL);
	arrivals_rate(false, &ten);
	arrivals_rate(true, &spread);
}

static void test_agenda(void **state)
{
	struct agenda a = {0};
	struct chance c = {11};
	struct due due;
	uint64_t last = 0;

	assert_true(agenda_next(&a) == UINT64_MAX);
	for (uint32_t i = 0; i < 5000; i++)
		assert_int_equal(agenda_add(&a, (struct due){chance_below(&c, 1000000), i}), 0);
	assert_false(agenda_take(&a, agenda_next(&a) - 1, &due));
	for (unsigned i = 0; i < 5000; i++) {
		assert_true(agenda_take(&a, 1000000, &due));
		assert_true(due.at_ns >= last);
		last = due.at_ns;
	}
	assert_false(agenda_take(&a, UINT64_MAX, &due));
	agenda_free(&a);
}

static void test_backlog(void **state)
{
	struct backlog b = {0};
	uint64_t in = 0, out = 0, due;
	struct chance c = {5};

	for (unsigned n = 0; n < 20000; n++) {
		if (chance_below(&c, 5) < 3) {
			assert_int_equal(backlog_add(&b, in++), 0);
		} else if (backlog_take(&b, &due)) {
			assert_int_equal(due, out++);
		} else {
			assert_int_equal(in, out);
		}
	}
	while (backlog_take(&b, &due))
		assert_int_equal(due, out++);
	assert_int_equal(in, out);
	assert_true(in > 10000);
	backlog_free(&b);
}

/* ---- raw ------------------------------------------------------------------------------------- */

/* By fields: what is between them is undefined. */
static bool header_is(const struct raw_header *a, const struct raw_header *b)
{
	return a->kind == b->kind && a->class == b->class && a->type == b->type &&
	       a->length == b->length && a->answer == b->answer && a->service_ns == b->service_ns &&
	       a->number == b->number;
}

static void test_raw(void **state)
{
	const struct raw_header request = {RAW_REQUEST, 3, 700, 100, 5000, 1234567890, UINT64_MAX};
	struct raw_reader reader;
	struct raw_header h;
	enum raw_got got;
	uint8_t bytes[200];

	raw_write(bytes, &request);
	assert_memory_equal(bytes, "SY\1\1\3\0\2\274\0\0\0d\0\0\23\210", 16);
	memcpy(bytes + RAW_HEADER, pattern_from(0), 68);
	raw_write(bytes + 100, &(struct raw_header){RAW_REQUEST, 0, 0, RAW_HEADER, 64, 0, 0});
	/* In pieces of each size, it is always the same. */
	for (size_t piece = 1; piece <= 132; piece++) {
		unsigned headers = 0, messages = 0;
		memset(&reader, 0, sizeof(reader));
		for (size_t at = 0; at < 132;) {
			size_t len = 132 - at < piece ? 132 - at : piece;
			int64_t taken = raw_take(&reader, RAW_REQUEST, bytes + at, len, &h, &got);
			assert_true(taken > 0);
			at += (size_t)taken;
			headers += got == RAW_HEADER_DONE;
			messages += got == RAW_MESSAGE_DONE;
			if (got == RAW_HEADER_DONE)
				assert_true(header_is(&h, &request));
			if (got == RAW_MESSAGE_DONE)
				assert_int_equal(at, messages == 1 ? 100 : 132);
		}
		assert_int_equal(headers, 1);
		assert_int_equal(messages, 2);
	}
}

static void test_raw_refused(void **state)
{
	/* byte, value: each alone makes the header none. */
	static const uint8_t wrong[][2] = {{0, 'x'}, {1, 'x'}, {2, 2},    {3, 2}, {3, 7},
	                                   {5, 1},   {8, 255}, {12, 255}, {16, 1}};
	const struct raw_header right = {RAW_REQUEST, 0, 0, RAW_HEADER, RAW_HEADER, 0, 0};
	uint8_t bytes[RAW_HEADER];
	struct raw_header h;
	enum raw_got got;

	for (unsigned i = 0; i < SY_ARRAY_LEN(wrong); i++) {
		struct raw_reader reader = {0};
		raw_write(bytes, &right);
		bytes[wrong[i][0]] = wrong[i][1];
		assert_int_equal(raw_take(&reader, RAW_REQUEST, bytes, RAW_HEADER, &h, &got),
		                 -EPROTO);
	}
	raw_write(bytes, &(struct raw_header){RAW_REQUEST, 0, 0, RAW_HEADER - 1, RAW_HEADER, 0, 0});
	assert_int_equal(raw_read(bytes, &h), -EPROTO);
	raw_write(bytes, &(struct raw_header){RAW_REQUEST, 0, 0, RAW_HEADER, RAW_HEADER - 1, 0, 0});
	assert_int_equal(raw_read(bytes, &h), -EPROTO);
	raw_write(bytes, &right);
	assert_int_equal(raw_read(bytes, &h), 0);
}

static void test_pattern(void **state)
{
	uint8_t bytes[3000];

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = *pattern_from(100 + i);
	assert_true(pattern_is(bytes, sizeof(bytes), 100));
	assert_false(pattern_is(bytes, sizeof(bytes), 101));
	assert_true(pattern_is(bytes + 1448, 100, 1548));
	assert_false(pattern_is(bytes, 100, 1548)); /* a segment is missing */
	bytes[2999] ^= 1;
	assert_false(pattern_is(bytes, sizeof(bytes), 100));
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

struct http_case {
	const char *bytes;
	unsigned answers;
	int status; /* the last one's; 0: the bytes are none */
	bool close, until_end;
};

static const struct http_case http_cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 1, 200, false, false},
        {"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", 1, 200, false, false},
        {"HTTP/1.1 200 OK\r\nContent-Length:0\r\n\r\nHTTP/1.1 404 Not Found\r\n"
         "content-length:  2 \r\n\r\nno",
         2, 404, false, false},
        {"HTTP/1.1 204 No Content\r\n\r\n", 1, 204, false, false},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n", 1, 304, false, false},
        {"HTTP/1.1 200\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 1, 200, true, false},
        {"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 1\r\n\r\nx", 1, 200, true,
         false},
        {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 1, 200, true, false},
        {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", 1, 200, false,
         false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1a;x=y\r\n"
         "abcdefghijklmnopqrstuvwxyz\r\n0\r\nA: b\r\n\r\n",
         1, 200, false, false},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 1, 200,
         false, false},
        {"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nall until the end", 0, 200, true, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 1, 200, false,
         false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 0, 0, false, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n", 0, 0, false, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3x\r\n\r\n", 0, 0, false, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999\r\n\r\n", 0, 0, false, false},
        {"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", 0, 0, false, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 0, 0, false, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", 0, 0, false, false},
        {"HTTP/2 200\r\n\r\n", 0, 0, false, false},
        {"HTTP/1.1 20\r\n\r\n", 0, 0, false, false},
        {"HTTP/1.1 2000\r\n\r\n", 0, 0, false, false},
        {"\r\n", 0, 0, false, false},
        {"GET / HTTP/1.1\r\n\r\n", 0, 0, false, false},
};

static void http_case_run(const struct http_case *k, size_t piece)
{
	struct http_reader r = {0};
	size_t whole = strlen(k->bytes), at = 0;
	unsigned answers = 0;
	int64_t taken = 0;
	bool done;

	while (at < whole && taken >= 0) {
		size_t len = whole - at < piece ? whole - at : piece;
		taken = http_take(&r, (const uint8_t *)k->bytes + at, len, &done);
		at += taken > 0 ? (size_t)taken : 0;
		answers += taken > 0 && done;
	}
	if ((taken < 0) != !k->status || answers != k->answers)
		fail_msg("%s: in pieces of %zu: %ld, %u answers", k->bytes, piece, taken, answers);
	if (!k->status)
		return;
	assert_int_equal(r.status, k->status);
	assert_int_equal(r.close, k->close);
	assert_int_equal(http_end(&r), k->until_end);
}

static void test_http(void **state)
{
	char line[2000] = "HTTP/1.1 200 OK\r\nX: ";

	for (unsigned i = 0; i < SY_ARRAY_LEN(http_cases); i++)
		for (size_t piece = 1; piece <= strlen(http_cases[i].bytes); piece++)
			http_case_run(&http_cases[i], piece);
	/* A line beyond what is looked at. */
	memset(line + strlen(line), 'x', 1500);
	strcpy(line + 1500, "\r\nContent-Length: 2\r\n\r\nab");
	for (size_t piece = 1; piece <= 300; piece++)
		http_case_run(&(struct http_case){line, 1, 200, false, false}, piece);
}

/* ---- classes --------------------------------------------------------------------------------- */

static void test_mix(void **state)
{
	struct mix m = {.protocol = PROTOCOL_RAW};
	struct chance c = {9};
	struct sy_error err;
	struct request r;
	unsigned urgent = 0;
	char bytes[REQUEST_HEADER];
	struct raw_header h;

	assert_int_equal(class_read(&m, "urgent,share=5,service=1us,type=9", &err), 0);
	assert_int_equal(class_read(&m, "slow,share=95,length=uniform:10:2k,answer=4k", &err), 0);
	assert_int_equal(mix_complete(&m, &err), 0);
	for (unsigned i = 0; i < 20000; i++) {
		memset(&r, 0, sizeof(r));
		request_draw(&m, &c, &r);
		urgent += r.class == 0;
		assert_int_equal(r.service_ns, r.class ? 0 : 1000);
		assert_in_range(r.length, r.class ? RAW_HEADER : 64, r.class ? 2000 : 64);
	}
	assert_in_range(urgent, 900, 1100);
	r.number = 77;
	assert_int_equal(request_header(&m, &r, bytes), RAW_HEADER);
	assert_int_equal(raw_read((uint8_t *)bytes, &h), 0);
	assert_true(h.number == 77 && h.answer == r.answer && h.length == r.length);
	assert_int_equal(request_rest(&m, &r), r.length - RAW_HEADER);
	assert_int_equal(class_read(&m, "slow", &err), 0);
	assert_int_equal(mix_complete(&m, &err), -EINVAL);
	mix_free(&m);
}

static void test_mix_refused(void **state)
{
	static const char *const wrong[] = {
	        "",        "a b",          "x,share",    "x,share=-1", "x,type=70000",
	        "x,path=", "x,colour=red", "x,service=5"};
	struct sy_error err;

	for (unsigned i = 0; i < SY_ARRAY_LEN(wrong); i++) {
		struct mix m = {0};
		if (class_read(&m, wrong[i], &err) != -EINVAL)
			fail_msg("\"%s\" is taken", wrong[i]);
	}
	for (enum protocol p = PROTOCOL_RAW; p <= PROTOCOL_HTTP; p++) {
		struct mix raw = {.protocol = p}, http = {.protocol = p}, none = {.protocol = p};
		assert_int_equal(class_read(&raw, "x,type=1", &err), 0);
		assert_int_equal(mix_complete(&raw, &err), p == PROTOCOL_RAW ? 0 : -EINVAL);
		assert_int_equal(class_read(&http, "x,path=/a", &err), 0);
		assert_int_equal(mix_complete(&http, &err), p == PROTOCOL_HTTP ? 0 : -EINVAL);
		assert_int_equal(class_read(&none, "x,share=0", &err), 0);
		assert_int_equal(mix_complete(&none, &err), -EINVAL);
	}
}

static void test_methods(void **state)
{
	static const char *const wrong[] = {"x,method=HEAD", "x,method=head", "x,method=CONNECT",
	                                    "x,path=/a,method=Connect,length=5", "x,method="};
	static const char *const right[] = {"x,method=GET", "x,method=OPTIONS", "x,method=HEADER"};
	struct sy_error err;

	for (unsigned i = 0; i < SY_ARRAY_LEN(wrong); i++) {
		struct mix m = {.protocol = PROTOCOL_HTTP};
		if (class_read(&m, wrong[i], &err) != -EINVAL)
			fail_msg("\"%s\" is taken", wrong[i]);
		assert_non_null(strstr(err.text, "method"));
	}
	for (unsigned i = 0; i < SY_ARRAY_LEN(right); i++) {
		struct mix m = {.protocol = PROTOCOL_HTTP};
		assert_int_equal(class_read(&m, right[i], &err), 0);
		assert_int_equal(mix_complete(&m, &err), 0);
	}
}

static void test_http_request(void **state)
{
	struct mix m = {.protocol = PROTOCOL_HTTP, .host = "h", .fields = "A: b\r\n"};
	struct sy_error err;
	struct request r = {.length = 7};
	char bytes[REQUEST_HEADER];

	assert_int_equal(class_read(&m, "get,path=/x", &err), 0);
	assert_int_equal(class_read(&m, "put,path=/y,method=PUT,length=7", &err), 0);
	assert_int_equal(mix_complete(&m, &err), 0);
	r.length = 0;
	request_header(&m, &r, bytes);
	assert_string_equal(bytes, "GET /x HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n");
	assert_int_equal(request_rest(&m, &r), 0);
	r = (struct request){.class = 1, .length = 7};
	m.close = true;
	request_header(&m, &r, bytes);
	assert_string_equal(bytes, "PUT /y HTTP/1.1\r\nHost: h\r\nConnection: close\r\nA: b\r\n"
	                           "Content-Length: 7\r\n\r\n");
	assert_int_equal(request_rest(&m, &r), 7);
	mix_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_distributions),  cmocka_unit_test(test_of_file),
	        cmocka_unit_test(test_refused),        cmocka_unit_test(test_arrivals_even),
	        cmocka_unit_test(test_arrivals_rates), cmocka_unit_test(test_agenda),
	        cmocka_unit_test(test_backlog),        cmocka_unit_test(test_raw),
	        cmocka_unit_test(test_raw_refused),    cmocka_unit_test(test_pattern),
	        cmocka_unit_test(test_http),           cmocka_unit_test(test_mix),
	        cmocka_unit_test(test_mix_refused),    cmocka_unit_test(test_http_request),
	        cmocka_unit_test(test_methods),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
