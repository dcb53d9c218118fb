// SPDX-License-Identifier: Apache-2.0
/* How much later than they were due packets left: a histogram, exact to a sixteenth. */
#ifndef LINK_LATENESS_H
#define LINK_LATENESS_H

#include <stdint.h>

#define LATENESS_PARTS   16u /* of each power of two */
#define LATENESS_BUCKETS (64 * LATENESS_PARTS)

struct lateness {
	uint64_t count, max;
	uint64_t bucket[LATENESS_BUCKETS];
};

void lateness_add(struct lateness *l, uint64_t ns);
/* Returns the lateness that this share of packets did not exceed. */
uint64_t lateness_share(const struct lateness *l, double share);

#endif
