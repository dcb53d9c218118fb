// SPDX-License-Identifier: Apache-2.0
/* Limits in the tests' network of flows.h. */
#ifndef LIMIT_FIXTURE_H
#define LIMIT_FIXTURE_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

#define BITS     STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_BITS
#define PACKETS  STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_PACKETS
#define SESSIONS STEELYARD__FORWARDER__V1__LIMIT_UNIT__LIMIT_UNIT_SESSIONS
#define INWARDS  STEELYARD__FORWARDER__V1__LIMIT_DIRECTION__LIMIT_DIRECTION_TO_SERVERS
#define OUTWARDS STEELYARD__FORWARDER__V1__LIMIT_DIRECTION__LIMIT_DIRECTION_TO_CLIENTS
#define MARK     STEELYARD__FORWARDER__V1__LIMIT_ACTION__LIMIT_ACTION_MARK
#define LIGHT    STEELYARD__FORWARDER__V1__LIMIT_ENGINE__LIMIT_ENGINE_LIGHT_LOCK
#define ATOMIC   STEELYARD__FORWARDER__V1__LIMIT_ENGINE__LIMIT_ENGINE_ATOMIC
#define MS_NS    UINT64_C(1000000)

typedef Steelyard__Forwarder__V1__Limit pb_limit;
typedef Steelyard__Forwarder__V1__LimitStats pb_stats;

/* What a limit shows, without its strings and messages. */
struct shown {
	uint64_t passed, passed_bytes, above, above_bytes, unlimited, left;
	uint32_t clients;
	char engine[16];
	size_t worst;
	struct {
		struct sy_addr addr;
		uint32_t length;
		uint64_t passed, above;
	} client[8];
};

static inline pb_response *limits_list(struct flows *f, const char *name, uint32_t cursor,
                                       uint32_t limit, uint32_t worst)
{
	Steelyard__Forwarder__V1__ListLimitsRequest list =
	        STEELYARD__FORWARDER__V1__LIST_LIMITS_REQUEST__INIT;
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_LIMITS;
	q.list_limits = &list;
	list.name = (char *)(uintptr_t)name;
	list.cursor = cursor;
	list.limit = limit;
	list.worst = worst;
	return harness_request(&f->harness, &q);
}

static inline struct shown limit_show(struct flows *f, const char *name)
{
	struct shown out = {0};
	pb_response *r = limits_list(f, name, 0, 0, 8);
	assert_null(r->error);
	assert_int_equal(r->list_limits->n_limits, 1);
	const pb_stats *s = r->list_limits->limits[0];
	assert_string_equal(s->limit->name, name);
	assert_true(*s->why);
	out.passed = s->passed->packets;
	out.passed_bytes = s->passed->bytes;
	out.above = s->above->packets;
	out.above_bytes = s->above->bytes;
	out.unlimited = s->unlimited ? s->unlimited->packets : 0;
	out.left = s->left;
	out.clients = s->clients;
	snprintf(out.engine, sizeof(out.engine), "%s", s->engine);
	out.worst = s->n_worst;
	for (size_t i = 0; i < s->n_worst; i++) {
		sy_addr_from_bytes(s->worst[i]->address.data, s->worst[i]->address.len,
		                   &out.client[i].addr);
		out.client[i].length = s->worst[i]->length;
		out.client[i].passed = s->worst[i]->passed->packets;
		out.client[i].above = s->worst[i]->above->packets;
	}
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
	return out;
}

/* Puts a limit on one service. */
static inline void limit_service(struct flows *f, unsigned service, const char *name, int unit,
                                 uint64_t per_second, uint64_t burst)
{
	struct changes c = {0};
	add_limit_service(&c, put_limit(&c, name, unit, per_second, burst), &f->service[service]);
	flows_commit(f, &c);
}

/* Sends a flow's packet n times; returns how often it came through. */
static inline unsigned flow_send(struct flows *f, const struct flow *flow,
                                 enum session_direction from, unsigned n)
{
	unsigned through = 0;
	struct frame out;
	while (n-- > 0)
		through += flows_through(f, from == SESSION_CLIENT ? HARNESS_WAN : HARNESS_LAN,
		                         &flow->in[from], &out);
	return through;
}

/* The workers' clocks are known from their first round on. */
static inline int limits_setup(void **state)
{
	int rc = flows_setup(state);
	flows_advance(*state, 1);
	return rc;
}

/* From now on by three workers, and limits with `engine: atomic`. */
static inline void limits_queue(struct flows *f)
{
	put_limit_engine = ATOMIC;
	f->options.queues = 3;
	flows_reopen(f, 3, 0, false);
	flows_advance(f, 1);
}

static inline int limits_setup_queued(void **state)
{
	int rc = flows_setup(state);
	limits_queue(*state);
	return rc;
}

static inline int limits_teardown_queued(void **state)
{
	put_limit_engine = 0;
	return flows_teardown(state);
}

/* Lets all buckets become full. */
static inline void limits_fill(struct flows *f)
{
	flows_advance(f, 20);
}

#endif
