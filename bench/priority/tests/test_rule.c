// SPDX-License-Identifier: Apache-2.0
/* What the synthetic server's hooks say, of packets and of requests over several segments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "priority_serve.h"
#include "rule.h"

static uint8_t bytes[4096];

static void request_make(unsigned type, uint32_t length)
{
	memset(bytes, 'x', sizeof(bytes));
	raw_write(bytes, &(struct raw_header){.kind = RAW_REQUEST,
	                                      .type = (uint16_t)type,
	                                      .length = length,
	                                      .answer = 64});
}

static uint8_t packet_ask(const uint8_t *payload, uint16_t len)
{
	return rule_packet(&(struct sy_hook_packet){.payload_len = len}, payload);
}

static void rule_check(const char *name, uint8_t urgent, uint8_t other, uint8_t rest)
{
	rule_use(rule_named(name), 0);
	request_make(RULE_URGENT_TYPE, 3000);
	assert_int_equal(packet_ask(bytes, 1460), urgent);
	assert_int_equal(packet_ask(bytes + 1460, 1460), rest);
	request_make(2, 3000);
	assert_int_equal(packet_ask(bytes, 1460), other);
	assert_int_equal(packet_ask(bytes, RAW_HEADER - 1), rest);
	assert_int_equal(packet_ask(bytes, 0), SY_KEEP);
}

static void test_packets(void **state)
{
	rule_check("type", 0, 6, SY_KEEP);
	rule_check("label", 0, 6, 6);
	rule_check("swapped", 6, 0, SY_KEEP);
	rule_check("equal", SY_USUAL, SY_USUAL, SY_USUAL);
	rule_check("nothing", SY_KEEP, SY_KEEP, SY_KEEP);
	assert_null(rule_named("other"));
}

/* A segment of a connection that has brought `offset` bytes before it. */
static uint8_t segment_ask(struct sy_hook_segment *s, uint64_t offset, uint16_t len)
{
	s->offset = offset;
	s->packet.payload_len = len;
	return rule_segment(s, bytes + (offset ? offset % 3000 : 0));
}

static void test_requests_over_segments(void **state)
{
	struct sy_hook_segment s = {0};
	const struct note *n = (const void *)s.own;

	rule_use(rule_named("type"), 0);
	request_make(RULE_URGENT_TYPE, 3000);
	assert_int_equal(segment_ask(&s, 0, 1460), 0);
	assert_int_equal(n->tcp_ns, 0); /* it is not whole */
	assert_int_equal(segment_ask(&s, 1460, 1460), 0);
	assert_int_equal(n->tcp_ns, 0);
	uint64_t before = serve_clock();
	assert_int_equal(segment_ask(&s, 2920, 80), 0);
	assert_in_range(n->tcp_ns, before, serve_clock());
	/* The next one of this connection. */
	request_make(2, 3000);
	assert_int_equal(segment_ask(&s, 3000, 1460), 6);
	assert_int_equal(segment_ask(&s, 4460, 1540), 6);
	assert_int_equal(n->next, 6000);
	/* Bytes that look like a request inside of one are none. */
	request_make(RULE_URGENT_TYPE, 3000);
	memcpy(bytes + 1460, bytes, RAW_HEADER);
	assert_int_equal(segment_ask(&s, 6000, 1460), 0);
	assert_int_equal(segment_ask(&s, 7460, 1460), 0);
	assert_int_equal(n->next, 9000);
}

static void test_note_alone(void **state)
{
	struct sy_hook_segment s = {.packet.payload_len = 64};
	const struct note *n = (const void *)s.own;

	request_make(RULE_URGENT_TYPE, 64);
	assert_int_equal(rule_note(&s, bytes), SY_KEEP);
	assert_true(n->tcp_ns > 0);
}

/* A request is answered as it asks for, and what it waited for is counted by class. */
static void test_serve(void **state)
{
	static struct serve_class class[SERVE_CLASSES];
	static uint8_t answer[SERVE_ANSWER];
	struct request r = {.header = {.kind = RAW_REQUEST,
	                               .class = 1,
	                               .type = 7,
	                               .length = 64,
	                               .answer = 100,
	                               .service_ns = 20000,
	                               .number = 1000},
	                    .tcp_ns = 5000,
	                    .read_ns = 25000};
	struct raw_header h;

	assert_int_equal(serve_request(class, &r, answer), 100);
	assert_int_equal(raw_read(answer, &h), 0);
	assert_int_equal(h.kind, RAW_ANSWER);
	assert_int_equal(h.type, 7);
	assert_int_equal(h.length, 100);
	assert_int_equal(h.number, 1000);
	assert_true(h.service_ns >= 20000);
	assert_true(pattern_is(answer + RAW_HEADER, 100 - RAW_HEADER, 0));
	assert_int_equal(class[1].requests, 1);
	assert_int_equal(class[1].busy_ns, h.service_ns);
	assert_in_range(histogram_at(&class[1].before_tcp, 0.5), 4000, 4032);
	assert_in_range(histogram_at(&class[1].before_application, 0.5), 20000, 20160);
	r.header.class = 200;
	r.tcp_ns = 0;
	assert_int_equal(serve_request(class, &r, answer), 100);
	assert_int_equal(class[SERVE_CLASSES - 1].requests, 1);
	assert_int_equal(class[SERVE_CLASSES - 1].before_tcp.count, 0);
	r.header.answer = SERVE_ANSWER + 1;
	assert_int_equal(serve_request(class, &r, answer), 0);
}

/* TCP takes longer for a segment: the note is of when it has it. */
static void test_a_slow_stack(void **state)
{
	struct sy_hook_segment s = {.packet.payload_len = 64};
	uint64_t before = serve_clock();

	rule_use(rule_named("type"), 3000000);
	request_make(RULE_URGENT_TYPE, 64);
	rule_note(&s, bytes);
	assert_true(((const struct note *)s.own)->tcp_ns >= before + 3000000);
	rule_use(rule_named("type"), 0);
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Long services sleep, and take no CPU; short ones do. */
static void test_services_that_sleep(void **state)
{
	uint64_t cpu = cpu_ns();

	serve_sleep(20000000);
	assert_true(serve_busy(20000000) >= 20000000);
	assert_true(cpu_ns() - cpu < 10000000);
	assert_true(serve_busy(19000000) >= 19000000);
	serve_sleep(0);
	assert_true(serve_busy(1) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_packets),    cmocka_unit_test(test_requests_over_segments),
	        cmocka_unit_test(test_note_alone), cmocka_unit_test(test_a_slow_stack),
	        cmocka_unit_test(test_serve),      cmocka_unit_test(test_services_that_sleep),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
