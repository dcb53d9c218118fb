// SPDX-License-Identifier: Apache-2.0
/* ICMP numbers, and helpers for the files that build ICMP messages. */
#ifndef ICMP_H
#define ICMP_H

#include <sy_pseudo.h>

#define ICMP_TTL       64 /* of packets that we make: RFC 1700's default */
#define IPV4_DF        0x4000
#define IPV4_ERROR_MAX 576  /* RFC 1812 4.3.2.3: bytes of IP packet */
#define IPV6_ERROR_MAX 1280 /* RFC 4443 2.4(c) */
#define IPV6_VERSION   0x60000000

enum {
	ICMP_ECHO_REPLY = 0,
	ICMP_UNREACHABLE = 3,
	ICMP_SOURCE_QUENCH = 4,
	ICMP_REDIRECT = 5,
	ICMP_ECHO = 8,
	ICMP_TIME_EXCEEDED = 11,
	ICMP_PARAMETER_PROBLEM = 12,
};

/* Codes of "unreachable". */
enum {
	ICMP_CODE_HOST = 1,
	ICMP_CODE_PROTOCOL = 2,
	ICMP_CODE_PORT = 3,
	ICMP_CODE_FRAGMENTATION_NEEDED = 4,
	ICMP_CODE_PROHIBITED = 13,
};

enum {
	ICMPV6_UNREACHABLE = 1,
	ICMPV6_TOO_BIG = 2,
	ICMPV6_TIME_EXCEEDED = 3,
	ICMPV6_PARAMETER_PROBLEM = 4,
	ICMPV6_ERROR_LAST = 127,
	ICMPV6_ECHO = 128,
	ICMPV6_ECHO_REPLY = 129,
	ICMPV6_REDIRECT = 137,
};

/* Codes of "unreachable". */
enum {
	ICMPV6_CODE_NO_ROUTE = 0,
	ICMPV6_CODE_PROHIBITED = 1,
	ICMPV6_CODE_ADDRESS = 3,
	ICMPV6_CODE_PORT = 4,
};

/* The checksum covers options too. */
static inline void ipv4_checksum_set(struct sy_ipv4 *ip)
{
	ip->checksum = 0;
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, (ip->version_ihl & 0xfu) << 2));
}

/* Writes the Ethernet type and IP header of an error; len: ICMP header and quotation. Returns the
 * place of the ICMP header. */
uint8_t *icmp_head_fill(uint8_t *frame, const struct sy_addr *src, const struct sy_addr *dst,
                        uint16_t len);
/* Computes the ICMP checksum; call it last. */
void icmp_finish(struct sy_icmp *icmp, const struct sy_addr *src, const struct sy_addr *dst,
                 uint16_t len);

#endif
