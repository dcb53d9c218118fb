// SPDX-License-Identifier: Apache-2.0
#include "raw_protocol.h"

#include <errno.h>

static void put(uint8_t *out, unsigned len, uint64_t value)
{
	for (; len > 0; value >>= 8)
		out[--len] = (uint8_t)value;
}

static uint64_t get(const uint8_t *in, unsigned len)
{
	uint64_t value = 0;
	for (unsigned i = 0; i < len; i++)
		value = value << 8 | in[i];
	return value;
}

void raw_write(uint8_t out[static RAW_HEADER], const struct raw_header *h)
{
	put(out, 2, RAW_MAGIC);
	out[2] = RAW_VERSION;
	out[3] = h->kind;
	out[4] = h->class;
	out[5] = 0;
	put(out + 6, 2, h->type);
	put(out + 8, 4, h->length);
	put(out + 12, 4, h->answer);
	put(out + 16, 8, h->service_ns);
	put(out + 24, 8, h->number);
}

int raw_read(const uint8_t in[static RAW_HEADER], struct raw_header *h)
{
	*h = (struct raw_header){in[3],
	                         in[4],
	                         (uint16_t)get(in + 6, 2),
	                         (uint32_t)get(in + 8, 4),
	                         (uint32_t)get(in + 12, 4),
	                         get(in + 16, 8),
	                         get(in + 24, 8)};
	if (get(in, 2) != RAW_MAGIC || in[2] != RAW_VERSION || in[5])
		return -EPROTO;
	if (h->length < RAW_HEADER || h->length > RAW_LONGEST || h->service_ns > RAW_SERVICE_MAX)
		return -EPROTO;
	if (h->kind == RAW_REQUEST)
		return h->answer >= RAW_HEADER && h->answer <= RAW_LONGEST ? 0 : -EPROTO;
	return h->kind == RAW_ANSWER && h->answer == 0 ? 0 : -EPROTO;
}

int64_t raw_take(struct raw_reader *r, enum raw_kind kind, const uint8_t *bytes, size_t len,
                 struct raw_header *h, enum raw_got *got)
{
	size_t taken = 0;

	*got = RAW_MORE;
	if (r->have < RAW_HEADER) {
		taken = RAW_HEADER - r->have < len ? RAW_HEADER - r->have : len;
		memcpy(r->header + r->have, bytes, taken);
		r->have = (uint8_t)(r->have + taken);
		if (r->have < RAW_HEADER)
			return (int64_t)taken;
		if (raw_read(r->header, h) || h->kind != kind)
			return -EPROTO;
		r->left = h->length - RAW_HEADER;
		*got = RAW_HEADER_DONE;
	} else {
		taken = r->left < len ? r->left : len;
		r->left -= (uint32_t)taken;
	}
	if (r->left == 0) {
		r->have = 0;
		*got = RAW_MESSAGE_DONE;
	}
	return (int64_t)taken;
}

/* ---- the pattern ----------------------------------------------------------------------------- */

/* A prime period: lost or duplicated segments do not match. */
const uint8_t *pattern_from(uint64_t at)
{
	static uint8_t pattern[PATTERN_LEN + PATTERN_PERIOD];
	static bool made;

	if (!__atomic_load_n(&made,
	                     __ATOMIC_ACQUIRE)) { /* a race is harmless: the contents are equal */
		for (unsigned i = 0; i < sizeof(pattern); i++)
			__atomic_store_n(&pattern[i], (uint8_t)(i % PATTERN_PERIOD * 7 + 1),
			                 __ATOMIC_RELAXED);
		__atomic_store_n(&made, true, __ATOMIC_RELEASE);
	}
	return pattern + at % PATTERN_PERIOD;
}

bool pattern_is(const uint8_t *bytes, size_t len, uint64_t at)
{
	while (len > 0) {
		size_t part = len < PATTERN_LEN ? len : PATTERN_LEN;
		if (memcmp(bytes, pattern_from(at), part))
			return false;
		bytes += part;
		at += part;
		len -= part;
	}
	return true;
}
