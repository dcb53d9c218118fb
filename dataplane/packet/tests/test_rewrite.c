// SPDX-License-Identifier: Apache-2.0
#include "frame.h"

static struct sy_addr random_addr(bool v4)
{
	struct sy_addr a;

	random_fill(a.b, sizeof(a.b));
	a.b[0] = 0x20;
	a.b[12] = 10;
	return v4 ? sy_addr_v4(a.w[3]) : a;
}

static struct sy_tuple random_tuple(bool v4, unsigned proto)
{
	return (struct sy_tuple){
	        .src = random_addr(v4),
	        .dst = random_addr(v4),
	        .sport = (uint16_t)random_next(),
	        .dport = (uint16_t)random_next(),
	        .proto = proto,
	};
}

static bool tuple_equal(const struct sy_tuple *a, const struct sy_tuple *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* Rewrites f. The parser must then return `to`, and bytes after the headers must not change. */
static void rewrite_check(struct frame *f, const struct sy_tuple *to)
{
	struct sy_view v = frame_view(f), after;
	const struct frame before = *f;
	struct frame plain = *f;
	unsigned payload = v.l4 + (v.proto == SY_PROTO_TCP ? 20 : 8);
	struct sy_rewrite r;

	sy_rewrite_prepare(&v.tuple, to, &r);
	sy_packet_rewrite(f->bytes, &v, &r);
	sy_plain_rewrite(plain.bytes, sy_plain_parse(before.bytes, before.len), &to->src, &to->dst,
	                 to->sport | (uint32_t)to->dport << 16, r.l4_delta);
	assert_memory_equal(plain.bytes, f->bytes, f->len);
	after = frame_view(f);
	assert_true(tuple_equal(&after.tuple, to));
	assert_int_equal(sy_packet_ttl(f->bytes, &after), sy_packet_ttl(before.bytes, &v) - 1);
	assert_true(frame_ip_ok(f->bytes, v.v4));
	assert_memory_equal(f->bytes, before.bytes, 14);
	assert_memory_equal(f->bytes + 14, before.bytes + 14, v.v4 ? 8 : 7);
	assert_memory_equal(f->bytes + payload, before.bytes + payload, f->len - payload);
}

static void test_random(void **state)
{
	for (unsigned i = 0; i < 60000; i++) {
		bool v4 = i & 1;
		unsigned proto = i & 2 ? 6 : 17;
		struct frame f = frame_make(v4, proto, 20 + (unsigned)(random_next() % 200));
		struct sy_tuple to = random_tuple(v4, proto), from = frame_view(&f).tuple;
		rewrite_check(&f, &to);
		assert_true(frame_l4_ok(f.bytes, v4));
		rewrite_check(&f, &from);
		assert_true(frame_l4_ok(f.bytes, v4));
	}
}

/* A rewrite to the packet's own addresses: only the TTL changes. */
static void test_age(void **state)
{
	for (unsigned i = 0; i < 60000; i++) {
		bool v4 = i & 1;
		struct frame f = frame_make(v4, i & 2 ? 6 : 17, 20), aged = f;
		struct sy_view v = frame_view(&f);
		struct sy_rewrite same;
		sy_rewrite_prepare(&v.tuple, &v.tuple, &same);
		sy_packet_rewrite(f.bytes, &v, &same);
		sy_plain_hop(aged.bytes, v4);
		assert_memory_equal(aged.bytes, f.bytes, f.len);
	}
}

/* A rewrite with inverted deltas restores the packet. */
static void test_inverse(void **state)
{
	for (unsigned i = 0; i < 20000; i++) {
		bool v4 = i & 1;
		struct sy_tuple a = random_tuple(v4, 6), b = random_tuple(v4, 6);
		struct sy_rewrite there, back;
		uint16_t csum = (uint16_t)(random_next() % 0xffff);
		sy_rewrite_prepare(&a, &b, &there);
		sy_rewrite_prepare(&b, &a, &back);
		assert_int_equal(sy_csum_apply(sy_csum_apply(csum, there.l4_delta), back.l4_delta),
		                 csum);
		assert_int_equal(sy_csum_apply(csum, back.l4_delta),
		                 sy_csum_apply(csum, sy_csum_inverse(there.l4_delta)));
		assert_int_equal(sy_csum_apply(csum, back.l3_delta),
		                 sy_csum_apply(csum, v4 ? sy_csum_inverse(there.l3_delta) : 0));
	}
}

static void test_bad_stays_bad(void **state)
{
	for (unsigned i = 0; i < 4000; i++) {
		bool v4 = i & 1;
		unsigned proto = i & 2 ? 6 : 17;
		struct frame f = frame_make(v4, proto, 40);
		struct sy_tuple to = random_tuple(v4, proto);
		frame_l4(&f, v4)[30] ^= (uint8_t)(1 + random_next() % 255);
		rewrite_check(&f, &to);
		assert_false(frame_l4_ok(f.bytes, v4));
	}
}

static void test_udp_zero(void **state)
{
	struct frame f = frame_make(true, 17, 40);
	struct sy_tuple to = random_tuple(true, 17);

	put16(frame_l4_csum(&f, true), 0);
	rewrite_check(&f, &to);
	assert_int_equal(get16(frame_l4_csum(&f, true)), 0);
}

/* Ports for which the checksum would become zero. */
static void test_udp_becomes_zero(void **state)
{
	for (unsigned i = 0; i < 2000; i++) {
		bool v4 = i & 1;
		struct frame f = frame_make(v4, 17, 40);
		struct sy_tuple to = random_tuple(v4, 17);
		rewrite_check(&f, &to);
		/* the checksum, added to a word of the sum, leaves -0 to be inverted */
		to.dport = sy_csum_fold((uint32_t)to.dport + htons(get16(frame_l4_csum(&f, v4))));
		rewrite_check(&f, &to);
		assert_int_equal(get16(frame_l4_csum(&f, v4)), 0xffff);
		assert_true(frame_l4_ok(f.bytes, v4));
	}
}

/* Every DSCP over every traffic class: the ECN bits stay, IPv4's checksum stays right, and no other
 * byte changes. */
static void test_dscp(void **state)
{
	(void)state;
	for (unsigned v4 = 0; v4 < 2; v4++)
		for (unsigned n = 0; n < 256 * 64; n++) {
			const unsigned class = n % 256, dscp = n / 256,
			               now = dscp << 2 | (class & 3);
			uint8_t before[SY_ETH_LEN + 40] = {0}, after[sizeof(before)];
			uint8_t *ip = before + SY_ETH_LEN;
			random_fill(ip, 40);
			before[12] = v4 ? 0x08 : 0x86;
			before[13] = v4 ? 0x00 : 0xdd;
			if (v4) {
				ip[0] = 0x45;
				ip[1] = (uint8_t) class;
				ip[10] = ip[11] = 0;
				uint16_t sum = (uint16_t)~sum_slow(0, ip, 20);
				ip[10] = (uint8_t)(sum >> 8);
				ip[11] = (uint8_t)sum;
			} else {
				ip[0] = (uint8_t)(0x60 | class >> 4);
				ip[1] = (uint8_t)(class << 4 | (ip[1] & 15));
			}
			memcpy(after, before, sizeof(after));
			sy_packet_set_dscp(after, (uint8_t)dscp);
			if (v4) {
				assert_int_equal(sum_slow(0, after + SY_ETH_LEN, 20), 0xffff);
				ip[1] = (uint8_t)now;
				memcpy(ip + 10, after + SY_ETH_LEN + 10, 2);
			} else {
				ip[0] = (uint8_t)(0x60 | now >> 4);
				ip[1] = (uint8_t)(now << 4 | (ip[1] & 15));
			}
			assert_memory_equal(before, after, sizeof(after));
		}
}

/* 10.0.0.1:1000 → 192.0.2.1:80, TCP SYN, to 10.1.0.1:2000 → 10.2.0.1:8080;
 * checksums from an independent computation. */
static void test_golden(void **state)
{
	static const uint8_t before[] = {
	        0x02, 0,    0,    0,    0,    1,    0x02, 0,    0,    0,    0,    2,    0x08, 0x00,
	        0x45, 0x00, 0x00, 0x28, 0x00, 0x00, 0x40, 0x00, 0x40, 0x06, 0x6e, 0xce, 0x0a, 0x00,
	        0x00, 0x01, 0xc0, 0x00, 0x02, 0x01, 0x03, 0xe8, 0x00, 0x50, 0x00, 0x00, 0x00, 0x01,
	        0x00, 0x00, 0x00, 0x00, 0x50, 0x02, 0xff, 0xff, 0xdf, 0xa7, 0x00, 0x00,
	};
	static const uint8_t after[] = {
	        0x02, 0,    0,    0,    0,    1,    0x02, 0,    0,    0,    0,    2,    0x08, 0x00,
	        0x45, 0x00, 0x00, 0x28, 0x00, 0x00, 0x40, 0x00, 0x3f, 0x06, 0x27, 0xcc, 0x0a, 0x01,
	        0x00, 0x01, 0x0a, 0x02, 0x00, 0x01, 0x07, 0xd0, 0x1f, 0x90, 0x00, 0x00, 0x00, 0x01,
	        0x00, 0x00, 0x00, 0x00, 0x50, 0x02, 0xff, 0xff, 0x74, 0x7d, 0x00, 0x00,
	};
	struct frame f = {.len = sizeof(before)};
	struct sy_tuple to = {.sport = htons(2000), .dport = htons(8080), .proto = 6};

	memcpy(f.bytes, before, sizeof(before));
	assert_true(frame_ip_ok(before, true) && frame_l4_ok(before, true));
	assert_int_equal(sy_addr_parse("10.1.0.1", &to.src), 0);
	assert_int_equal(sy_addr_parse("10.2.0.1", &to.dst), 0);
	rewrite_check(&f, &to);
	assert_memory_equal(f.bytes, after, sizeof(after));
}

/* ---- checksum state -------------------------------------------------------------------------- */

static enum sy_csum_state check_l4(const struct frame *f, const struct sy_view *v)
{
	enum sy_csum_state state = sy_packet_check_l4(f->bytes, v);
	assert_int_equal(sy_packet_is_unfinished(f->bytes, v), state == SY_CSUM_UNFINISHED);
	return state;
}

static void test_check_l4(void **state)
{
	for (unsigned i = 0; i < 6000; i++) {
		bool v4 = i & 1;
		unsigned proto = i % 3 == 0 ? 6 : i % 3 == 1 ? 17 : v4 ? 1 : 58;
		struct frame f = frame_make(v4, proto, 20 + (unsigned)(random_next() % 300));
		struct sy_view v = frame_view(&f);
		unsigned l4_len = v.l4_len;
		uint8_t *csum = frame_l4_csum(&f, v4);
		bool unfinished;
		assert_int_equal(check_l4(&f, &v), SY_CSUM_OK);
		frame_l4(&f, v4)[random_next() % 2 ? 0 : l4_len - 1] ^= 0x10;
		/* once in 65536 the old checksum equals the unfinished one by chance */
		unfinished = proto != 1 && get16(csum) == frame_pseudo_sum(f.bytes, v4);
		assert_int_equal(check_l4(&f, &v), unfinished ? SY_CSUM_UNFINISHED : SY_CSUM_BAD);
		if (proto == 1)
			continue;
		/* a checksum left to the sender's hardware: the pseudo header's sum */
		put16(csum, frame_pseudo_sum(f.bytes, v4));
		assert_int_equal(check_l4(&f, &v), SY_CSUM_UNFINISHED);
	}
}

static void test_check_udp_zero(void **state)
{
	struct frame f4 = frame_make(true, 17, 31), f6 = frame_make(false, 17, 31);
	struct sy_view v4 = frame_view(&f4), v6 = frame_view(&f6);

	put16(frame_l4_csum(&f4, true), 0);
	put16(frame_l4_csum(&f6, false), 0);
	assert_int_equal(check_l4(&f4, &v4), SY_CSUM_OK);
	assert_int_equal(check_l4(&f6, &v6), SY_CSUM_BAD);
}

/* A UDP datagram that is shorter than its IP packet. */
static void test_check_udp_short(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct frame f = frame_make(i, 17, 60);
		struct sy_view v;
		put16(frame_l4(&f, i) + 4, 41);
		frame_l4_finish(&f, i);
		v = frame_view(&f);
		assert_int_equal(v.l4_len, 60);
		assert_int_equal(check_l4(&f, &v), SY_CSUM_OK);
		frame_l4(&f, i)[41] ^= 1;
		assert_int_equal(check_l4(&f, &v), SY_CSUM_OK);
		frame_l4(&f, i)[40] ^= 1;
		assert_int_equal(check_l4(&f, &v), SY_CSUM_BAD);
	}
}

/* ---- MSS ------------------------------------------------------------------------------------- */

static struct frame syn_make(bool v4, const uint8_t *options, unsigned len)
{
	unsigned padded = (len + 3) / 4 * 4;
	struct frame f = frame_make(v4, 6, 20 + padded);
	uint8_t *l4 = frame_l4(&f, v4);

	l4[12] = (uint8_t)((5 + padded / 4) << 4);
	l4[13] = SY_TCP_SYN;
	memset(l4 + 20, 0, padded);
	memcpy(l4 + 20, options, len);
	frame_l4_finish(&f, v4);
	return f;
}

static const struct mss_case {
	const char *what;
	uint8_t options[12];
	uint8_t len, mss_at; /* 0: nothing changes */
} mss_cases[] = {
        {"MSS alone", {2, 4, 5, 0xb4}, 4, 2},
        {"at an odd offset", {1, 2, 4, 5, 0xb4}, 5, 3},
        {"behind two NOPs", {1, 1, 2, 4, 5, 0xb4}, 6, 4},
        {"behind an unknown option of odd length", {3, 3, 7, 2, 4, 5, 0xb4}, 7, 5},
        {"before a malformed option", {2, 4, 5, 0xb4, 8, 0}, 6, 2},
        {"just the limit", {2, 4, 5, 0x78}, 4, 0},
        {"below the limit", {2, 4, 2, 0x18}, 4, 0},
        {"behind the end", {0, 2, 4, 5, 0xb4}, 5, 0},
        {"length 0", {8, 0, 2, 4, 5, 0xb4}, 6, 0},
        {"length 1", {8, 1, 2, 4, 5, 0xb4}, 6, 0},
        {"MSS of length 3", {2, 3, 0xff, 1}, 4, 0},
        {"MSS of length 0", {2, 0, 5, 0xb4}, 4, 0},
        {"overrun", {1, 1, 8, 3}, 4, 0},
        {"MSS overrun", {1, 2, 4, 0xff}, 4, 0},
        {"kind without length", {1, 1, 1, 2}, 4, 0},
        {"no option", {0}, 0, 0},
};

static void test_mss(void **state)
{
	for (size_t i = 0; i < 2 * SY_ARRAY_LEN(mss_cases); i++) {
		const struct mss_case *c = &mss_cases[i / 2];
		struct frame f = syn_make(i & 1, c->options, c->len), before = f;
		struct sy_view v = frame_view(&f);
		bool changed = sy_packet_clamp_mss(f.bytes, &v, 1400);
		if (changed != (c->mss_at != 0))
			fail_msg("%s: %s", c->what, changed ? "changed" : "left alone");
		assert_true(frame_l4_ok(f.bytes, i & 1));
		if (changed) {
			uint8_t *value = frame_l4(&before, i & 1) + 20 + c->mss_at;
			put16(value, 1400);
			frame_l4_finish(&before, i & 1);
		}
		assert_memory_equal(f.bytes, before.bytes, f.len);
	}
}

static void test_mss_every(void **state)
{
	static const uint8_t twice[] = {2, 4, 5, 0xb4, 1, 2, 4, 0xff, 0xff};

	for (unsigned mss = 0; mss < 1460; mss++) {
		struct frame f = syn_make(mss & 1, twice, sizeof(twice));
		struct sy_view v = frame_view(&f);
		uint8_t *options = frame_l4(&f, mss & 1) + 20;
		assert_true(sy_packet_clamp_mss(f.bytes, &v, (uint16_t)mss));
		assert_int_equal(get16(options + 2), mss);
		assert_int_equal(get16(options + 7), mss);
		assert_true(frame_l4_ok(f.bytes, mss & 1));
		assert_false(sy_packet_clamp_mss(f.bytes, &v, (uint16_t)mss));
	}
}

/* Byte by byte (RFC 9293 3.1): lowers every MSS option up to a malformed one. */
static void mss_lower_slowly(uint8_t *options, unsigned len, unsigned mss)
{
	for (unsigned at = 0; at < len && options[at] != 0;) {
		if (options[at] == 1) {
			at++;
			continue;
		}
		if (at + 1 == len || options[at + 1] < 2 || options[at + 1] > len - at)
			return;
		if (options[at] == 2 && options[at + 1] == 4 && get16(options + at + 2) > mss)
			put16(options + at + 2, mss);
		at += options[at + 1];
	}
}

/* Words of which senders make their options; not all are whole options. */
static void test_mss_layouts(void **state)
{
	static const uint8_t words[][4] = {
	        {2, 4, 5, 0xb4}, {2, 4, 5, 0xb4}, {2, 4, 2, 0x18}, {1, 1, 4, 2}, {1, 1, 8, 10},
	        {4, 2, 8, 10},   {1, 3, 3, 7},    {1, 3, 3, 2},    {1, 2, 4, 9}, {4, 2, 1, 1},
	        {1, 1, 1, 1},    {0, 0, 0, 0},    {3, 3, 2, 4},    {4, 2, 0, 0}, {2, 4, 0xff, 0xff},
	};

	for (unsigned n = 0; n < 200000; n++) {
		uint8_t options[40];
		unsigned len = (unsigned)(random_next() % 11) * 4;
		for (unsigned at = 0; at < len; at += 4) {
			size_t kind = random_next() % (SY_ARRAY_LEN(words) + 1);
			if (kind < SY_ARRAY_LEN(words))
				memcpy(options + at, words[kind], 4);
			else
				random_fill(options + at, 4);
		}
		if (len && n % 4) /* padding, as most senders do */
			memcpy(options, words[0], 4);
		struct frame f = syn_make(n & 1, options, len), before = f;
		struct sy_view v = frame_view(&f);
		bool changed = sy_packet_clamp_mss(f.bytes, &v, 1400);
		mss_lower_slowly(frame_l4(&before, n & 1) + 20, len, 1400);
		assert_int_equal(changed, memcmp(frame_l4(&before, n & 1) + 20, options, len) != 0);
		frame_l4_finish(&before, n & 1);
		assert_memory_equal(f.bytes, before.bytes, f.len);
	}
}

static void test_mss_not_syn(void **state)
{
	static const uint8_t option[] = {2, 4, 5, 0xb4};
	struct frame f = syn_make(true, option, sizeof(option)), before, udp;
	struct sy_view v;

	frame_l4(&f, true)[13] = SY_TCP_ACK;
	frame_l4_finish(&f, true);
	before = f;
	v = frame_view(&f);
	assert_false(sy_packet_clamp_mss(f.bytes, &v, 500));
	assert_memory_equal(f.bytes, before.bytes, f.len);
	udp = frame_make(true, 17, 40);
	v = frame_view(&udp);
	assert_false(sy_packet_clamp_mss(udp.bytes, &v, 500));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_random),          cmocka_unit_test(test_age),
	        cmocka_unit_test(test_inverse),         cmocka_unit_test(test_bad_stays_bad),
	        cmocka_unit_test(test_udp_zero),        cmocka_unit_test(test_udp_becomes_zero),
	        cmocka_unit_test(test_golden),          cmocka_unit_test(test_dscp),
	        cmocka_unit_test(test_check_l4),        cmocka_unit_test(test_check_udp_zero),
	        cmocka_unit_test(test_check_udp_short), cmocka_unit_test(test_mss),
	        cmocka_unit_test(test_mss_every),       cmocka_unit_test(test_mss_layouts),
	        cmocka_unit_test(test_mss_not_syn),
	};
	return cmocka_run_group_tests_name("rewrite", tests, NULL, NULL);
}
