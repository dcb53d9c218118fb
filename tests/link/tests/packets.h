// SPDX-License-Identifier: Apache-2.0
/* Frames for the tests. */
#ifndef LINK_PACKETS_H
#define LINK_PACKETS_H

#include <stdint.h>
#include <string.h>

#define ETHERNET 14u
#define ROOM     2048u

static inline void put16(uint8_t *at, unsigned value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline unsigned get16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

/* The sum of a header or message with its checksum; 0: it is right. RFC 1071. */
static inline unsigned summed(const uint8_t *at, unsigned length, unsigned start)
{
	uint32_t sum = start;
	for (unsigned i = 0; i < length; i++)
		sum += i % 2 ? at[i] : (uint32_t)at[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static inline void ethernet(uint8_t *out, unsigned type)
{
	static const uint8_t addresses[] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
	memcpy(out, addresses, 12);
	put16(out + 12, type);
}

/* UDP from 10.0.0.1 to 10.0.0.2, with `length` bytes of IP packet and ascending data. */
static inline uint32_t packet_v4(uint8_t *out, unsigned length, unsigned flags, unsigned options)
{
	uint8_t *ip = out + ETHERNET;
	unsigned header = 20 + options;
	ethernet(out, 0x0800);
	memset(ip, 0, header);
	ip[0] = (uint8_t)(0x40 | header / 4);
	put16(ip + 2, length);
	put16(ip + 4, 0x1234);
	put16(ip + 6, flags);
	ip[8] = 64;
	ip[9] = 17;
	memcpy(ip + 12, "\x0a\0\0\1\x0a\0\0\2", 8);
	for (unsigned i = 0; i < length - header; i++)
		ip[header + i] = (uint8_t)i;
	put16(ip + 10, summed(ip, header, 0));
	return ETHERNET + length;
}

/* The same from fd00::1 to fd00::2. */
static inline uint32_t packet_v6(uint8_t *out, unsigned length, unsigned next)
{
	uint8_t *ip = out + ETHERNET;
	ethernet(out, 0x86dd);
	memset(ip, 0, 40);
	ip[0] = 0x60;
	put16(ip + 4, length - 40);
	ip[6] = (uint8_t)next;
	ip[7] = 64;
	ip[8] = ip[24] = 0xfd;
	ip[23] = 1;
	ip[39] = 2;
	for (unsigned i = 0; i < length - 40; i++)
		ip[40 + i] = (uint8_t)i;
	return ETHERNET + length;
}

#endif
