// SPDX-License-Identifier: Apache-2.0
/* Packets that we generate. */
#ifndef ORIGINATED_H
#define ORIGINATED_H

#include "balance.h"

/* A buffer for a packet that we generate; NULL: there is none, and that was counted. */
struct rte_mbuf *originated_alloc(struct sy_worker *w);
/* Sends the buffer's `len` bytes out of a port, to the MAC address in them; len 0: there is nothing
 * to send, the buffer is freed, and false is returned. */
bool originated_send(struct sy_worker *w, struct rte_mbuf *m, uint32_t len, uint16_t port);

/* Marks a packet in a client's name that goes into our own pipeline: it must not begin a session,
 * nor be answered, if its own has ended meanwhile. */
static inline void originated_mark(const struct sy_balance *b, struct rte_mbuf *m)
{
	m->ol_flags |= b->originated_flag;
}

static inline bool originated_is_marked(const struct sy_balance *b, const struct rte_mbuf *m)
{
	return m->ol_flags & b->originated_flag;
}

#endif
