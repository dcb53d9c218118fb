// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_RANDOM_H
#define TEST_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* splitmix64 from a fixed seed: the same sequence in every run of a test. */
static uint64_t random_state = 0x9e3779b97f4a7c15;

static inline uint64_t random_next(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static inline void random_fill(void *out, size_t len)
{
	for (uint8_t *p = out; len > 0; len--)
		*p++ = (uint8_t)random_next();
}

#endif
