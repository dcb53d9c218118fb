// SPDX-License-Identifier: Apache-2.0
/*
 * Lists sessions. The tables belong to the workers, so each worker visits some records between two
 * bursts and copies those that match; the control thread does the rest. It pauses between calls,
 * because packets wait while a worker does this.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <time.h>

#include "control.h"
#include "model_message.h"

#define LIST_SESSIONS 1000u
#define COPY_RECORDS  128u /* copied per call into a worker, which waits for these cache misses */
#define LOOK_RECORDS  512u /* sessions that a worker visits per call */
#define PAUSE_NS      200000
#define SCAN_RECORDS  32768u /* sessions visited per request; its cursor continues from there */
#define AHEAD         8      /* records ahead to prefetch */

/* The cursor of the API: slot in the upper half, record in the lower. */
#define CURSOR(slot, record)  ((uint64_t)(slot) << 32 | (record))
#define CURSOR_SLOT(cursor)   ((unsigned)((cursor) >> 32))
#define CURSOR_RECORD(cursor) ((uint32_t)(cursor))

struct filter {
	bool by_client, by_service;
	struct sy_addr client;
	struct service_key service;
};

struct copy {
	const struct sy_balance *b;
	struct filter filter;
	struct session_table *table;
	uint32_t cursor;
	unsigned looked, count;
	bool end;                            /* of the table */
	uint32_t now;                        /* seconds */
	struct session hot[COPY_RECORDS][2]; /* and the next record, which may be its pair record */
	struct session_cold cold[COPY_RECORDS];
	uint32_t after[COPY_RECORDS]; /* the cursor after each */
};

static bool filter_admits(const struct filter *f, const struct session *s, const struct endpoint *e)
{
	if (f->by_client && !sy_addr_equal(&f->client, &s->client))
		return false;
	return !f->by_service ||
	       (f->service.vport == e->first_port && f->service.last_port == e->last_port &&
	        f->service.proto == e->proto && sy_addr_equal(&f->service.vip, &e->vip));
}

/* Prefetches what the next copies need: the records, and the copy buffer, whose lines the control
 * thread's core read last. */
static SY_PREFETCH_INLINE void copy_prefetch(const struct copy *c, uint32_t record)
{
	__builtin_prefetch(session_at(c->table, record + AHEAD));
	__builtin_prefetch(session_cold_at(c->table, record + AHEAD));
	if (c->count + AHEAD / 2 < COPY_RECORDS)
		__builtin_prefetch(c->hot[c->count + AHEAD / 2], 1);
}

static void copy_records(struct sy_worker *w, void *ctx)
{
	struct copy *c = ctx;
	c->now = (uint32_t)(sy_clock_ns() / 1000000000u);
	c->count = 0;
	for (c->looked = 0; c->looked < LOOK_RECORDS && c->count < COPY_RECORDS; c->looked++) {
		uint32_t record = session_next(c->table, &c->cursor);
		if (record == SESSION_NONE) {
			c->end = true;
			return;
		}
		copy_prefetch(c, record);
		const struct session *s = session_at(c->table, record);
		if (!filter_admits(&c->filter, s, &c->b->endpoint[s->server]))
			continue;
		memcpy(c->hot[c->count], s,
		       (1 + session_is_pair(c->table, record)) * sizeof(struct session));
		c->cold[c->count] = *session_cold_at(c->table, record);
		c->after[c->count++] = c->cursor;
	}
}

/* Lets the slot's worker continue from the cursor, at most to the end of the slot's table. */
static int copy_call(struct sy_balance *b, struct copy *c, uint64_t cursor, struct sy_error *err)
{
	unsigned slot = CURSOR_SLOT(cursor);
	struct sy_worker *w = sy_worker_at(b->rt, sy_slot_worker(b->rt, (uint8_t)slot));
	c->table = b->table[slot];
	c->cursor = CURSOR_RECORD(cursor);
	c->end = false;
	if (sy_worker_call(w, copy_records, c) < 0)
		return sy_fail(err, EIO, "worker %u does not answer", w->id);
	return 0;
}

/* After LOOK_RECORDS visited sessions, gives workers time for packets. */
static void copy_pause(unsigned *looked)
{
	static const struct timespec pause = {0, PAUSE_NS};
	if (*looked < LOOK_RECORDS)
		return;
	*looked = 0;
	nanosleep(&pause, NULL);
}

/* The name of the SNAT rule of a session; "": none. */
static char *rule_name(const struct sy_balance *b, const struct endpoint *e)
{
	const struct model_service *s =
	        e->service == SERVICE_NONE ? NULL : b->ctl->model->service[e->service];
	return (char *)(uintptr_t)(s && s->snat ? s->name : "");
}

static int reply_session(struct sy_balance *b, const struct copy *c, unsigned i, unsigned slot,
                         struct arena *a, Steelyard__Forwarder__V1__Session **out)
{
	const struct session *s = c->hot[i];
	const struct endpoint *e = &b->endpoint[s->server];
	const struct service *service = endpoint_service(b, e);
	Steelyard__Forwarder__V1__Session *pb = arena_take(a, sizeof(*pb));
	if (!pb)
		return -ENOMEM;
	steelyard__forwarder__v1__session__init(pb);
	int16_t idle = (int16_t)session_idle(s, (uint16_t)c->now);
	int32_t timeout = service ? session_timeout(service, s) : 0;
	pb->protocol = (Steelyard__Forwarder__V1__Protocol)e->proto;
	pb->client_port = ntohs(s->client_port);
	const struct sy_tuple client = session_client_tuple(s, &c->cold[i], e);
	const struct sy_tuple server = session_server_tuple(b, s, &c->cold[i], e);
	pb->vport = ntohs(client.dport);
	pb->local_port = s->local == LOCAL_NONE ? 0 : ntohs(s->local_port);
	pb->server_port = ntohs(server.sport);
	pb->snat = rule_name(b, e);
	pb->state = (char *)(uintptr_t)session_state_name(s->state);
	pb->idle_s = idle > 0 ? (uint32_t)idle : 0;
	pb->age_s = (c->now - c->cold[i].created) & SESSION_CREATED_MASK;
	pb->expires_s = timeout > idle ? (uint32_t)(timeout - idle) : 0;
	pb->slot = slot;
	*out = pb;
	if (reply_addr(a, &s->client, &pb->client) < 0 ||
	    reply_addr(a, &client.dst, &pb->vip) < 0 ||
	    (s->local != LOCAL_NONE && reply_addr(a, &b->local[s->local], &pb->local) < 0) ||
	    reply_addr(a, &server.src, &pb->server) < 0)
		return -ENOMEM;
	return 0;
}

static int filter_read(const Steelyard__Forwarder__V1__ListSessionsRequest *ask, struct filter *f,
                       struct sy_error *err)
{
	*f = (struct filter){.by_client = ask->client.len > 0, .by_service = ask->service};
	if (f->by_client && sy_addr_from_bytes(ask->client.data, ask->client.len, &f->client) < 0)
		return sy_fail(err, EINVAL, "client: an address has 4 or 16 bytes, not %zu",
		               ask->client.len);
	return ask->service ? read_key(ask->service, &f->service, err) : 0;
}

int list_sessions(struct sy_balance *b, const pb_request *q, struct arena *a, pb_response *out,
                  struct sy_error *err)
{
	const Steelyard__Forwarder__V1__ListSessionsRequest *ask = q->list_sessions;
	uint32_t limit = ask->limit > 0 && ask->limit < LIST_SESSIONS ? ask->limit : LIST_SESSIONS;
	Steelyard__Forwarder__V1__SessionList *l = arena_take(a, sizeof(*l));
	struct copy *copy = arena_take(a, sizeof(*copy));

	if (!l || !copy)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	steelyard__forwarder__v1__session_list__init(l);
	copy->b = b;
	if (filter_read(ask, &copy->filter, err) < 0)
		return -EINVAL;
	l->sessions = arena_take(a, limit * sizeof(*l->sessions));
	if (!l->sessions)
		return sy_fail(err, ENOMEM, "no memory for the answer");

	uint64_t cursor = ask->cursor;
	unsigned left = SCAN_RECORDS, looked = 0;
	while (left > 0 && CURSOR_SLOT(cursor) < SY_SLOTS && l->n_sessions < limit) {
		unsigned slot = CURSOR_SLOT(cursor), taken = 0;
		if (session_count(b->table[slot]) == 0) {
			cursor = CURSOR(slot + 1, 0);
			continue;
		}
		copy_pause(&looked);
		if (copy_call(b, copy, cursor, err) < 0)
			return -EIO;
		for (; taken < copy->count && l->n_sessions < limit; taken++) {
			cursor = CURSOR(slot, copy->after[taken]);
			if (reply_session(b, copy, taken, slot, a, &l->sessions[l->n_sessions]) < 0)
				return sy_fail(err, ENOMEM, "no memory for the answer");
			l->n_sessions++;
		}
		if (taken == copy->count)
			cursor = copy->end ? CURSOR(slot + 1, 0) : CURSOR(slot, copy->cursor);
		/* A copy costs as much as several visits. */
		unsigned work = copy->looked + copy->count * (LOOK_RECORDS / COPY_RECORDS - 1);
		looked += work;
		left -= copy->looked < left ? copy->looked : left;
	}
	l->next_cursor = CURSOR_SLOT(cursor) < SY_SLOTS ? cursor : 0;
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_SESSIONS;
	out->list_sessions = l;
	return 0;
}
