// SPDX-License-Identifier: Apache-2.0
/*
 * Segments that arrive by another worker's queue. A NIC keeps a connection on one queue. A veth
 * follows the sender's hash, which changes after a retransmission time-out. Replies to connections
 * that this side opens arrive by any queue, and so do routers' ICMP errors. Such a packet goes from
 * worker to worker until one has its connection. Back at the first worker it belongs to no
 * connection, and the first worker answers with the reset.
 *
 * Strays are rare: each is one message of a Unix socket.
 */
#include <errno.h>

#include <sy_seen.h>

#include "packets.h"
#include "real.h"

#define CHECK_NS  (100 * (uint64_t)1000) /* how often a busy worker reads its inbox */
#define INBOX_MAX 512                    /* pending messages at most: the socket's buffer is full */

static struct {
	int inbox, outbox[MESSAGE_WORKERS];
	unsigned worker, workers;
	uint64_t checked_ns;
	struct sy_seen seen;
} resteer = {.inbox = -1, .workers = 1};

struct header {
	uint16_t first;   /* the worker that received it from its queue */
	uint16_t retired; /* 1: Linux may have the connection by now: no reset */
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
	resteer.inbox = -1; /* runner.c closes its descriptor */
	resteer.workers = 1;
}

/* Parses the segment that an ICMP error quotes. Stores its tuple in the peer's direction. The error
 * may arrive by any queue. */
static bool quote_read(const uint8_t *frame, const struct sy_view *v, struct sy_tuple *out)
{
	struct sy_quote q;

	if (sy_packet_parse_quote(frame, v, &q) != SY_DROP_NONE || q.proto != SY_PROTO_TCP)
		return false;
	*out = (struct sy_tuple){q.tuple.dst, q.tuple.src, q.tuple.dport, q.tuple.sport,
	                         SY_PROTO_TCP};
	return true;
}

enum owner { OWN, STRAY, FRAGMENT };

/* Returns whose packet it is. A SYN belongs to the worker that receives it. */
static enum owner owner_find(struct rte_mbuf *m, struct sy_view *v)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	struct sy_tuple tuple;

	if (sy_packet_parse(frame, m->data_len, v) != SY_DROP_NONE)
		return OWN;
	if (v->fragment != SY_FRAGMENT_NONE)
		return FRAGMENT;
	if (v->proto != SY_PROTO_TCP)
		return quote_read(frame, v, &tuple) &&
		                       !sy_stack_has_connection(runner.stack, &tuple)
		               ? STRAY
		               : OWN;
	const struct sy_tcp *tcp = sy_packet_tcp(frame, v);
	if ((tcp->flags & (SY_TCP_SYN | SY_TCP_ACK)) == SY_TCP_SYN)
		return OWN;
	bool known = tcp->flags & SY_TCP_ACK
	                     ? sy_stack_expects_ack(runner.stack, &v->tuple, ntohl(tcp->ack))
	                     : sy_stack_has_connection(runner.stack, &v->tuple);
	return known ? OWN : STRAY;
}

static struct header own_header(void)
{
	return (struct header){.first = (uint16_t)resteer.worker};
}

/* Sends the packet to a worker. If the inbox is full it is lost, and the peer retransmits. */
static void packet_send(struct rte_mbuf *m, struct header h, uint32_t worker)
{
	struct iovec iov[] = {{&h, sizeof(h)}, {rte_pktmbuf_mtod(m, void *), m->data_len}};
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};

	REAL(sendmsg)(resteer.outbox[worker], &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	rte_pktmbuf_free(m);
}

static void packet_forward(struct rte_mbuf *m, struct header h)
{
	packet_send(m, h, (resteer.worker + 1) % resteer.workers);
}

/* Returns the worker that reassembles the datagram, whichever queues its fragments arrive by. */
static uint32_t fragment_worker(const struct sy_view *v)
{
	uint32_t h = v->fragment_id ^ v->tuple.src.w[3] ^ v->tuple.dst.w[3];

	return (h * 2654435761u >> 16) % resteer.workers;
}

/* Passes the packet on unless it is this worker's. h: its header as received. Returns NULL, or the
 * packet for the stack. */
static struct rte_mbuf *packet_dispatch(struct rte_mbuf *m, struct header h, bool from_queue,
                                        uint64_t now_ns)
{
	struct sy_view v;
	enum owner owner = owner_find(m, &v);

	if (SY_UNLIKELY(owner == FRAGMENT)) {
		uint32_t worker = fragment_worker(&v);
		if (worker != resteer.worker) {
			packet_send(m, own_header(), worker);
			return NULL;
		}
		m = sy_stack_reassemble(runner.stack, m, now_ns);
		if (!m)
			return NULL;
		owner = owner_find(m, &v);
		h = own_header();
		from_queue = true;
	}
	if (owner != STRAY)
		return m;
	h.retired |= sy_stack_has_retired(runner.stack, &v.tuple.dst, v.tuple.dport);
	if (from_queue || h.first != resteer.worker) {
		packet_forward(m, h);
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
		struct rte_mbuf *one = packet_dispatch(m[i], own_header(), true, runner.now_ns);
		if (one)
			m[kept++] = one;
	}
	return kept;
}

unsigned resteer_receive(struct rte_mbuf **m, unsigned max, uint64_t now_ns)
{
	unsigned count = 0, read = 0;

	if (resteer.workers == 1 || now_ns - resteer.checked_ns < CHECK_NS)
		return 0;
	resteer.checked_ns = now_ns;
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
		one = packet_dispatch(one, h, false, now_ns);
		if (one)
			m[count++] = one;
	}
	sy_seen_burst(&resteer.seen, read, count == max ? INBOX_MAX : 0, now_ns);
	return count;
}

/* The result is as old as the last read of the inbox, which is recent. */
uint64_t resteer_seen_ns(void)
{
	return resteer.workers == 1 || resteer.seen.marked == 0 ? NEVER : resteer.seen.ns;
}
