// SPDX-License-Identifier: Apache-2.0
/*
 * The stack of this process. It runs on the program's own threads, in their calls, one at a time.
 * A helper thread polls it if the program has made no call for HELPER_MS, so that peers get
 * acknowledgements and timers run while the program computes.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include <sy_large.h>

#include "packets.h"
#include "real.h"

#define HELPER_MS     10
#define HELPER_POLLS  32           /* consecutive polls, at most */
#define HELPER_GAP_NS 20000        /* between them, for the program's calls */
#define RETRY_NS      (100 * MS)   /* between two requests for a queue */
#define LONG_NS       (10000 * MS) /* warn after waiting this long for a queue */

struct runner runner = {.due_ns = NEVER};
static bool helper_runs;
static int link_fd = -1, large_fd = -1;

/* ---- the helper thread ----------------------------------------------------------------------- */

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
	                             .listeners = STEER_SERVED,
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
	/* Each worker has its own part of the ports. */
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

struct thread_start {
	void *(*run)(void *);
	sem_t running;
};

static void *thread_run(void *arg)
{
	struct thread_start *start = arg;
	void *(*run)(void *) = start->run;

	sem_post(&start->running);
	return run(NULL);
}

/* Returns once the thread runs. A starting thread holds internal locks, such as those of
 * AddressSanitizer's allocator: a fork() at that moment would leave them locked in the child. */
int runner_thread(void *(*run)(void *))
{
	struct thread_start start = {.run = run};
	sigset_t all, before;
	pthread_t thread;
	int rc;

	sem_init(&start.running, 0, 0);
	sigfillset(&all); /* signals are for the program's threads */
	pthread_sigmask(SIG_BLOCK, &all, &before);
	rc = -pthread_create(&thread, NULL, thread_run, &start);
	if (!rc) {
		while (sem_wait(&start.running) && errno == EINTR)
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
	runner.refused = true; /* EAL's own calls come here as well */
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

/* Undoes a failed start: the supervisor assigns the worker slot to another process. */
static void stack_start_undo(int memory)
{
	if (table_get(memory)) /* device_open() has not closed it */
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

static int stack_start(struct message_answer *out)
{
	struct message_answer c;
	struct sy_error err = {0};
	int fd[MESSAGE_FDS], rc = supervisor_start(&c, fd);
	const int *hooks = fd + 2 + c.queues; /* behind all others */

	if (rc == -EBUSY)
		return rc;
	if (rc) {
		sy_log(SY_LOG_ERROR, "run", "pid %d does not get a queue: %s: Linux serves it",
		       getpid(), strerror(-rc));
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
		stack_start_undo(fd[1]);
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
		stack_start_undo(-1);
		return rc;
	}
	*out = c;
	return 0;
}

/* A worker that ends releases its queues to the next one, as at a reload of nginx. */
uint64_t runner_patience_ns(void)
{
	return runner.pending && runner.wanted ? RETRY_NS : NEVER;
}

/* Announces the listeners of a process without a queue: it serves them by Linux's sockets, and so
 * do its siblings then (supervisor_ports.c). */
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

/* A new worker waits until an old one ends when a program reloads: that is normal, unless it takes
 * long. */
static void queue_wait_log(void)
{
	if (!runner.pending) {
		runner.pending_ns = runner.now_ns;
		sy_log(SY_LOG_INFO, "run",
		       "pid %d waits for a queue: all are in use, and it gets the first that is "
		       "free",
		       getpid());
	} else if (!runner.warned && runner.now_ns - runner.pending_ns >= LONG_NS) {
		runner.warned = true;
		sy_log(SY_LOG_WARN, "run",
		       "pid %d has waited for a queue for %u s: as many processes as --workers "
		       "says have queues, and Linux accepts the new connections to the ports "
		       "where more of them wait; remedy: a higher --workers, or fewer processes; "
		       "after a reload, let old workers end (nginx: worker_shutdown_timeout)",
		       getpid(), (unsigned)(LONG_NS / (1000 * MS)));
	}
}

int runner_start(void)
{
	if (runner.stack)
		return 0;
	if (!runner_starts())
		return -ENOTSUP;
	runner.refused = true; /* EAL's own calls come here as well */
	struct message_answer c;
	int code = errno, rc = supervisor_config() ? stack_start(&c) : -ENOTSUP;
	runner.now_ns = sy_clock_ns();
	if (rc == -EBUSY)
		queue_wait_log();
	runner.pending = rc == -EBUSY;
	listeners_announce();
	if (rc && !runner.pending) /* Linux serves this process's listeners */
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

/* ---- a child --------------------------------------------------------------------------------- */

/* false: a signal handler forks, and has interrupted a call with the lock. */
static __thread bool fork_locked;
static bool child_inherits; /* the child is the successor (exec.c) */

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

/* In the child: forgets the stack, which stays the parent's, and its connections. Listeners belong
 * to both. */
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
	/* Without the lock no stack starts: EAL's locks may be held by the interrupted call. */
	runner = (struct runner){.due_ns = NEVER, .refused = !fork_locked};
	link_fd = large_fd = -1;
	relays_forget();
	retired_forget();
	process_end_forget();
	for (struct sock *s = all_socks; s; s = s->next) {
		s->id = s->id_v4 = SY_STACK_NONE;
		s->o.links = NULL; /* the waiting threads are the parent's */
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
