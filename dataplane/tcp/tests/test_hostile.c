// SPDX-License-Identifier: Apache-2.0
/* Random bytes: see hostile.h. By hand: test_tcp_hostile COUNT [FIRST]. */
#include <stdio.h>

#include "script.h"

#include "hostile.h"

#define RUNS 6000

/* Any bytes, or more often those that begin a connection and go on. */
static void run(uint64_t seed)
{
	uint8_t data[600];
	uint64_t z = seed;
	size_t size = 20 + seed % (sizeof(data) - 20);

	for (size_t i = 0; i < size; i++) {
		z = z * 6364136223846793005u + 1442695040888963407u;
		data[i] = (uint8_t)(z >> 33);
	}
	/* A SYN, its ACK and accept. */
	static const uint8_t begin[] = {
	        0, 8,  4, 0, 0, 255, 255, 1, 180, 5, 2, /* a SYN with all options */
	        0, 16, 0, 0, 0, 255, 255, 1,            /* its ACK */
	        3, 0,                                   /* accept */
	};
	/* The same where a byte says how each packet lies in buffers. */
	static const uint8_t begin_port[] = {
	        0, 8,  4,  0,  0, 255, 255, 1, 180, 5, 2, 0, /* SYN */
	        0, 16, 0,  0,  0, 255, 255, 1, 0,            /* ACK */
	        3, 0,                                        /* accept */
	        3, 11, 32, 78,                               /* send 20000 bytes */
	};
	bool port = data[0] & 2;
	size_t len = port ? sizeof(begin_port) : sizeof(begin);
	if (seed % 4)
		memcpy(data + 1, port ? begin_port : begin, len < size - 1 ? len : size - 1);
	struct rte_mempool *pool = tests_pool();
	unsigned before = rte_mempool_avail_count(pool);
	struct hostile h;
	CHECK(hostile_open(&h, pool, data, size));
	while (h.size > 0) {
		hostile_step(&h);
		CHECK(hostile_is_consistent(h.s));
	}
	hostile_close(&h);
	CHECK(rte_mempool_avail_count(pool) == before);
}

static void test_random(void **state)
{
	for (uint64_t seed = 1; seed <= RUNS; seed++)
		run(seed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_random),
	};
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;

	if (argc < 2)
		return cmocka_run_group_tests(tests, NULL, NULL);
	for (uint64_t seed = first; seed < first + strtoull(argv[1], NULL, 0); seed++)
		run(seed);
	return 0;
}
