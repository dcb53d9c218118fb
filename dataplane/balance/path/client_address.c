// SPDX-License-Identifier: Apache-2.0
/*
 * Passes clients' addresses to their servers, in a TCP option (TOA) or in a PROXY header before the
 * client's data (docs/design/0014-client-address.md).
 *
 *     client's numbering   ISN │ data …            client_first is the number after ISN,
 *     server's numbering   ISN │ header │ data …   `inserted` the header's length
 *
 * The slow path calls this file for packets of sessions that are ADDRESS_PENDING. Afterwards
 * forward_shift() converts sequence numbers, and nothing else is needed.
 */
#include <arpa/inet.h>

#include <forwarder.pb-c.h>

#include "client_address.h"
#include <sy_tcp_segment.h>

#include "forward.h"
#include "service_drop.h"

/* The packet that carries the client's address, and its session. */
struct address_packet {
	struct sy_burst *burst;
	unsigned i;
	struct session *s;
	struct session_cold *cold;
};

static struct address_packet address_packet_of(struct sy_worker *w, struct sy_burst *burst,
                                               unsigned i, struct session *s)
{
	const struct sy_balance *b = w->app;
	return (struct address_packet){
	        burst, i, s, session_cold_at(b->table[burst->slot[i]], burst->session[i])};
}

static uint32_t header_make(uint8_t out[static SY_PROXY_V1_MAX], const struct sy_tuple *t,
                            bool text)
{
	return text ? sy_proxy_v1(out, t) : sy_proxy_v2(out, t);
}

/* Removes data from a SYN (RFC 7413): it would precede the header. The client retransmits it. */
static void syn_strip(struct sy_burst *burst, unsigned i)
{
	struct rte_mbuf *m = burst->mbuf[i];
	struct sy_view *v = &burst->view[i];

	sy_tcp_strip(sy_frame(m), v, UINT8_MAX);
	rte_pktmbuf_trim(m, m->data_len - v->frame_len);
}

void client_address_begin(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                          struct session *s)
{
	struct sy_balance *b = w->app;
	const struct service *service = endpoint_service(b, &b->endpoint[s->server]);
	unsigned how = service ? service->policy.client_address : 0;
	uint8_t *frame = sy_frame(burst->mbuf[i]), header[SY_PROXY_V1_MAX];
	struct sy_view *v = &burst->view[i];
	const struct address_packet t = address_packet_of(w, burst, i, s);

	if (s->state !=
	    SESSION_SYN_SENT) { /* the server's answer shows whether it begins a connection */
		if (session_is_by_proxy(t.cold))
			syn_strip(burst, i);
		else if (session_is_by_toa(t.cold) && !(s->flags & SESSION_ADDRESS_PENDING))
			sy_tcp_blank_toa(frame, v);
		return;
	}
	s->flags &= (uint8_t) ~(SESSION_ADDRESS_PENDING | SESSION_SHIFTED);
	t.cold->inserted = t.cold->text = 0;
	if (SY_LIKELY(how == STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_UNSPECIFIED))
		return;
	t.cold->client_first = ntohl(sy_packet_tcp(frame, v)->seq) + 1;
	if (how == STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_TOA) {
		t.cold->text = 1; /* session_is_by_toa() */
		s->flags |= SESSION_ADDRESS_PENDING;
		return;
	}
	t.cold->text = how == STEELYARD__FORWARDER__V1__CLIENT_ADDRESS__CLIENT_ADDRESS_PROXY_V1;
	t.cold->inserted = header_make(header, &v->tuple, t.cold->text) & 0x7f;
	s->flags |= SESSION_ADDRESS_PENDING | SESSION_SHIFTED;
	syn_strip(burst, i);
}

/* Inserts the client's address into the packet. Returns false if it does not fit. */
static bool client_address_put(const struct address_packet *t, uint32_t mtu)
{
	struct rte_mbuf *m = t->burst->mbuf[t->i];
	struct sy_view *v = &t->burst->view[t->i];
	uint8_t *frame = sy_frame(m), *at, header[SY_PROXY_V1_MAX];
	bool proxy = session_is_by_proxy(t->cold);
	uint32_t seq = ntohl(sy_packet_tcp(frame, v)->seq);
	uint32_t len =
	        proxy ? header_make(header, &v->tuple, t->cold->text) : sy_toa_len(&t->s->client);

	if ((uint32_t)v->frame_len - v->l3 + len > mtu || rte_pktmbuf_headroom(m) < len)
		return false;
	at = proxy ? sy_tcp_prepend(frame, v, header, (uint16_t)len)
	           : sy_tcp_insert_toa(frame, v, SY_TOA, &t->s->client, t->s->client_port);
	if (!at)
		return false;
	rte_pktmbuf_prepend(m, (uint16_t)len);
	if (proxy) /* forward_shift() has already moved the packet: the header is the first byte */
		sy_tcp_shift_seq(at, v, t->cold->client_first - seq - t->cold->inserted);
	return true;
}

/* Sends the address in an originated segment before the packet. Returns false if the packet was
 * dropped; the client retransmits it. */
static bool client_address_send_ahead(struct sy_worker *w, const struct address_packet *t)
{
	struct sy_burst *burst = t->burst;
	unsigned i = t->i;
	struct rte_mbuf *m = burst->mbuf[i], *own = sy_packet_alloc(w);
	const struct sy_view v = burst->view[i];
	char *copy = own ? rte_pktmbuf_append(own, v.frame_len) : NULL;

	if (!copy) {
		rte_pktmbuf_free(own);
		session_packet_drop(w, burst, i, t->s, SY_DROP_NO_BUFFER);
		return false;
	}
	memcpy(copy, sy_frame(m), v.frame_len);
	burst->mbuf[i] = own;
	sy_tcp_strip(sy_frame(own), &burst->view[i], SY_TCP_ACK);
	rte_pktmbuf_trim(own, v.frame_len - burst->view[i].frame_len);
	if (client_address_put(t, UINT16_MAX)) {
		forward_packet(w, burst, i, t->s);
		if (burst->next[i] == SY_NEXT_TRANSMIT)
			sy_transmit_path(w, burst->mbuf[i], burst->path[i], NULL, burst->flow[i]);
	} else {
		SY_COUNT(w->counters.drop[SY_DROP_NO_CLIENT_ADDRESS], 1);
		server_count_drop(w, t->s->server, SY_DROP_NO_CLIENT_ADDRESS);
		rte_pktmbuf_free(own);
	}
	burst->mbuf[i] = m;
	burst->view[i] = v;
	burst->next[i] = SY_NEXT_SLOW;
	return true;
}

/* Would the client's bytes overlap the header that the server expects? Then they are forged. The
 * one legitimate byte before the client's first is that of a keep-alive. */
static bool is_inside_header(const struct sy_view *v, const struct sy_tcp *tcp, uint32_t at)
{
	bool whole = v->fragment == SY_FRAGMENT_NONE;
	if (v->tcp_flags & SY_TCP_SYN) /* syn_strip() does not strip fragments */
		return !whole;
	if ((int32_t)at >= 0 || v->tcp_flags & SY_TCP_RST)
		return false;
	return at + 1 != 0 || !whole || v->l4_len > tcp->offset / 16 * 4u + 1;
}

bool client_address_insert(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                           struct session *s, uint32_t mtu)
{
	const struct address_packet t = address_packet_of(w, burst, i, s);
	uint8_t *frame = sy_frame(burst->mbuf[i]);
	const struct sy_view *v = &burst->view[i];
	bool reset = v->tcp_flags & SY_TCP_RST;

	if (!sy_view_has_l4(v))
		return true;
	/* Offset from the first byte: 0 before any acknowledgement, −1 for a keep-alive (RFC 9293
	 * 3.8.4). */
	uint32_t at = ntohl(sy_packet_tcp(frame, v)->seq) - t.cold->client_first;
	if (!session_is_by_proxy(t.cold)) {
		sy_tcp_blank_toa(frame, v);
	} else if (is_inside_header(v, sy_packet_tcp(frame, v), at)) {
		session_packet_drop(w, burst, i, s, SY_DROP_BAD_TCP_STATE);
		return false;
	}
	/* Option and header need an unfragmented segment. */
	if (v->tcp_flags & SY_TCP_SYN || v->fragment != SY_FRAGMENT_NONE)
		return true;
	/* The originated segment has the packet's own numbers, so any packet may complete the
	 * handshake. */
	if (!session_is_by_proxy(t.cold))
		return reset || client_address_put(&t, mtu) || client_address_send_ahead(w, &t);
	if (at != 0 && at + 1 != 0)
		return true;
	if (reset && !(v->tcp_flags & SY_TCP_ACK)) {
		/* This reset answers a segment that acknowledged none of the header: it has the
		 * server's number. */
		sy_tcp_shift_seq(frame, v, -t.cold->inserted);
		return true;
	}
	return (at == 0 && !reset && client_address_put(&t, mtu)) ||
	       client_address_send_ahead(w, &t);
}

uint8_t client_address_acknowledged(struct session *s, const struct session_cold *cold,
                                    uint8_t *frame, const struct sy_view *v)
{
	const struct sy_tcp *tcp = sy_packet_tcp(frame, v);
	/* Offset of the server's acknowledgement from the first byte, in the server's numbering. */
	uint32_t heard = ntohl(tcp->ack) - cold->client_first, inserted = session_shift(s, cold);
	bool begun = s->state != SESSION_SYN_SENT && s->state != SESSION_SYN_RECEIVED;

	if ((v->tcp_flags & (SY_TCP_SYN | SY_TCP_ACK)) != SY_TCP_ACK)
		return v->tcp_flags;
	if (heard < inserted)
		/* The client has not sent these bytes: acknowledge the whole header, which
		 * forward_shift() subtracts. */
		sy_tcp_add_ack(frame, v, inserted - heard);
	else if (begun && !(v->tcp_flags & SY_TCP_RST) && (int32_t)(heard - inserted) >= 0 &&
	         /* An ACK of the SYN alone does not show that the option arrived. */
	         (inserted || heard || v->tcp_flags & SY_TCP_FIN ||
	          v->l4_len > tcp->offset / 16 * 4u) &&
	         /* A forged or damaged ACK would stop the option for good. */
	         sy_packet_check_l4(frame, v) != SY_CSUM_BAD)
		s->flags &= (uint8_t)~SESSION_ADDRESS_PENDING;
	/* while pending, the FIN's field stores the first byte's number */
	return s->flags & SESSION_ADDRESS_PENDING ? v->tcp_flags & (uint8_t)~SY_TCP_FIN
	                                          : v->tcp_flags;
}
