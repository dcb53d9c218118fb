// SPDX-License-Identifier: Apache-2.0
/* Plays: valid and invalid use of sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "plays.h"

#define ALL (POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM)

/* ---- what plays share ------------------------------------------------------------------------ */

struct sockaddr_storage address_at(const struct both *b, bool v6, int port)
{
	union {
		struct sockaddr_storage all;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} a = {.all = {.ss_family = v6 ? AF_INET6 : AF_INET}};

	inet_pton(a.all.ss_family, b->address[v6],
	          v6 ? (void *)&a.v6.sin6_addr : (void *)&a.v4.sin_addr);
	a.v4.sin_port = htons((uint16_t)port);
	return a.all;
}

socklen_t address_len(bool v6)
{
	return v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

void note_ready(const struct both *b, int side, const char *who, int fd)
{
	struct pollfd p = {.fd = fd, .events = ALL};

	b->poll(side, &p, 1, 0);
	note("%s is ready: %s%s%s%s%s%s%s%s\n", who, p.revents & POLLIN ? "in " : "",
	     p.revents & POLLOUT ? "out " : "", p.revents & POLLRDHUP ? "rdhup " : "",
	     p.revents & POLLPRI ? "pri " : "", p.revents & POLLERR ? "err " : "",
	     p.revents & POLLHUP ? "hup " : "", p.revents & POLLRDNORM ? "rdnorm " : "",
	     p.revents & POLLWRNORM ? "wrnorm" : "");
}

void await(const struct both *b, int side, int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	if (b->poll(side, &p, 1, 30000) != 1)
		note("what is awaited does not come: %d\n", events);
}

int listener_make(const struct both *b, bool v6, int port)
{
	struct sockaddr_storage a = address_at(b, v6, port);
	int fd = b->socket(SERVER, a.ss_family), one = 1;

	note_result("reuse",
	            b->setsockopt(SERVER, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	note_result("bind", b->bind(SERVER, fd, (void *)&a, address_len(v6)));
	note_result("listen", b->listen(SERVER, fd, 16));
	return fd;
}

int client_make(const struct both *b, bool v6, int port)
{
	struct sockaddr_storage a = address_at(b, v6, port);
	int fd = b->socket(CLIENT, a.ss_family);

	note_result("connect", b->connect(CLIENT, fd, (void *)&a, address_len(v6)));
	return fd;
}

struct pair pair_make(const struct both *b, bool v6)
{
	struct pair p = {.listener = listener_make(b, v6, PORT)};

	p.client = client_make(b, v6, PORT);
	await(b, CLIENT, p.client, POLLOUT);
	await(b, SERVER, p.listener, POLLIN);
	p.server = b->accept(SERVER, p.listener, NULL, NULL);
	return p;
}

void pair_close(const struct both *b, const struct pair *p)
{
	b->close(CLIENT, p->client);
	b->close(SERVER, p->server);
	b->close(SERVER, p->listener);
}

static void note_both(const struct both *b, const struct pair *p)
{
	note_ready(b, CLIENT, "client", p->client);
	note_ready(b, SERVER, "server", p->server);
}

void note_recv(const struct both *b, int side, int fd, int flags)
{
	char bytes[64] = "";
	ssize_t rc = b->recv(side, fd, bytes, sizeof(bytes) - 1, flags);

	note_result("recv", rc);
	if (rc > 0)
		note("  \"%s\"\n", bytes);
}

void note_number(const struct both *b, int side, int fd, const char *name, int level, int option)
{
	int value = -1;
	socklen_t len = sizeof(value);
	int rc = b->getsockopt(side, fd, level, option, &value, &len);

	note("%s: %d, %d of %u bytes\n", name, rc, value, (unsigned)len);
}

/* ---- plays ----------------------------------------------------------------------------------- */

static void new_socket(const struct both *b, bool v6)
{
	int fd = b->socket(CLIENT, v6 ? AF_INET6 : AF_INET);
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof(a);
	int value = 0;

	note_ready(b, CLIENT, "new", fd);
	note_recv(b, CLIENT, fd, 0);
	note_recv(b, CLIENT, fd, MSG_PEEK);
	note_result("send", b->send(CLIENT, fd, "x", 1, 0));
	note_result("shutdown", b->shutdown(CLIENT, fd, SHUT_RDWR));
	note_result("shutdown of nothing", b->shutdown(CLIENT, fd, 7));
	note_result("accept", b->accept(CLIENT, fd, NULL, NULL));
	note_result("getpeername", b->getpeername(CLIENT, fd, (void *)&a, &len));
	note_result("getsockname", b->getsockname(CLIENT, fd, (void *)&a, &len));
	note("length %u, family %d\n", (unsigned)len, a.ss_family);
	note_result("FIONREAD", b->ioctl(CLIENT, fd, FIONREAD, &value));
	note_result("its value", value);
	note_result("SIOCOUTQ", b->ioctl(CLIENT, fd, SIOCOUTQ, &value));
	note_result("SIOCATMARK", b->ioctl(CLIENT, fd, SIOCATMARK, &value));
	note_result("its value", value);
	note_result("close", b->close(CLIENT, fd));
	note_result("close again", b->close(CLIENT, fd));
	note_result("listen of nothing", b->listen(CLIENT, fd, 1));
	note_result("family", b->socket(CLIENT, 77));
}

static void binds(const struct both *b, bool v6)
{
	struct sockaddr_storage a = address_at(b, v6, PORT), got = {0}, other;
	socklen_t len = address_len(v6), size = sizeof(got);
	int first = b->socket(SERVER, a.ss_family), second = b->socket(SERVER, a.ss_family),
	    one = 1;

	note_result("short", b->bind(SERVER, first, (void *)&a, len / 2));
	other = a;
	other.ss_family = v6 ? AF_INET : AF_UNIX;
	note_result("other family", b->bind(SERVER, first, (void *)&other, len));
	other = a;
	((struct sockaddr_in *)&other)->sin_addr.s_addr = htonl(0xc6336401); /* 198.51.100.1 */
	if (v6)
		inet_pton(AF_INET6, "2001:db8:ffff::1",
		          &((struct sockaddr_in6 *)&other)->sin6_addr);
	note_result("other address", b->bind(SERVER, first, (void *)&other, len));
	note_result("bind", b->bind(SERVER, first, (void *)&a, len));
	note_result("again", b->bind(SERVER, first, (void *)&a, len));
	note_result("in use", b->bind(SERVER, second, (void *)&a, len));
	b->setsockopt(SERVER, first, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	b->setsockopt(SERVER, second, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	note_result("reuse", b->bind(SERVER, second, (void *)&a, len));
	note_result("listen", b->listen(SERVER, first, 1));
	note_result("second listen", b->listen(SERVER, second, 1));
	int third = b->socket(SERVER, a.ss_family);
	b->setsockopt(SERVER, third, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	note_result("bind beside a listener", b->bind(SERVER, third, (void *)&a, len));
	((struct sockaddr_in *)&a)->sin_port = 0;
	note_result("any port", b->bind(SERVER, third, (void *)&a, len));
	note_result("getsockname", b->getsockname(SERVER, third, (void *)&got, &size));
	note_result("has a port", ((struct sockaddr_in *)&got)->sin_port != 0);
	size = 4;
	note_result("getsockname, cut off", b->getsockname(SERVER, third, (void *)&got, &size));
	note_result("length", (long)size);
	b->close(SERVER, first);
	b->close(SERVER, second);
	b->close(SERVER, third);
}

static void listens(const struct both *b, bool v6)
{
	int fd = listener_make(b, v6, PORT);
	struct sockaddr_storage a = address_at(b, v6, PORT);
	struct sockaddr_storage got = {0};
	socklen_t size = sizeof(got);
	int value;

	note_ready(b, SERVER, "listener", fd);
	note_result("accept", b->accept(SERVER, fd, NULL, NULL));
	note_recv(b, SERVER, fd, 0);
	note_result("send", b->send(SERVER, fd, "x", 1, 0));
	note_result("connect", b->connect(SERVER, fd, (void *)&a, address_len(v6)));
	note_result("getpeername", b->getpeername(SERVER, fd, (void *)&got, &size));
	note_result("FIONREAD", b->ioctl(SERVER, fd, FIONREAD, &value));
	note_result("SIOCOUTQ", b->ioctl(SERVER, fd, SIOCOUTQ, &value));
	note_result("another backlog", b->listen(SERVER, fd, 5));
	note_number(b, SERVER, fd, "SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN);
	note_result("shutdown of sending", b->shutdown(SERVER, fd, SHUT_WR));
	note_ready(b, SERVER, "listener", fd);
	int client = client_make(b, v6, PORT);
	await(b, SERVER, fd, POLLIN);
	note_ready(b, SERVER, "listener with a client", fd);
	size = sizeof(got);
	int server = b->accept(SERVER, fd, (void *)&got, &size);
	note_result("accepted", server >= 0);
	note("length %u, family %d, port %d\n", (unsigned)size, got.ss_family,
	     ((struct sockaddr_in *)&got)->sin_port != 0);
	note_result("listen of a connection", b->listen(SERVER, server, 1));
	note_result("shutdown of receiving", b->shutdown(SERVER, fd, SHUT_RD));
	note_result("accept", b->accept(SERVER, fd, NULL, NULL));
	note_number(b, SERVER, fd, "SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN);
	b->close(SERVER, fd);
	b->close(SERVER, server);
	b->close(CLIENT, client);
}

static void life(const struct both *b, bool v6)
{
	struct sockaddr_storage a = address_at(b, v6, PORT);
	struct pair p = pair_make(b, v6);
	int value;

	note_both(b, &p);
	note_result("connect again", b->connect(CLIENT, p.client, (void *)&a, address_len(v6)));
	note_result("and again", b->connect(CLIENT, p.client, (void *)&a, address_len(v6)));
	note_recv(b, CLIENT, p.client, 0);
	note_result("send", b->send(CLIENT, p.client, "hello", 5, 0));
	await(b, SERVER, p.server, POLLIN);
	note_both(b, &p);
	note_result("FIONREAD", b->ioctl(SERVER, p.server, FIONREAD, &value));
	note_result("its value", value);
	note_recv(b, SERVER, p.server, MSG_PEEK);
	note_recv(b, SERVER, p.server, MSG_PEEK);
	note_recv(b, SERVER, p.server, MSG_DONTWAIT | MSG_WAITALL);
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, MSG_OOB);
	note_recv(b, SERVER, p.server, MSG_ERRQUEUE);
	note_result("recv of no bytes", b->recv(SERVER, p.server, NULL, 0, 0));
	note_result("send of no bytes", b->send(SERVER, p.server, NULL, 0, 0));
	note_result("send", b->send(CLIENT, p.client, "last", 4, 0));
	note_result("shutdown", b->shutdown(CLIENT, p.client, SHUT_WR));
	note_result("shutdown again", b->shutdown(CLIENT, p.client, SHUT_WR));
	await(b, SERVER, p.server, POLLRDHUP);
	note_both(b, &p);
	note_result("send", b->send(CLIENT, p.client, "x", 1, 0));
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, 0);
	note_recv(b, SERVER, p.server, MSG_PEEK);
	note_result("send", b->send(SERVER, p.server, "bye", 3, 0));
	await(b, CLIENT, p.client, POLLIN);
	note_both(b, &p);
	note_result("shutdown", b->shutdown(SERVER, p.server, SHUT_WR));
	await(b, CLIENT, p.client, POLLRDHUP);
	note_both(b, &p);
	note_recv(b, CLIENT, p.client, 0);
	note_recv(b, CLIENT, p.client, 0);
	socklen_t size = sizeof(a);
	note_result("getpeername", b->getpeername(CLIENT, p.client, (void *)&a, &size));
	note_result("shutdown", b->shutdown(CLIENT, p.client, SHUT_RDWR));
	pair_close(b, &p);
}

static void vectors(const struct both *b, bool v6)
{
	struct pair p = pair_make(b, v6);
	char one[4] = "", two[64] = "";
	struct iovec out[] = {{"ab", 2}, {NULL, 0}, {"cdef", 4}, {"g", 1}};
	struct iovec in[] = {{one, 3}, {NULL, 0}, {two, sizeof(two) - 1}};
	struct msghdr m = {.msg_iov = out, .msg_iovlen = 4};

	note_result("writev", b->writev(CLIENT, p.client, out, 4));
	await(b, SERVER, p.server, POLLIN);
	note_result("readv", b->readv(SERVER, p.server, in, 3));
	note("\"%s\" \"%s\"\n", one, two);
	note_result("readv", b->readv(SERVER, p.server, in, 3));
	note_result("writev of too many", b->writev(CLIENT, p.client, out, 1025));
	note_result("readv of too many", b->readv(CLIENT, p.client, in, -1));
	note_result("sendmsg", b->sendmsg(CLIENT, p.client, &m, 0));
	await(b, SERVER, p.server, POLLIN);
	memset(two, 0, sizeof(two));
	char control[32];
	struct sockaddr_storage from;
	m = (struct msghdr){.msg_iov = in,
	                    .msg_iovlen = 3,
	                    .msg_name = &from,
	                    .msg_namelen = sizeof(from),
	                    .msg_control = control,
	                    .msg_controllen = sizeof(control),
	                    .msg_flags = 99};
	note_result("recvmsg, peek", b->recvmsg(SERVER, p.server, &m, MSG_PEEK));
	note("\"%s\" \"%s\" name %u, control %zu, flags %d\n", one, two, (unsigned)m.msg_namelen,
	     m.msg_controllen, m.msg_flags);
	note_result("recv, discarded", b->recv(SERVER, p.server, NULL, 3, MSG_TRUNC));
	note_recv(b, SERVER, p.server, 0);
	m.msg_iovlen = 1025;
	note_result("recvmsg of too many", b->recvmsg(SERVER, p.server, &m, 0));
	pair_close(b, &p);
}

static void refused(const struct both *b, bool v6)
{
	struct sockaddr_storage a = address_at(b, v6, PORT + 1);
	int fd = client_make(b, v6, PORT + 1);
	socklen_t len = address_len(v6);

	await(b, CLIENT, fd, POLLOUT);
	note_ready(b, CLIENT, "refused", fd);
	note_number(b, CLIENT, fd, "SO_ERROR", SOL_SOCKET, SO_ERROR);
	note_number(b, CLIENT, fd, "SO_ERROR", SOL_SOCKET, SO_ERROR);
	note_ready(b, CLIENT, "refused", fd);
	note_recv(b, CLIENT, fd, 0);
	note_result("send", b->send(CLIENT, fd, "x", 1, 0));
	note_result("how it went", b->connect(CLIENT, fd, (void *)&a, len));
	b->close(CLIENT, fd);
	fd = client_make(b, v6, PORT + 1);
	await(b, CLIENT, fd, POLLOUT);
	note_result("how it went", b->connect(CLIENT, fd, (void *)&a, len));
	note_number(b, CLIENT, fd, "SO_ERROR", SOL_SOCKET, SO_ERROR);
	b->close(CLIENT, fd);
	fd = client_make(b, v6, PORT + 1);
	await(b, CLIENT, fd, POLLOUT);
	note_recv(b, CLIENT, fd, 0);
	note_recv(b, CLIENT, fd, 0);
	b->close(CLIENT, fd);
	fd = client_make(b, v6, PORT + 1);
	await(b, CLIENT, fd, POLLOUT);
	note_result("send", b->send(CLIENT, fd, "x", 1, 0));
	note_result("send", b->send(CLIENT, fd, "x", 1, 0));
	b->close(CLIENT, fd);
	/* Wrong addresses. */
	fd = b->socket(CLIENT, a.ss_family);
	note_result("short", b->connect(CLIENT, fd, (void *)&a, len / 2));
	note_result("shorter", b->connect(CLIENT, fd, (void *)&a, 1));
	a.ss_family = AF_UNIX;
	note_result("other family", b->connect(CLIENT, fd, (void *)&a, len));
	b->close(CLIENT, fd);
}

static void half_closed(const struct both *b, bool v6)
{
	struct pair p = pair_make(b, v6);

	note_result("shutdown of receiving", b->shutdown(SERVER, p.server, SHUT_RD));
	note_both(b, &p);
	note_recv(b, SERVER, p.server, 0);
	note_result("send", b->send(SERVER, p.server, "still", 5, 0));
	await(b, CLIENT, p.client, POLLIN);
	note_recv(b, CLIENT, p.client, 0);
	note_result("shutdown of sending", b->shutdown(SERVER, p.server, SHUT_WR));
	await(b, CLIENT, p.client, POLLRDHUP);
	note_both(b, &p);
	note_recv(b, CLIENT, p.client, 0);
	note_result("shutdown of both", b->shutdown(SERVER, p.server, SHUT_RDWR));
	pair_close(b, &p);
}

static void options(const struct both *b, bool v6)
{
	static const struct {
		const char *name;
		int level, option;
	} number[] = {
#define NUMBER(level, option) {#option, level, option}
	        NUMBER(SOL_SOCKET, SO_TYPE),       NUMBER(SOL_SOCKET, SO_DOMAIN),
	        NUMBER(SOL_SOCKET, SO_PROTOCOL),   NUMBER(SOL_SOCKET, SO_ERROR),
	        NUMBER(SOL_SOCKET, SO_REUSEADDR),  NUMBER(SOL_SOCKET, SO_REUSEPORT),
	        NUMBER(SOL_SOCKET, SO_KEEPALIVE),  NUMBER(SOL_SOCKET, SO_BROADCAST),
	        NUMBER(SOL_SOCKET, SO_ACCEPTCONN), NUMBER(SOL_SOCKET, SO_RCVLOWAT),
	        NUMBER(SOL_SOCKET, SO_SNDLOWAT),   NUMBER(IPPROTO_TCP, TCP_NODELAY),
	        NUMBER(IPPROTO_TCP, TCP_CORK),     NUMBER(IPPROTO_TCP, TCP_MAXSEG),
	        NUMBER(IPPROTO_TCP, TCP_KEEPIDLE), NUMBER(IPPROTO_TCP, TCP_KEEPINTVL),
	        NUMBER(IPPROTO_TCP, TCP_KEEPCNT),  NUMBER(IPPROTO_TCP, TCP_USER_TIMEOUT),
	        NUMBER(IPPROTO_IP, IP_TOS),        NUMBER(SOL_SOCKET, 999),
	        NUMBER(IPPROTO_TCP, 999),          NUMBER(SOL_SOCKET, SO_MAX_PACING_RATE),
	        NUMBER(IPPROTO_TCP, TCP_QUICKACK),
	};
	int fd = b->socket(CLIENT, v6 ? AF_INET6 : AF_INET);
	char small = 0;
	int zero = 0;

	for (unsigned i = 0; i < sizeof(number) / sizeof(*number); i++) {
		int value = 20 + (int)i;
		note_number(b, CLIENT, fd, number[i].name, number[i].level, number[i].option);
		note_result("set", b->setsockopt(CLIENT, fd, number[i].level, number[i].option,
		                                 &value, sizeof(value)));
		note_number(b, CLIENT, fd, number[i].name, number[i].level, number[i].option);
		if (number[i].option != IP_TOS) /* takes a byte as well */
			note_result("set a byte", b->setsockopt(CLIENT, fd, number[i].level,
			                                        number[i].option, &small, 1));
	}
	note_result("no seconds", b->setsockopt(CLIENT, fd, IPPROTO_TCP, TCP_KEEPIDLE, &zero, 4));
	note_result("no probes", b->setsockopt(CLIENT, fd, IPPROTO_TCP, TCP_KEEPCNT, &zero, 4));
	note_result("level", b->setsockopt(CLIENT, fd, 12345, 1, &zero, 4));
	socklen_t len = sizeof(zero);
	note_result("level", b->getsockopt(CLIENT, fd, 12345, 1, &zero, &len));
	struct timeval t = {5, 6}, bad = {0, 1000000};
	note_result("time", b->setsockopt(CLIENT, fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)));
	note_result("bad time",
	            b->setsockopt(CLIENT, fd, SOL_SOCKET, SO_RCVTIMEO, &bad, sizeof(bad)));
	note_result("short time", b->setsockopt(CLIENT, fd, SOL_SOCKET, SO_RCVTIMEO, &t, 4));
	struct linger l = {5, 40000}, got = {0};
	note_result("linger", b->setsockopt(CLIENT, fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	note_result("short linger", b->setsockopt(CLIENT, fd, SOL_SOCKET, SO_LINGER, &l, 4));
	len = sizeof(got);
	b->getsockopt(CLIENT, fd, SOL_SOCKET, SO_LINGER, &got, &len);
	note("linger %d %d of %u bytes\n", got.l_onoff, got.l_linger, (unsigned)len);
	uint64_t rate = 5000000000, reported = 0;
	note_result("64 bits", b->setsockopt(CLIENT, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, 8));
	note_number(b, CLIENT, fd, "SO_MAX_PACING_RATE", SOL_SOCKET, SO_MAX_PACING_RATE);
	len = sizeof(reported);
	b->getsockopt(CLIENT, fd, SOL_SOCKET, SO_MAX_PACING_RATE, &reported, &len);
	note("rate %lu of %u bytes\n", reported, (unsigned)len);
	int bytes = 50000;
	note_result("SO_SNDBUF", b->setsockopt(CLIENT, fd, SOL_SOCKET, SO_SNDBUF, &bytes, 4));
	note_number(b, CLIENT, fd, "SO_SNDBUF", SOL_SOCKET, SO_SNDBUF);
	note_result("SO_RCVBUF", b->setsockopt(CLIENT, fd, SOL_SOCKET, SO_RCVBUF, &zero, 4));
	note_number(b, CLIENT, fd, "SO_RCVBUF", SOL_SOCKET, SO_RCVBUF);
	char text[16] = "";
	len = sizeof(text);
	note_result("TCP_CONGESTION",
	            b->getsockopt(CLIENT, fd, IPPROTO_TCP, TCP_CONGESTION, text, &len));
	note("a name: %d, of %u bytes\n", text[0] != 0, (unsigned)len); /* which: the host's */
	note_result("none such",
	            b->setsockopt(CLIENT, fd, IPPROTO_TCP, TCP_CONGESTION, "nosuch", 6));
	b->close(CLIENT, fd);
}

static void facts(const struct both *b, bool v6)
{
	struct pair p = pair_make(b, v6);
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	int one = 1;

	note_result("TCP_INFO",
	            b->getsockopt(CLIENT, p.client, IPPROTO_TCP, TCP_INFO, &info, &len));
	note("state %d, %d bytes at least\n", info.tcpi_state, len >= 104);
	note_result("sack, timestamps, scale", (info.tcpi_options & 7) == 7);
	note_result("mss", info.tcpi_snd_mss > 500);
	b->shutdown(CLIENT, p.client, SHUT_WR);
	await(b, SERVER, p.server, POLLRDHUP);
	len = sizeof(info);
	b->getsockopt(SERVER, p.server, IPPROTO_TCP, TCP_INFO, &info, &len);
	note("state %d\n", info.tcpi_state);
	len = sizeof(info);
	b->getsockopt(SERVER, p.listener, IPPROTO_TCP, TCP_INFO, &info, &len);
	note("state of the listener %d\n", info.tcpi_state);
	note_number(b, SERVER, p.server, "SO_REUSEADDR of an accepted one", SOL_SOCKET,
	            SO_REUSEADDR);
	note_result("v6only", b->setsockopt(SERVER, p.server, IPPROTO_IPV6, IPV6_V6ONLY, &one, 4));
	pair_close(b, &p);
}

static void urgent(const struct both *b, bool v6)
{
	struct pair p = pair_make(b, v6);
	int one = 1, mark = 0;

	/* Always inline in the stack (RFC 6093). */
	note_result("inline", b->setsockopt(SERVER, p.server, SOL_SOCKET, SO_OOBINLINE, &one, 4));
	note_result("send", b->send(CLIENT, p.client, "abc", 3, MSG_OOB));
	await(b, SERVER, p.server, POLLPRI);
	await(b, SERVER, p.server, POLLIN);
	note_ready(b, SERVER, "server", p.server);
	b->ioctl(SERVER, p.server, SIOCATMARK, &mark);
	note_result("mark", mark);
	note_recv(b, SERVER, p.server, MSG_OOB);
	char two[2];
	note_result("two bytes", b->recv(SERVER, p.server, two, 2, 0));
	b->ioctl(SERVER, p.server, SIOCATMARK, &mark);
	note_result("mark", mark);
	note_recv(b, SERVER, p.server, 0);
	note_ready(b, SERVER, "server", p.server);
	pair_close(b, &p);
}

/* An IPv6 socket also accepts IPv4, unless IPV6_V6ONLY. */
static void families(const struct both *b, bool v6)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)}, got;
	struct sockaddr_storage a = address_at(b, v6, PORT);
	int fd = b->socket(SERVER, AF_INET6), one = 1;
	socklen_t len = sizeof(got);

	b->setsockopt(SERVER, fd, SOL_SOCKET, SO_REUSEADDR, &one, 4);
	note_result("bind", b->bind(SERVER, fd, (void *)&any, sizeof(any)));
	note_result("listen", b->listen(SERVER, fd, 4));
	note_result("bound, v6only", b->setsockopt(SERVER, fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, 4));
	int client = client_make(b, v6, PORT);
	await(b, SERVER, fd, POLLIN);
	int server = b->accept(SERVER, fd, (void *)&got, &len);
	note("family %d, mapped %d, length %u\n", got.sin6_family,
	     IN6_IS_ADDR_V4MAPPED(&got.sin6_addr), (unsigned)len);
	len = sizeof(got);
	note_result("getsockname", b->getsockname(SERVER, server, (void *)&got, &len));
	note("family %d, mapped %d, port %d\n", got.sin6_family,
	     IN6_IS_ADDR_V4MAPPED(&got.sin6_addr), ntohs(got.sin6_port));
	b->close(CLIENT, client);
	b->close(SERVER, server);
	b->close(SERVER, fd);
	fd = b->socket(SERVER, AF_INET6);
	b->setsockopt(SERVER, fd, SOL_SOCKET, SO_REUSEADDR, &one, 4);
	note_result("v6only", b->setsockopt(SERVER, fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, 4));
	b->bind(SERVER, fd, (void *)&any, sizeof(any));
	b->listen(SERVER, fd, 4);
	int other = b->socket(SERVER, AF_INET);
	struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	b->setsockopt(SERVER, other, SOL_SOCKET, SO_REUSEADDR, &one, 4);
	note_result("IPv4 beside it", b->bind(SERVER, other, (void *)&any4, sizeof(any4)));
	client = b->socket(CLIENT, a.ss_family);
	b->connect(CLIENT, client, (void *)&a, address_len(v6));
	await(b, CLIENT, client, POLLOUT);
	note_number(b, CLIENT, client, "SO_ERROR", SOL_SOCKET, SO_ERROR);
	b->close(CLIENT, client);
	b->close(SERVER, fd);
	b->close(SERVER, other);
}

const struct play plays[] = {
        {"new socket", new_socket},
        {"bind", binds},
        {"listen", listens},
        {"life", life},
        {"vectors", vectors},
        {"refused", refused},
        {"half closed", half_closed},
        {"options", options},
        {"facts", facts},
        {"urgent", urgent},
        {"families", families},
        {NULL, NULL},
};
