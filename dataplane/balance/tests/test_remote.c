// SPDX-License-Identifier: Apache-2.0
/* Packets of another worker's sessions: forwarded by the worker that receives them, or steered,
 * and kept in order. All packets arrive at worker 0; worker 1 owns the sessions. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "delay.h"
#include "flows.h"

#define OWNER 1

static const unsigned port_of[2] = {[SESSION_CLIENT] = HARNESS_WAN, [SESSION_SERVER] = HARNESS_LAN};

static int setup(void **state)
{
	flows_setup(state);
	struct flows *f = *state;
	f->options.queues = 2;
	flows_reopen(f, 2, 0, false);
	return 0;
}

static struct sy_worker *worker(struct flows *f, unsigned id)
{
	return &f->harness.rt->worker[id];
}

/* The first client port not below `from` whose session belongs to the owner. */
static uint16_t port_from(unsigned service, uint16_t from)
{
	const struct sy_addr client = harness_addr(service / 2 ? "2001:db8:c::1" : "198.18.0.1");
	while (sy_slot_of(&client, htons(from)) % 2 != OWNER)
		from++;
	return from;
}

static void open_remote(struct flows *f, struct flow *flow, unsigned service, uint16_t *port)
{
	flow_open(f, flow, service, port_from(service, *port));
	if (flow->client.proto == SY_PROTO_TCP) /* test_watched() has those */
		flow_session(f, flow)->flags &= (uint8_t)~SESSION_WATCHED;
	*port = (uint16_t)(flow->port + 1);
}

/* How many remote-owned packets worker 0 has forwarded and steered so far. */
struct deals {
	uint64_t here, over;
};

static struct deals deals_now(struct flows *f)
{
	const struct sy_worker_counters *c = &worker(f, 0)->counters;
	return (struct deals){c->remote, c->steered_out};
}

static void dealt(struct flows *f, struct deals *before, uint64_t here, uint64_t over)
{
	struct deals now = deals_now(f);
	assert_int_equal(now.here - before->here, here);
	assert_int_equal(now.over - before->over, over);
	*before = now;
}

static void test_forwarded_where_it_arrives(void **state)
{
	struct flows *f = *state;
	uint16_t port = 1000;
	for (unsigned service = 0; service < FLOW_SERVICES; service++) {
		struct flow flow;
		open_remote(f, &flow, service, &port);
		struct traffic before = traffic_sum(f->harness.b, flow.server_id);
		uint64_t owners = worker(f, OWNER)->counters.tx_packets;
		uint8_t slot = sy_slot_of(&flow.client.src, flow.client.sport);
		uint64_t packets = inspect_worker(f->harness.b, 0)->slot_packets[slot];
		struct deals deals = deals_now(f);

		flow_check(f, &flow);
		dealt(f, &deals, 2, 0);
		assert_int_equal(worker(f, OWNER)->counters.tx_packets, owners);
		assert_int_equal(inspect_worker(f->harness.b, 0)->slot_packets[slot], packets + 2);
		struct traffic after = traffic_sum(f->harness.b, flow.server_id);
		assert_int_equal(after.packets_in, before.packets_in + 1);
		assert_int_equal(after.packets_out, before.packets_out + 1);
	}
}

/* The owner counts the lost segments of a session that it watches. */
static void test_watched(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	flow_open(f, &flow, 0, port_from(0, 1000));
	struct session *s = flow_session(f, &flow);
	assert_true(s->flags & SESSION_WATCHED);
	struct deals deals = deals_now(f);
	flow_check(f, &flow);
	dealt(f, &deals, 0, 2);
	struct delay_share seen = delay_sum(f->harness.b, flow.server_id);
	assert_int_equal(seen.segments, 4);
	s->flags &= (uint8_t)~SESSION_WATCHED;
	flow_check(f, &flow);
	dealt(f, &deals, 2, 0);
}

/* With fewer queues than workers, another worker would send what the owner forwards: all packets
 * are steered. */
static void test_without_queues(void **state)
{
	struct flows *f = *state;
	uint16_t port = 1000;
	struct flow flow;
	f->options.queues = 1;
	flows_reopen(f, 2, 0, false);
	open_remote(f, &flow, 0, &port);
	struct deals deals = deals_now(f);
	flow_check(f, &flow);
	dealt(f, &deals, 0, 2);
}

/* A packet from this side is steered, and the owner decides what becomes of it. */
static void check_over(struct flows *f, const struct frame *in, enum session_direction from)
{
	struct deals deals = deals_now(f);
	struct rte_mbuf *m;
	assert_true(harness_inject(&f->harness, port_of[from], in->bytes, in->len));
	harness_poll(&f->harness);
	dealt(f, &deals, 0, 1);
	for (unsigned p = 0; p < HARNESS_PORTS; p++)
		while ((m = harness_collect(&f->harness, p)))
			rte_pktmbuf_free(m);
}

static void test_other_packets(void **state)
{
	static const uint8_t flags[] = {SY_TCP_SYN, SY_TCP_FIN | SY_TCP_ACK, SY_TCP_RST};
	struct flows *f = *state;
	uint16_t port = 1000;
	struct frame in, piece[2];
	for (unsigned service = 0; service < FLOW_SERVICES; service++) {
		struct flow flow;
		for (unsigned n = 0; n < 3 && service % 2 == 0; n++)
			for (unsigned from = 0; from < 2; from++) {
				open_remote(f, &flow, service, &port);
				flows_frame(f, &in, from ? &flow.server : &flow.client, flags[n], 1,
				            0);
				check_over(f, &in, (enum session_direction)from);
			}
		open_remote(f, &flow, service, &port);
		in = flow.in[SESSION_CLIENT];
		frame_set_ttl(&in, 1);
		check_over(f, &in, SESSION_CLIENT);
		/* no session */
		flow.client.sport = htons(port_from(service, port++));
		flows_frame(f, &in, &flow.client, SY_TCP_ACK, 1, 0);
		check_over(f, &in, SESSION_CLIENT);
	}
	/* Its two fragments go to the worker that reassembles their datagram, and then to the
	 * session's owner. */
	struct flow flow;
	open_remote(f, &flow, 1, &port);
	flows_frame(f, &in, &flow.client, 0, 1, 400);
	assert_int_equal(frame_cut(&in, 7, 256, piece, 2), 2);
	struct deals deals = deals_now(f);
	for (unsigned n = 0; n < 2; n++) {
		assert_true(harness_inject(&f->harness, HARNESS_WAN, piece[n].bytes, piece[n].len));
		harness_poll(&f->harness);
		rte_pktmbuf_free(harness_collect(&f->harness, HARNESS_LAN));
	}
	dealt(f, &deals, 0, 2);
}

static void test_other_states(void **state)
{
	static const uint32_t fast[2] = {
	        [SESSION_CLIENT] = 1u << SESSION_ESTABLISHED | 1u << SESSION_UDP_BOTH_WAYS |
	                           1u << SESSION_UDP_ONE_WAY,
	        [SESSION_SERVER] = 1u << SESSION_ESTABLISHED | 1u << SESSION_UDP_BOTH_WAYS |
	                           1u << SESSION_UDP_ANSWERED};
	struct flows *f = *state;
	uint16_t port = 1000;
	for (unsigned n = 0; n < 2 * SESSION_STATES; n++) {
		enum session_direction from = (enum session_direction)(n % 2);
		struct flow flow;
		if (n / 2 == SESSION_PAIR_RECORD || n / 2 == SESSION_OPENING)
			continue;
		open_remote(f, &flow, n / 2 == SESSION_UDP_ONE_WAY || n / 2 == SESSION_UDP_ANSWERED,
		            &port);
		flow_session(f, &flow)->state = (uint8_t)(n / 2);
		if (!(fast[from] >> n / 2 & 1))
			check_over(f, &flow.in[from], from);
		else if (n / 2 == SESSION_UDP_ONE_WAY)
			flow_session(f, &flow)->state = SESSION_UDP_BOTH_WAYS;
	}
	static const uint8_t flags[] = {SESSION_ADDRESS_PENDING, SESSION_SHIFTED,
	                                SESSION_ONE_PACKET};
	for (unsigned n = 0; n < 6; n++) {
		enum session_direction from = (enum session_direction)(n % 2);
		struct flow flow;
		open_remote(f, &flow, 0, &port);
		struct session *s = flow_session(f, &flow);
		s->flags = flags[n / 2];
		check_over(f, &flow.in[from], from);
		s->flags = 0;
	}
}

static void test_other_endpoints(void **state)
{
	struct flows *f = *state;
	uint16_t port = 1000;
	struct flow flow;
	struct frame out;
	for (unsigned n = 0; n < 3; n++) {
		open_remote(f, &flow, 0, &port);
		struct endpoint *e = inspect_endpoint(f->harness.b, flow.server_id);
		uint8_t *const why[] = {
		        &e->down, &e->dead,
		        inspect_local_removed(f->harness.b, flow_session(f, &flow)->local)};
		*why[n] = 1;
		check_over(f, &flow.in[SESSION_SERVER], SESSION_SERVER);
		*why[n] = 0;
	}
	/* The owner answers packets that exceed the MTU. */
	open_remote(f, &flow, 0, &port);
	struct deals deals = deals_now(f);
	struct frame in;
	flows_frame(f, &in, &flow.client, SY_TCP_ACK, 1, HARNESS_LAN_MTU - 40);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	dealt(f, &deals, 1, 0);
	flows_frame(f, &in, &flow.client, SY_TCP_ACK, 1, HARNESS_LAN_MTU - 39);
	check_over(f, &in, SESSION_CLIENT);
}

/* ---- order ----------------------------------------------------------------------------------- */

static void arrive(struct flows *f, const struct flow *flow, uint8_t flags, uint32_t seq)
{
	struct frame in;
	flows_frame(f, &in, &flow->client, flags, seq, 20);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
}

/* Checks the numbers of the next packets to the server. */
static void left_in_order(struct flows *f, uint32_t first, uint32_t last)
{
	for (; first <= last; first++) {
		struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_LAN);
		struct sy_view v;
		assert_non_null(m);
		const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
		assert_int_equal(sy_packet_parse(frame, rte_pktmbuf_data_len(m), &v), 0);
		assert_int_equal(ntohl(sy_packet_tcp(frame, &v)->seq), first);
		rte_pktmbuf_free(m);
	}
	assert_null(harness_collect(&f->harness, HARNESS_LAN));
}

/* One packet that is steered. */
static void arrive_over(struct flows *f, const struct flow *flow, uint32_t seq)
{
	struct endpoint *e = inspect_endpoint(f->harness.b, flow->server_id);
	struct deals deals = deals_now(f);
	e->down = 1;
	arrive(f, flow, SY_TCP_ACK, seq);
	harness_poll_worker(&f->harness, 0);
	e->down = 0;
	dealt(f, &deals, 0, 1);
}

static void test_order(void **state)
{
	struct flows *f = *state;
	uint16_t port = 1000;
	struct flow flow, other;
	open_remote(f, &flow, 0, &port);
	open_remote(f, &other, 2, &port);
	for (unsigned round = 0; round < 3; round++) {
		arrive_over(f, &flow, 1);
		struct deals deals = deals_now(f);
		/* While it is in flight, the packets after it follow it. */
		for (uint32_t n = 2; n < 5; n++) {
			arrive(f, &flow, SY_TCP_ACK, n);
			harness_poll_worker(&f->harness, 0);
			dealt(f, &deals, 0, 1);
		}
		/* Packets of another flow do not. */
		arrive(f, &other, SY_TCP_ACK, 0);
		harness_poll_worker(&f->harness, 0);
		dealt(f, &deals, 1, 0);
		left_in_order(f, 0, 0);
		harness_poll_worker(&f->harness, OWNER);
		left_in_order(f, 1, 4);
		arrive(f, &flow, SY_TCP_ACK, 5);
		harness_poll_worker(&f->harness, 0);
		dealt(f, &deals, 1, 0);
		left_in_order(f, 5, 5);
	}
}

/* In one burst: forwarded packets leave before the FIN that is steered after them, and no
 * packet passes the FIN. */
static void test_order_of_a_burst(void **state)
{
	struct flows *f = *state;
	uint16_t port = 1000;
	struct flow flow;
	open_remote(f, &flow, 0, &port);
	struct deals deals = deals_now(f);
	for (uint32_t n = 0; n < SY_BURST; n++)
		arrive(f, &flow, n == SY_BURST / 2 ? SY_TCP_ACK | SY_TCP_FIN : SY_TCP_ACK, n);
	harness_poll(&f->harness);
	dealt(f, &deals, SY_BURST / 2, SY_BURST / 2);
	left_in_order(f, 0, SY_BURST - 1);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void test_seen(void **state)
{
	struct flows *f = *state;
	uint16_t port = 1000;
	struct flow busy, silent;
	open_remote(f, &busy, 1, &port);
	open_remote(f, &silent, 1, &port);
	struct deals deals = deals_now(f);
	unsigned seconds = 0;
	for (; flow_session(f, &silent); seconds += 10) {
		flows_advance(f, 10);
		flow_check(f, &busy);
		dealt(f, &deals, 2, 0);
		assert_int_equal(flow_session(f, &busy)->seen,
		                 (uint16_t)balance_seconds(worker(f, 0)));
	}
	assert_true(seconds > 10);
	flow_check(f, &busy);
	dealt(f, &deals, 2, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(test_forwarded_where_it_arrives),
	        TEST(test_watched),
	        TEST(test_without_queues),
	        TEST(test_other_packets),
	        TEST(test_other_states),
	        TEST(test_other_endpoints),
	        TEST(test_order),
	        TEST(test_order_of_a_burst),
	        TEST(test_seen),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
