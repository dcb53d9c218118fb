// SPDX-License-Identifier: Apache-2.0
/* Counts packets inside the forwarder's pipeline: probes between its stages, and wrapped functions
 * that originate frames. */
#ifndef PIPELINE_PROBE_H
#define PIPELINE_PROBE_H

#include <stdint.h>

struct probe_counts {
	uint64_t reached;    /* packets that passed classify */
	uint64_t fast;       /* packets that took the fast path */
	uint64_t originated; /* frames that the balancer originated */
};
extern struct probe_counts probe_counts;

/* The forwarder's pipeline with probes after classify, look up and the fast path. */
const struct sy_stage *pipeline_probed(void);

#endif
