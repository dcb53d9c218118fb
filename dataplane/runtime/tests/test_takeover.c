// SPDX-License-Identifier: Apache-2.0
/*
 * One forwarder takes over from another while a client's packets stream, and no kernel answers:
 *
 *   namespace A                                                       namespace B
 *   predecessor: echoes UDP to 10.77.0.100 ──┐                        client: numbered datagrams,
 *   successor:   and 2001:db8:77::100      ──┴── syto0 ═══ syto1 ──   and SYNs without answer
 *                                                10.77.0.1            10.77.0.2, 2001:db8:77::2
 *
 * All three are children of this process, which only coordinates them; they share a page of memory.
 * Needs root.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "echo.h"

#define SOCKETS   16 /* per family: slots of all workers */
#define PROBES    64 /* TCP connections under way */
#define PACE_US   100
#define SOME      500           /* datagrams, for a while of traffic */
#define ABANDONED "10.77.0.101" /* only the predecessor takes this address */

/* The stages that each process reaches, in this order. */
enum stage { STARTING, READY, PREPARED, FORWARDING, QUIESCED, CLAIMED, ENDED };

/* Each field has one writer. */
static struct shared {
	enum stage wanted; /* set by the test */
	enum stage client, predecessor, successor;
	unsigned sent, received, refused;
	uint64_t gap_ns; /* longest time without an answer */
	uint64_t quiesce_ns, quiesced_ns, bind_ns, bound_ns, started_ns; /* points in time */
} * shared;

static enum stage stage_read(const enum stage *s)
{
	return __atomic_load_n(s, __ATOMIC_ACQUIRE);
}

static void stage_reach(enum stage *s, enum stage reached)
{
	__atomic_store_n(s, reached, __ATOMIC_RELEASE);
}

/* For a child process: ends it if the condition is false. */
static void must(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "child: %s\n", what);
	exit(1);
}

/* ---- the client ------------------------------------------------------------------------------ */

static int socket_to(int type, bool v6, uint16_t port)
{
	struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	int fd = socket(v6 ? AF_INET6 : AF_INET, type | SOCK_NONBLOCK, 0);
	inet_pton(AF_INET, SERVER_V4, &to4.sin_addr);
	inet_pton(AF_INET6, SERVER_V6, &to6.sin6_addr);
	must(fd >= 0, "no socket");
	int rc = v6 ? connect(fd, (struct sockaddr *)&to6, sizeof(to6))
	            : connect(fd, (struct sockaddr *)&to4, sizeof(to4));
	must(!rc || errno == EINPROGRESS || errno == ECONNREFUSED, "no connection");
	shared->refused += rc && errno == ECONNREFUSED;
	return fd;
}

/* Counts a connection that ended with an ICMP error or a kernel's reset. */
static void refusals_count(int fd)
{
	int code = 0;
	socklen_t len = sizeof(code);
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len);
	shared->refused += code != 0;
}

static void probe_next(int probe[PROBES], unsigned n)
{
	int *fd = &probe[n % PROBES];
	if (*fd) {
		refusals_count(*fd);
		close(*fd);
	}
	*fd = socket_to(SOCK_STREAM, n & 1, 80);
}

static void answers_drain(const int fd[2 * SOCKETS], uint64_t *last)
{
	char back[64];
	for (unsigned i = 0; i < 2 * SOCKETS; i++) {
		ssize_t n;
		while ((n = recv(fd[i], back, sizeof(back), MSG_DONTWAIT)) > 0) {
			uint64_t now = sy_clock_ns();
			if (*last && now - *last > shared->gap_ns)
				shared->gap_ns = now - *last;
			*last = now;
			__atomic_fetch_add(&shared->received, 1, __ATOMIC_RELAXED);
		}
		if (errno != EAGAIN)
			shared->refused++;
	}
}

/* Neighbours must be resolved before losses are counted. */
static void answer_await(int fd)
{
	char back[64];
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	for (unsigned i = 0; i < 300; i++) {
		if (send(fd, &i, sizeof(i), 0) > 0 && poll(&wait, 1, 100) > 0) {
			while (recv(fd, back, sizeof(back), MSG_DONTWAIT) > 0 ||
			       poll(&wait, 1, 100) > 0)
				;
			return;
		}
	}
	must(false, "no answer");
}

static void client_main(void)
{
	int fd[2 * SOCKETS], probe[PROBES] = {0};
	uint64_t last = 0, end;
	must(!unshare(CLONE_NEWNET), "unshare");
	stage_reach(&shared->client, READY);
	while (stage_read(&shared->wanted) < READY)
		usleep(1000);
	shell("ip addr add 10.77.0.2/24 dev syto1 && "
	      "ip addr add 2001:db8:77::2/64 dev syto1 nodad && ip link set syto1 up");
	checksums_on("syto1");
	for (unsigned i = 0; i < 2 * SOCKETS; i++)
		fd[i] = socket_to(SOCK_DGRAM, i & 1, 7);
	answer_await(fd[0]);
	answer_await(fd[1]);
	stage_reach(&shared->client, FORWARDING);
	for (unsigned n = 0; stage_read(&shared->wanted) < ENDED; n++) {
		if (send(fd[n % (2 * SOCKETS)], &n, sizeof(n), 0) == sizeof(n))
			shared->sent++;
		if (n % 8 == 0)
			probe_next(probe, n / 8);
		usleep(PACE_US);
		answers_drain(fd, &last);
	}
	/* Answers still under way. */
	end = sy_clock_ns() + WAIT_NS / 100;
	while (shared->received < shared->sent && sy_clock_ns() < end) {
		usleep(1000);
		answers_drain(fd, &last);
	}
	for (unsigned i = 0; i < PROBES; i++)
		refusals_count(probe[i]);
	stage_reach(&shared->client, ENDED);
}

/* ---- the forwarders -------------------------------------------------------------------------- */

static void turn(struct sy_runtime *rt, int timeout_ms)
{
	must(!loop_poll(rt->loop, timeout_ms), "the loop");
	workers_answer(rt);
	rcu_poll(rt->rcu);
}

static struct sy_runtime *forwarder_open(unsigned workers, bool inherit)
{
	struct sy_runtime_options o;
	struct sy_runtime *rt;
	struct sy_error err = {0};
	struct sy_addr v4, v6;
	options_init(&o, workers);
	o.kernel = true;
	o.mbufs = 0;
	o.pipeline = echo_pipeline;
	o.inherit = inherit;
	o.path_half = inherit;
	o.port[o.ports++] = (struct sy_port_options){.backend = SY_PORT_XSK, .name = "syto0"};
	must(!sy_runtime_open(&o, &rt, &err), err.text);
	must(!sy_runtime_wait_synced(rt, 30000, &err), err.text);
	must(sy_worker_count(rt) == workers, "workers are counted from the start");
	sy_addr_parse(SERVER_V4, &v4);
	sy_addr_parse(SERVER_V6, &v6);
	must(!sy_address_claim(rt, &v4, &err) && !sy_address_claim(rt, &v6, &err), err.text);
	return rt;
}

static void call_count(struct sy_worker *w, void *ctx)
{
	*(unsigned *)ctx += 1;
}

/* A quiesced forwarder still answers calls. */
static void quiesced_check(struct sy_runtime *rt, unsigned workers, uint64_t rx_before)
{
	struct sy_port_stats stats;
	struct sy_port_info info;
	struct sy_addr more;
	unsigned called = 0;
	sy_port_get_stats(rt, 0, &stats);
	must(stats.rx_packets >= rx_before && stats.director.steered >= rx_before, "last counts");
	sy_port_get_info(rt, 0, &info);
	must(info.up && info.mtu == 1500 && !strncmp(info.backend, "xsk ", 4), "last port");
	for (unsigned i = 0; i < workers; i++)
		must(!sy_worker_call(sy_worker_at(rt, i), call_count, &called), "a call");
	must(called == workers, "calls run at once");
	sy_addr_parse("10.77.0.102", &more);
	must(!sy_address_claim(rt, &more, NULL), "an address");
	sy_address_release(rt, &more);
	sy_address_settle(rt);
}

static void predecessor_main(unsigned workers)
{
	struct sy_runtime *rt = forwarder_open(workers, false);
	struct sy_port_stats before;
	struct sy_addr abandoned;
	struct sy_error err = {0};
	sy_addr_parse(ABANDONED, &abandoned);
	must(!sy_address_claim(rt, &abandoned, &err), err.text);
	must(!sy_runtime_bind(rt, &err) && !sy_runtime_start(rt, &err), err.text);
	must(!sy_runtime_claim(rt, &err), "nothing to claim");
	stage_reach(&shared->predecessor, FORWARDING);
	while (stage_read(&shared->wanted) < QUIESCED)
		turn(rt, 1);
	sy_port_get_stats(rt, 0, &before);
	must(before.rx_packets > 0, "nothing was received");
	shared->quiesce_ns = sy_clock_ns();
	sy_runtime_quiesce(rt);
	shared->quiesced_ns = sy_clock_ns();
	stage_reach(&shared->predecessor, QUIESCED);
	quiesced_check(rt, workers, before.rx_packets);
	while (stage_read(&shared->wanted) < ENDED)
		turn(rt, 1);
	sy_runtime_close(rt);
	stage_reach(&shared->predecessor, ENDED);
}

static void successor_main(unsigned workers)
{
	struct sy_runtime *rt = forwarder_open(workers, true);
	struct sy_error err = {0};
	sy_address_settle(rt);
	/* The successor owns nothing yet. */
	must(system("ip route show table local | grep -q " ABANDONED) == 0, "settled too early");
	stage_reach(&shared->successor, PREPARED);
	while (stage_read(&shared->predecessor) < QUIESCED) {
		turn(rt, 0);
		usleep(50);
	}
	shared->bind_ns = sy_clock_ns();
	must(!sy_runtime_bind(rt, &err), err.text);
	shared->bound_ns = sy_clock_ns();
	must(!sy_runtime_start(rt, &err), err.text);
	shared->started_ns = sy_clock_ns();
	stage_reach(&shared->successor, FORWARDING);
	must(!sy_runtime_claim(rt, &err), err.text);
	must(system("ip route show table local | grep -q " ABANDONED) != 0, "not settled");
	must(system("ip route show table local | grep -q '" SERVER_V4 " '") == 0, "not claimed");
	stage_reach(&shared->successor, CLAIMED);
	while (stage_read(&shared->wanted) < ENDED)
		turn(rt, 1);
	must(!echo_wrong_worker, "a packet met a worker that does not own its slot");
	sy_runtime_close(rt);
	stage_reach(&shared->successor, ENDED);
}

/* ---- the test -------------------------------------------------------------------------------- */

static pid_t child[3];

static void child_run(unsigned which, void (*body)(unsigned workers), unsigned workers)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body(workers);
		exit(0);
	}
	child[which] = pid;
}

static void client_run(unsigned workers)
{
	client_main();
}

static void children_check(void)
{
	int status;
	for (unsigned i = 0; i < SY_ARRAY_LEN(child); i++) {
		if (child[i] && waitpid(child[i], &status, WNOHANG) == child[i]) {
			child[i] = 0;
			if (status)
				fail_msg("child %u ended early: %d", i, status);
		}
	}
}

static void await_stage(const enum stage *s, enum stage wanted)
{
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	while (stage_read(s) < wanted) {
		if (stage_read(s) != ENDED)
			children_check();
		assert_true(sy_clock_ns() < deadline);
		usleep(1000);
	}
}

static void await_answers(unsigned more)
{
	unsigned until = __atomic_load_n(&shared->received, __ATOMIC_RELAXED) + more;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	while (__atomic_load_n(&shared->received, __ATOMIC_RELAXED) < until) {
		children_check();
		assert_true(sy_clock_ns() < deadline);
		usleep(1000);
	}
}

/* UDP datagrams without a receiver in this namespace's kernel, and TCP segments: packets that
 * reached the kernel, even if the guard would drop its answers. */
static unsigned long kernel_saw(void)
{
	unsigned long v4 = 0, v6 = 0, tcp = 0;
	char line[1024];
	FILE *in = fopen("/proc/self/net/snmp", "r");
	assert_non_null(in);
	while (fgets(line, sizeof(line), in))
		if (sscanf(line, "Udp: %*u %lu", &v4) != 1)
			sscanf(line, "Tcp: %*d %*d %*d %*d %*d %*d %*d %*d %*d %lu", &tcp);
	fclose(in);
	in = fopen("/proc/self/net/snmp6", "r");
	assert_non_null(in);
	while (fgets(line, sizeof(line), in))
		sscanf(line, "Udp6NoPorts %lu", &v6);
	fclose(in);
	return v4 + v6 + tcp;
}

static double ms(uint64_t from, uint64_t to)
{
	return (double)(to - from) / 1e6;
}

static void takeover(unsigned before, unsigned after, unsigned queues)
{
	char text[300];
	memset(shared, 0, sizeof(*shared));
	child_run(0, client_run, 0);
	await_stage(&shared->client, READY);
	snprintf(text, sizeof(text),
	         "ip link add syto0 numrxqueues %u numtxqueues %u type veth peer name syto1 "
	         "numrxqueues %u numtxqueues %u netns %d && ip addr add 10.77.0.1/24 dev syto0 && "
	         "ip addr add 2001:db8:77::1/64 dev syto0 nodad && ip link set syto0 up",
	         queues, queues, queues, queues, (int)child[0]);
	assert_int_equal(system(text), 0);
	child_run(1, predecessor_main, before);
	await_stage(&shared->predecessor, FORWARDING);
	unsigned long seen = kernel_saw();
	stage_reach(&shared->wanted, READY);
	await_stage(&shared->client, FORWARDING);
	await_answers(SOME);
	child_run(2, successor_main, after);
	await_stage(&shared->successor, PREPARED);
	await_answers(SOME); /* the predecessor's, still */
	stage_reach(&shared->wanted, QUIESCED);
	await_stage(&shared->successor, CLAIMED);
	await_answers(SOME); /* the successor's */
	stage_reach(&shared->wanted, ENDED);
	await_stage(&shared->client, ENDED);
	await_stage(&shared->predecessor, ENDED);
	await_stage(&shared->successor, ENDED);
	print_message(
	        "             %u queue(s), %u -> %u worker(s): %u of %u lost, %.1f ms without "
	        "an answer (quiesce %.1f, bind %.1f, start %.1f)\n",
	        queues, before, after, shared->sent - shared->received, shared->sent,
	        ms(0, shared->gap_ns), ms(shared->quiesce_ns, shared->quiesced_ns),
	        ms(shared->bind_ns, shared->bound_ns), ms(shared->bound_ns, shared->started_ns));
	assert_int_equal(shared->refused, 0);
	assert_int_equal(kernel_saw(), seen);
}

static void test_one_queue(void **state)
{
	takeover(1, 1, 1);
}

static void test_more_workers(void **state)
{
	takeover(1, 2, 2);
}

static void test_fewer_workers(void **state)
{
	takeover(2, 1, 2);
}

static void report(void *ctx, const char *text)
{
}

/* Whatever happened. */
static int clean(void **state)
{
	struct sy_error err;
	int rc = 0, status;
	for (unsigned i = 0; i < SY_ARRAY_LEN(child); i++) {
		if (!child[i])
			continue;
		if (stage_read(&shared->wanted) < ENDED)
			kill(child[i], SIGKILL);
		if (waitpid(child[i], &status, 0) != child[i] || status)
			rc = -1;
		child[i] = 0;
	}
	if (sy_kernel_cleanup(report, NULL, &err))
		rc = -1;
	/* The kernel takes the veth away with the client's namespace, but some time later; then
	 * there is none any more to delete. */
	if (system("ip link del syto0 2>/dev/null; ! ip link show syto0 2>/dev/null"))
		rc = -1;
	return rc;
}

static int setup(void **state)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	return shared == MAP_FAILED || unshare(CLONE_NEWNET) || system("ip link set lo up") ? -1
	                                                                                    : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(test_one_queue, clean),
	        cmocka_unit_test_teardown(test_more_workers, clean),
	        cmocka_unit_test_teardown(test_fewer_workers, clean),
	};
	return cmocka_run_group_tests(tests, setup, NULL);
}
