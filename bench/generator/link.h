// SPDX-License-Identifier: Apache-2.0
/*
 * A link: one DPDK device with one queue each way, which the generator's core polls. Frames to send
 * have a pool of their own for each way, whose buffers hold the way's template; only what differs
 * is written before each sending. With zero-copy memif the other side reads and writes these
 * buffers directly, so that the generator copies nothing and costs less than what it measures.
 */
#ifndef GENERATOR_LINK_H
#define GENERATOR_LINK_H

#include <rte_ethdev.h>

#include "frames.h"

#define LINK_BURST 64

struct link {
	char name[32];
	uint16_t dev;
	struct rte_mempool *received;
	struct rte_mempool *sent[FRAME_WAYS];
	struct frame_template template[FRAME_WAYS]; /* length 0: none yet */
};

/* Names the link and takes memory for its buffers. Of all links before any is opened: DPDK 22.11's
 * memif connects in a thread of its own, which walks the memory, then allocates; whoever makes the
 * heap grow meanwhile holds these locks in the other order, and both wait for ever. */
int link_pools_open(struct link *l, const char *name, struct sy_error *err);
/* Creates the device: DPDK's devargs, such as "net_memif0,role=client,zero-copy=yes,…". */
int link_open(struct link *l, const char *devargs, struct sy_error *err);
void link_close(struct link *l);
/* The other side is there; memif connects when it is asked. */
bool link_is_up(const struct link *l);
/* Fills the buffers of both ways; none may be under way. */
int link_prepare(struct link *l, unsigned family, unsigned size, bool fresh, struct sy_error *err);

/* Buffers that hold the way's template, no more than LINK_BURST; false: all are under way. */
static inline bool link_take(struct link *l, enum frame_way way, struct rte_mbuf **m, unsigned n)
{
	/* Raw: a buffer that was sent comes back with the lengths it had. */
	return rte_mempool_get_bulk(l->sent[way], (void **)m, n) == 0;
}

static inline unsigned link_send(const struct link *l, struct rte_mbuf **m, unsigned n)
{
	return rte_eth_tx_burst(l->dev, 0, m, (uint16_t)n);
}

static inline unsigned link_receive(const struct link *l, struct rte_mbuf **m)
{
	return rte_eth_rx_burst(l->dev, 0, m, LINK_BURST);
}

#endif
