// SPDX-License-Identifier: Apache-2.0
/* SNAT: inside hosts reach remote hosts through a pool; TCP, UDP and echo, both families. */
#include "snat.h"
#include "snat_fixture.h"

/* One pool address, and a table larger than the supply of ports. */
static void padded(struct flows *f)
{
	struct changes c = {0};
	f->options.sessions = 2048 * SY_SLOTS;
	flows_reopen(f, 1, 0, false);
	put_rules(&c, 1);
	flows_commit(f, &c);
}

static void test_a_conversation(void **state)
{
	struct flows *f = *state;
	for (unsigned cycle = 0; cycle < 2 * KINDS; cycle++) {
		if (cycle == KINDS)
			flows_reopen(f, 2, 0, true);
		struct talk k = talk_of(cycle % KINDS, (uint16_t)(3000 + cycle), 443);
		talk_open(f, &k);
		const struct sy_tuple first = k.back;
		for (unsigned n = 0; n < 10; n++) {
			to_remote(f, &k, SY_TCP_ACK | SY_TCP_PSH);
			assert_memory_equal(&first, &k.back, sizeof(first));
			to_inside(f, &k, SY_TCP_ACK);
		}
		if (k.out.proto == SY_PROTO_TCP) {
			to_remote(f, &k, SY_TCP_ACK | SY_TCP_FIN);
			to_inside(f, &k, SY_TCP_ACK | SY_TCP_FIN);
		}
	}
	assert_int_equal(live(f), 2 * KINDS);
	flows_advance(f, 1000);
	assert_int_equal(live(f), 0);
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		assert_int_equal(inspect_table(f->harness.b, slot)->top,
		                 0); /* including pair records */
}

/* One socket that talks with more remotes than its slot has pool ports: the same address and port
 * is used towards many at once. UDP and echo keep theirs towards all remotes. */
static void test_ports_are_reused(void **state)
{
	enum { REMOTES = 600 };
	struct flows *f = *state;
	static struct talk k[REMOTES];
	padded(f);
	for (unsigned kind = 0; kind < KINDS; kind++) {
		unsigned same = 0;
		for (unsigned i = 0; i < REMOTES; i++) {
			k[i] = talk_of(kind, 5000, (uint16_t)(1 + i));
			k[i].out.dst.b[14] = (uint8_t)(i / 200);
			k[i].out.dst.b[15] = (uint8_t)(1 + i % 200);
			to_remote(f, &k[i], SY_TCP_SYN);
			same += k[i].back.dport == k[0].back.dport;
		}
		if (k[0].out.proto == SY_PROTO_TCP)
			assert_in_range(same, 1, 20); /* each remote has its own cursor */
		else
			assert_int_equal(same, REMOTES);
		for (unsigned i = 0; i < REMOTES; i++)
			to_inside(f, &k[i], SY_TCP_SYN | SY_TCP_ACK);
		flows_advance(f, 1000);
		assert_int_equal(live(f), 0);
	}
}

/* Also where the inside port would correspond to one that the system uses: an inside port of each
 * first byte. */
static void test_every_port_is_the_same_towards_all(void **state)
{
	struct flows *f = *state;
	padded(f);
	for (unsigned kind = 0; kind < KINDS; kind++) {
		if (kind % 3 == 0)
			continue; /* TCP */
		for (unsigned port = 7; port <= UINT16_MAX; port += 256) {
			struct talk first = talk_of(kind, (uint16_t)port, 53), second = first;
			second.out.dst.b[15]++;
			to_remote(f, &first, 0);
			to_remote(f, &second, 0);
			assert_int_equal(second.back.dport, first.back.dport);
			assert_true(sy_addr_equal(&second.back.dst, &first.back.dst));
			to_inside(f, &first, 0);
		}
		flows_advance(f, 1000);
	}
}

/* All ports of a slot are used towards one remote: the packet is dropped with a specific reason,
 * and a session that ends frees its port. */
static void test_exhaustion(void **state)
{
	struct flows *f = *state;
	unsigned opened = 0;
	struct talk k = talk_of(1, 0, 53);
	padded(f);
	/* inside hosts and ports of one slot */
	uint8_t slot = sy_slot_of(&k.out.src, htons(4000));
	for (unsigned host = 1; host < 255; host++)
		for (unsigned n = 0; n < SY_SLOT_PORTS; n += 16) {
			k.out.src.b[15] = (uint8_t)host;
			k.out.sport = sy_slot_port(slot, &k.out.src, n);
			struct frame in, out;
			make(f, &in, &k.out, 0, false);
			if (!flows_through(f, HARNESS_LAN, &in, &out))
				continue;
			opened++;
			/* as if its host had sent after an answer: it keeps its port */
			flows_find(f, &k.out)->state = SESSION_UDP_BOTH_WAYS;
			inspect_table(f->harness.b, slot)->embryonic--;
		}
	/* the pool has 252 to 256 of them that the system does not use */
	assert_in_range(opened, 252, 256);
	assert_true(harness_drops(&f->harness, SY_DROP_NO_POOL_PORT) > 0);
	k.out.dport = htons(54); /* towards another remote, all are free */
	to_remote(f, &k, 0);
	flows_advance(f, 1000);
	k.out.src.b[15] = 2;
	k.out.dport = htons(53);
	to_remote(f, &k, 0);
	to_inside(f, &k, 0);
}

/* A host keeps one pool address while that has free ports; other hosts get other addresses. */
static void test_pairing(void **state)
{
	struct flows *f = *state;
	unsigned seen[2] = {0};
	for (unsigned host = 1; host < 60; host++) {
		struct talk first = {0};
		for (unsigned i = 0; i < 4; i++) {
			struct talk k = talk_of(i % 2, (uint16_t)(2000 + i), (uint16_t)(80 + i));
			k.out.src.b[15] = (uint8_t)host;
			to_remote(f, &k, SY_TCP_SYN);
			if (i == 0)
				first = k;
			assert_true(sy_addr_equal(&first.back.dst, &k.back.dst));
		}
		seen[first.back.dst.b[15] - 50]++;
	}
	assert_true(seen[0] > 10 && seen[1] > 10);
}

/* Closes a connection by FINs with these numbers, the remote's first or the inside host's. Returns
 * the reset that the remote gets when the session ends; 0: it gets none. */
static uint32_t reset_after(struct flows *f, struct talk *k, bool remote_first)
{
	const struct segment fins[2][3] = {{{SY_TCP_FIN | SY_TCP_ACK, 100, 200, 0},
	                                    {SY_TCP_FIN | SY_TCP_ACK, 200, 101, 0},
	                                    {SY_TCP_ACK, 101, 201, 0}},
	                                   {{SY_TCP_FIN | SY_TCP_ACK, 200, 100, 0},
	                                    {SY_TCP_FIN | SY_TCP_ACK, 100, 201, 0},
	                                    {SY_TCP_ACK, 201, 101, 0}}};
	uint32_t number = 0;
	struct frame in, out;
	struct sy_view v;
	talk_open(f, k);
	for (unsigned n = 0; n < 3; n++) {
		bool from_remote = remote_first == !(n % 2);
		frame_tcp(&in, &f->rng, from_remote ? &k->back : &k->out, &fins[remote_first][n],
		          0);
		assert_true(flows_through(f, from_remote ? HARNESS_WAN : HARNESS_LAN, &in, &out));
	}
	assert_int_equal(flows_find(f, &k->out)->state, SESSION_TIME_WAIT);
	flows_advance(f, session_timeout_default[SESSION_TIME_WAIT] + 3);
	assert_int_equal(live(f), 0);
	for (struct rte_mbuf *m; (m = harness_collect(&f->harness, HARNESS_WAN));) {
		const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
		assert_int_equal(sy_packet_parse(frame, rte_pktmbuf_data_len(m), &v), SY_DROP_NONE);
		assert_int_equal(sy_packet_check_l4(frame, &v), SY_CSUM_OK);
		assert_int_equal(v.tcp_flags, SY_TCP_RST);
		assert_true(sy_addr_equal(&v.tuple.src, &k->back.dst));
		assert_int_equal(v.tuple.sport, k->back.dport);
		assert_int_equal(number, 0);
		number = ntohl(sy_packet_tcp(frame, &v)->seq);
		rte_pktmbuf_free(m);
	}
	return number;
}

/* A remote that closed first remembers the pool's port, which another inside host may get next. */
static void test_time_wait_of_a_remote_ends(void **state)
{
	struct flows *f = *state;
	for (unsigned kind = 0; kind < KINDS; kind += KINDS / 2) {
		struct talk k = talk_of(kind, 1000, 80);
		assert_int_equal(reset_after(f, &k, true), 101);
		assert_int_equal(reset_after(f, &k, false), 0);
	}
}

/* Packets that SNAT does not translate: unsolicited ones to the pool, traffic between inside hosts,
 * to multicast groups. */
static void test_strays(void **state)
{
	struct flows *f = *state;
	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct talk k = talk_of(kind, 1000, 80);
		to_remote(f, &k, SY_TCP_SYN);
		struct sy_tuple stray = k.back;
		stray.src.b[15]++; /* another remote: the port is not open to it */
		check_dropped(f, HARNESS_WAN, &stray, SY_TCP_ACK, SY_DROP_SNAT_STRAY);
		if (!is_echo(&stray)) {
			stray = k.back;
			stray.sport++;
			check_dropped(f, HARNESS_WAN, &stray, SY_TCP_ACK, SY_DROP_SNAT_STRAY);
		}
		stray = k.out;
		stray.dst = stray.src;
		stray.dst.b[15]++;
		check_dropped(f, HARNESS_LAN, &stray, SY_TCP_SYN, SY_DROP_UNKNOWN_DESTINATION);
		stray.dst = harness_addr(kind / 3 ? "ff0e::1" : "239.1.1.1");
		check_dropped(f, HARNESS_LAN, &stray, SY_TCP_SYN, SY_DROP_UNKNOWN_DESTINATION);
		stray.dst = harness_addr(kind / 3 ? "fe80::1" : "169.254.0.1");
		check_dropped(f, HARNESS_LAN, &stray, SY_TCP_SYN, SY_DROP_UNKNOWN_DESTINATION);
	}
	struct talk k = talk_of(0, 1001, 80);
	check_dropped(f, HARNESS_LAN, &k.out, SY_TCP_ACK, SY_DROP_NO_SESSION);
	k.out.src = harness_addr("10.4.0.1"); /* no rule matches */
	check_dropped(f, HARNESS_LAN, &k.out, SY_TCP_SYN, SY_DROP_UNKNOWN_DESTINATION);
}

/* Errors about both sides' packets, from a router on the path: each sender gets the packet quoted
 * as it sent it, with one worker and with two. */
static void test_errors(void **state)
{
	enum { QUOTED = 48 };
	struct flows *f = *state;
	const uint8_t unreachable[2][2] = {{1, 0}, {3, 1}};
	for (unsigned n = 0; n < 40; n++) {
		if (n == 20)
			flows_reopen(f, 2, 0, true);
		struct talk k = talk_of(n % 2 ? 1 + 3 * (n / 2 % 2) : 3 * (n / 2 % 2),
		                        (uint16_t)(2000 + n), 443);
		bool v4 = k.kind < 3;
		unsigned ip = v4 ? 20 : 40;
		struct frame sent, in, out;
		struct sy_view view;
		struct sy_quote q;
		talk_open(f, &k);
		/* an error to the remote host, from a router on the inside */
		struct sy_addr router = k.out.src;
		router.b[15] = 99;
		struct sy_tuple about = {k.out.dst, k.out.src, k.out.dport, k.out.sport,
		                         k.out.proto};
		make(f, &sent, &about, SY_TCP_ACK, true);
		frame_error(&in, &f->rng, &router, unreachable[v4], 0, sent.bytes, ip + QUOTED);
		assert_true(flows_through(f, HARNESS_LAN, &in, &out));
		assert_int_equal(sy_packet_parse(out.bytes, out.len, &view), SY_DROP_NONE);
		assert_int_equal(sy_packet_check_l4(out.bytes, &view), SY_CSUM_OK);
		assert_int_equal(sy_packet_parse_quote(out.bytes, &view, &q), SY_DROP_NONE);
		assert_memory_equal(&q.tuple, &k.back, sizeof(k.back));
		assert_true(sy_addr_equal(&view.tuple.src, &k.back.dst));
		assert_true(sy_addr_equal(&view.tuple.dst, &k.back.src));
		/* an error to the inside host, from a router on the remote side */
		router = k.back.src;
		router.b[15] = 99;
		about = (struct sy_tuple){k.back.dst, k.back.src, k.back.dport, k.back.sport,
		                          k.back.proto};
		make(f, &sent, &about, SY_TCP_ACK, false);
		frame_error(&in, &f->rng, &router, unreachable[v4], 0, sent.bytes, ip + QUOTED);
		assert_true(flows_through(f, HARNESS_WAN, &in, &out));
		assert_int_equal(sy_packet_parse(out.bytes, out.len, &view), SY_DROP_NONE);
		assert_int_equal(sy_packet_check_l4(out.bytes, &view), SY_CSUM_OK);
		assert_int_equal(sy_packet_parse_quote(out.bytes, &view, &q), SY_DROP_NONE);
		assert_memory_equal(&q.tuple, &k.out, sizeof(k.out));
		assert_true(sy_addr_equal(&view.tuple.dst, &k.out.src));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_conversation),
	        TEST(ports_are_reused),
	        TEST(every_port_is_the_same_towards_all),
	        TEST(exhaustion),
	        TEST(pairing),
	        TEST(time_wait_of_a_remote_ends),
	        TEST(strays),
	        TEST(errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
