// SPDX-License-Identifier: Apache-2.0
/* Ports without a wire: prepared frames arrive in bursts, as fast as a worker takes them, and the
 * worker's output is counted and discarded. The forwarder behind the ports is a test harness.
 *
 * Injecting costs a copy of a frame's first bytes into one of several buffers, used in turn like
 * those of a device's ring. injector_run_empty() spends the same time without a forwarder. */
#ifndef BENCH_INJECTOR_H
#define BENCH_INJECTOR_H

#include "../dataplane/balance/tests/harness.h"
#include "../tests/soak/soak_frame.h"

#define INJECTOR_BUFFERS 256 /* per queue */

/* Frames of one length, in order of arrival, repeated. */
struct injector_stream {
	uint8_t *frames;
	uint64_t count;
	uint32_t len;    /* of each frame */
	uint32_t stride; /* distance between frames: at least len, a multiple of 64 */
	uint64_t bytes;  /* mapped */
};

/* Allocates this many frames, on huge pages if there are any; false: no memory. */
bool injector_stream_open(struct injector_stream *s, uint64_t count, uint32_t len);
void injector_stream_close(struct injector_stream *s);
static inline uint8_t *injector_frame(const struct injector_stream *s, uint64_t n)
{
	return s->frames + n * s->stride;
}

/* One receive queue and the transmit queue of the same number. Used by one worker. */
struct injector_queue {
	struct rte_mbuf *buffer[INJECTOR_BUFFERS];
	unsigned buffer_at;
	const struct injector_stream *stream; /* NULL: no frames arrive */
	uint64_t at;                          /* the next frame */
	uint64_t left;                        /* frames still to come */
	uint64_t received, sent;
	/* Called for each frame that the forwarder sends; NULL: none. */
	void (*sent_to)(void *ctx, const uint8_t *frame, unsigned len);
	void *ctx;
} __attribute__((aligned(SY_CACHE_LINE)));

struct injector {
	struct harness *harness;
	const struct port_ops *device[HARNESS_PORTS]; /* the devices that were replaced */
	struct port_ops ops[HARNESS_PORTS];
	struct injector_queue queue[HARNESS_PORTS][SY_MAX_WORKERS];
	unsigned queues;
};

/* Replaces the harness's devices; one at a time per process. False: no buffers. */
bool injector_open(struct injector *f, struct harness *r);
void injector_close(struct injector *f);
/* Lets the stream's next n frames arrive at a port's queue. */
void injector_give(struct injector *f, unsigned port, unsigned queue,
                   const struct injector_stream *s, uint64_t n);
/* Calls this for each frame that the forwarder sends, on all queues; NULL: stops. */
void injector_listen(struct injector *f,
                     void (*sent_to)(void *ctx, const uint8_t *frame, unsigned len), void *ctx);
/* Receives and discards all frames given to queue 0 of the ports, without a forwarder. */
void injector_run_empty(struct injector *f);

#endif
