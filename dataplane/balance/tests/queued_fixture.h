// SPDX-License-Identifier: Apache-2.0
/* Limits whose packets go through an event device, for the tests of it: three workers, which one
 * thread drives. */
#ifndef QUEUED_FIXTURE_H
#define QUEUED_FIXTURE_H

#include "event_stage.h"
#include "limit_fixture.h"
#include "limit_model.h"

#define WORKERS 3
#define FLOWS   8
#define EACH    24 /* packets of a flow */
#define MANY    960
#define PLENTY  1000000

struct device {
	const char *device, *model;
};

/* ---- the setting ----------------------------------------------------------------------------- */

static inline void restart_with(struct flows *f, const struct device *d, unsigned room)
{
	f->options.queues = WORKERS;
	f->options.mbufs = 16383;
	f->options.event_device = d->device;
	f->options.event_model = d->model;
	f->options.event_capacity = room;
	flows_reopen(f, WORKERS, 0, false);
	flows_advance(f, 1);
}

static inline void limit_put_engine(struct flows *f, unsigned service, const char *name,
                                    uint64_t burst, int engine)
{
	struct changes c = {0};
	pb_limit *l = put_limit(&c, name, PACKETS, 1, burst);
	l->engine = engine;
	add_limit_service(&c, l, &f->service[service]);
	flows_commit(f, &c);
}

static inline unsigned buffers_free(const struct flows *f)
{
	return rte_mempool_avail_count(f->harness.rt->pool);
}

static inline uint64_t in_device(const struct flows *f)
{
	return sy_event_in_flight(f->harness.b->stage->event);
}

/* Packets that a worker has passed under a limit. */
static inline uint64_t passed_by(struct flows *f, const char *name, unsigned worker)
{
	const struct model_limit *l = limit_find(f->harness.b->ctl->limits, name);
	return f->harness.b->worker[worker].limited[l->id].passed.packets;
}

/* By how many workers limits were charged. */
static inline unsigned workers_used(struct flows *f, const char *name)
{
	unsigned used = 0;
	for (unsigned w = 0; w < WORKERS; w++)
		used += passed_by(f, name, w) > 0;
	return used;
}

/* Puts packet n of a flow into the client's port. */
static inline void packet_put(struct flows *f, const struct flow *flow, unsigned n)
{
	struct frame frame;
	flows_frame(f, &frame, &flow->client, SY_TCP_ACK, 1 + n, 100);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, frame.bytes, frame.len));
}

/* What has come out at the servers' port: the numbers of packets, by the flows' ports. */
struct output {
	unsigned count, flows;
	uint16_t port[FLOWS];
	unsigned number[FLOWS], last[FLOWS], misplaced;
	bool seen[FLOWS][MANY];
};

static inline void output_drain(struct flows *f, struct output *out)
{
	struct rte_mbuf *m;
	while ((m = harness_collect(&f->harness, HARNESS_LAN))) {
		const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
		struct sy_view v;
		unsigned at = 0;
		assert_int_equal(sy_packet_parse(frame, rte_pktmbuf_data_len(m), &v), SY_DROP_NONE);
		const unsigned n = ntohl(sy_packet_tcp(frame, &v)->seq) - 1;
		while (at < out->flows && out->port[at] != v.tuple.sport)
			at++;
		assert_true(at < FLOWS);
		if (at == out->flows)
			out->port[out->flows++] = v.tuple.sport;
		assert_true(n < SY_ARRAY_LEN(out->seen[at]));
		assert_false(out->seen[at][n]);
		out->seen[at][n] = true;
		out->misplaced += out->number[at] > 0 && n < out->last[at];
		out->last[at] = n;
		out->number[at]++;
		out->count++;
		rte_pktmbuf_free(m);
	}
}

static inline void flows_begin(struct flows *f, struct flow flow[FLOWS], unsigned service)
{
	for (unsigned i = 0; i < FLOWS; i++)
		flow_open(f, &flow[i], service, (uint16_t)(4000 + 37 * i));
}

#endif
