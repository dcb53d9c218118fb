// SPDX-License-Identifier: Apache-2.0
/* Calls that make, name and end sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#include "preload.h"
#include "real.h"

#define RESOLVE_NS (200 * MS) /* connect() waits for the kernel to find the neighbour */

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

static bool is_any(const struct sy_addr *a)
{
	return a->d[0] == 0 && (a->d[1] == 0 || (sy_addr_is_v4(a) && a->w[3] == 0));
}

/* A TCP socket of IPv4 or IPv6: its family. 0: something else. */
static int tcp_family(int fd)
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

static int local_of(int fd, struct sy_stack_endpoint *out)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	if (REAL(getsockname)(fd, (void *)&a, &len))
		return -errno;
	return endpoint_from((void *)&a, len, out);
}

/* Programs (nginx) put a socket into their epoll instance before they connect it. */
PRELOAD_EXPORT int socket(int family, int type, int protocol)
{
	int fd = REAL(socket)(family, type, protocol), code = errno;

	if (fd < 0 || (family != AF_INET && family != AF_INET6) ||
	    (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != SOCK_STREAM || !runner_lock())
		return fd;
	struct sock *s = keeper_config() ? sock_new(OBJECT_PLAIN, family) : NULL;
	if (s)
		table_put(fd, &s->o);
	runner_unlock();
	errno = code;
	return fd;
}

/* ---- listen, accept -------------------------------------------------------------------------- */

/* The kernel's socket listens as well: for all addresses that the stack does not have, and for
 * clients on this host. */
static void listener_make(int fd, int backlog)
{
	struct sy_stack_endpoint local;
	int family = tcp_family(fd), flags, v6_only = 0;
	socklen_t len = sizeof(v6_only);
	struct sock *s;

	if (!family || local_of(fd, &local) || !keeper_serves_port(local.port))
		return;
	if (!is_any(&local.addr) && !keeper_serves(&local.addr))
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
	s->backlog = backlog > 0 ? (unsigned)backlog : 1;
	flags = REAL(fcntl)(fd, F_GETFL);
	s->nonblock = flags & O_NONBLOCK;
	REAL(fcntl)(fd, F_SETFL, flags | O_NONBLOCK);
	options_read(s, fd);
	if (!table_get(fd))
		table_put(fd, &s->o);
	if (s->watches)
		runner_listen(s);
	/* From now on a SYN finds the stack, or nobody until it runs, and comes again. */
	if (keeper_listen(s, true))
		sy_log(SY_LOG_ERROR, "run", "port %u is not steered to the stack",
		       ntohs(local.port));
}

PRELOAD_EXPORT int bind(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	return table_connection(fd) ? (int)result(-EINVAL) : REAL(bind)(fd, addr, len);
}

PRELOAD_EXPORT int listen(int fd, int backlog)
{
	if (table_connection(fd))
		return (int)result(-EINVAL);
	int rc = REAL(listen)(fd, backlog), code = errno;

	if (rc == 0 && !table_sock(fd) && runner_lock()) {
		listener_make(fd, backlog);
		runner_unlock();
	}
	errno = code;
	return rc;
}

/* A descriptor for a connection: a copy of one socket that is never connected. A call that does not
 * come here fails with ENOTCONN. */
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

/* The client that a balancer names, or the peer itself. An address of IPv6 has no form that a
 * socket of IPv4 could tell. */
static void client_find(const struct sock *l, sy_stack_id id, struct sy_stack_endpoint *peer)
{
	struct sy_stack_endpoint client;

	if (sy_stack_client(runner.stack, id, &client) == 0 &&
	    (l->family == AF_INET6 || sy_addr_is_v4(&client.addr)))
		*peer = client;
}

/* Locked. A connection that the stack has accepted. */
static int stack_accept(struct sock *l, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct sy_stack_endpoint peer;
	struct sy_stack_info info;
	sy_stack_id id;
	int rc = -EAGAIN;

	if (!runner.stack || !(sock_ready(l) & EPOLLIN))
		return -EAGAIN;
	int fd = placeholder(l->family, flags); /* without one the connection waits on */
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
	                   .told = true,
	                   .nodelay = l->nodelay,
	                   .keepalive = l->keepalive,
	                   .keepidle = l->keepidle,
	                   .keepintvl = l->keepintvl,
	                   .keepcnt = l->keepcnt,
	                   .sndbuf = l->sndbuf,
	                   .rcvbuf = l->rcvbuf,
	                   .pacing_rate = l->pacing_rate,
	                   .linger = l->linger,
	                   .receive_ns = l->receive_ns,
	                   .send_ns = l->send_ns,
	                   .user_timeout = l->user_timeout,
	                   .peer = peer,
	                   .local = l->local,
	                   .next = next};
	if (sy_stack_info(runner.stack, id, &info) == 0)
		s->local = info.local;
	sy_stack_set_cookie(runner.stack, id, (uintptr_t)s);
	table_put(fd, &s->o);
	if (addr && len)
		endpoint_to(&peer, s->family, addr, len);
	return fd;
}

static int accept_wait(struct sock *l, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	uint64_t deadline = l->receive_ns ? sy_clock_ns() + l->receive_ns : NEVER;
	int rc;

	for (;;) {
		rc = stack_accept(l, addr, len, flags);
		if (rc != -EAGAIN)
			return rc;
		rc = REAL(accept4)(fd, addr, len, flags);
		if (rc < 0 && errno != EAGAIN)
			return -errno;
		if (rc >= 0) {
			table_put(rc, NULL);
			return rc;
		}
		if (l->nonblock) {
			runner_turn();
			return stack_accept(l, addr, len, flags);
		}
		rc = runner_await(l, EPOLLIN, fd, deadline);
		if (rc)
			return rc;
	}
}

PRELOAD_EXPORT int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *len, int flags)
{
	struct sock *l = table_sock(fd);
	int rc;

	if (!l || l->o.kind != OBJECT_LISTENER) {
		rc = REAL(accept4)(fd, addr, len, flags);
		if (rc >= 0)
			table_forget(rc);
		return rc;
	}
	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
		return (int)result(-EINVAL);
	if (!runner_lock())
		return (int)result(-EAGAIN);
	l = table_sock(fd); /* another thread may have closed it */
	if (!l || l->o.kind != OBJECT_LISTENER) {
		runner_unlock();
		return (int)result(-EBADF);
	}
	if (runner_start() == 0)
		runner_listen(l);
	rc = accept_wait(l, fd, addr.__sockaddr__, len, flags);
	runner_unlock();
	return (int)result(rc);
}

PRELOAD_EXPORT int accept(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	return accept4(fd, addr, len, 0);
}

/* ---- connect --------------------------------------------------------------------------------- */

static bool port_is_steered(uint16_t port)
{
	const struct message_answer *c = keeper_config();

	return port >= c->port_first && port <= c->port_last;
}

/* Locked. From which of the served addresses does this connection go? false: it is Linux's. */
static bool connect_is_ours(int fd, const struct sy_stack_endpoint *peer,
                            struct sy_stack_endpoint *local)
{
	if (!keeper_config() || local_of(fd, local) || keeper_serves(&peer->addr) ||
	    sy_addr_is_bogus_source(&peer->addr) || sy_addr_is_link_local(&peer->addr))
		return false;
	/* bind() has had the kernel choose a port: answers to it come to Linux. */
	if (local->port && !port_is_steered(ntohs(local->port)))
		return false;
	if (!is_any(&local->addr))
		return keeper_serves(&local->addr) && runner_start() == 0;
	struct sy_addr source;
	if (runner.refused || runner_start() || !route_source(&peer->addr, &source))
		return false;
	local->addr = source;
	return keeper_serves(&source);
}

/* Locked, and not while it sleeps. A SYN that is lost costs a second. */
static void neighbour_find(const struct sy_addr *dst)
{
	uint64_t end = sy_clock_ns() + RESOLVE_NS;

	while (runner.stack && !route_mac(dst) && sy_clock_ns() < end) {
		runner_unlock();
		usleep(1000);
		runner_lock();
	}
}

static int connect_await(struct sock *s)
{
	uint64_t deadline = s->send_ns ? sy_clock_ns() + s->send_ns : NEVER;
	int rc = runner_await(s, EPOLLOUT | EPOLLERR | EPOLLHUP, -1, deadline);

	if (rc)
		return rc == -EAGAIN ? -EINPROGRESS : rc;
	s->connecting = false;
	s->told = true;
	return -sy_stack_error(runner.stack, s->id);
}

/* A second connect() tells how the first one stands. */
static int connect_again(struct sock *s)
{
	int rc = 0;

	runner_turn();
	if (s->connecting && !(sock_ready(s) & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
		return s->nonblock ? -EALREADY : connect_await(s);
	if (s->told)
		return -EISCONN;
	if (s->connecting)
		rc = -sy_stack_error(runner.stack, s->id);
	s->connecting = false;
	s->told = true;
	return rc;
}

static int connect_new(int fd, int family, struct sy_stack_endpoint local,
                       const struct sy_stack_endpoint *peer)
{
	struct sock *s = table_plain(fd);
	struct sy_stack_info info;
	int rc;

	if (!s)
		s = sock_new(OBJECT_CONNECTION, family);
	if (!s)
		return -ENOMEM;
	s->nonblock = REAL(fcntl)(fd, F_GETFL) & O_NONBLOCK;
	s->connecting = true;
	s->peer = *peer;
	options_read(s, fd);
	rc = sy_stack_connect(runner.stack, &local, peer, (uintptr_t)s, sy_clock_ns(), &s->id);
	if (rc) {
		s->id = SY_STACK_NONE;
		s->connecting = false;
		if (!table_get(fd))
			sock_free(s);
		return rc;
	}
	s->o.kind = OBJECT_CONNECTION;
	watches_take(s);
	options_apply(s, s->id);
	s->local = local;
	if (sy_stack_info(runner.stack, s->id, &info) == 0)
		s->local = info.local;
	if (!table_get(fd))
		table_put(fd, &s->o);
	runner_turn(); /* the SYN leaves */
	return s->nonblock ? -EINPROGRESS : connect_await(s);
}

/* Locked. false: another thread has closed or connected the socket meanwhile. */
static bool connect_prepare(int fd, const struct sy_addr *dst)
{
	const struct object *before = table_get(fd);

	if (REAL(fcntl)(fd, F_GETFL) & O_NONBLOCK)
		route_mac(dst); /* the kernel begins to look; the SYN comes again */
	else
		neighbour_find(dst);
	return runner.stack && table_get(fd) == before && !table_sock(fd) && tcp_family(fd);
}

PRELOAD_EXPORT int connect(int fd, __CONST_SOCKADDR_ARG addr, socklen_t len)
{
	struct sock *s = table_sock(fd);
	bool known = s != NULL;
	struct sy_stack_endpoint peer, local;
	int family = 0, rc;

	if (s && s->o.kind == OBJECT_LISTENER)
		return (int)result(-EISCONN);
	if (!s && (!addr.__sockaddr__ || endpoint_from(addr.__sockaddr__, len, &peer) ||
	           !(family = tcp_family(fd))))
		return REAL(connect)(fd, addr, len);
	if (!runner_lock())
		return (int)result(-EAGAIN);
	s = table_sock(fd);
	if (s) {
		rc = s->id == SY_STACK_NONE ? -ENOTCONN : connect_again(s);
	} else if (known) { /* another thread has closed it */
		rc = -EBADF;
	} else if (connect_is_ours(fd, &peer, &local)) {
		rc = connect_prepare(fd, &peer.addr) ? connect_new(fd, family, local, &peer)
		                                     : -EBADF;
	} else {
		runner_unlock();
		return REAL(connect)(fd, addr, len);
	}
	runner_unlock();
	return (int)result(rc);
}

/* ---- names, shutdown ------------------------------------------------------------------------- */

PRELOAD_EXPORT int getpeername(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	struct sock *s = table_connection(fd);

	if (!s)
		return REAL(getpeername)(fd, addr, len);
	if (s->connecting || s->id == SY_STACK_NONE)
		return (int)result(-ENOTCONN);
	endpoint_to(&s->peer, s->family, addr.__sockaddr__, len);
	return 0;
}

PRELOAD_EXPORT int getsockname(int fd, __SOCKADDR_ARG addr, socklen_t *len)
{
	struct sock *s = table_connection(fd);

	if (!s)
		return REAL(getsockname)(fd, addr, len);
	endpoint_to(&s->local, s->family, addr.__sockaddr__, len);
	return 0;
}

PRELOAD_EXPORT int shutdown(int fd, int how)
{
	struct sock *s = table_sock(fd);
	int rc = 0;

	if (!s || s->o.kind == OBJECT_LISTENER)
		return REAL(shutdown)(fd, how);
	if (how < SHUT_RD || how > SHUT_RDWR)
		return (int)result(-EINVAL);
	if (!runner_lock())
		return (int)result(-EAGAIN);
	s = table_connection(fd);
	if (!s || s->id == SY_STACK_NONE || s->connecting)
		rc = -ENOTCONN;
	if (!rc && how != SHUT_RD) {
		rc = sy_stack_shutdown(runner.stack, s->id, sy_clock_ns());
		s->write_shut = !rc;
	}
	if (!rc && how != SHUT_WR)
		s->read_shut = true;
	if (!rc)
		sock_event(s);
	runner_flush();
	runner_unlock();
	return (int)result(rc);
}
