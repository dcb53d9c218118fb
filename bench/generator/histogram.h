// SPDX-License-Identifier: Apache-2.0
/* Counts of values, for percentiles: each power of two is divided into 128 equal parts, so that a
 * value is known to better than 0.8 %, and small ones exactly. Pure functions. */
#ifndef GENERATOR_HISTOGRAM_H
#define GENERATOR_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_PARTS  128
#define HISTOGRAM_POWERS 34 /* up to 2^40 */

struct histogram {
	uint64_t count, largest;
	uint64_t bucket[HISTOGRAM_PARTS * HISTOGRAM_POWERS];
};

/* Values from 2^40 up count in the largest bucket. */
void histogram_add(struct histogram *h, uint64_t value);
/* The upper bound of the bucket below which `share` (0 to 1) of all values lie; 0 if there are
 * none. */
uint64_t histogram_at(const struct histogram *h, double share);
/* Adds all values of another one. */
void histogram_merge(struct histogram *h, const struct histogram *other);
/* Of the bounds of the values' buckets: within 0.8 %. */
double histogram_mean(const struct histogram *h);

#endif
