// SPDX-License-Identifier: Apache-2.0
/* Calls that create, connect, name and shut down sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>

#include "packets.h"
#include "real.h"

#define RESOLVE_NS (200 * MS) /* how long connect() waits for the neighbour */

/* ---- addresses ------------------------------------------------------------------------------- */

int endpoint_from(const struct sockaddr *from, socklen_t len, struct sy_stack_endpoint *out)
{
	const struct sockaddr_in *v4 = (const void *)from;
	const struct sockaddr_in6 *v6 = (const void *)from;

	if (from->sa_family == AF_INET && len >= sizeof(*v4)) {
		*out = (struct sy_stack_endpoint){sy_addr_v4(v4->sin_addr.s_addr), v4->sin_port};
		return 0;
	}
	if (from->sa_family != AF_INET6 || len < sizeof(*v6))
		return -EAFNOSUPPORT;
	memcpy(out->addr.b, &v6->sin6_addr, sizeof(out->addr.b));
	out->port = v6->sin6_port;
	return 0;
}

void endpoint_to(const struct sy_stack_endpoint *e, int family, struct sockaddr *to, socklen_t *len)
{
	struct sockaddr_in v4 = {
	        .sin_family = AF_INET, .sin_port = e->port, .sin_addr.s_addr = e->addr.w[3]};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = e->port};
	socklen_t size = family == AF_INET ? sizeof(v4) : sizeof(v6);

	memcpy(&v6.sin6_addr, e->addr.b, sizeof(v6.sin6_addr));
	memcpy(to, family == AF_INET ? (void *)&v4 : (void *)&v6, *len < size ? *len : size);
	*len = size;
}

int name_return(const struct sy_stack_endpoint *e, int family, struct sockaddr *to, socklen_t *len)
{
	if (!is_user_memory(len))
		return -EFAULT;
	if ((int)*len < 0)
		return -EINVAL;
	if (*len > 0 && !is_user_memory(to))
		return -EFAULT;
	endpoint_to(e, family, to, len);
	return 0;
}

bool addr_is_any(const struct sy_addr *a)
{
	return a->d[0] == 0 && (a->d[1] == 0 || (sy_addr_is_v4(a) && a->w[3] == 0));
}

int socket_family(int fd)
{
	int family, type, protocol;
	socklen_t len = sizeof(int);

	if (REAL(getsockopt)(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) ||
	    REAL(getsockopt)(fd, SOL_SOCKET, SO_TYPE, &type, &len) ||
	    REAL(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len))
		return 0;
	return type == SOCK_STREAM && protocol == IPPROTO_TCP &&
	                       (family == AF_INET || family == AF_INET6)
	               ? family
	               : 0;
}

int socket_local(int fd, struct sy_stack_endpoint *out)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	if (REAL(getsockname)(fd, (void *)&a, &len))
		return -errno;
	return endpoint_from((void *)&a, len, out);
}

/* Registers new TCP sockets: programs such as nginx add a socket to their epoll instance before
 * they connect it. */
PRELOAD_EXPORT int socket(int family, int type, int protocol)
{
	int fd = REAL(socket)(family, type, protocol), code = errno;

	if (fd < 0 || (family != AF_INET && family != AF_INET6) ||
	    (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != SOCK_STREAM || !runner_lock())
		return fd;
	struct sock *s = supervisor_config() ? sock_new(OBJECT_PLAIN, family) : NULL;
	if (s)
		table_put(fd, &s->o);
	runner_unlock();
	errno = code;
	return fd;
}

/* ---- connect --------------------------------------------------------------------------------- */

static bool port_is_steered(uint16_t port)
{
	const struct message_answer *c = supervisor_config();

	return port >= c->port_first && port <= c->port_last;
}

/* Returns whether the stack opens this connection, and stores its local address. Locked. */
static bool connect_is_ours(int fd, const struct sy_stack_endpoint *peer,
                            struct sy_stack_endpoint *local)
{
	if (!supervisor_config() || options_bind(fd) || socket_local(fd, local) ||
	    supervisor_serves(&peer->addr) || sy_addr_is_bogus_source(&peer->addr) ||
	    sy_addr_is_link_local(&peer->addr))
		return false;
	/* The kernel has chosen the port at bind(): segments to it go to Linux. */
	if (local->port && !port_is_steered(ntohs(local->port)))
		return false;
	if (!addr_is_any(&local->addr))
		return supervisor_serves(&local->addr) && runner_start() == 0;
	struct sy_addr source;
	if (runner.refused || runner_start() || !route_source(&peer->addr, &source))
		return false;
	local->addr = source;
	return supervisor_serves(&source);
}

/* Waits for the kernel to resolve the neighbour: a lost SYN would cost a second. Locked, but for
 * its sleeps. */
static void neighbour_await(const struct sy_addr *dst)
{
	uint64_t end = sy_clock_ns() + RESOLVE_NS;
	bool waits;

	while (runner.stack && !route_mac(dst, &waits) && waits && sy_clock_ns() < end) {
		runner_unlock();
		usleep(1000);
		runner_lock();
	}
}

/* Ends the connection, and makes the socket unconnected. Fails for accepted connections: they share
 * a placeholder socket (accept.c). Locked. */
static int connection_unconnect(struct sock *s, int fd)
{
	uint64_t now_ns = sy_clock_ns();

	if (s->accepted)
		return -EOPNOTSUPP;
	if (runner.stack && s->id != SY_STACK_NONE) {
		sy_stack_set_cookie(runner.stack, s->id, 0);
		sy_stack_abort(runner.stack, s->id, now_ns);
	}
	s->id = SY_STACK_NONE;
	s->o.kind = OBJECT_PLAIN;
	s->reported = s->read_shut = s->write_shut = false;
	int flags = REAL(fcntl)(fd, F_GETFL) & ~O_NONBLOCK;
	REAL(fcntl)(fd, F_SETFL, flags | (s->nonblock ? O_NONBLOCK : 0));
	watches_to_kernel(s);
	object_notify(&s->o);
	return 0;
}

/* Returns the result of the first connect(). After a failure the socket may be connected again. */
static int connect_result(struct sock *s, int fd)
{
	int rc;

	s->reported = true;
	if (info_of(s).state != SY_STACK_CLOSED)
		return 0;
	/* 0 if getsockopt(SO_ERROR) has reported it. */
	rc = -sy_stack_error(runner.stack, s->id);
	connection_unconnect(s, fd);
	return rc ? rc : -ECONNABORTED;
}

static int connect_await(struct sock *s, int fd, struct signals *signals)
{
	uint64_t wait_ns = s->options.send_timeout_ns;
	uint64_t deadline = wait_ns ? sy_clock_ns() + wait_ns : NEVER;
	sy_stack_id id = s->id;
	int rc = runner_await(s, EPOLLOUT | EPOLLERR | EPOLLHUP, -1, deadline, signals);

	if (rc)
		return rc == -EAGAIN ? -EINPROGRESS : rc;
	/* Another thread may have called shutdown() or connect(). */
	return s->id == id ? connect_result(s, fd) : -ECONNABORTED;
}

/* A repeated connect() returns the state of the first. */
static int connect_repeat(struct sock *s, int fd, struct signals *signals)
{
	runner_poll();
	if (s->reported)
		return -EISCONN;
	if (sock_ready(s) & (EPOLLOUT | EPOLLERR | EPOLLHUP))
		return connect_result(s, fd);
	int rc = s->nonblock ? -EALREADY : connect_await(s, fd, signals);
	return rc == -EINPROGRESS ? -EALREADY : rc;
}

/* connect() of a listener: the kernel's socket returns EISCONN, or stops listening (AF_UNSPEC). */
static int listener_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	int listens = 1, rc = REAL(connect)(fd, addr, len), code = errno;
	socklen_t size = sizeof(listens);

	REAL(getsockopt)(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
	if (!listens && runner_lock()) {
		struct sock *s = table_sock(fd);
		if (s && s->o.kind == OBJECT_LISTENER && !s->ended)
			listener_end(s);
		runner_flush();
		runner_unlock();
	}
	errno = code;
	return rc;
}

/* connect() with AF_UNSPEC. */
static int connection_disconnect(int fd)
{
	struct sock *s;

	if (!runner_lock())
		return -EAGAIN;
	s = table_connection(fd);
	int rc = s ? connection_unconnect(s, fd) : -EBADF;
	runner_flush();
	runner_unlock();
	return rc;
}

static int connect_new(int fd, int family, struct sy_stack_endpoint local,
                       const struct sy_stack_endpoint *peer, struct signals *signals)
{
	struct sock *s = table_plain(fd);
	struct sy_stack_info info;
	int rc;

	if (!s)
		s = sock_new(OBJECT_CONNECTION, family);
	if (!s)
		return -ENOMEM;
	s->nonblock = REAL(fcntl)(fd, F_GETFL) & O_NONBLOCK;
	s->user = pthread_self();
	s->peer = *peer;
	options_read(s, fd);
	rc = sy_stack_connect(runner.stack, &local, peer, (uintptr_t)s, sy_clock_ns(), &s->id);
	if (rc) {
		s->id = SY_STACK_NONE;
		if (!table_get(fd))
			sock_free(s);
		return rc;
	}
	s->o.kind = OBJECT_CONNECTION;
	watches_to_stack(s);
	options_apply(s, s->id);
	s->local = local;
	if (sy_stack_info(runner.stack, s->id, &info) == 0)
		s->local = info.local;
	if (!table_get(fd))
		table_put(fd, &s->o);
	runner_poll(); /* sends the SYN */
	return s->nonblock ? -EINPROGRESS : connect_await(s, fd, signals);
}

/* Starts to resolve the neighbour. Returns false if another thread has closed or connected the
 * socket meanwhile. Locked. */
static bool connect_prepare(int fd, const struct sy_addr *dst)
{
	const struct object *before = table_get(fd);
	bool waits;

	if (REAL(fcntl)(fd, F_GETFL) & O_NONBLOCK)
		route_mac(dst, &waits); /* starts the resolution; the SYN is retransmitted */
	else
		neighbour_await(dst);
	return runner.stack && table_get(fd) == before && !table_sock(fd) && socket_family(fd);
}

bool connect_is_due(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sy_stack_endpoint peer, local;

	if (!is_user_memory(addr) || len < sizeof(sa_family_t) || table_sock(fd) ||
	    endpoint_from(addr, len, &peer) || !socket_family(fd) || !runner_lock())
		return false;
	bool is = connect_is_ours(fd, &peer, &local);
	runner_unlock();
	return is;
}

PRELOAD_EXPORT int connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	struct sock *s = table_sock(fd);
	bool is_registered = s != NULL;
	struct sy_stack_endpoint peer, local;
	struct signals signals = {0};
	int family = 0, rc;

	if (s && s->o.kind == OBJECT_LISTENER)
		return listener_connect(fd, addr.__sockaddr__, len);
	if (!s && (!is_user_memory(addr.__sockaddr__) || len < sizeof(sa_family_t) ||
	           endpoint_from(addr.__sockaddr__, len, &peer) || !(family = socket_family(fd))))
		return REAL(connect)(fd, addr, len);
	if (!is_user_memory(addr.__sockaddr__) || len < sizeof(sa_family_t))
		return (int)result(len < sizeof(sa_family_t) ? -EINVAL : -EFAULT);
	if (addr.__sockaddr__->sa_family == AF_UNSPEC)
		return (int)result(connection_disconnect(fd));
	pthread_testcancel();
	if (!runner_lock())
		return (int)result(-EAGAIN);
	s = table_sock(fd);
	if (s) {
		rc = s->id == SY_STACK_NONE ? -ENOTCONN : connect_repeat(s, fd, &signals);
	} else if (is_registered) { /* another thread has closed it */
		rc = -EBADF;
	} else if (connect_is_ours(fd, &peer, &local)) {
		rc = connect_prepare(fd, &peer.addr)
		             ? connect_new(fd, family, local, &peer, &signals)
		             : -EBADF;
	} else {
		runner_unlock();
		return REAL(connect)(fd, addr, len);
	}
	runner_unlock();
	signals_restore(&signals);
	return (int)result(rc);
}

/* ---- names, shutdown ------------------------------------------------------------------------- */

/* Linux's socket has a peer until TIME-WAIT begins. */
static bool connection_has_peer(int fd)
{
	enum sy_stack_state state = SY_STACK_CLOSED;

	if (!runner_lock())
		return false;
	const struct sock *s = table_connection(fd); /* another thread may have closed it */
	if (s)
		state = info_of(s).state;
	runner_unlock();
	return state != SY_STACK_CLOSED && state != SY_STACK_SYN_SENT &&
	       state != SY_STACK_TIME_WAIT;
}

PRELOAD_EXPORT int getpeername(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	struct sock *s = table_connection(fd);
	struct sy_stack_endpoint local, peer;
	int family;

	if (!s && relay_has(fd) && (family = relay_names(fd, &local, &peer)))
		return (int)result(name_return(&peer, family, addr.__sockaddr__, len));

	if (!s)
		return REAL(getpeername)(fd, addr, len);
	if (!connection_has_peer(fd))
		return (int)result(-ENOTCONN);
	return (int)result(name_return(&s->peer, s->family, addr.__sockaddr__, len));
}

PRELOAD_EXPORT int getsockname(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	struct sock *s = table_connection(fd);
	struct sy_stack_endpoint local, peer;
	int family;

	if (!s && relay_has(fd) && (family = relay_names(fd, &local, &peer)))
		return (int)result(name_return(&local, family, addr.__sockaddr__, len));

	if (!s)
		return REAL(getsockname)(fd, addr, len);
	return (int)result(name_return(&s->local, s->family, addr.__sockaddr__, len));
}

/* shutdown() of a listener ends listening; the socket stays. For other sockets of the kernel, the
 * kernel does all. */
static int listener_shutdown(int fd, int how)
{
	if (REAL(shutdown)(fd, how))
		return -1;
	if (how == SHUT_WR || !table_sock(fd) || !runner_lock())
		return 0;
	struct sock *s = table_sock(fd);
	if (s && s->o.kind == OBJECT_LISTENER)
		listener_end(s);
	runner_flush();
	runner_unlock();
	return 0;
}

/* Shuts sides down. A connection that is opening ends, whichever side it is. Locked. */
static int connection_shutdown(struct sock *s, int fd, int how)
{
	enum sy_stack_state state = s->id == SY_STACK_NONE ? SY_STACK_CLOSED : info_of(s).state;

	if (state == SY_STACK_CLOSED || state == SY_STACK_TIME_WAIT)
		return -ENOTCONN;
	if (state == SY_STACK_SYN_SENT)
		return connection_unconnect(s, fd);
	if (how != SHUT_RD) {
		int rc = sy_stack_shutdown(runner.stack, s->id, sy_clock_ns());
		if (rc)
			return rc;
		s->write_shut = true;
	}
	if (how != SHUT_WR)
		s->read_shut = true;
	sock_event(s);
	return 0;
}

PRELOAD_EXPORT int shutdown(int fd, int how)
{
	struct sock *s = table_sock(fd);
	int rc = 0;

	if (!s || s->o.kind == OBJECT_LISTENER)
		return listener_shutdown(fd, how);
	if (how < SHUT_RD || how > SHUT_RDWR)
		return (int)result(-EINVAL);
	if (!runner_lock())
		return (int)result(-EAGAIN);
	s = table_connection(fd);
	rc = s ? connection_shutdown(s, fd, how) : -EBADF;
	runner_flush();
	runner_unlock();
	return (int)result(rc);
}
