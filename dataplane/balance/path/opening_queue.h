// SPDX-License-Identifier: Apache-2.0
/* The opening queue: clients' data that arrived before the server's answer. Holds a few packets for
 * each session in state SESSION_OPENING, and a bounded number per worker. When it is full, it drops
 * the oldest packet, which the client retransmits. */
#ifndef OPENING_QUEUE_H
#define OPENING_QUEUE_H

#include "balance.h"

/* Returns NULL without memory. */
struct opening_queue *opening_queue_create(void);
/* Also frees the packets. */
void opening_queue_destroy(struct opening_queue *h);
/* Queues a packet of this session. service: counts the packet if it is dropped. */
void opening_queue_add(struct sy_worker *w, uint8_t slot, uint32_t record, uint32_t service,
                       struct rte_mbuf *m);
/* Submits a packet to the pipeline, after those that were released. */
void opening_queue_resubmit(struct sy_worker *w, uint32_t service, struct rte_mbuf *m);
/* The session is open: submits its packets to the pipeline in order. */
void opening_queue_release(struct sy_worker *w, uint8_t slot, uint32_t record);
/* The session will not open: drops its packets. */
void opening_queue_drop(struct sy_worker *w, uint8_t slot, uint32_t record);
/* Once a round: submits released packets for which the pipeline had no space. */
void opening_queue_poll(struct sy_worker *w);

#endif
