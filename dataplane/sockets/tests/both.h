// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the same calls on kernel sockets and on the library's: a play makes them and logs each
 * result. Both logs must be equal.
 */
#ifndef BOTH_H
#define BOTH_H

#include <poll.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define CLIENT 0
#define SERVER 1

/* Calls return a negative errno. A descriptor belongs to a side. */
struct both {
	const char *name;
	const char *address[2]; /* server addresses: IPv4, IPv6 */
	int (*socket)(int side, int family);
	int (*bind)(int side, int fd, const struct sockaddr *addr, socklen_t len);
	int (*listen)(int side, int fd, int backlog);
	int (*accept)(int side, int fd, struct sockaddr *addr, socklen_t *len);
	int (*connect)(int side, int fd, const struct sockaddr *addr, socklen_t len);
	int (*shutdown)(int side, int fd, int how);
	int (*close)(int side, int fd);
	int (*getsockname)(int side, int fd, struct sockaddr *addr, socklen_t *len);
	int (*getpeername)(int side, int fd, struct sockaddr *addr, socklen_t *len);
	int (*getsockopt)(int side, int fd, int level, int name, void *value, socklen_t *len);
	int (*setsockopt)(int side, int fd, int level, int name, const void *value, socklen_t len);
	int (*ioctl)(int side, int fd, unsigned long request, int *value);
	ssize_t (*send)(int side, int fd, const void *bytes, size_t len, int flags);
	ssize_t (*writev)(int side, int fd, const struct iovec *v, int count);
	ssize_t (*sendmsg)(int side, int fd, const struct msghdr *m, int flags);
	ssize_t (*recv)(int side, int fd, void *bytes, size_t len, int flags);
	ssize_t (*readv)(int side, int fd, const struct iovec *v, int count);
	ssize_t (*recvmsg)(int side, int fd, struct msghdr *m, int flags);
	int (*poll)(int side, struct pollfd *p, unsigned count, int timeout_ms);
	int (*epoll_create)(int side);
	int (*epoll_ctl)(int side, int epfd, int op, int fd, struct epoll_event *event);
	int (*epoll_wait)(int side, int epfd, struct epoll_event *event, int max, int timeout_ms);
};

/* Runs all plays of a list on one implementation. A log is lines of text. */
struct play {
	const char *name;
	void (*run)(const struct both *b, bool v6);
};
extern const struct play plays[]; /* ends with a NULL name */
extern const struct play plays_epoll[];
extern const struct play plays_reset[];

/* Appends a line to the log. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with the name of an errno, for a negative result. */
void note_result(const char *what, long result);

#endif
