// SPDX-License-Identifier: Apache-2.0
/*
 * A turn of this process's stack: packets in, timers, packets out, events. It takes a part of what
 * has come where that is much, so that the program has its turn, too; what is left may be answers,
 * and no timer runs before these are seen.
 */
#include "preload.h"

#define BURST      64
#define TURN_MAX   4  /* bursts */
#define SORT_MAX   32 /* likewise, to be sorted: what is most urgent may come last */
#define TURN_TAKES 8  /* packets of those that are sorted */

/* Until when has all that came been given to the stack? */
static uint64_t seen_ns(void)
{
	uint64_t queues = device_seen_ns(), inbox = handover_seen_ns();

	return queues < inbox ? queues : inbox;
}

static void events_take(void)
{
	struct sy_stack_event e[BURST];
	unsigned count;
	bool some = false;

	while ((count = sy_stack_events(runner.stack, e, BURST)) > 0) {
		for (unsigned i = 0; i < count; i++) {
			if (!e[i].cookie)
				continue;
			sock_event((struct sock *)(uintptr_t)e[i].cookie);
			some = true;
		}
	}
	if (some)
		runner_wake();
}

void runner_turn(void)
{
	struct rte_mbuf *m[BURST];
	unsigned count = BURST, most;

	if (!runner.stack)
		return;
	hooks_turn();
	most = sy_stack_levels_used(runner.stack) ? SORT_MAX : TURN_MAX;
	runner.now_ns = sy_clock_ns();
	for (unsigned i = 0; i < most && count == BURST; i++) {
		count = device_receive(m, BURST, runner.now_ns);
		unsigned mine = handover_give(m, count);
		if (mine)
			sy_stack_receive(runner.stack, m, mine, runner.now_ns);
	}
	count = handover_take(m, BURST, runner.now_ns);
	if (count)
		sy_stack_receive(runner.stack, m, count, runner.now_ns);
	sy_stack_seen(runner.stack, seen_ns());
	sy_stack_take(runner.stack, TURN_TAKES, runner.now_ns);
	sy_stack_advance(runner.stack, runner.now_ns);
	outgoing_send(runner.now_ns);
	runner.due_ns = outgoing_due(sy_stack_advance(runner.stack, runner.now_ns));
	events_take();
}

void runner_flush(void)
{
	if (!runner.stack || !runner.sleepers)
		return;
	runner.now_ns = sy_clock_ns();
	outgoing_send(runner.now_ns);
	runner.due_ns = outgoing_due(sy_stack_advance(runner.stack, runner.now_ns));
	if (runner.due_ns == 0) /* a part was sent */
		runner_wake();
}
