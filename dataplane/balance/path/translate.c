// SPDX-License-Identifier: Apache-2.0
/* FNAT between IPv6 and IPv4 (RFC 7915): what is different when client and server are not of one
 * family. Their tuples say so themselves; sessions know nothing of it. */
#include "balance.h"

#define HEADERS_DIFFER ((int8_t)(sizeof(struct sy_ipv6) - sizeof(struct sy_ipv4)))

void endpoint_form(struct endpoint *e)
{
	bool v4 = sy_addr_is_v4(&e->addr), vip_v4 = sy_addr_is_v4(&e->vip);

	if (e->mode == MODE_DR) {
		e->form = vip_v4 ? FORM_DIRECT_V4 : FORM_DIRECT_V6;
	} else if (e->mode == MODE_IPIP) {
		e->form = vip_v4 ? FORM_TUNNEL_V4 : FORM_TUNNEL_V6;
		e->growth[SESSION_CLIENT] = (int8_t)sy_tunnel_overhead(&e->addr);
	} else if (v4 != vip_v4) {
		e->form = FORM_TRANSLATE;
		e->growth[SESSION_CLIENT] = v4 ? -HEADERS_DIFFER : HEADERS_DIFFER;
		e->growth[SESSION_SERVER] = v4 ? HEADERS_DIFFER : -HEADERS_DIFFER;
	} else {
		e->form = v4 ? FORM_V4 : FORM_V6;
	}
}

bool forward_translate(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                       const struct session *s, const struct endpoint *e)
{
	struct sy_balance *b = w->app;
	struct rte_mbuf *m = burst->mbuf[i];
	const struct sy_view *v = &burst->view[i];
	const struct session_cold *cold = session_cold_beside(b->table[burst->slot[i]], s);
	const struct sy_rewrite r = session_rewrite(b, s, cold, e, burst->direction[i]);
	uint8_t *frame = sy_frame(m), *at;

	/* IPv4's header is the shorter one. */
	if (SY_UNLIKELY(v->v4 && rte_pktmbuf_headroom(m) < SY_PACKET_ROOM)) {
		sy_burst_drop(w, burst, i, SY_DROP_NO_BUFFER);
		return false;
	}
	at = sy_packet_translate(frame, &burst->view[i], &r, ++balance_worker_of(w)->ipv4_id);
	if (SY_UNLIKELY(!at)) {
		sy_burst_drop(w, burst, i, SY_DROP_UNTRANSLATABLE);
		return false;
	}
	if (at < frame)
		rte_pktmbuf_prepend(m, (uint16_t)(frame - at));
	else
		rte_pktmbuf_adj(m, (uint16_t)(at - frame));
	return true;
}
