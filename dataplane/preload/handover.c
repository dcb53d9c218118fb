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

#include "preload.h"
#include "real.h"

#define LOOK_NS    (100 * (uint64_t)1000) /* a busy worker looks into its inbox so often */
#define INBOX_MOST 512                    /* messages that lie there: a socket's buffer is full */

static struct {
	int inbox, outbox[MESSAGE_WORKERS];
	unsigned worker, workers;
	uint64_t looked_ns;
	struct sy_seen seen;
} handover = {.inbox = -1, .workers = 1};

struct header {
	uint32_t first; /* who got it from its queue */
};

void handover_open(const struct message_answer *c, int inbox, const int *outbox)
{
	handover.inbox = inbox;
	handover.worker = c->worker;
	handover.workers = c->workers;
	memcpy(handover.outbox, outbox, c->workers * sizeof(*outbox));
}

void handover_forget(void)
{
	for (unsigned i = 0; i < handover.workers && handover.inbox >= 0; i++)
		table_disown(handover.outbox[i]);
	handover.inbox = -1; /* its descriptor is among those to wait for */
	handover.workers = 1;
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

/* Whatever begins a connection is taken where it comes. */
static bool is_stray(struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	struct sy_tuple tuple;
	struct sy_view v;

	if (sy_packet_parse(frame, m->data_len, &v) != SY_DROP_NONE ||
	    v.fragment != SY_FRAGMENT_NONE)
		return false;
	if (v.proto != SY_PROTO_TCP)
		return quote_read(frame, &v, &tuple) && !sy_stack_knows(runner.stack, &tuple);
	const struct sy_tcp *tcp = sy_packet_tcp(frame, &v);
	if ((tcp->flags & (SY_TCP_SYN | SY_TCP_ACK)) == SY_TCP_SYN)
		return false;
	if (!(tcp->flags & SY_TCP_ACK))
		return !sy_stack_knows(runner.stack, &v.tuple);
	return !sy_stack_expects(runner.stack, &v.tuple, ntohl(tcp->ack));
}

/* What finds no place is lost, and comes again. */
static void pass_on(struct rte_mbuf *m, uint32_t first)
{
	struct header h = {first};
	struct iovec iov[] = {{&h, sizeof(h)}, {rte_pktmbuf_mtod(m, void *), m->data_len}};
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};

	REAL(sendmsg)
	(handover.outbox[(handover.worker + 1) % handover.workers], &message,
	 MSG_DONTWAIT | MSG_NOSIGNAL);
	rte_pktmbuf_free(m);
}

unsigned handover_give(struct rte_mbuf **m, unsigned count)
{
	unsigned kept = 0;

	if (handover.workers == 1)
		return count;
	for (unsigned i = 0; i < count; i++) {
		if (is_stray(m[i]))
			pass_on(m[i], handover.worker);
		else
			m[kept++] = m[i];
	}
	return kept;
}

unsigned handover_take(struct rte_mbuf **m, unsigned most, uint64_t now_ns)
{
	unsigned count = 0, read = 0;

	if (handover.workers == 1 || now_ns - handover.looked_ns < LOOK_NS)
		return 0;
	handover.looked_ns = now_ns;
	while (count < most) {
		struct rte_mbuf *one = rte_pktmbuf_alloc(device_pool());
		struct header h;
		if (!one)
			break;
		struct iovec iov[] = {{&h, sizeof(h)},
		                      {rte_pktmbuf_mtod(one, void *), rte_pktmbuf_tailroom(one)}};
		ssize_t n = REAL(readv)(handover.inbox, iov, 2);
		if (n <= (ssize_t)sizeof(h)) {
			rte_pktmbuf_free(one);
			break;
		}
		read++;
		rte_pktmbuf_append(one, (uint16_t)((size_t)n - sizeof(h)));
		if (h.first != handover.worker && is_stray(one))
			pass_on(one, h.first);
		else
			m[count++] = one;
	}
	sy_seen_burst(&handover.seen, read, count == most ? INBOX_MOST : 0, now_ns);
	return count;
}

/* Since the last look nothing is known; it is not long ago. */
uint64_t handover_seen_ns(void)
{
	return handover.workers == 1 || handover.seen.marked == 0 ? NEVER : handover.seen.ns;
}
