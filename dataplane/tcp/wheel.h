// SPDX-License-Identifier: Apache-2.0
/*
 * The timers of one core: one for each index, in ticks of a millisecond. Setting, moving, clearing
 * and taking cost O(1).
 *
 *     level 0   256 slots of 1 tick      exact
 *     level 1   256 slots of 256 ticks   early, by less than 256 ms
 *     level 2   256 slots of 2^16        early, by less than 66 s
 *     level 3   256 slots of 2^24        early, by less than 5 h; what is due later waits in the
 *                                        last slot
 *
 * A link has no room for its time, and needs none. No slot is ever emptied into the level below:
 * wheel_take() gives a far timer when its slot begins, and its owner, who knows what the index
 * waits for, sets it again. A timer is so taken early three times at most within 48 days, and how
 * much is done at a time is up to who takes.
 */
#ifndef TCP_WHEEL_H
#define TCP_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

#define WHEEL_NONE   UINT32_MAX
#define WHEEL_NEVER  UINT64_MAX
#define WHEEL_MOST   (UINT32_C(1) << 31) /* indices are below it */
#define WHEEL_LEVELS 4
#define WHEEL_SLOTS  256

/* One for each index, zeroed by its owner before the first use. In it, n + 1 is the link of index
 * n; with the highest bit set it is a slot. */
struct wheel_link {
	uint32_t next, prev; /* 0: not set */
};
_Static_assert(sizeof(struct wheel_link) == 8, "a million timers take 8 MB");

struct wheel {
	struct wheel_link *links;
	uint64_t tick; /* all slots before it are empty */
	uint64_t now;  /* of the last wheel_take() */
	uint32_t count;
	uint64_t used[WHEEL_LEVELS][WHEEL_SLOTS / 64]; /* a bit for each slot that is not empty */
	struct wheel_link slots[WHEEL_LEVELS * WHEEL_SLOTS];
};

void wheel_init(struct wheel *w, struct wheel_link *links, uint64_t now_ms);

/* Sets or moves the timer of an index. A time that is over means the next millisecond, so that who
 * sets again what it takes comes to an end. */
void wheel_set(struct wheel *w, uint32_t index, uint64_t due_ms);

/* Nothing happens if it is not set. */
void wheel_clear(struct wheel *w, uint32_t index);

static inline bool wheel_is_set(const struct wheel *w, uint32_t index)
{
	return w->links[index].next != 0;
}

/* An index whose slot has come, which is not set any more; WHEEL_NONE: there is no other one now.
 * It may be early, but is never late. Time does not go back. */
uint32_t wheel_take(struct wheel *w, uint64_t now_ms);

/* Which indices the next calls of wheel_take() will give, so that their memory can be asked for: up
 * to `most`, all of one slot. Returns how many. */
unsigned wheel_look(const struct wheel *w, uint64_t now_ms, uint32_t *index, unsigned most);

/* A time before which wheel_take() finds nothing; WHEEL_NEVER: no timer is set. */
uint64_t wheel_next(const struct wheel *w);

#endif
