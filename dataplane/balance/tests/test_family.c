// SPDX-License-Identifier: Apache-2.0
/* FNAT from clients of one family to servers of the other. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

#define SERVICES  4 /* TCP and UDP for IPv6 clients, then for IPv4 clients */
#define TICKET    0x1234
#define DIFFERENT 20 /* bytes by which the IPv6 header is longer */

static const char *const client_text[2] = {"2001:db8:c::1", "198.18.0.1"};
static const char *const vip_text[2] = {"2001:db8:a::60", "192.0.2.60"};
static const char *const server_text[2] = {"10.0.0.61", "2001:db8:b::61"};

static bool client_is_v4(unsigned service)
{
	return service / 2;
}

static struct service_key key_of(unsigned service)
{
	return harness_key(vip_text[service / 2], service % 2 ? 53 : 80,
	                   service % 2 ? SY_PROTO_UDP : SY_PROTO_TCP);
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
		flows_put(&c, &key, "families", MODE_FNAT, &server_text[s / 2], 1, server_port(s));
	}
	flows_commit(*state, &c);
	return rc;
}

/* A client's connection or datagrams, as both sides see them. */
struct talk {
	unsigned service;
	struct sy_tuple client, back; /* tuples of arriving packets: client → VIP, server → local */
};

/* Checks that the packet has the other family and is otherwise unchanged. */
static void check_turned(const struct frame *in, const struct frame *out, struct sy_view *after)
{
	struct sy_view before;
	assert_int_equal(sy_packet_parse(in->bytes, in->len, &before), SY_DROP_NONE);
	assert_int_equal(sy_packet_parse(out->bytes, out->len, after), SY_DROP_NONE);
	assert_int_equal(after->v4, !before.v4);
	assert_int_equal(after->frame_len, before.frame_len + (before.v4 ? DIFFERENT : -DIFFERENT));
	assert_int_equal(out->len, after->frame_len);
	assert_int_equal(sy_packet_check_l4(out->bytes, after), SY_CSUM_OK);
	assert_int_equal(sy_packet_ttl(out->bytes, after), sy_packet_ttl(in->bytes, &before) - 1);
	/* after the checksums, and after a SYN's options */
	unsigned same = before.l4_len - (before.proto == SY_PROTO_TCP ? 24u : 8u);
	if (before.l4_len > 24)
		assert_memory_equal(out->bytes + out->len - same, in->bytes + in->len - same, same);
}

static void pass(struct flows *f, unsigned port, const struct sy_tuple *t, uint8_t flags,
                 unsigned payload, struct sy_view *after)
{
	struct frame in, out;
	flows_frame(f, &in, t, flags, 1, payload);
	assert_true(flows_through(f, port, &in, &out));
	check_turned(&in, &out, after);
}

static void to_server(struct flows *f, struct talk *k, uint8_t flags, unsigned payload)
{
	struct sy_view v;
	pass(f, HARNESS_WAN, &k->client, flags, payload, &v);
	assert_int_equal(v.v4, !client_is_v4(k->service));
	assert_true(sy_addr_equal(&v.tuple.src, &f->local[client_is_v4(k->service)]));
	assert_int_equal(ntohs(v.tuple.dport), server_port(k->service));
	k->back = (struct sy_tuple){v.tuple.dst, v.tuple.src, v.tuple.dport, v.tuple.sport,
	                            v.tuple.proto};
}

static void to_client(struct flows *f, const struct talk *k, uint8_t flags, unsigned payload)
{
	struct sy_view v;
	pass(f, HARNESS_LAN, &k->back, flags, payload, &v);
	assert_true(sy_addr_equal(&v.tuple.src, &k->client.dst));
	assert_true(sy_addr_equal(&v.tuple.dst, &k->client.src));
	assert_int_equal(v.tuple.sport, k->client.dport);
	assert_int_equal(v.tuple.dport, k->client.sport);
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
	to_server(f, &k, SY_TCP_SYN, 30);
	to_client(f, &k, SY_TCP_SYN | SY_TCP_ACK, 30);
	to_server(f, &k, SY_TCP_ACK, 30);
	return k;
}

static void test_a_connection(void **state)
{
	struct flows *f = *state;
	for (unsigned cycle = 0; cycle < 2 * SERVICES; cycle++) {
		if (cycle == SERVICES)
			flows_reopen(f, 2, 0, true); /* and packets go to other workers */
		struct talk k = talk_open(f, cycle % SERVICES, (uint16_t)(1000 + cycle));
		for (unsigned n = 1; n < 20; n++) {
			to_server(f, &k, SY_TCP_ACK, 65 * n);
			to_client(f, &k, SY_TCP_ACK | SY_TCP_PSH, 65 * n);
		}
		bool udp = k.client.proto == SY_PROTO_UDP;
		assert_int_equal(flows_find(f, &k.client)->state,
		                 udp ? SESSION_UDP_BOTH_WAYS : SESSION_ESTABLISHED);
		if (udp)
			continue;
		to_server(f, &k, SY_TCP_ACK | SY_TCP_FIN, 0);
		to_client(f, &k, SY_TCP_ACK | SY_TCP_FIN, 0);
		assert_int_equal(flows_find(f, &k.client)->state, SESSION_CLOSING);
	}
}

/* Sessions continue unchanged, however the process ended. */
static void test_restart(void **state)
{
	enum { CONNECTIONS = 40 };
	struct flows *f = *state;
	struct talk k[CONNECTIONS];
	for (unsigned i = 0; i < CONNECTIONS; i++)
		k[i] = talk_open(f, i % SERVICES, (uint16_t)(2000 + i));
	for (unsigned cycle = 0; cycle < 6; cycle++) {
		flows_advance(f, 2);
		flows_reopen(f, 1 + cycle % 2, cycle % 3 == 2 ? TICKET : 0, cycle % 3 == 0);
		assert_int_equal(flows_result(f, SESSION_KEPT), CONNECTIONS);
		for (unsigned i = 0; i < CONNECTIONS; i++) {
			struct talk before = k[i];
			to_client(f, &k[i], SY_TCP_ACK, 50);
			to_server(f, &k[i], SY_TCP_ACK, 50);
			assert_memory_equal(&before, &k[i], sizeof(before));
		}
	}
}

static void check_too_big(struct flows *f, unsigned port, const struct frame *in, unsigned mtu)
{
	struct sy_view v;
	assert_true(harness_inject(&f->harness, port, in->bytes, in->len));
	harness_poll(&f->harness);
	assert_null(harness_collect(&f->harness, 1 - port));
	struct rte_mbuf *m = harness_collect(&f->harness, port);
	assert_non_null(m);
	const uint8_t *error = rte_pktmbuf_mtod(m, const uint8_t *);
	assert_int_equal(sy_packet_parse(error, m->data_len, &v), SY_DROP_NONE);
	const struct sy_icmp *icmp = (const void *)(error + v.l4);
	assert_int_equal(icmp->type, v.v4 ? 3 : 2);
	assert_int_equal(ntohl(icmp->rest) & 0xffff, mtu);
	rte_pktmbuf_free(m);
}

/* A packet that fits after the translation passes. One byte more is reported in the sender's own
 * family. */
static void test_mtu(void **state)
{
	struct flows *f = *state;
	for (unsigned s = 0; s < SERVICES; s++) {
		struct talk k = talk_open(f, s, 1000);
		unsigned transport = s % 2 ? 8 : 20;
		for (unsigned way = 0; way < 2; way++) {
			unsigned port = way ? HARNESS_LAN : HARNESS_WAN;
			unsigned mtu = way ? HARNESS_WAN_MTU : HARNESS_LAN_MTU; /* the far side's */
			bool v4_beyond = client_is_v4(s) == way; /* the far side's family */
			unsigned fits = mtu - (v4_beyond ? 20 : 40) - transport;
			struct frame in;
			if (way)
				to_client(f, &k, SY_TCP_ACK, fits);
			else
				to_server(f, &k, SY_TCP_ACK, fits);
			flows_frame(f, &in, way ? &k.back : &k.client, SY_TCP_ACK, 1, fits + 1);
			check_too_big(f, port, &in, v4_beyond ? mtu + DIFFERENT : mtu - DIFFERENT);
		}
	}
}

static uint16_t mss_of(const struct frame *f)
{
	struct sy_view v;
	uint16_t mss;
	assert_int_equal(sy_packet_parse(f->bytes, f->len, &v), SY_DROP_NONE);
	memcpy(&mss, f->bytes + v.l4 + 22, sizeof(mss));
	return ntohs(mss);
}

/* Each side's MTU with that side's headers; here the servers' MTU is smaller. */
static void test_mss(void **state)
{
	struct flows *f = *state;
	for (unsigned s = 0; s < SERVICES; s += 2) {
		struct talk k = talk_of(s, 1000);
		unsigned mss = HARNESS_LAN_MTU - 20 - (client_is_v4(s) ? 40 : 20);
		struct frame in, out;
		flows_frame(f, &in, &k.client, SY_TCP_SYN, 1, 0);
		assert_true(flows_through(f, HARNESS_WAN, &in, &out));
		assert_int_equal(mss_of(&out), mss);
		to_server(f, &k, SY_TCP_SYN, 0);
		flows_frame(f, &in, &k.back, SY_TCP_SYN | SY_TCP_ACK, 1, 0);
		assert_true(flows_through(f, HARNESS_LAN, &in, &out));
		assert_int_equal(mss_of(&out), mss);
	}
}

/* UDP over IPv4 may omit the checksum, over IPv6 it may not. */
static void test_udp_without_checksum(void **state)
{
	struct flows *f = *state;
	for (unsigned s = 1; s < SERVICES; s += 2) {
		struct talk k = talk_open(f, s, 1000);
		for (unsigned way = 0; way < 2; way++) {
			unsigned port = way ? HARNESS_LAN : HARNESS_WAN;
			bool v4 = client_is_v4(s) != way;
			uint64_t dropped = harness_drops(&f->harness, SY_DROP_UNTRANSLATABLE);
			struct frame in, out;
			struct sy_view v;
			flows_frame(f, &in, way ? &k.back : &k.client, 0, 1, 33);
			assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
			memset(in.bytes + v.l4 + 6, 0, 2);
			assert_int_equal(flows_through(f, port, &in, &out), v4);
			if (v4)
				check_turned(&in, &out, &v);
			assert_int_equal(harness_drops(&f->harness, SY_DROP_UNTRANSLATABLE),
			                 dropped + !v4);
		}
	}
}

/* Ethernet pads short frames; the padding is not part of the packet. */
static void test_padding(void **state)
{
	struct flows *f = *state;
	struct talk k = talk_open(f, 0, 1000);
	struct frame in, out;
	struct sy_view v;
	flows_frame(f, &in, &k.back, SY_TCP_ACK, 1, 0);
	memset(in.bytes + in.len, 0xaa, 6);
	in.len += 6;
	assert_true(flows_through(f, HARNESS_LAN, &in, &out));
	assert_int_equal(sy_packet_parse(out.bytes, out.len, &v), SY_DROP_NONE);
	assert_int_equal(v.frame_len, 14 + 40 + 20);
	assert_int_equal(sy_packet_check_l4(out.bytes, &v), SY_CSUM_OK);
}

/* Each IPv4 packet that may be fragmented has another id; larger ones have DF set. */
static void test_ids(void **state)
{
	struct flows *f = *state;
	struct talk k = talk_open(f, 1, 1000);
	uint16_t last = 0;
	for (unsigned n = 0; n < 4; n++) {
		struct frame in, out;
		flows_frame(f, &in, &k.client, 0, 1, n < 3 ? 1232 : 1233);
		assert_true(flows_through(f, HARNESS_WAN, &in, &out));
		const struct sy_ipv4 *ip = (const void *)(out.bytes + SY_ETH_LEN);
		assert_int_equal(ntohs(ip->fragment), n < 3 ? 0 : 0x4000);
		assert_true(n == 0 || ip->id != last);
		last = ip->id;
	}
}

/* Servers of both families in one service, each with its share of clients and a local address of
 * its family. */
static void test_mixed(void **state)
{
	struct flows *f = *state;
	for (unsigned s = 0; s < SERVICES; s++) {
		struct changes c = {0};
		struct service_key key = key_of(s);
		struct sy_addr same = harness_addr(server_text[1 - s / 2]);
		unsigned turned = 0;
		put_server(&c, &key, &same, server_port(s), 1, FLOW_UP);
		flows_commit(f, &c);
		for (unsigned n = 0; n < 40; n++) {
			struct talk k = talk_of(s, (uint16_t)(3000 + n));
			struct frame in, out;
			struct sy_view v;
			flows_frame(f, &in, &k.client, SY_TCP_SYN, 1, 30);
			assert_true(flows_through(f, HARNESS_WAN, &in, &out));
			assert_int_equal(sy_packet_parse(out.bytes, out.len, &v), SY_DROP_NONE);
			assert_int_equal(sy_packet_check_l4(out.bytes, &v), SY_CSUM_OK);
			turned += v.v4 != client_is_v4(s);
		}
		assert_int_equal(turned, 20);
	}
}

/* One datagram per session; every answer reaches its client. */
static void test_one_packet(void **state)
{
	struct flows *f = *state;
	for (unsigned s = 1; s < SERVICES; s += 2) {
		struct changes c = {0};
		struct service_key key = key_of(s);
		put_service(&c, &key, "families", FLOW_RR, NULL)->one_packet = true;
		flows_commit(f, &c);
		for (unsigned n = 0; n < 10; n++) {
			struct talk k = talk_of(s, 1000), first;
			to_server(f, &k, 0, 30);
			if (n == 0)
				first = k;
			else
				assert_int_not_equal(k.back.dport, first.back.dport);
			to_client(f, &k, 0, 30);
		}
		assert_int_equal(harness_totals(&f->harness).live, 0);
	}
}

/* The last local address of the servers' family cannot be removed; the clients' family needs
 * none. */
static void test_local_addresses(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = key_of(0);
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		delete_service(&c, &f->service[s]);
	for (unsigned s = 2; s < SERVICES; s++) {
		struct service_key other = key_of(s);
		delete_service(&c, &other);
	}
	delete_local(&c, &f->local[1]);
	flows_commit(f, &c);
	talk_open(f, 0, 1000);
	delete_local(&c, &f->local[0]);
	flows_check_refused(f, &c, "no IPv4 local address");
	struct sy_addr six = harness_addr(server_text[1]);
	put_server(&c, &key, &six, 8080, 1, FLOW_UP);
	flows_check_refused(f, &c, "no IPv6 local address");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(a_connection),         TEST(restart),         TEST(mtu), TEST(mss),
	        TEST(udp_without_checksum), TEST(padding),         TEST(ids), TEST(mixed),
	        TEST(one_packet),           TEST(local_addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
