// SPDX-License-Identifier: Apache-2.0
/*
 * Until when has all that came to a queue been taken? A reader that was held up finds more than it
 * takes at a time: who waits for a packet has waited until then, and not until now.
 */
#ifndef SY_SEEN_H
#define SY_SEEN_H

#include <stdint.h>

struct sy_seen {
	uint64_t ns;        /* all that had come by then was taken */
	uint64_t marked_ns; /* and by then, once `marked` more are */
	unsigned marked;
};

/* The reader has taken a burst at now_ns; behind it `left` wait, or fewer. */
static inline void sy_seen_burst(struct sy_seen *s, unsigned taken, unsigned left, uint64_t now_ns)
{
	if (left == 0) {
		*s = (struct sy_seen){.ns = now_ns};
		return;
	}
	if (s->marked > taken) {
		s->marked -= taken;
		return;
	}
	if (s->marked > 0)
		s->ns = s->marked_ns;
	s->marked = left;
	s->marked_ns = now_ns;
}

#endif
