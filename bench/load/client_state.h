// SPDX-License-Identifier: Apache-2.0
/* What the files of a client share. */
#ifndef LOAD_CLIENT_STATE_H
#define LOAD_CLIENT_STATE_H

#include "http.h"
#include "load_client.h"
#include "redis.h"

#define NOWHERE UINT32_MAX

struct conn {
	sy_stack_id id; /* SY_STACK_NONE: there is none now */
	uint32_t pool_at;
	uint32_t issued;               /* requests since it was opened */
	uint32_t number;               /* of the next request */
	uint16_t first, count, unsent; /* the ring: its oldest request; all; those not sent whole */
	uint16_t parked;               /* closed loop: places that wait for the next connection */
	uint8_t open, tries;
	uint32_t offset;   /* sent of the first unsent request */
	uint32_t got;      /* of the answer that comes, behind its header */
	uint64_t since_ns; /* it connects */
};
_Static_assert(sizeof(struct conn) == 48, "a million of them");

struct client {
	struct client_options o;
	enum client_phase phase; /* writer: the worker. readers: relaxed */
	bool go, stop;           /* writers: others. reader: the worker, relaxed */
	bool ready;
	struct client_counts counts; /* as phase */
	uint32_t connected;          /* as phase */
	uint32_t connecting, settled;
	uint64_t under_way;
	int connect_error;

	struct conn *conn;
	struct request *request; /* depth for each connection */
	uint8_t *reader;         /* one for each connection, of this size: */
	size_t reader_size;
	uint32_t *pool; /* open loop: connections that can take a request */
	uint32_t pooled;

	/* What is drawn for one does not depend on when the others are: the same seed, the same
	 * requests. */
	struct chance requests, schedule, pick;
	struct arrivals arrivals;
	struct agenda agenda;
	struct backlog backlog;
	uint64_t issued;                                     /* requests that are measured */
	uint32_t opened_to, started_to, closed_to, swept_to; /* how far the connections are */
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
/* A connection that ends without a request is opened again. */
bool conn_stays(const struct client *c);
bool conn_has_place(const struct client *c, const struct conn *k);
void conn_open(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);
/* Its handshake is complete. */
void conn_opened(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);
void conn_end(struct client *c, struct sy_stack *s, uint32_t i, bool abort, uint64_t now);
/* One request, of its time. */
void conn_issue(struct client *c, struct sy_stack *s, uint32_t i, uint64_t due, uint64_t now);
/* It can take one more request. */
void conn_give(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);
/* The connection is no more, or must be; its requests are lost, of this cause. */
void conn_lose(struct client *c, struct sy_stack *s, uint32_t i, enum client_error cause,
               uint64_t now);
/* The server ends it as agreed: requests that it has not answered are asked on a new one. */
void conn_renew(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);
/* The oldest request has its answer. */
void conn_answered(struct client *c, struct sy_stack *s, uint32_t i, bool right, bool closes,
                   uint64_t now);

/* ---- client_talk.c --------------------------------------------------------------------------- */

size_t talk_reader_size(enum protocol p);
void talk_begin(struct client *c, uint32_t i);
/* Sends what it can. */
void talk_send(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);
/* Takes what has arrived. */
void talk_receive(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now);

#endif
