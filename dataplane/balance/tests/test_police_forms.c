// SPDX-License-Identifier: Apache-2.0
/* Limits in each mode: each packet that came in counts once, with the bytes that it had then,
 * whatever it becomes: fragments, a tunnel, another family. */
#include "limit_fixture.h"
#include "ways.h"

#define LARGE  1450 /* bytes of IP packet: more than the servers' network takes */
#define ROUNDS 20
#define PIECE  400

static const struct way ways[] = WAYS_OF_MODES;

static int setup(void **state)
{
	int rc = ways_setup(state, ways, SY_ARRAY_LEN(ways));
	flows_advance(*state, 1);
	return rc;
}

/* Sends frames in, and returns how many leave towards the servers. */
static unsigned send_all(struct flows *f, const struct frame *in, unsigned count)
{
	struct rte_mbuf *m;
	unsigned sent = 0;
	for (unsigned i = 0; i < count; i++)
		assert_true(harness_inject(&f->harness, HARNESS_WAN, in[i].bytes, in[i].len));
	harness_turn(&f->harness);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_modes, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_oversize, setup, flows_teardown),
	        cmocka_unit_test_setup_teardown(test_fragments, setup, flows_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
