// SPDX-License-Identifier: Apache-2.0
/*
 * AF_XDP sockets and the memory for their packets (docs/design/0060-what-the-parent-hands-out.md).
 * A worker may have dropped its privileges, and its limit of locked memory is a user's: so the
 * supervisor opens and binds the sockets and locks the memory. The worker maps both.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sy_large_socket.h>
#include <sy_xsk.h>

#include "supervisor.h"

#define HUGE_PAGE   (UINT64_C(2) << 20)
#define BUFFER_MORE 256u /* of a buffer, in addition to its chunk */

/* Linux maps the rings of bound sockets since 6.4. */
static bool can_bind = true;

/* ---- memory ---------------------------------------------------------------------------------- */

/* Creates memory that can be truncated, but not grown or sealed again by any process. */
static int memory_create(uint64_t bytes, unsigned huge)
{
	int fd = memfd_create("steelyard-packets", MFD_CLOEXEC | MFD_ALLOW_SEALING | huge);

	if (fd >= 0 &&
	    (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void *memory_map(int fd, uint64_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
}

/* Creates memory that both sides can map; of huge pages, if there are any. */
static void *memory_make(struct packets *p, uint64_t bytes)
{
	for (unsigned huge = MFD_HUGETLB;; huge = 0) {
		p->memory = memory_create(bytes, huge);
		void *at = p->memory < 0 ? MAP_FAILED : memory_map(p->memory, bytes);
		if (at != MAP_FAILED || !huge)
			return at;
		close(p->memory);
		p->memory = -1;
	}
}

/* ---- sockets --------------------------------------------------------------------------------- */

static int socket_open(int *out, void *memory, const struct message_answer *a)
{
	struct xdp_umem_reg umem = {.addr = (uintptr_t)memory,
	                            .len = a->memory_bytes,
	                            .chunk_size = a->chunk_bytes,
	                            .flags = XDP_UMEM_UNALIGNED_CHUNK_FLAG};
	const uint32_t tx = MESSAGE_TX_RING;
	const struct {
		int ring;
		const uint32_t *size;
	} rings[] = {{XDP_UMEM_FILL_RING, &a->ring},
	             {XDP_RX_RING, &a->ring},
	             {XDP_UMEM_COMPLETION_RING, &tx},
	             {XDP_TX_RING, &tx}};
	int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);

	*out = fd;
	if (fd < 0 || setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof(umem)))
		return -errno;
	for (unsigned i = 0; i < sizeof(rings) / sizeof(*rings); i++)
		if (setsockopt(fd, SOL_XDP, rings[i].ring, rings[i].size, sizeof(uint32_t)))
			return -errno;
	return 0;
}

static int sockets_open(struct packets *p, void *memory, const struct message_answer *a)
{
	int rc = 0;

	while (p->sockets < a->queues && !rc)
		rc = socket_open(&p->xsk[p->sockets++], memory, a);
	return rc;
}

static void sockets_close(struct packets *p)
{
	while (p->sockets > 0)
		if (p->xsk[--p->sockets] >= 0)
			close(p->xsk[p->sockets]);
	p->bound = 0;
}

static bool is_mappable(int fd)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *at = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, (off_t)XDP_UMEM_PGOFF_FILL_RING);

	if (at == MAP_FAILED)
		return errno != EBUSY;
	munmap(at, page);
	return true;
}

/* Replaces the sockets by unbound ones, which the worker binds. */
static int sockets_unbind(struct packets *p, const struct message_answer *a)
{
	sy_log(SY_LOG_WARN, "run",
	       "Linux before 6.4 does not map the rings of bound AF_XDP sockets: workers bind "
	       "theirs themselves, and can bind them to other interfaces");
	can_bind = false;
	sockets_close(p);
	void *memory = memory_map(p->memory, a->memory_bytes);
	if (memory == MAP_FAILED)
		return -errno;
	int rc = sockets_open(p, memory, a);
	munmap(memory, a->memory_bytes);
	return rc;
}

int packets_bind(struct packets *p, struct message_answer *a)
{
	for (; can_bind && p->bound < p->sockets; p->bound++) {
		int rc = sy_xsk_bind(p->xsk[p->bound], a->ifindex, a->queue[p->bound], bind);
		if (rc)
			return rc;
		if (!is_mappable(p->xsk[p->bound])) {
			rc = sockets_unbind(p, a);
			if (rc)
				return rc;
			break;
		}
	}
	a->bound = can_bind;
	return 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

int packets_open(struct packets *p, struct message_answer *a)
{
	/* For the rings of each queue, half as many again for waiting packets, and some for the
	 * stack. */
	uint64_t min;

	a->chunk_bytes = a->mtu <= sy_xsk_mtu_max(SY_XSK_SMALL_CHUNK) ? SY_XSK_SMALL_CHUNK
	                                                              : SY_XSK_LARGE_CHUNK;
	min = (a->queues * (a->ring + a->ring / 2) + 1024ul) * (a->chunk_bytes + BUFFER_MORE);
	a->memory_bytes = (uint64_t)a->memory_mb << 20;
	a->memory_bytes = ((a->memory_bytes > min ? a->memory_bytes : min) + HUGE_PAGE - 1) &
	                  ~(HUGE_PAGE - 1);
	p->large = -1;
	void *memory = memory_make(p, a->memory_bytes);
	if (memory == MAP_FAILED) {
		packets_release(p);
		return -ENOMEM;
	}
	int rc = sockets_open(p, memory, a);
	munmap(memory, a->memory_bytes);
	if (!rc && a->large) {
		p->large = sy_large_socket(a->ifindex);
		rc = p->large < 0 ? p->large : 0;
	}
	if (rc)
		packets_release(p);
	return rc;
}

void packets_close(struct packets *p)
{
	sockets_close(p);
	if (p->large >= 0)
		close(p->large);
	p->large = -1;
}

void packets_release(struct packets *p)
{
	packets_close(p);
	if (p->memory < 0)
		return;
	if (ftruncate(p->memory, 0))
		sy_log(SY_LOG_ERROR, "run", "a worker's memory for packets is not freed: %s",
		       strerror(errno));
	close(p->memory);
	p->memory = -1;
}
