// SPDX-License-Identifier: Apache-2.0
/* The SYN defence of DR and IPIP: SYNs of unknown clients, challenges, their answers, and what
 * these allow. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"
#include "validated.h"

#define SYN    SY_TCP_SYN
#define ACK    SY_TCP_ACK
#define RST    SY_TCP_RST
#define FIN    SY_TCP_FIN
#define NUMBER 0xfffffff5u
#define ALWAYS STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_ALWAYS
#define OFF    STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_OFF

struct kind {
	const char *vip, *server;
	enum mode mode;
	uint16_t port;
};

/* The first two have a VIP each; the last is another service of the first one's. */
static const struct kind kinds[] = {
        {"192.0.2.20", "10.3.0.1", MODE_DR, 80},
        {"2001:db8:a::20", "2001:db8:d::1", MODE_DR, 80},
        {"192.0.2.40", "10.0.0.91", MODE_IPIP, 80},
        {"2001:db8:a::40", "2001:db8:b::91", MODE_IPIP, 80},
        {"192.0.2.41", "2001:db8:b::91", MODE_IPIP, 80},
        {"192.0.2.20", "10.3.0.1", MODE_DR, 81},
};
#define KINDS (SY_ARRAY_LEN(kinds) - 1)

static struct service_key key_of(const struct kind *k)
{
	return harness_key(k->vip, k->port, SY_PROTO_TCP);
}

static void put_kind(struct changes *c, const struct kind *k, int defence)
{
	const struct service_key key = key_of(k);
	pb_service *s = put_service(c, &key, "challenged",
	                            STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_MAGLEV, NULL);
	s->hash_on = STEELYARD__FORWARDER__V1__HASH_ON__HASH_ON_TUPLE;
	s->syn_defence = (Steelyard__Forwarder__V1__SynDefence)defence;
	set_mode(c, k->mode);
}

static int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	for (unsigned i = 0; rc == 0 && i < SY_ARRAY_LEN(kinds); i++) {
		const struct service_key key = key_of(&kinds[i]);
		const struct sy_addr server = harness_addr(kinds[i].server);
		put_kind(&c, &kinds[i], ALWAYS);
		put_server(&c, &key, &server, kinds[i].port, 1, FLOW_UP);
	}
	flows_commit(*state, &c);
	return rc;
}

static void set_defence(struct flows *f, const struct kind *k, int defence)
{
	struct changes c = {0};
	put_kind(&c, k, defence);
	flows_commit(f, &c);
}

/* host: which client; each has an address, and under IPv6 a network, of its own. */
static struct sy_tuple client_of(const struct kind *k, unsigned host, uint16_t port)
{
	const struct service_key key = key_of(k);
	bool v4 = sy_addr_is_v4(&key.vip);
	struct sy_tuple t = {harness_addr(v4 ? "198.18.0.1" : "2001:db8:c::1"), key.vip,
	                     htons(port), key.vport, SY_PROTO_TCP};
	t.src.b[v4 ? 15 : 7] = (uint8_t)(1 + host);
	t.src.b[v4 ? 14 : 6] = (uint8_t)(host >> 8);
	return t;
}

/* ---- segments -------------------------------------------------------------------------------- */

static void put_segment(struct flows *f, const struct sy_tuple *t, uint8_t flags, uint32_t seq,
                        unsigned payload)
{
	struct frame in;
	flows_frame(f, &in, t, flags, seq, payload);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
	harness_poll(&f->harness);
}

static bool reaches_server(struct flows *f)
{
	struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_LAN);
	rte_pktmbuf_free(m);
	return m;
}

static void check_silent(struct flows *f)
{
	assert_null(harness_collect(&f->harness, HARNESS_WAN));
	assert_null(harness_collect(&f->harness, HARNESS_LAN));
}

/* The challenge that was sent to this client; its number. */
static uint32_t check_challenge(struct flows *f, const struct sy_tuple *t)
{
	struct sy_view v;
	struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_WAN);
	assert_non_null(m);
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	uint32_t len = rte_pktmbuf_data_len(m);
	assert_int_equal(sy_packet_parse(frame, len, &v), SY_DROP_NONE);
	assert_int_equal(sy_packet_check_l4(frame, &v), SY_CSUM_OK);
	assert_int_equal(len, SY_ETH_LEN + (v.v4 ? 20 : 40) + 20);
	assert_memory_equal(frame + 6, harness_mac[HARNESS_WAN], 6);
	assert_true(sy_addr_equal(&v.tuple.src, &t->dst) && sy_addr_equal(&v.tuple.dst, &t->src));
	assert_true(v.tuple.sport == t->dport && v.tuple.dport == t->sport);
	assert_int_equal(sy_packet_tcp(frame, &v)->flags, ACK);
	assert_int_not_equal(sy_packet_tcp(frame, &v)->window, 0);
	uint32_t number = ntohl(sy_packet_tcp(frame, &v)->ack);
	rte_pktmbuf_free(m);
	check_silent(f);
	return number;
}

/* Sends a SYN that must be challenged; returns the number. */
static uint32_t ask(struct flows *f, const struct sy_tuple *t)
{
	uint64_t live = harness_totals(&f->harness).live;
	put_segment(f, t, SYN, NUMBER, 0);
	assert_int_equal(harness_totals(&f->harness).live, live);
	return check_challenge(f, t);
}

/* Sends a SYN that must reach the server, with a session. */
static void check_opens(struct flows *f, const struct sy_tuple *t)
{
	put_segment(f, t, SYN, NUMBER, 0);
	assert_true(reaches_server(f));
	check_silent(f);
	assert_int_equal(flows_find(f, t)->state, SESSION_SYN_SENT);
}

/* Sends a reset that must be dropped for this reason. */
static void check_reset(struct flows *f, const struct sy_tuple *t, uint32_t number,
                        enum sy_drop reason)
{
	uint64_t before = harness_drops(&f->harness, reason);
	put_segment(f, t, RST, number, 0);
	assert_int_equal(harness_drops(&f->harness, reason), before + 1);
	check_silent(f);
}

static void prove(struct flows *f, const struct sy_tuple *t)
{
	check_reset(f, t, ask(f, t), SY_DROP_SYN_PROOF);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_a_connection(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < KINDS; i++) {
		const struct sy_tuple t = client_of(&kinds[i], 0, (uint16_t)(1000 + i));
		assert_int_equal(ask(f, &t), ask(f, &t));
		prove(f, &t);
		check_opens(f, &t);
		check_opens(f, &t); /* repeated */
		put_segment(f, &t, ACK, NUMBER + 1, 100);
		assert_true(reaches_server(f));
		assert_int_equal(flows_find(f, &t)->state, SESSION_ESTABLISHED);
		put_segment(f, &t, RST, NUMBER + 101, 0); /* a real one reaches the server */
		assert_true(reaches_server(f));
		assert_int_equal(flows_find(f, &t)->state, SESSION_RESET_BY_CLIENT);
		struct sy_tcp probe;
		assert_true(flows_originated_segment(f, HARNESS_WAN, &probe));
		/* other connections of this client are not challenged */
		const struct sy_tuple next = client_of(&kinds[i], 0, (uint16_t)(1100 + i));
		check_opens(f, &next);
		const struct sy_tuple other = client_of(&kinds[i], 1, (uint16_t)(1000 + i));
		ask(f, &other);
	}
	assert_int_equal(harness_drops(&f->harness, SY_DROP_NO_SESSION), 0);
}

/* Resets that answer no challenge are dropped, and validate no client. */
static void test_wrong_numbers(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < KINDS; i++) {
		const struct sy_tuple t = client_of(&kinds[i], 0, 2000);
		uint32_t number = ask(f, &t);
		for (unsigned bit = 0; bit < 32; bit++)
			check_reset(f, &t, number ^ 1u << bit, SY_DROP_NO_SESSION);
		const struct sy_tuple port = client_of(&kinds[i], 0, 2001);
		check_reset(f, &port, number, SY_DROP_NO_SESSION);
		const struct sy_tuple host = client_of(&kinds[i], 1, 2000);
		check_reset(f, &host, number, SY_DROP_NO_SESSION);
		check_reset(f, &t, 0, SY_DROP_NO_SESSION);
		check_reset(f, &t, NUMBER + 1, SY_DROP_NO_SESSION);
		ask(f, &t);
		flows_advance(f, 64); /* the next epoch */
		check_reset(f, &t, number, SY_DROP_SYN_PROOF);
		const struct sy_tuple late = client_of(&kinds[i], 2, 2000);
		number = ask(f, &late);
		flows_advance(f, 129);
		check_reset(f, &late, number, SY_DROP_NO_SESSION);
		ask(f, &late);
	}
}

/* An answer for one service is of no use for another one, neither the reset nor the validated
 * client. */
static void test_one_service(void **state)
{
	struct flows *f = *state;
	const struct sy_tuple t = client_of(&kinds[0], 0, 2100);
	const struct sy_tuple other = client_of(&kinds[KINDS], 0, 2100);
	uint32_t number = ask(f, &t);
	check_reset(f, &other, number, SY_DROP_NO_SESSION);
	check_reset(f, &t, number, SY_DROP_SYN_PROOF);
	assert_int_not_equal(ask(f, &other), number);
	check_opens(f, &t);
	/* A service that replaces it, with its id, on another port. */
	struct changes c = {0};
	const struct service_key key = key_of(&kinds[0]), next = harness_key(kinds[0].vip, 82, 6);
	const struct sy_addr server = harness_addr(kinds[0].server);
	delete_service(&c, &key);
	flows_commit(f, &c);
	flows_advance(f, 120);
	struct kind moved = kinds[0];
	moved.port = 82;
	put_kind(&c, &moved, ALWAYS);
	put_server(&c, &next, &server, 82, 1, FLOW_UP);
	flows_commit(f, &c);
	const struct sy_tuple there = client_of(&moved, 0, 2101);
	ask(f, &there);
}

/* A large NAT pays one exchange for 255 connections; a reset that was used once has no further
 * effect. */
static void test_credits(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < 2; i++) {
		const struct sy_tuple first = client_of(&kinds[i], 0, 3000);
		uint32_t number = ask(f, &first);
		check_reset(f, &first, number, SY_DROP_SYN_PROOF);
		for (unsigned n = 0; n < VALIDATED_CREDITS; n++) {
			const struct sy_tuple t = client_of(&kinds[i], 0, (uint16_t)(3000 + n));
			check_opens(f, &t);
			/* the same reset again is a repetition */
			if (n == 100)
				check_reset(f, &first, number, SY_DROP_SYN_PROOF);
		}
		const struct sy_tuple t = client_of(&kinds[i], 0, 3500);
		uint32_t again = ask(f, &t);
		check_reset(f, &t, again, SY_DROP_SYN_PROOF);
		check_reset(f, &t, again, SY_DROP_SYN_PROOF);
		for (unsigned n = 0; n < VALIDATED_CREDITS; n++) {
			const struct sy_tuple more = client_of(&kinds[i], 0, (uint16_t)(3500 + n));
			check_opens(f, &more);
		}
		check_reset(f, &(struct sy_tuple){t.src, t.dst, htons(4000), t.dport, t.proto},
		            again, SY_DROP_NO_SESSION);
		const struct sy_tuple last = client_of(&kinds[i], 0, 4000);
		ask(f, &last);
	}
}

/* An answer that arrives when the session exists: to a SYN that the network duplicated. */
static void test_late_proof(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < KINDS; i++) {
		const struct sy_tuple t = client_of(&kinds[i], 0, 4100);
		uint32_t number = ask(f, &t);
		assert_int_equal(ask(f, &t), number);
		check_reset(f, &t, number, SY_DROP_SYN_PROOF);
		check_opens(f, &t);
		check_reset(f, &t, number, SY_DROP_SYN_PROOF);
		assert_int_equal(flows_find(f, &t)->state, SESSION_SYN_SENT);
		put_segment(f, &t, ACK, NUMBER + 1, 0);
		assert_true(reaches_server(f));
		check_reset(f, &t, number, SY_DROP_SYN_PROOF);
		assert_int_equal(flows_find(f, &t)->state, SESSION_ESTABLISHED);
		put_segment(f, &t, RST, number + 1, 0);
		assert_true(reaches_server(f));
		assert_int_equal(flows_find(f, &t)->state, SESSION_RESET_BY_CLIENT);
		while (flows_originated_segment(f, HARNESS_WAN, &(struct sy_tcp){0}))
			;
	}
}

/* Known for ten minutes since the last connection. */
static void test_time(void **state)
{
	struct flows *f = *state;
	const struct sy_tuple t = client_of(&kinds[0], 0, 4200);
	prove(f, &t);
	for (unsigned n = 0; n < 3; n++) {
		flows_advance(f, VALIDATED_SECONDS - 1);
		const struct sy_tuple next = client_of(&kinds[0], 0, (uint16_t)(4201 + n));
		check_opens(f, &next);
	}
	flows_advance(f, VALIDATED_SECONDS + 2);
	ask(f, &t);
}

/* Clients that connected while the defence was off are known, for some connections. */
static void test_seen(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < KINDS; i++) {
		set_defence(f, &kinds[i], OFF);
		const struct sy_tuple one = client_of(&kinds[i], 0, 5000);
		check_opens(f, &one);
		put_segment(f, &one, ACK, NUMBER + 1, 0);
		assert_true(reaches_server(f));
		const struct sy_tuple half = client_of(&kinds[i], 1, 5000);
		check_opens(f, &half); /* only a SYN: not seen */
		set_defence(f, &kinds[i], ALWAYS);
		for (unsigned n = 0; n < SEEN_CREDITS; n++) {
			const struct sy_tuple next = client_of(&kinds[i], 0, (uint16_t)(5001 + n));
			check_opens(f, &next);
		}
		const struct sy_tuple last = client_of(&kinds[i], 0, 5100);
		prove(f, &last);
		const struct sy_tuple other = client_of(&kinds[i], 1, 5100);
		ask(f, &other);
		/* with the defence on, a session validates no client */
		const struct sy_tuple third = client_of(&kinds[i], 2, 5100);
		prove(f, &third);
	}
}

/* Half of the SYNs of each burst come from a known client. */
static void test_bursts(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < KINDS; i++) {
		struct frame in;
		unsigned opened = 0, asked = 0;
		const struct sy_tuple t = client_of(&kinds[i], 0, 6000);
		prove(f, &t);
		for (unsigned n = 0; n < 60; n++) {
			const struct sy_tuple next =
			        client_of(&kinds[i], n % 2 ? 100 + n : 0, (uint16_t)(6000 + n / 4));
			flows_frame(f, &in, &next, SYN, NUMBER, 0);
			assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
		}
		harness_poll(&f->harness);
		struct rte_mbuf *m;
		for (; (m = harness_collect(&f->harness, HARNESS_LAN)); opened++)
			rte_pktmbuf_free(m);
		for (; (m = harness_collect(&f->harness, HARNESS_WAN)); asked++)
			rte_pktmbuf_free(m);
		assert_int_equal(opened, 30); /* each of 15 sessions' SYNs comes twice */
		assert_int_equal(asked, 30);
		assert_int_equal(harness_totals(&f->harness).live, 15);
		/* only a session consumes a credit */
		for (unsigned n = 0; n < VALIDATED_CREDITS - 15; n++) {
			const struct sy_tuple next = client_of(&kinds[i], 0, (uint16_t)(6100 + n));
			check_opens(f, &next);
		}
		const struct sy_tuple last = client_of(&kinds[i], 0, 7000);
		ask(f, &last);
		flows_advance(f, 30); /* the sessions end */
	}
}

/* All of an IPv6 /64 is one client. */
static void test_networks(void **state)
{
	struct flows *f = *state;
	struct sy_tuple t = client_of(&kinds[1], 0, 7000);
	prove(f, &t);
	t.src.b[15] = 0x99;
	t.src.b[8] = 0x99;
	check_opens(f, &t);
	t.src.b[7] ^= 1;
	ask(f, &t);
}

/* Connections that began at another forwarder begin as they do without the defence. */
static void test_sloppy(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	put_kind(&c, &kinds[0], ALWAYS);
	c.change[c.count - 1]->put_service->sloppy_tcp = true;
	flows_commit(f, &c);
	const struct sy_tuple t = client_of(&kinds[0], 0, 7100);
	put_segment(f, &t, ACK, NUMBER, 100);
	assert_true(reaches_server(f));
	assert_non_null(flows_find(f, &t));
	const struct sy_tuple other = client_of(&kinds[0], 0, 7101);
	ask(f, &other);
	check_reset(f, &other, 1, SY_DROP_NO_SESSION);
	assert_null(flows_find(f, &other));
}

/* Clients refused by access lists are not challenged. */
static void test_access_lists(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	put_access_list(&c, "closed", STEELYARD__FORWARDER__V1__ACCESS_ACTION__ACCESS_ACTION_DROP);
	put_global_access(&c, "closed");
	flows_commit(f, &c);
	const struct sy_tuple t = client_of(&kinds[0], 0, 7200);
	put_segment(f, &t, SYN, NUMBER, 0);
	check_silent(f);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_ACL_DROP), 1);
}

/* A SYN in fragments begins no session, in any mode. */
static void test_fragments(void **state)
{
	struct flows *f = *state;
	for (unsigned i = 0; i < KINDS; i++) {
		const struct sy_tuple t = client_of(&kinds[i], 0, 7300);
		struct frame in, piece[4];
		flows_frame(f, &in, &t, SYN, NUMBER, 100);
		frame_let_fragment(&in);
		assert_int_equal(frame_cut(&in, 7, 64, piece, 4), 2);
		for (unsigned n = 0; n < 2; n++)
			assert_true(harness_inject(&f->harness, HARNESS_WAN, piece[n].bytes,
			                           piece[n].len));
		harness_poll(&f->harness);
		check_silent(f);
		assert_int_equal(harness_totals(&f->harness).live, 0);
	}
}

/* Another process has no validated clients, but accepts numbers sent before: clients wait once. */
static void test_restart(void **state)
{
	struct flows *f = *state;
	for (unsigned life = 0; life < 4; life++) {
		const struct sy_tuple before = client_of(&kinds[life], 0, 8000);
		prove(f, &before);
		check_opens(f, &before);
		const struct sy_tuple half = client_of(&kinds[life], 1, 8000);
		uint32_t number = ask(f, &half);
		flows_reopen(f, 1 + life / 2, life & 1 ? 77 : 0, !(life & 1));
		put_segment(f, &before, ACK, NUMBER + 1, 10); /* its session stays */
		assert_true(reaches_server(f));
		check_reset(f, &half, number, SY_DROP_SYN_PROOF);
		check_opens(f, &half);
		const struct sy_tuple again = client_of(&kinds[life], 0, 8001);
		prove(f, &again);
		check_opens(f, &again);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(a_connection), TEST(wrong_numbers), TEST(one_service),  TEST(credits),
	        TEST(late_proof),   TEST(time),          TEST(seen),         TEST(bursts),
	        TEST(networks),     TEST(sloppy),        TEST(access_lists), TEST(restart),
	        TEST(fragments)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
