// SPDX-License-Identifier: Apache-2.0
/* The mirror with a live kernel: it must report the changes that iproute2 makes. */
#include <libmnl/libmnl.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include "../mirror.h"
#include "topology.h"

static void test_links_and_addresses(void **state)
{
	const struct sy_link *link;

	mirror_start();
	link = link_named("near0");
	assert_non_null(link);
	assert_true(link->up);
	assert_string_equal(link->kind, "veth");
	assert_int_equal(link->mtu, 1500);
	assert_true(link->mac[0] & 2); /* locally administered, as veth makes them */
	assert_true(addr_is(&(struct expected_addr){"192.0.2.1", true}));
	assert_true(addr_is(&(struct expected_addr){"2001:db8::1", true}));

	sh("ip addr add 198.51.100.7/25 dev near0; ip addr del 2001:db8::1/64 dev near0");
	pump_until(addr_is, (&(struct expected_addr){"198.51.100.7", true}));
	pump_until(addr_is, (&(struct expected_addr){"2001:db8::1", false}));

	sh("ip link set near0 mtu 1400; ip link set near0 down");
	expect_link("near0", true, false);
	assert_int_equal(link_named("near0")->mtu, 1400);
	sh("ip link set near0 up");
	expect_link("near0", true, true);
	netns_enter(far_ns);
	sh("ip link set far0 down"); /* removes the carrier of near0 */
	netns_enter(near_ns);
	expect_link("near0", true, false);

	sh("ip link add br0 type bridge; ip link set near0 master br0");
	expect_link("br0", true, false);
	sh("ip link set near0 nomaster; ip link del br0");
	expect_link("br0", false, false);
	assert_non_null(link_named("near0")); /* leaving a bridge does not remove the link */
	sh("ip link del near0");
	expect_link("near0", false, false);
	pump_until(addr_is, (&(struct expected_addr){"198.51.100.7", false}));
}

static void test_routes_of_both_families(void **state)
{
	struct sy_route found;
	struct sy_addr dst;

	sh("ip route add 203.0.113.0/24 via 192.0.2.2");
	mirror_start();
	expect_route("203.0.113.0", 24, "via 192.0.2.2 dev near0 weight 1");
	expect_route("192.0.2.0", 24, "via link dev near0 weight 1");
	expect_route("2001:db8::", 64, "via link dev near0 weight 1");
	/* routes of table local are not reported */
	expect_route("192.0.2.1", 32, "none");

	sh("ip -6 route add default via 2001:db8::2");
	expect_route("::", 0, "via 2001:db8::2 dev near0 weight 1");
	sh("ip -4 route add default via inet6 2001:db8::2 dev near0");
	expect_route("0.0.0.0", 0, "via 2001:db8::2 dev near0 weight 1");
	sh("ip route add blackhole 203.0.113.128/25; ip -6 route add unreachable 2001:db8:9::/48");
	expect_route("203.0.113.128", 25, "blackhole");
	expect_route("2001:db8:9::", 48, "blackhole");
	sh("ip route add 203.0.113.64/26 via 192.0.2.2 table 77");
	sh("ip route add 198.51.100.0/24 via 192.0.2.2 table default");
	expect_route("198.51.100.0", 24, "via 192.0.2.2 dev near0 weight 1");
	expect_route("203.0.113.64", 26, "none");

	dst = addr_of("203.0.113.200");
	assert_true(sy_mirror_lookup(topology->mirror, &dst, &found));
	assert_true(found.blackhole);
	dst = addr_of("203.0.113.100");
	assert_true(sy_mirror_lookup(topology->mirror, &dst, &found));
	assert_int_equal(found.prefix_len, 24);
	dst = addr_of("8.8.8.8");
	assert_true(sy_mirror_lookup(topology->mirror, &dst, &found));
	assert_int_equal(found.prefix_len, 0);
	dst = addr_of("2001:db8:1::1");
	assert_true(sy_mirror_lookup(topology->mirror, &dst, &found));
	assert_int_equal(found.prefix_len, 0);

	sh("ip -4 route del default; ip -6 route del default; ip route del 203.0.113.0/24");
	expect_route("0.0.0.0", 0, "none");
	expect_route("::", 0, "none");
	expect_route("203.0.113.0", 24, "none");
	dst = addr_of("8.8.8.8");
	assert_false(sy_mirror_lookup(topology->mirror, &dst, &found));
}

static void test_metrics_and_alternates(void **state)
{
	mirror_start();
	sh("ip route add 203.0.113.0/24 via 192.0.2.30 metric 30");
	expect_route("203.0.113.0", 24, "via 192.0.2.30 dev near0 weight 1");
	sh("ip route add 203.0.113.0/24 via 192.0.2.10 metric 10");
	expect_route("203.0.113.0", 24, "via 192.0.2.10 dev near0 weight 1");
	sh("ip route add 203.0.113.0/24 via 192.0.2.5 table default metric 5");
	sh("ip route add 203.0.113.0/24 via 192.0.2.20 metric 20");
	sh("ip route del 203.0.113.0/24 metric 10");
	expect_route("203.0.113.0", 24, "via 192.0.2.20 dev near0 weight 1");
	/* same prefix, same metric: the first one wins */
	sh("ip route append 203.0.113.0/24 via 192.0.2.21 metric 20");
	sh("ip route prepend 203.0.113.0/24 via 192.0.2.19 metric 20");
	expect_route("203.0.113.0", 24, "via 192.0.2.19 dev near0 weight 1");
	sh("ip route del 203.0.113.0/24 via 192.0.2.19 metric 20");
	expect_route("203.0.113.0", 24, "via 192.0.2.20 dev near0 weight 1");
	sh("ip route del 203.0.113.0/24 via 192.0.2.20 metric 20");
	expect_route("203.0.113.0", 24, "via 192.0.2.21 dev near0 weight 1");
	sh("ip route replace 203.0.113.0/24 via 192.0.2.22 metric 20");
	expect_route("203.0.113.0", 24, "via 192.0.2.22 dev near0 weight 1");
	sh("ip route del 203.0.113.0/24 metric 20; ip route del 203.0.113.0/24 metric 30");
	expect_route("203.0.113.0", 24, "via 192.0.2.5 dev near0 weight 1");

	sh("ip -6 route add 2001:db8:5::/48 via 2001:db8::30 metric 30");
	sh("ip -6 route add 2001:db8:5::/48 via 2001:db8::10 metric 10");
	expect_route("2001:db8:5::", 48, "via 2001:db8::10 dev near0 weight 1");
	sh("ip -6 route del 2001:db8:5::/48 metric 10");
	expect_route("2001:db8:5::", 48, "via 2001:db8::30 dev near0 weight 1");
}

static void test_multipath(void **state)
{
	mirror_start();
	sh("ip route add 203.0.113.0/24 nexthop via 192.0.2.3 weight 2 nexthop via 192.0.2.2");
	expect_route("203.0.113.0", 24,
	             "via 192.0.2.2 dev near0 weight 1, via 192.0.2.3 dev near0 weight 2");
	sh("ip -6 route add 2001:db8:5::/48 nexthop via 2001:db8::2 nexthop via 2001:db8::3");
	expect_route("2001:db8:5::", 48,
	             "via 2001:db8::2 dev near0 weight 1, via 2001:db8::3 dev near0 weight 1");
	sh("ip -6 route append 2001:db8:5::/48 via 2001:db8::4");
	expect_route("2001:db8:5::", 48,
	             "via 2001:db8::2 dev near0 weight 1, via 2001:db8::3 dev near0 weight 1, "
	             "via 2001:db8::4 dev near0 weight 1");
	sh("ip -6 route del 2001:db8:5::/48 via 2001:db8::3");
	expect_route("2001:db8:5::", 48,
	             "via 2001:db8::2 dev near0 weight 1, via 2001:db8::4 dev near0 weight 1");
	sh("ip -6 route replace 2001:db8:5::/48 via 2001:db8::9");
	expect_route("2001:db8:5::", 48, "via 2001:db8::9 dev near0 weight 1");
	sh("ip -6 route del 2001:db8:5::/48");
	expect_route("2001:db8:5::", 48, "none");
}

static void test_nexthop_objects(void **state)
{
	mirror_start();
	sh("ip nexthop add id 1 via 192.0.2.7 dev near0; ip nexthop add id 2 via 192.0.2.8 dev "
	   "near0; ip nexthop add id 10 group 1/2,3");
	sh("ip route add 203.0.113.0/24 nhid 10");
	expect_route("203.0.113.0", 24,
	             "via 192.0.2.7 dev near0 weight 1, via 192.0.2.8 dev near0 weight 3");
	sh("ip nexthop del id 1");
	expect_route("203.0.113.0", 24, "via 192.0.2.8 dev near0 weight 1");
	sh("ip nexthop replace id 2 via 192.0.2.9 dev near0");
	expect_route("203.0.113.0", 24, "via 192.0.2.9 dev near0 weight 1");
	sh("ip nexthop del id 10");
	expect_route("203.0.113.0", 24, "none");

	sh("sysctl -qw net.ipv4.nexthop_compat_mode=0; ip route add 203.0.113.0/24 nhid 2");
	pump_until(refusal_has, "nexthop_compat_mode");
	sh("ip route del 203.0.113.0/24");
	pump_until(refusal_has, NULL);
}

static void test_link_down_takes_routes(void **state)
{
	veth_new("near1", "far1", far_ns);
	sh("ip addr add 198.51.100.1/24 dev near1");
	mirror_start();
	sh("ip route add 203.0.113.0/24 nexthop via 192.0.2.2 nexthop via 198.51.100.2");
	sh("ip route add 203.0.112.0/24 via 192.0.2.2 metric 5");
	sh("ip route add 203.0.112.0/24 via 198.51.100.2 metric 9");
	expect_route("203.0.113.0", 24,
	             "via 192.0.2.2 dev near0 weight 1, via 198.51.100.2 dev near1 weight 1");
	expect_route("203.0.112.0", 24, "via 192.0.2.2 dev near0 weight 1");
	/* carrier lost: the kernel only marks the hops */
	netns_enter(far_ns);
	sh("ip link set far0 down");
	netns_enter(near_ns);
	expect_route("203.0.113.0", 24, "via 198.51.100.2 dev near1 weight 1");
	expect_route("203.0.112.0", 24, "via 198.51.100.2 dev near1 weight 1");
	expect_route("192.0.2.0", 24, "dead");
	netns_enter(far_ns);
	sh("ip link set far0 up");
	netns_enter(near_ns);
	expect_route("203.0.112.0", 24, "via 192.0.2.2 dev near0 weight 1");
	expect_route("192.0.2.0", 24, "via link dev near0 weight 1");
	/* link set down: the kernel removes the routes silently */
	sh("ip link set near0 down");
	expect_route("203.0.113.0", 24, "via 198.51.100.2 dev near1 weight 1");
	expect_route("203.0.112.0", 24, "via 198.51.100.2 dev near1 weight 1");
	expect_route("192.0.2.0", 24, "none");
	expect_route("2001:db8::", 64, "none");
	sh("ip link set near0 up");
	expect_route("203.0.113.0", 24,
	             "via 192.0.2.2 dev near0 weight 1, via 198.51.100.2 dev near1 weight 1");
	/* device deleted: the kernel removes whole multipath routes */
	sh("ip link del near1");
	expect_route("203.0.113.0", 24, "none");
	expect_route("203.0.112.0", 24, "none");
}

static void test_source_address_takes_routes(void **state)
{
	sh("ip addr add 192.0.2.77/32 dev near0");
	mirror_start();
	sh("ip route add 203.0.113.0/24 via 192.0.2.2 src 192.0.2.77");
	expect_route("203.0.113.0", 24, "via 192.0.2.2 dev near0 weight 1");
	sh("ip addr del 192.0.2.77/32 dev near0");
	expect_route("203.0.113.0", 24, "none");
}

static void test_policy_routing_is_refused(void **state)
{
	mirror_start();
	assert_true(refusal_has(NULL));
	sh("ip rule add from 192.0.2.9 table 77 pref 100");
	pump_until(refusal_has, "IPv4 rule with priority 100");
	sh("ip rule del pref 100");
	pump_until(refusal_has, NULL);
	sh("ip -6 rule add not fwmark 1 table 77 pref 300");
	pump_until(refusal_has, "IPv6 rule with priority 300");
	assert_true(refusal_has("with all packets"));
	sh("ip -6 rule del pref 300");
	pump_until(refusal_has, NULL);
	/* They match no packet that a port has received, or lead where all do. */
	sh("ip rule add fwmark 1 table 77; ip rule add oif near0 table 77; "
	   "ip rule add iif lo table 77; ip rule add uidrange 5-9 table 77; "
	   "ip rule add from 192.0.2.9 table main; ip rule add ipproto icmp table 77");
	sh("ip rule add to 192.0.2.99 table 77 pref 301");
	pump_until(refusal_has, "priority 301");
	assert_true(refusal_has("packets to 192.0.2.99/32 "));
	assert_non_null(strstr(topology->policies, "policy routing"));
	assert_null(strstr(strstr(topology->policies, "policy routing") + 1, "policy routing"));
	sh("ip rule del pref 301");
	pump_until(refusal_has, NULL);
	sh("ip route add 203.0.113.0/24 tos 0x10 via 192.0.2.2");
	pump_until(refusal_has, "tos");
	expect_route("203.0.113.0", 24, "none");
	sh("ip route del 203.0.113.0/24 tos 0x10");
	pump_until(refusal_has, NULL);
	sh("ip -6 route add 2001:db8:5::/48 from 2001:db8:6::/48 via 2001:db8::2");
	pump_until(refusal_has, "source");
	sh("ip -6 route del 2001:db8:5::/48 from 2001:db8:6::/48");
	pump_until(refusal_has, NULL);
}

static bool all_packets_are_refused(const void *unused)
{
	return topology->all_refused;
}

/* More rules than slots: the last one is widened to packets of those without a slot. */
static void test_many_rules_concern_all_packets(void **state)
{
	mirror_start();
	for (unsigned i = 0; i < 40; i++)
		sh("ip rule add to 192.0.2.%u tos 0x10 ipproto tcp dport 80 table 77", i + 1);
	pump_until(all_packets_are_refused, NULL);
	sh("ip rule flush; ip rule add table main pref 32766; ip rule add table default pref "
	   "32767");
	pump_until(refusal_has, NULL);
}

static void test_policy_routing_from_before(void **state)
{
	sh("ip rule add to 192.0.2.9 table 77 pref 100");
	mirror_start();
	assert_non_null(strstr(topology->policies, "ip rule del pref 100"));
}

static void test_vrf_is_refused(void **state)
{
	if (!sh_ok("ip link add vrf0 type vrf table 77 2>/dev/null"))
		skip(); /* a kernel without VRF */
	mirror_start();
	sh("ip link set near0 master vrf0");
	pump_until(refusal_has, "near0 belongs to a VRF");
	sh("ip link del vrf0; ip rule del pref 1000; ip -6 rule del pref 1000");
	pump_until(refusal_has, NULL);
}

#define STALE_SEQ 4711

/* A message about 192.0.2.77: an event, or a part of the dump STALE_SEQ. */
static void neigh_report(struct sy_mirror *m, uint16_t state, bool dumped)
{
	_Alignas(8) char buf[128];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ndmsg *ndm = mnl_nlmsg_put_extra_header(nlh, sizeof(*ndm));
	static const uint8_t dst[4] = {192, 0, 2, 77}, mac[6] = {2, 0, 0, 0, 0, 77};

	nlh->nlmsg_type = RTM_NEWNEIGH;
	nlh->nlmsg_flags = dumped ? NLM_F_MULTI : 0;
	nlh->nlmsg_seq = dumped ? STALE_SEQ : 0;
	nlh->nlmsg_pid = dumped ? m->id : 0;
	ndm->ndm_family = AF_INET;
	ndm->ndm_ifindex = (int)if_nametoindex("near0");
	ndm->ndm_state = state;
	mnl_attr_put(nlh, NDA_DST, sizeof(dst), dst);
	if (state == NUD_REACHABLE)
		mnl_attr_put(nlh, NDA_LLADDR, sizeof(mac), mac);
	mirror_on_message(m, nlh);
}

/* The kernel wrote the part before the event, but the event comes first in the socket. */
static void test_older_part_of_a_dump_changes_nothing(void **state)
{
	struct sy_addr addr = addr_of("192.0.2.77");
	struct sy_neigh neigh;
	struct sy_mirror *m;

	mirror_start();
	m = topology->mirror;
	m->dumping = true;
	m->kind = KIND_NEIGH;
	m->dump_seq = STALE_SEQ;
	m->spoilt = false;
	neigh_report(m, NUD_FAILED, true); /* no event contradicts it */
	assert_true(sy_mirror_find_neigh(m, (int)if_nametoindex("near0"), &addr, &neigh));
	assert_true(neigh.failed && !m->spoilt);
	neigh_report(m, NUD_REACHABLE, false);
	neigh_report(m, NUD_FAILED, true);
	assert_true(sy_mirror_find_neigh(m, (int)if_nametoindex("near0"), &addr, &neigh));
	assert_true(neigh.valid && m->spoilt);
	m->dumping = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TOPOLOGY_TEST(test_links_and_addresses),
	        TOPOLOGY_TEST(test_routes_of_both_families),
	        TOPOLOGY_TEST(test_metrics_and_alternates),
	        TOPOLOGY_TEST(test_multipath),
	        TOPOLOGY_TEST(test_nexthop_objects),
	        TOPOLOGY_TEST(test_link_down_takes_routes),
	        TOPOLOGY_TEST(test_source_address_takes_routes),
	        TOPOLOGY_TEST(test_policy_routing_is_refused),
	        TOPOLOGY_TEST(test_many_rules_concern_all_packets),
	        TOPOLOGY_TEST(test_policy_routing_from_before),
	        TOPOLOGY_TEST(test_vrf_is_refused),
	        TOPOLOGY_TEST(test_older_part_of_a_dump_changes_nothing),
	};

	return cmocka_run_group_tests_name("mirror", tests, NULL, NULL);
}
