// SPDX-License-Identifier: Apache-2.0
/* Calls that leave a socket as it is. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <unistd.h>

#include "conformance.h"

#define NAMES 4
#define RESULT(call)                                                                               \
	({                                                                                         \
		long rc_ = (call);                                                                 \
		rc_ < 0 ? -errno : rc_;                                                            \
	})

static long own_name(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	long rc = RESULT(getsockname(fd, (void *)&a, &len));

	if (rc == 0)
		more("%s", address_name(&a, len));
	return rc;
}

static long peer_name(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	long rc = RESULT(getpeername(fd, (void *)&a, &len));

	if (rc == 0)
		more("%s", address_name(&a, len));
	return rc;
}

static long own_name_short(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = 2;
	long rc = RESULT(getsockname(fd, (void *)&a, &len));

	if (rc == 0)
		more("%u", len);
	return rc;
}

static long own_name_negative(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = (socklen_t)-1;

	return RESULT(getsockname(fd, (void *)&a, &len));
}

static long peer_name_negative(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = (socklen_t)-1;

	return RESULT(getpeername(fd, (void *)&a, &len));
}

static long own_name_null(int fd)
{
	socklen_t len = 16;

	return RESULT(getsockname(fd, null, &len));
}

static long own_name_null_length(int fd)
{
	struct sockaddr_storage a;

	return RESULT(getsockname(fd, (void *)&a, null));
}

static long peer_name_null(int fd)
{
	socklen_t len = 16;

	return RESULT(getpeername(fd, null, &len));
}

static long option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);
	long rc = RESULT(getsockopt(fd, level, name, &value, &len));

	if (rc == 0)
		more("%d %u", value, len);
	return rc;
}

#define OPTION(function, level, name)                                                              \
	static long function(int fd)                                                               \
	{                                                                                          \
		return option(fd, level, name);                                                    \
	}
OPTION(so_type, SOL_SOCKET, SO_TYPE)
OPTION(so_domain, SOL_SOCKET, SO_DOMAIN)
OPTION(so_protocol, SOL_SOCKET, SO_PROTOCOL)
OPTION(so_acceptconn, SOL_SOCKET, SO_ACCEPTCONN)
OPTION(so_keepalive, SOL_SOCKET, SO_KEEPALIVE)
OPTION(so_rcvlowat, SOL_SOCKET, SO_RCVLOWAT)
OPTION(so_reuseport, SOL_SOCKET, SO_REUSEPORT)
OPTION(so_broadcast, SOL_SOCKET, SO_BROADCAST)
OPTION(so_unknown, SOL_SOCKET, 9999)
OPTION(tcp_nodelay, IPPROTO_TCP, TCP_NODELAY)
OPTION(tcp_keepidle, IPPROTO_TCP, TCP_KEEPIDLE)
OPTION(tcp_keepintvl, IPPROTO_TCP, TCP_KEEPINTVL)
OPTION(tcp_keepcnt, IPPROTO_TCP, TCP_KEEPCNT)
OPTION(tcp_syncnt, IPPROTO_TCP, TCP_SYNCNT)
OPTION(tcp_linger2, IPPROTO_TCP, TCP_LINGER2)
OPTION(tcp_cork, IPPROTO_TCP, TCP_CORK)
OPTION(tcp_defer_accept, IPPROTO_TCP, TCP_DEFER_ACCEPT)
OPTION(tcp_user_timeout, IPPROTO_TCP, TCP_USER_TIMEOUT)
OPTION(tcp_unknown, IPPROTO_TCP, 9999)
OPTION(level_unknown, 9999, 1)

static long option_negative(int fd)
{
	int value;
	socklen_t len = (socklen_t)-1;

	return RESULT(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len));
}

static long option_null(int fd)
{
	socklen_t len = sizeof(int);

	return RESULT(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, null, &len));
}

static long option_null_length(int fd)
{
	int value;

	return RESULT(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, null));
}

static long option_set_null(int fd)
{
	return RESULT(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, null, sizeof(int)));
}

static long option_set_short(int fd)
{
	int value = 1;

	return RESULT(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, 1));
}

static long option_set_unknown(int fd)
{
	int value = 1;

	return RESULT(setsockopt(fd, SOL_SOCKET, 9999, &value, sizeof(value)));
}

static long tcp_state(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	long rc = RESULT(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len));

	/* Which of both depends on whether the peer has acknowledged it yet. */
	if (rc == 0)
		more("%s", info.tcpi_state == TCP_FIN_WAIT1 || info.tcpi_state == TCP_FIN_WAIT2
		                   ? "FIN-WAIT"
		           : info.tcpi_state == TCP_ESTABLISHED ? "ESTABLISHED"
		           : info.tcpi_state == TCP_SYN_SENT    ? "SYN-SENT"
		           : info.tcpi_state == TCP_CLOSE_WAIT  ? "CLOSE-WAIT"
		           : info.tcpi_state == TCP_TIME_WAIT   ? "TIME-WAIT"
		           : info.tcpi_state == TCP_LISTEN      ? "LISTEN"
		           : info.tcpi_state == TCP_CLOSE       ? "CLOSE"
		                                                : "another");
	return rc;
}

static long number(int fd, unsigned long request)
{
	int value = -1;
	long rc = RESULT(ioctl(fd, request, &value));

	if (rc == 0)
		more("%d", value);
	return rc;
}

#define NUMBER(function, request)                                                                  \
	static long function(int fd)                                                               \
	{                                                                                          \
		return number(fd, request);                                                        \
	}
NUMBER(fionread, FIONREAD)
NUMBER(siocatmark, SIOCATMARK)
NUMBER(siocoutqnsd, SIOCOUTQNSD)
NUMBER(fiogetown, FIOGETOWN)

static long ioctl_unknown(int fd)
{
	return RESULT(ioctl(fd, 0x54FF, NULL));
}

static long fionread_null(int fd)
{
	return RESULT(ioctl(fd, FIONREAD, NULL));
}

static long flags(int fd)
{
	long rc = RESULT(fcntl(fd, F_GETFL));

	return rc < 0 ? rc : rc & (O_NONBLOCK | O_ACCMODE | O_APPEND);
}

static long descriptor_flags(int fd)
{
	return RESULT(fcntl(fd, F_GETFD));
}

static long fcntl_unknown(int fd)
{
	return RESULT(fcntl(fd, 9999, 0));
}

static long seek(int fd)
{
	return RESULT(lseek(fd, 0, SEEK_CUR));
}

#define ALL (POLLIN | POLLPRI | POLLOUT | POLLRDHUP | POLLRDNORM | POLLWRNORM)

static long poll_all(int fd)
{
	struct pollfd p = {.fd = fd, .events = ALL};
	long rc = RESULT(poll(&p, 1, 0));

	more("%s", events_name((unsigned short)p.revents));
	return rc;
}

static long poll_none(int fd)
{
	struct pollfd p = {.fd = fd};
	long rc = RESULT(poll(&p, 1, 0));

	more("%s", events_name((unsigned short)p.revents));
	return rc;
}

static long poll_null(int fd)
{
	return RESULT(poll(null, 1, 0));
}

static long select_all(int fd)
{
	fd_set in, out, urgent;
	struct timeval none = {0};

	FD_ZERO(&in);
	FD_SET(fd, &in);
	out = urgent = in;
	long rc = RESULT(select(fd + 1, &in, &out, &urgent, &none));
	if (rc > 0)
		more("%s%s%s", FD_ISSET(fd, &in) ? "in " : "", FD_ISSET(fd, &out) ? "out " : "",
		     FD_ISSET(fd, &urgent) ? "urgent" : "");
	return rc;
}

/* Two waits, then one after the events are set anew. */
static long epoll(int fd, unsigned mode)
{
	int set = epoll_create1(0);
	struct epoll_event e = {.events = ALL | mode, .data.u32 = 7}, got = {0};
	long rc = RESULT(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e));

	for (int i = 0; i < 3 && rc == 0; i++) {
		if (i == 2)
			epoll_ctl(set, EPOLL_CTL_MOD, fd, &e);
		int n = epoll_wait(set, &got, 1, i == 0 ? 0 : 2);
		more("%s ", n == 1 ? events_name(got.events) : "-");
	}
	close(set);
	return rc;
}

static long epoll_level(int fd)
{
	return epoll(fd, 0);
}

static long epoll_edge(int fd)
{
	return epoll(fd, EPOLLET);
}

static long epoll_once(int fd)
{
	return epoll(fd, EPOLLONESHOT);
}

static long epoll_errors(int fd)
{
	int set = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN};
	static const int command[] = {EPOLL_CTL_MOD, EPOLL_CTL_DEL, EPOLL_CTL_ADD,
	                              EPOLL_CTL_ADD, EPOLL_CTL_DEL, 9};

	for (unsigned i = 0; i < sizeof(command) / sizeof(*command); i++)
		more("%s ", error_name(epoll_ctl(set, command[i], fd, &e) ? errno : 0));
	more("%s ", error_name(epoll_ctl(set, EPOLL_CTL_ADD, fd, NULL) ? errno : 0));
	more("%s", error_name(epoll_ctl(fd, EPOLL_CTL_ADD, set, &e) ? errno : 0));
	close(set);
	return 0;
}

static long epoll_wait_errors(int fd)
{
	int set = epoll_create1(0);
	struct epoll_event e = {.events = ALL}, got;

	epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
	more("%s ", error_name(epoll_wait(set, &got, 0, 0) < 0 ? errno : 0));
	more("%s ", error_name(epoll_wait(set, &got, minus_one, 0) < 0 ? errno : 0));
	more("%s ", error_name(epoll_wait(fd, &got, 1, 0) < 0 ? errno : 0));
	more("%s", error_name(epoll_wait(set, null, 1, 0) < 0 ? errno : 0));
	close(set);
	return 0;
}

const struct call queries[] = {
        ONCE(own_name),
        ONCE(peer_name),
        ONCE(own_name_short),
        ONCE(own_name_negative),
        ONCE(peer_name_negative),
        ONCE(own_name_null),
        ONCE(own_name_null_length),
        ONCE(peer_name_null),
        ONCE(so_type),
        ONCE(so_domain),
        ONCE(so_protocol),
        ONCE(so_acceptconn),
        ONCE(so_keepalive),
        ONCE(so_rcvlowat),
        ONCE(so_reuseport),
        ONCE(so_broadcast),
        ONCE(so_unknown),
        ONCE(tcp_nodelay),
        ONCE(tcp_keepidle),
        ONCE(tcp_keepintvl),
        ONCE(tcp_keepcnt),
        ONCE(tcp_syncnt),
        ONCE(tcp_linger2),
        ONCE(tcp_cork),
        ONCE(tcp_defer_accept),
        ONCE(tcp_user_timeout),
        ONCE(tcp_unknown),
        ONCE(level_unknown),
        ONCE(option_negative),
        ONCE(option_null),
        ONCE(option_null_length),
        ONCE(option_set_null),
        ONCE(option_set_short),
        ONCE(option_set_unknown),
        ONCE(tcp_state),
        ONCE(fionread),
        ONCE(siocatmark),
        ONCE(siocoutqnsd),
        ONCE(fiogetown),
        ONCE(ioctl_unknown),
        ONCE(fionread_null),
        ONCE(flags),
        ONCE(descriptor_flags),
        ONCE(fcntl_unknown),
        ONCE(seek),
        ONCE(poll_all),
        ONCE(poll_none),
        ONCE(poll_null),
        ONCE(select_all),
        ONCE(epoll_level),
        ONCE(epoll_edge),
        ONCE(epoll_once),
        ONCE(epoll_errors),
        ONCE(epoll_wait_errors),
};
const size_t query_count = sizeof(queries) / sizeof(*queries);
