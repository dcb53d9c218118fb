// SPDX-License-Identifier: Apache-2.0
/* Definitions that the BPF program and its loader share. */
#ifndef KERNEL_DIRECTOR_MAP_H
#define KERNEL_DIRECTOR_MAP_H

#include <linux/types.h>

#define DIRECTOR_ADDRESSES 262144
#define DIRECTOR_QUEUES    256
#define DIRECTOR_DATAGRAMS                                                                         \
	4096 /* entries for fragmented datagrams of servers that are steered by source */
#define DIRECTOR_PREFIXES 65536

/* struct sy_source for the program; a destination has neither port nor protocol. */
struct director_key {
	__u32 w[4];
	__u16 port, proto;
	__u32 bits;
};

/* A network as a key of the kernel's LPM trie. */
struct director_prefix {
	__u32 bits;
	__u32 w[4];
};

/* A datagram whose first fragment, which has ports, was steered: later fragments follow it. */
struct director_datagram {
	__u32 src[4], dst[4];
	__u32 id; /* as in the packet */
};

/* Ports first to last, host order, of one protocol. */
struct director_ports {
	__u16 first, last, proto;
};

/* Blocked sources. IPv4: two bits per /24, and a hash of addresses for the /24s marked "some".
 * IPv6: a bit per hash of the first 48 bits, and a trie that decides if it is set; shorter prefixes
 * have a trie of their own. */
#define DIRECTOR_BLOCK_WORDS 524288  /* of 64 bits in each of the two bitmaps */
#define DIRECTOR_BLOCK_HOSTS 1048576 /* IPv4 addresses */
#define DIRECTOR_BLOCK_LONG  262144  /* IPv6 prefixes of at least 48 bits */
#define DIRECTOR_BLOCK_SHORT 4096
enum { DIRECTOR_BLOCK_NONE, DIRECTOR_BLOCK_ALL, DIRECTOR_BLOCK_SOME };
/* Values of director_settings.block; 0: nothing. */
enum { DIRECTOR_BLOCK_SYNS = 1, DIRECTOR_BLOCK_PACKETS };

/* The bit of 48 bits of an IPv6 address. */
static inline __u32 director_block_bit(const __u8 *address)
{
	__u64 bits = 0;

	for (int i = 0; i < 6; i++)
		bits = bits << 8 | address[i];
	return (__u32)(bits * 0x9e3779b97f4a7c15ull >> 39);
}

enum { DIRECTOR_STEER = 1, DIRECTOR_HOST, DIRECTOR_VIP };
#define DIRECTOR_RANGES 10

/* A value of the map `steered`: the kind of address. For a VIP, whole TCP and UDP packets to ports
 * without a service are dropped. */
struct director_address {
	__u8 kind, count;
	__u16 zero;
	struct director_ports ports[DIRECTOR_RANGES];
};
_Static_assert(sizeof(struct director_address) == 64, "one cache line");

enum {
	DIRECTOR_STEERED,
	DIRECTOR_PASSED,
	DIRECTOR_NO_SOCKET,
	DIRECTOR_VLAN,
	DIRECTOR_TRUNCATED,
	DIRECTOR_TOO_BIG,
	DIRECTOR_NO_SERVICE,
	DIRECTOR_BLOCKED,
	DIRECTOR_COUNTERS
};
/* Size of the map `counters`: fixed, so that new counters do not prevent its adoption. */
#define DIRECTOR_COUNTER_SLOTS 64
_Static_assert(DIRECTOR_COUNTERS <= DIRECTOR_COUNTER_SLOTS, "each has a slot");

struct director_settings {
	__u32 frame_max; /* length of the longest frame that the sockets accept; 0: any */
	__u32 vlans;     /* not 0: this interface has VLAN interfaces */
	__u32 block;     /* which packets of blocked sources are dropped: below */
	__u32 short6;    /* not 0: there are blocked IPv6 prefixes shorter than /48 */
};

#endif
