// SPDX-License-Identifier: Apache-2.0
/* The mirror under load, with overruns, and the neighbours that the kernel manages for it. */
#include "topology.h"

#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>

static void bulk_change(const char *verb, unsigned from, unsigned to)
{
	FILE *batch = popen("ip -force -batch -", "w");

	assert_non_null(batch);
	for (unsigned i = from; i < to; i++)
		fprintf(batch, "route %s 10.%u.%u.0/24 via 192.0.2.2\n", verb, i / 256, i % 256);
	assert_int_equal(pclose(batch), 0);
}

static bool bulk_is(const void *arg)
{
	return topology->bulk_count == *(const unsigned *)arg;
}

static void assert_bulk(unsigned from, unsigned to)
{
	for (unsigned i = 0; i < TOPOLOGY_BULK; i++)
		assert_int_equal(topology->bulk[i], i >= from && i < to);
}

static void test_overrun_tells_only_differences(void **state)
{
	bulk_change("add", 0, 4000);
	mirror_start();
	assert_bulk(0, 4000);
	assert_int_equal(topology->bulk_reported, 4000);
	assert_int_equal(sy_mirror_set_buffer(topology->mirror, 4096), 0);

	/* The mirror does not read meanwhile: nearly all of these events are lost. */
	bulk_change("del", 0, 1000);
	bulk_change("add", 4000, 7000);
	sh("ip addr add 198.51.100.7/25 dev near0; ip rule add to 192.0.2.9 table 77 pref 100");
	pump_until(topology_synced, (&(unsigned){2}));
	pump_until(bulk_is, (&(unsigned){6000}));
	assert_bulk(1000, 7000);
	assert_int_equal(topology->bulk_reported, 4000 + 1000 + 3000);
	assert_true(addr_is(&(struct expected_addr){"198.51.100.7", true}));
	assert_true(refusal_has("priority 100"));
}

static void workload(void *arg)
{
	for (unsigned round = 0; round < 4; round++) {
		bulk_change("add", 2000, 6000);
		bulk_change("del", 2000, 6000);
	}
	bulk_change("del", 0, 500);
	bulk_change("add", 2000, 2500);
}

static bool child_gone(const void *arg)
{
	return waitpid(*(const int *)arg, NULL, WNOHANG) > 0;
}

static void test_changes_during_dumps(void **state)
{
	int child;

	bulk_change("add", 0, 2000);
	mirror_start();
	assert_int_equal(sy_mirror_set_buffer(topology->mirror, 16384), 0);
	topology->budget = 7;
	child = child_start(workload, NULL);
	pump_until(child_gone, &child);
	pump_until(bulk_is, (&(unsigned){2000}));
	assert_bulk(500, 2500);
}

static void test_budget_is_kept(void **state)
{
	bulk_change("add", 0, 3000);
	mirror_start();
	bulk_change("del", 0, 3000);
	while (topology->bulk_count) {
		unsigned before = topology->bulk_reported;
		struct pollfd fd = {.fd = sy_mirror_fd(topology->mirror), .events = POLLIN};
		int n;

		assert_int_equal(poll(&fd, 1, SUPPORT_PATIENCE_MS), 1);
		n = sy_mirror_process(topology->mirror, 5);
		assert_in_range(n, 0, 5);
		assert_true(topology->bulk_reported - before <= 5);
	}
}

/* ---- neighbours ------------------------------------------------------------------------------ */

struct expected_neigh {
	const char *text;
	bool valid, failed;
};

static bool neigh_is(const void *arg)
{
	const struct expected_neigh *e = arg;
	struct sy_addr addr = addr_of(e->text);

	for (unsigned i = 0; i < topology->neighs; i++)
		if (sy_addr_equal(&topology->neigh[i].addr, &addr))
			return topology->neigh[i].valid == e->valid &&
			       topology->neigh[i].failed == e->failed;
	return !e->valid && !e->failed;
}

static bool neigh_is_managed(const char *text)
{
	/* iproute2 prints the extended flag since 5.16. */
	return sh_ok("ip -d neigh show %s dev near0 | grep -q managed", text);
}

/* The kernel gives up after one probe of 20 ms. */
static void neighbours_fail_soon(void)
{
	sh("sysctl -qw net.ipv4.neigh.near0.mcast_solicit=1 net.ipv4.neigh.near0.retrans_time_ms="
	   "20");
}

static void test_neighbours_are_managed(void **state)
{
	int ifindex = (int)if_nametoindex("near0");
	struct sy_addr v4 = addr_of("192.0.2.2"), v6 = addr_of("2001:db8::2"),
	               absent = addr_of("192.0.2.99");

	neighbours_fail_soon();
	mirror_start();
	assert_int_equal(sy_mirror_neigh_manage(topology->mirror, ifindex, &v4), 0);
	assert_int_equal(sy_mirror_neigh_manage(topology->mirror, ifindex, &v6), 0);
	assert_int_equal(sy_mirror_neigh_manage(topology->mirror, ifindex, &absent), 0);
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", true, false}));
	pump_until(neigh_is, (&(struct expected_neigh){"2001:db8::2", true, false}));
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.99", false, true}));
	assert_true(neigh_is_managed("192.0.2.2"));
	assert_true(neigh_is_managed("2001:db8::2"));

	/* The neighbour returns by itself after a flush by hand or by a link that went down. */
	sh("ip neigh flush dev near0; ip neigh del 192.0.2.2 dev near0 2>/dev/null || true");
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", true, false}));
	sh("ip link set near0 down");
	expect_link("near0", true, false);
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", false, false}));
	sh("ip link set near0 up");
	expect_link("near0", true, true);
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", true, false}));
	assert_true(neigh_is_managed("192.0.2.2"));

	assert_int_equal(sy_mirror_neigh_release(topology->mirror, ifindex, &v4), 0);
	assert_false(neigh_is_managed("192.0.2.2"));
	assert_int_equal(sy_mirror_neigh_release(topology->mirror, ifindex, &v4), 0);
}

static bool neigh_is_permanent(const char *text)
{
	return sh_ok("ip neigh show %s dev near0 | grep -q PERMANENT", text);
}

/* Everything sent to the mirror so far was handled: the reply for this one comes last. */
static void answers_await(int ifindex)
{
	struct sy_addr last = addr_of("192.0.2.3");

	sh("ip neigh del 192.0.2.3 dev near0 2>/dev/null || true");
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.3", false, false}));
	assert_int_equal(sy_mirror_neigh_manage(topology->mirror, ifindex, &last), 0);
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.3", false, true}));
	assert_int_equal(sy_mirror_neigh_release(topology->mirror, ifindex, &last), 0);
}

/* No host answers ARP for it: an administrator has set it. */
static void test_permanent_neighbours_stay(void **state)
{
	int ifindex = (int)if_nametoindex("near0");
	struct sy_addr fixed4 = addr_of("192.0.2.50"), fixed6 = addr_of("2001:db8::50");

	neighbours_fail_soon();
	sh("ip neigh add 192.0.2.50 dev near0 lladdr 02:00:00:00:00:05 nud permanent; "
	   "ip neigh add 2001:db8::50 dev near0 lladdr 02:00:00:00:00:05 nud permanent");
	mirror_start();
	for (unsigned i = 0; i < 3; i++) { /* also if it is requested again */
		assert_int_equal(sy_mirror_neigh_manage(topology->mirror, ifindex, &fixed4), 0);
		assert_int_equal(sy_mirror_neigh_manage(topology->mirror, ifindex, &fixed6), 0);
		answers_await(ifindex);
		assert_true(neigh_is_permanent("192.0.2.50"));
		assert_true(neigh_is_permanent("2001:db8::50"));
	}
	/* An event of it, and a link without a carrier, change nothing either. */
	sh("ip neigh replace 192.0.2.50 dev near0 lladdr 02:00:00:00:00:06 nud permanent");
	netns_enter(far_ns);
	sh("ip link set far0 down");
	netns_enter(near_ns);
	expect_link("near0", true, false);
	netns_enter(far_ns);
	sh("ip link set far0 up");
	netns_enter(near_ns);
	expect_link("near0", true, true);
	answers_await(ifindex);
	assert_true(neigh_is_permanent("192.0.2.50"));
	assert_int_equal(sy_mirror_neigh_release(topology->mirror, ifindex, &fixed6), 0);
	assert_true(neigh_is_permanent("2001:db8::50"));

	/* released before its kind is known */
	assert_int_equal(sy_mirror_neigh_manage(topology->mirror, ifindex, &fixed6), 0);
	assert_int_equal(sy_mirror_neigh_release(topology->mirror, ifindex, &fixed6), 0);
	answers_await(ifindex);
	assert_true(neigh_is_permanent("2001:db8::50"));

	/* deleted, it is a neighbour like others */
	sh("ip neigh del 192.0.2.50 dev near0");
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.50", false, true}));
	assert_true(neigh_is_managed("192.0.2.50"));

	/* replaced at once: the mirror gets the deletion of the previous one too late */
	sh("printf 'neigh del 192.0.2.50 dev near0\nneigh add 192.0.2.50 dev near0 lladdr "
	   "02:00:00:00:00:05 nud permanent\n' | ip -batch -");
	answers_await(ifindex);
	assert_true(neigh_is_permanent("192.0.2.50"));
}

/* A neighbour that the host itself uses is kept resolved like those that were requested. */
static void test_known_neighbours_are_managed(void **state)
{
	int ifindex = (int)if_nametoindex("near0");
	struct sy_addr v4 = addr_of("192.0.2.2");

	sh("ip neigh replace 192.0.2.2 dev near0 lladdr 02:00:00:00:00:01 nud reachable");
	mirror_start();
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", true, false}));
	assert_int_equal(sy_mirror_neigh_manage(topology->mirror, ifindex, &v4), 0);
	answers_await(ifindex);
	assert_true(neigh_is_managed("192.0.2.2"));
}

static void test_neighbour_changes_its_mac(void **state)
{
	struct sy_addr v4 = addr_of("192.0.2.2");
	static const uint8_t mac[6] = {2, 0, 0, 0, 0, 9};

	mirror_start();
	sh("ip neigh add 192.0.2.2 dev near0 lladdr 02:00:00:00:00:01 nud permanent");
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", true, false}));
	sh("ip neigh replace 192.0.2.2 dev near0 lladdr 02:00:00:00:00:09 nud permanent; "
	   "ip neigh add 192.0.2.3 dev near0 lladdr 02:00:00:00:00:03 nud permanent");
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.3", true, false}));
	for (unsigned i = 0; i < topology->neighs; i++)
		if (sy_addr_equal(&topology->neigh[i].addr, &v4))
			assert_memory_equal(topology->neigh[i].mac, mac, sizeof(mac));
	sh("ip neigh del 192.0.2.2 dev near0");
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", false, false}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TOPOLOGY_TEST(test_overrun_tells_only_differences),
	        TOPOLOGY_TEST(test_changes_during_dumps),
	        TOPOLOGY_TEST(test_budget_is_kept),
	        TOPOLOGY_TEST(test_neighbours_are_managed),
	        TOPOLOGY_TEST(test_permanent_neighbours_stay),
	        TOPOLOGY_TEST(test_known_neighbours_are_managed),
	        TOPOLOGY_TEST(test_neighbour_changes_its_mac),
	};

	return cmocka_run_group_tests_name("mirror load", tests, NULL, NULL);
}
