// SPDX-License-Identifier: Apache-2.0
/* Hooks and levels by sockets and epoll. */
#include "served.h"

#define ALL SY_TCP_LEVELS

static void test_most_urgent_is_fetched_first(void **state)
{
	served_labels();
	served_send(0, "\7", 1);
	served_send(1, "\2", 1);
	served_send(2, "\5", 1);
	served_fetch(1 | 1 << 6, -1, 0);
	served_fetch(1 << 5 | 1 << 7, 2, 5);
	served_fetch(ALL, 1, 2); /* level-triggered: as long as it is unread */
	served_fetch(ALL, 1, 2);
	assert_int_equal(sy_tcp_level(on.server, on.to[1]), 2);
	served_read(1, 1);
	served_fetch(ALL, 2, 5);
	served_read(2, 1);
	served_fetch(ALL, 0, 7);
	served_read(0, 1);
	served_fetch(ALL, -1, 0);
}

static void test_wait_gives_them_in_order(void **state)
{
	struct epoll_event e[8];

	served_labels();
	for (unsigned i = 0; i < 6; i++) {
		uint8_t level = (uint8_t)(5 - i);
		served_send(i, &level, 1);
	}
	assert_int_equal(sy_tcp_epoll_wait(on.server, on.ep, e, 8, 0, NULL), 6);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(e[i].data.u32, 5 - i);
}

/* Without hooks: FIFO. */
static void test_without_hooks(void **state)
{
	struct epoll_event e[8];

	for (unsigned i = 0; i < 6; i++)
		served_send(i, "\7", 1);
	assert_int_equal(sy_tcp_epoll_wait(on.server, on.ep, e, 8, 0, NULL), 6);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(e[i].data.u32, i);
	assert_int_equal(sy_tcp_level(on.server, on.to[0]), SY_USUAL);
}

static void test_time_passes_without_chosen_levels(void **state)
{
	struct sy_tcp_event e;
	uint64_t began = served.now;

	served_labels();
	served_send(0, "\7", 1);
	assert_int_equal(sy_tcp_epoll_fetch(on.server, on.ep, 1, &e, 1, 100, NULL), 0);
	assert_true(served.now - began >= UINT64_C(100000000));
	assert_int_equal(sy_tcp_epoll_fetch(on.server, on.ep, 0, &e, 1, 0, NULL), -EINVAL);
	assert_int_equal(sy_tcp_epoll_fetch(on.server, on.ep, ALL, &e, 0, 0, NULL), -EINVAL);
	assert_int_equal(sy_tcp_epoll_fetch(on.server, on.to[0], ALL, &e, 1, 0, NULL), -EINVAL);
	assert_int_equal(sy_tcp_epoll_fetch(on.server, 999, ALL, &e, 1, 0, NULL), -EBADF);
}

/* Each fetch uses the present level: urgent data may be read or arrive meanwhile. */
static void test_levels_change(void **state)
{
	uint8_t urgent[1300] = {1}, other[1300] = {6};

	served_labels();
	served_send(0, urgent, sizeof(urgent));
	served_send(0, other, sizeof(other));
	served_send(1, "\4", 1);
	served_fetch(ALL, 0, 1);
	served_read(0, sizeof(urgent));
	served_fetch(1 << 6, 0, 6);
	served_fetch(ALL, 1, 4);
	served_send(0, "\3", 1);
	served_fetch(ALL, 0, 3);
}

/* Data of others does not delay accept(). */
static void test_listeners_have_level_0(void **state)
{
	served_labels();
	struct epoll_event e = {.events = EPOLLIN, .data.u32 = 40};
	sy_tcp_epoll_ctl(on.server, on.ep, EPOLL_CTL_ADD, on.listener, &e);
	served_send(0, "\1", 1);
	int fd = sy_tcp_socket(on.client, AF_INET);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(80)};
	inet_pton(AF_INET, LINK_V4(1), &to.sin_addr);
	sy_tcp_connect(on.client, fd, (struct sockaddr *)&to, sizeof(to));
	sy_tcp_run(on.client);
	served_fetch(ALL, 40, 0);
}

static void test_nested(void **state)
{
	int outer = sy_tcp_epoll_create(on.server);
	struct epoll_event e = {.events = EPOLLIN, .data.u32 = 50};
	struct sy_tcp_event got;

	served_labels();
	sy_tcp_epoll_ctl(on.server, outer, EPOLL_CTL_ADD, on.ep, &e);
	served_send(0, "\2", 1);
	assert_int_equal(sy_tcp_epoll_fetch(on.server, outer, 1 << 2, &got, 1, 0, NULL), 1);
	assert_int_equal(got.data.u32, 50);
	served_fetch(ALL, 0, 2);
}

static unsigned fetched_of(unsigned i, unsigned rounds)
{
	unsigned count = 0;

	for (unsigned n = 0; n < rounds; n++) {
		struct sy_tcp_event e;
		assert_int_equal(sy_tcp_epoll_fetch(on.server, on.ep, ALL, &e, 1, 0, NULL), 1);
		count += e.data.u32 == i;
	}
	return count;
}

static void test_shares(void **state)
{
	static const uint8_t some[SY_PRIORITIES] = {[7] = 10, [5] = 25},
	                     much[SY_PRIORITIES] = {99, 2};

	served_labels();
	served_send(0, "\1", 1);
	served_send(1, "\7", 1);
	served_send(2, "\5", 1);
	assert_int_equal(fetched_of(0, 100), 100);
	assert_int_equal(sy_tcp_epoll_shares(on.server, on.ep, much), -EINVAL);
	assert_int_equal(sy_tcp_epoll_shares(on.server, on.ep, some), 0);
	assert_in_range(fetched_of(1, 200), 18, 22);
	assert_in_range(fetched_of(2, 200), 47, 53);
	assert_in_range(fetched_of(0, 200), 125, 135);
}

/* ---- hooks ----------------------------------------------------------------------------------- */

static uint8_t own_level(struct sy_hook_segment *s, const uint8_t *payload)
{
	s->own[1]++;
	return s->own[0];
}

static void test_hooks(void **state)
{
	int hook = sy_tcp_hook_segment(on.server, "own", own_level);
	uint64_t calls;
	double cycles;
	char why[200];
	uint8_t *own;

	assert_true(hook > 0);
	assert_int_equal(sy_tcp_hook_find(on.server, "own"), hook);
	assert_int_equal(sy_tcp_hook_use(on.server, on.listener, hook), 0);
	served_connect(9); /* inherits it */
	served_watch(9, EPOLLIN);
	own = sy_tcp_own(on.server, on.to[9]);
	own[0] = 3;
	served_send(9, "x", 1);
	served_fetch(ALL, 9, 3);
	assert_int_equal(own[1], 1);
	served_send(0, "x", 1);
	served_fetch(ALL, 9, 3);
	assert_int_equal(sy_tcp_level(on.server, on.to[0]), SY_USUAL);
	assert_int_equal(sy_tcp_hook_use(on.server, SY_TCP_SEGMENTS, hook), 0);
	served_send(0, "x", 1);
	served_fetch(ALL, 0, 0);
	assert_int_equal(sy_tcp_hook_calls(on.server, hook, &calls, &cycles), 0);
	assert_int_equal(calls, 2);
	assert_int_equal(sy_tcp_hook_remove(on.server, hook), 0);
	assert_int_equal(sy_tcp_hook_remove(on.server, hook), -ENOENT);
	assert_int_equal(sy_tcp_hook_calls(on.server, hook, &calls, &cycles), -ENOENT);
	assert_int_equal(sy_tcp_hook_use(on.server, on.to[0], 1000), -EINVAL);
	assert_int_equal(sy_tcp_hook_use(on.server, 999, 1), -EBADF);
	assert_int_equal(sy_tcp_hook_use(on.server, on.ep, 1), -ENOTSOCK);
	assert_int_equal(sy_tcp_hook_use(on.server, sy_tcp_socket(on.server, AF_INET), 1),
	                 -ENOTCONN);
	assert_true(sy_tcp_hook_load(on.server, "none", "/nowhere.o", why, sizeof(why)) < 0);
	assert_non_null(strstr(why, "/nowhere.o"));
	assert_null(sy_tcp_own(on.server, on.listener));
}

static void test_levels_report(void **state)
{
	struct sy_tcp_levels levels;

	served_labels();
	served_send(0, "\7", 1);
	served_send(1, "\7", 1);
	sy_tcp_levels(on.server, &levels);
	assert_int_equal(levels.taken[7], 2);
	assert_int_equal(levels.unread[7], 2);
	assert_int_equal(levels.waiting[7], 0);
	served_read(0, 1);
	sy_tcp_levels(on.server, &levels);
	assert_int_equal(levels.unread[7], 1);
}

static uint16_t left[16]; /* clients' ports in the order of the server's packets */
static unsigned lefts;

static struct rte_mbuf *note(struct link *l, unsigned from, struct rte_mbuf *m)
{
	if (from == 1 && lefts < SY_ARRAY_LEN(left))
		memcpy(&left[lefts++], rte_pktmbuf_mtod_offset(m, void *, 14 + 20 + 2), 2);
	return m;
}

/* SO_PRIORITY of connections, and inherited from listeners. */
static void test_urgent_packets_leave_first(void **state)
{
	const int first = 6, last = 1;
	struct sockaddr_in name;
	socklen_t len = sizeof(name);

	assert_int_equal(sy_tcp_setsockopt(on.server, on.to[0], SOL_SOCKET, SO_PRIORITY, &last,
	                                   sizeof(last)),
	                 0);
	sy_tcp_setsockopt(on.server, on.listener, SOL_SOCKET, SO_PRIORITY, &first, sizeof(first));
	served_connect(8);
	served.change = note;
	lefts = 0;
	for (unsigned i = 0; i <= 8; i++)
		assert_int_equal(sy_tcp_send(on.server, on.to[i], "x", 1, 0), 1);
	sy_tcp_run(on.server);
	served.change = NULL;
	assert_int_equal(lefts, 9);
	sy_tcp_getsockname(on.client, on.from[8], (struct sockaddr *)&name, &len);
	assert_int_equal(left[0], name.sin_port);
	sy_tcp_getsockname(on.client, on.from[0], (struct sockaddr *)&name, &len);
	assert_int_equal(left[8], name.sin_port);
}

static int setup(void **state)
{
	served_open(8, NULL);
	return 0;
}

static int teardown(void **state)
{
	link_close(&served);
	return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(most_urgent_is_fetched_first),
	        CASE(wait_gives_them_in_order),
	        CASE(without_hooks),
	        CASE(time_passes_without_chosen_levels),
	        CASE(levels_change),
	        CASE(listeners_have_level_0),
	        CASE(nested),
	        CASE(shares),
	        CASE(hooks),
	        CASE(levels_report),
	        CASE(urgent_packets_leave_first),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
