// SPDX-License-Identifier: Apache-2.0
#ifndef MOVE_H
#define MOVE_H

#include <arpa/inet.h>
#include <sy_packet.h>

/* Puts the frame's Ethernet header, without tags, in front of a new IP header at l3. Returns where
 * the frame now begins. */
static inline uint8_t *frame_head_move(const uint8_t *frame, uint8_t *l3, bool v4)
{
	struct sy_eth *eth = (struct sy_eth *)(l3 - SY_ETH_LEN);

	memmove(eth, frame, 2 * sizeof(eth->dst));
	eth->type = htons(v4 ? SY_ETH_IPV4 : SY_ETH_IPV6);
	return (uint8_t *)eth;
}

/* *v after the headers in front of l4 have become an IP header of len bytes. */
static inline void view_head_set(struct sy_view *v, uint16_t len)
{
	v->vlans = 0;
	v->l3 = SY_ETH_LEN;
	v->l4 = SY_ETH_LEN + len;
	v->frame_len = v->l4 + v->l4_len;
}

/* The IP header says `more` bytes more. */
static inline void ip_length_add(uint8_t *l3, bool v4, uint16_t more)
{
	if (v4) {
		struct sy_ipv4 *ip = (struct sy_ipv4 *)l3;
		uint16_t len = htons(ntohs(ip->total_length) + more);
		ip->checksum = sy_csum_apply(ip->checksum, sy_csum_delta(ip->total_length, len));
		ip->total_length = len;
	} else {
		struct sy_ipv6 *ip = (struct sy_ipv6 *)l3;
		ip->payload_length = htons(ntohs(ip->payload_length) + more);
	}
}

#endif
