// SPDX-License-Identifier: Apache-2.0
/* Shared by tests of the SYN defence: a client and a server on both sides of the balancer, segment
 * by segment, and services of all kinds that are defended. */
#ifndef DEFENCE_FIXTURE_H
#define DEFENCE_FIXTURE_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <sy_tcp_segment.h>

#include "flows.h"
#include "session_splice.h"

#define SYN      SY_TCP_SYN
#define ACK      SY_TCP_ACK
#define RST      SY_TCP_RST
#define FIN      SY_TCP_FIN
#define C_NUMBER 0xfffffff5u
#define S_NUMBER 0xfffffffau
#define C_TIME   1000u
#define S_TIME   0x80000000u

/* A segment that left the balancer. */
struct got {
	struct frame frame;
	struct sy_view v;
	struct sy_tcp tcp;
	struct sy_tcp_options o;
	unsigned payload;
};

/* One connection. */
struct talk {
	struct flows *f;
	struct sy_tuple client, server; /* of packets as they arrive */
	uint32_t cookie, echo;          /* number and time of the balancer's SYN-ACK */
	bool times;
	bool damaged; /* what is sent has a wrong checksum */
};

struct kind {
	const char *name, *vip, *server;
	enum mode mode;
	int how; /* client address */
	bool times;
};

#define REPORTED_TOA STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_TOA
#define REPORTED_V2  STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V2

static const struct kind kinds[] = {
        {"v4", "192.0.2.20", "10.0.0.21", MODE_FNAT, 0, true},
        {"v6", "2001:db8:a::20", "2001:db8:b::21", MODE_FNAT, 0, true},
        {"v6 to v4", "2001:db8:a::21", "10.0.0.22", MODE_FNAT, 0, true},
        {"v4 to v6", "192.0.2.21", "2001:db8:b::22", MODE_FNAT, 0, false},
        {"nat", "192.0.2.22", "10.0.0.23", MODE_NAT, 0, true},
        {"plain options", "192.0.2.23", "10.0.0.24", MODE_FNAT, 0, false},
        {"toa", "192.0.2.24", "10.0.0.25", MODE_FNAT, REPORTED_TOA, true},
        {"proxy", "2001:db8:a::24", "2001:db8:b::25", MODE_FNAT, REPORTED_V2, true},
};

static inline struct service_key key_of(const struct kind *k)
{
	return harness_key(k->vip, 80, SY_PROTO_TCP);
}

#define DEFENDED     STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_ALWAYS
#define NOT_DEFENDED STEELYARD__FORWARDER__V1__SYN_DEFENCE__SYN_DEFENCE_OFF

static inline void put_kind(struct changes *c, const struct kind *kind, int defence)
{
	const struct service_key key = key_of(kind);
	pb_service *s = put_service(c, &key, kind->name, FLOW_RR, NULL);
	s->syn_defence = (Steelyard__Forwarder__V1__SynDefence)defence;
	s->client_address = (Steelyard__Forwarder__V1__ClientAddress)kind->how;
	set_mode(c, kind->mode);
}

static inline void put_kind_server(struct changes *c, const struct kind *kind)
{
	const struct service_key key = key_of(kind);
	const struct sy_addr server = harness_addr(kind->server);
	put_server(c, &key, &server, 8080, 1, FLOW_UP);
}

static inline int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	struct flows *f = *state;
	for (unsigned i = 0; rc == 0 && i < SY_ARRAY_LEN(kinds); i++) {
		put_kind(&c, &kinds[i], DEFENDED);
		put_kind_server(&c, &kinds[i]);
	}
	flows_commit(f, &c);
	return rc;
}

/* ---- segments -------------------------------------------------------------------------------- */

static const uint8_t peer_mac[6] = {2, 0, 0, 0, 9, 9};

/* Puts a segment into a port's queue. */
static inline void inject_segment(struct talk *k, unsigned port, const struct sy_tuple *t,
                                  const struct sy_tcp_segment *s, unsigned payload)
{
	struct frame in = {.len = 0};
	struct sy_view v;
	memcpy(in.bytes, harness_mac[HARNESS_WAN], 6);
	memcpy(in.bytes + 6, peer_mac, 6);
	in.len = (uint16_t)sy_tcp_segment_make(in.bytes, sizeof(in.bytes), t, s);
	if (payload) {
		assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
		if (v.v4)
			((struct sy_ipv4 *)(in.bytes + v.l3))->total_length =
			        htons((uint16_t)(in.len - SY_ETH_LEN + payload));
		else
			((struct sy_ipv6 *)(in.bytes + v.l3))->payload_length =
			        htons((uint16_t)(v.l4_len + payload));
		for (unsigned n = 0; n < payload; n++)
			in.bytes[in.len + n] = (uint8_t)(s->seq + n);
		in.len = (uint16_t)(in.len + payload);
	}
	frame_fix_ip(&in);
	frame_fix_l4(&in);
	if (k->damaged) {
		assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
		in.bytes[v.l4 + offsetof(struct sy_tcp, checksum)] ^= 1;
	}
	assert_true(harness_inject(&k->f->harness, port, in.bytes, in.len));
}

static inline void put_segment(struct talk *k, unsigned port, const struct sy_tuple *t,
                               const struct sy_tcp_segment *s, unsigned payload)
{
	inject_segment(k, port, t, s, payload);
	harness_poll(&k->f->harness);
}

static inline void from_client(struct talk *k, uint8_t flags, uint32_t seq, uint32_t ack,
                               unsigned payload)
{
	const struct sy_tcp_segment s = {.seq = seq,
	                                 .ack = ack,
	                                 .flags = flags,
	                                 .window = 1000,
	                                 .options = {.mss = 1460,
	                                             .scale = 9,
	                                             .sack = true,
	                                             .timestamps = k->times,
	                                             .time = C_TIME,
	                                             .echo = k->echo}};
	put_segment(k, HARNESS_WAN, &k->client, &s, payload);
}

static inline struct sy_tcp_segment server_segment(const struct talk *k, uint8_t flags,
                                                   uint32_t seq, uint32_t ack, uint8_t scale)
{
	return (struct sy_tcp_segment){.seq = seq,
	                               .ack = ack,
	                               .flags = flags,
	                               .window = 500,
	                               .options = {.mss = 1460,
	                                           .scale = scale,
	                                           .sack = true,
	                                           .timestamps = k->times,
	                                           .time = S_TIME,
	                                           .echo = C_TIME}};
}

static inline void from_server(struct talk *k, uint8_t flags, uint32_t seq, uint32_t ack,
                               uint8_t scale, unsigned payload)
{
	const struct sy_tcp_segment s = server_segment(k, flags, seq, ack, scale);
	put_segment(k, HARNESS_LAN, &k->server, &s, payload);
}

static inline bool collect(struct talk *k, unsigned port, struct got *g)
{
	struct rte_mbuf *m = harness_collect(&k->f->harness, port);
	if (!m)
		return false;
	memset(g, 0, sizeof(*g));
	g->frame.len = rte_pktmbuf_data_len(m);
	memcpy(g->frame.bytes, rte_pktmbuf_mtod(m, void *), g->frame.len);
	rte_pktmbuf_free(m);
	assert_int_equal(sy_packet_parse(g->frame.bytes, g->frame.len, &g->v), SY_DROP_NONE);
	assert_int_equal(sy_packet_check_l4(g->frame.bytes, &g->v), SY_CSUM_OK);
	g->tcp = *sy_packet_tcp(g->frame.bytes, &g->v);
	g->payload = g->v.l4_len - (g->tcp.offset >> 4) * 4u;
	sy_tcp_options_read(g->frame.bytes, &g->v, &g->o);
	return true;
}

static inline void check_got(struct talk *k, unsigned port, struct got *g, uint8_t flags,
                             uint32_t seq, uint32_t ack, unsigned payload)
{
	assert_true(collect(k, port, g));
	assert_int_equal(g->tcp.flags & ~SY_TCP_PSH, flags);
	assert_int_equal(ntohl(g->tcp.seq), seq);
	if (flags & ACK)
		assert_int_equal(ntohl(g->tcp.ack), ack);
	assert_int_equal(g->payload, payload);
}

/* Drops what has left. */
static inline void ignore_sent(struct talk *k)
{
	struct got g;
	while (collect(k, HARNESS_WAN, &g) || collect(k, HARNESS_LAN, &g))
		;
}

static inline void check_silent(struct talk *k)
{
	struct got g;
	assert_false(collect(k, HARNESS_WAN, &g));
	assert_false(collect(k, HARNESS_LAN, &g));
}

static inline uint64_t live(struct talk *k)
{
	return harness_totals(&k->f->harness).live;
}

static inline enum session_state state_of(struct talk *k)
{
	const struct session *s = flows_find(k->f, &k->client);
	return s ? (enum session_state)s->state : SESSION_FREE;
}

/* ---- handshakes ------------------------------------------------------------------------------ */

static inline void talk_syn(struct flows *f, struct talk *k, const struct kind *kind, uint16_t port)
{
	const struct service_key key = key_of(kind);
	bool v4 = sy_addr_is_v4(&key.vip);
	uint64_t before;
	struct got g;
	*k = (struct talk){.f = f,
	                   .client = {harness_addr(v4 ? "198.18.0.1" : "2001:db8:c::1"), key.vip,
	                              htons(port), htons(80), SY_PROTO_TCP},
	                   .times = kind->times};
	before = live(k);
	from_client(k, SYN, C_NUMBER, 0, 0);
	assert_true(live(k) <= before); /* less: it ends a session in TIME_WAIT */
	assert_true(collect(k, HARNESS_WAN, &g));
	assert_int_equal(g.tcp.flags, SYN | ACK);
	assert_int_equal(ntohl(g.tcp.ack), C_NUMBER + 1);
	assert_memory_equal(g.frame.bytes, peer_mac, 6);
	assert_true(sy_addr_equal(&g.v.tuple.dst, &k->client.src));
	assert_int_equal(g.v.tuple.dport, k->client.sport);
	assert_true(g.o.mss >= 1220 && g.o.mss <= 1460);
	assert_int_equal(g.o.scale, 7);
	assert_true(g.o.sack);
	assert_int_equal(g.o.timestamps, k->times);
	if (k->times)
		assert_int_equal(g.o.echo, C_TIME);
	k->cookie = ntohl(g.tcp.seq);
	k->echo = g.o.time;
	check_silent(k);
}

/* The client's ACK, with this much data, opens the server's connection. */
static inline void talk_ack(struct talk *k, unsigned payload)
{
	struct got g;
	from_client(k, ACK, C_NUMBER + 1, k->cookie + 1, payload);
	assert_int_equal(state_of(k), SESSION_OPENING);
	check_got(k, HARNESS_LAN, &g, SYN, C_NUMBER, 0, 0);
	assert_int_equal(g.o.scale, k->times ? 9 : 8);
	assert_true(g.o.sack && g.o.mss >= 1220);
	assert_int_equal(g.o.timestamps, k->times);
	if (k->times)
		assert_int_equal(g.o.time, C_TIME);
	assert_int_equal(ntohs(g.tcp.window), 65535);
	k->server = (struct sy_tuple){g.v.tuple.dst, g.v.tuple.src, g.v.tuple.dport,
	                              g.v.tuple.sport, SY_PROTO_TCP};
	check_silent(k);
}

/* The server's answer: the client's ACK reaches it, then the queued data. inserted: bytes of a
 * PROXY header. */
static inline void talk_splice(struct talk *k, uint8_t scale)
{
	struct got g;
	from_server(k, SYN | ACK, S_NUMBER, C_NUMBER + 1, scale, 0);
	assert_true(collect(k, HARNESS_LAN, &g));
	assert_int_equal(g.tcp.flags & ~SY_TCP_PSH, ACK);
	assert_int_equal(ntohl(g.tcp.seq), C_NUMBER + 1);
	assert_int_equal(ntohl(g.tcp.ack), S_NUMBER + 1);
	if (k->times) {
		assert_int_equal(g.o.echo, S_TIME);
		assert_int_equal(g.o.time, C_TIME);
	}
	assert_int_not_equal(state_of(k), SESSION_OPENING);
}

static inline void talk_open(struct flows *f, struct talk *k, const struct kind *kind,
                             uint16_t port)
{
	talk_syn(f, k, kind, port);
	talk_ack(k, 0);
	talk_splice(k, 7);
	check_silent(k);
}

/* Data both ways, numbers and timestamps converted. shift: bytes inserted. */
static inline void check_data(struct talk *k, uint32_t shift)
{
	struct got g;
	from_client(k, ACK, C_NUMBER + 1, k->cookie + 1, 100);
	check_got(k, HARNESS_LAN, &g, ACK, C_NUMBER + 1 + shift, S_NUMBER + 1, 100);
	if (k->times)
		assert_int_equal(g.o.echo, S_TIME);
	assert_int_equal(ntohs(g.tcp.window), 1000);
	from_server(k, ACK, S_NUMBER + 1, C_NUMBER + 101 + shift, 0, 200);
	check_got(k, HARNESS_WAN, &g, ACK, k->cookie + 1, C_NUMBER + 101, 200);
	if (k->times)
		assert_int_equal(g.o.time, k->echo);
	check_silent(k);
}

#endif
