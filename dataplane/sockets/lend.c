// SPDX-License-Identifier: Apache-2.0
/*
 * Requests, as their owner sees them: a context makes them of what is unread, lends them to a desk
 * (desk.c), and gets them back.
 *
 *     owner: desk_lend() ─▶ desk ─▶ a thread
 *     owner: desk_returns() ◀──ring of the owner── a thread: sy_tcp_request_give()
 *
 * A request is the owner's but between take and give, when it is the taker's; the rings order the
 * two. The taker touches no packet's reference, no socket and no stack.
 */
#include <errno.h>
#include <stdlib.h>

#include <rte_ring.h>

#include "desk.h"

#define AWAY 4096 /* requests of a context that are lent at a time; a power of two */

/* Of a context that lends. */
struct lender {
	struct rte_ring *back;                  /* from takers */
	struct request *free;                   /* a list */
	struct request *sending, *sending_last; /* whose answers wait for space */
	unsigned away;                          /* lent, and not yet given back */
	bool room; /* a desk that was full has room again; set by takers; atomic */
};

/* ---- the owner lends ------------------------------------------------------------------------- */

static struct lender *lender_of(struct sy_tcp_context *c)
{
	struct lender *l = c->lender;

	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->back = ring_make(AWAY, RING_F_SC_DEQ);
	if (!l->back) {
		free(l);
		return NULL;
	}
	__atomic_store_n(&c->lender, l, __ATOMIC_RELEASE); /* desk_has_returns() */
	return l;
}

static struct request *request_take(struct lender *l)
{
	struct request *r = l->free;

	if (l->away == AWAY)
		return NULL;
	if (r)
		l->free = r->next;
	else
		r = calloc(1, sizeof(*r));
	l->away += r != NULL;
	return r;
}

/* Room for twice as many packets. */
static bool request_grow(struct request *r)
{
	int pieces = r->pieces ? 2 * r->pieces : PIECES;
	struct iovec *v = malloc((size_t)pieces * sizeof(*v));
	struct rte_mbuf **held = malloc((size_t)pieces * sizeof(*held));

	if (!v || !held) {
		free(v);
		free(held);
		return false;
	}
	free(r->v);
	free(r->held);
	r->v = v;
	r->held = held;
	r->pieces = pieces;
	return true;
}

static void request_put(struct lender *l, struct request *r)
{
	r->next = l->free;
	l->free = r;
}

/* It was never lent. */
static void request_drop(struct lender *l, struct request *r)
{
	l->away--;
	request_put(l, r);
}

static void packets_let_go(struct request *r)
{
	for (int i = 0; i < r->r.count; i++)
		rte_pktmbuf_free_seg(r->held[i]);
	r->r.count = 0;
}

/* More than came back unused, so that a long request is whole at last. */
static int request_fill(struct sy_tcp_context *c, const struct descriptor *d, struct request *r)
{
	const void *own = sy_stack_own(c->stack, d->id);
	int64_t len;

	if (!r->pieces && !request_grow(r))
		return -ENOMEM;
	while ((len = sy_stack_look(c->stack, d->id, r->v, r->pieces)) > 0 && len <= d->partial)
		if (!request_grow(r)) /* has_news(): there is more */
			return -ENOMEM;
	if (len > 0)
		len = sy_stack_hold(c->stack, d->id, r->v, r->held, r->pieces);
	if (len <= 0)
		return len < 0 ? (int)len : -EAGAIN;
	r->owner = c;
	r->fd = descriptor_number(c, d);
	r->id = d->id;
	r->r = (struct sy_tcp_request){
	        .v = r->v, .len = (size_t)len, .level = sy_stack_level(c->stack, d->id)};
	if (own)
		r->r.own = memcpy(r->own, own, sizeof(r->own));
	for (size_t done = 0; done < r->r.len; done += r->v[r->r.count++].iov_len)
		;
	return 0;
}

/* Has more come than what was lent last and is no whole request? */
static bool has_news(struct sy_tcp_context *c, const struct descriptor *d)
{
	struct sy_stack_info info;

	return sy_stack_info(c->stack, d->id, &info) == 0 && info.unread > d->partial;
}

/* Makes a request of what is unread, which then is lent. 0; -EAGAIN: there is nothing new;
 * -ENOBUFS: no place; or as a read. */
static int request_make(struct sy_tcp_context *c, struct descriptor *d, epoll_data_t data,
                        struct request **out)
{
	struct lender *l = lender_of(c);
	struct request *r;
	int rc;

	if (d->lent || !has_news(c, d))
		return -EAGAIN;
	r = l ? request_take(l) : NULL;
	if (!r)
		return -ENOBUFS;
	rc = request_fill(c, d, r);
	if (rc) {
		request_drop(l, r);
		return rc;
	}
	r->r.data = data;
	d->lent = true;
	*out = r;
	return 0;
}

int desk_lend(struct sy_tcp_context *c, struct descriptor *d, epoll_data_t data,
              struct sy_tcp_desk *desk)
{
	struct request *r;
	int rc;

	/* Whoever has many sockets that are ready shall not make requests of all of them. */
	if (desk_is_full(desk) && !d->lent && has_news(c, d) && lender_of(c) && desk_await(desk, c))
		return -ENOBUFS;
	rc = request_make(c, d, data, &r);
	if (rc || desk_lay(desk, r))
		return rc;
	d->lent = false;
	packets_let_go(r);
	request_drop(c->lender, r);
	return -ENOBUFS;
}

int sy_tcp_lend(struct sy_tcp_context *c, int fd, epoll_data_t data, struct sy_tcp_desk *desk)
{
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	if (d->phase != PHASE_CONNECTED)
		return -ENOTCONN;
	rc = desk_lend(c, d, data, desk);
	return rc == -ENOBUFS ? -EAGAIN : rc;
}

/* ---- any thread tells the owner -------------------------------------------------------------- */

void sy_tcp_request_give(struct sy_tcp_request *r, size_t used, size_t answer)
{
	struct request *q = (struct request *)r;
	struct sy_tcp_context *owner = q->owner;

	q->used = used < r->len ? used : r->len;
	q->answer = answer < q->room_size ? answer : q->room_size;
	q->sent = 0;
	rte_ring_enqueue(owner->lender->back, q); /* it has room for all that are away */
	owner->driver->wake(owner->ctx);
}

void lender_room(struct sy_tcp_context *c)
{
	__atomic_store_n(&c->lender->room, true, __ATOMIC_RELEASE);
	c->driver->wake(c->ctx);
}

/* ---- the owner gets it back ------------------------------------------------------------------ */

/* The socket, if it is still the one that was lent. */
static struct descriptor *request_socket(const struct sy_tcp_context *c, const struct request *r)
{
	struct descriptor *d = descriptor_of(c, r->fd);

	return d && d->kind == KIND_SOCKET && d->lent && d->id == r->id ? d : NULL;
}

/* False: the send buffer is full. */
static bool answer_send(struct sy_tcp_context *c, struct request *r)
{
	while (r->sent < r->answer) {
		int64_t done = sy_stack_send(c->stack, r->id, r->room + r->sent,
		                             r->answer - r->sent, 0, context_now(c));
		if (done == -EAGAIN)
			return false;
		if (done < 0) /* the socket's readiness tells of it */
			break;
		r->sent += (size_t)done;
	}
	return true;
}

/* Sends what it can. True: the request is over. */
static bool request_end(struct sy_tcp_context *c, struct request *r)
{
	struct descriptor *d = request_socket(c, r);

	if (d && !answer_send(c, r))
		return false;
	if (d) {
		struct sy_stack_info info;
		d->lent = false;
		d->partial =
		        r->used || sy_stack_info(c->stack, r->id, &info) ? 0 : (uint32_t)r->r.len;
		descriptor_news(c, d);
	}
	request_put(c->lender, r);
	return true;
}

static void request_back(struct sy_tcp_context *c, struct request *r)
{
	c->lender->away--;
	if (request_socket(c, r))
		sy_stack_consume(c->stack, r->id, r->used, context_now(c));
	packets_let_go(r);
}

static void sending_append(struct lender *l, struct request *r)
{
	r->next = NULL;
	if (l->sending)
		l->sending_last->next = r;
	else
		l->sending = r;
	l->sending_last = r;
}

bool desk_has_returns(const struct sy_tcp_context *c)
{
	const struct lender *l = __atomic_load_n(&c->lender, __ATOMIC_ACQUIRE);
	return l && (!rte_ring_empty(l->back) || __atomic_load_n(&l->room, __ATOMIC_ACQUIRE));
}

/* A desk has room: whoever waits for news asks its instances again, and those lend. */
static bool room_goes_on(struct sy_tcp_context *c)
{
	if (!__atomic_load_n(&c->lender->room, __ATOMIC_ACQUIRE))
		return false;
	__atomic_store_n(&c->lender->room, false, __ATOMIC_RELAXED);
	c->news++;
	return true;
}

/* Clients that do not read cost nothing, until there is news of one. */
static bool answers_go_on(struct sy_tcp_context *c)
{
	struct lender *l = c->lender;
	struct request *r, *waiting = l->sending;

	if (!c->answers_go_on)
		return false;
	c->answers_go_on = false;
	l->sending = NULL;
	while ((r = waiting) != NULL) {
		waiting = r->next;
		if (!request_end(c, r))
			sending_append(l, r);
	}
	return true;
}

bool desk_returns(struct sy_tcp_context *c)
{
	struct lender *l = c->lender;
	bool any = answers_go_on(c);
	struct request *r;

	any |= room_goes_on(c);
	while (rte_ring_dequeue(l->back, (void **)&r) == 0) {
		any = true;
		request_back(c, r);
		if (!request_end(c, r))
			sending_append(l, r);
	}
	return any;
}

void lender_free(struct sy_tcp_context *c)
{
	struct lender *l = c->lender;
	struct request *r;

	if (!l)
		return;
	c->answers_go_on = true;
	desk_returns(c); /* its sockets are closed: nothing is sent */
	if (l->away > 0)
		sy_log(SY_LOG_WARN, "tcp",
		       "context %u ends while %u of its requests are away: their packets are lost; "
		       "give all requests back before sy_tcp_close()",
		       c->number, l->away);
	while ((r = l->free) != NULL) {
		l->free = r->next;
		free(r->room);
		free(r->v);
		free(r->held);
		free(r);
	}
	free(l->back);
	free(l);
	c->lender = NULL;
}
