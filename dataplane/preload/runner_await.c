// SPDX-License-Identifier: Apache-2.0
/* A call that waits for one socket of the stack. */
#include <errno.h>

#include "preload.h"

/* Returns whether the socket still exists, after a call in a handler has ended the wait. */
static bool sock_exists(const struct sock *s, sy_stack_id id)
{
	for (const struct sock *o = all_socks; o; o = o->next)
		if (o == s)
			return o->id == id;
	return false;
}

/* Sleeps once. Fails with -EBADF if another thread has closed the socket. Returns 1, without the
 * lock, if the handoff is done. */
static int await_once(struct sock *s, struct wait *wait, struct pollfd *p, uint64_t deadline_ns,
                      struct signals *signals)
{
	sy_stack_id id = s->id;
	int rc = 0;

	if (!wait->waiter) {
		rc = wait_enter(wait, 1);
		if (rc)
			return rc;
		wait_link(wait, &s->o, s->o.kind == OBJECT_LISTENER);
	}
	rc = wait_sleep(wait, p, p[WAIT_OWN].fd < 0 ? WAIT_OWN : WAIT_OWN + 1, deadline_ns,
	                signals);
	if (wait->handoff && wait->handoff->done)
		return 1;
	if (wait_is_over(wait)) {
		*wait = (struct wait){.handoff = wait->handoff};
		return sock_exists(s, id) ? -EINTR : -EBADF;
	}
	if (wait_gone(wait, 0) ||
	    (s->o.kind == OBJECT_CONNECTION && (!runner.stack || s->id == SY_STACK_NONE)))
		return -EBADF;
	return rc < 0 ? rc : 0;
}

static int await(struct sock *s, uint32_t events, int extra_fd, struct handoff *handoff,
                 uint64_t deadline_ns, struct signals *signals)
{
	struct wait wait = {.handoff = handoff};
	struct pollfd p[WAIT_OWN + 1] = {[WAIT_OWN] = {.fd = extra_fd, .events = POLLIN}};
	int rc = 0;

	for (;;) {
		if (!wait_posted(&wait) || !(sock_ready(s) & events))
			runner_poll();
		if (sock_ready(s) & events || p[WAIT_OWN].revents || s->o.kind == OBJECT_PLAIN)
			break;
		if (is_past(deadline_ns)) {
			rc = -EAGAIN;
			break;
		}
		rc = await_once(s, &wait, p, deadline_ns, signals);
		if (rc > 0)
			return rc;
		if (rc && (rc != -EINTR || deadline_ns != NEVER || !signals_restart()))
			break;
		rc = 0;
	}
	wait_leave(&wait);
	if (rc && rc != -EBADF && sock_ready(s) & events) /* another thread handles the event */
		object_notify(&s->o);
	return rc;
}

int runner_await(struct sock *s, uint32_t events, int extra_fd, uint64_t deadline_ns,
                 struct signals *signals)
{
	return await(s, events, extra_fd, NULL, deadline_ns, signals);
}

int runner_await_handoff(struct sock *s, uint32_t events, struct handoff *handoff,
                         uint64_t deadline_ns, struct signals *signals)
{
	return await(s, events, -1, handoff, deadline_ns, signals);
}
