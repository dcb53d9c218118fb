// SPDX-License-Identifier: Apache-2.0
/* Packets that we generate. */
#ifndef OWN_PACKET_H
#define OWN_PACKET_H

#include "balance.h"

/* A buffer for a packet that we generate; NULL: there is none, and that was counted. */
struct rte_mbuf *own_packet(struct sy_worker *w);
/* Sends the buffer's `len` bytes out of a port, to the MAC address in them; len 0: there is nothing
 * to send, and the buffer is freed. */
void own_packet_answer(struct sy_worker *w, struct rte_mbuf *m, uint32_t len, uint16_t port);

#endif
