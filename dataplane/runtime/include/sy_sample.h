// SPDX-License-Identifier: Apache-2.0
/*
 * Samples of packets: while sampling is on, workers copy the first bytes of one in N received
 * packets, and of one in N dropped packets (docs/design/0030-attacks.md).
 */
#ifndef SY_SAMPLE_H
#define SY_SAMPLE_H

#include <sy_base.h>

#define SY_SAMPLE_HEADER  128  /* bytes of a packet */
#define SY_SAMPLE_PLACES  1024 /* capacity of a worker's ring of samples; a power of 2 */
#define SY_SAMPLE_DROPS   1000 /* max samples of dropped packets per second and worker */
#define SY_SAMPLE_MAX_GAP (UINT32_C(1) << 30)

struct sy_runtime;

enum sy_sample_kind { SY_SAMPLE_RECEIVED, SY_SAMPLE_DROPPED, SY_SAMPLE_KINDS };

struct sy_sample {
	uint32_t one_in;       /* the sample stands for this many packets of its kind */
	uint32_t length;       /* of the frame in bytes, from its Ethernet header on */
	uint8_t port;          /* see below; SY_PORT_NONE: none */
	uint8_t drop;          /* enum sy_drop; SY_DROP_NONE: a received packet */
	uint8_t header_length; /* of header[] */
	uint8_t header[SY_SAMPLE_HEADER];
};

/*
 * A received packet is copied as it arrived, before the pipeline, by the worker that received it;
 * port: ingress. A dropped packet is copied as it was when it was dropped; port: ingress, or egress
 * if it was dropped on its way out (TX_FULL, PORT_DOWN, NO_NEIGHBOUR, NEIGHBOUR_QUEUE,
 * SHAPING_FULL, SHAPING_EARLY). Packets that the flow director drops are not sampled.
 */

/* Samples one in `one_in` packets of this kind (1 to SY_SAMPLE_MAX_GAP; 0: none) until this time
 * of sy_clock_ns(). Workers react within SY_ROUND_MS. Control thread. */
void sy_samples_want(struct sy_runtime *rt, enum sy_sample_kind kind, uint32_t one_in,
                     uint64_t until_ns);

/* Dequeues the oldest samples of a worker, at most `most`. Returns how many. Control thread. */
unsigned sy_samples_dequeue(struct sy_runtime *rt, unsigned worker, struct sy_sample *out,
                            unsigned max);

/* Totals of all workers since the start. */
struct sy_sample_counts {
	uint64_t enqueued; /* enqueued */
	uint64_t lost;     /* not enqueued: the ring was full, or SY_SAMPLE_DROPS exceeded */
};
struct sy_sample_counts sy_samples_count(const struct sy_runtime *rt);

#endif
