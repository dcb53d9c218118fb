// SPDX-License-Identifier: Apache-2.0
/* Packets that exceed the MTU: fragmented where allowed, in every mode. Also clients with a narrow
 * path that is not reported to their server. */
#include <rte_mempool.h>

#include "client_mtu.h"
#include "ways.h"

#define PIECES   16
#define IPV6_MIN 1280
#define NARROW   800

static const struct way ways[] = WAYS_OF_MODES;
#define WAYS SY_ARRAY_LEN(ways)

static int setup(void **state)
{
	return ways_setup(state, ways, WAYS);
}

static struct sy_view view_of(const struct frame *f)
{
	struct sy_view v;
	assert_int_equal(sy_packet_parse(f->bytes, f->len, &v), SY_DROP_NONE);
	return v;
}

static void inject(struct flows *f, unsigned port, const struct frame *in)
{
	assert_true(harness_inject(&f->harness, port, in->bytes, in->len));
}

static unsigned collect(struct flows *f, unsigned port, struct frame out[static PIECES])
{
	struct rte_mbuf *m;
	unsigned n = 0;
	harness_poll(&f->harness);
	harness_attend(&f->harness);
	for (; (m = harness_collect(&f->harness, port)); n++) {
		assert_true(n < PIECES);
		out[n].len = rte_pktmbuf_data_len(m);
		memcpy(out[n].bytes, rte_pktmbuf_mtod(m, void *), out[n].len);
		rte_pktmbuf_free(m);
	}
	return n;
}

static void decapsulate(struct frame *f, bool v6)
{
	unsigned outer = v6 ? sizeof(struct sy_ipv6) : sizeof(struct sy_ipv4);
	memmove(f->bytes + SY_ETH_LEN, f->bytes + SY_ETH_LEN + outer, f->len - SY_ETH_LEN - outer);
	f->len = (uint16_t)(f->len - outer);
	bool v4 = f->bytes[SY_ETH_LEN] >> 4 == 4; /* the inner packet */
	f->bytes[12] = v4 ? 0x08 : 0x86;
	f->bytes[13] = v4 ? 0x00 : 0xdd;
}

/* What a receiver reassembles from the fragments, which are in order: one packet with a right
 * checksum. Each fragment has at most `mtu` bytes. */
static void join(const struct frame *piece, unsigned count, unsigned mtu, struct frame *whole)
{
	unsigned bytes = 0, headers = 0;
	struct sy_view v;
	uint32_t id = 0;
	assert_true(count > 1);
	for (unsigned i = 0; i < count; i++) {
		v = view_of(&piece[i]);
		assert_true(piece[i].len <= SY_ETH_LEN + mtu);
		assert_int_equal(v.fragment, i == 0           ? SY_FRAGMENT_FIRST
		                             : i + 1 == count ? SY_FRAGMENT_LAST
		                                              : SY_FRAGMENT_LATER);
		if (i == 0) {
			headers = v.v4 ? v.l4 : v.l4 - 8u;
			memcpy(whole->bytes, piece[i].bytes, headers);
			id = v.fragment_id;
		}
		assert_int_equal(v.fragment_id, id);
		assert_int_equal(v.fragment_offset, bytes);
		assert_true(headers + bytes + v.l4_len <= FRAME_MAX);
		memcpy(whole->bytes + headers + bytes, piece[i].bytes + v.l4, v.l4_len);
		bytes += v.l4_len;
	}
	whole->len = (uint16_t)(headers + bytes);
	uint8_t *ip = whole->bytes + SY_ETH_LEN;
	unsigned len = v.v4 ? 20 + bytes : bytes;
	ip[v.v4 ? 2 : 4] = (uint8_t)(len >> 8);
	ip[v.v4 ? 3 : 5] = (uint8_t)len;
	if (v.v4)
		ip[6] = ip[7] = 0;
	else
		ip[6] = v.proto;
	frame_fix_ip(whole);
	v = view_of(whole);
	assert_int_equal(sy_packet_check_l4(whole->bytes, &v), SY_CSUM_OK);
}

/* Creates a session; *back: the tuple of its server's packets, if they pass the balancer. */
static void begin(struct flows *f, const struct way *way, const struct sy_tuple *t,
                  struct sy_tuple *back)
{
	struct frame in, out;
	bool past = way->mode == MODE_DR || way->mode == MODE_IPIP;
	flows_frame(f, &in, t, SY_TCP_SYN, 1, 30);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	if (past)
		return;
	struct sy_tuple there = view_of(&out).tuple;
	*back = reversed(&there);
	flows_frame(f, &in, back, SY_TCP_SYN | SY_TCP_ACK, 1, 30);
	assert_true(flows_through(f, HARNESS_LAN, &in, &out));
	flows_frame(f, &in, t, SY_TCP_ACK, 2, 30);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
}

/* Sends a packet into a port that exceeds the other port's MTU; it arrives complete. */
static void divide(struct flows *f, unsigned port, const struct way *way, const struct frame *in,
                   unsigned mtu)
{
	struct frame piece[PIECES], whole;
	struct sy_view before = view_of(in);
	unsigned headers = before.proto == SY_PROTO_TCP ? 20 : 8;
	inject(f, port, in);
	unsigned count = collect(f, 1 - port, piece);
	for (unsigned i = 0; i < count && way->mode == MODE_IPIP; i++) {
		assert_true(piece[i].len <= SY_ETH_LEN + mtu);
		decapsulate(&piece[i], way->server6);
	}
	join(piece, count, mtu, &whole);
	struct sy_view after = view_of(&whole);
	assert_int_equal(after.l4_len, before.l4_len);
	assert_memory_equal(whole.bytes + after.l4 + headers, in->bytes + before.l4 + headers,
	                    before.l4_len - headers);
	assert_int_equal(sy_packet_ttl(whole.bytes, &after), sy_packet_ttl(in->bytes, &before) - 1);
	assert_null(harness_collect(&f->harness, port)); /* no ICMP error is sent */
	assert_int_equal(rte_mempool_in_use_count(f->harness.rt->pool), 0);
}

static void test_every_mode(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 4 * WAYS; n++) {
		const struct way *way = &ways[n % WAYS];
		uint8_t proto = n / WAYS % 2 ? SY_PROTO_UDP : SY_PROTO_TCP;
		struct sy_tuple back = {.proto = 0};
		struct frame in;
		if (n == 2 * WAYS)
			flows_reopen(f, 2, 0, true);
		const struct sy_tuple t = client_of(way, proto, (uint16_t)(1000 + n));
		begin(f, way, &t, &back);
		for (unsigned more = 0; more < 3 && !way->client6; more++) {
			flows_frame(f, &in, &t, SY_TCP_ACK | SY_TCP_PSH, 3, 1373 + 67 * more);
			frame_let_fragment(&in);
			bool translated = way->mode == MODE_FNAT && way->server6;
			divide(f, HARNESS_WAN, way, &in, translated ? IPV6_MIN : HARNESS_LAN_MTU);
		}
		for (unsigned more = 0; back.proto && more < 3 && !way->server6; more++) {
			flows_frame(f, &in, &back, SY_TCP_ACK | SY_TCP_PSH, 3, 1473 + 67 * more);
			frame_let_fragment(&in);
			divide(f, HARNESS_LAN, way, &in, way->client6 ? IPV6_MIN : HARNESS_WAN_MTU);
		}
	}
	assert_int_equal(harness_drops(&f->harness, SY_DROP_TOO_BIG), 0);
}

/* Towards IPv6, packets whose sender allows routers to fragment become fragments of at most 1280
 * bytes, which fit everywhere (RFC 7915 4); other packets do not change. */
static void test_least_mtu(void **state)
{
	struct flows *f = *state;
	struct sy_tuple back, t = client_of(&ways[6], SY_PROTO_UDP, 1000);
	struct frame in, out;
	begin(f, &ways[6], &t, &back);
	for (unsigned n = 0; n < 3; n++) {
		flows_frame(f, &in, &back, 0, 0, IPV6_MIN - 40 - 8);
		frame_let_fragment(&in);
		assert_true(flows_through(f, HARNESS_LAN, &in, &out));
		flows_frame(f, &in, &back, 0, 0, IPV6_MIN - 40 - 8 + 1);
		assert_true(flows_through(f, HARNESS_LAN, &in, &out));
		frame_let_fragment(&in);
		divide(f, HARNESS_LAN, &ways[6], &in, IPV6_MIN);
	}
}

/* Fragments are fragmented again. */
static void test_fragments(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < WAYS; n++) {
		const struct way *way = &ways[n];
		struct sy_tuple back, t = client_of(way, SY_PROTO_UDP, (uint16_t)(2000 + n));
		struct frame whole, cut[4], piece[PIECES], joined;
		if (way->client6)
			continue;
		begin(f, way, &t, &back);
		frame_udp(&whole, &f->rng, &t, 1700);
		unsigned count = frame_cut(&whole, 77, 1440, cut, 4), out = 0;
		for (unsigned i = 0; i < count; i++)
			inject(f, HARNESS_WAN, &cut[i]);
		out = collect(f, HARNESS_LAN, piece);
		assert_int_equal(out, count + 1);
		for (unsigned i = 0; i < out && way->mode == MODE_IPIP; i++)
			decapsulate(&piece[i], way->server6);
		join(piece, out, HARNESS_LAN_MTU, &joined);
		bool same = way->mode != MODE_FNAT; /* same source, hence the same id */
		if (same)
			assert_int_equal(view_of(&piece[0]).fragment_id, 77);
	}
}

/* Packets leave in the order of arrival, before and after the fragments. */
static void test_order(void **state)
{
	struct flows *f = *state;
	struct sy_tuple back, t = client_of(&ways[0], SY_PROTO_UDP, 3000);
	struct frame in, out[PIECES];
	begin(f, &ways[0], &t, &back);
	for (unsigned n = 0; n < 5; n++) {
		frame_udp(&in, &f->rng, &t, n % 2 ? 1460 : 100 + n);
		frame_let_fragment(&in);
		inject(f, HARNESS_WAN, &in);
	}
	assert_int_equal(collect(f, HARNESS_LAN, out), 7);
	for (unsigned n = 0; n < 7; n++) {
		struct sy_view v = view_of(&out[n]);
		static const uint8_t want[7] = {
		        SY_FRAGMENT_NONE,  SY_FRAGMENT_FIRST, SY_FRAGMENT_LAST, SY_FRAGMENT_NONE,
		        SY_FRAGMENT_FIRST, SY_FRAGMENT_LAST,  SY_FRAGMENT_NONE};
		assert_int_equal(v.fragment, want[n]);
	}
}

/* ---- narrow paths to clients ----------------------------------------------------------------- */

/* A router reports that it cannot forward this packet. */
static void complain(struct flows *f, const struct frame *about, unsigned mtu, struct frame *out)
{
	bool v6 = about->bytes[SY_ETH_LEN] >> 4 == 6;
	static const uint8_t type[2][2] = {{3, 4}, {2, 0}};
	const struct sy_addr router = harness_addr(router_text[v6]);
	frame_error(out, &f->rng, &router, type[v6], mtu, about->bytes, v6 ? 200 : 60);
}

/* The server does not get the error. IPv6 has no paths this narrow (RFC 8201 4). */
static void check_kept(struct flows *f, const struct frame *error)
{
	struct frame out;
	const bool v6 = error->bytes[SY_ETH_LEN] >> 4 == 6;
	const enum sy_drop reason = v6 ? SY_DROP_BAD_PATH_MTU : SY_DROP_PATH_MTU_KEPT;
	uint64_t before = harness_drops(&f->harness, reason);
	assert_false(flows_through(f, HARNESS_WAN, error, &out));
	assert_int_equal(harness_drops(&f->harness, reason), before + 1);
}

static void check_whole(struct flows *f, const struct sy_tuple *back, struct frame *out)
{
	struct frame in;
	flows_frame(f, &in, back, SY_TCP_ACK, 3, 1400);
	assert_true(flows_through(f, HARNESS_LAN, &in, out));
}

static uint16_t mss_of(const struct frame *f)
{
	struct sy_view v = view_of(f);
	const uint8_t *option = f->bytes + v.l4 + sizeof(struct sy_tcp);
	assert_int_equal(option[0], 2);
	return (uint16_t)(option[2] << 8 | option[3]);
}

/* Packets to the client are fragmented, and its new connections use smaller segments. Other clients
 * are unaffected, and the effect expires. */
static void test_narrow_client(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 8; n++) {
		const struct way *way = &ways[n % 2 ? 5 : 0]; /* IPv4 servers, IPv6 servers */
		uint8_t proto = n / 2 % 2 ? SY_PROTO_UDP : SY_PROTO_TCP;
		struct sy_tuple back, back_of_other, again;
		struct frame in, out, error;
		if (n == 4)
			flows_reopen(f, 2, 0, true);
		struct sy_tuple t = client_of(way, proto, (uint16_t)(1000 + n));
		struct sy_tuple other = client_of(way, proto, 1000);
		other.src.b[15] = 77;
		begin(f, way, &t, &back);
		begin(f, way, &other, &back_of_other);
		check_whole(f, &back, &out);
		complain(f, &out, NARROW, &error);
		check_kept(f, &error);
		for (unsigned k = 0; k < 3; k++) {
			flows_frame(f, &in, &back, SY_TCP_ACK, 3, 1400);
			divide(f, HARNESS_LAN, way, &in, NARROW);
			flows_frame(f, &in, &back, SY_TCP_ACK, 3, NARROW - 100);
			assert_true(flows_through(f, HARNESS_LAN, &in, &out));
			check_whole(f, &back_of_other, &out);
		}
		t.sport = htons((uint16_t)(2000 + n));
		t.proto = SY_PROTO_TCP;
		t.dst = key_of(way, SY_PROTO_TCP).vip;
		flows_frame(f, &in, &t, SY_TCP_SYN, 1, 0);
		assert_true(flows_through(f, HARNESS_WAN, &in, &out));
		assert_int_equal(mss_of(&out), NARROW - 40);
		t.proto = proto;
		flows_advance(f, 601);
		t.sport = htons((uint16_t)(3000 + n));
		begin(f, way, &t, &again);
		check_whole(f, &again, &out);
	}
}

/* Small reductions are reported to the server; an impossible report is ignored. */
static void test_floor(void **state)
{
	struct flows *f = *state;
	for (unsigned v6 = 0; v6 < 2; v6++) {
		const struct way *way = &ways[v6 ? 7 : 0];
		struct sy_tuple t = client_of(way, SY_PROTO_UDP, 1000), back;
		struct frame small, out, error, passed_on;
		begin(f, way, &t, &back);
		flows_frame(f, &small, &back, 0, 0, 500);
		assert_true(flows_through(f, HARNESS_LAN, &small, &out));
		complain(f, &out, NARROW, &error); /* the packet fits this size */
		check_kept(f, &error);
		check_whole(f, &back, &out);
		complain(f, &out, 1279, &error);
		if (v6)
			check_kept(f, &error);
		check_whole(f, &back, &out);
		complain(f, &out, 1280, &error);
		assert_true(flows_through(f, HARNESS_WAN, &error, &passed_on));
	}
}

/* The fragment size has a minimum, because anyone can send a report. */
static void test_least_piece(void **state)
{
	struct flows *f = *state;
	struct sy_tuple t = client_of(&ways[0], SY_PROTO_UDP, 1000), back;
	struct frame in, out, error, piece[PIECES];
	begin(f, &ways[0], &t, &back);
	check_whole(f, &back, &out);
	complain(f, &out, 68, &error);
	check_kept(f, &error);
	flows_frame(f, &in, &back, 0, 0, 1400);
	inject(f, HARNESS_LAN, &in);
	assert_int_equal(collect(f, HARNESS_WAN, piece), 3);
	assert_int_equal(piece[0].len, SY_ETH_LEN + 20 + (CLIENT_MTU_MIN - 20) / 8 * 8);
}

/* ---- link-local sources ---------------------------------------------------------------------- */

static void test_link_local(void **state)
{
	static const char *const text[2][2] = {{"169.254.7.8", "fe80::7"},
	                                       {"240.0.0.7", "0.7.7.7"}};
	struct flows *f = *state;
	for (unsigned n = 0; n < 2 * WAYS; n++) {
		const struct way *way = &ways[n / 2];
		struct sy_tuple t = client_of(way, n % 2 ? SY_PROTO_UDP : SY_PROTO_TCP, 1000);
		struct frame in, out;
		uint64_t before = harness_drops(&f->harness, SY_DROP_LINK_LOCAL);
		t.src = harness_addr(text[0][way->client6]);
		flows_frame(f, &in, &t, SY_TCP_SYN, 1, 30);
		assert_false(flows_through(f, HARNESS_WAN, &in, &out));
		assert_int_equal(harness_drops(&f->harness, SY_DROP_LINK_LOCAL), before + 1);
		for (unsigned k = 0; k < 2 && !way->client6; k++) {
			before = harness_drops(&f->harness, SY_DROP_BAD_SOURCE);
			t.src = harness_addr(text[1][k]);
			flows_frame(f, &in, &t, SY_TCP_SYN, 1, 30);
			assert_false(flows_through(f, HARNESS_WAN, &in, &out));
			assert_int_equal(harness_drops(&f->harness, SY_DROP_BAD_SOURCE),
			                 before + 1);
		}
	}
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(every_mode),    TEST(least_mtu), TEST(fragments),   TEST(order),
	        TEST(narrow_client), TEST(floor),     TEST(least_piece), TEST(link_local),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
