// SPDX-License-Identifier: Apache-2.0
/*
 * A large segment (TSO) for a packet socket with virtio-net headers (PACKET_VNET_HDR): the kernel
 * accepts it whole, and segments it or lets the card do so:
 *
 * writev: | virtio-net header | Ethernet, IP, TCP | rest of the first buffer | buffer | …
 */
#ifndef SY_LARGE_H
#define SY_LARGE_H

#include <arpa/inet.h>
#include <linux/virtio_net.h>
#include <stddef.h>
#include <sys/uio.h>

#include <rte_mbuf.h>

#include <sy_packet.h>

#define SY_LARGE_BUFFERS 64 /* max buffers of a segment */
#define SY_LARGE_PARTS   (2 + SY_LARGE_BUFFERS)
#define SY_LARGE_HEADERS (SY_ETH_LEN + 40 + 60)

struct sy_large {
	struct virtio_net_hdr how;
	uint8_t frame[SY_LARGE_HEADERS];
};
_Static_assert(offsetof(struct sy_large, frame) == sizeof(struct virtio_net_hdr),
               "the kernel reads them as one");

static inline bool sy_is_large(const struct rte_mbuf *m)
{
	return m->ol_flags & RTE_MBUF_F_TX_TCP_SEG;
}

/* The kernel needs the sum of the whole pseudo-header; cards, and so the packet, the sum without
 * the length. */
static inline void sy_large_checksum(struct sy_large *h, const struct rte_mbuf *m)
{
	struct sy_tcp *tcp = (struct sy_tcp *)(h->frame + m->l2_len + m->l3_len);
	uint16_t len = htons((uint16_t)(m->pkt_len - m->l2_len - m->l3_len));

	tcp->checksum = sy_csum_fold((uint64_t)tcp->checksum + len);
	h->how.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	h->how.csum_start = (uint16_t)(m->l2_len + m->l3_len);
	h->how.csum_offset = offsetof(struct sy_tcp, checksum);
}

/* Fills parts[] (up to SY_LARGE_PARTS) for writev(); they point into h and the packet. Returns
 * their number; 0: the packet cannot be sent this way. */
static inline unsigned sy_large_parts(struct sy_large *h, const struct rte_mbuf *m,
                                      struct iovec *part)
{
	unsigned headers = (unsigned)(m->l2_len + m->l3_len + m->l4_len), parts = 1;
	bool v4 = m->ol_flags & RTE_MBUF_F_TX_IPV4;

	if (headers > SY_LARGE_HEADERS || headers > m->data_len || m->nb_segs > SY_LARGE_BUFFERS)
		return 0;
	h->how = (struct virtio_net_hdr){.gso_type = v4 ? VIRTIO_NET_HDR_GSO_TCPV4
	                                                : VIRTIO_NET_HDR_GSO_TCPV6,
	                                 .gso_size = m->tso_segsz,
	                                 .hdr_len = (uint16_t)headers};
	memcpy(h->frame, rte_pktmbuf_mtod(m, const uint8_t *), headers);
	if (v4) { /* a receiver that gets it whole checks it */
		struct sy_ipv4 *ip = (struct sy_ipv4 *)(h->frame + m->l2_len);
		ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, m->l3_len));
	}
	sy_large_checksum(h, m);
	part[0] = (struct iovec){h, sizeof(h->how) + headers};
	for (const struct rte_mbuf *b = m; b; b = b->next, headers = 0)
		if (b->data_len > headers)
			part[parts++] = (struct iovec){rte_pktmbuf_mtod_offset(b, void *, headers),
			                               b->data_len - headers};
	return parts;
}

/* Sends it by a socket of sy_large_socket(). The kernel copies the bytes before the call returns,
 * so the buffers are free then. Returns false if it is lost: a queue behind the socket is full, and
 * pieces may have left. The call is a parameter as in sy_xsk.h. */
static inline bool sy_large_send(int fd, const struct rte_mbuf *m, __typeof__(&writev) writev_call)
{
	struct iovec part[SY_LARGE_PARTS];
	struct sy_large h;
	unsigned parts = sy_large_parts(&h, m, part);

	return parts && writev_call(fd, part, (int)parts) >= 0;
}

#endif
