// SPDX-License-Identifier: Apache-2.0
/*
 * Functions of the control thread that a worker runs between two bursts. A call waits for the end
 * of the function. A post continues later: a worker may not run for seconds where other programs
 * use its CPU (docs/design/0056-stalls.md).
 */
#include <sched.h>
#include <time.h>

#include "sy_post.h"

#include "runtime.h"

/* How often the control thread pauses, then yields its CPU, before it sleeps. */
#define PAUSES 1000
#define YIELDS 200
#define NAP_NS 50000

/* ---- calls ----------------------------------------------------------------------------------- */

/* A sleep leaves the CPU to a worker of lower priority; sched_yield() does not. */
static void answer_wait(unsigned spins)
{
	static const struct timespec nap = {0, NAP_NS};
	if (spins < PAUSES)
		rte_pause();
	else if (spins < PAUSES + YIELDS)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

int sy_worker_call(struct sy_worker *w, void (*fn)(struct sy_worker *w, void *ctx), void *ctx)
{
	struct sy_worker_private *p = w->private;
	if (!SY_READ(p->running)) {
		fn(w, ctx);
		return 0;
	}
	struct worker_call call = {.fn = fn, .ctx = ctx}, *expected = &call;
	__atomic_store_n(&p->call, &call, __ATOMIC_RELEASE);
	worker_wake(w);
	uint64_t deadline = sy_clock_ns() + UINT64_C(1000000000);
	for (unsigned spins = 0; !__atomic_load_n(&call.done, __ATOMIC_ACQUIRE); spins++) {
		answer_wait(spins);
		/* If the exchange succeeds, the call is withdrawn and never runs. If it fails, the
		 * worker is running the call: wait for its end. */
		if (spins >= PAUSES && expected && sy_clock_ns() > deadline) {
			if (__atomic_compare_exchange_n(&p->call, &expected, NULL, false,
			                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
				return -ETIMEDOUT;
			expected = NULL;
		}
	}
	return 0;
}

void call_run(struct sy_worker *w)
{
	struct worker_call *call = __atomic_exchange_n(&w->private->call, NULL, __ATOMIC_ACQ_REL);
	if (!call) /* the caller withdrew it */
		return;
	call->fn(w, call->ctx);
	__atomic_store_n(&call->done, true, __ATOMIC_RELEASE);
}

/* ---- posts ----------------------------------------------------------------------------------- */

enum { POST_PENDING, POST_AWAITED, POST_DONE };

void posts_run(struct sy_worker *w)
{
	struct sy_worker_post *post =
	        __atomic_exchange_n(&w->private->posts, NULL, __ATOMIC_ACQ_REL);
	while (post) {
		struct sy_worker_post *next = post->next_of_worker;
		post->fn(w, post->ctx);
		/* The control thread frees it as soon as it is done. */
		if (__atomic_exchange_n(&post->state, POST_DONE, __ATOMIC_ACQ_REL) == POST_AWAITED)
			loop_wake(w->rt->loop);
		post = next;
	}
}

static bool post_is_done(const struct sy_worker_post *post)
{
	return __atomic_load_n(&post->state, __ATOMIC_ACQUIRE) == POST_DONE;
}

bool sy_worker_post(struct sy_worker *w, struct sy_worker_post *post)
{
	struct sy_worker_private *p = w->private;
	struct sy_runtime *rt = w->rt;
	if (!SY_READ(p->running)) {
		post->fn(w, post->ctx);
		return true;
	}
	post->state = POST_PENDING;
	post->next_of_worker = __atomic_load_n(&p->posts, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&p->posts, &post->next_of_worker, post, true,
	                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	worker_wake(w);
	for (unsigned spins = 0; spins < PAUSES + YIELDS && !post_is_done(post); spins++)
		answer_wait(spins);
	uint32_t pending = POST_PENDING;
	if (!__atomic_compare_exchange_n(&post->state, &pending, POST_AWAITED, false,
	                                 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return true;
	post->next = rt->awaited;
	rt->awaited = post;
	return false;
}

/* Removes a post from the list of pending posts. */
static void post_remove(struct sy_runtime *rt, struct sy_worker_post *post)
{
	struct sy_worker_post **at = &rt->awaited;
	while (*at != post)
		at = &(*at)->next;
	*at = post->next;
}

void sy_worker_post_wait(struct sy_runtime *rt, struct sy_worker_post *post)
{
	for (unsigned spins = 0; !post_is_done(post); spins++)
		answer_wait(spins);
	post_remove(rt, post);
}

void posts_finish(struct sy_runtime *rt)
{
	for (struct sy_worker_post **at = &rt->awaited; *at;) {
		struct sy_worker_post *post = *at;
		if (!post_is_done(post)) {
			at = &post->next;
			continue;
		}
		*at = post->next;
		post->done(post->ctx);
		at = &rt->awaited; /* done() may have posted again */
	}
}
