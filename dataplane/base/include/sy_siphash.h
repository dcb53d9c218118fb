// SPDX-License-Identifier: Apache-2.0
/* SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash whose values do not reveal the key. For
 * values that untrusted hosts see and must not be able to compute. */
#ifndef SY_SIPHASH_H
#define SY_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as they lie");

struct sy_siphash_key {
	uint64_t k[2];
};

struct sy_siphash_state {
	uint64_t v[4];
};

static inline uint64_t sy_siphash_rotate(uint64_t x, unsigned by)
{
	return x << by | x >> (64 - by);
}

static inline void sy_siphash_rounds(struct sy_siphash_state *s, unsigned rounds)
{
	uint64_t a = s->v[0], b = s->v[1], c = s->v[2], d = s->v[3];
	for (; rounds > 0; rounds--) {
		a += b;
		b = sy_siphash_rotate(b, 13) ^ a;
		a = sy_siphash_rotate(a, 32);
		c += d;
		d = sy_siphash_rotate(d, 16) ^ c;
		a += d;
		d = sy_siphash_rotate(d, 21) ^ a;
		c += b;
		b = sy_siphash_rotate(b, 17) ^ c;
		c = sy_siphash_rotate(c, 32);
	}
	*s = (struct sy_siphash_state){{a, b, c, d}};
}

static inline void sy_siphash_word(struct sy_siphash_state *s, uint64_t word)
{
	s->v[3] ^= word;
	sy_siphash_rounds(s, 2);
	s->v[0] ^= word;
}

/* The 64-bit hash of len bytes. */
static inline __attribute__((always_inline)) uint64_t sy_siphash(const struct sy_siphash_key *key,
                                                                 const void *bytes, size_t len)
{
	struct sy_siphash_state s = {
	        {key->k[0] ^ 0x736f6d6570736575, key->k[1] ^ 0x646f72616e646f6d,
	         key->k[0] ^ 0x6c7967656e657261, key->k[1] ^ 0x7465646279746573}};
	const uint8_t *at = bytes;
	uint64_t word, last = (uint64_t)len << 56;

	for (size_t left = len / sizeof(word); left > 0; left--, at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		sy_siphash_word(&s, word);
	}
	for (unsigned i = 0; i < len % sizeof(word); i++)
		last |= (uint64_t)at[i] << 8 * i;
	sy_siphash_word(&s, last);
	s.v[2] ^= 0xff;
	sy_siphash_rounds(&s, 4);
	return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}

#endif
