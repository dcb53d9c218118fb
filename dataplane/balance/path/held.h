// SPDX-License-Identifier: Apache-2.0
/* Clients' data that came before the server has answered: a few packets for each session in state
 * SESSION_OPENING, a bounded number a worker. Who exceeds it loses the oldest, whose sender repeats
 * it. */
#ifndef HELD_H
#define HELD_H

#include "balance.h"

/* NULL: no memory. */
struct held *held_create(void);
/* Frees the packets too. */
void held_destroy(struct held *h);
/* Keeps a packet of this session. service: under which it counts if it is dropped. */
void held_keep(struct sy_worker *w, uint8_t slot, uint32_t record, uint32_t service,
               struct rte_mbuf *m);
/* Gives a packet to the pipeline, after those that were released. */
void held_again(struct sy_worker *w, uint32_t service, struct rte_mbuf *m);
/* The session is open: its packets go to the pipeline, in their order. */
void held_release(struct sy_worker *w, uint8_t slot, uint32_t record);
/* The session will not open: drops its packets. */
void held_drop(struct sy_worker *w, uint8_t slot, uint32_t record);
/* Each round: gives what was released and did not fit to the pipeline. */
void held_round(struct sy_worker *w);

#endif
