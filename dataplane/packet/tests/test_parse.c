// SPDX-License-Identifier: Apache-2.0
#include "frame.h"

#define MAX_EDITS 5

/* A valid frame of this kind, edited, must be dropped for this reason. */
struct parse_case {
	const char *what;
	bool v4;
	unsigned proto, l4_len;
	enum sy_drop want;
	struct {
		unsigned at;
		uint8_t value;
	} edits[MAX_EDITS];
	unsigned edit_count;
	bool keep_ip_checksum;
};

#define EDITS(n, ...) .edits = {__VA_ARGS__}, .edit_count = n

static const struct parse_case cases[] = {
        {"TCP over IPv4", true, 6, 20, SY_DROP_NONE, EDITS(0, {0, 0})},
        {"UDP over IPv4", true, 17, 8, SY_DROP_NONE, EDITS(0, {0, 0})},
        {"ICMP", true, 1, 8, SY_DROP_NONE, EDITS(0, {0, 0})},
        {"TCP over IPv6", false, 6, 20, SY_DROP_NONE, EDITS(0, {0, 0})},
        {"UDP over IPv6", false, 17, 8, SY_DROP_NONE, EDITS(0, {0, 0})},
        {"ICMPv6", false, 58, 8, SY_DROP_NONE, EDITS(0, {0, 0})},
        {"VLAN", true, 6, 20, SY_DROP_NOT_IP, EDITS(2, {12, 0x81}, {13, 0})},
        {"ARP", true, 6, 20, SY_DROP_NOT_IP, EDITS(1, {13, 6})},
        {"IPv6 in IPv4's type", true, 6, 20, SY_DROP_BAD_IP_HEADER, EDITS(1, {14, 0x65})},
        {"IPv4 in IPv6's type", false, 6, 20, SY_DROP_BAD_IP_HEADER, EDITS(1, {14, 0x45})},
        {"IHL 4", true, 6, 20, SY_DROP_BAD_IP_HEADER, EDITS(1, {14, 0x44})},
        {"IHL 6", true, 6, 40, SY_DROP_IP_OPTIONS, EDITS(1, {14, 0x46})},
        {"IHL beyond the packet", true, 17, 8, SY_DROP_BAD_IP_HEADER, EDITS(1, {14, 0x4f})},
        {"total length below the header", true, 6, 20, SY_DROP_BAD_IP_HEADER, EDITS(1, {17, 19})},
        {"total length beyond the frame", true, 6, 20, SY_DROP_TRUNCATED, EDITS(1, {17, 41})},
        {"payload length beyond the frame", false, 6, 20, SY_DROP_TRUNCATED, EDITS(1, {19, 21})},
        {"header checksum", true, 6, 20, SY_DROP_BAD_IP_CHECKSUM, EDITS(1, {22, 63}), true},
        {"more fragments", true, 6, 20, SY_DROP_FRAGMENT, EDITS(1, {20, 0x20})},
        {"later fragment", true, 6, 20, SY_DROP_FRAGMENT, EDITS(2, {20, 0}, {21, 1})},
        {"don't fragment is none", true, 6, 20, SY_DROP_NONE, EDITS(1, {20, 0x40})},
        {"fragment header", false, 6, 20, SY_DROP_FRAGMENT, EDITS(1, {20, 44})},
        {"hop-by-hop options", false, 6, 20, SY_DROP_EXTENSION_HEADER, EDITS(1, {20, 0})},
        {"routing header", false, 6, 20, SY_DROP_EXTENSION_HEADER, EDITS(1, {20, 43})},
        {"ESP", false, 6, 20, SY_DROP_EXTENSION_HEADER, EDITS(1, {20, 50})},
        {"authentication header", false, 6, 20, SY_DROP_EXTENSION_HEADER, EDITS(1, {20, 51})},
        {"destination options", false, 6, 20, SY_DROP_EXTENSION_HEADER, EDITS(1, {20, 60})},
        {"mobility header", false, 6, 20, SY_DROP_EXTENSION_HEADER, EDITS(1, {20, 135})},
        {"no next header", false, 6, 20, SY_DROP_UNKNOWN_PROTOCOL, EDITS(1, {20, 59})},
        {"ICMP over IPv6", false, 6, 20, SY_DROP_UNKNOWN_PROTOCOL, EDITS(1, {20, 1})},
        {"ICMPv6 over IPv4", true, 6, 20, SY_DROP_UNKNOWN_PROTOCOL, EDITS(1, {23, 58})},
        {"GRE", true, 6, 20, SY_DROP_UNKNOWN_PROTOCOL, EDITS(1, {23, 47})},
        {"loopback source", true, 6, 20, SY_DROP_BAD_SOURCE, EDITS(1, {26, 127})},
        {"multicast source", true, 6, 20, SY_DROP_BAD_SOURCE, EDITS(1, {26, 224})},
        {"multicast source, IPv6", false, 6, 20, SY_DROP_BAD_SOURCE, EDITS(1, {22, 0xff})},
        {"TCP offset 4", true, 6, 20, SY_DROP_BAD_L4_HEADER, EDITS(1, {46, 0x40})},
        {"TCP offset beyond the packet", true, 6, 20, SY_DROP_BAD_L4_HEADER, EDITS(1, {46, 0x60})},
        {"TCP offset with options", true, 6, 24, SY_DROP_NONE, EDITS(1, {46, 0x60})},
        {"TCP cut", false, 6, 19, SY_DROP_BAD_L4_HEADER, EDITS(0, {0, 0})},
        {"TCP missing", true, 6, 20, SY_DROP_BAD_L4_HEADER, EDITS(1, {17, 20})},
        {"SYN+FIN", true, 6, 20, SY_DROP_BAD_TCP_FLAGS, EDITS(1, {47, SY_TCP_SYN | SY_TCP_FIN})},
        {"SYN+RST", true, 6, 20, SY_DROP_BAD_TCP_FLAGS, EDITS(1, {47, SY_TCP_SYN | SY_TCP_RST})},
        {"no flags", true, 6, 20, SY_DROP_BAD_TCP_FLAGS, EDITS(1, {47, 0})},
        {"ECN flags only", true, 6, 20, SY_DROP_BAD_TCP_FLAGS, EDITS(1, {47, 0xc0})},
        {"SYN with ECN", true, 6, 20, SY_DROP_NONE, EDITS(1, {47, SY_TCP_SYN | 0xc0})},
        {"RST+ACK", false, 6, 20, SY_DROP_NONE, EDITS(1, {67, SY_TCP_RST | SY_TCP_ACK})},
        {"UDP length 7", true, 17, 8, SY_DROP_BAD_L4_HEADER, EDITS(1, {39, 7})},
        {"UDP length beyond the packet", true, 17, 8, SY_DROP_BAD_L4_HEADER, EDITS(1, {39, 9})},
        {"UDP length below IP's", true, 17, 20, SY_DROP_NONE, EDITS(1, {39, 9})},
        {"UDP cut", false, 17, 7, SY_DROP_BAD_L4_HEADER, EDITS(0, {0, 0})},
        {"ICMP cut", true, 1, 7, SY_DROP_BAD_L4_HEADER, EDITS(0, {0, 0})},
        {"ICMPv6 cut", false, 58, 7, SY_DROP_BAD_L4_HEADER, EDITS(0, {0, 0})},
};

static void test_cases(void **state)
{
	for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
		const struct parse_case *c = &cases[i];
		struct frame f = frame_make(c->v4, c->proto, c->l4_len);
		struct sy_view v;
		enum sy_drop got;
		for (unsigned e = 0; e < c->edit_count; e++)
			f.bytes[c->edits[e].at] = c->edits[e].value;
		if (c->v4 && !c->keep_ip_checksum)
			frame_ip_finish(&f);
		got = frame_parse(&f, &v);
		if (got != c->want)
			fail_msg("%s: %s instead of %s", c->what, sy_drop_name(got),
			         sy_drop_name(c->want));
	}
}

/* Addresses that need all of their bytes set. */
static void test_addresses(void **state)
{
	static const struct {
		const char *src, *dst;
		enum sy_drop want;
	} pairs[] = {
	        {"0.0.0.0", "10.0.0.1", SY_DROP_BAD_SOURCE},
	        {"255.255.255.255", "10.0.0.1", SY_DROP_BAD_SOURCE},
	        {"10.0.0.1", "10.0.0.1", SY_DROP_LAND},
	        {"10.0.0.1", "10.0.0.2", SY_DROP_NONE},
	        {"::", "2001:db8::1", SY_DROP_BAD_SOURCE},
	        {"::1", "2001:db8::1", SY_DROP_BAD_SOURCE},
	        {"::2", "2001:db8::1", SY_DROP_NONE},
	        {"2001:db8::1", "2001:db8::1", SY_DROP_LAND},
	        {"2001:db8::2", "2001:db8::1", SY_DROP_NONE},
	};

	for (size_t i = 0; i < SY_ARRAY_LEN(pairs); i++) {
		bool v4 = strchr(pairs[i].src, '.');
		struct frame f = frame_make(v4, 6, 20);
		struct sy_addr src, dst;
		struct sy_view v;
		assert_int_equal(sy_addr_parse(pairs[i].src, &src), 0);
		assert_int_equal(sy_addr_parse(pairs[i].dst, &dst), 0);
		sy_addr_to_bytes(&src, f.bytes + (v4 ? 26 : 22));
		sy_addr_to_bytes(&dst, f.bytes + (v4 ? 30 : 38));
		if (v4)
			frame_ip_finish(&f);
		assert_int_equal(frame_parse(&f, &v), pairs[i].want);
	}
}

/* An IPv6 header with ::ffff:10.0.0.1 must not become IPv4. */
static void test_mapped(void **state)
{
	const struct sy_addr mapped = sy_addr_v4(htonl(0x0a000001));
	struct frame f = frame_make(false, 6, 20);
	struct sy_view v;

	memcpy(f.bytes + 22, mapped.b, 16);
	assert_int_equal(frame_parse(&f, &v), SY_DROP_BAD_SOURCE);
	f = frame_make(false, 6, 20);
	memcpy(f.bytes + 38, mapped.b, 16);
	assert_int_equal(frame_parse(&f, &v), SY_DROP_BAD_IP_HEADER);
}

static void view_check(bool v4, unsigned proto, unsigned l4_len, unsigned padding)
{
	struct frame f = frame_make(v4, proto, l4_len);
	const uint8_t *ip = f.bytes + 14, *l4 = frame_l4(&f, v4);
	struct sy_addr src, dst;
	struct sy_view v;

	f.len += padding;
	v = frame_view(&f);
	assert_int_equal(sy_addr_from_bytes(ip + (v4 ? 12 : 8), v4 ? 4 : 16, &src), 0);
	assert_int_equal(sy_addr_from_bytes(ip + (v4 ? 16 : 24), v4 ? 4 : 16, &dst), 0);
	assert_memory_equal(&v.tuple.src, &src, sizeof(src));
	assert_memory_equal(&v.tuple.dst, &dst, sizeof(dst));
	assert_int_equal(v.tuple.proto, proto);
	assert_int_equal(v.proto, proto);
	assert_int_equal(v.v4, v4);
	assert_int_equal(v.l3, 14);
	assert_int_equal(v.l4, 14 + frame_ip_len(v4));
	assert_int_equal(v.l4_len, l4_len);
	assert_int_equal(v.frame_len, f.len - padding);
	assert_int_equal(sy_packet_ttl(f.bytes, &v), 64);
	if (proto == 6 || proto == 17) {
		assert_int_equal(ntohs(v.tuple.sport), get16(l4));
		assert_int_equal(ntohs(v.tuple.dport), get16(l4 + 2));
	} else {
		assert_int_equal(v.tuple.sport, 0);
		assert_int_equal(v.tuple.dport, 0);
		assert_int_equal(v.icmp_type, l4[0]);
		assert_int_equal(v.icmp_code, l4[1]);
	}
	assert_int_equal(v.tcp_flags, proto == 6 ? l4[13] : 0);
}

static void test_view(void **state)
{
	for (unsigned i = 0; i < 2000; i++) {
		unsigned l4_len = 20 + (unsigned)(random_next() % 1400);
		unsigned padding = (unsigned)(random_next() % 40);
		view_check(true, 6, l4_len, padding);
		view_check(true, 17, l4_len, padding);
		view_check(true, 1, l4_len, padding);
		view_check(false, 6, l4_len, padding);
		view_check(false, 17, l4_len, padding);
		view_check(false, 58, l4_len, padding);
	}
}

static void test_every_cut(void **state)
{
	for (unsigned kind = 0; kind < 2; kind++) {
		struct frame f = frame_make(kind == 0, 6, 20);
		struct sy_view v;
		uint32_t whole = f.len;
		for (f.len = 0; f.len < whole; f.len++)
			assert_int_equal(frame_parse(&f, &v), SY_DROP_TRUNCATED);
	}
}

/* 16-bit lengths must not wrap: total length 65535 makes a frame of 65549 bytes. */
static void test_giant(void **state)
{
	const uint32_t len = 14 + 65535;
	struct frame f = frame_make(true, 17, 8);
	uint8_t *giant = calloc(1, len);
	struct sy_view v;

	assert_non_null(giant);
	put16(f.bytes + 16, 65535);
	frame_ip_finish(&f);
	memcpy(giant, f.bytes, f.len);
	assert_int_equal(sy_packet_parse(giant, len, &v), SY_DROP_TRUNCATED);
	put16(f.bytes + 16, 65535 - 14);
	frame_ip_finish(&f);
	memcpy(giant, f.bytes, f.len);
	assert_int_equal(sy_packet_parse(giant, len, &v), SY_DROP_NONE);
	assert_int_equal(v.frame_len, 65535);
	free(giant);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_cases),     cmocka_unit_test(test_addresses),
	        cmocka_unit_test(test_mapped),    cmocka_unit_test(test_view),
	        cmocka_unit_test(test_every_cut), cmocka_unit_test(test_giant),
	};
	return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
