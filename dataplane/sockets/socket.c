// SPDX-License-Identifier: Apache-2.0
/* Sockets: socket() to close(), names, readiness. */
#include <arpa/inet.h>
#include <errno.h>

#include "context.h"

#define MAX_BACKLOG 4096 /* net.core.somaxconn */

int sy_tcp_socket(struct sy_tcp_context *c, int family)
{
	int fd;

	if (family != AF_INET && family != AF_INET6)
		return -EAFNOSUPPORT;
	fd = descriptor_alloc(c, KIND_SOCKET);
	if (fd < 0)
		return fd;
	struct descriptor *d = &c->descriptor[fd];
	d->v6 = family == AF_INET6;
	d->local.addr = address_any(d->v6);
	sy_socket_options_init(&d->options);
	return fd;
}

/* ---- bind ------------------------------------------------------------------------------------ */

static bool is_own(const struct sy_tcp_context *c, const struct sy_addr *addr)
{
	for (unsigned i = 0; i < c->addresses; i++)
		if (sy_addr_equal(&c->address[i].addr, addr))
			return true;
	return false;
}

/* Returns true if both would match the same segments. */
static bool overlap(const struct descriptor *a, const struct descriptor *b)
{
	bool any_a = address_is_any(&a->local.addr), any_b = address_is_any(&b->local.addr);

	if (a->local.port != b->local.port)
		return false;
	if (!any_a && !any_b)
		return sy_addr_equal(&a->local.addr, &b->local.addr);
	bool v4_a = sy_addr_is_v4(&a->local.addr), v4_b = sy_addr_is_v4(&b->local.addr);
	if (v4_a == v4_b)
		return true;
	/* One is IPv4: they overlap if the other is a dual-stack wildcard. */
	return v4_a ? any_b && !b->options.only_v6 : any_a && !a->options.only_v6;
}

static bool in_use(const struct sy_tcp_context *c, const struct descriptor *d)
{
	for (uint32_t i = c->bound; i != NO_WATCH; i = c->descriptor[i].next) {
		const struct descriptor *other = &c->descriptor[i];
		if (other == d || !overlap(d, other))
			continue;
		if (!(d->options.reuse_addr && other->options.reuse_addr &&
		      other->phase != PHASE_LISTENING))
			return true;
	}
	return false;
}

static bool port_choose(struct sy_tcp_context *c, struct descriptor *d)
{
	uint32_t count = c->port_last - c->port_first + 1u;

	for (uint32_t i = 0; i < count; i++) {
		d->local.port = htons((uint16_t)(c->port_first + c->port_cursor++ % count));
		if (!in_use(c, d))
			return true;
	}
	d->local.port = 0;
	return false;
}

static void bound_add(struct sy_tcp_context *c, struct descriptor *d)
{
	d->bound = true;
	d->next = c->bound;
	c->bound = (uint32_t)descriptor_number(c, d);
}

static void bound_remove(struct sy_tcp_context *c, struct descriptor *d)
{
	uint32_t *at = &c->bound, index = (uint32_t)descriptor_number(c, d);

	if (!d->bound)
		return;
	while (*at != index)
		at = &c->descriptor[*at].next;
	*at = d->next;
	d->bound = false;
}

int sy_tcp_bind(struct sy_tcp_context *c, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sy_stack_endpoint local;
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	rc = address_read(d->v6, addr, len, &local);
	if (rc)
		return rc;
	if (d->bound || d->phase != PHASE_NEW)
		return -EINVAL;
	if (d->v6 && d->options.only_v6 && sy_addr_is_v4(&local.addr))
		return -EINVAL;
	if (!address_is_any(&local.addr) && !is_own(c, &local.addr))
		return -EADDRNOTAVAIL;
	const struct sy_stack_endpoint before = d->local;
	d->local = local;
	d->chosen = local.port == 0;
	if (d->chosen ? !port_choose(c, d) : in_use(c, d)) {
		d->local = before;
		return -EADDRINUSE;
	}
	bound_add(c, d);
	return 0;
}

/* ---- listen and accept ----------------------------------------------------------------------- */

static unsigned backlog_of(int backlog)
{
	return backlog < 0 || backlog > MAX_BACKLOG ? MAX_BACKLOG : (unsigned)backlog + 1;
}

int sy_tcp_listen(struct sy_tcp_context *c, int fd, int backlog)
{
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	if (d->phase == PHASE_LISTENING)
		return sy_stack_listener_set(c->stack, d->id, backlog_of(backlog),
		                             d->options.only_v6);
	if (d->phase != PHASE_NEW)
		return -EINVAL;
	if (!d->bound) {
		if (!port_choose(c, d))
			return -EADDRINUSE;
		bound_add(c, d);
	}
	rc = sy_stack_listen(c->stack, &d->local, backlog_of(backlog), (uint64_t)fd, &d->id);
	if (rc)
		return rc == -ENOMEM ? -ENOBUFS : rc;
	sy_stack_listener_set(c->stack, d->id, backlog_of(backlog), d->options.only_v6);
	d->phase = PHASE_LISTENING;
	options_apply(c, d);
	context_listens(c, d);
	descriptor_news(c, d);
	return 0;
}

/* Returns the client address from a load balancer, or the peer's. */
static void peer_find(struct sy_tcp_context *c, struct descriptor *d)
{
	struct sy_stack_endpoint client;

	/* An IPv4 socket cannot represent an IPv6 address. */
	if (sy_stack_client(c->stack, d->id, &client) == 0 &&
	    (d->v6 || sy_addr_is_v4(&client.addr)))
		d->peer = client;
}

int sy_tcp_accept(struct sy_tcp_context *c, int fd, struct sockaddr *addr, socklen_t *len)
{
	int rc, new;
	struct descriptor *l = socket_of(c, fd, &rc), *d;
	struct sy_stack_endpoint peer;
	struct sy_stack_info info;
	sy_stack_id id;

	if (!l)
		return rc;
	if (l->phase != PHASE_LISTENING)
		return -EINVAL;
	if (!(sy_stack_ready(c->stack, l->id) & SY_STACK_READABLE))
		return -EAGAIN;
	new = descriptor_alloc(c, KIND_SOCKET);
	if (new < 0)
		return new;
	rc = sy_stack_accept(c->stack, l->id, (uint64_t) new, &peer, &id);
	if (rc) {
		descriptor_free(c, new);
		return rc;
	}
	d = &c->descriptor[new];
	d->v6 = l->v6;
	d->id = id;
	d->phase = PHASE_CONNECTED;
	d->options = l->options;
	d->peer = peer;
	if (sy_stack_info(c->stack, id, &info) == 0)
		d->local = info.local;
	peer_find(c, d);
	address_write(d->v6, &d->peer, addr, len);
	return new;
}

/* ---- connect --------------------------------------------------------------------------------- */

static int source_choose(const struct sy_tcp_context *c, const struct sy_addr *peer,
                         struct sy_addr *source)
{
	for (unsigned i = 0; address_is_any(source) && i < c->addresses; i++)
		if (sy_addr_is_v4(&c->address[i].addr) == sy_addr_is_v4(peer))
			*source = c->address[i].addr;
	if (address_is_any(source))
		return -EADDRNOTAVAIL;
	return sy_addr_is_v4(source) == sy_addr_is_v4(peer) ? 0 : -ENETUNREACH;
}

static void connection_forget(struct sy_tcp_context *c, struct descriptor *d)
{
	if (d->phase != PHASE_NEW)
		sy_stack_abort(c->stack, d->id, context_now(c));
	d->phase = PHASE_NEW;
	d->shut = 0;
	d->urgent = false;
}

static int connect_begin(struct sy_tcp_context *c, struct descriptor *d,
                         const struct sy_stack_endpoint *peer)
{
	struct sy_stack_endpoint from = d->local;
	struct sy_stack_info info;
	int rc;

	/* No loopback. */
	if (peer->port == 0 || address_is_any(&peer->addr) || is_own(c, &peer->addr))
		return -ENETUNREACH;
	if (d->v6 && d->options.only_v6 && sy_addr_is_v4(&peer->addr))
		return -ENETUNREACH;
	rc = source_choose(c, &peer->addr, &from.addr);
	if (rc)
		return rc;
	if (d->chosen || !d->bound) /* one whose packets are steered to this context */
		from.port = 0;
	rc = sy_stack_connect(c->stack, &from, peer, (uint64_t)descriptor_number(c, d),
	                      context_now(c), &d->id);
	if (rc == -EADDRINUSE)
		return -EADDRNOTAVAIL;
	if (rc)
		return rc;
	d->phase = PHASE_CONNECTING;
	d->peer = *peer;
	if (sy_stack_info(c->stack, d->id, &info) == 0)
		d->local = info.local;
	options_apply(c, d);
	return -EINPROGRESS;
}

/* A repeated connect() returns the first one's result, once. */
static int connect_result(struct sy_tcp_context *c, struct descriptor *d)
{
	enum sy_stack_state state = socket_state(c, d);
	int error;

	if (state == SY_STACK_SYN_SENT || state == SY_STACK_SYN_RECEIVED)
		return -EALREADY;
	d->phase = PHASE_CONNECTED;
	if (state != SY_STACK_CLOSED)
		return 0;
	error = sy_stack_error(c->stack, d->id);
	connection_forget(c, d);
	return error ? -error : -ECONNABORTED;
}

int sy_tcp_connect(struct sy_tcp_context *c, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sy_stack_endpoint peer;
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	if (len < (socklen_t)sizeof(addr->sa_family))
		return -EINVAL;
	if (addr->sa_family == AF_UNSPEC) { /* disconnects */
		if (d->phase == PHASE_LISTENING)
			sy_stack_close(c->stack, d->id, context_now(c));
		connection_forget(c, d);
		descriptor_news(c, d);
		return 0;
	}
	if (d->phase == PHASE_CONNECTING)
		return connect_result(c, d);
	if (d->phase != PHASE_NEW)
		return -EISCONN;
	rc = address_read(d->v6, addr, len, &peer);
	return rc ? rc : connect_begin(c, d, &peer);
}

/* ---- shutdown and close ---------------------------------------------------------------------- */

int sy_tcp_shutdown(struct sy_tcp_context *c, int fd, int how)
{
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	unsigned bits = (unsigned)how + 1; /* SHUT_READ, SHUT_WRITE, or both */
	switch (socket_state(c, d)) {
	case SY_STACK_LISTEN:
		if (!(bits & SHUT_READ))
			return 0;
		sy_stack_close(c->stack, d->id, context_now(c));
		d->phase = PHASE_NEW;
		break;
	case SY_STACK_SYN_SENT:
		connection_forget(c, d);
		break;
	case SY_STACK_CLOSED:
	case SY_STACK_TIME_WAIT:
		return -ENOTCONN;
	default:
		d->shut |= (uint8_t)bits;
		c->answers_pending |= d->lent;
		if (bits & SHUT_WRITE)
			sy_stack_shutdown(c->stack, d->id, context_now(c));
	}
	descriptor_news(c, d);
	return 0;
}

int sy_tcp_close_fd(struct sy_tcp_context *c, int fd)
{
	struct descriptor *d = descriptor_of(c, fd);

	if (!d)
		return -EBADF;
	watches_drop(c, d);
	if (d->kind == KIND_SOCKET) {
		c->answers_pending |= d->lent;
		bound_remove(c, d);
		if (d->phase != PHASE_NEW)
			sy_stack_close(c->stack, d->id, context_now(c));
	}
	descriptor_free(c, fd);
	return 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

enum sy_stack_state socket_state(struct sy_tcp_context *c, const struct descriptor *d)
{
	struct sy_stack_info info;

	if (d->phase == PHASE_LISTENING)
		return SY_STACK_LISTEN;
	if (d->phase == PHASE_NEW || sy_stack_info(c->stack, d->id, &info))
		return SY_STACK_CLOSED;
	return info.state;
}

int sy_tcp_getsockname(struct sy_tcp_context *c, int fd, struct sockaddr *addr, socklen_t *len)
{
	int rc;
	const struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	if ((int)*len < 0)
		return -EINVAL;
	address_write(d->v6, &d->local, addr, len);
	return 0;
}

int sy_tcp_getpeername(struct sy_tcp_context *c, int fd, struct sockaddr *addr, socklen_t *len)
{
	int rc;
	const struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	switch (socket_state(c, d)) {
	case SY_STACK_CLOSED:
	case SY_STACK_LISTEN:
	case SY_STACK_SYN_SENT:
	case SY_STACK_TIME_WAIT: /* a kernel socket would be closed by then */
		return -ENOTCONN;
	default:
		break;
	}
	if ((int)*len < 0)
		return -EINVAL;
	address_write(d->v6, &d->peer, addr, len);
	return 0;
}
