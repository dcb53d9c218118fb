// SPDX-License-Identifier: Apache-2.0
/* Names of relays. A descriptor whose other end is a relay is the kernel's. The other end's name
 * has the addresses of the connection, also for programs that were executed since. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include <sy_log_check.h>

#include "real.h"
#include "relay.h"

static void endpoint_print(const struct sy_stack_endpoint *e, char *out, size_t size)
{
	bool v4 = sy_addr_is_v4(&e->addr);
	char text[INET6_ADDRSTRLEN];

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? (const void *)&e->addr.w[3] : e->addr.b, text,
	          sizeof(text));
	snprintf(out, size, "%s:%u", text, ntohs(e->port));
}

static int endpoint_parse(char *text, struct sy_stack_endpoint *out)
{
	char *colon = strrchr(text, ':');
	unsigned port;

	if (!colon || sscanf(colon + 1, "%u", &port) != 1 || port > UINT16_MAX)
		return -EINVAL;
	*colon = 0;
	out->port = htons((uint16_t)port);
	return sy_addr_parse(text, &out->addr);
}

int relay_name_make(const struct sock *s, const char *service, char out[RELAY_NAME])
{
	char local[INET6_ADDRSTRLEN + 8], peer[INET6_ADDRSTRLEN + 8];

	endpoint_print(&s->local, local, sizeof(local));
	endpoint_print(&s->peer, peer, sizeof(peer));
	int len = snprintf(out, RELAY_NAME, "%s/%c/%s/%s", service,
	                   s->family == AF_INET ? '4' : '6', local, peer);
	return len < (int)RELAY_NAME ? 0 : -ENAMETOOLONG;
}

socklen_t relay_address(struct sockaddr_un *a, const char *name)
{
	size_t len = strlen(name);

	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(a->sun_path + 1, name, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

int relay_bind(int fd, const char *name)
{
	struct sockaddr_un a;
	socklen_t len = relay_address(&a, name);

	return REAL(bind)(fd, (void *)&a, len) ? -errno : 0;
}

int relay_name_bind(int fd, char name[RELAY_NAME])
{
	size_t len = strlen(name);
	int rc = relay_bind(fd, name);

	/* A balancer may report the same client twice, if its earlier connection has not ended
	 * here. */
	for (int i = 1; rc == -EADDRINUSE && i < 10 && len + 3 < RELAY_NAME; i++) {
		snprintf(name + len, RELAY_NAME - len, "/%d", i);
		rc = relay_bind(fd, name);
	}
	return rc;
}

int relay_name_parse(const char *text, struct relay_name *out)
{
	char copy[RELAY_NAME + 1], *local, *peer, family;
	int at = 0, from = 0;

	snprintf(copy, sizeof(copy), "%s", text);
	if (sscanf(copy, "sy/%*[0-9.]%n/%c/%n", &at, &family, &from) != 1 || !from ||
	    at >= RELAY_SERVICE)
		return -EINVAL;
	snprintf(out->service, sizeof(out->service), "%.*s", at, copy);
	local = copy + from;
	peer = strchr(local, '/');
	if (!peer)
		return -EINVAL;
	*peer++ = 0;
	peer[strcspn(peer, "/")] = 0;
	out->family = family == '4' ? AF_INET : AF_INET6;
	int rc = endpoint_parse(local, &out->local);
	return rc ? rc : endpoint_parse(peer, &out->peer);
}

bool relay_name_of(int fd, char out[RELAY_NAME])
{
	struct sockaddr_un a = {0};
	socklen_t len = sizeof(a), head = offsetof(struct sockaddr_un, sun_path) + 1;

	if (REAL(getpeername)(fd, (void *)&a, &len) || a.sun_family != AF_UNIX || len <= head ||
	    len > sizeof(a) || a.sun_path[0] || memcmp(a.sun_path + 1, "sy/", 3) != 0)
		return false;
	memcpy(out, a.sun_path + 1, len - head);
	out[len - head] = 0;
	return true;
}

/* Returns whether logs may be written to standard error. Servers (inetd, vsftpd) make a connection
 * a child's standard error: the client would read the log. */
static bool stderr_is_log(void)
{
	char name[RELAY_NAME];
	int domain, code = errno;
	socklen_t len = sizeof(domain);
	bool is = REAL(getsockopt)(STDERR_FILENO, SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
	          (domain != AF_INET && domain != AF_INET6 && !relay_name_of(STDERR_FILENO, name));

	errno = code;
	return is;
}

__attribute__((constructor(101))) static void log_begin(void)
{
	sy_log_set_check(stderr_is_log);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

bool relay_has(int fd)
{
	const struct object *o = table_get(fd);
	return o && o->kind == OBJECT_RELAYED;
}

void relay_mark_locked(int fd)
{
	static struct object relayed = {.kind = OBJECT_RELAYED, .refs = 1};

	table_put(fd, &relayed);
}

void relay_mark(int fd)
{
	char name[RELAY_NAME];

	if (relay_name_of(fd, name) && runner_lock()) {
		relay_mark_locked(fd);
		runner_unlock();
	}
}

int relay_names(int fd, struct sy_stack_endpoint *local, struct sy_stack_endpoint *peer)
{
	struct relay_name n;
	char name[RELAY_NAME];

	if (!relay_name_of(fd, name) || relay_name_parse(name, &n))
		return 0;
	*local = n.local;
	*peer = n.peer;
	return n.family;
}
