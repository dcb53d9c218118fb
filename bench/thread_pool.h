// SPDX-License-Identifier: Apache-2.0
/*
 * Workers as threads, each fed by queues of its own for as long as somebody measures them. Their
 * loop is the forwarder's, with its rounds and sleeps, by the real clock. Packet buffers come from
 * the pool and go back to it, as a device's do, as packets change hands here. A worker is fed no
 * more while another has much to take from it: what is measured is a rate without loss. Each has a
 * core of its own, the last first, and who measures the first, as far as there are so many.
 */
#ifndef BENCH_CROWD_H
#define BENCH_CROWD_H

#include "fixture.h"

/* What one receive queue is fed; one worker's own but for the streams. */
struct lane {
	const struct injector_stream *stream; /* NULL: nothing. Writer: who measures, release */
	/* Before it, each frame once. Writers: who measures; the worker: NULL, when all came in */
	const struct injector_stream *first;
	uint64_t at, first_at;
} __attribute__((aligned(SY_CACHE_LINE)));

struct thread_pool {
	struct fixture *fixture;
	struct lane lane[HARNESS_PORTS][SY_MAX_WORKERS];
	const struct port_ops *injector[HARNESS_PORTS]; /* in whose place we are */
	struct port_ops ops[HARNESS_PORTS];
};

/* What happened in some time. */
struct pool_work {
	double seconds;
	double cpu_ns; /* of all workers */
	uint64_t sent, dropped, handed_over;
};

/* Starts the fixture's workers; its sessions have been made. False, and said on stderr: failed. */
bool thread_pool_open(struct thread_pool *c, struct fixture *s);
/* Stops them. */
void thread_pool_close(struct thread_pool *c);
/* Feeds worker w what clients and servers send; NULL: nothing any more. */
void thread_pool_inject(struct thread_pool *c, unsigned w,
                        const struct injector_stream *const stream[2]);
/* Lets each frame of a stream come in once, by worker w's queue of a port, and waits for that. */
void thread_pool_inject_once(struct thread_pool *c, unsigned w, unsigned port,
                             const struct injector_stream *stream);
/* What all workers do in so many milliseconds; meanwhile(ctx), if not NULL, is called so many times
 * in even distances, from the beginning on, by this thread, which is the control thread. */
struct pool_work thread_pool_watch(struct thread_pool *c, unsigned ms, void (*meanwhile)(void *ctx),
                                   void *ctx, unsigned times);

#endif
