// SPDX-License-Identifier: Apache-2.0
/*
 * The services of one VIP and protocol that have many ports: an immutable list, whose ranges lie
 * within each other or apart. All ports are the range from 0 to 65535. Testbeds on base alone.
 */
#ifndef RANGES_H
#define RANGES_H

#include <sy_base.h>

#define RANGE_NONE UINT32_MAX

struct range {
	uint16_t first, last; /* host order, inclusive */
	uint32_t id;          /* of the service */
	uint32_t outer;       /* place of the range around it; RANGE_NONE: there is none */
};

/* By first port; of those that begin with one port, the wider comes first. */
struct ranges {
	uint32_t count;
	struct range range[];
};

/* Copies with the range put in, in place of one with the same ports, or without the one of this id
 * and ports. from may be NULL: empty. The result has a count of 0 when nothing is left; NULL: no
 * memory. Freed with free(). */
struct ranges *ranges_with(const struct ranges *from, uint16_t first, uint16_t last, uint32_t id);
struct ranges *ranges_without(const struct ranges *from, uint16_t first, uint16_t last,
                              uint32_t id);
/* The service of the narrowest range that holds the port, RANGE_NONE: none does. */
uint32_t ranges_find(const struct ranges *r, uint16_t port);

/* The order of the list. */
static inline int range_compare(uint16_t first, uint16_t last, uint16_t other_first,
                                uint16_t other_last)
{
	int order = (int)first - (int)other_first;
	return order ? order : (int)other_last - (int)last;
}

#endif
