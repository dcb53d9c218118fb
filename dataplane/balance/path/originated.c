// SPDX-License-Identifier: Apache-2.0
/* Originated packets: allocates and sends their buffers. */
#include "originated.h"

struct rte_mbuf *originated_alloc(struct sy_worker *w)
{
	struct rte_mbuf *m = sy_packet_alloc(w);
	if (!m)
		SY_COUNT(w->counters.drop[SY_DROP_NO_BUFFER], 1);
	return m;
}

bool originated_send(struct sy_worker *w, struct rte_mbuf *m, uint32_t len, uint16_t port)
{
	if (len == 0) {
		rte_pktmbuf_free(m);
		return false;
	}
	rte_pktmbuf_append(m, (uint16_t)len);
	sy_transmit_back(w, m, port);
	return true;
}
