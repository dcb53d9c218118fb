// SPDX-License-Identifier: Apache-2.0
/*
 * The end of the process: peers get what the program has sent, and other processes get the
 * connections that it has not accepted (docs/design/0067-reload-without-a-gap.md).
 *
 *     exit(), _exit() ─▶ drain(), while peers acknowledge data
 *     a signal ─▶ handlers.c ─▶ process_end_request() ─▶ default action
 *                                    │     ▲ done, or a deadline
 *                                    ▼     │
 *                 the helper thread: process_end_serve()
 *
 * The handler waits, because the program must not continue. It may have interrupted code that has
 * malloc()'s lock: if the helper thread needs that lock, the signal ends the process at the
 * deadline.
 */
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include <sy_patience.h>

#include "packets.h"
#include "real.h"
#include "wakeup.h"

#define DRAIN_NS      (1000 * MS)  /* since a peer has last acknowledged data */
#define DRAIN_MAX_NS  (10000 * MS) /* in all: another worker may wait for this one's queues */
#define DRAIN_STEP_NS (100 * MS)   /* between checks */
#define REQUEST_NS    (5000 * MS)  /* the deadline of a handler */
#define ACKED_MS      200          /* for handshakes, and for peers to acknowledge the last bytes */

static bool requested, done; /* atomic */

/* Locked. */
static void sockets_end(void)
{
	serve_exit();
	for (struct sock *s = all_socks; s; s = s->next) {
		if (s->o.kind == OBJECT_LISTENER)
			listener_retire(s);
		if (s->id == SY_STACK_NONE || s->relay)
			continue;
		sy_stack_set_cookie(runner.stack, s->id, 0);
		sy_stack_close(runner.stack, s->id, sy_clock_ns());
		s->id = SY_STACK_NONE;
	}
}

/* ---- exit() ---------------------------------------------------------------------------------- */

/* Waits until peers have acknowledged what was sent: it would be lost with the process. */
static void drain(void)
{
	struct sy_stack_usage use;
	struct signals signals = {0};
	struct wait wait = {0};
	struct pollfd p[WAIT_OWN];
	struct sy_patience idle, all;
	uint64_t acknowledged;

	if (!runner.stack || !runner_lock())
		return;
	sockets_end();
	relays_linger();
	idle = sy_patience_begin(DRAIN_NS, DRAIN_STEP_NS);
	all = sy_patience_begin(DRAIN_MAX_NS, DRAIN_STEP_NS);
	sy_stack_usage(runner.stack, &use);
	do {
		acknowledged = use.orphans_taken;
		runner_poll();
		sy_stack_usage(runner.stack, &use);
		if (use.orphans_taken != acknowledged)
			idle = sy_patience_begin(DRAIN_NS, DRAIN_STEP_NS);
		if (use.connections <= use.time_wait || !sy_patience_left(&idle) ||
		    !sy_patience_left(&all))
			break;
		if (!wait.waiter && wait_enter(&wait, 0))
			break;
		wait_sleep(&wait, p, WAIT_OWN, sy_clock_ns() + DRAIN_STEP_NS, &signals);
	} while (true);
	wait_leave(&wait);
	runner.stack = NULL;
	runner.refused = true;
	runner_unlock();
	signals_restore(&signals);
}

__attribute__((destructor)) static void at_exit(void)
{
	drain();
}

#define LEAVE(name)                                                                                \
	PRELOAD_EXPORT void name(int status)                                                       \
	{                                                                                          \
		void (*real)(int) = (void (*)(int))dlsym(RTLD_NEXT, #name);                        \
		drain();                                                                           \
		real(status);                                                                      \
		__builtin_unreachable();                                                           \
	}
LEAVE(_exit)
LEAVE(_Exit)

__attribute__((constructor)) static void at_start(void)
{
	at_quick_exit(drain);
}

/* ---- signals --------------------------------------------------------------------------------- */

void process_end_request(void)
{
	const struct timespec gap = {.tv_nsec = (long)MS};
	struct sy_patience patience;

	if (!runner.stack || runner.pid != getpid())
		return;
	patience = sy_patience_begin(REQUEST_NS, MS);
	__atomic_store_n(&requested, true, __ATOMIC_RELEASE);
	sem_post(watchdog_semaphore());
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE) && sy_patience_left(&patience))
		nanosleep(&gap, NULL);
}

/* Keeps the lock, so that no thread changes anything any more. */
void process_end_serve(void)
{
	const struct timespec gap = {.tv_nsec = (long)MS};
	struct sy_stack_usage use;

	if (!__atomic_load_n(&requested, __ATOMIC_ACQUIRE) || !runner_lock())
		return;
	if (runner.stack)
		sockets_end();
	for (unsigned i = 0; runner.stack && i < ACKED_MS; i++) {
		runner_poll();
		if (device_kick_wanted()) /* as runner_unlock() would */
			device_kick();
		sy_stack_usage(runner.stack, &use);
		if (!use.half_open && !use.orphans)
			break;
		nanosleep(&gap, NULL);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
}

void process_end_forget(void)
{
	requested = done = false;
}
