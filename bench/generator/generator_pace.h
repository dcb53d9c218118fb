// SPDX-License-Identifier: Apache-2.0
/* Rate control: how many packets are due by now. Pure arithmetic on a clock that the caller
 * reads. */
#ifndef GENERATOR_PACE_H
#define GENERATOR_PACE_H

#include <stdint.h>

struct pace {
	uint64_t start; /* in the caller's ticks */
	double per_tick;
	uint64_t done;     /* due so far, and taken */
	uint64_t forgiven; /* of these, skipped: the generator itself was interrupted */
	uint32_t arrears;  /* a larger backlog is skipped */
};

static inline struct pace pace_begin(uint64_t now, double per_tick, uint32_t arrears)
{
	return (struct pace){.start = now, .per_tick = per_tick, .arrears = arrears};
}

/* Packets due at `now` and not taken yet, at most `most`; they count as taken. If the machine
 * interrupted the generator for longer than `arrears` packets take, the rest is skipped: sending it
 * at once would be an unwanted burst. */
static inline uint32_t pace_take(struct pace *p, uint64_t now, uint32_t max)
{
	uint64_t due = (uint64_t)((double)(now - p->start) * p->per_tick);
	if (due <= p->done)
		return 0;
	uint64_t open = due - p->done;
	if (open > p->arrears) {
		p->forgiven += open - p->arrears;
		p->done += open - p->arrears;
		open = p->arrears;
	}
	uint32_t n = open < max ? (uint32_t)open : max;
	p->done += n;
	return n;
}

#endif
