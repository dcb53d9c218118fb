// SPDX-License-Identifier: Apache-2.0
/*
 * The preloaded library: sockets of an unmodified program on the user-space stack
 * (docs/design/0040-preload.md).
 *
 *   program ─▶ connect.c, accept.c, … ─▶ descriptor_table.c: a socket of the stack? ─no─▶ libc
 *           └▶ epoll_wait.c, poll.c         │ yes
 *                                           ▼
 *      runner_lock.c ─▶ runner.c ─▶ runner_poll.c ─▶ sy_stack ─▶ device.c, route_cache.c
 *
 * One lock per process guards all of it. Calls on other descriptors never acquire it.
 */
#ifndef PRELOAD_H
#define PRELOAD_H

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <sy_socket_option.h>
#include <sy_stack.h>

#include "message.h"
#include "steer_map.h"

#define PRELOAD_EXPORT __attribute__((visibility("default")))
#define NEVER          UINT64_MAX
#define MS             UINT64_C(1000000)

/* ---- descriptors (descriptor_table.c) -------------------------------------------------------- */

#define TABLE_SIZE (1 << 20) /* the kernel's default limit (fs.nr_open) */

enum object_kind {
	OBJECT_LISTENER,   /* a listening socket of the kernel and of the stack */
	OBJECT_CONNECTION, /* of the stack; the kernel's descriptor reserves the number */
	OBJECT_EPOLL,      /* an epoll instance that watches a socket of the stack */
	OBJECT_OWN,        /* a descriptor of this library: the program cannot close it */
	OBJECT_PLAIN,      /* a TCP socket of the kernel that may become one of the first two */
	OBJECT_RELAY,      /* a connection of the stack without a descriptor: relay.c serves it */
	OBJECT_RELAYED,    /* a descriptor of the kernel whose other end is a relay */
};

struct object {
	enum object_kind kind;
	unsigned refs;      /* descriptors: dup() */
	struct link *links; /* threads that wait for it (waiter.h) */
};

struct handoff;
struct relay;
struct watch;
struct set;
struct signals;

struct sock {
	struct object o;
	struct watch *watches;
	sy_stack_id id, id_v4; /* id_v4: of a listener for both families */
	int family;
	bool nonblock;
	bool used;     /* listener: this process waits for its connections */
	bool reported; /* a call of connect() has returned the result */
	bool accepted; /* its kernel descriptors are copies of one placeholder socket */
	bool read_shut, write_shut;
	bool ended;      /* listener: shutdown() has ended it */
	bool linux_only; /* options_bind() */
	struct sy_socket_options options;
	unsigned backlog;
	uint16_t v6_only;
	struct sy_stack_endpoint local, peer;
	/* Listener (serve.c): */
	bool serves;     /* SYNs go to the stack */
	bool yielded;    /* SYNs go to Linux until the program accepts */
	bool unsteered;  /* SYNs go to Linux: the stack or the supervisor has no slot */
	bool passes;     /* SYNs go to Linux: other processes serve the connections */
	bool unaccepted; /* a connection waits to be accepted; since then: */
	uint64_t unaccepted_ns, unaccepted_idle_ns; /* counted by serve_check() */
	uint64_t ready_calls;
	struct sock *next_listener;
	struct relay *relay;
	pthread_t user;               /* the last thread that used it */
	bool looped;                  /* a poll() has waited for this and another socket */
	struct sock *next, *previous; /* of all_socks */
};

/* All return NULL for a descriptor of the kernel. Callers with the lock repeat the lookup under it:
 * another thread may have closed the descriptor. */
struct object *table_get(int fd);
struct sock *table_sock(int fd);       /* a listener or a connection */
struct sock *table_connection(int fd); /* a connection */
struct sock *table_plain(int fd);
struct set *table_set(int fd);
void table_put(int fd, struct object *o);
/* Removes the entry of a number that the kernel has closed or reused. Called without the lock. */
void table_forget(int fd);
/* Moves a descriptor of this library to a high number, which the program does not use. Closes `fd`
 * and returns the new number. */
int table_own(int fd);
void table_disown(int fd);
/* The same as table_own(), without moving it. */
int table_own_as(int fd);
/* Drops one reference. */
void object_end(struct object *o);
struct sock *sock_new(enum object_kind kind, int family);
/* The listener stops listening; its descriptor stays open. */
void listener_end(struct sock *s);
/* Frees a socket without descriptors. */
void sock_free(struct sock *s);
extern struct sock *all_socks;

/* Stores in the kernel's socket whether the program has set it to blocking mode. */
void listener_store_blocking(const struct sock *s, int fd);
/* Registers a listening socket that another process has created (accept.c). Called without the
 * lock. */
void listener_adopt(int fd);

/* ---- the stack of this process (runner.c, runner_poll.c, runner_await.c) --------------------- */

struct runner {
	struct sy_stack *stack; /* NULL: not started */
	pid_t pid;              /* of the process that runs it */
	bool refused;           /* the start has failed for good, or is in progress */
	bool pending;           /* the start waits for a queue: other workers have them all */
	bool warned;            /* of a long wait for a queue */
	uint64_t pending_ns;    /* since when the start waits */
	bool wanted;            /* this process waits at a listener */
	bool announced;         /* `wanted` was reported to the supervisor, without a queue */
	uint64_t now_ns, due_ns;
	unsigned sleepers;  /* threads whose calls wait */
	unsigned waking;    /* of these, threads that are woken and do not have the lock yet */
	bool unsent;        /* packets wait for those of woken threads: one burst */
	uint64_t unsent_ns; /* since when */
	uint64_t calls;     /* of the program's threads that have acquired the lock */
	unsigned rx;        /* the stack's descriptors in `fd` */
	int fd[MESSAGE_QUEUES + 2];
	bool sorted; /* hooks set priorities */
};
extern struct runner runner;

/* Starts the stack, if necessary, and listens where this process waits. */
int runner_start(void);
/* Acquires what a stack needs from the system, before the program drops its privileges. Called
 * without the lock. */
void runner_prepare(void);
/* Returns whether runner_start() would request a queue now, which may block for some time. */
bool runner_starts(void);
/* Returns how long this process may sleep in the kernel before it requests a queue again. NEVER:
 * without a limit. */
uint64_t runner_patience_ns(void);
/* One poll iteration: receives packets, runs timers, sends packets, delivers events. */
void runner_poll(void);
/* Delivers events to epoll instances and waiters, also those that calls have caused. */
void runner_events(void);
/* Ends a call that may have something to send: sends it, unless a waking thread will. */
void runner_flush(void);
/* Sends all queued packets now. */
void runner_send(void);
/* Replaces a system call by number that creates a process by fork(), if fork() can do the same
 * (clone.c). */
bool clone_forks(long number, const long *a, long *rc);
/* Returns whether a system call creates a process, and not a thread. */
bool clone_makes_process(long number, const long *a);
/* Before and after another system call that creates a process; it has returned `pid`. */
void runner_fork(void);
void runner_forked(long pid);
/* Sets whether children of fork() get the stack. Locked: only one of the two processes may continue
 * with it. */
void runner_set_inherited(bool on);
/* Continues with the stack in such a child. Unlocks. */
void runner_inherit(void);
/* Starts a thread with all signals blocked. */
int runner_thread(void *(*run)(void *));
/* Waits until one of these EPOLL* events is pending. Fails with -EAGAIN at the deadline, -EINTR, or
 * -EBADF if another thread has closed the socket, which is freed then. A call that waits several
 * times passes the same `signals`. */
int runner_await(struct sock *s, uint32_t events, int extra_fd, uint64_t deadline_ns,
                 struct signals *signals);
/* The same. Returns 1, without the lock, if another thread has completed the handoff. */
int runner_await_handoff(struct sock *s, uint32_t events, struct handoff *handoff,
                         uint64_t deadline_ns, struct signals *signals);

/* ---- new connections: the stack's or Linux's (serve.c) --------------------------------------- */

/* Adds a listener. Locked, as all of these unless a comment says otherwise. */
void serve_add(struct sock *s);
void serve_forget(const struct sock *s);
/* Records that this process waits for the listener's connections: they go to the stack once it
 * runs. */
int runner_listen(struct sock *s);
/* Makes the stack listen, if it runs. Connections then wait in its backlog. */
int serve_open(struct sock *s);
void serve_backlog(struct sock *s, unsigned backlog);
/* The stack stops listening. */
void serve_end(struct sock *s);
/* The program passes a connection to another process. Called without the lock. */
void serve_passed(int fd);
/* The program has accepted from the listener, or tries to. */
void serve_accepted(struct sock *s);
/* The process exits. */
void serve_exit(void);
/* Sends new connections to Linux, or back to the stack: the process is about to execute a
 * program. */
void serve_pause(bool on);
/* Run by the helper thread: sends the supervisor a heartbeat, and finds connections that the
 * program does not accept. */
void serve_check(void);
/* After fork(): in the parent; in the child. */
void serve_forked(void);
void serve_forget_all(void);

/* ---- the end of the process (process_end.c) -------------------------------------------------- */

/* Called in the handler of a signal that ends the process; async-signal-safe. Returns when the
 * helper thread has ended its sockets, or at a deadline. */
void process_end_request(void);
/* Run by the helper thread, without the lock. */
void process_end_serve(void);
void process_end_forget(void); /* in a child process: the request is its parent's */

/* ---- connections that no thread has accepted (backlog.c) ------------------------------------- */

/* The process stops listening: Linux's TCP continues the connections in the listener's backlog.
 * Locked, as all of these except the last. */
void listener_retire(struct sock *s);
/* Linux gets the port's new connections. Segments of existing connections are still steered to the
 * stack, until ports_forget(). */
void port_close(const struct sock *s);
/* Exports the established connections of the backlog; the listener stays. */
void listener_export(const struct sock *s);
/* Exports connections whose handshake has ended at a retired listener. Called in each poll
 * iteration. */
void retired_poll(void);
/* The stack has reported an event that belongs to no socket, perhaps to a retired listener. */
void retired_event(void);
/* Reports to the supervisor which closed ports have no connections left. now: also those that have
 * just been closed. Returns whether there were any. */
bool ports_forget(bool now);
/* Ends the oldest retired listener, so that the stack has a slot for a new one. Returns false if
 * there is none. */
bool retired_release(void);
void retired_forget(void); /* in a child process: they are its parent's */
/* accept4() of the kernel's listening socket. Returns a negative errno on failure. */
int kernel_accept(const struct sock *l, int fd, struct sockaddr *addr, socklen_t *len, int flags);

/* ---- the lock, and waiting threads (runner_lock.c, waiter.c, wait_sleep.c) ------------------- */

/* Returns false, without the lock, if a signal handler has interrupted this thread while it had the
 * lock. A thread with the lock is not cancelled. */
bool runner_lock(void);
/* As runner_lock(), but does not wait: returns false if another thread has the lock. */
bool runner_trylock(void);
void runner_unlock(void);
/* Returns whether this thread has the lock, or is about to acquire it. */
bool runner_is_inside(void);

struct waiter;

/* The wait of one call: zeroed before wait_enter(). All functions below are locked. */
struct wait {
	struct waiter *waiter; /* NULL: it does not wait */
	unsigned call;
	struct handoff *handoff; /* NULL: none */
};

/* Work that another thread may complete for a sleeping one, which then does not need the lock. */
struct handoff {
	bool (*complete)(struct handoff *h); /* locked; returns false: not possible yet */
	bool done; /* atomic; the sleeping call returns without the lock */
};

/* Registers this thread as a waiter for at most `count` objects. Fails with -ENOMEM. */
int wait_enter(struct wait *wait, unsigned count);
/* Registers the waiter with an object. exclusive: an event wakes only one of the exclusive waiters;
 * it calls object_notify() if it does not consume all of the event. */
void wait_link(const struct wait *wait, struct object *o, bool exclusive);
#define WAIT_OWN 3
/* Sleeps without the lock until an object may have changed, or the deadline. p: WAIT_OWN entries
 * that the waiter fills, then the descriptors of the caller. Returns as ppoll(), or -EINTR. If the
 * handoff is done, returns without the lock: the wait is over. */
int wait_sleep(struct wait *wait, struct pollfd *p, nfds_t count, uint64_t deadline_ns,
               struct signals *signals);
/* Returns whether an event has arrived since the waiter's last sleep began. */
bool wait_posted(const struct wait *wait);
/* Returns whether the object of the n-th link is closed, and freed. */
bool wait_gone(const struct wait *wait, unsigned link);
/* Returns whether a call in a signal handler has ended the wait: the linked objects may be
 * freed. */
bool wait_is_over(const struct wait *wait);
void wait_leave(struct wait *wait);
/* Called in a handler, without the lock: ends the wait whose sleep the signal has interrupted. */
void wait_abandon(void);
/* Returns an array of `count` entries that belongs to this thread, valid until its next call of
 * this function. NULL: no memory. */
struct pollfd *wait_polled(nfds_t count);

/* Wakes the threads that wait for an event of the object. */
void object_notify(struct object *o);
/* Wakes the threads that wait for a closed object, and unlinks them. */
void object_closed(struct object *o);

/* The epoll instance with all of the stack's descriptors (wakeup.c). */
int wakeup_open(const int *fd, unsigned count);
int wakeup_fd(void);
void wakeup_remove(int fd);
void wakeup_close(void);
/* Run by the helper thread, without the lock: sleeps for `ns`, or until a leader has returned to
 * the program. */
void watchdog_sleep(uint64_t ns);
/* Run by the helper thread, without the lock: returns whether watchdog_check() is due. */
bool watchdog_is_due(uint64_t now_ns);
/* Locked. Returns true if a leader has stayed away: another thread leads from now on, and this
 * thread polls the stack. */
bool watchdog_check(void);
/* Clears the timer that wakes a leader, if it has expired. */
void wakeup_timer_clear(uint64_t now_ns);
/* In a child of fork(). */
void waiters_forked(bool locked);
/* Locked. In a child that continues with the stack. */
void waiters_inherit(void);

/* ---- signals (signals.c, handlers.c) --------------------------------------------------------- */

/* Signals of one call that waits. */
struct signals {
	const sigset_t *requested; /* the mask that the program passes for the wait; NULL: none */
	bool blocked;              /* all signals are blocked, except during sleeps */
	sigset_t program;          /* if blocked: the mask that the program has set */
};

/* Fills in all signals but those of faults. */
void signals_all(sigset_t *out);
void signals_block(struct signals *s);
/* Returns the mask for a sleep. */
const sigset_t *signals_sleep_mask(const struct signals *s);
/* Runs the handlers of pending signals. Called without the lock, signals blocked, before each sleep
 * but the first. Returns true, with errno EINTR, if one has run. */
bool signals_deliver_pending(const struct signals *s);
/* Sleeps in epoll_pwait(2); -1 ms: without a deadline. With signals blocked it may return 0 early,
 * if another thread has fetched the event. */
int signals_epoll(const struct signals *s, int epfd, struct epoll_event *e, int max, int ms);
/* Restores the program's mask. Called without the lock: handlers run. Keeps errno. */
void signals_restore(struct signals *s);

/* Locked. The process has a stack from here on: signals that end it are handled by process_end.c
 * (handlers.c). */
void signals_arm(void);
/* Locked. on: the thread is about to execute a program, so its signals are not deferred: they would
 * be pending and blocked in that program. off: the execution has failed. */
void signals_leave(bool on);
/* Returns whether a signal has arrived while this thread had the lock: then all signals are
 * blocked. Stores the program's mask. */
bool signals_deferred(sigset_t *program);
/* Delivers a deferred signal. Called without the lock. */
void signals_unblock(void);
/* A sleep begins. signals_restart() returns whether all handlers that have run since restart system
 * calls (SA_RESTART). */
void signals_sleep(void);
bool signals_restart(void);

/* ---- relays (relay.c, relay_name.c, relay_serve.c) ------------------------------------------- */

/* Locked, before fork(): makes relays of the connections that the process leaves to children. */
void relays_fork(void);
void relays_forget(void); /* after it, in the child */
/* The same before a call that forks and executes without handlers. Called without the lock. */
void relays_spawn(void);
/* Locked, before execve(): makes relays of the connections that the next program inherits. */
void relays_exec(void);
/* Locked, in the successor (exec.c): starts its relay thread. */
int relays_inherit(void);
/* Sets the limit of descriptors. raised: the program's limit plus the descriptors of relays;
 * otherwise the program's limit. */
void relays_limit(bool raised);
/* Call without the lock before the descriptor is passed to another process: its connection becomes
 * a relay. */
void relay_pass(int fd);
/* Locked, at the end of the process: waits until all relays have ended. */
void relays_linger(void);

/* Returns whether the descriptor's other end is a relay, of this process or another one. */
bool relay_has(int fd);
/* Records that the descriptor's other end is a relay, if it is. relay_mark_locked(): with the lock,
 * and without the check. */
void relay_mark(int fd);
void relay_mark_locked(int fd);
/* Stores the addresses of the connection. Returns the family of its socket; 0: the descriptor is no
 * relay's. */
int relay_names(int fd, struct sy_stack_endpoint *local, struct sy_stack_endpoint *peer);
/* Options of the connection, as setsockopt() and getsockopt(). Return a negative errno. */
int relay_option_set(int fd, int level, int name, const void *value, socklen_t len);
int relay_option_get(int fd, int level, int name, void *value, socklen_t *len);
/* Returns the error, a positive errno, that has ended the connection; 0: none. */
int relay_error(int fd);
/* The program sets a filter of system calls, which may kill the process for calls that only this
 * library makes: relay_error() makes no calls from here on. */
void relay_confine(void);
void relay_queue(struct relay *r); /* its connection has an event */

/* ---- the supervisor (supervisor_call.c) ------------------------------------------------------ */

/* Returns the configuration: addresses and ports that the stack serves, limits. NULL: `steelyard
 * run` has not started this program. */
const struct message_answer *supervisor_config(void);
/* fd: the link, the packets' memory, and a socket for each queue. */
int supervisor_start(struct message_answer *out, int fd[MESSAGE_FDS]);
int supervisor_bound(void);
/* Reports that the process listens, or stops listening, at the listener's port. serves: it also
 * waits for connections (accept(), poll(), epoll_wait()). */
int supervisor_listen(const struct sock *s, bool on, bool serves);
/* Reports that no more segments are expected at a port where the process has listened. */
int supervisor_forget_port(const struct sy_stack_endpoint *at, uint16_t v6_only);
/* Reports that the program does not accept the listener's pending connections or, if `passes`,
 * passes accepted connections to other processes. Returns 1 if other processes wait for connections
 * at this port. */
int supervisor_yield(const struct sock *s, bool passes);
/* Moves the connection to Linux's TCP: a process that listens at its port can accept it. v6: to an
 * IPv6 socket, also for IPv4 addresses. */
int supervisor_export(const struct sy_stack_export *e, bool v6, void *unread);
/* Exchanges an accepted ticket (backlog.c) for its connection. Returns the descriptor, or -ENOENT
 * if it is no ticket. */
int supervisor_redeem(int ticket);
void supervisor_heartbeat(void);
void supervisor_forget(void); /* after fork() */
/* Reports that this process continues the stack of the process that opened this connection to the
 * supervisor. */
void supervisor_move(void);
bool supervisor_serves(const struct sy_addr *addr);
bool supervisor_serves_port(uint16_t port); /* network order */

/* ---- readiness (epoll_ctl.c) ----------------------------------------------------------------- */

uint32_t sock_ready(struct sock *s); /* EPOLL* */
void sock_event(struct sock *s);
/* Returns the level of its unread bytes; SY_USUAL without hooks. */
unsigned sock_level(const struct sock *s);
void sets_started(void);
void sets_forked(void);
/* The socket becomes the stack's: epoll instances stop watching it in the kernel. */
void watches_to_stack(struct sock *s);
void watches_end(struct sock *s);
/* Returns whether a thread sleeps at an epoll instance that contains it. */
bool watches_sleep(const struct sock *s);
/* It becomes the kernel's again, and may be connected later. */
void watches_to_kernel(struct sock *s);
/* It becomes the kernel's for good: epoll instances watch its descriptors there. */
void watches_relay(struct sock *s);
void set_end(struct set *set);
/* Another epoll instance waits for this one; -1: poll() does. Called without the lock. */
void set_nest(int fd, int outer);

/* ---- hooks (hooks.c) ------------------------------------------------------------------------- */

/* Called once the stack has started. Closes the page; the socket is one of runner.fd. */
int hooks_open(int socket, int page);
void hooks_poll(void);
/* Closes the supervisor's socket, the last of runner.fd, if the supervisor has ended: an epoll
 * instance would report the closed socket forever. */
void hooks_check(void);
/* Call when the listener begins to listen: sets the hook that `steelyard hook` has ordered for its
 * port. */
void hooks_listen(const struct sock *s);
void hooks_forget(void);

/* ---- addresses (connect.c) ------------------------------------------------------------------- */

bool addr_is_any(const struct sy_addr *a);
/* Returns the family of a TCP socket of the kernel, over IPv4 or IPv6; 0: it is something else. */
int socket_family(int fd);
/* Returns whether connect() would open this connection on the stack, and so would sendto() with
 * MSG_FASTOPEN. */
bool connect_is_due(int fd, const struct sockaddr *addr, socklen_t len);
int socket_local(int fd, struct sy_stack_endpoint *out);
int endpoint_from(const struct sockaddr *from, socklen_t len, struct sy_stack_endpoint *out);
void endpoint_to(const struct sy_stack_endpoint *e, int family, struct sockaddr *to,
                 socklen_t *len);

/* Stores an address for the program, as getsockname(). Returns 0, or a negative errno. */
int name_return(const struct sy_stack_endpoint *e, int family, struct sockaddr *to, socklen_t *len);

/* ---- options (sockopt.c, sockopt_kernel.c) --------------------------------------------------- */

/* Copies the options that were set on the kernel's socket. */
void options_read(struct sock *s, int fd);
/* Returns whether this socket of the kernel has an option that only Linux implements: then it must
 * stay with Linux. */
bool options_bind(int fd);
/* Applies the socket's options to a connection or a listener of the stack. */
void options_apply(const struct sock *s, sy_stack_id id);

/* ---- facts (info.c) -------------------------------------------------------------------------- */

struct sy_stack_info info_of(const struct sock *s);
#define INFO_BYTES 512
/* Stores TCP_INFO in the kernel's format. Returns its size. */
socklen_t info_get(const struct sock *s, void *out);

/* Returns false for addresses at which no program has memory: the lowest page and the kernel's
 * half. Linux returns EFAULT for them, and so do calls here. Other unmapped addresses are not
 * detected: that would cost a system call for each send() and recv(). */
static inline bool is_user_memory(const void *at)
{
	return (intptr_t)at >= 4096;
}

static inline bool is_past(uint64_t deadline_ns)
{
	return deadline_ns != NEVER && sy_clock_ns() >= deadline_ns;
}

/* Sets errno = -rc and returns -1 if rc is negative; else returns rc. */
static inline long result(long rc)
{
	if (rc >= 0)
		return rc;
	errno = (int)-rc;
	return -1;
}

#endif
