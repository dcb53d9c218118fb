// SPDX-License-Identifier: Apache-2.0
/*
 * Shaping of ports (docs/design/0037-shaping.md): packets wait in a tree of queues before they
 * leave by the port. One worker owns the tree; the others pass their packets to it.
 */
#ifndef SY_SHAPING_H
#define SY_SHAPING_H

#include <sy_shape.h>

#include "sy_runtime.h"

/* Sets the caller's number of a packet's service, 0: none. It is 0 in packets received while any
 * port is shaped, and in originated ones. */
static inline void sy_packet_set_service(struct rte_mbuf *m, uint32_t service)
{
	m->hash.fdir.hi = service;
}

static inline uint32_t sy_packet_service(const struct rte_mbuf *m)
{
	return m->hash.fdir.hi;
}

/*
 * Shapes the port as configured from now on, or changes its shaping. branch: maps the caller's
 * number of a service to its number in the configuration; `branches` long. Takes ownership of it
 * and free()s it, even after an error. Waiting packets stay in order. Control thread. Fails with
 * -ETIMEDOUT if the worker does not answer.
 */
int sy_port_shape(struct sy_runtime *rt, unsigned port, const struct sy_shape_config *c,
                  uint16_t *branch, uint32_t branches, struct sy_error *err);
/* Ends the shaping of a port: waiting packets leave at once, in order. */
int sy_port_unshape(struct sy_runtime *rt, unsigned port, struct sy_error *err);
/* Changes a service's number in the port's configuration. */
void sy_port_shape_service(struct sy_runtime *rt, unsigned port, uint32_t service, uint16_t branch);
/* Returns NULL if the port is not shaped. Control thread; valid until the next change. */
const struct sy_shape *sy_port_shape_get(const struct sy_runtime *rt, unsigned port);
/* Capacity of a port's queues together, in packets. */
unsigned sy_port_shape_capacity(const struct sy_runtime *rt, unsigned port);
/* The worker that owns the tree. */
unsigned sy_port_shape_worker(const struct sy_runtime *rt, unsigned port);

#endif
