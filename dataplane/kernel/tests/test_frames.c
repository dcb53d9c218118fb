// SPDX-License-Identifier: Apache-2.0
/* The flow director and unusual frames (in VLANs, truncated, too long), and an interface that is
 * created again. */
#include "director_fixture.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#define VLAN_Q  0x8100
#define VLAN_AD 0x88a8

/* ---- frames as they are ---------------------------------------------------------------------- */

struct raw {
	uint8_t bytes[9100];
	unsigned len;
};

static void raw_u16(struct raw *f, uint16_t value)
{
	value = htons(value);
	memcpy(f->bytes + f->len, &value, 2);
	f->len += 2;
}

/* An Ethernet header without its type. */
static struct raw raw_begin(void)
{
	struct raw f = {.len = 12};

	memset(f.bytes, 0xff, 6);
	f.bytes[6] = 2;
	return f;
}

static void raw_tag(struct raw *f, uint16_t type, uint16_t vid)
{
	raw_u16(f, type);
	raw_u16(f, vid);
}

/* A datagram to a VIP, with this many bytes after the Ethernet header. */
static void raw_ip(struct raw *f, const char *dst, unsigned len)
{
	struct sy_addr addr = addr_of(dst), src = addr_of("192.0.2.2");
	bool v4 = sy_addr_is_v4(&addr);
	uint8_t *ip;

	raw_u16(f, v4 ? ETH_P_IP : ETH_P_IPV6);
	ip = f->bytes + f->len;
	if (v4) {
		ip[0] = 0x45;
		ip[8] = 64;
		ip[9] = IPPROTO_UDP;
		memcpy(ip + 12, src.b + 12, 4);
		memcpy(ip + 16, addr.b + 12, 4);
	} else {
		ip[0] = 0x60;
		ip[6] = IPPROTO_UDP;
		memcpy(ip + 24, addr.b, 16);
	}
	f->len += len;
}

static void raw_send(const struct raw *f)
{
	struct sockaddr_ll to = {.sll_family = AF_PACKET};
	int fd;

	netns_enter(far_ns);
	to.sll_ifindex = (int)if_nametoindex("far0");
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(sendto(fd, f->bytes, f->len, 0, (void *)&to, sizeof(to)), f->len);
	close(fd);
	netns_enter(near_ns);
}

static struct raw tagged(const char *dst, unsigned tags, const uint16_t vid[])
{
	struct raw f = raw_begin();

	for (unsigned i = 0; i < tags; i++)
		raw_tag(&f, i + 1 < tags ? VLAN_AD : VLAN_Q, vid[i]);
	raw_ip(&f, dst, 60);
	return f;
}

/* ---- a sender that uses VLAN offload --------------------------------------------------------- */

/* Puts all packets that leave far0 in this VLAN, by a tag beside the frame. */
static void far_offload_tag(uint16_t vid)
{
	const struct bpf_insn push[] = {
	        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2, .imm = htons(VLAN_Q)},
	        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = vid},
	        {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_skb_vlan_push},
	        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0},
	        {.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = 1, .priority = 1, .flags = BPF_TC_F_REPLACE);

	netns_enter(far_ns);
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)if_nametoindex("far0"),
	            .attach_point = BPF_TC_EGRESS);
	bpf_tc_hook_create(&hook);
	opts.prog_fd = bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "push", "GPL", push, 5, NULL);
	assert_true(opts.prog_fd >= 0);
	assert_int_equal(bpf_tc_attach(&hook, &opts), 0);
	close(opts.prog_fd);
	netns_enter(near_ns);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void vlans_are_dropped(const char *vip, const char *near)
{
	struct sy_director_stats before;
	struct raw f;

	before = stats();
	f = tagged(vip, 1, (uint16_t[]){0}); /* only a priority */
	raw_send(&f);
	await_more(dropped_no_socket, before);
	for (unsigned tags = 1; tags <= 6; tags++) {
		for (unsigned vlan = tags == 1; vlan < 2; vlan++) {
			before = stats();
			f = tagged(vip, tags, (uint16_t[]){vlan ? 5 : 0, 0, 0, 0, 0, 0});
			raw_send(&f);
			await_more(dropped_vlan, before);
		}
	}
	before = stats();
	f = tagged(near, 1, (uint16_t[]){5});
	raw_send(&f);
	await_more(passed, before); /* not steered: passes to the kernel */
	assert_int_equal(stats().steered, 0);
}

static void test_vlans(void **state)
{
	director_start(SY_DIRECTOR_AUTO);
	steer(VIP4, true);
	steer(VIP6, true);
	vlans_are_dropped(VIP4, "192.0.2.1");
	vlans_are_dropped(VIP6, "2001:db8::1");
}

/* If this interface has VLAN interfaces, tagged frames pass to the kernel. */
static void test_vlans_of_other_interfaces_pass(void **state)
{
	struct sy_director_stats before;
	struct raw f = tagged(VIP4, 2, (uint16_t[]){5, 6});

	director_start(SY_DIRECTOR_AUTO);
	steer(VIP4, true);
	assert_int_equal(sy_director_set(director, 0, true), 0);
	before = stats();
	raw_send(&f);
	await_more(passed, before);
	f = tagged(VIP4, 2, (uint16_t[]){0, 5}); /* the kernel skips a priority tag */
	before = stats();
	raw_send(&f);
	await_more(dropped_vlan, before);
}

static void test_tags_beside_the_frame(void **state)
{
	struct sy_director_stats before;

	director_start(SY_DIRECTOR_NATIVE);
	steer(VIP4, true);
	far_send(VIP4);
	await_more(dropped_no_socket, (struct sy_director_stats){0});
	far_offload_tag(5);
	before = stats();
	far_send(VIP4);
	await_more(dropped_vlan, before);
	assert_int_equal(stats().dropped_no_socket, before.dropped_no_socket);
	director_stop();
	director_start(SY_DIRECTOR_NATIVE); /* takes over */
	before = stats();
	far_send(VIP4);
	await_more(dropped_vlan, before);
	far_offload_tag(0);
	before = stats();
	far_send(VIP4);
	await_more(dropped_no_socket, before);
}

static void test_headers_cut_short(void **state)
{
	struct sy_director_stats before;

	director_start(SY_DIRECTOR_AUTO);
	steer(VIP4, true);
	steer(VIP6, true);
	for (unsigned tags = 0; tags < 3; tags++) {
		struct raw f = raw_begin();

		for (unsigned i = 0; i < tags; i++)
			raw_tag(&f, VLAN_Q, 0);
		raw_ip(&f, tags % 2 ? VIP6 : VIP4, tags % 2 ? 39 : 19);
		before = stats();
		raw_send(&f);
		await_more(dropped_truncated, before);
	}
}

/* Frames too long for the sockets are dropped and counted as such. */
static void frames_are_limited(enum sy_director_mode mode)
{
	struct sy_director_stats before;

	sh("ip link set near0 mtu 9000");
	netns_enter(far_ns);
	sh("ip link set far0 mtu 9000");
	netns_enter(near_ns);
	director_start(mode);
	assert_int_equal(sy_director_set(director, 3414, false), 0);
	steer(VIP4, true);
	for (unsigned len = 1400; len < 9000; len += 1000) {
		struct raw f = raw_begin();

		raw_ip(&f, VIP4, len);
		before = stats();
		raw_send(&f);
		if (f.len > 3414)
			await_more(dropped_too_big, before);
		else
			await_more(dropped_no_socket, before);
	}
	before = stats();
	far_send_bytes("192.0.2.1", 0, 8000); /* not steered: not limited */
	await_more(passed, before);
	director_stop();
}

static void test_frames_too_long(void **state)
{
	frames_are_limited(SY_DIRECTOR_NATIVE);
	frames_are_limited(SY_DIRECTOR_GENERIC);
}

/* With the same name and another index: steered addresses stay steered on the new interface. */
static void interface_comes_back(enum sy_director_mode mode)
{
	uint32_t id;
	struct sy_error err = {0};

	director_start(mode);
	steer(VIP4, true);
	id = pinned_link_id();
	sh("ip link del near0");
	assert_int_equal(sy_director_move(director, &err), -ENODEV);
	veth_new("near0", "far0", far_ns);
	sh("ip addr add 192.0.2.1/24 dev near0");
	netns_enter(far_ns);
	sh("ip addr add 192.0.2.2/24 dev far0; ip route add " VIP4 " via 192.0.2.1");
	netns_enter(near_ns);
	for (unsigned again = 0; again < 2; again++) {
		struct sy_director_stats before = stats();

		if (sy_director_move(director, &err))
			fail_msg("%s", err.text);
		far_send(VIP4);
		await_more(dropped_no_socket, before);
	}
	assert_int_not_equal(pinned_link_id(), id);
	assert_int_not_equal(pinned_link_id(), 0);
	assert_int_equal(sy_kernel_cleanup(NULL, NULL, &err), -EBUSY);
	director_stop();
}

static void test_interface_comes_back(void **state)
{
	interface_comes_back(SY_DIRECTOR_AUTO);
	interface_comes_back(SY_DIRECTOR_GENERIC);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, direct_setup, direct_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_vlans),
	        TEST(test_vlans_of_other_interfaces_pass),
	        TEST(test_tags_beside_the_frame),
	        TEST(test_headers_cut_short),
	        TEST(test_frames_too_long),
	        TEST(test_interface_comes_back),
	};

	return cmocka_run_group_tests_name("frames", tests, NULL, NULL);
}
