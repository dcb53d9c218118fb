// SPDX-License-Identifier: Apache-2.0
/*
 * Workers as threads, each fed by queues of its own for as long as somebody measures them. Their
 * loop is the forwarder's, with its rounds and sleeps, by the real clock. Packet buffers come from
 * the pool and go back to it, as a device's do, as packets change hands here. A worker is fed no
 * more while another has much to take from it: what is measured is a rate without loss.
 */
#ifndef BENCH_CROWD_H
#define BENCH_CROWD_H

#include "scene.h"

/* What one receive queue is fed; one worker's own but for `stream`. */
struct lane {
	const struct feed_stream *stream; /* NULL: nothing. Writer: who measures, release */
	uint64_t at;
} __attribute__((aligned(SY_CACHE_LINE)));

struct crowd {
	struct scene *scene;
	struct lane lane[RIG_PORTS][SY_MAX_WORKERS];
	const struct port_ops *feed[RIG_PORTS]; /* in whose place we are */
	struct port_ops ops[RIG_PORTS];
};

/* What happened in some time. */
struct crowd_work {
	double seconds;
	double cpu_ns; /* of all workers */
	uint64_t sent, dropped, handed_over;
};

/* Starts the scene's workers; its sessions have been made. False, and said on stderr: failed. */
bool crowd_open(struct crowd *c, struct scene *s);
/* Stops them. */
void crowd_close(struct crowd *c);
/* Feeds worker w what clients and servers send; NULL: nothing any more. */
void crowd_feed(struct crowd *c, unsigned w, const struct feed_stream *const stream[2]);
/* What all workers do in so many milliseconds; meanwhile(ctx), if not NULL, is called every
 * period_ms by this thread, which is the interaction thread. */
struct crowd_work crowd_watch(struct crowd *c, unsigned ms, void (*meanwhile)(void *ctx), void *ctx,
                              unsigned period_ms);

#endif
