// SPDX-License-Identifier: Apache-2.0
/*
 * The event stage: sy_event_stage(), and what leaves the event device.
 *
 *   owner     police_check() marks the packet in burst.queued ─► rewrite ─► queued_send() ──┐
 *                                                                                 event device
 *   consumer  queued_poll() ─► packet_charge(): charges the limits ─► port ◄──────────┘
 */
#include "queued.h"

#include "event_stage.h"
#include "police.h"
#include "service_drop.h"

#define POLL_BURSTS 8 /* max bursts dequeued per poll */

/* Drops a packet that was to go to the device. */
static void queued_drop(struct sy_worker *w, const struct event_stage *s, struct rte_mbuf *m,
                        enum sy_drop reason)
{
	server_count_drop(w, queued_of(s, m)->server, reason);
	sy_packet_drop(w, m, reason);
}

/* ---- into the device ------------------------------------------------------------------------- */

/* Builds the event of packet i. Returns false if the packet does not go to the device. */
static bool packet_to_event(struct sy_worker *w, struct sy_burst *burst, unsigned i,
                            const struct event_stage *s, struct rte_event *e)
{
	const struct balance_worker *bw = balance_worker_of(w);
	if (burst->next[i] == SY_NEXT_TRANSMIT)
		sy_transmit_prepare(w, burst, i);
	if (burst->next[i] == SY_NEXT_TRANSMIT) { /* its next hop is not resolved */
		enum sy_drop reason = police_now(w, burst, i);
		if (reason != SY_DROP_NONE) {
			server_count_drop(w, queued_of(s, burst->mbuf[i])->server, reason);
			sy_burst_drop(w, burst, i, reason);
		}
		return false;
	}
	if (burst->next[i] != SY_NEXT_READY)
		return false;
	sy_event_make(sy_event_port(s->event, w->id), e, bw->burst.charge[i].chain->lead,
	              (uintptr_t)burst->mbuf[i]);
	burst->next[i] = SY_NEXT_QUEUED;
	return true;
}

void queued_send(struct sy_worker *w, struct sy_burst *burst, unsigned end)
{
	const struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);
	const uint64_t before = burst_bits_before(end);
	struct rte_event e[SY_BURST];
	unsigned count = 0;

	police_settle(w, burst, end);
	uint64_t left = bw->burst.queued & before;
	if (SY_LIKELY(!left))
		return;
	bw->burst.queued &= ~before;
	const struct event_stage *s = SY_RCU_READ(b->stage);
	for (; left; left &= left - 1)
		count += packet_to_event(w, burst, (unsigned)__builtin_ctzll(left), s, &e[count]);
	if (count == 0)
		return;
	unsigned sent = sy_event_send(sy_event_port(s->event, w->id), e, count);
	for (unsigned i = sent; i < count; i++)
		queued_drop(w, s, (struct rte_mbuf *)(uintptr_t)e[i].u64, SY_DROP_EVENT_FULL);
	sy_workers_wake(w);
}

void sy_event_stage(struct sy_worker *w, struct sy_burst *burst)
{
	queued_send(w, burst, SY_BURST);
}

/* ---- out of it ------------------------------------------------------------------------------- */

/* Charges the limits of a dequeued packet. Returns false if it was dropped. */
static bool packet_charge(struct sy_worker *w, const struct event_stage *s,
                          const struct rte_event *e)
{
	struct rte_mbuf *m = (struct rte_mbuf *)(uintptr_t)e->u64;
	enum sy_drop reason = police_queued(
	        w, m, queued_of(s, m), s->model == SY_EVENT_ATOMIC ? e->flow_id : POLICE_NO_FLOW);
	if (SY_LIKELY(reason == SY_DROP_NONE))
		return true;
	queued_drop(w, s, m, reason);
	return false;
}

static SY_PREFETCH_INLINE void packets_prefetch(const struct event_stage *s,
                                                const struct rte_event *e, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = (struct rte_mbuf *)(uintptr_t)e[i].u64;
		__builtin_prefetch(m, 1);
		__builtin_prefetch(queued_of(s, m));
	}
}

/* Finishes events of an ordered queue. Packets that pass leave by the queue's exit port. */
static void ordered_finish(struct sy_worker *w, const struct event_stage *s,
                           struct sy_event_port *p, const struct rte_event *e, unsigned n)
{
	for (unsigned i = sy_event_finish(p, e, n); i < n; i++)
		if (e[i].op == RTE_EVENT_OP_FORWARD)
			queued_drop(w, s, (struct rte_mbuf *)(uintptr_t)e[i].u64,
			            SY_DROP_EVENT_FULL);
}

/* Handles a burst of events. The device assigns their flows to this worker until its next dequeue,
 * so the packets must go to the ports before. */
static unsigned events_receive(struct sy_worker *w, const struct event_stage *s,
                               struct sy_event_port *p)
{
	const bool ordered = s->model == SY_EVENT_ORDERED;
	struct rte_event e[SY_EVENT_BURST];
	unsigned n = sy_event_receive(p, e, SY_EVENT_BURST);

	packets_prefetch(s, e, n);
	for (unsigned i = 0; i < n; i++) {
		const bool passes = packet_charge(w, s, &e[i]);
		if (ordered && passes)
			sy_event_pass(&e[i]);
		else if (ordered)
			sy_event_drop(&e[i]);
		else if (passes)
			sy_transmit_ready(w, (struct rte_mbuf *)(uintptr_t)e[i].u64);
	}
	if (ordered && n > 0)
		ordered_finish(w, s, p, e, n);
	else if (n > 0)
		sy_transmit_now(w);
	return n;
}

/* SY_EVENT_ORDERED: drains the exit port, in the order of enqueueing. */
static unsigned exit_drain(struct sy_worker *w, struct sy_event_port *exit)
{
	struct rte_event e[SY_EVENT_BURST];
	unsigned n = sy_event_receive(exit, e, SY_EVENT_BURST);
	for (unsigned i = 0; i < n; i++)
		sy_transmit_ready(w, (struct rte_mbuf *)(uintptr_t)e[i].u64);
	if (n > 0)
		sy_transmit_now(w);
	return n;
}

static void stage_poll(struct sy_worker *w, const struct event_stage *s)
{
	struct sy_event_port *p = sy_event_port(s->event, w->id);
	for (unsigned n = 0; p->consumes && n < POLL_BURSTS; n++)
		if (events_receive(w, s, p) == 0)
			break;
	sy_event_maintain(p);
	if (s->model != SY_EVENT_ORDERED || w->id != 0)
		return;
	struct sy_event_port *exit = sy_event_port(s->event, sy_worker_count(w->rt));
	for (unsigned n = 0; n < POLL_BURSTS; n++)
		if (exit_drain(w, exit) == 0)
			break;
	sy_event_maintain(exit);
}

bool queued_poll(struct sy_worker *w)
{
	const struct sy_balance *b = w->app;
	const struct event_stage *s = SY_RCU_READ(b->stage);
	/* Until the device is empty, all workers poll: a device needs all its ports. */
	if (SY_LIKELY(!s) || sy_event_in_flight(s->event) == 0)
		return false;
	stage_poll(w, s);
	return true;
}

bool queued_is_idle(const struct sy_worker *w)
{
	const struct sy_balance *b = w->app;
	const struct event_stage *s = SY_RCU_READ(b->stage);
	return SY_LIKELY(!s) || sy_event_in_flight(s->event) == 0;
}
