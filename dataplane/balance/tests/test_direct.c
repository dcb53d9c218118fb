// SPDX-License-Identifier: Apache-2.0
/* Direct routing: packets keep everything but MACs and TTL, and no answers pass the balancer. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "end.h"
#include "flows.h"

#define SERVICES 4 /* as in flows.h: TCP and UDP over IPv4, then over IPv6 */
#define TICKET   0x1234

static const char *const client_text[2] = {"198.18.0.1", "2001:db8:c::1"};
static const char *const vip_text[2] = {"192.0.2.20", "2001:db8:a::20"};
static const char *const server_text[2][2] = {{"10.3.0.1", "10.3.0.2"},
                                              {"2001:db8:d::1", "2001:db8:d::2"}};
static const char *const routed_text[2] = {"10.0.0.77", "2001:db8:b::77"};

static struct service_key key_of(unsigned service)
{
	const char *vip = vip_text[service / 2];
	return service % 2 ? harness_key(vip, 53, SY_PROTO_UDP)
	                   : harness_key(vip, 80, SY_PROTO_TCP);
}

static void put_direct(struct changes *c, unsigned service, const char *server)
{
	struct service_key key = key_of(service);
	flows_put(c, &key, "direct", MODE_DR, &server, 1, ntohs(key.vport));
}

static int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	for (unsigned s = 0; s < SERVICES; s++)
		for (unsigned i = 0; i < 2; i++)
			put_direct(&c, s, server_text[s / 2][i]);
	flows_commit(*state, &c);
	return rc;
}

static struct sy_tuple client_of(unsigned service, uint16_t port)
{
	const struct service_key key = key_of(service);
	return (struct sy_tuple){harness_addr(client_text[service / 2]), key.vip, htons(port),
	                         key.vport, key.proto};
}

/* Sends a frame and checks the frame that leaves, byte by byte; returns the server that it goes
 * to. */
static unsigned pass_at(struct flows *f, const struct sy_tuple *t, uint8_t flags, unsigned payload,
                        uint32_t seq)
{
	struct frame in, out, want;
	struct sy_view v;
	flows_frame(f, &in, t, flags, seq, payload);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	want = in;
	assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
	frame_set_ttl(&want, (uint8_t)(sy_packet_ttl(in.bytes, &v) - 1));
	/* the fixture's neighbours 4 to 7: host 1 of each family, then host 2 of each */
	memcpy(want.bytes, (uint8_t[6]){2, 0, 0, 0, 1, out.bytes[5]}, 6);
	memcpy(want.bytes + 6, harness_mac[HARNESS_LAN], 6);
	assert_int_equal(out.len, want.len);
	assert_memory_equal(out.bytes, want.bytes, want.len);
	assert_int_equal(out.bytes[5] % 2, !sy_addr_is_v4(&t->src));
	struct session *s = flows_find(f, t);
	assert_non_null(s);
	const struct sy_addr *server = &inspect_endpoint(f->harness.b, s->server)->addr;
	assert_int_equal(server->b[15], out.bytes[5] / 2 - 1);
	return server->b[15];
}

static unsigned pass(struct flows *f, const struct sy_tuple *t, uint8_t flags, unsigned payload)
{
	return pass_at(f, t, flags, payload, 1);
}

#define CONNECTIONS_EACH 8 /* per service; all but the first with two workers */

static void test_a_connection(void **state)
{
	struct flows *f = *state;
	for (unsigned life = 0; life < CONNECTIONS_EACH * SERVICES; life++) {
		struct sy_tuple t = client_of(life % SERVICES, (uint16_t)(1000 + life));
		if (life == SERVICES) { /* each worker with its own queues: see remote.c */
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
	flows_advance(f, 30); /* 60 s */
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

/* A client that has sent so much that its FIN's number says nothing is treated as idle. */
static void test_far_ends(void **state)
{
	struct flows *f = *state;
	const struct sy_tuple near = client_of(0, 1000), far = client_of(0, 1001);
	pass_at(f, &near, SY_TCP_SYN, 0, 100);
	pass_at(f, &near, SY_TCP_ACK | SY_TCP_FIN, 0, 100 + 65534);
	pass_at(f, &far, SY_TCP_SYN, 0, 100);
	pass_at(f, &far, SY_TCP_ACK | SY_TCP_FIN, 0, 100 + 65537);
	flows_advance(f, 63);
	assert_null(flows_find(f, &near));
	assert_int_equal(flows_find(f, &far)->state, SESSION_FIN_WAIT);
	flows_advance(f, 840);
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
	for (unsigned life = 0; life < 6; life++) {
		flows_advance(f, 2);
		flows_reopen(f, 1 + life % 2, life % 3 == 2 ? TICKET : 0, life % 3 == 0);
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
	flows_check_refused(f, &c, "one address family");
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
		harness_turn(&f->harness);
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

#define MAGLEV STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_MAGLEV
#define TUPLE  STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_TUPLE

static void put_sloppy(struct flows *f, unsigned service, bool sloppy)
{
	struct changes c = {0};
	struct service_key key = key_of(service);
	pb_service *s = put_service(&c, &key, "direct", MAGLEV, NULL);
	s->hash_on = TUPLE;
	s->sloppy_tcp = sloppy;
	set_mode(&c, MODE_DR);
	flows_commit(f, &c);
}

/* The state of a forwarder to which a router has just moved all connections. */
static void forget_sessions(struct flows *f)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		uint32_t cursor = 0, record;
		while ((record = session_next(inspect_table(f->harness.b, slot), &cursor)) !=
		       SESSION_NONE)
			session_end(&f->harness.rt->worker[0], inspect_table(f->harness.b, slot),
			            record);
	}
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

static bool passes(struct flows *f, const struct sy_tuple *t, uint8_t flags)
{
	struct frame in, out;
	flows_frame(f, &in, t, flags, 1, 0);
	return flows_through(f, HARNESS_WAN, &in, &out);
}

/* Connections stay with their server, by their hash alone. */
static void test_sloppy_tcp(void **state)
{
	static const uint8_t refused[] = {SY_TCP_RST, SY_TCP_RST | SY_TCP_ACK,
	                                  SY_TCP_SYN | SY_TCP_ACK, SY_TCP_FIN, 0};
	enum { CONNECTIONS = 30 };
	struct flows *f = *state;
	for (unsigned service = 0; service < SERVICES; service += 2) {
		unsigned server[CONNECTIONS], load[3] = {0};
		put_sloppy(f, service, true);
		for (unsigned i = 0; i < CONNECTIONS; i++) {
			const struct sy_tuple t = client_of(service, (uint16_t)(1000 + i));
			server[i] = pass(f, &t, SY_TCP_SYN, 0);
			load[server[i]]++;
		}
		assert_true(load[1] > 0 && load[2] > 0);
		forget_sessions(f);
		for (unsigned i = 0; i < CONNECTIONS; i++) {
			const struct sy_tuple t = client_of(service, (uint16_t)(1000 + i));
			assert_false(passes(f, &t, refused[i % SY_ARRAY_LEN(refused)]));
			assert_null(flows_find(f, &t));
			uint8_t flags = SY_TCP_ACK | (i % 2 ? SY_TCP_PSH : 0);
			assert_int_equal(pass(f, &t, flags, 10 * i), server[i]);
			/* A client that sends only one packet does not hold a record for long. */
			assert_int_equal(flows_find(f, &t)->state, SESSION_SYN_SENT);
			assert_int_equal(pass(f, &t, flags, 10 * i), server[i]);
			assert_int_equal(flows_find(f, &t)->state, SESSION_ESTABLISHED);
		}
		/* A packet with a wrong checksum creates no session. */
		struct frame in, out;
		const struct sy_tuple t = client_of(service, 999);
		flows_frame(f, &in, &t, SY_TCP_ACK, 1, 50);
		in.bytes[in.len - 1] ^= 1;
		assert_false(flows_through(f, HARNESS_WAN, &in, &out));
		assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_L4_CHECKSUM),
		                 service / 2 + 1);
		/* Without the sloppy option. */
		put_sloppy(f, service, false);
		forget_sessions(f);
		uint64_t before = harness_drops(&f->harness, SY_DROP_NO_SESSION);
		assert_false(passes(f, &t, SY_TCP_ACK));
		assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SESSION), before + 1);
	}
}

static void test_sloppy_refusals(void **state)
{
	static const struct {
		unsigned service;
		enum mode mode;
		int scheduler;
		bool persistence;
		uint32_t slow_start;
		const char *why;
	} cases[] = {
	        {1, MODE_DR, MAGLEV, false, 0, "sloppy_tcp is for TCP"},
	        {0, MODE_FNAT, MAGLEV, false, 0, "sloppy_tcp is for dr and ipip"},
	        {0, MODE_NAT, MAGLEV, false, 0, "sloppy_tcp is for dr and ipip"},
	        {0, MODE_DR, FLOW_RR, false, 0, "sloppy_tcp is for maglev and conhash"},
	        {0, MODE_DR, MAGLEV, true, 0, "by hash alone"},
	        {0, MODE_DR, MAGLEV, false, 9, "by hash alone"},
	};
	struct flows *f = *state;
	for (unsigned i = 0; i < SY_ARRAY_LEN(cases); i++) {
		struct changes c = {0};
		struct service_key key = key_of(cases[i].service);
		key.vip = harness_addr("192.0.2.99");
		pb_service *s = put_service(&c, &key, "other", cases[i].scheduler, NULL);
		s->sloppy_tcp = true;
		s->slow_start_s = cases[i].slow_start;
		if (cases[i].persistence)
			set_persistence(&c, s, 60, 32, 128);
		set_mode(&c, cases[i].mode);
		flows_check_refused(f, &c, cases[i].why);
	}
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
	        TEST(far_ends),        TEST(sloppy_tcp),
	        TEST(sloppy_refusals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
