// SPDX-License-Identifier: Apache-2.0
/* What the program in the kernel and its loader share. */
#ifndef KERNEL_DIRECTOR_MAP_H
#define KERNEL_DIRECTOR_MAP_H

#include <linux/types.h>

#define DIRECTOR_ADDRESSES 262144
#define DIRECTOR_QUEUES    256
#define DIRECTOR_DATAGRAMS 4096 /* in fragments, of servers that are steered by their source */
#define DIRECTOR_PREFIXES  65536

/* struct sy_source as the program sees it; a destination has neither port nor protocol. */
struct director_key {
	__u32 w[4];
	__u16 port, proto;
	__u32 bits;
};

/* One with bits, as a trie of the kernel has it. */
struct director_prefix {
	__u32 bits;
	__u32 w[4];
};

/* Whose fragments are steered because the first one, which has ports, was. */
struct director_datagram {
	__u32 src[4], dst[4];
	__u32 id; /* as in the packet */
};

/* What the map says of a key. */
enum { DIRECTOR_STEER = 1, DIRECTOR_HOST };

enum {
	DIRECTOR_STEERED,
	DIRECTOR_PASSED,
	DIRECTOR_NO_SOCKET,
	DIRECTOR_VLAN,
	DIRECTOR_TRUNCATED,
	DIRECTOR_TOO_BIG,
	DIRECTOR_COUNTERS
};

struct director_settings {
	__u32 frame_max; /* bytes of the longest frame that the sockets take; 0: any */
	__u32 vlans;     /* not 0: other interfaces lie on this one, for its VLANs */
};

#endif
