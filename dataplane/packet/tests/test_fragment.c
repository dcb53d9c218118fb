// SPDX-License-Identifier: Apache-2.0
/* The length and id of fragments, and the fragmentation of packets. */
#include "frame.h"

#define ID 0x11223344

/* Headers of an IPv6 fragment between IP and transport, and the offset of its fragment header. */
static const struct chain {
	uint8_t bytes[24];
	uint8_t len, at;
} chains[] = {
        {{17, 0, 0, 1, 0x11, 0x22, 0x33, 0x44}, 8, 0},
        /* hop-by-hop options before it, destination options after it */
        {{44, 0, 1, 4, 0, 0, 0, 0, 60, 0, 0, 1, 0x11, 0x22, 0x33, 0x44, 17, 0, 1, 4}, 24, 8},
};

static struct frame first_v6(const struct chain *c)
{
	struct frame f = frame_make(false, 17, 64);
	uint8_t *ip = f.bytes + 14;

	memmove(ip + 40 + c->len, ip + 40, 64);
	memcpy(ip + 40, c->bytes, c->len);
	ip[6] = c->at ? 0 : 44;
	put16(ip + 4, 64u + c->len);
	f.len += c->len;
	return f;
}

static struct frame first_v4(void)
{
	struct frame f = frame_make(true, 17, 64);

	put16(f.bytes + 18, ID & 0xffff);
	put16(f.bytes + 20, 0x2000);
	frame_ip_finish(&f);
	return f;
}

static void test_length(void **state)
{
	struct frame f = first_v4();
	struct sy_view v = frame_view(&f);

	assert_int_equal(sy_packet_fragment_len(f.bytes, &v), 64);
	for (unsigned i = 0; i < SY_ARRAY_LEN(chains); i++) {
		f = first_v6(&chains[i]);
		v = frame_view(&f);
		assert_int_equal(v.l4_len, 64);
		assert_int_equal(sy_packet_fragment_len(f.bytes, &v),
		                 64 + chains[i].len - chains[i].at - 8);
	}
}

/* The id changes if the source changes, and only then. */
static void renumber_check(const struct frame *in)
{
	struct frame same = *in, other = *in;
	struct sy_view v = frame_view(in), after;
	struct sy_tuple to = v.tuple;
	unsigned behind = v.l4 + (sy_view_has_l4(&v) ? 8 : 0);
	struct sy_rewrite r;

	v.fragment_id = 0x55667788;
	sy_rewrite_prepare(&v.tuple, &to, &r);
	sy_packet_rewrite(same.bytes, &v, &r);
	assert_int_equal(frame_view(&same).fragment_id, v.v4 ? ID & 0xffff : ID);
	to.src.b[15] ^= 1;
	sy_rewrite_prepare(&v.tuple, &to, &r);
	sy_packet_rewrite(other.bytes, &v, &r);
	after = frame_view(&other); /* parsing succeeds only with a right checksum */
	assert_int_equal(after.fragment_id, v.v4 ? 0x7788 : 0x55667788);
	assert_int_equal(after.fragment_offset, v.fragment_offset);
	assert_true(sy_addr_equal(&after.tuple.src, &to.src));
	assert_memory_equal(other.bytes + behind, in->bytes + behind, in->len - behind);
}

static void test_renumber(void **state)
{
	struct frame f = first_v4();

	renumber_check(&f);
	put16(f.bytes + 20, 0x0010); /* the last */
	frame_ip_finish(&f);
	renumber_check(&f);
	for (unsigned i = 0; i < SY_ARRAY_LEN(chains); i++) {
		f = first_v6(&chains[i]);
		renumber_check(&f);
		f.bytes[14 + 40 + chains[i].at + 3] = 0x81; /* in the middle */
		renumber_check(&f);
	}
}

/* ---- fragmenting ----------------------------------------------------------------------------- */

/* A stream option, which every fragment carries, between record route and timestamp options, which
 * only the first fragment has (RFC 791 3.1). */
static const uint8_t options[20] = {7, 7, 4, 0, 0, 0, 0, 0x88, 4, 0x12, 0x34, 1, 68, 8, 5, 0};

static struct frame with_options(const struct frame *plain)
{
	struct frame f = *plain;

	memmove(f.bytes + 34 + sizeof(options), f.bytes + 34, f.len - 34);
	memcpy(f.bytes + 34, options, sizeof(options));
	f.bytes[14] = 0x4a;
	f.len += sizeof(options);
	put16(f.bytes + 16, f.len - 14);
	put16(f.bytes + 24, 0);
	put16(f.bytes + 24, ~sum_slow(0, f.bytes + 14, 40));
	return f;
}

static void may_fragment(struct frame *f)
{
	put16(f->bytes + 20, 0);
	frame_ip_finish(f);
}

/* Start of a fragment's data in the frame, and the data's offset in the datagram. */
struct part {
	unsigned from, offset, id;
	bool more;
};

static struct part part_of(const struct frame *f, bool v4)
{
	const uint8_t *ip = f->bytes + 14;
	unsigned field = get16(ip + (v4 ? 6 : 42));

	if (v4)
		return (struct part){14 + (ip[0] & 15) * 4u, (field & 0x1fff) * 8, get16(ip + 4),
		                     field & 0x2000};
	assert_int_equal(ip[6], 44);
	return (struct part){14 + 48, field & 0xfff8, get16(ip + 44) << 16 | get16(ip + 46),
	                     field & 1};
}

static void check_options(const struct frame *piece, bool first)
{
	static const uint8_t later[4] = {0x88, 4, 0x12, 0x34};

	assert_int_equal(piece->bytes[14], first ? 0x4a : 0x46);
	if (first)
		assert_memory_equal(piece->bytes + 34, options, sizeof(options));
	else
		assert_memory_equal(piece->bytes + 34, later, sizeof(later));
}

/* Fragments a frame. into[] gets the fragments' bytes, by their offset in the datagram, from `base`
 * on. Returns the number of fragments. */
static unsigned divide(const struct frame *in, bool v4, unsigned mtu, unsigned id, unsigned base,
                       bool more, uint8_t *into)
{
	unsigned count = 0, next = base;
	uint16_t at = 0;
	struct frame piece;

	for (;; count++) {
		piece.len = sy_packet_fragment(piece.bytes, 14 + mtu, in->bytes, (uint16_t)mtu, id,
		                               &at);
		if (piece.len == 0)
			break;
		struct part part = part_of(&piece, v4);
		unsigned len = piece.len - part.from;
		assert_true(piece.len <= 14 + mtu);
		assert_memory_equal(piece.bytes, in->bytes, 14);
		assert_int_equal(get16(piece.bytes + (v4 ? 16 : 18)), piece.len - (v4 ? 14 : 54));
		assert_int_equal(part.offset, next);
		assert_int_equal(part.id, id);
		assert_int_equal(piece.bytes[v4 ? 22 : 21], in->bytes[v4 ? 22 : 21]); /* TTL */
		if (v4)
			assert_int_equal(sum_slow(0, piece.bytes + 14, part.from - 14), 0xffff);
		if (v4 && in->bytes[14] == 0x4a)
			check_options(&piece, count == 0);
		memcpy(into + next - base, piece.bytes + part.from, len);
		next += len;
		if (part.more)
			assert_int_equal(len % 8, 0);
		if (!part.more || next - base >= in->len - 34u)
			assert_int_equal(part.more, more);
	}
	return count;
}

static void test_divide(void **state)
{
	static uint8_t into[FRAME_MAX];

	for (unsigned round = 0; round < 600; round++) {
		bool v4 = round % 3;
		unsigned len = 100 + (unsigned)rand() % 1400, mtu = 88 + (unsigned)rand() % 1200;
		struct frame f = frame_make(v4, round % 2 ? 6 : 17, len);
		if (v4)
			may_fragment(&f);
		if (round % 3 == 2)
			f = with_options(&f);
		unsigned head = f.len - len;
		memset(into, 0, sizeof(into));
		unsigned count = divide(&f, v4, mtu, ID & 0xffff, 0, false, into);
		unsigned min = (len + mtu - 1) / mtu;
		assert_true(count >= min && count <= 1 + len / 8);
		assert_memory_equal(into, f.bytes + head, len);
	}
}

/* Fragmenting a fragment keeps its id, offset and end. */
static void test_divide_a_fragment(void **state)
{
	static uint8_t into[FRAME_MAX];

	for (unsigned round = 0; round < 8; round++) {
		bool v4 = round & 1, more = round & 2;
		unsigned offset = round & 4 ? 1600 : 0, head = v4 ? 34 : 62;
		if (!offset && !more)
			continue;
		struct frame f = frame_make(v4, 17, 808);
		if (v4) {
			put16(f.bytes + 18, ID & 0xffff);
			put16(f.bytes + 20, (more ? 0x2000 : 0) | offset / 8);
			frame_ip_finish(&f);
		} else {
			const uint8_t header[] = {17,
			                          0,
			                          (uint8_t)(offset >> 8),
			                          (uint8_t)(offset | more),
			                          0x11,
			                          0x22,
			                          0x33,
			                          0x44};
			memmove(f.bytes + 62, f.bytes + 54, 808);
			memcpy(f.bytes + 54, header, sizeof(header));
			f.bytes[20] = 44;
			put16(f.bytes + 18, 816);
			f.len += 8;
		}
		unsigned count = divide(&f, v4, 300, v4 ? ID & 0xffff : ID, offset, more, into);
		assert_int_equal(count, v4 ? 3 : 4);
		assert_memory_equal(into, f.bytes + head, 808);
	}
}

static void check_refused(const struct frame *f, unsigned mtu, uint32_t cap)
{
	uint8_t out[FRAME_MAX];
	uint16_t at = 0;

	assert_int_equal(sy_packet_fragment(out, cap, f->bytes, (uint16_t)mtu, 1, &at), 0);
	assert_int_equal(at, 0);
}

static void test_refused(void **state)
{
	struct frame f = frame_make(true, 17, 1000), v6 = frame_make(false, 17, 1000);

	check_refused(&f, 27, FRAME_MAX);
	check_refused(&f, 500, 14 + 499);
	check_refused(&f, 500, 13);
	check_refused(&v6, 55, FRAME_MAX);
	v6.bytes[20] = 0; /* hop-by-hop options */
	check_refused(&v6, 500, FRAME_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_length),  cmocka_unit_test(test_renumber),
	        cmocka_unit_test(test_divide),  cmocka_unit_test(test_divide_a_fragment),
	        cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests_name("fragment", tests, NULL, NULL);
}
