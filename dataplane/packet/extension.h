// SPDX-License-Identifier: Apache-2.0
/* IPv6 extension headers, stepped over where nothing needs to be checked. */
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

#define EXT_UNIT 8 /* bytes that their lengths count in */
#define EXT_MAX  8 /* headers of one packet; RFC 8200 4.1 has a place for six */

struct ipv6_fragment {
	uint8_t next, reserved;
	uint16_t place; /* offset in bytes, low bit: more */
	uint32_t id;
} __attribute__((packed, may_alias));

struct extensions {
	uint16_t len; /* of all headers stepped over */
	uint16_t
	        fragment; /* where the fragment header begins among them; without one, UINT16_MAX */
	uint8_t next;     /* what follows them */
};

/* Steps over the headers at p, of which len bytes are there; first: what the first one is. Ends in
 * front of what is no such header, lies behind a later fragment's header, or is not there. */
static inline struct extensions extensions_skip(const uint8_t *p, uint32_t len, uint8_t first)
{
	struct extensions e = {.fragment = UINT16_MAX, .next = first};

	for (unsigned n = 0; n < EXT_MAX && len >= (uint32_t)e.len + EXT_UNIT; n++) {
		const uint8_t *ext = p + e.len;
		uint32_t size = EXT_UNIT;
		if (e.next == EXT_FRAGMENT) {
			e.fragment = e.len;
			n = (ext[2] | (ext[3] & 0xf8)) ? EXT_MAX : n; /* the rest is elsewhere */
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
