// SPDX-License-Identifier: Apache-2.0
/*
 * Listing sessions. Their tables belong to the workers, so each worker copies a few records between
 * two bursts; everything else happens here.
 */
#include <arpa/inet.h>
#include <errno.h>

#include "control.h"
#include "model.h"

#define LIST_SESSIONS 1000u
#define COPY_RECORDS  128u /* a call into a worker */
#define SCAN_CALLS    512u /* a request; its cursor goes on where this ends */

/* The cursor of the API: slot above, record below. */
#define CURSOR(slot, record)  ((uint64_t)(slot) << 32 | (record))
#define CURSOR_SLOT(cursor)   ((unsigned)((cursor) >> 32))
#define CURSOR_RECORD(cursor) ((uint32_t)(cursor))

struct copy {
	struct session_table *table;
	uint32_t cursor;
	unsigned count;
	bool end;                            /* of the table */
	uint32_t now;                        /* seconds */
	struct session hot[COPY_RECORDS][2]; /* with what is behind it: a companion, perhaps */
	struct session_cold cold[COPY_RECORDS];
	uint32_t after[COPY_RECORDS]; /* cursor behind each */
};

static void copy_records(struct sy_worker *w, void *ctx)
{
	struct copy *c = ctx;
	c->now = (uint32_t)(sy_clock_ns() / 1000000000u);
	c->count = 0;
	while (c->count < COPY_RECORDS) {
		uint32_t record = session_next(c->table, &c->cursor);
		if (record == SESSION_NONE) {
			c->end = true;
			return;
		}
		memcpy(c->hot[c->count], session_at(c->table, record),
		       (1 + session_is_pair(c->table, record)) * sizeof(struct session));
		c->cold[c->count] = *session_cold_at(c->table, record);
		c->after[c->count++] = c->cursor;
	}
}

struct filter {
	bool by_client, by_service;
	struct sy_addr client;
	struct service_key service;
};

static bool filter_admits(const struct filter *f, const struct session *s, const struct endpoint *e)
{
	if (f->by_client && !sy_addr_equal(&f->client, &s->client))
		return false;
	return !f->by_service ||
	       (f->service.vport == e->first_port && f->service.last_port == e->last_port &&
	        f->service.proto == e->proto && sy_addr_equal(&f->service.vip, &e->vip));
}

/* The rule of SNAT that a session is of; "": none. */
static char *rule_name(const struct sy_balance *b, const struct endpoint *e)
{
	const struct model_service *s =
	        e->service == SERVICE_NONE ? NULL : b->model->service[e->service];
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
	int32_t timeout = service ? session_timeout(service, e, s) : 0;
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
	struct filter filter;

	if (filter_read(ask, &filter, err) < 0)
		return -EINVAL;
	if (!l || !copy)
		return sy_fail(err, ENOMEM, "no memory for the answer");
	steelyard__forwarder__v1__session_list__init(l);
	l->sessions = arena_take(a, limit * sizeof(*l->sessions));
	if (!l->sessions)
		return sy_fail(err, ENOMEM, "no memory for the answer");

	uint64_t cursor = ask->cursor;
	for (unsigned call = 0;
	     call < SCAN_CALLS && CURSOR_SLOT(cursor) < SY_SLOTS && l->n_sessions < limit;) {
		unsigned slot = CURSOR_SLOT(cursor);
		if (session_count(b->table[slot]) == 0) {
			cursor = CURSOR(slot + 1, 0);
			continue;
		}
		call++;
		copy->table = b->table[slot];
		copy->cursor = CURSOR_RECORD(cursor);
		copy->end = false;
		struct sy_worker *w = sy_worker_at(b->rt, sy_slot_worker(b->rt, (uint8_t)slot));
		if (sy_worker_call(w, copy_records, copy) < 0)
			return sy_fail(err, EIO, "worker %u does not answer", w->id);
		for (unsigned i = 0; i < copy->count && l->n_sessions < limit; i++) {
			cursor = CURSOR(slot, copy->after[i]);
			const struct session *s = copy->hot[i];
			if (!filter_admits(&filter, s, &b->endpoint[s->server]))
				continue;
			if (reply_session(b, copy, i, slot, a, &l->sessions[l->n_sessions]) < 0)
				return sy_fail(err, ENOMEM, "no memory for the answer");
			l->n_sessions++;
		}
		if (copy->end &&
		    (copy->count == 0 || cursor == CURSOR(slot, copy->after[copy->count - 1])))
			cursor = CURSOR(slot + 1, 0);
	}
	l->next_cursor = CURSOR_SLOT(cursor) < SY_SLOTS ? cursor : 0;
	out->body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_SESSIONS;
	out->list_sessions = l;
	return 0;
}
