// SPDX-License-Identifier: Apache-2.0
/* Runs the packet hook on each received packet and queues it by level. Frames are not validated
 * yet. */
#include <rte_prefetch.h>

#include "priority.h"

#define TURN_BATCH     32
#define POLL_LATER     2 /* less urgent packets per poll iteration while more urgent data is unread */
#define MAX_IDLE_POLLS 16     /* such iterations, for an application that does not read */
#define IPV4_OFFSET    0x1fff /* fragment offset */

/* Fills in TCP's ports, flags and payload. */
static void tcp_see(const uint8_t *l4, const uint8_t *end, struct sy_hook_packet *view,
                    struct sy_tuple *t, const uint8_t **payload)
{
	const struct sy_tcp *tcp = (const struct sy_tcp *)l4;

	if (view->proto != SY_PROTO_TCP || end - l4 < (ptrdiff_t)sizeof(*tcp))
		return;
	unsigned header = tcp->offset >> 4 << 2;
	if (header < sizeof(*tcp) || end - l4 < (ptrdiff_t)header)
		return;
	t->sport = tcp->sport;
	t->dport = tcp->dport;
	view->sport = rte_be_to_cpu_16(tcp->sport);
	view->dport = rte_be_to_cpu_16(tcp->dport);
	view->flags = tcp->flags;
	*payload = l4 + header;
}

/* Returns the end of the IP packet, without Ethernet padding. */
static const uint8_t *end_of(const uint8_t *l3, size_t len, const uint8_t *frame_end)
{
	return len < (size_t)(frame_end - l3) ? l3 + len : frame_end;
}

static void ipv4_see(const uint8_t *l3, const uint8_t *end, struct sy_hook_packet *view,
                     struct sy_tuple *t, const uint8_t **payload)
{
	const struct sy_ipv4 *ip = (const struct sy_ipv4 *)l3;
	unsigned header = (ip->version_ihl & 15u) * 4;

	if (header < sizeof(*ip) || end - l3 < (ptrdiff_t)header)
		return;
	end = end_of(l3, rte_be_to_cpu_16(ip->total_length), end);
	if (end - l3 < (ptrdiff_t)header)
		return;
	view->version = 4;
	view->proto = t->proto = ip->proto;
	view->dscp = ip->tos >> 2;
	t->src = sy_addr_v4(ip->src);
	t->dst = sy_addr_v4(ip->dst);
	*payload = l3 + header;
	if (!(rte_be_to_cpu_16(ip->fragment) & IPV4_OFFSET))
		tcp_see(l3 + header, end, view, t, payload);
	view->payload_len = (uint16_t)(end - *payload);
}

static void ipv6_see(const uint8_t *l3, const uint8_t *end, struct sy_hook_packet *view,
                     struct sy_tuple *t, const uint8_t **payload)
{
	const struct sy_ipv6 *ip = (const struct sy_ipv6 *)l3;

	end = end_of(l3, sizeof(*ip) + rte_be_to_cpu_16(ip->payload_length), end);
	view->version = 6;
	view->proto = t->proto = ip->next_header;
	view->dscp = rte_be_to_cpu_32(ip->version_class_flow) >> 22 & 63;
	memcpy(t->src.b, ip->src, sizeof(t->src.b));
	memcpy(t->dst.b, ip->dst, sizeof(t->dst.b));
	*payload = l3 + sizeof(*ip);
	tcp_see(*payload, end, view, t, payload);
	view->payload_len = (uint16_t)(end - *payload);
}

/* Fills in the hook's context from a frame. Returns the payload. */
static const uint8_t *packet_see(const struct rte_mbuf *m, struct sy_hook_packet *view,
                                 struct sy_tuple *t)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *), *end = frame + m->data_len;
	const uint8_t *l3 = frame + SY_ETH_LEN, *payload = end;

	/* sy_hook_run_packet() fills head */
	memset(view, 0, offsetof(struct sy_hook_packet, head));
	*t = (struct sy_tuple){0};
	view->frame_len = m->data_len;
	view->priority = SY_USUAL;
	if (m->data_len >= SY_ETH_LEN + sizeof(struct sy_ipv6) && l3[0] >> 4 == 6)
		ipv6_see(l3, end, view, t, &payload);
	else if (m->data_len >= SY_ETH_LEN + sizeof(struct sy_ipv4) && l3[0] >> 4 == 4)
		ipv4_see(l3, end, view, t, &payload);
	return payload;
}

static unsigned payload_ask(const struct priority *p, struct sy_hook_packet view,
                            const uint8_t *payload)
{
	unsigned answer = sy_hook_run_packet(p->hooks, p->packet_hook, &view, payload);
	return answer == SY_KEEP ? SY_USUAL : answer;
}

/* Runs the hook for each buffer of an LRO packet; the most urgent level applies, as it would by
 * ordering if the packets had come separately. */
static unsigned packet_hook_run(const struct priority *p, const struct rte_mbuf *m,
                                struct sy_tuple *t)
{
	struct sy_hook_packet view;
	const uint8_t *payload = packet_see(m, &view, t);
	unsigned level = payload_ask(p, view, payload), other;

	for (m = m->next; SY_UNLIKELY(m != NULL); m = m->next) {
		view.payload_len = m->data_len;
		other = payload_ask(p, view, rte_pktmbuf_mtod(m, const uint8_t *));
		level = other < level ? other : level;
	}
	return level;
}

void packets_queue(struct sy_stack *s, struct rte_mbuf **packet, unsigned count)
{
	struct priority *p = s->priority;

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packet[i], *dropped;
		struct sy_tuple t;
		if (i + 2 < count)
			rte_prefetch0(rte_pktmbuf_mtod(packet[i + 2], const void *));
		unsigned level = packet_hook_run(p, m, &t);
		packet_set_level(m, level);
		uint32_t flow = (uint32_t)sy_hash_tuple(&s->hash_key, &t);
		do {
			dropped = receive_level_add(&p->waiting, m, flow, level);
			s->counters.level_full += dropped != NULL;
			rte_pktmbuf_free(dropped);
		} while (SY_UNLIKELY(dropped && dropped != m));
	}
}

unsigned sy_stack_queued(const struct sy_stack *s)
{
	return s->priority ? s->priority->waiting.count : 0;
}

bool sy_stack_has_packet_hook(const struct sy_stack *s)
{
	return s->priority && packet_hook_in_use(s);
}

/* Returns true if more urgent data is unread and the application is reading. */
static bool more_urgent_unread(const struct priority *p, unsigned level)
{
	for (unsigned i = 0; i < level; i++)
		if (p->waits[i] > p->stuck[i])
			return true;
	return false;
}

/* Counts a poll iteration that delayed packets of this level. Data may stay unread as long as a
 * peer likes (half a request, a connection never accepted), so the delay is bounded. */
static void turn_waited(struct priority *p, unsigned level)
{
	for (unsigned i = 0; i < level; i++) {
		if (p->waits[i] <= p->stuck[i] || ++p->idle[i] < MAX_IDLE_POLLS)
			continue;
		p->stuck[i] = p->waits[i];
		p->idle[i] = 0;
	}
}

/* Processes up to `max` packets of the most urgent level. */
static unsigned level_take(struct sy_stack *s, unsigned level, unsigned max)
{
	struct rte_mbuf *m[TURN_BATCH];
	unsigned count = 0;

	while (count < max && count < TURN_BATCH &&
	       receive_level_next(&s->priority->waiting) == level)
		m[count++] = receive_level_take(&s->priority->waiting);
	packets_receive(s, m, count);
	return count;
}

unsigned sy_stack_process(struct sy_stack *s, unsigned max, uint64_t now_ns)
{
	struct priority *p = s->priority;
	unsigned later = POLL_LATER, waited = 0;

	stack_time(s, now_ns);
	if (!s->ranked)
		return 0;
	while (max > 0 && p->waiting.count > 0) {
		unsigned level = receive_level_next(&p->waiting), share = max;
		bool waits = more_urgent_unread(p, level);
		if (waits && share > later)
			share = later;
		waited = waits ? level : waited;
		if (share == 0)
			break;
		share = level_take(s, level, share);
		max -= share;
		later -= waits ? share : 0;
	}
	turn_waited(p, waited);
	priority_disable(s);
	return p->waiting.count;
}
