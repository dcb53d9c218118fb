// SPDX-License-Identifier: Apache-2.0
/* Packets of established sessions stay on the fast path with any limits: none reaches the slow
 * stage, and none takes the general path of the fast stage that would not do so without limits. A
 * stage of the test behind the fast one counts the remaining packets. */
#include "../../forwarder/pipeline.h"
#include "limit_fixture.h"
#include "ways.h"

#define BURST 10

static const struct way ways[] = WAYS_OF_MODES;

static const unsigned port_of[] = {[SESSION_CLIENT] = HARNESS_WAN, [SESSION_SERVER] = HARNESS_LAN};

/* Packets that were left to the slow stage, and to those behind it. */
static struct {
	uint64_t slow, behind;
} left;

static void count_stage(struct sy_worker *w, struct sy_burst *burst)
{
	(void)w;
	for (unsigned i = 0; i < burst->count; i++) {
		left.slow += burst->next[i] == SY_NEXT_SLOW;
		left.behind +=
		        burst->next[i] == SY_NEXT_READY || burst->next[i] == SY_NEXT_TRANSMIT;
	}
}

/* The forwarder's stages, and one more. */
static const struct sy_stage *counting_pipeline(void)
{
	static struct sy_stage stage[16];
	unsigned n = 0;
	for (const struct sy_stage *s = pipeline; s->name; s++) {
		assert_true(n + 3 <= SY_ARRAY_LEN(stage));
		stage[n++] = *s;
		if (s->run == sy_fast_stage)
			stage[n++] = (struct sy_stage){"count", count_stage};
	}
	stage[n] = (struct sy_stage){NULL, NULL};
	return stage;
}

static int setup(void **state)
{
	int rc = ways_setup(state, ways, SY_ARRAY_LEN(ways));
	struct flows *f = *state;
	f->options.pipeline = counting_pipeline();
	flows_reopen(f, 1, 0, false);
	flows_advance(f, 1);
	return rc;
}

static int setup_queued(void **state)
{
	int rc = setup(state);
	limits_queue(*state);
	return rc;
}

/* Limits of each kind on one service, of which the narrowest lets BURST packets pass. */
static void limits_put(struct flows *f, const struct service_key *service)
{
	struct changes c = {0};
	add_limit_service(&c, put_limit(&c, "a", PACKETS, 1, BURST), service);
	add_limit_vip(&c, put_limit(&c, "b", BITS, 8000, 1000000), &service->vip);
	set_limit_clients(&c, put_limit(&c, "c", PACKETS, 1, 3 * BURST), 100);
	add_limit_service(&c, put_limit(&c, "d", SESSIONS, 1, BURST), service);
	pb_limit *mark = put_limit(&c, "e", PACKETS, 1, 1);
	mark->action = MARK;
	mark->dscp = 10;
	flows_commit(f, &c);
}

static void limits_delete(struct flows *f)
{
	static const char *const names[] = {"a", "b", "c", "d", "e"};
	struct changes c = {0};
	for (unsigned i = 0; i < SY_ARRAY_LEN(names); i++)
		delete_limit(&c, names[i]);
	flows_commit(f, &c);
}

/* Offers one burst of n packets of an established session; returns how many came through. */
static unsigned burst_send(struct flows *f, unsigned port, const struct frame *in, unsigned n)
{
	struct rte_mbuf *m;
	unsigned through = 0;
	left.slow = left.behind = 0;
	while (n-- > 0)
		assert_true(harness_inject(&f->harness, port, in->bytes, in->len));
	harness_poll(&f->harness);
	harness_attend(&f->harness);
	for (; (m = harness_collect(&f->harness, 1 - port)); through++)
		rte_pktmbuf_free(m);
	return through;
}

/* Opens a flow whose packets from this side leave in the fast stage, as long as they have no limit:
 * some of the fixture's have IP options. */
static void flow_open_plain(struct flows *f, struct flow *flow, unsigned service,
                            enum session_direction from)
{
	static uint16_t port = 4000;
	do {
		left.slow = 0;
		flow_open(f, flow, service, port++);
		assert_true(left.slow > 0); /* its first packet */
		assert_int_equal(burst_send(f, port_of[from], &flow->in[from], 30), 30);
		assert_int_equal(left.slow, 0);
	} while (left.behind > 0);
}

/* TCP and UDP, both families and directions: what passes and what is dropped leaves in the fast
 * stage, by its common way. By an event device, what passes goes on to the limit stage. */
static void test_services(void **state)
{
	struct flows *f = *state;
	const bool queued = f->options.workers == 3;
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		for (unsigned from = 0; from < 2; from++) {
			struct flow flow;
			flow_open_plain(f, &flow, s, from);
			limits_put(f, &f->service[s]);
			assert_int_equal(burst_send(f, port_of[from], &flow.in[from], 30), BURST);
			assert_int_equal(left.slow, 0);
			assert_true(queued ? left.behind >= BURST : left.behind == 0);
			assert_int_equal(limit_show(f, "a").above, 30 - BURST);
			limits_delete(f);
		}
}

/* In all modes, to servers. */
static void test_modes(void **state)
{
	struct flows *f = *state;
	const bool queued = f->options.workers == 3;
	for (unsigned n = 0; n < SY_ARRAY_LEN(ways); n++) {
		const struct service_key key = key_of(&ways[n], SY_PROTO_UDP);
		const struct sy_tuple t = client_of(&ways[n], SY_PROTO_UDP, 4000);
		struct frame in;
		flows_frame(f, &in, &t, 0, 0, 100);
		assert_int_equal(burst_send(f, HARNESS_WAN, &in, 1), 1);
		assert_int_equal(left.slow, 1);
		assert_int_equal(burst_send(f, HARNESS_WAN, &in, 30), 30);
		assert_int_equal(left.slow, 0);
		const uint64_t behind = left.behind; /* of another family */
		limits_put(f, &key);
		assert_int_equal(burst_send(f, HARNESS_WAN, &in, 30), BURST);
		assert_int_equal(left.slow, 0);
		assert_true(queued || left.behind <= behind);
		limits_delete(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_services, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_modes, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_services, setup_queued,
	                                        limits_teardown_queued),
	        cmocka_unit_test_setup_teardown(test_modes, setup_queued, limits_teardown_queued),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
