// SPDX-License-Identifier: Apache-2.0
#include "pipeline_probe.h"

#include <rte_mbuf.h>
#include <sy_balance.h>
#include <sy_tcp_segment.h>

#include "../../dataplane/forwarder/pipeline.h"

#define STAGES_MAX 16

/* Of the current soak test; one thread runs all workers. */
struct probe_counts probe_counts;

static void probe_classified(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++)
		probe_counts.reached += !sy_next_has_left(b->next[i]);
}

/* A packet for look up takes the fast path, unless look up sends it to the slow path. */
static void probe_looked_up(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++)
		probe_counts.fast += b->next[i] == SY_NEXT_LOOKUP || b->next[i] == SY_NEXT_SLOW;
}

static void probe_passed(struct sy_worker *w, struct sy_burst *b)
{
	for (unsigned i = 0; i < b->count; i++)
		probe_counts.fast -= b->next[i] == SY_NEXT_SLOW;
}

const struct sy_stage *pipeline_probed(void)
{
	static struct sy_stage probed[STAGES_MAX];
	unsigned n = 0;
	for (const struct sy_stage *s = pipeline; s->name; s++) {
		probed[n++] = *s;
		if (s->run == sy_classify_stage)
			probed[n++] = (struct sy_stage){"classified", probe_classified};
		if (s->run == sy_lookup_stage)
			probed[n++] = (struct sy_stage){"looked up", probe_looked_up};
		if (s->run == sy_fast_stage)
			probed[n++] = (struct sy_stage){"passed", probe_passed};
	}
	probed[n] = (struct sy_stage){0};
	return probed;
}

/* The linker redirects these calls here: the balancer originates frames only through them. */
uint32_t __real_sy_packet_icmp_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                                     const struct sy_view *v, enum sy_icmp_error kind,
                                     const struct sy_addr *source, uint16_t mtu);
uint32_t __wrap_sy_packet_icmp_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                                     const struct sy_view *v, enum sy_icmp_error kind,
                                     const struct sy_addr *source, uint16_t mtu);
uint32_t __wrap_sy_packet_icmp_error(uint8_t *out, uint32_t cap, const uint8_t *frame,
                                     const struct sy_view *v, enum sy_icmp_error kind,
                                     const struct sy_addr *source, uint16_t mtu)
{
	uint32_t len = __real_sy_packet_icmp_error(out, cap, frame, v, kind, source, mtu);
	probe_counts.originated += len > 0;
	return len;
}

#define COUNT_FRAMES(name, parameters, arguments)                                                  \
	uint32_t __real_##name parameters;                                                         \
	uint32_t __wrap_##name parameters;                                                         \
	uint32_t __wrap_##name parameters                                                          \
	{                                                                                          \
		uint32_t len = __real_##name arguments;                                            \
		probe_counts.originated += len > 0;                                                \
		return len;                                                                        \
	}
COUNT_FRAMES(sy_tcp_reset_make,
             (uint8_t * out, uint32_t cap, const struct sy_tuple *t, uint32_t seq, uint32_t ack,
              bool with_ack),
             (out, cap, t, seq, ack, with_ack))
COUNT_FRAMES(sy_tcp_probe_make,
             (uint8_t * out, uint32_t cap, const struct sy_tuple *t, uint32_t seq, uint32_t ack),
             (out, cap, t, seq, ack))
COUNT_FRAMES(sy_tcp_syn_make,
             (uint8_t * out, uint32_t cap, const struct sy_tuple *t,
              const struct sy_tcp_segment *s),
             (out, cap, t, s))
COUNT_FRAMES(sy_tcp_reset_answer,
             (uint8_t * out, uint32_t cap, const uint8_t *frame, const struct sy_view *v),
             (out, cap, frame, v))

/* The first fragment replaces the packet that is fragmented. */
uint32_t __real_sy_packet_fragment(uint8_t *out, uint32_t cap, const uint8_t *frame, uint16_t mtu,
                                   uint32_t id, uint16_t *at);
uint32_t __wrap_sy_packet_fragment(uint8_t *out, uint32_t cap, const uint8_t *frame, uint16_t mtu,
                                   uint32_t id, uint16_t *at);
uint32_t __wrap_sy_packet_fragment(uint8_t *out, uint32_t cap, const uint8_t *frame, uint16_t mtu,
                                   uint32_t id, uint16_t *at)
{
	bool more = *at > 0;
	uint32_t len = __real_sy_packet_fragment(out, cap, frame, mtu, id, at);
	probe_counts.originated += len > 0 && more;
	return len;
}

/* A copy becomes an originated segment, valid if the client's segment was. */
void __real_sy_tcp_strip(uint8_t *frame, struct sy_view *v, uint8_t keep);
void __wrap_sy_tcp_strip(uint8_t *frame, struct sy_view *v, uint8_t keep);
void __wrap_sy_tcp_strip(uint8_t *frame, struct sy_view *v, uint8_t keep)
{
	if (keep == SY_TCP_ACK) {
		struct rte_mbuf *own = (struct rte_mbuf *)(frame - RTE_PKTMBUF_HEADROOM) - 1;
		own->hash.usr = sy_packet_check_l4(frame, v) == SY_CSUM_OK;
		probe_counts.originated++;
	}
	__real_sy_tcp_strip(frame, v, keep);
}
