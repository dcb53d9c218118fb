// SPDX-License-Identifier: Apache-2.0
/*
 * AF_XDP sockets and the memory for their packets. A worker of the program may have dropped its
 * privileges, and its limit of locked memory is a user's: so the sockets are opened here, and the
 * memory is locked here. The worker maps it, makes the rings, and binds.
 */
#include <errno.h>
#include <linux/if_xdp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sy_large_socket.h>

#include "keeper.h"

#define SMALL_ROOM  2048u
#define LARGE_ROOM  4096u
#define HEADROOM    256u /* XDP_PACKET_HEADROOM */
#define LINK_ROOM   64u  /* Ethernet header, tags */
#define HUGE_PAGE   (UINT64_C(2) << 20)
#define BUFFER_MORE 256u /* of a buffer, beside its room */

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

int packets_open(struct packets *p, struct message_answer *a)
{
	/* The rings of each queue, half as many again for what waits, and some for the stack. */
	uint64_t least;

	a->room = a->mtu + LINK_ROOM + HEADROOM <= SMALL_ROOM ? SMALL_ROOM : LARGE_ROOM;
	least = (a->queues * (a->ring + a->ring / 2) + 1024ul) * (a->room + BUFFER_MORE);
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
	if (!rc && a->large) {
		p->large = sy_large_socket(a->ifindex);
		rc = p->large < 0 ? p->large : 0;
	}
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
