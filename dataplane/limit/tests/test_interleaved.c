// SPDX-License-Identifier: Apache-2.0
/*
 * All orders in which threads can reach a shared bucket. Each thread is a coroutine that stops
 * before every access to what threads share. A schedule is the list of who runs next; all schedules
 * are run, one after the other. In each, no unit may be created, and none may be lost: what passed
 * and what is left make up what there was.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <ucontext.h>

#include <cmocka.h>

static void limit_step(void);
#define SY_LIMIT_STEP() limit_step()
#include "sy_limit.h"

#define THREADS 3
#define STEPS   64 /* of a schedule */
#define STACK   65536
#define BURST   100
#define BATCH   40

struct thread {
	ucontext_t context;
	char *stack;
	bool over;
	uint64_t local, passed;
};

/* One run: the threads, the bucket, and the schedule so far. */
static struct {
	struct thread thread[THREADS];
	ucontext_t scheduler;
	unsigned threads, now; /* who runs */
	enum sy_limit_engine engine;
	struct sy_limit_rate rate;
	struct sy_limit limit;
	uint64_t cost[THREADS][2]; /* what each thread takes */
	bool gives_back;           /* the first thread gives its first units back */
	unsigned choice[STEPS], choices[STEPS], steps;
} run;

static void limit_step(void)
{
	struct thread *t = &run.thread[run.now];
	swapcontext(&t->context, &run.scheduler);
}

static void thread_main(void)
{
	struct thread *t = &run.thread[run.now];
	unsigned n = run.now;

	for (unsigned i = 0; i < 2; i++) {
		uint64_t cost = run.cost[n][i];
		if (!sy_limit_take(&run.limit, run.engine, &run.rate, &t->local, BURST, cost))
			continue;
		t->passed += cost;
		if (n == 0 && i == 0 && run.gives_back) {
			sy_limit_give_back(&run.limit, run.engine, &t->local, cost);
			t->passed -= cost;
		}
	}
	t->over = true;
}

/* Threads that have not ended. One that waits for the lock runs, too, and waits on. */
static unsigned runnable(unsigned who[THREADS])
{
	unsigned count = 0;
	for (unsigned i = 0; i < run.threads; i++)
		if (!run.thread[i].over)
			who[count++] = i;
	return count;
}

static __attribute__((noinline)) void thread_begin(struct thread *t)
{
	getcontext(&t->context);
	t->context.uc_stack.ss_sp = t->stack;
	t->context.uc_stack.ss_size = STACK;
	t->context.uc_link = &run.scheduler;
	makecontext(&t->context, thread_main, 0);
}

static void threads_begin(void)
{
	run.rate = (struct sy_limit_rate){.slope = UINT64_C(1) << 62, .shift = 62, .burst = BURST};
	run.limit = (struct sy_limit){.level = 0, .batch = BATCH};
	rte_spinlock_init(&run.limit.lock);
	for (unsigned i = 0; i < run.threads; i++) {
		char *stack = run.thread[i].stack;
		run.thread[i] = (struct thread){.stack = stack ? stack : malloc(STACK)};
		thread_begin(&run.thread[i]);
	}
}

/* Runs the schedule: the choices that are given, and the first thread from there on. Beyond STEPS
 * threads take turns, so that nobody waits for a lock for ever. */
static void threads_run(void)
{
	unsigned who[THREADS], count, turn = 0;
	for (run.steps = 0; (count = runnable(who)) > 0; turn++) {
		unsigned at = turn % count;
		if (run.steps < STEPS) {
			run.choices[run.steps] = count;
			at = run.choice[run.steps] % count;
			run.steps++;
		}
		run.now = who[at];
		swapcontext(&run.scheduler, &run.thread[run.now].context);
	}
}

/* The next schedule in order: the last choice that has another one left. Only the first `deep`
 * choices vary. */
static bool schedule_next(unsigned deep)
{
	unsigned i = run.steps < deep ? run.steps : deep;
	while (i > 0 && run.choice[i - 1] + 1 >= run.choices[i - 1])
		i--;
	if (i == 0)
		return false;
	run.choice[i - 1]++;
	for (unsigned later = i; later < STEPS; later++)
		run.choice[later] = 0;
	return true;
}

/* Whether no unit was created or lost. */
static bool is_whole(void)
{
	uint64_t passed = 0, held = 0;
	for (unsigned i = 0; i < run.threads; i++) {
		passed += run.thread[i].passed;
		held += run.thread[i].local;
	}
	return passed <= BURST &&
	       passed + held + sy_limit_credit(&run.limit, &run.rate, BURST) == BURST &&
	       !rte_spinlock_is_locked(&run.limit.lock);
}

/* Runs all schedules; returns how many, and how many of them broke the sum. */
static unsigned run_all(enum sy_limit_engine engine, unsigned threads, bool gives_back,
                        unsigned deep, unsigned *broken)
{
	unsigned schedules = 0;
	run.engine = engine;
	run.threads = threads;
	run.gives_back = gives_back;
	*broken = 0;
	memset(run.choice, 0, sizeof(run.choice));
	do {
		threads_begin();
		threads_run();
		*broken += !is_whole();
		schedules++;
	} while (schedule_next(deep));
	return schedules;
}

static const enum sy_limit_engine shared[] = {SY_LIMIT_CAS, SY_LIMIT_LOCK, SY_LIMIT_LIGHT_LOCK};

static void set_costs(uint64_t a, uint64_t b)
{
	for (unsigned i = 0; i < THREADS; i++) {
		run.cost[i][0] = a;
		run.cost[i][1] = b;
	}
}

/* Together they want more than there is, so the order decides who gets it. */
static void test_two_threads(void **state)
{
	(void)state;
	unsigned broken;
	set_costs(40, 33);
	for (unsigned i = 0; i < SY_ARRAY_LEN(shared); i++) {
		for (unsigned back = 0; back < 2; back++) {
			assert_true(run_all(shared[i], 2, back, 16, &broken) > 10);
			assert_int_equal(broken, 0);
		}
	}
}

static void test_three_threads(void **state)
{
	(void)state;
	unsigned broken;
	set_costs(40, 17);
	for (unsigned i = 0; i < SY_ARRAY_LEN(shared); i++) {
		for (unsigned back = 0; back < 2; back++) {
			assert_true(run_all(shared[i], 3, back, 9, &broken) > 1000);
			assert_int_equal(broken, 0);
		}
	}
}

/* A bucket for one thread that two use: this test can find what it looks for. */
static void test_races_are_found(void **state)
{
	(void)state;
	unsigned broken;
	set_costs(40, 33);
	run_all(SY_LIMIT_OWN, 1, true, 16, &broken);
	assert_int_equal(broken, 0);
	run_all(SY_LIMIT_OWN, 2, false, 16, &broken);
	assert_true(broken > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_two_threads),
	        cmocka_unit_test(test_three_threads),
	        cmocka_unit_test(test_races_are_found),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		free(run.thread[i].stack);
	return failed;
}
