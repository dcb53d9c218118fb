// SPDX-License-Identifier: Apache-2.0
/* Calls that change a socket: each case has its own. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "conformance.h"

#define RESULT(call)                                                                               \
	({                                                                                         \
		long rc_ = (call);                                                                 \
		rc_ < 0 ? -errno : rc_;                                                            \
	})
#define ACTION(name) static long name(int fd)

/* The state that the socket reports after the call. */
static void after(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP | POLLPRI};
	int error = -1;
	socklen_t len = sizeof(error);

	poll(&p, 1, 0);
	more("then %s", events_name((unsigned short)p.revents));
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0)
		more(", error %s", error_name(error));
}

/* ---- names and roles ------------------------------------------------------------------------- */

ACTION(so_error)
{
	int first = -1, second = -1;
	socklen_t len = sizeof(int);
	long rc = RESULT(getsockopt(fd, SOL_SOCKET, SO_ERROR, &first, &len));

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &second, &len);
	if (rc == 0)
		more("%s %s", error_name(first), error_name(second));
	return rc;
}

ACTION(bind_any)
{
	struct sockaddr_storage a;
	socklen_t len = address_of(peer.family == AF_INET ? "0.0.0.0" : "::", 0, &a);

	return RESULT(bind(fd, (void *)&a, len));
}

ACTION(bind_short)
{
	struct sockaddr_storage a;

	address_of(peer.own, 0, &a);
	return RESULT(bind(fd, (void *)&a, 1));
}

ACTION(bind_null)
{
	return RESULT(bind(fd, null, sizeof(struct sockaddr_in)));
}

ACTION(listen_5)
{
	return RESULT(listen(fd, 5));
}

ACTION(accept_plain)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	int new = accept(fd, (void *)&a, &len), code = errno;
	char byte;

	if (new < 0)
		return -code;
	more("from %s, flags %d %d, ", address_name(&a, len), fcntl(new, F_GETFL) & O_NONBLOCK,
	     fcntl(new, F_GETFD));
	more("peer %s, ", error_name(getpeername(new, (void *)&a, &len) ? errno : 0));
	more("read %s", error_name(recv(new, &byte, 1, MSG_DONTWAIT) < 0 ? errno : 0));
	close(new);
	return 0;
}

ACTION(accept4_flags)
{
	int new = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), code = errno;

	if (new < 0)
		return -code;
	more("flags %d %d", fcntl(new, F_GETFL) & O_NONBLOCK, fcntl(new, F_GETFD));
	close(new);
	return 0;
}

ACTION(accept4_bad)
{
	return RESULT(accept4(fd, NULL, NULL, 1));
}

ACTION(accept_bad)
{
	socklen_t len = 16;
	int new = accept(fd, bad, &len);

	return new < 0 ? -errno : close(new);
}

ACTION(accept_negative)
{
	struct sockaddr_storage a;
	socklen_t len = (socklen_t)-1;
	int new = accept(fd, (void *)&a, &len);

	return new < 0 ? -errno : close(new);
}

/* ---- connect --------------------------------------------------------------------------------- */

/* The results of a second call and of the socket, where they do not depend on an answer's timing.
 */
static long connect_and(int fd, const char *host, int port)
{
	long rc = RESULT(connect_to(fd, host, port));

	if (rc == -EINPROGRESS)
		await(fd, POLLOUT);
	more("then %s, ", error_name(connect_to(fd, host, port) ? errno : 0));
	after(fd);
	return rc;
}

ACTION(connect_peer)
{
	return connect_and(fd, peer.address, peer.port);
}

ACTION(connect_refused)
{
	return connect_and(fd, peer.address, peer.refused);
}

ACTION(connect_after_error)
{
	int error = 0;
	socklen_t len = sizeof(error);

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	more("error %s, ", error_name(error));
	return connect_and(fd, peer.address, peer.port);
}

/* Dissolves the connection. */
ACTION(connect_unspec)
{
	struct sockaddr_storage a = {.ss_family = AF_UNSPEC};
	long rc = RESULT(connect(fd, (void *)&a, sizeof(struct sockaddr_in)));

	after(fd);
	more(", then %s", error_name(-(int)connect_and(fd, peer.address, peer.port)));
	return rc;
}

ACTION(connect_other_family)
{
	struct sockaddr_storage a = {.ss_family = AF_UNIX};

	return RESULT(connect(fd, (void *)&a, sizeof(a)));
}

ACTION(connect_short)
{
	struct sockaddr_storage a;

	address_of(peer.address, peer.port, &a);
	return RESULT(connect(fd, (void *)&a, 7));
}

ACTION(connect_null)
{
	return RESULT(connect(fd, null, sizeof(struct sockaddr_in)));
}

ACTION(connect_bad)
{
	return RESULT(connect(fd, bad, sizeof(struct sockaddr_in6)));
}

static long shutdown_and(int fd, int how)
{
	long rc = RESULT(shutdown(fd, how));
	char byte;

	more("read %s", error_name(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 ? errno : 0));
	return rc;
}

ACTION(shutdown_read)
{
	return shutdown_and(fd, SHUT_RD);
}

ACTION(shutdown_write)
{
	return shutdown_and(fd, SHUT_WR);
}

ACTION(shutdown_both)
{
	return shutdown_and(fd, SHUT_RDWR);
}

ACTION(shutdown_bad)
{
	more("%s ", error_name(shutdown(fd, -1) ? errno : 0));
	return RESULT(shutdown(fd, 3));
}

/* A socket that was shut before it was connected connects as ever. */
ACTION(shutdown_connect)
{
	struct timeval forever = {0};

	shutdown(fd, SHUT_RDWR);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof(forever));
	return connect_and(fd, peer.address, peer.port);
}

/* ---- modes and options ----------------------------------------------------------------------- */

ACTION(fionbio)
{
	int on = 1, off = 0;
	long rc = RESULT(ioctl(fd, FIONBIO, &on));

	more("%d ", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
	ioctl(fd, FIONBIO, &off);
	more("%d", fcntl(fd, F_GETFL) < 0 ? -1 : (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
	return rc;
}

ACTION(fionbio_null)
{
	return RESULT(ioctl(fd, FIONBIO, NULL));
}

static long set(int fd, int level, int name, int value)
{
	int is = -1;
	socklen_t len = sizeof(is);
	long rc = RESULT(setsockopt(fd, level, name, &value, sizeof(value)));

	if (getsockopt(fd, level, name, &is, &len) == 0)
		more("%d", is);
	return rc;
}

#define SET(function, level, name, value)                                                          \
	ACTION(function)                                                                           \
	{                                                                                          \
		return set(fd, level, name, value);                                                \
	}
SET(set_nodelay, IPPROTO_TCP, TCP_NODELAY, 7)
SET(set_cork, IPPROTO_TCP, TCP_CORK, 1)
SET(set_quickack, IPPROTO_TCP, TCP_QUICKACK, 0)
SET(set_keepalive, SOL_SOCKET, SO_KEEPALIVE, 3)
SET(set_keepidle, IPPROTO_TCP, TCP_KEEPIDLE, 40000)
SET(set_keepintvl, IPPROTO_TCP, TCP_KEEPINTVL, 0)
SET(set_keepcnt, IPPROTO_TCP, TCP_KEEPCNT, 128)
SET(set_user_timeout, IPPROTO_TCP, TCP_USER_TIMEOUT, -1)
SET(set_maxseg, IPPROTO_TCP, TCP_MAXSEG, 20)
SET(set_syncnt, IPPROTO_TCP, TCP_SYNCNT, 300)
SET(set_linger2, IPPROTO_TCP, TCP_LINGER2, -7)
SET(set_defer_accept, IPPROTO_TCP, TCP_DEFER_ACCEPT, 9)
SET(set_window_clamp, IPPROTO_TCP, TCP_WINDOW_CLAMP, 100)
SET(set_notsent_lowat, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4096)
SET(set_fastopen_connect, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
SET(set_reuseaddr, SOL_SOCKET, SO_REUSEADDR, 1)
SET(set_broadcast, SOL_SOCKET, SO_BROADCAST, 1)
SET(set_oobinline, SOL_SOCKET, SO_OOBINLINE, 1)
SET(set_rcvlowat, SOL_SOCKET, SO_RCVLOWAT, 5)
SET(set_priority, SOL_SOCKET, SO_PRIORITY, 9)
SET(set_sndbuf, SOL_SOCKET, SO_SNDBUF, 50000)
SET(set_rcvbuf, SOL_SOCKET, SO_RCVBUF, -1)
SET(set_type, SOL_SOCKET, SO_TYPE, 1)
SET(set_error, SOL_SOCKET, SO_ERROR, 1)
SET(set_ttl, IPPROTO_IP, IP_TTL, 256)
SET(set_v6only, IPPROTO_IPV6, IPV6_V6ONLY, 1)
SET(set_hops, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 300)

const struct call actions[] = {
        ONCE(so_error),
        ONCE(bind_any),
        FEW(bind_short),
        FEW(bind_null),
        ONCE(listen_5),
        MODES(accept_plain),
        MODES(accept4_flags),
        ONCE(accept4_bad),
        FEW(accept_bad),
        FEW(accept_negative),
        MODES(connect_peer),
        MODES(connect_refused),
        ONCE(connect_after_error),
        ONCE(connect_unspec),
        FEW(connect_other_family),
        FEW(connect_short),
        FEW(connect_null),
        FEW(connect_bad),
        ONCE(shutdown_read),
        ONCE(shutdown_write),
        ONCE(shutdown_both),
        FEW(shutdown_bad),
        ONCE(shutdown_connect),
        FEW(fionbio),
        FEW(fionbio_null),
        FEW(set_nodelay),
        FEW(set_cork),
        FEW(set_quickack),
        FEW(set_keepalive),
        FEW(set_keepidle),
        FEW(set_keepintvl),
        FEW(set_keepcnt),
        FEW(set_user_timeout),
        FEW(set_maxseg),
        FEW(set_syncnt),
        FEW(set_linger2),
        FEW(set_defer_accept),
        FEW(set_window_clamp),
        FEW(set_notsent_lowat),
        FEW(set_fastopen_connect),
        FEW(set_reuseaddr),
        FEW(set_broadcast),
        FEW(set_oobinline),
        FEW(set_rcvlowat),
        FEW(set_priority),
        FEW(set_sndbuf),
        FEW(set_rcvbuf),
        FEW(set_type),
        FEW(set_error),
        FEW(set_ttl),
        FEW(set_v6only),
        FEW(set_hops),
};
const size_t action_count = sizeof(actions) / sizeof(*actions);
