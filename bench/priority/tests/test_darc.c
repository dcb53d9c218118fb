// SPDX-License-Identifier: Apache-2.0
/* Reservation of workers for types; and DARC behind two contexts. */
#include "cores.h"
#include "darc.h"
#include "served.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

static struct cores cores;

/* Serves a window of requests: counts and times by type. */
static void window(const unsigned *count, const uint64_t *ns)
{
	for (unsigned type = 0; type < cores.types; type++)
		for (unsigned i = 0; i < count[type]; i++)
			cores_served(&cores, 0, type, ns[type]);
	assert_int_equal(cores.seen, 0);
}

static void pick(uint32_t waiting, unsigned oldest, int type, unsigned worker)
{
	unsigned got_type = 99, got_worker = 99;
	bool any = cores_pick(&cores, waiting, oldest, &got_type, &got_worker);

	assert_int_equal(any, type >= 0);
	if (type < 0)
		return;
	assert_int_equal(got_type, type);
	assert_int_equal(got_worker, worker);
}

static void test_first_come_first_served(void **state)
{
	cores_init(&cores, 2, 3, NULL, 100);
	pick(0, 0, -1, 0);
	pick(1 << 2 | 1, 2, 2, 0);
	pick(1 << 3 | 1, 3, 3, 1); /* unknown ones as well */
	pick(1, 0, -1, 0);
	cores_served(&cores, 0, 2, US);
	pick(1, 0, 0, 0);
}

/* 0.5 % of 1 ms and 99.5 % of 1 µs: 16.6 % of the work is short. */
static void test_short_types_reserve_a_core(void **state)
{
	cores_init(&cores, 2, 2, NULL, 1000);
	window((unsigned[]){5, 995}, (uint64_t[]){1 * MS, 1 * US});
	assert_int_equal(cores.type[1].own, 1); /* at least one */
	assert_int_equal(cores.type[1].steal, 2);
	assert_int_equal(cores.type[0].own, 2);
	assert_int_equal(cores.type[0].steal, 0);
	pick(3, 0, 1, 0);
	pick(3, 0, 1, 1); /* cycles of the longer type's worker */
	pick(3, 0, -1, 0);
	cores_served(&cores, 0, 1, US);
	pick(1, 0, -1, 0); /* idles instead of serving a long type */
	cores_served(&cores, 1, 1, US);
	pick(1, 0, 0, 1);
	pick(1, 0, -1, 0);
	pick(2, 1, 1, 0);
}

static void test_shares_of_work(void **state)
{
	/* work: 10 %, 30 %, 60 %; the first two form a group */
	cores_init(&cores, 10, 3, NULL, 300);
	window((unsigned[]){100, 150, 50}, (uint64_t[]){10 * US, 20 * US, 120 * US});
	assert_int_equal(cores.type[0].own, 0xf);
	assert_int_equal(cores.type[1].own, 0xf);
	assert_int_equal(cores.type[0].steal, 0x3f0);
	assert_int_equal(cores.type[2].own, 0x3f0);
	assert_int_equal(cores.type[3].own, 0x200); /* unknown: the last one */
	pick(1 << 3, 3, 3, 9);
	pick(1 << 1 | 1, 1, 0, 0); /* within a group: the lower number first */
	/* type 2 becomes the short one */
	for (unsigned i = 0; i < 10; i++)
		cores.busy = 0;
	window((unsigned[]){100, 100, 100}, (uint64_t[]){100 * US, 100 * US, 1 * US});
	assert_int_equal(cores.type[2].own, 1);
	assert_int_equal(cores.type[0].own, 0x3fe);
	assert_int_equal(cores.order[0], 2);
}

static void test_one_core(void **state)
{
	cores_init(&cores, 1, 2, NULL, 10);
	window((unsigned[]){5, 5}, (uint64_t[]){1 * MS, 1 * US});
	assert_int_equal(cores.type[0].own, 1);
	assert_int_equal(cores.type[1].own, 1);
	pick(3, 0, 1, 0); /* the short one first */
	cores_served(&cores, 0, 1, US);
	pick(1, 0, 0, 0);
}

/* The paper's extension: levels go before service times, in dispatch and in reservation. */
static void test_levels_go_first(void **state)
{
	static const uint8_t level[] = {6, 6, 0};

	cores_init(&cores, 2, 3, level, 30);
	assert_int_equal(cores_first(&cores, 7), 4);
	assert_int_equal(cores_first(&cores, 3), 3);
	assert_int_equal(cores_first(&cores, 8 | 2), 2);
	assert_int_equal(cores_first(&cores, 8), 8);
	assert_int_equal(cores_first(&cores, 0), 0);
	window((unsigned[]){10, 10, 10}, (uint64_t[]){10 * US, 10 * US, 12 * US});
	assert_int_equal(cores.type[2].own, 1); /* similar, but of another level */
	assert_int_equal(cores.type[2].steal, 2);
	assert_int_equal(cores.type[0].own, 2);
	assert_int_equal(cores.type[1].own, 2);
	pick(7, 0, 2, 0);
	pick(7, 0, 2, 1);
	cores_served(&cores, 0, 2, US);
	pick(3, 0, -1, 0); /* its reserved core idles */
	cores_served(&cores, 1, 2, US);
	pick(3, 1, 0, 1);
	/* One core: the urgent type first, whatever its service time, even unmeasured. */
	cores_init(&cores, 1, 3, level, 10);
	window((unsigned[]){5, 5, 0}, (uint64_t[]){1 * US, 9 * US, 0});
	pick(7, 0, 2, 0);
	cores_served(&cores, 0, 2, 100 * US);
	window((unsigned[]){3, 3, 3}, (uint64_t[]){1 * US, 9 * US, 100 * US});
	pick(7, 0, 2, 0);
	cores.busy = 0;
	pick(3, 0, 0, 0);
}

/* A new type, then an unused one: profiles are kept. */
static void test_unused_types_keep_their_profile(void **state)
{
	cores_init(&cores, 4, 3, NULL, 10);
	window((unsigned[]){0, 5, 5}, (uint64_t[]){0, 10 * US, 1 * MS});
	assert_int_equal(cores.type[0].own, 8);
	window((unsigned[]){5, 0, 5}, (uint64_t[]){1 * US, 0, 1 * MS});
	assert_int_equal(cores.type[1].mean_ns / US, 10);
	assert_int_equal(cores.order[0], 0);
	assert_int_equal(cores.order[1], 1);
	assert_int_equal(cores.type[0].own, 1);
	assert_int_equal(cores.type[1].own, 2);
	assert_int_equal(cores.type[2].own & 4, 4);
}

/* ---- behind a stack -------------------------------------------------------------------------- */

#define TYPES 2

static struct darc *darc;

static unsigned type_of(const struct iovec *v, int count)
{
	return *(const uint8_t *)v->iov_base;
}

static void darc_begin_with(unsigned workers, unsigned requests, const uint8_t *level)
{
	const struct darc_setup o = {.workers = workers,
	                             .types = TYPES,
	                             .window = requests,
	                             .type_of = type_of,
	                             .level = level};

	assert_int_equal(darc_open(&o, &darc), 0);
	assert_int_equal(sy_tcp_epoll_lend(on.server, on.ep, SY_TCP_LEVELS, darc_queue(darc)), 0);
}

static void darc_begin(unsigned workers, unsigned requests)
{
	darc_begin_with(workers, requests, NULL);
}

static void fetch_nothing(void)
{
	served_fetch(SY_TCP_LEVELS, -1, 0);
}

/* Dequeues a worker's request, expected of connection i; -1: none. */
static struct sy_tcp_request *take(unsigned worker, int i)
{
	struct sy_tcp_request *r = darc_take(darc, worker);

	assert_int_equal(r != NULL, i >= 0);
	if (i >= 0)
		assert_int_equal(r->data.u32, i);
	return r;
}

static void answer(unsigned worker, struct sy_tcp_request *r)
{
	memcpy(sy_tcp_request_buffer(r, 2), "ok", 2);
	sy_tcp_request_complete(r, r->len, 2);
	darc_served(darc, worker);
	sy_tcp_run(on.server);
}

/* Measured by the clock that times requests. */
static void spin_us(uint64_t us)
{
	for (uint64_t end = sy_clock_ns() + us * US; sy_clock_ns() < end;)
		;
}

static void test_a_worker_has_one_at_a_time(void **state)
{
	struct sy_tcp_request *a, *b;

	darc_begin(2, 1000);
	for (unsigned i = 0; i < 4; i++)
		served_send(i, i % 2 ? "\1" : "\0", 1);
	fetch_nothing();
	a = take(0, 0);
	b = take(1, 1);
	take(0, -1);
	take(1, -1);
	answer(1, b);
	answer(1, take(1, 2));
	answer(1, take(1, 3));
	answer(0, a);
	for (unsigned i = 0; i < 4; i++)
		served_answer(i, "ok", 2);
	fetch_nothing();
}

static void test_short_types_are_served_first(void **state)
{
	darc_begin(1, 10);
	for (unsigned n = 0; n < 10; n++) {
		served_send(0, n % 2 ? "\1" : "\0", 1);
		fetch_nothing();
		struct sy_tcp_request *r = take(0, 0);
		if (n % 2 == 0)
			spin_us(2000); /* type 0 is long */
		answer(0, r);
	}
	link_pass(&served, 100 * MS); /* Nagle (RFC 896) */
	served_answer(0, "okokokokokokokokokok", 20);
	served_send(1, "\0", 1);
	served_send(2, "\0", 1);
	served_send(3, "\1", 1);
	served_send(4, "\7", 1); /* unknown type */
	fetch_nothing();
	answer(0, take(0, 3));
	answer(0, take(0, 1));
	answer(0, take(0, 2));
	answer(0, take(0, 4));
}

/* Also before the first reservation. */
static void test_urgent_types_are_served_first(void **state)
{
	static const uint8_t level[] = {6, 0};

	darc_begin_with(1, 4, level);
	for (unsigned round = 0; round < 2; round++) {
		served_send(0, "\0", 1);
		fetch_nothing();
		served_send(1, "\0", 1);
		served_send(2, "\7", 1);
		fetch_nothing();
		served_send(3, "\1", 1);
		fetch_nothing();
		answer(0, take(0, 3));
		answer(0, take(0, 0));
		answer(0, take(0, 1));
		answer(0, take(0, 2));
		link_pass(&served, 100 * MS);
		for (unsigned i = 0; i < 4; i++)
			served_answer(i, "ok", 2);
	}
}

/* After DARC is removed, sockets are fetched again. */
static void test_removed_darc_returns_sockets(void **state)
{
	darc_begin(1, 10);
	served_send(0, "\1", 1);
	fetch_nothing();
	answer(0, take(0, 0));
	sy_tcp_epoll_lend(on.server, on.ep, SY_TCP_LEVELS, NULL);
	served_send(0, "\1", 1);
	served_fetch(SY_TCP_LEVELS, 0, SY_USUAL);
}

static void darc_end(void)
{
	sy_tcp_epoll_lend(on.server, on.ep, SY_TCP_LEVELS, NULL);
	darc_close(darc);
	darc = NULL;
}

/* A worker has completed a request that its context has not processed. */
static void test_close_with_completed_requests(void **state)
{
	struct sy_tcp_request *r;

	darc_begin(1, 10);
	served_send(0, "\1", 1);
	served_send(1, "\1", 1);
	fetch_nothing();
	r = take(0, 0);
	memcpy(sy_tcp_request_buffer(r, 2), "ok", 2);
	sy_tcp_request_complete(r, 1, 2);
	darc_served(darc, 0);
	darc_end();
	sy_tcp_run(on.server);
	served_answer(0, "ok", 2);
	served_fetch(SY_TCP_LEVELS, 1, SY_USUAL); /* its worker's next one */
	served_read(1, 1);
}

/* Requests not dequeued return unchanged. */
static void test_close_with_queued_requests(void **state)
{
	darc_begin(2, 10);
	for (unsigned i = 0; i < 5; i++)
		served_send(i, i % 2 ? "\1" : "\0", 1);
	fetch_nothing();
	darc_end();
	sy_tcp_run(on.server);
	for (unsigned seen = 0; seen != 0x1f;) {
		struct sy_tcp_event e;
		assert_int_equal(
		        sy_tcp_epoll_fetch(on.server, on.ep, SY_TCP_LEVELS, &e, 1, 0, NULL), 1);
		assert_int_equal(seen >> e.data.u32 & 1, 0);
		served_read(e.data.u32, 1);
		seen |= 1u << e.data.u32;
	}
	fetch_nothing();
}

static int setup(void **state)
{
	served_open(8, NULL);
	return 0;
}

static int teardown(void **state)
{
	darc_end();
	link_close(&served);
	return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_first_come_first_served),
	        cmocka_unit_test(test_short_types_reserve_a_core),
	        cmocka_unit_test(test_shares_of_work),
	        cmocka_unit_test(test_one_core),
	        cmocka_unit_test(test_levels_go_first),
	        cmocka_unit_test(test_unused_types_keep_their_profile),
	        CASE(a_worker_has_one_at_a_time),
	        CASE(short_types_are_served_first),
	        CASE(urgent_types_are_served_first),
	        CASE(removed_darc_returns_sockets),
	        CASE(close_with_completed_requests),
	        CASE(close_with_queued_requests),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
