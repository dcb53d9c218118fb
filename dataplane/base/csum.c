// SPDX-License-Identifier: Apache-2.0
#include <sy_base.h>

/* Ones' complement sums do not depend on the width of the words (RFC 1071, 2.C). This uses 64 bits
 * with an end-around carry. */
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

uint64_t sy_csum_sum(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t even = 0, odd = 0; /* two independent carry chains */

	for (; len >= 32; p += 32, len -= 32) {
		even = sum_add(sum_add(even, load64(p)), load64(p + 16));
		odd = sum_add(sum_add(odd, load64(p + 8)), load64(p + 24));
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
