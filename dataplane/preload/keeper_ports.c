// SPDX-License-Identifier: Apache-2.0
/* Ports that are steered to the program's workers, as its processes ask for them. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Linux lets another program's socket listen at the same address and port in another network
 * namespace or on another device: a user may have a namespace of his own, where all ports are his.
 */
static bool is_in_namespace(const struct keeper *k, int fd)
{
	uint64_t ours = 0, cookie = 0;
	socklen_t len = sizeof(ours), cookie_len = sizeof(cookie);

	return getsockopt(k->listener, SOL_SOCKET, SO_NETNS_COOKIE, &ours, &len) == 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &cookie_len) == 0 &&
	       ours == cookie;
}

static bool is_on_interface(const struct keeper *k, int fd)
{
	return option_is(fd, SOL_SOCKET, SO_BINDTOIFINDEX, 0) ||
	       option_is(fd, SOL_SOCKET, SO_BINDTOIFINDEX, k->options.config.ifindex);
}

/* The parent's user, who started the program, or one of the process that sends the request. */
static bool is_of_program(const struct peer *p, int fd)
{
	char path[64], line[256];
	unsigned uid[4] = {p->uid, p->uid, p->uid, p->uid};
	struct stat st;

	if (fstat(fd, &st))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/status", p->pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Uid: %u %u %u %u", &uid[0], &uid[1], &uid[2], &uid[3]) == 4)
			break;
	if (f)
		fclose(f);
	for (unsigned i = 0; i < SY_ARRAY_LEN(uid); i++)
		if (st.st_uid == uid[i])
			return true;
	return st.st_uid == geteuid() || st.st_uid == p->uid;
}

static bool is_bound_to(const struct port *port, int fd)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	struct port bound = {0};

	if (getsockname(fd, (void *)&at, &len))
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

/* A worker may have port 22 steered only if Linux lets it listen there. Returns why it may not, or
 * NULL. */
static const char *port_refusal(const struct keeper *k, const struct peer *p,
                                const struct port *port, int fd)
{
	if (!port_is_configured(k, port->port))
		return "it is none of --port";
	if (fd < 0 || !option_is(fd, SOL_SOCKET, SO_PROTOCOL, IPPROTO_TCP) ||
	    !option_is(fd, SOL_SOCKET, SO_ACCEPTCONN, 1) || !is_bound_to(port, fd))
		return "the process has no socket that listens there";
	if (!is_in_namespace(k, fd))
		return "its socket is of another network namespace";
	if (!is_on_interface(k, fd))
		return "its socket is bound to another device";
	if (!is_of_program(p, fd))
		return "its socket is of another user";
	return NULL;
}

static bool port_is_refused(const struct keeper *k, struct peer *p, const struct port *port, int fd)
{
	const char *why = port_refusal(k, p, port, fd);

	if (!why)
		return false;
	if (!p->warned)
		sy_log(SY_LOG_WARN, "run",
		       "pid %d: port %u is not steered to the stack: %s; Linux serves it", p->pid,
		       ntohs(port->port), why);
	p->warned = true;
	return true;
}

int port_listen(struct keeper *k, struct peer *p, const struct port *port, bool on, int fd)
{
	if (on && port_is_refused(k, p, port, fd))
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
