// SPDX-License-Identifier: Apache-2.0
/* Hooks in the stack, in virtual time: on received packets and on segments. Events:
 * test_priority_events.c. */
#include "labels.h"

/* ---- hooks ----------------------------------------------------------------------------------- */

static struct sy_hook_segment seen; /* by the last segment hook */

/* A segment's second byte is its level. */
static uint8_t by_second(struct sy_hook_segment *s, const uint8_t *payload)
{
	seen = *s;
	return s->packet.payload_len > 1 && payload[1] < SY_PRIORITIES ? payload[1] : SY_KEEP;
}

static uint8_t always_1(struct sy_hook_segment *s, const uint8_t *payload)
{
	return 1;
}

static uint8_t always_2(struct sy_hook_segment *s, const uint8_t *payload)
{
	return 2;
}

static unsigned successor;

static uint8_t once_3(struct sy_hook_segment *s, const uint8_t *payload)
{
	s->become = (uint16_t)successor;
	return 3;
}

static uint8_t counts(struct sy_hook_segment *s, const uint8_t *payload)
{
	s->own[0]++;
	return SY_KEEP;
}

/* Its first eight bytes are a pointer of the application's. */
static uint8_t follows(struct sy_hook_segment *s, const uint8_t *payload)
{
	const uint8_t *level;

	memcpy(&level, s->own, sizeof(level));
	return level ? *level : SY_KEEP;
}

/* ---- the driver's step ----------------------------------------------------------------------- */

static void test_without_a_hook_nothing_is_queued(void **state)
{
	pair_connect(1);
	send_label(0, 7);
	assert_int_equal(sy_stack_queued(pair.server), 0);
	assert_false(sy_stack_has_packet_hook(pair.server));
	pair_event(ALL, 0, SY_USUAL);
}

static void test_urgent_packets_are_taken_first(void **state)
{
	struct sy_stack_levels levels;

	pair_connect(3);
	label_hook();
	send_label(0, 7);
	send_label(1, 4);
	send_label(2, 0);
	assert_int_equal(sy_stack_queued(pair.server), 3);
	pair_event(ALL, -1, 0);
	assert_int_equal(sy_stack_process(pair.server, 1, pair.now), 2);
	pair_event(ALL, 2, 0);
	assert_int_equal(sy_stack_process(pair.server, 1, pair.now), 1);
	pair_event(ALL, 1, 4);
	assert_int_equal(sy_stack_process(pair.server, 1, pair.now), 0);
	pair_event(ALL, 0, 7);
	sy_stack_levels(pair.server, &levels);
	assert_int_equal(levels.taken[0], 1);
	assert_int_equal(levels.taken[4], 1);
	assert_int_equal(levels.taken[7], 1);
	assert_int_equal(levels.events[7], 1);
}

/* Queued packets make the next deadline immediate, so the worker does not sleep. */
static void test_queued_packets_are_due(void **state)
{
	pair_connect(1);
	label_hook();
	send_label(0, 7);
	assert_int_equal(sy_stack_advance(pair.server, pair.now), pair.now);
	pair_settle();
	assert_true(sy_stack_advance(pair.server, pair.now) > pair.now);
}

/* The application reads from it: its unread data delays others from now on. */
static void known(unsigned i)
{
	send_label(i, 1);
	sy_stack_process(pair.server, 32, pair.now);
	pair_read(i, 2);
}

/* While urgent data is unread, only some other packets are processed per poll iteration. */
static void test_unread_urgent_data_delays_others(void **state)
{
	pair_connect(40);
	label_hook();
	known(0);
	for (unsigned i = 1; i < 40; i++)
		send_label(i, 6);
	send_label(0, 1);
	assert_int_equal(sy_stack_process(pair.server, 1, pair.now), 39);
	assert_int_equal(sy_stack_process(pair.server, 32, pair.now), 37);
	assert_int_equal(sy_stack_process(pair.server, 32, pair.now), 35);
	pair_read(0, 2);
	assert_int_equal(sy_stack_process(pair.server, 32, pair.now), 3);
}

/* Unread data delays others for 16 poll iterations; later data likewise until it is read. */
static void test_unread_data_delays_for_a_bounded_time(void **state)
{
	unsigned before;

	pair_connect(40);
	label_hook();
	known(0);
	known(1);
	send_label(0, 1);
	sy_stack_process(pair.server, 32, pair.now);
	for (unsigned turn = 0; turn < 16; turn++) {
		for (unsigned i = 2; i < 5; i++)
			send_label(i, 6);
		before = sy_stack_queued(pair.server);
		assert_int_equal(sy_stack_process(pair.server, 32, pair.now), before - 2);
		pair_bring(pair.server, pair.client); /* acknowledgements */
	}
	assert_int_equal(sy_stack_process(pair.server, 32, pair.now), 0);
	send_label(1, 1);
	for (unsigned i = 7; i < 17; i++)
		send_label(i, 6);
	assert_int_equal(sy_stack_process(pair.server, 32, pair.now), 8);
	pair_read(1, 2);
	assert_int_equal(sy_stack_process(pair.server, 32, pair.now), 0);
}

/* Peers that open connections and send urgent data that is never read or accepted delay nothing. */
static void test_unaccepted_connections_delay_nothing(void **state)
{
	pair_connect(60);
	label_hook();
	known(0);
	for (unsigned i = 1; i < 30; i++) {
		send_label(i, 0);
		for (unsigned k = 30; k < 50; k++)
			send_label(k, 6);
		assert_int_equal(sy_stack_process(pair.server, 32, pair.now), 0);
		pair_bring(pair.server, pair.client);
	}
	send_label(0, 1); /* its event still comes first */
	for (unsigned k = 30; k < 50; k++)
		send_label(k, 6);
	assert_int_equal(sy_stack_process(pair.server, 32, pair.now), 18);
	pair_read(1, 2); /* known, but without unread data */
	pair_read(0, 2);
	assert_int_equal(sy_stack_process(pair.server, 32, pair.now), 0);
	send_label(1, 0);
	for (unsigned k = 30; k < 50; k++)
		send_label(k, 6);
	assert_int_equal(sy_stack_process(pair.server, 32, pair.now), 18);
}

static void test_hooks_are_swapped_live(void **state)
{
	pair_connect(2);
	label_hook();
	send_label(0, 7);
	sy_stack_packet_hook(pair.server, SY_HOOK_NONE);
	send_label(0, 6); /* must not overtake */
	assert_int_equal(sy_stack_queued(pair.server), 2);
	assert_true(sy_stack_has_packet_hook(pair.server));
	pair_settle();
	assert_false(sy_stack_has_packet_hook(pair.server));
	send_label(0, 5);
	assert_int_equal(sy_stack_queued(pair.server), 0);
	assert_int_equal(sy_stack_counters(pair.server)->out_of_order, 0);
	pair_read(0, 6);
}

/* Without hooks there are no levels; with hooks again, existing data is SY_USUAL. */
static void test_hooks_come_and_go(void **state)
{
	struct sy_stack_levels levels;
	struct sy_stack_info info;
	unsigned two;

	pair_connect(4);
	two = pair_segment_hook("two", always_2);
	for (unsigned round = 0; round < 3; round++) {
		label_hook();
		send_label(0, 6);
		send_label(1, 1);
		pair_settle();
		assert_int_equal(sy_stack_level(pair.server, pair.to[1]), 1);
		send_label(2, 0); /* queued packets keep their level */
		sy_stack_packet_hook(pair.server, SY_HOOK_NONE);
		assert_non_null(pair.server->ranked);
		sy_stack_process(pair.server, 32, pair.now);
		assert_null(pair.server->ranked);
		sy_stack_levels(pair.server, &levels);
		for (unsigned i = 0; i < SY_PRIORITIES; i++)
			assert_int_equal(levels.unread[i], 0);
		assert_int_equal(sy_stack_level(pair.server, pair.to[1]), SY_USUAL);
		/* All three have events, and new data as well. */
		send_label(3, 7);
		pair_read(2, 2);
		for (unsigned i = 0; i < 4; i++) {
			struct sy_stack_event e;
			assert_int_equal(sy_stack_events(pair.server, &e, 1), 1);
			assert_int_equal(e.level, SY_USUAL);
		}
		pair_event(ALL, -1, 0);
		/* Unread bytes from before count again. */
		sy_stack_segment_hook(pair.server, SY_STACK_NONE, two);
		sy_stack_levels(pair.server, &levels);
		assert_int_equal(levels.unread[SY_USUAL], 3);
		assert_int_equal(sy_stack_level(pair.server, pair.to[1]), SY_USUAL);
		send_label(1, 5);
		pair_event(ALL, 1, 2);
		pair_read(0, 2);
		pair_read(1, 4);
		pair_read(3, 2);
		sy_stack_levels(pair.server, &levels);
		for (unsigned i = 0; i < SY_PRIORITIES; i++)
			assert_int_equal(levels.unread[i], 0);
		sy_stack_segment_hook(pair.server, SY_STACK_NONE, SY_HOOK_NONE);
		assert_null(pair.server->ranked);
		assert_int_equal(sy_stack_info(pair.server, pair.to[1], &info), 0);
		assert_int_equal(info.unread, 0);
		pair_settle();
	}
	/* A connection's own hook keeps levels in use. */
	sy_stack_segment_hook(pair.server, pair.to[0], two);
	sy_stack_segment_hook(pair.server, pair.to[0], SY_HOOK_NONE);
	assert_non_null(pair.server->ranked);
}

static uint8_t says_nothing(struct sy_hook_segment *s, const uint8_t *payload)
{
	return SY_KEEP;
}

static struct rte_mbuf *segment_of(const char *bytes)
{
	struct rte_mbuf *m;

	assert_int_equal(sy_stack_send(pair.client, pair.from[0], bytes, 2, 0, pair.now), 2);
	assert_int_equal(sy_stack_transmit(pair.client, &m, 1, pair.now), 1);
	return m;
}

/* A reused buffer has a stale level. */
static void test_out_of_order_before_a_hook(void **state)
{
	unsigned hook = pair_segment_hook("nothing", says_nothing);
	struct rte_mbuf *first, *second;

	pair_connect(1);
	first = segment_of("ab");
	second = segment_of("cd");
	packet_set_level(second, 1);
	sy_stack_receive(pair.server, &second, 1, pair.now);
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, hook);
	sy_stack_receive(pair.server, &first, 1, pair.now);
	pair_event(ALL, 0, SY_USUAL);
	pair_read(0, 4);
}

static void test_lowest_level_is_dropped(void **state)
{
	struct sy_stack_levels levels;
	unsigned max;

	pair_close();
	pair_open(pair_few());
	pair_connect(PAIR_MAX);
	label_hook();
	sy_stack_levels(pair.server, &levels);
	max = levels.max; /* a quarter of the driver's packets */
	assert_int_equal(max, 319 / 4);
	for (unsigned i = 0; i < max; i++)
		send_label(1 + i % (PAIR_MAX - 1), 6);
	for (unsigned i = 0; i < 8; i++)
		send_label(0, 1);
	sy_stack_levels(pair.server, &levels);
	assert_int_equal(levels.waiting[1], 8);
	assert_int_equal(levels.waiting[6], max - 8);
	assert_int_equal(levels.dropped[6], 8);
	assert_int_equal(levels.dropped[1], 0);
	assert_int_equal(sy_stack_counters(pair.server)->level_full, 8);
}

/* ---- the transport's step -------------------------------------------------------------------- */

static void expect_level(unsigned i, unsigned level)
{
	pair_send(i, "xy", 2);
	pair_settle();
	assert_int_equal(sy_stack_level(pair.server, pair.to[i]), level);
	pair_read(i, 2);
}

static void test_hooks_by_connection(void **state)
{
	unsigned one = pair_segment_hook("one", always_1), two = pair_segment_hook("two", always_2);

	pair_connect(1);
	expect_level(0, SY_USUAL);
	assert_int_equal(sy_stack_segment_hook(pair.server, SY_STACK_NONE, one), 0);
	expect_level(0, 1);
	assert_int_equal(sy_stack_segment_hook(pair.server, pair.to[0], two), 0);
	expect_level(0, 2);
	sy_stack_segment_hook(pair.server, pair.to[0], SY_STACK_HOOK_OFF);
	expect_level(0, SY_USUAL);
	sy_stack_segment_hook(pair.server, pair.to[0], SY_HOOK_NONE);
	expect_level(0, 1);
	sy_hooks_remove(sy_stack_hooks(pair.server), one); /* a removed hook keeps the level */
	expect_level(0, SY_USUAL);
	assert_int_equal(sy_stack_segment_hook(pair.server, 77, two), -EBADF);
	assert_int_equal(sy_stack_segment_hook(pair.server, pair.to[0], SY_HOOKS + 1), -EINVAL);
}

static void test_connections_inherit_hooks(void **state)
{
	unsigned one = pair_segment_hook("one", always_1);

	sy_stack_segment_hook(pair.server, SY_STACK_NONE, pair_segment_hook("two", always_2));
	assert_int_equal(sy_stack_segment_hook(pair.server, pair.listener, one), 0);
	pair_connect(1);
	expect_level(0, 1);
	sy_stack_segment_hook(pair.server, pair.listener, SY_STACK_HOOK_OFF);
	expect_level(0, 1); /* those that are there keep it */
}

static void test_become(void **state)
{
	successor = pair_segment_hook("two", always_2);
	pair_connect(2);
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, pair_segment_hook("once", once_3));
	expect_level(0, 3);
	expect_level(0, 2);
	expect_level(0, 2);
	expect_level(1, 3); /* of this connection alone */
}

/* It stays when the stack's hook that set it is removed. */
static void test_become_stays(void **state)
{
	successor = pair_segment_hook("two", always_2);
	pair_connect(1);
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, pair_segment_hook("once", once_3));
	expect_level(0, 3);
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, SY_HOOK_NONE);
	expect_level(0, 2);
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, SY_STACK_HOOK_OFF);
	expect_level(0, 2);
}

/* No hook is in use: no levels. */
static void test_off(void **state)
{
	pair_connect(1);
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, pair_segment_hook("two", always_2));
	expect_level(0, 2);
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, SY_STACK_HOOK_OFF);
	assert_null(pair.server->ranked);
	expect_level(0, SY_USUAL);
}

static void test_segment_context(void **state)
{
	pair_connect(1);
	label_hook();
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, pair_segment_hook("second", by_second));
	pair_pass(20);
	pair_send(0, "\6\3abc", 5);
	pair_settle();
	assert_int_equal(sy_stack_level(pair.server, pair.to[0]), 3); /* the hook's, not 6 */
	assert_int_equal(seen.packet.priority, 6);
	assert_int_equal(seen.packet.payload_len, 5);
	assert_int_equal(seen.packet.frame_len, 14 + 20 + 32 + 5);
	assert_int_equal(seen.packet.dport, PAIR_PORT);
	assert_int_equal(seen.packet.version, 4);
	assert_int_equal(seen.packet.proto, 6);
	assert_int_equal(seen.packet.flags, SY_TCP_ACK | SY_TCP_PSH);
	assert_memory_equal(seen.packet.head, "\6\3abc\0", 6);
	assert_int_equal(seen.received, 0);
	assert_int_equal(seen.age_ms, 20);
	sy_stack_send(pair.server, pair.to[0], "answer", 6, 0, pair.now);
	pair_pass(5);
	pair_send(0, "\6\7", 2);
	pair_settle();
	assert_int_equal(seen.received, 5);
	assert_int_equal(seen.offset, 5);
	assert_int_equal(seen.sent, 6);
	assert_int_equal(seen.age_ms, 25);
}

/* In stream order, each byte once, whatever the packets' order. */
static void test_segments_are_seen_in_order(void **state)
{
	struct rte_mbuf *m[3];

	pair_connect(1);
	sy_stack_segment_hook(pair.server, SY_STACK_NONE, pair_segment_hook("second", by_second));
	for (unsigned i = 0; i < 3; i++) {
		sy_stack_send(pair.client, pair.from[0], label[i], 2, 0, pair.now);
		assert_int_equal(sy_stack_transmit(pair.client, &m[i], 1, pair.now), 1);
	}
	seen = (struct sy_hook_segment){.received = 99};
	sy_stack_receive(pair.server, &m[2], 1, pair.now);
	sy_stack_receive(pair.server, &m[1], 1, pair.now);
	assert_int_equal(seen.received, 99); /* no hook ran */
	sy_stack_receive(pair.server, &m[0], 1, pair.now);
	assert_int_equal(seen.received, 4);
	assert_int_equal(seen.packet.head[0], 2);
	pair_read(0, 6);
}

static void test_private_area(void **state)
{
	static uint8_t level = 5;
	const uint8_t *pointer = &level;
	struct sy_stack_levels levels;
	uint8_t *own;

	pair_connect(2);
	sy_stack_levels(pair.server, &levels);
	assert_int_equal(levels.own, 0);
	sy_stack_segment_hook(pair.server, pair.to[0], pair_segment_hook("counts", counts));
	expect_level(0, SY_USUAL);
	expect_level(0, SY_USUAL);
	own = sy_stack_private_area(pair.server, pair.to[0]);
	assert_int_equal((uintptr_t)own % SY_CACHE_LINE, 0);
	assert_int_equal(own[0], 2);
	own[0] = 40;
	expect_level(0, SY_USUAL);
	assert_int_equal(own[0], 41);
	sy_stack_segment_hook(pair.server, pair.to[1], pair_segment_hook("follows", follows));
	memcpy(sy_stack_private_area(pair.server, pair.to[1]), &pointer, sizeof(pointer));
	expect_level(1, 5);
	level = 0;
	expect_level(1, 0);
	sy_stack_levels(pair.server, &levels);
	assert_int_equal(levels.own, 2);
	assert_null(sy_stack_private_area(pair.server, 77));
	/* the next one's is new */
	sy_stack_abort(pair.server, pair.to[1], pair.now);
	pair_settle();
	sy_stack_abort(pair.client, pair.from[1], pair.now);
	sy_stack_levels(pair.server, &levels);
	assert_int_equal(levels.own, 1);
	pair.to[1] = pair.from[1] = 0;
	uint8_t *other = sy_stack_private_area(pair.server, pair.to[0]);
	assert_ptr_equal(other, own);
}

/* ---- all ------------------------------------------------------------------------------------- */

int main(void)
{
	const struct CMUnitTest tests[] = {
	        PAIR_TEST(without_a_hook_nothing_is_queued),
	        PAIR_TEST(urgent_packets_are_taken_first),
	        PAIR_TEST(queued_packets_are_due),
	        PAIR_TEST(unread_urgent_data_delays_others),
	        PAIR_TEST(unread_data_delays_for_a_bounded_time),
	        PAIR_TEST(unaccepted_connections_delay_nothing),
	        PAIR_TEST(hooks_are_swapped_live),
	        PAIR_TEST(hooks_come_and_go),
	        PAIR_TEST(out_of_order_before_a_hook),
	        PAIR_TEST(hooks_by_connection),
	        PAIR_TEST(connections_inherit_hooks),
	        PAIR_TEST(become),
	        PAIR_TEST(become_stays),
	        PAIR_TEST(off),
	        PAIR_TEST(segment_context),
	        PAIR_TEST(segments_are_seen_in_order),
	        PAIR_TEST(private_area),
	        PAIR_TEST(lowest_level_is_dropped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
