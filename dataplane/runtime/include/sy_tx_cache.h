// SPDX-License-Identifier: Apache-2.0
/*
 * Ways: a path resolved, for the packets of a burst, as most leave by the path of the one before
 * them. Only what needs no wait and no word to anybody is a way; all else is for
 * sy_transmit_stage(), which takes what the way does not.
 */
#ifndef SY_TX_CACHE_H
#define SY_TX_CACHE_H

#include "sy_runtime.h"

#define SY_TX_CACHE_NONE UINT32_MAX

/* What sy_tx_cache_link() found, for the next packets to the same neighbour by the same way:
 * whoever has many to few keeps one for each, zeroed at first. */
struct sy_tx_cache_link {
	uint64_t epoch;     /* while it is the way's, this holds: */
	uint64_t neighbour; /* its MAC in the low 48 bits, the others 0 */
};

/* Packets gathered for one destination during a burst. */
struct sy_gather {
	unsigned count;
	struct rte_mbuf *mbuf[SY_BURST];
};

struct sy_tx_cache {
	uint32_t path;            /* SY_TX_CACHE_NONE: there is none yet */
	uint32_t len_max;         /* of frames: path and port have room for them */
	uint16_t port;            /* number */
	bool on_link;             /* each destination is a neighbour of its own */
	uint64_t neighbour;       /* its MAC in the low 48 bits, unless on_link */
	uint64_t head;            /* the port's MAC: its first two bytes, where a frame has them */
	uint32_t tail;            /* its others */
	struct sy_gather *gather; /* for the port */
	uint64_t epoch; /* another one for each port and second, and when any link changes */
};

/* Resolves a path that is not stale, with one hop whose port is up, whose transmit queue is this
 * worker's, and whose neighbour is known. False: it has no way, way->path is SY_TX_CACHE_NONE. */
bool sy_tx_cache_set(struct sy_worker *w, struct sy_tx_cache *tx, uint16_t path);
/* Of a way on link: finds the neighbour. False: not known now. */
bool sy_tx_cache_link(struct sy_worker *w, const struct sy_tx_cache *tx,
                      const struct sy_addr *neighbour, struct sy_tx_cache_link *out);

/*
 * May a frame go this way? to: its neighbour where the path is on link, and what is kept of that;
 * direct: nobody else will do. The neighbour's MAC then is in the low 48 bits of *neighbour. False:
 * it is for sy_transmit_stage().
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

/* Makes a buffer's frame that may go this way ready for the wire: MACs and port. */
static inline void sy_tx_cache_write(const struct sy_tx_cache *tx, struct rte_mbuf *m,
                                     uint8_t *frame, uint64_t neighbour)
{
	neighbour |= tx->head;
	memcpy(frame, &neighbour, sizeof(neighbour));
	memcpy(frame + sizeof(neighbour), &tx->tail, sizeof(tx->tail));
	m->port = tx->port;
}

/* Both. */
static inline __attribute__((always_inline)) bool
sy_tx_cache_take(struct sy_worker *w, struct sy_tx_cache *tx, struct rte_mbuf *m, uint16_t path,
                 const struct sy_addr *to, struct sy_tx_cache_link *kept, bool direct)
{
	uint64_t neighbour;
	if (!sy_tx_cache_find(w, tx, m, path, to, kept, direct, &neighbour))
		return false;
	sy_tx_cache_write(tx, m, sy_frame(m), neighbour);
	return true;
}

/* Sends a frame that was made ready, behind what was sent before. False: nothing was
 * done, it is for sy_transmit_stage(). */
static inline bool sy_tx_cache_send(const struct sy_tx_cache *tx, struct rte_mbuf *m)
{
	struct sy_gather *g = tx->gather;
	if (SY_UNLIKELY(g->count == SY_BURST))
		return false;
	g->mbuf[g->count++] = m;
	return true;
}

#endif
