// SPDX-License-Identifier: Apache-2.0
#include "frame.h"

#define MAX_EDITS 5

/* A valid frame of this kind must be dropped for this reason after the edit. */
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
        {"IHL 6", true, 6, 40, SY_DROP_BAD_IP_CHECKSUM, EDITS(1, {14, 0x46})},
        {"IHL beyond the packet", true, 17, 8, SY_DROP_BAD_IP_HEADER, EDITS(1, {14, 0x4f})},
        {"total length below the header", true, 6, 20, SY_DROP_BAD_IP_HEADER, EDITS(1, {17, 19})},
        {"total length beyond the frame", true, 6, 20, SY_DROP_TRUNCATED, EDITS(1, {17, 41})},
        {"payload length beyond the frame", false, 6, 20, SY_DROP_TRUNCATED, EDITS(1, {19, 21})},
        {"header checksum", true, 6, 20, SY_DROP_BAD_IP_CHECKSUM, EDITS(1, {22, 63}), true},
        {"first fragment, odd length", true, 6, 20, SY_DROP_BAD_FRAGMENT, EDITS(1, {20, 0x20})},
        {"first fragment", true, 6, 24, SY_DROP_NONE, EDITS(1, {20, 0x20})},
        {"fragment at TCP's flags", true, 6, 20, SY_DROP_TINY_FRAGMENT, EDITS(2, {20, 0}, {21, 1})},
        {"UDP fragment at 8", true, 17, 20, SY_DROP_NONE, EDITS(2, {20, 0}, {21, 1})},
        {"tiny TCP fragment", true, 6, 16, SY_DROP_TINY_FRAGMENT, EDITS(1, {20, 0x20})},
        {"TCP options in the next", true, 6, 24, SY_DROP_TINY_FRAGMENT,
         EDITS(2, {20, 0x20}, {46, 0x70})},
        {"ping of death", true, 1, 24, SY_DROP_BAD_FRAGMENT, EDITS(2, {20, 0x1f}, {21, 0xff})},
        {"empty fragment", true, 17, 0, SY_DROP_BAD_FRAGMENT, EDITS(2, {20, 0}, {21, 2})},
        {"later fragment of GRE", true, 47, 8, SY_DROP_UNKNOWN_PROTOCOL,
         EDITS(2, {20, 0}, {21, 2})},
        {"don't fragment is none", true, 6, 20, SY_DROP_NONE, EDITS(1, {20, 0x40})},
        {"ESP", false, 6, 20, SY_DROP_UNKNOWN_PROTOCOL, EDITS(1, {20, 50})},
        {"authentication header", false, 6, 20, SY_DROP_UNKNOWN_PROTOCOL, EDITS(1, {20, 51})},
        {"mobility header", false, 6, 20, SY_DROP_EXTENSION_HEADER, EDITS(1, {20, 135})},
        {"hop-by-hop options cut", false, 6, 4, SY_DROP_EXTENSION_HEADER, EDITS(1, {20, 0})},
        {"hop-by-hop options too long", false, 6, 24, SY_DROP_EXTENSION_HEADER,
         EDITS(2, {20, 0}, {55, 3})},
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

/* Nearly all packets are plain; they become slow if the plain parser refuses them. */
static void test_plain(void **state)
{
	for (unsigned v6 = 0; v6 < 2; v6++) {
		for (unsigned proto = SY_PROTO_TCP; proto <= SY_PROTO_UDP; proto += 11) {
			struct frame f = frame_make(!v6, proto, 20);
			assert_true(sy_plain_parse(f.bytes, f.len));
			assert_false(sy_plain_parse(f.bytes, f.len - 1));
		}
	}
}

/* Addresses for which all bytes matter. */
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

/* ---- options, extension headers, tags -------------------------------------------------------- */

/* Inserts `more` bytes between IP header and transport; next: type of the first one in IPv6. */
static void headers_insert(struct frame *f, bool v4, const uint8_t *more, unsigned len,
                           uint8_t next)
{
	uint8_t *l3 = f->bytes + 14, *l4 = frame_l4(f, v4);

	memmove(l4 + len, l4, f->len - 14 - frame_ip_len(v4));
	memcpy(l4, more, len);
	f->len += len;
	if (v4) {
		l3[0] = (uint8_t)(0x45 + len / 4);
		put16(l3 + 2, f->len - 14);
		put16(l3 + 10, 0);
		put16(l3 + 10, ~sum_slow(0, l3, 20 + len));
	} else {
		put16(l3 + 4, f->len - 54);
		l3[6] = next;
	}
}

struct header_case {
	const char *what;
	bool v4;
	enum sy_drop want;
	uint8_t next; /* IPv6 */
	unsigned len;
	uint8_t bytes[48];
};

static const struct header_case header_cases[] = {
        {"no operations", true, SY_DROP_NONE, 0, 4, {1, 1, 1, 0}},
        {"router alert", true, SY_DROP_NONE, 0, 4, {148, 4, 0, 0}},
        {"record route", true, SY_DROP_NONE, 0, 8, {7, 7, 4, 0, 0, 0, 0, 0}},
        {"40 bytes of options", true, SY_DROP_NONE, 0, 40, {7, 40, 4}},
        {"after the end anything goes", true, SY_DROP_NONE, 0, 8, {0, 131, 3, 4, 9, 9, 9, 9}},
        {"length 0", true, SY_DROP_IP_OPTIONS, 0, 4, {7, 0, 0, 0}},
        {"length 1", true, SY_DROP_IP_OPTIONS, 0, 4, {1, 7, 1, 0}},
        {"length missing", true, SY_DROP_IP_OPTIONS, 0, 4, {1, 1, 1, 7}},
        {"length beyond the header", true, SY_DROP_IP_OPTIONS, 0, 4, {7, 5, 4, 0}},
        {"loose source route", true, SY_DROP_SOURCE_ROUTE, 0, 8, {131, 7, 4, 10, 0, 0, 1, 0}},
        {"strict source route", true, SY_DROP_SOURCE_ROUTE, 0, 8, {1, 137, 7, 4, 10, 0, 0, 1}},
        {"hop by hop", false, SY_DROP_NONE, 0, 8, {6, 0, 5, 2, 0, 0, 1, 0}},
        {"destination options", false, SY_DROP_NONE, 60, 8, {6, 0, 1, 4}},
        {"16 bytes of them", false, SY_DROP_NONE, 60, 16, {6, 1, 1, 12}},
        {"routing header, visited", false, SY_DROP_NONE, 43, 8, {6, 0, 4, 0}},
        {"routing header, hops left", false, SY_DROP_ROUTING_HEADER, 43, 8, {6, 0, 4, 1}},
        {"routing header of type 0", false, SY_DROP_ROUTING_HEADER, 43, 8, {6, 0, 0, 0}},
        {"hop by hop, then destination",
         false,
         SY_DROP_NONE,
         0,
         16,
         {60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4}},
        {"hop by hop in second place",
         false,
         SY_DROP_EXTENSION_HEADER,
         60,
         16,
         {0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4}},
        {"AH behind one", false, SY_DROP_UNKNOWN_PROTOCOL, 60, 8, {51, 0, 1, 4}},
        {"atomic fragment", false, SY_DROP_NONE, 44, 8, {6, 0, 0, 0, 1, 2, 3, 4}},
        {"two fragment headers",
         false,
         SY_DROP_EXTENSION_HEADER,
         44,
         16,
         {44, 0, 0, 0, 1, 2, 3, 4, 6, 0, 0, 0, 1, 2, 3, 4}},
        {"first fragment", false, SY_DROP_NONE, 44, 8, {6, 0, 0, 1, 1, 2, 3, 4}},
        {"last fragment", false, SY_DROP_NONE, 44, 8, {17, 0, 0, 16, 1, 2, 3, 4}},
        {"its headers in the next",
         false,
         SY_DROP_TINY_FRAGMENT,
         44,
         16,
         {60, 0, 0, 1, 1, 2, 3, 4, 6, 9, 1, 4}},
        {"beyond 65535", false, SY_DROP_BAD_FRAGMENT, 44, 8, {17, 0, 0xff, 0xf8, 1, 2, 3, 4}},
        {"later fragment with options first",
         false,
         SY_DROP_NONE,
         44,
         8,
         {60, 0, 0, 17, 1, 2, 3, 4}},
};

static void test_headers(void **state)
{
	for (size_t i = 0; i < SY_ARRAY_LEN(header_cases); i++) {
		const struct header_case *c = &header_cases[i];
		struct frame f = frame_make(c->v4, 6, 24);
		struct sy_view v;
		enum sy_drop got;
		headers_insert(&f, c->v4, c->bytes, c->len, c->next);
		got = frame_parse(&f, &v);
		if (got != c->want)
			fail_msg("%s: %s instead of %s", c->what, sy_drop_name(got),
			         sy_drop_name(c->want));
		if (got == SY_DROP_NONE) {
			assert_int_equal(v.l4, 14 + frame_ip_len(c->v4) + c->len);
			assert_int_equal(v.l4_len, 24);
		}
	}
}

static void test_too_many_extensions(void **state)
{
	struct frame f = frame_make(false, 6, 20);
	struct sy_view v;

	for (unsigned n = 0; n < 9; n++) {
		const uint8_t ext[8] = {n ? 60 : 6, 0, 1, 4};
		assert_int_equal(frame_parse(&f, &v),
		                 n < 8 ? SY_DROP_NONE : SY_DROP_EXTENSION_HEADER);
		headers_insert(&f, false, ext, sizeof(ext), 60);
	}
}

static void test_fragment_view(void **state)
{
	const uint8_t ext[8] = {17, 0, 0x05, 0xa9, 0xde, 0xad, 0xbe, 0xef};
	struct frame f = frame_make(false, 17, 64);
	struct sy_view v;

	headers_insert(&f, false, ext, sizeof(ext), 44);
	v = frame_view(&f);
	assert_int_equal(v.fragment, SY_FRAGMENT_LATER);
	assert_int_equal(v.fragment_offset, 0x5a8);
	assert_int_equal(v.fragment_id, 0xdeadbeef);
	assert_int_equal(v.tuple.sport | v.tuple.dport, 0);
	assert_int_equal(v.l4, 62);
	assert_int_equal(v.l4_len, 64);
	assert_int_equal(sy_packet_check_l4(f.bytes, &v), SY_CSUM_UNKNOWN);

	f = frame_make(true, 17, 64);
	put16(f.bytes + 18, 0x1234);
	put16(f.bytes + 20, 0x2000);
	put16(frame_l4(&f, true) + 4, 1000); /* of the whole datagram */
	frame_ip_finish(&f);
	v = frame_view(&f);
	assert_int_equal(v.fragment, SY_FRAGMENT_FIRST);
	assert_int_equal(v.fragment_offset, 0);
	assert_int_equal(v.fragment_id, 0x1234);
	assert_int_equal(v.tuple.dport, htons((uint16_t)get16(frame_l4(&f, true) + 2)));

	put16(f.bytes + 20, 10);
	frame_ip_finish(&f);
	v = frame_view(&f);
	assert_int_equal(v.fragment, SY_FRAGMENT_LAST);
	assert_int_equal(v.fragment_offset, 80);
	assert_int_equal(v.tuple.dport, 0);
}

static void tag_insert(struct frame *f, unsigned type)
{
	memmove(f->bytes + 16, f->bytes + 12, f->len - 12);
	put16(f->bytes + 12, type);
	put16(f->bytes + 14, 42);
	f->len += 4;
}

static void test_tags(void **state)
{
	for (unsigned kind = 0; kind < 2; kind++) {
		bool v4 = kind;
		struct frame f = frame_make(v4, 6, 20);
		struct sy_view plain = frame_view(&f), v;
		tag_insert(&f, 0x8100);
		v = frame_view(&f);
		assert_int_equal(v.vlans, 1);
		assert_int_equal(v.l3, 18);
		assert_int_equal(v.l4, plain.l4 + 4);
		assert_int_equal(v.frame_len, f.len);
		assert_memory_equal(&v.tuple, &plain.tuple, sizeof(v.tuple));
		tag_insert(&f, 0x88a8);
		v = frame_view(&f);
		assert_int_equal(v.vlans, 2);
		assert_int_equal(v.l3, 22);
		for (uint32_t whole = f.len; f.len > 0 && f.len <= whole; f.len--)
			assert_int_equal(frame_parse(&f, &v),
			                 f.len == whole ? SY_DROP_NONE : SY_DROP_TRUNCATED);
		f = frame_make(v4, 6, 20);
		for (unsigned n = 0; n < 3; n++)
			tag_insert(&f, 0x8100);
		assert_int_equal(frame_parse(&f, &v), SY_DROP_VLAN);
	}
}

static void test_echo_id(void **state)
{
	for (unsigned kind = 0; kind < 2; kind++) {
		struct frame f = frame_make(kind, kind ? 1 : 58, 16);
		put16(frame_l4(&f, kind) + 4, 0xabcd);
		assert_int_equal(frame_view(&f).icmp_id, htons(0xabcd));
		frame_l4(&f, kind)[0] = 3;
		assert_int_equal(frame_view(&f).icmp_id, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_cases),
	        cmocka_unit_test(test_plain),
	        cmocka_unit_test(test_addresses),
	        cmocka_unit_test(test_mapped),
	        cmocka_unit_test(test_view),
	        cmocka_unit_test(test_every_cut),
	        cmocka_unit_test(test_giant),
	        cmocka_unit_test(test_headers),
	        cmocka_unit_test(test_too_many_extensions),
	        cmocka_unit_test(test_fragment_view),
	        cmocka_unit_test(test_tags),
	        cmocka_unit_test(test_echo_id),
	};
	return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}
