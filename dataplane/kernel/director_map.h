// SPDX-License-Identifier: Apache-2.0
/* What the program in the kernel and its loader share. */
#ifndef KERNEL_DIRECTOR_MAP_H
#define KERNEL_DIRECTOR_MAP_H

#include <linux/types.h>

#define DIRECTOR_ADDRESSES 262144
#define DIRECTOR_QUEUES    256

/* struct sy_source as the program sees it; a destination has neither port nor protocol. */
struct director_key {
	__u32 w[4];
	__u16 port, proto;
	__u32 zero;
};

/* What the map says of a key. */
enum { DIRECTOR_STEER = 1, DIRECTOR_HOST };

enum { DIRECTOR_STEERED, DIRECTOR_PASSED, DIRECTOR_NO_SOCKET, DIRECTOR_COUNTERS };

#endif
