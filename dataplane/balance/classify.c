// SPDX-License-Identifier: Apache-2.0
/* classify: parse, ours or not, slot; hand over what belongs to another worker. */
#include "balance.h"
#include "fragment.h"
#include "ours.h"
#include "snat.h"

#define PREFETCH_AHEAD 4

/* What a NAT server sends to a client finds its slot by that, as what is sent to a local address.
 */
static bool is_from_nat_server(struct sy_balance *b, const struct sy_view *v)
{
	return (v->proto == SY_PROTO_TCP || v->proto == SY_PROTO_UDP) &&
	       ours_find(SY_RCU_READ(b->ours), &v->tuple.src) == OURS_SERVER;
}

/* Of a packet that is for nobody of ours: as if it were for a VIP when it is its session's client
 * that sends it, for a local address when it is the other side. */
static enum ours_kind classify_stranger(struct sy_balance *b, const uint8_t *frame,
                                        const struct sy_view *v, enum ours_kind kind)
{
	const struct snat *snat = SY_RCU_READ(b->snat);
	if (kind == OURS_POOL)
		return OURS_LOCAL;
	if (is_from_nat_server(b, v) && !snat_is_of_inside(snat, &v->tuple))
		return OURS_LOCAL;
	if (snat_takes(snat, &v->tuple))
		return OURS_VIP;
	return icmp_is_about_server(b, frame, v) ? OURS_LOCAL : OURS_NONE;
}

static enum sy_drop classify_packet(struct sy_worker *w, struct sy_burst *burst, unsigned i)
{
	struct sy_balance *b = w->app;
	struct rte_mbuf *m = burst->mbuf[i];
	struct sy_view *v = &burst->view[i];
	enum sy_drop reason = sy_packet_parse(sy_frame(m), rte_pktmbuf_data_len(m), v);
	if (SY_UNLIKELY(reason != SY_DROP_NONE))
		return reason;
	/* Frames leave untagged: one that came by the native interface would change its network. */
	if (SY_UNLIKELY(v->vlans))
		return SY_DROP_VLAN;

	enum ours_kind to = ours_find(SY_RCU_READ(b->ours), &v->tuple.dst), kind = to;
	if (SY_UNLIKELY(to != OURS_VIP && to != OURS_LOCAL)) {
		v->echo = snat_is_echo(v, to == OURS_POOL);
		kind = classify_stranger(b, sy_frame(m), v, to);
		if (kind == OURS_NONE)
			return SY_DROP_NOT_OURS;
	}
	/* What a switch floods, or a promiscuous port hears, another host handles. */
	if (SY_UNLIKELY(!burst->handed_over && !sy_port_owns_mac(b->rt, m->port, sy_frame(m))))
		return SY_DROP_OTHER_HOST;
	if (SY_UNLIKELY(v->fragment != SY_FRAGMENT_NONE)) {
		reason = fragment_classify(w, burst, i);
		if (reason != SY_DROP_NONE || burst->next[i] == SY_NEXT_GONE)
			return reason;
		if (to != OURS_VIP && to != OURS_LOCAL) /* its ports are known now */
			kind = classify_stranger(b, sy_frame(m), v, to);
	}
	if (SY_UNLIKELY(v->proto != SY_PROTO_TCP && v->proto != SY_PROTO_UDP)) {
		if (!v->echo) {
			burst->next[i] = SY_NEXT_SLOW;
			return SY_DROP_NONE;
		}
		snat_echo_ports(v, kind == OURS_LOCAL);
	}
	const struct sy_tuple *t = &v->tuple;
	burst->direction[i] = kind == OURS_VIP ? SESSION_CLIENT : SESSION_SERVER;
	burst->slot[i] =
	        kind == OURS_VIP ? sy_slot_of(&t->src, t->sport) : sy_slot_of(&t->dst, t->dport);
	return SY_DROP_NONE;
}

void sy_classify_stage(struct sy_worker *w, struct sy_burst *burst)
{
	struct sy_balance *b = w->app;
	struct balance_worker *bw = balance_worker_of(w);

	for (unsigned i = 0; i < PREFETCH_AHEAD && i < burst->count; i++)
		__builtin_prefetch(sy_frame(burst->mbuf[i]));
	for (unsigned i = 0; i < burst->count; i++) {
		if (i + PREFETCH_AHEAD < burst->count)
			__builtin_prefetch(sy_frame(burst->mbuf[i + PREFETCH_AHEAD]));
		burst->session[i] = SESSION_NONE;
		enum sy_drop reason = classify_packet(w, burst, i);
		if (SY_UNLIKELY(reason != SY_DROP_NONE)) {
			sy_burst_drop(w, burst, i, reason);
			continue;
		}
		if (SY_UNLIKELY(burst->next[i] != SY_NEXT_LOOKUP)) {
			if (burst->next[i] == SY_NEXT_SLOW)
				icmp_steer(w, burst, i);
			continue;
		}
		if (sy_slot_worker(b->rt, burst->slot[i]) != w->id) {
			sy_burst_hand_over(w, burst, i);
			continue;
		}
		SY_COUNT(bw->slot_packets[burst->slot[i]], 1);
		burst->hash[i] = sy_hash_tuple(&b->key, &burst->view[i].tuple);
		session_prefetch_bucket(b->table[burst->slot[i]], burst->hash[i]);
	}
}
