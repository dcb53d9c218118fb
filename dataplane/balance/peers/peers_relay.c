// SPDX-License-Identifier: Apache-2.0
/* Packets that other nodes of an ECMP group relay to this one: into the pipeline, as if a port had
 * received them (docs/design/0071-ecmp.md). */
#include "peers.h"

#include <rte_mbuf_dyn.h>

#include "fragment_table.h"
#include "sync_relay.h"

void peers_relayed(void *peers, unsigned worker, const struct sync_relay *relay,
                   const uint8_t *packet, size_t len)
{
	const struct peers *p = peers;
	const struct sy_balance *b = p->b;
	struct sy_worker *w = sy_worker_at(b->rt, worker);
	struct rte_mbuf *m = sy_packet_alloc(w);
	if (!m || SY_ETH_LEN + len > rte_pktmbuf_tailroom(m)) {
		rte_pktmbuf_free(m);
		SY_COUNT(w->counters.drop[SY_DROP_NO_BUFFER], 1);
		return;
	}
	struct sy_eth *eth = (struct sy_eth *)rte_pktmbuf_append(m, (uint16_t)(SY_ETH_LEN + len));
	*eth = (struct sy_eth){.type = htons(packet[0] >> 4 == 4 ? SY_ETH_IPV4 : SY_ETH_IPV6)};
	memcpy(eth + 1, packet, len);
	m->port = RTE_MBUF_PORT_INVALID; /* answers leave by the route to its source */
	m->ol_flags |= b->relayed_flag;
	*RTE_MBUF_DYNFIELD(m, b->relay_field, struct sync_relay *) = *relay;
	fragment_note_reset(m);
	if (!sy_packet_resubmit(w, m))
		sy_packet_drop(w, m, SY_DROP_NO_BUFFER);
}
