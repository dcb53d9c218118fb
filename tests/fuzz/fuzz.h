// SPDX-License-Identifier: Apache-2.0
/* Shared by all fuzz targets. A target's LLVMFuzzerTestOneInput() says by CHECK() what must hold;
 * the functions that it calls return it, and name the first condition that does not hold. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

/* In a function that returns whether something holds. */
#define HOLDS(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);    \
			return false;                                                              \
		}                                                                                  \
	} while (0)

/* A copy on the heap with its exact size, so sanitizers detect any access beyond it. */
static inline uint8_t *copy_make(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	CHECK(copy);
	if (size > 0)
		memcpy(copy, data, size);
	return copy;
}

#endif
