// SPDX-License-Identifier: Apache-2.0
/* Connections share the RTTs of spurious time-outs, under conditions (timer.c). */
#include "pair.h"

#include "../recovery.h"
#include "../timer.h"

#define MANY    2048u
#define LATE_US 3000000u
#define ANSWERS 16

static void answers_are_late(struct sy_stack *s, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		rto_floor_note_spurious(s, LATE_US);
}

/* RFC 9040 2: a few slow peers do not raise the RTO of the others. */
static void test_few_slow_peers_do_not_raise_the_timeout(void **state)
{
	const struct sy_stack_options o = {.pool = tests_pool(), .connections = MANY};
	struct sy_stack_endpoint from = {0}, to = {.port = htons(PAIR_PORT)};
	struct sy_stack *s;
	sy_stack_id id;

	assert_int_equal(sy_stack_create(&o, PAIR_MS, &s, NULL), 0);
	sy_addr_parse("10.0.0.1", &from.addr);
	sy_addr_parse("10.0.0.2", &to.addr);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(sy_stack_connect(s, &from, &to, i, PAIR_MS, &id), 0);
	answers_are_late(s, MANY / 64 - 1);
	assert_int_equal(s->rto_floor.min_ms, 0);
	answers_are_late(s, 1);
	assert_int_equal(s->rto_floor.min_ms, LATE_US / 1000);
	sy_stack_destroy(s);
}

/* Nor do many, while most others respond quickly. */
static void test_fast_connections_outweigh_slow_ones(void **state)
{
	const struct connection others = {.recovery = RECOVERY_NONE};
	struct sy_stack *s;

	pair_open(NULL);
	s = pair.client;
	for (unsigned i = 0; i < 8 * (ANSWERS + 8); i++)
		rto_floor_note_quick(s, &others, true);
	answers_are_late(s, ANSWERS + 7);
	assert_int_equal(s->rto_floor.min_ms, 0);
	answers_are_late(s, 1);
	assert_int_equal(s->rto_floor.min_ms, LATE_US / 1000);
	pair_close();
}

/* A stream with an ACK per millisecond. */
static void stream(unsigned ms)
{
	static const uint8_t bytes[2000];

	for (unsigned i = 0; i < ms; i++) {
		pair_send(0, bytes, sizeof(bytes));
		pair_pass(1);
		pair_read(0, sizeof(bytes));
	}
}

/* A stream has thousands of quick ACKs, but counts as one connection. */
static void test_a_stream_counts_once(void **state)
{
	struct sy_stack *s;

	pair_open(NULL);
	pair_connect(1);
	s = pair.client;
	stream(500);
	assert_int_equal(s->rto_floor.quick, 1);
	answers_are_late(s, ANSWERS);
	assert_int_equal(s->rto_floor.min_ms, LATE_US / 1000);
	stream(600);
	assert_int_equal(s->rto_floor.count, 0); /* counts again in the next second */
	assert_int_equal(s->rto_floor.quick, 1);
	pair_close();
}

/* Nor do its losses count as many. */
static void test_a_lossy_stream_does_not_count(void **state)
{
	const struct connection recovers = {.recovery = RECOVERY_FAST};
	struct sy_stack *s;

	pair_open(NULL);
	s = pair.client;
	for (unsigned i = 0; i < 8 * (ANSWERS + 8); i++)
		rto_floor_note_quick(s, &recovers, false);
	answers_are_late(s, ANSWERS);
	assert_int_equal(s->rto_floor.min_ms, LATE_US / 1000);
	pair_close();
}

/* Returns the client's first segment; the others are lost. */
static struct rte_mbuf *only_first(unsigned ms)
{
	struct rte_mbuf *first, *m;

	assert_int_equal(sy_stack_transmit(pair.client, &first, 1, pair.now), 1);
	for (unsigned i = 0; i < ms; i++) {
		pair.now += PAIR_MS;
		sy_stack_advance(pair.client, pair.now);
		while (sy_stack_transmit(pair.client, &m, 1, pair.now))
			rte_pktmbuf_free(m);
	}
	return first;
}

/* A peer may echo any timestamp: the RTT is at most the time waited. */
static void test_forged_echo_is_bounded(void **state)
{
	struct rte_mbuf *m;
	uint32_t echo;
	uint8_t *option;

	pair_open(NULL);
	pair_connect(1);
	pair_pass(100);
	assert_int_equal(sy_stack_send(pair.client, pair.from[0], "asks", 4, 0, pair.now), 4);
	m = only_first(400);
	assert_true(sy_stack_counters(pair.client)->timeouts > 0);
	sy_stack_receive(pair.server, &m, 1, pair.now);
	pair.now += 50 * PAIR_MS;
	sy_stack_advance(pair.server, pair.now);
	assert_int_equal(sy_stack_transmit(pair.server, &m, 1, pair.now), 1);
	option = rte_pktmbuf_mtod_offset(m, uint8_t *, 14 + 20 + 20);
	assert_memory_equal(option, "\1\1\10\12", 4);
	memcpy(&echo, option + 8, sizeof(echo));
	echo = htonl(ntohl(echo) - 90000);
	memcpy(option + 8, &echo, sizeof(echo));
	m->ol_flags = (m->ol_flags & ~RTE_MBUF_F_RX_L4_CKSUM_MASK) | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	sy_stack_receive(pair.client, &m, 1, pair.now);
	assert_int_equal(pair.client->rto_floor.count, 1);
	assert_in_range(pair.client->rto_floor.sum_ms, 400, 460);
	pair_settle();
	pair_close();
}

/* Returns the milliseconds until the client times out; the network drops everything. */
static unsigned ends_after(void)
{
	struct rte_mbuf *m;

	for (unsigned ms = 0; ms < 20000; ms++) {
		if (sy_stack_counters(pair.client)->timed_out > 0)
			return ms;
		while (sy_stack_transmit(pair.client, &m, 1, pair.now))
			rte_pktmbuf_free(m);
		pair.now += PAIR_MS;
		sy_stack_advance(pair.client, pair.now);
	}
	return UINT32_MAX;
}

/* RFC 9293 3.8.3: the user time-out applies, whatever RTT others have observed. */
static void test_user_timeout_applies(void **state)
{
	pair_open(NULL);
	pair_connect(1);
	sy_stack_set(pair.client, pair.from[0], SY_STACK_USER_TIMEOUT_MS, 1000, pair.now);
	assert_int_equal(sy_stack_send(pair.client, pair.from[0], "lost", 4, 0, pair.now), 4);
	answers_are_late(pair.client, ANSWERS);
	assert_in_range(ends_after(), 1000, 1010);
	pair_close();
}

/* The timer was already running. */
static void test_user_timeout_applies_to_running_timers(void **state)
{
	struct rte_mbuf *m;

	pair_open(NULL);
	pair_connect(1);
	sy_stack_set(pair.client, pair.from[0], SY_STACK_USER_TIMEOUT_MS, 1000, pair.now);
	assert_int_equal(sy_stack_send(pair.client, pair.from[0], "lost", 4, 0, pair.now), 4);
	assert_int_equal(sy_stack_transmit(pair.client, &m, 1, pair.now), 1);
	rte_pktmbuf_free(m);
	answers_are_late(pair.client, ANSWERS);
	assert_in_range(ends_after(), 1000, 1010);
	pair_close();
}

static uint8_t least_urgent(struct sy_hook_packet *p, const uint8_t *payload)
{
	return SY_PRIORITIES - 1;
}

/* The server's ACK stays queued in a level. Returns the number of retransmissions. */
static uint64_t time_outs(unsigned ms)
{
	struct rte_mbuf *m;

	for (unsigned i = 0; i < ms; i++) {
		pair.now += PAIR_MS;
		sy_stack_advance(pair.server, pair.now);
		while (sy_stack_transmit(pair.server, &m, 1, pair.now))
			rte_pktmbuf_free(m);
	}
	return sy_stack_counters(pair.server)->timeouts +
	       sy_stack_counters(pair.server)->tail_probes;
}

/* An ACK queued in a level is not missing; for 200 ms, as the level may starve. */
static void test_queued_acks_delay_the_timeout(void **state)
{
	struct rte_mbuf *m;
	uint32_t rto;

	pair_open(NULL);
	pair_connect(1);
	rto = rtt_timeout_ms(&connection_of(pair.server, pair.to[0])->rtt);
	assert_int_equal(sy_stack_packet_hook(pair.server, pair_packet_hook("last", least_urgent)),
	                 0);
	assert_int_equal(sy_stack_send(pair.server, pair.to[0], "asks", 4, 0, pair.now), 4);
	assert_int_equal(sy_stack_transmit(pair.server, &m, 1, pair.now), 1);
	sy_stack_receive(pair.client, &m, 1, pair.now);
	pair_send(0, "answers", 7);
	assert_int_equal(sy_stack_queued(pair.server), 1);
	assert_int_equal(time_outs(rto + 150), 0);
	assert_true(time_outs(100) > 0);
	pair_settle();
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_few_slow_peers_do_not_raise_the_timeout),
	        cmocka_unit_test(test_fast_connections_outweigh_slow_ones),
	        cmocka_unit_test(test_a_stream_counts_once),
	        cmocka_unit_test(test_a_lossy_stream_does_not_count),
	        cmocka_unit_test(test_forged_echo_is_bounded),
	        cmocka_unit_test(test_user_timeout_applies),
	        cmocka_unit_test(test_user_timeout_applies_to_running_timers),
	        cmocka_unit_test(test_queued_acks_delay_the_timeout),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
