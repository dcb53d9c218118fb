// SPDX-License-Identifier: Apache-2.0
/* The flow director on a veth: who gets a packet, and what outlives a process. */
#include "support.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xdp/xsk.h>

#define VIP4   "203.0.113.5"
#define VIP6   "2001:db8:f::5"
#define FRAMES 4096

static int near_ns, far_ns;
static struct sy_director *director;

/* ---- set-up ---------------------------------------------------------------------------------- */

static int setup(void **state)
{
	far_ns = netns_new();
	near_ns = netns_new();
	veth_new("near0", "far0", far_ns);
	sh("ip addr add 192.0.2.1/24 dev near0; ip addr add 2001:db8::1/64 dev near0 nodad");
	sh("sysctl -qw net.ipv4.ip_forward=0");
	netns_enter(far_ns);
	sh("ip addr add 192.0.2.2/24 dev far0; ip addr add 2001:db8::2/64 dev far0 nodad");
	sh("ip route add " VIP4 " via 192.0.2.1; ip -6 route add " VIP6 " via 2001:db8::1");
	netns_enter(near_ns);
	return 0;
}

static int teardown(void **state)
{
	struct sy_error err = {0};

	sy_director_close(director);
	director = NULL;
	netns_enter(near_ns);
	if (sy_kernel_cleanup(NULL, NULL, &err))
		print_error("%s\n", err.text);
	close(near_ns);
	close(far_ns);
	return err.code;
}

static void director_start(enum sy_director_mode mode)
{
	struct sy_error err = {0};

	if (sy_director_open("near0", mode, &director, &err))
		fail_msg("%s", err.text);
}

static void director_stop(void)
{
	sy_director_close(director);
	director = NULL;
}

static struct sy_director_stats stats(void)
{
	struct sy_director_stats s;

	assert_int_equal(sy_director_read_stats(director, &s), 0);
	return s;
}

/* ---- traffic --------------------------------------------------------------------------------- */

/* A datagram from the far side. The veth hands it over within the call or soon after it. */
static void far_send(const char *dst)
{
	struct sy_addr addr = addr_of(dst);
	struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = htons(9)};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
	bool v4 = sy_addr_is_v4(&addr);
	int fd;

	netns_enter(far_ns);
	fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	memcpy(&to4.sin_addr, addr.b + 12, 4);
	memcpy(&to6.sin6_addr, addr.b, 16);
	assert_int_equal(sendto(fd, "steelyard", 9, 0, v4 ? (void *)&to4 : (void *)&to6,
	                        v4 ? sizeof(to4) : sizeof(to6)),
	                 9);
	close(fd);
	netns_enter(near_ns);
}

/* Waits until a counter, given by its offset, has grown beyond `from`. */
static void await_counter(size_t offset, uint64_t from)
{
	uint64_t end = sy_clock_ns() + SUPPORT_PATIENCE_MS * 1000000ull;

	for (;;) {
		struct sy_director_stats s = stats();

		if (*(const uint64_t *)((const char *)&s + offset) > from)
			return;
		if (sy_clock_ns() > end)
			fail_msg("counter at offset %zu does not grow", offset);
		poll(NULL, 0, 5);
	}
}

#define await_more(field, before)                                                                  \
	await_counter(offsetof(struct sy_director_stats, field), (before).field)

struct receiver {
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons done, rx;
	char *frames;
};

static void receiver_open(struct receiver *r, unsigned queue)
{
	struct xsk_socket_config config = {.rx_size = 64,
	                                   .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
	                                   .bind_flags = XDP_COPY};
	uint32_t at = 0;

	memset(r, 0, sizeof(*r));
	r->frames =
	        mmap(NULL, 64 * FRAMES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(r->frames, MAP_FAILED);
	assert_int_equal(
	        xsk_umem__create(&r->umem, r->frames, 64 * FRAMES, &r->fill, &r->done, NULL), 0);
	assert_int_equal(
	        xsk_socket__create(&r->xsk, "near0", queue, r->umem, &r->rx, NULL, &config), 0);
	assert_int_equal(xsk_ring_prod__reserve(&r->fill, 32, &at), 32);
	for (unsigned i = 0; i < 32; i++)
		*xsk_ring_prod__fill_addr(&r->fill, at + i) = i * FRAMES;
	xsk_ring_prod__submit(&r->fill, 32);
}

static void receiver_close(struct receiver *r)
{
	xsk_socket__delete(r->xsk);
	xsk_umem__delete(r->umem);
	munmap(r->frames, 64 * FRAMES);
}

/* Waits for a frame on any of two receivers; its EtherType must be the one given. */
static void receivers_expect(struct receiver r[2], uint16_t ethertype)
{
	struct pollfd fd[2] = {{.fd = xsk_socket__fd(r[0].xsk), .events = POLLIN},
	                       {.fd = xsk_socket__fd(r[1].xsk), .events = POLLIN}};
	uint32_t at = 0;

	assert_true(poll(fd, 2, SUPPORT_PATIENCE_MS) > 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct xdp_desc *desc;
		const uint8_t *frame;

		if (!xsk_ring_cons__peek(&r[i].rx, 1, &at))
			continue;
		desc = xsk_ring_cons__rx_desc(&r[i].rx, at);
		frame = xsk_umem__get_data(r[i].frames, desc->addr);
		assert_int_equal(frame[12] << 8 | frame[13], ethertype);
		xsk_ring_cons__release(&r[i].rx, 1);
		return;
	}
	fail_msg("woken without a frame");
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void steer(const char *text, bool on)
{
	struct sy_addr addr = addr_of(text);

	assert_int_equal(sy_director_steer(director, &addr, on), 0);
}

static void director_directs(enum sy_director_mode mode, bool native)
{
	struct sy_director_stats before;
	struct receiver r[2];

	director_start(mode);
	assert_int_equal(sy_director_is_native(director), native);
	assert_int_equal(sy_director_queues(director), 2);

	before = stats();
	far_send(VIP4); /* not steered yet: the kernel's */
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
	/* Solicitations for it, unicast ones too, are the kernel's to answer. */
	while (!sh_ok("ip -6 neigh show 2001:db8::50 | grep -q REACHABLE")) {
		assert_true(sy_clock_ns() < end);
		poll(NULL, 0, 20);
	}
	netns_enter(near_ns);
	assert_int_equal(stats().steered, 0);
}

static uint32_t pinned_link_id(void)
{
	struct bpf_link_info info = {0};
	uint32_t len = sizeof(info);
	struct stat st;
	char pin[128];
	int fd;

	assert_int_equal(stat("/proc/thread-self/ns/net", &st), 0);
	snprintf(pin, sizeof(pin), "/sys/fs/bpf/steelyard/%lu-%u", (unsigned long)st.st_ino,
	         if_nametoindex("near0"));
	fd = bpf_obj_get(pin);
	if (fd < 0)
		return 0;
	assert_int_equal(bpf_obj_get_info_by_fd(fd, &info, &len), 0);
	close(fd);
	return info.id;
}

/* Steers both VIPs, says so, and waits for its end. */
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

	/* What is steered stays so until the successor has said all it wants. */
	before = stats();
	far_send(VIP6);
	await_more(dropped_no_socket, before);
	steer(VIP4, true);
	assert_int_equal(sy_director_settle(director), 0);
	before = stats();
	far_send(VIP4);
	await_more(dropped_no_socket, before);
	before = stats();
	far_send(VIP6);
	await_more(passed, before);
	assert_int_equal(stats().dropped_no_socket, before.dropped_no_socket);
}

static void test_another_mode_attaches_anew(void **state)
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

static void test_foreign_program_is_refused(void **state)
{
	const struct bpf_insn pass[] = {
	        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS},
	        {.code = BPF_JMP | BPF_EXIT},
	};
	int prog = bpf_prog_load(BPF_PROG_TYPE_XDP, "foreign", "Apache-2.0", pass, 2, NULL);
	int ifindex = (int)if_nametoindex("near0");
	struct sy_error err;

	assert_true(prog >= 0);
	assert_int_equal(bpf_xdp_attach(ifindex, prog, XDP_FLAGS_DRV_MODE, NULL), 0);
	close(prog);
	assert_true(sy_director_open("near0", SY_DIRECTOR_AUTO, &director, &err) < 0);
	assert_non_null(strstr(err.text, "foreign XDP program"));
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

static void test_no_such_interface(void **state)
{
	struct sy_error err;

	assert_int_equal(sy_director_open("nowhere0", SY_DIRECTOR_AUTO, &director, &err), -ENODEV);
	assert_non_null(strstr(err.text, "nowhere0"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_native),
	        TEST(test_generic),
	        TEST(test_auto_is_native_where_it_can),
	        TEST(test_neighbour_discovery_passes),
	        TEST(test_program_outlives_its_process),
	        TEST(test_another_mode_attaches_anew),
	        TEST(test_second_forwarder_is_refused),
	        TEST(test_foreign_program_is_refused),
	        TEST(test_link_of_a_vanished_device_is_replaced),
	        TEST(test_no_such_interface),
	};

	return cmocka_run_group_tests_name("director", tests, NULL, NULL);
}
