// SPDX-License-Identifier: Apache-2.0
/*
 * Lists sessions. The tables belong to the workers, so each worker visits some records between two
 * bursts and copies those that match; the control thread does the rest. It pauses between posts,
 * because packets wait while a worker does this. While a worker does not run, the listing is
 * pending and the control thread serves other clients (docs/design/0056-stalls.md).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <sy_post.h>

#include "control.h"
#include "model_message.h"

#define LIST_SESSIONS 1000u
#define COPY_RECORDS                                                                               \
	128u /* max records copied per call, which the worker spends on their cache misses */
#define VISIT_RECORDS 512u /* sessions that a worker visits per call */
#define PAUSE_NS      200000
#define SCAN_RECORDS  32768u /* sessions visited per request; its cursor continues from there */
#define AHEAD         8      /* records ahead to prefetch */
/* A worker that has not run for this long is considered stuck. */
#define PATIENCE_NS (60 * UINT64_C(1000000000))

/* The cursor of the API: slot in the upper half, record in the lower. */
#define CURSOR(slot, record)  ((uint64_t)(slot) << 32 | (record))
#define CURSOR_SLOT(cursor)   ((unsigned)((cursor) >> 32))
#define CURSOR_RECORD(cursor) ((uint32_t)(cursor))

struct filter {
	bool by_client, by_service, validated;
	struct sy_addr client, mask; /* of the client's network */
	struct service_key service;
};

struct copy {
	const struct sy_balance *b;
	struct filter filter;
	unsigned slot;
	uint32_t cursor;
	unsigned scanned, count;
	bool end;                            /* of the table */
	uint32_t now;                        /* seconds */
	struct session hot[COPY_RECORDS][2]; /* and the next record, which may be its pair record */
	struct session_cold cold[COPY_RECORDS];
	uint32_t after[COPY_RECORDS]; /* the cursor after each */
};

/* A request in progress. Its post refers to it, so it outlives its client. */
struct listing {
	struct listing *next;
	struct control *control;
	struct client *client; /* NULL: gone, or has its reply */
	uint64_t request_id, began_ns;
	struct arena arena;
	Steelyard__Forwarder__V1__SessionList list;
	uint32_t limit;
	uint64_t cursor;  /* as in the API */
	unsigned left;    /* records to visit for this request */
	unsigned scanned; /* visited since the last pause */
	struct sy_worker_post post;
	unsigned worker; /* worker with the post, until it has run */
	struct copy copy;
};

/* Was the client validated: did it receive what was sent to it? A session that was reset or killed
 * may have been half open before. UDP counts only after an answer and another datagram, since a
 * flood from one network hits answered ports by chance. */
static bool state_is_validated(uint8_t state)
{
	return !session_state_is_embryonic(state) && state != SESSION_RESET &&
	       state != SESSION_DYING && state != SESSION_UDP_BOTH_WAYS;
}

static bool filter_accepts(const struct filter *f, const struct session *s,
                           const struct endpoint *e)
{
	if (f->by_client && ((s->client.d[0] ^ f->client.d[0]) & f->mask.d[0] ||
	                     (s->client.d[1] ^ f->client.d[1]) & f->mask.d[1]))
		return false;
	if (f->validated && !state_is_validated(s->state))
		return false;
	return !f->by_service ||
	       (f->service.vport == e->first_port && f->service.last_port == e->last_port &&
	        f->service.proto == e->proto && sy_addr_equal(&f->service.vip, &e->vip));
}

/* Prefetches for the next copies: the records, and the copy buffer, whose lines the control
 * thread's core read last. */
static SY_PREFETCH_INLINE void copy_prefetch(const struct copy *c, const struct session_table *t,
                                             uint32_t record)
{
	__builtin_prefetch(session_at(t, record + AHEAD));
	__builtin_prefetch(session_cold_at(t, record + AHEAD));
	if (c->count + AHEAD / 2 < COPY_RECORDS)
		__builtin_prefetch(c->hot[c->count + AHEAD / 2], 1);
}

/* Runs on the worker: copies matching sessions from the cursor on, at most to the end of the slot's
 * table. */
static void copy_records(struct sy_worker *w, void *listing)
{
	struct copy *c = &((struct listing *)listing)->copy;
	struct session_table *t = c->b->table[c->slot];
	(void)w;
	c->now = (uint32_t)(sy_clock_ns() / 1000000000u);
	c->count = 0;
	c->end = false;
	for (c->scanned = 0; c->scanned < VISIT_RECORDS && c->count < COPY_RECORDS; c->scanned++) {
		uint32_t record = session_next(t, &c->cursor);
		if (record == SESSION_NONE) {
			c->end = true;
			return;
		}
		copy_prefetch(c, t, record);
		const struct session *s = session_at(t, record);
		if (!filter_accepts(&c->filter, s, &c->b->endpoint[s->server]))
			continue;
		memcpy(c->hot[c->count], s,
		       (1 + session_is_pair(t, record)) * sizeof(struct session));
		c->cold[c->count] = *session_cold_at(t, record);
		c->after[c->count++] = c->cursor;
	}
}

/* After VISIT_RECORDS visited sessions, pauses to leave time for packets. */
static void copy_pause(unsigned *scanned)
{
	static const struct timespec pause = {0, PAUSE_NS};
	if (*scanned < VISIT_RECORDS)
		return;
	*scanned = 0;
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
	Steelyard__Forwarder__V1__Session *pb = arena_alloc(a, sizeof(*pb));
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

static int filter_read(const Steelyard__Forwarder__V1__ListSessionsRequest *request,
                       struct filter *f, struct sy_error *err)
{
	unsigned family_bits = (unsigned)(8 * request->client.len);
	*f = (struct filter){.by_client = request->client.len > 0,
	                     .by_service = request->service,
	                     .validated = request->validated};
	if (f->by_client &&
	    sy_addr_from_bytes(request->client.data, request->client.len, &f->client) < 0)
		return sy_fail(err, EINVAL, "client: an address has 4 or 16 bytes, not %zu",
		               request->client.len);
	if (request->client_bits > family_bits)
		return sy_fail(err, EINVAL, "client_bits: %u, of an address of %u bits",
		               request->client_bits, family_bits);
	unsigned bits = request->client_bits ? request->client_bits + 128 - family_bits : 128;
	for (unsigned i = 0; i < bits; i++)
		f->mask.b[i / 8] |= (uint8_t)(0x80 >> i % 8);
	return request->service ? read_key(request->service, &f->service, err) : 0;
}

/* Adds the worker's copies to the list, and advances the cursor. */
static int listing_add(struct listing *l)
{
	struct sy_balance *b = l->control->balance;
	struct copy *c = &l->copy;
	unsigned taken = 0;
	for (; taken < c->count && l->list.n_sessions < l->limit; taken++) {
		l->cursor = CURSOR(c->slot, c->after[taken]);
		if (reply_session(b, c, taken, c->slot, &l->arena,
		                  &l->list.sessions[l->list.n_sessions]) < 0)
			return -ENOMEM;
		l->list.n_sessions++;
	}
	if (taken == c->count)
		l->cursor = c->end ? CURSOR(c->slot + 1, 0) : CURSOR(c->slot, c->cursor);
	/* A copy costs as much as several visits. */
	l->scanned += c->scanned + c->count * (VISIT_RECORDS / COPY_RECORDS - 1);
	l->left -= c->scanned < l->left ? c->scanned : l->left;
	return 0;
}

static bool listing_is_complete(const struct listing *l)
{
	return l->left == 0 || CURSOR_SLOT(l->cursor) >= SY_SLOTS || l->list.n_sessions == l->limit;
}

static void listing_reply(struct listing *l)
{
	pb_response out = STEELYARD__FORWARDER__V1__RESPONSE__INIT;
	l->list.next_cursor = CURSOR_SLOT(l->cursor) < SY_SLOTS ? l->cursor : 0;
	out.body_case = STEELYARD__FORWARDER__V1__RESPONSE__BODY_LIST_SESSIONS;
	out.list_sessions = &l->list;
	control_reply(l->client, l->request_id, &out);
}

static void listing_refuse(struct listing *l, const char *text)
{
	control_reply_error(l->client, l->request_id, STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL,
	                    0, text);
	l->client = NULL;
}

static void listing_free(struct listing *l)
{
	struct listing **at = &l->control->listings;
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	arena_free(&l->arena);
	free(l);
}

/* Posts the next copy. Returns false if the worker has not run it yet: listing_done() follows. */
static bool listing_post(struct listing *l)
{
	struct sy_balance *b = l->control->balance;
	unsigned slot = CURSOR_SLOT(l->cursor);
	l->copy.slot = slot;
	l->copy.cursor = CURSOR_RECORD(l->cursor);
	l->worker = sy_slot_worker(b->rt, (uint8_t)slot);
	return sy_worker_post(sy_worker_at(b->rt, l->worker), &l->post);
}

/* Continues until a worker is late, or the reply is sent. */
static void listing_continue(struct listing *l)
{
	struct sy_balance *b = l->control->balance;
	while (!listing_is_complete(l)) {
		unsigned slot = CURSOR_SLOT(l->cursor);
		if (session_count(b->table[slot]) == 0) {
			l->cursor = CURSOR(slot + 1, 0);
			continue;
		}
		copy_pause(&l->scanned);
		if (!listing_post(l))
			return;
		if (listing_add(l) < 0) {
			listing_refuse(l, "no memory for the answer");
			listing_free(l);
			return;
		}
	}
	listing_reply(l);
	listing_free(l);
}

static void listing_done(void *listing)
{
	struct listing *l = listing;
	if (!l->client) {
		listing_free(l);
	} else if (!l->control->balance->ctl->store) {
		listing_refuse(l, CONTROL_SEALED);
		listing_free(l);
	} else if (listing_add(l) < 0) {
		listing_refuse(l, "no memory for the answer");
		listing_free(l);
	} else {
		listing_continue(l);
	}
}

static struct listing *listing_create(struct client *c, const pb_request *q)
{
	const Steelyard__Forwarder__V1__ListSessionsRequest *request = q->list_sessions;
	struct listing *l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	steelyard__forwarder__v1__session_list__init(&l->list);
	l->control = c->control;
	l->client = c;
	l->request_id = q->id;
	l->began_ns = sy_clock_ns();
	l->limit = request->limit > 0 && request->limit < LIST_SESSIONS ? request->limit
	                                                                : LIST_SESSIONS;
	l->cursor = request->cursor;
	l->left = SCAN_RECORDS;
	l->copy.b = c->control->balance;
	l->post = (struct sy_worker_post){.fn = copy_records, .done = listing_done, .ctx = l};
	l->list.sessions = arena_alloc(&l->arena, l->limit * sizeof(*l->list.sessions));
	l->next = c->control->listings;
	c->control->listings = l;
	return l;
}

void control_list_sessions(struct client *c, const pb_request *q)
{
	struct listing *l = listing_create(c, q);
	struct sy_error err = {0};
	if (!l || !l->list.sessions) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_INTERNAL, 0,
		                    "no memory for the answer");
	} else if (filter_read(q->list_sessions, &l->copy.filter, &err) < 0) {
		control_reply_error(c, q->id, STEELYARD__FORWARDER__V1__CODE__CODE_INVALID, 0,
		                    err.text);
	} else {
		listing_continue(l);
		return;
	}
	if (l)
		listing_free(l);
}

void listings_forget(struct control *k, const struct client *c)
{
	for (struct listing *l = k->listings; l; l = l->next)
		if (l->client == c)
			l->client = NULL;
}

void listings_tick(struct control *k)
{
	char text[160];
	for (struct listing *l = k->listings; l; l = l->next) {
		if (!l->client || sy_clock_ns() - l->began_ns < PATIENCE_NS)
			continue;
		snprintf(text, sizeof(text),
		         "worker %u has not run for a minute: other programs use its CPU; "
		         "`--cores` or `CPUAffinity=` reserves CPUs for the workers",
		         l->worker);
		listing_refuse(l, text);
	}
}

void listings_finish(struct control *k, const struct client *c)
{
	for (struct listing *l = k->listings, *next; l; l = next) {
		next = l->next;
		if (c && l->client != c)
			continue;
		if (!c)
			l->client = NULL;
		sy_worker_post_wait(k->balance->rt, &l->post);
		listing_done(l);
		next = k->listings; /* it may have posted again */
	}
}
