// SPDX-License-Identifier: Apache-2.0
/* Skips IPv6 extension headers where nothing needs to be checked. */
#ifndef EXTENSION_H
#define EXTENSION_H

#include <sy_packet.h>

/* By number (IANA). */
enum {
	EXT_HOP_BY_HOP = 0,
	EXT_ROUTING = 43,
	EXT_FRAGMENT = 44,
	EXT_ESP = 50,
	EXT_AUTHENTICATION = 51,
	EXT_DESTINATION = 60,
	EXT_MOBILITY = 135,
	EXT_HIP = 139,
	EXT_SHIM6 = 140,
};

#define EXT_UNIT 8 /* unit of their lengths, in bytes */
#define EXT_MAX  8 /* headers in one packet; RFC 8200 4.1 recommends an order of six */

struct ipv6_fragment {
	uint8_t next, reserved;
	uint16_t place; /* offset in bytes, low bit: more */
	uint32_t id;
} __attribute__((packed, may_alias));

struct extensions {
	uint16_t len;      /* of all skipped headers */
	uint16_t fragment; /* offset of the fragment header in them; UINT16_MAX: none */
	uint8_t next;      /* protocol of the header after them */
};

/* Skips the extension headers at p, of which len bytes are present; first: type of the first one.
 * Stops before another header, a header that is not all present, and after the fragment header of a
 * later fragment. */
static inline struct extensions extensions_skip(const uint8_t *p, uint32_t len, uint8_t first)
{
	struct extensions e = {.fragment = UINT16_MAX, .next = first};

	for (unsigned n = 0; n < EXT_MAX && len >= (uint32_t)e.len + EXT_UNIT; n++) {
		const uint8_t *ext = p + e.len;
		uint32_t size = EXT_UNIT;
		if (e.next == EXT_FRAGMENT) {
			e.fragment = e.len;
			n = (ext[2] | (ext[3] & 0xf8)) ? EXT_MAX
			                               : n; /* a later fragment has no more */
		} else if (e.next == EXT_HOP_BY_HOP || e.next == EXT_ROUTING ||
		           e.next == EXT_DESTINATION) {
			size = (ext[1] + 1u) * EXT_UNIT;
		} else {
			break;
		}
		if (size > len - e.len)
			break;
		e.next = ext[0];
		e.len = (uint16_t)(e.len + size);
	}
	return e;
}

#endif
