// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "stream.h"

#define WORDS 65521u /* a prime */
#define TABLE (WORDS * 8u)
#define BLOCK 65536u
#define STEP  104729u /* from block to block, in bytes of the table */

struct stream {
	uint8_t table[TABLE + BLOCK]; /* its beginning follows its end once more */
};

/* splitmix64: the n-th word needs no other. */
static uint64_t word(uint64_t seed, uint64_t n)
{
	uint64_t z = seed + (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

struct stream *stream_new(uint64_t seed)
{
	struct stream *s = malloc(sizeof(*s));

	if (!s)
		return NULL;
	for (uint64_t i = 0; i < WORDS; i++) {
		uint64_t w = word(seed, i);
		memcpy(s->table + i * 8, &w, sizeof(w));
	}
	memcpy(s->table + TABLE, s->table, BLOCK);
	return s;
}

void stream_free(struct stream *s)
{
	free(s);
}

size_t stream_at(const struct stream *s, uint64_t at, const uint8_t **bytes)
{
	*bytes = s->table + at / BLOCK * STEP % TABLE + at % BLOCK;
	return BLOCK - at % BLOCK;
}

size_t stream_compare(const struct stream *s, uint64_t at, const uint8_t *bytes, size_t len)
{
	size_t done = 0;

	while (done < len) {
		const uint8_t *right;
		size_t n = stream_at(s, at + done, &right);
		n = n < len - done ? n : len - done;
		if (memcmp(bytes + done, right, n) != 0) {
			while (bytes[done] == *right++)
				done++;
			return done;
		}
		done += n;
	}
	return len;
}
