// SPDX-License-Identifier: Apache-2.0
#include "load_client.h"

#include <errno.h>
#include <stdlib.h>

#include "client_state.h"

#define PER_POLL   64 /* requests per poll iteration: as many as packets are received */
#define PREFETCHED 16 /* connections prefetched together */
/* A sweep over all connections' time-outs takes 1/20 of one, at least 100 ms. */
#define SWEEP_PART 20
#define SWEEP_NS   UINT64_C(100000000)
#define CLOSING_NS UINT64_C(3000000000)

/* ---- a poll iteration ------------------------------------------------------------------------ */

static void event_take(struct client *c, struct sy_stack *s, const struct sy_stack_event *e,
                       uint64_t now)
{
	uint32_t i = (uint32_t)e->cookie;
	struct conn *k = &c->conn[i];

	if (k->id != e->id || c->phase >= CLIENT_CLOSING)
		return;
	if (!k->open && (e->what & (SY_STACK_ERROR | SY_STACK_HANG_UP))) {
		c->connect_error = sy_stack_error(s, e->id);
		conn_lose(c, s, i, CLIENT_ERROR_connect, now);
		return;
	}
	if (!k->open && (e->what & SY_STACK_WRITABLE))
		conn_opened(c, s, i, now);
	else if (k->open && (e->what & SY_STACK_WRITABLE))
		talk_send(c, s, i, now);
	if (k->id == e->id && k->open && (e->what & ~SY_STACK_WRITABLE))
		talk_receive(c, s, i, now);
}

/* Prefetches a connection: with a million of them, none is cached. */
static SY_PREFETCH_INLINE void conn_prefetch(const struct client *c, uint32_t i)
{
	__builtin_prefetch(&c->conn[i], 1);
	__builtin_prefetch(&c->request[(size_t)i * c->o.depth], 1);
}

static void events_take(struct client *c, struct sy_stack *s, uint64_t now)
{
	struct sy_stack_event e[64];
	unsigned count;

	while ((count = sy_stack_events(s, e, SY_ARRAY_LEN(e))) > 0) {
		for (unsigned i = 0; i < count; i++)
			conn_prefetch(c, (uint32_t)e[i].cookie);
		for (unsigned i = 0; i < count; i++)
			event_take(c, s, &e[i], now);
	}
}

static void agenda_do(struct client *c, struct sy_stack *s, uint64_t now)
{
	struct due due;

	while (agenda_take(&c->agenda, now, &due)) {
		struct conn *k = &c->conn[due.conn];
		if (client_is_closed_loop(c) && due.conn < c->o.active &&
		    c->phase != CLIENT_OPENING) {
			if (!client_may_issue(c))
				continue;
			if (conn_has_place(c, k))
				conn_issue(c, s, due.conn, due.at_ns, now);
			else
				k->parked++;
		} else if (k->id == SY_STACK_NONE && conn_stays(c)) {
			conn_open(c, s, due.conn, now);
		}
	}
}

/* Prefetches the next connections to be drawn and returns their number. A draw may still change;
 * then the prefetch is wasted. With one request at a time each connection leaves the pool. */
static unsigned draws_prefetch(const struct client *c, const struct sy_stack *s, unsigned max)
{
	struct chance pick = c->pick;
	uint32_t drawn[PREFETCHED];
	unsigned count = max < PREFETCHED ? max : PREFETCHED;

	if (count > c->backlog.count)
		count = (unsigned)c->backlog.count;
	if (count > c->pooled)
		count = c->pooled;
	for (unsigned n = 0; n < count; n++) {
		drawn[n] = chance_below(&pick, c->pooled - (c->o.depth == 1 ? n : 0));
		__builtin_prefetch(&c->pool[drawn[n]], 1);
	}
	for (unsigned n = 0; n < count; n++)
		conn_prefetch(c, drawn[n] = c->pool[drawn[n]]);
	for (unsigned n = 0; n < count; n++)
		sy_stack_prefetch(s, c->conn[drawn[n]].id);
	return count;
}

/* Issues due requests of the open loop on any connection with capacity, delayed ones first. Bounded
 * per poll iteration: a burst after a stall would overflow the receive ring. */
static void arrivals_do(struct client *c, struct sy_stack *s, uint64_t until, uint64_t now)
{
	unsigned left = c->o.turn ? c->o.turn : PER_POLL, prefetched = 0;
	uint64_t due;

	while (client_may_issue(c) && arrivals_take(&c->arrivals, &c->schedule, until, &due)) {
		c->issued += c->measured_from_ns && due >= c->measured_from_ns;
		if (backlog_add(&c->backlog, due))
			CLIENT_COUNT(c, unsent, 1);
	}
	for (; c->pooled && left > 0; left--, prefetched--) {
		if (prefetched == 0)
			prefetched = draws_prefetch(c, s, left);
		if (!backlog_take(&c->backlog, &due))
			return;
		conn_issue(c, s, c->pool[chance_below(&c->pick, c->pooled)], due, now);
	}
}

static void timeouts_sweep(struct client *c, struct sy_stack *s, uint64_t now)
{
	uint64_t passed = now - c->swept_ns, part = c->o.timeout_ns / SWEEP_PART;
	uint64_t period = part > SWEEP_NS ? part : SWEEP_NS;
	uint64_t count = passed >= period ? c->o.connections : c->o.connections * passed / period;

	if (!count || c->phase >= CLIENT_CLOSING)
		return;
	c->swept_ns = now;
	for (; count > 0; count--) {
		uint32_t i = c->swept_to++;
		struct conn *k = &c->conn[i];
		c->swept_to = c->swept_to == c->o.connections ? 0 : c->swept_to;
		if (k->id == SY_STACK_NONE)
			continue;
		if (!k->open && now - k->since_ns > c->o.timeout_ns) {
			c->connect_error = ETIMEDOUT;
			conn_lose(c, s, i, CLIENT_ERROR_connect, now);
		} else if (k->open && k->count &&
		           now - conn_request(c, i, 0)->sent_ns > c->o.timeout_ns) {
			conn_lose(c, s, i, CLIENT_ERROR_timeout, now);
		}
	}
}

/* ---- phases ---------------------------------------------------------------------------------- */

static void phase_set(struct client *c, enum client_phase phase, uint64_t until_ns)
{
	c->phase_until_ns = until_ns;
	__atomic_store_n(&c->phase, phase, __ATOMIC_RELAXED);
}

static void measuring_begin(struct client *c, uint64_t now)
{
	c->measured_from_ns = now;
	phase_set(c, CLIENT_MEASURING, c->o.duration_ns ? now + c->o.duration_ns : UINT64_MAX);
}

/* Opens a few at first: neighbours queue only few packets before they resolve. */
static void opening_do(struct client *c, struct sy_stack *s, uint64_t now)
{
	/* For short connections, the first one proves that the server responds. */
	uint32_t wanted = c->o.each ? 1 : c->o.connections;
	uint64_t most = 1 + c->counts.opened + c->counts.open_failed;

	if (most > c->o.connecting)
		most = c->o.connecting;
	while (c->opened_to < wanted && c->connecting < most)
		conn_open(c, s, c->opened_to++, now);
	if (c->settled == wanted)
		__atomic_store_n(&c->ready, true, __ATOMIC_RELAXED);
	if (!__atomic_load_n(&c->go, __ATOMIC_RELAXED) || !c->ready)
		return;
	phase_set(c, CLIENT_WARMING, now + c->o.warm_ns);
	c->arrivals = (struct arrivals){c->o.rate / 1e9, c->o.poisson, c->o.burst, 0, 0};
	arrivals_start(&c->arrivals, &c->schedule, now);
	if (!c->o.warm_ns)
		measuring_begin(c, now);
}

/* Issues the initial requests of all connections, some per poll iteration. */
static void connections_start(struct client *c, struct sy_stack *s, uint64_t now)
{
	unsigned most = c->o.open ? UINT32_MAX : PER_POLL;

	for (; c->started_to < c->o.active && most > 0; c->started_to++, most--)
		for (unsigned place = 0; place < (c->o.open ? 1 : c->o.depth); place++)
			conn_give(c, s, c->started_to, now);
}

/* Requests due by the end still count, even if this poll is late. */
static void measuring_end(struct client *c, struct sy_stack *s, uint64_t now)
{
	arrivals_do(c, s, c->phase_until_ns < now ? c->phase_until_ns : now, now);
	c->measured_ns = now - c->measured_from_ns;
	phase_set(c, CLIENT_DRAINING, now + c->o.timeout_ns);
}

static void draining_end(struct client *c, uint64_t now)
{
	CLIENT_COUNT(c, timeout, c->under_way);
	CLIENT_COUNT(c, unsent, c->backlog.count);
	phase_set(c, CLIENT_CLOSING, now + CLOSING_NS);
}

static void closing_do(struct client *c, struct sy_stack *s, uint64_t now)
{
	struct sy_stack_usage usage;

	for (unsigned n = 0; c->closed_to < c->o.connections && n < PER_POLL; n++)
		conn_end(c, s, c->closed_to++, false, now);
	if (c->closed_to < c->o.connections)
		return;
	sy_stack_usage(s, &usage);
	if (usage.connections <= usage.time_wait || now >= c->phase_until_ns)
		phase_set(c, CLIENT_DONE, UINT64_MAX);
}

static void phase_do(struct client *c, struct sy_stack *s, uint64_t now)
{
	bool stop = __atomic_load_n(&c->stop, __ATOMIC_RELAXED);

	switch (c->phase) {
	case CLIENT_OPENING:
		if (stop)
			phase_set(c, CLIENT_CLOSING, now + CLOSING_NS);
		else
			opening_do(c, s, now);
		break;
	case CLIENT_WARMING:
		connections_start(c, s, now);
		if (stop)
			phase_set(c, CLIENT_CLOSING, now + CLOSING_NS);
		else if (now >= c->phase_until_ns)
			measuring_begin(c, now);
		break;
	case CLIENT_MEASURING:
		connections_start(c, s, now);
		if (now >= c->phase_until_ns || stop ||
		    (!client_may_issue(c) && c->under_way == 0 && c->backlog.count == 0))
			measuring_end(c, s, now);
		break;
	case CLIENT_DRAINING:
		if ((c->under_way == 0 && c->backlog.count == 0) || now >= c->phase_until_ns)
			draining_end(c, now);
		break;
	case CLIENT_CLOSING:
		closing_do(c, s, now);
		break;
	case CLIENT_DONE:
		break;
	}
}

uint64_t client_poll(struct client *c, struct sy_stack *s, uint64_t now)
{
	uint64_t next;

	events_take(c, s, now);
	phase_do(c, s, now);
	agenda_do(c, s, now);
	if (c->phase < CLIENT_CLOSING)
		arrivals_do(c, s, now < c->phase_until_ns ? now : c->phase_until_ns, now);
	timeouts_sweep(c, s, now);
	if ((c->phase == CLIENT_CLOSING && c->closed_to < c->o.connections) ||
	    (c->pooled && c->backlog.count) || (client_may_issue(c) && c->started_to < c->o.active))
		return now;
	next = c->phase_until_ns;
	if (client_may_issue(c) && c->arrivals.per_ns > 0 && c->arrivals.next_ns < (double)next)
		next = (uint64_t)c->arrivals.next_ns;
	if (agenda_next(&c->agenda) < next)
		next = agenda_next(&c->agenda);
	return next;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

struct client *client_new(const struct client_options *o)
{
	struct client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->o = *o;
	struct chance seeds = {o->seed};
	c->requests.state = chance_next(&seeds);
	c->schedule.state = chance_next(&seeds);
	c->pick.state = chance_next(&seeds);
	c->phase_until_ns = UINT64_MAX;
	c->reader_size = talk_reader_size(o->mix->protocol);
	c->conn = calloc(o->connections, sizeof(*c->conn));
	c->request = calloc((size_t)o->connections * o->depth, sizeof(*c->request));
	c->reader = calloc(o->connections, c->reader_size ? c->reader_size : 1);
	c->pool = calloc(o->connections, sizeof(*c->pool));
	if (!c->conn || !c->request || !c->reader || !c->pool) {
		client_free(c);
		return NULL;
	}
	for (uint32_t i = 0; i < o->connections; i++)
		c->conn[i].pool_at = NOWHERE;
	return c;
}

void client_free(struct client *c)
{
	if (!c)
		return;
	free(c->conn);
	free(c->request);
	free(c->reader);
	free(c->pool);
	agenda_free(&c->agenda);
	backlog_free(&c->backlog);
	free(c);
}

bool client_is_ready(const struct client *c)
{
	return __atomic_load_n(&c->ready, __ATOMIC_RELAXED);
}

void client_go(struct client *c)
{
	__atomic_store_n(&c->go, true, __ATOMIC_RELAXED);
}

void client_stop(struct client *c)
{
	__atomic_store_n(&c->stop, true, __ATOMIC_RELAXED);
}

enum client_phase client_phase(const struct client *c)
{
	return __atomic_load_n(&c->phase, __ATOMIC_RELAXED);
}

const struct client_counts *client_counts(const struct client *c)
{
	return &c->counts;
}

uint32_t client_connected(const struct client *c)
{
	return __atomic_load_n(&c->connected, __ATOMIC_RELAXED);
}

const struct client_class *client_class(const struct client *c, unsigned class)
{
	return &c->class[class];
}

bool client_has_measured(const struct client *c)
{
	return c->measured_from_ns > 0;
}

uint64_t client_measured_ns(const struct client *c)
{
	return c->measured_ns;
}

int client_connect_error(const struct client *c)
{
	return c->connect_error;
}
