// SPDX-License-Identifier: Apache-2.0
/* Requests to the keeper. Each process has a connection of its own, which names it there. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/un.h>

#include "preload.h"
#include "real.h"

static int connection = -1;
static bool unreachable;
static struct message_answer config;

static char name[sizeof(((struct sockaddr_un *)0)->sun_path)];

/* Some programs (nginx) empty their environment. */
__attribute__((constructor)) static void name_keep(void)
{
	const char *text = getenv(MESSAGE_ENV);

	if (text && strlen(text) < sizeof(name))
		memcpy(name, text, strlen(text));
}

static int keeper_connect(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t len = strlen(name);

	if (connection >= 0)
		return 0;
	if (!len || unreachable)
		return -ENOENT;
	memcpy(to.sun_path + 1, name, len);
	int fd = REAL(socket)(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (REAL(connect)(fd, (void *)&to,
	                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len))) {
		int code = errno;
		sy_log(SY_LOG_ERROR, "run", "the keeper of `steelyard run` does not answer: %s",
		       strerror(code));
		unreachable = true;
		REAL(close)(fd);
		return -code;
	}
	connection = table_own(fd);
	return 0;
}

/* fd: room for MESSAGE_FDS; NULL: none come. */
static int call(struct message_request *q, struct message_answer *a, int *fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(MESSAGE_FDS * sizeof(int))];
	struct iovec iov = {a, sizeof(*a)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	int rc = keeper_connect();
	ssize_t n;

	if (rc)
		return rc;
	q->version = MESSAGE_VERSION;
	if (fd) {
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
	}
	if (REAL(send)(connection, q, sizeof(*q), MSG_NOSIGNAL) < 0)
		return -errno;
	do
		n = REAL(recvmsg)(connection, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(*a))
		return n < 0 ? -errno : -EPIPE;
	struct cmsghdr *c = fd ? CMSG_FIRSTHDR(&m) : NULL;
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return a->rc;
}

const struct message_answer *keeper_config(void)
{
	struct message_request q = {.type = MESSAGE_CONFIG};
	static bool asked;

	if (!asked) {
		asked = true;
		if (call(&q, &config, NULL))
			config.addresses = 0;
		else
			sy_log_set_level((enum sy_log_level)config.log);
	}
	return config.addresses ? &config : NULL;
}

bool keeper_serves(const struct sy_addr *addr)
{
	const struct message_answer *c = keeper_config();

	for (uint32_t i = 0; c && i < c->addresses; i++)
		if (sy_addr_equal(&c->addr[i], addr))
			return true;
	return false;
}

bool keeper_serves_port(uint16_t port)
{
	const struct message_answer *c = keeper_config();

	for (uint32_t i = 0; c && i < c->ports; i++)
		if (htons(c->port[i]) == port)
			return true;
	return c && c->ports == 0;
}

int keeper_start(struct message_answer *out, int fd[MESSAGE_FDS])
{
	struct message_request q = {.type = MESSAGE_START};
	int rc = call(&q, out, fd);

	uint32_t count = 2 + out->queues + (out->workers > 1 ? 1 + out->workers : 0);
	for (uint32_t i = 0; !rc && i < count; i++)
		fd[i] = table_own(fd[i]);
	return rc;
}

int keeper_bound(void)
{
	struct message_request q = {.type = MESSAGE_BOUND};
	struct message_answer a;

	return call(&q, &a, NULL);
}

int keeper_listen(const struct sock *s, bool on)
{
	struct message_request q = {.type = on ? MESSAGE_LISTEN : MESSAGE_UNLISTEN,
	                            .addr = s->local.addr,
	                            .port = s->local.port,
	                            .v6_only = s->v6_only};
	struct message_answer a;

	return call(&q, &a, NULL);
}

void keeper_forget(void)
{
	table_disown(connection);
	connection = -1;
	unreachable = false;
}
