// SPDX-License-Identifier: Apache-2.0
/*
 * Work queues: requests of contexts for other threads. lend.c is the owner's side.
 *
 *     owner: work_queue_enqueue() ──ring──▶ a thread: sy_tcp_queue_dequeue()
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_ring.h>

#include "work_queue.h"

#define SPINS 2000 /* polls of an empty queue before a thread sleeps */

struct sy_tcp_queue {
	struct rte_ring *ring;
	int event;         /* eventfd: wakes sleeping threads when another thread has queued work */
	uint32_t sleepers; /* consumers that sleep or are about to; atomic */
	uint64_t waiting;  /* bit n: context n waits for space; atomic */
	/* By number; each context writes its own entry before it sets its bit. Atomic. */
	struct sy_tcp_context *context[MAX_CONTEXTS];
};

/* ---- open and close -------------------------------------------------------------------------- */

struct rte_ring *ring_create(unsigned min, unsigned flags)
{
	unsigned size = rte_align32pow2(min + 1);
	ssize_t bytes = rte_ring_get_memsize(size);
	struct rte_ring *r = bytes > 0 ? aligned_alloc(SY_CACHE_LINE, (size_t)bytes) : NULL;

	if (r && rte_ring_init(r, "requests", size, flags)) {
		free(r);
		return NULL;
	}
	return r;
}

int sy_tcp_queue_open(unsigned requests, struct sy_tcp_queue **out)
{
	struct sy_tcp_queue *queue = calloc(1, sizeof(*queue));

	if (!queue)
		return -ENOMEM;
	queue->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	queue->ring = requests > 0 && requests < 1u << 20 ? ring_create(requests, 0) : NULL;
	if (queue->event < 0 || !queue->ring) {
		sy_tcp_queue_close(queue);
		return -ENOMEM;
	}
	*out = queue;
	return 0;
}

void sy_tcp_queue_close(struct sy_tcp_queue *queue)
{
	struct request *r;

	if (!queue)
		return;
	while (queue->ring && rte_ring_dequeue(queue->ring, (void **)&r) == 0)
		sy_tcp_request_complete(&r->r, 0, 0);
	if (queue->event >= 0)
		close(queue->event);
	free(queue->ring);
	free(queue);
}

/* A sleeper increments the counter, then checks the ring; this enqueues, then checks the counter.
 */
static void work_queue_wake(struct sy_tcp_queue *queue)
{
	const uint64_t one = 1;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&queue->sleepers, __ATOMIC_RELAXED) == 0)
		return;
	ssize_t put = write(queue->event, &one, sizeof(one));
	(void)put; /* cannot overflow */
}

/* ---- producers ------------------------------------------------------------------------------- */

bool work_queue_is_full(const struct sy_tcp_queue *queue)
{
	return rte_ring_full(queue->ring);
}

/* The producer sets its bit, then checks for space; a consumer frees a slot, then checks the bits.
 * Returns true if the queue is full. */
bool work_queue_await(struct sy_tcp_queue *queue, struct sy_tcp_context *c)
{
	__atomic_store_n(&queue->context[c->number], c, __ATOMIC_RELAXED);
	__atomic_fetch_or(&queue->waiting, UINT64_C(1) << c->number, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return rte_ring_full(queue->ring);
}

static void waiters_notify(struct sy_tcp_queue *queue)
{
	uint64_t all;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&queue->waiting, __ATOMIC_RELAXED) == 0)
		return;
	all = __atomic_exchange_n(&queue->waiting, 0, __ATOMIC_ACQ_REL);
	for (; all; all &= all - 1) {
		unsigned number = (unsigned)__builtin_ctzll(all);
		lender_notify(__atomic_load_n(&queue->context[number], __ATOMIC_RELAXED));
	}
}

bool work_queue_enqueue(struct sy_tcp_queue *queue, struct request *r)
{
	while (rte_ring_enqueue(queue->ring, r))
		if (work_queue_await(queue, r->owner))
			return false;
	work_queue_wake(queue);
	return true;
}

/* ---- consumers ------------------------------------------------------------------------------- */

static unsigned ring_dequeue(struct sy_tcp_queue *queue, struct sy_tcp_request **r, unsigned max)
{
	unsigned count = rte_ring_dequeue_burst(queue->ring, (void **)r, max, NULL);

	if (count > 0)
		waiters_notify(queue);
	return count;
}

static int64_t time_ms(void)
{
	return (int64_t)(sy_clock_ns() / 1000000);
}

/* Returns 0 if there may be a request, or -EINTR, -ETIMEDOUT. */
static int work_queue_sleep(struct sy_tcp_queue *queue, int64_t deadline_ms)
{
	struct pollfd p = {.fd = queue->event, .events = POLLIN};
	int64_t left = deadline_ms < 0 ? -1 : deadline_ms - time_ms();
	uint64_t count;
	int rc = 1;

	if (deadline_ms >= 0 && left <= 0)
		return -ETIMEDOUT;
	__atomic_add_fetch(&queue->sleepers, 1, __ATOMIC_SEQ_CST);
	if (rte_ring_empty(queue->ring))
		rc = poll(&p, 1, left > 3600000 ? 3600000 : (int)left);
	int error = rc < 0 ? -errno : 0;
	__atomic_sub_fetch(&queue->sleepers, 1, __ATOMIC_SEQ_CST);
	if (rc > 0 && p.revents && read(queue->event, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return -errno;
	return error;
}

int sy_tcp_queue_dequeue(struct sy_tcp_queue *queue, struct sy_tcp_request **r, unsigned max,
                         int timeout_ms)
{
	int64_t deadline = timeout_ms < 0 ? -1 : time_ms() + timeout_ms;
	unsigned count = ring_dequeue(queue, r, max);

	for (unsigned i = 0; count == 0 && timeout_ms != 0 && i < SPINS; i++) {
		rte_pause();
		count = ring_dequeue(queue, r, max);
	}
	while (count == 0 && timeout_ms != 0) {
		int rc = work_queue_sleep(queue, deadline);
		count = ring_dequeue(queue, r, max);
		if (rc && count == 0)
			return rc == -ETIMEDOUT ? 0 : rc;
	}
	return (int)count;
}

void *sy_tcp_request_buffer(struct sy_tcp_request *r, size_t len)
{
	struct request *q = (struct request *)r;

	if (len > q->buffer_size) {
		uint8_t *buffer = realloc(q->buffer, len);
		if (!buffer)
			return NULL;
		q->buffer = buffer;
		q->buffer_size = len;
	}
	return q->buffer;
}
