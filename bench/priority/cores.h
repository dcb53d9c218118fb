// SPDX-License-Identifier: Apache-2.0
/*
 * Which worker serves which type: DARC, dynamic application-aware reserved cores (Demoulin et al.,
 * "When idling is ideal", SOSP 2021). Short types get reserved workers, which may idle; they may
 * also use those of longer types, never the reverse.
 *
 *     types by service time    short ─▶ long            without a profile
 *     reserved workers         0 1   2    3 (spillway: also unknown types)
 *     may also use             2 3   3    –             any worker, FIFO
 *
 * Types may have a level, which precedes the service time: lower ones come first, as if they were
 * shorter. This is not part of DARC, but the paper compares with it so.
 */
#ifndef CORES_H
#define CORES_H

#include <stdbool.h>
#include <stdint.h>

/* Types whose service times differ by at most this factor form a group. */
#define CORES_ALIKE 2
#define CORES_MAX   32 /* workers */
#define TYPES_MAX   16

struct cores_type {
	uint64_t count, ns;  /* served in this window */
	uint64_t mean_ns;    /* of the last window with requests; 0: none yet */
	uint32_t own, steal; /* bitmap of workers */
};

struct cores {
	unsigned workers, types; /* types: the next one is for unknown requests */
	uint8_t level[TYPES_MAX];
	uint32_t window, seen; /* requests per window; in this one */
	bool reserved;         /* after the first window */
	struct cores_type type[TYPES_MAX + 1];
	uint8_t order[TYPES_MAX + 1]; /* types in dispatch order */
	uint32_t busy;                /* bitmap of workers */
};

/* level: per type; NULL: all equal. window: requests between two reservations. */
void cores_init(struct cores *c, unsigned workers, unsigned types, const uint8_t *level,
                uint32_t window);
/* Returns those of the types with requests (a bitmap) that have the lowest level. */
uint32_t cores_first(const struct cores *c, uint32_t waiting);
/* The worker has finished a request and is free. */
void cores_served(struct cores *c, unsigned worker, unsigned type, uint64_t ns);
/* Picks a type and worker to dispatch, given the types with requests (a bitmap) and the type of the
 * oldest one among cores_first(). Marks the worker busy. Returns false if none. */
bool cores_pick(struct cores *c, uint32_t waiting, unsigned oldest, unsigned *type,
                unsigned *worker);

#endif
