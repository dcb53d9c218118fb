// SPDX-License-Identifier: Apache-2.0
/*
 * Connections that children of fork() inherit (docs/design/0062-relays.md). The descriptor becomes
 * one end of a Unix socketpair, and a thread of this process moves bytes between the other end and
 * the stack's connection. While there are relays, that thread also waits for packets: the program
 * may be in calls that this library does not replace.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "real.h"
#include "relay.h"

#define EVENTS   64
#define RAISE    8192 /* descriptors for relays, beyond the program's limit */
#define BASE_MAX (TABLE_SIZE - 64 - RAISE)

struct relay *all_relays;

static struct {
	bool running, failed;
	int epoll, wake, requests;
	struct object object;       /* notified when a relay has bytes to move */
	struct relay *first, *last; /* relays with bytes to move */
	struct rlimit program;      /* the program's limit of descriptors */
	bool raised;
} thread = {.epoll = -1, .wake = -1, .requests = -1};

static char wake_mark, request_mark; /* their addresses mark the events of these descriptors */

/* ---- the thread ------------------------------------------------------------------------------ */

void relay_queue(struct relay *r)
{
	if (!r->queued) {
		r->queued = true;
		r->after = NULL;
		if (thread.last)
			thread.last->after = r;
		else
			thread.first = r;
		thread.last = r;
	}
	object_notify(&thread.object);
}

static void relays_move(void)
{
	struct relay *r = thread.first, *next;

	thread.first = thread.last = NULL;
	for (; r; r = next) {
		next = r->after;
		r->queued = false;
		if (relay_move(r))
			relay_queue(r);
	}
}

/* Sleeps until there is work. Waits for packets only while there are relays. It then leads, because
 * it went to sleep last (waiter.c), and packets wake no other thread. Locked, but for the sleep. */
static int thread_sleep(struct epoll_event *e, struct signals *signals)
{
	struct pollfd p[WAIT_OWN + 1] = {[WAIT_OWN] = {.fd = thread.epoll, .events = POLLIN}};
	struct wait wait = {0};
	uint64_t deadline = thread.first ? 0 : NEVER;

	if (!all_relays || !runner.stack || wait_enter(&wait, 1)) {
		runner_unlock();
		REAL(ppoll)(p + WAIT_OWN, 1, NULL, NULL);
		runner_lock();
	} else {
		wait_link(&wait, &thread.object, false);
		wait_sleep(&wait, p, WAIT_OWN + 1, deadline, signals);
		wait_leave(&wait);
	}
	return REAL(epoll_pwait)(thread.epoll, e, EVENTS, 0, NULL);
}

static void relay_event_note(struct relay *r, uint32_t events)
{
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		r->readable = true;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		r->writable = true;
	if (events & EPOLLHUP)
		r->hung_up = true;
	relay_queue(r);
}

/* No relay has ended since the events were fetched: only this thread ends them. */
static void events_note(const struct epoll_event *e, int count)
{
	uint64_t some;

	for (int i = 0; i < count; i++) {
		if (e[i].data.ptr == &wake_mark)
			REAL(read)(thread.wake, &some, sizeof(some));
		else if (e[i].data.ptr == &request_mark)
			relay_serve(thread.requests);
		else
			relay_event_note(e[i].data.ptr, e[i].events);
	}
}

static void *relay_thread(void *arg)
{
	struct epoll_event e[EVENTS];
	struct signals signals = {0};

	runner_lock();
	for (;;) {
		int n = thread_sleep(e, &signals);
		events_note(e, n);
		if (!runner.stack || !all_relays)
			continue;
		runner_poll();
		relays_move();
		runner_send();
	}
	return arg;
}

static void thread_watch(int fd, void *mark)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = mark};

	REAL(epoll_ctl)(thread.epoll, EPOLL_CTL_ADD, fd, &e);
}

static struct rlimit limit_raised(void)
{
	struct rlimit limit = thread.program;

	limit.rlim_cur += RAISE;
	if (limit.rlim_cur > limit.rlim_max)
		limit.rlim_cur = limit.rlim_max;
	return limit;
}

/* Raises the limit: relays use numbers above the program's limit, so that the program's stay
 * free. */
static void limit_raise(void)
{
	if (thread.raised || getrlimit(RLIMIT_NOFILE, &thread.program))
		return;
	struct rlimit limit = limit_raised();
	thread.raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void relays_limit(bool raised)
{
	struct rlimit limit = raised ? limit_raised() : thread.program;

	if (thread.raised)
		setrlimit(RLIMIT_NOFILE, &limit);
}

static int thread_start(void)
{
	if (thread.running)
		return 0;
	if (thread.failed)
		return -ENOTSUP;
	thread.failed = true;
	limit_raise();
	thread.epoll = table_own(epoll_create1(EPOLL_CLOEXEC));
	thread.wake = table_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	thread.requests = relay_serve_open();
	if (thread.epoll < 0 || thread.wake < 0 || thread.requests < 0)
		return -EMFILE;
	thread_watch(thread.wake, &wake_mark);
	thread_watch(thread.requests, &request_mark);
	int rc = runner_thread(relay_thread);
	thread.running = rc == 0;
	thread.failed = !thread.running;
	return rc;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Moves a descriptor of this library above the program's limit, so that the program gets the
 * numbers it expects. */
static int descriptor_raise(int fd)
{
	rlim_t base = thread.program.rlim_cur;
	int high = REAL(fcntl)(fd, F_DUPFD_CLOEXEC, base < BASE_MAX ? (int)base : BASE_MAX);

	if (high >= 0) {
		REAL(close)(fd);
		fd = high;
	}
	return table_own_as(fd);
}

static void options_copy(const struct sock *s, int fd)
{
	static const int names[] = {SO_RCVTIMEO, SO_SNDTIMEO, SO_KEEPALIVE, SO_LINGER};
	uint8_t value[SY_SOCKET_OPTION_BYTES];

	for (unsigned i = 0; i < SY_ARRAY_LEN(names); i++) {
		socklen_t len = sy_socket_option_get(&s->options, SOL_SOCKET, names[i],
		                                     sizeof(value), value);
		REAL(setsockopt)(fd, SOL_SOCKET, names[i], value, len);
	}
	if (s->nonblock)
		REAL(fcntl)(fd, F_SETFL, REAL(fcntl)(fd, F_GETFL) | O_NONBLOCK);
	if (s->read_shut || s->write_shut)
		REAL(shutdown)(fd, !s->write_shut ? SHUT_RD : !s->read_shut ? SHUT_WR : SHUT_RDWR);
}

/* Replaces the connection's descriptors of the program by `fd`, which is closed. */
static void numbers_replace(struct sock *s, int fd)
{
	unsigned left = s->o.refs;

	s->o.refs++; /* the relay's */
	for (int i = 0; left > 0; i++) {
		if (table_get(i) != &s->o)
			continue;
		int flags = REAL(fcntl)(i, F_GETFD);
		REAL(dup3)(fd, i, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
		relay_mark_locked(i);
		left--;
	}
	REAL(close)(fd);
	watches_relay(s);
}

static int pair_make(const struct sock *s, struct relay *r, int *program)
{
	int pair[2], rc = relay_name_make(s, relay_service(), r->name);

	if (rc)
		return rc;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	rc = relay_name_bind(pair[1], r->name);
	if (rc) {
		REAL(close)(pair[0]);
		REAL(close)(pair[1]);
		return rc;
	}
	REAL(fcntl)(pair[1], F_SETFL, REAL(fcntl)(pair[1], F_GETFL) | O_NONBLOCK);
	*program = pair[0];
	r->fd = descriptor_raise(pair[1]);
	return 0;
}

/* Disables Nagle's algorithm: the program's small writes are already merged when the relay reads
 * them. The program's own TCP_NODELAY is only stored. */
void relay_no_delay(const struct relay *r)
{
	sy_stack_set(runner.stack, r->s->id, SY_STACK_NO_DELAY, 1, sy_clock_ns());
}

static int relay_make(struct sock *s)
{
	uint64_t one = 1;
	struct relay *r = calloc(1, sizeof(*r));
	int program = -1, rc = r ? thread_start() : -ENOMEM;

	rc = rc ? rc : pair_make(s, r, &program);
	if (rc) {
		free(r);
		return rc;
	}
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = r};
	r->s = s;
	r->readable = r->writable = true;
	r->out_done = s->write_shut;
	r->next = all_relays;
	if (all_relays)
		all_relays->previous = r;
	all_relays = r;
	options_copy(s, program);
	numbers_replace(s, program);
	s->o.kind = OBJECT_RELAY;
	s->relay = r;
	relay_no_delay(r);
	REAL(epoll_ctl)(thread.epoll, EPOLL_CTL_ADD, r->fd, &e);
	relay_queue(r);
	if (!r->next) /* the thread does not wait for packets yet */
		REAL(write)(thread.wake, &one, sizeof(one));
	return 0;
}

static void relay_free(struct relay *r)
{
	if (r->previous)
		r->previous->next = r->next;
	else
		all_relays = r->next;
	if (r->next)
		r->next->previous = r->previous;
	table_disown(r->fd);
	r->s->relay = NULL;
	object_end(&r->s->o);
	free(r);
}

void relay_end(struct relay *r, int error)
{
	if (error)
		relay_note(r->name, error);
	/* A child has a copy until it has forgotten its parent's relays: close() alone would leave
	 * the freed relay in the epoll instance. */
	REAL(epoll_ctl)(thread.epoll, EPOLL_CTL_DEL, r->fd, NULL);
	relay_free(r);
	if (!all_relays)
		object_notify(&thread.object); /* relays_linger() */
}

/* ---- which connections ----------------------------------------------------------------------- */

/* Returns whether the connection's SYN has been answered and no thread waits for the connection. A
 * child also gets bytes that came before an error. */
static bool can_relay(const struct sock *s)
{
	return s->o.kind == OBJECT_CONNECTION && s->id != SY_STACK_NONE &&
	       info_of(s).state != SY_STACK_SYN_SENT && !s->o.links && s->o.refs > 0 &&
	       (s->reported || !(sy_stack_ready(runner.stack, s->id) & SY_STACK_ERROR));
}

/* Returns whether a child gets the connection: not if the process serves it in an event loop or in
 * another thread. */
static bool is_for_child(const struct sock *s)
{
	uint32_t mode = supervisor_config()->fork;

	if (mode != MESSAGE_FORK_AUTO)
		return mode == MESSAGE_FORK_RELAY;
	return !s->watches && !s->looped && pthread_equal(s->user, pthread_self());
}

static void relay_try(struct sock *s)
{
	int rc = relay_make(s);

	if (rc)
		sy_log(SY_LOG_ERROR, "run", "pid %d: a child does not get a connection: %s",
		       getpid(), strerror(-rc));
}

void relays_fork(void)
{
	for (struct sock *s = all_socks; s && runner.stack; s = s->next)
		if (can_relay(s) && is_for_child(s))
			relay_try(s);
}

void relay_pass(int fd)
{
	if (!table_connection(fd) || !runner_lock())
		return;
	struct sock *s = table_connection(fd);
	if (s && runner.stack && can_relay(s))
		relay_try(s);
	runner_unlock();
}

/* Returns whether one of its descriptors stays open in a program that is executed. */
static bool passes_on(const struct sock *s)
{
	unsigned left = s->o.refs;

	for (int fd = 0; left > 0 && fd < TABLE_SIZE; fd++) {
		if (table_get(fd) != &s->o)
			continue;
		if (!(REAL(fcntl)(fd, F_GETFD) & FD_CLOEXEC))
			return true;
		left--;
	}
	return false;
}

void relays_spawn(void)
{
	if (!runner.stack || runner.pid != getpid() || !runner_lock())
		return;
	for (struct sock *s = all_socks; s; s = s->next)
		if (can_relay(s) && is_for_child(s) && passes_on(s))
			relay_try(s);
	runner_unlock();
}

/* Other threads that wait for it end with the program. */
void relays_exec(void)
{
	for (struct sock *s = all_socks; s; s = s->next) {
		if (s->o.kind != OBJECT_CONNECTION || !passes_on(s))
			continue;
		object_closed(&s->o);
		if (can_relay(s))
			relay_try(s);
	}
}

int relays_inherit(void)
{
	thread.object.links = NULL;
	return thread.running ? runner_thread(relay_thread) : 0;
}

/* In a child: all relays are the parent's. */
void relays_forget(void)
{
	while (all_relays)
		relay_free(all_relays);
	table_disown(thread.epoll);
	table_disown(thread.wake);
	table_disown(thread.requests);
	relay_serve_forget();
	if (thread.raised)
		setrlimit(RLIMIT_NOFILE, &thread.program);
	memset(&thread, 0, sizeof(thread));
	thread.epoll = thread.wake = thread.requests = -1;
}

/* Serves the children's connections at the end of the process, until they end or a signal ends
 * it. */
void relays_linger(void)
{
	static const int ends[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP};
	struct signals signals = {0};
	struct wait wait = {0};
	struct pollfd p[WAIT_OWN];
	sigset_t set;

	if (!all_relays)
		return;
	sigemptyset(&set);
	for (unsigned i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		signal(ends[i], SIG_DFL);
		sigaddset(&set, ends[i]);
	}
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	while (all_relays && !wait_enter(&wait, 1)) {
		wait_link(&wait, &thread.object, false);
		wait_sleep(&wait, p, WAIT_OWN, NEVER, &signals);
		wait_leave(&wait);
		runner_poll(); /* packets and timers wake this thread, as the leader */
	}
	if (signals.blocked)
		pthread_sigmask(SIG_SETMASK, &signals.program, NULL);
}
