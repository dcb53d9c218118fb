// SPDX-License-Identifier: Apache-2.0
#include "aside.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "rule.h"

#define WAIT_MS 20

struct aside {
	struct sy_tcp_desk *desk;
	bool stop; /* writer: others. Relaxed */
	pthread_mutex_t lock;
	struct serve_counts counts;
};

/* The first whole request among the bytes; returns its length, 0: it is not whole, -EPROTO. */
static int64_t request_find(const struct sy_tcp_request *t, struct request *r)
{
	struct raw_reader reader = {0};
	int64_t used = 0;

	for (int i = 0; i < t->count; i++)
		for (size_t at = 0; at < t->v[i].iov_len;) {
			enum raw_got got;
			int64_t taken = raw_take(&reader, RAW_REQUEST,
			                         (const uint8_t *)t->v[i].iov_base + at,
			                         t->v[i].iov_len - at, &r->header, &got);
			if (taken < 0)
				return taken;
			at += (size_t)taken;
			used += taken;
			if (got == RAW_MESSAGE_DONE)
				return raw_read(reader.header, &r->header) ? -EPROTO : used;
		}
	return 0;
}

static void task_serve(struct aside *a, struct sy_tcp_request *t)
{
	const struct note *n = t->own;
	struct request r = {.tcp_ns = n ? n->tcp_ns : 0, .read_ns = serve_clock()};
	int64_t used = request_find(t, &r);
	uint8_t *room = sy_tcp_request_room(t, SERVE_ANSWER);
	size_t answer = 0;

	if (used > 0 && room)
		answer = serve_request(a->counts.class, &r, room);
	else if (used < 0)
		a->counts.bad++;
	/* What is no request is taken away: its client waits in vain, and counts that. */
	sy_tcp_request_give(t, used < 0 ? t->len : (size_t)used, answer);
}

void *aside_main(void *arg)
{
	struct aside *a = arg;
	struct sy_tcp_request *t;

	while (!__atomic_load_n(&a->stop, __ATOMIC_RELAXED)) {
		if (sy_tcp_desk_take(a->desk, &t, 1, WAIT_MS) != 1)
			continue;
		pthread_mutex_lock(&a->lock);
		task_serve(a, t);
		pthread_mutex_unlock(&a->lock);
	}
	return NULL;
}

struct aside *aside_new(struct sy_tcp_desk *desk)
{
	struct aside *a = calloc(1, sizeof(*a));

	if (a) {
		a->desk = desk;
		pthread_mutex_init(&a->lock, NULL);
	}
	return a;
}

void aside_stop(struct aside *a)
{
	__atomic_store_n(&a->stop, true, __ATOMIC_RELAXED);
}

void aside_counts(struct aside *a, struct serve_counts *out)
{
	pthread_mutex_lock(&a->lock);
	*out = a->counts;
	a->counts = (struct serve_counts){0};
	pthread_mutex_unlock(&a->lock);
}
