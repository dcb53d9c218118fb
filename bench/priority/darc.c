// SPDX-License-Identifier: Apache-2.0
#include "darc.h"

#include <errno.h>
#include <stdlib.h>

#include <sy_base.h>

#include "cores.h"

#define REQUESTS 4096 /* max. requests lent by a context */

struct waiting {
	struct sy_tcp_request *request;
	struct waiting *next;
	unsigned type;
	uint64_t number; /* in the order of arrival */
};

struct darc {
	struct darc_setup setup;
	struct sy_tcp_queue *worker_queue;
	struct cores cores;
	struct {
		struct waiting *first, *last;
	} queue[TYPES_MAX + 1];
	uint32_t types;   /* bit n: type n has requests */
	uint64_t arrived; /* requests so far */
	struct {
		struct waiting *request;
		uint64_t begun_ns; /* 0: not dequeued */
	} worker[CORES_MAX];
	struct waiting *free, all[REQUESTS];
};

/* ---- queues ---------------------------------------------------------------------------------- */

static void queue_append(struct darc *d, struct sy_tcp_request *r)
{
	struct waiting *w = d->free;
	unsigned type = d->setup.type_of(r->v, r->count);

	d->free = w->next;
	*w = (struct waiting){.request = r,
	                      .type = type < d->setup.types ? type : d->setup.types,
	                      .number = d->arrived++};
	if (d->queue[w->type].first)
		d->queue[w->type].last->next = w;
	else
		d->queue[w->type].first = w;
	d->queue[w->type].last = w;
	d->types |= 1u << w->type;
}

static struct waiting *queue_pop(struct darc *d, unsigned type)
{
	struct waiting *w = d->queue[type].first;

	d->queue[type].first = w->next;
	if (!w->next)
		d->types &= ~(1u << type);
	return w;
}

/* Returns the type with the oldest request among cores_first(). */
static unsigned queue_oldest(const struct darc *d)
{
	uint64_t min = UINT64_MAX;
	unsigned oldest = 0;

	for (uint32_t left = cores_first(&d->cores, d->types); left; left &= left - 1) {
		unsigned type = (unsigned)__builtin_ctz(left);
		if (d->queue[type].first->number < min) {
			min = d->queue[type].first->number;
			oldest = type;
		}
	}
	return oldest;
}

static void dispatch(struct darc *d)
{
	struct sy_tcp_request *r;
	unsigned type, worker;

	while (d->free && sy_tcp_queue_dequeue(d->worker_queue, &r, 1, 0) == 1)
		queue_append(d, r);
	while (cores_pick(&d->cores, d->types, queue_oldest(d), &type, &worker))
		d->worker[worker].request = queue_pop(d, type);
}

/* ---- calls ----------------------------------------------------------------------------------- */

int darc_open(const struct darc_setup *setup, struct darc **out)
{
	struct darc *d = calloc(1, sizeof(*d));

	if (!d || sy_tcp_queue_open(REQUESTS, &d->worker_queue)) {
		free(d);
		return -ENOMEM;
	}
	d->setup = *setup;
	cores_init(&d->cores, setup->workers, setup->types, setup->level, setup->window);
	for (unsigned i = 0; i < REQUESTS; i++) {
		d->all[i].next = d->free;
		d->free = &d->all[i];
	}
	*out = d;
	return 0;
}

void darc_close(struct darc *d)
{
	if (!d)
		return;
	for (unsigned i = 0; i < d->setup.workers; i++)
		if (d->worker[i].request)
			sy_tcp_request_complete(d->worker[i].request->request, 0, 0);
	while (d->types)
		sy_tcp_request_complete(queue_pop(d, (unsigned)__builtin_ctz(d->types))->request, 0,
		                        0);
	sy_tcp_queue_close(d->worker_queue);
	free(d);
}

struct sy_tcp_queue *darc_queue(const struct darc *d)
{
	return d->worker_queue;
}

struct sy_tcp_request *darc_take(struct darc *d, unsigned worker)
{
	dispatch(d);
	if (!d->worker[worker].request || d->worker[worker].begun_ns)
		return NULL;
	d->worker[worker].begun_ns = sy_clock_ns();
	return d->worker[worker].request->request;
}

void darc_served(struct darc *d, unsigned worker)
{
	struct waiting *w = d->worker[worker].request;

	cores_served(&d->cores, worker, w->type, sy_clock_ns() - d->worker[worker].begun_ns);
	d->worker[worker].request = NULL;
	d->worker[worker].begun_ns = 0;
	w->next = d->free;
	d->free = w;
}
