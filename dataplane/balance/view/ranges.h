// SPDX-License-Identifier: Apache-2.0
/*
 * The services with many ports of one VIP and protocol: an immutable list of nested or disjoint
 * ranges. "All ports" is 0 to 65535. Depends on base alone.
 */
#ifndef RANGES_H
#define RANGES_H

#include <sy_base.h>

#define RANGE_NONE UINT32_MAX

struct range {
	uint16_t first, last; /* host order, inclusive */
	uint32_t id;          /* of the service */
	uint32_t outer;       /* index of the enclosing range; RANGE_NONE: none */
};

/* Sorted by first port; of equal ones the wider comes first. */
struct ranges {
	uint32_t count;
	struct range range[];
};

/* Returns a copy of a list with the range added, replacing one with the same ports; or without the
 * range of this id and ports. from may be NULL: empty. The result may have count 0; NULL: no
 * memory. Free it with free(). */
struct ranges *ranges_with(const struct ranges *from, uint16_t first, uint16_t last, uint32_t id);
struct ranges *ranges_without(const struct ranges *from, uint16_t first, uint16_t last,
                              uint32_t id);
/* The service of the narrowest range that contains the port; RANGE_NONE: none. */
uint32_t ranges_find(const struct ranges *r, uint16_t port);

/* The sort order of the list. */
static inline int range_compare(uint16_t first, uint16_t last, uint16_t other_first,
                                uint16_t other_last)
{
	int order = (int)first - (int)other_first;
	return order ? order : (int)other_last - (int)last;
}

#endif
