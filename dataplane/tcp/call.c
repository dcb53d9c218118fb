// SPDX-License-Identifier: Apache-2.0
/* Socket-like calls of the application (RFC 9293 3.9.1). */
#include <errno.h>

#include "call.h"
#include "emit.h"
#include "priority.h"
#include "timer.h"
#include "window.h"

#define TIME_WAIT_MIN_MS 1000

/* ---- open ------------------------------------------------------------------------------------ */

static int stack_listen(struct sy_stack *s, const struct sy_stack_endpoint *local, unsigned backlog,
                        uint64_t cookie, bool shared, sy_stack_id *out)
{
	struct listener *l;

	if (local->port == 0)
		return -EINVAL;
	if (listener_conflicts(s, local, shared))
		return -EADDRINUSE;
	l = listener_add(s, local);
	if (!l)
		return -ENOMEM;
	l->shared = shared;
	l->backlog = backlog ? backlog : 1;
	l->cookie = cookie;
	*out = listener_id(s, l);
	return 0;
}

int sy_stack_listen(struct sy_stack *s, const struct sy_stack_endpoint *local, unsigned backlog,
                    uint64_t cookie, sy_stack_id *out)
{
	return stack_listen(s, local, backlog, cookie, false, out);
}

int sy_stack_listen_shared(struct sy_stack *s, const struct sy_stack_endpoint *local,
                           unsigned backlog, uint64_t cookie, sy_stack_id *out)
{
	return stack_listen(s, local, backlog, cookie, true, out);
}

int sy_stack_accept(struct sy_stack *s, sy_stack_id listener, uint64_t cookie,
                    struct sy_stack_endpoint *peer, sy_stack_id *out)
{
	struct listener *l = listener_of(s, listener);
	struct connection *c;
	uint32_t ready;

	if (!l)
		return -EBADF;
	c = list_first(s, &l->ready);
	if (!c)
		return -EAGAIN;
	list_remove(s, &l->ready, LIST_ROLE, c);
	c->listener = LISTENER_NONE;
	c->flags |= C_OWNED;
	c->cookie = cookie;
	if (peer)
		*peer = (struct sy_stack_endpoint){c->tuple.src, c->tuple.sport};
	*out = connection_id(s, c);
	ready = sy_stack_ready(s, *out);
	if (ready)
		connection_notify(s, c, ready);
	return 0;
}

/* Returns true if a new connection may replace this one in TIME-WAIT, like Linux' tcp_tw_reuse: its
 * timestamps are later, so PAWS drops old duplicates (RFC 6191 2). Linux' one second lets a peer
 * retransmit a FIN whose ACK was lost. */
static bool time_wait_yields(const struct sy_stack *s, const struct connection *c)
{
	return c->state == SY_STACK_TIME_WAIT && !(c->flags & C_OWNED) && c->flags & C_TIMESTAMPS &&
	       s->now_ms - c->ts_recent_ms > TIME_WAIT_MIN_MS;
}

/* Returns true if the tuple is free; *old: the connection in TIME-WAIT to replace, or NULL. */
static bool tuple_is_free(struct sy_stack *s, const struct sy_tuple *t, struct connection **old)
{
	*old = connection_find(s, t);
	return !*old || time_wait_yields(s, *old);
}

/* Returns a free ephemeral port, starting at a random offset (RFC 6056 3.3.1); 0: none. */
static uint16_t port_find(struct sy_stack *s, struct sy_tuple *t, struct connection **old)
{
	uint32_t first = s->options.port_first, count = s->options.port_last - first + 1u;
	uint32_t at = (uint32_t)sy_hash_tuple(&s->hash_key, t) + s->port_cursor;

	for (uint32_t i = 0; i < count; i++, at++) {
		t->dport = rte_cpu_to_be_16((uint16_t)(first + at % count));
		if (tuple_is_free(s, t, old) &&
		    (!s->options.owns || s->options.owns(s->options.owner, t))) {
			s->port_cursor += i + 1;
			return t->dport;
		}
	}
	return 0;
}

/* Returns an ISN beyond the sequence numbers of the replaced connection (RFC 9293 3.4.2). */
static uint32_t iss_beyond(const struct sy_stack *s, const struct sy_tuple *t,
                           const struct connection *old)
{
	uint32_t iss = connection_iss(s, t);

	return old && !seq_after(iss, old->snd_nxt + UINT16_MAX) ? old->snd_nxt + UINT16_MAX + 2
	                                                         : iss;
}

int sy_stack_connect(struct sy_stack *s, const struct sy_stack_endpoint *local,
                     const struct sy_stack_endpoint *peer, uint64_t cookie, uint64_t now_ns,
                     sy_stack_id *out)
{
	struct sy_tuple t = {.src = peer->addr,
	                     .dst = local->addr,
	                     .sport = peer->port,
	                     .dport = local->port,
	                     .proto = SY_PROTO_TCP};
	struct connection *c, *old = NULL;
	uint32_t iss;

	stack_time(s, now_ns);
	if (peer->port == 0 || sy_addr_is_v4(&t.src) != sy_addr_is_v4(&t.dst))
		return -EINVAL;
	if (t.dport == 0 && port_find(s, &t, &old) == 0)
		return -EADDRNOTAVAIL;
	if (s->options.owns && !s->options.owns(s->options.owner, &t))
		return -EADDRNOTAVAIL;
	if (local->port && !tuple_is_free(s, &t, &old))
		return -EADDRINUSE;
	iss = iss_beyond(s, &t, old);
	if (old) {
		s->counters.time_wait_reused++;
		connection_end(s, old, 0);
	}
	c = connection_make(s, &t);
	if (!c)
		return -ENOBUFS;
	c->flags |= C_OWNED;
	c->cookie = cookie;
	c->state = SY_STACK_SYN_SENT;
	connection_begin(s, c, iss);
	s->counters.opened++;
	connection_schedule(s, c);
	*out = connection_id(s, c);
	return 0;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Result of a call on an ended connection: its error once, then `otherwise`. */
static int64_t ended(struct connection *c, int64_t otherwise)
{
	int error = c->flags & C_SOFT_ERROR ? 0 : c->error;

	if (!error)
		return otherwise;
	c->error = 0;
	return -error;
}

/* Registers for SY_STACK_WRITABLE. */
static void space_wait(struct sy_stack *s, struct connection *c)
{
	c->flags |= C_WANTS_SPACE;
	if (s->chunks.used == s->chunks.count && !list_has(s, LIST_ROLE, c))
		list_append(s, &s->space, LIST_ROLE, c);
}

int64_t send_check(struct sy_stack *s, struct connection *c, size_t len)
{
	uint32_t limit, held;

	if (!c)
		return -EBADF;
	if (c->state == SY_STACK_SYN_SENT || c->state == SY_STACK_SYN_RECEIVED) {
		c->flags |= C_WANTS_SPACE;
		return -EAGAIN;
	}
	if (!connection_sends(c))
		return ended(c, -EPIPE);
	limit = window_send_limit(s, c);
	held = c->unsent.end - c->snd_una;
	if (len == 0)
		return 0;
	if (held >= limit) {
		space_wait(s, c);
		return -EAGAIN;
	}
	return (int64_t)(len < limit - held ? len : limit - held);
}

int64_t send_added(struct sy_stack *s, struct connection *c, size_t done, size_t len, int flags)
{
	if (done < len)
		space_wait(s, c);
	if (done == 0 && len > 0)
		return -EAGAIN;
	if (flags & SY_STACK_OOB && done == len) {
		c->urgent_out = c->unsent.end;
		c->flags |= C_URGENT_OUT;
	}
	if (flags & SY_STACK_MORE)
		connection_cork(c, c->unsent.end - (uint32_t)done);
	c->flags = (c->flags & ~(uint32_t)C_MORE) | (flags & SY_STACK_MORE ? C_MORE : 0);
	connection_schedule(s, c);
	return (int64_t)done;
}

int64_t sy_stack_send(struct sy_stack *s, sy_stack_id id, const void *bytes, size_t len, int flags,
                      uint64_t now_ns)
{
	struct connection *c = connection_of(s, id);
	int64_t space;

	stack_time(s, now_ns);
	space = send_check(s, c, len);
	if (space < 0)
		return space;
	return send_added(s, c, send_buffer_add(&c->unsent, &s->chunks, bytes, (size_t)space), len,
	                  flags);
}

/* Returns 1 if there is data, 0 at EOF, or an error. */
static int64_t readable(struct connection *c)
{
	if (c->received.bytes > 0)
		return 1;
	if (c->flags & C_FIN_ARRIVED)
		return 0;
	if (c->state == SY_STACK_CLOSED)
		return ended(c, 0);
	return c->state == SY_STACK_SYN_SENT || c->state == SY_STACK_SYN_RECEIVED ? -ENOTCONN
	                                                                          : -EAGAIN;
}

/* Sequence number of the next byte to read. */
static uint32_t read_seq(const struct connection *c)
{
	return c->rcv_nxt - !!(c->flags & C_FIN_ARRIVED) - c->received.bytes;
}

/* Limits a read to the bytes before the urgent mark; at the mark, all. */
static size_t until_mark(const struct connection *c, size_t len)
{
	uint32_t before = c->urgent_in - 1 - read_seq(c);

	return c->flags & C_URGENT_IN && before > 0 && before < len ? before : len;
}

static size_t bytes_read(struct sy_stack *s, struct connection *c, void *bytes, size_t len)
{
	size_t done = receive_buffer_read(&c->received, bytes, len, &s->receive_queued, &s->spent);

	if (SY_UNLIKELY(s->scarce))
		spent_free(&s->spent);
	if (SY_UNLIKELY(s->ranked != NULL))
		priority_read(s, c);
	if (c->flags & C_URGENT_IN && !sy_seq_before(read_seq(c), c->urgent_in))
		c->flags &= ~(uint32_t)C_URGENT_IN;
	window_read(s, c);
	return done;
}

int sy_stack_at_mark(struct sy_stack *s, sy_stack_id id)
{
	const struct connection *c = connection_of(s, id);

	return !c ? -EBADF : c->flags & C_URGENT_IN && read_seq(c) == c->urgent_in - 1;
}

int64_t sy_stack_receive_bytes(struct sy_stack *s, sy_stack_id id, void *bytes, size_t len,
                               uint64_t now_ns)
{
	struct connection *c = connection_of(s, id);
	int64_t can;

	stack_time(s, now_ns);
	if (!c)
		return -EBADF;
	can = readable(c);
	if (can <= 0)
		return can;
	return (int64_t)bytes_read(s, c, bytes, until_mark(c, len));
}

uint32_t sy_stack_unread(struct sy_stack *s, sy_stack_id id)
{
	const struct connection *c = connection_of(s, id);

	return c ? c->received.bytes : 0;
}

int64_t sy_stack_peek(struct sy_stack *s, sy_stack_id id, const void **bytes)
{
	struct connection *c = connection_of(s, id);
	int64_t can;

	if (!c)
		return -EBADF;
	can = readable(c);
	if (can <= 0)
		return can;
	*bytes = rte_pktmbuf_mtod(c->received.first, const void *);
	return (int64_t)until_mark(c, c->received.first->data_len);
}

void sy_stack_consume(struct sy_stack *s, sy_stack_id id, size_t len, uint64_t now_ns)
{
	struct connection *c = connection_of(s, id);

	stack_time(s, now_ns);
	if (!c)
		return;
	bytes_read(s, c, NULL, len);
}

/* ---- close ----------------------------------------------------------------------------------- */

/* Queues a FIN behind the last byte. */
static void send_end(struct sy_stack *s, struct connection *c)
{
	if (c->flags & C_FIN_WANTED)
		return;
	c->flags |= C_FIN_WANTED;
	if (c->state == SY_STACK_ESTABLISHED)
		c->state = SY_STACK_FIN_WAIT_1;
	else if (c->state == SY_STACK_CLOSE_WAIT)
		c->state = SY_STACK_LAST_ACK;
	connection_schedule(s, c);
}

int sy_stack_shutdown(struct sy_stack *s, sy_stack_id id, uint64_t now_ns)
{
	struct connection *c = connection_of(s, id);

	stack_time(s, now_ns);
	if (!c)
		return -EBADF;
	if (c->state == SY_STACK_CLOSED || c->state == SY_STACK_SYN_SENT)
		return -ENOTCONN;
	send_end(s, c);
	return 0;
}

void connection_disown(struct sy_stack *s, struct connection *c)
{
	c->flags &= ~(uint32_t)C_OWNED;
	event_leave(s, c);
	c->events = 0;
}

static void connection_reset(struct sy_stack *s, struct connection *c)
{
	/* RFC 9293 3.10.5: no reset in SYN-SENT or after both FINs. */
	if (c->state != SY_STACK_SYN_SENT && c->state != SY_STACK_TIME_WAIT &&
	    c->state != SY_STACK_CLOSING && c->state != SY_STACK_LAST_ACK)
		emit_reset(s, c);
	connection_end(s, c, 0);
}

int sy_stack_abort(struct sy_stack *s, sy_stack_id id, uint64_t now_ns)
{
	struct connection *c = connection_of(s, id);

	stack_time(s, now_ns);
	if (!c)
		return -EBADF;
	connection_disown(s, c);
	if (c->state == SY_STACK_CLOSED)
		connection_free(s, c);
	else
		connection_reset(s, c);
	return 0;
}

int sy_stack_close(struct sy_stack *s, sy_stack_id id, uint64_t now_ns)
{
	struct listener *l = listener_of(s, id);
	struct connection *c = connection_of(s, id);

	stack_time(s, now_ns);
	if (l)
		listener_close(s, l);
	if (!c)
		return l ? 0 : -EBADF;
	if (c->state == SY_STACK_SYN_SENT || c->received.bytes > 0 || c->flags & C_LINGER_ABORT ||
	    c->state == SY_STACK_CLOSED)
		return sy_stack_abort(s, id, now_ns);
	connection_disown(s, c);
	send_end(s, c);
	if (c->state == SY_STACK_FIN_WAIT_2)
		timer_set(s, c, TIMER_END, FIN_WAIT_2_MS);
	else if (c->state != SY_STACK_TIME_WAIT && c->state != SY_STACK_SYN_RECEIVED)
		connection_orphan(s, c);
	return 0;
}

int sy_stack_error(struct sy_stack *s, sy_stack_id id)
{
	struct connection *c = connection_of(s, id);
	int error;

	if (!c)
		return EBADF;
	error = c->error;
	c->error = 0;
	c->flags &= ~(uint32_t)C_SOFT_ERROR;
	return error;
}

uint32_t sy_stack_ready(struct sy_stack *s, sy_stack_id id)
{
	struct listener *l = listener_of(s, id);
	struct connection *c = connection_of(s, id);
	uint32_t ready = 0;

	if (l)
		return l->ready.count > 0 ? SY_STACK_READABLE : 0;
	if (!c || c->state == SY_STACK_SYN_SENT || c->state == SY_STACK_SYN_RECEIVED)
		return 0;
	if (c->state == SY_STACK_CLOSED || c->state == SY_STACK_TIME_WAIT)
		ready |= SY_STACK_HANG_UP | SY_STACK_READABLE;
	if (c->state == SY_STACK_CLOSED)
		ready |= SY_STACK_WRITABLE; /* the call will return the error */
	if (c->error && !(c->flags & C_SOFT_ERROR))
		ready |= SY_STACK_ERROR;
	if (c->received.bytes > 0 || c->flags & C_FIN_ARRIVED)
		ready |= SY_STACK_READABLE;
	if (c->flags & C_FIN_ARRIVED)
		ready |= SY_STACK_PEER_DONE;
	if (c->flags & C_URGENT_IN &&
	    !seq_after(c->urgent_in, c->rcv_nxt - !!(c->flags & C_FIN_ARRIVED)))
		ready |= SY_STACK_URGENT; /* the urgent byte has arrived */
	if (connection_sends(c)) {
		if (c->unsent.end - c->snd_una < window_send_limit(s, c) &&
		    s->chunks.used < s->chunks.count)
			ready |= SY_STACK_WRITABLE;
		else
			space_wait(s, c);
	}
	return ready;
}

void sy_stack_set_cookie(struct sy_stack *s, sy_stack_id id, uint64_t cookie)
{
	struct listener *l = listener_of(s, id);
	struct connection *c = connection_of(s, id);

	if (l)
		l->cookie = cookie;
	if (c)
		c->cookie = cookie;
}
