// SPDX-License-Identifier: Apache-2.0
/*
 * The ports where the program's processes listen, and whether the stack or Linux gets their new
 * connections (docs/design/0058-serving.md): in the queues of a worker whose stack listens there,
 * that stack; elsewhere Linux's listening socket.
 */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

#define SECOND    UINT64_C(1000000000)
#define PAUSE_MAX (64 * SECOND) /* between checks for connections of Linux */

/* A port in the XDP program's map. */
struct steered {
	struct sy_addr addr;
	uint16_t port;
	struct steer_port to;
	uint64_t check_ns, pause_ns; /* when to check whether Linux still has connections there */
};

static struct steered steered[STEER_SERVED];
static unsigned steered_count;

/* Returns whether a listener's address includes the served one. */
static bool port_covers(const struct port *p, const struct sy_addr *addr)
{
	bool v4 = sy_addr_is_v4(addr);

	if (p->addr.d[0] == 0 && p->addr.d[1] == 0)
		return !v4 || !p->v6_only;
	if (sy_addr_is_v4(&p->addr) && p->addr.w[3] == 0)
		return v4;
	return sy_addr_equal(&p->addr, addr);
}

/* ---- the stack or Linux ---------------------------------------------------------------------- */

static uint64_t queues_of(const struct supervisor *sv, const struct peer *p)
{
	uint64_t mask = 0;

	for (unsigned q = (unsigned)p->worker; p->worker >= 0 && q < sv->options.queues;
	     q += sv->options.config.workers)
		mask |= UINT64_C(1) << q;
	return mask;
}

static uint64_t queues_all(const struct supervisor *sv)
{
	return sv->options.queues < 64 ? (UINT64_C(1) << sv->options.queues) - 1 : UINT64_MAX;
}

/* What the program's processes do at an address and port. */
struct use {
	bool listens; /* one listens, or has connections there */
	bool waits;   /* one without a queue waits there */
	uint64_t stack;
};

static struct use use_find(const struct supervisor *sv, const struct sy_addr *addr, uint16_t port)
{
	struct use use = {0};

	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++) {
		const struct peer *p = &peer[i];
		for (unsigned n = 0; p->fd && n < p->ports; n++) {
			const struct port *at = &p->port[n];
			if (at->port != port || !port_covers(at, addr))
				continue;
			use.listens = true;
			if (!at->serves || at->closed)
				continue;
			use.waits |= p->waits;
			if (p->bound && !p->stalled)
				use.stack |= queues_of(sv, p);
		}
	}
	return use;
}

bool port_is_served(const struct port *port)
{
	for (unsigned i = 0; i < SUPERVISOR_PEERS; i++)
		for (unsigned n = 0; peer[i].fd && n < peer[i].ports; n++) {
			const struct port *at = &peer[i].port[n];
			if (at->port == port->port && at->serves && !at->closed)
				return true;
		}
	return false;
}

static struct steered *steered_find(const struct sy_addr *addr, uint16_t port)
{
	for (unsigned i = 0; i < steered_count; i++)
		if (steered[i].port == port && sy_addr_equal(&steered[i].addr, addr))
			return &steered[i];
	return NULL;
}

static int steered_end(struct supervisor *sv, struct steered *at)
{
	int rc = steer_port(sv->steer, &at->addr, at->port, NULL);

	*at = steered[--steered_count];
	return rc;
}

/* Updates the map for one address. If more processes wait there than there are workers, Linux gets
 * the new connections: it has one queue for all of them. A blocking server's connections would wait
 * in one process while its others sleep. */
static int addr_steer(struct supervisor *sv, const struct sy_addr *addr, uint16_t port)
{
	struct use use = use_find(sv, addr, port);
	struct steered *at = steered_find(addr, port);
	struct steer_port to = {.stack = use.waits ? 0 : use.stack, .shared = 1};

	if (!use.listens)
		return at ? steered_end(sv, at) : 0;
	if (at && at->to.stack == to.stack)
		return 0;
	if (!at) {
		if (steered_count == STEER_SERVED)
			return -ENOSPC;
		at = &steered[steered_count++];
		*at = (struct steered){.addr = *addr, .port = port};
	}
	at->to = to;
	at->pause_ns = SECOND;
	at->check_ns = sy_clock_ns() + at->pause_ns;
	return steer_port(sv->steer, addr, port, &at->to);
}

static int port_steer(struct supervisor *sv, const struct port *p)
{
	const struct message_answer *c = &sv->options.config;
	int rc = 0;

	for (uint32_t i = 0; i < c->addresses && !rc; i++)
		if (port_covers(p, &c->addr[i]))
			rc = addr_steer(sv, &c->addr[i], p->port);
	return rc;
}

void ports_steer(struct supervisor *sv, const struct peer *p)
{
	for (unsigned i = 0; i < p->ports; i++)
		port_steer(sv, &p->port[i]);
}

/* ---- connections of Linux -------------------------------------------------------------------- */

struct question {
	struct nlmsghdr header;
	struct inet_diag_req_v2 what;
};

/* Returns 1 if this part of an answer has a connection at the address, 0 if it has none, 2 at the
 * end. */
static int answer_read(const char *bytes, ssize_t len, const struct steered *at)
{
	for (const struct nlmsghdr *h = (const void *)bytes; NLMSG_OK(h, (unsigned)len);
	     h = NLMSG_NEXT(h, len)) {
		const struct inet_diag_msg *m = NLMSG_DATA(h);
		struct sy_addr addr = {0};
		if (h->nlmsg_type == NLMSG_DONE)
			return 2;
		if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY)
			return 1;
		if (m->idiag_family == AF_INET)
			addr = sy_addr_v4(m->id.idiag_src[0]);
		else
			memcpy(&addr, m->id.idiag_src, sizeof(addr));
		if (m->id.idiag_sport == at->port && sy_addr_equal(&addr, &at->addr))
			return 1;
	}
	return 0;
}

/* Returns whether Linux has connections there, listeners excluded, or the kernel does not report
 * it. */
static bool linux_has(const struct steered *at, uint8_t family)
{
	struct question q = {.header = {.nlmsg_len = sizeof(q),
	                                .nlmsg_type = SOCK_DIAG_BY_FAMILY,
	                                .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	                     .what = {.sdiag_family = family,
	                              .sdiag_protocol = IPPROTO_TCP,
	                              .idiag_states = ~(1u << TCP_LISTEN),
	                              .id.idiag_sport = at->port}};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), found = 0;
	char bytes[16384];

	if (fd < 0 || send(fd, &q, sizeof(q), 0) != sizeof(q))
		found = 1;
	while (!found) {
		ssize_t len = recv(fd, bytes, sizeof(bytes), 0);
		found = len < 0 ? 1 : answer_read(bytes, len, at);
	}
	if (fd >= 0)
		close(fd);
	return found == 1;
}

/* Once the workers of all queues listen, Linux gets no new connections. When it has none left, the
 * XDP program need not look up its table for each segment. */
void ports_check(struct supervisor *sv, uint64_t now_ns)
{
	for (unsigned i = 0; i < steered_count; i++) {
		struct steered *at = &steered[i];
		if (!at->to.shared || at->to.stack != queues_all(sv) || now_ns < at->check_ns)
			continue;
		if (!linux_has(at, sy_addr_is_v4(&at->addr) ? AF_INET : AF_INET6) &&
		    !(sy_addr_is_v4(&at->addr) && linux_has(at, AF_INET6))) {
			at->to.shared = 0;
			steer_port(sv->steer, &at->addr, at->port, &at->to);
		}
		at->pause_ns = at->pause_ns < PAUSE_MAX ? at->pause_ns * 2 : PAUSE_MAX;
		at->check_ns = now_ns + at->pause_ns;
	}
}

/* ---- requests of a process ------------------------------------------------------------------- */

static bool port_equal(const struct port *a, const struct port *b)
{
	return sy_addr_equal(&a->addr, &b->addr) && a->port == b->port && a->v6_only == b->v6_only;
}

static bool port_is_configured(const struct supervisor *sv, uint16_t port)
{
	const struct message_answer *c = &sv->options.config;

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

/* Refuses sockets of other network namespaces: a user may own a namespace, and thereby all ports in
 * it. Linux lets a socket listen at the same address and port in another namespace or on another
 * device. */
bool is_in_namespace(const struct supervisor *sv, int fd)
{
	uint64_t ours = 0, cookie = 0;
	socklen_t len = sizeof(ours), cookie_len = sizeof(cookie);

	return getsockopt(sv->listener, SOL_SOCKET, SO_NETNS_COOKIE, &ours, &len) == 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &cookie_len) == 0 &&
	       ours == cookie;
}

static bool is_on_interface(const struct supervisor *sv, int fd)
{
	return option_is(fd, SOL_SOCKET, SO_BINDTOIFINDEX, 0) ||
	       option_is(fd, SOL_SOCKET, SO_BINDTOIFINDEX, sv->options.config.ifindex);
}

/* Returns whether the socket belongs to the supervisor's user or to a user of the process that
 * sends the request. */
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

/* Returns why a process may not have the port steered, or NULL: it may only if Linux lets it listen
 * there. */
static const char *port_refusal(const struct supervisor *sv, const struct peer *p,
                                const struct port *port, int fd)
{
	if (!port_is_configured(sv, port->port))
		return "--port does not name it";
	if (fd < 0 || !option_is(fd, SOL_SOCKET, SO_PROTOCOL, IPPROTO_TCP) ||
	    !option_is(fd, SOL_SOCKET, SO_ACCEPTCONN, 1) || !is_bound_to(port, fd))
		return "the process has no socket that listens there";
	if (!is_in_namespace(sv, fd))
		return "its socket is in another network namespace";
	if (!is_on_interface(sv, fd))
		return "its socket is bound to another device";
	if (!is_of_program(p, fd))
		return "its socket belongs to another user";
	return NULL;
}

static bool port_is_refused(const struct supervisor *sv, struct peer *p, const struct port *port,
                            int fd)
{
	const char *why = port_refusal(sv, p, port, fd);

	if (!why)
		return false;
	if (!p->warned)
		sy_log(SY_LOG_WARN, "run",
		       "pid %d: port %u is not steered to the stack: %s; Linux serves it", p->pid,
		       ntohs(port->port), why);
	p->warned = true;
	return true;
}

static struct port *port_find(struct peer *p, const struct port *port)
{
	for (unsigned i = 0; i < p->ports; i++)
		if (port_equal(&p->port[i], port))
			return &p->port[i];
	return NULL;
}

bool port_is_of(const struct peer *p, const struct sy_addr *addr, uint16_t port)
{
	for (unsigned i = 0; i < p->ports; i++)
		if (p->port[i].port == port && port_covers(&p->port[i], addr))
			return true;
	return false;
}

int port_share(struct supervisor *sv, const struct sy_addr *addr, uint16_t port)
{
	struct steered *at = steered_find(addr, port);

	if (!at)
		return -ENOENT;
	at->pause_ns = SECOND;
	at->check_ns = sy_clock_ns() + at->pause_ns;
	if (at->to.shared)
		return 0;
	at->to.shared = 1;
	return steer_port(sv->steer, addr, port, &at->to);
}

int port_listen(struct supervisor *sv, struct peer *p, const struct port *port, bool on, int fd)
{
	struct port *at = port_find(p, port);

	if (on && port_is_refused(sv, p, port, fd))
		return -EACCES;
	if (!at && !on)
		return 0;
	if (!at && p->ports == SUPERVISOR_PORTS)
		return -ENOSPC;
	if (!at) {
		at = &p->port[p->ports++];
		*at = *port;
		at->since_ns = sy_clock_ns();
		return port_steer(sv, port);
	}
	at->closed = !on;
	at->serves = on && port->serves;
	at->yielded = false;
	if (!on && p->worker < 0) /* a worker may still have connections there */
		*at = p->port[--p->ports];
	return port_steer(sv, port);
}

int port_forget(struct supervisor *sv, struct peer *p, const struct port *port)
{
	struct port *at = port_find(p, port);

	if (!at || !at->closed)
		return 0;
	*at = p->port[--p->ports];
	return port_steer(sv, port);
}

int port_yield(struct supervisor *sv, struct peer *p, const struct port *port)
{
	struct port *at = port_find(p, port);

	if (!at)
		return -ENOENT;
	at->serves = false;
	at->yielded = true;
	at->warned |= port->serves; /* it passes connections on, and logs that itself */
	int rc = port_steer(sv, port);
	return rc ? rc : port_is_served(port);
}
