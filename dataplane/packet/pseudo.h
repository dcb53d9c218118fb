// SPDX-License-Identifier: Apache-2.0
#ifndef PSEUDO_H
#define PSEUDO_H

#include <arpa/inet.h>
#include <sy_packet.h>

/* Sum of the pseudo header (RFC 9293 3.1, RFC 8200 8.1); len: transport header and payload. */
static inline uint64_t pseudo_sum(const struct sy_addr *src, const struct sy_addr *dst,
                                  uint8_t proto, uint16_t len)
{
	return (uint64_t)sy_csum_addr(src) + sy_csum_addr(dst) + htons(proto) + htons(len);
}

#endif
