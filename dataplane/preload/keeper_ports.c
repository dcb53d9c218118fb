// SPDX-License-Identifier: Apache-2.0
/* Ports that are steered to the program's workers, as its processes ask for them. */
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "keeper.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* A listener's address stands for these served ones. */
static bool port_covers(const struct port *p, const struct sy_addr *addr)
{
	bool v4 = sy_addr_is_v4(addr);

	if (p->addr.d[0] == 0 && p->addr.d[1] == 0)
		return !v4 || !p->v6_only;
	if (sy_addr_is_v4(&p->addr) && p->addr.w[3] == 0)
		return v4;
	return sy_addr_equal(&p->addr, addr);
}

static bool port_is_wanted(const struct sy_addr *addr, uint16_t port)
{
	for (unsigned i = 0; i < KEEPER_PEERS; i++)
		for (unsigned n = 0; peer[i].fd && n < peer[i].ports; n++)
			if (peer[i].port[n].port == port && port_covers(&peer[i].port[n], addr))
				return true;
	return false;
}

uint64_t queues_of(const struct keeper *k, const struct peer *p)
{
	uint64_t mask = 0;

	for (unsigned q = (unsigned)p->worker; p->worker >= 0 && q < k->options.queues;
	     q += k->options.config.workers)
		mask |= UINT64_C(1) << q;
	return mask;
}

/* The queues of workers that take no more connections there, if somebody else does. */
static uint64_t port_closed(const struct keeper *k, const struct sy_addr *addr, uint16_t port)
{
	uint64_t closed = 0;
	bool open = false;

	for (unsigned i = 0; i < KEEPER_PEERS; i++) {
		bool opened = false, ended = false;
		for (unsigned n = 0; peer[i].fd && n < peer[i].ports; n++) {
			const struct port *p = &peer[i].port[n];
			if (p->port != port || !port_covers(p, addr))
				continue;
			opened |= !p->closed;
			ended |= p->closed;
		}
		open |= opened;
		if (ended && !opened)
			closed |= queues_of(k, &peer[i]);
	}
	return open ? closed : 0;
}

int port_steer(struct keeper *k, const struct port *p)
{
	const struct message_answer *c = &k->options.config;
	int rc = 0;

	for (uint32_t i = 0; i < c->addresses && !rc; i++) {
		if (!port_covers(p, &c->addr[i]))
			continue;
		bool on = port_is_wanted(&c->addr[i], p->port);
		rc = steer_port(k->steer, &c->addr[i], p->port, on,
		                port_closed(k, &c->addr[i], p->port));
		if (!on && rc == -ENOENT)
			rc = 0;
	}
	return rc;
}

static bool port_equal(const struct port *a, const struct port *b)
{
	return sy_addr_equal(&a->addr, &b->addr) && a->port == b->port && a->v6_only == b->v6_only;
}

static bool port_is_configured(const struct keeper *k, uint16_t port)
{
	const struct message_answer *c = &k->options.config;

	for (uint32_t i = 0; i < c->ports; i++)
		if (htons(c->port[i]) == port)
			return true;
	return c->ports == 0;
}

static bool option_is(int fd, int level, int name, int wanted)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, level, name, &value, &len) == 0 && value == wanted;
}

/* 0: the kernel does not say. A user may have a namespace of his own, where all ports are his. */
static uint64_t namespace_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) ? 0 : cookie;
}

/* A worker may have port 22 steered only if Linux lets it listen there. */
static bool port_is_its_own(const struct keeper *k, const struct port *port, int fd)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	struct port bound = {0};

	if (fd < 0 || namespace_of(fd) != namespace_of(k->listener) ||
	    !option_is(fd, SOL_SOCKET, SO_PROTOCOL, IPPROTO_TCP) ||
	    !option_is(fd, SOL_SOCKET, SO_ACCEPTCONN, 1) || getsockname(fd, (void *)&at, &len))
		return false;
	if (at.ss_family == AF_INET) {
		const struct sockaddr_in *v4 = (void *)&at;
		bound.addr.w[2] = htonl(0xffff);
		bound.addr.w[3] = v4->sin_addr.s_addr;
		bound.port = v4->sin_port;
	} else if (at.ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (void *)&at;
		memcpy(&bound.addr, &v6->sin6_addr, sizeof(bound.addr));
		bound.port = v6->sin6_port;
		if (!port->v6_only && !option_is(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0))
			return false;
	}
	return bound.port == port->port && sy_addr_equal(&bound.addr, &port->addr);
}

int port_listen(struct keeper *k, struct peer *p, const struct port *port, bool on, int fd)
{
	if (on && (!port_is_configured(k, port->port) || !port_is_its_own(k, port, fd)))
		return -EACCES;
	for (unsigned i = 0; i < p->ports; i++) {
		if (!port_equal(&p->port[i], port))
			continue;
		if (p->port[i].closed == !on)
			return 0;
		p->port[i].closed = !on;
		if (!on && p->worker < 0) /* a worker's connections still need their segments */
			p->port[i] = p->port[--p->ports];
		return port_steer(k, port);
	}
	if (!on)
		return 0;
	if (p->ports == KEEPER_PORTS)
		return -ENOSPC;
	p->port[p->ports++] = *port;
	return port_steer(k, port);
}
