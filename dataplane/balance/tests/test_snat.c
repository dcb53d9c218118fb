// SPDX-License-Identifier: Apache-2.0
/* SNAT: inside hosts reach remote hosts through a pool; TCP, UDP and echo, both families. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_hash.h>

#include <cmocka.h>

#include "flows.h"
#include "snat.h"

#define KINDS  6 /* TCP, UDP and echo over IPv4, then over IPv6 */
#define TICKET 0x1234

static const char *const network_text[2] = {"10.3.0.0", "2001:db8:d::"};
static const uint32_t network_bits[2] = {24, 64};
static const char *const pool_text[2][2] = {{"192.0.2.50", "192.0.2.51"},
                                            {"2001:db8:a::50", "2001:db8:a::51"}};
static const char *const inside_text[2] = {"10.3.0.1", "2001:db8:d::1"};
static const char *const remote_text[2] = {"198.18.0.9", "2001:db8:c::9"};
static const char *const rule_name[2] = {"out4", "out6"};

static void put_rules(struct changes *c, unsigned pools)
{
	for (unsigned f = 0; f < 2; f++)
		put_snat(c, rule_name[f], network_text[f], network_bits[f], pool_text[f], pools);
}

static int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	put_rules(&c, 2);
	flows_commit(*state, &c);
	return rc;
}

/* A flow as both sides see it; an echo's id is in the port fields. */
struct talk {
	unsigned kind;
	struct sy_tuple out, back; /* tuples of arriving packets: inside → remote, remote → pool */
};

static bool is_echo(const struct sy_tuple *t)
{
	return t->proto != SY_PROTO_TCP && t->proto != SY_PROTO_UDP;
}

static void make(struct flows *f, struct frame *out, const struct sy_tuple *t, uint8_t flags,
                 bool reply)
{
	const uint8_t type[2][2] = {{128, 129}, {8, 0}};
	bool v4 = sy_addr_is_v4(&t->src);
	uint16_t id = reply ? t->dport : t->sport;
	if (t->proto == SY_PROTO_TCP) { /* an answer must acknowledge the SYN's number */
		const struct segment s = {flags, 1, 2, flags & SY_TCP_SYN ? 1460 : 0};
		frame_tcp(out, &f->rng, t, &s, 100);
		return;
	}
	if (!is_echo(t)) {
		flows_frame(f, out, t, flags, 1, 100);
		return;
	}
	frame_icmp(out, &f->rng, t, type[v4][reply], 0, 100);
	memcpy(out->bytes + SY_ETH_LEN + (v4 ? 20 : 40) + 4, &id, sizeof(id));
	frame_fix_l4(out);
}

/* Sends a frame and checks the frame that leaves. */
static void pass(struct flows *f, unsigned port, const struct sy_tuple *t, uint8_t flags,
                 struct sy_tuple *left)
{
	bool reply = port == HARNESS_WAN;
	struct frame in, out;
	struct sy_view after;
	make(f, &in, t, flags, reply);
	if (!flows_through(f, port, &in, &out))
		for (unsigned reason = 1; reason < SY_DROP_COUNT; reason++)
			if (harness_drops(&f->harness, reason) > 0)
				fail_msg("dropped: %s", sy_drop_name(reason));
	frame_check_translated(&in, &out, &after);
	*left = after.tuple;
	if (is_echo(t)) {
		left->sport = reply ? 0 : after.icmp_id;
		left->dport = reply ? after.icmp_id : 0;
	}
}

static bool is_of_pool(const struct sy_addr *addr)
{
	for (unsigned i = 0; i < 2; i++) {
		struct sy_addr a = harness_addr(pool_text[!sy_addr_is_v4(addr)][i]);
		if (sy_addr_equal(&a, addr))
			return true;
	}
	return false;
}

static void to_remote(struct flows *f, struct talk *k, uint8_t flags)
{
	struct sy_tuple left;
	pass(f, HARNESS_LAN, &k->out, flags, &left);
	assert_true(is_of_pool(&left.src));
	assert_true(ntohs(left.sport) >= 1024);
	assert_true(sy_addr_equal(&left.dst, &k->out.dst));
	assert_int_equal(left.dport, k->out.dport);
	k->back = (struct sy_tuple){left.dst, left.src, left.dport, left.sport, left.proto};
}

static void to_inside(struct flows *f, const struct talk *k, uint8_t flags)
{
	struct sy_tuple left;
	pass(f, HARNESS_WAN, &k->back, flags, &left);
	assert_true(sy_addr_equal(&left.src, &k->out.dst));
	assert_true(sy_addr_equal(&left.dst, &k->out.src));
	assert_int_equal(left.sport, k->out.dport);
	assert_int_equal(left.dport, k->out.sport);
}

static struct talk talk_of(unsigned kind, uint16_t port, uint16_t remote_port)
{
	const uint8_t proto[KINDS] = {SY_PROTO_TCP, SY_PROTO_UDP, SY_PROTO_ICMP,
	                              SY_PROTO_TCP, SY_PROTO_UDP, SY_PROTO_ICMPV6};
	struct talk k = {.kind = kind,
	                 .out = {harness_addr(inside_text[kind / 3]),
	                         harness_addr(remote_text[kind / 3]), htons(port),
	                         htons(remote_port), proto[kind]}};
	if (is_echo(&k.out))
		k.out.dport = 0;
	return k;
}

static void talk_open(struct flows *f, struct talk *k)
{
	to_remote(f, k, SY_TCP_SYN);
	to_inside(f, k, SY_TCP_SYN | SY_TCP_ACK);
	to_remote(f, k, SY_TCP_ACK);
}

static uint64_t live(struct flows *f)
{
	return harness_totals(&f->harness).live;
}

static void check_dropped(struct flows *f, unsigned port, const struct sy_tuple *t, uint8_t flags,
                          enum sy_drop reason)
{
	struct frame in, out;
	uint64_t before = harness_drops(&f->harness, reason);
	make(f, &in, t, flags, port == HARNESS_WAN);
	assert_false(flows_through(f, port, &in, &out));
	if (harness_drops(&f->harness, reason) != before + 1)
		fail_msg("not dropped as %s", sy_drop_name(reason));
}

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

/* A crash, a stop and a hand-over, with one worker and two, beside FNAT sessions; another table
 * size. */
static void test_restart(void **state)
{
	enum { TALKS = 60 };
	struct flows *f = *state;
	struct flow fnat[FLOW_SERVICES];
	struct talk k[TALKS];
	for (unsigned i = 0; i < TALKS; i++) {
		k[i] = talk_of(i % KINDS, (uint16_t)(2000 + i), (uint16_t)(100 + i));
		talk_open(f, &k[i]);
	}
	for (unsigned i = 0; i < FLOW_SERVICES; i++)
		flow_open(f, &fnat[i], i, (uint16_t)(1000 + i));
	for (unsigned cycle = 0; cycle < 7; cycle++) {
		flows_advance(f, 1);
		if (cycle == 6)
			f->options.sessions = 2 * 64 * SY_SLOTS;
		flows_reopen(f, 1 + cycle % 2, cycle % 3 == 2 ? TICKET : 0, cycle % 3 == 0);
		assert_int_equal(flows_result(f, SESSION_KEPT), TALKS + FLOW_SERVICES);
		for (unsigned i = 0; i < TALKS; i++) {
			struct talk same = k[i];
			to_inside(f, &k[i], SY_TCP_ACK);
			to_remote(f, &same, SY_TCP_ACK);
			assert_memory_equal(&same.back, &k[i].back, sizeof(same.back));
		}
		for (unsigned i = 0; i < FLOW_SERVICES; i++)
			flow_check(f, &fnat[i]);
	}
	/* deleting a rule or a pool address ends its sessions */
	struct changes c = {0};
	harness_crash(&f->harness);
	delete_snat(&c, rule_name[0]);
	flows_change_saved(f, &c);
	flows_open(f);
	assert_int_equal(flows_result(f, SESSION_SERVER_GONE), TALKS / 2);
	put_snat(&c, rule_name[1], network_text[1], network_bits[1], pool_text[1], 0);
	assert_false(harness_commit(&f->harness, &c));
	delete_snat(&c, rule_name[1]);
	flows_commit(f, &c);
	flows_advance(f, HARNESS_RETIRED);
	assert_int_equal(live(f), FLOW_SERVICES);
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

/* A NAT service's server answers clients as before; SNAT translates its own traffic. */
static void test_beside_nat(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = harness_key("192.0.2.30", 80, SY_PROTO_TCP);
	struct sy_addr server = harness_addr(inside_text[0]);
	put_service(&c, &key, "nat", FLOW_RR, NULL);
	set_mode(&c, MODE_NAT);
	put_server(&c, &key, &server, 8080, 1, FLOW_UP);
	flows_commit(f, &c);
	struct sy_tuple client = {harness_addr(remote_text[0]), key.vip, htons(999), key.vport,
	                          SY_PROTO_TCP};
	struct frame in, out;
	struct sy_view view;
	make(f, &in, &client, SY_TCP_SYN, false);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	const struct sy_tuple answer = {server, client.src, htons(8080), client.sport,
	                                SY_PROTO_TCP};
	make(f, &in, &answer, SY_TCP_SYN | SY_TCP_ACK, false);
	assert_true(flows_through(f, HARNESS_LAN, &in, &out));
	assert_int_equal(sy_packet_parse(out.bytes, out.len, &view), SY_DROP_NONE);
	assert_true(sy_addr_equal(&view.tuple.src, &key.vip));
	struct talk k = talk_of(0, 8081, 80);
	talk_open(f, &k);
	/* an inside host is an ordinary client of a VIP, which is unreachable here */
	k.out.dst = key.vip;
	k.out.dport = htons(81);
	check_dropped(f, HARNESS_LAN, &k.out, SY_TCP_SYN, SY_DROP_NO_SERVICE);
}

/* The same with a service on all ports: no port is left for the server's own traffic. */
static void test_beside_nat_of_all_ports(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = harness_key("192.0.2.30", 0, SY_PROTO_UDP);
	struct sy_addr server = harness_addr(inside_text[0]);
	put_service(&c, &key, "nat", FLOW_RR, NULL);
	set_mode(&c, MODE_NAT);
	put_server(&c, &key, &server, 0, 1, FLOW_UP);
	flows_commit(f, &c);
	const struct sy_tuple client = {harness_addr(remote_text[0]), key.vip, htons(999),
	                                htons(8080), SY_PROTO_UDP};
	const struct sy_tuple answer = {server, client.src, client.dport, client.sport,
	                                SY_PROTO_UDP};
	struct sy_tuple left;
	pass(f, HARNESS_WAN, &client, 0, &left);
	pass(f, HARNESS_LAN, &answer, 0, &left);
	assert_true(sy_addr_equal(&left.src, &key.vip));
	assert_int_equal(left.sport, client.dport);
	/* SNAT still translates another host's UDP, and this host's TCP */
	struct talk k = talk_of(1, 8080, 80);
	k.out.src.b[15]++;
	talk_open(f, &k);
	k = talk_of(0, 8080, 80);
	talk_open(f, &k);
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

static bool refused(struct flows *f, struct changes *c, const char *why)
{
	bool accepted = harness_commit(&f->harness, c);
	if (!accepted && !strstr(f->harness.error, why))
		fail_msg("refused for another reason: %s", f->harness.error);
	return !accepted;
}

/* A refused transaction gives a reason and changes nothing. */
static void test_refusals(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	size_t before_len, after_len;
	uint8_t *before = harness_config(&f->harness, &before_len), *after;
	const char *const two[2] = {"192.0.2.60", "2001:db8:a::60"};
	struct sy_addr addr = f->local[0];
	char text[SY_ADDR_TEXT];
	const char *const pool_local[1] = {sy_addr_format(&addr, text)};
	put_snat(&c, "x", "10.3.9.0", 24, pool_local, 1);
	assert_true(refused(f, &c, "is a local address already"));
	put_snat(&c, "x", "10.3.9.1", 24, two, 1);
	assert_true(refused(f, &c, "is not a prefix"));
	put_snat(&c, "x", "10.3.9.0", 33, two, 1);
	assert_true(refused(f, &c, "is not within 1–32"));
	put_snat(&c, "x", "10.3.9.0", 24, two + 1, 1);
	assert_true(refused(f, &c, "no IPv4 address"));
	put_snat(&c, "x", network_text[0], network_bits[0], two, 1);
	assert_true(refused(f, &c, "is already in rule out4"));
	put_snat(&c, "", "10.3.9.0", 24, two, 1);
	assert_true(refused(f, &c, "a name has"));
	delete_snat(&c, "x");
	assert_true(refused(f, &c, "there is no SNAT rule x"));
	addr = harness_addr(pool_text[0][0]);
	put_local(&c, &addr);
	assert_true(refused(f, &c, "is a pool address already"));
	struct service_key key = f->service[0];
	put_server(&c, &key, &addr, 80, 1, FLOW_UP);
	assert_true(refused(f, &c, "pool address itself"));
	/* changes of every kind, refused at the end */
	delete_snat(&c, rule_name[0]);
	put_local(&c, &addr);
	put_snat(&c, rule_name[1], "2001:db8:d::", 65, two + 1, 1);
	put_snat(&c, "y", "10.3.9.0", 24, two, 1);
	put_server(&c, &key, &addr, 80, 1, FLOW_UP);
	assert_true(refused(f, &c, "pool address itself"));
	after = harness_config(&f->harness, &after_len);
	assert_int_equal(after_len, before_len);
	assert_memory_equal(after, before, after_len);
	free(before);
	free(after);
	for (unsigned kind = 0; kind < KINDS; kind++) {
		struct talk k = talk_of(kind, 4000, 80);
		talk_open(f, &k);
	}
	/* the same transaction, valid */
	delete_snat(&c, rule_name[0]);
	delete_snat(&c, rule_name[1]);
	put_local(&c, &addr);
	flows_commit(f, &c);
	assert_int_equal(rte_hash_count(inspect_model(f->harness.b)->source), 0);
	assert_null(inspect_snat(f->harness.b));
	flows_advance(f, HARNESS_RETIRED);
	assert_int_equal(live(f), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(a_conversation), TEST(ports_are_reused),
	        TEST(exhaustion),     TEST(pairing),
	        TEST(restart),        TEST(time_wait_of_a_remote_ends),
	        TEST(strays),         TEST(beside_nat),
	        TEST(refusals),       TEST(beside_nat_of_all_ports),
	        TEST(errors),         TEST(every_port_is_the_same_towards_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
