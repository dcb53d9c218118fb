// SPDX-License-Identifier: Apache-2.0
/* FNAT between IPv6 and IPv4 (RFC 7915), for client and server of different families. The tuples
 * show the families; sessions do not store them. */
#include "forward.h"

enum sy_drop forward_translate(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                               const struct session *s, const struct endpoint *e)
{
	struct sy_balance *b = w->app;
	struct rte_mbuf *m = burst->mbuf[i];
	const struct sy_view *v = &burst->view[i];
	const struct session_cold *cold = session_cold_beside(b->table[burst->slot[i]], s);
	const struct sy_rewrite r = session_rewrite(b, s, cold, e, burst->direction[i]);
	uint8_t *frame = sy_frame(m), *at;

	/* an IPv6 header is longer: the frame grows */
	if (SY_UNLIKELY(v->v4 && rte_pktmbuf_headroom(m) < SY_PACKET_HEADROOM))
		return SY_DROP_NO_BUFFER;
	at = sy_packet_translate(frame, &burst->view[i], &r, ++balance_worker_of(w)->ipv4_id);
	if (SY_UNLIKELY(!at))
		return SY_DROP_UNTRANSLATABLE;
	if (at < frame)
		rte_pktmbuf_prepend(m, (uint16_t)(frame - at));
	else
		rte_pktmbuf_adj(m, (uint16_t)(at - frame));
	return SY_DROP_NONE;
}
