// SPDX-License-Identifier: Apache-2.0
/* Changes while packets wait: nothing is lost, the order stays, and so does what is left of rates.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "line.h"

static void change(struct line *l, const struct sy_shape_config *c)
{
	struct sy_error err;
	struct sy_shape *next = line_shape(l, c, 7000);
	assert_int_equal(sy_shape_follow(next, l->shape, &err), 0);
	sy_shape_move(next, l->shape, l->now_ns);
	assert_int_equal(sy_shape_waiting(l->shape), 0);
	sy_shape_destroy(l->shape);
	l->shape = next;
}

static uint64_t all_put(const struct line *l)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < l->flows; i++)
		n += l->flow[i].put;
	return n;
}

static uint64_t all_sent(const struct line *l)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < l->flows; i++)
		n += l->flow[i].sent;
	return n;
}

static void drain(struct line *l)
{
	for (unsigned i = 0; i < l->flows; i++)
		l->flow[i].due_ns = UINT64_MAX;
	for (unsigned i = 0; i < l->flows; i++)
		l->flow[i].every_ns = 1;
	line_run(l, 2000 * MS);
	assert_int_equal(sy_shape_waiting(l->shape), 0);
	assert_int_equal(all_put(l), all_sent(l)); /* line_receive() has checked the order */
}

/* A random configuration over the same names. */
static struct sy_shape_config *any_config(void)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	struct sy_shape_config *c = line_config((uint64_t)(1 + rand() % 10) * 100 * MBIT);
	/* A new class takes over packets of flows that still wait elsewhere: not here. */
	line_class(c, "voice", (uint8_t)(rand() % 8), 1, 46);
	line_class(c, "bulk", (uint8_t)(rand() % 8), 3, 8);
	for (unsigned t = 0; t < 4; t++) {
		if (rand() % 3 == 0)
			continue;
		unsigned tenant = line_tenant(c, names[t], rand() % 2 ? 30 * MBIT : 0,
		                              rand() % 2 ? 90 * MBIT : 0, (uint8_t)(1 + t));
		for (unsigned s = 0; s < 4; s++)
			if (rand() % 3)
				line_service(c, tenant, names[s], rand() % 2 ? 5 * MBIT : 0,
				             rand() % 2 ? 60 * MBIT : 0, 1);
	}
	for (unsigned k = 0; k < c->classes; k++)
		c->class[k].queue = (uint32_t)(1 + rand() % 100);
	return c;
}

/* Each flow's service is number 0: others would move to other queues and overtake, as services that
 * leave the configuration may. */
static void test_nothing_is_lost(void **state)
{
	struct line l;
	srand(1);
	line_open(&l, any_config());
	static const uint8_t dscps[] = {0, 8, 46};
	for (unsigned i = 0; i < 30; i++)
		line_flow(&l, 0, dscps[i % 3], (uint16_t)(60 + 50 * i), 50000);
	for (unsigned i = 0; i < 300; i++) {
		line_run(&l, MS / 5);
		change(&l, any_config());
	}
	drain(&l);
	line_close(&l);
}

/* Packets of services that are no more leave by number 0. */
static void test_removed(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(10 * MBIT);
	unsigned service[8];
	for (unsigned i = 0; i < 8; i++) {
		char name[] = {'t', (char)('a' + i), 0};
		service[i] = line_service(c, line_tenant(c, name, 0, MBIT, 1), "s", 0, 0, 1);
	}
	line_open(&l, c);
	for (unsigned i = 0; i < 8; i++) {
		struct flow *f = line_flow(&l, service[i], 0, 1000, 0);
		for (unsigned k = 0; k < 50; k++)
			assert_int_equal(line_put(&l, f), SY_DROP_NONE);
	}
	const uint64_t sent = sy_shape_read(l.shape, service[3], 0).sent;
	change(&l, line_config(10 * MBIT));
	assert_int_equal(sy_shape_waiting(l.shape), 400);
	assert_int_equal(sy_shape_read(l.shape, 0, 0).waiting, 400);
	assert_int_equal(sy_shape_read(l.shape, 0, 0).sent, 8 * sent);
	drain(&l);
	assert_int_equal(sy_shape_read(l.shape, 0, 0).sent, 400);
	line_close(&l);
}

/* Changing a rate all the time yields no extra credit. */
static void test_credit_stays(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(100 * MBIT);
	const unsigned s = line_service(c, 0, "s", 0, 20 * MBIT, 1);
	line_open(&l, c);
	struct flow *f = line_flow(&l, s, 0, 1514, 0);
	line_run(&l, 100 * MS);
	line_forget(&l);
	for (unsigned i = 0; i < 1000; i++) {
		line_run(&l, MS / 2);
		c->service[s].maximum = i % 2 ? 20 * MBIT : 10 * MBIT;
		change(&l, c);
	}
	assert_in_range(f->bytes, 15000000 / 16 * 99 / 100, 15000000 / 16 * 101 / 100);
	line_close(&l);
}

static void test_open(void **state)
{
	struct line l;
	struct sy_shape_config *c = line_config(MBIT);
	const unsigned s = line_service(c, line_tenant(c, "t", 0, 8000, 1), "s", 0, 8000, 1);
	line_open(&l, c);
	struct flow *slow = line_flow(&l, s, 0, 1514, 0), *other = line_flow(&l, 0, 0, 1514, 0);
	for (unsigned i = 0; i < 60; i++) {
		assert_int_equal(line_put(&l, slow), SY_DROP_NONE);
		assert_int_equal(line_put(&l, other), SY_DROP_NONE);
	}
	line_receive(&l);
	assert_true(sy_shape_waiting(l.shape) > 100);
	sy_shape_open(l.shape);
	assert_int_equal(sy_shape_next(l.shape), 0);
	line_receive(&l);
	assert_int_equal(sy_shape_waiting(l.shape), 0);
	assert_int_equal(slow->sent + other->sent, 120);
	assert_int_equal(line_put(&l, slow), SY_DROP_NONE); /* later ones leave, too */
	line_receive(&l);
	assert_int_equal(sy_shape_waiting(l.shape), 0);
	line_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_nothing_is_lost),
	        cmocka_unit_test(test_removed),
	        cmocka_unit_test(test_credit_stays),
	        cmocka_unit_test(test_open),
	};
	return cmocka_run_group_tests(tests, line_setup, NULL);
}
