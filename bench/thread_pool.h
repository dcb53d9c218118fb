// SPDX-License-Identifier: Apache-2.0
/* Workers as threads, each with injected queues of its own. Their loop is the forwarder's, with its
 * rounds and sleeps, on the real clock. Packets change workers here, so buffers come from the pool
 * and return to it, as with a device. A worker gets no more packets while another worker has many
 * to take from it: the result is a rate without loss. Each worker has a core of its own, from the
 * last one down, and the measuring thread has the first, if there are enough cores. */
#ifndef BENCH_THREAD_POOL_H
#define BENCH_THREAD_POOL_H

#include "fixture.h"

/* Input of one receive queue; used by one worker except for the streams. */
struct lane {
	const struct injector_stream
	        *stream; /* NULL: none. Writer: the measuring thread, release */
	/* Sent first, each frame once. Writers: the measuring thread; the worker: NULL, when all
	 * have arrived */
	const struct injector_stream *first;
	uint64_t at, first_at;
} __attribute__((aligned(SY_CACHE_LINE)));

struct thread_pool {
	struct fixture *fixture;
	struct lane lane[HARNESS_PORTS][SY_MAX_WORKERS];
	const struct port_ops *injector[HARNESS_PORTS]; /* the devices that were replaced */
	struct port_ops ops[HARNESS_PORTS];
};

/* The work done in a period. */
struct pool_work {
	double seconds;
	double cpu_ns; /* of all workers */
	uint64_t sent, dropped, steered;
};

/* Starts the fixture's workers; its sessions exist already. False, with a report on stderr:
 * failed. */
bool thread_pool_open(struct thread_pool *c, struct fixture *s);
/* Stops them. */
void thread_pool_close(struct thread_pool *c);
/* Injects these packets of clients and servers at worker w; NULL: stops. */
void thread_pool_inject(struct thread_pool *c, unsigned w,
                        const struct injector_stream *const stream[2]);
/* Lets each frame of a stream arrive once, at worker w's queue of a port, and waits for that. */
void thread_pool_inject_once(struct thread_pool *c, unsigned w, unsigned port,
                             const struct injector_stream *stream);
/* The work of all workers in this many milliseconds. If meanwhile is not NULL, this thread, which
 * is the control thread, calls meanwhile(ctx) this many times at equal intervals from the start. */
struct pool_work thread_pool_watch(struct thread_pool *c, unsigned ms, void (*meanwhile)(void *ctx),
                                   void *ctx, unsigned times);

#endif
