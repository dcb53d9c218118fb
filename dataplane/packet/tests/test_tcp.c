// SPDX-License-Identifier: Apache-2.0
#include <sy_tcp_segment.h>

#include "frame.h"

static const uint8_t no_options[1];

/* A segment with these options and a valid checksum. */
static struct frame segment_make(bool v4, uint8_t flags, const uint8_t *options, unsigned len)
{
	struct frame f = frame_make(v4, 6, 20 + len + 30);
	uint8_t *l4 = frame_l4(&f, v4);

	l4[12] = (uint8_t)((20 + len) << 2);
	l4[13] = flags;
	memcpy(l4 + 20, options, len);
	frame_l4_finish(&f, v4);
	return f;
}

/* ---- options --------------------------------------------------------------------------------- */

static void test_toa_room(void **state)
{
	static const uint8_t none[40] = {1, 1, 1};
	struct sy_addr v4 = sy_addr_v4(htonl(0x0a000001)), v6;

	assert_int_equal(sy_addr_parse("2001:db8::1", &v6), 0);
	for (unsigned len = 0; len <= 40; len += 4) {
		for (unsigned six = 0; six < 2; six++) {
			struct frame f = segment_make(true, SY_TCP_ACK, none, len), capacity = {0};
			struct sy_view v = frame_view(&f), before = v;
			uint8_t *frame = capacity.bytes + SY_PACKET_HEADROOM, *at;
			memcpy(frame, f.bytes, f.len);
			at = sy_tcp_insert_toa(frame, &v, SY_TOA, six ? &v6 : &v4, 1);
			assert_int_equal(at != NULL, len + (six ? 20 : 8) <= 40);
			if (at) {
				assert_int_equal(frame - at, six ? 20 : 8);
				assert_true(frame_l4_ok(at, true) && frame_ip_ok(at, true));
			} else {
				assert_memory_equal(frame, f.bytes, f.len);
				assert_memory_equal(&v, &before, sizeof(v));
			}
		}
	}
}

/* Blocks at every alignment; not those of an option whose length is no whole number of them. */
static void test_blocks(void **state)
{
	for (unsigned pad = 0; pad < 4; pad++) {
		for (unsigned len = 2; pad + len <= 40; len++) {
			uint8_t options[40];
			struct sy_tcp_block block[SY_TCP_BLOCKS_MAX];
			memset(options, 1, sizeof(options));
			options[pad] = 5;
			options[pad + 1] = (uint8_t)len;
			for (unsigned i = 2; i < len; i++)
				options[pad + i] = (uint8_t)i;
			struct frame f = segment_make(true, SY_TCP_ACK, options, 40);
			struct sy_view v = frame_view(&f);
			unsigned count = sy_tcp_blocks_read(f.bytes, &v, block);
			assert_int_equal(count, len % 8 == 2 ? len / 8 : 0);
			for (unsigned i = 0; i < count; i++) {
				uint32_t first = 2 + 8 * i;
				assert_int_equal(block[i].from, first * 0x01010101u + 0x00010203);
				assert_int_equal(block[i].to,
				                 (first + 4) * 0x01010101u + 0x00010203);
			}
		}
	}
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* SACK blocks at every alignment, among other options; a wrong parity makes the checksum wrong. */
static void test_sack_anywhere(void **state)
{
	for (unsigned pad = 0; pad < 4; pad++) {
		for (unsigned blocks = 1; blocks <= 4; blocks++) {
			uint8_t options[40];
			unsigned len = (pad + 2 + 8 * blocks + 3) & ~3u;
			memset(options, 1, sizeof(options));
			options[pad] = 5;
			options[pad + 1] = (uint8_t)(2 + 8 * blocks);
			for (unsigned i = 0; i < 2 * blocks; i++)
				memcpy(options + pad + 2 + 4 * i, (const uint8_t[]){0, 0, 1, 0}, 4);
			for (unsigned v4 = 0; len <= 40 && v4 < 2; v4++) {
				struct frame f = segment_make(v4, SY_TCP_ACK, options, len);
				struct frame before = f;
				struct sy_view v = frame_view(&f);
				const uint8_t *l4 = frame_l4(&f, v4);
				sy_tcp_shift_ack(f.bytes, &v, 0x10203);
				assert_true(frame_l4_ok(f.bytes, v4));
				assert_memory_equal(l4, frame_l4(&before, v4), 8);
				for (unsigned i = 0; i < 2 * blocks; i++)
					assert_memory_equal(
					        l4 + 22 + pad + 4 * i,
					        ((const uint8_t[]){0xff, 0xfe, 0xfe, 0xfd}), 4);
			}
		}
	}
}

static void test_ack_without_flag(void **state)
{
	struct frame f = segment_make(true, SY_TCP_SYN, no_options, 0), before = f;
	struct sy_view v = frame_view(&f);

	sy_tcp_shift_ack(f.bytes, &v, 7);
	assert_memory_equal(f.bytes, before.bytes, f.len);
}

/* ---- resets ---------------------------------------------------------------------------------- */

static void test_reset_numbers(void **state)
{
	static const struct {
		uint8_t flags, want;
		uint32_t ack; /* above the sequence number */
	} cases[] = {
	        {SY_TCP_SYN, SY_TCP_RST | SY_TCP_ACK, 31},
	        {SY_TCP_FIN, SY_TCP_RST | SY_TCP_ACK, 31},
	        {SY_TCP_PSH, SY_TCP_RST | SY_TCP_ACK, 30},
	        {SY_TCP_SYN | SY_TCP_ACK, SY_TCP_RST, 0},
	        {SY_TCP_ACK, SY_TCP_RST, 0},
	        {SY_TCP_RST, 0, 0},
	        {SY_TCP_RST | SY_TCP_ACK, 0, 0},
	};

	for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
		for (unsigned v4 = 0; v4 < 2; v4++) {
			struct frame f = segment_make(v4, cases[i].flags, no_options, 0), out;
			struct sy_view v = frame_view(&f);
			const struct sy_tcp *in = sy_packet_tcp(f.bytes, &v), *tcp;
			out.len = sy_tcp_reset_answer(out.bytes, FRAME_MAX, f.bytes, &v);
			assert_int_equal(out.len, cases[i].want ? 14 + frame_ip_len(v4) + 20 : 0);
			if (out.len == 0)
				continue;
			assert_int_equal(sy_tcp_reset_answer(out.bytes, out.len - 1, f.bytes, &v),
			                 0);
			tcp = (const struct sy_tcp *)frame_l4(&out, v4);
			assert_int_equal(tcp->flags, cases[i].want);
			assert_int_equal(tcp->seq, cases[i].want & SY_TCP_ACK ? 0 : in->ack);
			assert_int_equal(ntohl(tcp->ack), cases[i].want & SY_TCP_ACK
			                                          ? ntohl(in->seq) + cases[i].ack
			                                          : 0);
			assert_true(frame_l4_ok(out.bytes, v4) && frame_ip_ok(out.bytes, v4));
		}
	}
}

static void test_reset_checks(void **state)
{
	assert_int_equal(sy_tcp_check_reset(100, 100, 0), SY_TCP_RESET_VALID);
	assert_int_equal(sy_tcp_check_reset(101, 100, 10), SY_TCP_RESET_CHALLENGE);
	assert_int_equal(sy_tcp_check_reset(109, 100, 10), SY_TCP_RESET_CHALLENGE);
	assert_int_equal(sy_tcp_check_reset(110, 100, 10), SY_TCP_RESET_IGNORE);
	assert_int_equal(sy_tcp_check_reset(99, 100, 10), SY_TCP_RESET_IGNORE);
	assert_int_equal(sy_tcp_check_reset(3, UINT32_MAX, 10), SY_TCP_RESET_CHALLENGE);
	assert_true(sy_tcp_check_ack(1000, 1000, 2000, 500));
	assert_true(sy_tcp_check_ack(2000, 1000, 2000, 500));
	assert_false(sy_tcp_check_ack(2001, 1000, 2000, 500));
	assert_true(sy_tcp_check_ack(500, 1000, 2000, 500));
	assert_false(sy_tcp_check_ack(499, 1000, 2000, 500));
	assert_true(sy_tcp_check_ack(10, UINT32_MAX - 10, 20, 500));
}

static void test_mss(void **state)
{
	assert_int_equal(sy_tcp_mss(true, 1500, 0), 1460);
	assert_int_equal(sy_tcp_mss(false, 1500, 0), 1440);
	assert_int_equal(sy_tcp_mss(true, 1500, 40), 1420);
	assert_int_equal(sy_tcp_mss(false, 60, 0), 1);
}

/* ---- PROXY protocol -------------------------------------------------------------------------- */

static struct sy_tuple tuple_of(const char *src, const char *dst, unsigned sport, unsigned dport,
                                uint32_t proto)
{
	struct sy_tuple t = {
	        .sport = htons((uint16_t)sport), .dport = htons((uint16_t)dport), .proto = proto};

	assert_int_equal(sy_addr_parse(src, &t.src), 0);
	assert_int_equal(sy_addr_parse(dst, &t.dst), 0);
	return t;
}

static void text_check(const struct sy_tuple *t, const char *want)
{
	uint8_t out[SY_PROXY_V1_MAX];

	assert_int_equal(sy_proxy_v1(out, t), strlen(want));
	assert_memory_equal(out, want, strlen(want));
}

static void test_proxy_v1(void **state)
{
	const char *longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
	struct sy_tuple four = tuple_of("192.168.0.1", "192.168.0.11", 56324, 443, 6);
	struct sy_tuple six = tuple_of("2001:db8::1", "2001:db8::2", 1, 65535, 6);
	struct sy_tuple max = tuple_of(longest, longest, 65535, 65535, 6);
	uint8_t out[SY_PROXY_V1_MAX];

	text_check(&four, "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n");
	text_check(&six, "PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n");
	text_check(NULL, "PROXY UNKNOWN\r\n");
	assert_int_equal(sy_proxy_v1(out, &max), 104);
}

static void test_proxy_v2(void **state)
{
	static const uint8_t four_want[] = {
	        0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21, 0x11,
	        0x00, 0x0c, 10,   0,    0,    1,    192,  0,    2,    80,   0x9c, 0x40, 0x00, 0x50};
	static const uint8_t six_want[] = {
	        0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21,
	        0x22, 0x00, 0x24, 0x20, 0x01, 0x0d, 0xb8, 0,    0,    0,    0,    0,    0,
	        0,    0,    0,    0,    0,    1,    0x20, 0x01, 0x0d, 0xb8, 0,    0,    0,
	        0,    0,    0,    0,    0,    0,    0,    0,    2,    0x9c, 0x40, 0x00, 0x35};
	struct sy_tuple four = tuple_of("10.0.0.1", "192.0.2.80", 40000, 80, 6);
	struct sy_tuple six = tuple_of("2001:db8::1", "2001:db8::2", 40000, 53, 17);
	uint8_t out[SY_PROXY_V2_MAX];

	assert_int_equal(sy_proxy_v2(out, &four), sizeof(four_want));
	assert_memory_equal(out, four_want, sizeof(four_want));
	assert_int_equal(sy_proxy_v2(out, &six), sizeof(six_want));
	assert_memory_equal(out, six_want, sizeof(six_want));
	assert_int_equal(sy_proxy_v2(out, NULL), 16);
	assert_memory_equal(out, four_want, 12);
	assert_memory_equal(out + 12, ((const uint8_t[]){0x20, 0, 0, 0}), 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_blocks),        cmocka_unit_test(test_toa_room),
	        cmocka_unit_test(test_sack_anywhere), cmocka_unit_test(test_ack_without_flag),
	        cmocka_unit_test(test_reset_numbers), cmocka_unit_test(test_reset_checks),
	        cmocka_unit_test(test_mss),           cmocka_unit_test(test_proxy_v1),
	        cmocka_unit_test(test_proxy_v2),
	};
	return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
