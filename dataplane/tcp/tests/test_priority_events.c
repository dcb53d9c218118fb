// SPDX-License-Identifier: Apache-2.0
/* Effects of levels, in virtual time: order of events and of transmission. */
#include "labels.h"

/* ---- the level of what is unread ------------------------------------------------------------- */

/* Large enough not to be merged. */
static void send_large(unsigned i, unsigned level)
{
	uint8_t bytes[1200] = {0};

	bytes[0] = (uint8_t)level;
	pair_send(i, bytes, sizeof(bytes));
	pair_settle();
}

static void test_level_of_unread(void **state)
{
	static const uint8_t order[] = {5, 2, 6, 3, 7, 3};
	static const unsigned left[] = {2, 2, 3, 3, 3, 3, 3};

	pair_connect(1);
	label_hook();
	/* Process one by one; queued packets of a flow would be raised. */
	for (unsigned i = 0; i < SY_ARRAY_LEN(order); i++)
		send_large(0, order[i]);
	for (unsigned i = 0; i <= SY_ARRAY_LEN(order); i++) {
		assert_int_equal(sy_stack_level(pair.server, pair.to[0]), left[i]);
		if (i < SY_ARRAY_LEN(order))
			pair_read(0, 1200);
	}
	send_large(0, 7); /* less urgent than what was read last */
	assert_int_equal(sy_stack_level(pair.server, pair.to[0]), 7);
	assert_int_equal(sy_stack_level(pair.server, pair.listener), 0);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void send_settled(unsigned i, unsigned level)
{
	send_label(i, level);
	pair_settle();
}

static void test_events_by_level(void **state)
{
	pair_connect(5);
	label_hook();
	send_settled(0, 7);
	send_settled(1, 2);
	send_settled(2, 5);
	send_settled(3, 2);
	send_settled(4, 6);
	send_settled(4, 1); /* became more urgent: moved, still one event */
	pair_event(1u << 3 | 1, -1, 0);
	pair_event(1u << 5 | 1u << 7, 2, 5);
	pair_event(ALL, 4, 1);
	pair_event(ALL, 1, 2);
	pair_event(ALL, 3, 2);
	pair_event(ALL, 0, 7);
	pair_event(ALL, -1, 0);
}

/* Reading before the event is fetched updates the event. */
static void test_read_before_fetch_updates_the_event(void **state)
{
	pair_connect(2);
	label_hook();
	send_large(0, 1);
	send_large(0, 6);
	send_large(1, 3);
	pair_read(0, 1200);
	pair_event(1u << 1, -1, 0);
	pair_event(ALL, 1, 3);
	pair_event(ALL, 0, 6);
}

static unsigned shares_count(unsigned level, unsigned others, unsigned rounds)
{
	unsigned count = 0;

	/* both always have an event */
	for (unsigned i = 0; i < rounds; i++) {
		struct sy_stack_event e;
		send_settled(0, others);
		send_settled(1, level);
		assert_int_equal(sy_stack_events(pair.server, &e, 1), 1);
		count += e.cookie == 1;
		if (e.cookie == 0)
			pair_read(0, 2);
	}
	return count;
}

static void test_shares(void **state)
{
	static const uint8_t fifth[SY_PRIORITIES] = {[6] = 20}, much[SY_PRIORITIES] = {60, 41};

	pair_connect(2);
	label_hook();
	assert_int_equal(shares_count(6, 1, 100), 0); /* starves: it has no share */
	assert_int_equal(sy_stack_shares(pair.server, much), -EINVAL);
	assert_int_equal(sy_stack_shares(pair.server, fifth), 0);
	assert_in_range(shares_count(6, 1, 100), 19, 21);
}

/* ---- what is sent ---------------------------------------------------------------------------- */

/* Returns the connection of the server's next packet; PAIR_MAX: none. */
static unsigned next_sent(void)
{
	struct rte_mbuf *m;
	uint16_t port;
	unsigned i = 0;

	if (!sy_stack_transmit(pair.server, &m, 1, pair.now))
		return PAIR_MAX;
	memcpy(&port, rte_pktmbuf_mtod_offset(m, void *, 14 + 20 + 2), sizeof(port));
	rte_pktmbuf_free(m);
	while (i < PAIR_MAX &&
	       !(pair.to[i] && connection_of(pair.server, pair.to[i])->tuple.sport == port))
		i++;
	return i;
}

/* Queues more than the congestion window permits. */
static void answer(unsigned i)
{
	static const uint8_t bytes[40000];

	assert_true(sy_stack_send(pair.server, pair.to[i], bytes, sizeof(bytes), 0, pair.now) > 0);
}

/* A response has its request's level, even with others queued. */
static void test_urgent_responses_leave_first(void **state)
{
	unsigned sent, others = 0;

	pair_connect(12);
	label_hook();
	for (unsigned i = 0; i < 12; i++) {
		send_label(i, i == 11 ? 1 : 6);
		pair_settle();
		pair_read(i, 2);
		pair_settle();
	}
	for (unsigned i = 0; i < 12; i++)
		answer(i);
	for (unsigned i = 0; i < 10; i++) /* one becomes urgent while queued */
		sent = next_sent();
	assert_int_equal(sent, 11);
	send_label(10, 0);
	pair_bring(pair.client, pair.server);
	sy_stack_process(pair.server, 32, pair.now);
	assert_int_equal(next_sent(), 10);
	pair_read(10, 2);
	while ((sent = next_sent()) == 10 || sent == 11)
		others++;
	assert_true(others >= 5); /* the first window (RFC 6928) */
	assert_in_range(sent, 0, 9);
	pair_settle();
}

/* Less urgent connections send now and then. */
static void test_responses_do_not_starve(void **state)
{
	unsigned first = 0, count = 0;

	pair_connect(12);
	label_hook();
	for (unsigned i = 0; i < 12; i++) {
		send_label(i, i == 0 ? 7 : 1);
		pair_settle();
		pair_read(i, 2);
		pair_settle();
	}
	for (unsigned i = 0; i < 12; i++)
		answer(i);
	for (unsigned n = 1; n <= 80; n++) {
		if (next_sent() != 0)
			continue;
		first = first ? first : n;
		count++;
	}
	assert_in_range(first, 10, 20);
	assert_in_range(count, 3, 6);
	pair_settle();
}

/* With one SO_PRIORITY for all, levels do not order what is sent: the baseline LNS. */
static void test_one_band_is_fifo(void **state)
{
	pair_connect(3);
	label_hook();
	for (unsigned i = 0; i < 3; i++) {
		sy_stack_set(pair.server, pair.to[i], SY_STACK_PRIORITY, 6, pair.now);
		send_label(i, 7 - i);
		pair_settle();
		pair_read(i, 2);
		pair_settle();
	}
	for (unsigned i = 0; i < 3; i++)
		answer(i);
	assert_int_equal(next_sent(), 0);
	pair_settle();
}

/* SO_PRIORITY by Linux' bands, also without hooks, and changed while queued. */
static void test_bands(void **state)
{
	static const unsigned priority[] = {1, 0, 4, 6, 2, 0};

	pair_connect(6);
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(sy_stack_set(pair.server, pair.to[i], SY_STACK_PRIORITY,
		                              priority[i], pair.now),
		                 0);
		pair_settle();
	}
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(sy_stack_send(pair.server, pair.to[i], "x", 1, 0, pair.now), 1);
	sy_stack_set(pair.server, pair.to[5], SY_STACK_PRIORITY, 7, pair.now);
	assert_int_equal(next_sent(), 3);
	assert_int_equal(next_sent(), 5);
	assert_int_equal(next_sent(), 1);
	assert_int_equal(next_sent(), 2);
	assert_int_equal(next_sent(), 0);
	assert_int_equal(next_sent(), 4);
	pair_settle();
	/* inherited from the listener */
	pair_close();
	pair_open(NULL);
	sy_stack_set(pair.server, pair.listener, SY_STACK_PRIORITY, 6, pair.now);
	pair_connect(1);
	assert_int_equal(connection_of(pair.server, pair.to[0])->band, BAND_FIRST);
}

/* ---- all ------------------------------------------------------------------------------------- */

int main(void)
{
	const struct CMUnitTest tests[] = {
	        PAIR_TEST(level_of_unread),
	        PAIR_TEST(events_by_level),
	        PAIR_TEST(urgent_responses_leave_first),
	        PAIR_TEST(responses_do_not_starve),
	        PAIR_TEST(one_band_is_fifo),
	        PAIR_TEST(bands),
	        PAIR_TEST(read_before_fetch_updates_the_event),
	        PAIR_TEST(shares),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
