// SPDX-License-Identifier: Apache-2.0
/* The packet socket for large segments (sy_large.h). No DPDK: the supervisor of `steelyard run`
 * opens it for other processes. */
#ifndef SY_LARGE_SOCKET_H
#define SY_LARGE_SOCKET_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <unistd.h>

#define SY_LARGE_SEND_BUFFER (4 << 20) /* bytes of segments in the queue of a slow card */

/* Opens the socket of an interface. It receives nothing in any process: a filter that cannot be
 * removed drops all packets. Returns the descriptor, or a negative errno. */
static inline int sy_large_socket(int ifindex)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog all = {.len = 1, .filter = &drop};
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = ifindex};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
	int room = SY_LARGE_SEND_BUFFER;

	if (fd < 0)
		return -errno;
	/* if this is refused, the default limit will do */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof(all)) ||
	    setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at))) {
		int code = errno;
		close(fd);
		return -code;
	}
	return fd;
}

#endif
