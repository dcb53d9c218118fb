// SPDX-License-Identifier: Apache-2.0
/*
 * The kernel's TCP talks to stacks behind AF_XDP:
 *
 *   this process, namespace A                    its child, namespace B
 *   stacks: echo on 10.77.0.100 and       ── sytcp0 ═══ sytcp1 ── 10.77.0.2, 2001:db8:77::2
 *   2001:db8:77::100, port 7; and a client       clients; and a server on port 9
 *
 * Both namespaces end with the processes. Needs root.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime_fixture.h"
#include "sy_stack_port.h"
#include "veth_peer.h"

#define SERVER_V4 "10.77.0.100"
#define SERVER_V6 "2001:db8:77::100"
#define LARGE     3000000u
#define SHORT     40u /* short connections of a family */
#define CALLS     8u  /* connections that each stack opens */
#define CALL_LEN  100000u

static uint8_t byte_of(uint32_t n)
{
	return (uint8_t)(n ^ n >> 8 ^ n >> 16);
}

/* ---- the kernel's side ----------------------------------------------------------------------- */

static void must(bool condition, int code)
{
	if (!condition) {
		fprintf(stderr, "the kernel's side fails: %d, errno %d\n", code, errno);
		exit(code);
	}
}

static int client_connect(int family)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(7)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7)};
	inet_pton(AF_INET, SERVER_V4, &v4.sin_addr);
	inet_pton(AF_INET6, SERVER_V6, &v6.sin6_addr);
	const struct sockaddr *to = family == AF_INET ? (void *)&v4 : (void *)&v6;
	int fd = socket(family, SOCK_STREAM, 0);

	must(fd >= 0 && connect(fd, to, family == AF_INET ? sizeof(v4) : sizeof(v6)) == 0, 4);
	return fd;
}

/* Sends so many bytes and their end, and gets them back. */
static void client_echo(int family, uint32_t len)
{
	uint8_t out[16384], in[16384];
	uint32_t sent = 0, got = 0;
	int fd = client_connect(family);

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN | (sent < len ? POLLOUT : 0)};
		must(poll(&p, 1, 30000) == 1, 5);
		if (p.revents & POLLOUT) {
			uint32_t n = len - sent < sizeof(out) ? len - sent : sizeof(out);
			for (uint32_t i = 0; i < n; i++)
				out[i] = byte_of(sent + i);
			ssize_t rc = send(fd, out, n, MSG_DONTWAIT);
			must(rc > 0 || errno == EAGAIN, 6);
			sent += rc > 0 ? (uint32_t)rc : 0;
			if (sent == len)
				must(shutdown(fd, SHUT_WR) == 0, 7);
		}
		if (!(p.revents & (POLLIN | POLLHUP | POLLERR)))
			continue;
		ssize_t rc = recv(fd, in, sizeof(in), MSG_DONTWAIT);
		if (rc < 0 && errno == EAGAIN)
			continue;
		must(rc >= 0, 8);
		if (rc == 0)
			break;
		for (ssize_t i = 0; i < rc; i++)
			must(in[i] == byte_of(got + (uint32_t)i), 9);
		got += (uint32_t)rc;
	}
	must(got == len, 10);
	close(fd);
}

/* A port without listener. */
static void client_refused(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(8)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, SERVER_V4, &to.sin_addr);
	must(connect(fd, (void *)&to, sizeof(to)) < 0 && errno == ECONNREFUSED, 11);
	close(fd);
}

/* Reads all of one connection after the other, and closes. */
static void server_main(int fd)
{
	uint8_t in[16384];
	ssize_t rc;

	for (;;) {
		uint32_t got = 0;
		int c = accept(fd, NULL, NULL);
		must(c >= 0, 12);
		while ((rc = recv(c, in, sizeof(in), 0)) > 0) {
			for (ssize_t i = 0; i < rc; i++)
				must(in[i] == byte_of(got + (uint32_t)i), 13);
			got += (uint32_t)rc;
		}
		must(rc == 0 && got == CALL_LEN, 14);
		must(send(c, "thanks", 6, 0) == 6, 15);
		close(c);
	}
}

static void server_fork(void)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
	int fd = socket(AF_INET6, SOCK_STREAM, 0);

	must(fd >= 0 && bind(fd, (void *)&any, sizeof(any)) == 0 && listen(fd, 64) == 0, 16);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		server_main(fd);
	}
	close(fd);
}

/* A veth leaves checksums to hardware that does not exist. */
static void checksums_on(const char *ifname)
{
	struct ethtool_value value = {.cmd = ETHTOOL_STXCSUM};
	struct ifreq request = {.ifr_data = (char *)&value};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", ifname);
	must(fd >= 0 && ioctl(fd, SIOCETHTOOL, &request) == 0, 3);
	close(fd);
}

static void kernel_main(int ready, int go)
{
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	must(!unshare(CLONE_NEWNET) && write(ready, &byte, 1) == 1 && read(go, &byte, 1) == 1, 2);
	must(!system("ip link set lo up; ip addr add 10.77.0.2/24 dev sytcp1 && "
	             "ip addr add 2001:db8:77::2/64 dev sytcp1 nodad && ip link set sytcp1 up"),
	     2);
	checksums_on("sytcp1");
	server_fork();
	must(write(ready, &byte, 1) == 1 && read(go, &byte, 1) == 1, 2);
	for (unsigned i = 0; i < 2; i++) {
		int family = i ? AF_INET6 : AF_INET;
		client_echo(family, 1);
		for (unsigned k = 0; k < SHORT; k++)
			client_echo(family, 100 + 97 * k);
		client_echo(family, LARGE);
	}
	client_refused();
	must(write(ready, &byte, 1) == 1, 2);
	exit(read(go, &byte, 1) == 0 ? 0 : 17); /* waits until the other end is closed */
}

/* ---- the stacks' side ------------------------------------------------------------------------ */

/* Of one worker. */
struct side {
	sy_stack_id listener[2];
	unsigned called, thanked;
	uint64_t echoed;
	bool failed;
} __attribute__((aligned(SY_CACHE_LINE)));

static struct side side[SY_MAX_WORKERS];

static struct sy_stack_endpoint endpoint(const char *text, uint16_t port)
{
	struct sy_stack_endpoint e = {.port = htons(port)};
	sy_addr_parse(text, &e.addr);
	return e;
}

/* What a connection has sent, in its cookie: a caller's in the upper half. */
#define CALLER (UINT64_C(1) << 63)

static void side_open(struct sy_stack *s, struct side *o, uint64_t now)
{
	const struct sy_stack_endpoint v4 = endpoint(SERVER_V4, 7), v6 = endpoint(SERVER_V6, 7);
	const struct sy_stack_endpoint from4 = endpoint(SERVER_V4, 0),
	                               from6 = endpoint(SERVER_V6, 0);
	const struct sy_stack_endpoint to4 = endpoint("10.77.0.2", 9),
	                               to6 = endpoint("2001:db8:77::2", 9);
	sy_stack_id id;

	o->failed |= sy_stack_listen(s, &v4, 64, 0, &o->listener[0]) != 0 ||
	             sy_stack_listen(s, &v6, 64, 0, &o->listener[1]) != 0;
	for (unsigned i = 0; i < CALLS; i++)
		o->failed |= sy_stack_connect(s, i % 2 ? &from6 : &from4, i % 2 ? &to6 : &to4,
		                              CALLER, now, &id) != 0;
}

/* Sends all that has arrived back, without a copy of its own. */
static void echo(struct sy_stack *s, struct side *o, const struct sy_stack_event *e, uint64_t now)
{
	const void *bytes;
	int64_t len, sent;

	while ((len = sy_stack_peek(s, e->id, &bytes)) > 0) {
		sent = sy_stack_send(s, e->id, bytes, (size_t)len, 0, now);
		if (sent <= 0)
			return; /* goes on when it is writable */
		sy_stack_consume(s, e->id, (size_t)sent, now);
		__atomic_fetch_add(&o->echoed, (uint64_t)sent, __ATOMIC_RELAXED);
	}
	if (len == 0)
		sy_stack_close(s, e->id, now);
	else if (len != -EAGAIN)
		o->failed = true;
}

/* Sends its bytes and their end, and waits for thanks. */
static void call(struct sy_stack *s, struct side *o, const struct sy_stack_event *e, uint64_t now)
{
	uint32_t at = (uint32_t)e->cookie;
	uint8_t bytes[4096];
	int64_t rc;

	while (at < CALL_LEN) {
		uint32_t n = CALL_LEN - at < sizeof(bytes) ? CALL_LEN - at : sizeof(bytes);
		for (uint32_t i = 0; i < n; i++)
			bytes[i] = byte_of(at + i);
		rc = sy_stack_send(s, e->id, bytes, n, 0, now);
		if (rc < 0) {
			o->failed |= rc != -EAGAIN;
			break;
		}
		at += (uint32_t)rc;
		if (at == CALL_LEN)
			sy_stack_shutdown(s, e->id, now);
	}
	sy_stack_set_cookie(s, e->id, CALLER | at);
	rc = sy_stack_receive_bytes(s, e->id, bytes, sizeof(bytes), now);
	if (rc > 0) {
		o->failed |= rc != 6 || memcmp(bytes, "thanks", 6) != 0;
		rc = sy_stack_receive_bytes(s, e->id, bytes, sizeof(bytes), now);
	}
	if (rc == 0) {
		sy_stack_close(s, e->id, now);
		__atomic_fetch_add(&o->thanked, 1, __ATOMIC_RELAXED);
	} else {
		o->failed |= rc != -EAGAIN && rc != -ENOTCONN;
	}
}

static void serve(struct sy_stack *s, unsigned worker, uint64_t now, void *ctx)
{
	struct side *o = &side[worker];
	struct sy_stack_event e[16];
	unsigned count;
	sy_stack_id id;

	while ((count = sy_stack_events(s, e, 16)) > 0) {
		for (unsigned i = 0; i < count; i++) {
			if (e[i].id == o->listener[0] || e[i].id == o->listener[1])
				while (sy_stack_accept(s, e[i].id, 0, NULL, &id) == 0)
					;
			else if (e[i].cookie & CALLER)
				call(s, o, &e[i], now);
			else
				echo(s, o, &e[i], now);
		}
	}
}

/* ---- both together --------------------------------------------------------------------------- */

static struct lab {
	struct veth_peer kernel;
	struct sy_runtime *rt;
	struct sy_stack_port *port;
} lab;

/* After every test, passed or failed. */
static int lab_close(void **state)
{
	if (lab.rt)
		workers_stop(lab.rt);
	sy_stack_port_close(lab.port);
	sy_runtime_close(lab.rt);
	lab.rt = NULL;
	lab.port = NULL;
	return veth_peer_close(&lab.kernel);
}

static void counters_print(unsigned workers)
{
	for (unsigned i = 0; i < workers; i++) {
		const struct sy_stack_counters *c =
		        sy_stack_counters(sy_stack_port_stack(lab.port, i));
		print_message("             worker %u: %lu packets in, %lu out, %lu fast, %lu sent "
		              "again, %lu out of order, %lu time-outs\n",
		              i, c->packets_in, c->packets_out, c->fast, c->retransmitted,
		              c->out_of_order, c->timeouts);
	}
}

static void conversation(unsigned workers, unsigned queues)
{
	struct sy_stack_options stack = {.connections = 1024, .secret = "kernel"};
	struct sy_addr v4 = addr(SERVER_V4), v6 = addr(SERVER_V6);
	uint64_t deadline = sy_clock_ns() + 8 * WAIT_NS;
	struct sy_runtime_options o;
	struct sy_error err = {0};
	unsigned thanked;

	memset(side, 0, sizeof(side));
	veth_peer_open(&lab.kernel, "sytcp0", "sytcp1", queues, kernel_main);
	options_init(&o, workers);
	o.kernel = true;
	o.mbufs = 0;
	o.pipeline = sy_stack_pipeline;
	o.round = sy_stack_round;
	o.poll = sy_stack_poll;
	o.wake_ns = sy_stack_wake_ns;
	o.app = lab.port = sy_stack_port_new(serve, NULL);
	o.port[o.ports++] = (struct sy_port_options){.backend = SY_PORT_XSK, .name = "sytcp0"};
	lab.rt = runtime_open(&o);
	if (sy_stack_port_open(lab.port, lab.rt, &stack, &err))
		fail_msg("%s", err.text);
	for (unsigned i = 0; i < workers; i++)
		side_open(sy_stack_port_stack(lab.port, i), &side[i], sy_clock_ns());
	while (!sy_runtime_is_synced(lab.rt))
		runtime_poll(lab.rt, deadline);
	if (sy_address_claim(lab.rt, &v4, &err) || sy_address_claim(lab.rt, &v6, &err))
		fail_msg("%s", err.text);
	sy_address_settle(lab.rt);
	assert_int_equal(sy_runtime_start(lab.rt, &err), 0);
	veth_peer_go(&lab.kernel);
	struct pollfd done = {.fd = lab.kernel.ready, .events = POLLIN};
	do {
		runtime_poll(lab.rt, deadline);
		thanked = 0;
		for (unsigned i = 0; i < workers; i++)
			thanked += __atomic_load_n(&side[i].thanked, __ATOMIC_RELAXED);
	} while (!poll(&done, 1, 0) || thanked < workers * CALLS);
	veth_peer_await(&lab.kernel);
	workers_stop(lab.rt);
	counters_print(workers);
	uint64_t echoed = 0;
	for (unsigned i = 0; i < workers; i++) {
		assert_false(side[i].failed);
		echoed += side[i].echoed;
		if (workers > 1)
			assert_true(side[i].echoed > 0);
	}
	assert_true(echoed > 2 * (uint64_t)LARGE);
	sy_address_release(lab.rt, &v4);
	sy_address_release(lab.rt, &v6);
}

static void test_one_worker(void **state)
{
	conversation(1, 1);
}

static void test_two_workers(void **state)
{
	conversation(2, 2);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(test_one_worker, lab_close),
	        cmocka_unit_test_teardown(test_two_workers, lab_close),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
