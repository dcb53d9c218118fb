/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that do not run for a while. */
#ifndef STALLED_H
#define STALLED_H

#include "harness.h"

/* Advances the clock as harness_advance() does, but no worker polls meanwhile. */
static inline void harness_stall(struct harness *r, uint64_t ns)
{
	harness_advance(r, ns);
	for (unsigned i = 0; i < r->rt->workers; i++)
		r->rt->worker[i].private->poll_ns = r->now_ns - ns;
}

#endif
