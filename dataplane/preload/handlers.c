// SPDX-License-Identifier: Apache-2.0
/*
 * Handlers of the program may use sockets, and may leave by longjmp(). So none runs while its
 * thread has the lock (docs/design/0057-waking-threads.md). Blocking signals in each call would
 * cost two system calls. Instead the kernel calls enter(). If the thread has the lock, enter()
 * sends the signal to the thread again and blocks all signals; runner_unlock() unblocks them.
 *
 * Handlers that the program sets without these functions run at once: calls that they make fail
 * with EAGAIN if the thread has the lock.
 *
 * In a process with a stack, end_process() is the handler of a signal that ends the process by its
 * default action (process_end.c).
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "preload.h"
#include "real.h"

#define SAME_FLAGS (SA_SIGINFO | SA_RESETHAND) /* these differ in the kernel */

typedef void (*handler)(int, siginfo_t *, void *);
typedef void (*any)(void);

/* Actions as the program has set them. Read and written by any thread, and in handlers. */
static struct {
	handler call;
	int flags;
	sigset_t mask; /* of a default action; the kernel has a handler's */
} actions[NSIG];

static __thread struct {
	volatile bool entered;  /* in defer() */
	volatile bool deferred; /* signals are blocked until the lock is released */
	volatile uint64_t mask; /* the mask to restore then */
	volatile bool ran,
	        ends; /* a handler has run since the last sleep began; one without SA_RESTART */
	volatile bool leaves; /* has the lock to execute a program */
} self;

/* The C library's sigset_t is larger than the kernel's, which a signal frame has. */
static void mask_to_set(uint64_t mask, sigset_t *set)
{
	sigemptyset(set);
	memcpy(set, &mask, sizeof(mask));
}

static bool is_function(const struct sigaction *a)
{
	return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN && a->sa_handler != SIG_ERR;
}

static uint64_t mask_blocked(void)
{
	sigset_t set;
	uint64_t mask;

	signals_all(&set);
	memcpy(&mask, &set, sizeof(mask));
	return mask & ~(UINT64_C(3) << 31); /* the C library's own: SIGCANCEL, SIGSETXID */
}

static void defer(int number, siginfo_t *info, ucontext_t *u)
{
	uint64_t blocked = mask_blocked();
	bool outermost = !self.entered;
	int code = errno;

	self.entered = true;
	if (outermost)
		memcpy((void *)&self.mask, &u->uc_sigmask, sizeof(self.mask));
	memcpy(&u->uc_sigmask, &blocked, sizeof(blocked));
	self.deferred = true;
	syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), number, info);
	if (outermost)
		self.entered = false;
	errno = code;
}

/* Returns whether a signal has to wait for the lock. A thread that executes a program defers none:
 * it would be pending and blocked in that program. */
static bool is_deferred(void)
{
	return runner_is_inside() && !self.leaves;
}

static void default_set(int number, const struct sigaction *program);

static void enter(int number, siginfo_t *info, void *context)
{
	int code = errno;

	if (is_deferred()) {
		defer(number, info, context);
		return;
	}
	wait_abandon(); /* an interrupted sleep ends anyway, and the handler may take long */
	errno = code;
	bool ends = self.ends | !(actions[number].flags & SA_RESTART);
	handler call = __atomic_load_n(&actions[number].call, __ATOMIC_ACQUIRE);
	if (actions[number].flags & SA_RESETHAND)
		default_set(number, &(struct sigaction){.sa_flags = actions[number].flags});
	call(number, info, context);
	self.ran = true; /* after the handler's calls, which may sleep */
	self.ends = ends;
}

void signals_sleep(void)
{
	self.ran = self.ends = false;
}

/* Handlers that the C library sets by itself run without this library's knowledge. So if no other
 * handler has run, all handlers must have SA_RESTART. */
bool signals_restart(void)
{
	struct sigaction a;

	for (int i = 1; i < NSIG && !self.ran; i++)
		if (!sigaction(i, NULL, &a) && is_function(&a) && !(a.sa_flags & SA_RESTART))
			return false;
	return !self.ends;
}

bool signals_deferred(sigset_t *program)
{
	if (!self.deferred)
		return false;
	self.deferred = false;
	mask_to_set(self.mask, program);
	return true;
}

void signals_unblock(void)
{
	sigset_t program;
	int code = errno;

	if (!signals_deferred(&program))
		return;
	pthread_sigmask(SIG_SETMASK, &program, NULL);
	errno = code;
}

/* ---- signals that end the process ------------------------------------------------------------ */

static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/* Ends the process by the signal. The interrupted code may have any lock but the stack's, such as
 * malloc()'s: all calls here are async-signal-safe. All signals are blocked, so no handler or
 * cancellation interrupts it. */
static void end_process(int number, siginfo_t *info, void *context)
{
	const struct sigaction fallback = {.sa_handler = SIG_DFL};
	sigset_t one;
	int cancel;

	if (is_deferred()) {
		defer(number, info, context);
		return;
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	process_end_request();
	sigemptyset(&one);
	sigaddset(&one, number);
	for (;;) { /* another thread may set a handler meanwhile */
		REAL(sigaction)(number, &fallback, NULL);
		syscall(SYS_tgkill, getpid(), gettid(), number);
		pthread_sigmask(SIG_UNBLOCK, &one, NULL);
	}
}

/* Returns whether the default action of the signal ends this process, and the process has a stack.
 * The first process of a namespace has no default actions. A child that shares the memory has no
 * stack, but its own handlers. */
static bool is_ending(int number)
{
	for (unsigned i = 0; i < SY_ARRAY_LEN(ending); i++)
		if (ending[i] == number)
			return runner.stack && runner.pid == getpid() && getpid() != 1;
	return false;
}

/* Sets end_process() for a default action. SA_ONSTACK: a coroutine's stack may be small. */
static void end_arm(int number, const struct sigaction *program)
{
	struct sigaction a = {.sa_sigaction = end_process,
	                      .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};

	actions[number].flags = program->sa_flags;
	actions[number].mask = program->sa_mask;
	signals_all(&a.sa_mask);
	REAL(sigaction)(number, &a, NULL);
}

static void default_set(int number, const struct sigaction *program)
{
	struct sigaction a = *program;

	a.sa_handler = SIG_DFL;
	if (is_ending(number))
		end_arm(number, program);
	else
		REAL(sigaction)(number, &a, NULL);
}

void signals_arm(void)
{
	struct sigaction a;

	for (unsigned i = 0; i < SY_ARRAY_LEN(ending); i++)
		if (is_ending(ending[i]) && !REAL(sigaction)(ending[i], NULL, &a) &&
		    a.sa_handler == SIG_DFL)
			end_arm(ending[i], &a);
}

void signals_leave(bool on)
{
	struct sigaction a;

	self.leaves = on;
	if (!on)
		signals_arm();
	for (unsigned i = 0; i < SY_ARRAY_LEN(ending) && on; i++) {
		int number = ending[i];
		if (REAL(sigaction)(number, NULL, &a) || a.sa_sigaction != end_process)
			continue;
		a = (struct sigaction){.sa_handler = SIG_DFL, .sa_flags = actions[number].flags};
		a.sa_mask = actions[number].mask;
		REAL(sigaction)(number, &a, NULL);
	}
}

/* ---- setting handlers ------------------------------------------------------------------------ */

/* Faults are not deferred: the thread cannot continue. */
static bool is_deferrable(int number)
{
	return number > 0 && number < NSIG && mask_blocked() & UINT64_C(1) << (number - 1);
}

PRELOAD_EXPORT int sigaction(int number, const struct sigaction *new, struct sigaction *old)
{
	struct sigaction a, before;

	if (!is_deferrable(number))
		return REAL(sigaction)(number, new, old);
	handler call = actions[number].call;
	int flags = actions[number].flags;
	sigset_t mask = actions[number].mask;
	if (new) {
		a = *new;
		if (is_function(new)) {
			actions[number].flags = new->sa_flags;
			__atomic_store_n(&actions[number].call, (handler) new->sa_sigaction,
			                 __ATOMIC_RELEASE);
			a.sa_sigaction = enter;
			a.sa_flags = (new->sa_flags & ~SA_RESETHAND) | SA_SIGINFO;
		}
	}
	if (REAL(sigaction)(number, new ? &a : NULL, &before))
		return -1;
	if (new &&new->sa_handler == SIG_DFL && is_ending(number))
		end_arm(number, &a);
	if (!old)
		return 0;
	*old = before;
	if (before.sa_sigaction == enter) {
		old->sa_sigaction = call;
		old->sa_flags = (before.sa_flags & ~SAME_FLAGS) | (flags & SAME_FLAGS);
	} else if (before.sa_sigaction == end_process) {
		*old = (struct sigaction){.sa_handler = SIG_DFL, .sa_flags = flags};
		old->sa_mask = mask;
	}
	return 0;
}

/* Sets a handler by another function of the C library, which does not call this library's
 * sigaction(). */
static sighandler_t set_by(sighandler_t (*real)(int, sighandler_t), int number, sighandler_t new)
{
	handler call = is_deferrable(number) ? actions[number].call : NULL;
	sighandler_t before = real(number, new);
	struct sigaction a;

	if (before == SIG_ERR)
		return before;
	if (!REAL(sigaction)(number, NULL, &a) && a.sa_handler == new &&
	    (is_function(&a) || new == SIG_DFL))
		sigaction(number, &a, NULL);
	if ((any)before == (any)end_process)
		return SIG_DFL;
	return (any)before == (any)enter ? (sighandler_t)(any)call : before;
}

#define SETTERS(X) X(signal) X(ssignal) X(bsd_signal) X(sysv_signal) X(__sysv_signal) X(sigset)
#define X(name)                                                                                    \
	PRELOAD_EXPORT sighandler_t name(int number, sighandler_t new);                            \
	sighandler_t name(int number, sighandler_t new)                                            \
	{                                                                                          \
		static sighandler_t (*real)(int, sighandler_t);                                    \
		if (!real)                                                                         \
			real = (sighandler_t(*)(int, sighandler_t))dlsym(RTLD_NEXT, #name);        \
		return set_by(real, number, new);                                                  \
	}
SETTERS(X)
#undef X

/* ---- leaving a handler by longjmp() ---------------------------------------------------------- */

#define LEAVERS(X) X(longjmp) X(_longjmp) X(siglongjmp) X(__longjmp_chk)
#define X(name)                                                                                    \
	PRELOAD_EXPORT _Noreturn void name(struct __jmp_buf_tag to[1], int value);                 \
	_Noreturn void name(struct __jmp_buf_tag to[1], int value)                                 \
	{                                                                                          \
		static void (*real)(struct __jmp_buf_tag *, int);                                  \
		if (!real)                                                                         \
			real = (void (*)(struct __jmp_buf_tag *, int))dlsym(RTLD_NEXT, #name);     \
		wait_abandon();                                                                    \
		real(to, value);                                                                   \
		__builtin_unreachable();                                                           \
	}
LEAVERS(X)
#undef X

/* Looks both functions up in advance: dlsym() is not async-signal-safe. */
__attribute__((constructor)) static void real_find(void)
{
	(void)REAL(sigaction);
	syscall(SYS_gettid);
}
