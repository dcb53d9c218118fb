/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Maps shared by the supervisor and its XDP program. */
#ifndef STEER_MAP_H
#define STEER_MAP_H

#include <linux/types.h>

#define STEER_QUEUES 64
#define STEER_SERVED 4096
#define STEER_LOCAL  64

#define STEER_FRAGMENTS 4096
#define STEER_REUSED    32768

/* An address and port where a server listens. IPv4 as ::ffff:a.b.c.d. */
struct steer_key {
	__u32 addr[4];
	__u16 port; /* network order */
	__u16 zero;
};

/* A SYN goes to the stack if its queue's worker listens on this port, otherwise to Linux's
 * listener. All other segments go to the stack, except those of Linux's connections. */
struct steer_port {
	__u64 stack;  /* bitmap of queues whose worker listens */
	__u32 shared; /* Linux may have connections on this port: look up each segment */
	__u32 zero;
};

/* A fragmented datagram whose first fragment went to the stack. IPv4 as ::ffff:a.b.c.d. */
struct steer_fragment {
	__u32 src[4], dst[4];
	__u32 id; /* as on the wire */
};

/* Range of local ports that the stack uses for connect(), host order. */
struct steer_ports {
	__u16 first, last;
};

#endif
