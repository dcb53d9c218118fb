// SPDX-License-Identifier: Apache-2.0
/* Options that a runtime refuses, the huge pages that it needs; a worker's clock and its spinning.
 */
#include <sched.h>
#include <stdio.h>

#include <rte_cycles.h>

#include "runtime_fixture.h"

static void refused(const struct sy_runtime_options *o, const char *why)
{
	struct sy_runtime *rt;
	struct sy_error err = {0};
	assert_int_equal(sy_runtime_open(o, &rt, &err), -EINVAL);
	if (!strstr(err.text, why))
		fail_msg("\"%s\" does not say: %s", err.text, why);
}

static void test_refusals(void **state)
{
	struct sy_runtime_options o;
	cpu_set_t before, one;
	options_init(&o, 1);
	o.port[o.ports++] = (struct sy_port_options){.backend = SY_PORT_XSK, .name = "lo"};
	refused(&o, "lo is the loopback interface and cannot be a port");

	snprintf(o.cores, sizeof(o.cores), "0-%u", CPU_SETSIZE - 1);
	refused(&o, "this machine has no CPU");
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	one = before;
	CPU_CLR(0, &one);
	if (!CPU_COUNT(&one))
		return; /* there is no other CPU */
	snprintf(o.cores, sizeof(o.cores), "0");
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	refused(&o, "this process may not run on CPU 0");
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

/* Pages in use stay in use: only the missing pages are added. */
static void test_huge_pages(void **state)
{
	assert_int_equal(huge_pages_needed(0, 2048, 1024, 0), 512);
	assert_int_equal(huge_pages_needed(2000, 2048, 1024, 24), 2500);
	assert_int_equal(huge_pages_needed(2000, 2048, 1023, 24), 2500);
	assert_int_equal(huge_pages_needed(3, 1048576, 1024, 1000), 4);
	assert_int_equal(huge_pages_needed(2000, 2048, 64, 64), 2000);
}

/* A worker polls longer after a sleep that polling would have met the end of. */
static void test_spin(void **state)
{
	struct sy_worker_private p = {.last_work = 1000, .min_spin = 30, .max_spin = 120};
	(void)state;
	worker_spin_note(&p, 1119);
	assert_int_equal(p.spin_cycles, 120);
	worker_spin_note(&p, 1120);
	assert_int_equal(p.spin_cycles, 30);
}

/* The TSC steps, as when a machine is migrated. */
static void test_clock_steps(void **state)
{
	static struct sy_worker_private p;
	struct sy_worker w = {.private = &p};
	uint64_t hour = rte_get_tsc_hz() * 3600, second = UINT64_C(1000000000);
	p.clock.rate = (second << 32) / rte_get_tsc_hz();
	p.clock.ns = 100 * second;
	p.clock.tsc = rte_rdtsc() + hour;
	worker_clock_read(&w);
	assert_int_equal(w.now_ns, 100 * second);
	p.clock.tsc = rte_rdtsc() - hour;
	worker_clock_read(&w);
	assert_int_equal(w.now_ns, 101 * second);
	p.clock.tsc = rte_rdtsc(); /* a round later */
	p.clock.ns = 102 * second;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	do
		worker_clock_read(&w);
	while (w.now_ns <= 102 * second && sy_clock_ns() < deadline);
	assert_true(w.now_ns > 102 * second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_refusals),
	        cmocka_unit_test(test_huge_pages),
	        cmocka_unit_test(test_spin),
	        cmocka_unit_test(test_clock_steps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
