// SPDX-License-Identifier: Apache-2.0
/* The AF_XDP socket of a queue, with its UMEM: chunk layout, opening, binding, closing. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "port_xsk.h"

#define RETRY_US 1000
_Static_assert(PORT_XSK_MTU_MAX + SY_XSK_LINK_BYTES + XDP_PACKET_HEADROOM <= SY_XSK_LARGE_CHUNK,
               "fits its chunk");

unsigned port_xsk_frame_max(unsigned mtu)
{
	if (mtu <= port_xsk_mtu_max(SY_XSK_SMALL_CHUNK))
		return SY_XSK_SMALL_CHUNK;
	return mtu <= PORT_XSK_MTU_MAX ? SY_XSK_LARGE_CHUNK : 0;
}

unsigned port_xsk_mtu_max(unsigned data_room)
{
	return data_room < SY_XSK_LARGE_CHUNK ? sy_xsk_mtu_max(SY_XSK_SMALL_CHUNK)
	                                      : PORT_XSK_MTU_MAX;
}

/* ---- before EAL ------------------------------------------------------------------------------ */

/* The MTU of a kernel interface that can be a port, or a negative errno. */
static int interface_mtu(const char *name, struct sy_error *err)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return sy_fail(err, errno, "port %s: opening a socket: %s", name, strerror(errno));
	memcpy(request.ifr_name, name, strnlen(name, sizeof(request.ifr_name) - 1));
	int code = ioctl(fd, SIOCGIFFLAGS, &request) ? errno : 0;
	bool loopback = !code && request.ifr_flags & IFF_LOOPBACK;
	if (!code && ioctl(fd, SIOCGIFMTU, &request))
		code = errno;
	close(fd);
	if (code)
		return sy_fail(err, code, "port %s: no such interface in this network namespace",
		               name);
	if (loopback)
		return sy_fail(err, EINVAL,
		               "%s is the loopback interface and cannot be a port; choose the "
		               "interface that faces the network",
		               name);
	return request.ifr_mtu;
}

int xsk_needs(const struct sy_port_options *o, unsigned workers, struct port_needs *out,
              struct sy_error *err)
{
	int mtu = interface_mtu(o->name, err);
	if (mtu < 0)
		return mtu;
	out->data_room = port_xsk_frame_max((unsigned)mtu);
	if (!out->data_room) /* larger frames are dropped with a reason; port_set_mtu() reports it
	                      */
		out->data_room = port_xsk_frame_max(PORT_XSK_MTU_MAX);
	char path[128];
	unsigned queues = 0;
	do /* the flow director is not open yet: count queues in sysfs */
		snprintf(path, sizeof(path), "/sys/class/net/%s/queues/rx-%u", o->name, queues);
	while (!access(path, F_OK) && ++queues < SY_MAX_QUEUES);
	out->buffers = (port_ring(o) + PORT_XSK_RING) * (queues ? queues : workers);
	return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int queue_fail(unsigned queue, int code, struct sy_error *err)
{
	switch (code) {
	case EBUSY:
		return sy_fail(err, EBUSY,
		               "queue %u is bound by another AF_XDP socket; stop the "
		               "process that has it (ss --xdp shows it)",
		               queue);
	case ENOBUFS:
		return sy_fail(err, ENOBUFS,
		               "queue %u: the limit of locked memory is too low; "
		               "remedy: ulimit -l unlimited, or LimitMEMLOCK=infinity",
		               queue);
	case EPERM:
		return sy_fail(err, EPERM,
		               "queue %u: AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and "
		               "CAP_BPF: run as root",
		               queue);
	}
	return sy_fail(err, code, "queue %u: AF_XDP socket: %s", queue, strerror(code));
}

int xsk_queue_open(struct xsk_port *x, unsigned queue, struct sy_error *err)
{
	struct xsk_queue *q = &x->queue[queue];
	struct xsk_umem_config umem = {
	        .fill_size = x->ring,
	        .comp_size = PORT_XSK_RING,
	        .frame_size = rte_pktmbuf_data_room_size(x->pool) < SY_XSK_LARGE_CHUNK
	                              ? SY_XSK_SMALL_CHUNK
	                              : SY_XSK_LARGE_CHUNK,
	        .flags = XDP_UMEM_UNALIGNED_CHUNK_FLAG,
	};
	struct sy_xsk_queue *r = &q->rings;
	int rc = xsk_umem__create(&q->umem, x->base, x->len, &r->fill, &r->completion, &umem);
	if (rc) {
		q->umem = NULL;
		return queue_fail(queue, -rc, err);
	}
	r->fd = xsk_umem__fd(q->umem);
	/* A child process that inherited it would keep the queue bound. */
	if (fcntl(r->fd, F_SETFD, FD_CLOEXEC))
		return queue_fail(queue, errno, err);
	r->base = x->base;
	r->pool = x->pool;
	r->mark = x->mark;
	r->fill_missing = x->ring;
	sy_xsk_fill(r);
	if (r->fill_missing)
		return sy_fail(err, ENOMEM, "queue %u: the packet pool is too small: raise --mbufs",
		               queue);
	return 0;
}

/* CPU time that this thread has used. */
static uint64_t thread_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int xsk_queue_bind(struct xsk_port *x, const char *ifname, unsigned queue, bool copy,
                   struct sy_patience *patience, struct sy_error *err)
{
	struct xsk_queue *q = &x->queue[queue];
	struct xsk_socket_config config = {
	        .rx_size = x->ring,
	        .tx_size = PORT_XSK_RING,
	        .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
	        .bind_flags = (uint16_t)(XDP_USE_NEED_WAKEUP | (copy ? XDP_COPY : 0)),
	};
	int rc;
	for (;;) {
		uint64_t begun = thread_ns();
		rc = xsk_socket__create(&q->socket, ifname, queue, q->umem, &q->rings.rx,
		                        &q->rings.tx, &config);
		if (rc != -EBUSY || sy_patience_left(patience) == 0)
			break;
		/* The socket of a predecessor or a killed process keeps the queue for a moment. An
		 * attempt makes the kernel allocate a table over all packet buffers, under the lock
		 * that it needs to free the queue. So wait at least as long as the attempt ran, not
		 * counting the time it waited for the lock or a CPU. */
		uint64_t spent_us = (thread_ns() - begun) / 1000;
		usleep((useconds_t)(spent_us > RETRY_US ? spent_us : RETRY_US));
	}
	if (rc) {
		q->socket = NULL;
		return queue_fail(queue, -rc, err);
	}
	return 0;
}

/* ---- closing --------------------------------------------------------------------------------- */

static void *queue_close(void *arg)
{
	struct xsk_queue *q = arg;
	xsk_large_close(q);
	if (q->socket)
		xsk_socket__delete(q->socket);
	if (q->umem)
		xsk_umem__delete(q->umem);
	q->socket = NULL;
	q->umem = NULL;
	return NULL;
}

/* The kernel takes some 10 ms to close a socket: it waits for an RCU grace period. The sockets
 * close in parallel, in the background. */
void xsk_queue_close_begin(struct xsk_queue *q)
{
	pthread_attr_t attr;
	sigset_t all;
	sigfillset(&all); /* signals are for the control thread */
	pthread_attr_init(&attr);
	pthread_attr_setsigmask_np(&attr, &all);
	q->closing = !pthread_create(&q->closer, &attr, queue_close, q);
	pthread_attr_destroy(&attr);
	if (!q->closing)
		queue_close(q);
}
