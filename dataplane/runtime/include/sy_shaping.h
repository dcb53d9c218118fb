// SPDX-License-Identifier: Apache-2.0
/*
 * Shaping of ports (docs/design/0037-shaping.md): what leaves by a port waits in a tree of queues,
 * which one worker owns. The others hand their packets over to it.
 */
#ifndef SY_SHAPING_H
#define SY_SHAPING_H

#include <sy_shape.h>

#include "sy_runtime.h"

/* The caller's number of a packet's service, 0: of none. It is 0 in packets that come in while any
 * port is shaped, and in own ones. */
static inline void sy_packet_set_service(struct rte_mbuf *m, uint32_t service)
{
	m->hash.fdir.hi = service;
}

static inline uint32_t sy_packet_service(const struct rte_mbuf *m)
{
	return m->hash.fdir.hi;
}

/*
 * From now on, shapes what leaves by this port as configured, or changes how. branch: by the
 * caller's number of a service, its number in the configuration; `branches` long. It becomes the
 * runtime's, which free()s it, also after an error. Packets that wait stay, in order. Control
 * thread. -ETIMEDOUT: the worker does not answer.
 */
int sy_port_shape(struct sy_runtime *rt, unsigned port, const struct sy_shape_config *c,
                  uint16_t *branch, uint32_t branches, struct sy_error *err);
/* Shapes it no longer: what waits leaves at once, in order. */
int sy_port_unshape(struct sy_runtime *rt, unsigned port, struct sy_error *err);
/* A service's number in the port's configuration is another one now. */
void sy_port_shape_service(struct sy_runtime *rt, unsigned port, uint32_t service, uint16_t branch);
/* NULL: the port is not shaped. Control thread, until the next change. */
const struct sy_shape *sy_port_shape_get(const struct sy_runtime *rt, unsigned port);
/* Packets that a port's queues may hold together. */
unsigned sy_port_shape_capacity(const struct sy_runtime *rt, unsigned port);
/* The worker that owns the tree. */
unsigned sy_port_shape_worker(const struct sy_runtime *rt, unsigned port);

#endif
