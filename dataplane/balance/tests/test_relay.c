// SPDX-License-Identifier: Apache-2.0
/* A node of an ECMP group: packets whose session another node has, and what happens when that node
 * dies. The harness is node 2; the mirror is node 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "away.h"
#include "defence.h"
#include "fragment_fixture.h"
#include "pair_fixture.h"
#include "sync_members.h"

#define SELF  2
#define OTHER 1

static uint8_t owner_of(const struct flows *f, const struct flow *flow)
{
	const struct sy_balance *b = f->harness.b;
	const struct session *s = flow_session((struct flows *)f, flow);
	const uint8_t slot = sy_slot_of(&flow->client.src, flow->client.sport);
	return *session_mark_at(b, slot, (uint32_t)(s - session_at(b->table[slot], 0))) &
	       SYNC_OWNER;
}

/* Only own sessions count for limits and schedulers; there are `live` in all. */
static void check_counts(struct flows *f, uint64_t own, uint64_t live)
{
	uint64_t sum = 0;
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		sum += flows_active(f, s, NULL);
	assert_int_equal(sum, own);
	assert_int_equal(harness_totals(&f->harness).live, live);
}

/* The mirror has FLOWS sessions, and the harness keeps them. */
static void keep_sessions(struct flows *f, struct mirror *m, struct flow flow[FLOWS],
                          unsigned workers)
{
	pair_move(f, m, flow, workers, workers);
	for (unsigned i = 0; i < FLOWS; i++) {
		struct session *s = flow_session(f, &flow[i]);
		assert_non_null(s);
		assert_int_equal(s->state, SESSION_AWAY);
		assert_int_equal(owner_of(f, &flow[i]), OTHER);
		flow[i].server_id = s->server;
	}
	check_counts(f, 0, FLOWS);
}

/* The harness gets this packet and relays it, unchanged. */
static void check_relayed(struct flows *f, struct mirror *m, const struct frame *in,
                          enum session_direction from)
{
	struct frame out;
	const unsigned before = m->relays;
	assert_false(
	        flows_through(f, from == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN, in, &out));
	mirror_run(m, 1);
	assert_int_equal(m->relays, before + 1);
	assert_int_equal(m->packet_len, in->len - SY_ETH_LEN);
	assert_memory_equal(m->packet, in->bytes + SY_ETH_LEN, m->packet_len);
	assert_int_equal(m->relay.ingress, SELF);
	assert_int_equal(m->relay.visited, 1u << SELF);
	assert_false(m->relay.is_back);
}

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

static void test_sessions_of_a_dead_peer_continue_here(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned workers = 1; workers <= 2; workers++) {
		struct mirror m = {0};
		keep_sessions(f, &m, flow, workers);
		mirror_close(&m);
		harness_advance(&f->harness, SYNC_ALIVE_NS + 1);
		for (unsigned i = 0; i < FLOWS; i++) {
			flow_check(f, &flow[i]);
			assert_int_equal(owner_of(f, &flow[i]), 0);
			assert_int_not_equal(flow_session(f, &flow[i])->state, SESSION_AWAY);
		}
		flows_check_active(f, FLOWS);
		mirror_free(&m);
	}
}

/* A node that stops says so: the others need not wait until it is silent. */
static void test_sessions_of_a_peer_that_leaves_continue_at_once(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	keep_sessions(f, &m, flow, 2);
	sync_node_leave(m.node, f->harness.now_ns);
	mirror_close(&m);
	harness_advance(&f->harness, 1000000);
	for (unsigned i = 0; i < FLOWS; i++)
		flow_check(f, &flow[i]);
	mirror_free(&m);
}

/* It waits until the others have its sessions, but not for ever. */
static void test_a_node_leaves_when_others_have_its_sessions(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned answers = 0; answers < 2; answers++) {
		struct mirror m = {0};
		bool left = false;
		unsigned steps = 0;
		pair_become(f, SELF, 2, MASTER);
		mirror_open(&m, f, OTHER);
		mirror_run(&m, 500);
		for (unsigned i = 0; i < FLOWS; i += 2) /* TCP */
			flow_open(f, &flow[i], i % FLOW_SERVICES, (uint16_t)(1000 + i));
		if (!answers)
			mirror_pause(&m, true);
		const uint64_t since = f->harness.now_ns;
		for (; !left; steps++) {
			left = peers_leave_step(f->harness.b, since, f->harness.now_ns);
			assert_true(steps < 1000);
			mirror_run_alone(&m);
		}
		assert_true(!answers || steps < 50);
		assert_int_equal(mirror_count(&m), answers ? FLOWS / 2 : 0);
		assert_true(sync_node_is_alive(m.node, SELF, f->harness.now_ns) == !answers);
		mirror_free(&m);
	}
}

/* Without any packet, the sweep takes them over; they keep their state, and expire in time. */
static void test_the_sweep_takes_idle_sessions_over(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	keep_sessions(f, &m, flow, 1);
	mirror_run(&m, 2000 * 1000); /* longer than any timeout: the owner lives */
	check_counts(f, 0, FLOWS);
	mirror_close(&m);
	flows_advance(f, 5);
	for (unsigned i = 0; i < FLOWS; i++)
		assert_int_equal(flow_session(f, &flow[i])->state,
		                 flow[i].client.proto == SY_PROTO_TCP ? SESSION_ESTABLISHED
		                                                      : SESSION_UDP_BOTH_WAYS);
	flows_advance(f, 2000);
	flows_check_active(f, 0);
	mirror_free(&m);
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

/* A segment of no session is passed on, within a rate, and dropped by the last node. */
static void test_unknown_segments_are_bounded(void **state)
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
	const struct sync_relay relay = {.visited = 1u << OTHER, .ingress = OTHER};
	const uint64_t before = harness_drops(&f->harness, SY_DROP_NO_SESSION);
	mirror_relay(&m, &relay, &in);
	mirror_run(&m, 2);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SESSION), before + 1);
	for (unsigned i = 0; i < 20000 && !harness_drops(&f->harness, SY_DROP_RELAY_RATE); i++) {
		assert_false(flows_through(f, HARNESS_WAN, &in, &out));
		if (i % 1000 == 999)
			mirror_run(&m, 1);
	}
	assert_true(harness_drops(&f->harness, SY_DROP_RELAY_RATE) > 0);
	mirror_run(&m, 1000);
	check_relayed(f, &m, &in, SESSION_CLIENT);
	mirror_free(&m);
}

/* After a restart it is unknown whose replicas they are: owners say so, and the rest is taken
 * over. */
static void test_replicas_outlive_a_restart(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned dead = 0; dead < 2; dead++) {
		struct mirror m = {0};
		keep_sessions(f, &m, flow, 1);
		mirror_close(&m);
		flows_reopen(f, 1, 0, true);
		check_counts(f, FLOWS, FLOWS); /* until it is known that others serve them */
		if (!dead) {
			mirror_open(&m, f, OTHER);
			mirror_offer(&m);
			pair_settle(&m);
			assert_int_equal(owner_of(f, &flow[0]), OTHER);
			check_relayed(f, &m, &flow[0].in[SESSION_CLIENT], SESSION_CLIENT);
			check_counts(f, 0, FLOWS);
		} else {
			flows_advance(f, 8);
			for (unsigned i = 0; i < FLOWS; i++)
				flow_check(f, &flow[i]);
			flows_check_active(f, FLOWS);
		}
		mirror_free(&m);
	}
}

/* A node that was silent but lives gets back what was taken over, unless packets have come since.
 */
static void test_a_node_that_returns_has_its_sessions(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	keep_sessions(f, &m, flow, 1);
	mirror_pause(&m, true);
	flows_advance(f, 30);
	for (unsigned i = 0; i < FLOWS; i++)
		assert_int_equal(owner_of(f, &flow[i]), 0);
	for (unsigned i = 0; i < FLOWS; i += 2)
		flow_check(f, &flow[i]);
	for (unsigned i = 0; i < SY_SLOTS * MIRROR_SLOT; i++)
		m.session[i].session.idle_s = 60;
	mirror_pause(&m, false);
	mirror_run(&m, 5000);
	for (unsigned i = 0; i < FLOWS; i++)
		assert_int_equal(owner_of(f, &flow[i]), i % 2 ? OTHER : 0);
	check_counts(f, FLOWS / 2, FLOWS);
	mirror_free(&m);
}

/* Two nodes serve a session, and the other one has used it later: it says so, and has it alone. */
static void test_a_node_cedes_what_another_one_owns(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	uint8_t entry[SYNC_ENTRY];
	keep_sessions(f, &m, flow, 1);
	mirror_pause(&m, true);
	flows_advance(f, 30);
	for (unsigned i = 0; i < FLOWS; i++)
		flow_check(f, &flow[i]);
	flows_advance(f, 10);
	for (unsigned i = 0; i < FLOWS; i++) {
		const uint8_t slot = sy_slot_of(&flow[i].client.src, flow[i].client.sport);
		struct sync_session s;
		assert_int_equal(owner_of(f, &flow[i]), 0);
		/* the put that the harness would send */
		const struct sync_source source = peers_source(f->harness.b->peers);
		const uint32_t record = (uint32_t)(flow_session(f, &flow[i]) -
		                                   session_at(f->harness.b->table[slot], 0));
		uint64_t hash;
		assert_true(source.describe(source.context, slot, record, false, entry, &hash));
		assert_true(sync_session_read(entry, &s));
		const struct sync_sink sink = peers_sink(f->harness.b->peers);
		s.idle_s = 30; /* this node has used it later */
		sync_session_write(&s, SYNC_PUT, flow[i].server.proto != 0, entry);
		sink.owned(sink.context, OTHER, slot, entry, false);
		assert_int_equal(owner_of(f, &flow[i]), 0);
		s.idle_s = 2;
		sync_session_write(&s, SYNC_PUT, flow[i].server.proto != 0, entry);
		sink.owned(sink.context, OTHER, slot, entry, false);
		assert_int_equal(owner_of(f, &flow[i]), OTHER);
		assert_int_equal(flow_session(f, &flow[i])->state, SESSION_AWAY);
	}
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

/* The put of another session of the same client, by the third node. */
static enum sync_result rival_put(struct flows *f, const struct flow *flow, uint16_t idle_s)
{
	const struct sy_balance *b = f->harness.b;
	const struct sync_sink sink = peers_sink(b->peers);
	const struct sync_source source = peers_source(b->peers);
	const uint8_t slot = sy_slot_of(&flow->client.src, flow->client.sport);
	struct session *s = flow_session(f, flow);
	const uint8_t state = s->state;
	struct sync_session in;
	uint8_t entry[SYNC_ENTRY];
	uint64_t hash;
	s->state = *away_state_at(b, slot, (uint32_t)(s - session_at(b->table[slot], 0)));
	assert_true(source.describe(source.context, slot,
	                            (uint32_t)(s - session_at(b->table[slot], 0)), false, entry,
	                            &hash));
	s->state = state;
	assert_true(sync_session_read(entry, &in));
	do /* another local port of the slot */
		in.hot[0].local_port = htons((uint16_t)(ntohs(in.hot[0].local_port) + 1));
	while (sy_slot_of(&b->local[s->local], in.hot[0].local_port) != slot);
	in.idle_s = idle_s;
	sync_session_write(&in, SYNC_PUT, true, entry);
	return sink.apply(sink.context, MIRROR_THIRD, slot, entry, &hash);
}

/* Two nodes have begun a session each for one client: the first one stays, or copies would end
 * them in turn for ever. */
static void test_two_owners_of_a_client_do_not_alternate(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	mirror_has_third = true;
	keep_sessions(f, &m, flow, 1);
	mirror_has_third = false;
	const struct sync_sink sink = peers_sink(f->harness.b->peers);
	const struct sync_source source = peers_source(f->harness.b->peers);
	uint8_t entry[SYNC_ENTRY];
	uint64_t hash;
	for (uint32_t r = 0;
	     (r = source.next(source.context, SYNC_DICTIONARY, r)) != SYNC_NO_RECORD; r++)
		if (source.describe(source.context, SYNC_DICTIONARY, r, false, entry, &hash))
			sink.apply(sink.context, MIRROR_THIRD, SYNC_DICTIONARY, entry, &hash);
	for (unsigned i = 0; i < FLOWS; i++) {
		assert_int_equal(rival_put(f, &flow[i], 0), SYNC_REFUSED);
		assert_int_equal(owner_of(f, &flow[i]), OTHER);
	}
	mirror_run(&m, 20000);
	for (unsigned i = 0; i < FLOWS; i++) { /* clearly later */
		assert_int_equal(rival_put(f, &flow[i], 0), SYNC_NEW);
		assert_int_equal(owner_of(f, &flow[i]), MIRROR_THIRD);
	}
	check_counts(f, 0, FLOWS);
	mirror_free(&m);
}

/* Routers then send its clients' ACKs here. */
static void test_cookies_of_a_node_that_has_left_are_accepted(void **state)
{
	struct flows *f = *state;
	struct mirror m = {0};
	pair_become(f, SELF, 1, MASTER);
	mirror_open(&m, f, OTHER);
	for (unsigned s = 0; s < 300; s++) {
		harness_attend(&f->harness);
		mirror_run(&m, 1000);
	}
	const struct sy_worker *w = sy_worker_at(f->harness.rt, 0);
	const struct sy_tuple t = {
	        .dst = f->service[0].vip, .dport = f->service[0].vport, .proto = SY_PROTO_TCP};
	struct changes c = {0};
	put_service(&c, &f->service[0], "service", FLOW_RR, NULL)->syn_defence =
	        STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_AUTO;
	flows_commit(f, &c);
	const struct service *service = directory_find(f->harness.b, &t);
	assert_false(defence_has_outstanding_cookies(w, service));
	mirror_close(&m);
	flows_advance(f, 2);
	assert_true(defence_has_outstanding_cookies(w, service));
	mirror_free(&m);
}

static void test_there_is_no_role(void **state)
{
	struct flows *f = *state;
	pair_become(f, SELF, 1, MASTER);
	assert_false(peers_is_standby(f->harness.b));
}

int main(void)
{
	pair_ecmp = SELF;
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, flows_setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(packets_of_a_peers_session_go_to_it),
	        TEST(sessions_of_a_dead_peer_continue_here),
	        TEST(sessions_of_a_peer_that_leaves_continue_at_once),
	        TEST(a_node_leaves_when_others_have_its_sessions),
	        TEST(the_sweep_takes_idle_sessions_over),
	        TEST(a_peer_without_its_session_gives_it_up),
	        TEST(own_sessions_serve_relayed_packets),
	        TEST(a_datagram_asks_before_it_begins_a_session),
	        TEST(datagrams_that_no_other_node_knows_stay),
	        TEST(unknown_segments_are_bounded),
	        TEST(replicas_outlive_a_restart),
	        TEST(a_node_that_returns_has_its_sessions),
	        TEST(a_node_cedes_what_another_one_owns),
	        TEST(fragments_meet_at_one_node),
	        TEST(a_relayed_fragment_is_not_taken_for_an_earlier_one),
	        TEST(two_owners_of_a_client_do_not_alternate),
	        TEST(cookies_of_a_node_that_has_left_are_accepted),
	        TEST(there_is_no_role),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
