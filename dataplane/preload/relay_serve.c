// SPDX-License-Identifier: Apache-2.0
/*
 * Requests about a relay's connection, from any process that has its descriptor: socket options,
 * TCP information and the pending error. The request carries the descriptor. Its peer address
 * identifies the connection, so other processes cannot forge a request.
 */
#include <errno.h>
#include <stdio.h>

#include "real.h"
#include "relay.h"
#include "sockopt.h"

#define ENDED     256 /* ended relays whose error is stored */
#define SERVICES  1000
#define ANSWER_MS 2000

/* ---- the process that has the stack ---------------------------------------------------------- */

static struct {
	char name[RELAY_NAME];
	int error;
} ended[ENDED];
static unsigned ended_next;

void relay_note(const char *name, int error)
{
	snprintf(ended[ended_next].name, RELAY_NAME, "%s", name);
	ended[ended_next].error = error;
	ended_next = (ended_next + 1) % ENDED;
}

/* Returns the error once, as SO_ERROR. */
static int ended_error(const char *name)
{
	for (unsigned i = 0; i < ENDED; i++) {
		int error = ended[i].error;
		if (error && strcmp(ended[i].name, name) == 0) {
			ended[i].error = 0;
			return error;
		}
	}
	return 0;
}

void relay_answer(const char *name, const struct relay_request *q, struct relay_answer *a)
{
	struct relay *r = all_relays;

	while (r && strcmp(r->name, name) != 0)
		r = r->next;
	a->len = 0;
	if (q->type == RELAY_ERROR)
		a->rc = r ? 0 : ended_error(name);
	else if (!r)
		a->rc = -ENOTCONN;
	else if (q->type == RELAY_SET) {
		a->rc = option_set(r->s, -1, q->level, q->name, q->value, q->len);
		relay_no_delay(r);
	} else if (q->type == RELAY_GET) {
		a->len = option_get(r->s, q->level, q->name, a->value, q->len);
		a->rc = a->len ? 0 : -ENOPROTOOPT;
	} else {
		a->rc = -EINVAL;
	}
}

static char service[RELAY_SERVICE]; /* empty: this process has none */

const char *relay_service(void)
{
	return service;
}

void relay_serve_forget(void)
{
	service[0] = 0;
}

/* After execve(), the successor of the earlier program may still own the name: then adds a
 * number. */
int relay_serve_open(void)
{
	int fd = table_own(REAL(socket)(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0)
		return -errno;
	snprintf(service, sizeof(service), "sy/%d", getpid());
	int rc = relay_bind(fd, service);
	for (int i = 1; rc == -EADDRINUSE && i <= SERVICES; i++) {
		snprintf(service, sizeof(service), "sy/%d.%d", getpid(), i);
		rc = relay_bind(fd, service);
	}
	if (!rc)
		return fd;
	relay_serve_forget();
	table_disown(fd);
	return rc;
}

/* Stores the received descriptors. Returns how many; more than two are closed. */
static unsigned descriptors_receive(struct msghdr *m, int fd[2])
{
	unsigned count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
			int one;
			memcpy(&one, (char *)c + at, sizeof(one));
			if (count < 2)
				fd[count++] = one;
			else
				REAL(close)(one);
		}
	}
	return count;
}

void relay_serve(int socket)
{
	struct relay_request q = {0};
	struct relay_answer a = {0};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
	struct iovec iov = {&q, sizeof(q)};
	struct msghdr m = {.msg_iov = &iov,
	                   .msg_iovlen = 1,
	                   .msg_control = control,
	                   .msg_controllen = sizeof(control)};
	char name[RELAY_NAME];
	int fd[2];

	ssize_t n = REAL(recvmsg)(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return;
	unsigned count = descriptors_receive(&m, fd);
	if (n == sizeof(q) && count == 2 && q.len <= sizeof(q.value) &&
	    relay_name_of(fd[0], name)) {
		relay_answer(name, &q, &a);
		REAL(send)(fd[1], &a, sizeof(a), MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	for (unsigned i = 0; i < count; i++)
		REAL(close)(fd[i]);
}

/* ---- a process that has the descriptor ------------------------------------------------------- */

static int request_send(const char *name, int fd, int answer, struct relay_request *q)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct sockaddr_un to;
	struct iovec iov = {q, sizeof(*q)};
	struct msghdr m = {.msg_name = &to,
	                   .msg_namelen = relay_address(&to, name),
	                   .msg_iov = &iov,
	                   .msg_iovlen = 1,
	                   .msg_control = control,
	                   .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int sent[2] = {fd, answer}, rc = 0;
	int socket = REAL(socket)(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (socket < 0)
		return -errno;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(sent));
	memcpy(CMSG_DATA(c), sent, sizeof(sent));
	if (REAL(sendmsg)(socket, &m, MSG_NOSIGNAL) < 0)
		rc = -errno;
	REAL(close)(socket);
	return rc;
}

static int request(int fd, struct relay_request *q, struct relay_answer *a)
{
	struct relay_name n;
	char name[RELAY_NAME];
	int pair[2];

	if (!relay_name_of(fd, name) || relay_name_parse(name, &n))
		return -ENOTCONN;
	if (strcmp(n.service, service) == 0) {
		if (!runner_lock())
			return -EAGAIN;
		relay_answer(name, q, a);
		runner_unlock();
		return a->rc;
	}
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	int rc = request_send(n.service, fd, pair[1], q);
	struct pollfd p = {.fd = pair[0], .events = POLLIN};
	struct timespec t = {ANSWER_MS / 1000, 0};
	REAL(close)(pair[1]);
	if (!rc && (REAL(ppoll)(&p, 1, &t, NULL) != 1 ||
	            REAL(recv)(pair[0], a, sizeof(*a), MSG_DONTWAIT) != sizeof(*a)))
		rc = -ENOTCONN;
	REAL(close)(pair[0]);
	return rc ? rc : a->rc;
}

int relay_option_set(int fd, int level, int name, const void *value, socklen_t len)
{
	struct relay_request q = {.type = RELAY_SET, .level = level, .name = name, .len = len};
	struct relay_answer a;

	if (!value)
		return -EFAULT;
	if (len < sizeof(int) || len > sizeof(q.value))
		return -EINVAL;
	/* The kernel keeps socket-level options, and implements time-outs itself. */
	if (level == SOL_SOCKET && REAL(setsockopt)(fd, level, name, value, len))
		return -errno;
	memcpy(q.value, value, len);
	int rc = request(fd, &q, &a);
	/* In another network namespace (vsftpd) no process answers: the kernel's own options work,
	 * and others have no effect. */
	return rc == -ECONNREFUSED || (level == SOL_SOCKET && rc == -ENOPROTOOPT) ? 0 : rc;
}

/* Returns the family or protocol of the connection, also after its end. */
static int kind_get(int fd, int option, void *value, socklen_t *len)
{
	struct relay_name n;
	char name[RELAY_NAME];

	if (!relay_name_of(fd, name) || relay_name_parse(name, &n))
		return -ENOTCONN;
	int kind = option == SO_DOMAIN ? n.family : IPPROTO_TCP;
	*len = *len < sizeof(kind) ? *len : sizeof(kind);
	memcpy(value, &kind, *len);
	return 0;
}

int relay_option_get(int fd, int level, int name, void *value, socklen_t *len)
{
	struct relay_request q = {.type = RELAY_GET, .level = level, .name = name, .len = *len};
	struct relay_answer a = {0};
	int rc = 0;

	if (level == SOL_SOCKET && name == SO_ERROR) {
		if (REAL(getsockopt)(fd, level, name, value, len))
			return -errno;
		if (*len != sizeof(rc) || (memcpy(&rc, value, sizeof(rc)), rc))
			return 0;
		q.type = RELAY_ERROR;
	}
	if (level == SOL_SOCKET && (name == SO_DOMAIN || name == SO_PROTOCOL))
		return kind_get(fd, name, value, len);
	if (level == SOL_SOCKET && name != SO_ERROR && name != SO_PRIORITY)
		return REAL(getsockopt)(fd, level, name, value, len) ? -errno : 0;
	if (level == IPPROTO_IP && name == IP_OPTIONS) {
		*len = 0;
		return 0;
	}
	rc = request(fd, &q, &a);
	if (q.type == RELAY_ERROR && rc >= 0) {
		memcpy(a.value, &rc, sizeof(rc));
		a.len = sizeof(rc);
		rc = 0;
	}
	if (rc)
		return rc;
	*len = *len < a.len ? *len : a.len;
	memcpy(value, a.value, *len);
	return 0;
}

static bool confined; /* a filter of system calls may forbid requests */

void relay_confine(void)
{
	confined = true;
}

/* Called when the kernel has reported the end of data: the peer may have reset the connection. */
int relay_error(int fd)
{
	struct relay_request q = {.type = RELAY_ERROR};
	struct relay_answer a;
	int rc = confined ? 0 : request(fd, &q, &a);

	return rc > 0 ? rc : 0;
}
