// SPDX-License-Identifier: Apache-2.0
/* The table of hooks: names, numbers, changes while they run, counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "views.h"

static uint8_t says_three(struct sy_hook_packet *view, const uint8_t *payload)
{
	return 3;
}

static uint8_t says_first_byte(struct sy_hook_packet *view, const uint8_t *payload)
{
	assert_int_equal(view->head[0], payload[0]);
	return payload[0];
}

static uint8_t counts_own(struct sy_hook_segment *s, const uint8_t *payload)
{
	s->become = 9;
	return s->own[0]++;
}

static int load(struct sy_hooks *hs, const char *name, const struct sy_hook_source source)
{
	struct sy_error err = {0};
	int rc = sy_hooks_load(hs, name, &source, &err);
	assert_true(rc > 0 || err.text[0]);
	return rc;
}

static void test_native(void **state)
{
	struct one o = {.hs = sy_hooks_create()};
	struct sy_hook_segment s = {0};
	struct sy_hook_info info;
	o.number = (unsigned)load(o.hs, "byte", (struct sy_hook_source){.packet = says_first_byte});
	assert_int_equal(one_ask(&o, "\5", 1), 5);
	assert_int_equal(one_ask(&o, "\7", 1), 7);
	assert_int_equal(one_ask(&o, "\10", 1), SY_KEEP); /* there is no priority 8 */
	assert_int_equal(one_ask(&o, "\377", 1), SY_KEEP);
	assert_true(sy_hooks_info(o.hs, o.number, &info));
	assert_true(info.native);
	assert_int_equal(info.calls, 4);
	assert_int_equal(info.wrong, 1);
	assert_int_equal(info.level[5], 1);
	assert_int_equal(info.level[7], 1);
	assert_int_equal(info.timed, 1);
	assert_int_equal(one_ask_segment(&o, &s, "\5", 1), SY_KEEP); /* it is a packet hook */
	o.number = (unsigned)load(o.hs, "own", (struct sy_hook_source){.segment = counts_own});
	assert_int_equal(one_ask_segment(&o, &s, "x", 1), 0);
	assert_int_equal(one_ask_segment(&o, &s, "x", 1), 1);
	assert_int_equal(s.own[0], 2);
	assert_int_equal(s.become, 9);
	sy_hooks_destroy(o.hs);
}

/* A swap keeps number, parameters and counts; a refused program changes nothing. */
static void test_swap(void **state)
{
	struct one o = one_load("mine", READY "/length.bpf.o");
	struct sy_hook_info info;
	struct sy_error err = {0};
	one_param(&o, 2, 1);
	assert_int_equal(one_ask(&o, "x", 1), 1);
	assert_int_equal(load(o.hs, "mine", (struct sy_hook_source){.packet = says_three}),
	                 o.number);
	assert_int_equal(one_ask(&o, "x", 1), 3);
	assert_int_equal(sy_hooks_load(o.hs, "mine",
	                               &(struct sy_hook_source){.file = REFUSED "/loop.bpf.o"},
	                               &err),
	                 -EINVAL);
	assert_int_equal(one_ask(&o, "x", 1), 3);
	assert_int_equal(load(o.hs, "mine", (struct sy_hook_source){.segment = counts_own}),
	                 -EEXIST);
	assert_int_equal(load(o.hs, "mine", (struct sy_hook_source){.file = READY "/bytes.bpf.o"}),
	                 -EEXIST);
	assert_int_equal(load(o.hs, "mine", (struct sy_hook_source){.file = READY "/length.bpf.o"}),
	                 o.number);
	assert_int_equal(one_ask(&o, "x", 1), 1);
	assert_true(sy_hooks_info(o.hs, o.number, &info));
	assert_int_equal(info.loads, 3);
	assert_int_equal(info.calls, 4);
	assert_int_equal(info.level[3], 2);
	assert_int_equal(info.param[2], 1);
	assert_true(info.instructions > 5 && info.longest <= info.instructions);
	sy_hooks_destroy(o.hs);
}

static void test_removed(void **state)
{
	struct one o = one_load("mine", READY "/label.bpf.o");
	struct sy_hook_info info;
	assert_int_equal(sy_hooks_find(o.hs, "mine"), o.number);
	assert_int_equal(sy_hooks_remove(o.hs, o.number), 0);
	assert_int_equal(sy_hooks_remove(o.hs, o.number), -ENOENT);
	assert_int_equal(sy_hooks_find(o.hs, "mine"), SY_HOOK_NONE);
	assert_int_equal(sy_hooks_param(o.hs, o.number, 0, 1), -ENOENT);
	assert_false(sy_hooks_info(o.hs, o.number, &info));
	assert_int_equal(one_ask(&o, "\1", 1), SY_KEEP);
	o.number = SY_HOOK_NONE;
	assert_int_equal(one_ask(&o, "\1", 1), SY_KEEP);
	o.number = SY_HOOKS + 1;
	assert_int_equal(one_ask(&o, "\1", 1), SY_KEEP);
	sy_hooks_destroy(o.hs);
}

static void test_full(void **state)
{
	struct sy_hooks *hs = sy_hooks_create();
	const struct sy_hook_source source = {.packet = says_three};
	char name[SY_HOOK_NAME];
	for (unsigned i = 0; i < SY_HOOKS; i++) {
		snprintf(name, sizeof(name), "hook-%u", i);
		assert_int_equal(load(hs, name, source), i + 1);
	}
	assert_int_equal(load(hs, "more", source), -ENOSPC);
	assert_int_equal(load(hs, "hook-7", source), 8);
	assert_int_equal(sy_hooks_remove(hs, 8), 0);
	assert_int_equal(load(hs, "more", source), 8);
	assert_int_equal(sy_hooks_param(hs, 8, SY_HOOK_PARAMS, 1), -EINVAL);
	sy_hooks_destroy(hs);
}

/* A requested number makes tables of several processes equal, whatever was removed before. */
static void test_wanted_number(void **state)
{
	struct sy_hooks *hs = sy_hooks_create();
	struct sy_hook_source source = {.packet = says_three, .number = SY_HOOKS};
	assert_int_equal(load(hs, "last", source), SY_HOOKS);
	assert_int_equal(load(hs, "last", source), SY_HOOKS);
	assert_int_equal(load(hs, "other", source), -EEXIST);
	source.number = SY_HOOKS + 1;
	assert_int_equal(load(hs, "other", source), -EEXIST);
	source.number = SY_HOOK_NONE;
	assert_int_equal(load(hs, "other", source), 1);
	sy_hooks_destroy(hs);
}

static void test_memory(void **state)
{
	static uint8_t bytes[65536];
	struct sy_hooks *hs = sy_hooks_create();
	struct sy_hook_source source = {.object = bytes};
	struct one o = {.hs = hs};
	FILE *f = fopen(READY "/pattern.bpf.o", "r");
	source.object_len = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	o.number = (unsigned)load(hs, "mine", source);
	memset(bytes, 0, sizeof(bytes)); /* the object is no longer needed */
	one_param(&o, 1, (uint64_t)'x' << 56);
	assert_int_equal(one_ask(&o, "x", 1), 0);
	assert_int_equal(one_ask(&o, "y", 1), SY_USUAL);
	assert_int_equal(load(hs, "other", source), -EINVAL);
	source.object_len = 0;
	assert_int_equal(load(hs, "other", source), -EINVAL);
	sy_hooks_destroy(hs);
}

static void test_names(void **state)
{
	struct sy_hooks *hs = sy_hooks_create();
	const struct sy_hook_source source = {.packet = says_three};
	assert_int_equal(load(hs, "", source), -EINVAL);
	assert_int_equal(load(hs, "Has Space", source), -EINVAL);
	assert_int_equal(load(hs, "../x", source), -EINVAL);
	assert_int_equal(load(hs, "a234567890123456789012345678901", source), 1);
	assert_int_equal(load(hs, "a2345678901234567890123456789012", source), -EINVAL);
	sy_hooks_destroy(hs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_native),  cmocka_unit_test(test_swap),
	        cmocka_unit_test(test_removed), cmocka_unit_test(test_full),
	        cmocka_unit_test(test_names),   cmocka_unit_test(test_wanted_number),
	        cmocka_unit_test(test_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
