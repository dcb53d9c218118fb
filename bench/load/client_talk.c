// SPDX-License-Identifier: Apache-2.0
/* Sends requests and reads responses of a connection. */
#include <errno.h>

#include "client_state.h"

#define TOGETHER 4096u /* requests up to this length are sent by one call */

size_t talk_reader_size(enum protocol p)
{
	return p == PROTOCOL_RAW     ? sizeof(struct raw_reader)
	       : p == PROTOCOL_HTTP  ? sizeof(struct http_reader)
	       : p == PROTOCOL_REDIS ? sizeof(struct redis_reader)
	                             : 0;
}

static void *reader_of(struct client *c, uint32_t i)
{
	return c->reader + (size_t)i * c->reader_size;
}

void talk_begin(struct client *c, uint32_t i)
{
	c->conn[i].offset = c->conn[i].got = 0;
	if (c->reader_size)
		memset(reader_of(c, i), 0, c->reader_size);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Sends a part of a request from `offset` on. Returns as sy_stack_send(). */
static int64_t request_send(struct client *c, struct sy_stack *s, uint32_t i,
                            const struct request *r, uint64_t *whole, uint64_t now)
{
	char bytes[REQUEST_HEADER + TOGETHER];
	const struct conn *k = &c->conn[i];
	size_t header = request_header(c->o.mix, r, bytes);
	uint64_t rest = request_rest(c->o.mix, r), at = k->offset;

	*whole = header + rest;
	if (rest <= TOGETHER) {
		memcpy(bytes + header, pattern_from(0), rest);
		return sy_stack_send(s, k->id, bytes + at, *whole - at, 0, now);
	}
	if (at < header)
		return sy_stack_send(s, k->id, bytes + at, header - at, SY_STACK_MORE, now);
	at -= header;
	return sy_stack_send(s, k->id, pattern_from(at),
	                     rest - at < PATTERN_LEN ? rest - at : PATTERN_LEN, 0, now);
}

void talk_send(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now)
{
	struct conn *k = &c->conn[i];

	while (k->unsent) {
		struct request *r = conn_request(c, i, k->count - k->unsent);
		uint64_t whole;
		if (k->offset == 0)
			r->sent_ns = now;
		int64_t rc = request_send(c, s, i, r, &whole, now);
		if (rc == -EAGAIN)
			return; /* resumes when writable */
		if (rc < 0) {
			conn_lose(c, s, i, CLIENT_ERROR_reset, now);
			return;
		}
		k->offset += (uint32_t)rc;
		if (c->phase == CLIENT_MEASURING)
			CLIENT_COUNT(c, bytes_out, (uint64_t)rc);
		if (k->offset == whole) {
			k->offset = 0;
			k->unsent--;
			CLIENT_COUNT(c, sent, 1);
		}
	}
}

/* ---- answers --------------------------------------------------------------------------------- */

struct answer {
	bool done, right, closes;
};

static int64_t raw_feed(struct client *c, uint32_t i, const uint8_t *bytes, size_t len,
                        struct answer *a)
{
	struct raw_reader *reader = reader_of(c, i);
	const struct request *r = conn_request(c, i, 0);
	bool body = reader->have == RAW_HEADER;
	struct raw_header h;
	enum raw_got got;
	int64_t taken = raw_take(reader, RAW_ANSWER, bytes, len, &h, &got);

	if (taken < 0)
		return taken;
	if (body) {
		if (!pattern_is(bytes, (size_t)taken, c->conn[i].got))
			return -EPROTO;
		c->conn[i].got += (uint32_t)taken;
	} else if (got != RAW_MORE &&
	           (h.number != request_number(c->o.mix, r) || h.class != r->class ||
	            h.length != r->answer || h.type != c->o.mix->class[r->class].type)) {
		return -EPROTO;
	}
	a->done = got == RAW_MESSAGE_DONE;
	a->right = true;
	return taken;
}

static int64_t echo_feed(struct client *c, uint32_t i, const uint8_t *bytes, size_t len,
                         struct answer *a)
{
	const struct request *r = conn_request(c, i, 0);
	struct conn *k = &c->conn[i];
	size_t taken = r->length - k->got < len ? r->length - k->got : len;

	if (!pattern_is(bytes, taken, k->got))
		return -EPROTO;
	k->got += (uint32_t)taken;
	a->done = k->got == r->length;
	a->right = true;
	return (int64_t)taken;
}

static int64_t http_feed(struct client *c, uint32_t i, const uint8_t *bytes, size_t len,
                         struct answer *a)
{
	struct http_reader *reader = reader_of(c, i);
	int64_t taken = http_take(reader, bytes, len, &a->done);

	a->right = reader->status >= 200 && reader->status < 400;
	a->closes = reader->close;
	return taken;
}

static int64_t redis_feed(struct client *c, uint32_t i, const uint8_t *bytes, size_t len,
                          struct answer *a)
{
	struct redis_reader *reader = reader_of(c, i);
	int64_t taken = redis_take(reader, bytes, len, &a->done);

	a->right = !reader->wrong;
	return taken;
}

static int64_t answer_feed(struct client *c, uint32_t i, const uint8_t *bytes, size_t len,
                           struct answer *a)
{
	*a = (struct answer){0};
	switch (c->o.mix->protocol) {
	case PROTOCOL_RAW:
		return raw_feed(c, i, bytes, len, a);
	case PROTOCOL_ECHO:
		return echo_feed(c, i, bytes, len, a);
	case PROTOCOL_REDIS:
		return redis_feed(c, i, bytes, len, a);
	default:
		return http_feed(c, i, bytes, len, a);
	}
}

/* The server has sent FIN. */
static void stream_end(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now)
{
	struct conn *k = &c->conn[i];
	struct http_reader *reader = reader_of(c, i);

	if (c->o.mix->protocol == PROTOCOL_HTTP && k->count > k->unsent && http_end(reader))
		conn_answered(c, s, i, reader->status < 400, true, now);
	else if (k->count)
		conn_lose(c, s, i, CLIENT_ERROR_closed, now);
	else
		conn_renew(c, s, i, now);
}

void talk_receive(struct client *c, struct sy_stack *s, uint32_t i, uint64_t now)
{
	struct conn *k = &c->conn[i];
	sy_stack_id id = k->id;
	struct answer a;
	const void *bytes;
	int64_t len, taken;

	while (k->id == id && (len = sy_stack_peek(s, id, &bytes)) != -EAGAIN) {
		if (len == 0) {
			stream_end(c, s, i, now);
			return;
		}
		if (len < 0) {
			conn_lose(c, s, i, CLIENT_ERROR_reset, now);
			return;
		}
		/* Unsolicited: no part of a request was sent. */
		bool asked = k->count > k->unsent || (k->count && k->offset);
		taken = asked ? answer_feed(c, i, bytes, (size_t)len, &a) : -EPROTO;
		if (taken < 0) {
			conn_lose(c, s, i, CLIENT_ERROR_wrong, now);
			return;
		}
		if (c->phase == CLIENT_MEASURING)
			CLIENT_COUNT(c, bytes_in, (uint64_t)taken);
		sy_stack_consume(s, id, (size_t)taken, now);
		/* A response to an incomplete request: invalid, except that HTTP may refuse. */
		if (a.done && k->count == k->unsent)
			conn_lose(c, s, i, CLIENT_ERROR_wrong, now);
		else if (a.done)
			conn_answered(c, s, i, a.right, a.closes, now);
	}
}
