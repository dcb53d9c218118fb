// SPDX-License-Identifier: Apache-2.0
/* The registry validates answers: the process of a stack may be compromised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "registry.h"

#define OLD 4096 /* unsolicited answers */

struct liar {
	struct sy_hook_registry *registry;
	struct sy_hook_channel channel;
	struct answer answer; /* sent for each order, with the order's sequence */
	unsigned old;         /* unsolicited answers before it */
	pthread_t thread;
};

static bool answer_send(struct liar *l)
{
	const struct answer *a = &l->answer;
	size_t len = answer_bytes(a);
	return send(l->channel.socket, a, len < sizeof(*a) ? len : sizeof(*a), MSG_NOSIGNAL) > 0;
}

static void *liar_answer(void *arg)
{
	struct liar *l = arg;
	struct order o;
	while (recv(l->channel.socket, &o, sizeof(o), 0) == sizeof(o)) {
		l->answer.sequence = o.sequence - 1;
		for (unsigned i = 0; i < l->old && answer_send(l); i++)
			;
		l->answer.sequence = o.sequence;
		answer_send(l);
	}
	return NULL;
}

/* Answers like a stack with one hook. */
static void liar_open(struct liar *l)
{
	*l = (struct liar){0};
	assert_int_equal(sy_hook_registry_open(&l->registry, NULL), 0);
	assert_int_equal(sy_hook_registry_join(l->registry, getpid(), &l->channel), 0);
	struct answer_hook *h = &l->answer.hook[0];
	l->answer.hooks = 1;
	snprintf(h->info.name, sizeof(h->info.name), "mine");
	h->number = 1;
}

static void liar_close(struct liar *l)
{
	sy_hook_registry_close(l->registry); /* closes the other end: recv() returns */
	pthread_join(l->thread, NULL);
	close(l->channel.socket);
	close(l->channel.doorbell);
}

/* Returns the number of hooks that the registry accepts. */
static unsigned believed(struct liar *l)
{
	struct sy_hook_count count;
	struct sy_hook_report report[4];
	pthread_create(&l->thread, NULL, liar_answer, l);
	unsigned hooks = sy_hook_registry_report(l->registry, report, 4, NULL, &count);
	assert_int_equal(count.silent, hooks == 0); /* invalid answers count as silent */
	for (unsigned i = 0; i < hooks; i++)
		assert_non_null(sy_hook_kind_name(report[i].info.kind));
	liar_close(l);
	return hooks;
}

static void test_valid_answer(void **state)
{
	struct liar l;
	liar_open(&l);
	assert_int_equal(believed(&l), 1);
}

static void test_kind(void **state)
{
	struct liar l;
	liar_open(&l);
	l.answer.hook[0].info.kind = SY_HOOK_KINDS;
	assert_int_equal(believed(&l), 0);
	liar_open(&l);
	l.answer.hook[0].info.kind = (enum sy_hook_kind)0x7fffffff;
	assert_int_equal(believed(&l), 0);
}

static void test_flag(void **state)
{
	struct liar l;
	liar_open(&l);
	memset(&l.answer.hook[0].info.native, 0x55, 1);
	assert_int_equal(believed(&l), 0);
}

static void test_name(void **state)
{
	static const char *const wrong[] = {"", "\xff\xfe", "\x1b[2J", "Mine", "a b"};
	struct liar l;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		liar_open(&l);
		memset(l.answer.hook[0].info.name, 0, SY_HOOK_NAME);
		memcpy(l.answer.hook[0].info.name, wrong[i], strlen(wrong[i]));
		assert_int_equal(believed(&l), 0);
	}
	liar_open(&l);
	memset(l.answer.hook[0].info.name, 'a', SY_HOOK_NAME); /* not terminated */
	assert_int_equal(believed(&l), 0);
}

static void test_counts(void **state)
{
	struct liar l;
	liar_open(&l);
	l.answer.hooks = SY_HOOKS + 1;
	assert_int_equal(believed(&l), 0);
	liar_open(&l);
	l.answer.places = SY_HOOK_PLACES + 1;
	assert_int_equal(believed(&l), 0);
}

static bool connection_count(void *ctx, const struct sy_hook_stack *stack,
                             const struct sy_hook_connection *c, unsigned count)
{
	*(unsigned *)ctx += count;
	return true;
}

static enum sy_hook_walk walk(struct liar *l, unsigned *connections, unsigned *silent)
{
	struct sy_hook_count count;
	*connections = 0;
	pthread_create(&l->thread, NULL, liar_answer, l);
	enum sy_hook_walk end =
	        sy_hook_registry_connections(l->registry, connection_count, connections, &count);
	liar_close(l);
	*silent = count.silent;
	return end;
}

static void test_connections(void **state)
{
	struct liar l;
	unsigned connections, silent;
	liar_open(&l);
	l.answer.hooks = 0;
	l.answer.connections = SY_HOOK_CONNECTIONS;
	assert_int_equal(walk(&l, &connections, &silent), SY_HOOK_WALK_ALL);
	assert_int_equal(connections, SY_HOOK_CONNECTIONS);
	assert_int_equal(silent, 0);
	liar_open(&l);
	l.answer.hooks = 0;
	l.answer.connections = SY_HOOK_CONNECTIONS + 1;
	walk(&l, &connections, &silent);
	assert_int_equal(connections, 0);
	assert_int_equal(silent, 1);
	liar_open(&l); /* hooks and connections share a union */
	l.answer.connections = 1;
	walk(&l, &connections, &silent);
	assert_int_equal(connections, 0);
	assert_int_equal(silent, 1);
}

static void test_endless_connections(void **state)
{
	struct liar l;
	unsigned connections, silent;
	liar_open(&l);
	l.registry->walk_ms = 100;
	l.answer.hooks = 0;
	l.answer.more = 1;
	assert_int_equal(walk(&l, &connections, &silent), SY_HOOK_WALK_LATE);
}

static int remove_one(struct liar *l, struct sy_hook_count *count, struct sy_error *err)
{
	pthread_create(&l->thread, NULL, liar_answer, l);
	int rc = sy_hook_registry_remove(l->registry, "mine", count, err);
	liar_close(l);
	return rc;
}

/* A result is a negative errno; other values are invalid. */
static void test_result(void **state)
{
	struct liar l;
	struct sy_hook_count count;
	struct sy_error err = {0};
	liar_open(&l);
	l.answer.rc = INT32_MIN;
	assert_int_equal(remove_one(&l, &count, &err), -ENOENT);
	assert_int_equal(count.stacks, 0);
}

static void test_text(void **state)
{
	struct liar l;
	struct sy_hook_count count;
	struct sy_error err = {0};
	struct sy_hook_change w = {.name = "mine", .params = 1};
	liar_open(&l);
	l.answer.rc = -EINVAL;
	snprintf(l.answer.text, sizeof(l.answer.text), "no\x1b[2J\xff!");
	pthread_create(&l.thread, NULL, liar_answer, &l);
	assert_int_equal(sy_hook_registry_load(l.registry, &w, &count, &err), -ENOENT);
	assert_string_equal(l.registry->text, "no?[2J?!");
	liar_close(&l);
}

/* Answers to earlier orders are skipped; a flood of them delays neither other stacks nor the end.
 */
static void test_late_answers_are_skipped(void **state)
{
	struct liar l;
	struct sy_hook_count count;
	struct sy_error err = {0};
	liar_open(&l);
	l.old = OLD;
	assert_int_equal(remove_one(&l, &count, &err), 0);
	assert_int_equal(count.stacks, 1);
	liar_open(&l);
	l.old = UINT32_MAX; /* for ever */
	assert_int_equal(remove_one(&l, &count, &err), 0);
	assert_int_equal(count.stacks, 0);
	assert_int_equal(count.silent, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_valid_answer),
	        cmocka_unit_test(test_kind),
	        cmocka_unit_test(test_flag),
	        cmocka_unit_test(test_name),
	        cmocka_unit_test(test_counts),
	        cmocka_unit_test(test_connections),
	        cmocka_unit_test(test_endless_connections),
	        cmocka_unit_test(test_result),
	        cmocka_unit_test(test_text),
	        cmocka_unit_test(test_late_answers_are_skipped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
