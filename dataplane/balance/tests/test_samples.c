// SPDX-License-Identifier: Apache-2.0
/* Requests for samples: without requests no packet is sampled, every client gets every sample that
 * it requests, and stored samples are bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"
#include "samples.h"

#define UDP4 1 /* services of flows.h */

typedef Steelyard__Forwarder__V1__FetchSamplesRequest pb_fetch;

static const pb_fetch everything = {
        .base = PROTOBUF_C_MESSAGE_INIT(
                &steelyard__forwarder__v1__fetch_samples_request__descriptor),
        .received = 1,
        .dropped = 1};

/* Requests once; the next request continues after this reply. The caller frees the response. */
static pb_response *fetch(struct flows *f, pb_fetch *ask)
{
	pb_request q = STEELYARD__FORWARDER__V1__REQUEST__INIT;
	q.body_case = STEELYARD__FORWARDER__V1__REQUEST__BODY_FETCH_SAMPLES;
	q.fetch_samples = ask;
	pb_response *response = harness_request(&f->harness, &q);
	assert_null(response->error);
	assert_non_null(response->fetch_samples);
	ask->after = response->fetch_samples->last;
	for (unsigned i = 0; i < f->harness.rt->workers; i++)
		sample_round(&f->harness.rt->worker[i]);
	return response;
}

static void response_free(pb_response *response)
{
	steelyard__forwarder__v1__response__free_unpacked(response, NULL);
}

static size_t fetch_count(struct flows *f, pb_fetch *ask)
{
	pb_response *response = fetch(f, ask);
	size_t count = response->fetch_samples->n_samples;
	response_free(response);
	return count;
}

/* Clients' first packets: as many as `count`, from ports of their own. */
static void packets(struct flows *f, unsigned first, unsigned count)
{
	struct flow flow;
	for (unsigned n = 0; n < count; n++)
		flow_begin(f, &flow, UDP4, (uint16_t)(first + n));
}

/* A datagram to a port without a service. */
static void packet_dropped(struct flows *f)
{
	struct frame in, out;
	struct sy_tuple t = {.src = harness_addr("203.0.113.7"),
	                     .dst = f->service[UDP4].vip,
	                     .sport = htons(7),
	                     .dport = htons(9),
	                     .proto = SY_PROTO_UDP};
	flows_frame(f, &in, &t, 0, 0, 20);
	assert_false(flows_through(f, HARNESS_WAN, &in, &out));
}

static void test_received_and_dropped(void **state)
{
	struct flows *f = *state;
	pb_fetch ask = everything;
	packets(f, 100, 5);
	assert_int_equal(fetch_count(f, &ask), 0); /* no client had requested samples before */
	packets(f, 200, 5);
	packet_dropped(f);
	pb_response *response = fetch(f, &ask);
	const Steelyard__Forwarder__V1__Samples *l = response->fetch_samples;
	assert_int_equal(l->n_samples, 7); /* the dropped one was received too */
	assert_int_equal(l->taken, 7);
	assert_int_equal(l->lost, 0);
	assert_int_equal(l->missed, 0);
	assert_false(l->more);
	for (size_t i = 0; i < l->n_samples; i++) {
		assert_string_equal(l->samples[i]->drop, i == 6 ? "no-service" : "");
		assert_int_equal(l->samples[i]->one_in, 1);
		assert_int_equal(l->samples[i]->header.data[12], 8); /* IPv4 */
		assert_in_range(l->samples[i]->length, 42, 1514);
	}
	response_free(response);
	assert_int_equal(fetch_count(f, &ask), 0);
}

/* Each client gets all samples, of the kind and in the number that it requests. */
static void test_several_clients(void **state)
{
	struct flows *f = *state;
	pb_fetch one = everything, two = everything, drops = everything;
	two.limit = 2;
	drops.received = 0;
	fetch_count(f, &one);
	fetch_count(f, &two);
	fetch_count(f, &drops);
	packets(f, 300, 3);
	packet_dropped(f);
	assert_int_equal(fetch_count(f, &one), 5);
	pb_response *response = fetch(f, &two);
	assert_int_equal(response->fetch_samples->n_samples, 2);
	assert_true(response->fetch_samples->more);
	response_free(response);
	assert_int_equal(fetch_count(f, &two), 2);
	assert_int_equal(fetch_count(f, &two), 1);
	assert_int_equal(fetch_count(f, &two), 0);
	assert_int_equal(fetch_count(f, &drops), 1);
}

/* The smallest requested rate applies while its client requests it. */
static void test_rates(void **state)
{
	struct flows *f = *state;
	pb_fetch fine = everything, coarse = everything;
	coarse.received = 1000000;
	coarse.dropped = 0;
	fetch_count(f, &fine);
	fetch_count(f, &coarse);
	packets(f, 400, 4);
	assert_int_equal(fetch_count(f, &coarse), 4);
	flows_advance(f, 3); /* the fine one has gone */
	fetch_count(f, &coarse);
	packets(f, 500, 4);
	assert_int_equal(fetch_count(f, &coarse), 0);
}

/* Workers stop copying without requests, and their remaining samples are discarded. */
static void test_no_request_no_samples(void **state)
{
	struct flows *f = *state;
	pb_fetch ask = everything;
	fetch_count(f, &ask);
	packets(f, 600, 4);
	flows_advance(f, 3);
	for (unsigned i = 0; i < f->harness.rt->workers; i++)
		sample_round(&f->harness.rt->worker[i]);
	packets(f, 700, 4);
	assert_int_equal(sy_samples_count(f->harness.rt).enqueued, 4);
	assert_int_equal(fetch_count(f, &ask), 0);
}

/* A client that comes too late learns how many samples it has missed; one that remembers an
 * earlier forwarder begins anew. */
static void test_forgotten(void **state)
{
	struct flows *f = *state;
	pb_fetch ask = everything, late = everything, other = everything;
	const unsigned often = 18, each = 1000;
	fetch_count(f, &ask);
	fetch_count(f, &late);
	for (unsigned n = 0; n < often; n++) {
		packets(f, 1000, each);
		assert_int_equal(fetch_count(f, &ask), each);
	}
	pb_response *response = fetch(f, &late);
	assert_int_equal(response->fetch_samples->missed, often * each - SAMPLES_KEPT);
	assert_int_equal(response->fetch_samples->n_samples, 1000);
	assert_true(response->fetch_samples->more);
	response_free(response);
	other.after = 1000000;
	response = fetch(f, &other);
	assert_int_equal(response->fetch_samples->n_samples, 0);
	assert_int_equal(response->fetch_samples->missed, 0);
	assert_int_equal(response->fetch_samples->last, ask.after);
	response_free(response);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_received_and_dropped, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_several_clients, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_rates, flows_setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_no_request_no_samples, flows_setup,
	                                        flows_teardown),
	        cmocka_unit_test_setup_teardown(test_forgotten, flows_setup, flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
