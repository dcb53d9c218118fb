// SPDX-License-Identifier: Apache-2.0
/* Packets that the flow director's program drops itself: to ports of a VIP that
 * have no service. */
#include "director_fixture.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whole packets to ports of a VIP without a service are dropped by the program.
 */
static void ports_are_published(enum sy_director_mode mode, const char *vip)
{
	const struct sy_port_range served[] = {{53, 53, 17}, {9, 9, 6}, {4000, 5000, 17}};
	struct sy_addr addr = addr_of(vip);
	struct sy_director_stats before;

	director_start(mode);
	assert_int_equal(sy_director_serve(director, &addr, served, 3), -ENOENT);
	steer(vip, true);
	before = stats();
	far_send(vip); /* to port 9: any port may have a service */
	await_more(dropped_no_socket, before);
	assert_int_equal(sy_director_serve(director, &addr, served, 3), 0);
	before = stats();
	far_send(vip);
	await_more(dropped_no_service, before);
	assert_int_equal(stats().dropped_no_socket, before.dropped_no_socket);

	before = stats();
	far_send_bytes(vip, 0, 4000); /* fragments: their first one's ports are not looked at */
	await_counter(offsetof(struct sy_director_stats, dropped_no_socket),
	              before.dropped_no_socket + 2);
	assert_int_equal(stats().dropped_no_service, before.dropped_no_service);

	assert_int_equal(
	        sy_director_serve(director, &addr, (struct sy_port_range[]){{9, 9, 17}}, 1), 0);
	before = stats();
	far_send(vip);
	await_more(dropped_no_socket, before);
	assert_int_equal(sy_director_serve(director, &addr, served, 3), 0);
	assert_int_equal(sy_director_serve(director, &addr, NULL, 0), 0);
	before = stats();
	far_send(vip);
	await_more(dropped_no_socket, before);
	assert_int_equal(stats().dropped_no_service, before.dropped_no_service);
	steer(vip, false);
	director_stop();
}

static void test_ports(void **state)
{
	ports_are_published(SY_DIRECTOR_NATIVE, VIP4);
	ports_are_published(SY_DIRECTOR_GENERIC, VIP4);
	ports_are_published(SY_DIRECTOR_NATIVE, VIP6);
	ports_are_published(SY_DIRECTOR_GENERIC, VIP6);
}

/* The program's verdict, by a test run, on a packet to this port of the VIP. */
static bool port_is_dropped(const char *vip, uint8_t proto, uint16_t port)
{
	struct sy_director_stats before = stats();
	struct sy_addr addr = addr_of(vip);
	uint8_t frame[64] = {[12] = 0x86, 0xdd};
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = sizeof(frame));
	int prog = bpf_prog_get_fd_by_id(pinned_program_id());

	frame[14] = 0x60;
	frame[20] = proto;
	frame[21] = 64;
	memcpy(frame + 38, addr.b, 16);
	frame[56] = (uint8_t)(port >> 8);
	frame[57] = (uint8_t)port;
	assert_true(prog >= 0);
	assert_int_equal(bpf_prog_test_run_opts(prog, &opts), 0);
	close(prog);
	assert_int_equal(opts.retval, XDP_DROP); /* there is no socket */
	bool dropped = stats().dropped_no_service > before.dropped_no_service;
	assert_int_equal(stats().dropped_no_socket > before.dropped_no_socket, !dropped);
	return dropped;
}

/* More ranges than the program compares: the nearest are joined, so that it drops less. */
static void test_many_ports(void **state)
{
	struct sy_port_range range[400], all = {1, UINT16_MAX, 17};
	struct sy_addr addr = addr_of(VIP6);

	director_start(SY_DIRECTOR_GENERIC);
	steer(VIP6, true);
	/* touching and overlapping ones become one: 9 are left, with the last one */
	for (unsigned i = 0; i < 8 * 4; i++)
		range[i] =
		        (struct sy_port_range){(uint16_t)(1000 * (1 + i / 4) + i % 4 * 10),
		                               (uint16_t)(1000 * (1 + i / 4) + i % 4 * 10 + 9), 6};
	range[32] = (struct sy_port_range){443, 443, 17};
	assert_int_equal(sy_director_serve(director, &addr, range, 33), 0);
	for (unsigned i = 0; i < 8; i++) {
		const uint16_t first = (uint16_t)(1000 * (1 + i));
		assert_true(port_is_dropped(VIP6, 6, first - 1));
		assert_false(port_is_dropped(VIP6, 6, first));
		assert_false(port_is_dropped(VIP6, 6, first + 39));
		assert_true(port_is_dropped(VIP6, 6, first + 40));
		assert_true(port_is_dropped(VIP6, 17, first));
	}
	assert_false(port_is_dropped(VIP6, 17, 443));
	assert_true(port_is_dropped(VIP6, 6, 443));
	assert_false(port_is_dropped(VIP6, 47, 1)); /* not TCP or UDP */

	for (unsigned i = 0; i < 400; i++)
		range[i] = (struct sy_port_range){(uint16_t)(2 * i * i / 5 + 2 * i + 1),
		                                  (uint16_t)(2 * i * i / 5 + 2 * i + 1),
		                                  i % 2 ? 6 : 17};
	assert_int_equal(sy_director_serve(director, &addr, range, 400), 0);
	for (unsigned i = 0; i < 400; i++)
		assert_false(port_is_dropped(VIP6, i % 2 ? 6 : 17,
		                             (uint16_t)(2 * i * i / 5 + 2 * i + 1)));
	assert_true(port_is_dropped(VIP6, 6, UINT16_MAX));
	assert_true(port_is_dropped(VIP6, 17, UINT16_MAX));
	assert_int_equal(sy_director_serve(director, &addr, &all, 1), 0);
	assert_false(port_is_dropped(VIP6, 17, 1));
	assert_false(port_is_dropped(VIP6, 17, UINT16_MAX));
	assert_true(port_is_dropped(VIP6, 17, 0));
}

/* A successor has the ports from the maps until it sets others. */
static void test_ports_outlive_a_process(void **state)
{
	struct sy_addr addr = addr_of(VIP4);
	struct sy_director_stats before;

	director_start(SY_DIRECTOR_AUTO);
	steer(VIP4, true);
	assert_int_equal(
	        sy_director_serve(director, &addr, (struct sy_port_range[]){{80, 80, 6}}, 1), 0);
	director_stop();
	director_start(SY_DIRECTOR_AUTO);
	before = stats();
	far_send(VIP4);
	await_more(dropped_no_service, before);
	assert_int_equal(sy_director_host(director, &addr, true), 0); /* no effect */
	far_send(VIP4);
	await_counter(offsetof(struct sy_director_stats, dropped_no_service),
	              before.dropped_no_service + 1);
	steer(VIP4, true);
	before = stats();
	far_send(VIP4);
	await_more(dropped_no_socket, before);
	assert_int_equal(stats().dropped_no_service, before.dropped_no_service);
}

#define PIN_PATH 128

static void pin_path(char out[static PIN_PATH])
{
	struct stat ns;

	assert_int_equal(stat("/proc/thread-self/ns/net", &ns), 0);
	snprintf(out, PIN_PATH, "/sys/fs/bpf/steelyard/%lu-%u", (unsigned long)ns.st_ino,
	         if_nametoindex("near0"));
}

/* Attaches a program as an earlier version left it: its map has one byte a
 * value. */
static void older_version_attach(const char *steered)
{
	const struct sy_source key = {.addr = addr_of(steered)};
	int map = bpf_map_create(
	        BPF_MAP_TYPE_HASH, "steered", sizeof(key), 1, 262144,
	        &(struct bpf_map_create_opts){.sz = sizeof(struct bpf_map_create_opts),
	                                      .map_flags = BPF_F_NO_PREALLOC});
	const struct bpf_insn pass[] = {
	        {.code = BPF_LD | BPF_DW | BPF_IMM,
	         .dst_reg = 1,
	         .src_reg = BPF_PSEUDO_MAP_FD,
	         .imm = map},
	        {0},
	        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS},
	        {.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = XDP_FLAGS_DRV_MODE);
	LIBBPF_OPTS(bpf_prog_load_opts, load, .expected_attach_type = BPF_XDP);
	char pin[PIN_PATH];
	uint8_t value = 1;
	int prog, link;

	assert_true(map >= 0);
	assert_int_equal(bpf_map_update_elem(map, &key, &value, BPF_ANY), 0);
	prog = bpf_prog_load(BPF_PROG_TYPE_XDP, "direct", "Apache-2.0", pass, 4, &load);
	assert_true(prog >= 0);
	link = bpf_link_create(prog, (int)if_nametoindex("near0"), BPF_XDP, &opts);
	assert_true(link >= 0);
	pin_path(pin);
	assert_int_equal(bpf_obj_pin(link, pin), 0);
	close(link);
	close(prog);
	close(map);
}

static void test_older_version_is_replaced(void **state)
{
	struct sy_director_stats before;
	char pin[PIN_PATH];
	int link;

	director_start(SY_DIRECTOR_NATIVE); /* makes the folder for pins */
	director_stop();
	pin_path(pin);
	link = bpf_obj_get(pin);
	assert_int_equal(bpf_link_detach(link), 0);
	close(link);
	assert_int_equal(unlink(pin), 0);
	older_version_attach(VIP4);
	director_start(SY_DIRECTOR_NATIVE);
	before = stats();
	far_send(VIP4);
	await_more(dropped_no_socket, before);
	assert_int_equal(sy_director_settle(director), 0);
	before = stats();
	far_send(VIP4);
	await_more(passed, before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, direct_setup, direct_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_ports),
	        TEST(test_many_ports),
	        TEST(test_ports_outlive_a_process),
	        TEST(test_older_version_is_replaced),
	};

	return cmocka_run_group_tests_name("ports", tests, NULL, NULL);
}
