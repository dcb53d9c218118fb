// SPDX-License-Identifier: Apache-2.0
/*
 * What wakes the leader (waiter.c): the stack's descriptors, and a timer.
 *
 *     packets: first queue ─────────────────────────────┐
 *     packets: other queues, inbox ──┐                  ├─▶ the leader's ppoll()
 *     the supervisor, the timer ─────┴─▶ rest ──────────┤
 *                                                       └─▶ all ─▶ nested epoll instances
 *
 * The watchdog: a leader that returns to the program for some microseconds has no successor,
 * because a new leader would cost a system call or a thread switch for each request. If no thread
 * comes back, the helper thread makes another sleeping thread the leader.
 */
#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>

#include "preload.h"
#include "real.h"
#include "wakeup.h"

#define WATCHDOG_NS     (100 * (uint64_t)1000) /* how long there may be no leader */
#define WATCHDOG_MAX_NS (10 * WATCHDOG_NS)     /* the longest step while leaders return in time */
#define WATCHDOG_IDLE   16 /* checks without an absent leader, before it stops */

static uint64_t timer_ns = NEVER; /* when the timer expires */
static int all = -1, rest = -1, timer = -1;

static struct {
	sem_t wakeup;
	bool on, wakeup_due;
	unsigned left;       /* counts leaders' returns to the program; written under the lock */
	unsigned seen, idle; /* `left` at the last check; checks since it changed */
	unsigned fine;       /* checks since a leader was last overdue */
	uint64_t step_ns;    /* between checks */
} watchdog = {.step_ns = WATCHDOG_NS};

/* ---- the stack's descriptors ----------------------------------------------------------------- */

static int add(int to, int fd)
{
	struct epoll_event e = {.events = EPOLLIN};

	return REAL(epoll_ctl)(to, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

int wakeup_open(const int *fd, unsigned count)
{
	int rc;

	all = table_own(epoll_create1(EPOLL_CLOEXEC));
	rest = table_own(epoll_create1(EPOLL_CLOEXEC));
	timer = table_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (all < 0 || rest < 0 || timer < 0)
		return -errno;
	timer_ns = NEVER;
	rc = add(rest, timer);
	if (!rc)
		rc = add(all, rest);
	for (unsigned i = 0; i < count && !rc; i++)
		rc = add(i ? rest : all, fd[i]);
	return rc;
}

int wakeup_fd(void)
{
	return all;
}

void wakeup_fill(struct pollfd p[WAKEUP_FDS], bool leads)
{
	p[0] = (struct pollfd){.fd = leads ? rest : -1, .events = POLLIN};
	p[1] = (struct pollfd){.fd = leads ? runner.fd[0] : -1, .events = POLLIN};
}

void wakeup_remove(int fd)
{
	REAL(epoll_ctl)(rest, EPOLL_CTL_DEL, fd, NULL);
}

void wakeup_close(void)
{
	leader_forget();
	table_disown(all);
	table_disown(rest);
	table_disown(timer);
	all = rest = timer = -1;
	watchdog.on = watchdog.wakeup_due = false;
}

void watchdog_reset(void)
{
	watchdog.on = watchdog.wakeup_due = false;
	sem_init(&watchdog.wakeup, 0, 0); /* the parent's helper thread waits at it */
}

void wakeup_timer_set(uint64_t due_ns)
{
	struct itimerspec t = {
	        .it_value = {(time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000)}};

	if (due_ns >= timer_ns)
		return;
	timerfd_settime(timer, TFD_TIMER_ABSTIME, &t, NULL);
	timer_ns = due_ns;
}

void wakeup_timer_clear(uint64_t now_ns)
{
	uint64_t count;

	if (timer_ns > now_ns)
		return;
	REAL(read)(timer, &count, sizeof(count));
	timer_ns = NEVER;
}

/* ---- the watch ------------------------------------------------------------------------------- */

__attribute__((constructor)) static void doorbell_create(void)
{
	sem_init(&watchdog.wakeup, 0, 0);
}

void watchdog_start(void)
{
	__atomic_store_n(&watchdog.left, watchdog.left + 1, __ATOMIC_RELAXED);
	watchdog.wakeup_due |= !watchdog.on;
	__atomic_store_n(&watchdog.on, true, __ATOMIC_RELAXED);
}

bool watchdog_needs_wakeup(void)
{
	bool wakeup_due = watchdog.wakeup_due;

	watchdog.wakeup_due = false;
	return wakeup_due;
}

sem_t *watchdog_semaphore(void)
{
	return &watchdog.wakeup;
}

void watchdog_sleep(uint64_t ns)
{
	uint64_t until = sy_clock_ns() + ns;
	struct timespec t = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
	const struct timespec step = {.tv_nsec = (long)watchdog.step_ns};

	if (__atomic_load_n(&watchdog.on, __ATOMIC_RELAXED))
		nanosleep(&step, NULL);
	else
		sem_clockwait(&watchdog.wakeup, CLOCK_MONOTONIC, &t);
}

static bool is_overdue(uint64_t now_ns)
{
	return leader_is_away() && now_ns - runner.now_ns > WATCHDOG_NS;
}

/* Checks become rarer while leaders return in time. */
bool watchdog_is_due(uint64_t now_ns)
{
	unsigned left = __atomic_load_n(&watchdog.left, __ATOMIC_RELAXED);

	if (!__atomic_load_n(&watchdog.on, __ATOMIC_RELAXED))
		return false;
	if (is_overdue(now_ns)) {
		watchdog.fine = 0;
		watchdog.step_ns = WATCHDOG_NS;
		return true;
	}
	if (++watchdog.fine % WATCHDOG_IDLE == 0 && watchdog.step_ns < WATCHDOG_MAX_NS)
		watchdog.step_ns *= 2;
	watchdog.idle = watchdog.seen == left ? watchdog.idle + 1 : 0;
	watchdog.seen = left;
	return watchdog.idle > WATCHDOG_IDLE;
}

bool watchdog_check(void)
{
	if (watchdog.idle > WATCHDOG_IDLE && !leader_is_away())
		__atomic_store_n(&watchdog.on, false, __ATOMIC_RELAXED);
	if (!watchdog.on || !is_overdue(sy_clock_ns()))
		return false;
	leader_replace();
	return true;
}
