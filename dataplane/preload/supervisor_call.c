// SPDX-License-Identifier: Apache-2.0
/* Requests to the supervisor. Each process has its own connection, which identifies it. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#include "preload.h"
#include "real.h"

#define RETRY_NS (1000 * MS) /* when a process without a slot connects again */

static int connection = -1;
static bool unreachable;
static struct message_answer config;

static char name[sizeof(((struct sockaddr_un *)0)->sun_path)];
static uint8_t secret[MESSAGE_SECRET];

/* Reads the environment early: some programs (nginx) clear it. Runs before the constructor of
 * accept.c. */
__attribute__((constructor(101))) static void name_keep(void)
{
	const char *text = getenv(MESSAGE_ENV), *colon = text ? strchr(text, ':') : NULL;
	unsigned byte;

	if (!colon || (size_t)(colon - text) >= sizeof(name) - 1 ||
	    strlen(colon + 1) != 2 * sizeof(secret))
		return;
	for (unsigned i = 0; i < sizeof(secret); i++) {
		if (sscanf(colon + 1 + 2 * i, "%2x", &byte) != 1)
			return;
		secret[i] = (uint8_t)byte;
	}
	memcpy(name, text, (size_t)(colon - text));
}

/* Once the supervisor has ended, any process may bind its name. */
static bool is_root(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return REAL(getsockopt)(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == 0;
}

static int supervisor_connect(void)
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
	int code;
	do /* a signal may end it while the supervisor's queue is full */
		code = REAL(connect)(fd, (void *)&to,
		                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len))
		               ? errno
		               : 0;
	while (code == EINTR);
	if (!code && !is_root(fd))
		code = EPERM;
	if (code) {
		sy_log(SY_LOG_ERROR, "run", "the supervisor of `steelyard run` does not answer: %s",
		       strerror(code));
		unreachable = true;
		REAL(close)(fd);
		return -code;
	}
	connection = table_own(fd);
	return 0;
}

static uint32_t fds_expected(enum message_type type, const struct message_answer *a)
{
	if (type != MESSAGE_START)
		return type == MESSAGE_REDEEM;
	return 2 + a->queues + (a->workers > 1 ? 1 + a->workers : 0) + 2 + !!a->large;
}

/* Checks an answer and its descriptors. */
static int answer_check(enum message_type type, const struct message_answer *a, const int *fd,
                        const struct msghdr *m)
{
	if (a->queues > MESSAGE_QUEUES || !a->workers || a->workers > MESSAGE_WORKERS ||
	    a->worker >= a->workers || a->addresses > MESSAGE_ADDRESSES ||
	    a->ports > MESSAGE_PORTS || (m->msg_flags & (MSG_CTRUNC | MSG_TRUNC)))
		return -EPROTO;
	for (uint32_t i = 0; fd && !a->rc && i < fds_expected(type, a); i++)
		if (fd[i] < 0)
			return -EPROTO;
	return a->rc;
}

static void fds_receive(struct msghdr *m, int *fd)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);

	for (unsigned i = 0; i < MESSAGE_FDS; i++)
		fd[i] = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
}

/* What a request carries. */
struct load {
	int fd; /* -1: none */
	struct iovec more[2];
};

static const struct load no_load = {.fd = -1};

static int request_send(struct message_request *q, const struct load *load, int flags)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov[] = {{q, sizeof(*q)}, load->more[0], load->more[1]};
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = SY_ARRAY_LEN(iov)};

	q->version = MESSAGE_VERSION;
	memcpy(q->secret, secret, sizeof(secret));
	if (load->fd >= 0) {
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		*CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
		                                      .cmsg_level = SOL_SOCKET,
		                                      .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &load->fd, sizeof(load->fd));
	}
	return REAL(sendmsg)(connection, &m, MSG_NOSIGNAL | flags) < 0 ? -errno : 0;
}

static int call_once(struct message_request *q, const struct load *load, struct message_answer *a,
                     int *fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(MESSAGE_FDS * sizeof(int))];
	struct iovec iov = {a, sizeof(*a)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	int rc = supervisor_connect();
	ssize_t n;

	if (rc)
		return rc;
	rc = request_send(q, load, 0);
	if (rc)
		return rc;
	if (fd) {
		m.msg_control = control;
		m.msg_controllen = CMSG_LEN(MESSAGE_FDS * sizeof(int));
	}
	do
		n = REAL(recvmsg)(connection, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(*a))
		return n < 0 ? -errno : -EPIPE;
	if (fd)
		fds_receive(&m, fd);
	rc = answer_check(q->type, a, fd, &m);
	for (unsigned i = 0; rc && fd && i < MESSAGE_FDS; i++)
		if (fd[i] >= 0)
			REAL(close)(fd[i]);
	return rc;
}

static bool is_closed(int rc)
{
	return rc == -EPIPE || rc == -ECONNRESET;
}

/* Sends a request and waits for the answer. fd: space for MESSAGE_FDS; NULL: none are expected.
 * Fails with -EUSERS if the supervisor has no slot for this process. Reconnects once: the
 * supervisor may have closed an idle connection. */
static int call_with(struct message_request *q, const struct load *load, struct message_answer *a,
                     int *fd)
{
	static bool warned;
	bool kept = connection >= 0;
	int rc = call_once(q, load, a, fd);

	if (is_closed(rc)) {
		supervisor_forget();
		rc = kept ? call_once(q, load, a, fd) : rc;
	}
	if (!is_closed(rc))
		return rc;
	supervisor_forget();
	if (!warned)
		sy_log(SY_LOG_WARN, "run",
		       "pid %d: too many processes have ports: Linux serves this one until others "
		       "end",
		       getpid());
	warned = true;
	return -EUSERS;
}

static int call(struct message_request *q, struct message_answer *a)
{
	return call_with(q, &no_load, a, NULL);
}

const struct message_answer *supervisor_config(void)
{
	struct message_request q = {.type = MESSAGE_CONFIG};
	static bool configured;
	static uint64_t again_ns;

	if (!configured && (again_ns == 0 || sy_clock_ns() >= again_ns)) {
		configured = true; /* functions that it calls may call this one */
		int rc = call(&q, &config);
		configured = rc != -EUSERS;
		again_ns = sy_clock_ns() + RETRY_NS;
		if (rc)
			config.addresses = 0;
		else
			sy_log_set_level((enum sy_log_level)config.log);
	}
	return config.addresses ? &config : NULL;
}

bool supervisor_serves(const struct sy_addr *addr)
{
	const struct message_answer *c = supervisor_config();

	return c && message_has_address(c, addr);
}

bool supervisor_serves_port(uint16_t port)
{
	const struct message_answer *c = supervisor_config();

	for (uint32_t i = 0; c && i < c->ports; i++)
		if (htons(c->port[i]) == port)
			return true;
	return c && c->ports == 0;
}

int supervisor_start(struct message_answer *out, int fd[MESSAGE_FDS])
{
	struct message_request q = {.type = MESSAGE_START};
	int rc = call_with(&q, &no_load, out, fd);

	for (uint32_t i = 0; !rc && i < fds_expected(q.type, out); i++)
		fd[i] = table_own(fd[i]);
	return rc == -EUSERS ? -EBUSY : rc;
}

int supervisor_bound(void)
{
	struct message_request q = {.type = MESSAGE_BOUND};
	struct message_answer a;

	return call(&q, &a);
}

static int descriptor_of(const struct sock *s)
{
	for (int fd = 0; fd < getdtablesize(); fd++)
		if (table_sock(fd) == s)
			return fd;
	return -1;
}

static struct message_request request_of(enum message_type type, const struct sock *s)
{
	return (struct message_request){
	        .type = type, .addr = s->local.addr, .port = s->local.port, .v6_only = s->v6_only};
}

int supervisor_yield(const struct sock *s, bool passes)
{
	struct message_request q = request_of(MESSAGE_YIELD, s);
	struct message_answer a;

	q.serves = passes;
	return call(&q, &a);
}

/* Does not block: it needs no answer. If the supervisor is busy, this heartbeat is dropped. */
void supervisor_heartbeat(void)
{
	struct message_request q = {.type = MESSAGE_HEARTBEAT};

	if (connection >= 0)
		request_send(&q, &no_load, MSG_DONTWAIT);
}

int supervisor_listen(const struct sock *s, bool on, bool serves)
{
	struct message_request q = request_of(on ? MESSAGE_LISTEN : MESSAGE_UNLISTEN, s);
	const struct load load = {.fd = on ? descriptor_of(s) : -1};
	struct message_answer a;

	q.serves = serves;
	return call_with(&q, &load, &a, NULL);
}

int supervisor_forget_port(const struct sy_stack_endpoint *at, uint16_t v6_only)
{
	struct message_request q = {
	        .type = MESSAGE_FORGET, .addr = at->addr, .port = at->port, .v6_only = v6_only};
	struct message_answer a;

	return call_with(&q, &no_load, &a, NULL);
}

int supervisor_export(const struct sy_stack_export *e, bool v6, void *unread)
{
	struct message_request q = {
	        .type = MESSAGE_EXPORT, .addr = e->local.addr, .port = e->local.port};
	struct message_connection c = {.peer = e->peer.addr,
	                               .peer_port = e->peer.port,
	                               .v6 = v6,
	                               .snd_nxt = e->snd_nxt,
	                               .rcv_nxt = e->rcv_nxt,
	                               .snd_wnd = e->snd_wnd,
	                               .snd_wnd_max = e->snd_wnd_max,
	                               .rcv_wnd = e->rcv_wnd,
	                               .time = e->time,
	                               .unread = e->unread,
	                               .mss = e->peer_mss,
	                               .snd_scale = e->snd_scale,
	                               .rcv_scale = e->rcv_scale,
	                               .sack = e->sack,
	                               .timestamps = e->timestamps,
	                               .scale = e->scale};
	const struct load load = {.fd = -1, .more = {{&c, sizeof(c)}, {unread, e->unread}}};
	struct message_answer a;

	return call_with(&q, &load, &a, NULL);
}

int supervisor_redeem(int ticket)
{
	struct message_request q = {.type = MESSAGE_REDEEM};
	const struct load load = {.fd = ticket};
	struct message_answer a;
	int fd[MESSAGE_FDS], rc = call_with(&q, &load, &a, fd);

	return rc ? rc : fd[0];
}

/* Without a supervisor it has no effect. */
void supervisor_move(void)
{
	struct message_request q = {.type = MESSAGE_MOVE};
	struct message_answer a;

	if (connection >= 0)
		call(&q, &a);
}

void supervisor_forget(void)
{
	table_disown(connection);
	connection = -1;
	unreachable = false;
}
