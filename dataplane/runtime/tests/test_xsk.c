// SPDX-License-Identifier: Apache-2.0
/*
 * AF_XDP over veth, with a client whose own kernel makes and checks the packets:
 *
 *   this process, namespace A              its child, namespace B
 *   runtime: echoes UDP to 10.77.0.100 ── syrt0 ═══ syrt1 ── 10.77.0.2, 2001:db8:77::2
 *            and 2001:db8:77::100          10.77.0.1
 *
 * Both namespaces end with the processes. Needs root.
 */
#include "../port_xsk.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "echo.h"
#include "veth_peer.h"

#define DATAGRAMS 2000 /* per family */
#define SOCKETS   16   /* source ports: slots of both workers */

/* ---- the client ------------------------------------------------------------------------------ */

static int client_socket(int family)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(7)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7)};
	inet_pton(AF_INET, SERVER_V4, &v4.sin_addr);
	inet_pton(AF_INET6, SERVER_V6, &v6.sin6_addr);
	int fd = socket(family, SOCK_DGRAM, 0);
	const struct sockaddr *to =
	        family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	if (fd < 0 || connect(fd, to, family == AF_INET ? sizeof(v4) : sizeof(v6)))
		exit(4);
	return fd;
}

/* Sends until answered: the first datagram may arrive before the address is claimed. */
static bool client_request(int fd, uint32_t number)
{
	char text[1000] = {0}, back[1000];
	snprintf(text, sizeof(text), "datagram %u", number);
	size_t len = number % 3 ? 20 : sizeof(text);
	for (unsigned attempt = 0; attempt < 50; attempt++) {
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		if (send(fd, text, len, 0) < 0 || poll(&wait, 1, 200) <= 0)
			continue;
		while (recv(fd, back, sizeof(back), MSG_DONTWAIT) == (ssize_t)len)
			if (!memcmp(text, back, len))
				return true;
	}
	return false;
}

static void client_family(int family)
{
	int fd[SOCKETS];
	for (unsigned i = 0; i < SOCKETS; i++)
		fd[i] = client_socket(family);
	for (uint32_t n = 0; n < DATAGRAMS; n++)
		if (!client_request(fd[n % SOCKETS], n))
			exit(family == AF_INET ? 5 : 6);
	for (unsigned i = 0; i < SOCKETS; i++)
		close(fd[i]);
}

static void client_main(int ready, int go)
{
	char byte = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (unshare(CLONE_NEWNET) || write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 1)
		exit(7);
	shell("ip addr add 10.77.0.2/24 dev syrt1 && "
	      "ip addr add 2001:db8:77::2/64 dev syrt1 nodad && ip link set syrt1 up");
	checksums_on("syrt1");
	if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 1)
		exit(7);
	client_family(AF_INET);
	client_family(AF_INET6);
	if (write(ready, &byte, 1) != 1)
		exit(7);
	exit(read(go, &byte, 1) == 0 ? 0 : 7); /* waits until the other end is closed */
}

/* ---- client and forwarder together ----------------------------------------------------------- */

static struct lab {
	struct veth_peer client;
	struct sy_runtime *rt;
} lab;

/* After every test, passed or failed. */
static int lab_close(void **state)
{
	sy_runtime_close(lab.rt);
	lab.rt = NULL;
	return veth_peer_close(&lab.client);
}

static uint64_t cpu_us(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000u +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void second_over(void *ctx)
{
	sy_runtime_stop(ctx);
}

/* For human readers: machines differ too much to assert this. */
static void idle_print(struct sy_runtime *rt)
{
	uint64_t cpu = cpu_us(), wall = sy_clock_ns();
	assert_int_equal(sy_runtime_every(rt, 1000, second_over, rt), 0);
	assert_int_equal(sy_runtime_run(rt), 0);
	print_message("             idle, %u worker(s): %.2f %% of a core\n", rt->workers,
	              (double)(cpu_us() - cpu) * 1e5 / (double)(sy_clock_ns() - wall));
}

/* A forwarder acquires the interface and is then killed. */
static void predecessor_kill(const struct sy_runtime_options *o)
{
	int ready[2], status;
	char byte = 0;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (!pid) {
		struct sy_runtime *rt;
		struct sy_addr v4 = addr(SERVER_V4);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (sy_runtime_open(o, &rt, NULL) || sy_runtime_bind(rt, NULL) ||
		    sy_address_claim(rt, &v4, NULL) || write(ready[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static bool vip6_there(void)
{
	return !system("ip -6 addr show dev syrt0 | grep -q ' " SERVER_V6 "/128 '");
}

/* A claimed address that is removed from the interface is added again; a released one is not. */
static void vip6_flushed(struct sy_runtime *rt, uint64_t deadline)
{
	struct sy_addr other = addr("2001:db8:77::101");
	assert_int_equal(system("ip -6 addr del " SERVER_V6 "/128 dev syrt0"), 0);
	while (!vip6_there())
		runtime_poll(rt, deadline);
	assert_int_equal(sy_address_claim(rt, &other, NULL), 0);
	sy_address_release(rt, &other);
	/* The mirror reports in order: once this address has come and gone, so has the other. */
	unsigned before = rt->connected_count;
	assert_int_equal(system("ip addr add 2001:db8:77::102/128 dev syrt0 nodad"), 0);
	while (rt->connected_count == before)
		runtime_poll(rt, deadline);
	assert_true(system("ip -6 addr show dev syrt0 | grep -q ' 2001:db8:77::101/'"));
}

/* An MTU beyond the packet buffers is limited; a smaller one is used. */
static void mtu_raised(struct sy_runtime *rt, uint64_t deadline)
{
	unsigned max = port_xsk_mtu_max(rte_pktmbuf_data_room_size(rt->pool));
	assert_int_equal(sy_port_mtu(rt, 0), 1500);
	assert_int_equal(system("ip link set syrt0 mtu 3000"), 0);
	while (sy_port_mtu(rt, 0) == 1500)
		runtime_poll(rt, deadline);
	assert_int_equal(sy_port_mtu(rt, 0), max);
	assert_int_equal(port_xsk_frame_max(max), rte_pktmbuf_data_room_size(rt->pool));
	assert_int_equal(system("ip link set syrt0 mtu 1400"), 0);
	while (sy_port_mtu(rt, 0) == max)
		runtime_poll(rt, deadline);
	assert_int_equal(sy_port_mtu(rt, 0), 1400);
}

static void sources_block(struct sy_runtime *rt, const struct sy_blocked *from, size_t count)
{
	struct sy_blocked *copy = calloc(count + 1, sizeof(*copy));
	assert_non_null(copy);
	for (size_t i = 0; i < count; i++)
		copy[i] = from[i];
	struct sy_blocked_list *list = sy_blocked_list_make(copy, count);
	assert_non_null(list);
	assert_int_equal(sy_sources_block(rt, list, count > 0), 0);
	sy_blocked_list_drop(list);
}

/* What the client sends is dropped by the flow director until it is no longer blocked. */
static void client_block(struct sy_runtime *rt)
{
	const struct sy_port_range port = {7, 7, SY_PROTO_UDP};
	const struct sy_blocked client[] = {{addr("10.77.0.2"), 32}, {addr("2001:db8:77::2"), 128}};
	const struct sy_addr v4 = addr(SERVER_V4);
	assert_int_equal(sy_address_serve(rt, &v4, &port, 1), 0);
	sources_block(rt, client, 2);
}

static void client_unblock(struct sy_runtime *rt, uint64_t deadline)
{
	struct sy_port_stats stats;
	do {
		runtime_poll(rt, deadline);
		sy_port_get_stats(rt, 0, &stats);
	} while (!stats.director.dropped_blocked);
	sources_block(rt, NULL, 0);
}

/* ring: of receive queues; 0: the default. */
static void echo(unsigned workers, unsigned queues, unsigned ring, bool after_kill)
{
	struct sy_runtime_options o;
	struct sy_error err = {0};
	uint64_t deadline = sy_clock_ns() + 4 * WAIT_NS;
	veth_peer_open(&lab.client, "syrt0", "syrt1", queues, client_main);
	options_init(&o, workers);
	o.kernel = true;
	o.mbufs = 0;
	o.pipeline = echo_pipeline;
	o.port[o.ports++] =
	        (struct sy_port_options){.backend = SY_PORT_XSK, .name = "syrt0", .ring = ring};
	if (after_kill)
		predecessor_kill(&o);
	struct sy_runtime *rt = lab.rt = runtime_open(&o);
	assert_int_equal(rt->port[0]->queues, queues);
	for (unsigned q = 0; q < queues; q++)
		assert_true(fcntl(rt->port[0]->ops->descriptor(rt->port[0], q), F_GETFD) &
		            FD_CLOEXEC);
	while (!sy_runtime_is_synced(rt))
		runtime_poll(rt, deadline);
	struct sy_addr v4 = addr(SERVER_V4), v6 = addr(SERVER_V6);
	if (sy_address_claim(rt, &v4, &err) || sy_address_claim(rt, &v6, &err))
		fail_msg("%s", err.text);
	client_block(rt);
	while (rt->blocking)
		runtime_poll(rt, deadline);
	sy_address_settle(rt);
	assert_int_equal(sy_runtime_start(rt, &err), 0);
	veth_peer_go(&lab.client);
	client_unblock(rt, deadline);
	struct pollfd done = {.fd = lab.client.ready, .events = POLLIN};
	while (!poll(&done, 1, 0))
		runtime_poll(rt, deadline);
	veth_peer_await(&lab.client);
	assert_int_equal(echo_wrong_worker, 0);

	struct sy_port_stats stats;
	do { /* the last burst is counted only after it has left */
		runtime_poll(rt, deadline);
		sy_port_get_stats(rt, 0, &stats);
	} while (stats.rx_packets < 2 * DATAGRAMS || stats.tx_packets < 2 * DATAGRAMS);
	if (workers > 1)
		for (unsigned i = 0; i < workers; i++)
			assert_true(SY_READ(rt->worker[i].counters.rx_packets) +
			                    SY_READ(rt->worker[i].counters.steered_in) >
			            0);
	for (unsigned i = 1; i < SY_DROP_COUNT; i++)
		if (drops(rt, i))
			print_message("             dropped %s: %lu\n", sy_drop_name(i),
			              drops(rt, i));
	vip6_flushed(rt, deadline);
	mtu_raised(rt, deadline);
	idle_print(rt);
	workers_stop(rt); /* only buffers for reception are out of the pool */
	unsigned room, size = ring ? ring : PORT_XSK_RING;
	const struct xsk_port *x = rt->port[0]->impl;
	unsigned missing = 0; /* in the place of what came last */
	for (unsigned i = 0; i < queues; i++)
		missing += x->queue[i].rings.fill_missing;
	assert_int_equal(rte_mempool_in_use_count(rt->pool) + missing, queues * size);
	assert_int_equal(rt->port[0]->ops->waiting(rt->port[0], 0, &room), 0);
	assert_int_equal(room, size);
	sy_address_release(rt, &v4);
	sy_address_release(rt, &v6);
}

static void test_one_worker(void **state)
{
	echo(1, 1, SY_RING_MIN, false);
}

static void test_one_worker_two_queues(void **state)
{
	echo(1, 2, 256, false);
}

static void test_two_workers_one_queue(void **state)
{
	echo(2, 1, 0, false);
}

static void test_two_workers_two_queues(void **state)
{
	echo(2, 2, 0, false);
}

/* Runs first: the process to be killed must start its own EAL. */
static void test_after_kill(void **state)
{
	echo(2, 2, 4096, true);
}

/* The mirror knows a device that is not available yet, if the kernel has an interface for it. */
static void test_inherited_device(void **state)
{
	struct sy_runtime_options o;
	struct sy_error err = {0};
	struct sy_addr client = addr("10.77.0.2");
	veth_peer_open(&lab.client, "syrt0", "syrt1", 1, client_main);
	options_init(&o, 1);
	o.kernel = true;
	o.inherit = true;
	o.port[o.ports++] =
	        (struct sy_port_options){.backend = SY_PORT_ETHDEV,
	                                 .name = "net_af_packet0",
	                                 .devargs = "net_af_packet0,iface=syrt0,framesz=1920"};
	if (sy_runtime_open(&o, &lab.rt, &err) || sy_runtime_wait_synced(lab.rt, 30000, &err))
		fail_msg("%s", err.text);
	uint16_t path = sy_path_lookup(lab.rt, &client);
	assert_int_not_equal(path, SY_PATH_NONE);
	assert_int_equal(path_get(lab.rt, path)->ports, 1);
	assert_string_equal(lab.rt->port[0]->backend, "ethdev");
	if (sy_runtime_bind(lab.rt, &err) || sy_runtime_start(lab.rt, &err))
		fail_msg("%s", err.text);
	assert_string_equal(lab.rt->port[0]->backend, "ethdev net_af_packet");
	kill(lab.client.pid, SIGKILL); /* the client would wait for echoes */
	waitpid(lab.client.pid, NULL, 0);
	lab.client.pid = 0;
	close(lab.client.go);
	close(lab.client.ready);
}

static void report(void *ctx, const char *text)
{
}

static int setup(void **state)
{
	return unshare(CLONE_NEWNET) || system("ip link set lo up") ? -1 : 0;
}

static int teardown(void **state)
{
	struct sy_error err;
	return sy_kernel_cleanup(report, NULL, &err);
}

/* EAL starts once in a process, and loads DPDK's drivers only if a port of that start wants one:
 * the test of a DPDK device has a process of its own, `test_xsk device`. */
int main(int argc, char **argv)
{
	const struct CMUnitTest device[] = {
	        cmocka_unit_test_teardown(test_inherited_device, lab_close),
	};
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(test_after_kill, lab_close),
	        cmocka_unit_test_teardown(test_one_worker, lab_close),
	        cmocka_unit_test_teardown(test_one_worker_two_queues, lab_close),
	        cmocka_unit_test_teardown(test_two_workers_one_queue, lab_close),
	        cmocka_unit_test_teardown(test_two_workers_two_queues, lab_close),
	};
	if (argc > 1 && strcmp(argv[1], "device") == 0)
		return cmocka_run_group_tests(device, setup, teardown);
	return cmocka_run_group_tests(tests, setup, teardown);
}
