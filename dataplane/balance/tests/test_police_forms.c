// SPDX-License-Identifier: Apache-2.0
/* Limits in each mode: each packet that came in counts once, with the bytes that it had then,
 * whatever it becomes: fragments, a tunnel, another family. */
#include "limit.h"
#include "limit_fixture.h"
#include "limit_model.h"
#include "ways.h"

#define LARGE  1450 /* bytes of IP packet: more than the servers' network allows */
#define ROUNDS 20
#define PIECE  400

static const struct way ways[] = WAYS_OF_MODES;

static int setup(void **state)
{
	int rc = ways_setup(state, ways, SY_ARRAY_LEN(ways));
	flows_advance(*state, 1);
	return rc;
}

static int setup_queued(void **state)
{
	int rc = setup(state);
	limits_queue(*state);
	return rc;
}

/* Sends frames in, and returns how many leave towards the servers. */
static unsigned send_all(struct flows *f, const struct frame *in, unsigned count)
{
	struct rte_mbuf *m;
	unsigned sent = 0;
	for (unsigned i = 0; i < count; i++)
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in[i].bytes, in[i].len));
	harness_poll(&f->harness);
	harness_attend(&f->harness);
	for (; (m = harness_collect(&f->harness, HARNESS_LAN)); sent++)
		rte_pktmbuf_free(m);
	while ((m = harness_collect(&f->harness, HARNESS_WAN)))
		rte_pktmbuf_free(m);
	return sent;
}

/* Puts a limit of bits on a way's service, of so many packets of this frame. */
static void limit_way(struct flows *f, const struct way *way, const struct frame *of,
                      unsigned packets)
{
	struct changes c = {0};
	const struct service_key key = key_of(way, SY_PROTO_UDP);
	add_limit_service(
	        &c, put_limit(&c, "a", BITS, 8000, (uint64_t)packets * (of->len - SY_ETH_LEN)),
	        &key);
	flows_commit(f, &c);
}

static void unlimit(struct flows *f)
{
	struct changes c = {0};
	delete_limit(&c, "a");
	flows_commit(f, &c);
}

static void test_modes(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < SY_ARRAY_LEN(ways); n++) {
		const struct sy_tuple t = client_of(&ways[n], SY_PROTO_UDP, 4000);
		struct frame in;
		flows_frame(f, &in, &t, 0, 0, 100);
		assert_int_equal(send_all(f, &in, 1), 1);
		limit_way(f, &ways[n], &in, 7);
		unsigned sent = 0;
		for (unsigned i = 0; i < ROUNDS; i++)
			sent += send_all(f, &in, 1);
		assert_int_equal(sent, 7);
		assert_int_equal(limit_show(f, "a").left, 0);
		assert_int_equal(limit_show(f, "a").above, ROUNDS - 7);
		unlimit(f);
	}
}

/* One packet becomes several that fit. */
static void test_oversize(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < SY_ARRAY_LEN(ways); n++) {
		const struct sy_tuple t = client_of(&ways[n], SY_PROTO_UDP, 4000);
		struct frame in;
		if (ways[n].client6) /* its sender must send smaller ones */
			continue;
		flows_frame(f, &in, &t, 0, 0, LARGE - 28);
		frame_let_fragment(&in);
		unsigned pieces = send_all(f, &in, 1);
		assert_true(pieces >= 2);
		limit_way(f, &ways[n], &in, 5);
		unsigned sent = 0;
		for (unsigned i = 0; i < ROUNDS; i++)
			sent += send_all(f, &in, 1);
		assert_int_equal(sent, 5 * pieces);
		assert_int_equal(limit_show(f, "a").passed, 5);
		assert_int_equal(limit_show(f, "a").passed_bytes, 5 * LARGE);
		unlimit(f);
	}
}

/* A packet that is divided cannot go through the event device: the bucket is shared until none has
 * come for a second. */
static void test_beside(void **state)
{
	struct flows *f = *state;
	const struct sy_balance *b = f->harness.b;
	const struct sy_tuple t = client_of(&ways[0], SY_PROTO_UDP, 4000);
	struct frame small, large;
	assert_false(ways[0].client6);
	flows_frame(f, &small, &t, 0, 0, 100);
	flows_frame(f, &large, &t, 0, 0, LARGE - 28);
	frame_let_fragment(&large);
	assert_int_equal(send_all(f, &small, 1), 1);
	limit_way(f, &ways[0], &large, 50);
	const struct model_limit *l = limit_find(b->ctl->limits, "a");
	assert_int_equal(send_all(f, &small, 1), 1);
	assert_string_equal(limit_show(f, "a").engine, "atomic");
	flows_advance(f, 1);
	for (unsigned n = 0; n < 3; n++) { /* as long as they come */
		assert_true(send_all(f, &large, 1) >= 2);
		flows_advance(f, 1);
		assert_string_equal(limit_show(f, "a").engine, "cas");
		assert_non_null(strstr(limit_engine_reason(b, l), "lately some could not"));
	}
	flows_advance(f, 2);
	assert_string_equal(limit_show(f, "a").engine, "atomic");
	assert_non_null(strstr(limit_engine_reason(b, l), "one worker at a time"));
	assert_int_equal(limit_show(f, "a").passed, 4);
	unlimit(f);
}

/* Each fragment is a packet, also one that waited for the first. */
static void test_fragments(void **state)
{
	enum { PIECES = 4 };
	struct flows *f = *state;
	for (unsigned n = 0; n < SY_ARRAY_LEN(ways); n++) {
		const struct sy_tuple t = client_of(&ways[n], SY_PROTO_UDP, 4000);
		struct frame whole, piece[PIECES];
		struct changes c = {0};
		const struct service_key key = key_of(&ways[n], SY_PROTO_UDP);
		flows_frame(f, &whole, &t, 0, 0, 100);
		assert_int_equal(send_all(f, &whole, 1), 1);
		flows_frame(f, &whole, &t, 0, 0, PIECE * PIECES - 8);
		add_limit_service(&c, put_limit(&c, "a", PACKETS, 1, 10), &key);
		flows_commit(f, &c);
		unsigned sent = 0;
		for (unsigned i = 0; i < 5; i++) {
			assert_int_equal(frame_cut(&whole, 100 * n + i, PIECE, piece, PIECES),
			                 PIECES);
			const struct frame first = piece[0];
			piece[0] = piece[PIECES - 1];
			piece[PIECES - 1] = first;
			sent += send_all(f, piece, PIECES);
		}
		assert_int_equal(sent, 10);
		assert_int_equal(limit_show(f, "a").passed, 10);
		assert_int_equal(limit_show(f, "a").above, 10);
		unlimit(f);
	}
}

/* Of one-way sessions only the client's packets are seen: a SYN after its FIN is a new one. */
static void test_one_way_again(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < SY_ARRAY_LEN(ways); n++) {
		const struct sy_tuple t = client_of(&ways[n], SY_PROTO_TCP, 4000);
		const struct service_key key = key_of(&ways[n], SY_PROTO_TCP);
		struct changes c = {0};
		struct frame in;
		if (ways[n].mode != MODE_DR && ways[n].mode != MODE_IPIP)
			continue;
		add_limit_service(&c, put_limit(&c, "a", SESSIONS, 1, 1), &key);
		flows_commit(f, &c);
		flows_frame(f, &in, &t, SY_TCP_SYN, 1000, 0);
		assert_int_equal(send_all(f, &in, 1), 1);
		flows_frame(f, &in, &t, SY_TCP_ACK, 1001, 0);
		assert_int_equal(send_all(f, &in, 1), 1);
		for (unsigned near = 0; near < 2; near++) { /* else the FIN may be forged */
			flows_frame(f, &in, &t, SY_TCP_FIN | SY_TCP_ACK, 1001 + (!near << 20), 0);
			assert_int_equal(send_all(f, &in, 1), 1);
			flows_frame(f, &in, &t, SY_TCP_SYN, 5000, 0);
			assert_int_equal(send_all(f, &in, 1), 0);
			assert_int_equal(limit_show(f, "a").above, near + 1);
		}
		flows_advance(f, 1);
		assert_int_equal(send_all(f, &in, 1), 1);
		assert_int_equal(send_all(f, &in, 1), 1); /* its repetition */
		assert_int_equal(limit_show(f, "a").passed, 2);
		unlimit(f);
	}
}

/* As many limits of new sessions as one session can have: their charge remains although the
 * session's first packet is too large. */
static void test_most_sessions(void **state)
{
	enum { OF = 4, BURST = 3 };
	static char name[LIMIT_NAMED * OF][3];
	struct flows *f = *state;
	const struct way *way = &ways[0];
	const struct service_key key = key_of(way, SY_PROTO_UDP);
	struct sy_tuple t = client_of(way, SY_PROTO_UDP, 4000);
	struct changes c = {0};
	struct frame in;
	flows_frame(f, &in, &t, 0, 0, 100);
	assert_int_equal(send_all(f, &in, 1), 1);
	const struct session *s = flows_find(f, &t);
	const struct endpoint *e = inspect_endpoint(f->harness.b, s->server);
	for (unsigned n = 0; n < LIMIT_NAMED * OF; n++) {
		snprintf(name[n], sizeof(name[n]), "%c%u", (char)('a' + n % OF), n / OF % 10);
		pb_limit *l = put_limit(&c, name[n], SESSIONS, 1, BURST);
		if (n % OF == 1)
			add_limit_vip(&c, l, &key.vip);
		else if (n % OF == 2)
			add_limit_service(&c, l, &key);
		else if (n % OF == 3)
			add_limit_server(&c, l, &key, &e->addr, ntohs(e->port));
	}
	flows_commit(f, &c);
	assert_int_equal(f->harness.b->limits.chain[s->server]->sessions, LIMIT_CHAIN);
	t.sport = htons(4001);
	flows_frame(f, &in, &t, 0, 0, LARGE - 28);
	assert_int_equal(send_all(f, &in, 1), 0);
	assert_int_equal(harness_drops(&f->harness, SY_DROP_TOO_BIG), 1);
	assert_non_null(flows_find(f, &t));
	for (unsigned n = 0; n < LIMIT_NAMED * OF; n++)
		assert_int_equal(limit_show(f, name[n]).left, BURST - 1);
	for (unsigned n = 0; n < LIMIT_NAMED * OF; n++)
		delete_limit(&c, name[n]);
	flows_commit(f, &c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_modes, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_oversize, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_fragments, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_one_way_again, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_most_sessions, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_modes, setup_queued, limits_teardown_queued),
	        cmocka_unit_test_setup_teardown(test_oversize, setup_queued,
	                                        limits_teardown_queued),
	        cmocka_unit_test_setup_teardown(test_fragments, setup_queued,
	                                        limits_teardown_queued),
	        cmocka_unit_test_setup_teardown(test_beside, setup_queued, limits_teardown_queued),
	        cmocka_unit_test_setup_teardown(test_one_way_again, setup_queued,
	                                        limits_teardown_queued),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
