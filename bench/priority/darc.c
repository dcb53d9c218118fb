// SPDX-License-Identifier: Apache-2.0
#include "darc.h"

#include <stdlib.h>

struct queue {
	struct darc_task *task; /* a ring */
	uint32_t first, count;
	unsigned level;
	uint64_t mean_ns;
};

struct darc {
	uint32_t most;
	struct queue queue[DARC_TYPES];
};

static struct queue *queue_of(struct darc *d, unsigned type)
{
	return &d->queue[type < DARC_TYPES ? type : DARC_TYPES - 1];
}

struct darc *darc_new(uint32_t most)
{
	struct darc *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->most = most;
	for (unsigned i = 0; i < DARC_TYPES; i++) {
		d->queue[i].task = calloc(most, sizeof(struct darc_task));
		if (!d->queue[i].task) {
			darc_free(d);
			return NULL;
		}
	}
	return d;
}

void darc_free(struct darc *d)
{
	for (unsigned i = 0; d && i < DARC_TYPES; i++)
		free(d->queue[i].task);
	free(d);
}

bool darc_add(struct darc *d, const struct darc_task *t, unsigned level)
{
	struct queue *q = queue_of(d, t->request.header.type);

	if (q->count == d->most)
		return false;
	q->level = level;
	q->task[(q->first + q->count++) % d->most] = *t;
	return true;
}

static bool queue_is_before(const struct queue *a, const struct queue *b)
{
	return a->level != b->level ? a->level < b->level : a->mean_ns < b->mean_ns;
}

const struct darc_task *darc_next(struct darc *d)
{
	struct queue *best = NULL;
	const struct darc_task *t;

	for (unsigned i = 0; i < DARC_TYPES; i++)
		if (d->queue[i].count > 0 && (!best || queue_is_before(&d->queue[i], best)))
			best = &d->queue[i];
	if (!best)
		return NULL;
	t = &best->task[best->first];
	best->first = (best->first + 1) % d->most;
	best->count--;
	return t;
}

void darc_took(struct darc *d, unsigned type, uint64_t ns)
{
	struct queue *q = queue_of(d, type);
	q->mean_ns = q->mean_ns ? q->mean_ns - q->mean_ns / 8 + ns / 8 : ns;
}
