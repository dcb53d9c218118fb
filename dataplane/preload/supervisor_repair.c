// SPDX-License-Identifier: Apache-2.0
/*
 * Connections of the stack that become Linux's, for a process of the program to accept
 * (docs/design/0067-reload-without-a-gap.md).
 *
 *     EXPORT ─▶ a socket of Linux's by TCP_REPAIR ─────────────────────────────┐
 *               └▶ a ticket: a connection from a loopback address to that port │
 *                  └▶ Linux's accept queue ─▶ accept() ─▶ REDEEM ──────────────┴▶ gets the socket
 *
 * Linux's accept queue chooses the process and wakes it. A ticket is renewed if its process or its
 * listener ends before a process has redeemed it.
 */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervisor.h"

#define WAITING_MAX 1024 /* connections; more are reset */
#define TICKETS     3    /* attempts per connection: a process without the library wastes one */
#define EVENTS      64
#define SCALE_MAX   14 /* RFC 7323 2.3 */
#define MSS_MIN     48
#define WINDOW_MAX  (UINT32_C(1) << 30)

/* A connection that waits for a process to accept it. */
struct waiting {
	int socket; /* 0: the slot is free */
	int ticket;
	bool marked; /* the ticket has sent its byte: ticket_mark() */
	unsigned tickets;
	struct sy_addr addr; /* local */
	uint16_t port;       /* local, network order */
	uint16_t ticket_port;
};

static struct waiting waiting[WAITING_MAX];
static int events = -1;

int repair_open(struct sy_error *err)
{
	events = epoll_create1(EPOLL_CLOEXEC);
	return events < 0 ? sy_fail(err, errno, "epoll: %s", strerror(errno)) : 0;
}

int repair_fd(void)
{
	return events;
}

/* ---- which connections a process may export -------------------------------------------------- */

/* Returns whether a client on another host may have the address. */
static bool is_client(const struct sy_addr *a)
{
	bool compatible = a->d[0] == 0 && a->w[2] == 0; /* RFC 4291 2.5.5.1 */

	return !sy_addr_is_bogus_source(a) && !compatible;
}

/* Returns whether the process may export the connection. A worker gains no rights by
 * it: its AF_XDP sockets can already send any segment. Linux refuses a second connection with the
 * same addresses and ports. */
static bool is_allowed(const struct supervisor *sv, const struct peer *p,
                       const struct message_request *q, const struct message_connection *c)
{
	return p->bound && message_has_address(&sv->options.config, &q->addr) &&
	       port_is_of(p, &q->addr, q->port) && is_client(&c->peer) && c->peer_port &&
	       sy_addr_is_v4(&c->peer) == sy_addr_is_v4(&q->addr);
}

static bool is_possible(const struct message_connection *c)
{
	return c->snd_scale <= SCALE_MAX && c->rcv_scale <= SCALE_MAX && c->mss >= MSS_MIN &&
	       c->snd_wnd <= c->snd_wnd_max && c->snd_wnd_max <= WINDOW_MAX &&
	       c->rcv_wnd <= WINDOW_MAX && c->unread <= MESSAGE_UNREAD;
}

/* ---- the connection's socket ----------------------------------------------------------------- */

static socklen_t name_make(const struct supervisor *sv, const struct sy_addr *addr, uint16_t port,
                           bool v6, struct sockaddr_storage *out)
{
	struct sockaddr_in *in = (void *)out;
	struct sockaddr_in6 *in6 = (void *)out;

	*out = (struct sockaddr_storage){0};
	if (!v6) {
		*in = (struct sockaddr_in){
		        .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = addr->w[3]};
		return sizeof(*in);
	}
	*in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
	memcpy(&in6->sin6_addr, addr, sizeof(in6->sin6_addr));
	if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		in6->sin6_scope_id = (uint32_t)sv->options.config.ifindex;
	return sizeof(*in6);
}

static int option_set(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) ? -errno : 0;
}

/* Sets the first sequence number of an empty queue. */
static int number_set(int fd, int queue, uint32_t number)
{
	int rc = option_set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue);

	return rc ? rc : option_set(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, (int)number);
}

static int options_agree(int fd, const struct message_connection *c)
{
	struct tcp_repair_opt option[4] = {{.opt_code = 2, .opt_val = c->mss}};
	unsigned count = 1;

	if (c->scale)
		option[count++] = (struct tcp_repair_opt){
		        .opt_code = 3, .opt_val = c->snd_scale | (uint32_t)c->rcv_scale << 16};
	if (c->sack)
		option[count++] = (struct tcp_repair_opt){.opt_code = 4};
	if (c->timestamps)
		option[count++] = (struct tcp_repair_opt){.opt_code = 8};
	if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, option,
	               count * (socklen_t)sizeof(*option)))
		return -errno;
	return c->timestamps ? option_set(fd, IPPROTO_TCP, TCP_TIMESTAMP, (int)c->time) : 0;
}

static int unread_put(int fd, const uint8_t *unread, uint32_t len)
{
	int rc = option_set(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE);

	while (len > 0 && !rc) {
		ssize_t n = send(fd, unread, len, MSG_DONTWAIT);
		rc = n > 0 ? 0 : n < 0 ? -errno : -ENOBUFS;
		unread += n > 0 ? n : 0;
		len -= n > 0 ? (uint32_t)n : 0;
	}
	return rc;
}

static int windows_set(int fd, const struct message_connection *c)
{
	const struct tcp_repair_window w = {.snd_wl1 = c->rcv_nxt - 1,
	                                    .snd_wnd = c->snd_wnd,
	                                    .max_window = c->snd_wnd_max,
	                                    .rcv_wnd = c->rcv_wnd,
	                                    .rcv_wup = c->rcv_nxt};

	return setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &w, sizeof(w)) ? -errno : 0;
}

static int names_set(const struct supervisor *sv, int fd, const struct message_request *q,
                     const struct message_connection *c)
{
	struct sockaddr_storage local, remote;
	socklen_t len = name_make(sv, &q->addr, q->port, c->v6, &local);

	name_make(sv, &c->peer, c->peer_port, c->v6, &remote);
	if (c->v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int)))
		return -errno;
	if (bind(fd, (void *)&local, len))
		return -errno;
	int rc = number_set(fd, TCP_SEND_QUEUE, c->snd_nxt);
	if (!rc)
		rc = number_set(fd, TCP_RECV_QUEUE, c->rcv_nxt - c->unread);
	if (!rc && connect(fd, (void *)&remote, len))
		rc = -errno;
	return rc;
}

/* Creates a connection of Linux's with this state (tcp(7): TCP_REPAIR). At the end Linux sends an
 * acknowledgement. */
static int connection_make(const struct supervisor *sv, const struct message_request *q,
                           const struct message_connection *c, const uint8_t *unread)
{
	int fd = socket(c->v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int rc = fd < 0 ? -errno : option_set(fd, IPPROTO_TCP, TCP_REPAIR, 1);

	if (!rc)
		rc = names_set(sv, fd, q, c);
	if (!rc)
		rc = options_agree(fd, c);
	if (!rc)
		rc = unread_put(fd, unread, c->unread);
	if (!rc)
		rc = windows_set(fd, c);
	if (!rc)
		rc = option_set(fd, IPPROTO_TCP, TCP_REPAIR, 0);
	if (!rc) /* other sockets may bind the port */
		rc = option_set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (rc && fd >= 0)
		close(fd); /* in repair mode Linux sends no segment */
	return rc ? rc : fd;
}

static void connection_reset(int fd)
{
	const struct linger at_once = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(fd);
}

/* ---- its ticket ------------------------------------------------------------------------------ */

static struct sy_addr loopback_of(const struct sy_addr *addr)
{
	struct sy_addr v6 = {0};

	v6.w[3] = htonl(1);
	return sy_addr_is_v4(addr) ? sy_addr_v4(htonl(INADDR_LOOPBACK)) : v6;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);

	if (getsockname(fd, (void *)&at, &len))
		return 0;
	return at.ss_family == AF_INET ? ((struct sockaddr_in *)&at)->sin_port
	                               : ((struct sockaddr_in6 *)&at)->sin6_port;
}

/* Sends a byte: a listener with TCP_DEFER_ACCEPT accepts connections with data. */
static void ticket_mark(struct waiting *w, int operation)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)(w - waiting)};

	w->marked = send(w->ticket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
	if (!w->marked) /* the accept queue is full */
		e.events |= EPOLLOUT;
	epoll_ctl(events, operation, w->ticket, &e);
}

static int ticket_make(const struct supervisor *sv, struct waiting *w)
{
	bool v6 = !sy_addr_is_v4(&w->addr);
	struct sy_addr from = loopback_of(&w->addr);
	struct sockaddr_storage at;
	socklen_t len = name_make(sv, &from, 0, v6, &at);
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	int rc = bind(fd, (void *)&at, len) ? -errno : 0;
	name_make(sv, &w->addr, w->port, v6, &at);
	if (!rc && connect(fd, (void *)&at, len) && errno != EINPROGRESS)
		rc = -errno;
	socklen_t size = sizeof(rc);
	if (!rc) /* over loopback, a refusal is already known here */
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &rc, &size);
	if (rc) {
		close(fd);
		return rc < 0 ? rc : -rc;
	}
	w->ticket = fd;
	w->ticket_port = port_of(fd);
	w->tickets++;
	ticket_mark(w, EPOLL_CTL_ADD);
	return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static struct waiting *slot_find(void)
{
	for (unsigned i = 0; i < WAITING_MAX; i++)
		if (!waiting[i].socket)
			return &waiting[i];
	return NULL;
}

int repair_add(struct supervisor *sv, const struct peer *p, const struct message_request *q,
               const struct message_connection *c, const uint8_t *unread)
{
	struct waiting *w = slot_find();

	if (!is_allowed(sv, p, q, c))
		return -EACCES;
	if (!is_possible(c))
		return -EINVAL;
	if (!w)
		return -ENOSPC;
	int rc = port_share(sv, &q->addr, q->port);
	int fd = rc ? rc : connection_make(sv, q, c, unread);
	if (fd < 0)
		return fd;
	*w = (struct waiting){.socket = fd, .addr = q->addr, .port = q->port};
	rc = ticket_make(sv, w);
	if (rc) {
		connection_reset(fd);
		w->socket = 0;
	}
	return rc;
}

/* Returns whether a socket address that getsockname() or getpeername() has stored has this IP
 * address and port. */
static bool name_is(const struct supervisor *sv, const struct sockaddr_storage *at,
                    const struct sy_addr *addr, uint16_t port)
{
	struct sockaddr_storage expected;
	socklen_t len = name_make(sv, addr, port, at->ss_family == AF_INET6, &expected);

	return memcmp(at, &expected, len) == 0;
}

/* Returns the connection whose ticket a process has accepted: that is the ticket's other end. */
static struct waiting *ticket_find(const struct supervisor *sv, int fd)
{
	struct sockaddr_storage own = {0}, from = {0};
	socklen_t own_len = sizeof(own), from_len = sizeof(from);

	if (fd < 0 || !is_in_namespace(sv, fd) || getsockname(fd, (void *)&own, &own_len) ||
	    getpeername(fd, (void *)&from, &from_len))
		return NULL;
	for (struct waiting *w = waiting; w < waiting + WAITING_MAX; w++) {
		struct sy_addr loopback = loopback_of(&w->addr);
		if (w->socket && name_is(sv, &from, &loopback, w->ticket_port) &&
		    name_is(sv, &own, &w->addr, w->port))
			return w;
	}
	return NULL;
}

int repair_redeem(const struct supervisor *sv, const struct peer *p, int fd)
{
	struct waiting *w = ticket_find(sv, fd);
	int connection;

	if (!w)
		return -ENOENT;
	connection = w->socket;
	fchown(connection, p->uid, (gid_t)-1); /* as if that process had created it */
	close(w->ticket);
	w->socket = 0;
	return connection;
}

/* Replaces a ticket that has ended, or to which a process without the library has written. */
static void ticket_renew(const struct supervisor *sv, struct waiting *w)
{
	close(w->ticket);
	w->ticket_port = 0;
	if (w->tickets < TICKETS && ticket_make(sv, w) == 0)
		return;
	connection_reset(w->socket);
	w->socket = 0;
}

void repair_serve(struct supervisor *sv)
{
	struct epoll_event e[EVENTS];
	int count = epoll_wait(events, e, EVENTS, 0);

	for (int i = 0; i < count; i++) {
		struct waiting *w = &waiting[e[i].data.u32];
		if (e[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			ticket_renew(sv, w);
		else
			ticket_mark(w, EPOLL_CTL_MOD);
	}
}
