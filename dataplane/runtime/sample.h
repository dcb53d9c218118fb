// SPDX-License-Identifier: Apache-2.0
/* A worker's samples: when the next one is due, and the places where samples wait. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <rte_mbuf.h>

#include "sy_sample.h"

struct sy_worker;

/* What the control thread wants. Writer: control thread; readers: workers, relaxed. */
struct sampling {
	uint32_t one_in[SY_SAMPLE_KINDS];
	uint64_t until_ns[SY_SAMPLE_KINDS];
};

/* Of one worker. Its places have one producer, the worker, and one consumer, the control thread. */
struct sampler {
	uint32_t one_in[SY_SAMPLE_KINDS]; /* as last noticed; 0: none */
	uint64_t random;
	uint64_t second;      /* of the worker's clock */
	uint32_t dropped;     /* samples of dropped packets in that second */
	uint32_t head;        /* samples put so far. Reader: control thread, acquire */
	uint64_t taken, lost; /* readers: control thread, relaxed */
	struct sy_sample *place;
	uint32_t tail __attribute__((aligned(SY_CACHE_LINE))); /* samples taken out so far.
	                      Writer: control thread; reader: worker, acquire */
};

/* sample_left is the number of packets that pass before the next sample. While nobody wants
 * samples, it is more than ever come, so that the packet path has nothing else to ask. */
int sampler_open(struct sy_worker *w);
void sampler_close(struct sy_worker *w);
/* Every round: notices what the control thread wants. */
void sample_round(struct sy_worker *w);
/* A sample of a burst of received packets is due; sample_left was reduced by n. */
void sample_burst(struct sy_worker *w, struct rte_mbuf *const *m, unsigned n);
/* A sample of a dropped packet is due. */
void sample_drop(struct sy_worker *w, const struct rte_mbuf *m, enum sy_drop reason);

#endif
