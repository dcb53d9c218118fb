// SPDX-License-Identifier: Apache-2.0
/* Signals that end a process with a stack, in child processes with a simulated stack. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "preload.h"
#include "real.h"

#define STACK 65536

struct runner runner;
#define X(name) __typeof__(&name) real_##name;
REALS(X)
#undef X

/* State of the child process. */
static bool inside;
static void (*in_request)(void);
static volatile sig_atomic_t handled;
static char other_stack[STACK];
static sigjmp_buf back;
/* Shared by the child and the test. */
static struct {
	unsigned requests;
	bool on_other_stack;
} * seen;

bool runner_is_inside(void)
{
	return inside;
}

void wait_abandon(void)
{
}

void process_end_request(void)
{
	char here;

	seen->requests++;
	seen->on_other_stack = &here >= other_stack && &here < other_stack + STACK;
	if (in_request)
		in_request();
}

static void handler(int number)
{
	handled++;
}

static void jump(int number)
{
	siglongjmp(back, 1);
}

/* Returns the status of a child process that has a stack. */
static int status_of(void (*run)(void))
{
	int status;

	memset(seen, 0, sizeof(*seen));
	pid_t child = fork();
	if (child == 0) {
		runner.stack = (struct sy_stack *)&runner;
		runner.pid = getpid();
		signals_arm();
		run();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

#define expect(what)                                                                               \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                 \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

#define assert_ended_by(number, status)                                                            \
	do {                                                                                       \
		int status_ = (status);                                                            \
		assert_true(WIFSIGNALED(status_));                                                 \
		assert_int_equal(WTERMSIG(status_), number);                                       \
	} while (0)

/* ---- the end --------------------------------------------------------------------------------- */

static void raise_term(void)
{
	raise(SIGTERM);
}

static void raise_int(void)
{
	raise(SIGINT);
}

static void raise_hup(void)
{
	raise(SIGHUP);
}

static void raise_quit(void)
{
	raise(SIGQUIT);
}

static void test_the_process_ends_by_its_signal(void **state)
{
	static void (*const run[])(void) = {raise_term, raise_int, raise_hup, raise_quit};
	static const int number[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

	for (unsigned i = 0; i < SY_ARRAY_LEN(run); i++) {
		assert_ended_by(number[i], status_of(run[i]));
		assert_int_equal(seen->requests, 1);
	}
}

static void raise_usr1(void)
{
	raise(SIGUSR1);
}

static void raise_while_jumping(void)
{
	signal(SIGUSR1, jump);
	in_request = raise_usr1;
	if (!sigsetjmp(back, 1))
		raise(SIGTERM);
}

static void test_a_handler_cannot_leave_the_end(void **state)
{
	assert_ended_by(SIGTERM, status_of(raise_while_jumping));
}

static void *cancelled(void *arg)
{
	pthread_cancel(pthread_self());
	raise(SIGTERM);
	return NULL;
}

static void raise_while_cancelled(void)
{
	pthread_t thread;

	in_request = pthread_testcancel;
	expect(!pthread_create(&thread, NULL, cancelled, NULL));
	pthread_join(thread, NULL);
}

static void test_cancellation_cannot_leave_the_end(void **state)
{
	assert_ended_by(SIGTERM, status_of(raise_while_cancelled));
}

static void raise_on_other_stack(void)
{
	stack_t s = {.ss_sp = other_stack, .ss_size = STACK};

	expect(!sigaltstack(&s, NULL));
	raise(SIGTERM);
}

/* Programs with coroutines have an alternate stack: their other stacks are small. */
static void test_the_end_uses_the_alternate_stack(void **state)
{
	assert_ended_by(SIGTERM, status_of(raise_on_other_stack));
	assert_true(seen->on_other_stack);
}

static void raise_inside(void)
{
	inside = true;
	raise(SIGTERM);
	expect(!seen->requests);
	inside = false;
	signals_unblock();
}

static void test_the_end_waits_for_the_lock(void **state)
{
	assert_ended_by(SIGTERM, status_of(raise_inside));
	assert_int_equal(seen->requests, 1);
}

/* ---- what the program has set ---------------------------------------------------------------- */

static void compare_default(void)
{
	struct sigaction set = {.sa_handler = SIG_DFL, .sa_flags = SA_NODEFER}, got;

	expect(!sigaction(SIGTERM, NULL, &got));
	expect(got.sa_handler == SIG_DFL && got.sa_flags == 0);
	expect(!sigismember(&got.sa_mask, SIGUSR1));
	sigaddset(&set.sa_mask, SIGUSR1);
	expect(!sigaction(SIGTERM, &set, NULL) && !sigaction(SIGTERM, NULL, &got));
	expect(got.sa_handler == SIG_DFL && got.sa_flags == SA_NODEFER);
	expect(sigismember(&got.sa_mask, SIGUSR1) && !sigismember(&got.sa_mask, SIGUSR2));
	expect(signal(SIGTERM, handler) == SIG_DFL);
	raise(SIGTERM);
	expect(handled == 1 && !seen->requests);
	expect(signal(SIGTERM, SIG_DFL) == handler);
}

static void test_the_program_finds_its_default_action(void **state)
{
	assert_int_equal(status_of(compare_default), 0);
}

/* nohup(1) */
static void test_an_ignored_signal_stays_ignored(void **state)
{
	sighandler_t before = signal(SIGHUP, SIG_IGN);

	assert_int_equal(status_of(raise_hup), 0);
	signal(SIGHUP, before);
}

static void raise_twice(void)
{
	struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESETHAND};

	sigaction(SIGTERM, &a, NULL);
	raise(SIGTERM);
	expect(handled == 1 && !seen->requests);
	raise(SIGTERM);
}

static void test_the_second_signal_ends_it_after_sa_resethand(void **state)
{
	assert_ended_by(SIGTERM, status_of(raise_twice));
	assert_int_equal(seen->requests, 1);
}

static int set_default(void *arg)
{
	signal(SIGTERM, SIG_DFL);
	return 0;
}

static void share_memory(void)
{
	signal(SIGTERM, handler);
	pid_t child =
	        clone(set_default, other_stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
	expect(waitpid(child, NULL, 0) == child);
	raise(SIGTERM);
	expect(handled == 1);
}

/* A child between vfork() and execve(). */
static void test_a_child_with_shared_memory_has_its_own_actions(void **state)
{
	assert_int_equal(status_of(share_memory), 0);
}

/* ---- before execve() ------------------------------------------------------------------------- */

static void leave(void)
{
	sigset_t now;

	signal(SIGUSR1, handler);
	inside = true;
	signals_leave(true);
	raise(SIGUSR1);
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	expect(handled == 1 && !sigismember(&now, SIGTERM) && !sigismember(&now, SIGUSR1));
	raise(SIGTERM);
}

/* In the next program no signal is blocked. */
static void test_nothing_is_deferred_beyond_the_program(void **state)
{
	assert_ended_by(SIGTERM, status_of(leave));
	assert_int_equal(seen->requests, 0);
}

static void stay(void)
{
	struct sigaction set = {.sa_handler = SIG_DFL, .sa_flags = SA_NODEFER}, got;

	sigaction(SIGTERM, &set, NULL);
	inside = true;
	signals_leave(true);
	signals_leave(false);
	inside = false;
	expect(!sigaction(SIGTERM, NULL, &got) && (got.sa_flags & SA_NODEFER));
	raise(SIGTERM);
}

static void test_a_failed_execve_restores_the_handlers(void **state)
{
	assert_ended_by(SIGTERM, status_of(stay));
	assert_int_equal(seen->requests, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_the_process_ends_by_its_signal),
	        cmocka_unit_test(test_a_handler_cannot_leave_the_end),
	        cmocka_unit_test(test_cancellation_cannot_leave_the_end),
	        cmocka_unit_test(test_the_end_uses_the_alternate_stack),
	        cmocka_unit_test(test_the_end_waits_for_the_lock),
	        cmocka_unit_test(test_the_program_finds_its_default_action),
	        cmocka_unit_test(test_an_ignored_signal_stays_ignored),
	        cmocka_unit_test(test_the_second_signal_ends_it_after_sa_resethand),
	        cmocka_unit_test(test_a_child_with_shared_memory_has_its_own_actions),
	        cmocka_unit_test(test_nothing_is_deferred_beyond_the_program),
	        cmocka_unit_test(test_a_failed_execve_restores_the_handlers),
	};

	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (seen == MAP_FAILED)
		return 1;
	/* nohup(1), and a shell that starts this in the background, ignore these */
	signal(SIGHUP, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
