// SPDX-License-Identifier: Apache-2.0
/*
 * AF_XDP sockets and the memory for their packets. A worker of the program may have dropped its
 * privileges, and its limit of locked memory is a user's: so the sockets are opened here, and the
 * memory is locked here. The worker maps it, makes the rings, and binds.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper.h"

#define SMALL_ROOM  2048u
#define LARGE_ROOM  4096u
#define HEADROOM    256u /* XDP_PACKET_HEADROOM */
#define LINK_ROOM   64u  /* Ethernet header, tags */
#define HUGE_PAGE   (UINT64_C(2) << 20)
#define BUFFER_MORE 256u      /* of a buffer, beside its room */
#define SEND_BUFFER (4 << 20) /* large segments in the queue of a slow card */

/* Memory that both sides can map; of huge pages, if there are. */
static void *memory_make(struct packets *p, uint64_t bytes)
{
	for (unsigned huge = MFD_HUGETLB;; huge = 0) {
		p->memory = memfd_create("steelyard-packets", MFD_CLOEXEC | huge);
		void *at = MAP_FAILED;
		if (p->memory >= 0 && ftruncate(p->memory, (off_t)bytes) == 0)
			at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			          p->memory, 0);
		if (at != MAP_FAILED || !huge)
			return at;
		close(p->memory);
		p->memory = -1;
	}
}

static int socket_open(int *out, void *memory, const struct message_answer *a)
{
	struct xdp_umem_reg umem = {.addr = (uintptr_t)memory,
	                            .len = a->bytes,
	                            .chunk_size = a->room,
	                            .flags = XDP_UMEM_UNALIGNED_CHUNK_FLAG};
	int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);

	*out = fd;
	return fd < 0 || setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof(umem)) ? -errno : 0;
}

/* Takes large segments whole (sy_large.h). It receives nothing, whatever a worker does with it: a
 * filter that cannot be taken off drops all. */
static int large_open(int *out, const struct message_answer *a)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog all = {.len = 1, .filter = &drop};
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = a->ifindex};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
	int room = SEND_BUFFER;

	*out = fd;
	if (fd < 0)
		return -errno;
	/* Where it is refused, the limit of all sockets is fine as well. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof(all)) ||
	    setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &one, sizeof(one)) ||
	    setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at)))
		return -errno;
	return 0;
}

int packets_open(struct packets *p, struct message_answer *a)
{
	/* The rings of each queue, half as many again for what waits, and some for the stack. */
	uint64_t least;

	a->room = a->mtu + LINK_ROOM + HEADROOM <= SMALL_ROOM ? SMALL_ROOM : LARGE_ROOM;
	least = (a->queues * (MESSAGE_RING + MESSAGE_RING / 2) + 1024ul) * (a->room + BUFFER_MORE);
	a->bytes = (uint64_t)a->memory_mb << 20;
	a->bytes = ((a->bytes > least ? a->bytes : least) + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	void *memory = memory_make(p, a->bytes);
	if (memory == MAP_FAILED) {
		if (p->memory >= 0)
			close(p->memory);
		p->memory = -1;
		return -ENOMEM;
	}
	int rc = 0;
	p->large = -1;
	while (p->sockets < a->queues && !rc)
		rc = socket_open(&p->xsk[p->sockets++], memory, a);
	munmap(memory, a->bytes);
	if (!rc && a->large)
		rc = large_open(&p->large, a);
	if (rc)
		packets_drop(p);
	return rc;
}

void packets_drop(struct packets *p)
{
	if (!p->sockets)
		return;
	while (p->sockets > 0)
		if (p->xsk[--p->sockets] >= 0)
			close(p->xsk[p->sockets]);
	close(p->memory);
	p->memory = -1;
	if (p->large >= 0)
		close(p->large);
	p->large = -1;
}
