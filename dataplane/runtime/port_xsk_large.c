// SPDX-License-Identifier: Apache-2.0
/*
 * Large segments (TSO) on an AF_XDP port: a packet socket accepts them whole, and the kernel or the
 * card segments them (sy_large.h). AF_XDP has no means for that, and passes each frame to the
 * driver in a separate call.
 *
 * One socket for each queue, as workers share nothing.
 */
#include <unistd.h>

#include <sy_large.h>
#include <sy_large_socket.h>

#include "port_xsk.h"

static int large_open(const struct port *p, struct xsk_queue *q)
{
	int fd = sy_large_socket(p->ifindex);

	if (fd < 0)
		return fd;
	q->large_fd = fd;
	q->cuts = true;
	return 0;
}

void xsk_large_close(struct xsk_queue *q)
{
	if (q->cuts)
		close(q->large_fd);
	q->cuts = false;
}

void xsk_large_begin(struct port *p)
{
	struct xsk_port *x = p->impl;

	for (unsigned i = 0; i < p->queues; i++) {
		int rc = large_open(p, &x->queue[i]);
		if (!rc)
			continue;
		sy_log(SY_LOG_WARN, "runtime", "port %s: the kernel cuts no segments: %s", p->name,
		       strerror(-rc));
		while (i-- > 0)
			xsk_large_close(&x->queue[i]);
		return;
	}
	p->offloads |= SY_OFFLOAD_TSO_IPV4 | SY_OFFLOAD_TSO_IPV6;
	p->tso = (struct sy_port_tso){.buffers = SY_LARGE_BUFFERS};
}

int xsk_large_reattach(struct port *p, unsigned queues, struct sy_error *err)
{
	struct xsk_port *x = p->impl;
	int rc = 0;

	for (unsigned i = 0; i < queues && !rc; i++)
		rc = large_open(p, &x->queue[i]);
	return rc ? sy_fail(err, -rc, "a socket for large segments: %s", strerror(-rc)) : 0;
}
