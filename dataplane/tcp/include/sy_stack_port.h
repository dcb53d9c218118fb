// SPDX-License-Identifier: Apache-2.0
/*
 * One stack per worker behind the runtime's ports, without shared state. The flow director steers
 * packets of claimed addresses here; ARP, ND and all other addresses stay with the kernel
 * (sy_address_claim()).
 *
 *     receive ──▶ stack of the worker that owns the segment's slot ──▶ transmit
 *                   └──▶ serve(): the application, on the worker's thread
 */
#ifndef SY_STACK_PORT_H
#define SY_STACK_PORT_H

#include <sy_runtime.h>

#include "sy_stack.h"

struct sy_stack_port;

/* Runs the application: after each burst, and at least every SY_ROUND_MS. */
typedef void (*sy_stack_serve)(struct sy_stack *s, unsigned worker, uint64_t now_ns, void *ctx);

/* For sy_runtime_options: pipeline, and round. Its `app` is the struct sy_stack_port. */
extern const struct sy_stage sy_stack_pipeline[];
void sy_stack_round(struct sy_worker *w);
/* For `poll` and `wake_ns` of sy_runtime_options. With them, timers run on time even if the worker
 * sleeps; a poll iteration sends at most four bursts, a large segment counting as its pieces; and
 * received packets are processed before retransmission timers fire. Without them, timers are up to
 * SY_ROUND_MS late and an iteration sends everything. */
bool sy_stack_poll(struct sy_worker *w);
uint64_t sy_stack_wake_ns(const struct sy_worker *w);
/* Returns true while packets are queued in levels and the driver may have more: then
 * sy_stack_round() runs after the next burst. For callers with their own poll. */
bool sy_stack_is_sorting(struct sy_worker *w);

/* Call before the runtime is opened. Returns NULL if there is no memory. */
struct sy_stack_port *sy_stack_port_new(sy_stack_serve serve, void *ctx);
/* Call after that and before the workers start. Creates a stack per worker; sets pool, copies,
 * owner and offloads in the options, and limits receive_all to the runtime's pool. */
int sy_stack_port_open(struct sy_stack_port *p, struct sy_runtime *rt,
                       const struct sy_stack_options *options, struct sy_error *err);
/* Returns the ctx of a worker's port. */
void *sy_stack_port_ctx(const struct sy_worker *w);
struct sy_stack *sy_stack_port_stack(struct sy_stack_port *p, unsigned worker);
/* Call after the workers have stopped and before the runtime is closed. NULL is allowed. */
void sy_stack_port_close(struct sy_stack_port *p);

#endif
