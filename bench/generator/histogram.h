// SPDX-License-Identifier: Apache-2.0
/*
 * Counts of values, for percentiles: each power of two is cut into 128 equal parts, so that a value
 * is known to better than 0.8 %, small ones exactly. Pure.
 */
#ifndef GENERATOR_HISTOGRAM_H
#define GENERATOR_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_PARTS  128
#define HISTOGRAM_POWERS 34 /* up to 2^40 */

struct histogram {
	uint64_t count, largest;
	uint64_t bucket[HISTOGRAM_PARTS * HISTOGRAM_POWERS];
};

/* Values from 2^40 on count as the largest bucket's. */
void histogram_add(struct histogram *h, uint64_t value);
/* The value that `share` (0 to 1) of all are not above, as its bucket's upper end; 0 if there is
 * none. */
uint64_t histogram_at(const struct histogram *h, double share);

#endif
