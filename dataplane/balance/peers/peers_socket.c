// SPDX-License-Identifier: Apache-2.0
/*
 * A UDP socket for each worker, on one address and port. The kernel selects the socket by the
 * number of the sending worker, which is in the header: a worker's datagrams reach one worker,
 * whose window recognizes replays.
 */
#include "peers.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define RECEIVE_MAX 64        /* datagrams in one poll */
#define BUFFER      (4 << 20) /* bytes: copies come in bursts */

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static socklen_t address_fill(union address *out, const struct sy_addr *addr, uint16_t port)
{
	*out = (union address){0};
	if (sy_addr_is_v4(addr)) {
		out->v4.sin_family = AF_INET;
		out->v4.sin_port = htons(port);
		memcpy(&out->v4.sin_addr, &addr->w[3], sizeof(out->v4.sin_addr));
		return sizeof(out->v4);
	}
	out->v6.sin6_family = AF_INET6;
	out->v6.sin6_port = htons(port);
	memcpy(&out->v6.sin6_addr, addr->b, sizeof(out->v6.sin6_addr));
	return sizeof(out->v6);
}

/* Attaches the selection to the SO_REUSEPORT group, whose sockets are in the order of bind(). */
static int select_by_worker(int fd, unsigned workers)
{
	struct sock_filter code[] = {
	        {BPF_LD | BPF_B | BPF_ABS, 0, 0, offsetof(struct sync_header, worker)},
	        {BPF_ALU | BPF_MOD | BPF_K, 0, 0, workers},
	        {BPF_RET | BPF_A, 0, 0, 0},
	};
	const struct sock_fprog program = {SY_ARRAY_LEN(code), code};
	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program));
}

/* Returns a socket bound to an address, which others of this user may share; or a negative errno.
 */
static int socket_bind(const struct sy_addr *addr, uint16_t port, struct sy_error *err)
{
	const int one = 1;
	char text[SY_ADDR_TEXT];
	union address own;
	socklen_t len = address_fill(&own, addr, port);
	int fd = socket(own.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return sy_fail(err, errno, "peers: no socket: %s", strerror(errno));
	if (own.any.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) == 0 &&
	    bind(fd, &own.any, len) == 0)
		return fd;
	sy_fail(err, errno,
	        "peers: %s port %u: %s; --sync, or the group, must name an address of this host "
	        "and "
	        "a UDP port that no other program uses",
	        sy_addr_format(addr, text), port, strerror(errno));
	close(fd);
	return -err->code;
}

static int socket_open(struct peers *p, unsigned worker, struct sy_error *err)
{
	const struct sy_peers_options *o = &p->options;
	const int buffer = BUFFER;
	int fd = socket_bind(&o->address, o->port, err);
	if (fd < 0)
		return fd;
	p->worker[worker].fd = fd;
	/* SO_RCVBUFFORCE exceeds the host's limit, but needs CAP_NET_ADMIN. */
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	if (worker == 0 && select_by_worker(fd, p->b->workers) < 0)
		return sy_fail(err, errno, "peers: the kernel accepts no socket selection: %s",
		               strerror(errno));
	sy_worker_watch(sy_worker_at(p->b->rt, worker), fd);
	return 0;
}

int peers_address_check(const struct sy_addr *addr, uint16_t port, struct sy_error *err)
{
	int fd = socket_bind(addr, port, err);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? -EINVAL : 0;
}

int peers_sockets_open(struct peers *p, struct sy_error *err)
{
	int rc = 0;
	for (unsigned w = 0; w < p->b->workers && rc == 0; w++)
		rc = socket_open(p, w, err);
	return rc;
}

void peers_sockets_close(struct peers *p)
{
	for (unsigned w = 0; w < SY_MAX_WORKERS; w++) {
		if (p->worker[w].fd < 0)
			continue;
		sy_worker_watch(sy_worker_at(p->b->rt, w), -1);
		close(p->worker[w].fd);
		p->worker[w].fd = -1;
	}
}

/* Returns true if the datagram's source address is that of the node in its header. Costs less than
 * the check of its tag. Ports may be translated. */
static bool sender_fits(const struct peers *p, const uint8_t *datagram, size_t len,
                        const union address *from)
{
	const uint8_t node =
	        len < sizeof(struct sync_header) ? 0 : datagram[offsetof(struct sync_header, node)];
	if (node >= SYNC_NODES || !p->options.peer[node].port)
		return true; /* the node drops it as what it is */
	const struct sy_addr *peer = &p->options.peer[node].addr;
	return from->any.sa_family == AF_INET
	               ? sy_addr_is_v4(peer) &&
	                         !memcmp(&from->v4.sin_addr, &peer->w[3], sizeof(peer->w[3]))
	               : !memcmp(&from->v6.sin6_addr, peer->b, sizeof(peer->b));
}

bool peers_receive(struct peers *p, struct sy_worker *w, bool *more)
{
	uint8_t datagram[SYNC_DATAGRAM_MAX +
	                 1]; /* truncates longer ones, whose tag is then wrong */
	const int fd = p->worker[w->id].fd;
	union address from;
	unsigned n = 0;
	if (fd < 0)
		return false;
	for (; n < RECEIVE_MAX; n++) {
		socklen_t size = sizeof(from);
		const ssize_t len = recvfrom(fd, datagram, sizeof(datagram), 0, &from.any, &size);
		if (len < 0)
			break;
		if (sender_fits(p, datagram, (size_t)len, &from))
			sync_lane_receive(p->node, w->id, datagram, (size_t)len, w->now_ns);
		else
			sync_lane_drop(p->node, w->id, SYNC_DROP_UNKNOWN_SENDER);
	}
	*more |= n == RECEIVE_MAX;
	return n > 0;
}

/* Counts datagrams that the kernel does not accept: they are retransmitted like lost ones. */
void peers_send(void *peers, unsigned worker, uint8_t node, const uint8_t *bytes, size_t len)
{
	struct peers *p = peers;
	union address to;
	socklen_t size = address_fill(&to, &p->options.peer[node].addr, p->options.peer[node].port);
	if (p->worker[worker].fd >= 0 &&
	    sendto(p->worker[worker].fd, bytes, len, MSG_DONTWAIT, &to.any, size) < 0)
		SY_COUNT(p->worker[worker].unsent, 1);
}
