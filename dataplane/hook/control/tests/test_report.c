// SPDX-License-Identifier: Apache-2.0
/* Reports of stacks: hooks, counters, connections. */
#include "world.h"

struct seen {
	unsigned port[150], count, max;
};

static bool connection_see(void *ctx, const struct sy_hook_stack *stack,
                           const struct sy_hook_connection *c, unsigned count)
{
	struct seen *seen = ctx;
	assert_int_equal(stack->pid, getpid());
	for (unsigned i = 0; i < count; i++)
		seen->port[c[i].local_port - 1000]++;
	seen->count += count;
	return seen->count < seen->max;
}

static void test_connections(void **state)
{
	struct world w;
	struct sy_hook_count count;
	struct seen all = {.max = UINT32_MAX}, some = {.max = 100};
	world_open(&w);
	assert_int_equal(sy_hook_registry_connections(w.registry, connection_see, &all, &count),
	                 SY_HOOK_WALK_ALL);
	for (unsigned i = 0; i < 150; i++)
		assert_int_equal(all.port[i], 2); /* once per stack */
	assert_int_equal(sy_hook_registry_connections(w.registry, connection_see, &some, &count),
	                 SY_HOOK_WALK_ENOUGH);
	assert_in_range(some.count, 100, 150);
	assert_int_equal(count.silent, 0);
	/* One stack does not answer: the connections of the other are complete. */
	pthread_mutex_lock(&w.lock);
	w.deaf = true;
	pthread_mutex_unlock(&w.lock);
	all = (struct seen){.max = UINT32_MAX};
	assert_int_equal(sy_hook_registry_connections(w.registry, connection_see, &all, &count),
	                 SY_HOOK_WALK_ALL);
	assert_int_equal(all.count, 150);
	assert_int_equal(count.silent, 1);
	assert_int_equal(count.silent_pid[0], getpid());
	world_close(&w);
}

static void test_report(void **state)
{
	struct world w;
	struct sy_hook_count count;
	struct sy_hook_report report[4];
	struct sy_hook_stack stack[SY_HOOK_REGISTRY_STACKS];
	world_open(&w);
	struct sy_hook_change h = change_of("short", READY "/length.bpf.o");
	h.places = 1;
	load(&w, &h, 2);
	for (unsigned i = 0; i < 2; i++) {
		struct sy_hook_packet view = {.payload_len = 1};
		pthread_mutex_lock(&w.lock);
		struct sy_hooks *hs = w.stack[i].hooks;
		assert_int_equal(sy_hook_run_packet(hs, SY_HOOKS, &view, (const uint8_t *)"x"), 0);
		pthread_mutex_unlock(&w.lock);
	}
	assert_int_equal(sy_hook_registry_report(w.registry, report, 4, stack, &count), 1);
	assert_string_equal(report[0].info.name, "short");
	assert_int_equal(report[0].stacks, 2);
	assert_int_equal(report[0].info.calls, 2);
	assert_int_equal(report[0].info.level[0], 2);
	assert_int_equal(report[0].places, 1);
	assert_int_equal(count.stacks, 2);
	for (unsigned i = 0; i < 2; i++) {
		const struct sy_hook_tally *t = &stack[i].tally;
		assert_int_equal(stack[i].pid, getpid());
		assert_int_equal(t->dropped[6], 10);
		assert_int_equal(t->dropped[7], w.stack[i].number);
		assert_int_equal(t->dropped[0], 0);
		assert_int_equal(t->unsent, w.stack[i].number);
		assert_int_equal(t->unreachable, 100);
		assert_int_equal(t->count[SY_HOOK_COUNTS - 1], 7);
	}
	for (unsigned i = 0; i < 2; i++) {
		pthread_mutex_lock(&w.lock);
		stack_leave(&w, &w.stack[i]);
		pthread_mutex_unlock(&w.lock);
	}
	assert_int_equal(sy_hook_registry_report(w.registry, report, 4, stack, &count), 1);
	assert_int_equal(report[0].stacks, 0);
	assert_true(report[0].info.instructions > 0);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_report),
	        cmocka_unit_test(test_connections),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
