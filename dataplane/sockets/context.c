// SPDX-License-Identifier: Apache-2.0
/* Contexts: descriptors, readiness and waiting. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "context.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* Memory stays untouched until used. */
static void *table_make(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

struct sy_tcp_context *context_create(const struct context_options *o)
{
	struct sy_tcp_context *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	*c = (struct sy_tcp_context){
	        .stack = o->stack,
	        .driver = o->driver,
	        .ctx = o->ctx,
	        .number = o->number,
	        .address = o->address,
	        .addresses = o->addresses,
	        .congestion = o->congestion,
	        .port_first = o->port_first,
	        .port_last = o->port_last,
	        .descriptors = o->descriptors,
	        .free = NO_WATCH,
	        .bound = NO_WATCH,
	        .watches = 2 * o->descriptors,
	        .watch_free = NO_WATCH,
	};
	c->descriptor = table_make(c->descriptors * sizeof(*c->descriptor));
	c->watch = table_make(c->watches * sizeof(*c->watch));
	if (c->descriptor && c->watch)
		return c;
	context_destroy(c);
	return NULL;
}

void context_destroy(struct sy_tcp_context *c)
{
	if (!c)
		return;
	lender_free(c);
	if (c->descriptor)
		munmap(c->descriptor, c->descriptors * sizeof(*c->descriptor));
	if (c->watch)
		munmap(c->watch, c->watches * sizeof(*c->watch));
	free(c);
}

void context_close_all(struct sy_tcp_context *c)
{
	for (uint32_t i = 0; i < c->fresh; i++)
		sy_tcp_close_fd(c, (int)i);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

int descriptor_alloc(struct sy_tcp_context *c, enum kind kind)
{
	uint32_t index = c->free;

	if (index != NO_WATCH)
		c->free = c->descriptor[index].next;
	else if (c->fresh < c->descriptors)
		index = c->fresh++;
	else
		return -EMFILE;
	c->descriptor[index] = (struct descriptor){.kind = (uint8_t)kind, .watches = NO_WATCH};
	return (int)index;
}

void descriptor_free(struct sy_tcp_context *c, int fd)
{
	struct descriptor *d = &c->descriptor[fd];

	d->kind = KIND_FREE;
	d->next = c->free;
	c->free = (uint32_t)fd;
}

struct descriptor *descriptor_of(const struct sy_tcp_context *c, int fd)
{
	if (fd < 0 || (uint32_t)fd >= c->fresh || c->descriptor[fd].kind == KIND_FREE)
		return NULL;
	return &c->descriptor[fd];
}

struct descriptor *socket_of(const struct sy_tcp_context *c, int fd, int *rc)
{
	struct descriptor *d = descriptor_of(c, fd);

	*rc = !d ? -EBADF : d->kind != KIND_SOCKET ? -ENOTSOCK : 0;
	return *rc ? NULL : d;
}

void descriptor_news(struct sy_tcp_context *c, struct descriptor *d)
{
	c->news++;
	for (uint32_t w = d->watches; w != NO_WATCH; w = c->watch[w].next)
		watch_ready(c, w);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void events_read(struct sy_tcp_context *c)
{
	struct sy_stack_event e[64];
	unsigned count;

	while ((count = sy_stack_events(c->stack, e, SY_ARRAY_LEN(e))) > 0) {
		for (unsigned i = 0; i < count; i++) {
			struct descriptor *d = descriptor_of(c, (int)e[i].cookie);
			if (!d || d->kind != KIND_SOCKET || d->id != e[i].id)
				continue;
			d->urgent |= (e[i].what & SY_STACK_URGENT) != 0;
			c->answers_pending |= d->lent && e[i].what & ~(uint32_t)SY_STACK_READABLE;
			descriptor_news(c, d);
		}
	}
}

/* Delivers events; completed requests of lent sockets come first. */
void context_events(struct sy_tcp_context *c)
{
	do
		events_read(c);
	while (c->lender && requests_complete(c));
}

uint64_t sy_tcp_news(const struct sy_tcp_context *c)
{
	return c->news;
}

unsigned sy_tcp_number(const struct sy_tcp_context *c)
{
	return c->number;
}

/* ---- waiting --------------------------------------------------------------------------------- */

int sy_tcp_run(struct sy_tcp_context *c)
{
	return c->driver->poll(c->ctx);
}

int sy_tcp_fd(const struct sy_tcp_context *c)
{
	return c->driver->fd(c->ctx);
}

uint64_t sy_tcp_sleep(struct sy_tcp_context *c)
{
	return c->driver->sleep(c->ctx);
}

void sy_tcp_awake(struct sy_tcp_context *c)
{
	c->driver->awake(c->ctx);
}

int context_until(struct sy_tcp_context *c, int timeout_ms, const sigset_t *mask,
                  int (*check)(struct sy_tcp_context *c, void *arg), void *arg)
{
	uint64_t deadline = timeout_ms < 0    ? UINT64_MAX
	                    : timeout_ms == 0 ? 0
	                                      : c->driver->clock(c->ctx) +
	                                                (uint64_t)timeout_ms * UINT64_C(1000000);

	for (;;) {
		uint64_t now;
		int rc;
		c->driver->poll(c->ctx);
		rc = check(c, arg);
		if (rc || !timeout_ms)
			return rc;
		now = c->driver->clock(c->ctx);
		if (now >= deadline)
			return 0;
		rc = c->driver->wait(c->ctx, deadline - now, mask);
		if (rc)
			return rc;
	}
}

static int news_check(struct sy_tcp_context *c, void *arg)
{
	bool news = c->news != c->news_seen;

	c->news_seen = c->news;
	return news;
}

int sy_tcp_wait(struct sy_tcp_context *c, int timeout_ms, const sigset_t *mask)
{
	return context_until(c, timeout_ms, mask, news_check, NULL);
}
