// SPDX-License-Identifier: Apache-2.0
/*
 * Selects the next level: the most urgent one with events, or one whose withheld share amounts to a
 * whole event (docs/design/0045-priorities.md, "Events").
 */
#ifndef LEVEL_SHARE_H
#define LEVEL_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include <sy_hook_program.h>

#define SHARES_WHOLE 100 /* percent: one event */
#define SHARES_MAX   (SY_PRIORITIES * SHARES_WHOLE)

struct shares {
	uint8_t percent[SY_PRIORITIES];
	uint16_t deficit[SY_PRIORITIES]; /* in 1/100 event; below SHARES_MAX */
	bool used;
};

/* Returns false if the sum exceeds 100. */
static inline bool shares_set(struct shares *h, const uint8_t percent[SY_PRIORITIES])
{
	unsigned sum = 0;

	for (unsigned i = 0; i < SY_PRIORITIES; i++)
		sum += percent[i];
	if (sum > SHARES_WHOLE)
		return false;
	*h = (struct shares){.used = sum > 0};
	for (unsigned i = 0; i < SY_PRIORITIES; i++)
		h->percent[i] = percent[i];
	return true;
}

/* Returns the next of the levels with events (a bitmap, not 0). */
static inline unsigned shares_next(const struct shares *h, unsigned levels)
{
	if (h->used)
		for (unsigned left = levels; left; left &= left - 1) {
			unsigned level = (unsigned)__builtin_ctz(left);
			if (h->deficit[level] >= SHARES_WHOLE)
				return level;
		}
	return (unsigned)__builtin_ctz(levels);
}

/* An event of this level was fetched; levels: those with events. A level without events loses its
 * deficit. */
static inline void shares_fetched(struct shares *h, unsigned levels, unsigned level)
{
	if (!h->used)
		return;
	for (unsigned i = 0; i < SY_PRIORITIES; i++) {
		if (!(levels & 1u << i))
			h->deficit[i] = 0;
		else if (h->deficit[i] < SHARES_MAX)
			h->deficit[i] = (uint16_t)(h->deficit[i] + h->percent[i]);
	}
	h->deficit[level] =
	        h->deficit[level] > SHARES_WHOLE ? (uint16_t)(h->deficit[level] - SHARES_WHOLE) : 0;
}

#endif
