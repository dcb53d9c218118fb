// SPDX-License-Identifier: Apache-2.0
/* Fast paths against the slow path: the same packet of the same session, plain and with a priority
 * tag. The tag is removed, and otherwise the two results must be equal: the frame, the session, and
 * the packet's position in its flow. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../runtime/adjacency.h"
#include "end.h"
#include "flows.h"
#include "segment_shortcut.h"

#define ROUNDS 4000

static const uint8_t segment_flags[] = {
        SY_TCP_ACK, SY_TCP_ACK | SY_TCP_FIN, SY_TCP_ACK | SY_TCP_SYN, SY_TCP_FIN, SY_TCP_SYN,
};

/* A record to be restored. */
struct kept {
	struct session hot;
	struct session_cold cold;
};

/* The result of a packet. */
struct outcome {
	bool through;
	struct frame out;
	struct kept after;
};

static uint32_t record_of(const struct flows *f, const struct session *s, uint8_t slot)
{
	return (uint32_t)(s - session_at(inspect_table(f->harness.b, slot), 0));
}

static struct kept kept_of(struct flows *f, struct session *s, uint8_t slot)
{
	return (struct kept){
	        *s, *session_cold_at(inspect_table(f->harness.b, slot), record_of(f, s, slot))};
}

static void kept_back(struct flows *f, struct session *s, uint8_t slot, const struct kept *k)
{
	*session_cold_at(inspect_table(f->harness.b, slot), record_of(f, s, slot)) = k->cold;
	*s = k->hot;
}

static void frame_tag(struct frame *f)
{
	static const uint8_t priority[4] = {0x81, 0x00, 0xe0, 0x00};
	memmove(f->bytes + 16, f->bytes + 12, f->len - 12u);
	memcpy(f->bytes + 12, priority, sizeof(priority));
	f->len = (uint16_t)(f->len + sizeof(priority));
}

static struct outcome outcome_of(struct flows *f, struct flow *flow, unsigned port,
                                 const struct frame *in)
{
	uint8_t slot = sy_slot_of(&flow->client.src, flow->client.sport);
	struct outcome o;
	memset(&o, 0, sizeof(o));
	o.through = flows_through(f, port, in, &o.out);
	struct session *s = flow_session(f, flow);
	assert_non_null(s);
	o.after = kept_of(f, s, slot);
	return o;
}

/* Sets a random state of a connection. */
static void session_throw(struct flows *f, struct session *s, struct session_cold *cold, bool tcp)
{
	s->flags = 0;
	s->state = (uint8_t)(SESSION_UDP_ONE_WAY + rng_below(&f->rng, 2));
	if (!tcp)
		return;
	s->state = (uint8_t)(SESSION_SYN_SENT + rng_below(&f->rng, 4));
	cold->fin_seq[SESSION_CLIENT] = rng_below(&f->rng, 4);
	cold->fin_seq[SESSION_SERVER] = rng_below(&f->rng, 4);
	cold->syn_seen = 0; /* as always before the handshake is complete: state_note_syn() */
	if (s->state < SESSION_ESTABLISHED)
		return;
	cold->syn_seen = rng_percent(&f->rng, 30);
	const uint8_t fins = (uint8_t)rng_below(&f->rng, 4);
	s->flags =
	        fins | (fins << 2 & rng_below(&f->rng, 16)) |
	        (fins & SESSION_SERVER_FIN && rng_percent(&f->rng, 50) ? SESSION_SERVER_FIRST : 0);
	s->state = tcp_state_of_fins(s);
}

static void check_one(struct flows *f, struct flow *flow, bool tcp)
{
	uint8_t slot = sy_slot_of(&flow->client.src, flow->client.sport);
	unsigned side = rng_below(&f->rng, 2);
	struct session *s = flow_session(f, flow);
	struct session_cold *cold =
	        session_cold_at(inspect_table(f->harness.b, slot), record_of(f, s, slot));
	session_throw(f, s, cold, tcp);
	struct segment segment = {
	        .flags = segment_flags[rng_below(&f->rng, SY_ARRAY_LEN(segment_flags))],
	        .seq = rng_below(&f->rng, 4),
	        .ack = rng_below(&f->rng, 4)};
	if (segment.flags == SY_TCP_SYN && s->state == SESSION_TIME_WAIT)
		segment.flags = SY_TCP_ACK;
	segment.mss = segment.flags & SY_TCP_SYN ? 1460 : 0;

	struct frame in;
	const struct sy_tuple *t = side == SESSION_CLIENT ? &flow->client : &flow->server;
	if (tcp)
		frame_tcp(&in, &f->rng, t, &segment, rng_below(&f->rng, 3));
	else
		frame_udp(&in, &f->rng, t, 20);
	if (rng_percent(&f->rng, 5))
		frame_unfinish(&in);

	struct endpoint *e = inspect_endpoint(f->harness.b, s->server);
	const bool lost = side == SESSION_CLIENT && (!tcp || s->state == SESSION_SYN_SENT);
	e->down = !lost && rng_percent(&f->rng, 30);
	const struct kept before = kept_of(f, s, slot);
	unsigned port = side == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN;
	const struct outcome plain = outcome_of(f, flow, port, &in);
	kept_back(f, s, slot, &before);
	frame_tag(&in);
	const struct outcome tagged = outcome_of(f, flow, port, &in);
	e->down = false;

	assert_int_equal(plain.through, tagged.through);
	assert_int_equal(plain.out.len, tagged.out.len);
	assert_memory_equal(plain.out.bytes, tagged.out.bytes, plain.out.len);
	assert_memory_equal(&plain.after.hot, &tagged.after.hot, sizeof(plain.after.hot));
	assert_memory_equal(&plain.after.cold, &tagged.after.cold, sizeof(plain.after.cold));
}

static void test_short_way_is_the_long_one(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOW_SERVICES];
	for (unsigned service = 0; service < FLOW_SERVICES; service++)
		flow_open(f, &flow[service], service, 40000);
	for (unsigned n = 0; n < ROUNDS; n++) {
		struct flow *one = &flow[n % FLOW_SERVICES];
		check_one(f, one, one->client.proto == SY_PROTO_TCP);
	}
}

/* A path that becomes stale during a burst has no MTU to clamp an MSS to. */
static void test_answer_by_a_stale_path(void **state)
{
	static const uint16_t mtus[][2] = {{0, 1500}, {1500, 0}, {0, 0}, {1500, 1500}};
	struct flows *f = *state;
	for (unsigned n = 0; n < SY_ARRAY_LEN(mtus); n++) {
		struct flow flow;
		struct frame in;
		struct sy_view v;
		flow_begin(f, &flow, 0, (uint16_t)(41000 + n));
		flows_frame(f, &in, &flow.server, SY_TCP_SYN | SY_TCP_ACK, 1, 0);
		const struct frame before = in;
		assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
		struct session *s = flow_session(f, &flow);
		bool answered = segment_answer(s, inspect_endpoint(f->harness.b, s->server),
		                               in.bytes, &v, mtus[n][0], mtus[n][1]);
		assert_int_equal(answered, mtus[n][0] && mtus[n][1]);
		assert_int_equal(s->state, answered ? SESSION_SYN_RECEIVED : SESSION_SYN_SENT);
		assert_memory_equal(before.bytes, in.bytes, in.len);
	}
}

#define BURST_FRAMES 5

/* The result of frames that arrive at once. */
struct burst_outcome {
	unsigned count;
	struct frame out[BURST_FRAMES];
	struct kept after;
};

static void burst_through(struct flows *f, struct flow *flow, unsigned port,
                          const struct frame in[BURST_FRAMES], struct burst_outcome *o)
{
	struct rte_mbuf *m;
	memset(o, 0, sizeof(*o));
	for (unsigned n = 0; n < BURST_FRAMES; n++)
		assert_true(harness_inject(&f->harness, port, in[n].bytes, in[n].len));
	harness_poll(&f->harness);
	while ((m = harness_collect(&f->harness, 1 - port))) {
		assert_true(o->count < BURST_FRAMES);
		struct frame *out = &o->out[o->count++];
		out->len = rte_pktmbuf_data_len(m);
		memcpy(out->bytes, rte_pktmbuf_mtod(m, void *), out->len);
		rte_pktmbuf_free(m);
	}
	struct session *s = flow_session(f, flow);
	assert_non_null(s);
	o->after = kept_of(f, s, sy_slot_of(&flow->client.src, flow->client.sport));
}

/* Packets of one session in one burst change its state in their order, whichever path each takes:
 * some tagged, compared with all tagged. */
static void check_burst(struct flows *f, struct flow *flow)
{
	static struct burst_outcome mixed, tagged;
	uint8_t slot = sy_slot_of(&flow->client.src, flow->client.sport);
	unsigned side = rng_below(&f->rng, 2);
	unsigned port = side == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN;
	struct session *s = flow_session(f, flow);
	struct frame in[BURST_FRAMES];
	session_throw(f, s,
	              session_cold_at(inspect_table(f->harness.b, slot), record_of(f, s, slot)),
	              true);
	for (unsigned n = 0; n < BURST_FRAMES; n++) {
		const struct segment segment = {
		        .flags = segment_flags[rng_below(&f->rng, 3)],
		        .seq = rng_below(&f->rng, 4),
		        .ack = rng_below(&f->rng, 4),
		};
		frame_tcp(&in[n], &f->rng, side == SESSION_CLIENT ? &flow->client : &flow->server,
		          &segment, 0);
	}
	bool is_tagged[BURST_FRAMES];
	for (unsigned n = 0; n < BURST_FRAMES; n++) {
		is_tagged[n] = rng_percent(&f->rng, 40);
		if (is_tagged[n])
			frame_tag(&in[n]);
	}
	const struct kept before = kept_of(f, s, slot);
	burst_through(f, flow, port, in, &mixed);
	kept_back(f, s, slot, &before);
	for (unsigned n = 0; n < BURST_FRAMES; n++)
		if (!is_tagged[n])
			frame_tag(&in[n]);
	burst_through(f, flow, port, in, &tagged);
	assert_memory_equal(&mixed, &tagged, sizeof(mixed));
}

static void test_bursts_keep_their_order(void **state)
{
	struct flows *f = *state;
	struct flow flow[2];
	for (unsigned n = 0; n < 2; n++)
		flow_open(f, &flow[n], 2 * n, 40000);
	for (unsigned n = 0; n < ROUNDS; n++)
		check_burst(f, &flow[n % 2]);
}

#define BEGIN_SERVICES 6

static struct service_key begin_key[BEGIN_SERVICES];

/* Services with one server each, so that every session gets the same one. */
static void begin_configure(struct flows *f)
{
	static const struct {
		const char *vip, *server;
		enum mode mode;
		uint8_t proto;
		Steelyard__Forwarder__V1__ClientAddress client_address;
	} service[BEGIN_SERVICES] = {
	        {"203.0.113.1", "10.0.0.90", MODE_FNAT, SY_PROTO_TCP, 0},
	        {"2001:db8:a::99", "2001:db8:b::99", MODE_FNAT, SY_PROTO_TCP, 0},
	        {"203.0.113.3", "10.0.0.92", MODE_NAT, SY_PROTO_TCP, 0},
	        {"203.0.113.4", "10.0.0.93", MODE_FNAT, SY_PROTO_TCP,
	         STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_TOA},
	        {"203.0.113.5", "10.0.0.94", MODE_FNAT, SY_PROTO_UDP, 0},
	        {"2001:db8:a::9a", "2001:db8:b::9a", MODE_FNAT, SY_PROTO_UDP, 0},
	};
	struct changes c = {0};
	for (unsigned n = 0; n < BEGIN_SERVICES; n++) {
		begin_key[n] = harness_key(service[n].vip, 80, service[n].proto);
		const struct sy_addr server = harness_addr(service[n].server);
		pb_service *put = put_service(&c, &begin_key[n], service[n].vip, FLOW_RR, NULL);
		set_mode(&c, service[n].mode);
		put->client_address = service[n].client_address;
		put_server(&c, &begin_key[n], &server, 8080, 1, FLOW_UP);
	}
	flows_commit(f, &c);
}

/* The result of a flow's first packet; afterwards the session is removed again. */
static struct outcome outcome_of_first(struct flows *f, const struct sy_tuple *t,
                                       const struct frame *in)
{
	struct sy_balance *b = f->harness.b;
	uint8_t slot = sy_slot_of(&t->src, t->sport);
	struct outcome o;
	struct rte_mbuf *m;
	memset(&o, 0, sizeof(o));
	assert_true(harness_inject(&f->harness, HARNESS_WAN, in->bytes, in->len));
	harness_poll(&f->harness);
	while ((m = harness_collect(&f->harness, HARNESS_WAN))) /* an error: it exceeded the MTU */
		rte_pktmbuf_free(m);
	while ((m = harness_collect(&f->harness, HARNESS_LAN))) {
		o.through = true;
		o.out.len = rte_pktmbuf_data_len(m);
		memcpy(o.out.bytes, rte_pktmbuf_mtod(m, void *), o.out.len);
		rte_pktmbuf_free(m);
	}
	struct session *s = flows_find(f, t);
	if (!s)
		return o;
	const struct endpoint *e = inspect_endpoint(b, s->server);
	o.after = kept_of(f, s, slot);
	assert_int_equal(inspect_server_active(b, s->server), 1);
	--*session_port_cursor(inspect_table(b, slot), session_port_cursor_of(&e->addr, e->port));
	session_end(&f->harness.rt->worker[0], inspect_table(b, slot), record_of(f, s, slot));
	return o;
}

static void test_first_short_way_is_the_long_one(void **state)
{
	static const unsigned payloads[] = {0, 0, 0, 3, 1300, 1330, 1340, 1350, 1360};
	struct flows *f = *state;
	unsigned through = 0;
	begin_configure(f);
	for (unsigned n = 0; n < ROUNDS; n++) {
		const struct service_key *key = &begin_key[n % BEGIN_SERVICES];
		const struct sy_tuple t = {
		        harness_addr(sy_addr_is_v4(&key->vip) ? "198.18.0.1" : "2001:db8:c::1"),
		        key->vip, htons((uint16_t)(1024 + rng_below(&f->rng, 60000))), key->vport,
		        key->proto};
		const struct segment segment = {.flags = SY_TCP_SYN,
		                                .seq = rng_below(&f->rng, 4),
		                                .mss = (uint16_t)(1400 + rng_below(&f->rng, 100))};
		unsigned payload = payloads[rng_below(&f->rng, SY_ARRAY_LEN(payloads))];
		struct frame in;
		if (key->proto == SY_PROTO_TCP)
			frame_tcp(&in, &f->rng, &t, &segment, payload);
		else
			frame_udp(&in, &f->rng, &t, payload);
		if (rng_percent(&f->rng, 5))
			frame_unfinish(&in);
		const struct outcome plain = outcome_of_first(f, &t, &in);
		frame_tag(&in);
		const struct outcome tagged = outcome_of_first(f, &t, &in);
		through += plain.through;
		assert_int_equal(plain.through, tagged.through);
		assert_int_equal(plain.out.len, tagged.out.len);
		assert_memory_equal(plain.out.bytes, tagged.out.bytes, plain.out.len);
		assert_memory_equal(&plain.after.hot, &tagged.after.hot, sizeof(plain.after.hot));
		assert_memory_equal(&plain.after.cold, &tagged.after.cold,
		                    sizeof(plain.after.cold));
	}
	assert_in_range(through, ROUNDS / 2, ROUNDS - 1);
}

#define ORDER_FLOWS  6
#define ORDER_FRAMES 300

/* Packets leave in the order in which they arrived, whichever path each took. */
static void check_order(struct flows *f, const struct flow *flow)
{
	uint32_t sent[ORDER_FLOWS] = {0}, seen[ORDER_FLOWS] = {0};
	struct rte_mbuf *m;
	for (unsigned n = 0; n < ORDER_FRAMES; n++) {
		unsigned k = rng_below(&f->rng, ORDER_FLOWS);
		struct frame in;
		flows_frame(f, &in, &flow[k].client, SY_TCP_ACK, ++sent[k], 20);
		if (rng_percent(&f->rng, 10))
			frame_tag(&in);
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
	}
	harness_poll(&f->harness);
	while ((m = harness_collect(&f->harness, HARNESS_LAN))) {
		struct sy_view v;
		const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
		assert_int_equal(sy_packet_parse(frame, rte_pktmbuf_data_len(m), &v), SY_DROP_NONE);
		unsigned k = 0;
		while (k < ORDER_FLOWS && (flow[k].server.src.d[1] != v.tuple.dst.d[1] ||
		                           flow[k].server.dport != v.tuple.sport ||
		                           flow[k].server.sport != v.tuple.dport))
			k++;
		assert_true(k < ORDER_FLOWS);
		assert_int_equal(ntohl(sy_packet_tcp(frame, &v)->seq), ++seen[k]);
		rte_pktmbuf_free(m);
	}
	assert_memory_equal(sent, seen, sizeof(sent));
}

static void test_flows_keep_their_order(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 5; n++) { /* with queues for all: remote-owned sessions too */
		static const unsigned workers[] = {1, 2, 3, 2, 3}, queues[] = {1, 1, 1, 2, 3};
		struct flow flow[ORDER_FLOWS];
		f->options.queues = queues[n];
		flows_reopen(f, workers[n], 0, false);
		for (unsigned k = 0; k < ORDER_FLOWS; k++)
			flow_open(f, &flow[k], k % 2 * 2, (uint16_t)(20000 + 100 * n + k));
		for (unsigned round = 0; round < 20; round++)
			check_order(f, flow);
	}
}

/* A server on link changes its MAC address: the very next packet uses the new one. */
static void test_neighbour_changes(void **state)
{
	struct flows *f = *state;
	const char *const server[] = {"10.3.0.1"};
	const struct sy_addr neighbour = harness_addr(server[0]);
	struct changes c = {0};
	struct flow flow;
	struct frame out;
	f->service[0] = harness_key("203.0.113.99", 80, SY_PROTO_TCP);
	flows_put(&c, &f->service[0], "on link", MODE_FNAT, server, 1, 80);
	flows_commit(f, &c);
	flow_open(f, &flow, 0, 4000);
	for (uint8_t n = 0; n < 20; n++) {
		const uint8_t mac[6] = {2, 0, 0, 0, 9, n};
		assert_true(adjacency_fix(f->harness.rt, HARNESS_LAN, &neighbour, mac));
		for (unsigned k = 0; k < 2; k++) {
			assert_true(flows_through(f, HARNESS_WAN, &flow.in[SESSION_CLIENT], &out));
			assert_memory_equal(out.bytes, mac, sizeof(mac));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_short_way_is_the_long_one, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_first_short_way_is_the_long_one, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_answer_by_a_stale_path, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_bursts_keep_their_order, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_flows_keep_their_order, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_neighbour_changes, flows_setup,
	                                        flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
