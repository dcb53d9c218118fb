// SPDX-License-Identifier: Apache-2.0
/*
 * Which worker serves which type of request: DARC, dynamic application-aware reserved cores
 * (Demoulin et al., "When idling is ideal", SOSP 2021). Short types get workers of their own, which
 * may idle; they may also use those of longer types, never the other way round.
 *
 *     types by service time    short ─▶ long            without a profile yet
 *     own workers              0 1   2    3 (spillway: also who knows nothing of its type)
 *     may also use             2 3   3    –             any worker: first come, first served
 *
 * Types may have a level, which goes before their service time: those of a lower one come first, as
 * if they were shorter. This is not DARC's own, but how paper 001 compares with it.
 */
#ifndef CORES_H
#define CORES_H

#include <stdbool.h>
#include <stdint.h>

/* Types whose service times differ by no more than this factor are a group. */
#define CORES_ALIKE 2
#define CORES_MOST  32 /* workers */
#define TYPES_MOST  16

struct cores_type {
	uint64_t count, ns;  /* served in this window */
	uint64_t mean_ns;    /* of the last window that had any; 0: none yet */
	uint32_t own, steal; /* workers, as bits */
};

struct cores {
	unsigned workers, types; /* types: then comes one for all that are unknown */
	uint8_t level[TYPES_MOST];
	uint32_t window, seen; /* requests of a window; of this one so far */
	bool reserved;         /* after the first window */
	struct cores_type type[TYPES_MOST + 1];
	uint8_t order[TYPES_MOST + 1]; /* whose queue is looked at first */
	uint32_t busy;                 /* workers, as bits */
};

/* level: of each type; NULL: all have one. window: requests after which cores are reserved anew. */
void cores_init(struct cores *c, unsigned workers, unsigned types, const uint8_t *level,
                uint32_t window);
/* Of the types that have requests (bits), those that go before the others by their level. */
uint32_t cores_first(const struct cores *c, uint32_t waiting);
/* The worker is free again, after so long. */
void cores_served(struct cores *c, unsigned worker, unsigned type, uint64_t ns);
/* Of the types that have requests (bits), and the type of the oldest one among cores_first(): which
 * goes where, now. The worker is busy from then on. False: none. */
bool cores_pick(struct cores *c, uint32_t waiting, unsigned oldest, unsigned *type,
                unsigned *worker);

#endif
