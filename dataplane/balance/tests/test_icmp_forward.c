// SPDX-License-Identifier: Apache-2.0
/* ICMP errors about packets of sessions: each reaches the sender of the packet and quotes the
 * packet as it was sent. */
#include "ways.h"

#define PAYLOAD 600 /* more than an IPv4 error from the balancer quotes */

static const struct way ways[] = {
        {MODE_FNAT, false, false, 60, "10.3.0.1"},
        {MODE_FNAT, true, true, 60, "2001:db8:d::1"},
        {MODE_NAT, false, false, 61, "10.3.0.1"},
        {MODE_NAT, true, true, 61, "2001:db8:d::1"},
        {MODE_DR, false, false, 62, "10.3.0.1"},
        {MODE_DR, true, true, 62, "2001:db8:d::1"},
        {MODE_IPIP, false, false, 63, "10.0.0.91"}, /* behind a router */
        {MODE_IPIP, true, true, 63, "2001:db8:b::91"},
        {MODE_IPIP, false, true, 64, "2001:db8:b::91"},
        {MODE_IPIP, true, false, 64, "10.0.0.91"},
};

static int setup(void **state)
{
	return ways_setup(state, ways, SY_ARRAY_LEN(ways));
}

static bool one_way(const struct way *way)
{
	return way->mode == MODE_DR || way->mode == MODE_IPIP;
}

/* A session with a packet in each direction: as its sender sent it (TTL decremented by one), and as
 * it was forwarded. */
struct talk {
	const struct way *way;
	struct sy_tuple client;         /* tuple of the client's packets as they arrive */
	struct frame known[2], sent[2]; /* by enum session_direction */
};

static void make(struct flows *f, struct frame *out, const struct sy_tuple *t, uint8_t flags)
{
	const struct segment s = {flags, 100000, 1, 0};
	if (t->proto == SY_PROTO_TCP)
		frame_tcp(out, &f->rng, t, &s, flags & SY_TCP_SYN ? 0 : PAYLOAD);
	else
		frame_udp(out, &f->rng, t, PAYLOAD);
}

static struct sy_tuple tuple_of(const struct frame *f)
{
	struct sy_view v;
	assert_int_equal(sy_packet_parse(f->bytes, f->len, &v), SY_DROP_NONE);
	return v.tuple;
}

static void pass(struct flows *f, struct talk *k, enum session_direction from,
                 const struct sy_tuple *t, uint8_t flags)
{
	make(f, &k->known[from], t, flags);
	assert_true(flows_through(f, from == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN,
	                          &k->known[from], &k->sent[from]));
	frame_set_ttl(&k->known[from], 63);
}

static void talk_open(struct flows *f, struct talk *k, const struct way *way, uint8_t proto,
                      uint16_t port)
{
	k->way = way;
	k->client = client_of(way, proto, port);
	struct sy_tuple back = reversed(&k->client);
	pass(f, k, SESSION_CLIENT, &k->client, SY_TCP_SYN);
	if (one_way(way)) { /* the server's answers do not pass the balancer */
		make(f, &k->known[SESSION_SERVER], &back, SY_TCP_ACK);
		k->sent[SESSION_SERVER] = k->known[SESSION_SERVER];
	} else {
		struct sy_tuple there = tuple_of(&k->sent[SESSION_CLIENT]);
		back = reversed(&there);
		pass(f, k, SESSION_SERVER, &back, SY_TCP_SYN | SY_TCP_ACK);
		pass(f, k, SESSION_CLIENT, &k->client, SY_TCP_ACK);
		pass(f, k, SESSION_SERVER, &back, SY_TCP_ACK);
	}
	pass(f, k, SESSION_CLIENT, &k->client, SY_TCP_ACK);
}

static struct session *find(struct flows *f, const struct talk *k)
{
	const struct flow flow = {.client = k->client};
	return flow_session(f, &flow);
}

/* ---- errors ---------------------------------------------------------------------------------- */

enum { UNREACHABLE, PORT, TOO_BIG, EXPIRED, PROBLEM, KINDS };
#define MTU 1300

/* By family: type and code. */
static const uint8_t kinds[KINDS][2][2] = {[UNREACHABLE] = {{3, 1}, {1, 3}},
                                           [PORT] = {{3, 3}, {1, 4}},
                                           [TOO_BIG] = {{3, 4}, {2, 0}},
                                           [EXPIRED] = {{11, 0}, {3, 0}},
                                           [PROBLEM] = {{12, 0}, {4, 0}}};

static unsigned ip_len(bool v6)
{
	return v6 ? sizeof(struct sy_ipv6) : sizeof(struct sy_ipv4);
}

/* An error from src to this packet's sender, quoting this many bytes of IP. */
static void error_make(struct flows *f, struct frame *out, const struct sy_addr *src,
                       const struct frame *about, unsigned quoted, unsigned kind, unsigned mtu)
{
	bool v6 = !sy_addr_is_v4(src);
	uint32_t rest = kind == TOO_BIG ? mtu : kind == PROBLEM ? (v6 ? 6 : 6u << 24) : 0;
	frame_error(out, &f->rng, src, kinds[kind][v6], rest, about->bytes, quoted);
}

static void check_same(const struct frame *out, const struct frame *want)
{
	assert_int_equal(out->len, want->len);
	assert_memory_equal(out->bytes + 12, want->bytes + 12, want->len - 12);
}

/* Max bytes of IP that a router quotes of a packet: its headers and 8 more, up to the TCP checksum,
 * or all that fits an IPv4 error. */
static unsigned quote_of(const struct frame *f, unsigned n, unsigned headers)
{
	const unsigned l4[] = {8, 18, 500 - headers, 1200};
	unsigned len = headers + l4[n], all = (unsigned)(f->len - SY_ETH_LEN);
	return len < all ? len : all;
}
#define QUOTES 4

/* About a packet from the client on its path to the server: the client gets it from the VIP. */
static void check_to_client(struct flows *f, struct talk *k, unsigned kind, unsigned n)
{
	const struct frame *sent = &k->sent[SESSION_CLIENT], *known = &k->known[SESSION_CLIENT];
	const struct sy_addr router = harness_addr(router_text[k->way->server6]);
	unsigned outer = k->way->mode == MODE_IPIP ? ip_len(k->way->server6) : 0;
	unsigned quoted = quote_of(known, n, ip_len(k->way->client6));
	struct frame in, out, want;
	error_make(f, &in, &router, sent, outer + quoted, kind, MTU);
	if (k->way->mode == MODE_DR || (outer && kind == PROBLEM)) {
		/* the router reports it to the client directly; tunnels do not concern the
		 * client */
		enum sy_drop reason = outer ? SY_DROP_ICMP_UNHANDLED : SY_DROP_UNKNOWN_DESTINATION;
		uint64_t before = harness_drops(&f->harness, reason);
		assert_false(flows_through(f, HARNESS_LAN, &in, &out));
		assert_int_equal(harness_drops(&f->harness, reason), before + 1);
		return;
	}
	assert_true(flows_through(f, HARNESS_LAN, &in, &out));
	if (outer) {
		unsigned capacity = (k->way->client6 ? 1280 : 576) - ip_len(k->way->client6) - 8;
		unsigned mtu = MTU - outer;
		error_make(f, &want, &k->client.dst, known, quoted < capacity ? quoted : capacity,
		           kind == TOO_BIG ? TOO_BIG : UNREACHABLE,
		           k->way->client6 && mtu < 1280 ? 1280 : mtu);
		if (!k->way->client6)
			want.bytes[SY_ETH_LEN + 1] = 0xc0;
		frame_fix_ip(&want);
	} else {
		error_make(f, &want, &k->client.dst, known, quoted, kind, MTU);
		frame_set_ttl(&want, 63);
	}
	check_same(&out, &want);
}

/* About a packet from the server on its path to the client. */
static void check_to_server(struct flows *f, struct talk *k, unsigned kind, unsigned n)
{
	const struct frame *sent = &k->sent[SESSION_SERVER], *known = &k->known[SESSION_SERVER];
	const struct sy_addr router = harness_addr(router_text[k->way->client6]);
	unsigned quoted = quote_of(known, n, ip_len(k->way->client6));
	struct frame in, out, want;
	error_make(f, &in, &router, sent, quoted, kind, MTU);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	if (one_way(k->way)) {
		want = in;
	} else {
		const struct sy_tuple back = tuple_of(known);
		error_make(f, &want, k->way->mode == MODE_NAT ? &router : &back.dst, known, quoted,
		           kind, MTU);
	}
	frame_set_ttl(&want, 63);
	if (k->way->mode == MODE_IPIP) { /* in the tunnel, like the client's packets */
		unsigned outer = ip_len(k->way->server6);
		assert_memory_equal(out.bytes + SY_ETH_LEN + outer, want.bytes + SY_ETH_LEN,
		                    want.len - SY_ETH_LEN);
		assert_int_equal(out.len, want.len + outer);
		want.len = SY_ETH_LEN;
		memcpy(want.bytes, k->sent[SESSION_CLIENT].bytes, SY_ETH_LEN);
		assert_memory_equal(out.bytes, want.bytes, SY_ETH_LEN);
		unsigned addrs = k->way->server6 ? 8 : 12;
		assert_memory_equal(out.bytes + SY_ETH_LEN + addrs,
		                    k->sent[SESSION_CLIENT].bytes + SY_ETH_LEN + addrs,
		                    outer - addrs);
		return;
	}
	if (k->way->mode == MODE_DR)
		assert_memory_equal(out.bytes, k->sent[SESSION_CLIENT].bytes, 12);
	check_same(&out, &want);
}

static void test_every_way(void **state)
{
	struct flows *f = *state;
	for (unsigned cycle = 0; cycle < 2; cycle++) {
		if (cycle)
			flows_reopen(f, 2, 0, true);
		for (unsigned n = 0; n < 8 * SY_ARRAY_LEN(ways); n++) {
			const struct way *way = &ways[n % SY_ARRAY_LEN(ways)];
			uint8_t proto = n / SY_ARRAY_LEN(ways) % 2 ? SY_PROTO_UDP : SY_PROTO_TCP;
			struct talk k;
			talk_open(f, &k, way, proto, (uint16_t)(2000 + 100 * cycle + n));
			struct session before = *find(f, &k);
			struct traffic traffic = traffic_sum(f->harness.b, before.server);
			flows_advance(f, 1);
			for (unsigned kind = 0; kind < KINDS; kind++) {
				check_to_client(f, &k, kind, (n + kind) % QUOTES);
				check_to_server(f, &k, kind, (n + kind + 1) % QUOTES);
			}
			/* the error changes neither the session nor its counters */
			const struct traffic after = traffic_sum(f->harness.b, before.server);
			const struct session *s = find(f, &k);
			assert_int_equal(s->seen, before.seen);
			assert_int_equal(s->state, before.state);
			assert_memory_equal(&after, &traffic, sizeof(after));
		}
		if (cycle)
			assert_true(f->harness.rt->worker[1].counters.steered_in > 0);
	}
}

/* ---- dropped errors -------------------------------------------------------------------------- */

static void check_dropped(struct flows *f, unsigned port, const struct frame *in,
                          enum sy_drop reason)
{
	struct frame out;
	uint64_t before = harness_drops(&f->harness, reason);
	assert_false(flows_through(f, port, in, &out));
	assert_int_equal(harness_drops(&f->harness, reason), before + 1);
}

/* One bit flipped anywhere in the ICMP message, or a slightly truncated one. */
static void check_spoilt(struct flows *f, unsigned port, const struct frame *in, unsigned l4)
{
	struct frame bad = *in;
	for (unsigned at = l4 + 2; at < in->len; at += 1 + at / 8) {
		struct frame out;
		bad.bytes[at] ^= 4;
		uint64_t before = harness_drops(&f->harness, SY_DROP_BAD_L4_CHECKSUM);
		assert_false(flows_through(f, port, &bad, &out));
		if (at > l4 + 8 + 60) /* after all fields that lead to a session */
			assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_L4_CHECKSUM),
			                 before + 1);
		bad.bytes[at] ^= 4;
	}
}

static void test_dropped(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 2 * SY_ARRAY_LEN(ways); n++) {
		const struct way *way = &ways[n / 2];
		uint8_t proto = n % 2 ? SY_PROTO_UDP : SY_PROTO_TCP;
		if (way->mode == MODE_DR)
			continue;
		struct talk k;
		struct frame in, bad;
		const struct sy_addr router = harness_addr(router_text[way->server6]);
		unsigned l4 = SY_ETH_LEN + ip_len(way->server6);
		unsigned outer = way->mode == MODE_IPIP ? ip_len(way->server6) : 0;
		unsigned headers = outer + ip_len(way->client6);
		talk_open(f, &k, way, proto, 1000);

		error_make(f, &in, &router, &k.sent[SESSION_CLIENT], headers + 20, UNREACHABLE, 0);
		check_spoilt(f, HARNESS_LAN, &in, l4);
		bad = in;
		frame_set_ttl(&bad, 1);
		check_dropped(f, HARNESS_LAN, &bad, SY_DROP_TTL_EXPIRED);
		bad = in;
		bad.bytes[l4] = way->server6 ? 200 : 13;
		frame_fix_l4(&bad);
		check_dropped(f, HARNESS_LAN, &bad,
		              way->mode == MODE_NAT ? SY_DROP_UNKNOWN_DESTINATION
		                                    : SY_DROP_ICMP_UNHANDLED);
		/* a port of no session */
		bad = in;
		bad.bytes[l4 + 8 + headers + (way->mode == MODE_FNAT)] ^= 0x40;
		frame_fix_l4(&bad);
		check_dropped(f, HARNESS_LAN, &bad, SY_DROP_ICMP_NO_SESSION);
		/* an address other than the error's destination */
		bad = in;
		bad.bytes[l4 + 8 + (way->server6 ? 23 : 15)] ^= 1;
		frame_fix_l4(&bad);
		check_dropped(f, HARNESS_LAN, &bad, SY_DROP_ICMP_NO_SESSION);
		/* another server's tunnel */
		bad.bytes[l4 + 8 + (way->server6 ? 23 : 15)] ^= 1;
		bad.bytes[l4 + 8 + (way->server6 ? 39 : 19)] ^= 1;
		frame_fix_l4(&bad);
		check_dropped(f, HARNESS_LAN, &bad,
		              way->mode == MODE_NAT ? SY_DROP_UNKNOWN_DESTINATION
		                                    : SY_DROP_ICMP_NO_SESSION);
		/* too short a quote */
		error_make(f, &bad, &router, &k.sent[SESSION_CLIENT], headers + 7, UNREACHABLE, 0);
		check_dropped(f, HARNESS_LAN, &bad,
		              way->mode == MODE_NAT ? SY_DROP_UNKNOWN_DESTINATION
		                                    : SY_DROP_TRUNCATED);

		/* its server is removed, and so is the session; NAT's server serves both
		 * protocols */
		struct changes c = {0};
		struct service_key key = key_of(way, proto);
		put_service(&c, &key, "icmp", FLOW_RR, NULL);
		set_mode(&c, way->mode);
		struct sy_addr server = harness_addr(way->server);
		delete_server(&c, &key, &server,
		              way->mode == MODE_IPIP ? 80 : (uint16_t)(8080 + way->vip));
		flows_commit(f, &c);
		check_dropped(f, HARNESS_LAN, &in,
		              way->mode == MODE_NAT && n % 2 ? SY_DROP_UNKNOWN_DESTINATION
		                                             : SY_DROP_ICMP_NO_SESSION);
	}
}

/* A client whose data was shifted by inserted bytes gets the sequence number that it used. */
static void test_shifted(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 2 * QUOTES; n++) {
		struct talk k;
		struct frame in, out, want;
		const struct way *way = &ways[n % 2];
		const struct sy_addr router = harness_addr(router_text[way->server6]);
		unsigned quoted;
		talk_open(f, &k, way, SY_PROTO_TCP, (uint16_t)(1000 + n));
		quoted = quote_of(&k.known[SESSION_CLIENT], n / 2, ip_len(way->client6));
		struct session_table *t =
		        inspect_table(f->harness.b, sy_slot_of(&k.client.src, k.client.sport));
		struct session *s = find(f, &k);
		s->flags |= SESSION_SHIFTED;
		session_cold_at(t, (uint32_t)(s - session_at(t, 0)))->inserted = 107;

		error_make(f, &in, &router, &k.sent[SESSION_CLIENT], quoted, TOO_BIG, MTU);
		assert_true(flows_through(f, HARNESS_LAN, &in, &out));
		struct sy_tcp *tcp = (struct sy_tcp *)(k.known[SESSION_CLIENT].bytes + SY_ETH_LEN +
		                                       ip_len(way->client6));
		tcp->seq = htonl(ntohl(tcp->seq) - 107);
		frame_fix_l4(&k.known[SESSION_CLIENT]);
		error_make(f, &want, &k.client.dst, &k.known[SESSION_CLIENT], quoted, TOO_BIG, MTU);
		frame_set_ttl(&want, 63);
		check_same(&out, &want);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {TEST(every_way), TEST(dropped), TEST(shifted)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
