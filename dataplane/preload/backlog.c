// SPDX-License-Identifier: Apache-2.0
/*
 * Connections that no thread has accepted when their listener ends: Linux's TCP continues them, and
 * another process of the program accepts them (docs/design/0067-reload-without-a-gap.md).
 *
 *     close() ─▶ SYNs go to Linux ─▶ handshakes end ─▶ sy_stack_export() ─▶ the supervisor's socket
 *     accept() of any process at the port ◀── a ticket in Linux's accept queue ◀──────┘
 *
 * A ticket is a connection from a loopback address to a served one. A process that accepts it gets
 * the connection from the supervisor in exchange.
 */
#include <errno.h>
#include <netinet/tcp.h>

#include "preload.h"
#include "real.h"

#define RETIRED_MAX STEER_SERVED /* as many as a process may have steered ports */
/* For handshakes, a retransmitted SYN-ACK, and segments in flight. */
#define RETIRED_NS (3000 * MS)

struct retired {
	sy_stack_id id;
	bool v6;
	uint64_t until_ns;
};

/* Retired listeners, a ring in the order of their deadlines. */
static struct retired retired[RETIRED_MAX];
static unsigned retired_first, retired_count;
static bool retired_ready; /* one may have complete connections */

/* The addresses of ended listeners. The supervisor steers segments of their connections until this
 * process has none left. Addresses that do not fit into the array are steered until the process
 * ends. */
static struct closed {
	struct sy_stack_endpoint at;
	uint16_t v6_only;
	uint64_t until_ns;
} closed[RETIRED_MAX];
static unsigned closed_count;

/* ---- from the stack to the supervisor -------------------------------------------------------- */

/* Exports a connection, or resets it if Linux cannot continue it. */
static void connection_export(sy_stack_id id, bool v6)
{
	static uint8_t unread[MESSAGE_UNREAD];
	struct sy_stack_export e;
	int rc = sy_stack_export(runner.stack, id, &e, unread, sizeof(unread), sy_clock_ns());

	if (!rc)
		rc = supervisor_export(&e, v6, unread);
	if (rc)
		sy_stack_abort(runner.stack, id, sy_clock_ns());
	else
		sy_stack_forget(runner.stack, id);
}

static void ready_export(sy_stack_id listener, bool v6)
{
	sy_stack_id id;

	while (listener != SY_STACK_NONE &&
	       sy_stack_accept(runner.stack, listener, 0, NULL, &id) == 0)
		connection_export(id, v6);
}

void listener_export(const struct sock *s)
{
	if (!runner.stack)
		return;
	ready_export(s->id, s->family == AF_INET6);
	ready_export(s->id_v4, s->family == AF_INET6);
}

static void id_retire(sy_stack_id id, bool v6)
{
	if (id == SY_STACK_NONE)
		return;
	sy_stack_set_cookie(runner.stack, id, 0);
	ready_export(id, v6);
	if (retired_count == RETIRED_MAX || sy_stack_retire(runner.stack, id)) {
		sy_stack_close(runner.stack, id, sy_clock_ns());
		return;
	}
	retired[(retired_first + retired_count++) % RETIRED_MAX] =
	        (struct retired){.id = id, .v6 = v6, .until_ns = sy_clock_ns() + RETIRED_NS};
}

bool retired_release(void)
{
	if (retired_count == 0)
		return false;
	const struct retired *r = &retired[retired_first];
	ready_export(r->id, r->v6);
	sy_stack_close(runner.stack, r->id, sy_clock_ns());
	retired_first = (retired_first + 1) % RETIRED_MAX;
	retired_count--;
	return true;
}

static struct closed *closed_find(const struct sock *s)
{
	for (unsigned i = 0; i < closed_count; i++)
		if (closed[i].at.port == s->local.port && closed[i].v6_only == s->v6_only &&
		    sy_addr_equal(&closed[i].at.addr, &s->local.addr))
			return &closed[i];
	return NULL;
}

void port_close(const struct sock *s)
{
	struct closed *c = closed_find(s);

	supervisor_listen(s, false, false);
	if (!c && runner.stack && closed_count < RETIRED_MAX)
		c = &closed[closed_count++];
	if (c)
		*c = (struct closed){.at = s->local,
		                     .v6_only = s->v6_only,
		                     .until_ns = sy_clock_ns() + RETIRED_NS};
}

bool ports_forget(bool now)
{
	unsigned kept = 0, count = closed_count;

	for (unsigned i = 0; i < count; i++) {
		const struct closed c = closed[i];
		if ((!now && !is_past(c.until_ns)) || sy_stack_uses_port(runner.stack, c.at.port))
			closed[kept++] = c;
		else
			supervisor_forget_port(&c.at, c.v6_only);
	}
	closed_count = kept;
	return kept < count;
}

void listener_retire(struct sock *s)
{
	if (runner.stack && (s->id != SY_STACK_NONE || s->id_v4 != SY_STACK_NONE)) {
		runner_poll(); /* receives SYNs that were steered here before Linux got them */
		id_retire(s->id, s->family == AF_INET6);
		id_retire(s->id_v4, s->family == AF_INET6);
	}
	s->id = s->id_v4 = SY_STACK_NONE;
}

void retired_poll(void)
{
	while (retired_count > 0 && is_past(retired[retired_first].until_ns))
		retired_release();
	for (unsigned i = 0; retired_ready && i < retired_count; i++) {
		const struct retired *r = &retired[(retired_first + i) % RETIRED_MAX];
		ready_export(r->id, r->v6);
	}
	retired_ready = false;
}

void retired_event(void)
{
	retired_ready = true;
}

void retired_forget(void)
{
	retired_count = closed_count = 0;
}

/* ---- from the supervisor to the program ------------------------------------------------------ */

/* Copies the options that Linux's accept() has copied from the listener to the ticket. */
static void options_copy(int from, int to)
{
	static const struct {
		int level, name;
	} option[] = {
	        {IPPROTO_IP, IP_TOS}, /* sets the priority, too */
	        {IPPROTO_IPV6, IPV6_TCLASS},
	        {SOL_SOCKET, SO_PRIORITY},
	        {SOL_SOCKET, SO_REUSEADDR},
	        {SOL_SOCKET, SO_REUSEPORT},
	        {SOL_SOCKET, SO_KEEPALIVE},
	        {SOL_SOCKET, SO_LINGER},
	        {SOL_SOCKET, SO_RCVTIMEO},
	        {SOL_SOCKET, SO_SNDTIMEO},
	        {SOL_SOCKET, SO_OOBINLINE},
	        {IPPROTO_TCP, TCP_NODELAY},
	        {IPPROTO_TCP, TCP_CORK},
	        {IPPROTO_TCP, TCP_KEEPIDLE},
	        {IPPROTO_TCP, TCP_KEEPINTVL},
	        {IPPROTO_TCP, TCP_KEEPCNT},
	        {IPPROTO_TCP, TCP_USER_TIMEOUT},
	};
	char value[sizeof(struct timeval)];

	for (unsigned i = 0; i < SY_ARRAY_LEN(option); i++) {
		socklen_t len = sizeof(value);
		if (REAL(getsockopt)(from, option[i].level, option[i].name, value, &len) == 0)
			REAL(setsockopt)(to, option[i].level, option[i].name, value, len);
	}
}

static void size_copy(int to, int name, uint32_t bytes)
{
	int half = (int)(bytes / 2); /* Linux doubles it */

	if (bytes)
		REAL(setsockopt)(to, SOL_SOCKET, name, &half, sizeof(half));
}

static bool is_loopback(const struct sy_addr *a)
{
	if (sy_addr_is_v4(a))
		return *(const uint8_t *)&a->w[3] == 127;
	return a->d[0] == 0 && a->w[2] == 0 && a->w[3] == htonl(1);
}

/* Returns whether an accepted connection may be a ticket: from a loopback address to a served one.
 * A client on this host would have the served address itself. */
static bool may_be_ticket(int fd)
{
	struct sockaddr_storage at;
	struct sy_stack_endpoint peer, local;
	socklen_t len = sizeof(at);

	return REAL(getpeername)(fd, (void *)&at, &len) == 0 &&
	       endpoint_from((void *)&at, len, &peer) == 0 && is_loopback(&peer.addr) &&
	       socket_local(fd, &local) == 0 && supervisor_serves(&local.addr);
}

/* Replaces the ticket by the connection `fd`, under the same number. Returns that, or -1. */
static int ticket_replace(const struct sock *l, int ticket, int fd, int flags)
{
	options_copy(ticket, fd);
	size_copy(fd, SO_SNDBUF, l->options.send_bytes);
	size_copy(fd, SO_RCVBUF, l->options.receive_bytes);
	REAL(fcntl)(fd, F_SETFL, flags & SOCK_NONBLOCK ? O_RDWR | O_NONBLOCK : O_RDWR);
	int rc = REAL(dup3)(fd, ticket, flags & SOCK_CLOEXEC ? O_CLOEXEC : 0);
	REAL(close)(fd);
	return rc;
}

int kernel_accept(const struct sock *l, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	socklen_t space = len && is_user_memory(len) ? *len : 0;
	int accepted = REAL(accept4)(fd, addr, len, flags), connection;

	if (accepted < 0)
		return -errno;
	if (!may_be_ticket(accepted))
		return accepted;
	connection = supervisor_redeem(accepted);
	if (connection < 0)
		return accepted;
	if (addr) {
		*len = space;
		REAL(getpeername)(connection, addr, len);
	}
	return ticket_replace(l, accepted, connection, flags);
}
