// SPDX-License-Identifier: Apache-2.0
/*
 * Connections that share a link, in virtual time, assembled from the parts as in the stack.
 *
 *     sender ── segments ──▶ queue of the link ── delay ──▶ receiver
 *        ▲                    (drop tail)                       │
 *        └───────────────────── ACKs, delay ◀───────────────────┘
 */
#ifndef TCP_TESTS_BOTTLENECK_H
#define TCP_TESTS_BOTTLENECK_H

#include <stdio.h>
#include <stdlib.h>

#include <sy_base.h>

#include "arrived.h"
#include "congestion.h"
#include "prr.h"
#include "random.h"
#include "sent.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)
#define MSS    1448
#define FRAME  1514
#define FLOWS  16
#define CELLS  100000

struct event {
	uint64_t at;
	uint32_t order; /* tie-breaker: order of creation */
	uint32_t flow;
	enum { TIMER, DATA, ACK } what;
	uint32_t from, to;   /* DATA */
	uint32_t stamp_ms;   /* DATA: TSval; ACK: TSecr */
	struct sent_ack ack; /* ACK */
};

struct flow {
	const struct congestion_ops *ops;
	uint64_t delay_ns; /* round trip, without the queue */
	/* the sender */
	struct sent sent;
	struct rtt rtt;
	struct congestion congestion;
	struct prr prr;
	enum { OPEN, RECOVERY, LOSS } state;
	uint32_t recover; /* SND.NXT when the recovery began */
	uint64_t timeout_at, look_at, probe_at, woken_at;
	uint64_t budget; /* bytes permitted by PRR */
	unsigned duplicates;
	unsigned timeouts, recoveries, undone;
	/* the receiver */
	struct arrived arrived;
	uint32_t next, recent_ms;
	uint64_t received, received_before;
};

struct bottleneck {
	/* what to simulate */
	uint64_t rate;      /* bytes a second */
	uint64_t queue;     /* bytes */
	uint32_t loss;      /* one of so many packets is lost; 0: none */
	uint32_t ack_loss;  /* likewise for ACKs */
	bool no_sack;       /* peers without SACK */
	uint32_t window;    /* of the receivers */
	uint64_t jitter_ns; /* max. reordering */
	/* the state */
	uint64_t now, free_at;
	struct event *heap;
	uint32_t events, made, flows;
	uint64_t sent, dropped;
	struct pool ranges, pieces;
	struct flow flow[FLOWS];
};

/* ---- events, the soonest first --------------------------------------------------------------- */

static bool event_before(const struct event *a, const struct event *b)
{
	return a->at < b->at || (a->at == b->at && (int32_t)(a->order - b->order) < 0);
}

static void event_add(struct bottleneck *b, struct event e)
{
	uint32_t n = b->events++;
	assert_true(b->events < CELLS);
	e.order = b->made++;
	for (; n > 0 && event_before(&e, &b->heap[(n - 1) / 2]); n = (n - 1) / 2)
		b->heap[n] = b->heap[(n - 1) / 2];
	b->heap[n] = e;
}

static struct event event_take(struct bottleneck *b)
{
	struct event first = b->heap[0], last = b->heap[--b->events];
	uint32_t n = 0, child;
	while ((child = 2 * n + 1) < b->events) {
		child +=
		        child + 1 < b->events && event_before(&b->heap[child + 1], &b->heap[child]);
		if (!event_before(&b->heap[child], &last))
			break;
		b->heap[n] = b->heap[child];
		n = child;
	}
	b->heap[n] = last;
	return first;
}

/* ---- the link -------------------------------------------------------------------------------- */

static void link_send(struct bottleneck *b, uint32_t n, uint32_t from, uint32_t to)
{
	uint64_t waits = b->free_at > b->now ? b->free_at - b->now : 0;
	uint32_t bytes = FRAME - MSS + (to - from);
	b->sent++;
	if (waits * b->rate / SECOND + bytes > b->queue ||
	    (b->loss && random_below(b->loss) == 0)) {
		b->dropped++;
		return;
	}
	b->free_at = b->now + waits + bytes * SECOND / b->rate;
	event_add(b, (struct event){.at = b->free_at + b->flow[n].delay_ns / 2 +
	                                  (b->jitter_ns ? random_below((uint32_t)b->jitter_ns) : 0),
	                            .flow = n,
	                            .what = DATA,
	                            .from = from,
	                            .to = to,
	                            .stamp_ms = (uint32_t)(b->now / MS)});
}

static void receive(struct bottleneck *b, const struct event *e)
{
	struct flow *f = &b->flow[e->flow];
	static char buffer;
	struct arrived_cut cut;
	struct event ack = {.what = ACK, .flow = e->flow};

	if (!sy_seq_before(f->next, e->from)) /* RFC 7323, 4.3: of what advances or is old */
		f->recent_ms = e->stamp_ms;
	arrived_add(&f->arrived, &b->pieces, f->next, e->from, e->to, &buffer);
	while (arrived_take(&f->arrived, &b->pieces, f->next, &cut)) {
		f->next += cut.length;
		f->received += cut.length;
	}
	ack.ack = (struct sent_ack){.ack = f->next, .mss = MSS, .pure = true};
	if (!b->no_sack)
		ack.ack.count = (uint8_t)arrived_blocks(&f->arrived, &b->pieces, ack.ack.blocks, 3);
	ack.stamp_ms = f->recent_ms;
	if (b->ack_loss && random_below(b->ack_loss) == 0)
		return;
	/* some noise, so that flows do not march in step */
	ack.at = b->now + f->delay_ns / 2 + random_below(100000);
	event_add(b, ack);
}

/* ---- a sender -------------------------------------------------------------------------------- */

static uint64_t soonest(const struct flow *f)
{
	uint64_t at = f->timeout_at;
	if (f->look_at && f->look_at < at)
		at = f->look_at;
	if (f->probe_at && f->probe_at < at)
		at = f->probe_at;
	return at;
}

static void timer_set(struct bottleneck *b, uint32_t n)
{
	struct flow *f = &b->flow[n];
	uint64_t at = soonest(f);
	if (f->woken_at > b->now && f->woken_at <= at)
		return;
	f->woken_at = at;
	event_add(b, (struct event){.at = at, .what = TIMER, .flow = n});
}

static void timers_restart(struct bottleneck *b, struct flow *f)
{
	uint64_t wait =
	        f->state == OPEN && !b->no_sack ? sent_probe_wait(&f->sent, &f->rtt, MSS, 0) : 0;
	f->timeout_at = b->now + rtt_timeout_ms(&f->rtt) * MS;
	f->probe_at = wait && b->now + wait < f->timeout_at ? b->now + wait : 0;
}

static void flow_send(struct bottleneck *b, uint32_t n)
{
	struct flow *f = &b->flow[n];
	for (;;) {
		uint32_t from, to, in_flight = sent_in_flight(&f->sent);
		uint32_t window = f->congestion.window;
		if (f->state == RECOVERY ? f->budget < MSS : in_flight + MSS > window)
			break;
		if (sent_next_lost(&f->sent, &b->ranges, &from, &to)) {
			to = to - from > MSS ? from + MSS : to;
			sent_retransmitted(&f->sent, &b->ranges, from, to, b->now);
		} else {
			from = f->sent.nxt;
			to = from + MSS;
			if (to - f->sent.una > b->window ||
			    !sent_add(&f->sent, &b->ranges, MSS, b->now))
				break;
		}
		link_send(b, n, from, to);
		if (f->state == RECOVERY) {
			prr_sent(&f->prr, to - from);
			f->budget -= to - from < f->budget ? to - from : f->budget;
		}
	}
	congestion_sent(&f->congestion, f->sent.nxt - f->sent.una);
	timer_set(b, n);
}

/* Runs loss detection. Returns true for a loss. */
static bool losses_find(struct bottleneck *b, struct flow *f)
{
	if (b->no_sack)
		return false;
	return sent_detect(&f->sent, &b->ranges, &f->rtt, MSS, f->state != OPEN, b->now,
	                   &f->look_at) > 0;
}

static void recovery_begin(struct bottleneck *b, struct flow *f, uint32_t in_flight)
{
	f->state = RECOVERY;
	f->recover = f->sent.nxt;
	f->recoveries++;
	f->probe_at = 0;
	congestion_reduce(&f->congestion, f->sent.nxt - f->sent.una, b->now / MS);
	prr_begin(&f->prr, in_flight, f->congestion.ssthresh);
}

static void recovery_end(struct bottleneck *b, struct flow *f)
{
	if (f->state == RECOVERY)
		congestion_recovered(&f->congestion, b->now / MS);
	f->state = OPEN;
	f->budget = 0;
	sent_recovered(&f->sent);
}

/* RFC 6582 3.2: the third duplicate, and each partial ACK. Returns true for a new loss. */
static bool duplicates_count(struct bottleneck *b, struct flow *f, struct sent_outcome *outcome)
{
	if (outcome->acked) {
		f->duplicates = 0;
		return f->state == RECOVERY && sent_first_lost(&f->sent, &b->ranges, MSS) > 0;
	}
	outcome->delivered += sent_duplicate(&f->sent, MSS);
	return ++f->duplicates == 3 && f->state == OPEN &&
	       !sy_seq_before(f->sent.una, f->recover) &&
	       sent_first_lost(&f->sent, &b->ranges, MSS) > 0;
}

static void acked(struct bottleneck *b, const struct event *e)
{
	struct flow *f = &b->flow[e->flow];
	struct sent_ack in = e->ack;
	struct sent_outcome outcome;
	uint32_t in_flight = sent_in_flight(&f->sent);

	in.now_ns = b->now;
	in.echo_ns = (e->stamp_ms + 1) * MS;
	sent_acked(&f->sent, &b->ranges, &f->rtt, &in, &outcome);
	if (outcome.rtt_us) {
		uint32_t segments = (f->sent.nxt - f->sent.una) / MSS;
		rtt_sample(&f->rtt, outcome.rtt_us, (segments + 1) / 2, b->now / MS);
		rtt_min_sample(&f->rtt, outcome.min_us, b->now / MS);
	} else if (outcome.acked) /* by its timestamp: RFC 7323, 4.1 */
		rtt_sample(&f->rtt, (uint32_t)(b->now / MS - e->stamp_ms) * 1000, 1, b->now / MS);
	if (f->state != OPEN && (outcome.undone || outcome.spurious || outcome.original)) {
		congestion_undo(&f->congestion);
		f->undone++;
		recovery_end(b, f);
	}
	if (f->state != OPEN && !sy_seq_before(f->sent.una, f->recover))
		recovery_end(b, f);
	bool lost = b->no_sack ? duplicates_count(b, f, &outcome) : losses_find(b, f);
	if (lost && f->state == OPEN)
		recovery_begin(b, f, in_flight);
	else if (outcome.probe_lost && f->state == OPEN)
		congestion_reduce(&f->congestion, f->sent.nxt - f->sent.una, b->now / MS);
	if (f->state == RECOVERY)
		f->budget = prr_acked(&f->prr, outcome.delivered, sent_in_flight(&f->sent), MSS,
		                      outcome.acked && !lost);
	else if (outcome.acked)
		congestion_acked(&f->congestion,
		                 &(struct congestion_ack){.bytes = outcome.acked,
		                                          .una = f->sent.una,
		                                          .nxt = f->sent.nxt,
		                                          .rtt_us = outcome.rtt_us,
		                                          .now_ms = b->now / MS},
		                 &f->rtt);
	if (outcome.acked)
		timers_restart(b, f);
	flow_send(b, e->flow);
}

static void timed_out(struct bottleneck *b, struct flow *f)
{
	bool repeated = f->state == LOSS;
	congestion_timed_out(&f->congestion, f->sent.nxt - f->sent.una, repeated, b->now / MS);
	sent_timed_out(&f->sent, &b->ranges, &f->rtt, MSS, repeated, b->now);
	rtt_back_off(&f->rtt);
	f->timeouts++;
	f->state = LOSS;
	f->recover = f->sent.nxt;
	f->look_at = f->probe_at = 0;
	f->timeout_at = b->now + rtt_timeout_ms(&f->rtt) * MS;
}

static void probe_send(struct bottleneck *b, uint32_t n)
{
	struct flow *f = &b->flow[n];
	uint32_t from, to;
	sent_probe_range(&f->sent, MSS, &from, &to);
	sent_retransmitted(&f->sent, &b->ranges, from, to, b->now);
	sent_probed(&f->sent, true);
	link_send(b, n, from, to);
	f->probe_at = 0;
	f->timeout_at = b->now + rtt_timeout_ms(&f->rtt) * MS;
}

static void timer(struct bottleneck *b, uint32_t n)
{
	struct flow *f = &b->flow[n];
	if (f->look_at && f->look_at <= b->now) {
		uint32_t in_flight = sent_in_flight(&f->sent);
		if (losses_find(b, f) && f->state == OPEN)
			recovery_begin(b, f, in_flight);
		if (f->state == RECOVERY)
			f->budget += prr_acked(&f->prr, 0, sent_in_flight(&f->sent), MSS, false);
	}
	if (f->probe_at && f->probe_at <= b->now)
		probe_send(b, n);
	if (f->timeout_at <= b->now && f->sent.first)
		timed_out(b, f);
	if (f->sent.first == 0) /* it begins */
		timers_restart(b, f);
	flow_send(b, n);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void bottleneck_init(struct bottleneck *b)
{
	b->heap = calloc(CELLS, sizeof(*b->heap));
	pool_init(&b->ranges, calloc(CELLS, sizeof(struct sent_range)), sizeof(struct sent_range),
	          CELLS);
	pool_init(&b->pieces, calloc(CELLS, sizeof(union arrived_cell)), sizeof(union arrived_cell),
	          CELLS);
	assert_true(b->heap && b->ranges.cells && b->pieces.cells);
	b->now = SECOND;
}

/* Both ends agree, and nothing leaks. */
static void bottleneck_end(struct bottleneck *b)
{
	for (uint32_t n = 0; n < b->flows; n++) {
		struct flow *f = &b->flow[n];
		assert_false(sy_seq_before(f->next, f->sent.una));
		assert_false(sy_seq_before(f->sent.nxt, f->next));
		sent_clear(&f->sent, &b->ranges);
		while (arrived_drop(&f->arrived, &b->pieces))
			continue;
	}
	assert_int_equal(b->ranges.taken, 0);
	assert_int_equal(b->pieces.taken, 0);
	free(b->heap);
	free(b->ranges.cells);
	free(b->pieces.cells);
}

/* Adds a connection that starts a little later. */
static void flow_begin(struct bottleneck *b, const struct congestion_ops *ops, uint64_t delay_ns)
{
	uint32_t n = b->flows++, first = UINT32_MAX - 1000000 * n;
	struct flow *f = &b->flow[n];
	*f = (struct flow){.ops = ops, .delay_ns = delay_ns, .next = first, .recover = first};
	sent_init(&f->sent, first);
	rtt_init(&f->rtt);
	congestion_init(&f->congestion, ops, MSS, first, b->now / MS);
	f->timeout_at = f->woken_at = b->now + random_below(500) * MS;
	event_add(b, (struct event){.at = f->timeout_at, .what = TIMER, .flow = n});
}

static void bottleneck_run(struct bottleneck *b, uint64_t ns)
{
	uint64_t end = b->now + ns;
	for (uint32_t n = 0; n < b->flows; n++)
		b->flow[n].received_before = b->flow[n].received;
	while (b->heap[0].at <= end) {
		struct event e = event_take(b);
		b->now = e.at;
		if (e.what == DATA)
			receive(b, &e);
		else if (e.what == ACK)
			acked(b, &e);
		else
			timer(b, e.flow);
	}
	b->now = end;
}

#endif
