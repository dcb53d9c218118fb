// SPDX-License-Identifier: Apache-2.0
#include "lateness.h"

static unsigned bucket_of(uint64_t ns)
{
	if (ns < LATENESS_PARTS)
		return (unsigned)ns;
	unsigned shift = 59 - (unsigned)__builtin_clzll(ns);
	return (shift + 1) * LATENESS_PARTS + (unsigned)(ns >> shift & (LATENESS_PARTS - 1));
}

/* The largest value of a bucket. */
static uint64_t bucket_end(unsigned bucket)
{
	if (bucket < LATENESS_PARTS)
		return bucket;
	unsigned shift = bucket / LATENESS_PARTS - 1;
	return ((uint64_t)(LATENESS_PARTS + bucket % LATENESS_PARTS + 1) << shift) - 1;
}

void lateness_add(struct lateness *l, uint64_t ns)
{
	l->bucket[bucket_of(ns)]++;
	l->count++;
	l->max = ns > l->max ? ns : l->max;
}

uint64_t lateness_share(const struct lateness *l, double share)
{
	uint64_t wanted = (uint64_t)(share * (double)l->count), seen = 0;
	for (unsigned i = 0; i < LATENESS_BUCKETS; i++) {
		seen += l->bucket[i];
		if (seen && seen >= wanted)
			return bucket_end(i) < l->max ? bucket_end(i) : l->max;
	}
	return l->max;
}
