// SPDX-License-Identifier: Apache-2.0
/*
 * Orders in which threads can access a shared bucket. Each thread is a coroutine that stops before
 * every access to shared memory. A schedule is the sequence of threads to run. In each, no unit may
 * be created or lost: units passed plus units left equal the initial ones.
 *
 *   all orders    of two threads that charge twice, of three that charge once, and with the locks
 * of three that charge twice: one schedule after the other, to its end. A thread that waits for a
 * lock does not run: it would change nothing random ones   of three threads that charge twice;
 * those that wait for a lock run too
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

#include "../../base/tests/test_random.h"

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
	unsigned threads, now; /* threads; the one that runs */
	enum sy_limit_engine engine;
	struct sy_limit_rate rate;
	struct sy_limit limit;
	uint64_t cost[THREADS][2]; /* units that each thread charges */
	unsigned takes;            /* of each thread */
	bool refunds;              /* the first thread refunds its first units */
	bool skips_waiting;        /* threads that wait for the lock do not run */
	unsigned holder;           /* of the lock, while it is locked */
	unsigned choice[STEPS], choices[STEPS], steps;
	unsigned longest; /* steps of the longest schedule so far */
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

	for (unsigned i = 0; i < run.takes; i++) {
		uint64_t cost = run.cost[n][i];
		if (!sy_limit_charge(&run.limit, run.engine, &run.rate, &t->local, BURST, cost))
			continue;
		t->passed += cost;
		if (n == 0 && i == 0 && run.refunds) {
			sy_limit_refund(&run.limit, run.engine, &t->local, cost);
			t->passed -= cost;
		}
	}
	t->over = true;
}

/* Must a thread wait? With locks, all that it does next, if anything, needs the lock. */
static bool is_waiting(unsigned i)
{
	return run.skips_waiting && i != run.holder && rte_spinlock_is_locked(&run.limit.lock);
}

/* Threads that have not ended and can go on. */
static unsigned runnable(unsigned who[THREADS])
{
	unsigned count = 0;
	for (unsigned i = 0; i < run.threads; i++)
		if (!run.thread[i].over && !is_waiting(i))
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

/* Runs the schedule: the given choices, and the first thread from there on. Beyond STEPS threads
 * alternate, so that none waits for a lock for ever. */
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
		if (!rte_spinlock_is_locked(&run.limit.lock))
			run.holder = run.now; /* if it locks now */
		swapcontext(&run.scheduler, &run.thread[run.now].context);
	}
	if (turn > run.longest)
		run.longest = turn;
}

/* The next schedule in order: the last choice that has another one left. */
static bool schedule_next(void)
{
	unsigned i = run.steps;
	while (i > 0 && run.choice[i - 1] + 1 >= run.choices[i - 1])
		i--;
	if (i == 0)
		return false;
	run.choice[i - 1]++;
	for (unsigned later = i; later < STEPS; later++)
		run.choice[later] = 0;
	return true;
}

/* Whether all threads came to their end, and no unit was created or lost. */
static bool is_whole(void)
{
	uint64_t passed = 0, held = 0;
	for (unsigned i = 0; i < run.threads; i++) {
		if (!run.thread[i].over)
			return false;
		passed += run.thread[i].passed;
		held += run.thread[i].local;
	}
	return passed <= BURST &&
	       passed + held + sy_limit_credit(&run.limit, &run.rate, BURST) == BURST &&
	       !rte_spinlock_is_locked(&run.limit.lock);
}

static void run_prepare(enum sy_limit_engine engine, unsigned threads, unsigned takes, bool back)
{
	run.engine = engine;
	run.threads = threads;
	run.takes = takes;
	run.refunds = back;
	run.longest = 0;
	memset(run.choice, 0, sizeof(run.choice));
}

static bool run_once(void)
{
	threads_begin();
	threads_run();
	return is_whole();
}

/* Runs all schedules; returns how many, and how many of them broke the sum. */
static unsigned run_all(unsigned *broken)
{
	unsigned schedules = 0;
	run.skips_waiting = run.engine == SY_LIMIT_LOCK || run.engine == SY_LIMIT_LIGHT_LOCK;
	*broken = 0;
	do {
		*broken += !run_once();
		schedules++;
	} while (schedule_next());
	assert_true(run.longest <= STEPS); /* or their ends did not vary */
	return schedules;
}

/* Runs some schedules; returns how many of them broke the sum. */
static unsigned run_random(unsigned schedules)
{
	unsigned broken = 0;
	run.skips_waiting = false;
	while (schedules-- > 0) {
		for (unsigned i = 0; i < STEPS; i++)
			run.choice[i] = (unsigned)(random_next() >> 8 & 0xffff);
		broken += !run_once();
	}
	return broken;
}

static const enum sy_limit_engine shared[] = {SY_LIMIT_CAS, SY_LIMIT_LOCK, SY_LIMIT_LIGHT_LOCK};

static void set_costs(uint64_t a, uint64_t b)
{
	for (unsigned i = 0; i < THREADS; i++) {
		run.cost[i][0] = a;
		run.cost[i][1] = b;
	}
}

static void check_all(enum sy_limit_engine engine, unsigned threads, unsigned takes)
{
	for (unsigned back = 0; back < 2; back++) {
		unsigned broken;
		run_prepare(engine, threads, takes, back);
		unsigned schedules = run_all(&broken);
		print_message("engine %u: %u threads, %u takes: %u orders, %u turns\n", engine,
		              threads, takes, schedules, run.longest);
		assert_int_equal(broken, 0);
		/* more than the orders of whole charges */
		assert_true(schedules > (threads == 3 && takes == 2 ? 90 : 6));
	}
}

/* Together they need more than there is, so the order decides which succeed. */
static void test_two_threads(void **state)
{
	(void)state;
	set_costs(40, 33);
	for (unsigned i = 0; i < SY_ARRAY_LEN(shared); i++)
		check_all(shared[i], 2, 2);
}

static void test_three_threads(void **state)
{
	(void)state;
	set_costs(40, 17);
	for (unsigned i = 0; i < SY_ARRAY_LEN(shared); i++)
		check_all(shared[i], 3, 1);
	check_all(SY_LIMIT_LOCK, 3, 2);
	check_all(SY_LIMIT_LIGHT_LOCK, 3, 2);
}

static void test_random_orders(void **state)
{
	(void)state;
	set_costs(40, 17);
	for (unsigned i = 0; i < SY_ARRAY_LEN(shared); i++)
		for (unsigned back = 0; back < 2; back++) {
			run_prepare(shared[i], 3, 2, back);
			assert_int_equal(run_random(20000), 0);
		}
}

/* A bucket for one thread that two use: this test can find what it looks for. */
static void test_races_are_found(void **state)
{
	(void)state;
	unsigned broken;
	set_costs(40, 33);
	run_prepare(SY_LIMIT_OWN, 1, 2, true);
	run_all(&broken);
	assert_int_equal(broken, 0);
	run_prepare(SY_LIMIT_OWN, 2, 2, false);
	run_all(&broken);
	assert_true(broken > 0);
	run_prepare(SY_LIMIT_OWN, 3, 2, false);
	assert_true(run_random(1000) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_two_threads),
	        cmocka_unit_test(test_three_threads),
	        cmocka_unit_test(test_random_orders),
	        cmocka_unit_test(test_races_are_found),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	for (unsigned i = 0; i < THREADS; i++)
		free(run.thread[i].stack);
	return failed;
}
