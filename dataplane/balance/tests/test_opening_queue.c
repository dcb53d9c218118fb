// SPDX-License-Identifier: Apache-2.0
/* Packets queued for sessions that open, compared with a list of them. Includes opening_queue.c to
 * inspect its lists. */
#include "../path/opening_queue.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

#define SLOT  3
#define OWNER 2 /* the service of all sessions */

static struct sy_worker *worker_of(struct flows *f)
{
	return &f->harness.rt->worker[0];
}

static struct rte_mbuf *packet(struct flows *f)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(f->harness.rt->pool);
	assert_non_null(m);
	return m;
}

/* Collects the packets submitted to the pipeline. */
static unsigned taken(struct flows *f, struct rte_mbuf **m)
{
	struct resubmitted *a = &worker_of(f)->private->resubmitted;
	unsigned n = a->count;
	for (unsigned i = 0; i < n; i++)
		m[i] = a->mbuf[(a->first + i) % WORKER_RESUBMITTED];
	a->first = a->count = 0;
	return n;
}

struct item {
	uint32_t record;
	struct rte_mbuf *m;
};

/* Of all that are queued, in their order. */
struct queue {
	unsigned count;
	struct item item[OPENING_QUEUE_PACKETS + 1];
};

static unsigned queue_drop(struct queue *queue, unsigned at)
{
	queue->count--;
	memmove(&queue->item[at], &queue->item[at + 1],
	        (queue->count - at) * sizeof(queue->item[0]));
	return 1;
}

/* Returns how many packets that drops. */
static unsigned queue_keep(struct queue *queue, uint32_t record, struct rte_mbuf *m)
{
	unsigned dropped = 0, of_session = 0, first = 0;
	for (unsigned n = queue->count; n-- > 0;)
		if (queue->item[n].record == record) {
			of_session++;
			first = n;
		}
	if (of_session >= OPENING_QUEUE_SESSION_PACKETS)
		dropped = queue_drop(queue, first);
	else if (queue->count == OPENING_QUEUE_PACKETS)
		dropped = queue_drop(queue, 0);
	queue->item[queue->count++] = (struct item){record, m};
	return dropped;
}

/* Dequeues a session's packets into m[]. */
static unsigned queue_dequeue(struct queue *queue, uint32_t record, struct rte_mbuf **m)
{
	unsigned count = 0;
	for (unsigned n = 0; n < queue->count;) {
		if (queue->item[n].record != record) {
			n++;
			continue;
		}
		m[count++] = queue->item[n].m;
		queue_drop(queue, n);
	}
	return count;
}

static void test_against_a_list(void **state)
{
	struct flows *f = *state;
	struct sy_worker *w = worker_of(f);
	static struct queue queue;
	memset(&queue, 0, sizeof(queue));
	for (unsigned n = 0; n < 200000; n++) {
		uint32_t record = (uint32_t)rng_below(&f->rng, n < 100000 ? 300 : 5000);
		unsigned how = (unsigned)rng_below(&f->rng, 20);
		uint64_t dropped = harness_drops(&f->harness, SY_DROP_OPENING);
		struct rte_mbuf *expect[OPENING_QUEUE_SESSION_PACKETS], *got[WORKER_RESUBMITTED];
		unsigned count;
		if (how > 1) {
			struct rte_mbuf *m = packet(f);
			opening_queue_add(w, SLOT, record, OWNER, m);
			count = queue_keep(&queue, record, m);
		} else {
			count = queue_dequeue(&queue, record, expect);
			if (how == 0) {
				opening_queue_drop(w, SLOT, record);
			} else {
				opening_queue_release(w, SLOT, record);
				assert_int_equal(taken(f, got), count);
				assert_memory_equal(got, expect, count * sizeof(got[0]));
				rte_pktmbuf_free_bulk(got, count);
				count = 0;
			}
		}
		assert_int_equal(harness_drops(&f->harness, SY_DROP_OPENING), dropped + count);
		assert_int_equal(balance_worker_of(w)->drops[OWNER].packets[SY_DROP_OPENING],
		                 dropped + count);
	}
}

/* If the pipeline is full, ACKs and data wait in order, and are not evicted. */
static void test_no_room(void **state)
{
	struct flows *f = *state;
	struct sy_worker *w = worker_of(f);
	struct rte_mbuf *m[OPENING_QUEUE_PACKETS], *got[WORKER_RESUBMITTED];
	uint64_t dropped = harness_drops(&f->harness, SY_DROP_OPENING);
	for (unsigned n = 0; n < WORKER_RESUBMITTED; n++)
		assert_true(sy_packet_resubmit(w, packet(f)));
	for (unsigned n = 0; n < OPENING_QUEUE_PACKETS; n += 2) {
		m[n] = packet(f);
		m[n + 1] = packet(f);
		opening_queue_add(w, SLOT, n, OWNER, m[n + 1]);
		opening_queue_resubmit(w, OWNER, m[n]);
		opening_queue_release(w, SLOT, n);
	}
	opening_queue_add(w, SLOT, 1, OWNER, packet(f));
	opening_queue_resubmit(w, OWNER, packet(f));
	assert_int_equal(harness_drops(&f->harness, SY_DROP_OPENING), dropped + 2);
	assert_int_equal(balance_worker_of(w)->drops[OWNER].packets[SY_DROP_OPENING], dropped + 2);
	rte_pktmbuf_free_bulk(got, taken(f, got));
	opening_queue_poll(w);
	assert_int_equal(taken(f, got), OPENING_QUEUE_PACKETS);
	assert_memory_equal(got, m, sizeof(m));
	rte_pktmbuf_free_bulk(got, OPENING_QUEUE_PACKETS);
}

/* Other sessions' packets cost nothing: no bucket's list grows with their number. */
static void test_cost(void **state)
{
	struct flows *f = *state;
	const struct opening_queue *h = opening_queue_of(worker_of(f));
	for (unsigned n = 0; n < OPENING_QUEUE_PACKETS; n++)
		opening_queue_add(worker_of(f), SLOT, n, SERVICE_NONE, packet(f));
	for (unsigned n = 0; n < OPENING_QUEUE_BUCKETS; n++) {
		unsigned length = 0;
		for (uint16_t at = h->bucket[n]; at != NONE; at = h->at[at].next)
			length++;
		assert_in_range(length, 0, 4);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, flows_setup, flows_teardown)
	const struct CMUnitTest tests[] = {TEST(against_a_list), TEST(no_room), TEST(cost)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
