// SPDX-License-Identifier: Apache-2.0
/* Requests processed by other threads. */
#include <pthread.h>
#include <sched.h>

#include "work_queues.h"

#define TAKERS   2
#define CLIENTS  24
#define REQUESTS 400u /* per client */

static bool over;
static uint64_t taken[TAKERS];

/* A request is a level, a length in two bytes, and a body; the response is the inverted body.
 * Incomplete requests are returned. */
static void *taker(void *arg)
{
	uint64_t *count = arg;

	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		struct sy_tcp_request *r[4];
		int n = sy_tcp_queue_dequeue(queue, r, 4, 20);
		for (int i = 0; i < n; i++) {
			uint8_t all[8192];
			size_t len = 0, used = 0, out = 0;
			for (int k = 0; k < r[i]->count; k++) {
				memcpy(all + len, r[i]->v[k].iov_base, r[i]->v[k].iov_len);
				len += r[i]->v[k].iov_len;
			}
			uint8_t *response = sy_tcp_request_buffer(r[i], len);
			while (len - used >= 3) {
				size_t body = (size_t)(all[used + 1] << 8 | all[used + 2]);
				if (len - used < 3 + body)
					break;
				for (size_t k = 0; k < body; k++)
					response[out++] = (uint8_t)~all[used + 3 + k];
				used += 3 + body;
				++*count;
			}
			sy_tcp_request_complete(r[i], used, out);
		}
	}
	return NULL;
}

static uint8_t body_of(unsigned client, uint32_t n)
{
	return (uint8_t)(client * 31 + n + (n >> 7));
}

struct talker {
	uint32_t requests; /* sent */
	uint32_t out, in;  /* bytes of bodies */
};

/* A body of 1 to 900 bytes. */
static void talker_send(unsigned i, struct talker *t)
{
	uint8_t bytes[1000];
	uint32_t len = 1 + (i * 131 + t->requests * 37) % 900;

	if (t->requests == REQUESTS || t->out - t->in > 5000)
		return;
	bytes[0] = 7;
	bytes[1] = (uint8_t)(len >> 8);
	bytes[2] = (uint8_t)len;
	for (uint32_t k = 0; k < len; k++)
		bytes[3 + k] = body_of(i, t->out + k);
	assert_int_equal(sy_tcp_send(on.client, on.from[i], bytes, 3 + len, 0), 3 + len);
	t->out += len;
	t->requests++;
}

static void talker_read(unsigned i, struct talker *t)
{
	uint8_t bytes[4096];
	ssize_t got = sy_tcp_recv(on.client, on.from[i], bytes, sizeof(bytes), 0);

	for (ssize_t k = 0; k < got; k++, t->in++)
		assert_int_equal(bytes[k], (uint8_t)~body_of(i, t->in));
}

static void test_threads(void **state)
{
	struct talker talker_of[CLIENTS] = {0};
	pthread_t thread[TAKERS];
	unsigned done = 0;

	for (unsigned i = 8; i < CLIENTS; i++) {
		served_connect(i);
		served_watch(i, EPOLLIN);
	}
	queue_open(16);
	over = false;
	for (unsigned i = 0; i < TAKERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, taker, &taken[i]), 0);
	while (done < CLIENTS) {
		struct sy_tcp_event e;
		done = 0;
		for (unsigned i = 0; i < CLIENTS; i++) {
			struct talker *t = &talker_of[i];
			talker_send(i, t);
			talker_read(i, t);
			done += t->requests == REQUESTS && t->in == t->out;
		}
		assert_int_equal(sy_tcp_epoll_fetch(on.server, on.ep, ALL, &e, 1, 0, NULL), 0);
		served.now += 1000;
		sched_yield();
	}
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < TAKERS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(taken[0] + taken[1], CLIENTS * REQUESTS);
}

/* Enqueueing wakes a thread that sleeps on the queue. */
static void *sleeper(void *arg)
{
	struct sy_tcp_request *r;

	assert_int_equal(sy_tcp_queue_dequeue(queue, &r, 1, -1), 1);
	sy_tcp_request_complete(r, r->len, 0);
	return NULL;
}

static void test_sleepers_are_woken(void **state)
{
	pthread_t thread;

	queue_open(8);
	for (unsigned n = 0; n < 200; n++) {
		assert_int_equal(pthread_create(&thread, NULL, sleeper, NULL), 0);
		if (n % 2)
			sched_yield();
		served_send(n % 8, "\7x", 2);
		served_fetch(ALL, -1, 0);
		pthread_join(thread, NULL);
		sy_tcp_run(on.server);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(threads),
	        CASE(sleepers_are_woken),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
