// SPDX-License-Identifier: Apache-2.0
/*
 * Desks: where requests of contexts lie for other threads. Who lends them is lend.c.
 *
 *     owner: desk_lay() ──ring of the desk──▶ a thread: sy_tcp_desk_take()
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_ring.h>

#include "desk.h"

#define SPINS 2000 /* looks at an empty desk before a thread sleeps */

struct sy_tcp_desk {
	struct rte_ring *ring;
	int event;         /* counts wake-ups */
	uint32_t sleepers; /* takers that sleep, or are about to; atomic */
	uint64_t waiting;  /* bit n: context n found no room; atomic */
	/* By their numbers; each writes its own, before it sets its bit. Atomic. */
	struct sy_tcp_context *context[CONTEXTS_MOST];
};

/* ---- a desk ---------------------------------------------------------------------------------- */

struct rte_ring *ring_make(unsigned least, unsigned flags)
{
	unsigned size = rte_align32pow2(least + 1);
	ssize_t bytes = rte_ring_get_memsize(size);
	struct rte_ring *r = bytes > 0 ? aligned_alloc(SY_CACHE_LINE, (size_t)bytes) : NULL;

	if (r && rte_ring_init(r, "requests", size, flags)) {
		free(r);
		return NULL;
	}
	return r;
}

int sy_tcp_desk_open(unsigned requests, struct sy_tcp_desk **out)
{
	struct sy_tcp_desk *desk = calloc(1, sizeof(*desk));

	if (!desk)
		return -ENOMEM;
	desk->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	desk->ring = requests > 0 && requests < 1u << 20 ? ring_make(requests, 0) : NULL;
	if (desk->event < 0 || !desk->ring) {
		sy_tcp_desk_close(desk);
		return -ENOMEM;
	}
	*out = desk;
	return 0;
}

void sy_tcp_desk_close(struct sy_tcp_desk *desk)
{
	struct request *r;

	if (!desk)
		return;
	while (desk->ring && rte_ring_dequeue(desk->ring, (void **)&r) == 0)
		sy_tcp_request_give(&r->r, 0, 0);
	if (desk->event >= 0)
		close(desk->event);
	free(desk->ring);
	free(desk);
}

/* The sleeper counts itself, then looks; this adds, then looks for sleepers. */
static void desk_wake(struct sy_tcp_desk *desk)
{
	const uint64_t one = 1;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&desk->sleepers, __ATOMIC_RELAXED) == 0)
		return;
	ssize_t put = write(desk->event, &one, sizeof(one));
	(void)put; /* cannot overflow: 2^64 is far */
}

/* ---- room for what owners lay ---------------------------------------------------------------- */

bool desk_is_full(const struct sy_tcp_desk *desk)
{
	return rte_ring_full(desk->ring);
}

/* A context that lends found the desk full: who takes something wakes it. It says so, then looks;
 * who takes makes room, then looks who waits. True: there is no room. */
bool desk_await(struct sy_tcp_desk *desk, struct sy_tcp_context *c)
{
	__atomic_store_n(&desk->context[c->number], c, __ATOMIC_RELAXED);
	__atomic_fetch_or(&desk->waiting, UINT64_C(1) << c->number, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return rte_ring_full(desk->ring);
}

static void room_tell(struct sy_tcp_desk *desk)
{
	uint64_t all;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&desk->waiting, __ATOMIC_RELAXED) == 0)
		return;
	all = __atomic_exchange_n(&desk->waiting, 0, __ATOMIC_ACQ_REL);
	for (; all; all &= all - 1) {
		unsigned number = (unsigned)__builtin_ctzll(all);
		lender_room(__atomic_load_n(&desk->context[number], __ATOMIC_RELAXED));
	}
}

bool desk_lay(struct sy_tcp_desk *desk, struct request *r)
{
	while (rte_ring_enqueue(desk->ring, r))
		if (desk_await(desk, r->owner))
			return false;
	desk_wake(desk);
	return true;
}

/* ---- the taker ------------------------------------------------------------------------------- */

static unsigned ring_take(struct sy_tcp_desk *desk, struct sy_tcp_request **r, unsigned most)
{
	unsigned count = rte_ring_dequeue_burst(desk->ring, (void **)r, most, NULL);

	if (count > 0)
		room_tell(desk);
	return count;
}

static int64_t time_ms(void)
{
	return (int64_t)(sy_clock_ns() / 1000000);
}

/* 0: there may be something; or -EINTR, -ETIMEDOUT. */
static int desk_sleep(struct sy_tcp_desk *desk, int64_t deadline_ms)
{
	struct pollfd p = {.fd = desk->event, .events = POLLIN};
	int64_t left = deadline_ms < 0 ? -1 : deadline_ms - time_ms();
	uint64_t count;
	int rc = 1;

	if (deadline_ms >= 0 && left <= 0)
		return -ETIMEDOUT;
	__atomic_add_fetch(&desk->sleepers, 1, __ATOMIC_SEQ_CST);
	if (rte_ring_empty(desk->ring))
		rc = poll(&p, 1, left > 3600000 ? 3600000 : (int)left);
	int error = rc < 0 ? -errno : 0;
	__atomic_sub_fetch(&desk->sleepers, 1, __ATOMIC_SEQ_CST);
	if (rc > 0 && p.revents && read(desk->event, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return -errno;
	return error;
}

int sy_tcp_desk_take(struct sy_tcp_desk *desk, struct sy_tcp_request **r, unsigned most,
                     int timeout_ms)
{
	int64_t deadline = timeout_ms < 0 ? -1 : time_ms() + timeout_ms;
	unsigned count = ring_take(desk, r, most);

	for (unsigned i = 0; count == 0 && timeout_ms != 0 && i < SPINS; i++) {
		rte_pause();
		count = ring_take(desk, r, most);
	}
	while (count == 0 && timeout_ms != 0) {
		int rc = desk_sleep(desk, deadline);
		count = ring_take(desk, r, most);
		if (rc && count == 0)
			return rc == -ETIMEDOUT ? 0 : rc;
	}
	return (int)count;
}

void *sy_tcp_request_room(struct sy_tcp_request *r, size_t len)
{
	struct request *q = (struct request *)r;

	if (len > q->room_size) {
		uint8_t *room = realloc(q->room, len);
		if (!room)
			return NULL;
		q->room = room;
		q->room_size = len;
	}
	return q->room;
}
