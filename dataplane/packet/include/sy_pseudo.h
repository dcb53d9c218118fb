// SPDX-License-Identifier: Apache-2.0
#ifndef SY_PSEUDO_H
#define SY_PSEUDO_H

#include <arpa/inet.h>
#include <sy_packet.h>

/* Sum of an address as it appears in a header, not folded; one 32-bit word for IPv4. */
static inline uint64_t sy_pseudo_addr(const struct sy_addr *a)
{
	if (sy_addr_is_v4(a))
		return a->w[3];
	return (uint64_t)a->w[0] + a->w[1] + a->w[2] + a->w[3];
}

/* Sum of the pseudo header (RFC 9293 3.1, RFC 8200 8.1); len: transport header and payload. */
static inline uint64_t sy_pseudo_sum(const struct sy_addr *src, const struct sy_addr *dst,
                                     uint8_t proto, uint16_t len)
{
	return sy_pseudo_addr(src) + sy_pseudo_addr(dst) + htons(proto) + htons(len);
}

#endif
