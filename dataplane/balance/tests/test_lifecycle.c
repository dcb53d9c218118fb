// SPDX-License-Identifier: Apache-2.0
/* How a TCP session ends: probes to both sides, and their answers. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"
#include "reset.h"

#define DOWN       STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN
#define RESET_TIME 5 /* default seconds of silence allowed after a reset */

static const unsigned port_of[2] = {[SESSION_CLIENT] = HARNESS_WAN, [SESSION_SERVER] = HARNESS_LAN};

/* The segments that the balancer itself sent to this side: number of probes and resets. */
struct originated_segments {
	unsigned probes, resets;
};

static struct originated_segments originated_segments_of(struct flows *f,
                                                         enum session_direction side)
{
	struct originated_segments sent = {0};
	struct sy_tcp tcp;
	while (flows_originated_segment(f, port_of[side], &tcp))
		if (tcp.flags & SY_TCP_RST)
			sent.resets++;
		else
			sent.probes++;
	return sent;
}

/* This side sends a segment; returns whether it was forwarded. */
static bool send_segment(struct flows *f, const struct flow *flow, enum session_direction from,
                         uint8_t flags, uint32_t seq)
{
	const struct segment s = {flags, seq, 1, 0};
	struct frame in, out;
	frame_tcp(&in, &f->rng, from == SESSION_CLIENT ? &flow->client : &flow->server, &s, 0);
	return flows_through(f, port_of[from], &in, &out);
}

static enum session_state state_of(struct flows *f, const struct flow *flow)
{
	struct session *s = flow_session(f, flow);
	return s ? s->state : SESSION_FREE;
}

static void check_state(struct flows *f, const struct flow *flow, enum session_state want)
{
	enum session_state state = state_of(f, flow);
	if (state != want)
		fail_msg("%s, not %s", session_state_name(state), session_state_name(want));
}

/* A client whose firewall drops probes, and a reset in its name: the server is probed before the
 * timeout. */
static void challenge(struct flows *f, struct flow *flow, unsigned service, uint16_t port)
{
	flow_open(f, flow, service, port);
	assert_true(send_segment(f, flow, SESSION_CLIENT, SY_TCP_RST, 1));
	check_state(f, flow, SESSION_RESET_BY_CLIENT);
	for (unsigned second = 0; second < RESET_TIME; second++) {
		flows_advance(f, 1);
		assert_true(originated_segments_of(f, SESSION_CLIENT).probes > 0);
		assert_int_equal(originated_segments_of(f, SESSION_SERVER).probes, 0);
	}
	flows_advance(f, 1);
	check_state(f, flow, SESSION_RESET_BY_SERVER);
	assert_int_equal(originated_segments_of(f, SESSION_CLIENT).probes, 0);
	assert_true(originated_segments_of(f, SESSION_SERVER).probes > 0);
}

static void test_silent_client(void **state)
{
	struct flows *f = *state;
	for (unsigned service = 0; service < FLOW_SERVICES; service += 2) {
		struct flow alive, silent, dead;
		challenge(f, &alive, service, 1000);
		assert_true(send_segment(f, &alive, SESSION_SERVER, SY_TCP_ACK, 1));
		check_state(f, &alive, SESSION_ESTABLISHED);
		flow_check(f, &alive);

		challenge(f, &silent, service, 1001);
		flows_advance(f, RESET_TIME - 1);
		check_state(f, &silent, SESSION_RESET_BY_SERVER);
		flows_advance(f, 3);
		check_state(f, &silent, SESSION_FREE);

		challenge(f, &dead, service, 1002);
		send_segment(f, &dead, SESSION_SERVER, SY_TCP_RST,
		             reset_secret(f->harness.b, flow_session(f, &dead)));
		check_state(f, &dead, SESSION_RESET);
		flows_advance(f, RESET_TIME + 2);
		check_state(f, &dead, SESSION_FREE);
		check_state(f, &alive, SESSION_ESTABLISHED);
	}
}

static const struct sy_addr *server_of(struct flows *f, const struct flow *flow)
{
	return &inspect_endpoint(f->harness.b, flow->server_id)->addr;
}

static void put(struct flows *f, const struct flow *flow, int state)
{
	struct changes c = {0};
	put_server(&c, &f->service[flow->service], server_of(f, flow), 8080, 1, state);
	flows_commit(f, &c);
}

/* A SYN with the tuple of a session that was reset: the server knows whether the connection is
 * over, unless the server itself is gone, or accepts no new sessions. */
static void test_syn_while_challenged(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	flow_open(f, &flow, 0, 1000);
	assert_true(send_segment(f, &flow, SESSION_CLIENT, SY_TCP_RST, 1));
	assert_true(send_segment(f, &flow, SESSION_CLIENT, SY_TCP_SYN, 9));
	check_state(f, &flow, SESSION_RESET_BY_CLIENT);
	put(f, &flow, STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DRAIN);
	assert_false(send_segment(f, &flow, SESSION_CLIENT, SY_TCP_SYN, 9));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_TCP_STATE), 1);
	assert_int_equal(flow_session(f, &flow)->server, flow.server_id);
	check_state(f, &flow, SESSION_RESET_BY_CLIENT);
	put(f, &flow, DOWN);
	assert_true(send_segment(f, &flow, SESSION_CLIENT, SY_TCP_SYN, 9));
	assert_int_not_equal(flow_session(f, &flow)->server, flow.server_id);
	check_state(f, &flow, SESSION_SYN_SENT);
}

static void remove_server(struct flows *f, const struct flow *flow)
{
	struct changes c = {0};
	delete_server(&c, &f->service[flow->service], server_of(f, flow), 8080);
	flows_commit(f, &c);
}

/* Both ends are probed until they answer, and their answers are accepted for some seconds, although
 * the session no longer has a server. */
static void test_dying(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	flow_open(f, &flow, 0, 1000);
	remove_server(f, &flow);
	flows_advance(f, 1);
	check_state(f, &flow, SESSION_DYING);
	for (unsigned second = 0; second < RESET_BOTH_SECONDS; second++) {
		assert_int_equal(originated_segments_of(f, SESSION_CLIENT).probes > 0, second < 2);
		assert_true(originated_segments_of(f, SESSION_SERVER).probes > 0);
		if (second > 0)
			assert_false(send_segment(f, &flow, SESSION_CLIENT, SY_TCP_ACK, 1));
		check_state(f, &flow, SESSION_DYING);
		flows_advance(f, 1);
	}
	flows_advance(f, 1);
	check_state(f, &flow, SESSION_FREE);
}

/* Of a million sessions that end at once, not all can be probed at once: the rest are probed
 * later. */
static void test_dying_rate(void **state)
{
	struct flows *f = *state;
	struct rate_limit *kills =
	        &inspect_worker(f->harness.b, 0)->originated.all[ORIGINATED_RESET_BOTH];
	struct frame in;
	struct flow flow;
	flow_open(f, &flow, 0, 1000);
	remove_server(f, &flow);
	*kills = (struct rate_limit){.last_ns = f->harness.now_ns};
	in = flow.in[SESSION_CLIENT];
	assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
	harness_poll(&f->harness);
	check_state(f, &flow, SESSION_DYING);
	assert_int_equal(originated_segments_of(f, SESSION_CLIENT).resets, 1);
	assert_int_equal(originated_segments_of(f, SESSION_SERVER).probes, 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_RESET_RATE), 1);
	flows_advance(f, 1);
	assert_true(originated_segments_of(f, SESSION_SERVER).probes > 0);
}

/* Which ends are reset after an idle timeout, and which ends are not probed. */
static void test_expiry_sends_resets(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow half, whole;
	struct frame in, out;
	set_resets(&c, put_service(&c, &f->service[0], "resets", FLOW_RR, NULL), true, false,
	           false);
	flows_commit(f, &c);
	flow_begin(f, &half, 0, 1000); /* a handshake that another client may have spoofed */
	const struct session *s = flow_session(f, &half);
	const struct sy_tuple back = {inspect_endpoint(f->harness.b, s->server)->addr,
	                              *inspect_local(f->harness.b, s->local),
	                              inspect_endpoint(f->harness.b, s->server)->port,
	                              s->local_port, SY_PROTO_TCP};
	flows_frame(f, &in, &back, SY_TCP_SYN | SY_TCP_ACK, 1, 0);
	assert_true(flows_through(f, HARNESS_LAN, &in, &out));
	check_state(f, &half, SESSION_SYN_RECEIVED);
	flows_advance(f, 12);
	check_state(f, &half, SESSION_FREE);
	assert_int_equal(originated_segments_of(f, SESSION_CLIENT).probes, 0);
	assert_int_equal(originated_segments_of(f, SESSION_SERVER).probes, 0);

	flow_open(f, &whole, 0, 1001);
	flows_advance(f, 902);
	check_state(f, &whole, SESSION_DYING);
	assert_true(originated_segments_of(f, SESSION_CLIENT).probes > 0);
	assert_true(originated_segments_of(f, SESSION_SERVER).probes > 0);
	for (unsigned side = SESSION_CLIENT; side <= SESSION_SERVER; side++) {
		assert_true(harness_inject(&f->harness, port_of[side], whole.in[side].bytes,
		                           whole.in[side].len));
		harness_poll(&f->harness);
		assert_int_equal(originated_segments_of(f, side).resets, 1);
	}
	flows_advance(f, RESET_BOTH_SECONDS + 2);
	check_state(f, &whole, SESSION_FREE);
}

/* A server that answers minutes after its client has closed still reaches it (RFC 5382 REQ-5), and
 * so does its last segment after both have closed. */
static void test_half_closed(void **state)
{
	struct flows *f = *state;
	for (unsigned service = 0; service < FLOW_SERVICES; service += 2) {
		struct flow half, both;
		flow_open(f, &half, service, 1000);
		flow_open(f, &both, service, 1001);
		/* The number that the server acknowledges is always 1. */
		assert_true(send_segment(f, &half, SESSION_CLIENT, SY_TCP_FIN | SY_TCP_ACK, 0));
		assert_true(send_segment(f, &both, SESSION_CLIENT, SY_TCP_FIN | SY_TCP_ACK, 0));
		assert_true(send_segment(f, &half, SESSION_SERVER, SY_TCP_ACK, 1));
		assert_true(send_segment(f, &both, SESSION_SERVER, SY_TCP_FIN | SY_TCP_ACK, 1));
		for (unsigned n = 0; n < 2; n++) {
			flows_advance(f, 237);
			check_state(f, &half, SESSION_FIN_WAIT);
			check_state(f, &both, SESSION_CLOSING);
			assert_true(send_segment(f, &half, SESSION_SERVER, SY_TCP_ACK, 1));
			assert_true(
			        send_segment(f, &both, SESSION_SERVER, SY_TCP_FIN | SY_TCP_ACK, 1));
		}
		flows_advance(f, 243);
		check_state(f, &half, SESSION_FREE);
		check_state(f, &both, SESSION_FREE);
	}
}

/* An id is not reused while the ends of its sessions are being reset. */
static void test_id_outlives_sessions(void **state)
{
	struct flows *f = *state;
	const struct id_pool *ids = &inspect_model(f->harness.b)->server_ids;
	struct flow flow;
	flow_open(f, &flow, 0, 1000);
	remove_server(f, &flow);
	unsigned seconds = 0;
	for (; ids->count == 0 && seconds < 60; seconds++)
		flows_advance(f, 1);
	check_state(f, &flow, SESSION_FREE);
	assert_int_equal(ids->count, 1);
	assert_true(seconds > RESET_BOTH_SECONDS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, flows_setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(silent_client), TEST(syn_while_challenged), TEST(dying),
	        TEST(dying_rate),    TEST(id_outlives_sessions), TEST(expiry_sends_resets),
	        TEST(half_closed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
