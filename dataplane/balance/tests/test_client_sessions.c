// SPDX-License-Identifier: Apache-2.0
/* client_limits: sessions. A client has so many at once, however they begin and end, over restarts
 * and changes of the limit; the counts are always those of the sessions. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client_sessions_fixture.h"

#define TCP    0
#define UDP    1
#define TCP6   2
#define TICKET 0x1234
#define ACK    SY_TCP_ACK
#define FIN    SY_TCP_FIN
#define RST    SY_TCP_RST
#define SYN    SY_TCP_SYN

static uint64_t refused(struct flows *f, unsigned service)
{
	struct sy_tuple t = {.dst = f->service[service].vip,
	                     .dport = f->service[service].vport,
	                     .proto = (uint8_t)f->service[service].proto};
	uint64_t sum = 0;
	for (unsigned w = 0; w < f->harness.b->workers; w++)
		sum += inspect_worker(f->harness.b, w)
		               ->load[directory_find(f->harness.b, &t)->id]
		               .client_refused;
	return sum;
}

/* The client's first packet is refused. */
static void check_refused(struct flows *f, unsigned service, uint16_t port)
{
	const struct service_key *key = &f->service[service];
	struct sy_addr client = harness_addr(service / 2 ? "2001:db8:c::99" : "198.18.0.1");
	struct sy_tuple t = {client, key->vip, htons(port), key->vport, key->proto};
	struct frame in, out;
	uint64_t before = dropped(f), counted = refused(f, service);
	flows_frame(f, &in, &t, SYN, 1, 0);
	assert_false(flows_through(f, HARNESS_WAN, &in, &out));
	assert_int_equal(dropped(f), before + 1);
	assert_int_equal(refused(f, service), counted + 1);
	check(f);
}

/* A segment or datagram of a flow; true: it was forwarded. */
static bool sends(struct flows *f, const struct flow *flow, enum session_direction from,
                  uint8_t flags, uint32_t seq, uint32_t ack)
{
	const struct sy_tuple *t = from == SESSION_CLIENT ? &flow->client : &flow->server;
	const struct segment s = {flags, seq, ack, 0};
	struct frame in, out;
	if (t->proto == SY_PROTO_TCP)
		frame_tcp(&in, &f->rng, t, &s, 0);
	else
		frame_udp(&in, &f->rng, t, 20);
	return flows_through(f, from == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN, &in, &out);
}

/* Opens a session that counts. */
static void opens(struct flows *f, struct flow *flow, unsigned service, uint16_t port)
{
	struct frame out;
	flow_open(f, flow, service, port);
	assert_true(flows_through(f, HARNESS_WAN, &flow->in[SESSION_CLIENT], &out));
}

/* Both sides close. */
static void closes(struct flows *f, const struct flow *flow)
{
	assert_true(sends(f, flow, SESSION_CLIENT, FIN | ACK, 101, 201));
	check(f);
	assert_true(sends(f, flow, SESSION_SERVER, FIN | ACK, 201, 102));
	check(f);
	assert_true(sends(f, flow, SESSION_CLIENT, ACK, 102, 202));
	assert_int_equal(flow_session(f, flow)->state, SESSION_TIME_WAIT);
	check(f);
}

static void a_client_has_so_many(void **state)
{
	struct flows *f = *state;
	struct flow flow[LIMIT], more;
	for (unsigned service = TCP; service <= TCP6; service++) {
		for (unsigned n = 0; n < LIMIT; n++) {
			opens(f, &flow[n], service, (uint16_t)(1000 + n));
			check(f);
		}
		for (unsigned n = 0; n < 5; n++)
			check_refused(f, service, (uint16_t)(2000 + n));
		for (unsigned n = 0; n < LIMIT; n++)
			flow_check(f, &flow[n]);
		flow_session(f, &flow[1])->state =
		        service == UDP ? SESSION_UDP_ONE_WAY : SESSION_TIME_WAIT;
		flows_advance(f, 2);
		opens(f, &more, service, 3000);
		check_refused(f, service, 3001);
	}
	assert_int_equal(dropped(f), 18);
	flows_advance(f, 1000); /* all expire */
	check(f);
	assert_int_equal(client_counts_sum(f->harness.b->client_counts), 0);
}

/* Connections that are over do not count, while their records remain. */
static void closed_ones_do_not_count(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	for (unsigned n = 0; n < 4 * LIMIT; n++) {
		flow_open(f, &flow, TCP, (uint16_t)(1000 + n));
		closes(f, &flow);
	}
	assert_int_equal(dropped(f), 0);
}

/* Handshakes that are not complete use up nothing; those that are completed too late are reset. */
static void the_handshake_decides(void **state)
{
	struct flows *f = *state;
	struct flow flow[2 * LIMIT];
	struct frame out;
	for (unsigned n = 0; n < 2 * LIMIT; n++) {
		flow_begin(f, &flow[n], TCP, (uint16_t)(1000 + n));
		flows_frame(f, &flow[n].in[SESSION_SERVER], &flow[n].server, SYN | ACK, 0, 0);
		assert_true(flows_through(f, HARNESS_LAN, &flow[n].in[SESSION_SERVER], &out));
	}
	assert_int_equal(client_counts_sum(f->harness.b->client_counts), 0);
	for (unsigned n = 0; n < 2 * LIMIT; n++) {
		struct frame ack;
		struct sy_tcp reset;
		flows_frame(f, &ack, &flow[n].client, ACK, 2, 0);
		assert_true(harness_inject(&f->harness, HARNESS_WAN, ack.bytes, ack.len));
		harness_poll(&f->harness);
		check(f);
		if (n < LIMIT) {
			assert_int_equal(flow_session(f, &flow[n])->state, SESSION_ESTABLISHED);
			struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_LAN);
			assert_non_null(m);
			rte_pktmbuf_free(m);
			continue;
		}
		assert_int_equal(flow_session(f, &flow[n])->state, SESSION_DYING);
		assert_true(flows_originated_segment(f, HARNESS_WAN, &reset));
		assert_true(reset.flags & RST);
		while (flows_originated_segment(f, HARNESS_LAN, &reset))
			;
	}
	assert_int_equal(dropped(f), LIMIT);
	assert_int_equal(refused(f, TCP), LIMIT);
	flows_advance(f, 6);
	check(f);
	check_refused(f, TCP, 3000);
}

static uint64_t counted(struct flows *f)
{
	check(f);
	return client_counts_sum(f->harness.b->client_counts);
}

static unsigned state_of(struct flows *f, const struct flow *flow)
{
	return flow_session(f, flow)->state;
}

/* Only the receiver of the SYN-ACK can validate a client's address: forged ACKs count for no
 * client, and disturb no handshake. */
static void a_forged_ack_shows_nothing(void **state)
{
	struct flows *f = *state;
	const uint32_t first = 0x70000000;
	struct flow flow;
	struct frame in, out;
	for (unsigned service = TCP; service <= TCP6; service += TCP6 - TCP) {
		for (unsigned n = 0; n < 2 * LIMIT; n++) {
			const uint64_t before = counted(f);
			const struct segment right = {ACK, 101, first + 1, 0};
			flow_begin(f, &flow, service, (uint16_t)(1000 + n));
			assert_true(sends(f, &flow, SESSION_SERVER, SYN | ACK, first, 101));
			assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, first));
			assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, first + 2));
			assert_true(sends(f, &flow, SESSION_CLIENT, FIN | ACK, 101, 7));
			assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, 0));
			frame_tcp(&in, &f->rng, &flow.client, &right, 0);
			in.bytes[in.len - 1] ^= 1;
			flows_through(f, HARNESS_WAN, &in, &out);
			assert_int_equal(state_of(f, &flow), SESSION_SYN_RECEIVED);
			/* A server's challenge for them shows nothing either, even after a reset.
			 */
			assert_true(sends(f, &flow, SESSION_SERVER, ACK, first + 1, 101));
			assert_true(sends(f, &flow, SESSION_CLIENT, RST, 5, 0));
			assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, 7));
			assert_true(sends(f, &flow, SESSION_SERVER, ACK, first + 1, 101));
			assert_int_equal(state_of(f, &flow), SESSION_RESET);
			assert_int_equal(counted(f), before);
			if (n < LIMIT)
				continue;
			/* The client itself: the SYN-ACK is repeated, or its ACK came after the
			 * forged reset, and the server goes on. */
			if (n % 2)
				assert_true(sends(f, &flow, SESSION_SERVER, SYN | ACK, first, 101));
			assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, first + 1));
			assert_true(sends(f, &flow, SESSION_SERVER, ACK, first + 1, 101));
			assert_int_equal(state_of(f, &flow), SESSION_ESTABLISHED);
			assert_int_equal(counted(f), before + 1);
		}
		check_refused(f, service, 3000);
	}
}

/* A server that sends data has accepted the client's ACK, or its Fast Open cookie. */
static void the_servers_data_shows_it(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	struct frame in, out;
	flow_begin(f, &flow, TCP, 1000);
	assert_true(sends(f, &flow, SESSION_SERVER, SYN | ACK, 500, 101));
	flows_frame(f, &in, &flow.server, ACK, 501, 100);
	assert_true(flows_through(f, HARNESS_LAN, &in, &out));
	assert_int_equal(counted(f), 0);
	assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, 601));
	assert_int_equal(state_of(f, &flow), SESSION_ESTABLISHED);
	assert_int_equal(counted(f), 1);
}

/* What is expected of a client outlives a restart; a handshake that the limit met half way goes
 * on. */
static void half_open_ones_that_are_found(void **state)
{
	struct flows *f = *state;
	struct flow flow[2];
	flow_begin(f, &flow[0], TCP, 1000);
	assert_true(sends(f, &flow[0], SESSION_SERVER, SYN | ACK, 500, 101));
	limit_all(f, 0);
	flow_begin(f, &flow[1], TCP, 1001);
	assert_true(sends(f, &flow[1], SESSION_SERVER, SYN | ACK, 500, 101));
	limit_all(f, LIMIT);
	flows_reopen(f, 1, 0, true);
	assert_true(sends(f, &flow[0], SESSION_CLIENT, ACK, 101, 77));
	assert_int_equal(counted(f), 0);
	assert_true(sends(f, &flow[0], SESSION_CLIENT, ACK, 101, 501));
	assert_int_equal(counted(f), 1);
	assert_true(sends(f, &flow[1], SESSION_CLIENT, ACK, 101, 501));
	assert_int_equal(counted(f), 2);
}

/* A datagram with a forged source may be answered, and then counts for no client. One that follows
 * an answer counts; sessions beyond the limit end then. */
static void a_datagram_after_the_answer_decides(void **state)
{
	struct flows *f = *state;
	struct flow flow[2 * LIMIT];
	struct frame in, out;
	for (unsigned n = 0; n < 2 * LIMIT; n++) {
		flow_begin(f, &flow[n], UDP, (uint16_t)(1000 + n));
		assert_true(sends(f, &flow[n], SESSION_CLIENT, 0, 0, 0));
		for (unsigned answers = 0; answers < 3; answers++)
			assert_true(sends(f, &flow[n], SESSION_SERVER, 0, 0, 0));
		assert_int_equal(state_of(f, &flow[n]), SESSION_UDP_ANSWERED);
		flows_frame(f, &in, &flow[n].client, 0, 0, 20);
		in.bytes[in.len - 1] ^= 1;
		flows_through(f, HARNESS_WAN, &in, &out);
		flows_advance(f, 2);
		assert_int_equal(counted(f), 0);
	}
	flows_reopen(f, 1, 0, false);
	flows_advance(f, 3);
	assert_int_equal(counted(f), 0);
	for (unsigned n = 0; n < 2 * LIMIT; n++) {
		assert_true(sends(f, &flow[n], SESSION_CLIENT, 0, 0, 0) == (n < LIMIT));
		assert_true((flow_session(f, &flow[n]) != NULL) == (n < LIMIT));
		assert_int_equal(counted(f), n < LIMIT ? n + 1 : LIMIT);
	}
	for (unsigned n = 0; n < LIMIT; n++) {
		assert_true(sends(f, &flow[n], SESSION_SERVER, 0, 0, 0));
		assert_true(sends(f, &flow[n], SESSION_CLIENT, 0, 0, 0));
	}
	assert_int_equal(dropped(f), LIMIT);
	/* without the limit, waiting sessions are not checked */
	limit_all(f, LIMIT + 1);
	flow_begin(f, &flow[LIMIT], UDP, 2000);
	assert_true(sends(f, &flow[LIMIT], SESSION_SERVER, 0, 0, 0));
	limit_all(f, 0);
	assert_true(sends(f, &flow[LIMIT], SESSION_CLIENT, 0, 0, 0));
	assert_int_equal(flow_session(f, &flow[LIMIT])->flags, 0);
}

/* Puts a service of this mode with one server and the limit; fills its key. */
static void put_limited(struct flows *f, enum mode mode, struct service_key *key)
{
	static const char *const server[2] = {"10.3.0.1", "10.0.0.77"};
	struct changes c = {0};
	*key = harness_key("192.0.2.10", 88, SY_PROTO_TCP);
	flows_put(&c, key, "limited", mode, &server[mode != MODE_DR], 1, 88);
	set_client_sessions(&c, c.change[0]->put_service, LIMIT);
	flows_commit(f, &c);
}

static struct flow flow_to(const struct service_key *key, uint16_t port)
{
	const struct sy_addr client = harness_addr("198.18.0.1");
	return (struct flow){.client = {client, key->vip, htons(port), key->vport, key->proto}};
}

/* One way: a client's FIN ends it, as nothing more is seen; an ACK shows that it was forged. */
static void a_fin_ends_a_one_way_session(void **state)
{
	struct flows *f = *state;
	struct service_key key;
	struct flow flow;
	put_limited(f, MODE_DR, &key);
	for (unsigned n = 0; n < 4 * LIMIT; n++) {
		flow = flow_to(&key, (uint16_t)(1000 + n));
		assert_true(sends(f, &flow, SESSION_CLIENT, SYN, 100, 0));
		assert_int_equal(counted(f), 0);
		assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, 1));
		assert_int_equal(counted(f), 1);
		flows_advance(f, 2);
		assert_int_equal(counted(f), 1);
		assert_true(sends(f, &flow, SESSION_CLIENT, FIN | ACK, 101, 1));
		assert_int_equal(state_of(f, &flow), SESSION_FIN_WAIT);
		assert_int_equal(counted(f), 0);
		flows_advance(f, 2);
		assert_int_equal(counted(f), 0);
	}
	for (unsigned n = 0; n < LIMIT; n++) {
		flow = flow_to(&key, (uint16_t)(2000 + n));
		assert_true(sends(f, &flow, SESSION_CLIENT, SYN, 100, 0));
		assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, 1));
	}
	assert_true(sends(f, &flow, SESSION_CLIENT, FIN | ACK, 0x70000000, 1));
	assert_int_equal(counted(f), LIMIT - 1);
	assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, 1));
	assert_int_equal(counted(f), LIMIT);
	flow = flow_to(&key, 3000);
	assert_false(sends(f, &flow, SESSION_CLIENT, SYN, 100, 0));
	assert_int_equal(dropped(f), 1);
}

static void nat_counts_likewise(void **state)
{
	struct flows *f = *state;
	struct service_key key;
	put_limited(f, MODE_NAT, &key);
	for (unsigned n = 0; n < LIMIT + 1; n++) {
		struct flow flow = flow_to(&key, (uint16_t)(1000 + n));
		const struct sy_addr server = harness_addr("10.0.0.77");
		flow.server = (struct sy_tuple){server, flow.client.src, htons(88),
		                                flow.client.sport, key.proto};
		assert_true(sends(f, &flow, SESSION_CLIENT, SYN, 100, 0) == (n < LIMIT));
		if (n == LIMIT)
			break;
		assert_true(sends(f, &flow, SESSION_SERVER, SYN | ACK, 500, 101));
		assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, 502));
		assert_int_equal(counted(f), n);
		assert_true(sends(f, &flow, SESSION_CLIENT, ACK, 101, 501));
		assert_int_equal(counted(f), n + 1);
	}
	assert_int_equal(dropped(f), 1);
}

/* A client of IPv6 is its /64. */
static void a_network_is_a_client(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	for (unsigned n = 0; n < LIMIT; n++)
		flow_open(f, &flow, TCP6, (uint16_t)(1000 + n));
	check_refused(f, TCP6, 1000); /* another address */
	flow_open(f, &flow, TCP, 1000);
}

static void restarts_and_limits(void **state)
{
	struct flows *f = *state;
	struct flow flow[LIMIT + 2];
	for (unsigned n = 0; n < LIMIT; n++)
		flow_open(f, &flow[n], TCP, (uint16_t)(1000 + n));
	for (unsigned way = 0; way < 3; way++) {
		flows_reopen(f, 1 + way % 2, way == 2 ? TICKET : 0, way == 0);
		flows_advance(f, 3); /* the first pass counts */
		check(f);
		check_refused(f, TCP, 2000);
		for (unsigned n = 0; n < LIMIT; n++)
			flow_check(f, &flow[n]);
	}
	limit_all(f, 0);
	for (unsigned n = LIMIT; n < LIMIT + 2; n++)
		flow_open(f, &flow[n], TCP, (uint16_t)(1000 + n));
	flows_advance(f, 2);
	assert_int_equal(client_counts_sum(f->harness.b->client_counts), 0);
	limit_all(f, LIMIT);
	for (unsigned n = 0; n < LIMIT + 2; n++) /* at once: none is taken for a new one */
		flow_check(f, &flow[n]);
	flows_advance(f, 2);
	check(f);
	check_refused(f, TCP, 2000);
	for (unsigned n = 0; n < LIMIT + 2; n++)
		flow_check(f, &flow[n]);
	limit_all(f, LIMIT + 3);
	flow_open(f, &flow[0], TCP, 2000);
	flows_advance(f, 2);
	check_refused(f, TCP, 2001);
}

/* What cannot be counted is refused, and so are limits beyond their bounds. */
static void limits_that_cannot_be(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 6; n++) {
		struct changes c = {0};
		const struct service_key *key = &f->service[n < 2 ? UDP : TCP];
		struct service_key other = *key;
		other.vport = htons(99);
		pb_service *s = put_service(&c, n == 0 ? &other : key, "service", FLOW_RR, NULL);
		set_client_sessions(&c, s, n == 2 ? CLIENT_SESSIONS_MAX + 1 : n == 3 ? 0 : 1);
		s->one_packet = n == 1;
		if (n == 0 || n == 5)
			set_mode(&c, MODE_DR);
		if (n == 5) {
			s->key->port = 99;
			s->scheduler = STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_MAGLEV;
			s->sloppy_tcp = true;
		}
		if (n == 4)
			s->client_limits->burst = 1; /* of what rate? */
		flows_check_refused(f, &c, n == 5 ? "sloppy_tcp a segment" : "client_limits");
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, client_sessions_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_client_has_so_many),
	        TEST(closed_ones_do_not_count),
	        TEST(the_handshake_decides),
	        TEST(a_forged_ack_shows_nothing),
	        TEST(the_servers_data_shows_it),
	        TEST(half_open_ones_that_are_found),
	        TEST(a_datagram_after_the_answer_decides),
	        TEST(a_fin_ends_a_one_way_session),
	        TEST(nat_counts_likewise),
	        TEST(a_network_is_a_client),
	        TEST(restarts_and_limits),
	        TEST(limits_that_cannot_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
