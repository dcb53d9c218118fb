// SPDX-License-Identifier: Apache-2.0
/* A service with some servers on two workers, and its clients. */
#ifndef SCHEDULE_FIXTURE_H
#define SCHEDULE_FIXTURE_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../../tests/soak/soak_frame.h"
#include "model.h"
#include "routed.h"

#define SECOND_NS UINT64_C(1000000000)
#define UP        STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP
#define DRAIN     STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DRAIN
#define DOWN      STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_DOWN
#define S(name)   STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_##name
#define SERVERS   8

struct fixture {
	struct harness harness;
	struct rng rng;
	struct service_key key, udp;
	struct sy_addr server[SERVERS];
	struct changes c;
};

static inline void commit(struct fixture *f)
{
	routed_commit(&f->harness, &f->c);
}

static inline int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	routed_open(&f->harness,
	            (struct harness_options){.workers = 2, .sessions = 512 * SY_SLOTS});
	harness_advance(&f->harness, SECOND_NS);
	f->rng.state = 1;
	f->key = harness_key("192.0.2.10", 80, SY_PROTO_TCP);
	f->udp = harness_key("192.0.2.10", 53, SY_PROTO_UDP);
	for (unsigned i = 0; i < SERVERS; i++) {
		f->server[i] = harness_addr("10.0.0.1");
		f->server[i].b[15] = (uint8_t)(1 + i);
	}
	struct sy_addr local = harness_addr("10.0.1.1");
	put_local(&f->c, &local);
	*state = f;
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;
	struct sy_balance *b = f->harness.b;
	for (uint32_t id = 0; id < inspect_model(b)->server_ids.fresh; id++) {
		struct traffic t = traffic_sum(b, id);
		assert_int_equal(inspect_server_active(b, id), t.created - t.ended);
	}
	harness_close(&f->harness);
	free(f);
	return 0;
}

static inline pb_service *put(struct fixture *f, int scheduler)
{
	return put_service(&f->c, &f->key, "test", scheduler, NULL);
}

static inline pb_server *put_up(struct fixture *f, unsigned i, uint32_t weight)
{
	return put_server(&f->c, &f->key, &f->server[i], 8080, weight, UP);
}

static inline void put_state(struct fixture *f, unsigned i, uint32_t weight, int state)
{
	put_server(&f->c, &f->key, &f->server[i], 8080, weight, state);
}

/* Returns how many packets went to servers; those to clients are originated. */
static inline unsigned collect(struct fixture *f)
{
	unsigned n[HARNESS_PORTS] = {0};
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		for (struct rte_mbuf *m; (m = harness_collect(&f->harness, port)); n[port]++)
			rte_pktmbuf_free(m);
	return n[HARNESS_LAN];
}

/* Client 198.18.a.b sends a packet from a port; true: it was forwarded. */
static inline bool client_sends(struct fixture *f, const struct service_key *key, unsigned client,
                                uint16_t port, uint8_t flags)
{
	struct frame frame;
	struct sy_tuple t = {harness_addr("198.18.0.0"), key->vip, htons(port), key->vport,
	                     key->proto};
	const struct segment s = {flags, 1, 1, 0};
	t.src.b[14] = (uint8_t)(client >> 8);
	t.src.b[15] = (uint8_t)client;
	if (key->proto == SY_PROTO_TCP)
		frame_tcp(&frame, &f->rng, &t, &s, 0);
	else
		frame_udp(&frame, &f->rng, &t, 10);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, frame.bytes, frame.len));
	harness_poll(&f->harness);
	harness_attend(&f->harness);
	return collect(f) == 1;
}

static inline bool connects(struct fixture *f, unsigned client, uint16_t port)
{
	return client_sends(f, &f->key, client, port, SY_TCP_SYN);
}

static inline uint32_t server_id(struct fixture *f, unsigned i)
{
	struct model *m = inspect_model(f->harness.b);
	for (uint32_t id = 0; id < m->service_ids.fresh; id++)
		for (unsigned n = 0; m->service[id] && n < m->service[id]->servers; n++)
			if (sy_addr_equal(&m->service[id]->server[n].addr, &f->server[i]))
				return m->service[id]->server[n].id;
	fail_msg("no server %u", i);
	return SERVER_NONE;
}

static inline uint32_t active(struct fixture *f, unsigned i)
{
	return inspect_server_active(f->harness.b, server_id(f, i));
}

static inline uint64_t created(struct fixture *f, unsigned i)
{
	return traffic_sum(f->harness.b, server_id(f, i)).created;
}

/* The server that a new session of this client gets: the one whose count grew. */
static inline unsigned server_of(struct fixture *f, unsigned servers, unsigned client,
                                 uint16_t port)
{
	uint64_t before[SERVERS];
	for (unsigned i = 0; i < servers; i++)
		before[i] = created(f, i);
	assert_true(connects(f, client, port));
	for (unsigned i = 0; i < servers; i++)
		if (created(f, i) > before[i])
			return i;
	fail_msg("no server got the session");
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
