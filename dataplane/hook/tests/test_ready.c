// SPDX-License-Identifier: Apache-2.0
/* Results of the ready hooks for given packets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "views.h"

#define ASK(o, text) one_ask(o, text, sizeof(text) - 1)

static void test_length(void **state)
{
	struct one o = one_load("length", READY "/length.bpf.o");
	uint8_t bytes[1460] = {0};
	assert_int_equal(one_ask(&o, bytes, 0), SY_KEEP);
	assert_int_equal(one_ask(&o, bytes, 1), 0);
	assert_int_equal(one_ask(&o, bytes, 1023), 0);
	assert_int_equal(one_ask(&o, bytes, 1024), 6);
	one_param(&o, 0, 1460);
	one_param(&o, 1, 7);
	one_param(&o, 2, 1);
	assert_int_equal(one_ask(&o, bytes, 1459), 1);
	assert_int_equal(one_ask(&o, bytes, 1460), 7);
	sy_hooks_destroy(o.hs);
}

static void test_pattern(void **state)
{
	struct one o = one_load("pattern", READY "/pattern.bpf.o");
	one_param(&o, 0, 4);
	one_param(&o, 1, word_of("urgent\0\0"));
	one_param(&o, 2, UINT64_C(0xffffffffffff0000));
	one_param(&o, 4, 5);
	assert_int_equal(ASK(&o, "1234urgent and more"), 0);
	assert_int_equal(ASK(&o, "1234urgent"), 0); /* at the payload's end */
	assert_int_equal(ASK(&o, "1234urgenT"), 5);
	assert_int_equal(ASK(&o, "1234urgen"), 5);
	assert_int_equal(ASK(&o, "1"), 5);
	assert_int_equal(ASK(&o, ""), SY_KEEP);
	one_param(&o, 0, UINT64_MAX); /* beyond the payload: zeros */
	assert_int_equal(ASK(&o, "1234urgent"), 5);
	sy_hooks_destroy(o.hs);
}

static void test_label(void **state)
{
	struct one o = one_load("label", READY "/label.bpf.o");
	one_param(&o, 0, 2);
	assert_int_equal(ASK(&o, "ab\0"), 0);
	assert_int_equal(ASK(&o, "ab\7 more"), 7);
	assert_int_equal(ASK(&o, "ab\377"), 7);
	assert_int_equal(ASK(&o, "ab"), SY_KEEP);
	sy_hooks_destroy(o.hs);
}

static void test_http_path(void **state)
{
	struct one o = one_load("http_path", READY "/http_path.bpf.o");
	one_param(&o, 0, word_of("/api/"));
	one_param(&o, 1, 5);
	one_param(&o, 2, 1);
	assert_int_equal(ASK(&o, "GET /api/x HTTP/1.1\r\n\r\n"), 1);
	assert_int_equal(ASK(&o, "HEAD /api/ HTTP/1.1\r\n\r\n"), 1);
	assert_int_equal(ASK(&o, "OPTIONS /api/ HTTP/1.1\r\n\r\n"), 1);
	assert_int_equal(ASK(&o, "GET /apix HTTP/1.1\r\n\r\n"), 5);
	assert_int_equal(ASK(&o, "GET / HTTP/1.1\r\n\r\n"), 5);
	assert_int_equal(ASK(&o, "GET /api"), 5); /* its end is in another packet */
	assert_int_equal(ASK(&o, "body of a GET /api/ request"), SY_KEEP);
	assert_int_equal(ASK(&o, "GET"), SY_KEEP);
	assert_int_equal(ASK(&o, ""), SY_KEEP);
	one_param(&o, 3, 7);
	one_param(&o, 4, 3);
	assert_int_equal(ASK(&o, "POST /api/x HTTP/1.1\r\n\r\n"), 3);
	assert_int_equal(ASK(&o, "DELETE /else HTTP/1.1\r\n\r\n"), 7);
	one_param(&o, 1, 0); /* any path */
	assert_int_equal(ASK(&o, "GET /else HTTP/1.1\r\n\r\n"), 1);
	one_param(&o, 0, word_of("/downloa"));
	one_param(&o, 1, 80); /* as 8 */
	assert_int_equal(ASK(&o, "GET /download/1 HTTP/1.1\r\n\r\n"), 1);
	assert_int_equal(ASK(&o, "GET /downlow/1 HTTP/1.1\r\n\r\n"), 7);
	sy_hooks_destroy(o.hs);
}

static void test_redis_command(void **state)
{
	struct one o = one_load("redis_command", READY "/redis_command.bpf.o");
	assert_int_equal(ASK(&o, "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"), 0);
	assert_int_equal(ASK(&o, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"), 0);
	assert_int_equal(ASK(&o, "*2\r\n$4\r\nKEYS\r\n$1\r\n*\r\n"), 6);
	assert_int_equal(ASK(&o, "*2\r\n$4\r\nkeys\r\n$1\r\n*\r\n"), 6);
	assert_int_equal(ASK(&o, "*4\r\n$6\r\nlrange\r\n$1\r\na\r\n$1\r\n0\r\n$2\r\n-1\r\n"), 6);
	assert_int_equal(ASK(&o, "*2\r\n$7\r\nHGETALL\r\n$1\r\na\r\n"), 6);
	assert_int_equal(ASK(&o, "*2\r\n$8\r\nSMEMBERS\r\n$1\r\na\r\n"), 6);
	assert_int_equal(ASK(&o, "*1\r\n$8\r\nFLUSHALL\r\n"), 6);
	assert_int_equal(ASK(&o, "*1\r\n$4\r\nPING\r\n"), 0);
	assert_int_equal(ASK(&o, "*3\r\n$11\r\nSINTERSTORE\r\n$1\r\na\r\n$1\r\nb\r\n"), 6);
	assert_int_equal(ASK(&o, "+PONG\r\n"), SY_KEEP);
	assert_int_equal(ASK(&o, "*2\r\n"), SY_KEEP);
	assert_int_equal(ASK(&o, "*"), SY_KEEP);
	one_param(&o, 0, 7);
	one_param(&o, 1, 2);
	assert_int_equal(ASK(&o, "*2\r\n$4\r\nSCAN\r\n$1\r\n0\r\n"), 7);
	assert_int_equal(ASK(&o, "*1\r\n$4\r\nPING\r\n"), 2);
	sy_hooks_destroy(o.hs);
}

static void test_dscp(void **state)
{
	static const struct {
		uint8_t dscp, priority;
	} rows[] = {{0, 4}, {46, 0}, {56, 0}, {48, 1}, {40, 2}, {34, 3}, {10, 6}, {8, 6}, {1, 7}};
	struct one o = one_load("dscp", READY "/dscp.bpf.o");
	for (unsigned i = 0; i < SY_ARRAY_LEN(rows); i++) {
		struct sy_hook_packet view = packet_view(0);
		view.dscp = rows[i].dscp;
		assert_int_equal(sy_hook_run_packet(o.hs, o.number, &view, NULL), rows[i].priority);
	}
	sy_hooks_destroy(o.hs);
}

static void test_link(void **state)
{
	struct one o = one_load("link", READY "/link.bpf.o");
	struct sy_hook_segment s = {.srtt_us = 50000, .sent = 1000000};
	assert_int_equal(one_ask_segment(&o, &s, "x", 1), 0);
	s.srtt_us = 100000;
	assert_int_equal(one_ask_segment(&o, &s, "x", 1), 6);
	s.srtt_us = 50000;
	s.resent = 5;
	assert_int_equal(one_ask_segment(&o, &s, "x", 1), 0);
	s.resent = 6;
	assert_int_equal(one_ask_segment(&o, &s, "x", 1), 6);
	one_param(&o, 1, 10);
	one_param(&o, 3, 2);
	assert_int_equal(one_ask_segment(&o, &s, "x", 1), 2);
	sy_hooks_destroy(o.hs);
}

static void test_bytes(void **state)
{
	struct one o = one_load("bytes", READY "/bytes.bpf.o");
	struct sy_hook_segment s = {.offset = 65535};
	assert_int_equal(one_ask_segment(&o, &s, "x", 1), 0);
	s.offset = 65536;
	assert_int_equal(one_ask_segment(&o, &s, "x", 1), 6);
	sy_hooks_destroy(o.hs);
}

/* A request with this many bytes after its header. */
static size_t request_write(uint8_t *at, uint32_t len, uint8_t priority)
{
	uint32_t counted = len + 1;
	memset(at, 0xee, len + 5);
	for (unsigned i = 0; i < 4; i++)
		at[i] = (uint8_t)(counted >> (24 - 8 * i));
	at[4] = priority;
	return len + 5;
}

static void test_requests(void **state)
{
	struct one o = one_load("requests", READY "/requests.bpf.o");
	struct sy_hook_segment s = {0};
	uint8_t stream[8000];
	size_t len = request_write(stream, 3000, 2); /* 3 segments */
	len += request_write(stream + len, 10, 7);   /* ends in the third */
	size_t fourth = len;
	len += request_write(stream + len, 995, 9); /* no such priority: the last one */
	static const struct {
		unsigned from, to, priority;
	} rows[] = {{0, 1000, 2}, {1000, 2000, 2}, {2000, 3020, 2}};
	for (unsigned i = 0; i < SY_ARRAY_LEN(rows); i++) {
		s.offset = rows[i].from;
		assert_int_equal(
		        one_ask_segment(&o, &s, stream + rows[i].from, rows[i].to - rows[i].from),
		        rows[i].priority);
	}
	assert_int_equal(fourth, 3020);
	s.offset = fourth + 500; /* out of order: the start of its request is unknown */
	assert_int_equal(one_ask_segment(&o, &s, stream + s.offset, 500), SY_KEEP);
	s.offset = fourth;
	assert_int_equal(one_ask_segment(&o, &s, stream + fourth, len - fourth), 7);
	sy_hooks_destroy(o.hs);
}

static void test_service_time(void **state)
{
	struct one o = one_load("service_time", READY "/service_time.bpf.o");
	struct sy_hook_segment s = {0};
	uint32_t expected[16] = {[3] = 99, [4] = 100, [15] = 5000};
	memcpy(s.own, expected, sizeof(s.own));
	assert_int_equal(one_ask_segment(&o, &s, "\3", 1), 0);
	assert_int_equal(one_ask_segment(&o, &s, "\4", 1), 6);
	assert_int_equal(one_ask_segment(&o, &s, "\17", 1), 6);
	assert_int_equal(one_ask_segment(&o, &s, "\23", 1), 0); /* 19: as type 3 */
	one_param(&o, 0, 1);
	assert_int_equal(one_ask_segment(&o, &s, "\17", 1), SY_KEEP);
	assert_int_equal(one_ask_segment(&o, &s, "\0\17", 2), 6);
	one_param(&o, 1, 5001);
	one_param(&o, 3, 1);
	assert_int_equal(one_ask_segment(&o, &s, "\0\17", 2), 1);
	sy_hooks_destroy(o.hs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_length),        cmocka_unit_test(test_pattern),
	        cmocka_unit_test(test_label),         cmocka_unit_test(test_http_path),
	        cmocka_unit_test(test_redis_command), cmocka_unit_test(test_dscp),
	        cmocka_unit_test(test_link),          cmocka_unit_test(test_bytes),
	        cmocka_unit_test(test_requests),      cmocka_unit_test(test_service_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
