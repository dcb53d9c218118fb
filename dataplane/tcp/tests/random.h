// SPDX-License-Identifier: Apache-2.0
/* Reproducible random numbers. */
#ifndef TCP_TESTS_RANDOM_H
#define TCP_TESTS_RANDOM_H

#include <stdint.h>

static uint64_t random_state = 1;

static inline uint32_t random_below(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((random_state >> 33) % n);
}

#endif
