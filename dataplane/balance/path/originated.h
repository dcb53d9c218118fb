// SPDX-License-Identifier: Apache-2.0
/* Originated packets: ICMP, resets, SYN cookies. */
#ifndef ORIGINATED_H
#define ORIGINATED_H

#include "balance.h"

/* Allocates a buffer for an originated packet. Returns NULL without one; counts that. */
struct rte_mbuf *originated_alloc(struct sy_worker *w);
/* Sends the buffer's `len` bytes out of a port, to the destination MAC in them. With len 0, frees
 * the buffer and returns false. */
bool originated_send(struct sy_worker *w, struct rte_mbuf *m, uint32_t len, uint16_t port);

/* Marks a packet that the forwarder originated in a client's name and passes through its own
 * pipeline. If its session has ended meanwhile, it must neither begin another one nor be
 * answered. */
static inline void originated_mark(const struct sy_balance *b, struct rte_mbuf *m)
{
	m->ol_flags |= b->originated_flag;
}

static inline bool originated_is_marked(const struct sy_balance *b, const struct rte_mbuf *m)
{
	return m->ol_flags & b->originated_flag;
}

#endif
