/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsteelyard-tcp: sockets and epoll on the TCP stack, without the kernel
 * (docs/design/0039-sockets.md, steelyard-tcp(7)).
 *
 * A process opens the library once. Each of its threads that serves connections enters a context,
 * which owns a stack, a worker of the ports, descriptors and event queues, and shares nothing with
 * other contexts: all calls with a context come from the thread that entered it, and take no lock.
 *
 *     sy_tcp_open() ─▶ sy_tcp_enter() ─▶ sy_tcp_socket(), sy_tcp_bind(), sy_tcp_listen(), …
 *                          │
 *                          └▶ loop: sy_tcp_epoll_wait() ─▶ sy_tcp_accept(), sy_tcp_recv(), …
 *
 * Nothing blocks but what has a timeout: sy_tcp_wait(), sy_tcp_poll(), sy_tcp_epoll_wait(). These,
 * and sy_tcp_run(), move packets; a context whose thread calls none of them for long loses packets.
 *
 * All functions return a negative errno where they fail, with the number that Linux would give. No
 * call raises SIGPIPE: -EPIPE is what is left of it. Descriptors are numbers of the context and
 * mean nothing to the kernel. Addresses, options, flags and events are those of <sys/socket.h>,
 * <netinet/tcp.h>, <poll.h> and <sys/epoll.h>.
 */
#ifndef SY_TCP_H
#define SY_TCP_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sy_tcp_library; /* the library's state of a process */
struct sy_tcp_context; /* one thread's */

/* ---- start and end (sy_tcp_open(3)) ---------------------------------------------------------- */

struct sy_tcp_setup {
	size_t size; /* sizeof(struct sy_tcp_setup): what the application was built with */
	/* Kernel interfaces, whose other packets stay the kernel's, and addresses that the stack
	 * takes on them: "192.0.2.10", "2001:db8::10". No interface of this host may have these. */
	const char *const *interface;
	unsigned interfaces;
	const char *const *address;
	unsigned addresses;
	unsigned contexts;      /* that threads may enter: all of them have to; 0: 1 */
	unsigned connections;   /* of a context, at most; 0: 16384 */
	unsigned listeners;     /* likewise; 0: 64 */
	uint64_t send_bytes;    /* of all send buffers of a context; 0: 256 MiB */
	uint64_t receive_bytes; /* of what a context has not read; 0: as much as the pool allows */
	unsigned memory_mb;     /* for packets and rings; 0: enough */
	unsigned packets;       /* buffers; 0: enough for ports and contexts */
	bool no_huge_pages;     /* slower */
	bool generic;           /* XDP in the kernel's generic mode, not in the driver's */
	/* A connection's peer is whom a balancer names in a TCP option (TOA), if it does. Whoever
	 * can send here can claim any: only behind a balancer. */
	bool toa;
	const char *congestion;         /* "cubic", "newreno"; NULL: cubic */
	uint16_t port_first, port_last; /* ephemeral ports; 0: 49152 to 65535 */
	bool verbose;                   /* tells more on standard error than warnings */
};

/*
 * Opens the interfaces and takes the addresses; may take a second or two. Once in a process at a
 * time. A child that it forks later has no part in it and calls nothing here, and keeps the queues
 * bound until it ends or executes another program. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW,
 * CAP_BPF and CAP_IPC_LOCK. why (may be NULL) gets a text, with the remedy, if it fails.
 */
int sy_tcp_open(const struct sy_tcp_setup *options, struct sy_tcp_library **out, char *why,
                size_t size);
/* After all contexts have been left. Connections end; their peers get resets. */
void sy_tcp_close(struct sy_tcp_library *t);

/* The calling thread gets the context; 0 ≤ number < options.contexts. -EBUSY: another has it. */
int sy_tcp_enter(struct sy_tcp_library *t, unsigned number, struct sy_tcp_context **out);
/* Closes all its descriptors. Nobody drives the stack from then on: an application that wants what
 * it has sent to be delivered closes descriptors earlier and goes on waiting for a while. Nor does
 * anybody hand over what comes in by its queue for other contexts: all are left together. */
void sy_tcp_leave(struct sy_tcp_context *c);
unsigned sy_tcp_number(const struct sy_tcp_context *c);

/* Is this an address that the stack has, or "any"? The rest is the kernel's. */
bool sy_tcp_is_local(const struct sy_tcp_library *t, const struct sockaddr *addr, socklen_t len);

/* ---- packets and waiting (sy_tcp_wait(3)) ---------------------------------------------------- */

/* One look at everything: receives, does what is due, sends. Never waits. 1: there was something to
 * do; 0: nothing. */
int sy_tcp_run(struct sy_tcp_context *c);
/* Runs until a descriptor has news, at most timeout_ms (-1: for ever); sleeps in the kernel where
 * nothing is to be done. 1: some descriptor of the context has changed; 0: time is over; -EINTR: a
 * signal came. mask: as of ppoll(2), NULL: as it is. */
int sy_tcp_wait(struct sy_tcp_context *c, int timeout_ms, const sigset_t *mask);

/*
 * The same in pieces, for an application that waits for descriptors of the kernel at once:
 *
 *     sy_tcp_run(c);                                          and looks for events; if there are
 * none: timeout = sy_tcp_sleep(c);                              0: does not wait, and is awake
 *     ppoll({sy_tcp_fd(c): POLLIN, others …}, timeout)
 *     sy_tcp_awake(c);                                        if timeout was not 0
 *     sy_tcp_run(c);                                          and looks for events
 *
 * sy_tcp_fd() is an epoll instance, whose descriptor stays the same; nobody reads it.
 */
int sy_tcp_fd(const struct sy_tcp_context *c);
/* Nanoseconds that the thread may sleep now. Between this and sy_tcp_awake(), no other calls with
 * this context. */
uint64_t sy_tcp_sleep(struct sy_tcp_context *c);
void sy_tcp_awake(struct sy_tcp_context *c);

/* ---- sockets (sy_tcp_socket(3)) -------------------------------------------------------------- */

/* AF_INET or AF_INET6; else -EAFNOSUPPORT. -EMFILE: no descriptor is free. */
int sy_tcp_socket(struct sy_tcp_context *c, int family);
/* Port 0 gets one at once. -EADDRNOTAVAIL: not an address of the stack. Each context binds and
 * listens for itself: SO_REUSEPORT is as if it were set between them. */
int sy_tcp_bind(struct sy_tcp_context *c, int fd, const struct sockaddr *addr, socklen_t len);
int sy_tcp_listen(struct sy_tcp_context *c, int fd, int backlog);
/* addr and len may be NULL. */
int sy_tcp_accept(struct sy_tcp_context *c, int fd, struct sockaddr *addr, socklen_t *len);
/* -EINPROGRESS: the descriptor becomes writable at the end; SO_ERROR says how it was. */
int sy_tcp_connect(struct sy_tcp_context *c, int fd, const struct sockaddr *addr, socklen_t len);
int sy_tcp_shutdown(struct sy_tcp_context *c, int fd, int how);
/* With SO_LINGER and a time, close does not wait for it. */
int sy_tcp_close_fd(struct sy_tcp_context *c, int fd);
int sy_tcp_getsockname(struct sy_tcp_context *c, int fd, struct sockaddr *addr, socklen_t *len);
int sy_tcp_getpeername(struct sy_tcp_context *c, int fd, struct sockaddr *addr, socklen_t *len);
int sy_tcp_getsockopt(struct sy_tcp_context *c, int fd, int level, int name, void *value,
                      socklen_t *len);
int sy_tcp_setsockopt(struct sy_tcp_context *c, int fd, int level, int name, const void *value,
                      socklen_t len);
/* FIONREAD, SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK: *value is set. */
int sy_tcp_ioctl(struct sy_tcp_context *c, int fd, unsigned long request, int *value);

/* ---- bytes (sy_tcp_send(3)) ------------------------------------------------------------------ */

/* Flags: MSG_MORE, MSG_OOB; MSG_DONTWAIT, MSG_NOSIGNAL are as if given. */
ssize_t sy_tcp_send(struct sy_tcp_context *c, int fd, const void *bytes, size_t len, int flags);
ssize_t sy_tcp_writev(struct sy_tcp_context *c, int fd, const struct iovec *v, int count);
ssize_t sy_tcp_sendmsg(struct sy_tcp_context *c, int fd, const struct msghdr *m, int flags);
/* Flags: MSG_PEEK, MSG_TRUNC; MSG_WAITALL takes what is there, as nonblocking sockets do. */
ssize_t sy_tcp_recv(struct sy_tcp_context *c, int fd, void *bytes, size_t len, int flags);
ssize_t sy_tcp_readv(struct sy_tcp_context *c, int fd, const struct iovec *v, int count);
ssize_t sy_tcp_recvmsg(struct sy_tcp_context *c, int fd, struct msghdr *m, int flags);

/*
 * Without a copy. Received bytes stay in their packets: sy_tcp_receive_look() points up to `count`
 * vectors to the first ones and returns how many bytes these are (0: the peer has finished), or as
 * sy_tcp_recv(). They are valid until sy_tcp_receive_done() takes the first `len` away, or any
 * other call reads from the descriptor, closes it or lets the context run: a reset frees them.
 */
ssize_t sy_tcp_receive_look(struct sy_tcp_context *c, int fd, struct iovec *v, int count);
int sy_tcp_receive_done(struct sy_tcp_context *c, int fd, size_t len);
/*
 * The application writes its bytes into the send buffer: sy_tcp_send_room() points up to `count`
 * vectors to room for at most `len` bytes and returns for how many, or as sy_tcp_send().
 * sy_tcp_send_done() sends the first `len` of them, which may be 0. In between no other call sends
 * on, shuts down or closes the descriptor, nor runs the context.
 */
ssize_t sy_tcp_send_room(struct sy_tcp_context *c, int fd, struct iovec *v, int count, size_t len);
int sy_tcp_send_done(struct sy_tcp_context *c, int fd, size_t len, int flags);

/* ---- readiness (sy_tcp_epoll(3)) ------------------------------------------------------------- */

/* What holds now: POLLIN, POLLOUT, POLLRDHUP, POLLPRI, POLLERR, POLLHUP, as poll(2) would say of a
 * TCP socket; POLLNVAL: no such descriptor. Of an epoll descriptor: POLLIN, if it has events. */
uint32_t sy_tcp_ready(struct sy_tcp_context *c, int fd);
/* A counter that grows whenever the readiness of some descriptor may have: as long as it stays, no
 * descriptor needs to be asked again. */
uint64_t sy_tcp_news(const struct sy_tcp_context *c);
/* As ppoll(2), for descriptors of this context; fd < 0 is left out. Runs the context at least once.
 */
int sy_tcp_poll(struct sy_tcp_context *c, struct pollfd *p, unsigned count, int timeout_ms,
                const sigset_t *mask);

/* As epoll(7): level- and edge-triggered, EPOLLONESHOT, data, epoll descriptors within others.
 * sy_tcp_close_fd() closes these, too. */
int sy_tcp_epoll_create(struct sy_tcp_context *c);
int sy_tcp_epoll_ctl(struct sy_tcp_context *c, int epfd, int op, int fd, struct epoll_event *event);
/* Runs the context at least once. -EINTR: a signal came. mask as in sy_tcp_wait(). */
int sy_tcp_epoll_wait(struct sy_tcp_context *c, int epfd, struct epoll_event *event, int most,
                      int timeout_ms, const sigset_t *mask);

#ifdef __cplusplus
}
#endif

#endif
