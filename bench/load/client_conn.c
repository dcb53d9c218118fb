// SPDX-License-Identifier: Apache-2.0
/* Connections of a client: opening, requests, losses, renewal. */
#include <errno.h>

#include "client_state.h"

#define RETRY_NS UINT64_C(20000000)
#define TRIES    3 /* attempts to open a connection before measuring */

bool client_is_closed_loop(const struct client *c)
{
	return !c->o.open;
}

/* Returns true if a request may be issued now. */
bool client_may_issue(const struct client *c)
{
	return c->phase == CLIENT_WARMING ||
	       (c->phase == CLIENT_MEASURING && (!c->o.requests || c->issued < c->o.requests));
}

bool conn_has_place(const struct client *c, const struct conn *k)
{
	return k->count < c->o.depth && (!c->o.each || k->issued < c->o.each);
}

bool conn_stays(const struct client *c)
{
	return c->phase == CLIENT_OPENING || (!c->o.each && c->phase < CLIENT_DRAINING);
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void pool_add(struct client *c, uint32_t i)
{
	if (c->conn[i].pool_at != NOWHERE)
		return;
	c->conn[i].pool_at = c->pooled;
	c->pool[c->pooled++] = i;
}

static void pool_remove(struct client *c, uint32_t i)
{
	uint32_t at = c->conn[i].pool_at;

	if (at == NOWHERE)
		return;
	uint32_t last = c->pool[--c->pooled];
	c->pool[at] = last;
	c->conn[last].pool_at = at;
	c->conn[i].pool_at = NOWHERE;
}

/* ---- connections ----------------------------------------------------------------------------- */

/* Schedules the connection. Returns false if there is no memory. */
static bool conn_later(struct client *c, uint32_t i, uint64_t at)
{
	return agenda_add(&c->agenda, (struct due){at, i}) == 0;
}

static void conn_forget(struct client *c, struct conn *k)
{
	if (k->open)
		__atomic_store_n(&c->connected, c->connected - 1, __ATOMIC_RELAXED);
	else if (k->id != SY_STACK_NONE)
		c->connecting--;
	k->id = SY_STACK_NONE;
	k->open = false;
	k->issued = k->count; /* requests to repeat */
}

void conn_end(struct client *c, struct sy_stack *s, uint32_t i, bool abort, uint64_t now)
{
	struct conn *k = &c->conn[i];

	if (k->id == SY_STACK_NONE)
		return;
	if (abort || c->o.reset)
		sy_stack_abort(s, k->id, now);
	else
		sy_stack_close(s, k->id, now);
	conn_forget(c, k);
}

void conn_open(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now)
{
	struct conn *k = &c->conn[i];
	const struct sy_stack_endpoint local = {
	        .addr = c->o.source[(c->o.first + i) % c->o.sources]};
	int rc = sy_stack_connect(s, &local, &c->o.target, i, now, &k->id);

	talk_begin(c, i);
	k->unsent = k->count;
	if (rc) {
		k->id = SY_STACK_NONE;
		c->connect_error = -rc;
		conn_lose(c, s, i, CLIENT_ERROR_connect, now);
		return;
	}
	k->since_ns = now;
	c->connecting++;
	sy_stack_set(s, k->id, SY_STACK_NO_DELAY, 1, now);
}

void conn_opened(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now)
{
	struct conn *k = &c->conn[i];

	k->open = true;
	if (c->phase != CLIENT_OPENING) /* while opening, the server may close it again */
		k->tries = 0;
	c->connecting--;
	__atomic_store_n(&c->connected, c->connected + 1, __ATOMIC_RELAXED);
	CLIENT_COUNT(c, opened, 1);
	if (c->phase == CLIENT_OPENING)
		c->settled++;
	talk_send(c, s, i, now);
}

/* ---- requests -------------------------------------------------------------------------------- */

void conn_issue(struct client *c, struct sy_stack *s, uint32_t i, uint64_t due, uint64_t now)
{
	struct conn *k = &c->conn[i];
	struct request *r = conn_request(c, i, k->count);

	*r = (struct request){.due_ns = due, .sent_ns = now, .number = k->number++};
	request_draw(c->o.mix, &c->requests, r);
	if (c->o.mix->class[r->class].unsent_ns) {
		for (uint64_t until = sy_clock_ns() + c->o.mix->class[r->class].unsent_ns;
		     sy_clock_ns() < until;)
			__builtin_ia32_pause();
		return;
	}
	r->measured = c->measured_from_ns && due >= c->measured_from_ns;
	c->issued += r->measured && client_is_closed_loop(c);
	k->count++;
	k->unsent++;
	k->issued++;
	c->under_way++;
	if (!conn_has_place(c, k))
		pool_remove(c, i);
	if (k->id == SY_STACK_NONE)
		conn_open(c, s, i, now);
	else if (k->open)
		talk_send(c, s, i, now);
}

/* The connection has capacity for one more request. */
void conn_give(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now)
{
	struct conn *k = &c->conn[i];
	uint64_t due;

	if (i >= c->o.active)
		return;
	if (!client_is_closed_loop(c)) {
		if (conn_has_place(c, k) && backlog_take(&c->backlog, &due))
			conn_issue(c, s, i, due, now);
		if (conn_has_place(c, k))
			pool_add(c, i);
		return;
	}
	if (!client_may_issue(c))
		return;
	if (!conn_has_place(c, k)) {
		k->parked++;
		return;
	}
	uint64_t think = c->o.think ? distribution_draw(c->o.think, &c->schedule) : 0;
	if (!think || !conn_later(c, i, now + think))
		conn_issue(c, s, i, now, now);
}

/* Releases all parked capacity of a renewed connection. */
static void conn_give_parked(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now)
{
	unsigned places = c->conn[i].parked;

	c->conn[i].parked = 0;
	do
		conn_give(c, s, i, now);
	while (places-- > 1);
}

/* Opening is settled for connections that are open or have failed often enough; the latter are
 * retried for a request. Includes servers that close idle connections. */
static void opening_failed(struct client *c, struct conn *k, bool was_open)
{
	c->settled -= was_open;
	c->settled += ++k->tries >= TRIES;
}

void conn_lose(struct client *c, struct sy_stack *s, uint32_t i, enum client_error cause,
               uint64_t now)
{
	struct conn *k = &c->conn[i];
	bool was_open = k->open;
	unsigned lost = k->count;

	switch (cause) {
#define X(name, help)                                                                              \
	case CLIENT_ERROR_##name:                                                                  \
		CLIENT_COUNT(c, name, lost);                                                       \
		break;
		CLIENT_ERRORS(X)
#undef X
	}
	if (cause == CLIENT_ERROR_connect)
		CLIENT_COUNT(c, open_failed, 1);
	else if (!lost)
		CLIENT_COUNT(c, lost, 1);
	c->under_way -= lost;
	k->count = k->unsent = 0;
	k->issued = 0; /* conn_end() keeps it without a connection */
	conn_end(c, s, i, true, now);
	if (c->phase == CLIENT_OPENING)
		opening_failed(c, k, was_open);
	if (!c->o.open && i < c->o.active && c->phase != CLIENT_OPENING) {
		for (unsigned places = lost + k->parked; places > 0; places--)
			conn_later(c, i, now + RETRY_NS);
		k->parked = 0;
	} else if (conn_stays(c) && k->tries < TRIES) {
		conn_later(c, i, now + RETRY_NS);
	}
	if (c->o.open && i < c->o.active && c->phase > CLIENT_OPENING)
		pool_add(c, i);
}

void conn_renew(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now)
{
	struct conn *k = &c->conn[i];

	conn_end(c, s, i, false, now);
	CLIENT_COUNT(c, reopened, 1);
	if (c->phase == CLIENT_OPENING)
		opening_failed(c, k, true);
	if (k->count)
		conn_open(c, s, i, now);
	else if (!conn_stays(c) || (c->phase == CLIENT_OPENING && k->tries >= TRIES))
		return;
	else if (c->phase == CLIENT_OPENING || i >= c->o.active)
		conn_later(c, i, now + RETRY_NS); /* the server may close it immediately again */
	else
		conn_open(c, s, i, now);
}

void conn_answered(struct client *c, struct sy_stack *s, uint32_t i, bool right, bool closes,
                   uint64_t now)
{
	struct conn *k = &c->conn[i];
	const struct request r = *conn_request(c, i, 0);

	k->first = (uint16_t)((k->first + 1) % c->o.depth);
	k->count--;
	k->got = 0;
	c->under_way--;
	if (right) {
		CLIENT_COUNT(c, answered, 1);
		CLIENT_COUNT(c, in_window, c->phase == CLIENT_MEASURING);
	} else {
		CLIENT_COUNT(c, wrong, 1);
	}
	if (right && r.measured) {
		histogram_add(&c->class[r.class].latency, now - r.due_ns);
		histogram_add(&c->class[r.class].service, now - r.sent_ns);
	}
	if (c->o.each && k->issued >= c->o.each && k->count == 0) {
		conn_end(c, s, i, false, now);
		k->parked++;
		conn_give_parked(c, s, i, now);
		return;
	}
	if (closes)
		conn_renew(c, s, i, now);
	conn_give(c, s, i, now);
}
