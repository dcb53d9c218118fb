// SPDX-License-Identifier: Apache-2.0
/* Frames of ARP (RFC 826) and of neighbour discovery (RFC 4861) that the runtime originates. */
#ifndef NEIGHBOUR_FRAME_H
#define NEIGHBOUR_FRAME_H

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <string.h>

#include "sy_base.h"
#include "sy_packet.h"

#define ARP_FRAME_LEN      (SY_ETH_LEN + 28)
#define ND_FRAME_LEN(icmp) (SY_ETH_LEN + 40 + (icmp)) /* icmp: bytes of the ICMPv6 message */

static inline void frame_put_u16(uint8_t *at, uint16_t value)
{
	value = htons(value);
	memcpy(at, &value, sizeof(value));
}

/* Writes an ARP broadcast about `target`. sender: NULL in a probe (RFC 5227): neighbours do not
 * change their entries. */
static inline void arp_frame_write(uint8_t frame[ARP_FRAME_LEN], const struct sy_addr *sender,
                                   const struct sy_addr *target, const uint8_t mac[6],
                                   uint16_t operation)
{
	uint8_t *arp = frame + SY_ETH_LEN;
	memset(frame, 0, ARP_FRAME_LEN);
	memset(frame, 0xff, 6);
	memcpy(frame + 6, mac, 6);
	frame_put_u16(frame + 12, ETH_P_ARP);
	frame_put_u16(arp, ARPHRD_ETHER);
	frame_put_u16(arp + 2, ETH_P_IP);
	arp[4] = 6;
	arp[5] = 4;
	frame_put_u16(arp + 6, operation);
	memcpy(arp + 8, mac, 6);
	if (sender)
		memcpy(arp + 14, sender->b + 12, 4);
	if (operation == ARPOP_REPLY)
		memcpy(arp + 18, mac, 6);
	memcpy(arp + 24, target->b + 12, 4);
}

/* Begins a frame with a zeroed ICMPv6 message of len bytes to a multicast group; from: NULL for the
 * unspecified address. Returns the message. */
static inline uint8_t *nd_frame_begin(uint8_t *frame, unsigned len, const uint8_t mac[6],
                                      const struct sy_addr *from, const uint8_t group[16])
{
	uint8_t *ip = frame + SY_ETH_LEN;
	memset(frame, 0, ND_FRAME_LEN(len));
	frame[0] = frame[1] = 0x33;
	memcpy(frame + 2, group + 12, 4);
	memcpy(frame + 6, mac, 6);
	frame_put_u16(frame + 12, ETH_P_IPV6);
	ip[0] = 0x60;
	frame_put_u16(ip + 4, (uint16_t)len);
	ip[6] = IPPROTO_ICMPV6;
	ip[7] = 255;
	if (from)
		memcpy(ip + 8, from->b, 16);
	memcpy(ip + 24, group, 16);
	return ip + 40;
}

/* Sets the checksum of the complete message. */
static inline void nd_frame_end(uint8_t *frame, unsigned len)
{
	uint8_t *ip = frame + SY_ETH_LEN, *icmp = ip + 40;
	uint64_t sum = sy_csum_sum(ip + 8, 32) + htons((uint16_t)len) + htons(IPPROTO_ICMPV6) +
	               sy_csum_sum(icmp, len);
	uint16_t csum = (uint16_t)~sy_csum_fold(sum);
	memcpy(icmp + 2, &csum, sizeof(csum));
}

#endif
