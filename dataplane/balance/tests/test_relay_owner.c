// SPDX-License-Identifier: Apache-2.0
/* A node of an ECMP group: which node serves a session when nodes die, leave, restart and return.
 */
#include "defence.h"
#include "relay_fixture.h"
#include "sync_members.h"

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
		check_counts(f, 0, FLOWS);
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
	        TEST(sessions_of_a_dead_peer_continue_here),
	        TEST(sessions_of_a_peer_that_leaves_continue_at_once),
	        TEST(a_node_leaves_when_others_have_its_sessions),
	        TEST(the_sweep_takes_idle_sessions_over),
	        TEST(replicas_outlive_a_restart),
	        TEST(a_node_that_returns_has_its_sessions),
	        TEST(a_node_cedes_what_another_one_owns),
	        TEST(two_owners_of_a_client_do_not_alternate),
	        TEST(cookies_of_a_node_that_has_left_are_accepted),
	        TEST(there_is_no_role),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
