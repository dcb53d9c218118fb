// SPDX-License-Identifier: Apache-2.0
#include <sy_base.h>

/* Ones' complement sums do not depend on the width of the words (RFC 1071, 2.C). This uses 64 bits
 * with an end-around carry, and for long data 32. */
static inline uint64_t sum_add(uint64_t sum, uint64_t word)
{
	sum += word;
	return sum + (sum < word);
}

static inline uint64_t load64(const uint8_t *p)
{
	uint64_t w;
	memcpy(&w, p, sizeof(w));
	return w;
}

/* Folds to 33 bits: further sums can be added without an overflow. */
static inline uint64_t sum_narrow(uint64_t sum)
{
	return (sum & UINT32_MAX) + (sum >> 32);
}

/* One register on x86-64; the compiler's choice elsewhere. */
typedef uint64_t pair __attribute__((vector_size(16)));

static inline pair load_pair(const uint8_t *p)
{
	pair w;
	memcpy(&w, p, sizeof(w));
	return w;
}

/* Whole pieces of 64 bytes: 32-bit halves are summed in 64-bit words, which have space for 2^32 of
 * them without a carry. */
static inline uint64_t sum_long(const uint8_t *p, size_t len)
{
	const pair half = {UINT32_MAX, UINT32_MAX};
	pair low = {0}, high = {0}, low2 = {0}, high2 = {0}; /* four independent chains */

	for (; len >= 64; p += 64, len -= 64) {
		pair a = load_pair(p), b = load_pair(p + 16), c = load_pair(p + 32),
		     d = load_pair(p + 48);
		low += a & half;
		high += a >> 32;
		low2 += b & half;
		high2 += b >> 32;
		low += c & half;
		high += c >> 32;
		low2 += d & half;
		high2 += d >> 32;
	}
	low += high + low2 + high2;
	return sum_add(low[0], low[1]);
}

uint64_t sy_csum_sum(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t even = 0, odd = 0;

	if (len >= 64) {
		even = sum_long(p, len);
		p += len & ~(size_t)63;
		len &= 63;
	}
	for (; len >= 8; p += 8, len -= 8)
		even = sum_add(even, load64(p));
	if (len & 4) {
		uint32_t word;
		memcpy(&word, p, sizeof(word));
		odd = sum_add(odd, word);
		p += sizeof(word);
	}
	if (len & 2) {
		uint16_t word;
		memcpy(&word, p, sizeof(word));
		odd = sum_add(odd, word);
		p += sizeof(word);
	}
	if (len & 1)
		odd = sum_add(odd, *p);
	return sum_narrow(even) + sum_narrow(odd);
}
