// SPDX-License-Identifier: Apache-2.0
/* Packets of our own. */
#ifndef OWN_PACKET_H
#define OWN_PACKET_H

#include "balance.h"

/* A buffer for a packet of our own; NULL: there is none, which has been counted. */
struct rte_mbuf *own_packet(struct sy_worker *w);
/* Sends what such a buffer was filled with out of a port, to the MAC in it; len 0: there is nothing
 * to say, and the buffer is freed. */
void own_packet_answer(struct sy_worker *w, struct rte_mbuf *m, uint32_t len, uint16_t port);

#endif
