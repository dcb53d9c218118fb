// SPDX-License-Identifier: Apache-2.0
/* Requests of the program's processes: queues, and steering of ports. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "supervisor.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

struct peer peer[SUPERVISOR_PEERS];
static uint64_t requests; /* requests and connections so far */

int supervisor_listen_open(struct supervisor *sv, struct sy_error *err)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	/* The secret authorizes requests: the program and its children have it, whatever user they
	 * become. */
	if (getrandom(sv->secret, sizeof(sv->secret), 0) != sizeof(sv->secret))
		return sy_fail(err, errno, "no random bytes");
	int at = snprintf(sv->name, sizeof(sv->name), "steelyard-run-%d", getpid());
	memcpy(to.sun_path + 1, sv->name, (size_t)at);
	sv->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sv->listener < 0 ||
	    bind(sv->listener, (void *)&to,
	         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)at)) ||
	    listen(sv->listener, SUPERVISOR_PEERS))
		return sy_fail(err, errno, "the supervisor's socket: %s", strerror(errno));
	at += snprintf(sv->name + at, sizeof(sv->name) - (size_t)at, ":");
	for (unsigned i = 0; i < sizeof(sv->secret); i++)
		at += snprintf(sv->name + at, sizeof(sv->name) - (size_t)at, "%02x", sv->secret[i]);
	return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct peer *peer_of(pid_t pid)
{
	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++)
		if (peer[i].fd && peer[i].pid == pid)
			return &peer[i];
	return NULL;
}

/* The stack of a peer continues in process `pid`: the first one executes another program. */
static int peer_move(struct peer *p, pid_t pid)
{
	const struct peer *other = peer_of(pid);

	if (other)
		return other == p ? 0 : -EEXIST;
	int process = (int)syscall(SYS_pidfd_open, pid, 0);
	if (process < 0)
		return -errno;
	close(p->process);
	p->process = process;
	p->pid = pid;
	return 0;
}

/* A request and what it carries. */
struct received {
	struct message_request q;
	struct message_connection connection; /* EXPORT */
	uint8_t unread[MESSAGE_UNREAD];
	int fd;    /* -1: none */
	pid_t pid; /* of the sender, from the kernel */
};

/* attached: stores a descriptor for the answer. */
static int request_do(struct supervisor *sv, struct peer *p, const struct received *r,
                      int *attached)
{
	const struct message_request *q = &r->q;
	const struct port port = {
	        .addr = q->addr, .port = q->port, .v6_only = q->v6_only, .serves = q->serves != 0};
	int rc;

	if (q->version != MESSAGE_VERSION)
		return -EPROTO;
	switch (q->type) {
	case MESSAGE_CONFIG:
		return 0;
	case MESSAGE_START:
		rc = worker_start(sv, p);
		if (p->waits != (rc == -EBUSY)) {
			p->waits = rc == -EBUSY;
			ports_steer(sv, p);
		}
		workers_note(sv);
		return rc;
	case MESSAGE_BOUND:
		return worker_bound(sv, p);
	case MESSAGE_LISTEN:
	case MESSAGE_UNLISTEN:
		return port_listen(sv, p, &port, q->type == MESSAGE_LISTEN, r->fd);
	case MESSAGE_YIELD:
		return port_yield(sv, p, &port);
	case MESSAGE_FORGET:
		return port_forget(sv, p, &port);
	case MESSAGE_HEARTBEAT:
		p->heartbeat_ns = sy_clock_ns();
		return 0;
	case MESSAGE_MOVE:
		return peer_move(p, r->pid);
	case MESSAGE_EXPORT:
		return repair_add(sv, p, q, &r->connection, r->unread);
	case MESSAGE_REDEEM:
		*attached = repair_redeem(sv, p, r->fd);
		return *attached < 0 ? *attached : 0;
	}
	return -EPROTO;
}

static unsigned worker_fds(const struct supervisor *sv, const struct peer *p,
                           const struct message_answer *a, int *fd)
{
	unsigned n = 0;

	fd[n++] = steer_link(sv->steer);
	fd[n++] = p->packets.memory;
	for (unsigned i = 0; i < a->queues; i++)
		fd[n++] = p->packets.xsk[i];
	if (a->workers > 1)
		fd[n++] = sv->inbox[a->worker][0];
	for (unsigned i = 0; i < a->workers && a->workers > 1; i++)
		fd[n++] = sv->inbox[i][1];
	fd[n++] = p->channel.socket;
	fd[n++] = p->channel.doorbell;
	if (a->large)
		fd[n++] = p->packets.large;
	return n;
}

/* attached: a descriptor that the answer carries, or -1. */
static int answer_send(struct supervisor *sv, struct peer *p, const struct message_answer *a,
                       int attached)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(MESSAGE_FDS * sizeof(int))] = {0};
	struct iovec iov = {(void *)a, sizeof(*a)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	int fd[MESSAGE_FDS];

	fd[0] = attached;
	size_t len = (a->queues ? worker_fds(sv, p, a, fd) : attached >= 0) * sizeof(int);
	if (len) {
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(len);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(len),
		                      .cmsg_level = SOL_SOCKET,
		                      .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(c), fd, len);
	}
	int rc = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
	if (a->queues) { /* the worker has its own copies of these */
		close(p->channel.socket);
		close(p->channel.doorbell);
	}
	return rc;
}

static void peer_end(struct supervisor *sv, struct peer *p)
{
	close(p->fd);
	close(p->process);
	worker_end(sv, p);
	p->fd = 0;
	workers_note(sv);
	ports_steer(sv, p);
	p->ports = 0;
}

static ssize_t request_receive(const struct peer *p, struct received *r)
{
	_Alignas(struct cmsghdr) char
	        control[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
	struct iovec iov[] = {{&r->q, sizeof(r->q)},
	                      {&r->connection, sizeof(r->connection)},
	                      {r->unread, sizeof(r->unread)}};
	struct msghdr m = {.msg_iov = iov,
	                   .msg_iovlen = SY_ARRAY_LEN(iov),
	                   .msg_control = control, /* the kernel closes further descriptors */
	                   .msg_controllen =
	                           CMSG_SPACE(sizeof(struct ucred)) + CMSG_LEN(sizeof(int))};
	ssize_t n = recvmsg(p->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
	struct ucred sender = {0};

	r->fd = -1;
	for (; c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS)
			memcpy(&sender, CMSG_DATA(c), sizeof(sender));
		if (c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(r->fd)))
			memcpy(&r->fd, CMSG_DATA(c), sizeof(r->fd));
	}
	r->pid = sender.pid;
	return n;
}

/* Returns whether a message of n bytes is complete for its type. */
static bool is_complete(const struct received *r, ssize_t n)
{
	if (n < (ssize_t)sizeof(r->q) || r->q.type != MESSAGE_EXPORT)
		return n == sizeof(r->q);
	n -= (ssize_t)(sizeof(r->q) + sizeof(r->connection));
	return n >= 0 && n == (ssize_t)r->connection.unread;
}

/* Sends the answer. rc: of the request. START has its own answer. attached: as of answer_send(). */
static void peer_answer(struct supervisor *sv, struct peer *p, int rc, bool start, int attached)
{
	struct message_answer a = start && !rc ? p->answer : sv->options.config;

	a.rc = rc;
	if (answer_send(sv, p, &a, attached))
		peer_end(sv, p);
	if (attached >= 0)
		close(attached);
}

static void peer_serve(struct supervisor *sv, struct peer *p)
{
	static struct received r;
	ssize_t n = request_receive(p, &r);
	int attached = -1, rc;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (!is_complete(&r, n) || p->binds || memcmp(r.q.secret, sv->secret, sizeof(r.q.secret))) {
		if (r.fd >= 0)
			close(r.fd);
		peer_end(sv, p);
		return;
	}
	p->authenticated = true;
	p->request = ++requests;
	rc = request_do(sv, p, &r, &attached);
	if (r.fd >= 0)
		close(r.fd);
	if (rc != -EINPROGRESS && r.q.type != MESSAGE_HEARTBEAT)
		peer_answer(sv, p, rc, r.q.type == MESSAGE_START, attached);
}

static void binds_continue(struct supervisor *sv)
{
	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++) {
		int rc = peer[i].fd && peer[i].binds ? worker_bind(sv, &peer[i]) : -EINPROGRESS;
		if (rc == -EINPROGRESS)
			continue;
		workers_note(sv);
		peer_answer(sv, &peer[i], rc, true, -1);
	}
}

int supervisor_wait_ms(void)
{
	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++)
		if (peer[i].fd && peer[i].binds)
			return 1;
	return supervisor_watch_ms();
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Returns a descriptor that is readable once the process that has connected ends, even if another
 * process has its socket. */
static int process_open(int fd, pid_t pid)
{
	int process;
	socklen_t len = sizeof(process);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &len) == 0)
		return process;
	return (int)syscall(SYS_pidfd_open, pid, 0); /* before Linux 6.5 */
}

/* Returns whether a peer needs no slot between two requests, because the library connects again, or
 * has not sent the secret. */
static bool peer_is_dispensable(const struct peer *p)
{
	return !p->authenticated || (p->worker < 0 && p->ports == 0);
}

static struct peer *peer_free(void)
{
	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++)
		if (!peer[i].fd)
			return &peer[i];
	return NULL;
}

static struct peer *peer_least_recent(void)
{
	struct peer *found = NULL;

	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++)
		if (peer_is_dispensable(&peer[i]) && (!found || peer[i].request < found->request))
			found = &peer[i];
	return found;
}

/* Returns a slot for a process: a second connection replaces its first. */
static struct peer *peer_slot(struct supervisor *sv, pid_t pid)
{
	static bool warned;
	struct peer *p = peer_of(pid);

	if (!p)
		p = peer_free();
	if (!p)
		p = peer_least_recent();
	if (!p && !warned)
		sy_log(SY_LOG_WARN, "run",
		       "%u processes of the program are workers or have ports, as many as are "
		       "supported: Linux serves further ones, pid %d for instance",
		       SUPERVISOR_PEERS, pid);
	warned = !p;
	if (p && p->fd)
		peer_end(sv, p);
	return p;
}

static void peer_accept(struct supervisor *sv)
{
	struct ucred sender;
	socklen_t len = sizeof(sender);
	int fd = accept4(sv->listener, NULL, NULL, SOCK_CLOEXEC), one = 1;

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	int process = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &sender, &len)
	                      ? -1
	                      : process_open(fd, sender.pid);
	struct peer *p = process < 0 ? NULL : peer_slot(sv, sender.pid);
	if (!p) {
		close(fd);
		if (process >= 0)
			close(process);
		return;
	}
	p->fd = fd;
	p->process = process;
	p->authenticated = p->waits = p->warned = false;
	p->worker = p->registry = p->packets.memory = p->packets.large = -1;
	p->pid = sender.pid;
	p->request = ++requests;
	p->uid = sender.uid;
}

unsigned supervisor_poll_fill(struct supervisor *sv, struct pollfd *p)
{
	unsigned n = 0;

	p[n++] = (struct pollfd){.fd = sv->listener, .events = POLLIN};
	p[n++] = (struct pollfd){.fd = repair_fd(), .events = POLLIN};
	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++) {
		if (!peer[i].fd)
			continue;
		p[n++] = (struct pollfd){.fd = peer[i].fd, .events = POLLIN};
		p[n++] = (struct pollfd){.fd = peer[i].process, .events = POLLIN};
	}
	return n;
}

static void readable_serve(struct supervisor *sv, int fd)
{
	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++) {
		struct peer *p = &peer[i];
		if (p->fd == fd)
			peer_serve(sv, p);
		else if (p->fd && p->process == fd)
			peer_end(sv, p);
		else
			continue;
		return;
	}
}

void supervisor_serve(struct supervisor *sv, const struct pollfd *p, unsigned count)
{
	binds_continue(sv);
	if (p[1].revents)
		repair_serve(sv);
	for (unsigned n = 2; n < count; n++)
		if (p[n].revents)
			readable_serve(sv, p[n].fd);
	if (p[0].revents)
		peer_accept(sv);
}
