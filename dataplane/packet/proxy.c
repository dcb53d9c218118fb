// SPDX-License-Identifier: Apache-2.0
/* Headers of the PROXY protocol (haproxy.org, proxy-protocol.txt, sections 2.1 and 2.2). */
#include <arpa/inet.h>
#include <stdio.h>
#include <sy_tcp_segment.h>

/*
 *   signature (12) │ version, command │ family, transport │ length of the rest (2)
 *   source address │ destination address │ source port (2) │ destination port (2)
 */
struct proxy_v2 {
	uint8_t signature[12];
	uint8_t version_command, family_transport;
	uint16_t length;
	uint8_t rest[36];
} __attribute__((packed));

enum { LOCAL = 0x20, PROXY = 0x21, INET = 0x10, INET6 = 0x20, STREAM = 1, DGRAM = 2 };

static bool both_v4(const struct sy_tuple *t)
{
	return sy_addr_is_v4(&t->src) && sy_addr_is_v4(&t->dst);
}

uint32_t sy_proxy_v1(uint8_t out[static SY_PROXY_V1_MAX], const struct sy_tuple *t)
{
	static const char unknown[] = "PROXY UNKNOWN\r\n";
	char text[SY_PROXY_V1_MAX + 1], src[SY_ADDR_TEXT], dst[SY_ADDR_TEXT];
	int len;

	if (!t) {
		memcpy(out, unknown, sizeof(unknown) - 1);
		return sizeof(unknown) - 1;
	}
	len = snprintf(text, sizeof(text), "PROXY %s %s %s %u %u\r\n", both_v4(t) ? "TCP4" : "TCP6",
	               sy_addr_format(&t->src, src), sy_addr_format(&t->dst, dst), ntohs(t->sport),
	               ntohs(t->dport));
	memcpy(out, text, (size_t)len);
	return (uint32_t)len;
}

uint32_t sy_proxy_v2(uint8_t out[static SY_PROXY_V2_MAX], const struct sy_tuple *t)
{
	struct proxy_v2 header = {
	        .signature = {0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54,
	                      0x0a},
	        .version_command = LOCAL,
	};
	uint8_t *at = header.rest;

	if (t) {
		size_t size = both_v4(t) ? 4 : 16;
		header.version_command = PROXY;
		header.family_transport = (uint8_t)((size == 4 ? INET : INET6) |
		                                    (t->proto == SY_PROTO_UDP ? DGRAM : STREAM));
		memcpy(at, t->src.b + 16 - size, size);
		memcpy(at + size, t->dst.b + 16 - size, size);
		memcpy(at + 2 * size, &t->sport, 2);
		memcpy(at + 2 * size + 2, &t->dport, 2);
		at += 2 * size + 4;
	}
	header.length = htons((uint16_t)(at - header.rest));
	memcpy(out, &header, (size_t)(at - (uint8_t *)&header));
	return (uint32_t)(at - (uint8_t *)&header);
}
