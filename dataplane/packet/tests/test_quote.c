// SPDX-License-Identifier: Apache-2.0
/* Parsing of ICMP errors; their translation is in test_golden.c. */
#include "frame.h"

/* An error of this type about a frame, which quotes `size` bytes of it. */
static struct frame error_make(bool v4, uint8_t type, uint8_t code, uint32_t rest,
                               const struct frame *about, unsigned size)
{
	struct frame f = frame_make(v4, v4 ? 1 : 58, 8 + size);
	uint8_t *l4 = frame_l4(&f, v4);

	l4[0] = type;
	l4[1] = code;
	put16(l4 + 4, rest >> 16);
	put16(l4 + 6, rest);
	memcpy(l4 + 8, about->bytes + 14, size);
	frame_l4_finish(&f, v4);
	return f;
}

static enum sy_drop quote_parse(const struct frame *f, struct sy_quote *q)
{
	struct sy_view v = frame_view(f);
	uint8_t *exact = malloc(f->len);
	enum sy_drop drop;

	assert_non_null(exact);
	memcpy(exact, f->bytes, f->len);
	drop = sy_packet_parse_quote(exact, &v, q);
	free(exact);
	return drop;
}

static void test_eight_bytes_suffice(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		bool v4 = i & 1;
		unsigned proto = i & 2 ? 6 : 17, ip_len = frame_ip_len(v4);
		struct frame about = frame_make(v4, proto, 400);
		struct sy_view v = frame_view(&about);
		for (unsigned size = 0; size < ip_len + 100; size++) {
			struct frame f = error_make(v4, v4 ? 3 : 1, 1, 0, &about, size);
			struct sy_quote q;
			enum sy_drop drop = quote_parse(&f, &q);
			assert_int_equal(drop,
			                 size < ip_len + 8 ? SY_DROP_TRUNCATED : SY_DROP_NONE);
			if (drop != SY_DROP_NONE)
				continue;
			assert_memory_equal(&q.tuple, &v.tuple, sizeof(v.tuple));
			assert_int_equal(q.kind, SY_QUOTE_UNREACHABLE);
			assert_int_equal(q.l4_len, size - ip_len);
			assert_int_equal(q.ip_len, ip_len + 400);
		}
	}
}

static void test_types(void **state)
{
	struct frame about4 = frame_make(true, 6, 40), about6 = frame_make(false, 6, 40);

	for (unsigned type = 0; type < 256; type++) {
		struct frame four = error_make(true, (uint8_t)type, 0, 0, &about4, 40);
		struct frame six = error_make(false, (uint8_t)type, 0, 1280, &about6, 60);
		struct sy_quote q;
		bool error4 = type == 3 || type == 11 || type == 12;
		bool error6 = type >= 1 && type <= 4;
		assert_int_equal(quote_parse(&four, &q),
		                 error4 ? SY_DROP_NONE : SY_DROP_ICMP_UNHANDLED);
		assert_int_equal(quote_parse(&six, &q),
		                 error6 ? SY_DROP_NONE : SY_DROP_ICMP_UNHANDLED);
	}
}

static void test_mtu(void **state)
{
	static const struct {
		uint32_t stated;
		unsigned l4_len, want;
	} cases[] = {
	        {1400, 1480, 1400}, {0, 1480, 1492}, {0, 1472, 1006}, {0, 60, 68}, {68, 900, 68}};
	struct frame about = frame_make(false, 6, 40), f;
	struct sy_quote q;

	for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
		struct frame about4 = frame_make(true, 6, cases[i].l4_len);
		f = error_make(true, 3, 4, cases[i].stated, &about4, 28);
		assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
		assert_int_equal(q.kind, SY_QUOTE_TOO_BIG);
		assert_int_equal(q.mtu, cases[i].want);
	}
	/* Less than what each link has: RFC 791, RFC 8201 4. */
	struct frame about4 = frame_make(true, 6, 900);
	for (unsigned mtu = 0; mtu <= 1300; mtu++) {
		f = error_make(true, 3, 4, mtu, &about4, 28);
		assert_int_equal(quote_parse(&f, &q),
		                 mtu && mtu < 68 ? SY_DROP_BAD_PATH_MTU : SY_DROP_NONE);
		f = error_make(false, 2, 0, mtu, &about, 60);
		assert_int_equal(quote_parse(&f, &q),
		                 mtu < 1280 ? SY_DROP_BAD_PATH_MTU : SY_DROP_NONE);
	}
	f = error_make(false, 2, 0, 0x10000, &about, 60);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
	assert_int_equal(q.mtu, UINT16_MAX);
}

static void test_quoted_headers(void **state)
{
	struct frame about = frame_make(true, 6, 60), f;
	uint8_t *ip = about.bytes + 14;
	struct sy_quote q;

	/* options, in the place of the first eight bytes of TCP */
	ip[0] = 0x47;
	f = error_make(true, 3, 1, 0, &about, 36);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
	assert_int_equal(q.l4 - q.l3, 28);
	ip[0] = 0x44;
	f = error_make(true, 3, 1, 0, &about, 36);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_BAD_IP_HEADER);
	ip[0] = 0x65;
	f = error_make(true, 3, 1, 0, &about, 36);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_BAD_IP_HEADER);
	ip[0] = 0x45;
	put16(ip + 6, 0x2000);
	f = error_make(true, 3, 1, 0, &about, 36);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
	assert_int_equal(q.fragment, SY_FRAGMENT_FIRST);
	assert_int_not_equal(q.tuple.sport, 0);
	put16(ip + 6, 5);
	f = error_make(true, 3, 1, 0, &about, 36);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
	assert_int_equal(q.fragment, SY_FRAGMENT_LATER);
	assert_int_equal(q.tuple.sport | q.tuple.dport, 0);
	put16(ip + 6, 0);
	ip[9] = 47;
	f = error_make(true, 3, 1, 0, &about, 36);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_UNKNOWN_PROTOCOL);

	/* destination options before UDP */
	about = frame_make(false, 60, 60);
	memcpy(frame_l4(&about, false), (const uint8_t[]){17, 1}, 2);
	f = error_make(false, 1, 0, 0, &about, 64);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
	assert_int_equal(q.proto, SY_PROTO_UDP);
	assert_int_equal(q.l4 - q.l3, 56);
	assert_int_equal(ntohs(q.tuple.sport), get16(frame_l4(&about, false) + 16));
	f = error_make(false, 1, 0, 0, &about, 63);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_TRUNCATED);
}

/* Padding and RFC 4884 extensions after the quote. */
static void test_extensions_are_no_quote(void **state)
{
	struct frame about = frame_make(true, 17, 30), f;
	struct sy_quote q;

	memset(about.bytes + about.len, 0, 128);
	f = error_make(true, 11, 0, 32 << 16, &about, 140);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
	assert_int_equal(q.l4_len, 30); /* its own length field */
	about = frame_make(true, 17, 400);
	f = error_make(true, 11, 0, 32 << 16, &about, 140);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
	assert_int_equal(q.l4_len, 128 - 20);
}

static void test_tunnel_of_eight_bytes(void **state)
{
	struct frame about = frame_make(true, 4, 60), f;
	struct sy_quote q, inner;

	f = error_make(true, 3, 4, 1400, &about, 28);
	assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
	assert_int_equal(q.proto, SY_PROTO_IPV4);
	assert_int_equal(sy_packet_parse_tunnelled(f.bytes, &q, &inner), SY_DROP_TRUNCATED);
}

/* A client gets errors about a tunnel only as types that it can understand. */
static void test_tunnel_kinds(void **state)
{
	static const struct {
		uint8_t type, code, want_type, want_code; /* want_type 0: no error */
	} cases[] = {{3, 0, 3, 1}, {3, 3, 3, 1}, {3, 4, 3, 4}, {11, 0, 3, 1}, {12, 0, 0, 0}};
	struct frame inside = frame_make(true, 6, 40);
	struct frame about = frame_make(true, 4, inside.len - 14);
	struct sy_addr src = sy_addr_v4(htonl(0x0a000001));

	memcpy(frame_l4(&about, true), inside.bytes + 14, inside.len - 14);
	for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
		struct frame f = error_make(true, cases[i].type, cases[i].code, 1400, &about, 80);
		struct sy_view v = frame_view(&f);
		struct sy_quote q, inner;
		uint8_t out[600];
		uint32_t len;
		assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
		assert_int_equal(sy_packet_parse_tunnelled(f.bytes, &q, &inner), SY_DROP_NONE);
		len = sy_packet_rebuild_error(out, sizeof(out), f.bytes, &v, &inner, &inner.tuple,
		                              &src);
		assert_int_equal(len > 0, cases[i].want_type > 0);
		if (len > 0) {
			assert_int_equal(out[34], cases[i].want_type);
			assert_int_equal(out[35], cases[i].want_code);
			assert_int_equal(get16(out + 40), cases[i].want_code == 4 ? 1380 : 0);
			assert_true(frame_l4_ok(out, true));
			assert_memory_equal(out + 42, inside.bytes + 14, 40);
		}
		assert_int_equal(sy_packet_rebuild_error(out, len - 1, f.bytes, &v, &inner,
		                                         &inner.tuple, &src) > 0,
		                 false);
	}
}

/* The MTU in a tunnel, for a client of either family: RFC 7915 4.2, 5.2. */
static void test_tunnel_mtu_in_either_family(void **state)
{
	static const struct {
		bool inside_v4, client_v4;
		uint16_t mtu, want;
	} cases[] = {
	        {true, true, 1400, 1380},  {true, true, 120, 100},     {true, false, 1400, 1400},
	        {true, false, 120, 1280},  {false, false, 1400, 1380}, {false, false, 1280, 1280},
	        {false, true, 1400, 1360}, {false, true, 120, 1260},
	};

	for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
		bool in4 = cases[i].inside_v4, v4 = cases[i].client_v4;
		struct frame inside = frame_make(in4, 6, 40);
		struct frame about = frame_make(true, in4 ? 4 : 41, inside.len - 14);
		struct sy_addr src =
		        v4 ? sy_addr_v4(htonl(0x0a000001)) : (struct sy_addr){.b = {0xfd}};
		struct sy_tuple to = {.src = src, .dst = src, .sport = 1, .dport = 2, .proto = 6};
		struct sy_quote q, inner;
		struct frame f;
		struct sy_view v;
		uint8_t out[600];

		memcpy(frame_l4(&about, true), inside.bytes + 14, inside.len - 14);
		f = error_make(true, 3, 4, cases[i].mtu, &about, 100);
		v = frame_view(&f);
		assert_int_equal(quote_parse(&f, &q), SY_DROP_NONE);
		assert_int_equal(sy_packet_parse_tunnelled(f.bytes, &q, &inner), SY_DROP_NONE);
		assert_true(sy_packet_rebuild_error(out, sizeof(out), f.bytes, &v, &inner, &to,
		                                    &src) > 0);
		assert_int_equal(get16(out + (v4 ? 40 : 60)), cases[i].want);
		assert_true(frame_l4_ok(out, v4));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_eight_bytes_suffice),
	        cmocka_unit_test(test_types),
	        cmocka_unit_test(test_mtu),
	        cmocka_unit_test(test_quoted_headers),
	        cmocka_unit_test(test_extensions_are_no_quote),
	        cmocka_unit_test(test_tunnel_of_eight_bytes),
	        cmocka_unit_test(test_tunnel_kinds),
	        cmocka_unit_test(test_tunnel_mtu_in_either_family),
	};
	return cmocka_run_group_tests_name("quote", tests, NULL, NULL);
}
