// SPDX-License-Identifier: Apache-2.0
/* Epoll instances: watches on descriptors, and which may be ready. */
#include <errno.h>
#include <stdlib.h>

#include "work_queue.h"

#define MAX_NEST  5 /* nested instances, as on Linux */
#define ALWAYS    (EPOLLERR | EPOLLHUP)
#define READ_SIDE (uint32_t)(EPOLLIN | EPOLLRDNORM)
#define FLAGS     (EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE)

/* ---- ready lists, by level ------------------------------------------------------------------- */

static struct instance *instance_of(struct sy_tcp_context *c, const struct watch *w)
{
	return c->descriptor[w->epfd].instance;
}

/* Inserts after `before`, the last one of this level; NO_WATCH: at the front. */
static void ready_put(struct sy_tcp_context *c, struct instance *ep, uint32_t index, unsigned level,
                      uint32_t before)
{
	struct watch *w = &c->watch[index];
	uint32_t after = before == NO_WATCH ? ep->ready[level].first : NO_WATCH;

	w->ready = true;
	w->level = (uint8_t)level;
	w->ready_before = before;
	w->ready_after = after;
	if (before == NO_WATCH)
		ep->ready[level].first = index;
	else
		c->watch[before].ready_after = index;
	if (after == NO_WATCH)
		ep->ready[level].last = index;
	else
		c->watch[after].ready_before = index;
	ep->ready[level].count++;
	ep->levels |= 1u << level;
}

static void ready_append(struct sy_tcp_context *c, struct instance *ep, uint32_t index,
                         unsigned level)
{
	ready_put(c, ep, index, level, ep->ready[level].last);
}

static void ready_remove(struct sy_tcp_context *c, struct instance *ep, uint32_t index)
{
	struct watch *w = &c->watch[index];

	if (w->ready_before == NO_WATCH)
		ep->ready[w->level].first = w->ready_after;
	else
		c->watch[w->ready_before].ready_after = w->ready_after;
	if (w->ready_after == NO_WATCH)
		ep->ready[w->level].last = w->ready_before;
	else
		c->watch[w->ready_after].ready_before = w->ready_before;
	if (--ep->ready[w->level].count == 0)
		ep->levels &= ~(1u << w->level);
	w->ready = false;
}

/* Returns the level of the watched descriptor; for an instance, of its most urgent watch. */
static unsigned watch_level(struct sy_tcp_context *c, const struct watch *w)
{
	const struct descriptor *d = &c->descriptor[w->fd];

	if (d->kind == KIND_EPOLL)
		return d->instance->levels ? (unsigned)__builtin_ctz(d->instance->levels)
		                           : SY_USUAL;
	return d->phase == PHASE_NEW ? SY_USUAL : sy_stack_level(c->stack, d->id);
}

void watch_ready(struct sy_tcp_context *c, uint32_t index)
{
	struct watch *w = &c->watch[index];
	struct instance *ep = instance_of(c, w);
	unsigned level;

	if (w->disabled)
		return;
	level = watch_level(c, w);
	if (w->ready) {
		if (level == w->level)
			return;
		ready_remove(c, ep, index);
	}
	ready_append(c, ep, index, level);
	descriptor_news(
	        c,
	        &c->descriptor[w->epfd]); /* notify watches on the instance; nesting is bounded */
}

/* The rest of an incomplete request counts as new. */
void watches_update_level(struct sy_tcp_context *c, struct descriptor *d)
{
	d->partial = 0;
	for (uint32_t i = d->watches; i != NO_WATCH; i = c->watch[i].next) {
		const struct watch *w = &c->watch[i];
		unsigned level = w->ready ? watch_level(c, w) : SY_USUAL;
		if (!w->ready || level == w->level)
			continue;
		ready_remove(c, instance_of(c, w), i);
		ready_append(c, instance_of(c, w), i, level);
	}
}

static uint32_t watch_events(struct sy_tcp_context *c, const struct watch *w)
{
	if (w->disabled || c->descriptor[w->fd].lent)
		return 0;
	return sy_tcp_ready(c, w->fd) & ((w->events & ~FLAGS) | ALWAYS);
}

uint32_t epoll_ready(struct sy_tcp_context *c, struct descriptor *d)
{
	struct instance *ep = d->instance;

	while (ep->levels) {
		uint32_t first = ep->ready[__builtin_ctz(ep->levels)].first;
		if (watch_events(c, &c->watch[first]))
			return POLLIN | POLLRDNORM;
		ready_remove(c, ep, first);
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
	struct descriptor *d = &c->descriptor[fd];
	struct instance *ep = c->descriptor[epfd].instance;
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

/* at: the link to it in the descriptor's list. */
static void watch_drop(struct sy_tcp_context *c, uint32_t *at)
{
	uint32_t index = *at;
	struct watch *w = &c->watch[index];
	struct instance *ep = instance_of(c, w);

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
	if (d->kind != KIND_EPOLL)
		return;
	while (d->instance->all != NO_WATCH) {
		const struct watch *w = &c->watch[d->instance->all];
		watch_drop(c, watch_find(c, &c->descriptor[w->fd], w->epfd));
	}
	free(d->instance);
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

/* Returns the nesting depth below this instance; MAX_NEST + 1: too deep, or a cycle through `top`.
 */
static unsigned nest_depth(const struct sy_tcp_context *c, int fd, int top, unsigned left)
{
	const struct descriptor *d = &c->descriptor[fd];
	unsigned depth = 1;

	if (d->kind != KIND_EPOLL)
		return 0;
	if (fd == top || left == 0)
		return MAX_NEST + 1;
	for (uint32_t w = d->instance->all; w != NO_WATCH; w = c->watch[w].all_after) {
		unsigned below = 1 + nest_depth(c, c->watch[w].fd, top, left - 1);
		depth = below > depth ? below : depth;
	}
	return depth;
}

/* Returns the nesting depth above it. */
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
	struct instance *ep = calloc(1, sizeof(*ep));
	int fd = ep ? descriptor_alloc(c, KIND_EPOLL) : -ENOMEM;

	if (fd < 0) {
		free(ep);
		return fd;
	}
	ep->all = NO_WATCH;
	for (unsigned i = 0; i < SY_PRIORITIES; i++)
		ep->ready[i].first = ep->ready[i].last = NO_WATCH;
	c->descriptor[fd].instance = ep;
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
		if (nest_depth(c, fd, epfd, MAX_NEST) + nest_height(c, epfd) > MAX_NEST)
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
	struct instance *ep;
	unsigned levels;
	struct sy_tcp_event *event;
	int max, count;
	uint32_t left[SY_PRIORITIES]; /* not checked yet by this call */
	unsigned open;                /* bit n: level n has such */
};

/* An incomplete request: the rest cannot arrive at EOF or with a full receive buffer; then the
 * application gets the event. */
static bool rest_may_come(struct sy_tcp_context *c, int fd)
{
	return !(sy_tcp_ready(c, fd) & (POLLRDHUP | POLLHUP | POLLERR)) &&
	       !socket_is_full(c, &c->descriptor[fd]);
}

/* Lends a readable socket to its level's queue or to DARC. Returns the events to report
 * nevertheless. */
static uint32_t fetch_lend(struct sy_tcp_context *c, struct instance *ep, uint32_t index,
                           unsigned level, uint32_t events)
{
	const struct watch *w = &c->watch[index];
	struct descriptor *d = &c->descriptor[w->fd];
	const epoll_data_t data = {.u64 = w->data};
	int rc;

	if (!(events & EPOLLIN) || d->kind != KIND_SOCKET || d->phase == PHASE_LISTENING)
		return events;
	if (!ep->queue[level])
		return events;
	rc = request_lend(c, d, data, ep->queue[level]);
	if (rc == -ENOBUFS) /* retried when the queue has space */
		ready_append(c, ep, index, level);
	if (rc == -EAGAIN)
		return rest_may_come(c, w->fd) ? events & ~READ_SIDE : events;
	return rc == 0 || rc == -ENOBUFS ? 0 : events;
}

static void fetch_one(struct sy_tcp_context *c, struct fetch *f, uint32_t index, unsigned level)
{
	struct watch *w = &c->watch[index];
	unsigned now = watch_level(c, w);
	uint32_t events = watch_events(c, w);

	if (!events)
		return;
	if (now != level) { /* it was checked at its previous level */
		ready_put(c, f->ep, index, now, NO_WATCH);
		f->left[now]++;
		f->open |= 1u << now;
		return;
	}
	events = fetch_lend(c, f->ep, index, level, events);
	if (!events)
		return;
	f->event[f->count++] =
	        (struct sy_tcp_event){.events = events, .level = level, .data.u64 = w->data};
	shares_fetched(&f->ep->shares, f->ep->levels | 1u << level, level);
	if (w->events & EPOLLONESHOT)
		w->disabled = true;
	else if (!(w->events & EPOLLET))
		ready_append(c, f->ep, index, level);
}

/* Checks each possibly ready watch once; level-triggered ones move to the end of their list. */
static int fetch_check(struct sy_tcp_context *c, void *arg)
{
	struct fetch *f = arg;
	unsigned now;

	f->count = 0;
	f->open = f->ep->levels;
	for (unsigned i = 0; i < SY_PRIORITIES; i++)
		f->left[i] = f->ep->ready[i].count;
	while (f->count < f->max && (now = f->open & f->levels) != 0) {
		unsigned level = shares_next(&f->ep->shares, now);
		uint32_t index = f->ep->ready[level].first;
		if (--f->left[level] == 0)
			f->open &= ~(1u << level);
		ready_remove(c, f->ep, index);
		fetch_one(c, f, index, level);
	}
	return f->count;
}

static int instance_find(const struct sy_tcp_context *c, int epfd, struct instance **out)
{
	const struct descriptor *d = descriptor_of(c, epfd);

	if (!d)
		return -EBADF;
	if (d->kind != KIND_EPOLL)
		return -EINVAL;
	*out = d->instance;
	return 0;
}

int sy_tcp_epoll_fetch(struct sy_tcp_context *c, int epfd, unsigned levels,
                       struct sy_tcp_event *event, int max, int timeout_ms, const sigset_t *mask)
{
	struct fetch f = {.levels = levels, .event = event, .max = max};
	int rc = instance_find(c, epfd, &f.ep);

	if (rc || max <= 0 || !(levels & SY_TCP_LEVELS))
		return rc ? rc : -EINVAL;
	return context_until(c, timeout_ms, mask, fetch_check, &f);
}

#define WAIT_EVENTS 256 /* max. events per sy_tcp_epoll_wait() */

int sy_tcp_epoll_wait(struct sy_tcp_context *c, int epfd, struct epoll_event *event, int max,
                      int timeout_ms, const sigset_t *mask)
{
	struct sy_tcp_event e[WAIT_EVENTS];
	int count = sy_tcp_epoll_fetch(c, epfd, SY_TCP_LEVELS, e,
	                               max < WAIT_EVENTS ? max : WAIT_EVENTS, timeout_ms, mask);

	for (int i = 0; i < count; i++)
		event[i] = (struct epoll_event){.events = e[i].events, .data.u64 = e[i].data.u64};
	return count;
}

int sy_tcp_epoll_shares(struct sy_tcp_context *c, int epfd, const uint8_t percent[SY_PRIORITIES])
{
	struct instance *ep;
	int rc = instance_find(c, epfd, &ep);

	if (rc)
		return rc;
	return shares_set(&ep->shares, percent) ? 0 : -EINVAL;
}

/* Incomplete requests are reported now, or lent to another queue. */
static void watches_requeue(struct sy_tcp_context *c, const struct instance *ep)
{
	for (uint32_t i = ep->all; i != NO_WATCH; i = c->watch[i].all_after) {
		struct descriptor *d = &c->descriptor[c->watch[i].fd];
		if (d->kind != KIND_SOCKET || !d->partial)
			continue;
		d->partial = 0;
		if (watch_events(c, &c->watch[i]))
			watch_ready(c, i);
	}
}

int sy_tcp_epoll_lend(struct sy_tcp_context *c, int epfd, unsigned levels,
                      struct sy_tcp_queue *queue)
{
	struct instance *ep;
	int rc = instance_find(c, epfd, &ep);

	if (rc)
		return rc;
	for (unsigned i = 0; i < SY_PRIORITIES; i++)
		if (levels & 1u << i)
			ep->queue[i] = queue;
	watches_requeue(c, ep);
	return 0;
}
