/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsteelyard-tcp: sockets and epoll on the user-space TCP stack (docs/design/0039-sockets.md,
 * steelyard-tcp(7)).
 *
 * A process opens the library once. Each thread that serves connections enters a context, which
 * owns a stack, a worker of the ports, descriptors and event queues. Contexts share nothing: all
 * calls with a context must come from the thread that entered it, and take no lock.
 *
 *     sy_tcp_open() ─▶ sy_tcp_enter() ─▶ sy_tcp_socket(), sy_tcp_bind(), sy_tcp_listen(), …
 *                          │
 *                          └▶ loop: sy_tcp_epoll_wait() ─▶ sy_tcp_accept(), sy_tcp_recv(), …
 *
 * Only calls with a time-out block: sy_tcp_wait(), sy_tcp_poll(), sy_tcp_epoll_wait(). These and
 * sy_tcp_run() process packets; a context that calls none of them for long loses packets.
 *
 * All functions return a negative errno on failure, the one that Linux would set. No call raises
 * SIGPIPE; it returns -EPIPE. Descriptors are numbers of the context, unknown to the kernel.
 * Addresses, options, flags and events are those of <sys/socket.h>, <netinet/tcp.h>, <poll.h> and
 * <sys/epoll.h>.
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

struct sy_tcp_library; /* per process */
struct sy_tcp_context; /* per thread */

/* ---- start and end (sy_tcp_open(3)) ---------------------------------------------------------- */

struct sy_tcp_setup {
	size_t size; /* sizeof(struct sy_tcp_setup) that the application was compiled with */
	/* Kernel interfaces, and addresses of the stack on them: "192.0.2.10", "2001:db8::10". All
	 * other packets go to the kernel, and no interface of this host may have these addresses.
	 * Or ports in the syntax of `steelyard-forwarder --port`, such as DPDK devices:
	 * "net_memif0,backend=ethdev,dev=net_memif0;role=client". */
	const char *const *interface;
	unsigned interfaces;
	const char *const *address;
	unsigned addresses;
	unsigned contexts;      /* number of contexts, all of which must be entered; 0: 1 */
	unsigned connections;   /* max. per context; 0: 16384 */
	unsigned listeners;     /* likewise; 0: 64 */
	uint64_t send_bytes;    /* send buffers of a context; 0: 256 MiB */
	uint64_t receive_bytes; /* unread data of a context; 0: limited by the packet pool */
	unsigned memory_mb;     /* for packets and rings; 0: automatic */
	unsigned packets;       /* packet buffers; 0: enough for ports and contexts */
	bool no_huge_pages;     /* slower */
	bool generic;           /* generic instead of driver mode of XDP */
	/* Use the client address in a load balancer's TCP option (TOA) as the peer's address.
	 * Clients can forge it: enable it only behind a load balancer. */
	bool toa;
	const char *congestion;         /* "cubic", "newreno"; NULL: cubic */
	uint16_t port_first, port_last; /* ephemeral ports; 0: 49152 to 65535 */
	bool verbose;                   /* log more than warnings to standard error */
	bool pacing; /* spread the segments of all connections over the round trip */
	/* Name or path by which `steelyard stack` and `steelyard hook` (--stack) find all contexts
	 * of this program, if root or the program's user runs them (docs/hooks.md). NULL: the
	 * program's name and process id; "": disabled. */
	const char *stack;
	/* Static routes and neighbours of ports that are no kernel interfaces, in the syntax of
	 * `--route` and `--neighbour` of steelyard-forwarder:
	 * "10.0.0.0/8,port=net_memif0,via=10.1.0.1",
	 * "10.1.0.1,port=net_memif0,mac=02:00:00:00:00:01". */
	const char *const *route;
	unsigned routes;
	const char *const *neighbour;
	unsigned neighbours;
};

/*
 * Opens the interfaces and claims the addresses, which may take seconds. One instance per process.
 * A child of a later fork() must not call the library, and keeps the queues bound until it exits or
 * executes another program. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_IPC_LOCK. On
 * failure, why (may be NULL) gets a text with a remedy.
 */
int sy_tcp_open(const struct sy_tcp_setup *options, struct sy_tcp_library **out, char *why,
                size_t size);
/* Call after all contexts have been left. Resets all connections. */
void sy_tcp_close(struct sy_tcp_library *t);

/* Assigns a context to the calling thread; 0 ≤ number < options.contexts. Fails with -EBUSY if it
 * is assigned. */
int sy_tcp_enter(struct sy_tcp_library *t, unsigned number, struct sy_tcp_context **out);
/* Closes all descriptors and stops the stack. To have sent data delivered, close descriptors
 * earlier and keep waiting for a while. Also stops the steering of packets that its queue receives
 * for other contexts: leave all contexts together. */
void sy_tcp_leave(struct sy_tcp_context *c);
unsigned sy_tcp_number(const struct sy_tcp_context *c);

/* Returns true for an address of the stack or a wildcard; others are the kernel's. */
bool sy_tcp_is_local(const struct sy_tcp_library *t, const struct sockaddr *addr, socklen_t len);

/* ---- packets and waiting (sy_tcp_wait(3)) ---------------------------------------------------- */

/* One poll iteration: receives, runs timers, sends. Never blocks. Returns 1 if there was work, else
 * 0. */
int sy_tcp_run(struct sy_tcp_context *c);
/* Runs until the readiness of a descriptor changes, or for timeout_ms (-1: unlimited); sleeps in
 * the kernel while idle. Returns 1 on a change, 0 on time-out, -EINTR on a signal. mask: as in
 * ppoll(2); NULL: unchanged. */
int sy_tcp_wait(struct sy_tcp_context *c, int timeout_ms, const sigset_t *mask);

/*
 * The same in steps, for an application that also waits for kernel descriptors:
 *
 *     sy_tcp_run(c);                      then check for events; if there are none:
 *     timeout = sy_tcp_sleep(c);          0: do not wait
 *     ppoll({sy_tcp_fd(c): POLLIN, others …}, timeout)
 *     sy_tcp_awake(c);                    if timeout was not 0
 *     sy_tcp_run(c);                      then check for events
 *
 * sy_tcp_fd() is an epoll instance that never changes; do not read it.
 */
int sy_tcp_fd(const struct sy_tcp_context *c);
/* Returns how many nanoseconds the thread may sleep. Until sy_tcp_awake(), make no other call with
 * this context. */
uint64_t sy_tcp_sleep(struct sy_tcp_context *c);
void sy_tcp_awake(struct sy_tcp_context *c);

/* ---- sockets (sy_tcp_socket(3)) -------------------------------------------------------------- */

/* AF_INET or AF_INET6. Fails with -EAFNOSUPPORT, or -EMFILE if no descriptor is free. */
int sy_tcp_socket(struct sy_tcp_context *c, int family);
/* Port 0 allocates one immediately. Fails with -EADDRNOTAVAIL for a foreign address. Contexts bind
 * and listen independently, as if SO_REUSEPORT were set. */
int sy_tcp_bind(struct sy_tcp_context *c, int fd, const struct sockaddr *addr, socklen_t len);
int sy_tcp_listen(struct sy_tcp_context *c, int fd, int backlog);
/* addr and len may be NULL. */
int sy_tcp_accept(struct sy_tcp_context *c, int fd, struct sockaddr *addr, socklen_t *len);
/* Returns -EINPROGRESS; the descriptor becomes writable at the end, and SO_ERROR has the result. */
int sy_tcp_connect(struct sy_tcp_context *c, int fd, const struct sockaddr *addr, socklen_t len);
int sy_tcp_shutdown(struct sy_tcp_context *c, int fd, int how);
/* Does not wait for a time in SO_LINGER. */
int sy_tcp_close_fd(struct sy_tcp_context *c, int fd);
int sy_tcp_getsockname(struct sy_tcp_context *c, int fd, struct sockaddr *addr, socklen_t *len);
int sy_tcp_getpeername(struct sy_tcp_context *c, int fd, struct sockaddr *addr, socklen_t *len);
int sy_tcp_getsockopt(struct sy_tcp_context *c, int fd, int level, int name, void *value,
                      socklen_t *len);
int sy_tcp_setsockopt(struct sy_tcp_context *c, int fd, int level, int name, const void *value,
                      socklen_t len);
/* FIONREAD, SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK: sets *value. */
int sy_tcp_ioctl(struct sy_tcp_context *c, int fd, unsigned long request, int *value);

/* ---- data (sy_tcp_send(3)) ------------------------------------------------------------------- */

/* Flags: MSG_MORE, MSG_OOB; MSG_DONTWAIT and MSG_NOSIGNAL are implied. */
ssize_t sy_tcp_send(struct sy_tcp_context *c, int fd, const void *bytes, size_t len, int flags);
ssize_t sy_tcp_writev(struct sy_tcp_context *c, int fd, const struct iovec *v, int count);
ssize_t sy_tcp_sendmsg(struct sy_tcp_context *c, int fd, const struct msghdr *m, int flags);
/* Flags: MSG_PEEK, MSG_TRUNC; MSG_WAITALL returns what is available, as on nonblocking sockets. */
ssize_t sy_tcp_recv(struct sy_tcp_context *c, int fd, void *bytes, size_t len, int flags);
ssize_t sy_tcp_readv(struct sy_tcp_context *c, int fd, const struct iovec *v, int count);
ssize_t sy_tcp_recvmsg(struct sy_tcp_context *c, int fd, struct msghdr *m, int flags);

/*
 * Zero-copy receive: sy_tcp_receive_look() points up to `count` vectors to the first received bytes
 * and returns their number (0: EOF), or fails like sy_tcp_recv(). They are valid until
 * sy_tcp_receive_done() consumes the first `len`, or another call reads from the descriptor or
 * closes it.
 */
ssize_t sy_tcp_receive_look(struct sy_tcp_context *c, int fd, struct iovec *v, int count);
int sy_tcp_receive_done(struct sy_tcp_context *c, int fd, size_t len);
/*
 * Zero-copy send: sy_tcp_send_room() reserves at most `len` bytes of the send buffer in up to
 * `count` vectors and returns their number, or fails like sy_tcp_send(). sy_tcp_send_done() sends
 * the first `len` of them (0 is allowed). Until then, do not send on, shut down or close the
 * descriptor, nor run the context.
 */
ssize_t sy_tcp_send_room(struct sy_tcp_context *c, int fd, struct iovec *v, int count, size_t len);
int sy_tcp_send_done(struct sy_tcp_context *c, int fd, size_t len, int flags);

/* ---- readiness (sy_tcp_epoll(3)) ------------------------------------------------------------- */

/* Returns the present readiness as poll(2) on a TCP socket: POLLIN, POLLOUT, POLLRDHUP, POLLPRI,
 * POLLERR, POLLHUP; POLLNVAL: no such descriptor. An epoll descriptor has POLLIN if it has events.
 */
uint32_t sy_tcp_ready(struct sy_tcp_context *c, int fd);
/* Returns a counter that increases when the readiness of any descriptor may have changed: while it
 * is constant, no descriptor needs to be checked. */
uint64_t sy_tcp_news(const struct sy_tcp_context *c);
/* As ppoll(2), for descriptors of this context; ignores fd < 0. Runs the context at least once. */
int sy_tcp_poll(struct sy_tcp_context *c, struct pollfd *p, unsigned count, int timeout_ms,
                const sigset_t *mask);

/* As epoll(7): level- and edge-triggered, EPOLLONESHOT, nested instances. Close with
 * sy_tcp_close_fd(). */
int sy_tcp_epoll_create(struct sy_tcp_context *c);
int sy_tcp_epoll_ctl(struct sy_tcp_context *c, int epfd, int op, int fd, struct epoll_event *event);
/* Runs the context at least once. Fails with -EINTR on a signal. mask as in sy_tcp_wait(). */
int sy_tcp_epoll_wait(struct sy_tcp_context *c, int epfd, struct epoll_event *event, int max,
                      int timeout_ms, const sigset_t *mask);

/* ---- priorities (sy_tcp_hook(3)) ------------------------------------------------------------- */

/*
 * Levels are 0 (highest) to 7 (lowest), SY_USUAL without a hook. Hooks assign levels to packets and
 * segments (docs/hooks.md). A socket's level is the highest of its unread data, or else that of the
 * data read last; a listener's is 0. Each context has its own hooks.
 */

/* A native hook; payload has view->payload_len bytes. */
typedef uint8_t (*sy_tcp_packet_hook)(struct sy_hook_packet *view, const uint8_t *payload);
typedef uint8_t (*sy_tcp_segment_hook)(struct sy_hook_segment *view, const uint8_t *payload);

/* Loads a hook: an eBPF object or a function. An existing name gets the new code at once. Returns
 * its number. Fails with -EINVAL if it is refused, and why (may be NULL) gets the reason; -ENOSPC;
 * -EEXIST if it is a hook of the other kind; -ENOMEM; or the error of reading the file. */
int sy_tcp_hook_load(struct sy_tcp_context *c, const char *name, const char *file, char *why,
                     size_t size);
int sy_tcp_hook_packet(struct sy_tcp_context *c, const char *name, sy_tcp_packet_hook hook);
int sy_tcp_hook_segment(struct sy_tcp_context *c, const char *name, sy_tcp_segment_hook hook);
/* Returns the number of a name; 0: none. */
int sy_tcp_hook_find(struct sy_tcp_context *c, const char *name);
int sy_tcp_hook_remove(struct sy_tcp_context *c, int hook);
/* Sets sy_param[i] of the hook. */
int sy_tcp_hook_param(struct sy_tcp_context *c, int hook, unsigned i, uint64_t value);
/* Returns the number of calls, and the mean TSC cycles of the sampled ones. */
int sy_tcp_hook_calls(struct sy_tcp_context *c, int hook, uint64_t *calls, double *cycles);

/* Assigns a hook; 0: none. */
#define SY_TCP_PACKETS  (-1) /* each received packet, before any other processing */
#define SY_TCP_SEGMENTS (-2) /* segments of all sockets without a hook of their own */
/* fd: one of these, a connected socket, or a listener, whose connections inherit it. */
int sy_tcp_hook_use(struct sy_tcp_context *c, int fd, int hook);

/* Returns the socket's private area of 64 bytes, which its segment hook accesses as `own`; valid
 * until the socket is closed. NULL: not connected, or no memory. */
void *sy_tcp_own(struct sy_tcp_context *c, int fd);
/* Returns the socket's level. Fails with -EBADF or -ENOTSOCK. */
int sy_tcp_level(struct sy_tcp_context *c, int fd);

/* sy_tcp_epoll_wait() returns the most urgent events first. This call fetches only the given levels
 * (bit 0: level 0) and returns each event's level. */
struct sy_tcp_event {
	uint32_t events; /* EPOLL* */
	uint32_t level;
	epoll_data_t data;
};
#define SY_TCP_LEVELS 0xffu
int sy_tcp_epoll_fetch(struct sy_tcp_context *c, int epfd, unsigned levels,
                       struct sy_tcp_event *event, int max, int timeout_ms, const sigset_t *mask);
/* Guarantees levels a minimum share of an instance's events, in percent, while they have events.
 * Fails with -EINVAL if the sum exceeds 100. */
int sy_tcp_epoll_shares(struct sy_tcp_context *c, int epfd, const uint8_t percent[SY_PRIORITIES]);

struct sy_tcp_levels {
	uint32_t waiting[SY_PRIORITIES]; /* packets queued for the stack, now */
	uint64_t taken[SY_PRIORITIES];   /* packets dequeued and processed */
	uint64_t
	        dropped[SY_PRIORITIES]; /* packets dropped from a full queue: of the lowest level */
	uint32_t unread[SY_PRIORITIES]; /* sockets with unread data, now */
	uint64_t risen; /* packets raised to the level of a later one of their flow */
};
void sy_tcp_levels(const struct sy_tcp_context *c, struct sy_tcp_levels *out);

/* ---- work queues for other threads (sy_tcp_queue(3)) ----------------------------------------- */

/*
 * A work queue passes requests of contexts to other threads, without locks.
 *
 *     context ── lends ──▶ queue ──▶ any thread: sy_tcp_queue_dequeue(), writes a response
 *        ▲                                                  │
 *        └── sends the response ◀── the context's ring ◀────┘ sy_tcp_request_complete()
 *
 * A request is the unread data of a socket; the bytes stay in place. Until it is completed, the
 * socket has no events and later data is queued, so responses stay in order.
 */
struct sy_tcp_queue;

struct sy_tcp_request {
	const struct iovec *v; /* the data, in `count` pieces */
	int count;
	unsigned level;
	size_t len;        /* total bytes */
	epoll_data_t data; /* of the watch, or of sy_tcp_lend() */
	const void *own;   /* copy of sy_tcp_own(); NULL: no memory */
};

/* requests: capacity. Fails with -ENOMEM. Open it after sy_tcp_open(). Close it when all dequeued
 * requests are completed, and before sy_tcp_close(); queued requests return to their sockets
 * unused. */
int sy_tcp_queue_open(unsigned requests, struct sy_tcp_queue **out);
void sy_tcp_queue_close(struct sy_tcp_queue *queue);

/* Readable sockets of these levels are queued instead of being fetched from the instance; queue
 * NULL: they are fetched again. Other levels keep their queues. */
int sy_tcp_epoll_lend(struct sy_tcp_context *c, int epfd, unsigned levels,
                      struct sy_tcp_queue *queue);
/* Queues the unread data of one socket. Fails with -EAGAIN if there is none, it is already lent, or
 * the queue is full: then sy_tcp_wait() returns when it has space; or like sy_tcp_recv(). */
int sy_tcp_lend(struct sy_tcp_context *c, int fd, epoll_data_t data, struct sy_tcp_queue *queue);

/* Any thread may call it: dequeues up to `max` requests; waits for the first one up to timeout_ms
 * (-1: unlimited). Returns their number, or -EINTR. */
int sy_tcp_queue_dequeue(struct sy_tcp_queue *queue, struct sy_tcp_request **r, unsigned max,
                         int timeout_ms);
/* Returns memory for a response of len bytes, with what was written before; NULL: no memory. */
void *sy_tcp_request_buffer(struct sy_tcp_request *r, size_t len);
/* Completes a request: consumes `used` bytes of the data and sends the first `response` bytes of
 * the buffer. used 0: the request is incomplete and is queued again with further data. If no more
 * can arrive (EOF, or the receive buffer is full: SO_RCVBUF), the socket's event is fetched from
 * its instance instead. */
void sy_tcp_request_complete(struct sy_tcp_request *r, size_t used, size_t response);

/* Earlier names, accepted until 1.0. */
#define sy_tcp_desk         sy_tcp_queue
#define sy_tcp_desk_open    sy_tcp_queue_open
#define sy_tcp_desk_close   sy_tcp_queue_close
#define sy_tcp_desk_take    sy_tcp_queue_dequeue
#define sy_tcp_request_room sy_tcp_request_buffer
#define sy_tcp_request_give sy_tcp_request_complete

#ifdef __cplusplus
}
#endif

#endif
