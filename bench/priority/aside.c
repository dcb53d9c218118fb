// SPDX-License-Identifier: Apache-2.0
#include "aside.h"

#include <pthread.h>
#include <stdlib.h>

#define WAIT_MS 20

struct aside {
	struct sy_tcp_queue *queue;
	bool stop; /* writer: others. Relaxed */
	pthread_mutex_t lock;
	struct serve_counts counts;
};

void *aside_main(void *arg)
{
	struct aside *a = arg;
	struct sy_tcp_request *t;

	while (!__atomic_load_n(&a->stop, __ATOMIC_RELAXED)) {
		if (sy_tcp_queue_dequeue(a->queue, &t, 1, WAIT_MS) != 1)
			continue;
		pthread_mutex_lock(&a->lock);
		serve_lent(&a->counts, t);
		pthread_mutex_unlock(&a->lock);
	}
	return NULL;
}

struct aside *aside_new(struct sy_tcp_queue *queue)
{
	struct aside *a = calloc(1, sizeof(*a));

	if (a) {
		a->queue = queue;
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
