// SPDX-License-Identifier: Apache-2.0
/* What processes of the program ask for: queues, and ports to be steered to them. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "keeper.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

struct port {
	struct sy_addr addr;
	uint16_t port;
	uint16_t v6_only;
	bool closed; /* a worker takes no more connections there, and goes on with those it has */
};

struct peer {
	int fd; /* 0: free */
	pid_t pid;
	bool known;                     /* it has told the secret */
	bool waits;                     /* for a queue */
	int worker;                     /* -1: none */
	struct packets packets;         /* until they are bound */
	int board;                      /* its number at the hooks' board; -1: none */
	struct sy_hook_channel channel; /* until it is its own */
	struct port port[KEEPER_PORTS];
	unsigned ports;
};

static struct peer peer[KEEPER_PEERS];

int keeper_listen_open(struct keeper *k, struct sy_error *err)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	/* Who knows the secret may ask: the program and its children, whatever user they become. */
	if (getrandom(k->secret, sizeof(k->secret), 0) != sizeof(k->secret))
		return sy_fail(err, errno, "no random bytes");
	int at = snprintf(k->name, sizeof(k->name), "steelyard-run-%d", getpid());
	memcpy(to.sun_path + 1, k->name, (size_t)at);
	k->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (k->listener < 0 ||
	    bind(k->listener, (void *)&to,
	         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)at)) ||
	    listen(k->listener, KEEPER_PEERS))
		return sy_fail(err, errno, "the keeper's socket: %s", strerror(errno));
	at += snprintf(k->name + at, sizeof(k->name) - (size_t)at, ":");
	for (unsigned i = 0; i < sizeof(k->secret); i++)
		at += snprintf(k->name + at, sizeof(k->name) - (size_t)at, "%02x", k->secret[i]);
	return 0;
}

/* ---- ports ----------------------------------------------------------------------------------- */

/* A listener's address stands for these served ones. */
static bool port_covers(const struct port *p, const struct sy_addr *addr)
{
	bool v4 = sy_addr_is_v4(addr);

	if (p->addr.d[0] == 0 && p->addr.d[1] == 0)
		return !v4 || !p->v6_only;
	if (sy_addr_is_v4(&p->addr) && p->addr.w[3] == 0)
		return v4;
	return sy_addr_equal(&p->addr, addr);
}

static bool port_is_wanted(const struct sy_addr *addr, uint16_t port)
{
	for (unsigned i = 0; i < KEEPER_PEERS; i++)
		for (unsigned n = 0; peer[i].fd && n < peer[i].ports; n++)
			if (peer[i].port[n].port == port && port_covers(&peer[i].port[n], addr))
				return true;
	return false;
}

static uint64_t queues_of(const struct keeper *k, const struct peer *p)
{
	uint64_t mask = 0;

	for (unsigned q = (unsigned)p->worker; p->worker >= 0 && q < k->options.queues;
	     q += k->options.config.workers)
		mask |= UINT64_C(1) << q;
	return mask;
}

/* The queues of workers that take no more connections there, if somebody else does. */
static uint64_t port_closed(const struct keeper *k, const struct sy_addr *addr, uint16_t port)
{
	uint64_t closed = 0;
	bool open = false;

	for (unsigned i = 0; i < KEEPER_PEERS; i++) {
		bool opened = false, ended = false;
		for (unsigned n = 0; peer[i].fd && n < peer[i].ports; n++) {
			const struct port *p = &peer[i].port[n];
			if (p->port != port || !port_covers(p, addr))
				continue;
			opened |= !p->closed;
			ended |= p->closed;
		}
		open |= opened;
		if (ended && !opened)
			closed |= queues_of(k, &peer[i]);
	}
	return open ? closed : 0;
}

/* Brings the XDP program's map in line for one listener. */
static int port_steer(struct keeper *k, const struct port *p)
{
	const struct message_answer *c = &k->options.config;
	int rc = 0;

	for (uint32_t i = 0; i < c->addresses && !rc; i++) {
		if (!port_covers(p, &c->addr[i]))
			continue;
		bool on = port_is_wanted(&c->addr[i], p->port);
		rc = steer_port(k->steer, &c->addr[i], p->port, on,
		                port_closed(k, &c->addr[i], p->port));
		if (!on && rc == -ENOENT)
			rc = 0;
	}
	return rc;
}

static bool port_equal(const struct port *a, const struct port *b)
{
	return sy_addr_equal(&a->addr, &b->addr) && a->port == b->port && a->v6_only == b->v6_only;
}

static bool port_is_configured(const struct keeper *k, uint16_t port)
{
	const struct message_answer *c = &k->options.config;

	for (uint32_t i = 0; i < c->ports; i++)
		if (htons(c->port[i]) == port)
			return true;
	return c->ports == 0;
}

static bool option_is(int fd, int level, int name, int wanted)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, level, name, &value, &len) == 0 && value == wanted;
}

/* 0: the kernel does not say. A user may have a namespace of his own, where all ports are his. */
static uint64_t namespace_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) ? 0 : cookie;
}

/* A worker may have port 22 steered only if Linux lets it listen there. */
static bool port_is_its_own(const struct keeper *k, const struct port *port, int fd)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	struct port bound = {0};

	if (fd < 0 || namespace_of(fd) != namespace_of(k->listener) ||
	    !option_is(fd, SOL_SOCKET, SO_PROTOCOL, IPPROTO_TCP) ||
	    !option_is(fd, SOL_SOCKET, SO_ACCEPTCONN, 1) || getsockname(fd, (void *)&at, &len))
		return false;
	if (at.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (void *)&at;
		bound.addr.w[2] = htonl(0xffff);
		bound.addr.w[3] = v4->sin_addr.s_addr;
		bound.port = v4->sin_port;
	} else if (at.ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (void *)&at;
		memcpy(&bound.addr, &v6->sin6_addr, sizeof(bound.addr));
		bound.port = v6->sin6_port;
		if (!port->v6_only && !option_is(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0))
			return false;
	}
	return bound.port == port->port && sy_addr_equal(&bound.addr, &port->addr);
}

/* fd: the socket that listens, or -1. */
static int port_listen(struct keeper *k, struct peer *p, const struct port *port, bool on, int fd)
{
	if (on && (!port_is_configured(k, port->port) || !port_is_its_own(k, port, fd)))
		return -EACCES;
	for (unsigned i = 0; i < p->ports; i++) {
		if (!port_equal(&p->port[i], port))
			continue;
		if (p->port[i].closed == !on)
			return 0;
		p->port[i].closed = !on;
		if (!on && p->worker < 0) /* a worker's connections still need their segments */
			p->port[i] = p->port[--p->ports];
		return port_steer(k, port);
	}
	if (!on)
		return 0;
	if (p->ports == KEEPER_PORTS)
		return -ENOSPC;
	p->port[p->ports++] = *port;
	return port_steer(k, port);
}

/* ---- workers --------------------------------------------------------------------------------- */

static bool worker_is_free(unsigned worker)
{
	for (unsigned i = 0; i < KEEPER_PEERS; i++)
		if (peer[i].fd && peer[i].worker == (int)worker)
			return false;
	return true;
}

static int worker_start(struct keeper *k, struct peer *p, struct message_answer *a)
{
	unsigned workers = k->options.config.workers, worker = 0;

	if (p->worker >= 0)
		return -EALREADY;
	while (worker < workers && !worker_is_free(worker))
		worker++;
	if (worker == workers)
		return -EBUSY;
	a->worker = worker;
	for (unsigned q = worker; q < k->options.queues; q += workers)
		a->queue[a->queues++] = q;
	int rc = packets_open(&p->packets, a);
	if (rc)
		return rc;
	p->board = sy_hook_board_join(k->hooks, p->pid, &p->channel);
	if (p->board < 0) {
		packets_drop(&p->packets);
		return p->board;
	}
	p->worker = (int)worker;
	return 0;
}

/* What `steelyard stack list` warns of. */
static void workers_note(struct keeper *k)
{
	unsigned workers = k->options.config.workers, started = 0, waiting = 0;
	char text[SY_HOOK_NOTE_TEXT] = "";

	for (unsigned i = 0; i < KEEPER_PEERS; i++) {
		started += peer[i].fd && peer[i].worker >= 0;
		waiting += peer[i].fd && peer[i].waits;
	}
	if (started > 0 && started < workers)
		snprintf(text, sizeof(text),
		         "%u of %u workers (--workers) have a stack: what comes by the receive "
		         "queues of the others is dropped",
		         started, workers);
	sy_hook_board_note(k->hooks, 0, text);
	text[0] = '\0';
	if (waiting > 0)
		snprintf(text, sizeof(text),
		         "beside its workers (--workers), %u more of its processes wait for a "
		         "queue, and take no connections until a worker ends",
		         waiting);
	sy_hook_board_note(k->hooks, 1, text);
}

/* The program's sockets are bound: from here on packets reach them. */
static int worker_bound(struct keeper *k, struct peer *p)
{
	unsigned queue = (unsigned)p->worker;
	int rc = p->worker < 0 ? -EINVAL : 0;

	for (unsigned i = 0; i < p->packets.sockets && !rc; i++) {
		rc = steer_socket(k->steer, queue, p->packets.xsk[i]);
		queue += k->options.config.workers;
	}
	packets_drop(&p->packets);
	return rc;
}

/* ---- requests -------------------------------------------------------------------------------- */

static int request_do(struct keeper *k, struct peer *p, const struct message_request *q, int fd,
                      struct message_answer *a)
{
	const struct port port = {.addr = q->addr, .port = q->port, .v6_only = q->v6_only};
	int rc;

	if (q->version != MESSAGE_VERSION)
		return -EPROTO;
	switch (q->type) {
	case MESSAGE_CONFIG:
		return 0;
	case MESSAGE_START:
		rc = worker_start(k, p, a);
		p->waits = rc == -EBUSY;
		workers_note(k);
		return rc;
	case MESSAGE_BOUND:
		return worker_bound(k, p);
	case MESSAGE_LISTEN:
	case MESSAGE_UNLISTEN:
		return port_listen(k, p, &port, q->type == MESSAGE_LISTEN, fd);
	}
	return -EPROTO;
}

static unsigned worker_fds(const struct keeper *k, const struct peer *p,
                           const struct message_answer *a, int *fd)
{
	unsigned n = 0;

	fd[n++] = steer_link(k->steer);
	fd[n++] = p->packets.memory;
	for (unsigned i = 0; i < a->queues; i++)
		fd[n++] = p->packets.xsk[i];
	if (a->workers > 1)
		fd[n++] = k->inbox[a->worker][0];
	for (unsigned i = 0; i < a->workers && a->workers > 1; i++)
		fd[n++] = k->inbox[i][1];
	fd[n++] = p->channel.socket;
	fd[n++] = p->channel.bell;
	if (a->large)
		fd[n++] = p->packets.large;
	return n;
}

static int answer_send(struct keeper *k, struct peer *p, const struct message_answer *a)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(MESSAGE_FDS * sizeof(int))] = {0};
	struct iovec iov = {(void *)a, sizeof(*a)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	int fd[MESSAGE_FDS];

	if (a->queues) {
		size_t len = worker_fds(k, p, a, fd) * sizeof(int);
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(len);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(len),
		                      .cmsg_level = SOL_SOCKET,
		                      .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(c), fd, len);
	}
	int rc = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
	if (a->queues) { /* they are the worker's now */
		close(p->channel.socket);
		close(p->channel.bell);
	}
	return rc;
}

static void peer_end(struct keeper *k, struct peer *p)
{
	close(p->fd);
	packets_drop(&p->packets);
	sy_hook_board_leave(k->hooks, p->board);
	p->fd = 0;
	p->worker = -1;
	workers_note(k);
	for (unsigned i = 0; i < p->ports; i++)
		port_steer(k, &p->port[i]);
	p->ports = 0;
}

/* fd: what came along, or -1. */
static ssize_t request_receive(const struct peer *p, struct message_request *q, int *fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {q, sizeof(*q)};
	struct msghdr m = {.msg_iov = &iov,
	                   .msg_iovlen = 1,
	                   .msg_control = control,
	                   .msg_controllen = CMSG_LEN(sizeof(int))}; /* the kernel closes others */
	ssize_t n = recvmsg(p->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);

	*fd = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(*fd)))
		memcpy(fd, CMSG_DATA(c), sizeof(*fd));
	return n;
}

static void peer_serve(struct keeper *k, struct peer *p)
{
	struct message_answer a = k->options.config;
	struct message_request q;
	int fd;
	ssize_t n = request_receive(p, &q, &fd);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof(q) || memcmp(q.secret, k->secret, sizeof(q.secret))) {
		if (fd >= 0)
			close(fd);
		peer_end(k, p);
		return;
	}
	p->known = true;
	a.rc = request_do(k, p, &q, fd, &a);
	if (fd >= 0)
		close(fd);
	if (a.rc)
		a.queues = 0;
	if (answer_send(k, p, &a))
		peer_end(k, p);
}

/* Strangers who say nothing do not keep the program's processes out: they go first, in turn. */
static struct peer *peer_place(struct keeper *k)
{
	static unsigned turn;

	for (unsigned i = 0; i < KEEPER_PEERS; i++)
		if (!peer[i].fd)
			return &peer[i];
	for (unsigned i = 0; i < KEEPER_PEERS; i++) {
		struct peer *p = &peer[turn++ % KEEPER_PEERS];
		if (p->known)
			continue;
		peer_end(k, p);
		return p;
	}
	return NULL;
}

static pid_t pid_of(int fd)
{
	struct ucred who = {0};
	socklen_t len = sizeof(who);

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len);
	return who.pid;
}

static void peer_accept(struct keeper *k)
{
	int fd = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	struct peer *p = peer_place(k);
	if (!p) {
		close(fd);
		return;
	}
	p->fd = fd;
	p->known = p->waits = false;
	p->worker = p->board = -1;
	p->pid = pid_of(fd);
}

unsigned keeper_peers(struct keeper *k, struct pollfd *p)
{
	unsigned n = 0;

	p[n++] = (struct pollfd){.fd = k->listener, .events = POLLIN};
	for (unsigned i = 0; i < KEEPER_PEERS; i++)
		if (peer[i].fd)
			p[n++] = (struct pollfd){.fd = peer[i].fd, .events = POLLIN};
	return n;
}

void keeper_serve(struct keeper *k, const struct pollfd *p, unsigned count)
{
	for (unsigned n = 1; n < count; n++) {
		for (unsigned i = 0; p[n].revents && i < KEEPER_PEERS; i++) {
			if (peer[i].fd == p[n].fd) {
				peer_serve(k, &peer[i]);
				break;
			}
		}
	}
	if (p[0].revents)
		peer_accept(k);
}
