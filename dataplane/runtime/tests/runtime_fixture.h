// SPDX-License-Identifier: Apache-2.0
/* A runtime for tests: no huge pages, no kernel; the test fills and empties rings that serve as
 * ports. The test's own thread is the control thread. */
#ifndef RUNTIME_FIXTURE_H
#define RUNTIME_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../runtime.h"

#define WAIT_NS UINT64_C(30000000000) /* time limit for events that must happen */

struct ring_port {
	struct rte_ring *rx, *tx; /* as seen from the runtime */
};

/* Fills in the options that all tests share. */
void options_init(struct sy_runtime_options *o, unsigned workers);
/* Adds an ethdev port with one queue over two new rings. */
struct ring_port ring_port_add(struct sy_runtime_options *o, const char *name);
/* The same with several queues: p[] has a pair of rings for each. */
void ring_port_add_queues(struct sy_runtime_options *o, const char *name, struct ring_port *p,
                          unsigned queues);
/* The same, but all queues send to one ring: it shows the order between them. */
void ring_port_add_narrow(struct sy_runtime_options *o, const char *name, struct ring_port *p,
                          unsigned queues);
/* Adds a route to 10.0.0.0/24 by the first port, and the neighbour 10.0.0.9 there. */
void options_reach(struct sy_runtime_options *o);
struct sy_runtime *runtime_open(const struct sy_runtime_options *o);
/* Runs the control thread's loop for a moment; fails the test after the deadline. */
void runtime_poll(struct sy_runtime *rt, uint64_t deadline);
/* Has a worker run fn, and waits for it on a host that withholds the CPU for longer than
 * sy_worker_call() does. */
void worker_run(struct sy_worker *w, void (*fn)(struct sy_worker *w, void *ctx), void *ctx);
struct sy_addr addr(const char *text);
uint64_t drops(const struct sy_runtime *rt, enum sy_drop reason);

#endif
