// SPDX-License-Identifier: Apache-2.0
/* Limits on packets of sessions: how many pass, what is counted, and what a packet that does not
 * pass leaves alone. */
#include "limit_fixture.h"

#define BURST 10

static uint64_t exceeded(struct flows *f)
{
	return harness_drops(&f->harness, SY_DROP_LIMIT_EXCEEDED);
}

/* A burst passes, then packets at the rate, of TCP and UDP over both families. Other services have
 * no limit. */
static void test_packets(void **state)
{
	struct flows *f = *state;
	for (unsigned s = 0; s < FLOW_SERVICES; s++) {
		struct flow flow, other;
		uint64_t dropped = exceeded(f);
		flow_open(f, &flow, s, 4000);
		flow_open(f, &other, (s + 1) % FLOW_SERVICES, 4000);
		limit_service(f, s, "a", PACKETS, 4, BURST);
		assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 7), 7);
		assert_int_equal(flow_send(f, &flow, SESSION_SERVER, 7), 3);
		assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 5), 0);
		assert_int_equal(flow_send(f, &other, SESSION_CLIENT, 50), 50);
		flows_advance(f, 1);
		assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 10), 4);
		limits_fill(f);
		assert_int_equal(flow_send(f, &flow, SESSION_SERVER, 20), BURST);
		assert_int_equal(exceeded(f) - dropped, 4 + 5 + 6 + 10);
		const struct shown a = limit_show(f, "a");
		assert_int_equal(a.passed, BURST + 4 + BURST);
		assert_int_equal(a.above, 25);
		const uint64_t in = flow.in[SESSION_CLIENT].len - SY_ETH_LEN;
		const uint64_t out = flow.in[SESSION_SERVER].len - SY_ETH_LEN;
		assert_int_equal(a.passed_bytes, 11 * in + 13 * out);
		assert_int_equal(a.above_bytes, 11 * in + 14 * out);
		assert_int_equal(a.left, 0);
		struct changes c = {0};
		delete_limit(&c, "a");
		flows_commit(f, &c);
		assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 20), 20);
	}
}

static void test_direction(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	flow_open(f, &flow, 0, 4000);
	put_limit(&c, "in", PACKETS, 1, BURST)->direction = INWARDS;
	flows_commit(f, &c);
	assert_int_equal(flow_send(f, &flow, SESSION_SERVER, 20), 20);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 20), BURST);
	put_limit(&c, "in", PACKETS, 1, BURST)->direction = OUTWARDS;
	flows_commit(f, &c);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 20), 20);
	assert_int_equal(flow_send(f, &flow, SESSION_SERVER, 20), 0);
	assert_int_equal(limit_show(f, "in").passed, BURST);
}

/* Which bytes count; a short frame counts as one that Ethernet carries. */
static void test_layers(void **state)
{
	static const struct {
		int layer;
		unsigned header, min;
	} layers[] = {{0, 0, 0}, {1, 0, 0}, {2, 14, 60}, {3, 18, 64}, {4, 38, 84}};
	struct flows *f = *state;
	for (unsigned i = 0; i < SY_ARRAY_LEN(layers); i++)
		for (unsigned payload = 0; payload < 200; payload += 150) {
			struct changes c = {0};
			struct flow flow;
			flow_open(f, &flow, 0, (uint16_t)(4000 + i));
			flows_frame(f, &flow.in[SESSION_CLIENT], &flow.client, SY_TCP_ACK, 1,
			            payload);
			unsigned cost = flow.in[SESSION_CLIENT].len - SY_ETH_LEN + layers[i].header;
			if (cost < layers[i].min)
				cost = layers[i].min;
			put_limit(&c, "a", BITS, 8000, 7 * cost)->layer = layers[i].layer;
			flows_commit(f, &c);
			assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 9), 7);
			assert_int_equal(limit_show(f, "a").left, 0);
			delete_limit(&c, "a");
			flows_commit(f, &c);
		}
}

/* A packet is charged to all of its limits or to none. */
static void test_all_or_none(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	flow_open(f, &flow, 1, 4000);
	const uint64_t len = flow.in[SESSION_CLIENT].len - SY_ETH_LEN;
	add_limit_service(&c, put_limit(&c, "a service", BITS, 8000, 100 * len), &f->service[1]);
	add_limit_vip(&c, put_limit(&c, "b vip", PACKETS, 1, BURST), &f->service[1].vip);
	pb_limit *clients = put_limit(&c, "c clients", PACKETS, 1, 50);
	set_limit_clients(&c, clients, 100);
	put_limit(&c, "d all", PACKETS, 1, 60);
	put_limit(&c, "e mark", PACKETS, 1, 60)->action = MARK;
	flows_commit(f, &c);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 30), BURST);
	assert_int_equal(limit_show(f, "a service").left, (100 - BURST) * len);
	assert_int_equal(limit_show(f, "b vip").left, 0);
	assert_int_equal(limit_show(f, "d all").left, 60 - BURST);
	assert_int_equal(limit_show(f, "e mark").left, 60 - BURST);
	/* Only the limit that refuses counts what it refuses. */
	assert_int_equal(limit_show(f, "b vip").above, 20);
	assert_int_equal(limit_show(f, "a service").above, 0);
	assert_int_equal(limit_show(f, "a service").passed, BURST);
	assert_int_equal(limit_show(f, "c clients").passed, BURST);
	/* What the client's bucket has left shows once it is the narrowest. */
	delete_limit(&c, "b vip");
	flows_commit(f, &c);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 60), 50 - BURST);
}

static void test_server(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow[2];
	flow_open(f, &flow[0], 1, 4000);
	flow_open(f, &flow[1], 1, 4001);
	assert_int_not_equal(flow[0].server_id, flow[1].server_id);
	const struct endpoint *e = inspect_endpoint(f->harness.b, flow[0].server_id);
	add_limit_server(&c, put_limit(&c, "a", PACKETS, 1, BURST), &f->service[1], &e->addr,
	                 ntohs(e->port));
	flows_commit(f, &c);
	assert_int_equal(flow_send(f, &flow[0], SESSION_CLIENT, 30), BURST);
	assert_int_equal(flow_send(f, &flow[1], SESSION_CLIENT, 30), 30);
}

/* A segment that is dropped does not change its session. */
static void test_state(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	struct frame out, fin, syn_ack;
	flow_open(f, &flow, 0, 4000);
	limit_service(f, 0, "a", PACKETS, 1, 1);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 2), 1);
	flows_frame(f, &fin, &flow.client, SY_TCP_FIN | SY_TCP_ACK, 101, 0);
	assert_false(flows_through(f, HARNESS_WAN, &fin, &out));
	assert_int_equal(flow_session(f, &flow)->state, SESSION_ESTABLISHED);
	flows_frame(f, &out, &flow.client, SY_TCP_RST | SY_TCP_ACK, 101, 0);
	assert_false(flows_through(f, HARNESS_WAN, &out, &out));
	assert_int_equal(flow_session(f, &flow)->state, SESSION_ESTABLISHED);
	flows_advance(f, 1);
	assert_true(flows_through(f, HARNESS_WAN, &fin, &out));
	assert_int_equal(flow_session(f, &flow)->state, SESSION_FIN_WAIT);
	/* the server retransmits the dropped answer */
	flows_advance(f, 1);
	flow_begin(f, &flow, 0, 4001);
	flows_frame(f, &syn_ack, &flow.server, SY_TCP_SYN | SY_TCP_ACK, 1, 0);
	assert_false(flows_through(f, HARNESS_LAN, &syn_ack, &out));
	assert_int_equal(flow_session(f, &flow)->state, SESSION_SYN_SENT);
	flows_advance(f, 1);
	assert_true(flows_through(f, HARNESS_LAN, &syn_ack, &out));
	assert_int_equal(flow_session(f, &flow)->state, SESSION_SYN_RECEIVED);
}

/* A packet that is dropped for another reason is not charged. */
static void test_undo(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	struct frame bad, out;
	flow_open(f, &flow, 0, 4000);
	put_limit(&c, "a", PACKETS, 1, BURST);
	set_limit_clients(&c, put_limit(&c, "b", PACKETS, 1, BURST), 100);
	flows_commit(f, &c);
	bad = flow.in[SESSION_CLIENT];
	frame_set_ttl(&bad, 1);
	for (unsigned i = 0; i < 20; i++) {
		struct rte_mbuf *m;
		assert_true(harness_inject(&f->harness, HARNESS_WAN, bad.bytes, bad.len));
		harness_poll(&f->harness);
		while ((m = harness_collect(&f->harness, HARNESS_WAN))) /* its ICMP error */
			rte_pktmbuf_free(m);
	}
	assert_int_equal(harness_drops(&f->harness, SY_DROP_TTL_EXPIRED), 20);
	flows_frame(f, &bad, &flow.server, SY_TCP_SYN, 1, 0);
	for (unsigned i = 0; i < 20; i++)
		assert_false(flows_through(f, HARNESS_LAN, &bad, &out));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_TCP_STATE), 20);
	assert_int_equal(limit_show(f, "a").left, BURST);
	assert_int_equal(limit_show(f, "a").passed, 0);
	assert_int_equal(limit_show(f, "b").passed, 0);
	assert_int_equal(flow_send(f, &flow, SESSION_CLIENT, 20), BURST);
	assert_int_equal(limit_show(f, "b").passed, BURST);
}

/* New sessions; refused ones are not charged. And their first packets. */
static void test_sessions(void **state)
{
	struct flows *f = *state;
	struct flow flow, first;
	struct frame out;
	limit_service(f, 0, "a", SESSIONS, 2, 4);
	for (uint16_t port = 4000; port < 4004; port++)
		flow_begin(f, &first, 0, port);
	flow = first;
	for (uint16_t port = 5000; port < 5010; port++) {
		flow.client.sport = htons(port);
		flows_frame(f, &flow.in[SESSION_CLIENT], &flow.client, SY_TCP_SYN, 1, 0);
		flow_check_dropped(f, &flow, SY_DROP_SESSION_RATE);
	}
	flows_check_active(f, 4);
	/* Packets of sessions do not count. */
	assert_int_equal(flow_send(f, &first, SESSION_CLIENT, 10), 10);
	flows_advance(f, 1);
	unsigned begun = 0;
	for (uint16_t port = 6000; port < 6010; port++) {
		flow.client.sport = htons(port);
		flows_frame(f, &out, &flow.client, SY_TCP_SYN, 1, 0);
		begun += flows_through(f, HARNESS_WAN, &out, &out);
	}
	assert_int_equal(begun, 2);
	flows_check_active(f, 6);
	const struct shown a = limit_show(f, "a");
	assert_int_equal(a.passed, 6);
	assert_int_equal(a.above, 18);
	assert_int_equal(a.passed_bytes, 0);
	/* A limit of packets refuses the first one, and the session is not begun. */
	struct changes c = {0};
	put_limit(&c, "b", PACKETS, 1, 1);
	delete_limit(&c, "a");
	flows_commit(f, &c);
	flow_begin(f, &first, 0, 7000);
	flow.client.sport = htons(7001);
	flows_frame(f, &flow.in[SESSION_CLIENT], &flow.client, SY_TCP_SYN, 1, 0);
	flow_check_dropped(f, &flow, SY_DROP_LIMIT_EXCEEDED);
	flows_check_active(f, 7);
}

/* The charge of a first packet is refunded when another limit refuses the session. */
static void test_sessions_give_back(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	put_limit(&c, "packets", PACKETS, 1, 100);
	put_limit(&c, "sessions", SESSIONS, 1, 1);
	flows_commit(f, &c);
	flow_begin(f, &flow, 0, 4000);
	for (uint16_t port = 5000; port < 5010; port++) {
		flow.client.sport = htons(port);
		flows_frame(f, &flow.in[SESSION_CLIENT], &flow.client, SY_TCP_SYN, 1, 0);
		flow_check_dropped(f, &flow, SY_DROP_SESSION_RATE);
	}
	assert_int_equal(limit_show(f, "packets").left, 99);
	assert_int_equal(limit_show(f, "packets").passed, 1);
	assert_int_equal(limit_show(f, "sessions").left, 0);
}

/* A connection under the tuple of one that was reset is a new session, too. */
static void test_sessions_again(void **state)
{
	struct flows *f = *state;
	struct flow flow[2];
	struct frame syn, rst, out;
	struct changes c = {0};
	limit_service(f, 0, "a", SESSIONS, 1, 2);
	flow_begin(f, &flow[0], 0, 4000); /* reset before it was open: TCP_RESTART */
	flow_open(f, &flow[1], 0, 4001);  /* and after it: TCP_SERVER_DECIDES */
	for (unsigned n = 0; n < 2; n++) {
		const struct sy_tuple *t = &flow[n].client;
		flows_frame(f, &rst, t, SY_TCP_RST | SY_TCP_ACK, 101, 0);
		flows_frame(f, &syn, t, SY_TCP_SYN, 1000, 0);
		flows_through(f, HARNESS_WAN, &rst, &out);
		const uint8_t was = flow_session(f, &flow[n])->state;
		assert_int_equal(was, n ? SESSION_RESET_BY_CLIENT : SESSION_RESET);
		struct sy_tcp own;
		while (flows_originated_segment(f, HARNESS_WAN, &own)) /* challenges */
			;
		while (flows_originated_segment(f, HARNESS_LAN, &own))
			;
		for (unsigned i = 0; i < 3; i++)
			assert_false(flows_through(f, HARNESS_WAN, &syn, &out));
		assert_int_equal(harness_drops(&f->harness, SY_DROP_SESSION_RATE), 3 * n + 3);
		assert_int_equal(flow_session(f, &flow[n])->state, was);
		flows_advance(f, 1);
		assert_true(flows_through(f, HARNESS_WAN, &syn, &out));
		assert_int_equal(limit_show(f, "a").passed, 3 + n);
		if (n == 0) /* the SYN again: it has begun */
			assert_true(flows_through(f, HARNESS_WAN, &syn, &out));
		assert_int_equal(limit_show(f, "a").left, 0);
	}
	/* a packet refused by another limit is not charged */
	put_limit(&c, "b", PACKETS, 1, 1);
	flows_commit(f, &c);
	flows_advance(f, 1);
	assert_true(flows_through(f, HARNESS_WAN, &syn, &out));
	flows_advance(f, 1);
	assert_int_equal(flow_send(f, &flow[1], SESSION_CLIENT, 1), 1);
	assert_false(flows_through(f, HARNESS_WAN, &syn, &out));
	assert_int_equal(limit_show(f, "a").left, 1);
}

/* A packet whose session is ended by one before it in its burst, and which is dropped then. */
static void test_undo_ended(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	struct frame syn, ack;
	put_limit(&c, "packets", PACKETS, 1, 100);
	put_limit(&c, "sessions", SESSIONS, 1, 1);
	flows_commit(f, &c);
	flow_open(f, &flow, 0, 4000);
	flow_session(f, &flow)->state = SESSION_TIME_WAIT;
	const uint64_t left = limit_show(f, "packets").left;
	flows_frame(f, &syn, &flow.client, SY_TCP_SYN, 1000, 0);
	flows_frame(f, &ack, &flow.client, SY_TCP_ACK, 101, 0);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, syn.bytes, syn.len));
	assert_true(harness_inject(&f->harness, HARNESS_WAN, ack.bytes, ack.len));
	harness_poll(&f->harness);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_SESSION_RATE), 1);
	assert_null(flow_session(f, &flow));
	assert_int_equal(limit_show(f, "packets").left, left);
	assert_int_equal(limit_show(f, "packets").passed, 100 - left);
}

/* A session that cannot begin for another reason is not charged. */
static void test_sessions_undo(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct flow flow;
	struct frame out;
	limit_service(f, 0, "a", SESSIONS, 1, 4);
	flow_begin(f, &flow, 0, 4000);
	for (unsigned i = 0; i < FLOW_SERVERS; i++)
		put_server(&c, &f->service[0], &f->server[0][i], 8080, 1,
		           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN);
	flows_commit(f, &c);
	flow.client.sport = htons(4001);
	flows_frame(f, &flow.in[SESSION_CLIENT], &flow.client, SY_TCP_SYN, 1, 0);
	for (unsigned i = 0; i < 10; i++)
		assert_false(flows_through(f, HARNESS_WAN, &flow.in[SESSION_CLIENT], &out));
	assert_int_equal(limit_show(f, "a").left, 3);
	assert_int_equal(limit_show(f, "a").above, 0);
}

static uint8_t class_of(const uint8_t *frame)
{
	const struct sy_ipv4 *v4 = (const struct sy_ipv4 *)(frame + SY_ETH_LEN);
	const struct sy_ipv6 *v6 = (const struct sy_ipv6 *)(frame + SY_ETH_LEN);
	return v4->version_ihl >> 4 == 4 ? v4->tos : (uint8_t)(ntohl(v6->version_class_flow) >> 20);
}

/* Above the limit packets go on, with another DSCP and the same ECN bits. */
static void test_mark(void **state)
{
	struct flows *f = *state;
	for (unsigned s = 0; s < FLOW_SERVICES; s++) {
		struct changes c = {0};
		struct flow flow;
		struct frame out;
		struct sy_view v;
		flow_open(f, &flow, s, 4000);
		pb_limit *l = put_limit(&c, "a", PACKETS, 1, BURST);
		l->action = MARK;
		l->dscp = 10;
		flows_commit(f, &c);
		struct frame *in = &flow.in[SESSION_CLIENT];
		if (s < 2)
			in->bytes[SY_ETH_LEN + 1] = 0xb9; /* EF, ECT(1) */
		else
			in->bytes[SY_ETH_LEN] = 0x6b, in->bytes[SY_ETH_LEN + 1] |= 0x90;
		frame_fix_ip(in);
		for (unsigned i = 0; i < 20; i++) {
			assert_true(flows_through(f, HARNESS_WAN, in, &out));
			frame_check_translated(in, &out, &v);
			assert_int_equal(class_of(out.bytes), i < BURST ? 0xb9 : 10 << 2 | 1);
		}
		assert_int_equal(exceeded(f), 0);
		assert_int_equal(limit_show(f, "a").passed, BURST);
		assert_int_equal(limit_show(f, "a").above, 10);
		delete_limit(&c, "a");
		flows_commit(f, &c);
	}
}

static void class_put(struct flows *f, unsigned service, bool set, uint32_t dscp)
{
	Steelyard__Forwarder__V1__Mark mark = STEELYARD__FORWARDER__V1__MARK__INIT;
	struct changes c = {0};
	mark.dscp = dscp;
	put_service(&c, &f->service[service], "marked", FLOW_RR, NULL)->mark = set ? &mark : NULL;
	flows_commit(f, &c);
}

static uint8_t class_through(struct flows *f, struct flow *flow, enum session_direction from)
{
	struct frame out;
	struct sy_view v;
	struct frame *in = &flow->in[from];
	assert_true(flows_through(f, from == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN, in, &out));
	frame_check_translated(in, &out, &v);
	return class_of(out.bytes);
}

/* A service's class: of packets to servers, of sessions that were there before and of new ones, of
 * segments that change a session's state, too. Limits may give them another one. */
static void test_class(void **state)
{
	struct flows *f = *state;
	for (unsigned s = 0; s < FLOW_SERVICES; s++) {
		struct changes c = {0};
		struct flow before, after;
		flow_open(f, &before, s, 4000);
		assert_int_equal(class_through(f, &before, SESSION_CLIENT), 0);
		class_put(f, s, true, 46);
		assert_int_equal(class_through(f, &before, SESSION_CLIENT), 46 << 2);
		assert_int_equal(class_through(f, &before, SESSION_SERVER), 0);
		flow_begin(f, &after, s, 4001);
		assert_int_equal(class_of(after.out[SESSION_CLIENT].bytes), 46 << 2);
		flow_open(f, &after, s, 4002);
		assert_int_equal(class_of(after.out[SESSION_CLIENT].bytes), 46 << 2);
		pb_limit *l = put_limit(&c, "a", PACKETS, 1, 1);
		l->action = MARK;
		l->dscp = 10;
		flows_commit(f, &c);
		assert_int_equal(class_through(f, &before, SESSION_CLIENT), 46 << 2);
		assert_int_equal(class_through(f, &before, SESSION_CLIENT), 10 << 2);
		delete_limit(&c, "a");
		flows_commit(f, &c);
		assert_int_equal(class_through(f, &before, SESSION_CLIENT), 46 << 2);
		class_put(f, s, true, 0);
		assert_int_equal(class_through(f, &before, SESSION_CLIENT), 0);
		class_put(f, s, false, 0);
		assert_int_equal(class_through(f, &before, SESSION_CLIENT), 0);
		assert_int_equal(inspect_endpoint(f->harness.b, before.server_id)->limited, 0);
	}
	struct changes c = {0};
	Steelyard__Forwarder__V1__Mark mark = STEELYARD__FORWARDER__V1__MARK__INIT;
	mark.dscp = 64;
	put_service(&c, &f->service[0], "marked", FLOW_RR, NULL)->mark = &mark;
	flows_check_refused(f, &c, "service marked: DSCP 64 is above 63");
}

/* In virtual time: 30 s at 1 Mbit/s, offered twice as much in random packets. Not a packet more
 * or less than the rate allows. */
static void test_exact(void **state)
{
	enum { MS = 30000 };
	struct flows *f = *state;
	struct flow flow;
	struct rte_mbuf *m;
	uint64_t offered = 0, passed = 0;
	flow_open(f, &flow, 1, 4000);
	limit_service(f, 1, "a", BITS, 1000000, 20000);
	for (unsigned ms = 0; ms < MS; ms++) {
		unsigned payload = 20 + rng_below(&f->rng, 400);
		flows_frame(f, &flow.in[SESSION_CLIENT], &flow.client, 0, 0, payload);
		assert_true(harness_inject(&f->harness, HARNESS_WAN, flow.in[SESSION_CLIENT].bytes,
		                           flow.in[SESSION_CLIENT].len));
		offered += flow.in[SESSION_CLIENT].len - SY_ETH_LEN;
		harness_poll(&f->harness);
		while ((m = harness_collect(&f->harness, HARNESS_LAN))) {
			passed += m->pkt_len - SY_ETH_LEN;
			rte_pktmbuf_free(m);
		}
		harness_advance(&f->harness, MS_NS);
	}
	const uint64_t may = 20000 + UINT64_C(125) * MS;
	assert_true(offered > may + may / 2);
	assert_in_range(passed, may - 2000, may);
	assert_int_equal(limit_show(f, "a").passed_bytes, passed);
	assert_int_equal(limit_show(f, "a").above_bytes, offered - passed);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, limits_setup, flows_teardown)

/* By an event device. */
#define QUEUED(name)                                                                               \
	cmocka_unit_test_setup_teardown(name, limits_setup_queued, limits_teardown_queued)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_packets),
	        TEST(test_direction),
	        TEST(test_layers),
	        TEST(test_all_or_none),
	        TEST(test_server),
	        TEST(test_state),
	        TEST(test_undo),
	        TEST(test_sessions),
	        TEST(test_sessions_undo),
	        TEST(test_sessions_give_back),
	        TEST(test_mark),
	        TEST(test_class),
	        TEST(test_exact),
	        TEST(test_undo_ended),
	        TEST(test_sessions_again),
	        QUEUED(test_packets),
	        QUEUED(test_direction),
	        QUEUED(test_layers),
	        QUEUED(test_all_or_none),
	        QUEUED(test_server),
	        QUEUED(test_state),
	        QUEUED(test_undo),
	        QUEUED(test_sessions),
	        QUEUED(test_sessions_undo),
	        QUEUED(test_sessions_give_back),
	        QUEUED(test_mark),
	        QUEUED(test_exact),
	        QUEUED(test_undo_ended),
	        QUEUED(test_sessions_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
