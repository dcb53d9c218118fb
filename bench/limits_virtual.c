// SPDX-License-Identifier: Apache-2.0
/* The paper's experiment in virtual time behind a device that one thread drives: it sends at one
 * port and receives at all others, in any order, and handles what it received late. event_sw
 * schedules only when it is called, and only by its input, so each run is the same.
 * event_dsw moves flows by the clock. */
#include "limits_event.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct virtual_consumer {
	struct sy_event_port *port;
	struct rte_event held[SY_EVENT_BURST];
	unsigned count;
};

struct virtual
{
	const struct event_arguments *a;
	struct sy_event *event;
	struct sy_limit_rate rate;
	struct sy_limit *limit;  /* [USERS] */
	uint64_t *passed, *lost; /* [USERS] bytes of this sample, and of all */
	struct user_source source;
	uint64_t now, refused;
	double due;
	struct virtual_consumer consumer[THREADS_MAX];
};

static void held_limit(struct virtual *x, struct virtual_consumer *c)
{
	uint64_t volume = sy_limit_volume(&x->rate, x->now);
	for (unsigned i = 0; i < c->count; i++) {
		unsigned user = (unsigned)(c->held[i].u64 >> 16);
		uint64_t length = (uint16_t)c->held[i].u64;
		bool passes = sy_limit_charge(&x->limit[user], SY_LIMIT_ATOMIC, &x->rate, NULL,
		                              volume, length);
		*(passes ? &x->passed[user] : &x->lost[user]) += length;
	}
	c->count = 0;
}

/* A consumer that has packets limits them; then, or if it has none, it receives. */
static void consumer_turn(struct virtual *x, struct virtual_consumer *c)
{
	held_limit(x, c);
	c->count = sy_event_receive(c->port, c->held, SY_EVENT_BURST);
}

static void packet_send(struct virtual *x, const struct user_packet *p)
{
	struct sy_event_port *port = sy_event_port(x->event, 0);
	struct rte_event e;
	sy_event_make(port, &e, p->user, (uint64_t)p->user << 16 | p->length);
	x->refused += sy_event_send(port, &e, 1) == 0;
}

static void virtual_run(struct virtual *x, uint64_t until)
{
	while (x->now < until) {
		uint64_t chance;
		struct user_packet p = user_packet(&x->source, &chance);
		packet_send(x, &p);
		x->due += p.length * 8e9 / ALL_BITS;
		x->now = (uint64_t)x->due;
		/* On average each consumer runs once per 16 packets. */
		if ((chance >> 32) % 16 < x->a->consumers / 2 + 1)
			consumer_turn(x, &x->consumer[(chance >> 40) % x->a->consumers]);
	}
}

static void virtual_begin(struct virtual *x, const struct event_arguments *a)
{
	*x = (struct virtual){
	        .a = a, .now = SECOND, .due = (double)SECOND, .source = {.random = a->seed}};
	if (sy_limit_rate_init(&x->rate, LIMIT_BITS, 8 * SECOND, a->burst, x->now, NULL) < 0)
		must(NULL);
	x->event = event_must("event_sw", SY_EVENT_ATOMIC, a->consumers + 1,
	                      (UINT64_C(2) << a->consumers) - 2, 0, 0);
	x->limit = must(aligned_alloc(SY_CACHE_LINE, (USERS + 3) * sizeof(*x->limit)));
	x->passed = must(calloc(USERS, sizeof(uint64_t)));
	x->lost = must(calloc(USERS, sizeof(uint64_t)));
	for (unsigned u = 0; u < USERS; u++)
		sy_limit_init(&x->limit[u], &x->rate, a->batch, x->now);
	for (unsigned c = 0; c < a->consumers; c++)
		x->consumer[c].port = sy_event_port(x->event, c + 1);
}

void virtual_perform(const struct event_arguments *arguments)
{
	static struct virtual x;
	struct event_arguments a = *arguments;
	double mean = 0, lost = 0, sent = 0;

	a.engine = "atomic";
	a.device = "event_sw";
	virtual_begin(&x, &a);
	virtual_run(&x, x.now + 5 * SECOND);
	memset(x.lost, 0, USERS * sizeof(*x.lost));
	for (unsigned s = 0; s < a.samples; s++) {
		memset(x.passed, 0, USERS * sizeof(*x.passed));
		virtual_run(&x, x.now + 2 * SECOND);
		struct user_sample sample = {x.passed, 2};
		mean += sample_report(&a, "", &sample) / a.samples;
		for (unsigned u = 0; u < WITHIN; u++)
			sent += (double)x.passed[u];
	}
	for (unsigned u = 0; u < WITHIN; u++)
		lost += (double)x.lost[u];
	percent_report(&a, "", "error of the mean, observed user", fabs(mean));
	percent_report(&a, "", "lost by users within the limit", 100 * lost / (sent + lost));
	if (x.refused) {
		fprintf(stderr, "steelyard-limits-event: the device was full\n");
		exit(EXIT_FAILURE);
	}
	sy_event_close(x.event, event_forget, NULL);
	free(x.limit);
	free(x.passed);
	free(x.lost);
}
