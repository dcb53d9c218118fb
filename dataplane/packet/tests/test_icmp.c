// SPDX-License-Identifier: Apache-2.0
#include "frame.h"

static void macs_check(const uint8_t *out, const uint8_t *in)
{
	assert_memory_equal(out, in + 6, 6);
	assert_memory_equal(out + 6, in, 6);
	assert_memory_equal(out + 12, in + 12, 2);
}

/* ---- echo ------------------------------------------------------------------------------------ */

static void test_echo(void **state)
{
	for (unsigned i = 0; i < 4000; i++) {
		bool v4 = i & 1;
		struct frame f = frame_make(v4, v4 ? 1 : 58, 8 + (unsigned)(random_next() % 200));
		struct frame before = f;
		struct sy_view v, after;
		const uint8_t *l4 = frame_l4(&f, v4), *l4_before = frame_l4(&before, v4);
		f.bytes[v4 ? 22 : 21] = 3;
		if (v4)
			frame_ip_finish(&f);
		v = frame_view(&f);
		sy_packet_echo_reply(f.bytes, &v);
		after = frame_view(&f);
		macs_check(f.bytes, before.bytes);
		assert_true(sy_addr_equal(&after.tuple.src, &v.tuple.dst));
		assert_true(sy_addr_equal(&after.tuple.dst, &v.tuple.src));
		assert_int_equal(sy_packet_ttl(f.bytes, &after), 64);
		assert_int_equal(l4[0], v4 ? 0 : 129);
		assert_int_equal(l4[1], 0);
		assert_memory_equal(l4 + 4, l4_before + 4, v.l4_len - 4);
		assert_true(frame_ip_ok(f.bytes, v4));
		assert_true(frame_l4_ok(f.bytes, v4));
	}
}

/* All bytes but the checksum are zero: +0 and -0 must not be confused. */
static void test_echo_zeros(void **state)
{
	for (unsigned len = 8; len < 64; len++) {
		struct frame f = frame_make(true, 1, len);
		struct sy_view v;
		memset(frame_l4(&f, true) + 1, 0, len - 1);
		frame_l4_finish(&f, true);
		v = frame_view(&f);
		sy_packet_echo_reply(f.bytes, &v);
		assert_true(frame_l4_ok(f.bytes, true));
	}
}

/* ---- errors ---------------------------------------------------------------------------------- */

static struct sy_addr source_of(bool v4)
{
	struct sy_addr a;
	assert_int_equal(sy_addr_parse(v4 ? "192.0.2.254" : "2001:db8::fe", &a), 0);
	return a;
}

/* The error about f, built in a heap block of exactly its size: ASan detects a write beyond it. */
static uint32_t error_make(struct frame *out, const struct frame *f, enum sy_icmp_error kind,
                           uint16_t mtu)
{
	struct sy_view v = frame_view(f);
	struct sy_addr source = source_of(v.v4);
	uint32_t max = v.v4 ? 576 : 1280, need = v.frame_len + (v.v4 ? 28 : 48), len;
	uint8_t *exact;

	need = need < 14 + max ? need : 14 + max;
	exact = malloc(need);
	assert_non_null(exact);
	assert_int_equal(sy_packet_icmp_error(exact, need - 1, f->bytes, &v, kind, &source, mtu),
	                 0);
	len = sy_packet_icmp_error(exact, need, f->bytes, &v, kind, &source, mtu);
	assert_true(len == 0 || len == need);
	memcpy(out->bytes, exact, len);
	out->len = len;
	free(exact);
	return len;
}

static void error_check(const struct frame *f, bool v4, enum sy_icmp_error kind)
{
	struct frame out;
	struct sy_view v, about = frame_view(f);
	struct sy_addr source = source_of(v4);
	const uint8_t *ip = out.bytes + 14, *l4 = frame_l4(&out, v4);
	unsigned quote;

	assert_true(error_make(&out, f, kind, 1400) > 0);
	v = frame_view(&out);
	quote = v.l4_len - 8;
	macs_check(out.bytes, f->bytes);
	assert_int_equal(v.frame_len, out.len);
	assert_true(sy_addr_equal(&v.tuple.src, &source));
	assert_true(sy_addr_equal(&v.tuple.dst, &about.tuple.src));
	assert_true(frame_ip_ok(out.bytes, v4));
	assert_true(frame_l4_ok(out.bytes, v4));
	assert_int_equal(sy_packet_ttl(out.bytes, &v), 64);
	assert_int_equal(ip[1], v4 ? 0xc0 : 0);
	assert_memory_equal(l4 + 8, f->bytes + 14, quote);
	if (quote < about.frame_len - 14u)
		assert_int_equal(out.len, 14 + (v4 ? 576 : 1280));
	if (kind == SY_ICMP_TOO_BIG) {
		assert_int_equal(v.icmp_type, v4 ? 3 : 2);
		assert_int_equal(v.icmp_code, v4 ? 4 : 0);
		assert_int_equal(get16(l4 + 4), 0);
		assert_int_equal(get16(l4 + 6), 1400);
	} else {
		assert_int_equal(v.icmp_type, v4 ? 11 : 3);
		assert_int_equal(v.icmp_code, 0);
		assert_int_equal(get16(l4 + 4) + get16(l4 + 6), 0);
	}
}

static void test_errors(void **state)
{
	for (unsigned i = 0; i < 8000; i++) {
		bool v4 = i & 1;
		unsigned proto = i % 3 == 0 ? 6 : i % 3 == 1 ? 17 : v4 ? 1 : 58;
		struct frame f = frame_make(v4, proto, 20 + (unsigned)(random_next() % 1900));
		error_check(&f, v4, i & 2 ? SY_ICMP_TOO_BIG : SY_ICMP_TTL_EXPIRED);
	}
}

/* For every ICMP type: errors and redirects cause no error. */
static void test_error_about_icmp(void **state)
{
	for (unsigned type = 0; type < 256; type++) {
		struct frame f4 = frame_make(true, 1, 40), f6 = frame_make(false, 58, 40), out;
		bool error4 = type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
		bool error6 = type < 128 || type == 137;
		frame_l4(&f4, true)[0] = (uint8_t)type;
		frame_l4(&f6, false)[0] = (uint8_t)type;
		assert_int_equal(error_make(&out, &f4, SY_ICMP_TTL_EXPIRED, 0) == 0, error4);
		assert_int_equal(error_make(&out, &f6, SY_ICMP_TTL_EXPIRED, 0) == 0, error6);
	}
}

static void test_error_about_group(void **state)
{
	static const uint8_t broadcast[4] = {255, 255, 255, 255};
	struct frame f, out;

	f = frame_make(true, 17, 40);
	f.bytes[30] = 239;
	frame_ip_finish(&f);
	assert_int_equal(error_make(&out, &f, SY_ICMP_TTL_EXPIRED, 0), 0);
	memcpy(f.bytes + 30, broadcast, 4);
	frame_ip_finish(&f);
	assert_int_equal(error_make(&out, &f, SY_ICMP_TTL_EXPIRED, 0), 0);
	f = frame_make(false, 17, 40);
	f.bytes[38] = 0xff;
	assert_int_equal(error_make(&out, &f, SY_ICMP_TTL_EXPIRED, 0), 0);
	f = frame_make(true, 17, 40);
	f.bytes[0] |= 1;
	assert_int_equal(error_make(&out, &f, SY_ICMP_TTL_EXPIRED, 0), 0);
}

static void test_error_family(void **state)
{
	struct frame f = frame_make(true, 17, 40), out;
	struct sy_addr source = source_of(false);
	struct sy_view v = frame_view(&f);

	assert_int_equal(sy_packet_icmp_error(out.bytes, sizeof(out.bytes), f.bytes, &v,
	                                      SY_ICMP_TOO_BIG, &source, 1400),
	                 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_echo),
	        cmocka_unit_test(test_echo_zeros),
	        cmocka_unit_test(test_errors),
	        cmocka_unit_test(test_error_about_icmp),
	        cmocka_unit_test(test_error_about_group),
	        cmocka_unit_test(test_error_family),
	};
	return cmocka_run_group_tests_name("icmp", tests, NULL, NULL);
}
