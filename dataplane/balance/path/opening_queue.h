// SPDX-License-Identifier: Apache-2.0
/* Clients' data that came before the server has answered: a few packets for each session in state
 * SESSION_OPENING, a bounded number a worker. Who exceeds it loses the oldest, whose sender repeats
 * it. */
#ifndef OPENING_QUEUE_H
#define OPENING_QUEUE_H

#include "balance.h"

/* NULL: no memory. */
struct opening_queue *opening_queue_create(void);
/* Frees the packets too. */
void opening_queue_destroy(struct opening_queue *h);
/* Keeps a packet of this session. service: under which it counts if it is dropped. */
void opening_queue_add(struct sy_worker *w, uint8_t slot, uint32_t record, uint32_t service,
                       struct rte_mbuf *m);
/* Gives a packet to the pipeline, after those that were released. */
void opening_queue_resubmit(struct sy_worker *w, uint32_t service, struct rte_mbuf *m);
/* The session is open: its packets go to the pipeline, in their order. */
void opening_queue_release(struct sy_worker *w, uint8_t slot, uint32_t record);
/* The session will not open: drops its packets. */
void opening_queue_drop(struct sy_worker *w, uint8_t slot, uint32_t record);
/* Each round: gives what was released and did not fit to the pipeline. */
void opening_queue_poll(struct sy_worker *w);

#endif
