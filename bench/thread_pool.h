// SPDX-License-Identifier: Apache-2.0
/* Workers as threads that run the forwarder's loop on the real clock. Each worker receives from
 * injected queues of its own.
 *
 * Buffers come from the mempool and return to it, as with a device, because workers steer packets
 * to each other. A worker receives nothing while the ring of packets that it has steered to another
 * worker is half full: so no packet is lost, and the result is a rate without loss.
 *
 * Each worker is pinned to a core of its own, from the last core down. The measuring thread runs on
 * the remaining cores, if there are any. */
#ifndef BENCH_THREAD_POOL_H
#define BENCH_THREAD_POOL_H

#include "fixture.h"

/* Input of one receive queue. Private to its worker, except for the two streams. */
struct lane {
	/* Frames that arrive in a loop; NULL: none. Writer: the measuring thread, release */
	const struct injector_stream *stream;
	/* Frames that arrive before these, once. Writers: the measuring thread; the worker sets
	 * NULL when all have arrived */
	const struct injector_stream *first;
	uint64_t at, first_at;
} __attribute__((aligned(SY_CACHE_LINE)));

struct thread_pool {
	struct fixture *fixture;
	struct lane lane[HARNESS_PORTS][SY_MAX_WORKERS];
	const struct port_ops *injector[HARNESS_PORTS]; /* the replaced operations of the ports */
	struct port_ops ops[HARNESS_PORTS];
};

/* The work done in a period. */
struct pool_work {
	double seconds;
	double cpu_ns; /* of all workers */
	uint64_t sent, dropped, steered;
};

/* Starts the fixture's workers; its sessions exist already. Returns false, with a message on
 * stderr, if that fails. */
bool thread_pool_open(struct thread_pool *c, struct fixture *s);
/* Stops the workers. */
void thread_pool_close(struct thread_pool *c);
/* Sets the frames that arrive at worker w from clients and servers; NULL: none. */
void thread_pool_inject(struct thread_pool *c, unsigned w,
                        const struct injector_stream *const stream[2]);
/* Lets each frame of a stream arrive once, at worker w's queue of a port, and waits until all have
 * arrived. */
void thread_pool_inject_once(struct thread_pool *c, unsigned w, unsigned port,
                             const struct injector_stream *stream);
/* The workers go on for `ms` milliseconds. */
void thread_pool_pause(unsigned ms);
/* Returns the work that all workers do in `ms` milliseconds, or longer until they have sent a
 * packet: others may use their cores meanwhile. The calling thread, which is the
 * control thread, meanwhile calls meanwhile(ctx) `times` times at equal intervals, unless it is
 * NULL. */
struct pool_work thread_pool_watch(struct thread_pool *c, unsigned ms, void (*meanwhile)(void *ctx),
                                   void *ctx, unsigned times);

#endif
