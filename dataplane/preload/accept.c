// SPDX-License-Identifier: Apache-2.0
/* Listening sockets, in the kernel and in the stack, and the connections they accept. */
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>

#include "preload.h"
#include "real.h"

/* ---- listen ---------------------------------------------------------------------------------- */

/* This library makes the kernel's listening socket non-blocking. Another program may inherit it
 * (execve(), SCM_RIGHTS) and must find the mode that this program has set. So F_SETSIG stores the
 * mode: an otherwise unused signal number marks a blocking socket. */
#define BLOCKS 64

void listener_store_blocking(const struct sock *s, int fd)
{
	REAL(fcntl)(fd, F_SETSIG, s->nonblock ? 0 : BLOCKS);
}

/* Opens the listener. Without a stack, Linux accepts new connections until the program waits for
 * them. */
static void listener_open(struct sock *s)
{
	int rc;

	if (s->watches)
		runner_listen(s);
	rc = runner.stack ? serve_open(s) : supervisor_listen(s, true, false);
	if (rc)
		sy_log(SY_LOG_ERROR, "run", "port %u is not steered to the stack: %s",
		       ntohs(s->local.port), strerror(-rc));
}

/* Makes a listener of the stack. The kernel's socket also listens: for addresses that the stack
 * does not serve, and for clients on this host. */
static void listener_make(int fd, int backlog)
{
	struct sy_stack_endpoint local;
	int family = socket_family(fd), flags, v6_only = 0;
	socklen_t len = sizeof(v6_only);
	struct sock *s;

	if (!family || socket_local(fd, &local) || !supervisor_serves_port(local.port))
		return;
	if ((!addr_is_any(&local.addr) && !supervisor_serves(&local.addr)) || options_bind(fd))
		return;
	s = table_plain(fd);
	if (!s)
		s = sock_new(OBJECT_LISTENER, family);
	if (!s)
		return;
	s->o.kind = OBJECT_LISTENER;
	REAL(getsockopt)(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, &len);
	s->v6_only = v6_only != 0;
	s->local = local;
	s->backlog = (unsigned)backlog + 1;
	flags = REAL(fcntl)(fd, F_GETFL);
	s->nonblock = flags & O_NONBLOCK && REAL(fcntl)(fd, F_GETSIG) != BLOCKS;
	REAL(fcntl)(fd, F_SETFL, flags | O_NONBLOCK);
	listener_store_blocking(s, fd);
	options_read(s, fd);
	if (!table_get(fd))
		table_put(fd, &s->o);
	serve_add(s);
	listener_open(s);
}

/* listen() after shutdown(). */
static void listener_reopen(struct sock *s, int backlog)
{
	s->ended = false;
	s->backlog = (unsigned)backlog + 1;
	listener_open(s);
}

/* Returns the backlog of a listening socket of the kernel; -1: it does not listen. */
static int backlog_of(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	int listens = 0;

	if (!socket_family(fd))
		return -1;
	socklen_t size = sizeof(listens);
	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens)
		return -1;
	return REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ? SOMAXCONN
	                                                                : (int)info.tcpi_sacked;
}

void listener_adopt(int fd)
{
	int backlog = backlog_of(fd);

	if (backlog < 0 || table_get(fd) || !runner_lock())
		return;
	listener_make(fd, backlog);
	runner_unlock();
}

/* Registers listening sockets that the program inherits from the program that executed it, such as
 * itself (nginx' SIGUSR2) or systemd, and connections that a relay serves. */
__attribute__((constructor)) static void listeners_adopt(void)
{
	DIR *list = getenv(MESSAGE_ENV) ? opendir("/proc/self/fd") : NULL;
	const struct dirent *entry;

	while (list && (entry = readdir(list))) {
		if (entry->d_name[0] == '.')
			continue;
		int fd = atoi(entry->d_name);
		if (fd == dirfd(list))
			continue;
		listener_adopt(fd);
		relay_mark(fd);
	}
	if (list)
		closedir(list);
}

PRELOAD_EXPORT int bind(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	if (!table_connection(fd))
		return REAL(bind)(fd, addr, len);
	return (int)result(is_user_memory(addr.__sockaddr__) ? -EINVAL : -EFAULT);
}

PRELOAD_EXPORT int listen(int fd, int backlog)
{
	if (table_connection(fd))
		return (int)result(-EINVAL);
	int rc = REAL(listen)(fd, backlog), code = errno;

	if (rc == 0 && runner_lock()) {
		struct sock *s = table_sock(fd);
		int effective = backlog_of(fd); /* net.core.somaxconn limits it */
		effective = effective < 0 ? backlog : effective;
		if (!s)
			listener_make(fd, effective);
		else if (s->ended)
			listener_reopen(s, effective);
		else
			serve_backlog(s, (unsigned)effective + 1);
		runner_unlock();
	}
	errno = code;
	return rc;
}

/* ---- accept ---------------------------------------------------------------------------------- */

/* Returns a descriptor for a connection: a copy of one socket that is never connected. Calls that
 * this library does not replace fail with ENOTCONN. */
static int placeholder(int family, int flags)
{
	static int original[2] = {-1, -1};
	int *from = &original[family == AF_INET6];

	if (*from < 0)
		*from = table_own(REAL(socket)(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (*from < 0)
		return -errno;
	int fd = REAL(fcntl)(*from, flags & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
	return fd < 0 ? -errno : fd;
}

/* Stores the client's address as a balancer reports it, or leaves the peer's. A socket of IPv4
 * cannot report an address of IPv6. */
static void client_find(const struct sock *l, sy_stack_id id, struct sy_stack_endpoint *peer)
{
	struct sy_stack_endpoint client;

	if (sy_stack_client(runner.stack, id, &client) == 0 &&
	    (l->family == AF_INET6 || sy_addr_is_v4(&client.addr)))
		*peer = client;
}

/* Accepts a connection of the stack. Locked. */
static int stack_accept(struct sock *l, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct sy_stack_endpoint peer;
	struct sy_stack_info info;
	sy_stack_id id;
	int rc = -EAGAIN;

	if (!runner.stack || !(sock_ready(l) & EPOLLIN))
		return -EAGAIN;
	int fd = placeholder(l->family, flags); /* without one the connection stays queued */
	if (fd < 0)
		return fd;
	if (l->id != SY_STACK_NONE)
		rc = sy_stack_accept(runner.stack, l->id, 0, &peer, &id);
	if (rc == -EAGAIN && l->id_v4 != SY_STACK_NONE)
		rc = sy_stack_accept(runner.stack, l->id_v4, 0, &peer, &id);
	if (rc) {
		REAL(close)(fd);
		return rc;
	}
	client_find(l, id, &peer);
	serve_accepted(l);
	struct sock *s = sock_new(OBJECT_CONNECTION, l->family);
	if (!s) {
		sy_stack_abort(runner.stack, id, runner.now_ns);
		REAL(close)(fd);
		return -ENOMEM;
	}
	struct sock *next = s->next;
	*s = (struct sock){.o.kind = OBJECT_CONNECTION,
	                   .id = id,
	                   .family = l->family,
	                   .nonblock = flags & SOCK_NONBLOCK,
	                   .reported = true,
	                   .accepted = true,
	                   .user = pthread_self(),
	                   .options = l->options,
	                   .peer = peer,
	                   .local = l->local,
	                   .next = next};
	if (sy_stack_info(runner.stack, id, &info) == 0)
		s->local = info.local;
	sy_stack_set_cookie(runner.stack, id, (uintptr_t)s);
	table_put(fd, &s->o);
	if (addr)
		rc = name_return(&peer, s->family, addr, len);
	if (rc) { /* as on Linux, the connection is lost */
		table_put(fd, NULL);
		REAL(close)(fd);
	}
	return rc ? rc : fd;
}

static int accept_wait(struct sock *l, int fd, struct sockaddr *addr, socklen_t *len, int flags,
                       struct signals *signals)
{
	uint64_t wait_ns = l->options.receive_timeout_ns;
	uint64_t deadline = wait_ns ? sy_clock_ns() + wait_ns : NEVER;
	int rc;

	for (;;) {
		rc = stack_accept(l, addr, len, flags);
		if (rc != -EAGAIN) {
			/* Other threads accept the connections that came with this one. */
			if (l->o.links && sock_ready(l) & EPOLLIN)
				object_notify(&l->o);
			return rc;
		}
		rc = kernel_accept(l, fd, addr, len, flags);
		if (rc < 0 && rc != -EAGAIN)
			return rc;
		if (rc >= 0) {
			table_put(rc, NULL);
			return rc;
		}
		if (l->nonblock) {
			runner_poll();
			return stack_accept(l, addr, len, flags);
		}
		uint64_t patience = runner_patience_ns(), end = deadline;
		if (patience != NEVER && sy_clock_ns() + patience < end)
			end = sy_clock_ns() + patience;
		rc = runner_await(l, EPOLLIN, fd, end, signals);
		if (rc && (rc != -EAGAIN || end == deadline))
			return rc;
		if (!runner.stack && runner_start() == 0)
			runner_listen(l);
	}
}

PRELOAD_EXPORT int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *len, int flags)
{
	struct sock *l = table_sock(fd);
	struct signals signals = {0};
	int rc;

	if (!l || l->o.kind != OBJECT_LISTENER) {
		rc = REAL(accept4)(fd, addr, len, flags);
		if (rc >= 0)
			table_forget(rc);
		return rc;
	}
	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
		return (int)result(-EINVAL);
	pthread_testcancel();
	if (!runner_lock())
		return (int)result(-EAGAIN);
	l = table_sock(fd); /* another thread may have closed it */
	if (!l || l->o.kind != OBJECT_LISTENER) {
		runner_unlock();
		return (int)result(-EBADF);
	}
	l->used = runner.wanted = true; /* the stack listens there once it starts */
	if (runner_starts() && !l->nonblock)
		signals_block(&signals);
	runner_start();
	serve_accepted(l);
	runner_listen(l);
	rc = accept_wait(l, fd, addr.__sockaddr__, len, flags, &signals);
	runner_unlock();
	signals_restore(&signals);
	return (int)result(rc);
}

PRELOAD_EXPORT int accept(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	return accept4(fd, addr, len, 0);
}
