// SPDX-License-Identifier: Apache-2.0
/* Translation between families and encapsulation: a refused packet stays unchanged, and packets of
 * random lengths keep valid checksums. test_golden.c checks exact bytes. */
#include "frame.h"

static struct sy_tuple to_make(bool v4, uint32_t proto)
{
	struct sy_tuple t = {.sport = htons(1234), .dport = htons(80), .proto = proto};

	assert_int_equal(sy_addr_parse(v4 ? "10.1.0.1" : "fd00:1::1", &t.src), 0);
	assert_int_equal(sy_addr_parse(v4 ? "10.1.0.2" : "fd00:1::2", &t.dst), 0);
	return t;
}

struct padded {
	uint8_t bytes[SY_PACKET_HEADROOM + FRAME_MAX];
};

static uint8_t *translate(struct padded *capacity, const struct frame *f, struct sy_view *v)
{
	struct sy_tuple to = to_make(!v->v4, v->proto);
	struct sy_rewrite r;

	sy_rewrite_prepare(&v->tuple, &to, &r);
	memcpy(capacity->bytes + SY_PACKET_HEADROOM, f->bytes, f->len);
	return sy_packet_translate(capacity->bytes + SY_PACKET_HEADROOM, v, &r, 7);
}

static void refused_check(const struct frame *f)
{
	struct sy_view v = frame_view(f), before = v;
	struct padded capacity;

	assert_null(translate(&capacity, f, &v));
	assert_memory_equal(capacity.bytes + SY_PACKET_HEADROOM, f->bytes, f->len);
	assert_memory_equal(&v, &before, sizeof(v));
}

static void test_refused(void **state)
{
	struct frame f = frame_make(true, 1, 24);

	refused_check(&f); /* ICMP */
	f = frame_make(false, 58, 24);
	refused_check(&f);
	f = frame_make(false, 17, 24); /* IPv6 without a UDP checksum */
	put16(frame_l4_csum(&f, false), 0);
	refused_check(&f);
	f = frame_make(true, 17,
	               24); /* first fragment without a checksum, which needs the other bytes */
	put16(frame_l4_csum(&f, true), 0);
	put16(f.bytes + 20, 0x2000);
	frame_ip_finish(&f);
	refused_check(&f);
	/* a first fragment with options before its transport */
	f = frame_make(false, 44, 48);
	memcpy(frame_l4(&f, false),
	       (const uint8_t[]){60, 0, 0, 1, 1, 2, 3, 4, 17, 0, 1, 4, 0, 0, 0, 0}, 16);
	put16(frame_l4(&f, false) + 16 + 4, 500);
	refused_check(&f);
	/* a last fragment that ends where IPv6 allows it, and beyond IPv4's largest datagram */
	f = frame_make(false, 44, 8 + 132);
	memcpy(frame_l4(&f, false), (const uint8_t[]){17, 0, 0xff, 0x70, 0, 0, 0, 1}, 8);
	refused_check(&f);
	struct padded capacity;
	frame_l4(&f, false)[3] = 0x58; /* 24 bytes earlier, it ends at 65 520 with the header */
	struct sy_view v = frame_view(&f);
	assert_non_null(translate(&capacity, &f, &v));
}

static void test_random_lengths(void **state)
{
	for (unsigned i = 0; i < 8000; i++) {
		bool v4 = i & 1;
		unsigned l4_len = 20 + (unsigned)(random_next() % 1400);
		struct frame f = frame_make(v4, i & 2 ? 6 : 17, l4_len);
		struct sy_view v = frame_view(&f), parsed;
		struct padded capacity;
		const uint8_t *at = translate(&capacity, &f, &v);
		assert_ptr_equal(at, capacity.bytes + SY_PACKET_HEADROOM + (v4 ? -20 : 20));
		assert_int_equal(sy_packet_parse(at, v.frame_len, &parsed), SY_DROP_NONE);
		assert_memory_equal(&parsed, &v, sizeof(v));
		assert_int_equal(sy_packet_ttl(at, &v), 63);
		assert_true(frame_ip_ok(at, !v4) && frame_l4_ok(at, !v4));
		assert_memory_equal(at + v.l4 + 18, frame_l4(&f, v4) + 18, l4_len - 18);
	}
}

/* The greatest length that a frame's offsets can express, and one byte more. */
static void test_longest(void **state)
{
	uint8_t *block = calloc(1, SY_PACKET_HEADROOM + UINT16_MAX),
	        *frame = block + SY_PACKET_HEADROOM;
	struct frame head = frame_make(true, 17, 8);
	struct sy_tuple to = to_make(false, 17);

	assert_non_null(block);
	for (unsigned over = 0; over < 2; over++) {
		unsigned total = UINT16_MAX - 14 - 20 + over;
		struct sy_view v;
		struct sy_rewrite r;
		put16(head.bytes + 16, total);
		put16(head.bytes + 38, total - 20);
		frame_ip_finish(&head);
		memcpy(frame, head.bytes, head.len);
		assert_int_equal(sy_packet_parse(frame, UINT16_MAX, &v), SY_DROP_NONE);
		sy_rewrite_prepare(&v.tuple, &to, &r);
		struct sy_view kept = v;
		assert_null(sy_packet_encapsulate(frame, &v, &to.src, &to.dst, 0, 0));
		assert_memory_equal(frame, head.bytes, head.len);
		assert_int_equal(sy_packet_translate(frame, &v, &r, 0) != NULL, !over);
		assert_int_equal(kept.frame_len, UINT16_MAX - 20 + over);
	}
	free(block);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_random_lengths),
	        cmocka_unit_test(test_longest),
	};
	return cmocka_run_group_tests_name("translate", tests, NULL, NULL);
}
