// SPDX-License-Identifier: Apache-2.0
#ifndef MOVE_H
#define MOVE_H

#include <arpa/inet.h>
#include <sy_packet.h>

/* Moves the frame's Ethernet header, without tags, before a new IP header at l3. Returns the new
 * start of the frame. */
static inline uint8_t *frame_head_move(const uint8_t *frame, uint8_t *l3, bool v4)
{
	struct sy_eth *eth = (struct sy_eth *)(l3 - SY_ETH_LEN);

	memmove(eth, frame, 2 * sizeof(eth->dst));
	eth->type = htons(v4 ? SY_ETH_IPV4 : SY_ETH_IPV6);
	return (uint8_t *)eth;
}

/* Updates *v after an IP header of len bytes has replaced the headers before l4. */
static inline void view_head_set(struct sy_view *v, uint16_t len)
{
	v->vlans = 0;
	v->l3 = SY_ETH_LEN;
	v->l4 = SY_ETH_LEN + len;
	v->frame_len = v->l4 + v->l4_len;
}

/* Adds `more` to the length in the IP header. */
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
