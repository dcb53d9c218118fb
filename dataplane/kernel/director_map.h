// SPDX-License-Identifier: Apache-2.0
/* What the program in the kernel and its loader share. */
#ifndef KERNEL_DIRECTOR_MAP_H
#define KERNEL_DIRECTOR_MAP_H

#include <linux/types.h>

#define DIRECTOR_ADDRESSES 262144
#define DIRECTOR_QUEUES    256

/* struct sy_addr as the program sees it. */
struct director_key {
	__u32 w[4];
};

enum { DIRECTOR_STEERED, DIRECTOR_PASSED, DIRECTOR_NO_SOCKET, DIRECTOR_COUNTERS };

#endif
