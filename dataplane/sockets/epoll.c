// SPDX-License-Identifier: Apache-2.0
/* Epoll instances: who looks at which descriptor, and which may be ready. */
#include <errno.h>

#include "context.h"

#define NEST_MOST 5 /* instances within instances, as on Linux */
#define ALWAYS    (EPOLLERR | EPOLLHUP)
#define FLAGS     (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE)

/* ---- the list of those that may be ready ----------------------------------------------------- */

static void ready_append(struct sy_tcp_context *c, struct descriptor *ep, uint32_t index)
{
	struct watch *w = &c->watch[index];

	w->ready = true;
	w->ready_before = ep->ready_last;
	w->ready_after = NO_WATCH;
	if (ep->ready_last == NO_WATCH)
		ep->ready_first = index;
	else
		c->watch[ep->ready_last].ready_after = index;
	ep->ready_last = index;
}

static void ready_remove(struct sy_tcp_context *c, struct descriptor *ep, uint32_t index)
{
	struct watch *w = &c->watch[index];

	if (w->ready_before == NO_WATCH)
		ep->ready_first = w->ready_after;
	else
		c->watch[w->ready_before].ready_after = w->ready_after;
	if (w->ready_after == NO_WATCH)
		ep->ready_last = w->ready_before;
	else
		c->watch[w->ready_after].ready_before = w->ready_before;
	w->ready = false;
}

void watch_ready(struct sy_tcp_context *c, uint32_t index)
{
	struct watch *w = &c->watch[index];
	struct descriptor *ep = &c->descriptor[w->epfd];

	if (w->ready || w->disabled)
		return;
	ready_append(c, ep, index);
	descriptor_news(c, ep); /* whoever looks at the instance; they nest no deeper than so */
}

static uint32_t watch_events(struct sy_tcp_context *c, const struct watch *w)
{
	return w->disabled ? 0 : sy_tcp_ready(c, w->fd) & ((w->events & ~FLAGS) | ALWAYS);
}

uint32_t epoll_ready(struct sy_tcp_context *c, struct descriptor *ep)
{
	while (ep->ready_first != NO_WATCH) {
		if (watch_events(c, &c->watch[ep->ready_first]))
			return POLLIN | POLLRDNORM;
		ready_remove(c, ep, ep->ready_first);
	}
	return 0;
}

/* ---- watches --------------------------------------------------------------------------------- */

static uint32_t *watch_find(struct sy_tcp_context *c, struct descriptor *d, int epfd)
{
	uint32_t *at = &d->watches;

	while (*at != NO_WATCH && c->watch[*at].epfd != epfd)
		at = &c->watch[*at].next;
	return at;
}

static int watch_make(struct sy_tcp_context *c, int epfd, int fd, const struct epoll_event *event)
{
	struct descriptor *ep = &c->descriptor[epfd], *d = &c->descriptor[fd];
	uint32_t index = c->watch_free;

	if (index != NO_WATCH)
		c->watch_free = c->watch[index].next;
	else if (c->watch_fresh < c->watches)
		index = c->watch_fresh++;
	else
		return -ENOSPC;
	c->watch[index] = (struct watch){
	        .fd = fd,
	        .epfd = epfd,
	        .next = d->watches,
	        .all_before = NO_WATCH,
	        .all_after = ep->all,
	        .events = event->events,
	        .data = event->data.u64,
	};
	d->watches = index;
	if (ep->all != NO_WATCH)
		c->watch[ep->all].all_before = index;
	ep->all = index;
	if (watch_events(c, &c->watch[index]))
		watch_ready(c, index);
	return 0;
}

/* at: where its descriptor's list names it. */
static void watch_drop(struct sy_tcp_context *c, uint32_t *at)
{
	uint32_t index = *at;
	struct watch *w = &c->watch[index];
	struct descriptor *ep = &c->descriptor[w->epfd];

	if (w->ready)
		ready_remove(c, ep, index);
	*at = w->next;
	if (w->all_before == NO_WATCH)
		ep->all = w->all_after;
	else
		c->watch[w->all_before].all_after = w->all_after;
	if (w->all_after != NO_WATCH)
		c->watch[w->all_after].all_before = w->all_before;
	w->next = c->watch_free;
	c->watch_free = index;
}

void watches_drop(struct sy_tcp_context *c, struct descriptor *d)
{
	while (d->watches != NO_WATCH)
		watch_drop(c, &d->watches);
	while (d->kind == KIND_EPOLL && d->all != NO_WATCH) {
		const struct watch *w = &c->watch[d->all];
		watch_drop(c, watch_find(c, &c->descriptor[w->fd], w->epfd));
	}
}

static int watch_change(struct sy_tcp_context *c, uint32_t index, const struct epoll_event *event)
{
	struct watch *w = &c->watch[index];

	if (w->events & EPOLLEXCLUSIVE || event->events & EPOLLEXCLUSIVE)
		return -EINVAL;
	w->events = event->events;
	w->data = event->data.u64;
	w->disabled = false;
	if (watch_events(c, w))
		watch_ready(c, index);
	return 0;
}

/* How deep instances are nested below this one; NEST_MOST + 1: too deep, or back to `top`. */
static unsigned nest_depth(const struct sy_tcp_context *c, int fd, int top, unsigned left)
{
	const struct descriptor *d = &c->descriptor[fd];
	unsigned depth = 1;

	if (d->kind != KIND_EPOLL)
		return 0;
	if (fd == top || left == 0)
		return NEST_MOST + 1;
	for (uint32_t w = d->all; w != NO_WATCH; w = c->watch[w].all_after) {
		unsigned below = 1 + nest_depth(c, c->watch[w].fd, top, left - 1);
		depth = below > depth ? below : depth;
	}
	return depth;
}

/* And above it. */
static unsigned nest_height(const struct sy_tcp_context *c, int fd)
{
	unsigned height = 1;

	for (uint32_t w = c->descriptor[fd].watches; w != NO_WATCH; w = c->watch[w].next) {
		unsigned above = 1 + nest_height(c, c->watch[w].epfd);
		height = above > height ? above : height;
	}
	return height;
}

/* ---- calls ----------------------------------------------------------------------------------- */

int sy_tcp_epoll_create(struct sy_tcp_context *c)
{
	int fd = descriptor_take(c, KIND_EPOLL);

	if (fd >= 0) {
		struct descriptor *d = &c->descriptor[fd];
		d->all = d->ready_first = d->ready_last = NO_WATCH;
	}
	return fd;
}

int sy_tcp_epoll_ctl(struct sy_tcp_context *c, int epfd, int op, int fd, struct epoll_event *event)
{
	struct descriptor *ep = descriptor_of(c, epfd), *d = descriptor_of(c, fd);
	uint32_t *at;

	if (!ep || !d)
		return -EBADF;
	if (ep->kind != KIND_EPOLL || epfd == fd)
		return -EINVAL;
	if (op != EPOLL_CTL_DEL && !event)
		return -EFAULT;
	at = watch_find(c, d, epfd);
	switch (op) {
	case EPOLL_CTL_ADD:
		if (event->events & EPOLLEXCLUSIVE && d->kind == KIND_EPOLL)
			return -EINVAL;
		if (*at != NO_WATCH)
			return -EEXIST;
		if (nest_depth(c, fd, epfd, NEST_MOST) + nest_height(c, epfd) > NEST_MOST)
			return -ELOOP;
		return watch_make(c, epfd, fd, event);
	case EPOLL_CTL_MOD:
		return *at == NO_WATCH ? -ENOENT : watch_change(c, *at, event);
	case EPOLL_CTL_DEL:
		if (*at == NO_WATCH)
			return -ENOENT;
		watch_drop(c, at);
		return 0;
	default:
		return -EINVAL;
	}
}

struct fetch {
	struct descriptor *ep;
	struct epoll_event *event;
	int most;
};

/* Each that may be ready is asked once: level-triggered ones go to the end of the list. */
static int fetch_check(struct sy_tcp_context *c, void *arg)
{
	const struct fetch *f = arg;
	uint32_t last = f->ep->ready_last, index = NO_WATCH;
	int count = 0;

	while (count < f->most && index != last) {
		uint32_t events;
		index = f->ep->ready_first;
		struct watch *w = &c->watch[index];
		ready_remove(c, f->ep, index);
		events = watch_events(c, w);
		if (!events)
			continue;
		f->event[count].events = events;
		f->event[count++].data.u64 = w->data;
		if (w->events & EPOLLONESHOT)
			w->disabled = true;
		else if (!(w->events & EPOLLET))
			ready_append(c, f->ep, index);
	}
	return count;
}

int sy_tcp_epoll_wait(struct sy_tcp_context *c, int epfd, struct epoll_event *event, int most,
                      int timeout_ms, const sigset_t *mask)
{
	struct fetch f = {.ep = descriptor_of(c, epfd), .event = event, .most = most};

	if (!f.ep)
		return -EBADF;
	if (f.ep->kind != KIND_EPOLL || most <= 0)
		return -EINVAL;
	return context_until(c, timeout_ms, mask, fetch_check, &f);
}
