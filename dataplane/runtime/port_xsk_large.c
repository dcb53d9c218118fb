// SPDX-License-Identifier: Apache-2.0
/*
 * Large segments (TSO) on an AF_XDP port: a packet socket takes them whole, and the kernel cuts
 * them, or the card does. AF_XDP has no way to say so, and hands each frame to the driver in a call
 * of its own.
 *
 *     writev: | virtio-net header | Ethernet, IP, TCP | rest of the first buffer | buffer | …
 *
 * One socket for each queue, as workers share nothing. It receives nothing. The kernel copies the
 * bytes before the call returns: the buffers are free then.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "port_xsk.h"

#define BUFFERS      64 /* of a segment */
#define HEADERS_MOST (SY_ETH_LEN + 40 + 60)
#define SEND_BUFFER  (4 << 20) /* segments in the queue of a slow card */

struct large_head {
	struct virtio_net_hdr how;
	uint8_t frame[HEADERS_MOST];
};
_Static_assert(offsetof(struct large_head, frame) == sizeof(struct virtio_net_hdr),
               "the kernel reads them as one");

static int large_open(const struct port *p, struct xsk_queue *q)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = p->ifindex};
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
	int room = SEND_BUFFER;

	if (fd < 0)
		return -errno;
	/* Where it is refused, the limit of all sockets is fine as well. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at))) {
		int code = errno;
		close(fd);
		return -code;
	}
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
	p->tso = (struct sy_port_tso){.buffers = BUFFERS};
}

int xsk_large_again(struct port *p, unsigned queues, struct sy_error *err)
{
	struct xsk_port *x = p->impl;
	int rc = 0;

	for (unsigned i = 0; i < queues && !rc; i++)
		rc = large_open(p, &x->queue[i]);
	return rc ? sy_fail(err, -rc, "a socket for large segments: %s", strerror(-rc)) : 0;
}

/* The kernel wants the sum of the whole pseudo-header; cards, and so the packet, that without the
 * length. */
static void checksum_begin(struct large_head *h, const struct rte_mbuf *m)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(h->frame + m->l2_len + m->l3_len);
	uint16_t len = htons((uint16_t)(m->pkt_len - m->l2_len - m->l3_len));

	tcp->checksum = sy_csum_fold((uint64_t)tcp->checksum + len);
	h->how.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	h->how.csum_start = (uint16_t)(m->l2_len + m->l3_len);
	h->how.csum_offset = offsetof(struct sy_tcp, checksum);
}

void xsk_large_send(struct xsk_port *x, struct xsk_queue *q, const struct rte_mbuf *m)
{
	unsigned headers = (unsigned)(m->l2_len + m->l3_len + m->l4_len), parts = 1;
	bool v4 = m->ol_flags & RTE_MBUF_F_TX_IPV4;
	struct iovec part[2 + BUFFERS];
	struct large_head h = {0};

	if (headers > HEADERS_MOST || headers > m->data_len || m->nb_segs > BUFFERS) {
		SY_COUNT(x->unfit, 1);
		return;
	}
	h.how.gso_type = v4 ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6;
	h.how.gso_size = m->tso_segsz;
	h.how.hdr_len = (uint16_t)headers;
	memcpy(h.frame, rte_pktmbuf_mtod(m, const uint8_t *), headers);
	if (v4) { /* an end that takes it whole looks at it */
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(h.frame + m->l2_len);
		ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, m->l3_len));
	}
	checksum_begin(&h, m);
	part[0] = (struct iovec){&h, sizeof(h.how) + headers};
	for (const struct rte_mbuf *b = m; b; b = b->next, headers = 0)
		if (b->data_len > headers)
			part[parts++] = (struct iovec){rte_pktmbuf_mtod_offset(b, void *, headers),
			                               b->data_len - headers};
	if (writev(q->large_fd, part, (int)parts) < 0)
		SY_COUNT(x->unfit,
		         1); /* a queue was full behind the socket: some pieces may have left */
}
