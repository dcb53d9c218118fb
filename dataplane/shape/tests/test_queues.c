// SPDX-License-Identifier: Apache-2.0
/* Full queues, early drops, capacity for all, refused configurations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "line.h"

static void test_full(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(MBIT);
	c->class[0].queue = 10;
	line_open(&l, c);
	struct flow *f = line_flow(&l, 0, 0, 1000, 0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(line_put(&l, f), SY_DROP_NONE);
	assert_int_equal(line_put(&l, f), SY_DROP_SHAPING_FULL);
	const struct sy_shape_counts n = sy_shape_read(l.shape, 0, 0);
	assert_int_equal(n.full, 1);
	assert_int_equal(n.early, 0);
	assert_int_equal(n.waiting, 10);
	assert_int_equal(n.dropped_bytes, 1000);
	line_close(&l); /* frees what waits */
}

/* However many queues are long, another one has space. */
static void test_room(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(MBIT);
	for (unsigned i = 0; i < 20; i++) {
		char name[] = {'s', (char)('a' + i), 0};
		line_service(c, 0, name, 0, 0, 1);
	}
	c->class[0].queue = 1000;
	l = (struct line){.now_ns = 1000 * MS};
	l.shape = line_shape(&l, c, 500);
	for (unsigned i = 0; i < 20; i++) {
		struct flow *f = line_flow(&l, 1 + i, 0, 1000, 0);
		while (line_put(&l, f) == SY_DROP_NONE)
			;
		assert_true(f->put > 0);
		assert_true(f->put <= 300);
	}
	assert_true(sy_shape_waiting(l.shape) <= 500);
	line_close(&l);
}

/* Packets held by the device reduce the capacity, except for a few packets. */
static void test_hold(void **state)
{
	struct line l = {.now_ns = 1000 * MS};
	struct sy_shape_config *c = line_config(MBIT);
	c->class[0].queue = 1000;
	l.shape = line_shape(&l, c, 1000);
	struct flow *f = line_flow(&l, 0, 0, 1000, 0);
	sy_shape_hold(l.shape, 2000);
	while (line_put(&l, f) == SY_DROP_NONE)
		;
	assert_in_range(sy_shape_waiting(l.shape), 4, 64);
	sy_shape_hold(l.shape, 700);
	while (line_put(&l, f) == SY_DROP_NONE)
		;
	assert_in_range(sy_shape_waiting(l.shape), 65, 300);
	sy_shape_hold(l.shape, 0);
	while (line_put(&l, f) == SY_DROP_NONE)
		;
	assert_in_range(sy_shape_waiting(l.shape), 301, 1000);
	line_close(&l);
}

/* Early drops keep the queue short, and the higher the precedence, the more. */
static void test_early(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(100 * MBIT);
	c->class[0].queue = 1000;
	c->class[0].early = (struct sy_shape_early){.from = 20, .to = 60, .percent = 20};
	line_open(&l, c);
	/* 130 Mbit/s in all, as AF11, AF12, AF13. */
	static const uint8_t dscp[] = {10, 12, 14};
	struct flow *f[3];
	for (unsigned i = 0; i < 3; i++)
		f[i] = line_flow(&l, 0, dscp[i], 1250, 230770);
	line_run(&l, 4000 * MS);
	line_forget(&l);
	line_run(&l, 2000 * MS);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(f[i]->refused[0], 0);
	assert_true(f[0]->refused[1] < f[1]->refused[1]);
	assert_true(f[1]->refused[1] < f[2]->refused[1]);
	assert_true(sy_shape_waiting(l.shape) < 600);
	assert_true(sy_shape_waiting(l.shape) > 100);
	const struct sy_shape_counts n = sy_shape_read(l.shape, 0, 0);
	assert_true(n.early > 0);
	assert_int_equal(n.full, 0);
	/* The line is used fully all the same. */
	assert_in_range(f[0]->bytes + f[1]->bytes + f[2]->bytes, 24900000, 25100000);
	line_close(&l);
}

/* A queue that was empty for long has a mean of nothing. */
static void test_early_after_pause(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(100 * MBIT);
	c->class[0].queue = 100;
	c->class[0].early = (struct sy_shape_early){.from = 20, .to = 60, .percent = 100};
	line_open(&l, c);
	struct flow *f = line_flow(&l, 0, 0, 1250, 0);
	f->every_ns = 50000; /* twice the rate */
	line_run(&l, 1000 * MS);
	assert_true(f->refused[1] > 0);
	f->every_ns = 1000 * MS;
	f->due_ns = l.now_ns + 2000 * MS;
	line_run(&l, 1000 * MS);
	assert_int_equal(sy_shape_waiting(l.shape), 0);
	l.now_ns += 1000 * MS;
	line_forget(&l);
	for (unsigned i = 0; i < 30; i++)
		assert_int_equal(line_put(&l, f), SY_DROP_NONE);
	line_close(&l);
}

static void assert_refused(const struct sy_shape_config *c, const char *part)
{
	struct sy_shape *s;
	struct sy_error err = {0};
	assert_int_equal(sy_shape_create(c, 100, 0, &s, &err), -EINVAL);
	if (!strstr(err.text, part))
		fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void test_refused(void **state)
{
	struct sy_shape_config *c = line_config(MBIT);
	c->rate = 1;
	assert_refused(c, "the rate");
	c = line_config(MBIT);
	c->burst = 100;
	assert_refused(c, "the burst");
	c = line_config(MBIT);
	c->classes = 9;
	assert_refused(c, "1–8 classes");
	c = line_config(MBIT);
	c->class_of[7] = 1;
	assert_refused(c, "DSCP 7");
	c = line_config(MBIT);
	c->class[0].queue = 0;
	assert_refused(c, "class default: its queue");
	c = line_config(MBIT);
	c->class[0].priority = 8;
	assert_refused(c, "class default: its priority");
	c = line_config(MBIT);
	c->class[0].early = (struct sy_shape_early){50, 40, 10};
	assert_refused(c, "early drops");
	c = line_config(MBIT);
	line_tenant(c, "a", 1, 0, 1);
	assert_refused(c, "tenant a: a rate");
	c = line_config(MBIT);
	line_service(c, 1, "s", 0, 0, 1);
	assert_refused(c, "there is no tenant 1");
	c = line_config(MBIT);
	line_service(c, 0, "s", 0, 0, 0);
	assert_refused(c, "service s: its weight");
	c = line_config(MBIT);
	c->service[0].class = 1;
	assert_refused(c, "there is no class 1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_full),
	        cmocka_unit_test(test_room),
	        cmocka_unit_test(test_hold),
	        cmocka_unit_test(test_early),
	        cmocka_unit_test(test_early_after_pause),
	        cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, line_setup, NULL);
}
