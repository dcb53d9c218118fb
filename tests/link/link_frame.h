// SPDX-License-Identifier: Apache-2.0
/* Parts of Ethernet frames that the link reads and changes. */
#ifndef LINK_FRAME_H
#define LINK_FRAME_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define FRAME_ETHERNET 14
/* The largest answer: Ethernet, two VLAN tags, and 1280 bytes, as RFC 4443 section 2.4 (c) has it.
 */
#define FRAME_ANSWER (FRAME_ETHERNET + 8 + 1280)

/* An IP packet in a frame; version 0: anything else. */
struct frame {
	uint8_t *ip;
	uint32_t length;  /* of the packet */
	uint32_t before;  /* bytes of Ethernet and VLAN tags */
	unsigned version; /* 4 or 6 */
	/* ARP, neighbour discovery and related ICMPv6 (types 130 to 137, and 143), IGMP, and other
	 * protocols than IP: these are only delayed. */
	bool spared;
};

struct frame frame_look(uint8_t *bytes, uint32_t length);

/* Sets CE in an ECN-capable packet (RFC 3168 5); returns false for other packets. */
bool frame_mark(const struct frame *f);

/* Flips a bit of the packet, or of other bytes behind the Ethernet header. */
void frame_flip(const struct frame *f, uint64_t draw);

/* Whether the packet may be cut into fragments: IPv4 without DF. */
bool frame_may_fragment(const struct frame *f);

/* Writes the fragment that begins `offset` bytes into the packet's data, RFC 791 section 3.2.
 * Returns the frame's length, and where the next one begins; 0 there: it was the last. */
uint32_t frame_fragment(const struct frame *f, uint32_t mtu, uint32_t *offset, uint8_t *out);

/* Writes a router's "fragmentation needed" (RFC 1191) or "packet too big" (RFC 4443) to the
 * packet's sender. Returns its length; 0: such a packet gets no answer. */
uint32_t frame_too_big(const struct frame *f, uint32_t mtu, const struct in_addr *router4,
                       const struct in6_addr *router6, uint8_t out[static FRAME_ANSWER]);

#endif
