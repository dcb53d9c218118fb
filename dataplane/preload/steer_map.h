/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the keeper and its XDP program share. */
#ifndef STEER_MAP_H
#define STEER_MAP_H

#include <linux/types.h>

#define STEER_QUEUES 64
#define STEER_SERVED 4096
#define STEER_LOCAL  64

/* The value is a mask of queues whose worker has closed its listener, while another process waits
 * for the queue (a reload): SYNs are dropped there and come again, rather than being refused. */

/* An address and port where a server listens. IPv4 as ::ffff:a.b.c.d. */
struct steer_key {
	__u32 addr[4];
	__u16 port; /* network order */
	__u16 zero;
};

/* Ports for connections that are opened here, host order. */
struct steer_ports {
	__u16 first, last;
};

#endif
