// SPDX-License-Identifier: Apache-2.0
/*
 * Until when was everything that came to a queue dequeued? A reader that was stalled finds more
 * than it dequeues at once: a timeout for a packet ends by this time, not by the current one.
 */
#ifndef SY_SEEN_H
#define SY_SEEN_H

#include <stdint.h>

struct sy_seen {
	uint64_t ns;        /* everything that had arrived by then was dequeued */
	uint64_t marked_ns; /* and by then, once `marked` more are dequeued */
	unsigned marked;
};

/* The reader has dequeued a burst at now_ns; at most `left` packets remain. */
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
