// SPDX-License-Identifier: Apache-2.0
/* Steps 6 to 8: urgent data, the payload, FIN. */
#include "arrive.h"
#include "chain.h"
#include "emit.h"
#include "priority.h"
#include "timer.h"
#include "window.h"

#define MAX_DUPLICATE_ACKS 64 /* max. segments per LRO packet */

/* ---- sixth: URG ------------------------------------------------------------------------------ */

/* RFC 6093 3.2: urgent data is inline; the application is notified of the mark. */
static void urgent_arrive(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	uint32_t end = seg->seq + seg->urgent;

	if (!(seg->flags & SY_TCP_URG) || !connection_receives(c) || !seq_after(end, c->rcv_nxt))
		return;
	if (c->flags & C_URGENT_IN && !seq_after(end, c->urgent_in))
		return;
	c->flags |= C_URGENT_IN;
	c->urgent_in = end;
	connection_notify(s, c, SY_STACK_URGENT);
}

/* ---- seventh: text --------------------------------------------------------------------------- */

/* Trims the packet to these bytes of its payload. */
static void packet_trim(struct rte_mbuf *m, uint32_t offset, uint32_t len)
{
	m->data_off = (uint16_t)(m->data_off + offset);
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
}

/* Copies the level to the packet that replaces another. */
static void level_copy(const struct sy_stack *s, struct rte_mbuf *to, const struct rte_mbuf *from)
{
	if (s->ranked)
		packet_set_level(to, packet_level(from));
}

/* Returns the packet to queue: a copy in options.copies while the driver's buffers are scarce.
 * Without a free copy buffer, a connection without queued data keeps the original, so that none
 * starves. NULL: dropped. */
static struct rte_mbuf *packet_keep(struct sy_stack *s, const struct connection *c,
                                    struct rte_mbuf *m)
{
	struct rte_mbuf *copy;

	if (SY_LIKELY(!s->scarce))
		return m;
	copy = rte_pktmbuf_alloc(s->options.copies);
	if (copy && rte_pktmbuf_tailroom(copy) >= m->data_len) {
		memcpy(rte_pktmbuf_append(copy, m->data_len), rte_pktmbuf_mtod(m, uint8_t *),
		       m->data_len);
		level_copy(s, copy, m);
		rte_pktmbuf_free_seg(m);
		s->counters.copied++;
		return copy;
	}
	rte_pktmbuf_free(copy);
	if (c->received.bytes == 0 && c->arrived.blocks == 0 && !s->very_scarce)
		return m;
	s->counters.refused_memory++;
	return NULL;
}

/* Inline: runs for each in-order segment. */
static inline __attribute__((always_inline)) void
text_append(struct sy_stack *s, struct connection *c, struct rte_mbuf *m, const struct segment *seg)
{
	struct rte_mbuf *last = c->received.last;
	bool ranked = SY_UNLIKELY(s->ranked != NULL);
	unsigned level = ranked ? priority_hook_run(s, c, m, seg) : SY_USUAL;

	c->rcv_nxt += m->data_len;
	c->bytes_received += m->data_len;
	receive_buffer_add(&c->received, m, &s->receive_queued, &s->spent);
	if (ranked)
		priority_added(s, c, last, level);
}

/* The same for a chain: each buffer is queued separately. Returns false if there was no memory for
 * one; the rest is dropped as well. */
static bool chain_append(struct sy_stack *s, struct connection *c, struct segment *seg,
                         uint32_t offset, uint32_t len)
{
	unsigned level = s->ranked ? packet_level(seg->packet) : SY_USUAL;
	struct rte_mbuf *m = chain_trim(seg->packet, offset, len), *rest, *kept;

	for (seg->packet = NULL; m; m = rest) {
		rest = chain_part(m);
		if (s->ranked)
			packet_set_level(m, level);
		kept = packet_keep(s, c, m);
		if (!kept) {
			m->next = rest;
			rte_pktmbuf_free(m);
			return false;
		}
		text_append(s, c, kept, seg);
	}
	return true;
}

/* Returns the buffer of a reassembled piece: a copy if other pieces reference it. NULL: no buffer.
 */
static struct rte_mbuf *piece_own(struct sy_stack *s, struct connection *c, struct rte_mbuf *m,
                                  const struct arrived_cut *cut)
{
	struct rte_mbuf *copy;

	if (rte_mbuf_refcnt_read(m) == 1) {
		range_uncharge(s, c, m);
		packet_trim(m, cut->skip, cut->length);
		return m;
	}
	copy = rte_pktmbuf_alloc(s->scarce ? s->options.copies : s->options.pool);
	if (copy && rte_pktmbuf_tailroom(copy) < cut->length) {
		rte_pktmbuf_free(copy);
		copy = NULL;
	}
	if (copy) {
		memcpy(rte_pktmbuf_append(copy, (uint16_t)cut->length),
		       rte_pktmbuf_mtod_offset(m, uint8_t *, cut->skip), cut->length);
		level_copy(s, copy, m);
	}
	rte_mbuf_refcnt_update(m, -1);
	return copy;
}

/* Appends out-of-order data that is now in order. */
static void text_join(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	struct arrived_cut cut;
	struct rte_mbuf *m;

	while ((m = arrived_take(&c->arrived, &s->arrived, c->rcv_nxt, &cut)) != NULL) {
		m = piece_own(s, c, m, &cut);
		if (!m)
			return; /* the peer retransmits it */
		if (m->data_len > 0)
			text_append(s, c, m, seg);
		else
			rte_pktmbuf_free_seg(m);
	}
}

/* Queues a buffer of out-of-order data that begins at `from`. */
static void part_queue(struct sy_stack *s, struct connection *c, struct rte_mbuf *m, uint32_t from)
{
	bool may = range_fits(s, c, m);
	struct rte_mbuf *kept = may ? packet_keep(s, c, m) : NULL;
	struct arrived_news outcome;

	if (!kept) { /* packet_keep() counts its own drops */
		s->counters.out_of_order_dropped += !may;
		rte_pktmbuf_free_seg(m);
		return;
	}
	outcome = arrived_add(&c->arrived, &s->arrived, c->rcv_nxt, from, from + kept->data_len,
	                      kept);
	s->counters.out_of_order++;
	if (outcome.kept == 0) {
		s->counters.duplicates += outcome.duplicate;
		s->counters.out_of_order_dropped += outcome.refused;
		rte_pktmbuf_free_seg(kept);
		return;
	}
	range_charge(s, c, kept);
	rte_mbuf_refcnt_set(kept, (uint16_t)outcome.kept);
}

static void text_queue(struct sy_stack *s, struct connection *c, struct segment *seg, uint32_t from,
                       uint32_t len)
{
	unsigned level = s->ranked ? packet_level(seg->packet) : SY_USUAL;
	struct rte_mbuf *m = chain_trim(seg->packet, seg->data + (from - seg->seq), len), *rest;

	for (seg->packet = NULL; m; m = rest) {
		uint32_t bytes = m->data_len;
		rest = chain_part(m);
		if (s->ranked)
			packet_set_level(m, level);
		part_queue(s, c, m, from);
		from += bytes;
	}
}

/* RFC 5681 4.2: acknowledge each out-of-order segment immediately. One ACK with SACK blocks covers
 * an LRO packet; a peer without SACK counts duplicates, so send one per segment, bounded because
 * the peer chooses the size. */
static void duplicate_acks_send(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	uint32_t size = seg->size ? seg->size : c->rcv_mss ? c->rcv_mss : seg->len, times = 1;

	if (!(c->flags & C_SACK) && seg->len > size) {
		times = (seg->len + size - 1) / size;
		times = times < MAX_DUPLICATE_ACKS ? times : MAX_DUPLICATE_ACKS;
	}
	while (times-- > 0)
		emit_ack_now(s, c);
}

/* RFC 9293 3.8.6.3: acknowledge every second full segment, except in streams (ack_coalesce.h). The
 * largest segment received so far counts as full. */
static void text_ack_schedule(struct sy_stack *s, struct connection *c, const struct segment *seg,
                              uint32_t len)
{
	uint32_t size = seg->size && seg->size < len ? seg->size : len;

	if (size > c->rcv_mss) {
		uint16_t max = connection_local_mss(s, c); /* upper bound */
		c->rcv_mss = size < max ? (uint16_t)size : max;
	}
	delay_arrived(&c->delay, size < c->rcv_mss || seg->flags & SY_TCP_PSH);
	bool held = ack_coalesce(s, c, len); /* call it for each segment */
	ack_schedule(s, c, c->rcv_nxt - c->rcv_acked > c->rcv_mss && !held);
}

/* Appends in-order bytes of a packet. Returns false if there was no memory for some. */
static inline __attribute__((always_inline)) bool text_deliver(struct sy_stack *s,
                                                               struct connection *c,
                                                               struct segment *seg, uint32_t offset,
                                                               uint32_t len)
{
	struct rte_mbuf *m = seg->packet;

	if (SY_UNLIKELY(m->next != NULL))
		return chain_append(s, c, seg, offset, len);
	packet_trim(m, offset, len);
	m = packet_keep(s, c, m);
	if (!m)
		return false;
	text_append(s, c, m, seg);
	seg->packet = NULL;
	return true;
}

/* Returns true if in-order data was queued. */
static bool text_arrive(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	uint32_t from = seg->seq, end = seg->seq + seg->len;

	if (sy_seq_before(from, c->rcv_nxt)) {
		arrived_duplicate(&c->arrived, from, seq_after(end, c->rcv_nxt) ? c->rcv_nxt : end);
		from = c->rcv_nxt;
		ack_schedule(s, c, true);
	}
	if (seq_after(end, c->rcv_edge)) { /* FIN is cut off, too */
		end = c->rcv_edge;
		seg->flags &= (uint8_t)~SY_TCP_FIN;
		ack_schedule(s, c, true);
	}
	if (!seq_after(end, from))
		return false;
	if (from != c->rcv_nxt) {
		text_queue(s, c, seg, from, end - from);
		duplicate_acks_send(s, c, seg);
		return false;
	}
	/* Out of memory: each connection may still queue one packet, so that none starves. */
	if (s->receive_queued >= s->options.receive_all && c->received.bytes > 0) {
		s->counters.refused_memory++;
		seg->flags &= (uint8_t)~SY_TCP_FIN;
		ack_schedule(s, c, true);
		return false;
	}
	bool all = text_deliver(s, c, seg, seg->data + (from - seg->seq), end - from);
	if (SY_UNLIKELY(!all)) {
		seg->flags &= (uint8_t)~SY_TCP_FIN;
		ack_schedule(s, c, true);
		if (c->rcv_nxt == from)
			return false;
	}
	if (c->arrived.blocks > 0) {
		text_join(s, c, seg);
		ack_schedule(s, c, true); /* RFC 5681 4.2 */
	} else if (all) {
		text_ack_schedule(s, c, seg, end - from);
	}
	window_arrived(s, c, seg);
	return true;
}

/* ---- eighth: FIN ----------------------------------------------------------------------------- */

static void fin_process(struct sy_stack *s, struct connection *c)
{
	c->rcv_nxt++;
	c->flags |= C_FIN_ARRIVED;
	if (!seq_after(c->rcv_edge, c->rcv_nxt))
		c->rcv_edge = c->rcv_nxt;
	ack_schedule(s, c, true);
	switch (c->state) {
	case SY_STACK_ESTABLISHED:
		c->state = SY_STACK_CLOSE_WAIT;
		break;
	case SY_STACK_FIN_WAIT_1: /* our FIN is unacknowledged */
		c->state = SY_STACK_CLOSING;
		break;
	case SY_STACK_FIN_WAIT_2:
		connection_time_wait(s, c);
		break;
	}
	connection_notify(s, c, SY_STACK_READABLE | SY_STACK_PEER_DONE);
}

/* Remembers a FIN after a gap. */
static void fin_arrive(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	if (!connection_receives(c))
		return;
	if (seg->flags & SY_TCP_FIN) {
		c->peer_fin = seg->seq + seg->len;
		c->flags |= C_FIN_AHEAD;
		if (c->peer_fin != c->rcv_nxt)
			ack_schedule(s, c, true);
	}
	if (c->flags & C_FIN_AHEAD && c->peer_fin == c->rcv_nxt)
		fin_process(s, c);
}

/* ---- steps 6 to 8 ---------------------------------------------------------------------------- */

/* New data after close(): reset (RFC 9293 3.10.7.4, RFC 1122 4.2.2.13). */
static bool has_no_reader(const struct connection *c, const struct segment *seg)
{
	return !(c->flags & C_OWNED) && c->listener == LISTENER_NONE && seg->len > 0 &&
	       seq_after(seg->seq + seg->len, c->rcv_nxt);
}

bool arrive_text(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	if (connection_receives(c) && has_no_reader(c, seg)) {
		emit_reset(s, c);
		connection_end(s, c, 0);
		return false;
	}
	if (seg->ecn == IP_CE && c->flags & C_ECN) { /* RFC 3168 6.1.3 */
		c->flags |= C_ECHO_CE;
		if (seg->len > 0)
			ack_schedule(s, c, true);
	}
	if (seg->flags & TCP_CWR)
		c->flags &= ~(uint32_t)(seg->ecn == IP_CE ? 0 : C_ECHO_CE);
	urgent_arrive(s, c, seg);
	if (seg->len > 0 && connection_receives(c) && text_arrive(s, c, seg))
		connection_notify(s, c, SY_STACK_READABLE);
	fin_arrive(s, c, seg);
	if (c->state == SY_STACK_FIN_WAIT_2 && !(c->flags & C_OWNED) && !timer_is_set(c, TIMER_END))
		timer_set(s, c, TIMER_END, FIN_WAIT_2_MS);
	return true;
}
