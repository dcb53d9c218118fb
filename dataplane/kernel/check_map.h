// SPDX-License-Identifier: Apache-2.0
/* Definitions that the checks' BPF programs and their loader share. */
#ifndef KERNEL_CHECK_MAP_H
#define KERNEL_CHECK_MAP_H

#include <linux/types.h>

#define CHECK_TARGETS 131072
#define CHECK_VIPS    16384
#define CHECK_LO      1 /* ifindex of lo, in every namespace */
/* The highest byte of all marks of the forwarder; other programs use others. */
#define CHECK_MARK_KIND 0x53

/* Target of packets with a mark: the map's value, by mark. Addresses as in struct sy_addr. */
struct check_target {
	__u32 vip[4];
	__u32 server[4];
	__u32 source[4]; /* of the tunnel; all zero: no tunnel, the packet is sent as it is */
	__u32 ifindex;   /* interface to the server; 0: none */
};

#endif
