// SPDX-License-Identifier: Apache-2.0
#include "load_server.h"

#include <errno.h>
#include <stdlib.h>

#define BACKLOG    65536u
#define POLL_NS    20000u /* service time per poll iteration, before responses are sent */
#define POLL_COUNT 256u
#define TOGETHER   4096u
#define LISTENER   (UINT64_C(1) << 32) /* in a cookie */

struct peer {
	sy_stack_id id;
	uint32_t next_free;
	struct raw_reader reader;
	uint32_t left, at; /* bytes of the response, and how many were sent, with its header */
	uint8_t header[RAW_HEADER]; /* of the response */
	uint64_t got;               /* of the request body */
	bool queued, bad;
};

struct server {
	struct server_options o;
	struct server_counts counts; /* writer: the worker. readers: relaxed */
	uint32_t connected;          /* likewise */
	struct peer *peer;
	uint32_t free, used;
	uint32_t *ready; /* queue of peers that may have requests */
	uint32_t first, waiting;
};

#define SERVER_COUNT(v, name, n)                                                                   \
	__atomic_store_n(&(v)->counts.name, (v)->counts.name + (n), __ATOMIC_RELAXED)

/* ---- peers ----------------------------------------------------------------------------------- */

static void peer_queue(struct server *v, struct peer *p)
{
	if (p->queued)
		return;
	p->queued = true;
	v->ready[(v->first + v->waiting++) % v->o.connections] = (uint32_t)(p - v->peer);
}

static void peers_accept(struct server *v, struct sy_stack *s, sy_stack_id listener, uint64_t now)
{
	sy_stack_id id;

	while (v->used < v->o.connections || v->free) {
		uint32_t i = v->free ? v->free - 1 : v->used;
		struct peer *p = &v->peer[i];
		if (sy_stack_accept(s, listener, i, NULL, &id))
			return;
		if (v->free)
			v->free = p->next_free;
		else
			v->used++;
		bool queued = p->queued; /* of its predecessor */
		*p = (struct peer){.id = id, .queued = queued};
		sy_stack_set(s, id, SY_STACK_NO_DELAY, 1, now);
		SERVER_COUNT(v, accepted, 1);
		__atomic_store_n(&v->connected, v->connected + 1, __ATOMIC_RELAXED);
		peer_queue(v, p);
	}
}

static void peer_end(struct server *v, struct sy_stack *s, struct peer *p, bool abort, uint64_t now)
{
	if (abort)
		sy_stack_abort(s, p->id, now);
	else
		sy_stack_close(s, p->id, now);
	p->id = SY_STACK_NONE;
	p->next_free = v->free;
	v->free = (uint32_t)(p - v->peer) + 1;
	__atomic_store_n(&v->connected, v->connected - 1, __ATOMIC_RELAXED);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Sends the rest of the response. Returns 0 when complete, or a negative errno. */
static int answer_send(struct server *v, struct sy_stack *s, struct peer *p, uint64_t now)
{
	while (p->left) {
		uint8_t bytes[RAW_HEADER + TOGETHER];
		const uint8_t *from = bytes;
		uint64_t len;
		if (p->at < RAW_HEADER) {
			uint32_t rest = p->left + p->at - RAW_HEADER;
			rest = rest < TOGETHER ? rest : TOGETHER;
			memcpy(bytes, p->header, RAW_HEADER);
			memcpy(bytes + RAW_HEADER, pattern_from(0), rest);
			from += p->at;
			len = RAW_HEADER + rest - p->at;
		} else {
			from = pattern_from(p->at - RAW_HEADER);
			len = p->left < PATTERN_LEN ? p->left : PATTERN_LEN;
		}
		int64_t rc =
		        sy_stack_send(s, p->id, from, len, len < p->left ? SY_STACK_MORE : 0, now);
		if (rc < 0)
			return (int)rc;
		p->at += (uint32_t)rc;
		p->left -= (uint32_t)rc;
		SERVER_COUNT(v, bytes_out, (uint64_t)rc);
	}
	return 0;
}

static void request_answer(struct server *v, struct peer *p, const struct raw_header *h,
                           uint64_t *busy)
{
	uint64_t took = h->service_ns ? v->o.busy(h->service_ns) : 0;

	raw_write(p->header, &(struct raw_header){.kind = RAW_ANSWER,
	                                          .class = h->class,
	                                          .type = h->type,
	                                          .length = h->answer,
	                                          .service_ns = took,
	                                          .number = h->number});
	p->left = h->answer;
	p->at = 0;
	p->got = 0;
	*busy += took;
	SERVER_COUNT(v, requests, 1);
	SERVER_COUNT(v, busy_ns, took);
}

/* Reads one request and begins its response. Returns 1 if answered, 0 at EOF, or a negative errno.
 */
static int request_take(struct server *v, struct sy_stack *s, struct peer *p, uint64_t *busy,
                        uint64_t now)
{
	const void *bytes;
	struct raw_header h;
	enum raw_got got = RAW_MORE;
	int64_t len;

	while (got != RAW_MESSAGE_DONE && (len = sy_stack_peek(s, p->id, &bytes)) > 0) {
		bool body = p->reader.have == RAW_HEADER;
		int64_t taken = raw_take(&p->reader, RAW_REQUEST, bytes, (size_t)len, &h, &got);
		if (taken < 0)
			return (int)taken;
		if (body && !pattern_is(bytes, (size_t)taken, p->got))
			return -EPROTO;
		p->got += body ? (uint64_t)taken : 0;
		sy_stack_consume(s, p->id, (size_t)taken, now);
		SERVER_COUNT(v, bytes_in, (uint64_t)taken);
	}
	if (got != RAW_MESSAGE_DONE)
		return len == 0 && p->reader.have ? -EPROTO : (int)len;
	raw_read(p->reader.header, &h);
	request_answer(v, p, &h, busy);
	return 1;
}

static int echo_take(struct server *v, struct sy_stack *s, struct peer *p, uint64_t now)
{
	const void *bytes;
	int64_t len = sy_stack_peek(s, p->id, &bytes), sent;

	if (len <= 0)
		return (int)len;
	sent = sy_stack_send(s, p->id, bytes, (size_t)len, 0, now);
	if (sent < 0)
		return (int)sent;
	sy_stack_consume(s, p->id, (size_t)sent, now);
	SERVER_COUNT(v, bytes_in, (uint64_t)sent);
	SERVER_COUNT(v, bytes_out, (uint64_t)sent);
	SERVER_COUNT(v, requests, 1);
	return 1;
}

/* Serves one request of a peer; requeues it if there may be more. */
static void peer_serve(struct server *v, struct sy_stack *s, struct peer *p, uint64_t *busy,
                       uint64_t now)
{
	int rc = answer_send(v, s, p, now);

	if (rc == 0 && !v->o.echo)
		rc = request_take(v, s, p, busy, now);
	else if (rc == 0)
		rc = echo_take(v, s, p, now);
	if (rc > 0 && (rc = answer_send(v, s, p, now)) == 0) {
		peer_queue(v, p);
		return;
	}
	if (rc == -EAGAIN)
		return; /* an event follows */
	if (rc == -EPROTO)
		SERVER_COUNT(v, bad, 1);
	else if (rc < 0)
		SERVER_COUNT(v, reset, 1);
	peer_end(v, s, p, rc < 0, now);
}

/* ---- a turn ---------------------------------------------------------------------------------- */

static void events_take(struct server *v, struct sy_stack *s, uint64_t now)
{
	struct sy_stack_event e[64];
	unsigned count;

	while ((count = sy_stack_events(s, e, SY_ARRAY_LEN(e))) > 0) {
		for (unsigned i = 0; i < count; i++)
			if (!(e[i].cookie & LISTENER))
				__builtin_prefetch(&v->peer[(uint32_t)e[i].cookie], 1);
		for (unsigned i = 0; i < count; i++) {
			struct peer *p = &v->peer[(uint32_t)e[i].cookie];
			if (e[i].cookie & LISTENER)
				peers_accept(v, s, e[i].id, now);
			else if (p->id == e[i].id)
				peer_queue(v, p);
		}
	}
}

bool server_poll(struct server *v, struct sy_stack *s, uint64_t now)
{
	uint64_t busy = 0;

	events_take(v, s, now);
	for (unsigned n = 0; v->waiting && n < POLL_COUNT && busy < POLL_NS; n++) {
		struct peer *p = &v->peer[v->ready[v->first]];
		v->first = (v->first + 1) % v->o.connections;
		v->waiting--;
		p->queued = false;
		if (p->id != SY_STACK_NONE)
			peer_serve(v, s, p, &busy, now);
	}
	return v->waiting;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

struct server *server_new(const struct server_options *o)
{
	struct server *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->o = *o;
	v->peer = calloc(o->connections, sizeof(*v->peer));
	v->ready = calloc(o->connections, sizeof(*v->ready));
	if (!v->peer || !v->ready) {
		server_free(v);
		return NULL;
	}
	return v;
}

void server_free(struct server *v)
{
	if (!v)
		return;
	free(v->peer);
	free(v->ready);
	free(v);
}

int server_listen(struct server *v, struct sy_stack *s, struct sy_error *err)
{
	unsigned backlog = v->o.connections < BACKLOG ? v->o.connections : BACKLOG;
	sy_stack_id id;

	for (unsigned i = 0; i < v->o.locals; i++) {
		int rc = sy_stack_listen(s, &v->o.local[i], backlog, LISTENER, &id);
		if (rc)
			return sy_fail(err, -rc, "--serve: the stack cannot listen: %s",
			               strerror(-rc));
	}
	return 0;
}

const struct server_counts *server_counts(const struct server *v)
{
	return &v->counts;
}

uint32_t server_connected(const struct server *v)
{
	return __atomic_load_n(&v->connected, __ATOMIC_RELAXED);
}
