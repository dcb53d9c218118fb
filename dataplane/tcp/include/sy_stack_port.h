// SPDX-License-Identifier: Apache-2.0
/*
 * Stacks behind the runtime's ports: one for each worker, which shares nothing with the others. The
 * flow director steers packets to taken addresses here; ARP, ND and all other addresses stay with
 * the kernel (sy_address_claim()).
 *
 *     receive ──▶ stack: of the worker that owns the segment's slot ──▶ transmit
 *                   └──▶ serve(): the application, on the worker's thread
 */
#ifndef SY_STACK_PORT_H
#define SY_STACK_PORT_H

#include <sy_runtime.h>

#include "sy_stack.h"

struct sy_stack_port;

/* The application's turn: after each burst, and at least every SY_ROUND_MS. */
typedef void (*sy_stack_serve)(struct sy_stack *s, unsigned worker, uint64_t now_ns, void *ctx);

/* The stages for sy_runtime_options.pipeline, and the round for its `round`; its `app` is what
 * sy_stack_port_new() returns. */
extern const struct sy_stage sy_stack_pipeline[];
void sy_stack_round(struct sy_worker *w);
/* For its `poll` and `wake_ns`: what is due is done in time, also while the worker would sleep, and
 * a turn sends four bursts at most, pieces of large segments counted, before packets are received
 * again. Without them, timers are up to SY_ROUND_MS late, and a turn sends all that there is. No
 * time-out runs before all packets that had come by then were seen. */
bool sy_stack_poll(struct sy_worker *w);
uint64_t sy_stack_wake_ns(const struct sy_worker *w);
/* Is this worker's driver not empty yet, while packets wait in levels to be sorted? Then its turn
 * is not over: sy_stack_round() comes after the next burst. For whoever has a `poll` of his own. */
bool sy_stack_sorts(struct sy_worker *w);

/* Before the runtime is opened. NULL: no memory. */
struct sy_stack_port *sy_stack_port_new(sy_stack_serve serve, void *ctx);
/* After that, and before the workers start: makes a stack for each of them, with these options;
 * their pool, copies and owner are set here, and what the ports can do for them, and receive_all is
 * bounded by what the runtime's pool has. */
int sy_stack_port_open(struct sy_stack_port *p, struct sy_runtime *rt,
                       const struct sy_stack_options *options, struct sy_error *err);
/* The ctx of a worker's port. */
void *sy_stack_port_ctx(const struct sy_worker *w);
struct sy_stack *sy_stack_port_stack(struct sy_stack_port *p, unsigned worker);
/* After the workers have stopped, and before the runtime is closed. NULL is fine. */
void sy_stack_port_close(struct sy_stack_port *p);

#endif
