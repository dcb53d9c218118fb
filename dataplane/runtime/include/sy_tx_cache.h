// SPDX-License-Identifier: Apache-2.0
/*
 * The tx cache: the resolved path of the previous packet, as most packets of a burst leave by the
 * same path. It covers only packets that can leave at once, without waiting or a request to the
 * control thread. All others are for sy_transmit_stage().
 */
#ifndef SY_TX_CACHE_H
#define SY_TX_CACHE_H

#include "sy_runtime.h"

#define SY_TX_CACHE_NONE UINT32_MAX

/* A cached result of sy_tx_cache_link(), for the next packets to the same neighbour by the same
 * path. Callers with many packets for few neighbours keep one each, initially zero. */
struct sy_tx_cache_link {
	uint64_t epoch;     /* the result is valid while this equals the tx cache's epoch */
	uint64_t neighbour; /* its MAC in the low 48 bits, the others 0 */
};

/* Packets gathered for one destination during a burst. */
struct sy_gather {
	unsigned count;
	unsigned
	        owner; /* worker, + 1, that got the port's last packets; 0: they went to the port */
	struct rte_mbuf *mbuf[SY_BURST];
	uint32_t mark; /* position of the last one in the ring to that worker */
};

struct sy_tx_cache {
	uint32_t path;      /* SY_TX_CACHE_NONE: empty */
	uint32_t len_max;   /* largest frame that path and port allow */
	uint16_t port;      /* number */
	bool on_link;       /* the neighbour is the destination */
	uint64_t neighbour; /* its MAC in the low 48 bits, unless on_link */
	uint64_t head;      /* first two bytes of the port's MAC, at their position in a frame */
	uint32_t tail;      /* its other bytes */
	struct sy_gather *gather; /* gather list of the port */
	uint64_t epoch; /* depends on port and second, and changes when any link changes */
};

/* Resolves a path. Requires that it is not stale, has one hop whose port is up and whose neighbour
 * is known, and that this worker owns the transmit queue. Otherwise returns false and sets tx->path
 * to SY_TX_CACHE_NONE. */
bool sy_tx_cache_set(struct sy_worker *w, struct sy_tx_cache *tx, uint16_t path);
/* Resolves the neighbour of an on-link path. Returns false if it is not known now. */
bool sy_tx_cache_link(struct sy_worker *w, const struct sy_tx_cache *tx,
                      const struct sy_addr *neighbour, struct sy_tx_cache_link *out);

/*
 * Can a frame leave by the tx cache? to: its neighbour if the path is on link, whose result is
 * cached in *kept; direct: the frame must go to that neighbour. Returns true and the neighbour's
 * MAC in the low 48 bits of *neighbour, or false: the packet is for sy_transmit_stage().
 */
static inline __attribute__((always_inline)) bool
sy_tx_cache_find(struct sy_worker *w, struct sy_tx_cache *tx, const struct rte_mbuf *m,
                 uint16_t path, const struct sy_addr *to, struct sy_tx_cache_link *kept,
                 bool direct, uint64_t *neighbour)
{
	if (SY_UNLIKELY(path != tx->path) && !sy_tx_cache_set(w, tx, path))
		return false;
	if (SY_UNLIKELY(rte_pktmbuf_pkt_len(m) > tx->len_max))
		return false;
	*neighbour = tx->neighbour;
	if (tx->on_link) {
		if (SY_UNLIKELY(kept->epoch != tx->epoch) && !sy_tx_cache_link(w, tx, to, kept))
			return false;
		*neighbour = kept->neighbour;
	} else if (SY_UNLIKELY(direct)) {
		return false;
	}
	return true;
}

/* Writes MACs and port into a frame that sy_tx_cache_find() accepted. */
static inline void sy_tx_cache_write(const struct sy_tx_cache *tx, struct rte_mbuf *m,
                                     uint8_t *frame, uint64_t neighbour)
{
	neighbour |= tx->head;
	memcpy(frame, &neighbour, sizeof(neighbour));
	memcpy(frame + sizeof(neighbour), &tx->tail, sizeof(tx->tail));
	m->port = tx->port;
}

/* sy_tx_cache_find(), then sy_tx_cache_write(). */
static inline __attribute__((always_inline)) bool
sy_tx_cache_use(struct sy_worker *w, struct sy_tx_cache *tx, struct rte_mbuf *m, uint16_t path,
                const struct sy_addr *to, struct sy_tx_cache_link *kept, bool direct)
{
	uint64_t neighbour;
	if (!sy_tx_cache_find(w, tx, m, path, to, kept, direct, &neighbour))
		return false;
	sy_tx_cache_write(tx, m, sy_frame(m), neighbour);
	return true;
}

/* Sends a complete frame after everything sent before. Returns false if it was not sent and is for
 * sy_transmit_stage(). */
static inline bool sy_tx_cache_send(const struct sy_tx_cache *tx, struct rte_mbuf *m)
{
	struct sy_gather *g = tx->gather;
	if (SY_UNLIKELY(g->count == SY_BURST))
		return false;
	g->mbuf[g->count++] = m;
	return true;
}

#endif
