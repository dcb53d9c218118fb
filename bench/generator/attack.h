// SPDX-License-Identifier: Apache-2.0
/* What steelyard-attack and its XDP program agree on: templates of packets, as words of 32 bits in
 * network byte order with the fields zero that each packet has of its own. */
#ifndef GENERATOR_ATTACK_H
#define GENERATOR_ATTACK_H

#define ATTACK_WORDS   24 /* longest frame: 96 bytes */
#define ATTACK_KINDS   16 /* sent at once, at random */
#define ATTACK_TARGETS 16 /* destination addresses */

/* The words' fields have fixed places, as no template has IP options. */
struct attack_template {
	__u32 words[ATTACK_WORDS];
	__u32 length;   /* of the frame, in bytes */
	__u32 protocol; /* IPPROTO_TCP, _UDP, _ICMP(V6), or 0: none of their fields */
	__u32 first;    /* a first fragment: it has the ports */
	__u32 sum;      /* of the layer 4 words and of the pseudo header without addresses */
	__u32 ip_sum;   /* of the IPv4 header's words */
};

struct attack_address {
	__u32 word[4]; /* network order; IPv4 in word[0] */
};

#endif
