// SPDX-License-Identifier: Apache-2.0
/* Delayed ACKs (RFC 9293 3.8.6.3): requests and responses between two stacks. Time advances only
 * explicitly, so delayed-ACK timers do not fire by themselves. */
#include "duo.h"

#define REQUESTS 100
#define SHORT    10

static const struct sy_stack_options none;

static unsigned sent; /* packets of b */

/* Exchanges packets until both are idle. */
static void settle(void)
{
	struct rte_mbuf *m[DUO_MAX];
	unsigned count;

	do {
		duo_fetch_all();
		count = sy_stack_transmit(duo.b, m, DUO_MAX, duo.now);
		sy_stack_receive(duo.a, m, count, duo.now);
		sent += count;
	} while (count > 0);
}

/* The client writes two short parts; Nagle delays the second. */
static void request_in_parts(void)
{
	duo_write(SHORT, 0);
	settle();
	duo_write(SHORT, 0);
	settle();
}

static void answer(void)
{
	uint8_t byte;

	assert_int_equal(sy_stack_send(duo.b, duo.to, "x", 1, 0, duo.now), 1);
	settle();
	assert_int_equal(sy_stack_receive_bytes(duo.a, duo.from, &byte, 1, duo.now), 1);
}

static void exchange_in_parts(void)
{
	request_in_parts();
	assert_int_equal(duo_read(), SHORT);
	settle(); /* read: the ACK is sent, and the second part follows */
	assert_int_equal(duo_read(), SHORT);
	answer();
}

/* Linux needs 40 ms for all but the first. */
static void test_request_in_two_segments(void **state)
{
	duo_begin(none, none, true);
	for (unsigned i = 0; i < REQUESTS; i++)
		exchange_in_parts();
	duo_end();
}

/* Requests in one segment with responses some milliseconds later: after the first, responses carry
 * the ACK. */
static void exchange(void)
{
	duo_write(SHORT, 0);
	settle();
	assert_int_equal(duo_read(), SHORT);
	settle();
	duo_pass(5);
	settle();
	answer();
}

static void test_answers_carry_acknowledgements(void **state)
{
	duo_begin(none, none, true);
	exchange();
	sent = 0;
	for (unsigned i = 0; i < REQUESTS; i++)
		exchange();
	assert_int_equal(sent, REQUESTS);
	duo_end();
}

/* A response in the same poll iteration carries the ACK from the first request on. */
static void test_ready_answers(void **state)
{
	duo_begin(none, none, true);
	sent = 0;
	for (unsigned i = 0; i < REQUESTS; i++) {
		duo_write(SHORT, 0);
		settle();
		assert_int_equal(duo_read(), SHORT);
		answer();
	}
	assert_int_equal(sent, REQUESTS);
	duo_end();
}

/* A client that starts writing in parts is delayed once. */
static void test_parts_after_wholes(void **state)
{
	duo_begin(none, none, true);
	for (unsigned i = 0; i < 10; i++)
		exchange();
	request_in_parts();
	assert_int_equal(duo_read(), SHORT);
	settle();
	assert_int_equal(duo_read(), 0);
	duo_pass(41);
	settle();
	assert_int_equal(duo_read(), SHORT);
	answer();
	for (unsigned i = 0; i < REQUESTS; i++)
		exchange_in_parts();
	duo_end();
}

/* A client that stops writing in parts costs at most eight extra ACKs. */
static void test_wholes_after_parts(void **state)
{
	duo_begin(none, none, true);
	for (unsigned i = 0; i < 10; i++)
		exchange_in_parts();
	sent = 0;
	for (unsigned i = 0; i < REQUESTS; i++)
		exchange();
	assert_in_range(sent, REQUESTS, REQUESTS + DELAY_PATIENCE);
	duo_end();
}

/* A stream is acknowledged every second segment, whatever the application reads; except the first
 * ones, which open the sender's window. */
static void test_streams(void **state)
{
	struct rte_mbuf *m[DUO_MAX];
	unsigned count;

	duo_begin(none, none, true);
	duo_write(300 * 1448, 0);
	sent = 0;
	while ((count = duo_fetch(m)) > 0) {
		for (unsigned i = 0; i < count; i++) {
			struct rte_mbuf *ack[DUO_MAX];
			duo_deliver(m[i], 0);
			duo_read();
			unsigned acks = sy_stack_transmit(duo.b, ack, DUO_MAX, duo.now);
			sy_stack_receive(duo.a, ack, acks, duo.now);
			sent += acks;
		}
	}
	assert_in_range(sent, 150, 150 + DELAY_QUICK);
	duo_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_request_in_two_segments),
	        cmocka_unit_test(test_answers_carry_acknowledgements),
	        cmocka_unit_test(test_ready_answers),
	        cmocka_unit_test(test_parts_after_wholes),
	        cmocka_unit_test(test_wholes_after_parts),
	        cmocka_unit_test(test_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
