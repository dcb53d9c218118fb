/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timeout for a peer's answer. A stall of this thread counts as one step: the peer, probably
 * stalled too, may have answered, and the thread has not looked yet (docs/design/0056-stalls.md).
 */
#ifndef SY_PATIENCE_H
#define SY_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "sy_base.h"

struct sy_patience {
	uint64_t left_ns, at_ns, step_ns;
};

/* step_ns: max time between two attempts in a thread that runs. */
static inline struct sy_patience sy_patience_begin(uint64_t ns, uint64_t step_ns)
{
	return (struct sy_patience){.left_ns = ns, .at_ns = sy_clock_ns(), .step_ns = step_ns};
}

/* Call after a failed attempt. Returns the remaining time; 0: none. */
static inline uint64_t sy_patience_left(struct sy_patience *p)
{
	uint64_t now = sy_clock_ns(), passed = now - p->at_ns;
	passed = passed < p->step_ns ? passed : p->step_ns;
	p->at_ns = now;
	p->left_ns -= passed < p->left_ns ? passed : p->left_ns;
	return p->left_ns;
}

#endif
