// SPDX-License-Identifier: Apache-2.0
/*
 * packet: header layouts, parsing, rewriting. Pure functions over bytes; no DPDK, no state.
 *
 * A frame is one contiguous Ethernet frame. Nothing here reads or writes outside the length given.
 */
#ifndef SY_PACKET_H
#define SY_PACKET_H

#include <sy_base.h>

#define SY_ETH_LEN  14
#define SY_ETH_IPV4 0x0800 /* host order */
#define SY_ETH_IPV6 0x86dd
#define SY_ETH_VLAN 0x8100 /* 802.1Q */
#define SY_ETH_QINQ 0x88a8 /* 802.1ad */
#define SY_VLAN_LEN 4

enum { SY_PROTO_ICMP = 1, SY_PROTO_TCP = 6, SY_PROTO_UDP = 17, SY_PROTO_ICMPV6 = 58 };

enum {
	SY_TCP_FIN = 1,
	SY_TCP_SYN = 2,
	SY_TCP_RST = 4,
	SY_TCP_PSH = 8,
	SY_TCP_ACK = 16,
	SY_TCP_URG = 32,
	SY_TCP_CONTROL = 63, /* all of them, without ECN's */
};

/* Headers lie anywhere in a buffer of bytes, hence packed and may_alias. */

struct sy_eth {
	uint8_t dst[6], src[6];
	uint16_t type;
} __attribute__((packed, may_alias));

struct sy_ipv4 {
	uint8_t version_ihl, tos;
	uint16_t total_length, id, fragment;
	uint8_t ttl, proto;
	uint16_t checksum;
	uint32_t src, dst;
} __attribute__((packed, may_alias));

struct sy_ipv6 {
	uint32_t version_class_flow;
	uint16_t payload_length;
	uint8_t next_header, hop_limit;
	uint8_t src[16], dst[16];
} __attribute__((packed, may_alias));

struct sy_tcp {
	uint16_t sport, dport;
	uint32_t seq, ack;
	uint8_t offset, flags;
	uint16_t window, checksum, urgent;
} __attribute__((packed, may_alias));

struct sy_udp {
	uint16_t sport, dport, length, checksum;
} __attribute__((packed, may_alias));

struct sy_icmp {
	uint8_t type, code;
	uint16_t checksum;
	uint32_t rest; /* echo: id, sequence; too big: MTU */
} __attribute__((packed, may_alias));

/* ---- parsing (parse.c, check.c) -------------------------------------------------------------- */

/* What a packet is of its datagram. FIRST has the transport header, LATER and LAST have not. */
enum sy_fragment { SY_FRAGMENT_NONE, SY_FRAGMENT_FIRST, SY_FRAGMENT_LATER, SY_FRAGMENT_LAST };

/* What the stages know of a packet: 64 bytes, one cache line, filled by sy_packet_parse(). */
struct sy_view {
	struct sy_tuple tuple; /* as on the wire; ICMP, LATER, LAST: ports 0. proto: as below */
	uint16_t frame_len;    /* Ethernet + IP, trailing padding excluded; host order */
	uint16_t l3, l4;       /* offsets of the IP header, and of what follows its options or
	                          extension headers: the transport header; LATER, LAST: data */
	uint16_t l4_len;       /* bytes from l4 to the end of the IP packet. A UDP datagram may end
	                          earlier by its own length; a FIRST one may claim more */
	uint8_t proto;         /* SY_PROTO_*; of LATER and LAST of IPv6 what the fragment header
	                          names, which may be destination options (60) */
	uint8_t tcp_flags;
	uint8_t icmp_type, icmp_code;
	uint8_t v4;       /* 1: IPv4, 0: IPv6 */
	uint8_t vlans;    /* 802.1Q and 802.1ad tags in front of IP: 0 to 2 */
	uint8_t fragment; /* enum sy_fragment; an IPv6 packet of one fragment is NONE (RFC 6946) */
	uint8_t reserved;
	uint16_t fragment_offset; /* bytes, host order */
	uint16_t icmp_id;         /* of echo and its reply, else 0; network order */
	uint32_t fragment_id;     /* host order; of a fragment, else 0 */
};
_Static_assert(sizeof(struct sy_view) == 64, "one cache line");

/*
 * Parses an Ethernet frame of len contiguous bytes into *v. Returns SY_DROP_NONE, or the reason why
 * the frame must be dropped; *v is then valid only as far as parsing went. Checks: lengths, IP
 * version, IPv4 header checksum, options and extension headers (well formed, no source routing, at
 * most 8), sources that cannot be (IPv4-mapped ones on the wire too), land (equal addresses,
 * whatever the ports), fragments that cannot be or hide their transport header, TCP offset and
 * impossible flag sets (SYN+FIN, SYN+RST, none at all), UDP length. Up to two VLAN tags are
 * stepped over. TTL is NOT checked (the forwarding path does), nor is the transport checksum.
 * Bytes beyond 65535 are taken as not there.
 */
enum sy_drop sy_packet_parse(const uint8_t *frame, uint32_t len, struct sy_view *v);

/* Does the packet carry its transport header? All but later fragments do. */
static inline bool sy_view_has_l4(const struct sy_view *v)
{
	return v->fragment < SY_FRAGMENT_LATER;
}

/* State of the transport checksum. OK also for a zero IPv4 UDP checksum; a zero one in IPv6 is BAD
 * (RFC 8200 8.1). UNFINISHED: it equals the pseudo-header sum, and full verification fails.
 * UNKNOWN: a fragment, of a datagram whose other bytes are not here. */
enum sy_csum_state { SY_CSUM_OK, SY_CSUM_UNFINISHED, SY_CSUM_BAD, SY_CSUM_UNKNOWN };
enum sy_csum_state sy_packet_check_l4(const uint8_t *frame, const struct sy_view *v);

/* ---- rewriting (rewrite.c, mss.c) ------------------------------------------------------------ */

/* The endpoints a packet leaves with, and what they cost its checksums. */
struct sy_rewrite {
	struct sy_addr src, dst;
	uint16_t sport, dport;
	uint16_t l4_delta; /* addresses and ports */
	uint16_t l3_delta; /* IPv4 addresses only; 0 for IPv6 */
};

/* Both deltas of turning `from` into `to` (both of one family). */
void sy_rewrite_prepare(const struct sy_tuple *from, const struct sy_tuple *to,
                        struct sy_rewrite *out);

/*
 * Applies a rewrite of the packet's own family to a TCP or UDP packet in place: addresses, ports,
 * TTL/hop limit − 1, IPv4 header and transport checksums incrementally (RFC 1624), so that a wrong
 * checksum stays wrong. A zero UDP checksum stays zero; one that becomes zero is sent as 0xffff
 * (RFC 768). Of later fragments, and of other protocols, only the IP header changes. The caller
 * has checked that the TTL is above 1.
 */
void sy_packet_rewrite(uint8_t *frame, const struct sy_view *v, const struct sy_rewrite *r);

/* TTL or hop limit of the packet. */
static inline uint8_t sy_packet_ttl(const uint8_t *frame, const struct sy_view *v)
{
	return v->v4 ? ((const struct sy_ipv4 *)(frame + v->l3))->ttl
	             : ((const struct sy_ipv6 *)(frame + v->l3))->hop_limit;
}

static inline const struct sy_tcp *sy_packet_tcp(const uint8_t *frame, const struct sy_view *v)
{
	return (const struct sy_tcp *)(frame + v->l4);
}

/* Lowers the MSS option of a SYN to at most mss (host order), checksum updated (RFC 1624, at odd
 * offsets too). Returns true if it changed the packet. Options are read up to a malformed one. */
bool sy_packet_clamp_mss(uint8_t *frame, const struct sy_view *v, uint16_t mss);

/* ---- ICMP of our own (icmp.c) ---------------------------------------------------------------- */

/* Turns an echo request in place into its reply: addresses and MACs swapped, type, checksums,
 * TTL 64; options and extension headers stay. The caller has checked type (8 or 128), code 0. */
void sy_packet_echo_reply(uint8_t *frame, const struct sy_view *v);

enum sy_icmp_error {
	SY_ICMP_TOO_BIG,
	SY_ICMP_TTL_EXPIRED,
	SY_ICMP_PORT_UNREACHABLE,
	SY_ICMP_HOST_UNREACHABLE,
	SY_ICMP_PROHIBITED, /* by the administrator */
};

/*
 * Builds in out (capacity cap, not overlapping frame) the ICMP or ICMPv6 error (RFC 1812 4.3,
 * RFC 1191, RFC 4443) about frame, as it was received: from `source` to the frame's sender, MACs
 * swapped, quoting as much as fits 576 bytes of IPv4 packet or 1280 bytes of IPv6 packet. mtu in
 * host order, for SY_ICMP_TOO_BIG (the IP packet's limit). Returns the length of the new frame, 0
 * if an error must not be sent about this packet (it is itself an ICMP error or redirect, a later
 * fragment, its IP or Ethernet destination is a group) or cannot be (source of the other family,
 * cap too small).
 */
uint32_t sy_packet_icmp_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                              const struct sy_view *v, enum sy_icmp_error kind,
                              const struct sy_addr *source, uint16_t mtu);

#endif
