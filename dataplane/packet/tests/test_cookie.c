// SPDX-License-Identifier: Apache-2.0
/* SYN cookies, and the segments that carry them. */
#include <sy_tcp_segment.h>

#include "frame.h"

static const struct sy_siphash_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

static struct sy_tuple tuple_of(bool v4)
{
	struct sy_tuple t = {.sport = htons(40000), .dport = htons(80), .proto = SY_PROTO_TCP};
	assert_int_equal(sy_addr_parse(v4 ? "198.51.100.7" : "2001:db8::7", &t.src), 0);
	assert_int_equal(sy_addr_parse(v4 ? "203.0.113.1" : "2001:db8:1::1", &t.dst), 0);
	return t;
}

/* ---- cookies --------------------------------------------------------------------------------- */

/* What a cookie carries of these options. */
static void check_carried(bool v4, const struct sy_tcp_options *sent,
                          const struct sy_tcp_options *got)
{
	assert_true(got->mss <= sent->mss || got->mss == (v4 ? 536 : 1220));
	assert_int_equal(got->sack, sent->sack);
	assert_int_equal(got->scale == SY_TCP_NO_SCALE, sent->scale == SY_TCP_NO_SCALE);
	if (sent->scale != SY_TCP_NO_SCALE)
		assert_true(got->scale <= sent->scale && sent->scale - got->scale <= 4);
}

static void test_options_come_back(void **state)
{
	static const uint16_t mss[] = {0,    1,    535,  536,  1219, 1220, 1299, 1300,
	                               1359, 1360, 1420, 1439, 1440, 1460, 8960, 65535};
	for (unsigned v4 = 0; v4 < 2; v4++) {
		const struct sy_tuple t = tuple_of(v4);
		for (unsigned n = 0; n < 16 * 16 * 4; n++) {
			struct sy_tcp_options sent = {.mss = mss[n / 4 % 16],
			                              .scale = (uint8_t)(n / 64),
			                              .sack = n & 1},
			                      got = {0};
			uint64_t hash = sy_cookie_hash(&key, &t, n * 77777);
			uint32_t cookie = sy_cookie_make(hash, n >> 1 & 1, v4, &sent);
			assert_int_equal(sy_cookie_epoch(cookie), n >> 1 & 1);
			assert_true(sy_cookie_check(hash, cookie, v4, &got));
			check_carried(v4, &sent, &got);
			/* with a timestamp the scale is exact */
			sy_cookie_time_options(sy_cookie_time(hash, n * 1000003u, &sent), &got);
			assert_int_equal(got.scale, sent.scale);
		}
	}
}

/* A bit of the check makes it wrong, one of the options changes only these. */
static void test_each_bit(void **state)
{
	for (unsigned v4 = 0; v4 < 2; v4++) {
		const struct sy_tuple t = tuple_of(v4);
		const struct sy_tcp_options sent = {.mss = 1460, .scale = 7, .sack = true};
		struct sy_tcp_options got;
		uint64_t hash = sy_cookie_hash(&key, &t, 12345);
		uint32_t cookie = sy_cookie_make(hash, 0, v4, &sent);
		for (unsigned bit = 0; bit < 31; bit++)
			assert_int_equal(
			        sy_cookie_check(hash, cookie ^ UINT32_C(1) << bit, v4, &got),
			        bit >= 25);
	}
}

/* RFC 7323 5.4: the clock only advances. A segment with the clock's own time in the same
 * millisecond is not older, nor is the next millisecond's cookie. */
static void test_time_is_not_ahead(void **state)
{
	const uint64_t hash = UINT64_C(0xfffffff0) << 32; /* wraps early */

	for (unsigned scale = 0; scale <= SY_TCP_NO_SCALE; scale++) {
		const struct sy_tcp_options sent = {.scale = (uint8_t)scale};
		uint32_t before = sy_cookie_time(hash, 0, &sent);
		for (uint32_t ms = 0; ms < 200; ms++) {
			uint32_t now = ms + (uint32_t)(hash >> 32);
			uint32_t time = sy_cookie_time(hash, ms * UINT64_C(1000000), &sent);
			assert_true(now - time < 32);
			assert_false(sy_seq_before(time, before));
			before = time;
		}
	}
}

/* Another address, port, number or key has another cookie. */
static void test_everything_is_bound(void **state)
{
	for (unsigned v4 = 0; v4 < 2; v4++) {
		const struct sy_tuple t = tuple_of(v4);
		const struct sy_siphash_key other = {{key.k[0], key.k[1] ^ 1}};
		uint64_t hash = sy_cookie_hash(&key, &t, 12345);
		assert_int_not_equal(hash, sy_cookie_hash(&key, &t, 12346));
		assert_int_not_equal(hash, sy_cookie_hash(&other, &t, 12345));
		for (unsigned i = v4 ? 12 : 0; i < 36; i++) {
			struct sy_tuple changed = t;
			if (v4 && i >= 16 && i < 28) /* the prefix of an IPv4-mapped address */
				continue;
			((uint8_t *)&changed)[i] ^= 1;
			assert_int_not_equal(hash, sy_cookie_hash(&key, &changed, 12345));
		}
	}
}

/* One value of 2^25 is right: of 2^27 random ones about 4. */
static void test_forging(void **state)
{
	const struct sy_tuple t = tuple_of(true);
	struct sy_tcp_options got;
	uint64_t hash = sy_cookie_hash(&key, &t, 12345);
	unsigned right = 0;
	for (unsigned n = 0; n < 1u << 27; n++)
		right += sy_cookie_check(hash, (uint32_t)random_next(), true, &got);
	assert_in_range(right, 0, 14); /* 5 σ above 4 */
}

/* ---- segments -------------------------------------------------------------------------------- */

/* An independent reader of options. */
static struct sy_tcp_options options_slow(const uint8_t *at, unsigned len)
{
	struct sy_tcp_options o = {.scale = SY_TCP_NO_SCALE};
	for (unsigned i = 0; i < len && at[i] != 0;) {
		if (at[i] == 1) {
			i++;
			continue;
		}
		if (i + 1 >= len || at[i + 1] < 2 || at[i + 1] > len - i)
			break;
		unsigned size = at[i + 1];
		if (at[i] == 2 && size == 4)
			o.mss = (uint16_t)get16(at + i + 2);
		if (at[i] == 3 && size == 3)
			o.scale = at[i + 2] > 14 ? 14 : at[i + 2];
		if (at[i] == 4 && size == 2)
			o.sack = true;
		if (at[i] == 8 && size == 10) {
			o.timestamps = true;
			o.time = get16(at + i + 2) << 16 | get16(at + i + 4);
			o.echo = get16(at + i + 6) << 16 | get16(at + i + 8);
		}
		i += size;
	}
	return o;
}

static void check_options(const struct sy_tcp_options *a, const struct sy_tcp_options *b)
{
	assert_int_equal(a->mss, b->mss);
	assert_int_equal(a->scale, b->scale);
	assert_int_equal(a->sack, b->sack);
	assert_int_equal(a->timestamps, b->timestamps);
	assert_int_equal(a->time, b->time);
	assert_int_equal(a->echo, b->echo);
}

static void test_random_options(void **state)
{
	for (unsigned n = 0; n < 200000; n++) {
		static const uint8_t likely[] = {0, 1, 1, 1, 2, 3, 4, 5, 8, 4, 3, 2, 10};
		uint8_t options[40];
		unsigned len = (unsigned)(random_next() % 11) * 4;
		for (unsigned i = 0; i < len; i++)
			options[i] = n % 2 ? (uint8_t)random_next()
			                   : likely[random_next() % sizeof(likely)];
		struct frame f = frame_make(true, 6, 20 + len);
		uint8_t *l4 = frame_l4(&f, true);
		l4[12] = (uint8_t)((20 + len) << 2);
		l4[13] = SY_TCP_SYN;
		memcpy(l4 + 20, options, len);
		frame_l4_finish(&f, true);
		struct sy_view v = frame_view(&f);
		struct sy_tcp_options got, slow = options_slow(options, len);
		sy_tcp_options_read(f.bytes, &v, &got);
		check_options(&got, &slow);
	}
}

/* Built segments parse, have right checksums and the requested options. */
static void test_segments(void **state)
{
	for (unsigned n = 0; n < 2 * 64; n++) {
		bool v4 = n & 1, syn = n & 2;
		struct frame in = frame_make(v4, 6, 20);
		struct sy_view before = frame_view(&in), v;
		const struct sy_tcp_segment s = {
		        .seq = 0xfffffff0,
		        .ack = 77,
		        .window = 5840,
		        .flags = SY_TCP_ACK | (syn ? SY_TCP_SYN : 0),
		        .options = {.mss = n & 4 ? 1400 : 0,
		                    .scale = n & 8 ? 7 : SY_TCP_NO_SCALE,
		                    .sack = n & 16,
		                    .timestamps = n & 32,
		                    .time = n & 32 ? 0xdeadbeef : 0,
		                    .echo = n & 32 ? 0x12345678 : 0},
		};
		struct frame out = in;
		struct sy_tcp_options got, want = s.options;
		if (!syn) {
			want.mss = 0;
			want.scale = SY_TCP_NO_SCALE;
			want.sack = false;
		}
		out.len = n & 64 ? sy_tcp_segment_answer(out.bytes, FRAME_MAX, &before, &s)
		                 : sy_tcp_segment_make(out.bytes, FRAME_MAX, &before.tuple, &s);
		v = frame_view(&out);
		assert_int_equal(v.frame_len, out.len);
		assert_true(frame_l4_ok(out.bytes, v4) && frame_ip_ok(out.bytes, v4));
		const struct sy_tcp *tcp = sy_packet_tcp(out.bytes, &v);
		assert_int_equal(ntohl(tcp->seq), s.seq);
		assert_int_equal(ntohl(tcp->ack), s.ack);
		assert_int_equal(ntohs(tcp->window), s.window);
		assert_int_equal(tcp->flags, s.flags);
		sy_tcp_options_read(out.bytes, &v, &got);
		check_options(&got, &want);
		assert_memory_equal(out.bytes, in.bytes + (n & 64 ? 6 : 0), 6);
		assert_true(sy_addr_equal(&v.tuple.src,
		                          n & 64 ? &before.tuple.dst : &before.tuple.src));
	}
}

/* ---- conversions ----------------------------------------------------------------------------- */

static void test_times_anywhere(void **state)
{
	for (unsigned pad = 0; pad < 5; pad++)
		for (unsigned v4 = 0; v4 < 2; v4++) {
			uint8_t options[16];
			struct frame f = frame_make(v4, 6, 20 + sizeof(options));
			uint8_t *l4 = frame_l4(&f, v4);
			memset(options, 1, sizeof(options));
			memcpy(options + pad,
			       (const uint8_t[]){8, 10, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 1}, 10);
			memcpy(l4 + 20, options, sizeof(options));
			l4[12] = (20 + sizeof(options)) << 2;
			l4[13] = SY_TCP_ACK;
			frame_l4_finish(&f, v4);
			struct sy_view v = frame_view(&f);
			struct sy_tcp_options got;
			sy_tcp_shift_time(f.bytes, &v, 3, (uint32_t)-2);
			assert_true(frame_l4_ok(f.bytes, v4));
			sy_tcp_options_read(f.bytes, &v, &got);
			assert_int_equal(got.time, 1);
			assert_int_equal(got.echo, UINT32_MAX);
		}
}

static void test_windows(void **state)
{
	static const uint16_t windows[] = {0, 1, 127, 128, 5840, 65534, 65535};
	for (int by = -14; by <= 14; by++)
		for (unsigned i = 0; i < SY_ARRAY_LEN(windows); i++) {
			struct frame f = frame_make(true, 6, 20);
			put16(frame_l4(&f, true) + 14, windows[i]);
			frame_l4_finish(&f, true);
			const struct sy_view v = frame_view(&f);
			uint32_t want =
			        by > 0 ? (uint32_t)windows[i] << by : (uint32_t)windows[i] >> -by;
			sy_tcp_scale_window(f.bytes, &v, by);
			assert_true(frame_l4_ok(f.bytes, true));
			assert_int_equal(get16(frame_l4(&f, true) + 14),
			                 want > 65535 ? 65535 : want);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_options_come_back),   cmocka_unit_test(test_each_bit),
	        cmocka_unit_test(test_everything_is_bound), cmocka_unit_test(test_forging),
	        cmocka_unit_test(test_random_options),      cmocka_unit_test(test_segments),
	        cmocka_unit_test(test_times_anywhere),      cmocka_unit_test(test_windows),
	        cmocka_unit_test(test_time_is_not_ahead),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
