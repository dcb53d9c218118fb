// SPDX-License-Identifier: Apache-2.0
/* Levels of packets, against a plain model: which one is next, which one is dropped. */
#include "../receive_level.h"
#include "random.h"
#include "script.h"

#define MAX   48
#define FLOWS 7
#define STEPS 200000

static struct receive_levels r;
static unsigned packets_before;

/* A packet is known by what it carries. */
struct label {
	uint32_t flow, number; /* of the flow */
};

/* In so many buffers. */
static struct rte_mbuf *large_packet(uint32_t flow, uint32_t number, unsigned buffers)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(tests_pool());
	struct label *l = (struct label *)rte_pktmbuf_append(m, sizeof(*l));

	assert_non_null(l);
	*l = (struct label){flow, number};
	while (--buffers > 0)
		assert_int_equal(rte_pktmbuf_chain(m, rte_pktmbuf_alloc(tests_pool())), 0);
	return m;
}

static struct rte_mbuf *packet(uint32_t flow, uint32_t number)
{
	return large_packet(flow, number, 1);
}

static struct label open_label(struct rte_mbuf *m)
{
	struct label l = *rte_pktmbuf_mtod(m, struct label *);
	rte_pktmbuf_free(m);
	return l;
}

static struct label take(unsigned *level)
{
	*level = receive_level_next(&r);
	return open_label(receive_level_take(&r));
}

/* Returns the one that is dropped for it, or itself; NULL: none. */
static struct rte_mbuf *add_or_drop(struct rte_mbuf *m, uint32_t flow, unsigned level)
{
	struct rte_mbuf *dropped = receive_level_add(&r, m, flow, level);

	if (dropped && dropped != m)
		assert_null(receive_level_add(&r, m, flow, level));
	return dropped;
}

static void add(uint32_t flow, uint32_t number, unsigned level)
{
	assert_null(receive_level_add(&r, packet(flow, number), flow, level));
}

static void expect(uint32_t flow, uint32_t number, unsigned level)
{
	unsigned got;
	struct label l = take(&got);

	assert_int_equal(l.flow, flow);
	assert_int_equal(l.number, number);
	assert_int_equal(got, level);
}

static void test_most_urgent_is_first(void **state)
{
	add(1, 0, 7);
	add(2, 0, 4);
	add(3, 0, 0);
	add(4, 0, 4);
	assert_int_equal(receive_level_next(&r), 0);
	expect(3, 0, 0);
	expect(2, 0, 4);
	expect(4, 0, 4);
	expect(1, 0, 7);
	assert_int_equal(receive_level_next(&r), SY_PRIORITIES);
}

/* With one level for all it is a queue, whatever flows there are. */
static void test_equal_levels_change_nothing(void **state)
{
	for (uint32_t i = 0; i < MAX; i++)
		add(i % 5, i, 3);
	for (uint32_t i = 0; i < MAX; i++)
		expect(i % 5, i, 3);
}

static void test_a_flow_rises(void **state)
{
	add(1, 0, 2);
	add(1, 1, 6); /* rises */
	add(2, 0, 6); /* another flow stays */
	add(1, 2, 7); /* rises */
	add(3, 0, 5);
	add(1, 3, 5);
	assert_int_equal(r.risen, 2);
	expect(1, 0, 2);
	expect(3, 0, 5);
	expect(1, 1, 5);
	expect(1, 2, 5);
	expect(1, 3, 5);
	expect(2, 0, 6);
}

static void test_lowest_is_dropped(void **state)
{
	struct rte_mbuf *dropped;

	for (uint32_t i = 0; i < MAX; i++)
		add(i, 0, i < MAX / 2 ? 5 : 6);
	for (uint32_t i = 0; i < MAX / 2; i++) { /* the last one of the lowest level */
		dropped = add_or_drop(packet(100 + i, 0), 100 + i, 0);
		assert_int_equal(open_label(dropped).flow, MAX - 1 - i);
	}
	dropped = add_or_drop(packet(200, 0), 200, 5); /* itself is of the lowest */
	assert_int_equal(open_label(dropped).flow, 200);
	dropped = add_or_drop(packet(201, 0), 201, 7);
	assert_int_equal(open_label(dropped).flow, 201);
	assert_int_equal(r.dropped[6], MAX / 2);
	assert_int_equal(r.dropped[5], 1);
	assert_int_equal(r.dropped[7], 1);
	assert_int_equal(r.dropped[0], 0);
	assert_int_equal(r.level[0].count, MAX / 2);
}

/* Buffers are what is scarce: those of a packet that a port has joined count each. */
static void test_buffers_count(void **state)
{
	struct rte_mbuf *m, *dropped;
	unsigned level;

	for (uint32_t i = 0; i < MAX / 8; i++)
		assert_null(receive_level_add(&r, large_packet(i, 0, 8), i, 5));
	m = packet(100, 0);
	assert_ptr_equal(receive_level_add(&r, m, 100, 5), m); /* full */
	rte_pktmbuf_free(m);
	m = large_packet(101, 0, 12); /* two give way */
	for (uint32_t i = 1; i <= 2; i++) {
		dropped = receive_level_add(&r, m, 101, 2);
		assert_ptr_not_equal(dropped, m);
		assert_int_equal(open_label(dropped).flow, MAX / 8 - i);
	}
	assert_null(receive_level_add(&r, m, 101, 2));
	for (uint32_t i = 0; i < 4; i++)
		add(102, i, 7);
	m = large_packet(103, 0, 2);
	assert_ptr_equal(receive_level_add(&r, m, 103, 7), m);
	rte_pktmbuf_free(m);
	expect(101, 0, 2); /* it was 12 of them */
	assert_null(receive_level_add(&r, large_packet(104, 0, 12), 104, 7));
	m = large_packet(105, 0, MAX + 1); /* never fits: drops no other packet */
	assert_ptr_equal(receive_level_add(&r, m, 105, 0), m);
	rte_pktmbuf_free(m);
	while (r.count > 0)
		take(&level);
	assert_null(receive_level_add(&r, large_packet(105, 0, MAX), 105, 0));
	m = packet(106, 0);
	assert_ptr_equal(receive_level_add(&r, m, 106, 0), m);
	rte_pktmbuf_free(m);
}

/* ---- against a model ------------------------------------------------------------------------- */

/* All that wait, in the order of arrival, each with its level. */
static struct {
	struct label label;
	unsigned level, buffers;
} model[MAX + 1];
static unsigned models, model_buffers;

static void model_remove(unsigned at)
{
	model_buffers -= model[at].buffers;
	memmove(&model[at], &model[at + 1], (--models - at) * sizeof(model[0]));
}

/* To the end: it has the highest place among those of its level. */
static void model_append(struct label l, unsigned level, unsigned buffers)
{
	model[models].label = l;
	model[models].buffers = buffers;
	model[models++].level = level;
	model_buffers += buffers;
}

static void model_last(unsigned at, unsigned level)
{
	struct label l = model[at].label;
	unsigned buffers = model[at].buffers;

	model_remove(at);
	model_append(l, level, buffers);
}

static void model_add(struct label l, unsigned level, unsigned buffers)
{
	unsigned left = models;

	for (unsigned i = 0; left > 0; left--)
		if (model[i].label.flow == l.flow && model[i].level > level)
			model_last(i, level);
		else
			i++;
	model_append(l, level, buffers);
}

/* The first one of the most urgent level, or the last one of the lowest. */
static unsigned model_pick(bool lowest)
{
	unsigned at = 0;

	for (unsigned i = 1; i < models; i++)
		if (lowest ? model[i].level >= model[at].level : model[i].level < model[at].level)
			at = i;
	return at;
}

static void model_check_dropped(struct rte_mbuf *dropped)
{
	unsigned at = model_pick(true);
	struct label l = open_label(dropped);

	assert_int_equal(l.flow, model[at].label.flow);
	assert_int_equal(l.number, model[at].label.number);
	model_remove(at);
}

/* Of one buffer, and now and then of many. */
static unsigned random_buffers(void)
{
	return random_below(4) ? 1 : 1 + random_below(12);
}

/* Returns how many were dropped. */
static unsigned random_add(struct label l, unsigned level)
{
	unsigned buffers = random_buffers(), count = 0;
	struct rte_mbuf *m = large_packet(l.flow, l.number, buffers), *lost;

	model_add(l, level, buffers);
	do {
		lost = receive_level_add(&r, m, l.flow, level);
		assert_int_equal(lost != NULL, model_buffers > MAX);
		count += lost != NULL;
		bool itself = lost == m;
		if (lost)
			model_check_dropped(lost);
		if (itself)
			break;
	} while (lost);
	return count;
}

static void test_random(void **state)
{
	uint32_t sent[FLOWS] = {0}, seen[FLOWS] = {0}, dropped = 0;

	for (unsigned step = 0; step < STEPS; step++) {
		unsigned fill = step / 1000 % 2 ? 45 : 55; /* mostly empty, mostly full */
		if (random_below(100) < fill) {
			struct label l = {.flow = random_below(FLOWS)};
			unsigned level = random_below(SY_PRIORITIES);
			l.number = ++sent[l.flow];
			dropped += random_add(l, level);
		} else if (models > 0) {
			unsigned level, at = model_pick(false);
			struct label l = take(&level);
			assert_int_equal(level, model[at].level);
			assert_int_equal(l.flow, model[at].label.flow);
			assert_int_equal(l.number, model[at].label.number);
			assert_true(l.number > seen[l.flow]); /* never out of its order */
			seen[l.flow] = l.number;
			model_remove(at);
		}
		assert_int_equal(r.count, models);
		assert_true(model_buffers <= MAX);
	}
	assert_true(r.risen > STEPS / 100 && dropped > STEPS / 100);
	models = model_buffers = 0;
}

static int setup(void **state)
{
	packets_before = rte_mempool_avail_count(tests_pool());
	return receive_levels_init(&r, MAX);
}

static int teardown(void **state)
{
	receive_levels_close(&r);
	assert_int_equal(rte_mempool_avail_count(tests_pool()), packets_before);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_most_urgent_is_first, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_equal_levels_change_nothing, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_a_flow_rises, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_lowest_is_dropped, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_buffers_count, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
