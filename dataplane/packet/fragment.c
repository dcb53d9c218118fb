// SPDX-License-Identifier: Apache-2.0
/* Handling of fragments, and fragmentation. */
#include "fragment.h"

#include "extension.h"
#include "icmp.h"

#define IPV4_MORE     0x2000 /* of the fragment field, host order */
#define IPV4_OFFSET   0x1fff
#define IPV6_MORE     1    /* of the fragment header's place */
#define UNIT          8    /* unit of offsets, in bytes (RFC 791 3.1, RFC 8200 4.5) */
#define OPTION_COPIED 0x80 /* of an IPv4 option's kind (RFC 791 3.1) */
#define OPTION_NOP    1

/* Where the fragment header of an IPv6 fragment begins in the frame. */
static uint16_t fragment_header(const uint8_t *frame, const struct sy_view *v)
{
	const struct sy_ipv6 *ip = (const struct sy_ipv6 *)(frame + v->l3);
	uint16_t behind = v->l3 + (uint16_t)sizeof(*ip);

	return behind + extensions_skip(frame + behind, v->l4 - behind, ip->next_header).fragment;
}

uint16_t sy_packet_fragment_len(const uint8_t *frame, const struct sy_view *v)
{
	if (v->v4)
		return v->l4_len;
	return (uint16_t)(v->frame_len - fragment_header(frame, v) - sizeof(struct ipv6_fragment));
}

void fragment_renumber(uint8_t *frame, const struct sy_view *v)
{
	if (v->v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + v->l3);
		uint16_t id = htons((uint16_t)v->fragment_id);
		ip->checksum = sy_csum_apply(ip->checksum, sy_csum_delta(ip->id, id));
		ip->id = id;
	} else {
		struct ipv6_fragment *f =
		        (struct ipv6_fragment *)(frame + fragment_header(frame, v));
		f->id = htonl(v->fragment_id);
	}
}

/* ---- fragmenting ----------------------------------------------------------------------------- */

/* The parts of an IP packet that fragmentation needs. */
struct whole {
	const uint8_t *l3;
	uint16_t head, len; /* bytes that start each fragment (headers); bytes to be divided */
	uint16_t offset;    /* of the first byte to be divided, in the datagram */
	bool more;          /* the packet is a fragment, and not the last one */
	uint32_t id;
};

/* Copies the options that every fragment carries (RFC 791 3.1). Returns the new header's length. */
static uint16_t options_copy(uint8_t *out, const uint8_t *header, unsigned header_len)
{
	unsigned to = sizeof(struct sy_ipv4), len;

	for (unsigned at = to; at < header_len && header[at] != 0; at += len) {
		len = header[at] == OPTION_NOP || at + 1 == header_len ? 1 : header[at + 1];
		if (len == 0 || len > header_len - at)
			break;
		if (header[at] & OPTION_COPIED) {
			memcpy(out + to, header + at, len);
			to += len;
		}
	}
	while (to % 4)
		out[to++] = 0;
	return (uint16_t)to;
}

/* Bytes of the rest that fit after a header of this length; 0: the MTU is too small. */
static uint16_t piece_len(const struct whole *p, uint16_t at, uint16_t head, uint16_t mtu)
{
	uint16_t left = p->len - at;

	if (mtu < head + UNIT)
		return 0;
	return left <= mtu - head ? left : (uint16_t)((mtu - head) / UNIT * UNIT);
}

static uint32_t ipv4_fragment(uint8_t *out, uint32_t cap, const struct whole *p, uint16_t at,
                              uint16_t mtu, uint16_t *len)
{
	uint8_t header[60];
	struct sy_ipv4 *ip = (struct sy_ipv4 *)header;
	uint16_t head = p->head, place;

	memcpy(header, p->l3, p->head);
	if (at > 0)
		head = options_copy(header, p->l3, p->head);
	*len = piece_len(p, at, head, mtu);
	if (*len == 0 || cap < (uint32_t)head + *len)
		return 0;
	place = (uint16_t)((p->offset + at) / UNIT);
	ip->version_ihl = (uint8_t)(0x40 | head / 4);
	ip->total_length = htons(head + *len);
	ip->id = htons((uint16_t)p->id);
	ip->fragment = htons(place | (p->more || at + *len < p->len ? IPV4_MORE : 0));
	ipv4_checksum_set(ip);
	memcpy(out, header, head);
	memcpy(out + head, p->l3 + p->head + at, *len);
	return (uint32_t)head + *len;
}

/* p->head includes the fragment header if the packet has one. */
static uint32_t ipv6_fragment(uint8_t *out, uint32_t cap, const struct whole *p, uint16_t at,
                              uint16_t mtu, uint16_t *len)
{
	struct sy_ipv6 *ip = (struct sy_ipv6 *)out;
	struct ipv6_fragment *f = (struct ipv6_fragment *)(ip + 1);
	const uint16_t head = sizeof(*ip) + sizeof(*f);

	*len = piece_len(p, at, head, mtu);
	if (*len == 0 || cap < (uint32_t)head + *len)
		return 0;
	memcpy(ip, p->l3, sizeof(*ip));
	*f = (struct ipv6_fragment){
	        .next = p->head == head ? p->l3[sizeof(*ip)] : ip->next_header,
	        .place = htons((uint16_t)(p->offset + at) |
	                       (p->more || at + *len < p->len ? IPV6_MORE : 0)),
	        .id = htonl(p->id),
	};
	ip->next_header = EXT_FRAGMENT;
	ip->payload_length = htons((uint16_t)(sizeof(*f) + *len));
	memcpy(f + 1, p->l3 + p->head + at, *len);
	return (uint32_t)head + *len;
}

static void ipv4_read(const struct sy_ipv4 *ip, uint32_t id, struct whole *p)
{
	uint16_t place = ntohs(ip->fragment);

	p->head = (uint16_t)((ip->version_ihl & 0xf) << 2);
	p->len = (uint16_t)(ntohs(ip->total_length) - p->head);
	p->offset = (uint16_t)((place & IPV4_OFFSET) * UNIT);
	p->more = place & IPV4_MORE;
	p->id = place & (IPV4_MORE | IPV4_OFFSET) ? ntohs(ip->id) : id;
}

/* False: this module cannot fragment the packet. */
static bool ipv6_read(const struct sy_ipv6 *ip, uint32_t id, struct whole *p)
{
	const struct ipv6_fragment *f = (const struct ipv6_fragment *)(ip + 1);
	uint16_t payload = ntohs(ip->payload_length), place;

	*p = (struct whole){.l3 = p->l3, .head = sizeof(*ip), .len = payload, .id = id};
	if (ip->next_header == EXT_FRAGMENT && payload > sizeof(*f)) {
		place = ntohs(f->place);
		p->head = (uint16_t)(p->head + sizeof(*f));
		p->len = (uint16_t)(payload - sizeof(*f));
		p->offset = place & (uint16_t) ~(UNIT - 1);
		p->more = place & IPV6_MORE;
		p->id = ntohl(f->id);
	}
	/* Every fragment would have to repeat these headers (RFC 8200 4.5). */
	return ip->next_header != EXT_HOP_BY_HOP && ip->next_header != EXT_ROUTING;
}

uint32_t sy_packet_fragment(uint8_t *out, uint32_t cap, const uint8_t *frame, uint16_t mtu,
                            uint32_t id, uint16_t *at)
{
	const struct sy_eth *eth = (const struct sy_eth *)frame;
	bool v4 = eth->type == htons(SY_ETH_IPV4);
	struct whole p = {.l3 = frame + SY_ETH_LEN};
	uint16_t taken;
	uint32_t len;

	if (v4)
		ipv4_read((const struct sy_ipv4 *)p.l3, id, &p);
	else if (!ipv6_read((const struct sy_ipv6 *)p.l3, id, &p))
		return 0;
	if (*at >= p.len || cap < SY_ETH_LEN)
		return 0;
	len = (v4 ? ipv4_fragment : ipv6_fragment)(out + SY_ETH_LEN, cap - SY_ETH_LEN, &p, *at, mtu,
	                                           &taken);
	if (len == 0)
		return 0;
	memcpy(out, frame, SY_ETH_LEN);
	*at = (uint16_t)(*at + taken);
	return SY_ETH_LEN + len;
}
