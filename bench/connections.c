// SPDX-License-Identifier: Apache-2.0
#include "connections.h"

#include <arpa/inet.h>

#include <sy_packet.h>

#define GET          "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define ANSWER       "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
#define REQUEST_SIZE (sizeof(GET) - 1)
#define ANSWER_SIZE  (sizeof(ANSWER) - 1)

/* MSS 1460, SACK permitted, window scale 7. */
static const uint8_t syn_options[] = {2, 4, 0x05, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7};

/* ---- sending --------------------------------------------------------------------------------- */

static void template_l3(struct connection_template *t, bool v4, uint32_t l4_len)
{
	uint8_t *l3 = t->bytes + SY_ETH_LEN;
	if (v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)l3;
		*ip = (struct sy_ipv4){.version_ihl = 0x45,
		                       .total_length = htons((uint16_t)(sizeof(*ip) + l4_len)),
		                       .fragment = htons(0x4000), /* don't fragment */
		                       .ttl = 64,
		                       .proto = SY_PROTO_TCP};
		t->l3_sum = sy_csum_sum(ip, sizeof(*ip));
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)l3;
		*ip = (struct sy_ipv6){.version_class_flow = htonl(6u << 28),
		                       .payload_length = htons((uint16_t)l4_len),
		                       .next_header = SY_PROTO_TCP,
		                       .hop_limit = 64};
	}
}

static void template_make(struct connections *l, enum connection_packet p, uint8_t flags,
                          const void *options, size_t options_len, const char *payload)
{
	struct connection_template *t = &l->template[p];
	enum connection_side side = connection_side_of(p);
	struct sy_eth *eth = (struct sy_eth *)t->bytes;
	uint32_t l3_len = l->v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
	uint32_t head = (uint32_t)(sizeof(struct sy_tcp) + options_len);
	struct sy_tcp *tcp = (struct sy_tcp *)(t->bytes + SY_ETH_LEN + l3_len);
	*t = (struct connection_template){.payload = (uint32_t)strlen(payload)};
	uint32_t l4_len = head + t->payload;
	memcpy(eth->dst, l->options.gate_mac[side], 6);
	memcpy(eth->src, l->options.own_mac[side], 6);
	eth->type = htons(l->v4 ? SY_ETH_IPV4 : SY_ETH_IPV6);
	template_l3(t, l->v4, l4_len);
	tcp->offset = (uint8_t)(head / 4 << 4);
	tcp->flags = flags;
	tcp->window = htons(65535);
	memcpy(tcp + 1, options, options_len);
	memcpy((uint8_t *)tcp + head, payload, t->payload);
	t->len = SY_ETH_LEN + l3_len + l4_len;
	const uint16_t pseudo[2] = {htons(SY_PROTO_TCP), htons((uint16_t)l4_len)};
	t->l4_sum = sy_csum_sum(tcp, l4_len) + pseudo[0] + pseudo[1];
}

void connections_init(struct connections *l, const struct connections_options *o)
{
	*l = (struct connections){.options = *o, .v4 = sy_addr_is_v4(&o->client)};
	const uint8_t syn = SY_TCP_SYN, ack = SY_TCP_ACK, push = SY_TCP_ACK | SY_TCP_PSH,
	              fin = SY_TCP_ACK | SY_TCP_FIN;
	template_make(l, CONNECTION_SYN, syn, syn_options, sizeof(syn_options), "");
	template_make(l, CONNECTION_SYN_ACK, syn | ack, syn_options, sizeof(syn_options), "");
	template_make(l, CONNECTION_OPEN_ACK, ack, "", 0, "");
	template_make(l, CONNECTION_GET, push, "", 0, GET);
	template_make(l, CONNECTION_ANSWER, push, "", 0, ANSWER);
	template_make(l, CONNECTION_ANSWER_ACK, ack, "", 0, "");
	template_make(l, CONNECTION_CLIENT_FIN, fin, "", 0, "");
	template_make(l, CONNECTION_FIN_ACK, ack, "", 0, "");
	template_make(l, CONNECTION_SERVER_FIN, fin, "", 0, "");
	template_make(l, CONNECTION_LAST_ACK, ack, "", 0, "");
}

/* Unfolded. */
static inline uint64_t addr_sum(const struct sy_addr *a)
{
	return (uint64_t)a->w[0] + a->w[1] + a->w[2] + a->w[3];
}

uint32_t connections_answer(const struct connections *l, const struct connection_step *w,
                            uint8_t frame[static CONNECTION_FRAME_MAX])
{
	const struct connection_template *t = &l->template[w->packet];
	struct sy_tcp *tcp;
	uint64_t sum;
	memcpy(frame, t->bytes, CONNECTION_FRAME_MAX);
	if (l->v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + SY_ETH_LEN);
		ip->src = w->src.w[3];
		ip->dst = w->dst.w[3];
		sum = (uint64_t)ip->src + ip->dst;
		ip->checksum = (uint16_t)~sy_csum_fold(t->l3_sum + sum);
		tcp = (struct sy_tcp *)(ip + 1);
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)(frame + SY_ETH_LEN);
		memcpy(ip->src, &w->src, sizeof(ip->src));
		memcpy(ip->dst, &w->dst, sizeof(ip->dst));
		sum = addr_sum(&w->src) + addr_sum(&w->dst);
		tcp = (struct sy_tcp *)(ip + 1);
	}
	tcp->sport = w->sport;
	tcp->dport = w->dport;
	tcp->seq = w->seq;
	tcp->ack = w->ack;
	sum += t->l4_sum + w->sport + w->dport + w->seq + w->ack;
	tcp->checksum = (uint16_t)~sy_csum_fold(sum);
	return t->len;
}

/* ---- first sequence numbers ------------------------------------------------------------------ */

/* An end's first sequence number, host order. The two ends of a tuple have different ones. */
static inline uint32_t isn_of(const struct sy_addr *own, uint16_t own_port,
                              const struct sy_addr *peer, uint16_t peer_port)
{
	uint64_t ports = (uint64_t)own_port << 16 | peer_port;
	return (uint32_t)(sy_hash_mix(own->d[0] ^ own->d[1] ^ 0x9e3779b97f4a7c15,
	                              peer->d[0] ^ peer->d[1] ^ ports << 32 ^ 0xbf58476d1ce4e5b9) >>
	                  16);
}

void connections_begin(struct connections *l, uint64_t n, struct connection_step *w)
{
	/* Two invertible rounds: no two n give the same value. */
	uint32_t x = (uint32_t)n * 0x9e3779b1u;
	x ^= x >> 15;
	x *= 0x85ebca77u;
	x ^= x >> 13;
	_Static_assert(CONNECTION_CLIENTS + CONNECTION_PORTS == 32, "all of x names a tuple");
	*w = (struct connection_step){.src = l->options.client,
	                              .dst = l->options.vip,
	                              .sport = htons((uint16_t)(0x8000u | (x & 0x7fffu))),
	                              .dport = htons(l->options.port),
	                              .packet = CONNECTION_SYN};
	w->src.w[3] |= htonl(x >> CONNECTION_PORTS);
	w->seq = htonl(isn_of(&w->src, w->sport, &w->dst, w->dport));
	l->begun++;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* A frame's contents, reversed: src is the receiver. Numbers in host order. */
struct received {
	struct connection_step back;
	uint32_t next, acked; /* the number that acknowledges it; bytes of the receiver's that it
	                        acknowledges */
	uint32_t payload;
	uint8_t flags;
};

static bool frame_read(const struct connections *l, const uint8_t *frame, uint32_t len,
                       struct received *h)
{
	const struct sy_eth *eth = (const struct sy_eth *)frame;
	const struct sy_tcp *tcp;
	uint32_t l4_len;
	uint32_t head = SY_ETH_LEN + (l->v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6));
	if (len < head + sizeof(*tcp) || eth->type != htons(l->v4 ? SY_ETH_IPV4 : SY_ETH_IPV6))
		return false;
	if (l->v4) {
		const struct sy_ipv4 *ip = (const struct sy_ipv4 *)(frame + SY_ETH_LEN);
		if (ip->proto != SY_PROTO_TCP || ip->version_ihl != 0x45)
			return false;
		h->back.src = sy_addr_v4(ip->dst);
		h->back.dst = sy_addr_v4(ip->src);
		l4_len = ntohs(ip->total_length) - (uint32_t)sizeof(*ip);
		tcp = (const struct sy_tcp *)(ip + 1);
	} else {
		const struct sy_ipv6 *ip = (const struct sy_ipv6 *)(frame + SY_ETH_LEN);
		if (ip->next_header != SY_PROTO_TCP)
			return false;
		memcpy(&h->back.src, ip->dst, sizeof(h->back.src));
		memcpy(&h->back.dst, ip->src, sizeof(h->back.dst));
		l4_len = ntohs(ip->payload_length);
		tcp = (const struct sy_tcp *)(ip + 1);
	}
	h->back.sport = tcp->dport;
	h->back.dport = tcp->sport;
	h->flags = tcp->flags;
	h->payload = l4_len - (tcp->offset >> 4) * 4u;
	h->next = ntohl(tcp->seq) + h->payload + !!(h->flags & (SY_TCP_SYN | SY_TCP_FIN));
	h->acked =
	        ntohl(tcp->ack) - isn_of(&h->back.src, h->back.sport, &h->back.dst, h->back.dport);
	h->back.seq = tcp->ack;
	h->back.ack = htonl(h->next);
	return h->payload <= len;
}

static unsigned step_one(struct received *h, enum connection_packet p, struct connection_step *out)
{
	*out = h->back;
	out->packet = p;
	return 1;
}

static unsigned step_two(struct received *h, enum connection_packet first,
                         struct connection_step *out)
{
	step_one(h, first, out);
	return 1 + step_one(h, first + 1, out + 1);
}

#define ENDS (SY_TCP_SYN | SY_TCP_FIN)

static unsigned out_of_place(struct connections *l, const struct received *h)
{
	l->strange++;
	l->resets += !!(h->flags & SY_TCP_RST);
	return 0;
}

static unsigned client_receive(struct connections *l, struct received *h,
                               struct connection_step *out)
{
	uint8_t ends = h->flags & ENDS;
	if (h->acked == 1 && ends == SY_TCP_SYN)
		return step_two(h, CONNECTION_OPEN_ACK, out);
	if (h->acked == 1 + REQUEST_SIZE && ends == 0 && h->payload == ANSWER_SIZE)
		return step_two(h, CONNECTION_ANSWER_ACK, out);
	if (h->acked == 2 + REQUEST_SIZE && ends == SY_TCP_FIN)
		return step_one(h, CONNECTION_LAST_ACK, out);
	if (h->acked == 2 + REQUEST_SIZE && ends == 0)
		return 0;
	return out_of_place(l, h);
}

static unsigned server_receive(struct connections *l, struct received *h,
                               struct connection_step *out)
{
	uint8_t ends = h->flags & ENDS;
	if (ends == SY_TCP_SYN && !(h->flags & SY_TCP_ACK)) {
		h->back.seq =
		        htonl(isn_of(&h->back.src, h->back.sport, &h->back.dst, h->back.dport));
		return step_one(h, CONNECTION_SYN_ACK, out);
	}
	if (h->acked == 1 && ends == 0)
		return h->payload == REQUEST_SIZE ? step_one(h, CONNECTION_ANSWER, out) : 0;
	if (h->acked == 1 + ANSWER_SIZE && ends == SY_TCP_FIN)
		return step_two(h, CONNECTION_FIN_ACK, out);
	if (h->acked == 1 + ANSWER_SIZE && ends == 0)
		return 0;
	if (h->acked == 2 + ANSWER_SIZE && ends == 0) {
		l->completed++;
		return 0;
	}
	return out_of_place(l, h);
}

unsigned connections_receive(struct connections *l, enum connection_side side, const uint8_t *frame,
                             uint32_t len, struct connection_step out[static 2])
{
	struct received h;
	if (!frame_read(l, frame, len, &h)) {
		l->strange++;
		return 0;
	}
	if (h.flags & SY_TCP_RST)
		return out_of_place(l, &h);
	return side == CONNECTION_CLIENT ? client_receive(l, &h, out) : server_receive(l, &h, out);
}

bool connections_check(const uint8_t *frame, uint32_t len)
{
	struct sy_view v;
	return sy_packet_parse(frame, len, &v) == SY_DROP_NONE &&
	       sy_packet_check_l4(frame, &v) == SY_CSUM_OK;
}
