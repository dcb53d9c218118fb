// SPDX-License-Identifier: Apache-2.0
/*
 * DARC behind the stack, for comparison: requests are typed once their bytes are there, wait in a
 * queue of their type, and go to a worker that is free for it, one at a time.
 *
 *     darc_lend() ─▶ queue of its type ─ cores_pick() ─▶ desk of a worker ─▶ sy_tcp_darc_take()
 *     darc_back() ◀──────────────────────────────────────────────── sy_tcp_request_give()
 */
#include <errno.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "cores.h"
#include "desk.h"

#define WINDOW 50000 /* requests, as in the paper */

struct sy_tcp_darc {
	struct sy_tcp_darc_setup options;
	struct sy_tcp_context *context; /* that lends; NULL: it has not lent anything yet */
	struct cores cores;
	struct {
		struct request *first, *last;
		uint64_t dispatched;
	} queue[TYPES_MOST + 1];
	uint32_t waiting; /* bit n: type n has requests */
	uint64_t arrived; /* requests so far */
	struct sy_tcp_desk *desk[CORES_MOST];
};

/* ---- queues ---------------------------------------------------------------------------------- */

static void queue_append(struct sy_tcp_darc *d, struct request *r)
{
	r->next = NULL;
	r->number = d->arrived++;
	if (d->queue[r->type].first)
		d->queue[r->type].last->next = r;
	else
		d->queue[r->type].first = r;
	d->queue[r->type].last = r;
	d->waiting |= 1u << r->type;
}

static struct request *queue_take(struct sy_tcp_darc *d, unsigned type)
{
	struct request *r = d->queue[type].first;

	d->queue[type].first = r->next;
	if (!r->next)
		d->waiting &= ~(1u << type);
	d->queue[type].dispatched++;
	return r;
}

/* ---- start and end --------------------------------------------------------------------------- */

int sy_tcp_darc_open(const struct sy_tcp_darc_setup *options, struct sy_tcp_darc **out)
{
	struct sy_tcp_darc *d;
	int rc = 0;

	if (options->size != sizeof(*options) || !options->type_of || options->workers < 1 ||
	    options->workers > CORES_MOST || options->types < 1 || options->types > TYPES_MOST)
		return -EINVAL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->options = *options;
	cores_init(&d->cores, options->workers, options->types, options->level,
	           options->window ? options->window : WINDOW);
	for (unsigned i = 0; i < options->workers && !rc; i++)
		rc = sy_tcp_desk_open(1, &d->desk[i]);
	if (rc)
		sy_tcp_darc_close(d);
	else
		*out = d;
	return rc;
}

/* What is queued has never left: it goes back as from a desk. */
static void queues_give(struct sy_tcp_darc *d)
{
	while (d->waiting) {
		struct request *r = queue_take(d, (unsigned)__builtin_ctz(d->waiting));
		r->darc = NULL;
		sy_tcp_request_give(&r->r, 0, 0);
	}
}

void sy_tcp_darc_close(struct sy_tcp_darc *d)
{
	if (!d)
		return;
	if (d->context) {
		desk_returns(d->context); /* what was given back names this DARC */
		queues_give(d);
	}
	for (unsigned i = 0; i < CORES_MOST; i++)
		sy_tcp_desk_close(d->desk[i]);
	free(d);
}

/* ---- dispatch -------------------------------------------------------------------------------- */

/* Of those that go first. */
static unsigned queue_oldest(const struct sy_tcp_darc *d)
{
	uint64_t least = UINT64_MAX;
	unsigned oldest = 0;

	for (uint32_t left = cores_first(&d->cores, d->waiting); left; left &= left - 1) {
		unsigned type = (unsigned)__builtin_ctz(left);
		if (d->queue[type].first->number < least) {
			least = d->queue[type].first->number;
			oldest = type;
		}
	}
	return oldest;
}

static void dispatch(struct sy_tcp_darc *d)
{
	unsigned type, worker;

	while (cores_pick(&d->cores, d->waiting, queue_oldest(d), &type, &worker)) {
		struct request *r = queue_take(d, type);
		r->worker = worker;
		desk_lay(d->desk[worker], r); /* it is free, and its desk has a place */
	}
}

/* ---- in and out ------------------------------------------------------------------------------ */

int darc_lend(struct sy_tcp_context *c, struct descriptor *s, epoll_data_t data,
              struct sy_tcp_darc *d)
{
	struct request *r;
	int rc = request_make(c, s, data, &r);

	if (rc)
		return rc;
	d->context = c;
	r->darc = d;
	r->type = d->options.type_of(r->r.v, r->r.count);
	if (r->type > d->options.types)
		r->type = d->options.types;
	queue_append(d, r);
	dispatch(d);
	return 0;
}

void darc_back(struct sy_tcp_darc *d, const struct request *r)
{
	cores_served(&d->cores, r->worker, r->type,
	             (uint64_t)((double)r->took * 1e9 / (double)rte_get_tsc_hz()));
	dispatch(d);
}

int sy_tcp_darc_take(struct sy_tcp_darc *d, unsigned worker, struct sy_tcp_request **r,
                     int timeout_ms)
{
	if (worker >= d->options.workers)
		return -EINVAL;
	return sy_tcp_desk_take(d->desk[worker], r, 1, timeout_ms);
}

int sy_tcp_darc_type(const struct sy_tcp_darc *d, unsigned type, struct sy_tcp_darc_type *out)
{
	const struct cores_type *t = &d->cores.type[type];

	if (type > d->options.types)
		return -EINVAL;
	*out = (struct sy_tcp_darc_type){.mean_ns = t->mean_ns,
	                                 .workers = t->own,
	                                 .also = t->steal,
	                                 .dispatched = d->queue[type].dispatched};
	return d->cores.reserved;
}
