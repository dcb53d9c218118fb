// SPDX-License-Identifier: Apache-2.0
/* A node of an ECMP group: packets whose session another node has. */
#include "fragment_fixture.h"
#include "relay_fixture.h"
#include "sync_members.h"

/* The mirror relays the packet; the harness forwards it as if it had arrived at a port. */
static void check_served(struct flows *f, struct mirror *m, const struct frame *in,
                         const struct frame *out, enum session_direction from)
{
	const struct sync_relay relay = {.visited = 1u << OTHER, .ingress = OTHER};
	const unsigned port = from == SESSION_CLIENT ? HARNESS_LAN : HARNESS_WAN;
	struct rte_mbuf *sent;
	mirror_relay(m, &relay, in);
	mirror_run(m, 2);
	harness_attend(&f->harness);
	sent = harness_collect(&f->harness, port);
	assert_non_null(sent);
	assert_int_equal(rte_pktmbuf_data_len(sent), out->len);
	assert_memory_equal(rte_pktmbuf_mtod(sent, void *), out->bytes, out->len);
	rte_pktmbuf_free(sent);
}

static void test_packets_of_a_peers_session_go_to_it(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned workers = 1; workers <= 2; workers++) {
		struct mirror m = {0};
		keep_sessions(f, &m, flow, workers);
		for (unsigned i = 0; i < FLOWS; i++) {
			check_relayed(f, &m, &flow[i].in[SESSION_CLIENT], SESSION_CLIENT);
			check_relayed(f, &m, &flow[i].in[SESSION_SERVER], SESSION_SERVER);
			assert_int_equal(flow_session(f, &flow[i])->state, SESSION_AWAY);
		}
		assert_int_equal(sync_node_relayed(f->harness.b->sync, OTHER).out, 2 * FLOWS);
		mirror_free(&m);
	}
}

/* A peer that relays a packet of a session that it owns has lost it. */
static void test_a_peer_without_its_session_gives_it_up(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	keep_sessions(f, &m, flow, 1);
	for (unsigned i = 0; i < FLOWS; i++) {
		check_served(f, &m, &flow[i].in[SESSION_CLIENT], &flow[i].out[SESSION_CLIENT],
		             SESSION_CLIENT);
		assert_int_equal(owner_of(f, &flow[i]), 0);
		check_served(f, &m, &flow[i].in[SESSION_SERVER], &flow[i].out[SESSION_SERVER],
		             SESSION_SERVER);
	}
	mirror_free(&m);
}

static void test_own_sessions_serve_relayed_packets(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned workers = 1; workers <= 2; workers++) {
		struct mirror m = {0};
		pair_become(f, SELF, workers, MASTER);
		mirror_open(&m, f, OTHER);
		mirror_run(&m, 500);
		for (unsigned i = 0; i < FLOWS; i++) {
			struct mirror *none = i % FLOW_SERVICES % 2 ? &m : NULL;
			if (none) /* UDP asks the first node, which has nothing */
				continue;
			flow_open(f, &flow[i], i % FLOW_SERVICES, (uint16_t)(1000 + i));
			for (unsigned from = 0; from < 2; from++)
				check_served(f, &m, &flow[i].in[from], &flow[i].out[from], from);
		}
		mirror_free(&m);
	}
}

/* A datagram without a session asks the slot's first node; it begins a session when it returns. */
static void test_a_datagram_asks_before_it_begins_a_session(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	struct frame in, out;
	struct rte_mbuf *sent;
	unsigned asked = 0, begun = 0;
	pair_become(f, SELF, 1, MASTER);
	mirror_open(&m, f, OTHER);
	mirror_run(&m, 500);
	for (unsigned i = 0; i < FLOWS; i++) {
		const struct service_key *key = &f->service[1 + 2 * (i % 2)];
		const struct sy_tuple t = {harness_addr(i % 2 ? "2001:db8:c::1" : "198.18.0.1"),
		                           key->vip, htons((uint16_t)(2000 + i)), key->vport,
		                           SY_PROTO_UDP};
		const uint8_t slot = sy_slot_of(&t.src, t.sport);
		flows_frame(f, &in, &t, 0, 0, 100);
		if (sync_node_first(f->harness.b->sync, slot, 0, f->harness.now_ns) == SELF) {
			/* a node has come lately: the second one may have been the first */
			check_relayed(f, &m, &in, SESSION_CLIENT);
			begun++;
		} else {
			check_relayed(f, &m, &in, SESSION_CLIENT);
			asked++;
		}
		assert_null(flows_find(f, &t));
		struct sync_relay back = m.relay;
		back.visited |= 1u << OTHER;
		back.is_back = 1;
		mirror_relay(&m, &back, &in);
		mirror_run(&m, 2);
		harness_attend(&f->harness);
		assert_non_null(flows_find(f, &t));
		for (unsigned port = 0; port < 2; port++)
			while ((sent = harness_collect(&f->harness, port)))
				rte_pktmbuf_free(sent);
		assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	}
	assert_true(asked > 0 && begun > 0);
	mirror_free(&m);
}

/* Sessions of one packet, and those that are not synchronised, are their node's alone. */
static void test_datagrams_that_no_other_node_knows_stay(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	pair_become(f, SELF, 1, MASTER);
	mirror_open(&m, f, OTHER);
	mirror_run(&m, 500);
	for (unsigned off = 0; off < 2; off++) {
		struct changes c = {0};
		const struct service_key *key = &f->service[1];
		Steelyard__Forwarder__V1__Service *s =
		        put_service(&c, key, "service", FLOW_RR, NULL);
		s->one_packet = !off;
		s->sync = off ? STEELYARD__FORWARDER__V1__SYNC__SYNC_OFF
		              : STEELYARD__FORWARDER__V1__SYNC__SYNC_ESTABLISHED;
		flows_commit(f, &c);
		for (unsigned i = 0; i < FLOWS; i++) {
			const struct sy_tuple t = {harness_addr("198.18.0.1"), key->vip,
			                           htons((uint16_t)(3000 + i)), key->vport,
			                           SY_PROTO_UDP};
			struct frame in, out;
			flows_frame(f, &in, &t, 0, 0, 100);
			assert_true(flows_through(f, HARNESS_WAN, &in, &out));
		}
		mirror_run(&m, 1);
		assert_int_equal(m.relays, 0);
	}
	mirror_free(&m);
}

/* A segment of no session comes back, and is dropped where it arrived. Only so many are asked
 * about: those of sessions, which do not come back, are not limited. */
static void test_segments_that_no_node_knows_are_bounded(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	struct frame in, out;
	pair_become(f, SELF, 1, MASTER);
	mirror_open(&m, f, OTHER);
	mirror_run(&m, 500);
	const struct sy_tuple t = {harness_addr("198.18.0.1"), f->service[0].vip, htons(4000),
	                           f->service[0].vport, SY_PROTO_TCP};
	flows_frame(f, &in, &t, SY_TCP_ACK, 1, 10);
	const struct sync_relay asks = {.visited = 1u << OTHER, .ingress = OTHER};
	mirror_relay(&m, &asks, &in);
	mirror_run(&m, 2);
	assert_true(m.relays == 1 && m.relay.is_back && m.relay.ingress == OTHER);
	for (unsigned i = 0; i < 10000; i++) {
		assert_false(flows_through(f, HARNESS_WAN, &in, &out));
		if (i % 1000 == 999)
			mirror_run(&m, 1);
	}
	assert_int_equal(m.relays, 1 + 10000);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SESSION), 0);
	struct sync_relay back = m.relay;
	back.visited |= 1u << OTHER;
	back.is_back = 1;
	for (unsigned i = 0; i < 6000; i++) {
		mirror_relay(&m, &back, &in);
		if (i % 1000 == 999)
			mirror_run(&m, 1);
	}
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SESSION), 6000);
	for (unsigned i = 0; i < 1000; i++)
		assert_false(flows_through(f, HARNESS_WAN, &in, &out));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_RELAY_RATE), 1000);
	mirror_run(&m, 1000);
	check_relayed(f, &m, &in, SESSION_CLIENT);
	mirror_free(&m);
}

/* A UDP session of this node: the mirror has no session for its first datagram. */
static void begin_session(struct flows *f, struct mirror *m, const struct sy_tuple *t)
{
	const struct sync_relay back = {
	        .visited = 1u << SELF | 1u << OTHER, .ingress = SELF, .is_back = 1};
	struct frame in;
	struct rte_mbuf *sent;
	flows_frame(f, &in, t, 0, 0, 100);
	mirror_relay(m, &back, &in);
	mirror_run(m, 2);
	harness_attend(&f->harness);
	sent = harness_collect(&f->harness, HARNESS_LAN);
	assert_non_null(sent);
	rte_pktmbuf_free(sent);
}

static void relay_pieces(struct mirror *m, const struct sync_relay *relay,
                         const struct frame *piece, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		mirror_relay(m, relay, &piece[i]);
	mirror_run(m, 2);
}

/* Half of a datagram's fragments arrive here, and the others at the mirror. Returns true if they
 * meet here. */
static bool check_divided(struct flows *f, struct mirror *m, const struct sy_tuple *t, uint32_t id)
{
	const struct sync_relay arrives = {0};
	const struct sync_relay found = {.visited = 1u << OTHER, .ingress = OTHER};
	struct frame piece[PIECES], out[MANY];
	struct sy_view v;
	const unsigned before = m->relays, half = PIECES / 2;
	cut(f, t, id, piece);
	assert_int_equal(sy_packet_parse(piece[0].bytes, piece[0].len, &v), SY_DROP_NONE);
	const uint8_t slot = sy_slot_of(&t->src, (uint16_t)v.fragment_id);
	const bool here = sync_node_first(f->harness.b->sync, slot, 0, f->harness.now_ns) == SELF;
	assert_int_equal(send_all(f, HARNESS_WAN, piece, half - 1, out), 0);
	assert_int_equal(m->relays, before);
	mirror_run(m, 5);
	assert_int_equal(send_all(f, HARNESS_WAN, piece + half - 1, 1, out), 0);
	mirror_run(m, 1);
	if (here) {
		assert_int_equal(m->relays, before);
		relay_pieces(m, &arrives, piece + half, PIECES - half);
	} else {
		assert_int_equal(m->relays, before + half);
		assert_memory_equal(&m->relay, &arrives, sizeof(arrives));
		relay_pieces(m, &found, piece, PIECES); /* it has looked for the session */
	}
	join(out, collect(f, HARNESS_LAN, out, MANY));
	return here;
}

static void test_fragments_meet_at_one_node(void **state)
{
	struct flows *f = *state;
	unsigned here[2] = {0};
	for (unsigned workers = 1; workers <= 2; workers++) {
		struct mirror m = {0};
		pair_become(f, SELF, workers, MASTER);
		mirror_open(&m, f, OTHER);
		mirror_run(&m, 500);
		for (unsigned i = 0; i < FLOWS; i++) {
			const struct service_key *key = &f->service[1 + 2 * (i % 2)];
			const struct sy_tuple t = {
			        harness_addr(i % 2 ? "2001:db8:c::1" : "198.18.0.1"), key->vip,
			        htons((uint16_t)(6000 + i)), key->vport, SY_PROTO_UDP};
			begin_session(f, &m, &t);
			here[check_divided(f, &m, &t, 500 + i)]++;
		}
		mirror_free(&m);
	}
	assert_true(here[0] > 0 && here[1] > 0);
}

/* Packet buffers keep what an earlier fragment was found to be. */
static void test_a_relayed_fragment_is_not_taken_for_an_earlier_one(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	struct frame piece[PIECES], out[MANY];
	const struct sync_relay arrives = {0};
	const struct service_key *key = &f->service[1];
	const struct sy_tuple t = {harness_addr("198.18.0.1"), key->vip, htons(6999), key->vport,
	                           SY_PROTO_UDP};
	pair_become(f, SELF, 1, MASTER);
	mirror_open(&m, f, OTHER);
	mirror_run(&m, 500);
	begin_session(f, &m, &t);
	for (unsigned id = 1; id <= 2 * SY_BURST; id++) {
		cut(f, &t, id, piece);
		join(out, send_all(f, HARNESS_WAN, piece, PIECES, out));
		cut(f, &t, 1000 + id, piece);
		relay_pieces(&m, &arrives, piece, PIECES - 1);
		assert_int_equal(collect(f, HARNESS_LAN, out, MANY), 0);
		relay_pieces(&m, &arrives, piece + PIECES - 1, 1);
		join(out, collect(f, HARNESS_LAN, out, MANY));
	}
	mirror_free(&m);
}

int main(void)
{
	pair_ecmp = SELF;
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, flows_setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(packets_of_a_peers_session_go_to_it),
	        TEST(a_peer_without_its_session_gives_it_up),
	        TEST(own_sessions_serve_relayed_packets),
	        TEST(a_datagram_asks_before_it_begins_a_session),
	        TEST(datagrams_that_no_other_node_knows_stay),
	        TEST(segments_that_no_node_knows_are_bounded),
	        TEST(fragments_meet_at_one_node),
	        TEST(a_relayed_fragment_is_not_taken_for_an_earlier_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
