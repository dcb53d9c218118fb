// SPDX-License-Identifier: Apache-2.0
/*
 * Plain packets: TCP or UDP, whole, without VLAN tag, IPv4 options or IPv6 extension headers, with
 * a TTL that suffices, and nothing wrong with them. Nearly all are, and of an established session
 * all that happens to them is here, inline. What is not plain is for sy_packet_parse() and
 * sy_packet_rewrite(), which do the same for plain packets.
 */
#ifndef SY_PLAIN_H
#define SY_PLAIN_H

#include <arpa/inet.h>
#include <stddef.h>

#include "sy_packet.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of several fields are composed");

/* What the view says behind its tuple, a word at a time. */
static inline void sy_plain_fill(struct sy_view *v, uint64_t l4, uint64_t l4_len, uint64_t proto,
                                 uint64_t tcp_flags, uint64_t v4)
{
	_Static_assert(offsetof(struct sy_view, frame_len) == 40 &&
	                       offsetof(struct sy_view, l3) == 42 &&
	                       offsetof(struct sy_view, l4) == 44 &&
	                       offsetof(struct sy_view, l4_len) == 46 &&
	                       offsetof(struct sy_view, proto) == 48 &&
	                       offsetof(struct sy_view, tcp_flags) == 49 &&
	                       offsetof(struct sy_view, v4) == 52,
	               "the words' layout");
	const uint64_t lengths = l4_len + (l4_len << 48) + (l4 | SY_ETH_LEN << 16 | l4 << 32);
	const uint64_t kinds = proto | tcp_flags << 8 | v4 << 32, none = 0;
	uint8_t *to = (uint8_t *)v + offsetof(struct sy_view, frame_len);
	memcpy(to, &lengths, sizeof(lengths));
	memcpy(to + 8, &kinds, sizeof(kinds));
	memcpy(to + 16, &none, sizeof(none));
}

/* Ones' complement sums, folded with the carry that comes round. */
static inline uint16_t sy_plain_fold64(uint64_t sum)
{
	sum += sum >> 32 | sum << 32;
	uint32_t half = (uint32_t)(sum >> 32);
	half += half >> 16 | half << 16;
	return (uint16_t)(half >> 16);
}

static inline uint16_t sy_plain_fold32(uint32_t sum)
{
	sum += sum >> 16 | sum << 16;
	return (uint16_t)(sum >> 16);
}

/* Plain packets come from 1.0.0.0 to 223.255.255.255, but for loopback. */
static inline bool sy_plain_source4(uint32_t address)
{
	uint8_t first = (uint8_t)address;
	return (uint8_t)(first - 1) < 223 && first != 127;
}

/* The transport header and the rest of the view; false: not plain. */
static inline __attribute__((always_inline)) bool sy_plain_parse_l4(const uint8_t *frame,
                                                                    unsigned l4, unsigned l4_len,
                                                                    unsigned proto, bool v4,
                                                                    struct sy_view *v)
{
	uint64_t last;
	uint32_t ports;
	unsigned flags = 0;

	memcpy(&ports, frame + l4, sizeof(ports));
	last = ports | (uint64_t)proto << 32;
	memcpy(&v->tuple.sport, &last, sizeof(last));
	if (proto == SY_PROTO_TCP) {
		const struct sy_tcp *tcp = (const struct sy_tcp *)(frame + l4);
		if (SY_UNLIKELY(l4_len < sizeof(*tcp)))
			return false;
		unsigned header_len = tcp->offset >> 4 << 2;
		flags = tcp->flags;
		if (SY_UNLIKELY(header_len < sizeof(*tcp) || header_len > l4_len ||
		                !(flags & SY_TCP_CONTROL) ||
		                (flags & SY_TCP_SYN && flags & (SY_TCP_FIN | SY_TCP_RST))))
			return false;
	} else {
		const struct sy_udp *udp = (const struct sy_udp *)(frame + l4);
		unsigned len = ntohs(udp->length);
		if (SY_UNLIKELY(proto != SY_PROTO_UDP || len < sizeof(*udp) || len > l4_len))
			return false;
	}
	sy_plain_fill(v, l4, l4_len, proto, flags, v4);
	return true;
}

static inline __attribute__((always_inline)) bool
sy_plain_parse_ipv4(const uint8_t *frame, uint32_t len, struct sy_view *v)
{
	const struct sy_ipv4 *ip = (const struct sy_ipv4 *)(frame + SY_ETH_LEN);
	const unsigned least = sizeof(*ip) + sizeof(struct sy_udp);
	unsigned total = ntohs(ip->total_length);
	uint32_t src = ip->src, dst = ip->dst;
	uint64_t w[2], sum;

	memcpy(w, ip, sizeof(w));
	sum = w[0] + w[1];
	sum += sum < w[1];
	sum += dst;
	sum += sum < dst;
	if (SY_UNLIKELY(ip->version_ihl != 0x45 || total - least > len - SY_ETH_LEN - least ||
	                sy_plain_fold64(sum) != 0xffff || (ip->fragment & 0xff3f) != 0 ||
	                ip->ttl <= 1 || !sy_plain_source4(src) || src == dst))
		return false;
	/* IPv4-mapped, as words. */
	v->tuple.src.d[0] = v->tuple.dst.d[0] = 0;
	v->tuple.src.d[1] = 0xffff0000u | (uint64_t)src << 32;
	v->tuple.dst.d[1] = 0xffff0000u | (uint64_t)dst << 32;
	return sy_plain_parse_l4(frame, SY_ETH_LEN + sizeof(*ip), total - (unsigned)sizeof(*ip),
	                         ip->proto, true, v);
}

static inline __attribute__((always_inline)) bool
sy_plain_parse_ipv6(const uint8_t *frame, uint32_t len, struct sy_view *v)
{
	const struct sy_ipv6 *ip = (const struct sy_ipv6 *)(frame + SY_ETH_LEN);
	unsigned payload = ntohs(ip->payload_length);
	struct sy_tuple *t = &v->tuple;

	if (SY_UNLIKELY(len < SY_ETH_LEN + sizeof(*ip) + sizeof(struct sy_udp)))
		return false;
	memcpy(&t->src, ip->src, 2 * sizeof(t->src));
	/* Addresses that begin with eight zero bytes, among them all that are no peer's and IPv4's,
	 * are not plain. */
	if (SY_UNLIKELY((frame[SY_ETH_LEN] >> 4) != 6 || ip->hop_limit <= 1 ||
	                payload > len - SY_ETH_LEN - sizeof(*ip) ||
	                payload < sizeof(struct sy_udp) || t->src.d[0] == 0 || t->dst.d[0] == 0 ||
	                t->src.b[0] == 0xff || sy_addr_equal(&t->src, &t->dst)))
		return false;
	return sy_plain_parse_l4(frame, SY_ETH_LEN + sizeof(*ip), payload, ip->next_header, false,
	                         v);
}

/* May it be plain, and is it of this Ethernet type (host order)? */
static inline bool sy_plain_is(const uint8_t *frame, uint32_t len, uint16_t type)
{
	const unsigned least = SY_ETH_LEN + sizeof(struct sy_ipv4) + sizeof(struct sy_udp);
	return len - least <= UINT16_MAX - least &&
	       ((const struct sy_eth *)frame)->type == htons(type);
}

/*
 * Fills *v as sy_packet_parse() would, which then returns SY_DROP_NONE; false: the frame of len
 * contiguous bytes is not plain, and *v is unspecified.
 */
static inline __attribute__((always_inline)) bool sy_plain_parse(const uint8_t *frame, uint32_t len,
                                                                 struct sy_view *v)
{
	if (SY_LIKELY(sy_plain_is(frame, len, SY_ETH_IPV4)))
		return sy_plain_parse_ipv4(frame, len, v);
	return sy_plain_is(frame, len, SY_ETH_IPV6) && sy_plain_parse_ipv6(frame, len, v);
}

/*
 * sy_packet_rewrite() for a plain packet: to these addresses, and the ports of a word as they stand
 * in a header; l4_delta as in struct sy_rewrite.
 */
static inline __attribute__((always_inline)) void
sy_plain_rewrite(uint8_t *frame, const struct sy_view *v, const struct sy_addr *src,
                 const struct sy_addr *dst, uint32_t ports, uint16_t l4_delta)
{
	uint8_t *l4 = frame + v->l4;

	if (SY_LIKELY(v->v4)) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + SY_ETH_LEN);
		/* Old words' complements and new words; the TTL's word loses 0x0100. */
		uint64_t change = (uint64_t)(uint32_t)~ip->src + (uint32_t)~ip->dst + src->w[3] +
		                  dst->w[3] + (uint16_t)~htons(0x0100);
		ip->src = src->w[3];
		ip->dst = dst->w[3];
		ip->ttl--;
		/* RFC 1624, eqn. 3 */
		ip->checksum = (uint16_t)~sy_plain_fold64((uint16_t)~ip->checksum + change);
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)(frame + SY_ETH_LEN);
		memcpy(ip->src, src->b, sizeof(ip->src));
		memcpy(ip->dst, dst->b, sizeof(ip->dst));
		ip->hop_limit--;
	}
	memcpy(l4, &ports, sizeof(ports));
	if (v->proto == SY_PROTO_TCP) {
		struct sy_tcp *tcp = (struct sy_tcp *)l4;
		tcp->checksum = (uint16_t)~sy_plain_fold32((uint16_t)~tcp->checksum + l4_delta);
	} else {
		struct sy_udp *udp = (struct sy_udp *)l4;
		uint16_t csum = (uint16_t)~sy_plain_fold32((uint16_t)~udp->checksum + l4_delta);
		if (udp->checksum != 0)
			udp->checksum = csum ? csum : 0xffff;
	}
}

#endif
