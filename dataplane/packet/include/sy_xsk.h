// SPDX-License-Identifier: Apache-2.0
/*
 * AF_XDP sockets: which frames fit a chunk, binding, statistics. No DPDK and no libxdp: the
 * supervisor of `steelyard run` opens sockets for other processes.
 *
 * System calls are parameters. The preloaded library replaces the C library's functions of these
 * names, and passes the originals.
 */
#ifndef SY_XSK_H
#define SY_XSK_H

#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <stdint.h>
#include <sys/socket.h>

#define SY_XSK_LINK_BYTES  64u /* Ethernet header, two VLAN tags and their like */
#define SY_XSK_SMALL_CHUNK 2048u
#define SY_XSK_LARGE_CHUNK 4096u

/* The largest MTU whose frames fit a chunk of this size. */
static inline unsigned sy_xsk_mtu_max(unsigned chunk_bytes)
{
	return chunk_bytes - SY_XSK_LINK_BYTES - XDP_PACKET_HEADROOM;
}

/* Binds a socket to a queue. Returns 0 or a negative errno; -EBUSY: another socket has the queue.
 */
static inline int sy_xsk_bind(int fd, int ifindex, unsigned queue, __typeof__(&bind) bind_call)
{
	struct sockaddr_xdp to = {.sxdp_family = AF_XDP,
	                          .sxdp_flags = XDP_USE_NEED_WAKEUP,
	                          .sxdp_ifindex = (uint32_t)ifindex,
	                          .sxdp_queue_id = queue};
	int rc = bind_call(fd, (void *)&to, sizeof(to)) ? -errno : 0;

	if (rc != -EOPNOTSUPP)
		return rc;
	to.sxdp_flags |= XDP_COPY; /* zero copy needs huge pages */
	return bind_call(fd, (void *)&to, sizeof(to)) ? -errno : 0;
}

/* Packets that arrived while the receive ring was full or had no buffer. */
static inline uint64_t sy_xsk_missed(int fd, __typeof__(&getsockopt) getsockopt_call)
{
	struct xdp_statistics s = {0};
	socklen_t len = sizeof(s);

	if (getsockopt_call(fd, SOL_XDP, XDP_STATISTICS, &s, &len))
		return 0;
	return s.rx_dropped + s.rx_ring_full;
}

#endif
