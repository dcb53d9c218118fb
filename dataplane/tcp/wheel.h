// SPDX-License-Identifier: Apache-2.0
/*
 * Timer wheel: one timer per index, with ticks of 1 ms. Setting, moving, clearing and expiry cost
 * O(1).
 *
 *     level 0   256 slots of 1 tick      exact
 *     level 1   256 slots of 256 ticks   early, by less than 256 ms
 *     level 2   256 slots of 2^16        early, by less than 66 s
 *     level 3   256 slots of 2^24        early, by less than 5 h; the last slot has all
 *                                        later timers
 *
 * Links do not store the time. Slots do not cascade: wheel_take() returns a far timer when
 * its slot begins, and the caller, who has the deadline, sets it again. So within 48 days a timer
 * fires early three times at most, and the caller bounds the work per call.
 */
#ifndef TCP_WHEEL_H
#define TCP_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

#define WHEEL_NONE   UINT32_MAX
#define WHEEL_NEVER  UINT64_MAX
#define WHEEL_MAX    (UINT32_C(1) << 31) /* upper bound of indices */
#define WHEEL_LEVELS 4
#define WHEEL_SLOTS  256

/* One per index, zeroed by the owner. Values: n + 1 is the link of index n; with the highest bit
 * set, a slot. */
struct wheel_link {
	uint32_t next, prev; /* 0: not set */
};
_Static_assert(sizeof(struct wheel_link) == 8, "a million timers take 8 MB");

struct wheel {
	struct wheel_link *links;
	uint64_t tick; /* all earlier slots are empty */
	uint64_t now;  /* of the last wheel_take() */
	uint32_t count;
	uint64_t used[WHEEL_LEVELS][WHEEL_SLOTS / 64]; /* bitmap of non-empty slots */
	struct wheel_link slots[WHEEL_LEVELS * WHEEL_SLOTS];
};

void wheel_init(struct wheel *w, struct wheel_link *links, uint64_t now_ms);

/* Sets or moves a timer. A past time becomes the next millisecond, so that a loop that re-arms what
 * it takes terminates. */
void wheel_set(struct wheel *w, uint32_t index, uint64_t due_ms);

/* No effect if it is not set. */
void wheel_clear(struct wheel *w, uint32_t index);

static inline bool wheel_is_set(const struct wheel *w, uint32_t index)
{
	return w->links[index].next != 0;
}

/* Removes and returns an index whose slot has begun; WHEEL_NONE: no further one. It may be early,
 * never late. Time must not decrease. */
uint32_t wheel_take(struct wheel *w, uint64_t now_ms);

/* Returns up to `max` indices that the next wheel_take() calls return, all of one slot, for
 * prefetching. */
unsigned wheel_peek(const struct wheel *w, uint64_t now_ms, uint32_t *index, unsigned max);

/* Returns a lower bound of the next expiry; WHEEL_NEVER: no timer is set. */
uint64_t wheel_next(const struct wheel *w);

#endif
