// SPDX-License-Identifier: Apache-2.0
/* Registry and agents: changes of hooks while a thread polls several stacks. */
#include "world.h"

/* All stacks load a hook under one number, also a stack that joins later. */
static void test_load_reaches_all_stacks(void **state)
{
	struct world w;
	world_open(&w);
	struct sy_hook_change short_first = change_of("short", READY "/length.bpf.o");
	short_first.places = 1; /* the stack's default hook */
	short_first.params = 5;
	short_first.param[0] = 512;
	short_first.param[2] = 1;
	load(&w, &short_first, 2);
	pthread_mutex_lock(&w.lock);
	stack_join(&w, &w.stack[2]);
	pthread_mutex_unlock(&w.lock);
	struct sy_hook_change bytes = change_of("bytes", READY "/bytes.bpf.o");
	bytes.places = 1;
	bytes.place[0] = port_80;
	load(&w, &bytes, 3);
	for (unsigned i = 0; i < STACKS; i++) {
		assert_int_equal(info_of(&w, i, "short").param[0], 512);
		assert_int_equal(info_of(&w, i, "short").param[2], 1);
		assert_int_equal(w.stack[i].default_hook[SY_HOOK_PACKET], SY_HOOKS);
		assert_int_equal(w.stack[i].default_hook[SY_HOOK_SEGMENT], SY_HOOK_NONE);
		assert_int_equal(w.stack[i].listener, SY_HOOKS - 1);
	}
	assert_true(sy_hook_agent_overrides(w.stack[0].agent, SY_HOOK_PACKET, false));
	assert_false(sy_hook_agent_overrides(w.stack[0].agent, SY_HOOK_PACKET, true));
	assert_true(sy_hook_agent_overrides(w.stack[0].agent, SY_HOOK_SEGMENT, true));
	world_close(&w);
}

/* A hook at a place without listener never runs: the result names such places. */
static void test_places_without_listener_are_reported(void **state)
{
	struct world w;
	struct sy_hook_count count;
	struct sy_hook_report report[2];
	world_open(&w);
	struct sy_hook_change h = change_of("bytes", READY "/bytes.bpf.o");
	h.places = 3;
	h.place[0].port = 81;
	h.place[1] = port_80;
	assert_int_equal(sy_hook_registry_load(w.registry, &h, &count, NULL), 0);
	assert_int_equal(count.idles, 1);
	assert_int_equal(count.idle[0].port, 81);
	struct sy_hook_change set = {.name = "bytes", .params = 1};
	assert_int_equal(sy_hook_registry_load(w.registry, &set, &count, NULL), 0);
	assert_int_equal(count.idles, 1);
	assert_int_equal(sy_hook_registry_report(w.registry, report, 2, NULL, &count), 1);
	assert_int_equal(report[0].places, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(report[0].idle >> i & 1, report[0].place[i].port == 81);
	struct sy_hook_change other = change_of("other", READY "/bytes.bpf.o");
	assert_int_equal(sy_hook_registry_load(w.registry, &other, &count, NULL), 0);
	assert_int_equal(count.idles, 0); /* only the changed hook's places count */
	world_close(&w);
}

static void test_swap_keeps_places(void **state)
{
	struct world w;
	struct sy_hook_count count;
	struct sy_error err = {0};
	world_open(&w);
	struct sy_hook_change h = change_of("mine", READY "/length.bpf.o");
	h.swap = true;
	refused(&w, &h, -ENOENT, "no hook mine");
	h.swap = false;
	h.places = 1;
	load(&w, &h, 2);
	refused(&w, &h, -EEXIST, "swap it");
	struct sy_hook_change other = change_of("mine", READY "/label.bpf.o");
	other.swap = true;
	load(&w, &other, 2);
	assert_int_equal(info_of(&w, 0, "mine").loads, 2);
	assert_int_equal(w.stack[1].default_hook[SY_HOOK_PACKET], SY_HOOKS); /* unchanged */
	other = change_of("mine", READY "/bytes.bpf.o");
	other.swap = true;
	refused(&w, &other, -EEXIST, "a segment hook");
	struct sy_hook_change set = {.name = "mine", .params = 2, .param = {0, 77}};
	load(&w, &set, 2);
	assert_int_equal(info_of(&w, 1, "mine").param[1], 77);
	assert_int_equal(info_of(&w, 1, "mine").loads, 2);
	assert_int_equal(sy_hook_registry_remove(w.registry, "mine", &count, &err), 0);
	assert_int_equal(count.stacks, 2);
	assert_int_equal(w.stack[1].default_hook[SY_HOOK_PACKET], SY_HOOK_NONE);
	assert_int_equal(info_of(&w, 0, "mine").loads, 0);
	assert_int_equal(sy_hook_registry_remove(w.registry, "mine", &count, &err), -ENOENT);
	refused(&w, &set, -ENOENT, "no hook mine");
	world_close(&w);
}

static void test_refused(void **state)
{
	struct world w;
	world_open(&w);
	struct sy_hook_change h = change_of("loops", REFUSED "/loop.bpf.o");
	refused(&w, &h, -EINVAL, "loop");
	assert_int_equal(info_of(&w, 0, "loops").loads, 0);
	h = change_of("Not A Name", READY "/length.bpf.o");
	refused(&w, &h, -EINVAL, "name");
	h = change_of("length", READY "/length.bpf.o");
	h.places = 1;
	h.place[0] = port_80;
	refused(&w, &h, -EINVAL, "no listener");
	world_close(&w);
}

/* One stack's application has a hook of a name unknown to the registry. */
static void test_hook_of_the_application_stays(void **state)
{
	struct world w;
	struct sy_error err = {0};
	world_open(&w);
	const struct sy_hook_source own = {.file = READY "/dscp.bpf.o", .number = SY_HOOKS};
	pthread_mutex_lock(&w.lock);
	assert_int_equal(sy_hooks_load(w.stack[0].hooks, "own", &own, &err), SY_HOOKS);
	pthread_mutex_unlock(&w.lock);
	struct sy_hook_change h = change_of("own", READY "/length.bpf.o");
	refused(&w, &h, -EEXIST, "hook own exists");
	assert_int_equal(info_of(&w, 1, "own").loads, 0); /* rolled back */
	assert_int_equal(info_of(&w, 0, "own").loads, 1);
	h.swap = true; /* one stack has it, the other does not: the dry run fails */
	refused(&w, &h, -ENOENT, "no hook own");
	assert_int_equal(info_of(&w, 0, "own").loads, 1);
	struct sy_hook_change set = {.name = "own", .params = 1, .param = {3}};
	load(&w, &set, 1);
	assert_int_equal(info_of(&w, 0, "own").param[0], 3);
	h = change_of("other", READY "/length.bpf.o"); /* one stack uses its number */
	load(&w, &h, 2);
	world_close(&w);
}

/* A stack that was not polled executes its orders at the next poll, in order. */
static void test_late_stack_executes_in_order(void **state)
{
	struct world w;
	struct sy_hook_count count;
	struct sy_error err = {0};
	world_open(&w);
	pthread_mutex_lock(&w.lock);
	w.deaf = true;
	pthread_mutex_unlock(&w.lock);
	struct sy_hook_change h = change_of("mine", READY "/length.bpf.o");
	assert_int_equal(sy_hook_registry_load(w.registry, &h, &count, &err), 0);
	assert_int_equal(count.stacks, 1);
	assert_int_equal(count.silent, 1);
	pthread_mutex_lock(&w.lock);
	w.deaf = false;
	pthread_mutex_unlock(&w.lock);
	struct sy_hook_change set = {.name = "mine", .params = 1, .param = {9}};
	load(&w, &set, 2);
	assert_int_equal(info_of(&w, 0, "mine").param[0], 9);
	world_close(&w);
}

/* The process of a stack exits while its answer is awaited. */
static void *stack_exits(void *arg)
{
	struct world *w = arg;
	usleep(50000);
	pthread_mutex_lock(&w->lock);
	stack_leave(w, &w->stack[0]);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void test_stack_leaves_while_awaited(void **state)
{
	struct world w;
	struct sy_hook_count count;
	struct sy_error err = {0};
	pthread_t thread;
	world_open(&w);
	pthread_mutex_lock(&w.lock);
	w.deaf = true;
	pthread_mutex_unlock(&w.lock);
	pthread_create(&thread, NULL, stack_exits, &w);
	struct sy_hook_change h = change_of("mine", READY "/length.bpf.o");
	assert_int_equal(sy_hook_registry_load(w.registry, &h, &count, &err), 0);
	pthread_join(thread, NULL);
	assert_int_equal(count.stacks, 1);
	assert_int_equal(count.silent, 0);
	world_close(&w);
}

/* The place still has its hook, in the registry and in all stacks. */
static void place_unchanged(struct world *w, const char *name)
{
	struct sy_hook_count count;
	struct sy_hook_report report[4];
	unsigned number = 0;
	unsigned hooks = sy_hook_registry_report(w->registry, report, 4, NULL, &count);
	for (unsigned i = 0; i < hooks; i++)
		if (!strcmp(report[i].info.name, name)) {
			assert_int_equal(report[i].places, 1);
			number = report[i].number;
		}
	assert_int_not_equal(number, 0);
	pthread_mutex_lock(&w->lock);
	stack_join(w, &w->stack[2]);
	sy_hook_agent_poll(w->stack[2].agent);
	for (unsigned i = 0; i < STACKS; i++)
		assert_int_equal(w->stack[i].listener, number);
	stack_leave(w, &w->stack[2]);
	pthread_mutex_unlock(&w->lock);
}

static void test_failed_load_keeps_places(void **state)
{
	struct world w;
	struct sy_error err = {0};
	world_open(&w);
	struct sy_hook_change h = change_of("first", READY "/bytes.bpf.o");
	h.places = 1;
	h.place[0] = port_80;
	load(&w, &h, 2);
	const struct sy_hook_source own = {.file = READY "/bytes.bpf.o", .number = 7};
	pthread_mutex_lock(&w.lock);
	assert_int_equal(sy_hooks_load(w.stack[1].hooks, "second", &own, &err), 7);
	pthread_mutex_unlock(&w.lock);
	snprintf(h.name, sizeof(h.name), "second");
	refused(&w, &h, -EEXIST, "hook second exists");
	place_unchanged(&w, "first");
	world_close(&w);
}

static void test_too_many_places(void **state)
{
	struct world w;
	world_open(&w);
	struct sy_hook_change h = change_of("many", READY "/bytes.bpf.o");
	h.places = 20;
	for (unsigned i = 0; i < 20; i++)
		h.place[i].port = (uint16_t)(100 + i);
	load(&w, &h, 2);
	struct sy_hook_change other = change_of("more", READY "/bytes.bpf.o");
	load(&w, &other, 2);
	other.swap = true;
	other.params = 1;
	other.param[0] = 9;
	other.places = 20;
	for (unsigned i = 0; i < 20; i++)
		other.place[i].port = (uint16_t)(200 + i);
	refused(&w, &other, -ENOSPC, "32 places");
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(info_of(&w, i, "more").loads, 1);
		assert_int_equal(info_of(&w, i, "more").param[0], 0);
	}
	world_close(&w);
}

/* A stack that accepts the dry run, but then fails to load the code. */
struct fickle {
	struct sy_hook_channel channel;
	pthread_t thread;
};

static void *fickle_answer(void *arg)
{
	struct fickle *f = arg;
	struct order o;
	while (recv(f->channel.socket, &o, sizeof(o), 0) == sizeof(o)) {
		bool no = o.type == ORDER_LOAD && o.object_len && !(o.must & ORDER_CHECK);
		struct answer a = {.sequence = o.sequence, .rc = no ? -ENOMEM : 0};
		send(f->channel.socket, &a, ANSWER_HEAD, MSG_NOSIGNAL);
	}
	return NULL;
}

static void test_failed_load_is_rolled_back(void **state)
{
	struct world w;
	struct fickle f;
	world_open(&w);
	struct sy_hook_change first = change_of("first", READY "/bytes.bpf.o");
	first.places = 1;
	first.place[0] = port_80;
	load(&w, &first, 2);
	struct sy_hook_change second = change_of("second", READY "/bytes.bpf.o");
	second.params = 3;
	second.param[1] = 5;
	load(&w, &second, 2);
	int number = sy_hook_registry_join(w.registry, getpid(), &f.channel);
	assert_true(number >= 0);
	pthread_create(&f.thread, NULL, fickle_answer, &f);
	second = change_of("second", READY "/requests.bpf.o");
	second.swap = true;
	second.params = 2;
	second.param[1] = 6;
	second.places = 2;
	second.place[0] = port_80;
	second.place[1].port = 81;
	struct sy_hook_info was = info_of(&w, 0, "second");
	refused(&w, &second, -ENOMEM, "");
	for (unsigned i = 0; i < 2; i++) {
		struct sy_hook_info is = info_of(&w, i, "second");
		assert_int_equal(is.instructions, was.instructions);
		assert_int_equal(is.param[1], 5);
		pthread_mutex_lock(&w.lock);
		struct sy_addr addr = sy_addr_v4(0x0100000a);
		assert_int_equal(sy_hook_agent_find(w.stack[i].agent, SY_HOOK_SEGMENT, &addr, 81),
		                 SY_HOOK_NONE);
		pthread_mutex_unlock(&w.lock);
	}
	place_unchanged(&w, "first");
	struct sy_hook_change third = change_of("third", READY "/bytes.bpf.o");
	third.places = 1;
	third.place[0] = port_80;
	refused(&w, &third, -ENOMEM, "");
	assert_int_equal(info_of(&w, 0, "third").loads, 0);
	place_unchanged(&w, "first");
	sy_hook_registry_leave(w.registry, number);
	pthread_join(f.thread, NULL);
	close(f.channel.socket);
	close(f.channel.doorbell);
	world_close(&w);
}

/* Stacks join and leave while hooks change: none receives an order twice. */
static void *stacks_join(void *arg)
{
	struct world *w = arg;
	/* A slot is not reused before its order is finished, so join at most this often. */
	for (unsigned i = 0; i < SY_HOOK_REGISTRY_STACKS - STACKS; i++) {
		if (__atomic_load_n(&w->enough, __ATOMIC_ACQUIRE))
			break;
		pthread_mutex_lock(&w->lock);
		stack_join(w, &w->stack[2]);
		pthread_mutex_unlock(&w->lock);
		pthread_mutex_lock(&w->lock);
		stack_leave(w, &w->stack[2]);
		pthread_mutex_unlock(&w->lock);
		usleep(100);
	}
	return NULL;
}

static void test_stacks_join_during_changes(void **state)
{
	struct world w;
	struct sy_hook_count count;
	struct sy_error err = {0};
	pthread_t thread;
	world_open(&w);
	pthread_create(&thread, NULL, stacks_join, &w);
	struct sy_hook_change h = change_of("mine", READY "/label.bpf.o");
	for (unsigned i = 0; i < 100; i++) {
		if (sy_hook_registry_load(w.registry, &h, &count, &err))
			fail_msg("%u: %s", i, err.text);
		assert_true(count.stacks >= 2);
		assert_int_equal(sy_hook_registry_remove(w.registry, "mine", &count, &err), 0);
	}
	__atomic_store_n(&w.enough, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_load_reaches_all_stacks),
	        cmocka_unit_test(test_swap_keeps_places),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_hook_of_the_application_stays),
	        cmocka_unit_test(test_late_stack_executes_in_order),
	        cmocka_unit_test(test_stack_leaves_while_awaited),
	        cmocka_unit_test(test_stacks_join_during_changes),
	        cmocka_unit_test(test_failed_load_keeps_places),
	        cmocka_unit_test(test_too_many_places),
	        cmocka_unit_test(test_failed_load_is_rolled_back),
	        cmocka_unit_test(test_places_without_listener_are_reported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
