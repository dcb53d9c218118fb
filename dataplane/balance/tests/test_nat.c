// SPDX-License-Identifier: Apache-2.0
/* NAT: the destination is translated, and answers to clients are matched by their source. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_hash.h>

#include <cmocka.h>

#include "flows.h"

#define SERVICES 4 /* as in flows.h: TCP and UDP over IPv4, then over IPv6 */
#define TICKET   0x1234

static const char *const client_text[2] = {"198.18.0.1", "2001:db8:c::1"};
static const char *const vip_text[2] = {"192.0.2.30", "2001:db8:a::30"};
static const char *const server_text[2][2] = {{"10.3.0.1", "10.3.0.2"},
                                              {"2001:db8:d::1", "2001:db8:d::2"}};

static struct service_key key_of(unsigned service)
{
	const char *vip = vip_text[service / 2];
	return service % 2 ? harness_key(vip, 53, SY_PROTO_UDP)
	                   : harness_key(vip, 80, SY_PROTO_TCP);
}

static uint16_t server_port(unsigned service)
{
	return service % 2 ? 5353 : 8080;
}

static int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	for (unsigned s = 0; s < SERVICES; s++) {
		struct service_key key = key_of(s);
		flows_put(&c, &key, "nat", MODE_NAT, server_text[s / 2], 2, server_port(s));
	}
	flows_commit(*state, &c);
	return rc;
}

/* A client's connection or datagrams, as both sides see them. */
struct talk {
	unsigned service;
	struct sy_tuple client,
	        back; /* tuples of arriving packets: client → VIP, server → client */
};

static void pass(struct flows *f, unsigned port, const struct sy_tuple *t, uint8_t flags,
                 struct sy_tuple *out_tuple)
{
	struct frame in, out;
	struct sy_view after;
	flows_frame(f, &in, t, flags, 1, 100);
	assert_true(flows_through(f, port, &in, &out));
	frame_check_translated(&in, &out, &after);
	*out_tuple = after.tuple;
}

static void to_server(struct flows *f, struct talk *k, uint8_t flags)
{
	struct sy_tuple out;
	pass(f, HARNESS_WAN, &k->client, flags, &out);
	assert_true(sy_addr_equal(&out.src, &k->client.src));
	assert_int_equal(out.sport, k->client.sport);
	assert_int_equal(ntohs(out.dport), server_port(k->service));
	k->back = (struct sy_tuple){out.dst, out.src, out.dport, out.sport, out.proto};
}

static void to_client(struct flows *f, const struct talk *k, uint8_t flags)
{
	struct sy_tuple out;
	pass(f, HARNESS_LAN, &k->back, flags, &out);
	assert_true(sy_addr_equal(&out.src, &k->client.dst));
	assert_true(sy_addr_equal(&out.dst, &k->client.src));
	assert_int_equal(out.sport, k->client.dport);
	assert_int_equal(out.dport, k->client.sport);
}

static struct talk talk_of(unsigned service, uint16_t port)
{
	const struct service_key key = key_of(service);
	return (struct talk){service,
	                     {harness_addr(client_text[service / 2]), key.vip, htons(port),
	                      key.vport, key.proto},
	                     {.proto = 0}};
}

static struct talk talk_open(struct flows *f, unsigned service, uint16_t port)
{
	struct talk k = talk_of(service, port);
	to_server(f, &k, SY_TCP_SYN);
	to_client(f, &k, SY_TCP_SYN | SY_TCP_ACK);
	to_server(f, &k, SY_TCP_ACK);
	return k;
}

static void test_a_connection(void **state)
{
	struct flows *f = *state;
	for (unsigned cycle = 0; cycle < 2 * SERVICES; cycle++) {
		if (cycle == SERVICES)
			flows_reopen(f, 2, 0, true);
		struct talk k = talk_open(f, cycle % SERVICES, (uint16_t)(1000 + cycle));
		struct session *s = flows_find(f, &k.client);
		assert_int_equal(s->local, LOCAL_NONE);
		for (unsigned n = 0; n < 20; n++) {
			to_server(f, &k, SY_TCP_ACK | SY_TCP_PSH);
			to_client(f, &k, SY_TCP_ACK);
		}
		if (k.client.proto == SY_PROTO_UDP) {
			assert_int_equal(s->state, SESSION_UDP_BOTH_WAYS);
			continue;
		}
		assert_int_equal(s->state, SESSION_ESTABLISHED);
		to_server(f, &k, SY_TCP_ACK | SY_TCP_FIN);
		assert_int_equal(s->state, SESSION_FIN_WAIT);
		to_client(f, &k, SY_TCP_ACK | SY_TCP_FIN);
		assert_int_equal(s->state, SESSION_CLOSING);
	}
	assert_int_equal(harness_totals(&f->harness).live, 2 * SERVICES);
	flows_advance(f, 1000);
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

/* A crash, a stop and a hand-over, with one worker and two, beside FNAT sessions. */
static void test_restart(void **state)
{
	enum { TALKS = 40 };
	struct flows *f = *state;
	struct flow fnat[FLOW_SERVICES];
	struct talk k[TALKS];
	for (unsigned i = 0; i < TALKS; i++)
		k[i] = talk_open(f, i % SERVICES, (uint16_t)(2000 + i));
	for (unsigned i = 0; i < FLOW_SERVICES; i++)
		flow_open(f, &fnat[i], i, (uint16_t)(1000 + i));
	for (unsigned cycle = 0; cycle < 6; cycle++) {
		flows_advance(f, 2);
		flows_reopen(f, 1 + cycle % 2, cycle % 3 == 2 ? TICKET : 0, cycle % 3 == 0);
		assert_int_equal(flows_result(f, SESSION_KEPT), TALKS + FLOW_SERVICES);
		for (unsigned i = 0; i < TALKS; i++) {
			struct talk same = k[i];
			to_client(f, &k[i], SY_TCP_ACK);
			to_server(f, &same, SY_TCP_ACK);
			assert_memory_equal(&same.back, &k[i].back, sizeof(same.back));
		}
		for (unsigned i = 0; i < FLOW_SERVICES; i++)
			flow_check(f, &fnat[i]);
	}
}

static void check_dropped(struct flows *f, unsigned port, const struct frame *in,
                          enum sy_drop reason)
{
	struct frame out;
	uint64_t before = harness_drops(&f->harness, reason);
	assert_false(flows_through(f, port, in, &out));
	assert_int_equal(harness_drops(&f->harness, reason), before + 1);
}

/* Packets from servers that belong to no session; then the same after the servers were removed. */
static void test_strays(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct frame in;
	for (unsigned s = 0; s < SERVICES; s++) {
		struct talk k = talk_open(f, s, 1000);
		struct sy_tuple stray = k.back;
		stray.dport = htons(1001);
		flows_frame(f, &in, &stray, SY_TCP_ACK, 1, 0);
		check_dropped(f, HARNESS_LAN, &in, SY_DROP_NAT_STRAY);
		stray.proto = sy_addr_is_v4(&stray.src) ? SY_PROTO_ICMP : SY_PROTO_ICMPV6;
		frame_icmp(&in, &f->rng, &stray, sy_addr_is_v4(&stray.src) ? 8 : 128, 0, 20);
		check_dropped(f, HARNESS_LAN, &in, SY_DROP_UNKNOWN_DESTINATION);
		struct service_key key = key_of(s);
		delete_service(&c, &key);
	}
	flows_commit(f, &c);
	for (unsigned s = 0; s < SERVICES; s++) {
		struct talk k = talk_of(s, 1000);
		k.back = (struct sy_tuple){harness_addr(server_text[s / 2][0]), k.client.src,
		                           htons(server_port(s)), htons(1000), k.client.proto};
		flows_frame(f, &in, &k.back, SY_TCP_ACK, 1, 0);
		check_dropped(f, HARNESS_LAN, &in, SY_DROP_UNKNOWN_DESTINATION);
	}
	assert_int_equal(rte_hash_count(inspect_model(f->harness.b)->source), 0);
}

/* Two services on one server: from one port a client can use only one of them. */
static void test_clash(void **state)
{
	struct flows *f = *state;
	struct frame in;
	for (unsigned s = 0; s < SERVICES; s++) {
		struct changes c = {0};
		struct service_key one = key_of(s), two = key_of(s);
		struct sy_addr server = harness_addr(server_text[s / 2][1]);
		two.vip.b[15] = (uint8_t)(two.vip.b[15] + 1);
		delete_server(&c, &one, &server, server_port(s));
		server = harness_addr(server_text[s / 2][0]);
		put_service(&c, &two, "the same server", FLOW_RR, NULL);
		set_mode(&c, MODE_NAT);
		put_server(&c, &two, &server, server_port(s), 1, FLOW_UP);
		flows_commit(f, &c);

		struct talk k = talk_open(f, s, 1000), other = k;
		other.client.dst = two.vip;
		flows_frame(f, &in, &other.client, SY_TCP_SYN, 1, 0);
		check_dropped(f, HARNESS_WAN, &in, SY_DROP_NAT_CLASH);
		to_client(f, &k, SY_TCP_ACK);
		other.client.sport = htons(1001);
		to_server(f, &other, SY_TCP_SYN);
		to_client(f, &other, SY_TCP_SYN | SY_TCP_ACK);

		/* one service is deleted, the other keeps the server */
		delete_service(&c, &one);
		flows_commit(f, &c);
		to_client(f, &other, SY_TCP_ACK);
	}
}

/* A refused transaction leaves no trace. */
static void test_rollback(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = key_of(0);
	struct sy_addr server = harness_addr("10.3.0.3"), known = harness_addr(server_text[0][0]);
	int before = rte_hash_count(inspect_model(f->harness.b)->source);
	assert_int_equal(before, 2 * SERVICES);
	put_server(&c, &key, &server, 8080, 1, FLOW_UP);
	delete_server(&c, &key, &known, 8080);
	put_server(&c, &key, &key.vip, 8080, 1, FLOW_UP);
	assert_false(harness_commit(&f->harness, &c));
	assert_int_equal(rte_hash_count(inspect_model(f->harness.b)->source), before);
	struct talk k[2] = {talk_open(f, 0, 1000), talk_open(f, 0, 1001)};
	assert_false(sy_addr_equal(&k[0].back.src, &k[1].back.src));
	server = harness_addr("2001:db8:d::3");
	put_server(&c, &key, &server, 8080, 1, FLOW_UP);
	assert_false(harness_commit(&f->harness, &c));
	assert_non_null(strstr(f->harness.error, "same address family"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(a_connection), TEST(restart), TEST(strays), TEST(clash), TEST(rollback),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
