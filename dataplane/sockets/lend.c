// SPDX-License-Identifier: Apache-2.0
/*
 * The owner's side of requests: a context creates them of unread data, lends them to a work queue
 * (work_queue.c), and processes completed ones.
 *
 *     owner: request_lend() ─▶ work queue ─▶ a thread
 *     owner: requests_complete() ◀──ring of the owner── a thread: sy_tcp_request_complete()
 *
 * Between dequeue and completion a request belongs to the consumer; the rings order memory
 * accesses. The consumer accesses no packet's reference count, no socket and no stack.
 */
#include <errno.h>
#include <stdlib.h>

#include <rte_ring.h>

#include "work_queue.h"

#define MAX_LENT 4096 /* max. lent requests per context; a power of two */

/* State of a context that lends. */
struct lender {
	struct rte_ring *completed;             /* completed requests, from consumers */
	struct request *free;                   /* free list */
	struct request *sending, *sending_last; /* responses that wait for send space */
	unsigned lent_count;                    /* lent, not yet completed */
	/* A full work queue has space again; set by consumers; atomic. */
	bool has_space;
};

/* ---- lending --------------------------------------------------------------------------------- */

static struct lender *lender_of(struct sy_tcp_context *c)
{
	struct lender *l = c->lender;

	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->completed = ring_create(MAX_LENT, RING_F_SC_DEQ);
	if (!l->completed) {
		free(l);
		return NULL;
	}
	__atomic_store_n(&c->lender, l, __ATOMIC_RELEASE); /* pairs with requests_are_completed() */
	return l;
}

static struct request *request_alloc(struct lender *l)
{
	struct request *r = l->free;

	if (l->lent_count == MAX_LENT)
		return NULL;
	if (r)
		l->free = r->next;
	else
		r = calloc(1, sizeof(*r));
	l->lent_count += r != NULL;
	return r;
}

/* Doubles the capacity. */
static bool request_grow(struct request *r)
{
	int pieces = r->pieces ? 2 * r->pieces : PIECES;
	struct iovec *v = malloc((size_t)pieces * sizeof(*v));
	struct rte_mbuf **packets = malloc((size_t)pieces * sizeof(*packets));

	if (!v || !packets) {
		free(v);
		free(packets);
		return false;
	}
	free(r->v);
	free(r->packets);
	r->v = v;
	r->packets = packets;
	r->pieces = pieces;
	return true;
}

static void request_free(struct lender *l, struct request *r)
{
	r->next = l->free;
	l->free = r;
}

/* Frees a request that was not lent. */
static void request_cancel(struct lender *l, struct request *r)
{
	l->lent_count--;
	request_free(l, r);
}

static void packets_release(struct request *r)
{
	for (int i = 0; i < r->r.count; i++)
		rte_pktmbuf_free_seg(r->packets[i]);
	r->r.count = 0;
}

/* Includes more than the last incomplete request had, so that a long request becomes complete. */
static int request_fill(struct sy_tcp_context *c, const struct descriptor *d, struct request *r)
{
	const void *own = sy_stack_private_area(c->stack, d->id);
	int64_t len;

	if (!r->pieces && !request_grow(r))
		return -ENOMEM;
	while ((len = sy_stack_peek_vectors(c->stack, d->id, r->v, r->pieces)) > 0 &&
	       len <= d->partial)
		if (!request_grow(r)) /* has_news() found more */
			return -ENOMEM;
	if (len > 0)
		len = sy_stack_peek_referenced(c->stack, d->id, r->v, r->packets, r->pieces);
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

/* Returns true if there is more data than in the last incomplete request. */
static bool has_news(struct sy_tcp_context *c, const struct descriptor *d)
{
	struct sy_stack_info info;

	return sy_stack_info(c->stack, d->id, &info) == 0 && info.unread > d->partial;
}

/* Creates a request of the unread data and marks the socket as lent. Fails with -EAGAIN if there is
 * no new data, -ENOBUFS without capacity, or like a read. */
static int request_make(struct sy_tcp_context *c, struct descriptor *d, epoll_data_t data,
                        struct request **out)
{
	struct lender *l = lender_of(c);
	struct request *r;
	int rc;

	if (d->lent || !has_news(c, d))
		return -EAGAIN;
	r = l ? request_alloc(l) : NULL;
	if (!r)
		return -ENOBUFS;
	rc = request_fill(c, d, r);
	if (rc) {
		request_cancel(l, r);
		return rc;
	}
	r->r.data = data;
	d->lent = true;
	*out = r;
	return 0;
}

int request_lend(struct sy_tcp_context *c, struct descriptor *d, epoll_data_t data,
                 struct sy_tcp_queue *queue)
{
	struct request *r;
	int rc;

	/* A context with many ready sockets must not create requests of all of them. */
	if (work_queue_is_full(queue) && !d->lent && has_news(c, d) && lender_of(c) &&
	    work_queue_await(queue, c))
		return -ENOBUFS;
	rc = request_make(c, d, data, &r);
	if (rc || work_queue_enqueue(queue, r))
		return rc;
	d->lent = false;
	packets_release(r);
	request_cancel(c->lender, r);
	return -ENOBUFS;
}

int sy_tcp_lend(struct sy_tcp_context *c, int fd, epoll_data_t data, struct sy_tcp_queue *queue)
{
	int rc;
	struct descriptor *d = socket_of(c, fd, &rc);

	if (!d)
		return rc;
	if (d->phase != PHASE_CONNECTED)
		return -ENOTCONN;
	rc = request_lend(c, d, data, queue);
	return rc == -ENOBUFS ? -EAGAIN : rc;
}

/* ---- completion, by any thread --------------------------------------------------------------- */

void sy_tcp_request_complete(struct sy_tcp_request *r, size_t used, size_t answer)
{
	struct request *q = (struct request *)r;
	struct sy_tcp_context *owner = q->owner;

	q->used = used < r->len ? used : r->len;
	q->answer = answer < q->buffer_size ? answer : q->buffer_size;
	q->sent = 0;
	rte_ring_enqueue(owner->lender->completed, q); /* has space for all lent requests */
	owner->driver->wake(owner->ctx);
}

void lender_notify(struct sy_tcp_context *c)
{
	__atomic_store_n(&c->lender->has_space, true, __ATOMIC_RELEASE);
	c->driver->wake(c->ctx);
}

/* ---- processing of completed requests -------------------------------------------------------- */

/* Returns the socket, if it is still the lent one. */
static struct descriptor *request_socket(const struct sy_tcp_context *c, const struct request *r)
{
	struct descriptor *d = descriptor_of(c, r->fd);

	return d && d->kind == KIND_SOCKET && d->lent && d->id == r->id ? d : NULL;
}

/* Returns false if the send buffer is full. */
static bool answer_send(struct sy_tcp_context *c, struct request *r)
{
	while (r->sent < r->answer) {
		int64_t done = sy_stack_send(c->stack, r->id, r->buffer + r->sent,
		                             r->answer - r->sent, 0, context_now(c));
		if (done == -EAGAIN)
			return false;
		if (done < 0) /* reported by the socket's readiness */
			break;
		r->sent += (size_t)done;
	}
	return true;
}

/* Sends the response as far as possible. Returns true if the request is finished. */
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
	request_free(c->lender, r);
	return true;
}

static void request_finish(struct sy_tcp_context *c, struct request *r)
{
	c->lender->lent_count--;
	if (request_socket(c, r))
		sy_stack_consume(c->stack, r->id, r->used, context_now(c));
	packets_release(r);
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

bool requests_are_completed(const struct sy_tcp_context *c)
{
	const struct lender *l = __atomic_load_n(&c->lender, __ATOMIC_ACQUIRE);
	return l &&
	       (!rte_ring_empty(l->completed) || __atomic_load_n(&l->has_space, __ATOMIC_ACQUIRE));
}

/* If a work queue has space again, increments the counter of sy_tcp_news(). Then the application
 * polls its epoll instances, which pass waiting requests to the queue. */
static bool lending_resume(struct sy_tcp_context *c)
{
	if (!__atomic_load_n(&c->lender->has_space, __ATOMIC_ACQUIRE))
		return false;
	__atomic_store_n(&c->lender->has_space, false, __ATOMIC_RELAXED);
	c->news++;
	return true;
}

/* Retries responses that did not fit into send buffers, after an event of one of their sockets. */
static bool answers_resume(struct sy_tcp_context *c)
{
	struct lender *l = c->lender;
	struct request *r, *waiting = l->sending;

	if (!c->answers_pending)
		return false;
	c->answers_pending = false;
	l->sending = NULL;
	while ((r = waiting) != NULL) {
		waiting = r->next;
		if (!request_end(c, r))
			sending_append(l, r);
	}
	return true;
}

bool requests_complete(struct sy_tcp_context *c)
{
	struct lender *l = c->lender;
	bool any = answers_resume(c);
	struct request *r;

	any |= lending_resume(c);
	while (rte_ring_dequeue(l->completed, (void **)&r) == 0) {
		any = true;
		request_finish(c, r);
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
	c->answers_pending = true;
	requests_complete(c); /* its sockets are closed: sends nothing */
	if (l->lent_count > 0)
		sy_log(SY_LOG_WARN, "tcp",
		       "context %u ends with %u lent requests: their packets are lost; "
		       "complete all requests before sy_tcp_close()",
		       c->number, l->lent_count);
	while ((r = l->free) != NULL) {
		l->free = r->next;
		free(r->buffer);
		free(r->v);
		free(r->packets);
		free(r);
	}
	free(l->completed);
	free(l);
	c->lender = NULL;
}
