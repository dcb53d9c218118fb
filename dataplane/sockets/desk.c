// SPDX-License-Identifier: Apache-2.0
/*
 * Desks: requests of contexts for other threads.
 *
 *     owner: desk_lend() ──ring of the desk──▶ a thread: sy_tcp_desk_take()
 *     owner: desk_returns() ◀──ring of the owner── sy_tcp_request_give()
 *
 * A request is the owner's but between take and give, when it is the taker's; the rings order the
 * two. The taker touches no packet's reference, no socket and no stack.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ring.h>

#include "desk.h"

#define AWAY  4096 /* requests of a context that are lent at a time; a power of two */
#define SPINS 2000 /* looks at an empty desk before a thread sleeps */

/* Of a context that lends. */
struct lender {
	struct rte_ring *back;                  /* from takers */
	struct request *free;                   /* a list */
	struct request *sending, *sending_last; /* whose answers wait for space */
	unsigned away;                          /* lent, and not yet given back */
	bool room; /* a desk that was full has room again; set by takers; atomic */
};

struct sy_tcp_desk {
	struct rte_ring *ring;
	int event;         /* counts wake-ups */
	uint32_t sleepers; /* takers that sleep, or are about to; atomic */
	uint64_t waiting;  /* bit n: context n found no room; atomic */
	/* By their numbers; each writes its own, before it sets its bit. Atomic. */
	struct sy_tcp_context *context[CONTEXTS_MOST];
};

/* ---- rings ----------------------------------------------------------------------------------- */

static struct rte_ring *ring_make(unsigned least, unsigned flags)
{
	unsigned size = rte_align32pow2(least + 1);
	ssize_t bytes = rte_ring_get_memsize(size);
	struct rte_ring *r = bytes > 0 ? aligned_alloc(SY_CACHE_LINE, (size_t)bytes) : NULL;

	if (r && rte_ring_init(r, "requests", size, flags)) {
		free(r);
		return NULL;
	}
	return r;
}

int sy_tcp_desk_open(unsigned requests, struct sy_tcp_desk **out)
{
	struct sy_tcp_desk *desk = calloc(1, sizeof(*desk));

	if (!desk)
		return -ENOMEM;
	desk->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	desk->ring = requests > 0 && requests < 1u << 20 ? ring_make(requests, 0) : NULL;
	if (desk->event < 0 || !desk->ring) {
		sy_tcp_desk_close(desk);
		return -ENOMEM;
	}
	*out = desk;
	return 0;
}

void sy_tcp_desk_close(struct sy_tcp_desk *desk)
{
	struct request *r;

	if (!desk)
		return;
	while (desk->ring && rte_ring_dequeue(desk->ring, (void **)&r) == 0) {
		r->darc = NULL; /* is being closed as well */
		sy_tcp_request_give(&r->r, 0, 0);
	}
	if (desk->event >= 0)
		close(desk->event);
	free(desk->ring);
	free(desk);
}

/* The sleeper counts itself, then looks; this adds, then looks for sleepers. */
static void desk_wake(struct sy_tcp_desk *desk)
{
	const uint64_t one = 1;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&desk->sleepers, __ATOMIC_RELAXED) == 0)
		return;
	ssize_t put = write(desk->event, &one, sizeof(one));
	(void)put; /* cannot overflow: 2^64 is far */
}

/* A context that lends found the desk full: who takes something wakes it. It says so, then looks;
 * who takes makes room, then looks who waits. True: there is no room. */
static bool room_await(struct sy_tcp_desk *desk, struct sy_tcp_context *c)
{
	__atomic_store_n(&desk->context[c->number], c, __ATOMIC_RELAXED);
	__atomic_fetch_or(&desk->waiting, UINT64_C(1) << c->number, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return rte_ring_full(desk->ring);
}

static void room_tell(struct sy_tcp_desk *desk)
{
	uint64_t all;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&desk->waiting, __ATOMIC_RELAXED) == 0)
		return;
	all = __atomic_exchange_n(&desk->waiting, 0, __ATOMIC_ACQ_REL);
	for (; all; all &= all - 1) {
		struct sy_tcp_context *c =
		        __atomic_load_n(&desk->context[__builtin_ctzll(all)], __ATOMIC_RELAXED);
		__atomic_store_n(&c->lender->room, true, __ATOMIC_RELEASE);
		c->driver->wake(c->ctx);
	}
}

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

int request_make(struct sy_tcp_context *c, struct descriptor *d, epoll_data_t data,
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
	r->darc = NULL;
	d->lent = true;
	*out = r;
	return 0;
}

bool desk_lay(struct sy_tcp_desk *desk, struct request *r)
{
	while (rte_ring_enqueue(desk->ring, r))
		if (room_await(desk, r->owner))
			return false;
	desk_wake(desk);
	return true;
}

int desk_lend(struct sy_tcp_context *c, struct descriptor *d, epoll_data_t data,
              struct sy_tcp_desk *desk)
{
	struct request *r;
	int rc;

	/* Whoever has many sockets that are ready shall not make requests of all of them. */
	if (rte_ring_full(desk->ring) && !d->lent && has_news(c, d) && lender_of(c) &&
	    room_await(desk, c))
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

/* ---- the taker ------------------------------------------------------------------------------- */

static unsigned ring_take(struct sy_tcp_desk *desk, struct sy_tcp_request **r, unsigned most)
{
	unsigned count = rte_ring_dequeue_burst(desk->ring, (void **)r, most, NULL);

	for (unsigned i = 0; i < count; i++)
		((struct request *)r[i])->began = rte_rdtsc();
	if (count > 0)
		room_tell(desk);
	return count;
}

static int64_t time_ms(void)
{
	return (int64_t)(sy_clock_ns() / 1000000);
}

/* 0: there may be something; or -EINTR, -ETIMEDOUT. */
static int desk_sleep(struct sy_tcp_desk *desk, int64_t deadline_ms)
{
	struct pollfd p = {.fd = desk->event, .events = POLLIN};
	int64_t left = deadline_ms < 0 ? -1 : deadline_ms - time_ms();
	uint64_t count;
	int rc = 1;

	if (deadline_ms >= 0 && left <= 0)
		return -ETIMEDOUT;
	__atomic_add_fetch(&desk->sleepers, 1, __ATOMIC_SEQ_CST);
	if (rte_ring_empty(desk->ring))
		rc = poll(&p, 1, left > 3600000 ? 3600000 : (int)left);
	int error = rc < 0 ? -errno : 0;
	__atomic_sub_fetch(&desk->sleepers, 1, __ATOMIC_SEQ_CST);
	if (rc > 0 && p.revents && read(desk->event, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return -errno;
	return error;
}

int sy_tcp_desk_take(struct sy_tcp_desk *desk, struct sy_tcp_request **r, unsigned most,
                     int timeout_ms)
{
	int64_t deadline = timeout_ms < 0 ? -1 : time_ms() + timeout_ms;
	unsigned count = ring_take(desk, r, most);

	for (unsigned i = 0; count == 0 && timeout_ms != 0 && i < SPINS; i++) {
		rte_pause();
		count = ring_take(desk, r, most);
	}
	while (count == 0 && timeout_ms != 0) {
		int rc = desk_sleep(desk, deadline);
		count = ring_take(desk, r, most);
		if (rc && count == 0)
			return rc == -ETIMEDOUT ? 0 : rc;
	}
	return (int)count;
}

void *sy_tcp_request_room(struct sy_tcp_request *r, size_t len)
{
	struct request *q = (struct request *)r;

	if (len > q->room_size) {
		uint8_t *room = realloc(q->room, len);
		if (!room)
			return NULL;
		q->room = room;
		q->room_size = len;
	}
	return q->room;
}

void sy_tcp_request_give(struct sy_tcp_request *r, size_t used, size_t answer)
{
	struct request *q = (struct request *)r;
	struct sy_tcp_context *owner = q->owner;

	q->used = used < r->len ? used : r->len;
	q->answer = answer < q->room_size ? answer : q->room_size;
	q->sent = 0;
	q->took = rte_rdtsc() - q->began;
	rte_ring_enqueue(owner->lender->back, q); /* it has room for all that are away */
	owner->driver->wake(owner->ctx);
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
	if (r->darc)
		darc_back(r->darc, r);
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
