// SPDX-License-Identifier: Apache-2.0
/* What a fragment carries, and the id it leaves under. */
#include "frame.h"

#define ID 0x11223344

/* Headers of an IPv6 fragment as they stand between IP and transport; where its own header is. */
static const struct chain {
	uint8_t bytes[24];
	uint8_t len, at;
} chains[] = {
        {{17, 0, 0, 1, 0x11, 0x22, 0x33, 0x44}, 8, 0},
        /* hop-by-hop in front of it, destination options behind it */
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

/* The id changes with the source, and only then. */
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
	after = frame_view(&other); /* its checksum is right, else it cannot be parsed */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_length),
	        cmocka_unit_test(test_renumber),
	};
	return cmocka_run_group_tests_name("fragment", tests, NULL, NULL);
}
