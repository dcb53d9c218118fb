// SPDX-License-Identifier: Apache-2.0
/*
 * The stack of this process. It runs on the program's own threads, at their calls, one at a time.
 * A helper thread takes a turn where the program has made no call for HELPER_MS, so that peers get
 * acknowledgements and timers run while it computes.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include <sy_large.h>

#include "preload.h"
#include "real.h"

#define HELPER_MS     10
#define HELPER_POLLS  32           /* at most, one after the other */
#define HELPER_GAP_NS 20000        /* between them, for the program's calls */
#define RETRY_NS      (100 * MS)   /* asks for a queue again */
#define LONG_NS       (10000 * MS) /* for which it has waited when it warns */

struct runner runner = {.due_ns = NEVER};
static bool helper_runs;
static int link_fd = -1, large_fd = -1;

/* ---- the thread that takes turns while the program computes ---------------------------------- */

/* Returns whether the stack has more to send. */
static bool helper_poll(bool again)
{
	static uint64_t checked_ns;
	uint64_t now = sy_clock_ns();
	bool more = false, check = !again && now - checked_ns > HELPER_MS * MS;

	if ((!again && !check && !watchdog_is_due(now)) || !runner_trylock())
		return false;
	if (runner.stack) {
		if (check) {
			checked_ns = now;
			route_check();
			hooks_check();
			serve_check();
		}
		if (watchdog_check())
			runner_poll();
		again = again || now - runner.now_ns > HELPER_MS * MS;
		if (again && (!runner.sleepers || runner.unsent)) {
			runner_poll();
			more = runner.due_ns == 0;
		}
	}
	runner_unlock();
	return more;
}

static void *helper(void *arg)
{
	const struct timespec gap = {.tv_nsec = HELPER_GAP_NS};

	for (;;) {
		watchdog_sleep(HELPER_MS * MS);
		process_end_serve();
		for (unsigned i = 0; i < HELPER_POLLS && helper_poll(i > 0); i++)
			nanosleep(&gap, NULL);
	}
	return NULL;
}

/* ---- start ----------------------------------------------------------------------------------- */

static int stack_make(const struct message_answer *c)
{
	struct sy_stack_options o = {.pool = device_pool(),
	                             .connections = c->connections,
	                             .mtu = c->mtu,
	                             .toa = c->toa,
	                             .pacing = c->pacing,
	                             .unfinished = c->unfinished,
	                             .not_inherited = true,
	                             .port_first = c->port_first,
	                             .port_last = c->port_last};
	struct sy_error err = {0};
	if (c->large)
		o.tso = (struct sy_stack_tso){
		        .ipv4 = true, .ipv6 = true, .buffers = SY_LARGE_BUFFERS};
	/* Each worker has its share of the ports, so that no two take one. */
	unsigned share = (unsigned)(c->port_last - c->port_first + 1) / c->workers;

	o.port_first = (uint16_t)(c->port_first + share * c->worker);
	o.port_last = (uint16_t)(o.port_first + share - 1);
	if (getrandom(o.secret, sizeof(o.secret), 0) != sizeof(o.secret))
		return -errno;
	int rc = sy_stack_create(&o, sy_clock_ns(), &runner.stack, &err);
	if (rc)
		sy_log(SY_LOG_ERROR, "run", "%s", err.text);
	return rc;
}

struct beginning {
	void *(*run)(void *);
	sem_t begun;
};

static void *thread_begin(void *arg)
{
	struct beginning *beginning = arg;
	void *(*run)(void *) = beginning->run;

	sem_post(&beginning->begun);
	return run(NULL);
}

/* Returns once the thread runs. A thread that begins holds locks of its own kind, such as those of
 * AddressSanitizer's allocator: a fork() at that moment leaves them locked in the child. */
int runner_thread(void *(*run)(void *))
{
	struct beginning beginning = {.run = run};
	sigset_t all, before;
	pthread_t thread;
	int rc;

	sem_init(&beginning.begun, 0, 0);
	sigfillset(&all); /* signals are the program's */
	pthread_sigmask(SIG_BLOCK, &all, &before);
	rc = -pthread_create(&thread, NULL, thread_begin, &beginning);
	if (!rc) {
		while (sem_wait(&beginning.begun) && errno == EINTR)
			;
		pthread_detach(thread);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static int helper_start(void)
{
	int rc = helper_runs ? 0 : runner_thread(helper);

	helper_runs = !rc;
	return rc;
}

void runner_prepare(void)
{
	struct sy_error err = {0};

	if (!all_socks || !supervisor_config() || !runner_lock())
		return;
	bool refused = runner.refused;
	runner.refused = true; /* whatever EAL calls comes here */
	int code = errno, rc = refused ? 0 : device_prepare(&err);
	if (!refused && !rc)
		rc = helper_start();
	if (rc)
		sy_log(SY_LOG_WARN, "run", "pid %d: %s: Linux serves it", getpid(),
		       err.text[0] ? err.text : strerror(-rc));
	runner.refused = refused;
	errno = code;
	runner_unlock();
}

/* The stack did not start: the supervisor has the place for another process. */
static void start_undo(int memory)
{
	if (table_get(memory)) /* device_open() did not come to it */
		table_disown(memory);
	for (unsigned i = 0; i < runner.rx; i++)
		table_disown(runner.fd[i]);
	wakeup_close();
	table_disown(link_fd);
	table_disown(large_fd);
	resteer_forget();
	route_forget();
	hooks_forget();
	if (runner.stack)
		sy_stack_destroy(runner.stack);
	device_close();
	runner.stack = NULL;
	runner.rx = 0;
	link_fd = large_fd = -1;
	supervisor_forget();
}

static int start(struct message_answer *out)
{
	struct message_answer c;
	struct sy_error err = {0};
	int fd[MESSAGE_FDS], rc = supervisor_start(&c, fd);
	const int *hooks = fd + 2 + c.queues; /* behind all others */

	if (rc == -EBUSY)
		return rc;
	if (rc) {
		sy_log(SY_LOG_ERROR, "run", "pid %d gets no queue: %s: Linux serves it", getpid(),
		       strerror(-rc));
		return rc;
	}
	link_fd = fd[0];
	runner.rx = c.queues;
	memcpy(runner.fd, fd + 2, c.queues * sizeof(*fd));
	if (c.workers > 1) {
		resteer_open(&c, fd[2 + c.queues], fd + 3 + c.queues);
		runner.fd[runner.rx++] = fd[2 + c.queues];
		hooks += 1 + c.workers;
	}
	runner.fd[runner.rx++] = hooks[0];
	large_fd = c.large ? hooks[2] : -1;
	rc = device_open(&c, fd[1], runner.fd, large_fd, &err);
	if (rc) {
		sy_log(SY_LOG_ERROR, "run", "pid %d: %s", getpid(), err.text);
		table_disown(hooks[1]);
		start_undo(fd[1]);
		return rc;
	}
	rc = wakeup_open(runner.fd, runner.rx);
	if (!rc)
		rc = route_open(c.ifindex);
	if (!rc)
		rc = stack_make(&c);
	if (!rc)
		rc = hooks_open(hooks[0], hooks[1]);
	else
		table_disown(hooks[1]);
	if (!rc)
		rc = supervisor_bound();
	if (!rc)
		rc = helper_start();
	if (rc) {
		sy_log(SY_LOG_ERROR, "run", "pid %d: the stack does not start: %s", getpid(),
		       strerror(-rc));
		start_undo(-1);
		return rc;
	}
	*out = c;
	return 0;
}

/* A worker that ends leaves its queues to the next, as at a reload of nginx. */
uint64_t runner_patience_ns(void)
{
	return runner.pending && runner.wanted ? RETRY_NS : NEVER;
}

/* This process serves them by Linux's sockets, as long as it has no queue: so do its siblings, then
 * (supervisor_ports.c). */
static void listeners_announce(void)
{
	if (runner.announced || !runner.pending || !runner.wanted)
		return;
	runner.announced = true;
	for (struct sock *s = all_socks; s; s = s->next)
		if (s->o.kind == OBJECT_LISTENER && s->used)
			supervisor_listen(s, true, true);
}

bool runner_starts(void)
{
	return !runner.stack &&
	       (!runner.refused || (runner.pending && sy_clock_ns() - runner.now_ns >= RETRY_NS));
}

/* A new worker that waits until an old one ends is usual when a program reloads. */
static void queue_wait_log(void)
{
	if (!runner.pending) {
		runner.pending_ns = runner.now_ns;
		sy_log(SY_LOG_INFO, "run",
		       "pid %d waits for a queue: all workers have theirs, and it gets the first "
		       "one that is free",
		       getpid());
	} else if (!runner.waited && runner.now_ns - runner.pending_ns >= LONG_NS) {
		runner.waited = true;
		sy_log(SY_LOG_WARN, "run",
		       "pid %d has waited for a queue for %u s: as many processes as --workers "
		       "says "
		       "have queues, and Linux takes the new connections to the ports where more "
		       "of them wait; remedy: a higher --workers, or fewer processes; after a "
		       "reload, let old workers end (nginx: worker_shutdown_timeout)",
		       getpid(), (unsigned)(LONG_NS / (1000 * MS)));
	}
}

int runner_start(void)
{
	if (runner.stack)
		return 0;
	if (!runner_starts())
		return -ENOTSUP;
	runner.refused = true; /* whatever EAL calls comes here */
	struct message_answer c;
	int code = errno, rc = supervisor_config() ? start(&c) : -ENOTSUP;
	runner.now_ns = sy_clock_ns();
	if (rc == -EBUSY)
		queue_wait_log();
	runner.pending = rc == -EBUSY;
	listeners_announce();
	if (rc && !runner.pending) /* Linux serves what this process listens to */
		for (struct sock *s = all_socks; s; s = s->next)
			if (s->o.kind == OBJECT_LISTENER)
				supervisor_listen(s, false, false);
	errno = code;
	if (rc)
		return rc;
	runner.refused = false;
	runner.pid = getpid();
	for (struct sock *s = all_socks; s; s = s->next)
		if (s->o.kind == OBJECT_LISTENER && s->used)
			runner_listen(s);
	sets_started();
	signals_arm();
	sy_log(SY_LOG_INFO, "run", "pid %d is worker %u of %u: %u queues of %s from %u", getpid(),
	       c.worker, c.workers, c.queues, c.ifname, c.queue[0]);
	errno = code;
	return 0;
}

/* ---- a child ------------------------------------------------------------------------------------
 */

/* A signal handler may fork where it has interrupted the stack: the lock is the interrupted call's.
 */
static __thread bool fork_locked;
static bool child_inherits; /* the child is the heir (exec.c) */

void runner_fork(void)
{
	if (child_inherits)
		return;
	fork_locked = runner_lock();
	if (fork_locked)
		relays_fork();
}

static void fork_parent(void)
{
	if (child_inherits)
		return;
	if (!fork_locked)
		return;
	serve_forked();
	runner_unlock();
}

/* The stack stays with the parent. Listeners are the child's as well; connections are not. */
static void fork_child(void)
{
	if (child_inherits)
		return;
	for (unsigned i = 0; i < runner.rx; i++)
		table_disown(runner.fd[i]);
	table_disown(link_fd);
	table_disown(large_fd);
	resteer_forget();
	hooks_forget();
	outgoing_forget();
	supervisor_forget();
	if (runner.stack)
		route_forget();
	device_forget();
	helper_runs = false;
	/* A signal handler that interrupts EAL leaves its locks as they are. */
	runner = (struct runner){.due_ns = NEVER, .refused = !fork_locked};
	link_fd = large_fd = -1;
	relays_forget();
	retired_forget();
	process_end_forget();
	for (struct sock *s = all_socks; s; s = s->next) {
		s->id = s->id_v4 = SY_STACK_NONE;
		s->o.links = NULL; /* the threads that wait are the parent's */
	}
	serve_forget_all();
	sets_forked();
	waiters_forked(!fork_locked);
}

void runner_forked(long pid)
{
	if (pid)
		fork_parent();
	else
		fork_child();
}

void runner_set_inherited(bool on)
{
	child_inherits = on;
	device_set_inherited(on);
	sy_stack_set_inherited(runner.stack, on);
}

void runner_inherit(void)
{
	runner.pid = getpid();
	runner.sleepers = runner.waking = 0;
	for (struct sock *s = all_socks; s; s = s->next)
		s->o.links = NULL;
	sets_forked();
	waiters_inherit();
	device_inherit();
	helper_runs = false;
	if (helper_start() || relays_inherit())
		sy_log(SY_LOG_ERROR, "run", "pid %d: no threads for connections", getpid());
	runner_unlock();
}

__attribute__((constructor)) static void at_start(void)
{
	pthread_atfork(runner_fork, fork_parent, fork_child);
}
