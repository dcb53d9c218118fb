// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that do not fit their path and leave in fragments (docs/design/0012-fragments.md):
 *
 *     IPv4, DF not set    within IPv4      as a router does (RFC 791)
 *                         into a tunnel    before encapsulation, so that the receiver reassembles
 *                         into IPv6        once translated, to 1280 bytes (RFC 7915 4)
 *     IPv6, at most 1280  into a tunnel    after encapsulation (RFC 2473 7.1, RFC 4213 3.2)
 *     the same, fragments into IPv4        once translated (RFC 7915 5.1)
 *
 * For all other packets the sender gets an ICMP error. Exception: a packet to an IPv4 client whose
 * narrow path its server does not know is fragmented, whatever its DF bit says (client_mtu.c).
 */
#include "forward.h"
#include "fragment_table.h"
#include "police.h"
#include "queued.h"
#include "service_drop.h"

#define PIECES 64 /* max fragments of one packet */

/* Fragment before encapsulation? Otherwise after it. */
static bool is_divided_first(const struct endpoint *e, const struct sy_view *v,
                             enum session_direction from)
{
	return v->v4 && from == SESSION_CLIENT && transmit_mode_is_tunnel(e->transmit_mode);
}

int oversize_overhead(const struct endpoint *e, const struct sy_view *v,
                      enum session_direction from)
{
	/* an IPv6 fragment has a fragment header */
	bool header =
	        e->transmit_mode == TRANSMIT_TRANSLATE && v->v4 && v->fragment != SY_FRAGMENT_NONE;
	return e->overhead[from] + (header ? 8 : 0);
}

bool oversize_may_fragment(const struct endpoint *e, const uint8_t *frame, const struct sy_view *v,
                           enum session_direction from)
{
	if (v->v4)
		return packet_may_fragment(frame, v);
	/* The sender need not send smaller packets (RFC 8200 5). Routers may fragment the resulting
	 * packet, or the IPv4 fragment. */
	bool min = v->frame_len - v->l3 <= IPV6_MTU_MIN;
	return e->transmit_mode == TRANSMIT_TRANSLATE
	               ? min || v->fragment != SY_FRAGMENT_NONE
	               : min && from == SESSION_CLIENT && transmit_mode_is_tunnel(e->transmit_mode);
}

/* The id for the fragments of a frame: its own if it is a fragment, otherwise a new one. A new one
 * also if the source address has changed: many senders may share it. */
static uint32_t pieces_id(struct sy_worker *w, const uint8_t *frame,
                          const struct sy_addr *came_from)
{
	const struct sy_ipv4 *ip = (const struct sy_ipv4 *)(frame + SY_ETH_LEN);
	bool v4 = ((const struct sy_eth *)frame)->type == htons(SY_ETH_IPV4);
	const struct sy_addr src = v4 ? sy_addr_v4(ip->src) : (struct sy_addr){0};
	return v4 && sy_addr_equal(&src, came_from) ? ntohs(ip->id) : fragment_id_new(w);
}

/* Splits a frame into new buffers. Returns their number; 0 without enough buffers. */
static unsigned pieces_make(struct sy_worker *w, const uint8_t *frame, uint32_t id, uint16_t mtu,
                            struct rte_mbuf *piece[static PIECES])
{
	unsigned count = 0;
	uint16_t at = 0;
	for (; count < PIECES; count++) {
		struct rte_mbuf *m = sy_packet_alloc(w);
		uint32_t len = m ? sy_packet_fragment(sy_frame(m), rte_pktmbuf_tailroom(m), frame,
		                                      mtu, id, &at)
		                 : 0;
		if (len == 0) {
			rte_pktmbuf_free(m);
			if (m && at > 0) /* the last piece */
				return count;
			break;
		}
		rte_pktmbuf_append(m, (uint16_t)len);
		piece[count] = m;
	}
	rte_pktmbuf_free_bulk(piece, count);
	return 0;
}

/* Encapsulates a fragment. Returns false if it was dropped. */
static bool piece_encapsulate(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                              struct rte_mbuf *piece, const struct session *s,
                              const struct endpoint *e)
{
	struct sy_view v = burst->view[i];
	v.frame_len = rte_pktmbuf_data_len(piece);
	if (forward_tunnel(w, piece, &v, s, e, burst->flow[i]))
		return true;
	sy_packet_drop(w, piece, SY_DROP_NO_BUFFER);
	return false;
}

/* Updates state and counters as forward_packet() does. */
static void note_forwarded(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                           struct session *s)
{
	const struct sy_view *v = &burst->view[i];
	traffic_count(&balance_worker_of(w)->share[s->server].traffic, burst->direction[i],
	              v->frame_len - v->l3);
	session_touch(s, s->seen, (uint16_t)balance_seconds(w));
	burst->flow[i] = (uint32_t)(burst->hash[i] >> 32);
}

void oversize_forward(struct sy_worker *w, struct sy_burst *burst, unsigned i, struct session *s,
                      uint16_t mtu)
{
	const struct sy_balance *b = w->app;
	const struct endpoint *e = &b->endpoint[s->server];
	const enum session_direction from = burst->direction[i];
	const struct sy_addr src = burst->view[i].tuple.src;
	bool first = is_divided_first(e, &burst->view[i], from);
	struct rte_mbuf *piece[PIECES];

	enum sy_drop reason = police_now(w, burst, i); /* pieces bypass the event device */
	if (SY_UNLIKELY(reason != SY_DROP_NONE)) {
		session_packet_drop(w, burst, i, s, reason);
		return;
	}
	if (first) {
		note_forwarded(w, burst, i, s);
		mtu = (uint16_t)(mtu - e->overhead[from]);
	} else {
		forward_packet(w, burst, i, s);
		if (burst->next[i] != SY_NEXT_TRANSMIT)
			return;
	}
	const uint8_t *frame = sy_frame(burst->mbuf[i]);
	unsigned count = pieces_make(w, frame, pieces_id(w, frame, &src), mtu, piece);
	if (count == 0) {
		sy_burst_drop(w, burst, i, SY_DROP_NO_BUFFER);
		return;
	}
	queued_send(w, burst, i);
	sy_transmit_before(w, burst, i);
	for (unsigned n = 0; n < count; n++) {
		police_mark(piece[n], e);
		if (!first || piece_encapsulate(w, burst, i, piece[n], s, e))
			sy_transmit_path(w, piece[n], burst->path[i], burst->via[i],
			                 burst->flow[i]);
	}
	rte_pktmbuf_free(burst->mbuf[i]);
	burst->next[i] = SY_NEXT_SENT;
}
