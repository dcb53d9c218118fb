// SPDX-License-Identifier: Apache-2.0
/* Segments that the port cuts. */
#include "duo.h"

#include "../emit.h"

#define MSS 1448 /* of a link with an MTU of 1500, with timestamps */

static void begin_with(struct sy_stack_options o, bool v4)
{
	duo_begin(o, (struct sy_stack_options){.ecn = o.ecn}, v4);
}

static void begin(void)
{
	begin_with((struct sy_stack_options){.tso = {.ipv4 = true, .ipv6 = true}}, true);
}

/* ---- what goes in one ------------------------------------------------------------------------ */

/* The first window, RFC 6928's ten segments, is one packet; acknowledgements let larger ones go. */
static void test_window(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	for (unsigned v4 = 0; v4 < 2; v4++) {
		begin_with((struct sy_stack_options){.tso = {.ipv4 = v4, .ipv6 = !v4}}, v4);
		unsigned mss = v4 ? MSS : MSS - 20;
		duo_write(200000, 0);
		assert_int_equal(duo_fetch(m), 1);
		assert_int_equal(m[0]->tso_segsz, mss);
		assert_int_equal(duo_payload_of(m[0]), 10 * mss);
		assert_int_equal(duo_flags_of(m[0]), SY_TCP_ACK);
		assert_int_equal(duo_deliver(m[0], 0), 10);
		assert_int_equal(duo_read(), 10 * mss);
		const struct sy_stack_counters *c = sy_stack_counters(duo.a);
		assert_int_equal(c->tso_segments, 1);
		assert_int_equal(c->tso_pieces, 10);
		duo_back();
		assert_int_equal(duo_fetch(m), 1); /* slow start */
		assert_int_equal(duo_payload_of(m[0]) % mss, 0);
		assert_true(duo_payload_of(m[0]) > 15 * mss);
		duo_deliver(m[0], 0);
		for (unsigned i = 0; duo.read < duo.written; i++) {
			assert_true(i < 1000);
			duo_settle();
			duo_read();
			duo_pass(1);
		}
		duo_end();
	}
}

/* RFC 5681 4.1: after an idle time the restart window goes, also where one segment could be more.
 */
static void test_idle(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	begin();
	for (unsigned i = 0; i < 6; i++) {
		duo_write(100000, 0);
		for (; duo.read < duo.written; duo_pass(1)) {
			duo_settle();
			duo_read();
		}
	}
	assert_true(duo_sender()->congestion.window > 60000);
	duo_pass(60000);
	duo_write(100000, 0);
	assert_int_equal(duo_fetch(m), 1);
	assert_int_equal(duo_payload_of(m[0]), 10 * MSS);
	duo_deliver(m[0], 0);
	duo_end();
}

/* The other family's segments are single ones. */
static void test_family(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	begin_with((struct sy_stack_options){.tso = {.ipv4 = true}}, false);
	duo_write(100000, 0);
	assert_int_equal(duo_fetch(m), 10);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(duo_deliver(m[i], 0), 1);
	assert_int_equal(sy_stack_counters(duo.a)->tso_segments, 0);
	assert_int_equal(duo_read(), 10 * (MSS - 20));
	duo_end();
}

/* What is behind the last whole piece goes with it; PSH is on it, and FIN. */
static void test_end(void **state)
{
	struct rte_mbuf *m[DUO_MAX], *piece[LARGE_PIECES];

	begin();
	duo_write(3 * MSS + 100, 0);
	sy_stack_shutdown(duo.a, duo.from, duo.now);
	assert_int_equal(duo_fetch(m), 1);
	assert_int_equal(duo_payload_of(m[0]), 3 * MSS + 100);
	assert_int_equal(duo_flags_of(m[0]), SY_TCP_ACK | SY_TCP_PSH | SY_TCP_FIN);
	assert_int_equal(large_cut(m[0], piece), 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(duo_flags_of(piece[i]),
		                 i < 3 ? SY_TCP_ACK : SY_TCP_ACK | SY_TCP_PSH | SY_TCP_FIN);
		sy_stack_receive(duo.b, &piece[i], 1, duo.now);
	}
	assert_int_equal(duo_read(), 3 * MSS + 100);
	assert_int_equal(sy_stack_receive_bytes(duo.b, duo.to, piece, 1, duo.now), 0);
	duo_settle();
	assert_int_equal(duo_sender()->state, SY_STACK_FIN_WAIT_2);
	duo_end();
}

/* Nagle (Minshall): while a short one is under way, only whole pieces go. */
static void test_nagle(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	begin();
	duo_write(100, 0);
	assert_int_equal(duo_fetch(m), 1);
	duo_deliver(m[0], 0);
	duo_write(4 * MSS + 7, 0);
	assert_int_equal(duo_fetch(m), 1);
	assert_int_equal(duo_payload_of(m[0]), 4 * MSS);
	duo_deliver(m[0], 0);
	assert_int_equal(duo_fetch(m), 0);
	duo_back();
	assert_int_equal(duo_fetch(m), 1);
	assert_int_equal(duo_payload_of(m[0]), 7);
	/* The short end of a large one counts as well. */
	duo_deliver(m[0], 0);
	duo_pass(50);
	duo_back();
	duo_write(2 * MSS + 9, 0);
	assert_int_equal(duo_fetch(m), 1);
	assert_int_equal(duo_payload_of(m[0]), 2 * MSS + 9);
	duo_deliver(m[0], 0);
	duo_write(1, 0);
	assert_int_equal(duo_fetch(m), 0);
	duo_settle();
	duo_pass(50);
	duo_settle();
	assert_int_equal(duo_read(), duo.written);
	duo_end();
}

/* Corked: whole pieces only. */
static void test_cork(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	begin();
	sy_stack_set(duo.a, duo.from, SY_STACK_CORK, 1, duo.now);
	duo_write(5 * MSS + 500, 0);
	assert_int_equal(duo_fetch(m), 1);
	assert_int_equal(duo_payload_of(m[0]), 5 * MSS);
	assert_int_equal(duo_flags_of(m[0]), SY_TCP_ACK);
	duo_deliver(m[0], 0);
	sy_stack_set(duo.a, duo.from, SY_STACK_CORK, 0, duo.now);
	duo_settle();
	assert_int_equal(duo_read(), duo.written);
	duo_end();
}

/* ---- what bounds it -------------------------------------------------------------------------- */

/* The peer's window: whole pieces of what is open. */
static void test_peer_window(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	begin();
	duo_sender()->snd_wnd = 6 * MSS + 200;
	duo_write(100000, 0);
	assert_int_equal(duo_fetch(m), 1);
	assert_int_equal(duo_payload_of(m[0]), 6 * MSS);
	duo_deliver(m[0], 0);
	duo_end();
}

/* What the port says of frames and buffers; and 64 pieces, 64 KB. */
static void test_limits(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	begin_with((struct sy_stack_options){.tso = {.ipv4 = true, .frame = 1500}}, true);
	duo_write(20000, 0);
	assert_int_equal(duo_fetch(m), 1);
	assert_int_equal(m[0]->tso_segsz + segment_headers(m[0]), 1500);
	assert_int_equal(duo_payload_of(m[0]) % m[0]->tso_segsz, 0);
	duo_deliver(m[0], 0);
	duo_end();

	begin_with((struct sy_stack_options){.tso = {.ipv4 = true, .buffers = 3}}, true);
	duo_write(20000, 0);
	assert_true(duo_fetch_all() >= 2);
	assert_true(duo.largest > rte_pktmbuf_data_room_size(tests_pool()));
	assert_true(duo.max_buffers <= 3);
	duo_end();

	begin(); /* 64 KB of large pieces, 64 small ones */
	duo_sender()->congestion.window = 1000000;
	duo_write(200000, 0);
	duo_fetch_all();
	assert_int_equal(duo.largest, (65535 - 114) / MSS * MSS);
	duo_settle();
	duo_end();

	begin();
	duo_sender()->congestion.window = 1000000;
	sy_stack_set(duo.a, duo.from, SY_STACK_MSS, 536, duo.now);
	duo_write(100000, 0);
	duo_fetch_all();
	assert_int_equal(duo.largest, 64 * duo_sender()->mss);
	duo_settle();
	duo_end();
}

/* Some cards refuse small pieces. */
static void test_small(void **state)
{
	begin();
	sy_stack_set(duo.a, duo.from, SY_STACK_MSS, 255, duo.now);
	duo_write(2000, 0);
	assert_true(duo_fetch_all() > 5);
	assert_int_equal(sy_stack_counters(duo.a)->tso_segments, 0);
	duo_settle();
	assert_int_equal(duo_read(), 2000);
	duo_end();
}

/* A tick's worth of a paced connection's bytes. */
static void test_paced(void **state)
{
	begin();
	sy_stack_set(duo.a, duo.from, SY_STACK_PACING_RATE, 4000000, duo.now);
	duo_write(40000, 0);
	duo_fetch_all();
	assert_int_equal(duo.largest, 4000 / MSS * MSS);
	for (unsigned i = 0; duo.read < 40000; i++) {
		assert_true(i < 1000);
		duo_read();
		duo_back();
		duo_pass(1);
		duo_fetch_all();
	}
	assert_int_equal(duo.largest, 4000 / MSS * MSS);
	duo_end();
}

/* Too few buffers for it: its first piece alone, and so on. */
static void test_no_buffers(void **state)
{
	static struct rte_mempool *few;
	struct rte_mbuf *m[DUO_MAX];

	if (!few)
		few = rte_pktmbuf_pool_create("few", 5, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
		                              SOCKET_ID_ANY);
	assert_non_null(few);
	begin_with((struct sy_stack_options){.pool = few, .tso = {.ipv4 = true}}, true);
	duo_write(20 * MSS, 0);
	assert_int_equal(sy_stack_transmit(duo.a, m, 1, duo.now), 1);
	assert_int_equal(segment_pieces(m[0]), 1);
	assert_int_equal(duo_payload_of(m[0]), MSS);
	assert_int_equal(sy_stack_counters(duo.a)->refused_memory, 0);
	sy_stack_receive(duo.b, m, 1, duo.now);
	assert_int_equal(duo_read(), MSS);
	assert_int_equal(sy_stack_counters(duo.a)->tso_segments, 0);
	while (duo.read < duo.written) {
		while (sy_stack_transmit(duo.a, m, 1, duo.now) > 0) {
			sy_stack_receive(duo.b, m, 1, duo.now);
			duo_read();
		}
		duo_back();
		duo_pass(1);
	}
	duo_end();
	assert_int_equal(rte_mempool_avail_count(few), 5);
}

/* A quota ends with a large segment: connections alternate. */
static void test_quota(void **state)
{
	struct sy_stack_endpoint a = {.port = 0}, b = {.port = htons(80)};
	struct rte_mbuf *m[DUO_MAX];
	sy_stack_id other;

	begin();
	sy_addr_parse("10.0.0.1", &a.addr);
	sy_addr_parse("10.0.0.2", &b.addr);
	assert_int_equal(sy_stack_connect(duo.a, &a, &b, 0, duo.now, &other), 0);
	duo_settle();
	sy_stack_set(duo.a, other, SY_STACK_SEND_BYTES, 1 << 20, duo.now);
	duo_sender()->congestion.window = 1000000;
	connection_of(duo.a, other)->congestion.window = 1000000;
	duo_sender()->snd_wnd = connection_of(duo.a, other)->snd_wnd = 1000000;
	duo_write(200000, 0);
	sy_stack_id first = duo.from;
	duo.from = other;
	duo_write(200000, 0);
	duo.from = first;
	unsigned count = duo_fetch(m);
	assert_true(count >= 4);
	for (unsigned i = 0; i < 4; i++) {
		unsigned l3_len, last_len;
		assert_true(segment_pieces(m[i]) > 16);
		if (i > 0)
			assert_int_not_equal(large_tcp(m[i], &l3_len)->src_port,
			                     large_tcp(m[i - 1], &last_len)->src_port);
	}
	for (unsigned i = 0; i < count; i++)
		rte_pktmbuf_free(m[i]);
	sy_stack_abort(duo.a, other, duo.now);
	duo_end();
}

/* A connection passed by more urgent ones sends two pieces per quota, not large segments. */
static void test_passed(void **state)
{
	struct sy_stack_endpoint a = {.port = 0}, b = {.port = htons(80)};
	struct rte_mbuf *m[DUO_MAX];
	unsigned l3_len, turns = 0, urgent = 0;
	sy_stack_id other, first;

	begin();
	sy_addr_parse("10.0.0.1", &a.addr);
	sy_addr_parse("10.0.0.2", &b.addr);
	assert_int_equal(sy_stack_connect(duo.a, &a, &b, 0, duo.now, &other), 0);
	duo_settle();
	first = duo.from;
	sy_stack_set(duo.a, other, SY_STACK_PRIORITY, 6, duo.now);
	sy_stack_set(duo.a, other, SY_STACK_SEND_BYTES, 3 << 20, duo.now);
	duo_sender()->congestion.window = connection_of(duo.a, other)->congestion.window = 4000000;
	duo_sender()->snd_wnd = connection_of(duo.a, other)->snd_wnd = 4000000;
	duo_write(300000, 0);
	duo.from = other;
	duo_write(3000000, 0);
	duo.from = first;
	assert_int_equal(sy_stack_transmit(duo.a, m, 40, duo.now), 40);
	for (unsigned i = 0; i < 40; i++) {
		if (large_tcp(m[i], &l3_len)->src_port == duo_sender()->tuple.dport) {
			assert_int_equal(segment_pieces(m[i]), EMIT_PASSED);
			turns++;
		} else {
			assert_true(segment_pieces(m[i]) > 16);
			urgent++;
		}
		rte_pktmbuf_free(m[i]);
	}
	assert_in_range(turns, 1, 3);
	assert_int_equal(urgent, 40 - turns);
	sy_stack_abort(duo.a, other, duo.now);
	duo_end();
}

/* ---- what goes alone ------------------------------------------------------------------------- */

/* The mark that the window is reduced is on one packet (RFC 3168 6.1.2). */
static void test_reduced(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	begin_with((struct sy_stack_options){.tso = {.ipv4 = true}, .ecn = true}, true);
	assert_true(duo_sender()->flags & C_ECN);
	duo_sender()->flags |= C_SEND_CWR;
	duo_write(5 * MSS, 0);
	assert_int_equal(duo_fetch(m), 2);
	assert_true(duo_flags_of(m[0]) & TCP_CWR);
	assert_int_equal(duo_payload_of(m[0]), MSS);
	assert_false(duo_flags_of(m[1]) & TCP_CWR);
	assert_int_equal(duo_payload_of(m[1]), 4 * MSS);
	duo_deliver(m[0], 0);
	duo_deliver(m[1], 0);
	assert_int_equal(duo_read(), 5 * MSS);
	duo_end();
}

/* The pointer counts from each packet's own number (RFC 9293 3.8.5). */
static void test_urgent(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	begin();
	duo_write(4 * MSS, SY_STACK_OOB);
	assert_int_equal(duo_fetch(m), 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_true(duo_flags_of(m[i]) & SY_TCP_URG);
		duo_deliver(m[i], 0);
	}
	duo_back();
	duo_write(4 * MSS, 0); /* it is acknowledged */
	assert_int_equal(duo_fetch(m), 1);
	duo_deliver(m[0], 0);
	duo_read();
	duo_read();
	assert_int_equal(duo.read, duo.written);
	duo_end();
}

/* ---- pieces get lost ------------------------------------------------------------------------- */

/* Two of ten pieces are lost: exactly these are retransmitted, separately. */
static void test_lost(void **state)
{
	struct rte_mbuf *m[DUO_MAX];
	uint32_t first;

	begin();
	duo_write(10 * MSS, 0);
	first = duo_sender()->snd_nxt;
	duo_pass(10);
	assert_int_equal(duo_fetch(m), 1);
	duo_deliver(m[0], 1 << 2 | 1 << 5);
	duo_pass(10);
	duo_back();
	for (unsigned i = 0; i < 50 && duo_fetch_all() == 0; i++)
		duo_pass(1);
	const struct sy_stack_counters *c = sy_stack_counters(duo.a);
	assert_int_equal(c->timeouts, 0);
	assert_int_equal(c->retransmitted, 2);
	assert_int_equal(duo.seq[0], first + 2 * MSS);
	assert_int_equal(duo.seq[1], first + 5 * MSS);
	duo_back();
	assert_int_equal(duo_read(), 10 * MSS);
	assert_int_equal(duo_sender()->snd_una, duo_sender()->snd_nxt);
	duo_end();
}

/* The last piece: it alone is retransmitted by the RTO (RFC 6298). */
static void test_lost_end(void **state)
{
	struct rte_mbuf *m[DUO_MAX];

	begin();
	duo_write(7 * MSS + 10, 0);
	duo_pass(10);
	assert_int_equal(duo_fetch(m), 1);
	duo_deliver(m[0], 1 << 7);
	for (unsigned i = 0; i < 3000 && duo.read < duo.written; i++) {
		duo_pass(1); /* a round trip */
		duo_back();
		duo_fetch_all();
		duo_read();
	}
	assert_int_equal(duo.read, duo.written);
	assert_int_equal(sy_stack_counters(duo.a)->retransmitted, 1);
	assert_int_equal(duo.largest, 10);
	duo_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_window),      cmocka_unit_test(test_idle),
	        cmocka_unit_test(test_family),      cmocka_unit_test(test_end),
	        cmocka_unit_test(test_nagle),       cmocka_unit_test(test_cork),
	        cmocka_unit_test(test_peer_window), cmocka_unit_test(test_limits),
	        cmocka_unit_test(test_paced),       cmocka_unit_test(test_no_buffers),
	        cmocka_unit_test(test_quota),       cmocka_unit_test(test_small),
	        cmocka_unit_test(test_reduced),     cmocka_unit_test(test_urgent),
	        cmocka_unit_test(test_lost),        cmocka_unit_test(test_lost_end),
	        cmocka_unit_test(test_passed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
