// SPDX-License-Identifier: Apache-2.0
/*
 * The preloaded library: sockets of an unmodified program on the user-space stack
 * (docs/design/0040-preload.md).
 *
 *   program ─▶ connect.c, accept.c, … ─▶ descriptor_table.c: is the descriptor the stack's? ─no─▶
 * libc └▶ epoll_ctl.c, poll.c          │ yes ▼ waiter.c ─▶ runner.c ─▶ runner_poll.c ─▶ sy_stack ─▶
 * device.c, route_cache.c
 *
 * One lock per process guards all of it. Descriptors that are not the stack's never meet it.
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

#define PRELOAD_EXPORT __attribute__((visibility("default")))
#define NEVER          UINT64_MAX
#define MS             UINT64_C(1000000)

/* ---- descriptors (descriptor_table.c) -------------------------------------------------------- */

#define TABLE_SIZE (1 << 20) /* the kernel's own limit, as it comes (fs.nr_open) */

enum object_kind {
	OBJECT_LISTENER,   /* a listening socket of the kernel and of the stack */
	OBJECT_CONNECTION, /* of the stack; the kernel's descriptor holds its number */
	OBJECT_EPOLL,      /* an epoll instance that looks at one of these */
	OBJECT_OWN,        /* this library's: not the program's to close */
	OBJECT_PLAIN,   /* a TCP socket that may become one of the first two; the kernel's so far */
	OBJECT_RELAY,   /* a connection of the stack without a descriptor: relay.c serves it */
	OBJECT_RELAYED, /* a descriptor of the kernel whose other end is a relay */
};

struct object {
	enum object_kind kind;
	unsigned refs;      /* descriptors: dup() */
	struct link *links; /* threads that wait for it (waiter.c) */
};

struct handoff;
struct relay;
struct watch;
struct set;
struct signals;

struct sock {
	struct object o;
	struct watch *watches;
	sy_stack_id id, id_v4; /* id_v4: a listener of both families' */
	int family;
	bool nonblock;
	bool used;     /* listener: this process waits at it */
	bool reported; /* a call of connect() has told it */
	bool accepted; /* its descriptors in the kernel are copies of others' */
	bool read_shut, write_shut;
	bool ended;   /* listener: by shutdown() */
	bool kernels; /* options_bind() */
	struct sy_socket_options options;
	unsigned backlog;
	uint16_t v6_only;
	struct sy_stack_endpoint local, peer;
	/* Listener, serve.c: */
	bool serves;     /* SYNs come to the stack */
	bool yielded;    /* not until the program accepts */
	bool passes;     /* never: its connections are for other processes */
	bool waited_for; /* a connection is there to accept; since then: */
	uint64_t unaccepted_ns, unaccepted_idle_ns; /* as serve_check() has found it */
	uint64_t ready_calls;
	struct sock *next_listener;
	struct relay *relay;
	pthread_t user; /* the thread that has used it last */
	bool looped;    /* a call has waited for it and for another of the stack's sockets */
	struct sock *next, *previous; /* of all */
};

/* NULL: the kernel's. What is to be used under the lock is looked up under it: another thread may
 * have closed the descriptor. */
struct object *table_get(int fd);
struct sock *table_sock(int fd);       /* a listener or a connection */
struct sock *table_connection(int fd); /* a connection */
struct sock *table_plain(int fd);
struct set *table_set(int fd);
void table_put(int fd, struct object *o);
/* Not locked. The kernel has closed it, or handed it out anew. */
void table_forget(int fd);
/* A descriptor of this library's, moved out of the program's way. Closes `fd`. */
int table_own(int fd);
void table_disown(int fd);
/* The same as table_own(), under the number that it has. */
int table_own_as(int fd);
/* One descriptor less. */
void object_end(struct object *o);
struct sock *sock_new(enum object_kind kind, int family);
/* A listener that stays, and listens no longer. */
void listener_end(struct sock *s);
/* One that no descriptor has. */
void sock_free(struct sock *s);
extern struct sock *all_socks;

/* It is to block, or no longer. */
void listener_store_blocking(const struct sock *s, int fd);
/* A listening socket that another process has made (accept.c). Not locked. */
void listener_adopt(int fd);

/* ---- the stack of this process (runner.c; its turns: runner_poll.c) -------------------------- */

struct runner {
	struct sy_stack *stack; /* NULL: not started */
	pid_t pid;              /* the process that has it */
	bool refused;           /* and never will be */
	bool pending;           /* refused so far: other workers have all queues */
	bool waited;            /* it has warned that this takes long */
	uint64_t pending_ns;    /* since when */
	bool wanted;            /* this process waits at a listener */
	bool announced;         /* and the supervisor knows of that, though it has no queue yet */
	uint64_t now_ns, due_ns;
	unsigned sleepers;  /* threads whose calls wait */
	unsigned waking;    /* of these, threads that are woken and do not have the lock yet */
	bool unsent;        /* packets wait for them: they leave in one burst */
	uint64_t unsent_ns; /* since when */
	uint64_t calls;     /* of the program's threads that have had the lock */
	unsigned rx;        /* descriptors of the stack, in the gate */
	int fd[MESSAGE_QUEUES + 2];
	bool sorted; /* hooks say what is urgent */
};
extern struct runner runner;

/* Starts the stack, if it is not, and listens where this process waits. */
int runner_start(void);
/* What a stack needs of the system, before the program gives up its rights to it. Not locked. */
void runner_prepare(void);
/* Would that ask for a queue now? It takes its time. */
bool runner_starts(void);
/* For how long this process may wait in the kernel before it asks for a queue again; NEVER: for any
 * time. */
uint64_t runner_patience_ns(void);
/* Packets in, timers, packets out, events to watches. */
void runner_poll(void);
/* Events to watches and waiters: of what calls have done since the last turn, too. */
void runner_events(void);
/* After a call that may have something to send: at once, if nobody else will. */
void runner_flush(void);
/* Sends what is to be sent now. */
void runner_send(void);
/* clone.c: a system call by number that makes a process is fork(), where that can do what it does.
 */
bool clone_forks(long number, const long *a, long *rc);
/* Does a system call make a process, and no thread? */
bool clone_makes_process(long number, const long *a);
/* Around another system call that makes a process; it has returned `pid`. */
void runner_fork(void);
void runner_forked(long pid);
/* Locked. Children have the stack from here on, or no longer: of two processes one goes on with it.
 */
void runner_set_inherited(bool on);
/* Such a child: it does. Unlocks. */
void runner_inherit(void);
/* Starts a thread that gets no signals. */
int runner_thread(void *(*run)(void *));
/* Until one of these EPOLL* holds. -EAGAIN: the deadline; -EINTR; -EBADF: another thread has closed
 * the socket, which is not to be touched then. A call that waits several times has one `signals`.
 */
int runner_await(struct sock *s, uint32_t events, int extra_fd, uint64_t deadline_ns,
                 struct signals *signals);
/* The same. Returns 1, without the lock, if another thread has completed the handoff. */
int runner_await_handoff(struct sock *s, uint32_t events, struct handoff *handoff,
                         uint64_t deadline_ns, struct signals *signals);
/* ---- who takes new connections (serve.c) ----------------------------------------------------- */

/* A listener; locked, as all of these. */
void serve_add(struct sock *s);
void serve_forget(const struct sock *s);
/* This process waits there for connections: they come to its stack, once it has one. */
int runner_listen(struct sock *s);
/* The stack, if there is one, listens there: the backlog is open. */
int serve_open(struct sock *s);
void serve_backlog(struct sock *s, unsigned backlog);
/* The stack does not listen there any more. */
void serve_end(struct sock *s);
/* The program passes one of its connections on to another process. Not locked. */
void serve_passed(int fd);
/* The program has accepted from it, or tries to. */
void serve_accepted(struct sock *s);
/* The process ends. */
void serve_exit(void);
/* Linux takes new connections from here on, or no longer: the process is about to execute a
 * program.
 */
void serve_pause(bool on);
/* By the helper thread: tells the supervisor that the stack runs, and what the program leaves. */
void serve_check(void);
/* In the parent; in the child. */
void serve_forked(void);
void serve_forget_all(void);

/* ---- the end of the process (process_end.c) -----------------------------------------------------
 */

/* In the handler of a signal that ends the process; async-signal-safe. Returns when the helper
 * thread has ended its sockets, or does not come to it in time. */
void process_end_request(void);
/* By the helper thread, not locked. */
void process_end_serve(void);
void process_end_forget(void); /* a child process: the request is its parent's */

/* ---- connections that no thread has accepted (backlog.c) ------------------------------------- */

/* Locked, as all of these but the last. The process listens there no more: Linux's TCP goes on with
 * them. */
void listener_retire(struct sock *s);
/* The same of those that are complete; the listener stays. */
void listener_export(const struct sock *s);
/* What has come to them since, at each turn. */
void retired_poll(void);
void retired_forget(void); /* a child process: they are its parent's */
/* accept4() of the kernel's listening socket. A negative errno. */
int kernel_accept(const struct sock *l, int fd, struct sockaddr *addr, socklen_t *len, int flags);

/* ---- the lock, and threads that sleep (waiter.c) --------------------------------------------- */

/* false: a signal handler has interrupted this thread inside. Nothing is locked. While a thread
 * has the lock, it is not cancelled. */
bool runner_lock(void);
bool runner_trylock(void); /* or another thread has it */
void runner_unlock(void);
/* This thread has the lock, or is about to. */
bool runner_is_inside(void);

struct waiter;

/* All below is locked. A call that waits: zeros before wait_enter(). */
struct wait {
	struct waiter *waiter; /* NULL: it does not wait */
	unsigned call;
	struct handoff *handoff; /* NULL: none */
};

/* What a sleeping thread waits for, for which another thread may do the work: then it needs the
 * lock no more. */
struct handoff {
	bool (*complete)(struct handoff *h); /* locked; false: not yet */
	bool done; /* atomic; the call that sleeps returns without the lock */
};

/* This thread waits, for as many objects at most. Fails with -ENOMEM. */
int wait_enter(struct wait *wait, unsigned count);
/* exclusive: an event wakes one of those; it has to call object_notify() if it leaves something. */
void wait_link(const struct wait *wait, struct object *o, bool exclusive);
#define WAIT_OWN 3
/* Sleeps without the lock until something may have changed, at most until then. p: descriptors to
 * wait for as well, behind WAIT_OWN of the waiter's. Returns as ppoll(), or -EINTR. Returns without
 * the lock if the handoff is done: the wait is over. */
int wait_sleep(struct wait *wait, struct pollfd *p, nfds_t count, uint64_t deadline_ns,
               struct signals *signals);
/* An event has come since its last sleep began. */
bool wait_posted(const struct wait *wait);
/* What the n-th link named is closed, and is not to be touched. */
bool wait_gone(const struct wait *wait, unsigned link);
/* A call in a signal handler has ended it; so nothing is known of what it was linked to. */
bool wait_is_over(const struct wait *wait);
void wait_leave(struct wait *wait);
/* Not locked, in a handler: the sleep that it has interrupted, if there is one, is over. */
void wait_abandon(void);
/* Memory of this thread's, until its next such call. NULL: none. */
struct pollfd *wait_polled(nfds_t count);

/* Wakes those who wait for it; or for its end. */
void object_notify(struct object *o);
void object_closed(struct object *o);

/* The stack's descriptors, in one instance (wakeup.c). */
int wakeup_open(const int *fd, unsigned count);
int wakeup_fd(void);
void wakeup_remove(int fd);
void wakeup_close(void);
/* The helper thread, without the lock: sleeps for so long, or until a leader has left. */
void watchdog_sleep(uint64_t ns);
/* The same: is there something for watchdog_check() to do? */
bool watchdog_is_due(uint64_t now_ns);
/* Locked. Returns true if a leader has stayed away: another one leads from now on, and this thread
 * is to receive what has come. */
bool watchdog_check(void);
/* The timer that wakes a leader, if it has expired. */
void wakeup_timer_clear(uint64_t now_ns);
void waiters_forked(bool locked);
/* Locked. A child that has the stack. */
void waiters_inherit(void);

/* ---- signals (signals.c) --------------------------------------------------------------------- */

/* Of one call that waits. */
struct signals {
	const sigset_t *requested; /* blocked in its sleeps, as the program says; NULL: as ever */
	bool blocked;
	sigset_t program; /* held: what the program blocks */
};

/* All but those of faults. */
void signals_all(sigset_t *out);
void signals_block(struct signals *s);
/* What a sleep blocks. */
const sigset_t *signals_sleep_mask(const struct signals *s);
/* Not locked, held, before each sleep but the first. true: a handler has run now; errno is EINTR.
 */
bool signals_deliver_pending(const struct signals *s);
/* A sleep in epoll_pwait(2); -1 ms: for any time. Held, it may give nothing before its time:
 * another thread was faster. */
int signals_epoll(const struct signals *s, int epfd, struct epoll_event *e, int max, int ms);
/* Not locked: handlers run. Keeps errno. */
void signals_restore(struct signals *s);

/* Locked. The process has a stack from here on: signals that end it come to process_end.c
 * (handlers.c). */
void signals_arm(void);
/* Locked, by a thread that executes a program, or does not any more: no signal is deferred that
 * would be pending and blocked there. */
void signals_leave(bool on);
/* Has a signal come inside the stack (handlers.c)? Then all are blocked; what the program blocks.
 */
bool signals_deferred(sigset_t *program);
/* Not locked: now it comes. */
void signals_unblock(void);
/* A sleep begins; then: do all handlers that have run since restart system calls (SA_RESTART)? */
void signals_sleep(void);
bool signals_restart(void);

/* ---- relays (relay.c, relay_name.c, relay_serve.c) ------------------------------------------- */

/* Locked, before fork(): the child gets the connections that the process leaves to children. */
void relays_fork(void);
void relays_forget(void); /* after it, in the child */
/* Not locked, before a call that forks and executes without handlers: connections that its child
 * inherits. */
void relays_spawn(void);
/* Locked, before execve(): connections that the next program inherits. */
void relays_exec(void);
/* Locked, in the heir: its thread serves them. */
int relays_inherit(void);
/* The limit of descriptors: with those for relays, or the program's own. */
void relays_limit(bool raised);
/* Not locked. Another process gets this descriptor. */
void relay_pass(int fd);
/* Locked, at the end of the process: until all relays have ended. */
void relays_linger(void);

/* Is the descriptor's other end a relay, of this process or another one? */
bool relay_has(int fd);
/* Makes a note of it, if it is; the second: locked, and it is. */
void relay_mark(int fd);
void relay_mark_locked(int fd);
/* The addresses of its connection. Returns the family of its socket; 0: it is no relay's. */
int relay_names(int fd, struct sy_stack_endpoint *local, struct sy_stack_endpoint *peer);
/* Options of the connection, as setsockopt() and getsockopt(). Negative errno. */
int relay_option_set(int fd, int level, int name, const void *value, socklen_t len);
int relay_option_get(int fd, int level, int name, void *value, socklen_t *len);
/* The error, a positive errno, by which it has ended; 0: in order. */
int relay_error(int fd);
/* A filter of system calls comes: it may end the process for those that the program does not make.
 */
void relay_confine(void);
void relay_queue(struct relay *r); /* its connection has an event */

/* ---- the supervisor (supervisor_call.c) ------------------------------------------------------ */

/* What is served; NULL: nothing, this program was not started by `steelyard run`. */
const struct message_answer *supervisor_config(void);
/* fd: the link, the packets' memory, and a socket for each queue. */
int supervisor_start(struct message_answer *out, int fd[MESSAGE_FDS]);
int supervisor_bound(void);
/* serves: it also waits there for connections. */
int supervisor_listen(const struct sock *s, bool on, bool serves);
/* The program does not accept what waits there, or passes it on to other processes. Returns 1 if
 * other processes wait there. */
int supervisor_yield(const struct sock *s, bool passes);
/* The parent makes a socket of Linux's of this connection, and a process at its port accepts it.
 * v6: one of IPv6, whichever the addresses are. */
int supervisor_export(const struct sy_stack_export *e, bool v6, void *unread);
/* Returns the connection that an accepted ticket stands for. Fails with -ENOENT if it is none. */
int supervisor_redeem(int ticket);
void supervisor_heartbeat(void);
void supervisor_forget(void); /* after fork() */
/* This process goes on for the one that has connected. */
void supervisor_move(void);
bool supervisor_serves(const struct sy_addr *addr);
bool supervisor_serves_port(uint16_t port); /* network order */

/* ---- packets (device.c, route_cache.c) ------------------------------------------------------- */

/* Starts EAL, once, which takes files of the system. A child process has a copy of it. */
int device_prepare(struct sy_error *err);
/* memory: a descriptor, which is closed. fd: a socket for each queue. large: one for large
 * segments, if the answer says so; like those it stays the caller's. */
int device_open(const struct message_answer *config, int memory, const int *fd, int large,
                struct sy_error *err);
/* Gives back what device_open() has mapped, also after it has failed. The sockets stay the
 * caller's, and so does EAL, which starts once. */
void device_close(void);
/* A child process: nothing of it is mapped there. */
void device_forget(void);
/* Children have it from here on, or no longer. */
void device_set_inherited(bool on);
/* In that child. */
void device_inherit(void);
struct rte_mempool *device_pool(void);
unsigned device_receive(struct rte_mbuf **m, unsigned max, uint64_t now_ns);
/* All that had come by then was received. */
uint64_t device_seen_ns(void);
/* Takes them all; what finds no place is lost, as on a wire, and counted. */
void device_send(struct rte_mbuf **m, unsigned count);
/* Has device_send() left frames in the ring, for which the kernel is to be notified? Locked; the
 * caller then calls device_kick() without the lock: that call runs the peer's half of veth. */
bool device_kick_wanted(void);
void device_kick(void);
uint64_t device_unsent(void);
/* Packets that came while a receive ring was full, or had no buffer. */
uint64_t device_missed(void);

/* Segments of other workers' connections (resteer.c). */
void resteer_open(const struct message_answer *config, int inbox, const int *outbox);
void resteer_forget(void);
/* Hands over those that are not this worker's. Returns how many are left. */
unsigned resteer_strays(struct rte_mbuf **m, unsigned count);
/* Those that others hand over, and that are for this worker. */
unsigned resteer_receive(struct rte_mbuf **m, unsigned max, uint64_t now_ns);
/* As device_seen_ns(). NEVER: the inbox was empty. */
uint64_t resteer_seen_ns(void);

/* What the stack has to send, and what waits for a neighbour (outgoing.c). */
void outgoing_send(uint64_t now_ns);
/* When it is to be looked again, or then. */
uint64_t outgoing_due(uint64_t otherwise_ns);
/* Packets without a way, or to a neighbour that did not answer in time. */
uint64_t outgoing_unreachable(void);
/* A child process: the packets are its parent's. */
void outgoing_forget(void);

int route_open(int ifindex);
/* The MAC address of the next hop. NULL: none; `waits`: the kernel is asked to find it, else there
 * is no way by the served interface. */
const uint8_t *route_mac(const struct sy_addr *dst, bool *waits);
/* The source address that the kernel would take; false: not by the served interface. */
bool route_source(const struct sy_addr *dst, struct sy_addr *out);
/* The kernel's neighbours or routes may have changed. */
void route_check(void);
void route_forget(void);

/* ---- readiness (epoll_ctl.c) ----------------------------------------------------------------- */

uint32_t sock_ready(struct sock *s); /* EPOLL* */
void sock_event(struct sock *s);
/* Of what is unread; SY_USUAL without hooks. */
unsigned sock_level(const struct sock *s);
void sets_started(void);
void sets_forked(void);
/* It was the kernel's socket when the program put it into epoll instances. */
void watches_to_stack(struct sock *s);
void watches_end(struct sock *s);
/* Does a thread sleep at an epoll instance that it is in? */
bool watches_sleep(const struct sock *s);
/* It is the kernel's again, and stays a socket that may be connected. */
void watches_to_kernel(struct sock *s);
/* It is the kernel's from now on: epoll instances watch its descriptors there. */
void watches_relay(struct sock *s);
void set_end(struct set *set);
/* Not locked. Another epoll instance waits for this one; -1: poll() does. */
void set_nest(int fd, int outer);

/* ---- hooks (hooks.c) ------------------------------------------------------------------------- */

/* After the stack has started. Takes the page, which is closed; the socket is one of runner.fd. */
int hooks_open(int socket, int page);
void hooks_poll(void);
/* Has the supervisor gone? Its socket, the last of runner.fd, would wake whoever sleeps for ever.
 */
void hooks_check(void);
/* It listens now: its connections get the hook that was ordered for it. */
void hooks_listen(const struct sock *s);
void hooks_forget(void);

/* ---- addresses (connect.c) ----------------------------------------------------------------------
 */

bool addr_is_any(const struct sy_addr *a);
/* Of the kernel's: a TCP socket of IPv4 or IPv6: its family. 0: something else. */
int socket_family(int fd);
/* Would connect() open this connection on the stack? Then sendto() with MSG_FASTOPEN does, too. */
bool connect_is_due(int fd, const struct sockaddr *addr, socklen_t len);
int socket_local(int fd, struct sy_stack_endpoint *out);
int endpoint_from(const struct sockaddr *from, socklen_t len, struct sy_stack_endpoint *out);
void endpoint_to(const struct sy_stack_endpoint *e, int family, struct sockaddr *to,
                 socklen_t *len);

/* To the program, as getsockname(): 0, or a negative errno. */
int name_return(const struct sy_stack_endpoint *e, int family, struct sockaddr *to, socklen_t *len);

/* ---- options (sockopt.c, sockopt_kernel.c) ------------------------------------------------------
 */

/* Takes over what was set on the kernel's socket. */
void options_read(struct sock *s, int fd);
/* Has this socket of the kernel's an option that only Linux can follow? Then it stays Linux's. */
bool options_bind(int fd);
/* Passes the socket's options to a connection or a listener of the stack. */
void options_apply(const struct sock *s, sy_stack_id id);

/* ---- facts (info.c) -------------------------------------------------------------------------- */

struct sy_stack_info info_of(const struct sock *s);
#define INFO_BYTES 512
/* TCP_INFO, as the kernel has it. Returns its size. */
socklen_t info_get(const struct sock *s, void *out);

/* Linux returns EFAULT for other addresses, and so do calls here: at the lowest page no program has
 * memory, and above half of all is the kernel's. An address between these that is not mapped is not
 * found: that would cost a system call for each send() and recv(). */
static inline bool is_user_memory(const void *at)
{
	return (intptr_t)at >= 4096;
}

static inline bool is_past(uint64_t deadline_ns)
{
	return deadline_ns != NEVER && sy_clock_ns() >= deadline_ns;
}

/* errno = -rc and -1, or rc. */
static inline long result(long rc)
{
	if (rc >= 0)
		return rc;
	errno = (int)-rc;
	return -1;
}

#endif
