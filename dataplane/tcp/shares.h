// SPDX-License-Identifier: Apache-2.0
/*
 * Which level is next: the most urgent one that has something; or one whose share was withheld for
 * so long that a whole event is missing (docs/design/0045-priorities.md, "Events").
 */
#ifndef TCP_SHARES_H
#define TCP_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include <sy_hook_program.h>

#define SHARES_WHOLE 100 /* percent: an event */
#define SHARES_MOST  (SY_PRIORITIES * SHARES_WHOLE)

struct shares {
	uint8_t percent[SY_PRIORITIES];
	uint16_t deficit[SY_PRIORITIES]; /* in hundredths of an event; below SHARES_MOST */
	bool used;
};

/* False: more than all. */
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

/* Of the levels that have something (bits), the one whose event is next; there is one. */
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

/* An event of this level was fetched, while those (bits) had some. One that has none owes nothing.
 */
static inline void shares_fetched(struct shares *h, unsigned levels, unsigned level)
{
	if (!h->used)
		return;
	for (unsigned i = 0; i < SY_PRIORITIES; i++) {
		if (!(levels & 1u << i))
			h->deficit[i] = 0;
		else if (h->deficit[i] < SHARES_MOST)
			h->deficit[i] = (uint16_t)(h->deficit[i] + h->percent[i]);
	}
	h->deficit[level] =
	        h->deficit[level] > SHARES_WHOLE ? (uint16_t)(h->deficit[level] - SHARES_WHOLE) : 0;
}

#endif
