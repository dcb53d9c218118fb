// SPDX-License-Identifier: Apache-2.0
/* ACKs of a stream, in virtual time: packets arrive one by one, and both sides send immediately. */
#include "script.h"

#define US       UINT64_C(1000)
#define SEGMENTS 2000u
#define MSS      1440u /* of IPv6 */
#define MAX      4096

static const struct sy_stack_endpoint to = {.addr = {{{10, 0, 0, 1}}}, .port = 0x0700},
                                      from = {.addr = {{{10, 0, 0, 2}}}};

struct stream {
	struct sy_stack *sender, *receiver;
	sy_stack_id out, in;
	uint64_t now;
	unsigned acks; /* packets of the receiver */
	uint32_t written, read;
};

static struct sy_stack *stack_open(bool hold, uint64_t now)
{
	const struct sy_stack_options o = {.pool = tests_pool(),
	                                   .connections = 4,
	                                   .no_timestamps = true,
	                                   .coalesce_acks = hold};
	struct sy_stack *s;
	struct sy_error err;

	assert_int_equal(sy_stack_create(&o, now, &s, &err), 0);
	return s;
}

static void read_all(struct stream *t)
{
	const void *bytes;
	int64_t len;

	while (t->in && (len = sy_stack_peek(t->receiver, t->in, &bytes)) > 0) {
		sy_stack_consume(t->receiver, t->in, (size_t)len, t->now);
		t->read += (uint32_t)len;
	}
}

/* Delivers the receiver's packets to the sender. */
static void receiver_answers(struct stream *t)
{
	struct rte_mbuf *m;

	sy_stack_advance(t->receiver, t->now);
	for (; sy_stack_transmit(t->receiver, &m, 1, t->now); t->acks++)
		sy_stack_receive(t->sender, &m, 1, t->now);
}

/* Advances the time, at most to the receiver's next deadline. */
static void pass(struct stream *t, uint64_t ns)
{
	uint64_t until = t->now + ns, next;

	while ((next = sy_stack_advance(t->receiver, t->now)) < until) {
		t->now = next > t->now ? next : t->now;
		receiver_answers(t);
	}
	t->now = until;
}

/* One segment per each_ns. */
static void stream_run(struct stream *t, uint64_t each_ns)
{
	static uint8_t bytes[MSS];
	struct rte_mbuf *m;
	unsigned idle = 0;

	while (t->read < SEGMENTS * MSS && idle < 100000) {
		while (t->written < SEGMENTS * MSS &&
		       sy_stack_send(t->sender, t->out, bytes, MSS, 0, t->now) == MSS)
			t->written += MSS;
		sy_stack_advance(t->sender, t->now);
		if (sy_stack_transmit(t->sender, &m, 1, t->now)) {
			sy_stack_receive(t->receiver, &m, 1, t->now);
			read_all(t);
			receiver_answers(t);
			idle = 0;
		} else {
			idle++;
		}
		pass(t, each_ns);
	}
	assert_int_equal(t->read, SEGMENTS * MSS);
}

static struct stream stream_open(bool hold)
{
	struct stream t = {.now = 1000 * US};
	struct rte_mbuf *m;
	sy_stack_id listener;

	t.sender = stack_open(hold, t.now);
	t.receiver = stack_open(hold, t.now);
	assert_int_equal(sy_stack_listen(t.receiver, &to, 4, 0, &listener), 0);
	assert_int_equal(sy_stack_connect(t.sender, &from, &to, 0, t.now, &t.out), 0);
	for (unsigned n = 0; n < 2; n++) {
		assert_int_equal(sy_stack_transmit(t.sender, &m, 1, t.now), 1);
		sy_stack_receive(t.receiver, &m, 1, t.now);
		receiver_answers(&t);
	}
	assert_int_equal(sy_stack_accept(t.receiver, listener, 0, NULL, &t.in), 0);
	t.acks = 0;
	return t;
}

static unsigned acks_of(bool hold, uint64_t each_ns)
{
	struct stream t = stream_open(hold);

	stream_run(&t, each_ns);
	assert_int_equal(sy_stack_counters(t.sender)->retransmitted, 0);
	printf("  %u segments, each %lu ns: %u acknowledgements\n", SEGMENTS, each_ns, t.acks);
	sy_stack_destroy(t.sender);
	sy_stack_destroy(t.receiver);
	return t.acks;
}

/* RFC 9293 3.8.6.3 */
static void test_disabled(void **state)
{
	assert_in_range(acks_of(false, 2 * US), SEGMENTS / 2, SEGMENTS);
}

static void test_a_fast_stream(void **state)
{
	assert_in_range(acks_of(true, 2 * US), SEGMENTS / 9, SEGMENTS / 5);
}

/* A slow stream: coalescing saves nothing, and is mostly off. */
static void test_a_slow_stream(void **state)
{
	assert_in_range(acks_of(true, 20 * US), SEGMENTS / 2 - SEGMENTS / 50, SEGMENTS);
}

/* The end of a stream is acknowledged in time: its sender may wait for the ACK. */
static void test_end_of_a_stream_is_acknowledged(void **state)
{
	struct stream t = stream_open(true);
	struct sy_stack_info info;
	static uint8_t bytes[MSS];
	struct rte_mbuf *m;

	stream_run(&t, 2 * US);
	pass(&t, 100000 * US);
	t.acks = 0;
	for (unsigned n = 0; n < 3; n++) {
		assert_int_equal(sy_stack_send(t.sender, t.out, bytes, MSS, 0, t.now), MSS);
		assert_int_equal(sy_stack_transmit(t.sender, &m, 1, t.now), 1);
		sy_stack_receive(t.receiver, &m, 1, t.now);
		receiver_answers(&t);
	}
	assert_int_equal(t.acks, 0);
	pass(&t, 31 * US);
	assert_int_equal(t.acks, 1);
	sy_stack_info(t.sender, t.out, &info);
	assert_int_equal(info.in_flight, 0);
	sy_stack_destroy(t.sender);
	sy_stack_destroy(t.receiver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_disabled),
	        cmocka_unit_test(test_a_fast_stream),
	        cmocka_unit_test(test_a_slow_stream),
	        cmocka_unit_test(test_end_of_a_stream_is_acknowledged),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
