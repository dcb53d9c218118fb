// SPDX-License-Identifier: Apache-2.0
/* Definitions that the BPF program and its loader share. */
#ifndef KERNEL_DIRECTOR_MAP_H
#define KERNEL_DIRECTOR_MAP_H

#include <linux/types.h>

#define DIRECTOR_ADDRESSES 262144
#define DIRECTOR_QUEUES    256
#define DIRECTOR_DATAGRAMS 4096 /* fragmented datagrams of servers that are steered by source */
#define DIRECTOR_PREFIXES  65536

/* struct sy_source as the program sees it; a destination has neither port nor protocol. */
struct director_key {
	__u32 w[4];
	__u16 port, proto;
	__u32 bits;
};

/* A network, in the format of the kernel's trie. */
struct director_prefix {
	__u32 bits;
	__u32 w[4];
};

/* A datagram whose later fragments are steered because the first one, which has ports, was. */
struct director_datagram {
	__u32 src[4], dst[4];
	__u32 id; /* as in the packet */
};

/* Ports first to last, host order, of one protocol. */
struct director_ports {
	__u16 first, last, proto;
};

enum { DIRECTOR_STEER = 1, DIRECTOR_HOST, DIRECTOR_VIP };
#define DIRECTOR_RANGES 10

/* A value of the map `steered`: what the address is. Of a VIP whole TCP and UDP packets to other
 * ports than these are dropped: they have no service. */
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
	DIRECTOR_COUNTERS
};
/* Size of the map `counters`: new counters keep its form, so that it is adopted. */
#define DIRECTOR_COUNTER_SLOTS 64
_Static_assert(DIRECTOR_COUNTERS <= DIRECTOR_COUNTER_SLOTS, "each has a slot");

struct director_settings {
	__u32 frame_max; /* length of the longest frame that the sockets accept; 0: any */
	__u32 vlans;     /* not 0: this interface has VLAN interfaces */
};

#endif
