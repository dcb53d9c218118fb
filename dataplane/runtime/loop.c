// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "loop.h"

struct watch {
	struct watch *next;
	int fd; /* −1: unwatched; freed at the end of the iteration, when no event refers to it */
	bool timer;
	void (*fn)(void *ctx);
	void *ctx;
};

struct deferred {
	struct deferred *next;
	void (*fn)(void *ctx);
	void *ctx;
};

struct loop {
	int epoll_fd, wake_fd;
	bool stopped; /* any thread, relaxed */
	struct watch *watches;
	struct deferred *first, **last;
};

int loop_watch(struct loop *l, int fd, void (*fn)(void *ctx), void *ctx)
{
	struct watch *w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	*w = (struct watch){.next = l->watches, .fd = fd, .fn = fn, .ctx = ctx};
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = w};
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev)) {
		int code = errno;
		free(w);
		return -code;
	}
	l->watches = w;
	return 0;
}

void loop_set_events(struct loop *l, int fd, unsigned events)
{
	for (struct watch *w = l->watches; w; w = w->next) {
		if (w->fd == fd) {
			struct epoll_event ev = {.events = events, .data.ptr = w};
			epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
			return;
		}
	}
}

static void watch_end(struct loop *l, struct watch *w)
{
	epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	if (w->timer)
		close(w->fd);
	w->fd = -1;
}

void loop_unwatch(struct loop *l, int fd)
{
	for (struct watch *w = l->watches; w && fd >= 0; w = w->next) {
		if (w->fd == fd) {
			watch_end(l, w);
			return;
		}
	}
}

static void watches_sweep(struct loop *l)
{
	for (struct watch **at = &l->watches; *at;) {
		struct watch *w = *at;
		if (w->fd >= 0) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		free(w);
	}
}

static void wake_consume(void *ctx)
{
	struct loop *l = ctx;
	uint64_t count;
	ssize_t got = read(l->wake_fd, &count, sizeof(count));
	(void)got; /* already empty */
}

int loop_open(struct loop **out)
{
	struct loop *l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->last = &l->first;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int rc = l->epoll_fd < 0 || l->wake_fd < 0 ? -errno : 0;
	if (!rc)
		rc = loop_watch(l, l->wake_fd, wake_consume, l);
	if (rc) {
		loop_close(l);
		return rc;
	}
	*out = l;
	return 0;
}

void loop_close(struct loop *l)
{
	if (!l)
		return;
	for (struct watch *w = l->watches; w; w = w->next)
		if (w->fd >= 0)
			watch_end(l, w);
	watches_sweep(l);
	while (l->first) {
		struct deferred *d = l->first;
		l->first = d->next;
		free(d);
	}
	if (l->wake_fd >= 0)
		close(l->wake_fd);
	if (l->epoll_fd >= 0)
		close(l->epoll_fd);
	free(l);
}

void loop_defer(struct loop *l, void (*fn)(void *ctx), void *ctx)
{
	struct deferred *d = malloc(sizeof(*d));
	if (!d) /* without the deferred work its owner would hang */
		abort();
	*d = (struct deferred){.fn = fn, .ctx = ctx};
	*l->last = d;
	l->last = &d->next;
}

int loop_every(struct loop *l, unsigned period_ms, void (*fn)(void *ctx), void *ctx)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	struct timespec period = {period_ms / 1000, period_ms % 1000 * 1000000l};
	struct itimerspec spec = {.it_interval = period, .it_value = period};
	int rc = timerfd_settime(fd, 0, &spec, NULL) ? -errno : loop_watch(l, fd, fn, ctx);
	if (rc)
		close(fd);
	else
		l->watches->timer = true;
	return rc;
}

/* Runs only work deferred before this iteration, so that work in pieces does not starve the
 * rest. */
static void deferred_run(struct loop *l)
{
	struct deferred *d = l->first;
	l->first = NULL;
	l->last = &l->first;
	while (d) {
		struct deferred *next = d->next;
		d->fn(d->ctx);
		free(d);
		d = next;
	}
}

int loop_poll(struct loop *l, int timeout_ms)
{
	struct epoll_event ev[32];
	deferred_run(l);
	int n = epoll_wait(l->epoll_fd, ev, 32, l->first || loop_is_stopped(l) ? 0 : timeout_ms);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++) {
		struct watch *w = ev[i].data.ptr;
		if (w->fd < 0)
			continue;
		uint64_t expirations;
		if (w->timer && read(w->fd, &expirations, sizeof(expirations)) < 0)
			continue;
		w->fn(w->ctx);
	}
	watches_sweep(l);
	return 0;
}

void loop_wake(struct loop *l)
{
	uint64_t one = 1;
	ssize_t put = write(l->wake_fd, &one, sizeof(one));
	(void)put; /* full: the loop is awake anyway */
}

void loop_stop(struct loop *l)
{
	__atomic_store_n(&l->stopped, true, __ATOMIC_RELAXED);
	loop_wake(l);
}

bool loop_is_stopped(const struct loop *l)
{
	return __atomic_load_n(&l->stopped, __ATOMIC_RELAXED);
}
