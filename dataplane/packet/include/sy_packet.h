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

/* ---- parsing (parse.c, check.c, fragment.c) -------------------------------------------------- */

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
	uint8_t completes : 1;    /* parsing leaves it 0; the fragment table sets it where no other
	                             fragment of the datagram is left to come */
	uint8_t echo : 1;         /* likewise: an echo that has a session, and its id for a port */
	uint16_t fragment_offset; /* bytes, host order */
	uint16_t icmp_id;         /* of echo and its reply, else 0; network order */
	uint32_t fragment_id;     /* host order; of a fragment, else 0. See sy_packet_rewrite() */
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

/*
 * Takes the tags off a frame that belongs to no VLAN (VID 0: they tell its priority), and moves the
 * view along. Returns where the frame begins now; NULL, and nothing changed, if one names a VLAN.
 */
uint8_t *sy_packet_untag(uint8_t *frame, struct sy_view *v);

/* Does the packet carry its transport header? All but later fragments do. */
static inline bool sy_view_has_l4(const struct sy_view *v)
{
	return v->fragment < SY_FRAGMENT_LATER;
}

/* Bytes of its datagram that a fragment carries: what fragment_offset counts, the extension headers
 * of an IPv6 datagram's fragmentable part included. */
uint16_t sy_packet_fragment_len(const uint8_t *frame, const struct sy_view *v);

/*
 * Fragments an IP packet as a router does (RFC 791 3.2), or as the one who made an IPv6 packet
 * (RFC 8200 4.5): builds in out (capacity cap, not overlapping frame) the fragment which begins
 * *at bytes into what is divided, of at most mtu bytes, and moves *at behind it. The first one has
 * *at 0, the last one leaves 0 to the call after it. `frame` is one without tags that parses; MACs
 * are its own, and what lies behind its IP packet is left out. Of IPv4 the first fragment has all
 * options, the others those to be copied. The packet may be a fragment, whose id, place and "more"
 * stay; others take id (host order). Whether it may be fragmented is the caller's matter: fragments
 * say that they may. Returns the frame's length; 0: there is no more, or it cannot be done: an IPv6
 * packet has hop-by-hop options or a routing header, mtu leaves no 8 bytes behind the headers, or
 * cap is too small.
 */
uint32_t sy_packet_fragment(uint8_t *out, uint32_t cap, const uint8_t *frame, uint16_t mtu,
                            uint32_t id, uint16_t *at);

/* State of the transport checksum. OK also for a zero IPv4 UDP checksum; a zero one in IPv6 is BAD
 * (RFC 8200 8.1). UNFINISHED: it equals the pseudo-header sum, and full verification fails.
 * UNKNOWN: a fragment, of a datagram whose other bytes are not here. */
enum sy_csum_state { SY_CSUM_OK, SY_CSUM_UNFINISHED, SY_CSUM_BAD, SY_CSUM_UNKNOWN };
enum sy_csum_state sy_packet_check_l4(const uint8_t *frame, const struct sy_view *v);
/* Is that UNFINISHED? Cheaper than telling what it is. */
bool sy_packet_is_unfinished(const uint8_t *frame, const struct sy_view *v);

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
 * has checked that the TTL is above 1. A fragment whose source changes leaves under the id
 * v->fragment_id, which the caller may have replaced: ids are unique by source and destination, and
 * the new source may be that of many (RFC 6864 4.1, RFC 8200 4.5).
 */
void sy_packet_rewrite(uint8_t *frame, const struct sy_view *v, const struct sy_rewrite *r);

/*
 * The same for an echo request or reply: addresses, TTL, and the id becomes r->sport. Deltas are
 * worked out here; r's are not read.
 */
void sy_packet_rewrite_echo(uint8_t *frame, const struct sy_view *v, const struct sy_rewrite *r);

/* TTL or hop limit − 1, and no more: what is left to do for a packet forwarded as it is. */
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

/* ---- ICMP errors of others (quote.c, error.c) -------------------------------------------------
 *
 *   IP │ ICMP │ quoted IP │ first bytes of the quoted transport
 *
 * A router or host complains about a packet that we forwarded, and sends the complaint to the
 * address we gave that packet. Its original sender must hear it, about the packet it sent:
 *
 *   sy_packet_parse_quote()      what was complained about, as a tuple to look up a session by
 *   sy_packet_parse_tunnelled()  the packet in our tunnel, if the one above was a tunnel's
 *   sy_packet_translate_error()  in place, when both are of one family and no tunnel was used
 *   sy_packet_rebuild_error()    again, always
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
	struct sy_tuple tuple; /* of the quoted packet as it was on the wire; later fragments and
	                          tunnels: ports 0; echo: sport its id */
	uint16_t l3, l4;       /* offsets in the frame, as a view's */
	uint16_t l4_len;       /* transport bytes that are quoted; 8 at least */
	uint16_t ip_len;       /* IP length that the quoted packet says it had, host order */
	uint16_t mtu;          /* TOO_BIG: for packets like the quoted one, host order */
	uint8_t kind;          /* enum sy_quote_kind */
	uint8_t proto;         /* also SY_PROTO_IPV4, SY_PROTO_IPV6: a tunnel's packet */
	uint8_t v4;            /* family of the quoted packet */
	uint8_t fragment;      /* enum sy_fragment, LAST never: it is LATER here */
	uint8_t tunnelled;     /* the quoted packet was found in a tunnel's */
};

/*
 * Reads what the ICMP or ICMPv6 error in a parsed packet quotes. Accepted are unreachable, too big,
 * time exceeded and parameter problem of any code; others are ICMP_UNHANDLED. Else it returns NONE,
 * TRUNCATED (less than the quoted header and 8 bytes), BAD_IP_HEADER or UNKNOWN_PROTOCOL. The
 * quoted header's checksum is not looked at. A router that tells no MTU (RFC 1191 3) is taken to
 * mean the next smaller one of RFC 1191's table. RFC 4884 extensions are no part of the quote.
 */
enum sy_drop sy_packet_parse_quote(const uint8_t *frame, const struct sy_view *v,
                                   struct sy_quote *q);

/* The packet inside a quoted tunnel packet, into *inner; MTU smaller by the tunnel's header.
 * Routers that quote 8 bytes only leave too little: TRUNCATED. */
enum sy_drop sy_packet_parse_tunnelled(const uint8_t *frame, const struct sy_quote *q,
                                       struct sy_quote *inner);

/*
 * Turns an error in place into one from src to quoted->src: quoted is for the quoted packet, made
 * by sy_rewrite_prepare(&q->tuple, the packet as its sender knows it). Changed are the outer
 * addresses and TTL − 1, the quoted addresses and ports (or echo id), the quoted IPv4 header's and,
 * as far as it is quoted, the transport checksum, and the ICMP checksum; all incrementally. The
 * quoted TTL stays, as does a zero UDP checksum. All addresses are of the packet's family.
 */
void sy_packet_translate_error(uint8_t *frame, const struct sy_view *v, const struct sy_quote *q,
                               const struct sy_rewrite *quoted, const struct sy_addr *src);

/* Adds to the sequence number of a TCP segment that is quoted, before it is translated; the quoted
 * checksum, if it is there, and ICMP's are updated. */
void sy_packet_shift_quote(uint8_t *frame, const struct sy_view *v, const struct sy_quote *q,
                           uint32_t by);

/*
 * Builds in out (capacity cap, not overlapping frame) an error from src to quoted->src about the
 * packet of *q, which its sender knows as *quoted. The families of *quoted and of the quote may
 * differ: then the quoted header is translated, types and codes are mapped (RFC 7915 4.2, 5.2) and
 * the MTU grows or shrinks by 20, and shrinks by 28 for an IPv6 fragment; other fragments are told
 * of within a family only. About a tunnel's packet the sender hears "too big" or "host unreachable"
 * (RFC 2003 4, RFC 2473 8). Returns the frame's length; 0 if there is nothing to tell, the families
 * of src and quoted differ, or cap is too small. MACs are those of frame.
 */
uint32_t sy_packet_rebuild_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                                 const struct sy_view *v, const struct sy_quote *q,
                                 const struct sy_tuple *quoted, const struct sy_addr *src);

/* ---- packets that grow or shrink in front (tunnel.c, translate.c, option.c, payload.c) -------
 *
 * The payload stays where it is, headers move: the caller owns SY_PACKET_ROOM writable bytes in
 * front of the frame. Each returns the frame's new first byte; NULL, and nothing changed, if it
 * cannot be done. VLAN tags are left out of the new frame. None looks at the egress MTU; TTL and
 * hop limit are above 1.
 */

#define SY_PACKET_ROOM 40

/* Bytes a tunnel to this address costs. */
static inline uint16_t sy_tunnel_overhead(const struct sy_addr *dst)
{
	return sy_addr_is_v4(dst) ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6);
}

/*
 * Puts the packet into an IPv4 or IPv6 tunnel packet from src to dst (one family, any): RFC 2003,
 * RFC 2473, RFC 4213. The inner TTL falls by one; traffic class and ECN are copied (RFC 6040,
 * normal mode); "don't fragment" is the inner packet's, and of IPv6 set above 1280 bytes, below
 * which nobody may ask for less. id (host order): the outer IPv4 header's, of use when it may be
 * fragmented. flow: any hash of the flow, for the outer flow label (RFC 6438). NULL: too long.
 * *v keeps describing the inner packet as it was.
 */
uint8_t *sy_packet_encapsulate(uint8_t *frame, const struct sy_view *v, const struct sy_addr *src,
                               const struct sy_addr *dst, uint16_t id, uint32_t flow);

/*
 * Rewrites a TCP or UDP packet to endpoints of the other family (RFC 7915), and brings *v up to
 * date: addresses and ports of r, TTL − 1, traffic class, the fragment's place and id kept; IPv4
 * options, IPv6 extension headers and the flow label are left out. The transport checksum changes
 * by r->l4_delta; a missing one of IPv4 UDP is made. An IPv4 packet below 1260 bytes may be
 * fragmented on its way and carries id (host order), unless it is a fragment; above that "don't
 * fragment". NULL: another protocol; a first fragment whose checksum would have to be made, or
 * that has headers in front of its transport; IPv6 UDP without checksum; too long.
 */
uint8_t *sy_packet_translate(uint8_t *frame, struct sy_view *v, const struct sy_rewrite *r,
                             uint16_t id);

/* Largest TCP payload, without options, of packets that fit mtu behind `overhead` further bytes:
 * what to clamp the MSS to. With translation or a tunnel each side has its own; the lesser counts.
 */
static inline uint16_t sy_tcp_mss(bool v4, uint16_t mtu, uint16_t overhead)
{
	uint16_t headers = (uint16_t)(overhead + sizeof(struct sy_tcp) +
	                              (v4 ? sizeof(struct sy_ipv4) : sizeof(struct sy_ipv6)));
	return mtu > headers ? mtu - headers : 1;
}

/* Option kinds that carry a client's address to a server, and what reads them. */
enum {
	SY_TOA = 254,      /* LVS and DPVS; IPv6 addresses: DPVS only */
	SY_TOA_IPV6 = 253, /* IPv6 addresses: LVS */
};

/*
 * Inserts the option in front of a segment's others, and brings *v up to date:
 *
 *   IPv4:  kind │ 8  │ port (2) │ address (4)
 *   IPv6:  kind │ 20 │ port (2) │ address (16)
 *
 * port in network order. NULL: not TCP, a fragment, no room in a header of 60 bytes, too long.
 */
uint8_t *sy_tcp_insert_toa(uint8_t *frame, struct sy_view *v, uint8_t kind,
                           const struct sy_addr *addr, uint16_t port);
/* Makes padding of a segment's options of this kind: the sender's, which the receiver would trust.
 */
void sy_tcp_blank_option(uint8_t *frame, const struct sy_view *v, uint8_t kind);

/* What it takes for this address, in bytes. */
static inline uint16_t sy_toa_len(const struct sy_addr *addr)
{
	return sy_addr_is_v4(addr) ? 8 : 20;
}

/*
 * Puts bytes in front of a segment's payload, and brings *v up to date; it is a push from then on.
 * The room in front of the frame is the caller's: len bytes. NULL: not TCP, a fragment, too long.
 */
uint8_t *sy_tcp_prepend(uint8_t *frame, struct sy_view *v, const void *data, uint16_t len);
/* Takes a segment's payload away, and the flags that are not in `keep`; brings *v up to date.
 * Nothing happens to what is not TCP, or a fragment. */
void sy_tcp_strip(uint8_t *frame, struct sy_view *v, uint8_t keep);

/* ---- TCP (sequence.c, reset.c, proxy.c) ------------------------------------------------------ */

/* Adds to a segment's sequence number; checksum updated. */
void sy_tcp_shift_seq(uint8_t *frame, const struct sy_view *v, uint32_t by);
/* Subtracts from its acknowledgement, if it has one, and from every edge of its SACK blocks, those
 * of duplicates (RFC 2883) too; checksum updated, wherever they lie. */
void sy_tcp_shift_ack(uint8_t *frame, const struct sy_view *v, uint32_t by);
/* Adds to its acknowledgement alone, if it has one; checksum updated. */
void sy_tcp_add_ack(uint8_t *frame, const struct sy_view *v, uint32_t by);

/*
 * Builds in out the reset that answers a segment nobody expects (RFC 9293 3.10.7.1), MACs and
 * addresses swapped. Returns the frame's length; 0: it is a reset itself, not TCP, a fragment, or
 * cap is too small.
 */
uint32_t sy_tcp_reset_answer(uint8_t *out, uint32_t cap, const uint8_t *frame,
                             const struct sy_view *v);

/* Builds in out a reset from t->src to t->dst with these numbers (host order), as an end of the
 * connection would send it: RST, and ACK if with_ack. MACs are zero. Returns its length, 0: cap. */
uint32_t sy_tcp_reset_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t, uint32_t seq,
                           uint32_t ack, bool with_ack);

/* Builds in out an empty ACK from t->src to t->dst with these numbers (host order). Outside its
 * window it makes a living t->dst say what it expects (RFC 9293 3.10.7.4), and a dead one send a
 * reset with `ack` as its sequence number. MACs are zero. Returns its length, 0: cap. */
uint32_t sy_tcp_probe_make(uint8_t *out, uint32_t cap, const struct sy_tuple *t, uint32_t seq,
                           uint32_t ack);

/* What a receiver does to a reset (RFC 5961 3.2): only the very next number is proof. */
enum sy_tcp_reset { SY_TCP_RESET_VALID, SY_TCP_RESET_CHALLENGE, SY_TCP_RESET_IGNORE };

static inline bool sy_tcp_in_window(uint32_t seq, uint32_t next, uint32_t window)
{
	return seq - next < window;
}

static inline enum sy_tcp_reset sy_tcp_check_reset(uint32_t seq, uint32_t next, uint32_t window)
{
	if (seq == next)
		return SY_TCP_RESET_VALID;
	return sy_tcp_in_window(seq, next, window) ? SY_TCP_RESET_CHALLENGE : SY_TCP_RESET_IGNORE;
}

/* May a receiver believe an acknowledgement (RFC 5961 5.2)? unacked, next: SND.UNA and SND.NXT;
 * window: the largest it was ever offered. */
static inline bool sy_tcp_check_ack(uint32_t ack, uint32_t unacked, uint32_t next, uint32_t window)
{
	return ack - (unacked - window) <= next - (unacked - window);
}

#define SY_PROXY_V1_MAX 107 /* bytes, without a terminating zero */
#define SY_PROXY_V2_MAX 52

/* Write the PROXY protocol's header for a connection of tuple *t as its client sees it; v2 as
 * STREAM or DGRAM by t->proto. NULL: a connection of our own, UNKNOWN in v1 and LOCAL in v2. Both
 * return the length, v1's text is not terminated. */
uint32_t sy_proxy_v1(uint8_t out[static SY_PROXY_V1_MAX], const struct sy_tuple *t);
uint32_t sy_proxy_v2(uint8_t out[static SY_PROXY_V2_MAX], const struct sy_tuple *t);

#endif
