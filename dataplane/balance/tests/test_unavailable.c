// SPDX-License-Identifier: Apache-2.0
/* What clients get while a service is unavailable, or a VIP has no service on their port: every
 * mode, family, cause and setting, with one and two workers, with and without the SYN defence. */
#include "unavailable_fixture.h"

/* TCP segments of no session: answered while no server is up. A reset never is. */
static void check_midstream(struct trial *t)
{
	const bool none = t->cause != SERVER_FULL && t->cause != SERVICE_FULL;
	const enum sy_drop reason =
	        t->defended && (t->way->mode == MODE_FNAT || t->way->mode == MODE_NAT)
	                ? SY_DROP_BAD_COOKIE
	                : SY_DROP_NO_SESSION;
	const enum answer want = none ? answer_of(t->setting, SY_PROTO_TCP) : NOTHING;
	struct sy_tuple client = next_client(t);
	struct frame in;
	flows_frame(t->f, &in, &client, SY_TCP_ACK, 77, 100);
	check(t->f, &in, want, reason);
	flows_frame(t->f, &in, &client, SY_TCP_ACK | SY_TCP_FIN, 77, 0);
	check(t->f, &in, want, reason);
	flows_frame(t->f, &in, &client, SY_TCP_RST, 77, 0);
	check(t->f, &in, NOTHING, SY_DROP_NO_SESSION);
	flows_frame(t->f, &in, &client, SY_TCP_RST | SY_TCP_ACK, 77, 0);
	check(t->f, &in, NOTHING, SY_DROP_NO_SESSION);
	flows_frame(t->f, &in, &client, SY_TCP_ACK, 77, 100);
	in.bytes[in.len - 1] ^= 1; /* damaged on its way */
	struct sy_view v;
	assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
	check(t->f, &in, NOTHING, SY_DROP_NO_SESSION);
}

static void trial_run(struct trial *t)
{
	const struct service_key key = key_of(t->way, t->proto);
	const enum answer want = answer_of(t->setting, t->proto);
	/* Whether a server is full shows when it is chosen: after the cookie. */
	const bool late = t->defended && t->cause == SERVER_FULL;
	flows_advance(t->f, 1); /* the rates are full again */
	const enum sy_drop reason = begin(t);
	const struct counted before = counted(t->f, &key);
	const struct sy_tuple client = next_client(t);
	struct frame in;
	flows_frame(t->f, &in, &client, SY_TCP_SYN, 41, 0);
	if (!late) {
		check(t->f, &in, want, reason);
		const struct counted after = counted(t->f, &key);
		assert_int_equal(after.resets - before.resets, want == A_RESET);
		assert_int_equal(after.icmp - before.icmp, want == AN_ERROR);
		check(t->f, &in, want, reason); /* repeated */
	}
	if (t->proto == SY_PROTO_TCP)
		check_midstream(t);
	check_echo(t->f, &client);
	if (t->cause == KILL) /* its sessions are over */
		flows_advance(t->f, RESET_BOTH_SECONDS + 1);
	ignore_sent(t->f);
	end(t);
}

static void run_all(struct flows *f, uint8_t proto, bool defended)
{
	for (unsigned w = 0; w < WAYS; w++) {
		uint16_t port = 2000;
		for (unsigned cause = 0; cause < CAUSES; cause++)
			for (unsigned setting = 0; setting < SETTINGS; setting++) {
				struct trial t = {.f = f,
				                  .way = &ways[w],
				                  .setting = setting,
				                  .cause = cause,
				                  .defended = defended,
				                  .proto = proto,
				                  .port = port};
				/* Sessions of the trial before are over. */
				flows_advance(f, proto == SY_PROTO_TCP ? 12 : 32);
				trial_run(&t);
				port = t.port;
			}
	}
}

static void test_tcp(void **state)
{
	run_all(*state, SY_PROTO_TCP, false);
}

static void test_udp(void **state)
{
	run_all(*state, SY_PROTO_UDP, false);
}

static void test_defended(void **state)
{
	run_all(*state, SY_PROTO_TCP, true);
}

/* ---- fragments ------------------------------------------------------------------------------- */

/* Sends a datagram in two pieces. The first fragment is answered once the datagram is complete; the
 * later one is not, in either order. */
static void check_pieces(struct flows *f, const struct frame piece[2], bool late_first,
                         enum answer want, enum sy_drop reason)
{
	const uint64_t named = harness_drops(&f->harness, reason), all = drops_all(f);
	inject(f, &piece[late_first]);
	harness_poll(&f->harness);
	assert_null(harness_collect(&f->harness, HARNESS_WAN));
	inject(f, &piece[!late_first]);
	harness_poll(&f->harness);
	assert_true(harness_drops(&f->harness, reason) > named);
	assert_int_equal(drops_all(f), all + 2);
	struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_WAN);
	assert_int_equal(m != NULL, want != NOTHING);
	if (m) {
		struct sy_view v;
		assert_int_equal(sy_packet_parse(sy_frame(m), rte_pktmbuf_data_len(m), &v),
		                 SY_DROP_NONE);
		assert_int_equal(v.proto, v.v4 ? SY_PROTO_ICMP : SY_PROTO_ICMPV6);
		rte_pktmbuf_free(m);
	}
	assert_null(harness_collect(&f->harness, HARNESS_WAN));
	assert_null(harness_collect(&f->harness, HARNESS_LAN));
}

/* By ICMP, over TCP too. */
static void test_fragments(void **state)
{
	struct flows *f = *state;
	for (unsigned n = 0; n < 8 * WAYS; n++) {
		struct trial t = {.f = f,
		                  .way = &ways[n / 8],
		                  .setting = n & 1 ? ICMP : RESET,
		                  .cause = DOWN,
		                  .proto = n & 2 ? SY_PROTO_TCP : SY_PROTO_UDP,
		                  .port = (uint16_t)(3000 + n)};
		const bool late_first = n & 4;
		struct frame whole, piece[2];
		flows_advance(f, 1);
		const enum sy_drop reason = begin(&t);
		const struct service_key key = key_of(t.way, t.proto);
		const struct counted before = counted(f, &key);
		const struct sy_tuple client = next_client(&t);
		const struct segment s = {SY_TCP_SYN, 41, 0, 0};
		if (t.proto == SY_PROTO_TCP)
			frame_tcp(&whole, &f->rng, &client, &s, 300);
		else
			frame_udp(&whole, &f->rng, &client, 300);
		assert_int_equal(frame_cut(&whole, 7 + n, 200, piece, 2), 2);
		check_pieces(f, piece, late_first, AN_ERROR, reason);
		const struct counted after = counted(f, &key);
		assert_int_equal(after.icmp, before.icmp + 1);
		assert_int_equal(after.resets, before.resets);
	}
}

/* ---- ports without a service ----------------------------------------------------------------- */

static void test_unknown_ports(void **state)
{
	static const enum sy_unavailable options[] = {SY_UNAVAILABLE_DROP, SY_UNAVAILABLE_RESET,
	                                              SY_UNAVAILABLE_ICMP};
	static const enum setting as[] = {DROP, RESET, ICMP};
	struct flows *f = *state;
	assert_int_equal(f->harness.b->options.unknown_ports, SY_UNAVAILABLE_DROP);
	for (unsigned n = 0; n < SY_ARRAY_LEN(options) * WAYS; n++) {
		const struct way *way = &ways[n / 3];
		const struct counted before = counted_unknown(f);
		struct sy_tuple tcp = client_of(way, SY_PROTO_TCP, 4000);
		struct frame in, piece[2];
		f->harness.b->options.unknown_ports = options[n % 3];
		flows_advance(f, 1);
		tcp.dport = htons(4444);
		struct sy_tuple udp = tcp;
		udp.proto = SY_PROTO_UDP;
		const enum answer want = answer_of(as[n % 3], SY_PROTO_TCP);
		const enum answer error = answer_of(as[n % 3], SY_PROTO_UDP);

		flows_frame(f, &in, &tcp, SY_TCP_SYN, 41, 0);
		check(f, &in, want, SY_DROP_NO_SERVICE);
		flows_frame(f, &in, &tcp, SY_TCP_ACK, 41, 10);
		check(f, &in, want, SY_DROP_NO_SERVICE);
		flows_frame(f, &in, &tcp, SY_TCP_RST, 41, 0);
		check(f, &in, NOTHING, SY_DROP_NO_SERVICE);
		flows_frame(f, &in, &udp, 0, 0, 100);
		check(f, &in, error, SY_DROP_NO_SERVICE);
		in.bytes[in.len - 1] ^= 1; /* damaged on its way */
		check(f, &in, NOTHING, SY_DROP_NO_SERVICE);
		flows_frame(f, &in, &udp, 0, 0, 300);
		assert_int_equal(frame_cut(&in, 100 + n, 200, piece, 2), 2);
		check_pieces(f, piece, n & 1, error, SY_DROP_NO_SERVICE);
		udp.src = key_of(&ways[way->client6 ? 8 : 1], SY_PROTO_UDP).vip; /* forged: a VIP */
		if (!sy_addr_equal(&udp.src, &udp.dst)) {
			flows_frame(f, &in, &udp, 0, 0, 100);
			check(f, &in, NOTHING, SY_DROP_NO_SERVICE);
		}
		check_echo(f, &tcp);
		const struct counted after = counted_unknown(f);
		const unsigned tcps = want == NOTHING ? 0 : 2, udps = error == NOTHING ? 0 : 2;
		assert_int_equal(after.resets - before.resets, want == A_RESET ? tcps : 0);
		assert_int_equal(after.icmp - before.icmp, udps + (want == AN_ERROR ? tcps : 0));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(tcp), TEST(udp), TEST(defended), TEST(fragments), TEST(unknown_ports),
	};
	return cmocka_run_group_tests_name("unavailable", tests, NULL, NULL);
}
