// SPDX-License-Identifier: Apache-2.0
/* Requests on a work queue, in virtual time; test_work_queue_threads.c has threads. */
#include <stdlib.h>

#include "work_queues.h"

/* Dequeues a request with exactly these bytes. */
static struct sy_tcp_request *take(const void *bytes, size_t len)
{
	struct sy_tcp_request *r;

	assert_int_equal(sy_tcp_queue_dequeue(queue, &r, 1, 0), 1);
	assert_int_equal(r->len, len);
	for (int i = 0; i < r->count; i++) {
		assert_memory_equal(r->v[i].iov_base, bytes, r->v[i].iov_len);
		bytes = (const uint8_t *)bytes + r->v[i].iov_len;
		len -= r->v[i].iov_len;
	}
	assert_int_equal(len, 0);
	return r;
}

static void take_none(void)
{
	struct sy_tcp_request *r;
	assert_int_equal(sy_tcp_queue_dequeue(queue, &r, 1, 0), 0);
}

static void give(struct sy_tcp_request *r, size_t used, const void *answer, size_t len)
{
	if (len)
		memcpy(sy_tcp_request_buffer(r, len), answer, len);
	sy_tcp_request_complete(r, used, len);
	sy_tcp_run(on.server);
}

static void test_a_request_is_answered(void **state)
{
	struct sy_tcp_request *r;

	queue_open(8);
	served_send(0, "\7one", 4);
	served_send(1, "\1two", 4);
	served_fetch(ALL, 1, 1); /* stays here */
	served_read(1, 4);
	served_fetch(ALL, -1, 0);
	r = take("\7one", 4);
	assert_int_equal(r->level, 7);
	assert_int_equal(r->data.u32, 0);
	/* A copy: the connection's area may change meanwhile. */
	assert_ptr_not_equal(r->own, sy_tcp_own(on.server, on.to[0]));
	assert_memory_equal(r->own, sy_tcp_own(on.server, on.to[0]), SY_CACHE_LINE);
	take_none();
	give(r, 4, "done", 4);
	served_answer(0, "done", 4);
	served_fetch(ALL, -1, 0);
	served_send(0, "\6again", 6);
	served_fetch(ALL, -1, 0);
	give(take("\6again", 6), 6, NULL, 0);
	served_answer(0, "", 0);
}

/* One request per socket, so that responses stay in order. */
static void test_later_data_stays_behind_the_request(void **state)
{
	struct sy_tcp_request *r;

	queue_open(8);
	served_send(0, "\7one", 4);
	served_fetch(ALL, -1, 0);
	r = take("\7one", 4);
	served_send(0, "\1two", 4); /* urgent, but later */
	served_fetch(ALL, -1, 0);
	take_none();
	assert_memory_equal(r->v[0].iov_base, "\7one", 4);
	give(r, 4, "1", 1);
	served_answer(0, "1", 1);
	served_fetch(ALL, 0, 1);
	served_read(0, 4);
}

static void test_incomplete_requests_are_queued_again(void **state)
{
	queue_open(8);
	served_send(0, "\7on", 3);
	served_fetch(ALL, -1, 0);
	give(take("\7on", 3), 0, NULL, 0);
	served_fetch(ALL, -1, 0);
	take_none(); /* not again without further data */
	served_send(0, "\7e", 2);
	served_fetch(ALL, -1, 0);
	give(take("\7on\7e", 5), 5, "1", 1);
	served_answer(0, "1", 1);
	/* the rest never arrives: the application gets the event */
	served_send(0, "\7on", 3);
	served_fetch(ALL, -1, 0);
	give(take("\7on", 3), 0, NULL, 0);
	sy_tcp_shutdown(on.client, on.from[0], SHUT_WR);
	sy_tcp_run(on.client);
	served_fetch(ALL, 0, 7);
}

static void test_packets_outlive_their_connection(void **state)
{
	uint8_t bytes[3000];
	struct sy_tcp_request *r, *s;
	struct linger now = {1, 0};

	memset(bytes, 7, sizeof(bytes));
	queue_open(8);
	served_send(0, bytes, sizeof(bytes));
	served_send(1, bytes, sizeof(bytes));
	served_fetch(ALL, -1, 0);
	r = take(bytes, sizeof(bytes));
	s = take(bytes, sizeof(bytes));
	assert_int_equal(r->count, 2);
	sy_tcp_setsockopt(on.client, on.from[0], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	sy_tcp_close_fd(on.client, on.from[0]); /* a reset */
	sy_tcp_run(on.client);
	sy_tcp_close_fd(on.server, on.to[1]);
	for (int i = 0; i < r->count; i++) {
		assert_memory_equal(r->v[i].iov_base, bytes, r->v[i].iov_len);
		assert_memory_equal(s->v[i].iov_base, bytes, s->v[i].iov_len);
	}
	served_fetch(ALL, -1, 0);
	give(r, 3000, "late", 4);
	give(s, 3000, "late", 4);
	served_fetch(ALL, 0, 7); /* now the error is reported */
}

/* Another socket has the number of the lent one. */
static void test_reused_descriptors_get_no_response(void **state)
{
	struct sy_tcp_request *r;

	queue_open(8);
	served_send(0, "\7one", 4);
	served_fetch(ALL, -1, 0);
	r = take("\7one", 4);
	sy_tcp_close_fd(on.server, on.to[0]);
	served_connect(1);
	assert_int_equal(on.to[1], on.to[0]);
	served_watch(1, EPOLLIN);
	give(r, 4, "wrong", 5);
	served_answer(1, "", 0);
	served_send(1, "\7two", 4);
	served_fetch(ALL, -1, 0);
	give(take("\7two", 4), 4, "right", 5);
	served_answer(1, "right", 5);
}

static void test_a_queue_is_full(void **state)
{
	struct sy_tcp_request *r[4];

	queue_open(3);
	for (unsigned i = 0; i < 5; i++)
		served_send(i, "\7x", 2);
	served_fetch(ALL, -1, 0);
	assert_int_equal(sy_tcp_queue_dequeue(queue, r, 4, 0), 3);
	served_fetch(ALL, -1, 0);
	for (unsigned i = 0; i < 3; i++)
		give(r[i], 2, "y", 1);
	assert_int_equal(sy_tcp_queue_dequeue(queue, r, 4, 0), 2);
	for (unsigned i = 0; i < 2; i++)
		give(r[i], 2, "y", 1);
	for (unsigned i = 0; i < 5; i++)
		served_answer(i, "y", 1);
}

/* The client's connect() has returned the result. */
static void link_connected(unsigned i)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)};

	inet_pton(AF_INET, LINK_V4(1), &to.sin_addr);
	assert_int_equal(sy_tcp_connect(on.client, on.from[i], (struct sockaddr *)&to, sizeof(to)),
	                 0);
}

/* Two contexts share a queue, and the other has filled it. A dequeue wakes only contexts that wait
 * for space. */
static void test_a_shared_queue_has_space_again(void **state)
{
	const struct link_side *side = &served.side[1];
	epoll_data_t none = {.u64 = 0};
	struct sy_tcp_request *r;
	unsigned woken;

	queue_open(1);
	link_connected(0);
	assert_int_equal(sy_tcp_send(on.server, on.to[0], "mine", 4, 0), 4);
	sy_tcp_run(on.server);
	assert_int_equal(sy_tcp_lend(on.client, on.from[0], none, queue), 0);
	served_send(1, "\7x", 2);
	served_send(2, "\7y", 2);
	served_fetch(ALL, -1, 0);
	assert_int_equal(sy_tcp_lend(on.server, on.to[2], none, queue), -EAGAIN);
	assert_false(requests_are_completed(on.server));
	sy_tcp_wait(on.server, 0, NULL);
	woken = side->woken;
	r = take("mine", 4);
	assert_int_equal(side->woken, woken + 1);
	assert_true(requests_are_completed(on.server)); /* it does not sleep */
	assert_int_equal(sy_tcp_wait(on.server, 0, NULL), 1);
	assert_false(requests_are_completed(on.server));
	sy_tcp_request_complete(r, 4, 0);
	served_fetch(ALL, -1, 0);
	give(take("\7x", 2), 2, NULL, 0);
	served_fetch(ALL, -1, 0);
	woken = side->woken;
	give(take("\7y", 2), 2, NULL, 0);
	assert_int_equal(side->woken, woken + 1); /* only for the completed request */
}

/* A socket with an incomplete request is still writable. */
static void test_writable_beside_an_incomplete_request(void **state)
{
	const struct epoll_event both = {.events = EPOLLIN | EPOLLOUT, .data.u32 = 3},
	                         edges = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = 4};
	struct epoll_event e = both;
	struct sy_tcp_event got;

	queue_open(8);
	for (unsigned i = 3; i <= 4; i++) {
		assert_int_equal(sy_tcp_epoll_ctl(on.server, on.ep, EPOLL_CTL_MOD, on.to[i], &e),
		                 0);
		served_send(i, "\7on", 3);
		while (sy_tcp_epoll_fetch(on.server, on.ep, ALL, &got, 1, 0, NULL))
			assert_int_equal(got.data.u32, 3);
		give(take("\7on", 3), 0, NULL, 0);
		assert_int_equal(sy_tcp_epoll_fetch(on.server, on.ep, ALL, &got, 1, 0, NULL), 1);
		assert_int_equal(got.events, EPOLLOUT);
		assert_int_equal(got.data.u32, i);
		take_none();
		e = (struct epoll_event){.events = EPOLLIN, .data.u32 = 3};
		sy_tcp_epoll_ctl(on.server, on.ep, EPOLL_CTL_MOD, on.to[3], &e);
		e = edges;
	}
	served_fetch(ALL, -1, 0); /* an edge is reported once */
}

/* A request larger than the receive buffer: the rest cannot arrive, and the application gets the
 * event. */
static void test_requests_larger_than_the_buffer(void **state)
{
	static uint8_t bytes[30000];
	const int few = 8192;
	struct sy_tcp_request *r;
	size_t sent = 0, len = 0;

	memset(bytes, 7, sizeof(bytes));
	queue_open(8);
	sy_tcp_setsockopt(on.server, on.listener, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few));
	served_connect(8);
	served_watch(8, EPOLLIN);
	while (sent < sizeof(bytes)) {
		ssize_t some =
		        sy_tcp_send(on.client, on.from[8], bytes + sent, sizeof(bytes) - sent, 0);
		assert_true(some > 0);
		sent += (size_t)some;
	}
	link_pass(&served, 2000000000);
	for (unsigned n = 0; n < 40 && len < sizeof(bytes); n++) {
		struct sy_tcp_event e;
		int told = sy_tcp_epoll_fetch(on.server, on.ep, ALL, &e, 1, 0, NULL);
		if (told) {
			static uint8_t in[sizeof(bytes)];
			ssize_t got = sy_tcp_recv(on.server, on.to[8], in, sizeof(in), 0);
			assert_true(e.events & EPOLLIN && got > 0);
			len += (size_t)got;
		} else if (sy_tcp_queue_dequeue(queue, &r, 1, 0)) {
			size_t used = len + r->len == sizeof(bytes) ? r->len : 0; /* its end */
			len += used;
			give(r, used, NULL, 0);
		}
		link_pass(&served, 100000000);
	}
	assert_int_equal(len, sizeof(bytes));
}

/* An incomplete request is fetched once the queue is removed. */
static void test_a_queue_is_removed(void **state)
{
	queue_open(8);
	served_send(0, "\7on", 3);
	served_fetch(ALL, -1, 0);
	give(take("\7on", 3), 0, NULL, 0);
	served_fetch(ALL, -1, 0);
	assert_int_equal(sy_tcp_epoll_lend(on.server, on.ep, LOW, NULL), 0);
	served_fetch(ALL, 0, 7);
}

/* Requests not dequeued return unchanged when the queue is closed. */
static void test_queued_requests_return_at_close(void **state)
{
	queue_open(8);
	for (unsigned i = 0; i < 3; i++)
		served_send(i, "\7on", 3);
	served_fetch(ALL, -1, 0);
	sy_tcp_epoll_lend(on.server, on.ep, LOW, NULL);
	sy_tcp_queue_close(queue);
	queue = NULL;
	for (int i = 0; i < 3; i++) {
		served_fetch(ALL, i, 7);
		served_read((unsigned)i, 3);
	}
}

static void test_one_socket_is_lent(void **state)
{
	epoll_data_t data = {.u64 = 77};
	struct sy_tcp_request *r;

	assert_int_equal(sy_tcp_queue_open(1, &queue), 0);
	assert_int_equal(sy_tcp_lend(on.server, on.to[0], data, queue), -EAGAIN);
	served_send(0, "abc", 3);
	assert_int_equal(sy_tcp_lend(on.server, on.to[0], data, queue), 0);
	assert_int_equal(sy_tcp_lend(on.server, on.to[0], data, queue), -EAGAIN);
	served_fetch(ALL, -1, 0);
	r = take("abc", 3);
	assert_int_equal(r->data.u64, 77);
	give(r, 1, "A", 1);
	served_answer(0, "A", 1);
	served_fetch(ALL, 0, SY_USUAL);
	served_read(0, 2);
	assert_int_equal(sy_tcp_lend(on.server, on.listener, data, queue), -ENOTCONN);
	assert_int_equal(sy_tcp_lend(on.server, 999, data, queue), -EBADF);
}

/* A response larger than the send buffer. */
static void test_long_answers(void **state)
{
	const size_t len = 3u << 20;
	uint8_t *response, bytes[65536];
	struct sy_tcp_request *r;
	size_t got = 0;

	queue_open(8);
	served_send(0, "\7one", 4);
	served_fetch(ALL, -1, 0);
	r = take("\7one", 4);
	response = sy_tcp_request_buffer(r, len);
	for (size_t i = 0; i < len; i++)
		response[i] = (uint8_t)(i * 7 ^ i >> 8);
	sy_tcp_request_complete(r, 4, len);
	while (got < len) {
		ssize_t n = sy_tcp_recv(on.client, on.from[0], bytes, sizeof(bytes), 0);
		if (n == -EAGAIN) {
			assert_true(sy_tcp_wait(on.client, 10000, NULL) >= 0);
			continue;
		}
		assert_true(n > 0);
		for (ssize_t i = 0; i < n; i++, got++)
			assert_int_equal(bytes[i], (uint8_t)(got * 7 ^ got >> 8));
	}
	served_answer(0, "", 0);
}

/* More packets than a request's initial capacity. */
static void test_long_requests(void **state)
{
	static uint8_t bytes[65000];
	struct sy_tcp_request *r;
	size_t sent = 0, len = 0;

	memset(bytes, 7, sizeof(bytes));
	queue_open(8);
	for (unsigned n = 0; n < 1000 && sent < sizeof(bytes); n++) {
		ssize_t some =
		        sy_tcp_send(on.client, on.from[0], bytes + sent, sizeof(bytes) - sent, 0);
		assert_true(some > 0 || some == -EAGAIN);
		sent += some > 0 ? (size_t)some : 0;
		link_pass(&served, 1000000);
	}
	assert_int_equal(sent, sizeof(bytes));
	for (unsigned n = 0; n < 8 && len < sizeof(bytes); n++) {
		served_fetch(ALL, -1, 0);
		assert_int_equal(sy_tcp_queue_dequeue(queue, &r, 1, 0), 1);
		assert_true(r->len > len); /* more than before */
		len = r->len;
		if (len < sizeof(bytes))
			give(r, 0, NULL, 0);
	}
	assert_int_equal(len, sizeof(bytes));
	assert_true(r->count > 32);
	give(r, 0, NULL, 0);
	served_fetch(ALL, -1, 0);
	take_none(); /* that is all data */
	served_send(0, "\7", 1);
	served_fetch(ALL, -1, 0);
	assert_int_equal(sy_tcp_queue_dequeue(queue, &r, 1, 0), 1);
	assert_int_equal(r->len, sizeof(bytes) + 1);
	give(r, r->len, "done", 4);
	served_answer(0, "done", 4);
}

/* More connections than may be lent have responses that their clients do not read. */
static void test_clients_that_do_not_read_block_no_others(void **state)
{
	const int few = 4096, max = 1030;
	static uint8_t answer[65536];

	queue_open(8);
	on.receive_bytes = few;
	for (int i = 1; i < max; i++) {
		served_connect((unsigned)i);
		served_watch((unsigned)i, EPOLLIN);
		sy_tcp_setsockopt(on.server, on.to[i], SOL_SOCKET, SO_SNDBUF, &few, sizeof(few));
		served_send((unsigned)i, "\7x", 2);
		served_fetch(ALL, -1, 0);
		give(take("\7x", 2), 2, answer, sizeof(answer));
	}
	served_send(0, "\7x", 2);
	served_fetch(ALL, -1, 0);
	give(take("\7x", 2), 2, "y", 1);
	served_answer(0, "y", 1);
	/* a socket is closed, another one's client resumes reading */
	sy_tcp_close_fd(on.server, on.to[2]);
	for (size_t got = 0; got < sizeof(answer);) {
		uint8_t bytes[8192];
		ssize_t n = sy_tcp_recv(on.client, on.from[3], bytes, sizeof(bytes), 0);
		assert_true(n > 0 || (n == -EAGAIN && sy_tcp_wait(on.client, 10000, NULL) >= 0));
		got += n > 0 ? (size_t)n : 0;
	}
	served_send(3, "\7z", 2);
	served_fetch(ALL, -1, 0);
	give(take("\7z", 2), 2, NULL, 0);
}

static int setup_many(void **state)
{
	const struct sy_stack_options many = {.connections = 2 * SERVED_MAX};

	on.receive_bytes = 0;
	served_open(1, &many);
	queue = NULL;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_request_is_answered),
	        CASE(later_data_stays_behind_the_request),
	        CASE(incomplete_requests_are_queued_again),
	        CASE(packets_outlive_their_connection),
	        CASE(reused_descriptors_get_no_response),
	        CASE(a_queue_is_full),
	        CASE(a_shared_queue_has_space_again),
	        CASE(writable_beside_an_incomplete_request),
	        CASE(requests_larger_than_the_buffer),
	        CASE(a_queue_is_removed),
	        CASE(queued_requests_return_at_close),
	        CASE(one_socket_is_lent),
	        CASE(long_answers),
	        CASE(long_requests),
	        cmocka_unit_test_setup_teardown(test_clients_that_do_not_read_block_no_others,
	                                        setup_many, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
