// SPDX-License-Identifier: Apache-2.0
#include <sy_base.h>

static uint64_t load64(const uint8_t *p)
{
	uint64_t w;
	memcpy(&w, p, sizeof(w));
	return w;
}

/* Ones' complement sums do not care for the width of their words (RFC 1071, 2.C): 32-bit halves
 * gathered in 64 bits need no carry for the first 16 GiB. */
uint64_t sy_csum_sum(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t low = 0, high = 0, tail = 0;

	for (; len >= 32; p += 32, len -= 32) {
		uint64_t a = load64(p), b = load64(p + 8), c = load64(p + 16), d = load64(p + 24);
		low += (a & UINT32_MAX) + (b & UINT32_MAX) + (c & UINT32_MAX) + (d & UINT32_MAX);
		high += (a >> 32) + (b >> 32) + (c >> 32) + (d >> 32);
	}
	for (; len >= 8; p += 8, len -= 8) {
		uint64_t a = load64(p);
		low += a & UINT32_MAX;
		high += a >> 32;
	}
	memcpy(&tail, p, len);
	return low + high + (tail & UINT32_MAX) + (tail >> 32);
}
