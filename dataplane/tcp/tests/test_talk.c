// SPDX-License-Identifier: Apache-2.0
/*
 * Two stacks talk, by thousands of random schedules. By hand:
 *
 *     test_tcp_talk COUNT [FIRST]     so many schedules; scripts/talk for millions
 *     test_tcp_talk explain SEED      one, told of
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "script.h"
#include "talk.h"

#define SCHEDULES 10000

static volatile uint64_t running;

/* Reports the present seed of a long run. */
static void on_signal(int number)
{
	dprintf(STDERR_FILENO, "schedule %" PRIu64 ": signal %d\n", running, number);
	signal(number, SIG_DFL);
	raise(number);
}

static bool run(uint64_t first, uint64_t count, bool explain)
{
	struct talk_result all = {0}, one;

	for (uint64_t seed = first; seed < first + count; seed++) {
		running = seed;
		const char *wrong = talk(seed, explain, &one);
		if (wrong) {
			fprintf(stderr, "schedule %" PRIu64 ": %s\n", seed, wrong);
			return false;
		}
		all.ns += one.ns;
		all.packets += one.packets;
		all.bytes += one.bytes;
		all.retransmitted += one.retransmitted;
		all.timeouts += one.timeouts;
		all.undone += one.undone;
		all.raised += one.raised;
		all.given_up += one.given_up;
		all.cut += one.cut;
		all.joined += one.joined;
	}
	printf("%" PRIu64 " schedules, %" PRIu64 " s of virtual time: %" PRIu64 " packets, %" PRIu64
	       " bytes, %" PRIu64 " sent again, %" PRIu64 " time-outs, %" PRIu64 " undone, %" PRIu64
	       " path MTUs raised, %" PRIu64 " given up, %" PRIu64 " segments cut, %" PRIu64
	       " packets joined\n",
	       count, all.ns / 1000000000, all.packets, all.bytes, all.retransmitted, all.timeouts,
	       all.undone, all.raised, all.given_up, all.cut, all.joined);
	return count < SCHEDULES || (all.cut > 0 && all.joined > 0);
}

static void test_schedules(void **state)
{
	assert_true(run(1, SCHEDULES, false));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_schedules),
	};

	if (argc > 1) {
		signal(SIGSEGV, on_signal);
		signal(SIGABRT, on_signal);
	}
	if (argc > 2 && strcmp(argv[1], "explain") == 0)
		return !run(strtoull(argv[2], NULL, 0), 1, true);
	if (argc > 1)
		return !run(argc > 2 ? strtoull(argv[2], NULL, 0) : 1, strtoull(argv[1], NULL, 0),
		            false);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
