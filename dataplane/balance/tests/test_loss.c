// SPDX-License-Identifier: Apache-2.0
/* Segments that get lost between forwarder and servers, as seen in passing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "delay.h"
#include "flows.h"
#include "loss.h"

#define MS  UINT64_C(1000000)
#define RTT (10 * MS) /* to the server */

/* ---- one direction --------------------------------------------------------------------------- */

static void test_in_order(void **state)
{
	struct loss_side s = {0};
	uint32_t seq = UINT32_MAX - 2500; /* passes 2^32 */
	for (unsigned i = 0; i < 10; i++, seq += 1000)
		assert_int_equal(loss_note(&s, seq, 1000, i * MS, RTT), LOSS_NOTHING);
	/* A part of it is new. */
	assert_int_equal(loss_note(&s, seq - 500, 1000, 100 * MS, RTT), LOSS_NOTHING);
	assert_int_equal(loss_note(&s, seq + 500, 1000, 100 * MS, RTT), LOSS_NOTHING);
}

static void test_repeated(void **state)
{
	struct loss_side s = {0};
	for (unsigned i = 0; i < 4; i++)
		loss_note(&s, i * 1000, 1000, i, RTT);
	/* the last one again at once: a duplicate of the network */
	assert_int_equal(loss_note(&s, 3000, 1000, 1 * MS, RTT), LOSS_NOTHING);
	assert_int_equal(loss_note(&s, 3000, 1000, 11 * MS, RTT), LOSS_REPEATS);
	assert_int_equal(loss_note(&s, 1000, 1000, 1 * MS, RTT), LOSS_REPEATS);
	assert_int_equal(loss_note(&s, 1500, 200, 1 * MS, RTT), LOSS_REPEATS);
}

static void test_missing(void **state)
{
	struct loss_side s = {0};
	loss_note(&s, 0, 1000, 0, RTT);
	assert_int_equal(loss_note(&s, 2000, 1000, 1 * MS, RTT), LOSS_NOTHING);
	assert_int_equal(loss_note(&s, 4000, 1000, 5 * MS, RTT), LOSS_NOTHING);
	/* sooner than the sender could retransmit: late, not lost */
	assert_int_equal(loss_note(&s, 3000, 1000, 6 * MS, RTT), LOSS_NOTHING);
	assert_int_equal(loss_note(&s, 1000, 400, 11 * MS, RTT), LOSS_FILLS);
	assert_int_equal(loss_note(&s, 1000, 400, 30 * MS, RTT), LOSS_REPEATS);
	assert_int_equal(loss_note(&s, 1400, 600, 30 * MS, RTT), LOSS_FILLS);
	assert_int_equal(loss_note(&s, 1400, 600, 50 * MS, RTT), LOSS_REPEATS);
	/* One in the middle of what is missing. */
	loss_note(&s, 9000, 1000, 60 * MS, RTT);
	assert_int_equal(loss_note(&s, 6000, 1000, 80 * MS, RTT), LOSS_FILLS);
	assert_int_equal(loss_note(&s, 7000, 2000, 80 * MS, RTT), LOSS_FILLS);
	assert_int_equal(loss_note(&s, 7000, 1000, 99 * MS, RTT), LOSS_REPEATS);
}

/* More gaps than entries: only the oldest is forgotten. */
static void test_many_missing(void **state)
{
	struct loss_side s = {0};
	for (unsigned i = 0; i <= LOSS_HOLES + 1; i++)
		loss_note(&s, i * 2000, 1000, (1 + i) * MS, RTT);
	for (unsigned i = 1; i <= LOSS_HOLES; i++)
		assert_int_equal(loss_note(&s, 1000 + i * 2000, 1000, 50 * MS, RTT), LOSS_FILLS);
	assert_int_equal(loss_note(&s, 1000, 1000, 50 * MS, RTT), LOSS_REPEATS);
}

/* ---- in a session ---------------------------------------------------------------------------- */

static struct delay_share seen(struct flows *f, const struct flow *flow)
{
	return delay_sum(f->harness.b, flow->server_id);
}

/* A segment from one side; returns what leaves the other one. */
static struct frame segment_send(struct flows *f, struct flow *flow, enum session_direction from,
                                 uint32_t seq, unsigned payload, uint8_t flags)
{
	struct frame in, out;
	flows_frame(f, &in, from == SESSION_CLIENT ? &flow->client : &flow->server,
	            SY_TCP_ACK | flags, seq, payload);
	assert_true(
	        flows_through(f, from == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN, &in, &out));
	return out;
}

static bool is_watched(struct flows *f, const struct flow *flow)
{
	return flow_session(f, flow)->flags & SESSION_WATCHED;
}

/* The server answers the SYN a round trip later; the client completes the handshake. */
static void begin(struct flows *f, struct flow *flow, uint16_t port)
{
	struct frame out;
	harness_advance(&f->harness, MS);
	flow_begin(f, flow, port % 2 ? 2 : 0, port);
	harness_advance(&f->harness, RTT);
	flows_frame(f, &flow->in[SESSION_SERVER], &flow->server, SY_TCP_SYN | SY_TCP_ACK, 0, 0);
	assert_true(flows_through(f, HARNESS_LAN, &flow->in[SESSION_SERVER], &out));
	segment_send(f, flow, SESSION_CLIENT, 2, 0, 0);
}

static void test_lost_beyond(void **state)
{
	struct flows *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct flow flow;
		begin(f, &flow, (uint16_t)(2000 + v6));
		assert_true(is_watched(f, &flow));
		for (unsigned i = 0; i < 8; i++)
			segment_send(f, &flow, SESSION_CLIENT, 2 + i * 100, 100, 0);
		struct delay_share s = seen(f, &flow);
		assert_int_equal(s.segments, 8);
		assert_int_equal(s.lost, 0);
		harness_advance(&f->harness, 2 * RTT);
		struct frame out = segment_send(f, &flow, SESSION_CLIENT, 302, 100, 0);
		assert_true(out.len > 0);
		s = seen(f, &flow);
		assert_int_equal(s.segments, 9);
		assert_int_equal(s.lost, 1);
		/* What the client's own link has lost is not the server's. */
		segment_send(f, &flow, SESSION_CLIENT, 902, 100, 0);
		harness_advance(&f->harness, 2 * RTT);
		segment_send(f, &flow, SESSION_CLIENT, 802, 100, 0);
		assert_int_equal(seen(f, &flow).lost, 1);
		assert_int_equal(flow_session(f, &flow)->state, SESSION_ESTABLISHED);
	}
}

static void test_lost_on_the_way_here(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	begin(f, &flow, 2000);
	/* The first one after the handshake is missing already. */
	segment_send(f, &flow, SESSION_SERVER, 101, 100, 0);
	harness_advance(&f->harness, 2 * RTT);
	segment_send(f, &flow, SESSION_SERVER, 1, 100, 0);
	assert_int_equal(seen(f, &flow).lost, 1);
	/* The client did not get it, and the server retransmits: the server's link is fine. */
	harness_advance(&f->harness, 2 * RTT);
	segment_send(f, &flow, SESSION_SERVER, 101, 100, 0);
	struct delay_share s = seen(f, &flow);
	assert_int_equal(s.segments, 3);
	assert_int_equal(s.lost, 1);
}

static void server_acks(struct flows *f, struct flow *flow, uint32_t ack)
{
	struct frame in, out;
	frame_tcp(&in, &f->rng, &flow->server, &(struct segment){SY_TCP_ACK, 1, ack, 0}, 0);
	assert_true(flows_through(f, HARNESS_LAN, &in, &out));
}

/* What the server has acknowledged was lost towards the client: the acknowledgement, that is. */
static void test_acknowledged(void **state)
{
	struct flows *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct flow flow;
		begin(f, &flow, (uint16_t)(2000 + v6));
		for (unsigned i = 0; i < 3; i++)
			segment_send(f, &flow, SESSION_CLIENT, 2 + i * 100, 100, 0);
		server_acks(f, &flow, 202);
		harness_advance(&f->harness, 2 * RTT);
		segment_send(f, &flow, SESSION_CLIENT, 2, 100, 0);
		segment_send(f, &flow, SESSION_CLIENT, 102, 100, 0);
		struct delay_share s = seen(f, &flow);
		assert_int_equal(s.segments, 5);
		assert_int_equal(s.lost, 0);
		segment_send(f, &flow, SESSION_CLIENT, 202, 100, 0);
		assert_int_equal(seen(f, &flow).lost, 1);
		/* An older acknowledgement comes late: no effect. */
		server_acks(f, &flow, 102);
		segment_send(f, &flow, SESSION_CLIENT, 102, 100, 0);
		assert_int_equal(seen(f, &flow).lost, 1);
		server_acks(f, &flow, 302);
		segment_send(f, &flow, SESSION_CLIENT, 202, 100, 0);
		assert_int_equal(seen(f, &flow).lost, 1);
	}
}

/* A client that repeats and repeats adds little. */
static void test_one_session_adds_little(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	begin(f, &flow, 2000);
	segment_send(f, &flow, SESSION_CLIENT, 2, 100, 0);
	harness_advance(&f->harness, 2 * RTT);
	for (unsigned i = 1; i < LOSS_SEGMENTS; i++) {
		const unsigned repeats = i <= LOSS_MAX ? i : LOSS_MAX;
		assert_int_equal(is_watched(f, &flow), i <= LOSS_MAX);
		segment_send(f, &flow, SESSION_CLIENT, 2, 100, 0);
		struct delay_share s = seen(f, &flow);
		assert_int_equal(s.segments, 1 + repeats);
		assert_int_equal(s.lost, repeats);
	}
}

/* A segment that exceeds the MTU is dropped here and comes again in parts. */
static void test_too_big(void **state)
{
	struct flows *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct flow flow;
		struct frame in;
		struct rte_mbuf *m;
		begin(f, &flow, (uint16_t)(2000 + v6));
		assert_true(is_watched(f, &flow));
		flows_frame(f, &in, &flow.client, SY_TCP_ACK, 2, HARNESS_LAN_MTU);
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
		harness_poll(&f->harness);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_TOO_BIG), v6 + 1);
		while ((m = harness_collect(&f->harness, HARNESS_WAN))) /* the error */
			rte_pktmbuf_free(m);
		assert_false(is_watched(f, &flow));
		harness_advance(&f->harness, 2 * RTT);
		segment_send(f, &flow, SESSION_CLIENT, 2, 700, 0);
		segment_send(f, &flow, SESSION_CLIENT, 702, 700, 0);
		assert_int_equal(seen(f, &flow).lost, 0);
		assert_int_equal(flow_session(f, &flow)->state, SESSION_ESTABLISHED);
	}
}

/* While a server's round trip is unknown, late segments would count as lost. */
static void test_unknown_round_trip(void **state)
{
	struct flows *f = *state;
	struct flow first, flow;
	struct frame out;
	bool again = false;
	flow_begin(f, &first, 0, 2000);
	/* Two SYNs: which one was answered? It is not timed. */
	assert_true(flows_through(f, HARNESS_WAN, &first.in[SESSION_CLIENT], &out));
	harness_advance(&f->harness, RTT);
	flows_frame(f, &first.in[SESSION_SERVER], &first.server, SY_TCP_SYN | SY_TCP_ACK, 0, 0);
	assert_true(flows_through(f, HARNESS_LAN, &first.in[SESSION_SERVER], &out));
	assert_int_equal(SY_READ(f->harness.b->server_delay[first.server_id]), 0);
	assert_false(is_watched(f, &first));
	for (unsigned i = 0; i < FLOW_SERVERS; i++) {
		f->client = 1 + i;
		begin(f, &flow, (uint16_t)(2002 + 2 * i));
		assert_true(is_watched(f, &flow));
		again |= flow.server_id == first.server_id;
	}
	assert_true(again);
}

/* Acknowledgements, and the single bytes that keep a connection alive. */
static void test_not_counted(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	begin(f, &flow, 2000);
	segment_send(f, &flow, SESSION_CLIENT, 2, 100, 0);
	for (unsigned i = 0; i < 3; i++) {
		harness_advance(&f->harness, 2 * RTT);
		segment_send(f, &flow, SESSION_CLIENT, 101, 1, 0);
		segment_send(f, &flow, SESSION_CLIENT, 101, 0, 0);
	}
	struct delay_share s = seen(f, &flow);
	assert_int_equal(s.segments, 1);
	assert_int_equal(s.lost, 0);
}

/* Afterwards its packets are like any other's. */
static void test_ends(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	begin(f, &flow, 2000);
	for (unsigned i = 0; i < LOSS_SEGMENTS; i++) {
		assert_true(is_watched(f, &flow));
		segment_send(f, &flow, SESSION_CLIENT, 2 + i * 100, 100, 0);
	}
	assert_false(is_watched(f, &flow));
	harness_advance(&f->harness, 2 * RTT);
	segment_send(f, &flow, SESSION_CLIENT, 2, 100, 0);
	assert_int_equal(seen(f, &flow).lost, 0);
	begin(f, &flow, 2002);
	assert_true(is_watched(f, &flow));
	segment_send(f, &flow, SESSION_CLIENT, 2, 100, SY_TCP_FIN);
	assert_false(is_watched(f, &flow));
	assert_int_equal(flow_session(f, &flow)->state, SESSION_FIN_WAIT);
}

/* Begins sessions until one is with this server. */
static void begin_with(struct flows *f, struct flow *flow, uint16_t *port, uint32_t server)
{
	for (unsigned i = 0; i < FLOW_SERVERS; i++) {
		*port += 2;
		begin(f, flow, *port);
		if (flow->server_id == server)
			return;
	}
	fail();
}

/* However many sessions a client has with a server, and whatever it repeats. */
static void test_one_client_adds_little(void **state)
{
	struct flows *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		struct flow first, other, later;
		uint16_t port = (uint16_t)(2000 + v6);
		flows_reopen(f, 1, 0, false);
		begin(f, &first, port);
		assert_true(is_watched(f, &first));
		port += 2;
		begin(f, &other, port); /* with the other server */
		assert_int_not_equal(other.server_id, first.server_id);
		assert_true(is_watched(f, &other));
		begin_with(f, &later, &port, first.server_id);
		assert_false(is_watched(f, &later));
		segment_send(f, &first, SESSION_CLIENT, 2, 100, 0);
		harness_advance(&f->harness, 2 * RTT);
		for (unsigned i = 0; i < LOSS_MAX; i++)
			segment_send(f, &first, SESSION_CLIENT, 2, 100, 0);
		assert_false(is_watched(f, &first));
		begin_with(f, &later, &port, first.server_id);
		assert_false(is_watched(f, &later)); /* it has repeated enough */
		f->client = 1;
		begin_with(f, &other, &port, first.server_id);
		assert_true(is_watched(f, &other)); /* that was not this one */
		f->client = 0;
		harness_advance(&f->harness, LOSS_OLD_NS);
		begin_with(f, &later, &port, first.server_id);
		assert_true(is_watched(f, &later));
	}
}

/* A session with few losses is followed by another one at once. */
static void test_one_after_the_other(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	flows_reopen(f, 1, 0, false);
	for (unsigned i = 0; i < 5; i++) {
		begin(f, &flow, (uint16_t)(2000 + 2 * i));
		assert_true(is_watched(f, &flow));
		segment_send(f, &flow, SESSION_CLIENT, 2, 100, 0);
		harness_advance(&f->harness, 2 * RTT);
		segment_send(f, &flow, SESSION_CLIENT, 2, 100, 0);
		segment_send(f, &flow, SESSION_CLIENT, 102, 100, SY_TCP_FIN);
	}
}

/* A few at a time, each in its own entry. */
static void test_few_are_watched(void **state)
{
	struct flows *f = *state;
	static struct flow flow[4 * LOSS_WATCHED];
	unsigned watched = 0;
	for (unsigned i = 0; i < SY_ARRAY_LEN(flow); i++) {
		f->client = i;
		begin(f, &flow[i], (uint16_t)(2000 + 2 * i));
		f->harness.now_ns -= RTT; /* all within a few seconds */
	}
	for (unsigned i = 0; i < SY_ARRAY_LEN(flow); i++) {
		segment_send(f, &flow[i], SESSION_CLIENT, 2, 100, 0);
		watched += is_watched(f, &flow[i]);
	}
	assert_in_range(watched, LOSS_WATCHED / 2, 2 * LOSS_WATCHED); /* of two workers, maybe */
}

/* A session whose entry was reused is forgotten at its next packet. */
static void test_old_ones_give_way(void **state)
{
	struct flows *f = *state;
	static struct flow flow[2];
	begin(f, &flow[0], 2000);
	harness_advance(&f->harness, LOSS_OLD_NS);
	for (unsigned i = 0; i < 4000 && is_watched(f, &flow[0]); i++) {
		begin(f, &flow[1], (uint16_t)(4000 + 2 * i));
		segment_send(f, &flow[0], SESSION_CLIENT, 2, 100, 0);
	}
	assert_false(is_watched(f, &flow[0]));
	assert_true(is_watched(f, &flow[1]));
}

/* Datagrams have the same bit for another purpose. */
static void test_restart_keeps_watched_sessions(void **state)
{
	struct flows *f = *state;
	for (unsigned crash = 0; crash < 2; crash++) {
		struct flow flow;
		begin(f, &flow, (uint16_t)(2000 + 2 * crash));
		segment_send(f, &flow, SESSION_CLIENT, 2, 100, 0);
		assert_true(is_watched(f, &flow));
		flows_reopen(f, 1, 0, crash);
		assert_non_null(flow_session(f, &flow));
		assert_int_equal(is_watched(f, &flow), crash);
		segment_send(f, &flow, SESSION_SERVER, 1, 100, 0);
		segment_send(f, &flow, SESSION_CLIENT, 102, 100, 0);
		assert_false(is_watched(f, &flow)); /* not watched */
	}
}

#define FLOWS(name) cmocka_unit_test_setup_teardown(name, flows_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_in_order),
	        cmocka_unit_test(test_repeated),
	        cmocka_unit_test(test_missing),
	        cmocka_unit_test(test_many_missing),
	        FLOWS(test_lost_beyond),
	        FLOWS(test_lost_on_the_way_here),
	        FLOWS(test_acknowledged),
	        FLOWS(test_one_session_adds_little),
	        FLOWS(test_too_big),
	        FLOWS(test_unknown_round_trip),
	        FLOWS(test_not_counted),
	        FLOWS(test_ends),
	        FLOWS(test_one_client_adds_little),
	        FLOWS(test_one_after_the_other),
	        FLOWS(test_few_are_watched),
	        FLOWS(test_old_ones_give_way),
	        FLOWS(test_restart_keeps_watched_sessions),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
