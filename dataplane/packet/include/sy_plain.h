// SPDX-License-Identifier: Apache-2.0
/*
 * Plain packets: valid TCP or UDP packets that are no fragments, have no VLAN tag, IPv4 options or
 * IPv6 extension headers, and have a TTL above 1. Nearly all packets are plain. For established
 * sessions these inline functions do all the work and read the fields in place, without a view.
 * Other packets go through sy_packet_parse() and sy_packet_rewrite(), which give the same result
 * for plain ones.
 */
#ifndef SY_PLAIN_H
#define SY_PLAIN_H

#include <arpa/inet.h>
#include <stddef.h>

#include "sy_packet.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of several fields are composed");

/* Bits of sy_plain_parse()'s result, besides the protocol's number. 0: the packet is not plain. */
enum {
	SY_PLAIN_PROTO = 31, /* mask of the protocol */
	SY_PLAIN_V4 = 32,
	SY_PLAIN_SYN_FIN_RST = 64, /* has SYN, FIN or RST: the connection's state may change */
};
_Static_assert(((int)SY_PROTO_TCP | (int)SY_PROTO_UDP) <= (int)SY_PLAIN_PROTO, "their bits");

/* Offset of the transport header. */
static inline unsigned sy_plain_l4(bool v4)
{
	return SY_ETH_LEN + (unsigned)(v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6));
}

/* Length of the IP packet. */
static inline uint16_t sy_plain_len(const uint8_t *frame, bool v4)
{
	if (SY_LIKELY(v4))
		return ntohs(((const struct sy_ipv4 *)(frame + SY_ETH_LEN))->total_length);
	return (uint16_t)(ntohs(((const struct sy_ipv6 *)(frame + SY_ETH_LEN))->payload_length) +
	                  sizeof(struct sy_ipv6));
}

static inline unsigned sy_plain_proto(unsigned plain)
{
	return plain & SY_PLAIN_PROTO;
}

/* Both IPv4 addresses, the source in the low half. */
static inline uint64_t sy_plain_addrs_v4(const uint8_t *frame)
{
	uint64_t addrs;
	memcpy(&addrs, frame + SY_ETH_LEN + offsetof(struct sy_ipv4, src), sizeof(addrs));
	return addrs;
}

/* The source as in the view that sy_plain_view() makes. */
static inline __attribute__((always_inline)) struct sy_addr sy_plain_source(const uint8_t *frame,
                                                                            bool v4)
{
	struct sy_addr a;
	if (v4) {
		a.d[0] = 0;
		a.d[1] = 0xffff0000u | sy_plain_addrs_v4(frame) << 32;
	} else {
		memcpy(&a, ((const struct sy_ipv6 *)(frame + SY_ETH_LEN))->src, sizeof(a));
	}
	return a;
}

/* Both ports, the source in the low half. */
static inline uint32_t sy_plain_ports(const uint8_t *frame, bool v4)
{
	uint32_t ports;
	memcpy(&ports, frame + sy_plain_l4(v4), sizeof(ports));
	return ports;
}

/* sy_hash_tuple() of the packet's tuple. */
static inline __attribute__((always_inline)) uint64_t
sy_plain_hash(const struct sy_hash_key *key, const uint8_t *frame, unsigned plain, bool v4)
{
	uint64_t last = sy_plain_ports(frame, v4) | (uint64_t)sy_plain_proto(plain) << 32;
	const struct sy_ipv6 *ip6 = (const struct sy_ipv6 *)(frame + SY_ETH_LEN);
	return v4 ? sy_hash_v4(key, sy_plain_addrs_v4(frame), last)
	          : sy_hash_v6(key, ip6->src, ip6->dst, last);
}

/* Fold ones' complement sums with an end-around carry. */
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

/* Plain packets have a source from 1.0.0.0 to 223.255.255.255, except loopback. */
static inline bool sy_plain_source4(uint32_t address)
{
	uint8_t first = (uint8_t)address;
	return (uint8_t)(first - 1) < 223 && first != 127;
}

/* Is the ones' complement sum of a header and its checksum zero? sum is not 0 and was added with
 * end-around carries, so it is congruent to the 16-bit sum modulo m = 2^16 - 1: the question is
 * whether m divides sum. If so, sum times the inverse of m modulo 2^64 is the quotient, which is
 * small. */
static inline bool sy_plain_sums_up(uint64_t sum)
{
	const uint64_t quotients = UINT64_MAX / 0xffff; /* also the negative of the inverse */
	return sum * -quotients <= quotients;
}

/* sy_plain_parse() of the transport header, of l4_len bytes; family: SY_PLAIN_V4 or 0. */
static inline __attribute__((always_inline)) unsigned
sy_plain_parse_l4(const uint8_t *l4, unsigned l4_len, unsigned proto, unsigned family)
{
	if (proto == SY_PROTO_TCP) {
		const struct sy_tcp *tcp = (const struct sy_tcp *)l4;
		if (SY_UNLIKELY(l4_len < sizeof(*tcp)))
			return 0;
		unsigned header_len = tcp->offset >> 4 << 2, flags = tcp->flags;
		if (SY_UNLIKELY(header_len < sizeof(*tcp) || header_len > l4_len))
			return 0;
		if (flags & (SY_TCP_SYN | SY_TCP_FIN | SY_TCP_RST))
			return flags & SY_TCP_SYN && flags & (SY_TCP_FIN | SY_TCP_RST)
			               ? 0
			               : SY_PROTO_TCP | family | SY_PLAIN_SYN_FIN_RST;
		return SY_LIKELY(flags & SY_TCP_CONTROL) ? SY_PROTO_TCP | family : 0;
	}
	const struct sy_udp *udp = (const struct sy_udp *)l4;
	const unsigned min = sizeof(*udp);
	if (SY_UNLIKELY(proto != SY_PROTO_UDP || ntohs(udp->length) - min > l4_len - min))
		return 0;
	return SY_PROTO_UDP | family;
}

static inline __attribute__((always_inline)) unsigned sy_plain_parse_ipv4(const uint8_t *frame,
                                                                          uint32_t len)
{
	const struct sy_ipv4 *ip = (const struct sy_ipv4 *)(frame + SY_ETH_LEN);
	const unsigned min = sizeof(*ip) + sizeof(struct sy_udp);
	unsigned total = ntohs(ip->total_length);
	uint64_t w[2], sum, addrs = sy_plain_addrs_v4(frame);
	uint32_t src = (uint32_t)addrs, dst = (uint32_t)(addrs >> 32);

	memcpy(w, ip, sizeof(w));
	sum = w[0] + w[1];
	sum += sum < w[1];
	sum += dst;
	sum += sum < dst;
	if (SY_UNLIKELY(total - min > len - SY_ETH_LEN - min || !sy_plain_sums_up(sum) ||
	                (ip->fragment & 0xff3f) != 0 || ip->ttl <= 1 || !sy_plain_source4(src) ||
	                src == dst))
		return 0;
	return sy_plain_parse_l4(frame + sy_plain_l4(true), total - (unsigned)sizeof(*ip),
	                         ip->proto, SY_PLAIN_V4);
}

static inline __attribute__((always_inline)) unsigned sy_plain_parse_ipv6(const uint8_t *frame,
                                                                          uint32_t len)
{
	const struct sy_ipv6 *ip = (const struct sy_ipv6 *)(frame + SY_ETH_LEN);
	unsigned payload = ntohs(ip->payload_length);
	uint64_t src[2], dst[2];

	if (SY_UNLIKELY(len < SY_ETH_LEN + sizeof(*ip) + sizeof(struct sy_udp)))
		return 0;
	memcpy(src, ip->src, sizeof(src));
	memcpy(dst, ip->dst, sizeof(dst));
	/* Addresses that begin with eight zero bytes are not plain. They include ::, ::1 and the
	 * IPv4-mapped ones. */
	if (SY_UNLIKELY((frame[SY_ETH_LEN] >> 4) != 6 || ip->hop_limit <= 1 ||
	                payload > len - SY_ETH_LEN - sizeof(*ip) ||
	                payload < sizeof(struct sy_udp) || src[0] == 0 || dst[0] == 0 ||
	                ip->src[0] == 0xff || ((src[0] ^ dst[0]) | (src[1] ^ dst[1])) == 0))
		return 0;
	return sy_plain_parse_l4(frame + sy_plain_l4(false), payload, ip->next_header, 0);
}

/* Does the frame's length allow a plain packet? */
static inline bool sy_plain_fits(uint32_t len)
{
	const unsigned min = SY_ETH_LEN + sizeof(struct sy_ipv4) + sizeof(struct sy_udp);
	return len - min <= UINT16_MAX - min;
}

/* Is it IPv4 without options? Requires sy_plain_fits(). */
static inline bool sy_plain_is_v4(const uint8_t *frame)
{
	const uint8_t type[4] = {SY_ETH_IPV4 >> 8, SY_ETH_IPV4 & 0xff, 0x45, 0};
	const uint8_t known[4] = {0xff, 0xff, 0xff, 0}; /* ignores the TOS */
	uint32_t word, wanted, mask;
	memcpy(&word, frame + SY_ETH_LEN - 2, sizeof(word));
	memcpy(&wanted, type, sizeof(wanted));
	memcpy(&mask, known, sizeof(mask));
	return (word & mask) == wanted;
}

static inline bool sy_plain_is_v6(const uint8_t *frame)
{
	return ((const struct sy_eth *)frame)->type == htons(SY_ETH_IPV6);
}

/* Checks a frame of len contiguous bytes. Returns its protocol and SY_PLAIN_* bits; 0: it is not
 * plain. */
static inline __attribute__((always_inline)) unsigned sy_plain_parse(const uint8_t *frame,
                                                                     uint32_t len)
{
	if (!sy_plain_fits(len))
		return 0;
	if (SY_LIKELY(sy_plain_is_v4(frame)))
		return sy_plain_parse_ipv4(frame, len);
	return sy_plain_is_v6(frame) ? sy_plain_parse_ipv6(frame, len) : 0;
}

/* Has a plain segment options other than padded timestamps (RFC 7323 appendix A), the ones of
 * nearly all segments after a SYN? */
static inline bool sy_plain_has_rare_options(const uint8_t *frame, unsigned plain, bool v4)
{
	const struct sy_tcp *tcp = (const struct sy_tcp *)(frame + sy_plain_l4(v4));
	const uint8_t padded[4] = {1, 1, 8, 10}; /* NOP, NOP, timestamps of 10 bytes: to the end */
	const unsigned none = sizeof(*tcp) / 4, timestamps = none + 3;
	uint32_t first, wanted;

	if (sy_plain_proto(plain) != SY_PROTO_TCP || SY_LIKELY(tcp->offset >> 4 == none))
		return false;
	memcpy(&first, tcp + 1, sizeof(first));
	memcpy(&wanted, padded, sizeof(wanted));
	return tcp->offset >> 4 != timestamps || first != wanted;
}

/* Fills the view after its tuple, a 64-bit word at a time. */
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

/* Fills *v as sy_packet_parse() does when it returns SY_DROP_NONE; plain: sy_plain_parse()'s
 * result. */
static inline void sy_plain_view(const uint8_t *frame, unsigned plain, struct sy_view *v)
{
	const bool v4 = plain & SY_PLAIN_V4;
	const unsigned l4 = sy_plain_l4(v4), proto = sy_plain_proto(plain);
	const uint64_t flags =
	        proto == SY_PROTO_TCP ? ((const struct sy_tcp *)(frame + l4))->flags : 0;
	const uint64_t last = sy_plain_ports(frame, v4) | (uint64_t)proto << 32;

	if (SY_LIKELY(v4)) {
		uint64_t addrs = sy_plain_addrs_v4(frame);
		/* IPv4-mapped addresses, as words. */
		v->tuple.src.d[0] = v->tuple.dst.d[0] = 0;
		v->tuple.src.d[1] = 0xffff0000u | addrs << 32;
		v->tuple.dst.d[1] = 0xffff0000u | (addrs >> 32 << 32);
	} else {
		const struct sy_ipv6 *ip = (const struct sy_ipv6 *)(frame + SY_ETH_LEN);
		memcpy(&v->tuple.src, ip->src, 2 * sizeof(v->tuple.src));
	}
	memcpy(&v->tuple.sport, &last, sizeof(last));
	sy_plain_fill(v, l4, SY_ETH_LEN + sy_plain_len(frame, v4) - l4, proto, flags, v4);
}

/*
 * sy_packet_rewrite() for a plain packet: sets these addresses and ports. ports: both as one word,
 * in header order; l4_delta: as in struct sy_rewrite.
 */
static inline __attribute__((always_inline)) void
sy_plain_rewrite(uint8_t *frame, unsigned plain, const struct sy_addr *src,
                 const struct sy_addr *dst, uint32_t ports, uint16_t l4_delta)
{
	const bool v4 = plain & SY_PLAIN_V4;
	uint8_t *l4 = frame + sy_plain_l4(v4);

	if (SY_LIKELY(v4)) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + SY_ETH_LEN);
		/* Complements of the old words plus the new words; the TTL's word loses 0x0100. */
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
	if (sy_plain_proto(plain) == SY_PROTO_TCP) {
		struct sy_tcp *tcp = (struct sy_tcp *)l4;
		tcp->checksum = (uint16_t)~sy_plain_fold32((uint16_t)~tcp->checksum + l4_delta);
	} else {
		struct sy_udp *udp = (struct sy_udp *)l4;
		uint16_t csum = (uint16_t)~sy_plain_fold32((uint16_t)~udp->checksum + l4_delta);
		if (udp->checksum != 0)
			udp->checksum = csum ? csum : 0xffff;
	}
}

/* sy_packet_hop() for a plain packet: changes only the TTL. */
static inline void sy_plain_hop(uint8_t *frame, bool v4)
{
	if (SY_LIKELY(v4)) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(frame + SY_ETH_LEN);
		const uint32_t less = (uint16_t)~htons(0x0100);
		ip->ttl--;
		ip->checksum = (uint16_t)~sy_plain_fold32((uint16_t)~ip->checksum + less);
	} else {
		((struct sy_ipv6 *)(frame + SY_ETH_LEN))->hop_limit--;
	}
}

#endif
