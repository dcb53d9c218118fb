// SPDX-License-Identifier: Apache-2.0
/* A link: one DPDK device with one queue in each direction, polled by the generator's core. Frames
 * to send have a pool per direction, whose buffers hold that direction's template; only the
 * differing fields are written before each sending. With zero-copy memif the other side accesses
 * these buffers directly, so the generator copies no data and costs less than the program being
 * measured. */
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

/* Names the link and allocates its buffers; call it for all links before opening any. DPDK
 * 22.11's memif connects in a thread of its own, which walks the memory and then allocates. A
 * thread that makes the heap grow meanwhile takes these locks in the opposite order, and both
 * threads deadlock. */
int link_pools_open(struct link *l, const char *name, struct sy_error *err);
/* Creates the device: DPDK's devargs, such as "net_memif0,role=client,zero-copy=yes,…". */
int link_open(struct link *l, const char *devargs, struct sy_error *err);
void link_close(struct link *l);
/* Whether the other side is connected; memif connects when polled by this call. */
bool link_is_up(const struct link *l);
/* Fills the buffers of both directions; none may be in flight. */
int link_prepare(struct link *l, unsigned family, unsigned size, bool fresh, struct sy_error *err);

/* Takes buffers that hold the direction's template, at most LINK_BURST; false: all are in
 * flight. */
static inline bool link_take(struct link *l, enum frame_way way, struct rte_mbuf **m, unsigned n)
{
	/* Raw: a buffer comes back with the lengths that it was sent with. */
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
