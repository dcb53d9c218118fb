// SPDX-License-Identifier: Apache-2.0
/* Opening connections while all ports are in TIME-WAIT: which may be reused, and when (RFC 6191 2,
 * and Linux' tcp_tw_reuse). */
#include <errno.h>

#include "duo.h"

#define ONE_PORT                                                                                   \
	{                                                                                          \
		.port_first = 50000, .port_last = 50000                                            \
	}
#define TWO_PORTS                                                                                  \
	{                                                                                          \
		.port_first = 50000, .port_last = 50001                                            \
	}

static const struct sy_stack_options none;

/* duo_settle() ends where b has sent last. */
static void settle(void)
{
	duo_settle();
	duo_settle();
}

/* `a` opens another connection to `b`; local port 0: any. */
static int dial(uint16_t port, sy_stack_id *id)
{
	struct sy_stack_endpoint from = {.port = htons(port)}, to = {.port = htons(80)};

	sy_addr_parse("10.0.0.1", &from.addr);
	sy_addr_parse("10.0.0.2", &to.addr);
	return sy_stack_connect(duo.a, &from, &to, 0, duo.now, id);
}

/* `a` closes the connection first. */
static void close_both(sy_stack_id from, sy_stack_id to)
{
	sy_stack_close(duo.a, from, duo.now);
	settle();
	sy_stack_close(duo.b, to, duo.now);
	settle();
}

static void begin(struct sy_stack_options o)
{
	duo_begin(o, none, true);
	close_both(duo.from, duo.to);
}

static struct connection *waiting(void)
{
	return &duo.a->connection[duo.a->time_wait.first];
}

/* The new connection works. */
static void talk(sy_stack_id from)
{
	sy_stack_id to;
	uint8_t byte;

	settle();
	assert_int_equal(connection_of(duo.a, from)->state, SY_STACK_ESTABLISHED);
	assert_int_equal(sy_stack_accept(duo.b, duo.listener, 0, NULL, &to), 0);
	assert_int_equal(sy_stack_send(duo.a, from, "x", 1, 0, duo.now), 1);
	settle();
	assert_int_equal(sy_stack_receive_bytes(duo.b, to, &byte, 1, duo.now), 1);
	close_both(from, to);
}

static void test_after_a_second(void **state)
{
	begin((struct sy_stack_options)ONE_PORT);
	for (unsigned i = 0; i < 3; i++) {
		sy_stack_id id;
		uint32_t last = waiting()->snd_nxt, time = duo.a->now_ms + waiting()->ts_offset;

		assert_int_equal(duo.a->time_wait.count, 1);
		duo_pass(1000);
		assert_int_equal(dial(0, &id), -EADDRNOTAVAIL);
		assert_int_equal(dial(50000, &id), -EADDRINUSE);
		duo_pass(1);
		assert_int_equal(dial(i % 2 ? 50000 : 0, &id), 0);
		assert_int_equal(duo.a->time_wait.count, 0);
		assert_int_equal(duo.a->counters.time_wait_reused, i + 1);
		/* The numbers are beyond the old ones, and so are the timestamps. */
		struct connection *c = connection_of(duo.a, id);
		assert_true(seq_after(c->snd_nxt, last + UINT16_MAX));
		assert_true(seq_after(duo.a->now_ms + c->ts_offset, time));
		talk(id);
	}
	duo_end();
}

/* Without timestamps, old segments cannot be distinguished from new ones. */
static void test_without_timestamps(void **state)
{
	struct sy_stack_options o = ONE_PORT;
	sy_stack_id id;

	o.no_timestamps = true;
	begin(o);
	duo_pass(30000);
	assert_int_equal(dial(0, &id), -EADDRNOTAVAIL);
	duo_pass(30002);
	assert_int_equal(dial(0, &id), 0);
	talk(id);
	duo_end();
}

/* The application has not closed it yet. */
static void test_held(void **state)
{
	sy_stack_id id;

	duo_begin((struct sy_stack_options)ONE_PORT, none, true);
	sy_stack_shutdown(duo.a, duo.from, duo.now);
	settle();
	sy_stack_close(duo.b, duo.to, duo.now);
	settle();
	assert_int_equal(connection_of(duo.a, duo.from)->state, SY_STACK_TIME_WAIT);
	duo_pass(5000);
	assert_int_equal(dial(0, &id), -EADDRNOTAVAIL);
	sy_stack_close(duo.a, duo.from, duo.now);
	assert_int_equal(dial(0, &id), 0);
	talk(id);
	duo_end();
}

/* The peer is in LAST-ACK still: it challenges the SYN, and the reset that follows ends it. */
static void test_the_last_ack_was_lost(void **state)
{
	struct rte_mbuf *m[DUO_MAX];
	sy_stack_id id;

	duo_begin((struct sy_stack_options)ONE_PORT, none, true);
	sy_stack_close(duo.a, duo.from, duo.now);
	settle();
	sy_stack_close(duo.b, duo.to, duo.now);
	duo_back();
	assert_int_equal(duo_fetch(m), 1); /* it acknowledges the FIN */
	rte_pktmbuf_free(m[0]);
	duo.now += 1001 * DUO_MS;
	sy_stack_advance(duo.a, duo.now); /* the peer is held up, and sends nothing */
	assert_int_equal(dial(0, &id), 0);
	settle();
	assert_int_equal(duo.b->counters.challenges, 1);
	assert_int_equal(connection_of(duo.a, id)->state, SY_STACK_SYN_SENT);
	duo_pass(1002);
	talk(id);
	duo_end();
}

/* The four-tuple is what has to be free, and another port comes before one in TIME-WAIT for less
 * than a second. */
static void test_ports_rotate(void **state)
{
	sy_stack_id id, to;

	begin((struct sy_stack_options)TWO_PORTS);
	for (unsigned i = 0; i < 5; i++) {
		duo_pass(600);
		assert_int_equal(dial(0, &id), 0);
		settle();
		assert_int_equal(sy_stack_accept(duo.b, duo.listener, 0, NULL, &to), 0);
		close_both(id, to);
		assert_int_equal(duo.a->time_wait.count, 2);
		assert_int_equal(duo.a->counters.time_wait_reused, i);
	}
	duo_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_after_a_second), cmocka_unit_test(test_without_timestamps),
	        cmocka_unit_test(test_held),           cmocka_unit_test(test_the_last_ack_was_lost),
	        cmocka_unit_test(test_ports_rotate),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
