// SPDX-License-Identifier: Apache-2.0
/*
 * packet: header layouts, parsing, rewriting. Pure functions over bytes; no DPDK, no state.
 *
 * A frame is one contiguous Ethernet frame. No function reads or writes beyond the given length.
 */
#ifndef SY_PACKET_H
#define SY_PACKET_H

#include <sy_base.h>
#include <sy_siphash.h>

#define SY_ETH_LEN  14
#define SY_ETH_IPV4 0x0800 /* host order */
#define SY_ETH_IPV6 0x86dd
#define SY_ETH_VLAN 0x8100 /* 802.1Q */
#define SY_ETH_QINQ 0x88a8 /* 802.1ad */
#define SY_VLAN_LEN 4

enum {
	SY_PROTO_ICMP = 1,
	SY_PROTO_IPV4 = 4, /* IPv4 in IP */
	SY_PROTO_TCP = 6,
	SY_PROTO_UDP = 17,
	SY_PROTO_IPV6 = 41, /* IPv6 in IP */
	SY_PROTO_ICMPV6 = 58,
};

enum {
	SY_TCP_FIN = 1,
	SY_TCP_SYN = 2,
	SY_TCP_RST = 4,
	SY_TCP_PSH = 8,
	SY_TCP_ACK = 16,
	SY_TCP_URG = 32,
	SY_TCP_CONTROL = 63, /* all flags but those of ECN */
};

/* Headers lie at any offset in a byte buffer, hence packed and may_alias. */

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

/* ---- parsing (parse.c, checksum_verify.c, fragment.c) ---------------------------------------- */

/* Which part of its datagram a packet is. Only NONE and FIRST have the transport header. */
enum sy_fragment { SY_FRAGMENT_NONE, SY_FRAGMENT_FIRST, SY_FRAGMENT_LATER, SY_FRAGMENT_LAST };

/* A parsed packet, for all stages: 64 bytes, one cache line, filled by sy_packet_parse(). */
struct sy_view {
	struct sy_tuple tuple; /* as on the wire; ports are 0 for ICMP, LATER and LAST. proto: as
	                          below */
	uint16_t frame_len;    /* Ethernet + IP, trailing padding excluded; host order */
	uint16_t l3, l4;       /* offsets of the IP header and of the bytes after its options or
	                          extension headers: the transport header; LATER, LAST: data */
	uint16_t l4_len;       /* bytes from l4 to the end of the IP packet. A UDP datagram's own
	                          length may be less, that of a FIRST fragment more */
	uint8_t proto;         /* SY_PROTO_*; for IPv6 LATER and LAST the fragment header's next
	                          header, which may be destination options (60) */
	uint8_t tcp_flags;
	uint8_t icmp_type, icmp_code;
	uint8_t v4;       /* 1: IPv4, 0: IPv6 */
	uint8_t vlans;    /* 802.1Q and 802.1ad tags before IP: 0 to 2 */
	uint8_t fragment; /* enum sy_fragment; an IPv6 packet of one fragment is NONE (RFC 6946) */
	uint8_t completes : 1;    /* parsing leaves it 0; the fragment table sets it on the last
	                             missing fragment of a datagram */
	uint8_t echo : 1;         /* parsing leaves it 0; set for an echo that has a session, with
	                             its id in the place of a port */
	uint16_t fragment_offset; /* bytes, host order */
	uint16_t icmp_id;         /* of an echo request or reply, else 0; network order */
	uint32_t fragment_id;     /* host order; 0 if not a fragment. See sy_packet_rewrite() */
};
_Static_assert(sizeof(struct sy_view) == 64, "one cache line");

/*
 * Parses an Ethernet frame of len contiguous bytes into *v. Returns SY_DROP_NONE, or the reason why
 * the frame must be dropped; *v is then valid only as far as parsing went. Checks: lengths, IP
 * version, IPv4 header checksum, options and extension headers (well formed, no source routing, at
 * most 8), impossible sources (also IPv4-mapped ones on the wire), land (equal addresses, any
 * ports), fragments that are impossible or hide their transport header, TCP offset and impossible
 * flag sets (SYN+FIN, SYN+RST, none at all), UDP length. Skips up to two VLAN tags. Does NOT check
 * the TTL (the forwarding path does) or the transport checksum. Ignores bytes beyond 65535.
 */
enum sy_drop sy_packet_parse(const uint8_t *frame, uint32_t len, struct sy_view *v);

/*
 * Removes the tags of a frame that belongs to no VLAN (VID 0: priority tags) and updates *v.
 * Returns the new start of the frame, or NULL with nothing changed if a tag names a VLAN.
 */
uint8_t *sy_packet_untag(uint8_t *frame, struct sy_view *v);

/* Does the packet carry its transport header? All but later fragments do. */
static inline bool sy_view_has_l4(const struct sy_view *v)
{
	return v->fragment < SY_FRAGMENT_LATER;
}

/* Bytes of its datagram that a fragment carries, counted like fragment_offset: extension headers in
 * the fragmentable part of an IPv6 datagram are included. */
uint16_t sy_packet_fragment_len(const uint8_t *frame, const struct sy_view *v);

/*
 * Fragments an IP packet as a router does (RFC 791 3.2), or as an IPv6 source does (RFC 8200 4.5).
 * Builds in out (capacity cap, not overlapping frame) the fragment that begins *at bytes into the
 * fragmentable part, of at most mtu bytes, and advances *at to its end. Start with *at 0 and call
 * until the result is 0. `frame` has no tags and has been parsed without a drop; the fragments have
 * its MACs, and bytes after its IP packet are left out. In IPv4 the first fragment has all options,
 * the others only those to be copied. The packet may itself be a fragment: its id, offset and
 * "more" stay. Other packets get `id` (host order). The caller decides whether the packet may be
 * fragmented; the fragments themselves have no "don't fragment". Returns the frame's length. 0: no
 * fragment is left, an IPv6 packet has hop-by-hop options or a routing header, mtu leaves less than
 * 8 bytes after the headers, or cap is too small.
 */
uint32_t sy_packet_fragment(uint8_t *out, uint32_t cap, const uint8_t *frame, uint16_t mtu,
                            uint32_t id, uint16_t *at);

/* State of the transport checksum. A zero UDP checksum is OK in IPv4 and BAD in IPv6 (RFC 8200
 * 8.1). UNFINISHED: it equals the pseudo-header sum, and full verification fails. UNKNOWN: the
 * packet is a fragment, so other bytes of the datagram are missing. */
enum sy_csum_state { SY_CSUM_OK, SY_CSUM_UNFINISHED, SY_CSUM_BAD, SY_CSUM_UNKNOWN };
enum sy_csum_state sy_packet_check_l4(const uint8_t *frame, const struct sy_view *v);
/* Is the state UNFINISHED? Cheaper than sy_packet_check_l4(). */
bool sy_packet_is_unfinished(const uint8_t *frame, const struct sy_view *v);

/* ---- rewriting (rewrite.c, mss.c) ------------------------------------------------------------ */

/* The endpoints a packet leaves with, and the resulting checksum deltas. */
struct sy_rewrite {
	struct sy_addr src, dst;
	uint16_t sport, dport;
	uint16_t l4_delta; /* addresses and ports */
	uint16_t l3_delta; /* IPv4 addresses only; 0 for IPv6 */
};

/* Fills *out with the endpoints of `to` and both deltas of a rewrite of `from` to `to`. The two are
 * of one family. */
void sy_rewrite_prepare(const struct sy_tuple *from, const struct sy_tuple *to,
                        struct sy_rewrite *out);

/*
 * Applies a rewrite of the packet's own family to a TCP or UDP packet in place: addresses, ports,
 * TTL/hop limit − 1, IPv4 header and transport checksums. Checksums change incrementally
 * (RFC 1624): a wrong one stays wrong. A zero UDP checksum stays zero; one that becomes zero is
 * sent as 0xffff (RFC 768). In later fragments and other protocols only the IP header changes. The
 * caller has checked that the TTL is above 1. A fragment whose source changes gets the id
 * v->fragment_id, which the caller may have replaced: ids are unique per source and destination,
 * and many senders may share the new source (RFC 6864 4.1, RFC 8200 4.5).
 */
void sy_packet_rewrite(uint8_t *frame, const struct sy_view *v, const struct sy_rewrite *r);
/* Sets the DSCP of an untagged IP packet; its ECN bits stay. */
void sy_packet_set_dscp(uint8_t *frame, uint8_t dscp);

/*
 * The same for an echo request or reply: changes addresses and TTL, and sets the id to r->sport.
 * Computes the deltas itself and does not read those of r.
 */
void sy_packet_rewrite_echo(uint8_t *frame, const struct sy_view *v, const struct sy_rewrite *r);

/* Only decrements the TTL or hop limit, for a packet that is forwarded without a rewrite. */
void sy_packet_hop(uint8_t *frame, const struct sy_view *v);

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

/* Lowers the MSS option of a SYN to at most mss (host order) and updates the checksum (RFC 1624,
 * also at odd offsets). Returns true if it changed the packet. Stops at a malformed option. */
bool sy_packet_clamp_mss(uint8_t *frame, const struct sy_view *v, uint16_t mss);

/* ---- ICMP messages that we send (icmp.c) ----------------------------------------------------- */

/* Turns an echo request into its reply in place: swaps addresses and MACs, sets type, checksums and
 * TTL 64. Options and extension headers stay. The caller has checked type (8 or 128) and code 0. */
void sy_packet_echo_reply(uint8_t *frame, const struct sy_view *v);

enum sy_icmp_error {
	SY_ICMP_TOO_BIG,
	SY_ICMP_TTL_EXPIRED,
	SY_ICMP_PORT_UNREACHABLE,
	SY_ICMP_HOST_UNREACHABLE,
	SY_ICMP_PROHIBITED, /* administratively */
};

/*
 * Builds in out (capacity cap, not overlapping frame) the ICMP or ICMPv6 error (RFC 1812 4.3,
 * RFC 1191, RFC 4443) about frame as it was received. The error goes from `source` to the frame's
 * sender, with MACs swapped, and quotes as much as fits an IPv4 packet of 576 bytes or an IPv6
 * packet of 1280 bytes. mtu: for SY_ICMP_TOO_BIG, the IP packet's limit in host order. Returns the
 * length of the new frame. 0: an error about this packet is forbidden (it is itself an ICMP error
 * or redirect, a later fragment, or its IP or Ethernet destination is multicast or broadcast), or
 * source is of the other family, or cap is too small.
 */
uint32_t sy_packet_icmp_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                              const struct sy_view *v, enum sy_icmp_error kind,
                              const struct sy_addr *source, uint16_t mtu);

/* ---- ICMP errors of others (quote.c, icmp_rebuild.c) --------------------------------------------
 * ---------------------------------------------------
 *
 *   IP │ ICMP │ quoted IP │ first bytes of the quoted transport
 *
 * A router or host reports an error about a packet that we forwarded, to the source address that we
 * gave the packet. The original sender must get the error, about the packet as it sent it:
 *
 *   sy_packet_parse_quote()      reads the quoted packet's tuple, to look up a session
 *   sy_packet_parse_tunnelled()  reads the packet inside, if the quoted packet is of our tunnel
 *   sy_packet_translate_error()  rewrites the error in place: same family and no tunnel
 *   sy_packet_rebuild_error()    builds a new error: works in all cases
 *
 * Callers check the ICMP checksum first (sy_packet_check_l4()).
 */

enum sy_quote_kind {
	SY_QUOTE_UNREACHABLE,
	SY_QUOTE_TOO_BIG,
	SY_QUOTE_TIME_EXCEEDED,
	SY_QUOTE_PARAMETER_PROBLEM,
};

struct sy_quote {
	struct sy_tuple tuple; /* of the quoted packet as it was on the wire; ports are 0 for later
	                          fragments and tunnels; sport is the id of an echo */
	uint16_t l3, l4;       /* offsets in the frame, as in struct sy_view */
	uint16_t l4_len;       /* quoted transport bytes; at least 8 */
	uint16_t ip_len;       /* total length in the quoted IP header, host order */
	uint16_t mtu;          /* TOO_BIG: for packets like the quoted one, host order */
	uint8_t kind;          /* enum sy_quote_kind */
	uint8_t proto;         /* SY_PROTO_IPV4 or SY_PROTO_IPV6 for a tunnel packet */
	uint8_t v4;            /* family of the quoted packet */
	uint8_t fragment;      /* enum sy_fragment; LATER also stands for LAST */
	uint8_t tunnelled;     /* the quoted packet was inside a tunnel packet */
};

/*
 * Reads the packet that an ICMP or ICMPv6 error quotes. Accepts unreachable, too big, time exceeded
 * and parameter problem with any code; other types are ICMP_UNHANDLED. Otherwise returns NONE,
 * TRUNCATED (less than the quoted header and 8 bytes), BAD_IP_HEADER, UNKNOWN_PROTOCOL, or
 * BAD_PATH_MTU (too big, with less than the error's family allows: 68 or 1280 bytes). Does not
 * check the quoted header's checksum. If a router reports no MTU (RFC 1191 3), the next smaller one
 * of RFC 1191's table is taken. RFC 4884 extensions are not part of the quote.
 */
enum sy_drop sy_packet_parse_quote(const uint8_t *frame, const struct sy_view *v,
                                   struct sy_quote *q);

/* Reads the packet inside a quoted tunnel packet into *inner; its MTU is smaller by the tunnel's
 * header, but no less than the inner family allows. TRUNCATED if the router quoted too little, for
 * example only 8 bytes. */
enum sy_drop sy_packet_parse_tunnelled(const uint8_t *frame, const struct sy_quote *q,
                                       struct sy_quote *inner);

/*
 * Turns an error in place into one from src to quoted->src. quoted applies to the quoted packet:
 * the caller made it with sy_rewrite_prepare(&q->tuple, the packet as its sender knows it). Changes
 * the outer addresses and TTL − 1, the quoted addresses and ports (or echo id), and incrementally
 * the checksums: that of the quoted IPv4 header, the quoted transport checksum if it is there, and
 * ICMP's. The quoted TTL stays, as does a zero UDP checksum. All addresses are of the packet's
 * family.
 */
void sy_packet_translate_error(uint8_t *frame, const struct sy_view *v, const struct sy_quote *q,
                               const struct sy_rewrite *quoted, const struct sy_addr *src);

/* Adds to the sequence number of a quoted TCP segment; call it before the translation. Updates the
 * ICMP checksum, and the quoted one if it is there. */
void sy_packet_shift_quote(uint8_t *frame, const struct sy_view *v, const struct sy_quote *q,
                           uint32_t by);

/*
 * Builds in out (capacity cap, not overlapping frame) an error from src to quoted->src about the
 * packet of *q, which its sender knows as *quoted. The families of *quoted and of the quote may
 * differ: then the quoted header is translated, types and codes are mapped (RFC 7915 4.2, 5.2) and
 * the MTU grows (4 to 6) or shrinks (6 to 4) by 20 bytes, by 28 for an IPv6 first fragment. Errors
 * about other fragments stay in one family. About a tunnel: "too big" or "host unreachable"
 * (RFC 2003 4, RFC 2473 8). Returns the frame's length. 0: there is nothing to report, the families
 * of src and quoted differ, or cap is too small. MACs are those of frame.
 */
uint32_t sy_packet_rebuild_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                                 const struct sy_view *v, const struct sy_quote *q,
                                 const struct sy_tuple *quoted, const struct sy_addr *src);

/* ---- headers that grow or shrink (tunnel.c, translate.c, tcp_option.c, payload.c) ---------------
 * -------------------
 *
 * The payload stays in place and the headers move: the caller owns SY_PACKET_HEADROOM writable
 * bytes before the frame. Each function returns the frame's new first byte, or NULL with nothing
 * changed if it failed. VLAN tags are left out of the new frame. No function checks the egress MTU.
 * TTL and hop limit are above 1.
 */

#define SY_PACKET_HEADROOM 40 /* bytes */

/* Overhead in bytes of a tunnel to this address. */
static inline uint16_t sy_tunnel_overhead(const struct sy_addr *dst)
{
	return sy_addr_is_v4(dst) ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
}

/*
 * Puts the packet into an IPv4 or IPv6 tunnel packet from src to dst, which are of one family
 * (RFC 2003, RFC 2473, RFC 4213). The inner TTL falls by one. Traffic class and ECN are copied
 * (RFC 6040, normal mode). "Don't fragment" is copied from an inner IPv4 packet; for inner IPv6 it
 * is set above 1280 bytes, the least IPv6 MTU. id (host order): the outer IPv4 header's, needed if
 * that packet may be fragmented. flow: any hash of the flow, for the outer flow label (RFC 6438).
 * NULL: too long. *v still describes the inner packet as it was.
 */
uint8_t *sy_packet_encapsulate(uint8_t *frame, const struct sy_view *v, const struct sy_addr *src,
                               const struct sy_addr *dst, uint16_t id, uint32_t flow);

/*
 * Rewrites a TCP or UDP packet to endpoints of the other family (RFC 7915) and updates *v. The new
 * packet has the addresses and ports of r, TTL − 1, and the old traffic class, fragment offset and
 * id. IPv4 options, IPv6 extension headers and the flow label are left out. The transport checksum
 * changes by r->l4_delta; a missing IPv4 UDP checksum is computed. A new IPv4 packet made without a
 * fragment header has `id` (host order); up to 1260 bytes routers may fragment it, above that it
 * has "don't fragment". NULL: another protocol; a first fragment without a UDP checksum; a fragment
 * with further headers before its transport; IPv6 UDP without checksum; too long.
 */
uint8_t *sy_packet_translate(uint8_t *frame, struct sy_view *v, const struct sy_rewrite *r,
                             uint16_t id);

/* Largest TCP payload, without options, of packets that fit mtu with `overhead` further bytes: the
 * value to clamp the MSS to. With translation or a tunnel the two sides differ; use the lesser. */
static inline uint16_t sy_tcp_mss(bool v4, uint16_t mtu, uint16_t overhead)
{
	uint16_t headers = (uint16_t)(overhead + sizeof(struct sy_tcp) +
	                              (v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6)));
	return mtu > headers ? mtu - headers : 1;
}

/* Option kinds that carry a client's address to a server, and the software that reads them. */
enum {
	SY_TOA = 254,      /* LVS and DPVS; IPv6 addresses: DPVS only */
	SY_TOA_IPV6 = 253, /* IPv6 addresses: LVS */
	SY_TOA_OLD = 200,  /* the first TOA modules, and cloud providers' */
	SY_UOA = 31,       /* an IPv4 option of UDP datagrams: DPVS */
};

/*
 * Inserts the option before a segment's other options and updates *v:
 *
 *   IPv4:  kind │ 8  │ port (2) │ address (4)
 *   IPv6:  kind │ 20 │ port (2) │ address (16)
 *
 * port in network order. NULL: not TCP, a fragment, no space in a header of 60 bytes, too long.
 */
uint8_t *sy_tcp_insert_toa(uint8_t *frame, struct sy_view *v, uint8_t kind,
                           const struct sy_addr *addr, uint16_t port);
/* Overwrite with NOPs the options by which a client could forge the balancer's report of the
 * client's address: SY_TOA, SY_TOA_IPV6 and SY_TOA_OLD of a segment with a TCP header, SY_UOA of an
 * IPv4 header. The checksums change incrementally (RFC 1624). */
void sy_tcp_blank_toa(uint8_t *frame, const struct sy_view *v);
void sy_ipv4_blank_uoa(uint8_t *frame, const struct sy_view *v);

/* Length of the option for this address, in bytes. */
static inline uint16_t sy_toa_len(const struct sy_addr *addr)
{
	return sy_addr_is_v4(addr) ? 8 : 20;
}

/*
 * Prepends bytes to a segment's payload, sets PSH and updates *v. The caller owns len writable
 * bytes before the frame. NULL: not TCP, a fragment, too long.
 */
uint8_t *sy_tcp_prepend(uint8_t *frame, struct sy_view *v, const void *data, uint16_t len);
/* Removes a segment's payload and the flags that are not in `keep`, and updates *v. Leaves other
 * protocols and fragments alone. */
void sy_tcp_strip(uint8_t *frame, struct sy_view *v, uint8_t keep);

/* ---- TCP (sequence.c) ------------------------------------------------------------------------ */

/* Adds to a segment's sequence number and updates the checksum. */
void sy_tcp_shift_seq(uint8_t *frame, const struct sy_view *v, uint32_t by);
/* Subtracts from a segment's acknowledgement, if it has one, and from every edge of its SACK
 * blocks, including those of duplicates (RFC 2883). Updates the checksum, also for odd offsets. */
void sy_tcp_shift_ack(uint8_t *frame, const struct sy_view *v, uint32_t by);
/* Adds only to a segment's acknowledgement, if it has one, and updates the checksum. */
void sy_tcp_add_ack(uint8_t *frame, const struct sy_view *v, uint32_t by);
/* Adds to a segment's timestamps (RFC 7323 3.2), if it has them: to its own and, if it has an
 * acknowledgement, to the one that it echoes. Updates the checksum. */
void sy_tcp_shift_time(uint8_t *frame, const struct sy_view *v, uint32_t own, uint32_t echo);
/* Shifts a segment's window to the left by `by` bits, to the right if by is negative, up to
 * 65535. Updates the checksum. */
void sy_tcp_scale_window(uint8_t *frame, const struct sy_view *v, int by);

#endif
