// SPDX-License-Identifier: Apache-2.0
/*
 * Segments that come by another worker's queue. A NIC keeps a connection on one queue, but a veth
 * follows the sender's hash, which changes after a time-out; and answers to connections that this
 * side opens come by any queue, as do routers' ICMP errors. Such a packet goes from worker to
 * worker until one knows its connection. Back at the first it is nobody's, and gets its reset
 * there.
 *
 * Strays are rare: each is one message of a socket.
 */
#include <errno.h>

#include <sy_seen.h>

#include "packets.h"
#include "real.h"

#define CHECK_NS  (100 * (uint64_t)1000) /* a busy worker looks into its inbox so often */
#define INBOX_MAX 512                    /* messages that lie there: a socket's buffer is full */

static struct {
	int inbox, outbox[MESSAGE_WORKERS];
	unsigned worker, workers;
	uint64_t looked_ns;
	struct sy_seen seen;
} resteer = {.inbox = -1, .workers = 1};

struct header {
	uint16_t first;   /* the worker that received it from its queue */
	uint16_t retired; /* 1: a worker has just ended its listener: Linux's TCP may have the
	                     connection by now, so it gets no reset */
};

void resteer_open(const struct message_answer *c, int inbox, const int *outbox)
{
	resteer.inbox = inbox;
	resteer.worker = c->worker;
	resteer.workers = c->workers;
	memcpy(resteer.outbox, outbox, c->workers * sizeof(*outbox));
}

void resteer_forget(void)
{
	for (unsigned i = 0; i < resteer.workers && resteer.inbox >= 0; i++)
		table_disown(resteer.outbox[i]);
	resteer.inbox = -1; /* its descriptor is among those to wait for */
	resteer.workers = 1;
}

/* The connection, as its peer's segments name it, that an ICMP error is about: a router on the path
 * sends it, which comes by any queue. */
static bool quote_read(const uint8_t *frame, const struct sy_view *v, struct sy_tuple *out)
{
	struct sy_quote q;

	if (sy_packet_parse_quote(frame, v, &q) != SY_DROP_NONE || q.proto != SY_PROTO_TCP)
		return false;
	*out = (struct sy_tuple){q.tuple.dst, q.tuple.src, q.tuple.dport, q.tuple.sport,
	                         SY_PROTO_TCP};
	return true;
}

enum whose { OURS, STRAY, PART };

/* Whatever begins a connection is taken where it comes. */
static enum whose whose_is(struct rte_mbuf *m, struct sy_view *v)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	struct sy_tuple tuple;

	if (sy_packet_parse(frame, m->data_len, v) != SY_DROP_NONE)
		return OURS;
	if (v->fragment != SY_FRAGMENT_NONE)
		return PART;
	if (v->proto != SY_PROTO_TCP)
		return quote_read(frame, v, &tuple) &&
		                       !sy_stack_has_connection(runner.stack, &tuple)
		               ? STRAY
		               : OURS;
	const struct sy_tcp *tcp = sy_packet_tcp(frame, v);
	if ((tcp->flags & (SY_TCP_SYN | SY_TCP_ACK)) == SY_TCP_SYN)
		return OURS;
	bool known = tcp->flags & SY_TCP_ACK
	                     ? sy_stack_expects_ack(runner.stack, &v->tuple, ntohl(tcp->ack))
	                     : sy_stack_has_connection(runner.stack, &v->tuple);
	return known ? OURS : STRAY;
}

static struct header own_header(void)
{
	return (struct header){.first = (uint16_t)resteer.worker};
}

/* What finds no place is lost, and comes again. */
static void pass_to(struct rte_mbuf *m, struct header h, uint32_t worker)
{
	struct iovec iov[] = {{&h, sizeof(h)}, {rte_pktmbuf_mtod(m, void *), m->data_len}};
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};

	REAL(sendmsg)(resteer.outbox[worker], &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	rte_pktmbuf_free(m);
}

static void pass_on(struct rte_mbuf *m, struct header h)
{
	pass_to(m, h, (resteer.worker + 1) % resteer.workers);
}

/* All fragments of a datagram come together at one worker, whichever queues they come by. */
static uint32_t part_worker(const struct sy_view *v)
{
	uint32_t h = v->fragment_id ^ v->tuple.src.w[3] ^ v->tuple.dst.w[3];

	return (h * 2654435761u >> 16) % resteer.workers;
}

/* Consumes the packet unless it is this worker's. h: as it came.
 * Returns NULL, or what the stack receives. */
static struct rte_mbuf *sort(struct rte_mbuf *m, struct header h, bool from_queue, uint64_t now_ns)
{
	struct sy_view v;
	enum whose whose = whose_is(m, &v);

	if (SY_UNLIKELY(whose == PART)) {
		uint32_t worker = part_worker(&v);
		if (worker != resteer.worker) {
			pass_to(m, own_header(), worker);
			return NULL;
		}
		m = sy_stack_reassemble(runner.stack, m, now_ns);
		if (!m)
			return NULL;
		whose = whose_is(m, &v);
		h = own_header();
		from_queue = true;
	}
	if (whose != STRAY)
		return m;
	h.retired |= sy_stack_has_retired(runner.stack, &v.tuple.dst, v.tuple.dport);
	if (from_queue || h.first != resteer.worker) {
		pass_on(m, h);
		return NULL;
	}
	if (!h.retired)
		return m;
	rte_pktmbuf_free(m);
	return NULL;
}

unsigned resteer_strays(struct rte_mbuf **m, unsigned count)
{
	unsigned kept = 0;

	if (resteer.workers == 1)
		return count;
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *one = sort(m[i], own_header(), true, runner.now_ns);
		if (one)
			m[kept++] = one;
	}
	return kept;
}

unsigned resteer_receive(struct rte_mbuf **m, unsigned max, uint64_t now_ns)
{
	unsigned count = 0, read = 0;

	if (resteer.workers == 1 || now_ns - resteer.looked_ns < CHECK_NS)
		return 0;
	resteer.looked_ns = now_ns;
	while (count < max) {
		struct rte_mbuf *one = rte_pktmbuf_alloc(device_pool());
		struct header h;
		if (!one)
			break;
		struct iovec iov[] = {{&h, sizeof(h)},
		                      {rte_pktmbuf_mtod(one, void *), rte_pktmbuf_tailroom(one)}};
		ssize_t n = REAL(readv)(resteer.inbox, iov, 2);
		if (n <= (ssize_t)sizeof(h)) {
			rte_pktmbuf_free(one);
			break;
		}
		read++;
		rte_pktmbuf_append(one, (uint16_t)((size_t)n - sizeof(h)));
		one = sort(one, h, false, now_ns);
		if (one)
			m[count++] = one;
	}
	sy_seen_burst(&resteer.seen, read, count == max ? INBOX_MAX : 0, now_ns);
	return count;
}

/* Since the last look nothing is known; it is not long ago. */
uint64_t resteer_seen_ns(void)
{
	return resteer.workers == 1 || resteer.seen.marked == 0 ? NEVER : resteer.seen.ns;
}
