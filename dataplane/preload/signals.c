// SPDX-License-Identifier: Apache-2.0
/*
 * Signals while a call waits. A system call that sleeps ends with EINTR when a handler has run. A
 * call of this library sleeps several times and works in between: a handler that runs there would
 * go unnoticed, and the call would sleep on. So a call blocks signals from its first sleep to its
 * end, and its sleeps unblock them.
 *
 *     call ─▶ check ─▶ nothing ─▶ block ─▶ sleep ─▶ check ─▶ pending? ─▶ sleep … ─▶ restore
 *                                        unblocked          unblocked  unblocked
 *
 * A handler that runs before the first sleep has run before the call, as far as the program can
 * tell. A call that need not sleep blocks nothing.
 */
#include <errno.h>
#include <signal.h>

#include "preload.h"
#include "real.h"

void signals_all(sigset_t *out)
{
	/* The program's handlers report faults of this library, too. */
	static const int faults[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

	sigfillset(out);
	for (unsigned i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		sigdelset(out, faults[i]);
}

void signals_block(struct signals *s)
{
	sigset_t blocked;

	if (s->blocked)
		return;
	signals_all(&blocked);
	pthread_sigmask(SIG_BLOCK, &blocked, &s->program);
	signals_deferred(
	        &s->program); /* if one has come with the lock held, all are blocked already */
	s->blocked = true;
}

const sigset_t *signals_sleep_mask(const struct signals *s)
{
	return s->requested || !s->blocked ? s->requested : &s->program;
}

bool signals_deliver_pending(const struct signals *s)
{
	const struct timespec none = {0};

	return REAL(ppoll)(NULL, 0, &none, signals_sleep_mask(s)) < 0 && errno == EINTR;
}

int signals_epoll(const struct signals *s, int epfd, struct epoll_event *e, int max, int ms)
{
	struct pollfd p = {.fd = epfd, .events = POLLIN};
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
	int n;

	if (!s->blocked)
		return REAL(epoll_pwait)(epfd, e, max, ms, signals_sleep_mask(s));
	/* The kernel keeps an ignored signal pending while it is blocked. epoll_pwait(2) ends when
	 * it unblocks one; ppoll(2) continues. */
	n = REAL(ppoll)(&p, 1, ms < 0 ? NULL : &t, signals_sleep_mask(s));
	return n > 0 ? REAL(epoll_pwait)(epfd, e, max, 0, NULL) : n;
}

void signals_restore(struct signals *s)
{
	int code = errno;

	if (s->blocked)
		pthread_sigmask(SIG_SETMASK, &s->program, NULL);
	s->blocked = false;
	errno = code;
}
