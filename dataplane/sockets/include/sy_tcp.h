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

#include <sy_hook_program.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sy_tcp_library; /* the library's state of a process */
struct sy_tcp_context; /* one thread's */

/* ---- start and end (sy_tcp_open(3)) ---------------------------------------------------------- */

struct sy_tcp_setup {
	size_t size; /* sizeof(struct sy_tcp_setup): what the application was built with */
	/* Kernel interfaces, whose other packets stay the kernel's, and addresses that the stack
	 * takes on them: "192.0.2.10", "2001:db8::10". No interface of this host may have these.
	 * Or ports as `steelyard-forwarder --port` names them, such as DPDK's devices:
	 * "net_memif0,backend=ethdev,dev=net_memif0;role=client". */
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
	bool pacing; /* all connections send evenly over a round trip, not in bursts */
	/* By which `steelyard stack` and `steelyard hook` find this program (--stack), in all its
	 * contexts (docs/hooks.md): root and the program's user may. A name, or a path. NULL: the
	 * program's name and process id; "": not at all. */
	const char *stack;
	/* Of ports that are no kernel interfaces, which have nobody to ask: as `--route` and
	 * `--neighbour` of steelyard-forwarder. "10.0.0.0/8,port=net_memif0,via=10.1.0.1",
	 * "10.1.0.1,port=net_memif0,mac=02:00:00:00:00:01". */
	const char *const *route;
	unsigned routes;
	const char *const *neighbour;
	unsigned neighbours;
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
 * other call reads from the descriptor or closes it.
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

/* ---- priorities (sy_tcp_hook(3)) ------------------------------------------------------------- */

/*
 * Levels are 0 (first) to 7 (last), SY_USUAL without a hook. Hooks say which level a packet and a
 * segment have (docs/hooks.md); a socket's level is the most urgent one of what is unread, or, if
 * nothing is, of what was read last. That of a listener is 0. Each context has hooks of its own.
 */

/* A hook of the process; payload has view->payload_len bytes. */
typedef uint8_t (*sy_tcp_packet_hook)(struct sy_hook_packet *view, const uint8_t *payload);
typedef uint8_t (*sy_tcp_segment_hook)(struct sy_hook_segment *view, const uint8_t *payload);

/* Loads a hook: an eBPF object, or a function. A name that is there gets the new code at once.
 * Returns its number; -EINVAL: it is refused, and why (may be NULL) gets the reason; -ENOSPC,
 * -EEXIST: it is a hook of the other kind, -ENOMEM, or what reading the file gives. */
int sy_tcp_hook_load(struct sy_tcp_context *c, const char *name, const char *file, char *why,
                     size_t size);
int sy_tcp_hook_packet(struct sy_tcp_context *c, const char *name, sy_tcp_packet_hook hook);
int sy_tcp_hook_segment(struct sy_tcp_context *c, const char *name, sy_tcp_segment_hook hook);
/* The number of a name; 0: there is none. */
int sy_tcp_hook_find(struct sy_tcp_context *c, const char *name);
int sy_tcp_hook_remove(struct sy_tcp_context *c, int hook);
/* Sets sy_param[i] of it. */
int sy_tcp_hook_param(struct sy_tcp_context *c, int hook, unsigned i, uint64_t value);
/* Calls, and of those that were timed, the mean in cycles of the TSC. */
int sy_tcp_hook_calls(struct sy_tcp_context *c, int hook, uint64_t *calls, double *cycles);

/* Who is asked. Hook 0: none. */
#define SY_TCP_PACKETS  (-1) /* each packet that arrives, before anything else */
#define SY_TCP_SEGMENTS (-2) /* segments of all sockets that have no other hook */
/* fd: one of these; a connected socket; a listener, for those that it will accept. */
int sy_tcp_hook_use(struct sy_tcp_context *c, int fd, int hook);

/* The socket's 64 private bytes, a cache line, which its segment hook sees as `own`; valid until it
 * is closed. NULL: not connected, or no memory. */
void *sy_tcp_own(struct sy_tcp_context *c, int fd);
/* The socket's level, or -EBADF, -ENOTSOCK. */
int sy_tcp_level(struct sy_tcp_context *c, int fd);

/* sy_tcp_epoll_wait() gives what is most urgent first. This one does so of chosen levels alone (bit
 * 0: level 0), and says which level each has. */
struct sy_tcp_event {
	uint32_t events; /* EPOLL* */
	uint32_t level;
	epoll_data_t data;
};
#define SY_TCP_LEVELS 0xffu
int sy_tcp_epoll_fetch(struct sy_tcp_context *c, int epfd, unsigned levels,
                       struct sy_tcp_event *event, int most, int timeout_ms, const sigset_t *mask);
/* Levels that shall have at least so many percent of an instance's events while they have some,
 * whatever is more urgent; at most 100 in all, else -EINVAL. */
int sy_tcp_epoll_shares(struct sy_tcp_context *c, int epfd, const uint8_t percent[SY_PRIORITIES]);

struct sy_tcp_levels {
	uint32_t waiting[SY_PRIORITIES]; /* packets that wait for the stack, now */
	uint64_t taken[SY_PRIORITIES];   /* packets that waited so, and were processed */
	uint64_t dropped[SY_PRIORITIES]; /* packets that found no place: the lowest level's */
	uint32_t unread[SY_PRIORITIES];  /* sockets with unread bytes, now */
	uint64_t risen;                  /* packets that got the level of one behind them */
};
void sy_tcp_levels(const struct sy_tcp_context *c, struct sy_tcp_levels *out);

/* ---- requests on other cores (sy_tcp_desk(3)) ------------------------------------------------ */

/*
 * A desk is where contexts lay requests for other threads, which answer them; no lock is taken.
 *
 *     context ── lends ──▶ desk ──▶ any thread: sy_tcp_desk_take(), works, writes the answer
 *        ▲                                         │
 *        └──── sends the answer ◀── its ring ◀─────┘ sy_tcp_request_give()
 *
 * A request is what of a socket is unread. The bytes stay where they are. Until it is given back,
 * the socket has no events, and what comes later waits: answers stay in order.
 */
struct sy_tcp_desk;

struct sy_tcp_request {
	const struct iovec *v; /* the bytes, in `count` pieces */
	int count;
	unsigned level;
	size_t len;        /* all bytes */
	epoll_data_t data; /* as of the watch, or of sy_tcp_lend() */
	const void *own;   /* sy_tcp_own() as it was when this was lent; NULL: no memory */
};

/* requests: that may lie there, at most. -ENOMEM. After sy_tcp_open(); closed when all that were
 * taken are given back, and before sy_tcp_close(). What still lies there is given back unused. */
int sy_tcp_desk_open(unsigned requests, struct sy_tcp_desk **out);
void sy_tcp_desk_close(struct sy_tcp_desk *desk);

/* An instance's sockets whose level is among these are not fetched from it when they are readable,
 * but lie on the desk; desk NULL: they are fetched again. Levels of other desks stay as they are.
 */
int sy_tcp_epoll_lend(struct sy_tcp_context *c, int epfd, unsigned levels,
                      struct sy_tcp_desk *desk);
/* Lends what is unread of one socket. 0; -EAGAIN: nothing is unread, or it is lent already, or the
 * desk is full: then sy_tcp_wait() returns when it is not; or as sy_tcp_recv(). */
int sy_tcp_lend(struct sy_tcp_context *c, int fd, epoll_data_t data, struct sy_tcp_desk *desk);

/* Any thread: takes up to `most` requests, waits for the first one at most timeout_ms (-1: for
 * ever). Returns how many, or -EINTR. */
int sy_tcp_desk_take(struct sy_tcp_desk *desk, struct sy_tcp_request **r, unsigned most,
                     int timeout_ms);
/* Memory for len bytes of answer; NULL: none. What was written into it before stays. */
void *sy_tcp_request_room(struct sy_tcp_request *r, size_t len);
/* Gives it back: `used` of its bytes are read, and the first `answer` bytes of the room are sent.
 * Nothing may be used yet: then the socket is lent again when more has come. If no more can come,
 * as the peer has finished or the receive buffer is full (SO_RCVBUF), it is fetched from its
 * instance instead. */
void sy_tcp_request_give(struct sy_tcp_request *r, size_t used, size_t answer);

#ifdef __cplusplus
}
#endif

#endif
