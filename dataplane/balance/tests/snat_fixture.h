// SPDX-License-Identifier: Apache-2.0
/* Inside hosts behind SNAT, and their flows: TCP, UDP and echo, both families. */
#ifndef SNAT_FIXTURE_H
#define SNAT_FIXTURE_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "flows.h"

#define KINDS 6 /* TCP, UDP and echo over IPv4, then over IPv6 */

static const char *const network_text[2] = {"10.3.0.0", "2001:db8:d::"};
static const uint32_t network_bits[2] = {24, 64};
static const char *const pool_text[2][2] = {{"192.0.2.50", "192.0.2.51"},
                                            {"2001:db8:a::50", "2001:db8:a::51"}};
static const char *const inside_text[2] = {"10.3.0.1", "2001:db8:d::1"};
static const char *const remote_text[2] = {"198.18.0.9", "2001:db8:c::9"};
static const char *const rule_name[2] = {"out4", "out6"};

static inline void put_rules(struct changes *c, unsigned pools)
{
	for (unsigned f = 0; f < 2; f++)
		put_snat(c, rule_name[f], network_text[f], network_bits[f], pool_text[f], pools);
}

static inline int snat_setup(void **state)
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

static inline bool is_echo(const struct sy_tuple *t)
{
	return t->proto != SY_PROTO_TCP && t->proto != SY_PROTO_UDP;
}

static inline void make(struct flows *f, struct frame *out, const struct sy_tuple *t, uint8_t flags,
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
static inline void pass(struct flows *f, unsigned port, const struct sy_tuple *t, uint8_t flags,
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

static inline bool is_of_pool(const struct sy_addr *addr)
{
	for (unsigned i = 0; i < 2; i++) {
		struct sy_addr a = harness_addr(pool_text[!sy_addr_is_v4(addr)][i]);
		if (sy_addr_equal(&a, addr))
			return true;
	}
	return false;
}

static inline void to_remote(struct flows *f, struct talk *k, uint8_t flags)
{
	struct sy_tuple left;
	pass(f, HARNESS_LAN, &k->out, flags, &left);
	assert_true(is_of_pool(&left.src));
	assert_true(ntohs(left.sport) >= 1024);
	assert_true(sy_addr_equal(&left.dst, &k->out.dst));
	assert_int_equal(left.dport, k->out.dport);
	k->back = (struct sy_tuple){left.dst, left.src, left.dport, left.sport, left.proto};
}

static inline void to_inside(struct flows *f, const struct talk *k, uint8_t flags)
{
	struct sy_tuple left;
	pass(f, HARNESS_WAN, &k->back, flags, &left);
	assert_true(sy_addr_equal(&left.src, &k->out.dst));
	assert_true(sy_addr_equal(&left.dst, &k->out.src));
	assert_int_equal(left.sport, k->out.dport);
	assert_int_equal(left.dport, k->out.sport);
}

static inline struct talk talk_of(unsigned kind, uint16_t port, uint16_t remote_port)
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

static inline void talk_open(struct flows *f, struct talk *k)
{
	to_remote(f, k, SY_TCP_SYN);
	to_inside(f, k, SY_TCP_SYN | SY_TCP_ACK);
	to_remote(f, k, SY_TCP_ACK);
}

static inline uint64_t live(struct flows *f)
{
	return harness_totals(&f->harness).live;
}

static inline void check_dropped(struct flows *f, unsigned port, const struct sy_tuple *t,
                                 uint8_t flags, enum sy_drop reason)
{
	struct frame in, out;
	uint64_t before = harness_drops(&f->harness, reason);
	make(f, &in, t, flags, port == HARNESS_WAN);
	assert_false(flows_through(f, port, &in, &out));
	if (harness_drops(&f->harness, reason) != before + 1)
		fail_msg("not dropped as %s", sy_drop_name(reason));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, snat_setup, flows_teardown)

#endif
