// SPDX-License-Identifier: Apache-2.0
/*
 * Whether the stack or Linux gets a listener's new connections (docs/design/0058-serving.md):
 *
 *     listen() ─▶ Linux ── the program waits there ─▶ the stack ── not accepted for a second ─┐
 *                   ▲                                   ▲                                     │
 *                   │                                   └───────── accept() ──────────────────┤
 *                   └─────────────────────────────────────────────────────────────────────────┘
 *
 * A process with a stack opens the backlog there at listen(). accept() accepts from both.
 */
#include <errno.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <time.h>

#include "preload.h"
#include "real.h"

#define UNACCEPTED_NS (1000 * MS)
/* Instead of UNACCEPTED_NS, for a program that computes or waits for a CPU. */
#define UNACCEPTED_BUSY_NS (10000 * MS)
/* A check later than this was delayed by the host, and so was the program. */
#define CHECK_MAX_NS (2 * MESSAGE_HEARTBEAT_MS * MS)
/* The program computes if its threads use more than this part of a CPU. */
#define COMPUTES 10

static struct sock *listeners; /* linked by next_listener */

void serve_add(struct sock *s)
{
	s->next_listener = listeners;
	listeners = s;
}

void serve_forget(const struct sock *s)
{
	struct sock **at = &listeners;

	while (*at && *at != s)
		at = &(*at)->next_listener;
	if (*at)
		*at = s->next_listener;
}

/* ---- the stack's side ------------------------------------------------------------------------ */

static bool is_any6(const struct sock *s)
{
	return s->local.addr.d[0] == 0 && s->local.addr.d[1] == 0;
}

static int endpoint_listen(const struct sock *s, const struct sy_stack_endpoint *local,
                           sy_stack_id *id)
{
	/* Linux's bind() has checked that all sockets at this address allow it. */
	__typeof__(&sy_stack_listen) listen =
	        s->options.reuse_port ? sy_stack_listen_shared : sy_stack_listen;
	int rc;

	do
		rc = listen(runner.stack, local, s->backlog, (uintptr_t)s, id);
	while (rc == -ENOMEM && retired_release());
	return rc;
}

static void stack_unlisten(struct sock *s)
{
	if (s->id != SY_STACK_NONE)
		sy_stack_close(runner.stack, s->id, sy_clock_ns());
	if (s->id_v4 != SY_STACK_NONE)
		sy_stack_close(runner.stack, s->id_v4, sy_clock_ns());
	s->id = s->id_v4 = SY_STACK_NONE;
}

/* Leaves a listener to Linux, with both of its families and all of its addresses. */
static void unsteered_leave(struct sock *s)
{
	static bool warned;

	port_close(s);
	stack_unlisten(s);
	s->unsteered = true;
	if (!warned)
		sy_log(SY_LOG_WARN, "run",
		       "port %u: the program listens at more addresses and ports than the %u that "
		       "are supported: Linux serves this port, and perhaps others",
		       ntohs(s->local.port), STEER_SERVED);
	warned = true;
}

static int stack_listen(struct sock *s)
{
	struct sy_stack_endpoint any4 = {.addr = sy_addr_v4(0), .port = s->local.port};
	bool any6 = is_any6(s);
	int rc = endpoint_listen(s, &s->local, &s->id);

	if (!rc && any6) /* IPv4 gets a listener of its own */
		sy_stack_listener_set(runner.stack, s->id, s->backlog, true);
	if (!rc && any6 && !s->v6_only)
		rc = endpoint_listen(s, &any4, &s->id_v4);
	if (rc) {
		stack_unlisten(s);
		return rc;
	}
	options_apply(s, s->id);
	if (s->id_v4)
		options_apply(s, s->id_v4);
	hooks_listen(s);
	return 0;
}

int serve_open(struct sock *s)
{
	int rc = 0;

	if (!runner.stack || s->ended || s->serves || s->yielded || s->passes || s->unsteered)
		return 0;
	if (s->id == SY_STACK_NONE)
		rc = stack_listen(s);
	if (!rc)
		rc = supervisor_listen(s, true, true);
	if (rc == -ENOSPC && ports_forget(true))
		rc = supervisor_listen(s, true, true);
	s->serves = !rc;
	if (rc == -ENOMEM || rc == -ENOSPC) {
		unsteered_leave(s);
		return 0;
	}
	return rc;
}

void serve_backlog(struct sock *s, unsigned backlog)
{
	s->backlog = backlog;
	if (runner.stack && s->id != SY_STACK_NONE)
		sy_stack_listener_set(runner.stack, s->id, backlog, is_any6(s));
	if (runner.stack && s->id_v4 != SY_STACK_NONE)
		sy_stack_listener_set(runner.stack, s->id_v4, backlog, false);
}

/* Stops listening at the end of the process, which still delivers its last bytes. Once its
 * descriptors are closed Linux refuses new connections, unless another process listens there. */
void serve_exit(void)
{
	for (struct sock *s = listeners; s; s = s->next_listener)
		if (s->o.refs > 0 && !s->ended)
			supervisor_listen(s, false, false);
	for (int fd = 0; listeners && fd < getdtablesize(); fd++) {
		const struct sock *s = table_sock(fd);
		if (s && s->o.kind == OBJECT_LISTENER)
			REAL(close)(fd);
	}
}

void serve_pause(bool on)
{
	for (const struct sock *s = listeners; s; s = s->next_listener)
		if (s->serves)
			supervisor_listen(s, !on, !on);
}

void serve_end(struct sock *s)
{
	s->serves = s->yielded = s->unaccepted = s->unsteered = false;
}

int runner_listen(struct sock *s)
{
	if (s->ended)
		return 0;
	s->used = true;
	runner.wanted = true;
	return serve_open(s);
}

/* ---- checks of the helper thread ------------------------------------------------------------- */

/* Returns whether this process sleeps, but not at this listener: in a call of this library, or in
 * another call (a lock), during which its call counter does not change. */
static bool sleeps_elsewhere(const struct sock *s)
{
	return !s->o.links && !watches_sleep(s) &&
	       (runner.sleepers > 0 || runner.calls == s->ready_calls);
}

/* Leaves a listener to other processes. This process serves one client at a time, while other
 * processes wait for the next client, perhaps for a lock. They cannot accept the connections queued
 * here, which would wait forever. */
static void unaccepted_leave(struct sock *s)
{
	s->passes = true;
	sy_log(SY_LOG_WARN, "run",
	       "port %u: pid %d serves one client at a time, and other processes wait for the next "
	       "ones: they get the waiting connections, and Linux accepts the later ones",
	       ntohs(s->local.port), getpid());
	listener_retire(s);
}

/* passed_ns: since the last check; idle_ns: the part of it in which the program has not
 * computed. */
static void unaccepted_find(struct sock *s, uint64_t passed_ns, uint64_t idle_ns)
{
	int others;

	if (!s->serves || !(sock_ready(s) & EPOLLIN)) {
		s->unaccepted = false;
		return;
	}
	if (!s->unaccepted) {
		s->unaccepted = true;
		s->unaccepted_ns = s->unaccepted_idle_ns = 0;
		s->ready_calls = runner.calls;
		return;
	}
	s->unaccepted_ns += passed_ns;
	s->unaccepted_idle_ns += idle_ns;
	if (s->unaccepted_idle_ns < UNACCEPTED_NS && s->unaccepted_ns < UNACCEPTED_BUSY_NS)
		return;
	others = supervisor_yield(s, false);
	s->serves = false;
	s->yielded = true;
	if (others > 0 && sleeps_elsewhere(s))
		unaccepted_leave(s);
}

void serve_accepted(struct sock *s)
{
	s->unaccepted = false;
	if (!s->yielded)
		return;
	s->yielded = false;
	serve_open(s);
}

/* The program passes a connection on, for instance to a child of node's cluster. This one is reset,
 * because another process cannot use it. Linux gets the later ones, which can be passed. */
void serve_passed(int fd)
{
	if (!runner_lock())
		return;
	struct sock *s = table_connection(fd);
	for (struct sock *l = s ? listeners : NULL; l; l = l->next_listener) {
		if (l->local.port != s->local.port || l->passes)
			continue;
		l->passes = true;
		supervisor_yield(l, true);
		l->serves = false;
		sy_log(SY_LOG_WARN, "run",
		       "port %u: pid %d passes connections on to other processes, and those of the "
		       "stack cannot be: this one is reset, and Linux accepts the later ones",
		       ntohs(l->local.port), getpid());
	}
	if (s && runner.stack && s->id != SY_STACK_NONE) {
		sy_stack_abort(runner.stack, s->id, sy_clock_ns());
		s->id = SY_STACK_NONE;
	}
	runner_flush();
	runner_unlock();
}

/* Returns whether the program's threads, without this one, have computed in the last `passed_ns`:
 * they used a part of a CPU, or one of them was preempted and waits for a CPU. */
static bool program_has_computed(uint64_t passed_ns)
{
	static int64_t last_cpu_ns, last_preempted;
	struct rusage all = {0}, own = {0};
	struct timespec cpu = {0}, own_cpu = {0};
	int64_t cpu_ns, preempted;
	bool has;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own_cpu);
	getrusage(RUSAGE_SELF, &all);
	getrusage(RUSAGE_THREAD, &own);
	cpu_ns = (int64_t)((cpu.tv_sec - own_cpu.tv_sec) * 1000 * MS) + cpu.tv_nsec -
	         own_cpu.tv_nsec;
	preempted = all.ru_nivcsw - own.ru_nivcsw;
	/* A child of fork() starts at 0: then the differences are negative. */
	has = (cpu_ns - last_cpu_ns) * COMPUTES > (int64_t)passed_ns || preempted > last_preempted;
	last_cpu_ns = cpu_ns;
	last_preempted = preempted;
	return has;
}

void serve_check(void)
{
	static uint64_t last_ns;
	uint64_t now_ns = sy_clock_ns(), passed_ns = now_ns - last_ns;
	bool computed;

	if (passed_ns < MESSAGE_HEARTBEAT_MS * MS)
		return;
	supervisor_heartbeat();
	ports_forget(false);
	computed = program_has_computed(passed_ns);
	last_ns = now_ns;
	if (passed_ns > CHECK_MAX_NS)
		passed_ns = CHECK_MAX_NS;
	for (struct sock *s = listeners; s; s = s->next_listener)
		unaccepted_find(s, passed_ns, computed ? 0 : passed_ns);
}

/* ---- fork() ---------------------------------------------------------------------------------- */

/* Leaves listeners at which this process does not wait to its children: each child has its own
 * stack or accepts from Linux's socket. Connections in the backlog move to that socket, too. */
void serve_forked(void)
{
	for (struct sock *s = listeners; s; s = s->next_listener) {
		if (!s->serves || s->used)
			continue;
		supervisor_listen(s, true, false);
		s->serves = false;
		listener_retire(s);
	}
}

void serve_forget_all(void)
{
	for (struct sock *s = listeners; s; s = s->next_listener) {
		serve_end(s);
		s->used = false;
	}
}
