// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "link_chance.h"
#include "link_frame.h"

enum {
	TYPE_IPV4 = 0x0800,
	TYPE_VLAN = 0x8100,
	TYPE_IPV6 = 0x86dd,
	TYPE_QINQ = 0x88a8,
	IPV4_MIN = 20,
	IPV6_LENGTH = 40,
	PROTO_ICMP = 1,
	PROTO_IGMP = 2,
	PROTO_ICMPV6 = 58,
	HOP_OPTIONS = 0,
	DONT_FRAGMENT = 0x4000,
	MORE_FRAGMENTS = 0x2000,
	OFFSET_MASK = 0x1fff,
	ICMP_UNREACHABLE = 3,
	ICMP_NEEDS_FRAGMENTATION = 4,
	ICMPV6_TOO_BIG = 2,
	ICMPV6_INFORMATION = 128, /* the first type that is no error */
	ICMP_HEADER = 8,
	IPV4_ANSWER = 576, /* RFC 1812 section 4.3.2.3: the longest answer */
	IPV6_ANSWER = 1280,
	TTL = 64,
};

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static void put16(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

/* The Internet checksum (RFC 1071), continuing an earlier sum. */
static uint32_t sum(const uint8_t *at, uint32_t length, uint32_t before)
{
	for (; length > 1; at += 2, length -= 2)
		before += get16(at);
	return length ? before + (uint32_t)(at[0] << 8) : before;
}

static uint16_t fold(uint32_t value)
{
	while (value >> 16)
		value = (value & 0xffff) + (value >> 16);
	return (uint16_t)~value;
}

static uint32_t ipv4_header(const uint8_t *ip)
{
	return (ip[0] & 15u) * 4;
}

static void ipv4_sum(uint8_t *ip)
{
	put16(ip + 10, 0);
	put16(ip + 10, fold(sum(ip, ipv4_header(ip), 0)));
}

/* ---- what it is ------------------------------------------------------------------------------ */

static bool is_spared_v6(const uint8_t *ip, uint32_t length)
{
	uint32_t next = ip[6], at = IPV6_LENGTH;
	if (next == HOP_OPTIONS && length >= at + 8) { /* listener reports have one: RFC 2710 */
		next = ip[at];
		at += (ip[at + 1] + 1u) * 8;
	}
	if (next != PROTO_ICMPV6 || length <= at)
		return false;
	uint8_t type = ip[at];
	return (type >= 130 && type <= 137) || type == 143;
}

struct frame frame_look(uint8_t *bytes, uint32_t length)
{
	struct frame f = {.before = FRAME_ETHERNET, .spared = true};
	if (length < FRAME_ETHERNET)
		return (struct frame){.ip = bytes, .length = length, .spared = true};
	uint16_t type = get16(bytes + 12);
	for (int tags = 0; tags < 2 && (type == TYPE_VLAN || type == TYPE_QINQ); tags++) {
		if (length < f.before + 4)
			break;
		type = get16(bytes + f.before + 2);
		f.before += 4;
	}
	f.ip = bytes + f.before;
	f.length = length - f.before;
	if (type == TYPE_IPV4 && f.length >= IPV4_MIN && ipv4_header(f.ip) >= IPV4_MIN &&
	    get16(f.ip + 2) >= ipv4_header(f.ip) && get16(f.ip + 2) <= f.length) {
		f.version = 4;
		f.length = get16(f.ip + 2); /* behind it there may be padding */
		f.spared = f.ip[9] == PROTO_IGMP;
	} else if (type == TYPE_IPV6 && f.length >= IPV6_LENGTH &&
	           get16(f.ip + 4) <= f.length - IPV6_LENGTH) {
		f.version = 6;
		f.length = get16(f.ip + 4) + IPV6_LENGTH;
		f.spared = is_spared_v6(f.ip, f.length);
	}
	return f;
}

/* ---- marks and flipped bits ------------------------------------------------------------------ */

bool frame_mark(const struct frame *f)
{
	if (f->version == 4) {
		if ((f->ip[1] & 3) == 0)
			return false;
		f->ip[1] |= 3;
		ipv4_sum(f->ip);
		return true;
	}
	/* The traffic class lies across two bytes; its low two bits are bits 4 and 5 of the
	 * second. */
	if (f->version != 6 || (f->ip[1] & 0x30) == 0)
		return false;
	f->ip[1] |= 0x30;
	return true;
}

void frame_flip(const struct frame *f, uint64_t draw)
{
	if (f->length == 0)
		return;
	uint64_t bit = chance_below((uint64_t)f->length * 8, draw);
	f->ip[bit / 8] ^= (uint8_t)(1 << bit % 8);
}

/* ---- too large ------------------------------------------------------------------------------- */

bool frame_may_fragment(const struct frame *f)
{
	return f->version == 4 && !(get16(f->ip + 6) & DONT_FRAGMENT) &&
	       f->length > ipv4_header(f->ip);
}

/* Options that are not for every fragment become no operations: the header keeps its length. */
static void options_of_later_fragment(uint8_t *ip)
{
	enum { END = 0, NO_OPERATION = 1, COPIED = 0x80 };
	uint32_t length = ipv4_header(ip);
	for (uint32_t at = IPV4_MIN; at < length && ip[at] != END;) {
		uint32_t size = 1;
		if (ip[at] != NO_OPERATION)
			size = at + 1 < length && ip[at + 1] >= 2 ? ip[at + 1] : length - at;
		if (size > length - at)
			size = length - at;
		if (!(ip[at] & COPIED))
			memset(ip + at, NO_OPERATION, size);
		at += size;
	}
}

uint32_t frame_fragment(const struct frame *f, uint32_t mtu, uint32_t *offset, uint8_t *out)
{
	uint32_t header = ipv4_header(f->ip), data = f->length - header;
	uint32_t size = (mtu - header) & ~7u, left = data - *offset;
	bool last = left <= mtu - header;
	uint16_t word = get16(f->ip + 6);
	uint8_t *ip = out + f->before;

	size = last ? left : size;
	memcpy(out, f->ip - f->before, f->before + header);
	memcpy(ip + header, f->ip + header + *offset, size);
	put16(ip + 2, header + size);
	/* A fragment may be fragmented again: its own offset and flag are kept. */
	put16(ip + 6, ((word & OFFSET_MASK) + *offset / 8) |
	                      (last ? word & MORE_FRAGMENTS : MORE_FRAGMENTS));
	if (*offset)
		options_of_later_fragment(ip);
	ipv4_sum(ip);
	*offset = last ? 0 : *offset + size;
	return f->before + header + size;
}

/* RFC 1812 4.3.2.7: no answer to errors, later fragments and multicast or broadcast packets. */
static bool gets_answer_v4(const struct frame *f)
{
	uint32_t header = ipv4_header(f->ip);
	if (f->ip[16] >= 224 || f->ip[12] >= 224 || (get16(f->ip + 6) & OFFSET_MASK))
		return false;
	if (f->ip[9] != PROTO_ICMP || f->length <= header)
		return true;
	uint8_t type = f->ip[header];
	return type == 0 || type == 8; /* echo */
}

static uint32_t too_big_v4(const struct frame *f, uint32_t mtu, const struct in_addr *router,
                           uint8_t *ip)
{
	if (!gets_answer_v4(f))
		return 0;
	uint32_t max = IPV4_ANSWER - IPV4_MIN - ICMP_HEADER;
	uint32_t quoted = f->length < max ? f->length : max;
	uint32_t length = IPV4_MIN + ICMP_HEADER + quoted;
	uint8_t *icmp = ip + IPV4_MIN;

	memset(ip, 0, IPV4_MIN + ICMP_HEADER);
	ip[0] = 0x45;
	ip[1] = 0xc0; /* network control: RFC 1812 section 4.3.2.5 */
	put16(ip + 2, length);
	ip[8] = TTL;
	ip[9] = PROTO_ICMP;
	memcpy(ip + 12, router, 4);
	memcpy(ip + 16, f->ip + 12, 4);
	ipv4_sum(ip);
	icmp[0] = ICMP_UNREACHABLE;
	icmp[1] = ICMP_NEEDS_FRAGMENTATION;
	put16(icmp + 6, mtu);
	memcpy(icmp + ICMP_HEADER, f->ip, quoted);
	put16(icmp + 2, fold(sum(icmp, ICMP_HEADER + quoted, 0)));
	return length;
}

static uint32_t too_big_v6(const struct frame *f, uint32_t mtu, const struct in6_addr *router,
                           uint8_t *ip)
{
	/* Errors about errors, and to no single sender: RFC 4443 section 2.4 (e). */
	if ((f->ip[6] == PROTO_ICMPV6 && f->length > IPV6_LENGTH &&
	     f->ip[IPV6_LENGTH] < ICMPV6_INFORMATION) ||
	    f->ip[8] == 0xff)
		return 0;
	uint32_t max = IPV6_ANSWER - IPV6_LENGTH - ICMP_HEADER;
	uint32_t quoted = f->length < max ? f->length : max, size = ICMP_HEADER + quoted;
	uint8_t *icmp = ip + IPV6_LENGTH;

	memset(ip, 0, IPV6_LENGTH + ICMP_HEADER);
	ip[0] = 0x60;
	put16(ip + 4, size);
	ip[6] = PROTO_ICMPV6;
	ip[7] = TTL;
	memcpy(ip + 8, router, 16);
	memcpy(ip + 24, f->ip + 8, 16);
	icmp[0] = ICMPV6_TOO_BIG;
	put16(icmp + 6, mtu);
	memcpy(icmp + ICMP_HEADER, f->ip, quoted);
	/* The pseudo-header: addresses, length, next header. */
	put16(icmp + 2, fold(sum(icmp, size, sum(ip + 8, 32, size + PROTO_ICMPV6))));
	return IPV6_LENGTH + size;
}

uint32_t frame_too_big(const struct frame *f, uint32_t mtu, const struct in_addr *router4,
                       const struct in6_addr *router6, uint8_t out[static FRAME_ANSWER])
{
	const uint8_t *ethernet = f->ip - f->before;
	if (f->spared || ethernet[0] & 1) /* to many stations */
		return 0;
	uint32_t length = f->version == 4 ? too_big_v4(f, mtu, router4, out + f->before)
	                                  : too_big_v6(f, mtu, router6, out + f->before);
	if (length == 0)
		return 0;
	memcpy(out, ethernet + 6, 6);
	memcpy(out + 6, ethernet, 6);
	memcpy(out + 12, ethernet + 12, f->before - 12);
	return f->before + length;
}
