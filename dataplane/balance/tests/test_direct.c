// SPDX-License-Identifier: Apache-2.0
/* Direct routing: packets keep everything but MACs and TTL, and no answers pass the balancer. */
#include "direct_fixture.h"
#include "end.h"

#define TICKET 0x1234

static const char *const routed_text[2] = {"10.0.0.77", "2001:db8:b::77"};

#define CONNECTIONS_EACH 8 /* per service; all but the first with two workers */

static void test_a_connection(void **state)
{
	struct flows *f = *state;
	for (unsigned cycle = 0; cycle < CONNECTIONS_EACH * SERVICES; cycle++) {
		struct sy_tuple t = client_of(cycle % SERVICES, (uint16_t)(1000 + cycle));
		if (cycle == SERVICES) { /* each worker with its own queues: see remote.c */
			f->options.queues = 2;
			flows_reopen(f, 2, 0, true);
		}
		unsigned server = pass(f, &t, SY_TCP_SYN, 0);
		struct session *s = flows_find(f, &t);
		assert_int_equal(s->local, LOCAL_NONE);
		assert_int_equal(s->local_port, 0);
		if (t.proto == SY_PROTO_UDP) {
			assert_int_equal(pass(f, &t, 0, 100), server);
			assert_int_equal(s->state, SESSION_UDP_ONE_WAY);
			continue;
		}
		assert_int_equal(s->state, SESSION_SYN_SENT);
		assert_int_equal(pass(f, &t, SY_TCP_ACK, 0), server);
		assert_int_equal(s->state, SESSION_ESTABLISHED);
		for (unsigned n = 0; n < 20; n++)
			assert_int_equal(pass(f, &t, SY_TCP_ACK | SY_TCP_PSH, 60 * n), server);
		assert_int_equal(pass(f, &t, SY_TCP_RST, 0), server);
		assert_int_equal(s->state, SESSION_RESET_BY_CLIENT);
		assert_int_equal(pass(f, &t, SY_TCP_ACK, 0), server);
		assert_int_equal(s->state, SESSION_ESTABLISHED);
		assert_int_equal(pass_at(f, &t, SY_TCP_ACK | SY_TCP_FIN, 0, 1 << 20),
		                 server); /* forged */
		assert_int_equal(s->state, SESSION_FIN_WAIT);
		assert_int_equal(pass(f, &t, SY_TCP_ACK, 0), server);
		assert_int_equal(s->state, SESSION_ESTABLISHED);
		assert_int_equal(pass(f, &t, SY_TCP_ACK | SY_TCP_FIN, 0), server);
		assert_int_equal(pass_at(f, &t, SY_TCP_ACK, 0, 2), server);
		assert_int_equal(s->state, SESSION_FIN_WAIT);
		/* a new connection with the old tuple, or none: only the server knows */
		assert_int_equal(pass(f, &t, SY_TCP_SYN, 0), server);
		assert_int_equal(flows_find(f, &t)->state, SESSION_SYN_SENT);
	}
	assert_int_equal(harness_totals(&f->harness).live, CONNECTIONS_EACH * SERVICES);
	/* With this many connections, some are created at the worker that does not own their
	 * slot. */
	assert_int_not_equal(f->harness.rt->worker[0].counters.remote +
	                             f->harness.rt->worker[1].counters.remote,
	                     0);
}

static void test_timeouts(void **state)
{
	struct flows *f = *state;
	struct sy_tuple syn = client_of(0, 1000), done = client_of(2, 1001),
	                udp = client_of(1, 1002);
	pass(f, &syn, SY_TCP_SYN, 0);
	pass(f, &udp, 0, 0);
	pass(f, &done, SY_TCP_SYN, 0);
	pass(f, &done, SY_TCP_ACK | SY_TCP_FIN, 0);
	flows_advance(f, 12); /* 10 s */
	assert_null(flows_find(f, &syn));
	flows_advance(f, 20); /* 30 s */
	assert_null(flows_find(f, &udp));
	assert_non_null(flows_find(f, &done));
	flows_advance(f, 205); /* 237 s: the server still answers */
	pass_at(f, &done, SY_TCP_ACK, 0, 2);
	flows_advance(f, 237);
	pass_at(f, &done, SY_TCP_ACK, 0, 2);
	flows_advance(f, 242); /* 240 s */
	assert_null(flows_find(f, &done));
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

/* An attacker sends segments with wrong numbers in an idle client's name: the connection keeps its
 * timeout. */
static void test_forged_ends(void **state)
{
	static const struct {
		uint8_t flags[2];
		uint32_t seq;
	} forged[] = {
	        {{SY_TCP_ACK | SY_TCP_FIN}, 1 << 20},
	        {{SY_TCP_ACK | SY_TCP_FIN, SY_TCP_ACK}, 1 << 20},
	        {{SY_TCP_ACK | SY_TCP_FIN, SY_TCP_SYN}, 1 << 20},
	        {{SY_TCP_ACK | SY_TCP_FIN, SY_TCP_RST}, 1 << 20},
	        {{SY_TCP_ACK | SY_TCP_FIN}, 0xffff0000u},
	        {{SY_TCP_RST}, 1 << 20},
	        {{SY_TCP_RST, SY_TCP_ACK | SY_TCP_FIN}, 1 << 20},
	        {{SY_TCP_SYN}, 1 << 20},
	        {{SY_TCP_SYN, SY_TCP_ACK | SY_TCP_FIN}, 1 << 20},
	};
	struct flows *f = *state;
	for (unsigned i = 0; i < SY_ARRAY_LEN(forged); i++) {
		for (unsigned service = 0; service < SERVICES; service++) {
			const struct sy_tuple t = client_of(service, (uint16_t)(1000 + i));
			if (t.proto == SY_PROTO_UDP)
				continue;
			unsigned server = pass_at(f, &t, SY_TCP_SYN, 0, 100);
			pass_at(f, &t, SY_TCP_ACK, 500, 101);
			for (unsigned k = 0; k < 2 && forged[i].flags[k]; k++)
				pass_at(f, &t, forged[i].flags[k], 0, forged[i].seq + k);
			for (unsigned ask = 0; ask < 14; ask++)
				flows_advance(f, 60);
			if (!flows_find(f, &t))
				fail_msg("case %u: a forged end ended a connection", i);
			assert_int_equal(pass_at(f, &t, SY_TCP_ACK, 10, 601), server);
			assert_int_equal(flows_find(f, &t)->state, SESSION_ESTABLISHED);
		}
	}
}

/* A client that has sent so much that its FIN's number is not credible is treated as idle. */
static void test_far_ends(void **state)
{
	struct flows *f = *state;
	const struct sy_tuple near = client_of(0, 1000), far = client_of(0, 1001);
	pass_at(f, &near, SY_TCP_SYN, 0, 100);
	pass_at(f, &near, SY_TCP_ACK | SY_TCP_FIN, 0, 100 + 65534);
	pass_at(f, &far, SY_TCP_SYN, 0, 100);
	pass_at(f, &far, SY_TCP_ACK | SY_TCP_FIN, 0, 100 + 65537);
	flows_advance(f, 243);
	assert_null(flows_find(f, &near));
	assert_int_equal(flows_find(f, &far)->state, SESSION_FIN_WAIT);
	flows_advance(f, 660);
	assert_null(flows_find(f, &far));
}

/* A crash, a stop and a hand-over, with one worker and two, beside FNAT sessions. */
static void test_restart(void **state)
{
	enum { CONNECTIONS = 40 };
	struct flows *f = *state;
	struct flow fnat[FLOW_SERVICES];
	unsigned server[CONNECTIONS];
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		struct sy_tuple t = client_of(i % SERVICES, (uint16_t)(2000 + i));
		server[i] = pass(f, &t, SY_TCP_SYN, 0);
		pass(f, &t, SY_TCP_ACK, 10);
	}
	for (unsigned i = 0; i < FLOW_SERVICES; i++)
		flow_open(f, &fnat[i], i, (uint16_t)(1000 + i));
	for (unsigned cycle = 0; cycle < 6; cycle++) {
		flows_advance(f, 2);
		flows_reopen(f, 1 + cycle % 2, cycle % 3 == 2 ? TICKET : 0, cycle % 3 == 0);
		assert_int_equal(flows_result(f, SESSION_KEPT), CONNECTIONS + FLOW_SERVICES);
		for (unsigned i = 0; i < CONNECTIONS; i++) {
			struct sy_tuple t = client_of(i % SERVICES, (uint16_t)(2000 + i));
			assert_int_equal(pass(f, &t, SY_TCP_ACK, 10), server[i]);
		}
		for (unsigned i = 0; i < FLOW_SERVICES; i++)
			flow_check(f, &fnat[i]);
	}
	flows_advance(f, 1000);
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

/* The service's mode changed in the meantime: its old sessions are gone, whatever their ids say. */
static void test_mode_changed_while_away(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = key_of(0);
	struct sy_addr server = harness_addr(server_text[0][0]);
	struct sy_tuple t = client_of(0, 1000), other = client_of(2, 1001);
	pass(f, &t, SY_TCP_SYN, 0);
	pass(f, &other, SY_TCP_SYN, 0);
	harness_crash(&f->harness);
	delete_service(&c, &key);
	put_service(&c, &key, "direct no more", FLOW_RR, NULL);
	put_server(&c, &key, &server, 80, 1, FLOW_UP);
	flows_change_saved(f, &c);
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_KEPT), 1);
	assert_int_equal(flows_result(f, SESSION_SERVER_GONE), 1);
	assert_null(flows_find(f, &t));
	pass(f, &other, SY_TCP_ACK, 0);
}

static void test_refusals(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = key_of(0);
	struct sy_addr server = harness_addr("10.3.0.3");
	put_server(&c, &key, &server, 8080, 1, FLOW_UP);
	flows_check_refused(f, &c, "DR changes no ports");
	put_service(&c, &key, "direct", FLOW_RR, NULL);
	flows_check_refused(f, &c, "its mode cannot change while it has servers");
	put_service(&c, &key, "direct", FLOW_RR, NULL);
	set_mode(&c, 77);
	flows_check_refused(f, &c, "unknown mode 77");
	server = harness_addr("2001:db8:d::3");
	put_server(&c, &key, &server, 80, 1, FLOW_UP);
	flows_check_refused(f, &c, "same address family");
	for (unsigned v6 = 0; v6 < 2; v6++) {
		key = key_of(2 * v6);
		server = harness_addr(routed_text[v6]);
		/* from here on it comes as a request, not from the saved configuration */
		inspect_set_served(f->harness.b, true);
		put_server(&c, &key, &server, 80, 1, FLOW_UP);
		flows_check_refused(f, &c, "on no network that this host is connected to");
		inspect_set_served(f->harness.b, false);
	}
}

/* Marks are part of the configuration. No port here belongs to the kernel, so marks have no path,
 * and the report says so. */
static void test_check_marks(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = key_of(0), fnat = harness_key("192.0.2.30", 80, SY_PROTO_TCP);
	struct sy_addr server = harness_addr(server_text[0][0]);
	size_t before, after;

	put_server(&c, &key, &server, 80, 1, FLOW_UP)->check_mark = 0x52ffffff;
	flows_check_refused(f, &c, "check mark 0x52ffffff is not within 0x53000001");
	put_service(&c, &fnat, "fnat", FLOW_RR, NULL);
	put_server(&c, &fnat, &server, 80, 1, FLOW_UP)->check_mark = SY_CHECK_MARK_FIRST;
	flows_check_refused(f, &c, "a check mark is for servers of DR and IPIP");
	assert_null(sy_check_refusal(f->harness.rt));
	free(harness_config(&f->harness, &before));
	put_server(&c, &key, &server, 80, 1, FLOW_UP)->check_mark = SY_CHECK_MARK_LAST;
	flows_commit(f, &c);
	assert_false(sy_check_works(f->harness.rt));
	assert_non_null(strstr(sy_check_refusal(f->harness.rt), "a port is no interface"));
	free(harness_config(&f->harness, &after));
	assert_int_equal(after, before + 6); /* tag, and five bytes of a varint */
	put_server(&c, &key, &server, 80, 1, FLOW_UP);
	flows_commit(f, &c);
	free(harness_config(&f->harness, &after));
	assert_int_equal(after, before);
}

/* FNAT needs local addresses, DR does not. */
static void test_without_local_addresses(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct sy_tuple t = client_of(0, 1000);
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		delete_service(&c, &f->service[s]);
	for (unsigned i = 0; i < 2; i++)
		delete_local(&c, &f->local[i]);
	flows_commit(f, &c);
	unsigned chosen = pass(f, &t, SY_TCP_SYN, 0);
	struct service_key key = key_of(0);
	delete_service(&c, &key);
	struct sy_addr server = harness_addr(server_text[0][0]);
	put_service(&c, &key, "fnat", FLOW_RR, NULL);
	put_server(&c, &key, &server, 80, 1, FLOW_UP);
	flows_check_refused(f, &c, "no IPv4 local address");
	assert_int_equal(pass(f, &t, SY_TCP_ACK, 0), chosen);
}

/* The same server behind a router: the router would send the VIP's packets back. */
static void test_off_link(void **state)
{
	struct flows *f = *state;
	struct frame in, out;
	for (unsigned s = 0; s < SERVICES; s++) {
		struct changes c = {0};
		struct service_key key = key_of(s);
		delete_service(&c, &key);
		put_direct(&c, s, routed_text[s / 2]);
		flows_commit(f, &c);
		struct sy_tuple t = client_of(s, 1000);
		flows_frame(f, &in, &t, SY_TCP_SYN, 1, 0);
		assert_false(flows_through(f, HARNESS_WAN, &in, &out));
		assert_int_equal(harness_drops(&f->harness, SY_DROP_NOT_ON_LINK), s + 1);
	}
}

static void test_too_big(void **state)
{
	struct flows *f = *state;
	struct frame in;
	for (unsigned s = 0; s < SERVICES; s++) {
		struct sy_tuple t = client_of(s, 1000);
		flows_frame(f, &in, &t, SY_TCP_SYN, 1, HARNESS_LAN_MTU);
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
		harness_poll(&f->harness);
		assert_null(harness_collect(&f->harness, HARNESS_LAN));
		struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_WAN);
		struct sy_view v;
		assert_non_null(m);
		assert_int_equal(sy_packet_parse(rte_pktmbuf_mtod(m, uint8_t *), m->data_len, &v),
		                 SY_DROP_NONE);
		assert_int_equal(v.icmp_type, v.v4 ? 3 : 2);
		rte_pktmbuf_free(m);
		assert_int_equal(harness_drops(&f->harness, SY_DROP_TOO_BIG), s + 1);
	}
}

/* A SYN after a FIN goes to another server if its own takes no new sessions. */
static void test_syn_after_fin(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = key_of(0);
	struct sy_tuple t = client_of(0, 1000);
	unsigned server = pass(f, &t, SY_TCP_SYN, 0);
	pass(f, &t, SY_TCP_ACK | SY_TCP_FIN, 0);
	struct sy_addr addr = harness_addr(server_text[0][server - 1]);
	put_server(&c, &key, &addr, 80, 1,
	           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DRAIN);
	flows_commit(f, &c);
	assert_int_equal(pass(f, &t, SY_TCP_SYN, 0), 3 - server);
}

/* Removing a server ends its sessions; a server that is down loses the sessions that can move. */
static void test_servers_that_go(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = key_of(1);
	struct sy_tuple t = client_of(1, 1000);
	unsigned server = pass(f, &t, 0, 0);
	struct sy_addr addr = harness_addr(server_text[0][server - 1]);
	put_server(&c, &key, &addr, 53, 1,
	           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN);
	flows_commit(f, &c);
	assert_int_equal(pass(f, &t, 0, 0), 3 - server);
	put_server(&c, &key, &addr, 53, 1, FLOW_UP);
	addr = harness_addr(server_text[0][2 - server]);
	delete_server(&c, &key, &addr, 53);
	flows_commit(f, &c);
	assert_int_equal(pass(f, &t, 0, 0), server);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(a_connection),    TEST(timeouts),
	        TEST(restart),         TEST(mode_changed_while_away),
	        TEST(refusals),        TEST(without_local_addresses),
	        TEST(off_link),        TEST(too_big),
	        TEST(servers_that_go), TEST(check_marks),
	        TEST(syn_after_fin),   TEST(forged_ends),
	        TEST(far_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
