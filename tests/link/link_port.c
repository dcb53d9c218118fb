// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link_port.h"

enum {
	BLOCK = 1 << 17,
	SEND_BUFFER = 64 << 20,
	/* In front of a frame in the ring: the kernel's header, and alignment. */
	RING_HEADER = 128,
};

static int port_fail(struct port *p, const char *what, char error[static PORT_ERROR])
{
	int code = errno;
	snprintf(error, PORT_ERROR, "%s: %s: %s%s", p->name, what, strerror(code),
	         code == EPERM ? " (run it as root)" : "");
	port_close(p);
	return -code;
}

static uint32_t power_of_two(uint32_t min)
{
	uint32_t size = 2048;
	while (size < min)
		size *= 2;
	return size;
}

static int set(int socket, int level, int option, int value)
{
	return setsockopt(socket, level, option, &value, sizeof(value));
}

/* TPACKET_V2: a frame is visible at once. V3 would wait for a full block, or for milliseconds. */
static int ring_open(struct port *p, uint32_t frames)
{
	p->frame = power_of_two(RING_HEADER + ETHER_HDR_LEN + 4 + p->mtu);
	p->block = p->frame > BLOCK ? p->frame : BLOCK;
	p->frames_a_block = p->block / p->frame;
	uint32_t blocks = (frames + p->frames_a_block - 1) / p->frames_a_block;
	p->frames = blocks * p->frames_a_block;
	struct tpacket_req request = {.tp_block_size = p->block,
	                              .tp_block_nr = blocks,
	                              .tp_frame_size = p->frame,
	                              .tp_frame_nr = p->frames};
	if (set(p->in, SOL_PACKET, PACKET_VERSION, TPACKET_V2) ||
	    set(p->in, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) ||
	    setsockopt(p->in, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request)))
		return -1;
	p->ring = mmap(NULL, (uint64_t)p->block * blocks, PROT_READ | PROT_WRITE,
	               MAP_SHARED | MAP_POPULATE, p->in, 0);
	return p->ring == MAP_FAILED ? -1 : 0;
}

int port_open(struct port *p, const char *name, uint32_t frames, char error[static PORT_ERROR])
{
	*p = (struct port){.name = name, .in = -1, .out = -1, .ring = MAP_FAILED};
	struct ifreq request = {0};
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	p->in = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	p->out = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (p->in < 0 || p->out < 0)
		return port_fail(p, "a packet socket", error);
	if (ioctl(p->in, SIOCGIFMTU, &request))
		return port_fail(p, "no such interface here", error);
	p->mtu = (uint32_t)request.ifr_mtu;
	p->index = (int)if_nametoindex(name);
	if (ring_open(p, frames))
		return port_fail(p, "the ring", error);
	struct sockaddr_ll all = {
	        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = p->index};
	struct sockaddr_ll none = {.sll_family = AF_PACKET, .sll_ifindex = p->index};
	struct packet_mreq promiscuous = {.mr_ifindex = p->index, .mr_type = PACKET_MR_PROMISC};
	/* Without a queueing discipline, and without taps: a frame that is due leaves. */
	if (set(p->out, SOL_PACKET, PACKET_QDISC_BYPASS, 1) ||
	    set(p->out, SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER) ||
	    bind(p->out, (struct sockaddr *)&none, sizeof(none)) ||
	    setsockopt(p->in, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous,
	               sizeof(promiscuous)) ||
	    bind(p->in, (struct sockaddr *)&all, sizeof(all)))
		return port_fail(p, "its socket", error);
	return 0;
}

void port_close(struct port *p)
{
	if (p->ring != MAP_FAILED)
		munmap(p->ring, (uint64_t)p->frames / p->frames_a_block * p->block);
	if (p->in >= 0)
		close(p->in);
	if (p->out >= 0)
		close(p->out);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static struct tpacket2_hdr *ring_at(const struct port *p)
{
	uint64_t block = p->next / p->frames_a_block, place = p->next % p->frames_a_block;
	return (struct tpacket2_hdr *)(p->ring + block * p->block + place * p->frame);
}

bool port_receive(struct port *p, struct port_frame *f)
{
	struct tpacket2_hdr *h = ring_at(p);
	uint32_t status = __atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE);
	if (!(status & TP_STATUS_USER))
		return false;
	*f = (struct port_frame){.bytes = (uint8_t *)h + h->tp_mac,
	                         .length = h->tp_snaplen,
	                         .wire = h->tp_len,
	                         .time = h->tp_sec * 1000000000ull + h->tp_nsec,
	                         .unfinished = status & TP_STATUS_CSUMNOTREADY};
	if (status & TP_STATUS_VLAN_VALID)
		f->tag = (uint32_t)h->tp_vlan_tpid << 16 | h->tp_vlan_tci;
	return true;
}

void port_release(struct port *p)
{
	__atomic_store_n(&ring_at(p)->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	p->next = p->next + 1 == p->frames ? 0 : p->next + 1;
}

void port_forgive(int in)
{
	int error;
	socklen_t size = sizeof(error);
	getsockopt(in, SOL_SOCKET, SO_ERROR, &error, &size);
}

uint64_t port_lost(struct port *p)
{
	struct tpacket_stats stats = {0};
	socklen_t size = sizeof(stats);
	if (getsockopt(p->in, SOL_PACKET, PACKET_STATISTICS, &stats, &size))
		return 0;
	p->lost += stats.tp_drops;
	return stats.tp_drops;
}

bool port_is_running(const struct port *p)
{
	const short wanted = IFF_UP | IFF_RUNNING;
	struct ifreq request = {0};
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", p->name);
	return !ioctl(p->out, SIOCGIFFLAGS, &request) && (request.ifr_flags & wanted) == wanted;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* No ring: the kernel would send the ring's own pages, and free them while the receiver still
 * reads them. */
int port_send(struct port *p, const struct port_bytes *frames, unsigned count)
{
	struct mmsghdr messages[PORT_BURST];
	struct iovec parts[PORT_BURST];
	count = count < PORT_BURST ? count : PORT_BURST;
	for (unsigned i = 0; i < count; i++) {
		parts[i] = (struct iovec){frames[i].bytes, frames[i].length};
		messages[i] = (struct mmsghdr){{.msg_iov = &parts[i], .msg_iovlen = 1}, 0};
	}
	int sent = sendmmsg(p->out, messages, count, MSG_DONTWAIT);
	if (sent >= 0)
		return sent;
	/* ENOBUFS: the queue of the processor that receives is full, netdev_max_backlog. */
	if (errno != EAGAIN && errno != ENOBUFS && errno != EINTR)
		return -errno;
	p->waited++;
	return -EAGAIN;
}
