// SPDX-License-Identifier: Apache-2.0
/* Packets are lost, late, doubled, marked, queued and too big. */
#include "talk_network.h"
#include "large.h"

static void wire_put(struct talk *t, struct wire *w, struct rte_mbuf *m, uint64_t at)
{
	if (w->count == WIRE_MAX) {
		rte_pktmbuf_free(m);
		return;
	}
	unsigned i = w->count++;
	for (; i > 0 && w->packet[(i - 1) / 2].at > at; i = (i - 1) / 2)
		w->packet[i] = w->packet[(i - 1) / 2];
	w->packet[i] = (struct packet){at, t->order++, m};
}

static bool packet_before(const struct packet *a, const struct packet *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

struct rte_mbuf *wire_take(struct wire *w)
{
	struct rte_mbuf *m = w->packet[0].m;
	struct packet last = w->packet[--w->count];
	unsigned i = 0;

	for (;;) {
		unsigned child = 2 * i + 1;
		if (child >= w->count)
			break;
		if (child + 1 < w->count && packet_before(&w->packet[child + 1], &w->packet[child]))
			child++;
		if (!packet_before(&w->packet[child], &last))
			break;
		w->packet[i] = w->packet[child];
		i = child;
	}
	w->packet[i] = last;
	return m;
}

/* The router marks what it would else drop (RFC 3168 5). */
static bool mark(struct rte_mbuf *m)
{
	uint8_t *l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, SY_ETH_LEN);

	if (l3[0] >> 4 == 6) {
		if (!(l3[1] & 0x30))
			return false;
		l3[1] |= 0x30;
		return true;
	}
	struct sy_ipv4 *ip = (struct sy_ipv4 *)l3;
	if (!(ip->tos & 3))
		return false;
	ip->tos |= 3;
	ip->checksum = 0;
	ip->checksum = (uint16_t)~sy_csum_fold(sy_csum_sum(ip, sizeof(*ip)));
	return true;
}

static struct rte_mbuf *packet_copy(const struct rte_mbuf *m)
{
	return rte_pktmbuf_copy(m, m->pool, 0, UINT32_MAX);
}

/* The packet exceeds the path MTU: sends an ICMP error, unless the path is a black hole. */
static void too_big(struct talk *t, unsigned from, struct rte_mbuf *m)
{
	struct side *side = &t->side[from];
	struct rte_mbuf *error = side->out.hole ? NULL : rte_pktmbuf_alloc(m->pool);
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	struct sy_view v;

	if (error && sy_packet_parse(frame, m->data_len, &v) == SY_DROP_NONE) {
		uint32_t len = sy_packet_icmp_error(rte_pktmbuf_mtod(error, uint8_t *), 1400, frame,
		                                    &v, SY_ICMP_TOO_BIG, &v.tuple.dst,
		                                    (uint16_t)side->out.mtu);
		error->data_len = (uint16_t)len;
		error->pkt_len = len;
		if (len > 0)
			wire_put(t, &t->side[!from].out, error, t->now + MS_NS);
	} else {
		rte_pktmbuf_free(error);
	}
	rte_pktmbuf_free(m);
}

void wire_send(struct talk *t, unsigned from, struct rte_mbuf *m)
{
	struct wire *w = &t->side[from].out;
	uint64_t at = t->now;

	if (m->data_len - SY_ETH_LEN > (int)w->mtu) {
		too_big(t, from, m);
		return;
	}
	if (chance(t, w->loss) && !(w->marks && mark(m))) {
		rte_pktmbuf_free(m);
		return;
	}
	if (w->rate) { /* the link has a speed, and a queue of 50 ms */
		if (w->busy > t->now + 50 * MS_NS) {
			rte_pktmbuf_free(m);
			return;
		}
		w->busy = (w->busy > t->now ? w->busy : t->now) + m->data_len * MS_NS / w->rate;
		at = w->busy;
	}
	at += (w->delay_us + below(t, w->jitter_us + 1)) * UINT64_C(1000);
	if (chance(t, w->late))
		at += below(t, w->late_us + 1) * UINT64_C(1000);
	if (chance(t, w->doubled)) {
		struct rte_mbuf *copy = packet_copy(m);
		if (copy)
			wire_put(t, w, copy, at + below(t, w->late_us + 1) * UINT64_C(1000));
	}
	wire_put(t, w, m, at);
}

void wire_deliver(struct talk *t, unsigned from)
{
	struct wire *w = &t->side[from].out;
	struct rte_mbuf *burst[48];
	unsigned count = 0, max = t->joins ? 48 : 8;

	while (count < max && w->count > 0 && w->packet[0].at <= t->now)
		burst[count++] = wire_take(w);
	if (t->joins) {
		count = large_join(burst, count);
		for (unsigned i = 0; i < count; i++) /* headers, too */
			if (chance(t, 200))
				large_split(burst[i], (uint16_t)some(t, 200));
	}
	if (count > 0)
		sy_stack_receive(t->side[!from].s, burst, count, t->now);
}
