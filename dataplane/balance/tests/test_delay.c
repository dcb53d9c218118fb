// SPDX-License-Identifier: Apache-2.0
/* How long servers take to answer SYNs, as seen in passing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../forwarder/pipeline.h"
#include "delay.h"
#include "flows.h"

#define MS UINT64_C(1000000)

static uint64_t count(const struct delay_share *d)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < DELAY_BUCKETS; i++)
		sum += d->bucket[i];
	return sum;
}

static struct delay_share seen(struct flows *f)
{
	struct delay_share sum = {0};
	for (uint32_t id = 0; id < inspect_model(f->harness.b)->server_ids.fresh; id++) {
		struct delay_share one = delay_sum(f->harness.b, id);
		sum.sum_ns += one.sum_ns;
		sum.repeated += one.repeated;
		for (unsigned i = 0; i < DELAY_BUCKETS; i++)
			sum.bucket[i] += one.bucket[i];
	}
	return sum;
}

/* The server answers after some time. */
static void answer(struct flows *f, struct flow *flow, uint64_t after_ns)
{
	struct frame out;
	harness_advance(&f->harness, after_ns);
	flows_frame(f, &flow->in[SESSION_SERVER], &flow->server, SY_TCP_SYN | SY_TCP_ACK, 0, 0);
	assert_true(flows_through(f, HARNESS_LAN, &flow->in[SESSION_SERVER], &out));
}

/* Listed as the service's servers say; returns the sum of samples. */
static uint64_t listed(struct flows *f, uint64_t *smoothed, uint64_t *repeated)
{
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	Steelyard__Forwarder__V1__ListServicesRequest list =
	        STEELYARD__FORWARDER__V1__LIST_SERVICES_REQUEST__INIT;
	uint64_t samples = 0;
	*smoothed = *repeated = 0;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_LIST_SERVICES;
	q.list_services = &list;
	pb_response *r = harness_request(&f->harness, &q);
	for (size_t s = 0; s < r->list_services->n_services; s++)
		for (size_t i = 0; i < r->list_services->services[s]->n_servers; i++) {
			const Steelyard__Forwarder__V1__DelayStats *d =
			        r->list_services->services[s]->servers[i]->delay;
			if (!d)
				continue;
			uint64_t sum = 0;
			for (size_t k = 0; k < d->n_buckets; k++)
				sum += d->buckets[k];
			assert_int_equal(sum, d->samples);
			samples += d->samples;
			*repeated += d->syn_repeated;
			*smoothed = d->smoothed_ns ? d->smoothed_ns : *smoothed;
		}
	steelyard__forwarder__v1__response__free_unpacked(r, NULL);
	return samples;
}

static void test_answers_are_timed(void **state)
{
	struct flows *f = *state;
	static const uint64_t after[] = {0, 900, 1000, 1 * MS, 5 * MS, 2000 * MS};
	static const unsigned bucket[] = {0, 0, 1, 10, 13, 21};
	uint64_t sum = 0, smoothed, repeated;
	for (unsigned i = 0; i < 6; i++) {
		struct flow flow;
		harness_advance(&f->harness, MS);
		flow_begin(f, &flow, 0, (uint16_t)(2000 + i));
		answer(f, &flow, after[i]);
		sum += after[i];
		struct delay_share s = seen(f);
		assert_int_equal(count(&s), i + 1);
		assert_int_equal(s.sum_ns, sum);
		assert_true(s.bucket[bucket[i]] > 0);
		answer(f, &flow, MS); /* again: the first one was timed */
		s = seen(f);
		assert_int_equal(count(&s), i + 1);
	}
	assert_int_equal(listed(f, &smoothed, &repeated), 6);
	assert_int_equal(repeated, 0);
}

static void test_smoothed(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	for (unsigned i = 0; i < 200; i++) {
		harness_advance(&f->harness, MS);
		flow_begin(f, &flow, 0, (uint16_t)(2000 + i));
		answer(f, &flow, i < 100 ? 2 * MS : 6 * MS);
		uint32_t now = SY_READ(f->harness.b->server_delay[flow.server_id]);
		if (i < 2)
			assert_int_equal(now, 2 * MS);
		if (i == 100 || i == 101)
			assert_in_range(now, 2 * MS, 3 * MS);
	}
	assert_in_range(SY_READ(f->harness.b->server_delay[flow.server_id]), 5900000, 6 * MS);
}

/* Which of two SYNs was answered is not known. */
static void test_repeated_syn(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	struct frame out;
	uint64_t smoothed, repeated;
	flow_begin(f, &flow, 0, 2000);
	harness_advance(&f->harness, 1000 * MS);
	assert_true(flows_through(f, HARNESS_WAN, &flow.in[SESSION_CLIENT], &out));
	answer(f, &flow, MS);
	struct delay_share s = seen(f);
	assert_int_equal(count(&s), 0);
	assert_int_equal(s.repeated, 1);
	/* Another one, once the answer was seen, was not lost on the server's side. */
	assert_true(flows_through(f, HARNESS_WAN, &flow.in[SESSION_CLIENT], &out));
	s = seen(f);
	assert_int_equal(s.repeated, 1);
	assert_int_equal(listed(f, &smoothed, &repeated), 0);
	assert_int_equal(repeated, 1);
}

/* Copies that come at once are no loss; one a second later counts once. */
static void test_copies(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	struct frame out;
	flow_begin(f, &flow, 0, 2000);
	for (unsigned i = 0; i < 2; i++)
		assert_true(flows_through(f, HARNESS_WAN, &flow.in[SESSION_CLIENT], &out));
	struct delay_share s = seen(f);
	assert_int_equal(s.repeated, 0);
	harness_advance(&f->harness, 1000 * MS);
	for (unsigned i = 0; i < 3; i++)
		assert_true(flows_through(f, HARNESS_WAN, &flow.in[SESSION_CLIENT], &out));
	answer(f, &flow, MS);
	s = seen(f);
	assert_int_equal(s.repeated, 1);
	assert_int_equal(count(&s), 0);
}

static void send_reset(struct flows *f, struct flow *flow)
{
	struct frame in, out;
	harness_advance(&f->harness, MS);
	flows_frame(f, &in, &flow->client, SY_TCP_RST, 1, 0);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
}

/* A session that begins again after a reset is not timed from its first SYN on. */
static void test_begins_again(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	struct frame out;
	flow_begin(f, &flow, 0, 2000);
	send_reset(f, &flow);
	harness_advance(&f->harness, 500 * MS);
	assert_true(flows_through(f, HARNESS_WAN, &flow.in[SESSION_CLIENT], &out));
	answer(f, &flow, MS);
	struct delay_share s = seen(f);
	assert_int_equal(count(&s), 0); /* it may be the first one's */
	send_reset(f, &flow);
	harness_advance(&f->harness, 500 * MS);
	assert_true(flows_through(f, HARNESS_WAN, &flow.in[SESSION_CLIENT], &out));
	answer(f, &flow, 3 * MS);
	s = seen(f);
	assert_int_equal(count(&s), 1);
	assert_int_equal(s.sum_ns, 3 * MS);
}

/* Each burst takes this long before the next one is received. */
static uint64_t burst_ns;

static void late_stage(struct sy_worker *w, struct sy_burst *burst)
{
	w->private->clock.ns += burst_ns;
}

/* The answer arrives in the poll iteration in which the SYN left, as it does from a server on a
 * veth, or in a later one: the time between them counts, whenever the worker read its clock last.
 */
static void test_answer_in_the_same_iteration(void **state)
{
	struct flows *f = *state;
	struct sy_stage late[16] = {{"late", late_stage}};
	struct flow flow;
	struct frame syn;
	for (unsigned i = 0; pipeline[i].name; i++)
		late[i + 1] = pipeline[i];
	f->options.pipeline = late;
	burst_ns = 0;
	flows_reopen(f, 1, 0, true);
	flow_begin(f, &flow, 0, 2000);
	answer(f, &flow, MS);
	send_reset(f, &flow); /* the next SYN has the tuple of this connection, so its server's */
	const struct delay_share before = seen(f);
	harness_advance(&f->harness, 500 * MS);
	burst_ns = 7 * MS;
	flows_frame(f, &syn, &flow.client, SY_TCP_SYN, 1, 0);
	flows_frame(f, &flow.in[SESSION_SERVER], &flow.server, SY_TCP_SYN | SY_TCP_ACK, 0, 0);
	assert_true(harness_inject(&f->harness, HARNESS_WAN, syn.bytes, syn.len));
	assert_true(harness_inject(&f->harness, HARNESS_LAN, flow.in[SESSION_SERVER].bytes,
	                           flow.in[SESSION_SERVER].len));
	assert_true(harness_poll_worker(&f->harness, 0));
	const struct delay_share s = seen(f);
	assert_int_equal(count(&s), count(&before) + 1);
	assert_int_equal(s.sum_ns - before.sum_ns, 7 * MS);
	assert_int_equal(s.bucket[13], before.bucket[13] + 1); /* 4 to 8 ms */
	for (unsigned port = 0; port < HARNESS_PORTS; port++)
		for (struct rte_mbuf *m; (m = harness_collect(&f->harness, port)) != NULL;)
			rte_pktmbuf_free(m);
}

static void test_no_more_than_the_gap_allows(void **state)
{
	struct flows *f = *state;
	struct flow flow[8];
	for (unsigned i = 0; i < 8; i++)
		flow_begin(f, &flow[i], 0, (uint16_t)(2000 + i));
	for (unsigned i = 0; i < 8; i++)
		answer(f, &flow[i], 1000);
	struct delay_share s = seen(f);
	assert_int_equal(count(&s), 1);
}

/* Datagrams have no handshake, and sessions of other packets' neighbours stay. */
static void test_not_timed(void **state)
{
	struct flows *f = *state;
	struct flow udp, tcp;
	flow_open(f, &udp, 1, 3000);
	harness_advance(&f->harness, MS);
	flow_open(f, &tcp, 2, 3001);
	struct delay_share s = seen(f);
	assert_int_equal(count(&s), 1); /* TCP over IPv6 */
	flow_check(f, &tcp);
	s = seen(f);
	assert_int_equal(count(&s), 1);
}

static void test_forgotten_with_the_server(void **state)
{
	struct flows *f = *state;
	struct flow flow;
	struct changes c = {0};
	flow_begin(f, &flow, 0, 2000);
	answer(f, &flow, MS);
	delete_service(&c, &f->service[0]);
	flows_commit(f, &c);
	for (unsigned i = 0; i < HARNESS_RETIRED + 3; i++)
		flows_advance(f, 1);
	struct delay_share s = seen(f);
	assert_int_equal(count(&s), 0);
	assert_int_equal(SY_READ(f->harness.b->server_delay[flow.server_id]), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, flows_setup, flows_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_answers_are_timed),
	        TEST(test_smoothed),
	        TEST(test_repeated_syn),
	        TEST(test_copies),
	        TEST(test_begins_again),
	        TEST(test_no_more_than_the_gap_allows),
	        TEST(test_not_timed),
	        TEST(test_forgotten_with_the_server),
	        TEST(test_answer_in_the_same_iteration),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
