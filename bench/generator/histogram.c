// SPDX-License-Identifier: Apache-2.0
#include "histogram.h"

#include <math.h>

#define BUCKETS (HISTOGRAM_PARTS * HISTOGRAM_POWERS)

/* Below 128: the value. Then 128 buckets of equal width for each power of two. */
static unsigned bucket_of(uint64_t value)
{
	if (value < HISTOGRAM_PARTS)
		return (unsigned)value;
	unsigned shift = 63 - 7 - (unsigned)__builtin_clzll(value);
	uint64_t at = (uint64_t)HISTOGRAM_PARTS * (shift + 1) + (value >> shift) - HISTOGRAM_PARTS;
	return at < BUCKETS ? (unsigned)at : BUCKETS - 1;
}

static uint64_t bucket_end(unsigned bucket)
{
	if (bucket < HISTOGRAM_PARTS)
		return bucket;
	unsigned shift = bucket / HISTOGRAM_PARTS - 1;
	return ((uint64_t)(bucket % HISTOGRAM_PARTS + HISTOGRAM_PARTS + 1) << shift) - 1;
}

void histogram_add(struct histogram *h, uint64_t value)
{
	h->count++;
	h->bucket[bucket_of(value)]++;
	if (value > h->largest)
		h->largest = value;
}

uint64_t histogram_at(const struct histogram *h, double share)
{
	uint64_t wanted = (uint64_t)ceil(share * (double)h->count), seen = 0;
	for (unsigned i = 0; i < BUCKETS && h->count; i++) {
		seen += h->bucket[i];
		if (seen >= wanted && seen > 0)
			return bucket_end(i) < h->largest ? bucket_end(i) : h->largest;
	}
	return 0;
}

void histogram_merge(struct histogram *h, const struct histogram *other)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		h->bucket[i] += other->bucket[i];
	h->count += other->count;
	if (other->largest > h->largest)
		h->largest = other->largest;
}

double histogram_mean(const struct histogram *h)
{
	double sum = 0;
	for (unsigned i = 0; i < BUCKETS && h->count; i++)
		if (h->bucket[i]) {
			uint64_t end = bucket_end(i) < h->largest ? bucket_end(i) : h->largest;
			sum += (double)h->bucket[i] * (double)end;
		}
	return h->count ? sum / (double)h->count : 0;
}
