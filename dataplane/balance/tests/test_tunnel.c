// SPDX-License-Identifier: Apache-2.0
/* IPIP: packets reach servers of either family through a tunnel, and no answers pass the
 * balancer. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flows.h"

#define SERVICES                                                                                   \
	8 /* TCP and UDP over IPv4, then IPv6; the second half has servers of the other family */
#define TICKET 0x1234

static const char *const client_text[2] = {"198.18.0.1", "2001:db8:c::1"};
static const char *const server_text[2][2] = {{"10.0.0.91", "10.0.0.92"}, /* behind a router */
                                              {"2001:db8:b::91", "2001:db8:b::92"}};

static bool client_is_v6(unsigned service)
{
	return service / 2 % 2;
}

static bool server_is_v6(unsigned service)
{
	return client_is_v6(service) != (service >= SERVICES / 2);
}

static struct service_key key_of(unsigned service)
{
	struct service_key key =
	        harness_key(client_is_v6(service) ? "2001:db8:a::40" : "192.0.2.40",
	                    service % 2 ? 53 : 80, service % 2 ? SY_PROTO_UDP : SY_PROTO_TCP);
	key.vip.b[15] = (uint8_t)(key.vip.b[15] + service / 4);
	return key;
}

static int setup(void **state)
{
	struct changes c = {0};
	int rc = flows_setup(state);
	for (unsigned s = 0; s < SERVICES; s++) {
		struct service_key key = key_of(s);
		flows_put(&c, &key, "tunnelled", MODE_IPIP, server_text[server_is_v6(s)], 2,
		          ntohs(key.vport));
	}
	flows_commit(*state, &c);
	return rc;
}

static struct sy_tuple client_of(unsigned service, uint16_t port)
{
	const struct service_key key = key_of(service);
	return (struct sy_tuple){harness_addr(client_text[client_is_v6(service)]), key.vip,
	                         htons(port), key.vport, key.proto};
}

/* Sends a frame; inside the tunnel it is unchanged except for the TTL. Returns the server. */
static unsigned pass(struct flows *f, unsigned service, const struct sy_tuple *t, uint8_t flags,
                     unsigned payload)
{
	struct frame in, out, want;
	struct sy_view v;
	struct sy_addr src, dst;
	unsigned outer = server_is_v6(service) ? sizeof(struct sy_ipv6) : sizeof(struct sy_ipv4);
	unsigned inner = SY_ETH_LEN + outer;
	flows_frame(f, &in, t, flags, 1, payload);
	assert_true(flows_through(f, HARNESS_WAN, &in, &out));
	want = in;
	assert_int_equal(sy_packet_parse(in.bytes, in.len, &v), SY_DROP_NONE);
	frame_set_ttl(&want, (uint8_t)(sy_packet_ttl(in.bytes, &v) - 1));
	assert_int_equal(out.len, in.len + outer);
	assert_memory_equal(out.bytes + inner, want.bytes + SY_ETH_LEN, in.len - SY_ETH_LEN);
	if (server_is_v6(service)) {
		const struct sy_ipv6 *ip = (void *)(out.bytes + SY_ETH_LEN);
		assert_int_equal(ip->next_header, v.v4 ? 4 : 41);
		sy_addr_from_bytes(ip->src, 16, &src);
		sy_addr_from_bytes(ip->dst, 16, &dst);
	} else {
		const struct sy_ipv4 *ip = (void *)(out.bytes + SY_ETH_LEN);
		assert_int_equal(ip->proto, v.v4 ? 4 : 41);
		assert_int_equal(sy_csum_fold(sy_csum_sum(ip, sizeof(*ip))), 0xffff);
		src = sy_addr_v4(ip->src);
		dst = sy_addr_v4(ip->dst);
	}
	assert_true(sy_addr_equal(&src, &f->local[server_is_v6(service)]));
	struct session *s = flows_find(f, t);
	assert_non_null(s);
	assert_true(sy_addr_equal(&dst, &inspect_endpoint(f->harness.b, s->server)->addr));
	assert_true(sy_addr_equal(&src, inspect_local(f->harness.b, s->local)));
	return dst.b[15];
}

static void test_a_connection(void **state)
{
	struct flows *f = *state;
	for (unsigned cycle = 0; cycle < 2 * SERVICES; cycle++) {
		unsigned service = cycle % SERVICES;
		struct sy_tuple t = client_of(service, (uint16_t)(1000 + cycle));
		if (cycle == SERVICES)
			flows_reopen(f, 2, 0, true);
		unsigned server = pass(f, service, &t, SY_TCP_SYN, 20);
		for (unsigned n = 0; n < 20; n++)
			assert_int_equal(pass(f, service, &t, SY_TCP_ACK, 60 * n), server);
		if (t.proto == SY_PROTO_UDP)
			continue;
		assert_int_equal(flows_find(f, &t)->state, SESSION_ESTABLISHED);
		assert_int_equal(pass(f, service, &t, SY_TCP_ACK | SY_TCP_FIN, 0), server);
		assert_int_equal(flows_find(f, &t)->state, SESSION_FIN_WAIT);
	}
	assert_int_equal(harness_totals(&f->harness).live, 2 * SERVICES);
}

static void test_restart(void **state)
{
	enum { CONNECTIONS = 40 };
	struct flows *f = *state;
	unsigned server[CONNECTIONS];
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		struct sy_tuple t = client_of(i % SERVICES, (uint16_t)(2000 + i));
		pass(f, i % SERVICES, &t, SY_TCP_SYN, 0);
		server[i] = pass(f, i % SERVICES, &t, SY_TCP_ACK, 10);
	}
	for (unsigned cycle = 0; cycle < 6; cycle++) {
		flows_advance(f, 2);
		flows_reopen(f, 1 + cycle % 2, cycle % 3 == 2 ? TICKET : 0, cycle % 3 == 0);
		assert_int_equal(flows_result(f, SESSION_KEPT), CONNECTIONS);
		for (unsigned i = 0; i < CONNECTIONS; i++) {
			struct sy_tuple t = client_of(i % SERVICES, (uint16_t)(2000 + i));
			assert_int_equal(pass(f, i % SERVICES, &t, SY_TCP_ACK, 10), server[i]);
		}
	}
	flows_advance(f, 1000);
	assert_int_equal(harness_totals(&f->harness).live, 0);
}

/* The tunnel header counts: the largest packet that fits, and one byte more. */
static void test_mtu(void **state)
{
	struct flows *f = *state;
	for (unsigned s = 0; s < SERVICES; s++) {
		struct sy_tuple t = client_of(s, 1000);
		unsigned overhead = server_is_v6(s) ? 40 : 20;
		unsigned headers = (client_is_v6(s) ? 40 : 20) + (s % 2 ? 8 : 20);
		unsigned fits = HARNESS_LAN_MTU - overhead - headers;
		struct frame in;
		struct sy_view v;
		pass(f, s, &t, SY_TCP_SYN, 0);
		for (unsigned n = 0; n < 2; n++) { /* slow path and fast */
			pass(f, s, &t, SY_TCP_ACK, fits);
			flows_frame(f, &in, &t, SY_TCP_ACK, 1, fits + 1);
			assert_true(harness_inject(&f->harness, HARNESS_WAN, in.bytes, in.len));
			harness_poll(&f->harness);
			assert_null(harness_collect(&f->harness, HARNESS_LAN));
			struct rte_mbuf *m = harness_collect(&f->harness, HARNESS_WAN);
			assert_non_null(m);
			const uint8_t *error = rte_pktmbuf_mtod(m, const uint8_t *);
			assert_int_equal(sy_packet_parse(error, m->data_len, &v), SY_DROP_NONE);
			const struct sy_icmp *icmp = (const void *)(error + v.l4);
			assert_int_equal(ntohl(icmp->rest) & 0xffff, HARNESS_LAN_MTU - overhead);
			rte_pktmbuf_free(m);
		}
	}
}

/* Tunnels need local addresses; when one is removed, its sessions begin again from another. */
static void test_local_addresses(void **state)
{
	struct flows *f = *state;
	struct changes c = {0};
	struct service_key key = key_of(0);
	struct sy_addr server = harness_addr("10.0.0.93"), more = harness_addr("10.0.1.2");
	put_server(&c, &key, &server, 8080, 1, FLOW_UP);
	flows_check_refused(f, &c, "IPIP changes no ports");
	for (unsigned s = 0; s < FLOW_SERVICES; s++)
		delete_service(&c, &f->service[s]);
	flows_commit(f, &c);
	delete_local(&c, &f->local[0]);
	flows_check_refused(f, &c, "no IPv4 local address");
	struct sy_tuple t = client_of(0, 1000);
	pass(f, 0, &t, SY_TCP_SYN, 0);
	pass(f, 0, &t, SY_TCP_ACK, 0);
	put_local(&c, &more);
	delete_local(&c, &f->local[0]);
	flows_commit(f, &c);
	f->local[0] = more;
	pass(f, 0, &t, SY_TCP_SYN, 0);
	assert_int_equal(flows_find(f, &t)->state, SESSION_SYN_SENT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, flows_teardown)
	const struct CMUnitTest tests[] = {
	        TEST(a_connection),
	        TEST(restart),
	        TEST(mtu),
	        TEST(local_addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
