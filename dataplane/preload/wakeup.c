// SPDX-License-Identifier: Apache-2.0
/*
 * What wakes the leader (waiter.c): the stack's descriptors, and a timer.
 *
 *     packets: first queue ──────────────────────────┐
 *     packets: other queues, inbox ─┐                ├─▶ the leader's ppoll()
 *     the supervisor, the timer ────────┴─▶ rest ────────┤
 *                                                    └─▶ gate ─▶ epoll instances that contain
 * others
 *
 * And the watch: a leader that returns to the program for some microseconds leaves the gate alone,
 * as to appoint another one would cost a system call or a switch for each request. If no thread
 * comes back, the helper thread appoints one.
 */
#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>

#include "preload.h"
#include "real.h"
#include "wakeup.h"

#define WATCH_NS     (100 * (uint64_t)1000) /* for so long a gate may be without a leader */
#define WATCH_MAX_NS (10 * WATCH_NS)        /* and this long while no leader has stayed away */
#define WATCH_IDLE   16                     /* looks without need */

static uint64_t timer_ns = NEVER; /* when the timer expires */
static int gate = -1, rest = -1, timer = -1;

static struct {
	sem_t wakeup;
	bool on, rings;
	unsigned left;       /* leaders that have left: counted under the lock */
	unsigned seen, idle; /* of these at the last look; looks since the last one has */
	unsigned fine;       /* looks since one has stayed away */
	uint64_t step_ns;    /* between looks */
} watch = {.step_ns = WATCH_NS};

/* ---- the stack's descriptors ----------------------------------------------------------------- */

static int add(int to, int fd)
{
	struct epoll_event e = {.events = EPOLLIN};

	return REAL(epoll_ctl)(to, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

int gate_open(const int *fd, unsigned count)
{
	int rc;

	gate = table_own(epoll_create1(EPOLL_CLOEXEC));
	rest = table_own(epoll_create1(EPOLL_CLOEXEC));
	timer = table_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (gate < 0 || rest < 0 || timer < 0)
		return -errno;
	timer_ns = NEVER;
	rc = add(rest, timer);
	if (!rc)
		rc = add(gate, rest);
	for (unsigned i = 0; i < count && !rc; i++)
		rc = add(i ? rest : gate, fd[i]);
	return rc;
}

int gate_fd(void)
{
	return gate;
}

void gate_fill(struct pollfd p[GATE_FDS], bool leads)
{
	p[0] = (struct pollfd){.fd = leads ? rest : -1, .events = POLLIN};
	p[1] = (struct pollfd){.fd = leads ? runner.fd[0] : -1, .events = POLLIN};
}

void gate_remove(int fd)
{
	REAL(epoll_ctl)(rest, EPOLL_CTL_DEL, fd, NULL);
}

void gate_close(void)
{
	leader_forget();
	table_disown(gate);
	table_disown(rest);
	table_disown(timer);
	gate = rest = timer = -1;
	watch.on = watch.rings = false;
}

void watch_reset(void)
{
	watch.on = watch.rings = false;
	sem_init(&watch.wakeup, 0, 0); /* the parent's helper thread waits there */
}

void gate_timer_set(uint64_t due_ns)
{
	struct itimerspec t = {
	        .it_value = {(time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000)}};

	if (due_ns >= timer_ns)
		return;
	timerfd_settime(timer, TFD_TIMER_ABSTIME, &t, NULL);
	timer_ns = due_ns;
}

void timer_seen(uint64_t now_ns)
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
	sem_init(&watch.wakeup, 0, 0);
}

void watch_begin(void)
{
	__atomic_store_n(&watch.left, watch.left + 1, __ATOMIC_RELAXED);
	watch.rings |= !watch.on;
	__atomic_store_n(&watch.on, true, __ATOMIC_RELAXED);
}

bool watch_rings(void)
{
	bool rings = watch.rings;

	watch.rings = false;
	return rings;
}

sem_t *watch_bell(void)
{
	return &watch.wakeup;
}

void watch_sleep(uint64_t ns)
{
	uint64_t until = sy_clock_ns() + ns;
	struct timespec t = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
	const struct timespec step = {.tv_nsec = (long)watch.step_ns};

	if (__atomic_load_n(&watch.on, __ATOMIC_RELAXED))
		nanosleep(&step, NULL);
	else
		sem_clockwait(&watch.wakeup, CLOCK_MONOTONIC, &t);
}

static bool is_left(uint64_t now_ns)
{
	return leader_is_away() && now_ns - runner.now_ns > WATCH_NS;
}

/* Looks become rarer while each leader comes back in time. */
bool watch_wants(uint64_t now_ns)
{
	unsigned left = __atomic_load_n(&watch.left, __ATOMIC_RELAXED);

	if (!__atomic_load_n(&watch.on, __ATOMIC_RELAXED))
		return false;
	if (is_left(now_ns)) {
		watch.fine = 0;
		watch.step_ns = WATCH_NS;
		return true;
	}
	if (++watch.fine % WATCH_IDLE == 0 && watch.step_ns < WATCH_MAX_NS)
		watch.step_ns *= 2;
	watch.idle = watch.seen == left ? watch.idle + 1 : 0;
	watch.seen = left;
	return watch.idle > WATCH_IDLE;
}

bool watch_look(void)
{
	if (watch.idle > WATCH_IDLE && !leader_is_away())
		__atomic_store_n(&watch.on, false, __ATOMIC_RELAXED);
	if (!watch.on || !is_left(sy_clock_ns()))
		return false;
	leader_replace();
	return true;
}
