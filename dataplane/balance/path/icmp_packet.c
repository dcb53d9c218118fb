// SPDX-License-Identifier: Apache-2.0
/* Originated ICMP errors; packets to the forwarder's addresses. */
#include "icmp_packet.h"

#include "create.h"
#include "originated.h"
#include "snat.h"

/* The source of an originated error: the packet's destination. Not for an inside host's packet,
 * which is for another host: an answer in that name would end a traceroute too early. */
static const struct sy_addr *icmp_source(const struct sy_balance *b, const struct sy_view *v)
{
	const struct snat *snat = SY_RCU_READ(b->snat);
	if (!snat_matches(snat, &v->tuple) ||
	    address_set_find(SY_RCU_READ(b->address_set), &v->tuple.dst))
		return &v->tuple.dst;
	return &snat_find(snat, &v->tuple.src)->pool[v->v4].addr[0];
}

bool icmp_send_error(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                     enum sy_icmp_error kind, uint16_t mtu)
{
	const enum originated_class class =
	        kind == SY_ICMP_TOO_BIG ? ORIGINATED_TOO_BIG : ORIGINATED_ERROR;
	if (!originated_charge(w, class, &burst->view[i].tuple.src)) {
		SY_COUNT(w->counters.drop[SY_DROP_ICMP_RATE], 1);
		return false;
	}
	struct rte_mbuf *in = burst->mbuf[i];
	struct rte_mbuf *out = originated_alloc(w);
	return out &&
	       originated_send(w, out,
	                       sy_packet_icmp_error(sy_frame(out), rte_pktmbuf_tailroom(out),
	                                            sy_frame(in), &burst->view[i], kind,
	                                            icmp_source(w->app, &burst->view[i]), mtu),
	                       in->port);
}

static bool icmp_is_echo(const struct sy_view *v)
{
	return v->icmp_type == (v->v4 ? 8 : 128) && v->icmp_code == 0;
}

void icmp_steer(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	if (!icmp_is_echo(&burst->view[i]))
		icmp_error_steer(w, burst, i);
}

void icmp_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct rte_mbuf *m = burst->mbuf[i];
	const struct sy_view *v = &burst->view[i];
	if (!icmp_is_echo(v)) {
		icmp_error_forward(w, burst, i);
		return;
	}
	if (sy_packet_check_l4(sy_frame(m), v) != SY_CSUM_OK) {
		sy_burst_drop(w, burst, i, SY_DROP_BAD_L4_CHECKSUM);
		return;
	}
	if (source_is_own(w->app, v)) {
		sy_burst_drop(w, burst, i, SY_DROP_OWN_SOURCE);
		return;
	}
	if (!originated_charge(w, ORIGINATED_ECHO, &v->tuple.src)) {
		sy_burst_drop(w, burst, i, SY_DROP_ECHO_RATE);
		return;
	}
	sy_packet_echo_reply(sy_frame(m), v);
	burst->next[i] = SY_NEXT_ANSWERED;
	sy_transmit_back(w, m, m->port);
}
