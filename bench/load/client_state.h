// SPDX-License-Identifier: Apache-2.0
/* Internal state of a client. */
#ifndef LOAD_CLIENT_STATE_H
#define LOAD_CLIENT_STATE_H

#include "http.h"
#include "load_client.h"
#include "redis.h"

#define NOWHERE UINT32_MAX

struct conn {
	sy_stack_id id; /* SY_STACK_NONE: not connected */
	uint32_t pool_at;
	uint32_t issued;               /* requests since it was opened */
	uint32_t number;               /* of the next request */
	uint16_t first, count, unsent; /* ring of requests: oldest; total; not completely sent */
	uint16_t parked;               /* closed loop: capacity parked until the next connection */
	uint8_t open, tries;
	uint32_t offset;   /* bytes sent of the first unsent request */
	uint32_t got;      /* received bytes of the response's body */
	uint64_t since_ns; /* connecting since */
};
_Static_assert(sizeof(struct conn) == 48, "a million of them");

struct client {
	struct client_options o;
	enum client_phase phase; /* writer: the worker. readers: relaxed */
	bool go, stop;           /* writers: other threads. Reader: the worker, relaxed */
	bool ready;
	struct client_counts counts; /* as phase */
	uint32_t connected;          /* as phase */
	uint32_t connecting, settled;
	uint64_t under_way;
	int connect_error;

	struct conn *conn;
	struct request *request; /* depth for each connection */
	uint8_t *reader;         /* one per connection, of this size: */
	size_t reader_size;
	uint32_t *pool; /* open loop: connections with capacity */
	uint32_t pooled;

	/* Separate generators: the same seed yields the same requests, whatever the timing. */
	struct chance requests, schedule, pick;
	struct arrivals arrivals;
	struct agenda agenda;
	struct backlog backlog;
	uint64_t issued;                                     /* measured requests */
	uint32_t opened_to, started_to, closed_to, swept_to; /* progress over the connections */
	uint64_t swept_ns, phase_until_ns, measured_from_ns, measured_ns;
	struct client_class class[CLASSES_MAX];
};

static inline struct request *conn_request(struct client *c, uint32_t i, uint32_t at)
{
	struct conn *k = &c->conn[i];
	return &c->request[(size_t)i * c->o.depth + (k->first + at) % c->o.depth];
}

#define CLIENT_COUNT(c, name, n)                                                                   \
	__atomic_store_n(&(c)->counts.name, (c)->counts.name + (n), __ATOMIC_RELAXED)

enum client_error {
#define X(name, help) CLIENT_ERROR_##name,
	CLIENT_ERRORS(X)
#undef X
};

/* ---- client_conn.c --------------------------------------------------------------------------- */

bool client_is_closed_loop(const struct client *c);
/* Whether a request may begin now. */
bool client_may_issue(const struct client *c);
/* Returns true if a connection that ends without a request is reopened. */
bool conn_stays(const struct client *c);
bool conn_has_place(const struct client *c, const struct conn *k);
void conn_open(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);
/* The handshake is complete. */
void conn_opened(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);
void conn_end(struct client *c, struct sy_stack *s, uint32_t i, bool abort, uint64_t now);
/* Issues a request with this due time. */
void conn_issue(struct client *c, struct sy_stack *s, uint32_t i, uint64_t due, uint64_t now);
/* It can take one more request. */
void conn_give(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);
/* Ends the connection; its requests are lost with this cause. */
void conn_lose(struct client *c, struct sy_stack *s, uint32_t i, enum client_error cause,
               uint64_t now);
/* The server closes it as announced: unanswered requests are repeated on a new one. */
void conn_renew(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);
/* The oldest request is answered. */
void conn_answered(struct client *c, struct sy_stack *s, uint32_t i, bool right, bool closes,
                   uint64_t now);

/* ---- client_talk.c --------------------------------------------------------------------------- */

size_t talk_reader_size(enum protocol p);
void talk_begin(struct client *c, uint32_t i);
/* Sends as much as possible. */
void talk_send(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);
/* Reads received data. */
void talk_receive(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);

#endif
