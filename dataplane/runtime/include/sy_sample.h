// SPDX-License-Identifier: Apache-2.0
/*
 * Samples of packets: workers copy the first bytes of one of N received packets, and of one of N
 * dropped packets, for as long as somebody wants them. See docs/design/0030-attacks.md.
 */
#ifndef SY_SAMPLE_H
#define SY_SAMPLE_H

#include <sy_base.h>

#define SY_SAMPLE_HEADER   128  /* bytes of a packet */
#define SY_SAMPLE_PLACES   1024 /* samples that wait in a worker; a power of 2 */
#define SY_SAMPLE_DROPS    1000 /* samples of dropped packets, a second and worker */
#define SY_SAMPLE_MOST_GAP (UINT32_C(1) << 30)

struct sy_runtime;

enum sy_sample_kind { SY_SAMPLE_RECEIVED, SY_SAMPLE_DROPPED, SY_SAMPLE_KINDS };

struct sy_sample {
	uint32_t one_in;       /* the sample stands for so many packets of its kind */
	uint32_t length;       /* of the frame in bytes, from its Ethernet header on */
	uint8_t port;          /* see below; SY_PORT_NONE: none */
	uint8_t drop;          /* enum sy_drop; SY_DROP_NONE: a received packet */
	uint8_t header_length; /* of header[] */
	uint8_t header[SY_SAMPLE_HEADER];
};

/*
 * A received packet is copied as it arrived, before the pipeline, by the worker that received it;
 * port: where it arrived. A dropped packet is copied as it was when it was dropped; port: where it
 * arrived, or where it was to leave if it was dropped on its way out (TX_FULL, PORT_DOWN,
 * NO_NEIGHBOUR, NEIGHBOUR_QUEUE, SHAPING_FULL, SHAPING_EARLY). What the flow director drops is not
 * sampled.
 */

/* Workers sample one of `one_in` packets of this kind (1 to SY_SAMPLE_MOST_GAP; 0: none) until this
 * time of sy_clock_ns(). They notice within SY_ROUND_MS. Control thread. */
void sy_samples_want(struct sy_runtime *rt, enum sy_sample_kind kind, uint32_t one_in,
                     uint64_t until_ns);

/* Takes the oldest samples of a worker, at most `most`; returns how many. Control thread. */
unsigned sy_samples_dequeue(struct sy_runtime *rt, unsigned worker, struct sy_sample *out,
                            unsigned most);

/* Of all workers since the start. */
struct sy_sample_counts {
	uint64_t taken; /* put into a worker's places */
	uint64_t lost;  /* found no place, or were above SY_SAMPLE_DROPS */
};
struct sy_sample_counts sy_samples_count(const struct sy_runtime *rt);

#endif
