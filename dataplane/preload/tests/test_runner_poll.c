// SPDX-License-Identifier: Apache-2.0
/* A program that has not run for a while, in virtual time: a packet that it has not received yet
 * may be the answer for which a timer is due. The stacks are real; the device is a simulated
 * ring. */
#include <sy_seen.h>

#include "pair.h"

#include "packets.h"

#define RING  1024
#define OTHER 300 /* packets: more than one iteration receives */

struct runner runner;

static struct ring {
	struct rte_mbuf *m[RING];
	unsigned first, count;
	struct sy_seen seen;
} ring, inbox;

/* ---- simulated queues ------------------------------------------------------------------------ */

static unsigned ring_take(struct ring *r, struct rte_mbuf **m, unsigned max, uint64_t now_ns)
{
	unsigned n = 0;

	for (; n < max && r->count > 0; r->count--)
		m[n++] = r->m[r->first++ % RING];
	sy_seen_burst(&r->seen, n, r->count, now_ns);
	return n;
}

unsigned device_receive(struct rte_mbuf **m, unsigned max, uint64_t now_ns)
{
	return ring_take(&ring, m, max, now_ns);
}

uint64_t device_seen_ns(void)
{
	return ring.seen.ns;
}

unsigned resteer_strays(struct rte_mbuf **m, unsigned count)
{
	return count;
}

unsigned resteer_receive(struct rte_mbuf **m, unsigned max, uint64_t now_ns)
{
	return ring_take(&inbox, m, max, now_ns);
}

uint64_t resteer_seen_ns(void)
{
	return inbox.seen.ns;
}

void hooks_poll(void)
{
}

void retired_poll(void)
{
}

void retired_event(void)
{
}

void outgoing_send(uint64_t now_ns)
{
	struct rte_mbuf *m[64];
	unsigned count;

	while ((count = sy_stack_transmit(runner.stack, m, 64, now_ns)) > 0)
		rte_pktmbuf_free_bulk(m, count);
}

uint64_t outgoing_due(uint64_t otherwise_ns)
{
	return otherwise_ns;
}

void sock_event(struct sock *s)
{
}

void wakeup_timer_clear(uint64_t now_ns)
{
}

uint64_t __wrap_sy_clock_ns(void);

uint64_t __wrap_sy_clock_ns(void)
{
	return pair.now;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void ring_put(struct ring *r, struct rte_mbuf *m)
{
	assert_true(r->count < RING);
	r->m[(r->first + r->count++) % RING] = m;
}

static struct rte_mbuf *one_packet(struct sy_stack *s)
{
	struct rte_mbuf *m, *none;

	assert_int_equal(sy_stack_transmit(s, &m, 1, pair.now), 1);
	assert_int_equal(sy_stack_transmit(s, &none, 1, pair.now), 0);
	return m;
}

/* Opens two connections. The server sends on the first; what the client sends on the second is to
 * be received. */
static struct rte_mbuf *begin(struct rte_mbuf **question)
{
	pair_open(NULL);
	pair_connect(2);
	memset(&ring, 0, sizeof(ring));
	memset(&inbox, 0, sizeof(inbox));
	runner.stack = pair.server;
	runner_poll(); /* nothing has arrived so far */
	assert_int_equal(sy_stack_send(pair.server, pair.to[0], "asks", 4, 0, pair.now), 4);
	*question = one_packet(pair.server);
	assert_int_equal(sy_stack_send(pair.client, pair.from[1], "other", 5, 0, pair.now), 5);
	return one_packet(pair.client);
}

static void others_put(struct ring *r, const struct rte_mbuf *other, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = rte_pktmbuf_copy(other, other->pool, 0, UINT32_MAX);
		assert_non_null(m);
		ring_put(r, m);
	}
}

static uint64_t resends(void)
{
	const struct sy_stack_counters *c = sy_stack_counters(pair.server);

	return c->timeouts + c->tail_probes + c->retransmitted;
}

static void end(struct rte_mbuf *other)
{
	while (ring.count > 0 || inbox.count > 0)
		runner_poll();
	rte_pktmbuf_free(other);
	pair_close();
}

/* The answer came in time, behind more packets than one iteration receives: to the device, or from
 * another worker. */
static void answer_comes(struct ring *r)
{
	struct rte_mbuf *question, *other = begin(&question);
	struct sy_stack_info info;

	sy_stack_receive(pair.client, &question, 1, pair.now);
	assert_int_equal(sy_stack_send(pair.client, pair.from[0], "answers", 7, 0, pair.now), 7);
	others_put(r, other, OTHER);
	ring_put(r, one_packet(pair.client));
	pair.now += 1000 * PAIR_MS;
	runner_poll();
	assert_true(r->count > 0);
	for (; r->count > 0; runner_poll())
		assert_int_equal(resends(), 0);
	assert_int_equal(resends(), 0);
	assert_int_equal(sy_stack_info(pair.server, pair.to[0], &info), 0);
	assert_int_equal(info.unsent, 0);
	end(other);
}

static void test_an_answer_behind_others_stops_the_timer(void **state)
{
	answer_comes(&ring);
}

static void test_a_steered_answer_stops_the_timer(void **state)
{
	answer_comes(&inbox);
}

/* The ring always has more packets, all of other connections. */
static void test_a_ring_that_is_never_empty_does_not_stop_the_timer(void **state)
{
	struct rte_mbuf *question, *other = begin(&question);
	unsigned ms = 0;

	rte_pktmbuf_free(question); /* lost */
	for (others_put(&ring, other, OTHER); resends() == 0 && ms < 1000; ms++) {
		pair.now += PAIR_MS;
		runner_poll();
		others_put(&ring, other, OTHER - ring.count);
	}
	assert_true(ms < 1000);
	end(other);
}

/* Nothing has arrived: the timer runs as usual. */
static void test_an_empty_ring_does_not_stop_the_timer(void **state)
{
	struct rte_mbuf *question, *other = begin(&question);

	rte_pktmbuf_free(question);
	pair.now += 1000 * PAIR_MS;
	runner_poll();
	assert_true(resends() > 0);
	end(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_an_answer_behind_others_stops_the_timer),
	        cmocka_unit_test(test_a_steered_answer_stops_the_timer),
	        cmocka_unit_test(test_a_ring_that_is_never_empty_does_not_stop_the_timer),
	        cmocka_unit_test(test_an_empty_ring_does_not_stop_the_timer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
