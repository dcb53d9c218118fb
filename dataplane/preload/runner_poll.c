// SPDX-License-Identifier: Apache-2.0
/*
 * A poll iteration of this process's stack: packets in, timers, packets out, events.
 *
 * It processes only a part of a long backlog, so that the program runs in between. The rest may
 * contain ACKs, so no timer runs before the stack has processed them.
 */
#include "packets.h"

#define BURST             64
#define BURSTS_MAX        4  /* bursts of one iteration */
#define SORTED_BURSTS_MAX 32 /* the same with priorities: the most urgent packet may come last */
#define UNSENT_NS         (200 * (uint64_t)1000) /* max delay of packets */
#define PROCESS_MAX       8                      /* sorted packets of one iteration */

/* Returns the time up to which the stack has received all packets that arrived. */
static uint64_t seen_ns(void)
{
	uint64_t queues = device_seen_ns(), inbox = resteer_seen_ns();

	return queues < inbox ? queues : inbox;
}

void runner_events(void)
{
	struct sy_stack_event e[BURST];
	unsigned count;

	while (runner.stack && (count = sy_stack_events(runner.stack, e, BURST)) > 0)
		for (unsigned i = 0; i < count; i++)
			if (e[i].cookie)
				sock_event((struct sock *)(uintptr_t)e[i].cookie);
			else
				retired_event();
}

/* Sends in one burst for all woken threads, because each burst costs a system call: the last of
 * them that acquires the lock sends for all. A thread never waits for another one that is
 * computing: after UNSENT_NS the packets are sent anyway. */
static void send_burst(void)
{
	if (!runner.unsent)
		runner.unsent_ns = runner.now_ns;
	runner.unsent = runner.waking && runner.now_ns - runner.unsent_ns < UNSENT_NS;
	if (runner.unsent)
		return;
	outgoing_send(runner.now_ns);
	runner.due_ns = outgoing_due(sy_stack_advance(runner.stack, runner.now_ns));
}

void runner_poll(void)
{
	struct rte_mbuf *m[BURST];
	unsigned count = BURST, max;

	if (!runner.stack)
		return;
	hooks_poll();
	max = sy_stack_has_packet_hook(runner.stack) ? SORTED_BURSTS_MAX : BURSTS_MAX;
	runner.now_ns = sy_clock_ns();
	wakeup_timer_clear(runner.now_ns);
	for (unsigned i = 0; i < max && count == BURST; i++) {
		count = device_receive(m, BURST, runner.now_ns);
		unsigned mine = resteer_strays(m, count);
		if (mine)
			sy_stack_receive(runner.stack, m, mine, runner.now_ns);
	}
	count = resteer_receive(m, BURST, runner.now_ns);
	if (count)
		sy_stack_receive(runner.stack, m, count, runner.now_ns);
	sy_stack_mark_seen(runner.stack, seen_ns());
	sy_stack_process(runner.stack, PROCESS_MAX, runner.now_ns);
	sy_stack_advance(runner.stack, runner.now_ns);
	send_burst();
	runner_events();
	retired_poll();
}

void runner_flush(void)
{
	if (runner.stack && (runner.sleepers || runner.unsent))
		runner_send();
}

void runner_send(void)
{
	runner.now_ns = sy_clock_ns();
	send_burst();
}
