// SPDX-License-Identifier: Apache-2.0
/*
 * The first stage, sy_classify_stage(): parses each packet, checks its destination and finds its
 * slot. Packets of other workers' slots leave here (remote.c).
 *
 *   plain, to a VIP or a local address ──► classify_plain()
 *   all others                         ──► classify_general()
 */
#include <sy_plain.h>

#include "address_set.h"
#include "balance.h"
#include "fragment_table.h"
#include "icmp_packet.h"
#include "remote.h"
#include "snat.h"

#define PREFETCH_AHEAD 4

static bool is_from_nat_server(struct sy_balance *b, const struct sy_view *v)
{
	return (v->proto == SY_PROTO_TCP || v->proto == SY_PROTO_UDP) &&
	       address_set_find(SY_RCU_READ(b->address_set), &v->tuple.src) == ADDRESS_SET_SERVER;
}

/* Classifies a packet to neither a VIP nor a local address: NAT or SNAT traffic, or an ICMP error
 * about it. Returns VIP if the session's client sent it, LOCAL if the other side did, otherwise
 * NONE. */
static enum address_set_kind classify_nat(struct sy_balance *b, const uint8_t *frame,
                                          const struct sy_view *v, enum address_set_kind kind)
{
	const struct snat *snat = SY_RCU_READ(b->snat);
	if (kind == ADDRESS_SET_POOL)
		return ADDRESS_SET_LOCAL;
	if (is_from_nat_server(b, v) && !snat_is_of_inside(snat, &v->tuple))
		return ADDRESS_SET_LOCAL;
	if (snat_matches(snat, &v->tuple))
		return ADDRESS_SET_VIP;
	return icmp_is_about_server(b, frame, v) ? ADDRESS_SET_LOCAL : ADDRESS_SET_NONE;
}

/* Removes VLAN tags of priority 0. Returns false if the frame belongs to a VLAN. */
static bool classify_untag(struct rte_mbuf *m, struct sy_view *v)
{
	uint8_t *frame = sy_packet_untag(sy_frame(m), v);
	if (frame)
		rte_pktmbuf_adj(m, (uint16_t)(frame - sy_frame(m)));
	return frame;
}

/* Is the destination MAC address that of the ingress port? The worker that steered a frame has
 * checked it. */
static inline bool is_to_port_mac(const struct sy_burst *burst, const uint8_t *frame)
{
	uint64_t head;
	memcpy(&head, frame, sizeof(head)); /* the destination, and two bytes of the source */
	return (head ^ burst->mac) << 16 == 0 || burst->steered;
}

/* Sets the direction, slot and hash of packet i from its view. */
static void classify_by_view(const struct sy_balance *b, struct sy_burst *burst, unsigned i,
                             bool from_client)
{
	const struct sy_tuple *t = &burst->view[i].tuple;
	burst->direction[i] = from_client ? SESSION_CLIENT : SESSION_SERVER;
	burst->slot[i] =
	        from_client ? sy_slot_of(&t->src, t->sport) : sy_slot_of(&t->dst, t->dport);
	burst->hash[i] = sy_hash_tuple(&b->key, t);
}

/* Removes the bytes behind the IP packet: senders pad Ethernet frames to 60 bytes (IEEE 802.3
 * 4A.3). frame_len: length of the frame without the padding. */
static inline void classify_trim(struct rte_mbuf *m, uint32_t frame_len)
{
	if (SY_UNLIKELY(rte_pktmbuf_data_len(m) > frame_len)) {
		m->data_len = (uint16_t)frame_len;
		m->pkt_len = frame_len;
	}
}

/* Classifies a packet that classify_plain() does not handle. Returns the drop reason, or NONE: the
 * packet goes to look up or to the slow path (ICMP), or it has left the burst (a fragment). */
static __attribute__((noinline)) enum sy_drop
classify_general(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                 const struct address_set *address_set)
{
	struct sy_balance *b = w->app;
	struct rte_mbuf *m = burst->mbuf[i];
	struct sy_view *v = &burst->view[i];
	bool is_plain = burst->plain[i];
	if (is_plain) {
		sy_plain_view(sy_frame(m), burst->plain[i], v);
	} else {
		enum sy_drop reason = sy_packet_parse(sy_frame(m), rte_pktmbuf_data_len(m), v);
		if (reason != SY_DROP_NONE)
			return reason;
		/* All frames are sent untagged: a frame of the native interface would leave its
		 * network. */
		if (v->vlans && !classify_untag(m, v))
			return SY_DROP_VLAN;
		classify_trim(m, v->frame_len);
	}

	enum address_set_kind to = address_set_find(address_set, &v->tuple.dst), kind = to;
	if (to != ADDRESS_SET_VIP && to != ADDRESS_SET_LOCAL) {
		v->echo = snat_is_echo(v, to == ADDRESS_SET_POOL);
		kind = classify_nat(b, sy_frame(m), v, to);
		if (kind == ADDRESS_SET_NONE)
			return SY_DROP_UNKNOWN_DESTINATION;
	}
	/* Flooding switches and promiscuous ports deliver frames for other hosts. */
	if (!is_to_port_mac(burst, sy_frame(m)))
		return SY_DROP_OTHER_HOST;
	if (!is_plain) {
		if (v->fragment != SY_FRAGMENT_NONE) {
			/* Forward or steer the earlier packets of the burst first, as
			 * fragment_classify() may steer this one now: that keeps the order. */
			remote_classify(w, burst, i);
			enum sy_drop reason = fragment_classify(w, burst, i);
			if (reason != SY_DROP_NONE || sy_next_has_left(burst->next[i]))
				return reason;
			if (to != ADDRESS_SET_VIP &&
			    to != ADDRESS_SET_LOCAL) /* the reassembled datagram has ports */
				kind = classify_nat(b, sy_frame(m), v, to);
		}
		if (v->proto != SY_PROTO_TCP && v->proto != SY_PROTO_UDP) {
			if (!v->echo) {
				burst->next[i] = SY_NEXT_SLOW;
				return SY_DROP_NONE;
			}
			snat_echo_ports(v, kind == ADDRESS_SET_LOCAL);
		}
	}
	classify_by_view(b, burst, i, kind == ADDRESS_SET_VIP);
	return SY_DROP_NONE;
}

/* Classifies a plain packet of this family. Returns false if its destination is neither a VIP nor a
 * local address, or if the frame is for another MAC address. */
static inline __attribute__((always_inline)) bool
classify_family(const struct sy_balance *b, struct sy_burst *burst, unsigned i,
                const uint8_t *frame, const struct address_set *address_set, unsigned plain,
                bool v4)
{
	const struct sy_ipv6 *ip6 = (const struct sy_ipv6 *)(frame + SY_ETH_LEN);
	uint64_t addrs = sy_plain_addrs_v4(frame); /* of IPv4 */
	struct sy_addr addr;                       /* of IPv6 */
	enum address_set_kind kind;
	if (v4) {
		kind = address_set_find_v4(address_set, (uint32_t)(addrs >> 32));
	} else {
		memcpy(&addr, ip6->dst, sizeof(addr));
		kind = address_set_find(address_set, &addr);
	}
	if (SY_UNLIKELY((kind != ADDRESS_SET_VIP && kind != ADDRESS_SET_LOCAL) ||
	                !is_to_port_mac(burst, frame)))
		return false;

	bool from_client = kind == ADDRESS_SET_VIP;
	uint16_t port = (uint16_t)(sy_plain_ports(frame, v4) >> (from_client ? 0 : 16));
	/* The slot depends on the client's address, or on the local address to which a server
	 * replies. */
	if (v4) {
		uint32_t outer = (uint32_t)(addrs >> (from_client ? 0 : 32));
		burst->slot[i] = sy_slot_of_v4(outer, port);
	} else {
		if (from_client)
			memcpy(&addr, ip6->src, sizeof(addr));
		burst->slot[i] = sy_slot_of(&addr, port);
	}
	burst->direction[i] = from_client ? SESSION_CLIENT : SESSION_SERVER;
	burst->hash[i] = sy_plain_hash(&b->key, frame, plain, v4);
	return true;
}

/* Classifies a plain packet to a VIP or a local address without a view. Returns false if the packet
 * needs classify_general(). */
static inline __attribute__((always_inline)) bool
classify_plain(const struct sy_balance *b, struct sy_burst *burst, unsigned i,
               const struct address_set *address_set)
{
	struct rte_mbuf *m = burst->mbuf[i];
	const uint8_t *frame = sy_frame(m);
	uint32_t len = rte_pktmbuf_data_len(m);
	unsigned plain = sy_plain_parse(frame, len);
	burst->plain[i] = (uint8_t)plain;
	if (SY_LIKELY(plain & SY_PLAIN_V4)) {
		classify_trim(m, SY_ETH_LEN + sy_plain_len(frame, true));
		return classify_family(b, burst, i, frame, address_set, plain, true);
	}
	if (plain)
		classify_trim(m, SY_ETH_LEN + sy_plain_len(frame, false));
	return plain && classify_family(b, burst, i, frame, address_set, plain, false);
}

/* Runs classify_general(). Returns false if the packet does not go to look up. */
static bool classify_unusual(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                             const struct address_set *address_set)
{
	enum sy_drop reason = classify_general(w, burst, i, address_set);
	if (reason != SY_DROP_NONE) {
		sy_burst_drop(w, burst, i, reason);
		return false;
	}
	if (burst->next[i] == SY_NEXT_LOOKUP)
		return true;
	burst->session[i] = SESSION_NONE;
	if (burst->next[i] == SY_NEXT_SLOW)
		icmp_steer(w, burst, i);
	return false;
}

/* Removes the packets that have left from the burst. Testing each packet in every later stage would
 * mispredict half of the branches if half of the packets leave at random. */
static void burst_compact(struct sy_burst *b)
{
	uint8_t stays[SY_BURST];
	unsigned count = 0;
	for (unsigned i = 0; i < b->count; i++) {
		stays[count] = (uint8_t)i;
		count += !sy_next_has_left(b->next[i]);
	}
	for (unsigned to = 0; to < count; to++) {
		unsigned i = stays[to];
		b->mbuf[to] = b->mbuf[i];
		b->next[to] = b->next[i];
		if (!b->plain[i])
			b->view[to] = b->view[i];
		b->plain[to] = b->plain[i];
		b->hash[to] = b->hash[i];
		b->slot[to] = b->slot[i];
		b->direction[to] = b->direction[i];
		b->session[to] = b->session[i];
	}
	b->count = count;
}

void sy_classify_stage(struct sy_worker *w, struct sy_burst *burst)
{
	struct sy_balance *b = w->app;
	const struct address_set *address_set = SY_RCU_READ(b->address_set);
	unsigned elsewhere = 0;

	for (unsigned i = 0; i < PREFETCH_AHEAD && i < burst->count; i++)
		__builtin_prefetch(sy_frame(burst->mbuf[i]));
	for (unsigned i = 0; i < burst->count; i++) {
		if (i + PREFETCH_AHEAD < burst->count)
			__builtin_prefetch(sy_frame(burst->mbuf[i + PREFETCH_AHEAD]));
		if (SY_UNLIKELY(!classify_plain(b, burst, i, address_set)) &&
		    !classify_unusual(w, burst, i, address_set))
			continue;
		elsewhere |= SY_READ(w->slot_worker[burst->slot[i]]) ^ w->id;
	}
	if (elsewhere) {
		remote_classify(w, burst, burst->count);
		burst_compact(burst);
	}
}
