// SPDX-License-Identifier: Apache-2.0
/* A worker's samples: when the next one is due, and the ring of samples. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <rte_mbuf.h>

#include "sy_sample.h"

struct sy_worker;

/* Settings of the control thread. Writer: control thread; readers: workers, relaxed. */
struct sampling {
	uint32_t one_in[SY_SAMPLE_KINDS];
	uint64_t until_ns[SY_SAMPLE_KINDS];
};

/* State of one worker. The ring has one producer, the worker, and one consumer, the control
 * thread. */
struct sampler {
	uint32_t one_in[SY_SAMPLE_KINDS]; /* as last read; 0: none */
	uint64_t random;
	uint64_t second;         /* second of the worker's clock */
	uint32_t dropped;        /* samples of dropped packets in that second */
	uint32_t head;           /* samples enqueued so far. Reader: control thread, acquire */
	uint64_t enqueued, lost; /* readers: control thread, relaxed */
	struct sy_sample *place;
	uint32_t tail
	        __attribute__((aligned(SY_CACHE_LINE))); /* samples dequeued so far. Writer: control
	                                                    thread; reader: worker, acquire */
};

/* sample_left is the number of packets before the next sample. While sampling is off it is more
 * than ever arrive, so that the packet path needs no other check. */
int sampler_open(struct sy_worker *w);
void sampler_close(struct sy_worker *w);
/* Once a round: reads the control thread's settings. */
void sample_round(struct sy_worker *w);
/* Samples a burst of received packets; sample_left was reduced by n. */
void sample_burst(struct sy_worker *w, struct rte_mbuf *const *m, unsigned n);
/* Samples a dropped packet. */
void sample_drop(struct sy_worker *w, const struct rte_mbuf *m, enum sy_drop reason);

#endif
