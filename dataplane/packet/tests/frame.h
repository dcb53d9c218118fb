// SPDX-License-Identifier: Apache-2.0
/* Frames for tests, built and verified by slow code that is independent of the module. */
#ifndef FRAME_H
#define FRAME_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sy_plain.h>
/* cmocka needs the above */
#include <cmocka.h>

#include "test_random.h"

#define FRAME_MAX 2048

struct frame {
	uint8_t bytes[FRAME_MAX];
	uint32_t len;
};

static inline unsigned frame_ip_len(bool v4)
{
	return v4 ? 20 : 40;
}

static inline void put16(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline unsigned get16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

/* The sum of RFC 1071, added to sum, in host order. */
static inline uint32_t sum_slow(uint32_t sum, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
		if (sum > 0xffff)
			sum -= 0xffff;
	}
	return sum;
}

/* Length that the transport checksum covers. */
static inline unsigned frame_l4_len(const uint8_t *frame, bool v4)
{
	const uint8_t *ip = frame + 14;

	if ((v4 ? ip[9] : ip[6]) == 17)
		return get16(ip + frame_ip_len(v4) + 4);
	return v4 ? get16(ip + 2) - 20 : get16(ip + 4);
}

static inline uint32_t frame_pseudo_sum(const uint8_t *frame, bool v4)
{
	const uint8_t *ip = frame + 14;
	uint8_t tail[4] = {0, v4 ? ip[9] : ip[6]};
	uint32_t sum;

	if (tail[1] == 1) /* ICMP has no pseudo header */
		return 0;
	put16(tail + 2, frame_l4_len(frame, v4));
	sum = sum_slow(0, tail, sizeof(tail));
	return v4 ? sum_slow(sum, ip + 12, 8) : sum_slow(sum, ip + 8, 32);
}

static inline uint32_t frame_l4_sum(const uint8_t *frame, bool v4)
{
	return sum_slow(frame_pseudo_sum(frame, v4), frame + 14 + frame_ip_len(v4),
	                frame_l4_len(frame, v4));
}

static inline bool frame_l4_ok(const uint8_t *frame, bool v4)
{
	return frame_l4_sum(frame, v4) == 0xffff;
}

static inline bool frame_ip_ok(const uint8_t *frame, bool v4)
{
	return !v4 || sum_slow(0, frame + 14, 20) == 0xffff;
}

static inline uint8_t *frame_l4(struct frame *f, bool v4)
{
	return f->bytes + 14 + frame_ip_len(v4);
}

static inline uint8_t *frame_l4_csum(struct frame *f, bool v4)
{
	const uint8_t *ip = f->bytes + 14;
	unsigned proto = v4 ? ip[9] : ip[6];

	return frame_l4(f, v4) + (proto == 6 ? 16 : proto == 17 ? 6 : 2);
}

static inline void frame_ip_finish(struct frame *f)
{
	put16(f->bytes + 24, 0);
	put16(f->bytes + 24, ~sum_slow(0, f->bytes + 14, 20));
}

static inline void frame_l4_finish(struct frame *f, bool v4)
{
	uint8_t *at = frame_l4_csum(f, v4);
	unsigned sum;

	put16(at, 0);
	sum = ~frame_l4_sum(f->bytes, v4) & 0xffff;
	put16(at, sum == 0 && f->bytes[14 + (v4 ? 9 : 6)] == 17 ? 0xffff : sum);
}

/* A valid frame with l4_len random transport bytes and a valid header: TCP with only ACK and no
 * options, a whole UDP datagram, or an echo request. */
static inline struct frame frame_make(bool v4, unsigned proto, unsigned l4_len)
{
	struct frame f = {.len = 14 + frame_ip_len(v4) + l4_len};
	uint8_t *ip = f.bytes + 14, *l4 = ip + frame_ip_len(v4);

	random_fill(f.bytes, f.len);
	f.bytes[0] &= 0xfe;
	put16(f.bytes + 12, v4 ? 0x0800 : 0x86dd);
	if (v4) {
		ip[0] = 0x45;
		put16(ip + 2, 20 + l4_len);
		put16(ip + 6, 0x4000);
		ip[8] = 64;
		ip[9] = (uint8_t)proto;
		ip[12] = 10;
		ip[16] = 192;
	} else {
		ip[0] = 0x60;
		put16(ip + 4, l4_len);
		ip[6] = (uint8_t)proto;
		ip[7] = 64;
		put16(ip + 8, 0x2001);
		put16(ip + 24, 0x2002);
	}
	if (proto == 6) {
		l4[12] = 0x50;
		l4[13] = SY_TCP_ACK;
	} else if (proto == 17) {
		put16(l4 + 4, l4_len);
	} else {
		l4[0] = v4 ? 8 : 128;
		l4[1] = 0;
	}
	if (v4)
		frame_ip_finish(&f);
	frame_l4_finish(&f, v4);
	return f;
}

/* Parses an exact heap copy: ASan detects a read beyond its end. */
static inline enum sy_drop frame_parse(const struct frame *f, struct sy_view *v)
{
	uint8_t *exact = malloc(f->len + !f->len);
	struct sy_view view;
	enum sy_drop drop;
	unsigned plain;

	assert_non_null(exact);
	memcpy(exact, f->bytes, f->len);
	drop = sy_packet_parse(exact, f->len, v);
	/* A plain packet is valid, and its view is the same. */
	plain = sy_plain_parse(exact, f->len);
	if (plain) {
		sy_plain_view(exact, plain, &view);
		assert_int_equal(drop, SY_DROP_NONE);
		assert_memory_equal(&view, v, sizeof(view));
	}
	free(exact);
	return drop;
}

static inline struct sy_view frame_view(const struct frame *f)
{
	struct sy_view v;

	assert_int_equal(frame_parse(f, &v), SY_DROP_NONE);
	return v;
}

#endif
