// SPDX-License-Identifier: Apache-2.0
/* A runtime for tests: no huge pages, no kernel, ports that are rings which the test fills and
 * empties. The test's own thread is the control thread. */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../runtime.h"

#define WAIT_NS UINT64_C(30000000000) /* for what must happen: a limit, not a measure */

struct ring_port {
	struct rte_ring *rx, *tx; /* as the runtime sees it */
};

/* Fills in what all tests share. */
void options_init(struct sy_runtime_options *o, unsigned workers);
/* Adds an ethdev port of one queue over two new rings. */
struct ring_port ring_port_add(struct sy_runtime_options *o, const char *name);
struct sy_runtime *runtime_open(const struct sy_runtime_options *o);
/* Lets the control thread work for a moment; fails the test when the deadline has passed. */
void runtime_turn(struct sy_runtime *rt, uint64_t deadline);
struct sy_addr addr(const char *text);
uint64_t drops(const struct sy_runtime *rt, enum sy_drop reason);

#endif
