// SPDX-License-Identifier: Apache-2.0
/* What one user's sudden flood does to others, in virtual time: each consumer handles a packet in
 * each tick, and 512 can wait for it. Users within their limit send three tenths of what all
 * consumers can handle. At half of the time the flood begins. Reported is what all users lose
 * before, and then those whom a hash puts on the elephant's consumer, and those whom it puts
 * elsewhere. How packets find their consumer is what differs:
 *   own      by a hash of the user (static steering): a bucket is its consumer's own
 *   cas …    by a hash of the connection, of which each user has many: buckets are shared
 *   atomic   by event_sw, with as much room in total; a packet that its bucket would refuse is sent
 *            there, too, or (--peek) dropped before */
#include "limits_event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEIGHBOURS 1000u
#define ELEPHANT   NEIGHBOURS /* its number */
#define ROOM       512u       /* packets, for each consumer */
#define CALM       400000u    /* ticks, before the flood */
#define FLOOD      400000u
#define TICK_NS    1000u
#define LOAD       0.3 /* by all neighbours, of all consumers */
#define RATE_BITS  UINT64_C(20000000)

struct tick_consumer {
	struct sy_event_port *port;
	struct rte_event held[SY_EVENT_BURST]; /* with a device */
	unsigned count, at;
	uint64_t *local;     /* [users] for light-lock */
	uint64_t ring[ROOM]; /* without: user << 16 | length */
	uint64_t head, tail;
};

/* Of users, in packets. */
struct user_group {
	uint64_t sent, lost;
};

struct elephant {
	const struct event_arguments *a;
	enum sy_limit_engine engine;
	struct sy_event *event;
	struct sy_limit_rate rate;
	struct sy_limit limit[NEIGHBOURS + 1] __attribute__((aligned(16)));
	uint64_t random, now;
	struct user_group group[2]; /* users whom static steering puts elsewhere, and beside it */
	struct tick_consumer consumer[THREADS_MAX];
};

/* Returns the consumer of static steering. */
static unsigned home_of(const struct elephant *x, unsigned user)
{
	return (user * UINT32_C(0x9e3779b1) >> 16) % x->a->consumers;
}

/* Counts a packet that a user has sent or lost. */
static void user_count(struct elephant *x, unsigned user, bool sent, bool lost)
{
	struct user_group *g = &x->group[home_of(x, user) == home_of(x, ELEPHANT)];
	if (user == ELEPHANT)
		return;
	g->sent += sent;
	g->lost += lost;
}

static bool ring_put(struct tick_consumer *c, uint64_t word)
{
	if (c->head - c->tail == ROOM)
		return false;
	c->ring[c->head++ % ROOM] = word;
	return true;
}

static bool word_may_pass(const struct elephant *x, uint64_t word)
{
	return sy_limit_peek(&x->limit[word >> 16], &x->rate, sy_limit_volume(&x->rate, x->now),
	                     (uint16_t)word);
}

static void packet_arrive(struct elephant *x, unsigned user)
{
	uint64_t r = measure_random(&x->random);
	uint64_t word = (uint64_t)user << 16 | (SHORTEST + r % (LONGEST - SHORTEST + 1));
	unsigned hash = (unsigned)(r >> 32) % x->a->consumers;
	bool taken;
	if (x->event) {
		struct rte_event e;
		sy_event_make(sy_event_port(x->event, 0), &e, user, word);
		taken = (!x->a->peek || word_may_pass(x, word)) &&
		        sy_event_send(sy_event_port(x->event, 0), &e, 1) == 1;
	} else {
		unsigned c = x->engine == SY_LIMIT_OWN ? home_of(x, user) : hash;
		taken = ring_put(&x->consumer[c], word);
	}
	user_count(x, user, true, !taken);
}

static void word_limit(struct elephant *x, struct tick_consumer *c, uint64_t word)
{
	unsigned user = (unsigned)(word >> 16);
	uint64_t volume = sy_limit_volume(&x->rate, x->now);
	bool passes = sy_limit_charge(&x->limit[user], x->engine, &x->rate, &c->local[user], volume,
	                              (uint16_t)word);
	user_count(x, user, false, !passes);
}

static void consumer_tick(struct elephant *x, struct tick_consumer *c)
{
	if (!x->event) {
		if (c->head != c->tail)
			word_limit(x, c, c->ring[c->tail++ % ROOM]);
		return;
	}
	if (c->at == c->count) {
		c->count = sy_event_receive(c->port, c->held, SY_EVENT_BURST);
		c->at = 0;
	}
	if (c->at < c->count)
		word_limit(x, c, c->held[c->at++].u64);
}

/* A tick's packets arrive in random order: the last one finds the queue full. */
static void elephant_run(struct elephant *x, unsigned ticks, double flood)
{
	double neighbours = 0, elephant = 0;
	for (unsigned tick = 0; tick < ticks; tick++) {
		x->now += TICK_NS;
		elephant += flood;
		neighbours += LOAD * x->a->consumers;
		while (elephant >= 1 || neighbours >= 1) {
			uint64_t r = measure_random(&x->random);
			bool large = elephant >= 1 && (neighbours < 1 || r >> 63);
			*(large ? &elephant : &neighbours) -= 1;
			packet_arrive(x, large ? ELEPHANT : (unsigned)(r % NEIGHBOURS));
		}
		for (unsigned c = 0; c < x->a->consumers; c++)
			consumer_tick(x, &x->consumer[c]);
	}
}

static void lost_report(const struct elephant *x, const char *metric, const struct user_group *g)
{
	char params[160];
	const struct measure m = {"limits", params, metric, "%", NULL};
	snprintf(params, sizeof(params),
	         "\"engine\": \"%s%s\", \"consumers\": %u, \"elephant\": \"%u %% of a consumer\"",
	         x->engine == SY_LIMIT_OWN ? "own, static" : engine_label(x->a),
	         x->a->peek ? ", peek" : "", x->a->consumers, x->a->elephant);
	measure_report(&m, 100 * (double)g->lost / (double)g->sent, NULL, 0);
}

void elephant_perform(const struct event_arguments *arguments)
{
	static struct elephant x;
	struct event_arguments a = *arguments;

	a.device = "event_sw"; /* the one that can be driven in virtual time */
	x = (struct elephant){
	        .a = &a, .engine = engine_named(a.engine), .random = a.seed, .now = SECOND};
	if (sy_limit_rate_init(&x.rate, RATE_BITS, 8 * SECOND, a.burst, x.now, NULL) < 0)
		must(NULL);
	for (unsigned u = 0; u <= NEIGHBOURS; u++)
		sy_limit_init(&x.limit[u], &x.rate, a.batch, x.now);
	if (engine_is_atomic(&a))
		x.event = event_must(a.device, SY_EVENT_ATOMIC, a.consumers + 1,
		                     (UINT64_C(2) << a.consumers) - 2, 0, ROOM * a.consumers);
	for (unsigned c = 0; c < a.consumers; c++) {
		x.consumer[c].local = must(calloc(NEIGHBOURS + 1, sizeof(uint64_t)));
		x.consumer[c].port = x.event ? sy_event_port(x.event, c + 1) : NULL;
	}
	elephant_run(&x, CALM, 0);
	const struct user_group before = {x.group[0].sent + x.group[1].sent,
	                                  x.group[0].lost + x.group[1].lost};
	memset(x.group, 0, sizeof(x.group));
	elephant_run(&x, FLOOD, a.elephant / 100.0);
	lost_report(&x, "lost by all users before an elephant", &before);
	lost_report(&x, "lost by users beside an elephant", &x.group[1]);
	lost_report(&x, "lost by users away from an elephant", &x.group[0]);
	if (x.event)
		sy_event_close(x.event, event_forget, NULL);
	for (unsigned c = 0; c < a.consumers; c++)
		free(x.consumer[c].local);
}
