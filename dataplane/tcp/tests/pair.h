// SPDX-License-Identifier: Apache-2.0
/*
 * Two stacks: a client with many connections, and a server with hooks. A bag collects the client's
 * packets, which the test delivers to the server.
 */
#ifndef TCP_TESTS_PAIR_H
#define TCP_TESTS_PAIR_H

#include <arpa/inet.h>
#include <errno.h>

#include "../priority.h"
#include "random.h"
#include "script.h"

#define PAIR_MS    UINT64_C(1000000)
#define PAIR_PORT  80
#define PAIR_MAX   64 /* connections */
#define PAIR_BURST 64

static struct pair {
	struct sy_stack *client, *server;
	struct rte_mempool *pool; /* the server's */
	sy_stack_id listener;
	uint64_t now;
	sy_stack_id from[PAIR_MAX], to[PAIR_MAX]; /* both ends; the server's cookie is the index */
	unsigned before, pool_before;
} pair;

/* A small pool for the server: few packets may be queued. */
static inline struct rte_mempool *pair_few(void)
{
	static struct rte_mempool *pool;

	if (!pool)
		pool = rte_pktmbuf_pool_create("small", 319, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
		                               SOCKET_ID_ANY);
	assert_non_null(pool);
	return pool;
}

static inline struct sy_stack *pair_stack(struct rte_mempool *pool)
{
	struct sy_stack_options o = {.pool = pool, .connections = 2 * PAIR_MAX};
	struct sy_stack *s;

	assert_int_equal(sy_stack_create(&o, pair.now, &s, NULL), 0);
	return s;
}

/* Delivers one side's packets to the other. */
static inline bool pair_bring(struct sy_stack *from, struct sy_stack *to)
{
	struct rte_mbuf *m[PAIR_BURST];
	bool any = false;
	unsigned count;

	while ((count = sy_stack_transmit(from, m, PAIR_BURST, pair.now)) > 0) {
		sy_stack_receive(to, m, count, pair.now);
		any = true;
	}
	return any;
}

/* Exchanges packets until both are idle; processes queued packets. */
static inline void pair_settle(void)
{
	bool more = true;

	while (more) {
		more = pair_bring(pair.client, pair.server);
		more |= sy_stack_process(pair.server, PAIR_BURST, pair.now) > 0;
		more |= pair_bring(pair.server, pair.client);
	}
}

static inline void pair_pass(uint64_t ms)
{
	for (uint64_t i = 0; i < ms; i++) {
		pair.now += PAIR_MS;
		sy_stack_advance(pair.client, pair.now);
		sy_stack_advance(pair.server, pair.now);
		pair_settle();
	}
}

static inline void pair_connect(unsigned count)
{
	struct sy_stack_endpoint from = {0}, to = {.port = htons(PAIR_PORT)};
	struct sy_stack_event e[2 * PAIR_MAX];

	sy_addr_parse("10.0.0.1", &from.addr);
	sy_addr_parse("10.0.0.2", &to.addr);
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(
		        sy_stack_connect(pair.client, &from, &to, i, pair.now, &pair.from[i]), 0);
		pair_settle();
		assert_int_equal(sy_stack_accept(pair.server, pair.listener, i, NULL, &pair.to[i]),
		                 0);
		sy_stack_set(pair.client, pair.from[i], SY_STACK_NO_DELAY, 1, pair.now);
	}
	while (sy_stack_events(pair.server, e, PAIR_MAX) > 0)
		;
}

/* pool: the server's packets; NULL: enough. */
static inline void pair_open(struct rte_mempool *pool)
{
	struct sy_stack_endpoint local = {.port = htons(PAIR_PORT)};

	pair = (struct pair){.now = UINT64_C(1000000) * PAIR_MS,
	                     .pool = pool ? pool : tests_pool(),
	                     .before = rte_mempool_avail_count(tests_pool())};
	pair.pool_before = rte_mempool_avail_count(pair.pool);
	pair.client = pair_stack(tests_pool());
	pair.server = pair_stack(pair.pool);
	sy_addr_parse("10.0.0.2", &local.addr);
	assert_int_equal(sy_stack_listen(pair.server, &local, PAIR_MAX, 99, &pair.listener), 0);
}

static inline int pair_setup(void **state)
{
	pair_open(NULL);
	return 0;
}

/* Checks for leaks. */
static inline void pair_close(void)
{
	struct sy_stack_levels levels;

	for (unsigned i = 0; i < PAIR_MAX; i++) {
		if (pair.to[i])
			sy_stack_abort(pair.server, pair.to[i], pair.now);
		if (pair.from[i])
			sy_stack_abort(pair.client, pair.from[i], pair.now);
	}
	pair_settle();
	sy_stack_levels(pair.server, &levels);
	assert_int_equal(levels.own, 0);
	for (unsigned i = 0; i < SY_PRIORITIES; i++)
		assert_int_equal(levels.unread[i], 0);
	sy_stack_destroy(pair.client);
	sy_stack_destroy(pair.server);
	assert_int_equal(rte_mempool_avail_count(tests_pool()), pair.before);
	assert_int_equal(rte_mempool_avail_count(pair.pool), pair.pool_before);
}

static inline int pair_teardown(void **state)
{
	pair_close();
	return 0;
}

/* A test with setup and teardown of a pair. */
#define PAIR_TEST(name) cmocka_unit_test_setup_teardown(test_##name, pair_setup, pair_teardown)

static inline unsigned pair_packet_hook(const char *name, sy_hook_packet_fn fn)
{
	int hook = sy_hooks_load(sy_stack_hooks(pair.server), name,
	                         &(struct sy_hook_source){.packet = fn}, NULL);

	assert_true(hook > 0);
	return (unsigned)hook;
}

static inline unsigned pair_segment_hook(const char *name, sy_hook_segment_fn fn)
{
	int hook = sy_hooks_load(sy_stack_hooks(pair.server), name,
	                         &(struct sy_hook_source){.segment = fn}, NULL);

	assert_true(hook > 0);
	return (unsigned)hook;
}

/* One segment with these bytes. */
static inline void pair_send(unsigned i, const void *bytes, size_t len)
{
	assert_int_equal(sy_stack_send(pair.client, pair.from[i], bytes, len, 0, pair.now), len);
	pair_bring(pair.client, pair.server);
}

/* Reads len bytes at the server. */
static inline void pair_read(unsigned i, size_t len)
{
	uint8_t bytes[4096];

	assert_true(len <= sizeof(bytes));
	assert_int_equal(sy_stack_receive_bytes(pair.server, pair.to[i], bytes, len, pair.now),
	                 len);
}

/* Expects the next event of these levels to be this connection's; -1: none. */
static inline void pair_event(unsigned levels, int i, unsigned level)
{
	struct sy_stack_event e;
	unsigned count = sy_stack_events_of(pair.server, levels, &e, 1);

	assert_int_equal(count, i >= 0);
	if (i < 0)
		return;
	assert_int_equal(e.cookie, i);
	assert_int_equal(e.level, level);
}

#endif
