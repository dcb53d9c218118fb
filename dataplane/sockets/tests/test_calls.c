// SPDX-License-Identifier: Apache-2.0
/* Random calls, as the fuzz target. `test_sockets_calls COUNT FIRST` runs more. */
#include "calls.h"

static uint64_t first = 1, count = 1000;

static uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void test_random_calls(void **state)
{
	static uint8_t bytes[2000];
	static struct calls calls;
	uint64_t packets = 0;

	for (uint64_t seed = first; seed < first + count; seed++) {
		uint64_t random = seed;
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)random_next(&random);
		calls_open(&calls, bytes, sizeof(bytes) - seed % 100);
		while (calls.left > 0)
			calls_step(&calls);
		calls_close(&calls);
		packets += calls.link.packets;
	}
	print_message("             %lu packets\n", packets);
	assert_true(packets > count); /* the calls cause traffic */
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_calls)};

	if (argc > 1)
		count = strtoull(argv[1], NULL, 10);
	if (argc > 2)
		first = strtoull(argv[2], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
