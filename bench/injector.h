// SPDX-License-Identifier: Apache-2.0
/*
 * Ports without a wire: frames made beforehand come in by them in bursts, as fast as a worker takes
 * them, and what it sends is counted and forgotten. Behind the ports of a test harness stands the
 * forwarder as it is.
 *
 * The cost of feeding is that of copying a frame's first bytes into one of some buffers that take
 * turns, like those of a device's ring; injector_run_empty() spends the same without a forwarder.
 */
#ifndef BENCH_FEED_H
#define BENCH_FEED_H

#include "../dataplane/balance/tests/harness.h"
#include "../tests/soak/frame.h"

#define FEED_BUFFERS 256 /* of a queue */

/* Frames of one length, in the order of their arrival, again and again. */
struct injector_stream {
	uint8_t *frames;
	uint64_t count;
	uint32_t len;    /* of each */
	uint32_t stride; /* from one to the next: len or more, a multiple of 64 */
	uint64_t bytes;  /* mapped */
};

/* Memory for so many frames, on huge pages if there are any; false: there is none. */
bool injector_stream_open(struct injector_stream *s, uint64_t count, uint32_t len);
void injector_stream_close(struct injector_stream *s);
static inline uint8_t *injector_frame(const struct injector_stream *s, uint64_t n)
{
	return s->frames + n * s->stride;
}

/* One receive queue and the transmit queue of the same number. One worker's own. */
struct injector_queue {
	struct rte_mbuf *buffer[FEED_BUFFERS];
	unsigned buffer_at;
	const struct injector_stream *stream; /* NULL: nothing comes in */
	uint64_t at;                          /* the next frame */
	uint64_t left;                        /* so many are still to come */
	uint64_t received, sent;
	/* What to do with frames that the forwarder sends; NULL: nothing. */
	void (*sent_to)(void *ctx, const uint8_t *frame, unsigned len);
	void *ctx;
} __attribute__((aligned(SY_CACHE_LINE)));

struct injector {
	struct harness *harness;
	const struct port_ops *device[HARNESS_PORTS]; /* in whose place we are */
	struct port_ops ops[HARNESS_PORTS];
	struct injector_queue queue[HARNESS_PORTS][SY_MAX_WORKERS];
	unsigned queues;
};

/* Takes the place of the harness's devices; one at a time in a process. False: no buffers. */
bool injector_open(struct injector *f, struct harness *r);
void injector_close(struct injector *f);
/* Lets n frames of a stream come in by a port's queue, from where it stands. */
void injector_give(struct injector *f, unsigned port, unsigned queue,
                   const struct injector_stream *s, uint64_t n);
/* Lets all queues tell of each frame that the forwarder sends; NULL: no longer. */
void injector_listen(struct injector *f,
                     void (*sent_to)(void *ctx, const uint8_t *frame, unsigned len), void *ctx);
/* Receives and forgets all that was given to queue 0 of the ports, without a forwarder. */
void injector_run_empty(struct injector *f);

#endif
