// SPDX-License-Identifier: Apache-2.0
/* Whether a CPU is shared, by how long a thread waited for it. */
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../cpu_wait.h"
#include "runtime_fixture.h"

#define PERIOD_NS UINT64_C(10000000)

/* Lets periods pass, in each of which the thread waited for this share of 1000. */
static void pass(struct cpu_wait *c, unsigned periods, unsigned share)
{
	for (; periods; periods--)
		cpu_wait_note(c, c->waited_ns + PERIOD_NS / 1000 * share, c->at_ns + PERIOD_NS);
}

static void test_alone(void **state)
{
	(void)state;
	struct cpu_wait c = {.fd = -1, .at_ns = 1, .waited_ns = 7};
	pass(&c, 1000, 10);
	assert_false(c.shared);
}

static void test_shared_and_alone_again(void **state)
{
	(void)state;
	struct cpu_wait c = {.fd = -1, .at_ns = 1};
	pass(&c, 100, 0);
	pass(&c, 20, 500);
	assert_true(c.shared);
	pass(&c, 100, 50); /* between the two thresholds */
	assert_true(c.shared);
	pass(&c, 100, 10);
	assert_false(c.shared);
	pass(&c, 100, 50);
	assert_false(c.shared);
}

static void test_unreadable(void **state)
{
	(void)state;
	struct cpu_wait c = {.fd = -1, .at_ns = 1, .waited_ns = 7};
	cpu_wait_note(&c, 0, c.at_ns + PERIOD_NS);
	assert_false(c.shared);
	assert_int_equal(c.waited_ns, 7);
}

/* Two processes on one CPU: the counter of each advances. */
static void test_counter(void **state)
{
	(void)state;
	int fd = cpu_wait_open();
	cpu_set_t before, one;
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	for (int cpu = 0; !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &before))
			CPU_SET(cpu, &one);
	assert_true(fd >= 0);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	pid_t other = fork();
	if (!other) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			__asm__ volatile("");
	}
	uint64_t begin = cpu_wait_ns(fd);
	while (cpu_wait_ns(fd) == begin)
		;
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	close(fd);
	assert_int_equal(cpu_wait_ns(-1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_alone),
	        cmocka_unit_test(test_shared_and_alone_again),
	        cmocka_unit_test(test_unreadable),
	        cmocka_unit_test(test_counter),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
