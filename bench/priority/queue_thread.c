// SPDX-License-Identifier: Apache-2.0
#include "queue_thread.h"

#include <pthread.h>
#include <stdlib.h>

#define WAIT_MS 20

struct queue_thread {
	struct sy_tcp_queue *queue;
	bool stop; /* writer: another thread, relaxed */
	pthread_mutex_t lock;
	struct serve_counts counts;
};

void *queue_thread_main(void *arg)
{
	struct queue_thread *q = arg;
	struct sy_tcp_request *t;

	while (!__atomic_load_n(&q->stop, __ATOMIC_RELAXED)) {
		if (sy_tcp_queue_dequeue(q->queue, &t, 1, WAIT_MS) != 1)
			continue;
		pthread_mutex_lock(&q->lock);
		serve_lent(&q->counts, t);
		pthread_mutex_unlock(&q->lock);
	}
	return NULL;
}

struct queue_thread *queue_thread_new(struct sy_tcp_queue *queue)
{
	struct queue_thread *q = calloc(1, sizeof(*q));

	if (q) {
		q->queue = queue;
		pthread_mutex_init(&q->lock, NULL);
	}
	return q;
}

void queue_thread_stop(struct queue_thread *q)
{
	__atomic_store_n(&q->stop, true, __ATOMIC_RELAXED);
}

void queue_thread_counts(struct queue_thread *q, struct serve_counts *out)
{
	pthread_mutex_lock(&q->lock);
	*out = q->counts;
	q->counts = (struct serve_counts){0};
	pthread_mutex_unlock(&q->lock);
}
