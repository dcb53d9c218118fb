// SPDX-License-Identifier: Apache-2.0
/* Resets of our own, in the name of one end to the other (docs/design/0011-tcp-life.md). */
#include "balance.h"

/* A buffer with a reset in it leaves by the session's path towards its server. */
static void reset_send_server(struct sy_worker *w, struct session *s, const struct sy_tuple *t,
                              uint32_t seq, uint32_t flow)
{
	uint16_t path = forward_path(w, s, SESSION_CLIENT);
	struct rte_mbuf *m = sy_packet_alloc(w);

	if (!m) {
		SY_COUNT(w->counters.drop[SY_DROP_NO_BUFFER], 1);
		return;
	}
	uint32_t len = sy_tcp_reset_make(sy_frame(m), rte_pktmbuf_tailroom(m), t, seq, 0, false);
	rte_pktmbuf_append(m, (uint16_t)len);
	sy_transmit_path(w, m, path, flow);
}

void reset_time_wait(struct sy_worker *w, struct session *s, const struct session_cold *cold,
                     uint32_t flow)
{
	struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];

	/* Under NAT the tuple is the client's own, who knows what it sends under it. */
	if (s->state != SESSION_TIME_WAIT || !(s->flags & SESSION_SERVER_FIRST) ||
	    e->mode != MODE_FNAT)
		return;
	const struct sy_tuple t = {*session_local(b, s, e), e->addr, s->local_port,
	                           session_port(e, cold), e->proto};
	uint32_t seq = cold->fin_seq[SESSION_CLIENT];
	if (s->flags & SESSION_SHIFTED)
		seq += cold->inserted;
	/* Without a timestamp: RFC 7323 5.2 lets it pass as it is. */
	reset_send_server(w, s, &t, seq, flow);
}
