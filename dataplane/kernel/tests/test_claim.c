// SPDX-License-Identifier: Apache-2.0
/* Claimed addresses: the kernel answers ARP and ND for them, but sends no packets or resets. */
#include "netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define VIP4 "192.0.2.50"
#define VIP6 "2001:db8::50"

static int near_ns, far_ns;
static struct sy_claims *claims;

static int setup(void **state)
{
	far_ns = netns_new();
	near_ns = netns_new();
	veth_new("near0", "far0", far_ns);
	veth_new("near1", "far1", far_ns);
	sh("ip addr add 192.0.2.1/24 dev near0; ip addr add 2001:db8::1/64 dev near0 nodad");
	netns_enter(far_ns);
	sh("ip addr add 192.0.2.2/24 dev far0; ip addr add 2001:db8::2/64 dev far0 nodad");
	netns_enter(near_ns);
	return 0;
}

static int teardown(void **state)
{
	sy_claims_close(claims);
	claims = NULL;
	return netns_cleanup(near_ns, far_ns);
}

static void claims_start(void)
{
	struct sy_error err = {0};

	if (sy_claims_open(&claims, 0, &err))
		fail_msg("%s", err.text);
}

static void claims_stop(void)
{
	sy_claims_close(claims);
	claims = NULL;
}

static int claim_try(const char *text, const char *dev, struct sy_error *err)
{
	struct sy_addr addr = addr_of(text);

	return sy_claims_add(claims, &addr, (int)if_nametoindex(dev), err);
}

static void claim(const char *text)
{
	struct sy_error err = {0};

	if (claim_try(text, "near0", &err))
		fail_msg("%s", err.text);
}

static bool route4_there(const char *text)
{
	return sh_ok("ip route show table local proto 201 | grep -q '^local %s '", text);
}

static bool addr6_there(const char *text, const char *dev)
{
	return sh_ok("ip -6 addr show dev %s | grep -q ' %s/128 .*deprecated'", dev, text);
}

static bool guarded(const char *text)
{
	return sh_ok("nft list table inet steelyard | grep -q '[ {]%s[ ,}]'", text);
}

/* ---- on the wire ----------------------------------------------------------------------------- */

static void far_await(const char *command)
{
	uint64_t end = sy_clock_ns() + SUPPORT_PATIENCE_MS * 1000000ull;

	netns_enter(far_ns);
	while (!sh_ok("%s", command)) {
		if (sy_clock_ns() > end)
			fail_msg("never true: %s", command);
		poll(NULL, 0, 20);
	}
	netns_enter(near_ns);
}

static void test_arp_and_nd_are_answered(void **state)
{
	claims_start();
	claim(VIP4);
	claim(VIP6);
	/* The ping is not answered, but it makes the kernel resolve the neighbour. */
	far_await("ping -c 1 -W 1 -q " VIP4 " >/dev/null 2>&1; "
	          "ip neigh show " VIP4 " | grep -q 'lladdr.*REACHABLE\\|lladdr.*STALE'");
	far_await("ping -c 1 -W 1 -q " VIP6 " >/dev/null 2>&1; "
	          "ip neigh show " VIP6 " | grep -q 'lladdr.*REACHABLE\\|lladdr.*STALE'");
}

/* Starts a TCP connection to a closed port at the address, then pings the host. When the ping is
 * answered, all answers to the connection have crossed the veth. True if a reset arrived. */
static bool far_sees_reset(const char *text, const char *mac)
{
	struct sy_addr addr = addr_of(text);
	bool v4 = sy_addr_is_v4(&addr);
	struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = htons(81)};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(81)};
	struct pollfd state = {.events = POLLOUT};
	bool reset;
	int fd;

	memcpy(&to4.sin_addr, addr.b + 12, 4);
	memcpy(&to6.sin6_addr, addr.b, 16);
	/* sets the neighbour first: the SYN then leaves at once */
	netns_enter(far_ns);
	sh("ip neigh replace %s dev far0 lladdr %s nud permanent", text, mac);
	fd = socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(fd >= 0);
	assert_int_equal(
	        connect(fd, v4 ? (void *)&to4 : (void *)&to6, v4 ? sizeof(to4) : sizeof(to6)), -1);
	assert_int_equal(errno, EINPROGRESS);
	sh("ping -c 1 -q 192.0.2.1 >/dev/null");
	netns_enter(near_ns);
	state.fd = fd;
	reset = poll(&state, 1, 0) == 1 && (state.revents & (POLLERR | POLLHUP));
	close(fd);
	return reset;
}

static void test_no_reset_leaves(void **state)
{
	static const char mac[] = "02:00:00:00:00:01";

	sh("ip link set near0 address %s", mac);
	claims_start();
	claim(VIP4);
	claim(VIP6);
	assert_false(far_sees_reset(VIP4, mac));
	assert_false(far_sees_reset(VIP6, mac));
	/* without the guard the kernel sends a reset */
	sh("nft flush chain inet steelyard output");
	assert_true(far_sees_reset(VIP4, mac));
	assert_true(far_sees_reset(VIP6, mac));
}

static void test_claims_are_no_source(void **state)
{
	struct sockaddr_in from = {.sin_family = AF_INET},
	                   to = {.sin_family = AF_INET, .sin_port = htons(9)};
	int fd;

	claims_start();
	claim(VIP4);
	claim(VIP6);
	assert_false(sh_ok("ip route get 192.0.2.2 | grep -q 'src " VIP4 "'"));
	assert_false(sh_ok("ip -6 route get 2001:db8::2 | grep -q 'src " VIP6 "'"));
	assert_true(sh_ok("ip -6 route get 2001:db8::2 | grep -q 'src 2001:db8::1'"));

	/* A process that binds to the address cannot send from it. */
	assert_int_equal(inet_pton(AF_INET, VIP4, &from.sin_addr), 1);
	assert_int_equal(inet_pton(AF_INET, "192.0.2.2", &to.sin_addr), 1);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (void *)&from, sizeof(from)), 0);
	assert_int_equal(sendto(fd, "x", 1, 0, (void *)&to, sizeof(to)), -1);
	assert_int_equal(errno, EPERM);
	close(fd);
}

/* ---- accounting ------------------------------------------------------------------------------ */

static void test_add_and_remove(void **state)
{
	struct sy_addr v4 = addr_of(VIP4), v6 = addr_of(VIP6);

	claims_start();
	claim(VIP4);
	claim(VIP6);
	claim(VIP4); /* idempotent */
	claim(VIP6);
	assert_true(route4_there(VIP4) && addr6_there(VIP6, "near0"));
	assert_true(guarded(VIP4) && guarded(VIP6));
	assert_int_equal(sy_claims_remove(claims, &v4), 0);
	assert_int_equal(sy_claims_remove(claims, &v6), 0);
	assert_int_equal(sy_claims_remove(claims, &v6), 0);
	assert_false(route4_there(VIP4) || addr6_there(VIP6, "near0"));
	assert_false(guarded(VIP4) || guarded(VIP6));
}

static void test_host_addresses_are_refused(void **state)
{
	struct sy_error err;

	claims_start();
	assert_int_equal(claim_try("192.0.2.1", "near0", &err), -EADDRINUSE);
	assert_non_null(strstr(err.text, "192.0.2.1"));
	assert_int_equal(claim_try("2001:db8::1", "near0", &err), -EADDRINUSE);
	/* on another interface too */
	assert_int_equal(claim_try("2001:db8::1", "near1", &err), -EADDRINUSE);
	assert_int_equal(claim_try("2001:db8::99", "lo9", &err),
	                 -EINVAL); /* IPv6 needs an interface */
	assert_false(guarded("192.0.2.1") || guarded("2001:db8::1"));
	assert_true(sh_ok("ip addr show near0 | grep -q 'inet 192.0.2.1/24'"));
	assert_true(sh_ok("ip addr show near0 | grep -q 'inet6 2001:db8::1/64'"));
}

static void test_a_claim_moves_with_its_port(void **state)
{
	struct sy_error err;

	claims_start();
	claim(VIP6);
	assert_int_equal(claim_try(VIP6, "near1", &err), 0);
	assert_true(addr6_there(VIP6, "near1"));
	assert_false(addr6_there(VIP6, "near0"));
	assert_true(guarded(VIP6));
}

static void test_a_claim_returns_with_its_device(void **state)
{
	claims_start();
	claim(VIP6);
	sh("ip link set near0 down"); /* the kernel removes IPv6 addresses */
	assert_false(addr6_there(VIP6, "near0"));
	sh("ip link set near0 up");
	claim(VIP6);
	assert_true(addr6_there(VIP6, "near0"));
	assert_true(guarded(VIP6));
}

static void test_claims_are_renewed(void **state)
{
	int near0 = (int)if_nametoindex("near0");

	claims_start();
	claim(VIP6);
	sh("ip link set near0 down; ip link set near0 up");
	assert_false(addr6_there(VIP6, "near0"));
	assert_int_equal(sy_claims_renew(claims, near0), 0);
	assert_true(addr6_there(VIP6, "near0"));
	assert_int_equal(sy_claims_renew(claims, near0), 0); /* nothing is missing */
}

static void test_claims_survive_until_settled(void **state)
{
	claims_start();
	claim(VIP4);
	claim("192.0.2.51");
	claim(VIP6);
	claim("2001:db8::51");
	claims_stop();

	claims_start();
	assert_true(guarded("192.0.2.51") && guarded("2001:db8::51"));
	claim(VIP4);
	claim(VIP6);
	assert_true(route4_there("192.0.2.51") && addr6_there("2001:db8::51", "near0"));
	assert_int_equal(sy_claims_settle(claims), 0);
	assert_true(route4_there(VIP4) && addr6_there(VIP6, "near0"));
	assert_false(route4_there("192.0.2.51") || addr6_there("2001:db8::51", "near0"));
	assert_true(guarded(VIP4) && guarded(VIP6));
	assert_false(guarded("192.0.2.51") || guarded("2001:db8::51"));
}

/* Simulates a kernel that stores no protocol number for addresses: iproute2 adds them without. */
static void test_unmarked_addresses_are_known_from_the_journal(void **state)
{
	claims_start();
	claim(VIP6);
	claims_stop();
	sh("ip addr del " VIP6 "/128 dev near0");
	sh("ip addr add " VIP6 "/128 dev near0 nodad noprefixroute preferred_lft 0");
	sh("ip addr add 2001:db8::77/128 dev near0 nodad noprefixroute preferred_lft 0");
	claims_start();
	assert_int_equal(sy_claims_settle(claims), 0);
	assert_false(addr6_there(VIP6, "near0"));
	assert_true(addr6_there("2001:db8::77", "near0")); /* not ours */
}

/* ---- changes by other programs --------------------------------------------------------------- */

static char verified[2048];

static void note(const char *kind, const char *text)
{
	size_t at = strlen(verified);

	snprintf(verified + at, sizeof(verified) - at, "%s: %s\n", kind, text);
}

static void note_restored(void *ctx, const char *text)
{
	note("restored", text);
}

static void note_problem(void *ctx, const char *text)
{
	note("problem", text);
}

static bool any_is_up(void *ctx, int ifindex)
{
	return true;
}

/* A sweep: everything is verified, whether or not there was an event. Returns what it reports. */
static const char *verify(void)
{
	const struct sy_verify v = {
	        .restored = note_restored, .problem = note_problem, .is_up = any_is_up};

	verified[0] = 0;
	sy_claims_verify_guard(claims, &v);
	while (sy_claims_verify_step(claims, &v))
		;
	return verified;
}

static void test_changes_by_others_are_undone(void **state)
{
	claims_start();
	claim(VIP4);
	claim(VIP6);
	sy_claims_read(claims);
	assert_string_equal(verify(), "");
	assert_false(sy_claims_read(claims)); /* own changes, or none */
	sh("nft add table inet other; nft add chain inet other x; nft delete table inet other");
	assert_false(sy_claims_read(claims));

	sh("nft flush ruleset");
	assert_true(sy_claims_read(claims));
	assert_string_equal(verify(), "restored: nftables table inet steelyard\n");
	assert_true(guarded(VIP4) && guarded(VIP6));
	sh("nft delete element inet steelyard claimed6 '{ " VIP6 " }'");
	assert_true(sy_claims_read(claims));
	assert_string_equal(verify(), "restored: nftables table inet steelyard\n");
	assert_true(guarded(VIP6));

	sh("ip route flush table local proto 201; ip -6 addr del " VIP6 "/128 dev near0");
	assert_non_null(strstr(verify(), "restored: local route to " VIP4 " on lo\n"));
	assert_non_null(strstr(verified, "restored: address " VIP6 "/128 on near0\n"));
	assert_true(route4_there(VIP4) && addr6_there(VIP6, "near0"));
	assert_string_equal(verify(), "");
}

static void change_other_tables(void *arg)
{
	for (;;)
		sh("nft add table inet other; nft delete table inet other");
}

/* Other programs' changes interrupt the dumps of a verification: that is no difference. */
static void test_changes_of_other_tables_are_no_difference(void **state)
{
	struct pollfd events;
	int pid;

	claims_start();
	claim(VIP4);
	claim(VIP6);
	sy_claims_read(claims);
	events = (struct pollfd){.fd = sy_claims_fd(claims), .events = POLLIN};
	pid = child_start(change_other_tables, NULL);
	for (unsigned changes = 0; changes < 100;) {
		assert_string_equal(verify(), "");
		changes += poll(&events, 1, 0) == 1;
		assert_false(sy_claims_read(claims));
	}
	child_kill(pid);
}

/* More claims than a step verifies. */
static void test_many_claims_are_restored_in_steps(void **state)
{
	char text[32];

	claims_start();
	for (unsigned i = 0; i < 200; i++) {
		snprintf(text, sizeof(text), "192.0.2.%u", 20 + i);
		claim(text);
	}
	sh("ip route flush table local proto 201; nft flush ruleset");
	verify();
	assert_non_null(strstr(verified, "restored: 192 further addresses\n"));
	assert_true(sh_ok("test $(ip route show table local proto 201 | wc -l) = 200"));
	assert_true(guarded("192.0.2.20") && guarded("192.0.2.219"));
}

static void holder_body(void *arg)
{
	int ready = *(int *)arg;

	claims_start();
	claim(VIP4);
	if (write(ready, "y", 1) == 1)
		pause();
}

static void test_one_holder_at_a_time(void **state)
{
	struct sy_error err;
	char word, text[128];
	int ready[2], pid;

	assert_int_equal(pipe(ready), 0);
	pid = child_start(holder_body, &ready[1]);
	close(ready[1]);
	assert_int_equal(read(ready[0], &word, 1), 1);
	close(ready[0]);
	assert_int_equal(sy_claims_open(&claims, 0, &err), -EBUSY);
	assert_int_equal(sy_kernel_cleanup(NULL, NULL, &err), -EBUSY);
	snprintf(
	        text, sizeof(text),
	        "this network namespace is in use by another forwarder (process %d); stop it first",
	        pid);
	assert_string_equal(err.text, text);
	assert_true(route4_there(VIP4));
	child_kill(pid);
	claims_start();
	assert_true(route4_there(VIP4));
}

/* ---- cleanup --------------------------------------------------------------------------------- */

static char reported_text[2048];
static char own_pins[32]; /* what begins the names of this namespace's */

static void report(void *ctx, const char *text)
{
	size_t at = strlen(reported_text);

	/* Tests beside this one leave such, too. */
	if (strstr(text, "vanished interface") && !strstr(text, own_pins))
		return;
	snprintf(reported_text + at, sizeof(reported_text) - at, "%s\n", text);
}

static void test_cleanup_removes_everything(void **state)
{
	struct sy_director *director;
	struct sy_error err;
	struct stat st;

	assert_int_equal(stat("/proc/thread-self/ns/net", &st), 0);
	snprintf(own_pins, sizeof(own_pins), " %lu-", (unsigned long)st.st_ino);
	claims_start();
	claim(VIP4);
	claim(VIP6);
	assert_int_equal(sy_director_open("near0", SY_DIRECTOR_AUTO, &director, &err), 0);
	assert_int_equal(sy_kernel_cleanup(report, NULL, &err),
	                 -EBUSY); /* this process still runs */
	assert_string_equal(reported_text, "");
	claims_stop();
	assert_int_equal(sy_kernel_cleanup(report, NULL, &err), -EBUSY);
	assert_true(route4_there(VIP4));
	sy_director_close(director);

	assert_int_equal(sy_kernel_cleanup(report, NULL, &err), 0);
	assert_non_null(strstr(reported_text, "XDP program of near0\n"));
	assert_non_null(strstr(reported_text, "address " VIP4 "\n"));
	assert_non_null(strstr(reported_text, "address " VIP6 "\n"));
	assert_non_null(strstr(reported_text, "nftables table inet steelyard\n"));
	assert_false(route4_there(VIP4) || addr6_there(VIP6, "near0"));
	assert_false(sh_ok("nft list table inet steelyard >/dev/null 2>&1"));
	assert_false(sh_ok("ip -d link show near0 | grep -q xdp"));
	assert_false(sh_ok("ls -d /run/steelyard/*-%lu* /sys/fs/bpf/steelyard/%lu-* 2>/dev/null | "
	                   "grep -q .",
	                   (unsigned long)st.st_ino, (unsigned long)st.st_ino));

	reported_text[0] = 0;
	assert_int_equal(sy_kernel_cleanup(report, NULL, &err), 0); /* nothing left to report */
	assert_string_equal(reported_text, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_arp_and_nd_are_answered),
	        TEST(test_no_reset_leaves),
	        TEST(test_claims_are_no_source),
	        TEST(test_add_and_remove),
	        TEST(test_host_addresses_are_refused),
	        TEST(test_a_claim_moves_with_its_port),
	        TEST(test_a_claim_returns_with_its_device),
	        TEST(test_claims_are_renewed),
	        TEST(test_claims_survive_until_settled),
	        TEST(test_unmarked_addresses_are_known_from_the_journal),
	        TEST(test_changes_by_others_are_undone),
	        TEST(test_changes_of_other_tables_are_no_difference),
	        TEST(test_many_claims_are_restored_in_steps),
	        TEST(test_one_holder_at_a_time),
	        TEST(test_cleanup_removes_everything),
	};

	return cmocka_run_group_tests_name("claim", tests, NULL, NULL);
}
