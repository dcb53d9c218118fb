// SPDX-License-Identifier: Apache-2.0
/* A server that lends requests of its two lowest levels to a queue. */
#ifndef WORK_QUEUES_H
#define WORK_QUEUES_H

#include "served.h"

#define ALL SY_TCP_LEVELS
#define LOW (1u << 6 | 1u << 7)

static struct sy_tcp_queue *queue;

static inline void queue_open(unsigned requests)
{
	assert_int_equal(sy_tcp_queue_open(requests, &queue), 0);
	assert_int_equal(sy_tcp_epoll_lend(on.server, on.ep, LOW, queue), 0);
	served_labels();
}

static int setup(void **state)
{
	served_open(8, NULL);
	queue = NULL;
	return 0;
}

static int teardown(void **state)
{
	link_close(&served);
	sy_tcp_queue_close(queue);
	return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

#endif
