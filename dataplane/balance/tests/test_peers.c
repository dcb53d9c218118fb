// SPDX-License-Identifier: Apache-2.0
/* Sessions of one forwarder continue at another one, which has other ids and another number of
 * workers. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "pair_fixture.h"

static void test_sessions_continue_at_the_peer(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	for (unsigned round = 0; round < 4; round++) {
		struct mirror m = {.lossy = round % 2};
		pair_move(f, &m, flow, 1 + round % 2, 1 + round / 2);
		peers_set_role(f->harness.b, MASTER, true);
		pair_check(f, flow);
		mirror_free(&m);
	}
}

/* However long a session is idle at its owner: that one decides. Afterwards it has its whole
 * timeout. */
static void test_a_standby_does_not_expire_sessions(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	pair_move(f, &m, flow, 1, 1);
	mirror_run(&m, 2000 * 1000); /* longer than any timeout */
	flows_check_active(f, FLOWS);
	mirror_close(&m); /* the owner dies */
	peers_set_role(f->harness.b, MASTER, true);
	flows_advance(f, 2);
	pair_check(f, flow);
	flows_advance(f, 2000);
	flows_check_active(f, 0);
	mirror_free(&m);
}

static void test_an_end_is_replicated_silently(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {.lossy = true};
	struct sy_tcp segment;
	pair_move(f, &m, flow, 2, 2);
	mirror_end_all(&m);
	pair_settle(&m);
	flows_check_active(f, 0);
	/* resets are for the owner to send */
	assert_false(flows_originated_segment(f, HARNESS_WAN, &segment));
	assert_false(flows_originated_segment(f, HARNESS_LAN, &segment));
	mirror_free(&m);
}

static void test_an_expiry_is_replicated(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	pair_become(f, 1, 1, MASTER);
	mirror_open(&m, f, 2);
	pair_open(f, flow);
	pair_settle(&m);
	mirror_run(&m, 2000 * 1000);
	pair_settle(&m);
	assert_int_equal(mirror_count(&m), 0);
	mirror_free(&m);
}

static uint64_t refused(const struct flows *f, enum peers_refusal reason)
{
	uint64_t sum = 0;
	for (unsigned w = 0; w < f->harness.b->workers; w++)
		sum += f->harness.b->peers->worker[w].refused[reason];
	return sum;
}

/* A node that gets its configuration later asks for the sessions that it has refused. */
static void test_refused_sessions_come_after_the_configuration(void **state)
{
	static const unsigned order[FLOW_SERVICES] = {3, 2, 1, 0};
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	pair_move(f, &m, flow, 1, 1);
	mirror_close(&m);
	pair_begin(f, 2);
	pair_return(&m, f);
	pair_settle(&m);
	flows_check_active(f, 0);
	assert_true(refused(f, PEERS_REFUSED_SERVER) >= FLOWS);
	flows_configure(f, order);
	mirror_run(&m, 1000);
	pair_settle(&m);
	flows_check_active(f, FLOWS);
	peers_set_role(f->harness.b, MASTER, true);
	pair_check(f, flow);
	mirror_free(&m);
}

/* Both nodes were masters: the one that stays it serves what the other one has begun, and keeps its
 * own. */
static void test_a_master_serves_what_a_peer_offers(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	pair_move(f, &m, flow, 1, 1);
	mirror_close(&m);
	pair_become(f, 2, 1, MASTER);
	pair_return(&m, f);
	mirror_run(&m, 1000);
	flows_check_active(f, FLOWS);
	assert_int_equal(m.declined, FLOWS); /* offered back, as its own */
	mirror_end_all(&m);                  /* the former owner has no say any more */
	mirror_run(&m, 1000);
	pair_check(f, flow);
	mirror_free(&m);
}

/* Sessions that both nodes have for their own, and the harness is a backup. Returns how many puts
 * it has refused as such. */
static uint64_t open_at_both(struct flows *f, struct mirror *m, struct flow flow[FLOWS],
                             uint8_t node)
{
	pair_become(f, node, 1, MASTER);
	mirror_open(m, f, 3 - node);
	pair_open(f, flow);
	pair_settle(m);
	peers_set_role(f->harness.b, BACKUP, true);
	const uint64_t before = refused(f, PEERS_REFUSED_OWN);
	mirror_offer(m);
	mirror_run(m, 1000);
	return refused(f, PEERS_REFUSED_OWN) - before;
}

/* Of two backups, the one with the lower number keeps what both have. */
static void test_two_backups_keep_a_session_once(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	assert_true(open_at_both(f, &m, flow, 1) >= FLOWS);
	mirror_end_all(&m);
	mirror_run(&m, 1000);
	peers_set_role(f->harness.b, MASTER, true);
	pair_check(f, flow);
	mirror_free(&m);
}

/* Each node gives the session to the other one, as roles changed meanwhile: none ends. */
static void test_a_session_that_both_give_stays(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	assert_int_equal(open_at_both(f, &m, flow, 2), 0);
	mirror_give_all(&m);
	mirror_run(&m, 1000);
	assert_int_equal(m.declined, FLOWS); /* offered again */
	peers_set_role(f->harness.b, MASTER, true);
	pair_check(f, flow);
	mirror_free(&m);
}

/* A worker that forwards packets does not sleep, so no datagram wakes it: it reads the socket every
 * millisecond. */
static void test_a_busy_standby_answers_at_once(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	pair_move(f, &m, flow, 1, 1);
	for (unsigned i = 0; i < 20; i++) {
		mirror_run(&m, 11 + i); /* other moments of its own rounds */
		mirror_end_one(&m);
		unsigned ms = 0;
		while (!mirror_is_acknowledged(&m) && ms < 100) {
			mirror_run(&m, 1);
			ms++;
		}
		assert_in_range(ms, 1, 3);
	}
	flows_check_active(f, FLOWS - 20);
	mirror_free(&m);
}

/* Sessions of a removed server end later than its configuration: their ends have to be understood.
 */
static void test_a_removed_server_stops_no_log(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS];
	struct mirror m = {0};
	struct changes c = {0};
	uint32_t generation[SY_SLOTS];
	pair_become(f, 1, 1, MASTER);
	mirror_open(&m, f, 2);
	pair_open(f, flow);
	pair_settle(&m);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		generation[slot] = sync_node_log(f->harness.b->sync, slot)->generation;
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		delete_server(&c, &f->service[s], &f->server[s][0], s % 2 ? 5353 : 8080);
	flows_commit(f, &c);
	mirror_run(&m, 30 * 1000);
	pair_settle(&m);
	assert_int_equal(mirror_count(&m), FLOWS / 2);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		assert_int_equal(sync_node_log(f->harness.b->sync, slot)->generation,
		                 generation[slot]);
	mirror_free(&m);
}

/* `sync: { older_than: 3s }`: peers keep sessions of that age without any further packet, and no
 * shorter ones. */
static void test_peers_keep_sessions_of_an_age(void **state)
{
	struct flows *f = *state;
	struct flow flow[FLOWS], young;
	struct mirror m = {0};
	pair_become(f, 1, 1, MASTER);
	flows_sync_older_than(f, 3);
	mirror_open(&m, f, 2);
	pair_open(f, flow);
	mirror_run(&m, 1900);
	pair_settle(&m);
	assert_int_equal(mirror_count(&m), 0);
	mirror_run(&m, 5000);
	pair_settle(&m);
	assert_int_equal(mirror_count(&m), FLOWS);
	flow_open(f, &young, 0, 999);
	flow_open(f, &young, 1, 999);
	flow_check(f, &young);
	pair_settle(&m);
	assert_int_equal(mirror_count(&m), FLOWS);
	mirror_close(&m);
	mirror_open(&m, f, 2); /* its copies have the same sessions */
	pair_settle(&m);
	assert_int_equal(mirror_count(&m), FLOWS);
	mirror_free(&m);
}

static void test_age_excludes_other_settings(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	pb_service *service = put_service(&c, &f->service[0], "service", FLOW_RR, NULL);
	service->sync_older_than_s = 3;
	service->sync = STEELYARD__FORWARDER__V1__SYNC__SYNC_ALL;
	flows_check_refused(f, &c,
	                    "service service: sync: older_than excludes off, all and strict");
	c = (struct changes){0};
	service = put_service(&c, &f->service[0], "service", FLOW_RR, NULL);
	service->sync_older_than_s = 3601;
	flows_check_refused(f, &c, "service service: sync: older_than 3601 s is not within 1–3600");
}

/* ---- other modes ----------------------------------------------------------------------------- */

static const char *const host_text[2][2] = {{"10.3.0.1", "2001:db8:d::1"},
                                            {"10.3.0.2", "2001:db8:d::2"}};
static const char *const mode_vip[2][2] = {{"192.0.2.30", "2001:db8:a::30"},
                                           {"192.0.2.31", "2001:db8:a::31"}};
static const char *const pool_text[2] = {"192.0.2.50", "2001:db8:a::50"};
static const char *const inside_text[2] = {"10.3.0.0", "2001:db8:d::"};
static const char *const client_text[2] = {"198.18.0.1", "2001:db8:c::1"};

#define MODES      3
#define MODE_FLOWS (MODES * 2 * 2) /* by family, TCP and UDP */

static struct service_key mode_key(unsigned mode, unsigned v6, bool udp)
{
	return harness_key(mode_vip[mode][v6], udp ? 53 : 80, udp ? SY_PROTO_UDP : SY_PROTO_TCP);
}

static void modes_configure(struct flows *f, bool reverse)
{
	struct changes c = {0};
	for (unsigned i = 0; i < 8; i++) {
		unsigned n = reverse ? 7 - i : i, mode = n / 4, v6 = n / 2 % 2;
		struct service_key key = mode_key(mode, v6, n % 2);
		flows_put(&c, &key, "mode", mode ? MODE_DR : MODE_NAT, &host_text[mode][v6], 1,
		          n % 2 ? 53 : 80);
	}
	for (unsigned v6 = 0; v6 < 2; v6++)
		put_snat(&c, v6 ? "out6" : "out4", inside_text[v6], v6 ? 64 : 24, &pool_text[v6],
		         1);
	flows_commit(f, &c);
}

/* A packet of a session from its client. */
static struct sy_tuple mode_tuple(unsigned i)
{
	const unsigned mode = i / 4, v6 = i / 2 % 2, udp = i % 2;
	const struct sy_addr client = harness_addr(client_text[v6]);
	const uint32_t proto = udp ? SY_PROTO_UDP : SY_PROTO_TCP;
	if (mode == 2)
		return (struct sy_tuple){harness_addr(host_text[0][v6]), client,
		                         htons((uint16_t)(2000 + i)), htons(443), proto};
	const struct service_key key = mode_key(mode, v6, udp);
	return (struct sy_tuple){client, key.vip, htons((uint16_t)(2000 + i)), key.vport, proto};
}

static void mode_send(struct flows *f, unsigned i, uint8_t flags)
{
	struct frame in, out;
	const struct sy_tuple t = mode_tuple(i);
	flows_frame(f, &in, &t, flags, flags & SY_TCP_SYN ? 0 : 1, flags & SY_TCP_SYN ? 0 : 100);
	assert_true(flows_through(f, i / 4 == 2 ? HARNESS_LAN : HARNESS_WAN, &in, &out));
}

/* The server's packet, or the remote's; a one-way session has none. */
static void mode_answer(struct flows *f, unsigned i, uint8_t flags)
{
	struct frame in, out;
	const struct sy_tuple t = mode_tuple(i);
	const struct session *s = flows_find(f, &t);
	const unsigned slot = sy_slot_of(&t.src, t.sport);
	const struct endpoint *e = inspect_endpoint(f->harness.b, s->server);
	if (endpoint_is_one_way(e))
		return;
	const struct sy_tuple back = session_server_tuple(
	        f->harness.b, s, session_cold_beside(inspect_table(f->harness.b, (uint8_t)slot), s),
	        e);
	flows_frame(f, &in, &back, flags, 1, 0);
	assert_true(flows_through(f, i / 4 == 2 ? HARNESS_WAN : HARNESS_LAN, &in, &out));
}

static void modes_open(struct flows *f)
{
	for (unsigned i = 0; i < MODE_FLOWS; i++) {
		mode_send(f, i, SY_TCP_SYN);
		mode_answer(f, i, SY_TCP_SYN | SY_TCP_ACK);
		mode_send(f, i, SY_TCP_ACK);
	}
	flows_advance(f, 2);
	for (unsigned i = 0; i < MODE_FLOWS; i++)
		mode_send(f, i, SY_TCP_ACK);
	flows_advance(f, 1);
}

/* The record, and its pair record. */
static void mode_records(struct flows *f, unsigned i, struct session out[2])
{
	const struct sy_tuple t = mode_tuple(i);
	const struct session *s = flows_find(f, &t);
	assert_non_null(s);
	memcpy(out, s, 2 * sizeof(*s));
	if (out[1].state != SESSION_PAIR_RECORD)
		out[1] = (struct session){0};
	for (unsigned n = 0; n < 2; n++) { /* what each node has its own of */
		out[n].server = out[n].local = out[n].path = out[n].seen = 0;
		out[n].flags &= (uint8_t)~SESSION_WATCHED;
		if (n == 1)
			out[n].delta = 0; /* a check of the ids */
	}
}

static void test_sessions_of_all_modes_continue(void **state)
{
	struct flows *f = *state;
	struct session before[MODE_FLOWS][2], after[2];
	struct mirror m = {.lossy = true};
	pair_become(f, 1, 1, MASTER);
	modes_configure(f, false);
	mirror_open(&m, f, 2);
	modes_open(f);
	pair_settle(&m);
	assert_int_equal(mirror_count(&m), MODE_FLOWS);
	for (unsigned i = 0; i < MODE_FLOWS; i++)
		mode_records(f, i, before[i]);
	mirror_close(&m);

	pair_become(f, 2, 2, BACKUP);
	modes_configure(f, true);
	pair_return(&m, f);
	pair_settle(&m);
	for (unsigned i = 0; i < MODE_FLOWS; i++) {
		mode_records(f, i, after);
		assert_memory_equal(after, before[i], sizeof(after));
	}
	peers_set_role(f->harness.b, MASTER, true);
	for (unsigned i = 0; i < MODE_FLOWS; i++) {
		mode_send(f, i, SY_TCP_ACK);
		mode_answer(f, i, SY_TCP_ACK);
	}
	mirror_run(&m, 100);
	mirror_end_all(&m);
	mirror_run(&m, 1000);
	assert_int_equal(harness_totals(&f->harness).live, MODE_FLOWS);
	mirror_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_sessions_continue_at_the_peer, flows_setup,
	                                        pair_teardown),
	        cmocka_unit_test_setup_teardown(test_a_standby_does_not_expire_sessions,
	                                        flows_setup, pair_teardown),
	        cmocka_unit_test_setup_teardown(test_an_end_is_replicated_silently, flows_setup,
	                                        pair_teardown),
	        cmocka_unit_test_setup_teardown(test_a_busy_standby_answers_at_once, flows_setup,
	                                        pair_teardown),
	        cmocka_unit_test_setup_teardown(test_an_expiry_is_replicated, flows_setup,
	                                        pair_teardown),
	        cmocka_unit_test_setup_teardown(test_refused_sessions_come_after_the_configuration,
	                                        flows_setup, pair_teardown),
	        cmocka_unit_test_setup_teardown(test_a_master_serves_what_a_peer_offers,
	                                        flows_setup, pair_teardown),
	        cmocka_unit_test_setup_teardown(test_two_backups_keep_a_session_once, flows_setup,
	                                        pair_teardown),
	        cmocka_unit_test_setup_teardown(test_a_session_that_both_give_stays, flows_setup,
	                                        pair_teardown),
	        cmocka_unit_test_setup_teardown(test_a_removed_server_stops_no_log, flows_setup,
	                                        pair_teardown),
	        cmocka_unit_test_setup_teardown(test_peers_keep_sessions_of_an_age, flows_setup,
	                                        pair_teardown),
	        cmocka_unit_test_setup_teardown(test_age_excludes_other_settings, flows_setup,
	                                        pair_teardown),
	        cmocka_unit_test_setup_teardown(test_sessions_of_all_modes_continue, flows_setup,
	                                        pair_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
