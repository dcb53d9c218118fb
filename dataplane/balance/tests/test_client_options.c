// SPDX-License-Identifier: Apache-2.0
/* Clients that send TOA and UOA options of their own, in each mode, with each pair of families, in
 * each segment of a connection: no server gets one, unless its service keeps them. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

#define SYN      SY_TCP_SYN
#define ACK      SY_TCP_ACK
#define C_NUMBER 5000u
#define S_NUMBER 9000u
#define TOA      STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_TOA
#define V2       STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V2
#define FORGED   6, 6, 6, 6 /* the address that clients pretend to have */

static const struct kind {
	const char *vip, *server;
	enum mode mode;
	int how; /* client address */
	bool defended, keeps;
} kinds[] = {
        {"192.0.2.60", "10.0.0.21", MODE_FNAT, 0, false, false},
        {"2001:db8:a::60", "2001:db8:b::22", MODE_FNAT, 0, false, false},
        {"2001:db8:a::61", "10.0.0.23", MODE_FNAT, 0, false, false},
        {"192.0.2.61", "2001:db8:b::24", MODE_FNAT, 0, false, false},
        {"192.0.2.62", "10.0.0.25", MODE_NAT, 0, false, false},
        {"192.0.2.63", "10.3.0.1", MODE_DR, 0, false, false},
        {"2001:db8:a::63", "2001:db8:d::1", MODE_DR, 0, false, false},
        {"192.0.2.64", "10.0.0.91", MODE_IPIP, 0, false, false},
        {"192.0.2.65", "2001:db8:b::91", MODE_IPIP, 0, false, false},
        {"2001:db8:a::66", "2001:db8:b::92", MODE_IPIP, 0, false, false},
        {"192.0.2.67", "10.0.0.31", MODE_FNAT, TOA, false, false},
        {"2001:db8:a::67", "2001:db8:b::32", MODE_FNAT, TOA, false, false},
        {"192.0.2.68", "10.0.0.33", MODE_FNAT, V2, false, false},
        {"192.0.2.70", "10.0.0.34", MODE_FNAT, 0, true, false},
        {"2001:db8:a::70", "2001:db8:b::35", MODE_FNAT, 0, true, false},
        {"2001:db8:a::71", "10.0.0.36", MODE_FNAT, 0, true, false},
        {"192.0.2.72", "10.0.0.37", MODE_NAT, 0, true, false},
        {"192.0.2.73", "10.0.0.38", MODE_FNAT, TOA, true, false},
        {"192.0.2.80", "10.0.0.39", MODE_FNAT, 0, false, true},
        {"192.0.2.81", "10.0.0.40", MODE_NAT, 0, false, true},
        {"192.0.2.82", "10.3.0.1", MODE_DR, 0, false, true},
        {"192.0.2.83", "10.0.0.93", MODE_IPIP, 0, false, true},
        {"192.0.2.84", "10.0.0.43", MODE_FNAT, 0, true, true},
};

/* What clients send after the fixed header: alone, at an odd offset, after timestamps, two kinds,
 * with an odd length, and with an IPv6 address. */
static const struct options {
	unsigned len, forged; /* bytes; options that pretend to be a balancer's */
	uint8_t bytes[40];
} options[] = {
        {8, 1, {254, 8, 4, 210, FORGED}},
        {8, 1, {200, 8, 4, 210, FORGED}},
        {12, 1, {1, 254, 8, 4, 210, FORGED, 1, 1, 1}},
        {20, 1, {1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 254, 8, 4, 210, FORGED}},
        {20, 2, {200, 8, 4, 210, FORGED, 4, 2, 1, 254, 8, 4, 210, FORGED, 0}},
        {12, 1, {254, 9, 4, 210, FORGED, 7, 1, 1, 1}},
        {12, 1, {1, 1, 1, 254, 8, 4, 210, FORGED, 0}},
        {20, 1, {254, 20, 4, 210, 32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, FORGED}},
        {20, 1, {253, 20, 4, 210, 32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, FORGED}},
        {40, 3, {254, 8,   4,      210, FORGED, 254, 8,  4, 210, FORGED, 2, 4,   5, 180, 200, 8,
                 4,   210, FORGED, 1,   1,      8,   10, 0, 0,   0,      1, 200, 4, 6,   6}},
};

struct talk {
	struct flows *f;
	const struct kind *kind;
	struct sy_tuple client, server; /* of packets as they arrive */
};

static int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	for (unsigned i = 0; i < 2 * SY_ARRAY_LEN(kinds); i++) {
		const struct kind *k = &kinds[i / 2];
		const bool direct = k->mode == MODE_DR || k->mode == MODE_IPIP, udp = i % 2;
		const struct service_key key =
		        harness_key(k->vip, 80, udp ? SY_PROTO_UDP : SY_PROTO_TCP);
		const struct sy_addr server = harness_addr(k->server);
		pb_service *s = put_service(&c, &key, k->vip, FLOW_RR, NULL);
		if (k->defended && !udp)
			s->syn_defence = STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_ALWAYS;
		if (!udp)
			s->client_address = (Steelyard__Forwarder__V1__ClientAddress)k->how;
		s->keep_client_options = k->keeps;
		set_mode(&c, k->mode);
		put_server(&c, &key, &server, direct ? 80 : 8080, 1, FLOW_UP);
	}
	flows_commit(*state, &c);
	return rc;
}

/* The next packet that leaves a port, without a tunnel's header; false: there is none. */
static bool collect(struct talk *k, unsigned port, struct frame *out, struct sy_view *v)
{
	struct rte_mbuf *m = harness_collect(&k->f->harness, port);
	if (!m)
		return false;
	out->len = rte_pktmbuf_data_len(m);
	memcpy(out->bytes, rte_pktmbuf_mtod(m, void *), out->len);
	rte_pktmbuf_free(m);
	if (k->kind->mode == MODE_IPIP) {
		const bool outer4 = out->bytes[12] == 0x08;
		const unsigned outer = outer4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
		memmove(out->bytes + SY_ETH_LEN, out->bytes + SY_ETH_LEN + outer,
		        out->len - SY_ETH_LEN - outer);
		out->len = (uint16_t)(out->len - outer);
		const bool inner4 = out->bytes[SY_ETH_LEN] >> 4 == 4;
		memcpy(out->bytes + 12, inner4 ? "\x08\x00" : "\x86\xdd", 2);
	}
	assert_int_equal(sy_packet_parse(out->bytes, out->len, v), SY_DROP_NONE);
	assert_int_equal(sy_packet_check_l4(out->bytes, v), SY_CSUM_OK);
	return true;
}

/* How many options of a segment pretend to be from a balancer: in any byte, as a careless parser
 * might find them. */
static unsigned count_forged(const struct frame *out, const struct sy_view *v)
{
	static const uint8_t address[] = {FORGED};
	const struct sy_tcp *tcp = sy_packet_tcp(out->bytes, v);
	const uint8_t *at = (const uint8_t *)tcp;
	unsigned count = 0;
	for (unsigned n = sizeof(*tcp); n + sizeof(address) <= (tcp->offset >> 4) * 4u; n++)
		count += memcmp(at + n, address, sizeof(address)) == 0;
	return count;
}

/* Sends a client's segment with these options and data. */
static void send_client(struct talk *k, uint8_t flags, uint32_t seq, uint32_t ack,
                        const struct options *o, unsigned payload)
{
	const struct segment s = {flags, seq, ack, 0};
	struct frame in;
	struct sy_view v;
	frame_tcp(&in, &k->f->rng, &k->client, &s, o->len + payload);
	assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
	in.bytes[v.l4 + 12] = (uint8_t)((5 + o->len / 4) << 4);
	memcpy(in.bytes + v.l4 + sizeof(struct sy_tcp), o->bytes, o->len);
	frame_fix_l4(&in);
	assert_true(harness_inject(&k->f->harness, HARNESS_WAN, in.bytes, in.len));
	harness_poll(&k->f->harness);
}

/* All that has left for the server: at least one packet, with these forged options. Returns the
 * first one's sequence number; *tuple: its tuple. */
static uint32_t check_server(struct talk *k, unsigned forged, struct sy_tuple *tuple)
{
	struct frame out;
	struct sy_view v;
	unsigned count = 0;
	uint32_t seq = 0;
	while (collect(k, HARNESS_LAN, &out, &v)) {
		if (!count++)
			seq = ntohl(sy_packet_tcp(out.bytes, &v)->seq);
		if (tuple)
			*tuple = v.tuple;
		const unsigned got = count_forged(&out, &v);
		if (got != forged)
			fail_msg("%s (mode %u): a server got %u forged options, not %u",
			         k->kind->vip, k->kind->mode, got, forged);
	}
	assert_int_not_equal(count, 0);
	return seq;
}

static void send_server(struct talk *k, uint8_t flags, uint32_t seq, uint32_t ack, unsigned payload)
{
	const struct segment s = {flags, seq, ack, flags & SYN ? 1460 : 0};
	struct frame in;
	frame_tcp(&in, &k->f->rng, &k->server, &s, payload);
	assert_true(harness_inject(&k->f->harness, HARNESS_LAN, in.bytes, in.len));
	harness_poll(&k->f->harness);
}

/* A connection whose client sends these options in each segment. */
static void converse(struct flows *f, const struct kind *kind, const struct options *o,
                     uint16_t port)
{
	const struct sy_addr vip = harness_addr(kind->vip);
	const bool one_way = kind->mode == MODE_DR || kind->mode == MODE_IPIP;
	const unsigned forged = kind->keeps ? o->forged : 0;
	struct talk k = {.f = f, .kind = kind};
	struct frame out;
	struct sy_view v;
	struct sy_tuple got;
	uint32_t ack = S_NUMBER + 1;

	k.client = (struct sy_tuple){
	        harness_addr(sy_addr_is_v4(&vip) ? "198.18.0.1" : "2001:db8:c::1"), vip,
	        htons(port), htons(80), SY_PROTO_TCP};
	send_client(&k, SYN, C_NUMBER, 0, o, 0);
	if (kind->defended) {
		assert_true(collect(&k, HARNESS_WAN, &out, &v));
		ack = ntohl(sy_packet_tcp(out.bytes, &v)->seq) + 1;
		send_client(&k, ACK, C_NUMBER + 1, ack, o, 0);
	}
	/* The balancer opens a defended connection itself, with options of its own. */
	const uint32_t seq = check_server(&k, kind->defended ? 0 : forged, &got);
	k.server = (struct sy_tuple){got.dst, got.src, got.dport, got.sport, SY_PROTO_TCP};
	if (!one_way)
		send_server(&k, SYN | ACK, S_NUMBER, seq + 1, 0);
	while (collect(&k, HARNESS_WAN, &out, &v))
		;
	while (kind->defended && collect(&k, HARNESS_LAN, &out, &v))
		;
	send_client(&k, ACK, C_NUMBER + 1, ack, o, 0);
	check_server(&k, forged, NULL);
	send_client(&k, ACK | SY_TCP_PSH, C_NUMBER + 1, ack, o, 100);
	check_server(&k, forged, NULL);
	if (!one_way) { /* it has all that was sent, and the client's address */
		send_server(&k, ACK, S_NUMBER + 1,
		            seq + 101 + (kind->how == V2 ? (sy_addr_is_v4(&vip) ? 28 : 52) : 0),
		            10);
		while (collect(&k, HARNESS_WAN, &out, &v))
			;
	}
	assert_int_equal(flows_find(f, &k.client)->state, SESSION_ESTABLISHED);
	send_client(&k, ACK, C_NUMBER + 101, ack, o, 300);
	check_server(&k, forged, NULL);
	send_client(&k, ACK | SY_TCP_FIN, C_NUMBER + 401, ack, o, 0);
	check_server(&k, forged, NULL);
}

static void test_each_segment(void **state)
{
	struct flows *f = *state;
	uint16_t port = 2000;
	for (unsigned workers = 1; workers <= 2; workers++) {
		if (workers == 2) { /* each with its own queues: see remote.c */
			f->options.queues = 2;
			flows_reopen(f, 2, 0, true);
		}
		for (unsigned n = 0; n < SY_ARRAY_LEN(kinds); n++)
			for (unsigned o = 0; o < SY_ARRAY_LEN(options); o++)
				converse(f, &kinds[n], &options[o], port++);
	}
	assert_int_not_equal(f->harness.rt->worker[0].counters.remote +
	                             f->harness.rt->worker[1].counters.remote,
	                     0);
}

/* Datagrams whose IPv4 header has DPVS's option, and TCP segments with it. */
static void test_address_in_ip(void **state)
{
	static const uint8_t uoa[12] = {1, 31, 8, 4, 210, FORGED, 0, 0, 0}; /* at an odd offset */
	struct flows *f = *state;
	for (unsigned i = 0; i < 2 * SY_ARRAY_LEN(kinds); i++) {
		const struct kind *kind = &kinds[i / 2];
		const struct sy_addr vip = harness_addr(kind->vip);
		const uint8_t proto = i % 2 ? SY_PROTO_UDP : SY_PROTO_TCP;
		struct talk k = {.f = f, .kind = kind};
		struct frame in, out;
		struct sy_view v;
		if (!sy_addr_is_v4(&vip) || (kind->defended && proto == SY_PROTO_TCP))
			continue;
		k.client = (struct sy_tuple){harness_addr("198.18.0.1"), vip,
		                             htons((uint16_t)(1000 + i)), htons(80), proto};
		flows_frame(f, &in, &k.client, SYN, C_NUMBER, 60);
		const unsigned l4 = SY_ETH_LEN + sizeof(struct sy_ipv4);
		memmove(in.bytes + l4 + sizeof(uoa), in.bytes + l4, in.len - l4);
		memcpy(in.bytes + l4, uoa, sizeof(uoa));
		in.len = (uint16_t)(in.len + sizeof(uoa));
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(in.bytes + SY_ETH_LEN);
		ip->version_ihl = (uint8_t)(0x45 + sizeof(uoa) / 4);
		ip->total_length = htons((uint16_t)(in.len - SY_ETH_LEN));
		ip->checksum = 0;
		ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip) + sizeof(uoa)));
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
		harness_poll(&f->harness);
		assert_true(collect(&k, HARNESS_LAN, &out, &v)); /* its IP checksum is right */
		if (v.v4)
			assert_int_equal(out.bytes[v.l3 + sizeof(struct sy_ipv4) + 1] == 31,
			                 kind->keeps);
	}
}

/* A service cannot report addresses by the option and keep those of clients. */
static void test_contradiction(void **state)
{
	struct changes c = {0};
	const struct service_key key = harness_key("192.0.2.67", 80, SY_PROTO_TCP);
	pb_service *s = put_service(&c, &key, "both", FLOW_RR, NULL);
	s->client_address = TOA;
	s->keep_client_options = true;
	flows_check_refused(*state, &c, "client_options");
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(each_segment),
	        TEST(address_in_ip),
	        TEST(contradiction),
	};
	return cmocka_run_group_tests_name("client options", tests, NULL, NULL);
}
