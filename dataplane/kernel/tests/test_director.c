// SPDX-License-Identifier: Apache-2.0
/* The flow director on a veth: where packets go, and what outlives a process. */
#include "director_fixture.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* ---- tests ----------------------------------------------------------------------------------- */

static void director_directs(enum sy_director_mode mode, bool native)
{
	struct sy_director_stats before;
	struct receiver r[2];

	director_start(mode);
	assert_int_equal(sy_director_is_native(director), native);
	assert_int_equal(sy_director_queues(director), 2);

	before = stats();
	far_send(VIP4); /* not steered yet: passes to the kernel */
	far_send("2001:db8::1");
	await_more(passed, before);
	assert_int_equal(stats().dropped_no_socket, 0);

	steer(VIP4, true);
	steer(VIP6, true);
	before = stats();
	far_send(VIP4);
	await_more(dropped_no_socket, before);
	before = stats();
	far_send(VIP6);
	await_more(dropped_no_socket, before);

	for (unsigned queue = 0; queue < 2; queue++) {
		receiver_open(&r[queue], queue);
		assert_int_equal(
		        sy_director_set_socket(director, queue, xsk_socket__fd(r[queue].xsk)), 0);
	}
	before = stats();
	far_send(VIP4);
	receivers_expect(r, 0x0800);
	far_send(VIP6);
	receivers_expect(r, 0x86dd);
	assert_int_equal(stats().steered, before.steered + 2);
	assert_int_equal(stats().dropped_no_socket, before.dropped_no_socket);

	for (unsigned queue = 0; queue < 2; queue++) {
		assert_int_equal(sy_director_set_socket(director, queue, -1), 0);
		assert_int_equal(sy_director_set_socket(director, queue, -1), 0);
		receiver_close(&r[queue]);
	}
	far_send(VIP4);
	await_more(dropped_no_socket, before);
	steer(VIP4, false);
	before = stats();
	far_send(VIP4);
	await_more(passed, before);
	assert_int_equal(stats().dropped_no_socket, before.dropped_no_socket);
}

/* Packets that a server sends from one port are steered, except those to this host. */
static void sources_are_steered(const char *far, const char *near, const char *beyond)
{
	struct sy_source source = {.addr = addr_of(far), .port = htons(5353), .proto = 17};
	struct sy_addr host = addr_of(near);
	struct sy_director_stats before = stats();

	assert_int_equal(sy_director_steer_source(director, &source, true), 0);
	far_send_from(beyond, 5353);
	await_more(dropped_no_socket, before);
	before = stats();
	far_send_from(near, 5353); /* not yet known as the host's address */
	await_more(dropped_no_socket, before);
	before = stats();
	far_send_from(beyond, 5354);
	await_more(passed, before);
	assert_int_equal(sy_director_host(director, &host, true), 0);
	far_send_from(near, 5353);
	await_counter(offsetof(struct sy_director_stats, passed), before.passed + 1);
	assert_int_equal(stats().dropped_no_socket, before.dropped_no_socket);

	/* a claimed address is one of the host too: it stays steered */
	steer(beyond, true);
	host = addr_of(beyond);
	for (unsigned on = 2; on-- > 0;) {
		assert_int_equal(sy_director_host(director, &host, on), 0);
		before = stats();
		far_send_from(beyond, 5354);
		await_more(dropped_no_socket, before);
	}
	steer(beyond, false);
	assert_int_equal(sy_director_steer_source(director, &source, false), 0);
	before = stats();
	far_send_from(beyond, 5353);
	await_more(passed, before);

	source.port = 0; /* any */
	for (unsigned on = 2; on-- > 0;) {
		assert_int_equal(sy_director_steer_source(director, &source, on), 0);
		before = stats();
		far_send_from(beyond, 5353);
		far_send_from(beyond, 5354);
		await_counter(on ? offsetof(struct sy_director_stats, dropped_no_socket)
		                 : offsetof(struct sy_director_stats, passed),
		              (on ? before.dropped_no_socket : before.passed) + 1);
	}
}

static void test_sources(void **state)
{
	director_start(SY_DIRECTOR_AUTO);
	sources_are_steered("192.0.2.2", "192.0.2.1", VIP4);
	sources_are_steered("2001:db8::2", "2001:db8::1", VIP6);
}

/* Later fragments are steered like the first one, which has the port. */
static void fragments_are_steered(const char *far, const char *beyond)
{
	struct sy_source source = {.addr = addr_of(far), .port = htons(5353), .proto = 17};
	struct sy_director_stats before = stats();

	assert_int_equal(sy_director_steer_source(director, &source, true), 0);
	far_send_bytes(beyond, 5353, 4000);
	await_counter(offsetof(struct sy_director_stats, dropped_no_socket),
	              before.dropped_no_socket + 2);
	far_send_bytes(beyond, 5354, 4000);
	await_counter(offsetof(struct sy_director_stats, passed), before.passed + 2);
	assert_int_equal(stats().dropped_no_socket, before.dropped_no_socket + 3);
	/* steering by destination does not need the first fragment */
	steer(beyond, true);
	before = stats();
	far_send_bytes(beyond, 5354, 4000);
	await_counter(offsetof(struct sy_director_stats, dropped_no_socket),
	              before.dropped_no_socket + 2);
	steer(beyond, false);
}

static void test_fragments(void **state)
{
	director_start(SY_DIRECTOR_AUTO);
	fragments_are_steered("192.0.2.2", VIP4);
	fragments_are_steered("2001:db8::2", VIP6);
}

/* ICMP errors about packets to a server are steered, whatever their sender; other ICMP is not. */
static void errors_are_steered(const char *server, const char *near, const char *client,
                               const uint8_t errors[4], const uint8_t others[4])
{
	struct sy_source source = {.addr = addr_of(server), .port = htons(5353), .proto = 17};
	struct sy_addr host = addr_of(near);
	struct sy_director_stats before = stats();

	assert_int_equal(sy_director_steer_source(director, &source, true), 0);
	assert_int_equal(sy_director_host(director, &host, true), 0);
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned extra = 0; extra <= 40; extra += 8) {
			bool steered = extra <= 32 || sy_addr_is_v4(&host);
			before = stats();
			far_send_error(client, errors[i], server, 5353, extra);
			if (steered)
				await_more(dropped_no_socket, before);
			else /* more extension headers than the program skips */
				await_more(passed, before);
		}
		before = stats();
		far_send_error(client, errors[i], server, 5354, 0);
		await_more(passed, before);
		before = stats();
		far_send_error(client, errors[i], client, 5353, 0);
		await_more(passed, before);
		before = stats();
		far_send_error(near, errors[i], server, 5353, 0); /* about the host's own packets */
		await_more(passed, before);
		before = stats();
		far_send_error(client, others[i], server, 5353, 0);
		await_more(passed, before);
		assert_int_equal(stats().dropped_no_socket, before.dropped_no_socket);
	}
	assert_int_equal(sy_director_steer_source(director, &source, false), 0);
	before = stats();
	far_send_error(client, errors[0], server, 5353, 0);
	await_more(passed, before);
}

static void test_errors(void **state)
{
	director_start(SY_DIRECTOR_AUTO);
	errors_are_steered("192.0.2.2", "192.0.2.1", VIP4, (const uint8_t[]){3, 11, 12, 3},
	                   (const uint8_t[]){0, 5, 8, 13});
	errors_are_steered("2001:db8::2", "2001:db8::1", VIP6, (const uint8_t[]){1, 2, 3, 4},
	                   (const uint8_t[]){0, 128, 129, 200});
}

/* Sources stay steered after their process ends, until its successor has settled. */
static void test_sources_settle(void **state)
{
	struct sy_source source = {.addr = addr_of("192.0.2.2"), .port = htons(5353), .proto = 17};
	struct sy_addr host = addr_of("192.0.2.1");
	struct sy_director_stats before;

	director_start(SY_DIRECTOR_AUTO);
	assert_int_equal(sy_director_steer_source(director, &source, true), 0);
	assert_int_equal(sy_director_host(director, &host, true), 0);
	director_stop();
	director_start(SY_DIRECTOR_AUTO);
	before = stats();
	far_send_from(VIP4, 5353);
	await_more(dropped_no_socket, before);
	far_send_from("192.0.2.1", 5353);
	await_more(passed, before);
	source.port = htons(5354);
	assert_int_equal(sy_director_steer_source(director, &source, true), 0);
	assert_int_equal(sy_director_settle(director), 0);
	before = stats();
	far_send_from(VIP4, 5353);
	await_more(passed, before);
	far_send_from("192.0.2.1", 5354); /* no longer known as the host's */
	await_more(dropped_no_socket, before);
}

/* Packets that hosts of a network send from any port are steered, except those to each other, to
 * multicast or link-local addresses, or to this host. */
static void network_is_steered(const char *first, uint32_t bits, const char *near,
                               const char *group, const char *beyond)
{
	struct sy_source network = {.addr = addr_of(first), .bits = bits};
	struct sy_addr host = addr_of(near);
	struct sy_director_stats before = stats();

	assert_int_equal(sy_director_steer_source(director, &network, true), 0);
	assert_int_equal(sy_director_host(director, &host, true), 0);
	far_send(beyond);
	await_more(dropped_no_socket, before);
	before = stats();
	far_send(near);
	await_more(passed, before);
	if (group) {
		before = stats();
		far_send(group);
		await_more(passed, before);
	}
	network.addr = addr_of(beyond); /* the destination is inside too */
	network.bits = 128;
	assert_int_equal(sy_director_steer_source(director, &network, true), 0);
	before = stats();
	far_send(beyond);
	await_more(passed, before);
	assert_int_equal(sy_director_steer_source(director, &network, false), 0);
	steer(beyond, true); /* steered, because it is our address */
	before = stats();
	far_send(beyond);
	await_more(dropped_no_socket, before);
	steer(beyond, false);

	network = (struct sy_source){.addr = addr_of(first), .bits = bits};
	assert_int_equal(sy_director_steer_source(director, &network, false), 0);
	before = stats();
	far_send(beyond);
	await_more(passed, before);
}

static void test_networks(void **state)
{
	netns_enter(far_ns);
	sh("ip route add 224.0.0.0/4 dev far0");
	netns_enter(near_ns);
	director_start(SY_DIRECTOR_AUTO);
	network_is_steered("192.0.2.0", 96 + 24, "192.0.2.1", "224.0.0.251", VIP4);
	network_is_steered("2001:db8::", 64, "2001:db8::1", NULL, VIP6);
}

/* Source ports do not matter, and networks outlive a process like all other entries. */
static void test_networks_settle(void **state)
{
	struct sy_source network = {.addr = addr_of("192.0.2.0"), .bits = 96 + 24};
	struct sy_director_stats before;

	director_start(SY_DIRECTOR_AUTO);
	assert_int_equal(sy_director_steer_source(director, &network, true), 0);
	director_stop();
	for (unsigned again = 2; again-- > 0;) {
		director_start(SY_DIRECTOR_AUTO);
		before = stats();
		far_send_from(VIP4, 5353);
		await_more(dropped_no_socket, before);
		if (again)
			assert_int_equal(sy_director_steer_source(director, &network, true), 0);
		assert_int_equal(sy_director_settle(director), 0);
		before = stats();
		far_send_from(VIP4, 5353);
		if (again)
			await_more(dropped_no_socket, before);
		else
			await_more(passed, before);
		director_stop();
	}
}

static void test_native(void **state)
{
	director_directs(SY_DIRECTOR_NATIVE, true);
}

static void test_generic(void **state)
{
	director_directs(SY_DIRECTOR_GENERIC, false);
}

static void test_auto_is_native_where_it_can(void **state)
{
	director_start(SY_DIRECTOR_AUTO);
	assert_true(sy_director_is_native(director));
}

static void test_neighbour_discovery_passes(void **state)
{
	uint64_t end = sy_clock_ns() + SUPPORT_PATIENCE_MS * 1000000ull;

	sh("ip addr add 2001:db8::50/128 dev near0 nodad");
	director_start(SY_DIRECTOR_AUTO);
	steer("2001:db8::50", true);
	far_send("2001:db8::50");
	netns_enter(far_ns);
	/* The kernel answers solicitations for it, also unicast ones. */
	while (!sh_ok("ip -6 neigh show 2001:db8::50 | grep -q REACHABLE")) {
		assert_true(sy_clock_ns() < end);
		poll(NULL, 0, 20);
	}
	netns_enter(near_ns);
	assert_int_equal(stats().steered, 0);
}

/* Steers both VIPs, reports that, and waits until it is killed. */
static void forwarder_body(void *arg)
{
	int ready = *(int *)arg;

	director_start(SY_DIRECTOR_AUTO);
	steer(VIP4, true);
	steer(VIP6, true);
	if (write(ready, "y", 1) == 1)
		pause();
}

static int forwarder_start(void)
{
	int ready[2], pid;
	char word;

	assert_int_equal(pipe(ready), 0);
	pid = child_start(forwarder_body, &ready[1]);
	close(ready[1]);
	assert_int_equal(read(ready[0], &word, 1), 1);
	close(ready[0]);
	return pid;
}

static void test_program_outlives_its_process(void **state)
{
	struct sy_director_stats before;
	uint32_t id;
	int pid = forwarder_start();

	child_kill(pid);
	id = pinned_link_id();
	assert_int_not_equal(id, 0);
	far_send(VIP4);
	director_start(SY_DIRECTOR_AUTO);
	assert_int_equal(pinned_link_id(), id); /* the link was kept, the program exchanged */
	await_more(dropped_no_socket, (struct sy_director_stats){0});

	/* Entries stay steered until the successor has settled. */
	before = stats();
	far_send(VIP6);
	await_more(dropped_no_socket, before);
	director_settle();
}

static void test_another_mode_attaches_again(void **state)
{
	uint32_t id;

	director_start(SY_DIRECTOR_NATIVE);
	id = pinned_link_id();
	director_stop();
	director_start(SY_DIRECTOR_AUTO);
	assert_int_equal(pinned_link_id(), id);
	director_stop();
	director_start(SY_DIRECTOR_GENERIC);
	assert_false(sy_director_is_native(director));
	assert_int_not_equal(pinned_link_id(), id);
}

static void test_second_forwarder_is_refused(void **state)
{
	int pid = forwarder_start();
	struct sy_error err;
	char name[32];

	assert_int_equal(sy_director_open("near0", SY_DIRECTOR_AUTO, &director, &err), -EBUSY);
	assert_null(director);
	snprintf(name, sizeof(name), "process %d", pid);
	assert_non_null(strstr(err.text, name));
	assert_int_equal(sy_kernel_cleanup(NULL, NULL, &err), -EBUSY);
	assert_int_not_equal(pinned_link_id(), 0);
	child_kill(pid);
	director_start(SY_DIRECTOR_AUTO);
}

static void test_other_program_is_refused(void **state)
{
	const struct bpf_insn pass[] = {
	        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS},
	        {.code = BPF_JMP | BPF_EXIT},
	};
	int prog = bpf_prog_load(BPF_PROG_TYPE_XDP, "other", "Apache-2.0", pass, 2, NULL);
	int ifindex = (int)if_nametoindex("near0");
	struct sy_error err;

	assert_true(prog >= 0);
	assert_int_equal(bpf_xdp_attach(ifindex, prog, XDP_FLAGS_DRV_MODE, NULL), 0);
	close(prog);
	assert_true(sy_director_open("near0", SY_DIRECTOR_AUTO, &director, &err) < 0);
	assert_non_null(strstr(err.text, "another XDP program"));
	assert_non_null(strstr(err.text, "ip link set dev near0 xdp off"));
	sh("ip link set dev near0 xdp off");
	director_start(SY_DIRECTOR_AUTO);
}

static void test_link_of_a_vanished_device_is_replaced(void **state)
{
	director_start(SY_DIRECTOR_AUTO);
	director_stop();
	sh("i=$(cat /sys/class/net/near0/ifindex 2>/dev/null || ip -o link show near0 | cut -d: "
	   "-f1); ip link del near0; ip link add near0 index $i type veth peer name other0");
	assert_int_not_equal(pinned_link_id(), 0);
	director_start(SY_DIRECTOR_AUTO);
	assert_int_equal(sy_director_queues(director), 1);
}

static void test_cookies_tell_namespaces_apart(void **state)
{
	uint64_t here = sy_netns_cookie();

	assert_int_not_equal(here, 0);
	netns_enter(far_ns);
	assert_int_not_equal(sy_netns_cookie(), here);
	netns_enter(near_ns);
	assert_int_equal(sy_netns_cookie(), here);
}

static void test_no_such_interface(void **state)
{
	struct sy_error err;

	assert_int_equal(sy_director_open("nowhere0", SY_DIRECTOR_AUTO, &director, &err), -ENODEV);
	assert_non_null(strstr(err.text, "nowhere0"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, direct_setup, direct_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_native),
	        TEST(test_generic),
	        TEST(test_auto_is_native_where_it_can),
	        TEST(test_neighbour_discovery_passes),
	        TEST(test_program_outlives_its_process),
	        TEST(test_sources),
	        TEST(test_fragments),
	        TEST(test_errors),
	        TEST(test_sources_settle),
	        TEST(test_networks),
	        TEST(test_networks_settle),
	        TEST(test_another_mode_attaches_again),
	        TEST(test_second_forwarder_is_refused),
	        TEST(test_other_program_is_refused),
	        TEST(test_link_of_a_vanished_device_is_replaced),
	        TEST(test_no_such_interface),
	        TEST(test_cookies_tell_namespaces_apart),
	};

	return cmocka_run_group_tests_name("director", tests, NULL, NULL);
}
