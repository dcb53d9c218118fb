// SPDX-License-Identifier: Apache-2.0
#include "sync_bed.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>

#include "endpoints.h"

#define MEMORY_MB 256
#define MBUFS     8191
#define ATTEND_NS UINT64_C(50000000)
#define START_MS  10000
#define MEASURED  1 /* node numbers */
#define PEER      2

/* ---- configuration, the same at both nodes --------------------------------------------------- */

static bool harness_make(struct sync_bed *s)
{
	const struct sync_bed_options *o = &s->options;
	const bool v4 = o->family == 4;
	const struct sy_addr any = v4 ? sy_addr_v4(0) : (struct sy_addr){0};
	const struct sy_addr gate[HARNESS_PORTS] = {
	        endpoints_addr(s->options.family, "192.0.2.1", "2001:db8:1::1", 0),
	        endpoints_addr(s->options.family, "10.0.0.254", "fd00::ffff", 0)};
	struct sy_static_route route[HARNESS_PORTS] = {
	        {"net_ring_wan", any, gate[HARNESS_WAN], 0},
	        {"net_ring_lan", endpoints_addr(s->options.family, "10.0.0.0", "fd00::", 0),
	         gate[HARNESS_LAN], v4 ? 16 : 64}};
	struct sy_static_neigh neigh[HARNESS_PORTS] = {{"net_ring_wan", gate[HARNESS_WAN], {0}},
	                                               {"net_ring_lan", gate[HARNESS_LAN], {0}}};
	for (unsigned i = 0; i < HARNESS_PORTS; i++)
		memcpy(neigh[i].mac, endpoints_mac[i], 6);
	const struct harness_options options = {
	        .sessions = o->sessions,
	        .memory_mb = MEMORY_MB,
	        .mbufs = MBUFS,
	        .huge = o->store != NULL,
	        .store_directory = o->store,
	        .start_ns = sy_clock_ns(), /* the worker continues from this time */
	        .peers = &s->peers,
	        .route = route,
	        .routes = HARNESS_PORTS,
	        .neigh = neigh,
	        .neighs = HARNESS_PORTS,
	};
	struct sy_error err;
	if (harness_open(&s->harness, &options, &err) < 0) {
		fprintf(stderr, "the forwarder cannot be made: %s\n", err.text);
		return false;
	}
	struct sy_worker_private *p = s->harness.rt->worker[0].private;
	worker_clock_start(p);
	p->round_cycles = rte_get_tsc_hz() / 1000 * SY_ROUND_MS;
	return true;
}

static void service_add(const struct sync_bed *s, struct changes *c, const struct service_key *key,
                        const char *name)
{
	pb_timeouts timeouts = STEELYARD__FORWARDER__V1__TIMEOUTS__INIT;
	timeouts.time_wait_s = s->options.time_wait;
	timeouts.udp_s = 3600;
	put_service(c, key, name, STEELYARD__FORWARDER__V1__SCHEDULER__SCHEDULER_RR, &timeouts);
	for (unsigned i = 0; i < SYNC_BED_SERVERS; i++) {
		const struct sy_addr server =
		        endpoints_addr(s->options.family, "10.0.0.1", "fd00::1", i);
		put_server(c, key, &server, key->proto == SY_PROTO_TCP ? 8080 : 53, 1,
		           STEELYARD__FORWARDER__V1__SERVER_STATE__SERVER_STATE_UP);
	}
}

static bool configure(struct sync_bed *s)
{
	const struct sy_addr vip =
	        endpoints_addr(s->options.family, "192.0.2.10", "2001:db8:1::10", 0);
	struct changes c = {0};
	s->tcp = (struct service_key){vip, htons(80), SY_PROTO_TCP, 0, 0};
	s->udp = (struct service_key){vip, htons(53), SY_PROTO_UDP, 0, 0};
	service_add(s, &c, &s->tcp, "connections");
	service_add(s, &c, &s->udp, "packets");
	for (unsigned i = 0; i < SYNC_BED_LOCALS; i++) {
		const struct sy_addr local =
		        endpoints_addr(s->options.family, "10.0.1.1", "fd00::1:1", i);
		put_local(&c, &local);
	}
	if (harness_commit(&s->harness, &c))
		return true;
	fprintf(stderr, "the configuration is refused: %s\n", s->harness.error);
	return false;
}

/* Two free UDP ports of the loopback address. */
static bool ports_find(uint16_t port[2])
{
	int fd[2] = {-1, -1};
	bool found = true;
	for (unsigned i = 0; i < 2; i++) {
		struct sockaddr_in a = {.sin_family = AF_INET};
		socklen_t len = sizeof(a);
		a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		fd[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		found = fd[i] >= 0 && bind(fd[i], (struct sockaddr *)&a, len) == 0 &&
		        getsockname(fd[i], (struct sockaddr *)&a, &len) == 0 && found;
		port[i] = ntohs(a.sin_port);
	}
	for (unsigned i = 0; i < 2; i++)
		close(fd[i]);
	return found;
}

static struct sy_peers_options peers_options(const uint16_t port[2], uint8_t node)
{
	const uint8_t other = MEASURED + PEER - node;
	struct sy_peers_options o = {.node = node,
	                             .address = harness_addr("127.0.0.1"),
	                             .port = port[node == PEER],
	                             .secret[0] = {.id = 1, .len = SYNC_SECRET}};
	memset(o.secret[0].bytes, 's', SYNC_SECRET);
	o.peer[other].addr = o.address;
	o.peer[other].port = port[other == PEER];
	return o;
}

/* ---- the peer's process ---------------------------------------------------------------------- */

/* Of what this process sends, whichever node it is. */
static struct sync_bed *running;
static void (*send_below)(void *, unsigned, uint8_t, const uint8_t *, size_t);

static void send_counted(void *context, unsigned worker, uint8_t node, const uint8_t *bytes,
                         size_t len)
{
	running->bytes += len + SYNC_BED_HEADERS;
	running->datagrams++;
	send_below(context, worker, node, bytes, len);
}

static void count_sent(struct sync_bed *s)
{
	running = s;
	send_below = s->harness.b->sync->options.send;
	s->harness.b->sync->options.send = send_counted;
}

static void shared_update(struct sync_bed *s)
{
	struct timespec t = {0};
	clockid_t clock;
	if (pthread_getcpuclockid(s->harness.rt->worker[0].private->thread, &clock) == 0)
		clock_gettime(clock, &t);
	atomic_store(&s->shared->cpu_ns,
	             (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec);
	atomic_store(&s->shared->live, harness_totals(&s->harness).live);
	atomic_store(&s->shared->bytes, s->bytes);
	atomic_store(&s->shared->datagrams, s->datagrams);
}

static void peer_main(struct sync_bed *s)
{
	s->options.store = NULL;
	if (!harness_make(s) || !configure(s)) {
		atomic_store(&s->shared->failed, true);
		_exit(1);
	}
	count_sent(s);
	peers_set_role(s->harness.b, SYNC_ROLE_BACKUP, true);
	struct sy_runtime *rt = s->harness.rt;
	struct sy_error err;
	struct sy_worker_private *private = rt->worker[0].private;
	private->core = s->core;
	if (s->options.busy)
	private->min_spin = private->max_spin = private->spin_cycles = UINT64_MAX / 2;
	if (sy_runtime_start(rt, &err) < 0) {
		atomic_store(&s->shared->failed, true);
		_exit(1);
	}
	for (unsigned ms = 0;; ms++) { /* the control thread, until its parent ends it */
		usleep(1000);
		shared_update(s);
		if (ms % (ATTEND_NS / 1000000) == 0)
			harness_attend(&s->harness);
	}
}

/* The last core is the measured node's, the first one its peer's. */
static void core_use(struct sync_bed *s, bool peer)
{
	cpu_set_t all, one;
	int first = -1, last = -1;
	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &all))
			continue;
		first = first < 0 ? i : first;
		last = i;
	}
	s->core = peer ? first : last;
	CPU_ZERO(&one);
	CPU_SET(s->core, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

static bool peer_start(struct sync_bed *s, const uint16_t port[2])
{
	s->child = fork();
	if (s->child < 0)
		return false;
	core_use(s, s->child == 0);
	s->peers = peers_options(port, s->child ? MEASURED : PEER);
	if (s->child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		peer_main(s);
	}
	return true;
}

/* ---- both ------------------------------------------------------------------------------------ */

bool sync_bed_open(struct sync_bed *s, const struct sync_bed_options *o)
{
	uint16_t port[2];
	*s = (struct sync_bed){.options = *o};
	s->shared = mmap(NULL, sizeof(*s->shared), PROT_READ | PROT_WRITE,
	                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->shared == MAP_FAILED || !ports_find(port) || !peer_start(s, port)) {
		fprintf(stderr, "the peer cannot be started\n");
		return false;
	}
	if (!harness_make(s) || !configure(s))
		return false;
	count_sent(s);
	peers_set_role(s->harness.b, SYNC_ROLE_MASTER, true);
	for (unsigned ms = 0; ms < START_MS && !sync_bed_is_alive(s); ms++)
		sync_bed_run(s, 1);
	if (sync_bed_is_alive(s) && !atomic_load(&s->shared->failed))
		return sync_bed_settle(s, START_MS);
	fprintf(stderr, "the nodes do not find each other\n");
	return false;
}

void sync_bed_close(struct sync_bed *s)
{
	if (s->child > 0) {
		kill(s->child, SIGKILL);
		waitpid(s->child, NULL, 0);
	}
	if (!s->harness.b)
		return;
	if (!s->harness.b->sync)
		sync_bed_switch(s, true);
	harness_discard(&s->harness);
}

void sync_bed_poll(struct sync_bed *s)
{
	const uint64_t now_ns = s->harness.rt->worker[0].now_ns;
	harness_poll_worker(&s->harness, 0);
	if (now_ns - s->attended_ns < ATTEND_NS)
		return;
	s->attended_ns = now_ns;
	harness_attend(&s->harness);
}

void sync_bed_run(struct sync_bed *s, unsigned ms)
{
	const uint64_t until = rte_rdtsc() + rte_get_tsc_hz() / 1000 * ms;
	while (rte_rdtsc() < until)
		sync_bed_poll(s);
}

void sync_bed_switch(struct sync_bed *s, bool on)
{
	struct sy_balance *b = s->harness.b;
	if (on == (b->sync != NULL))
		return;
	if (!on) {
		s->off_peers = b->peers;
		s->off_node = b->sync;
	}
	b->peers = on ? s->off_peers : NULL;
	b->sync = on ? s->off_node : NULL;
}

void sync_bed_copy(struct sync_bed *s)
{
	struct sync_node *n = s->harness.b->sync;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		sync_log_restart(&n->log[slot], &n->options.source);
}

static const struct sync_node *node_of(const struct sync_bed *s)
{
	return s->harness.b->sync;
}

bool sync_bed_is_alive(const struct sync_bed *s)
{
	return sync_peer_is_alive(sync_node_peer(node_of(s), PEER), sy_clock_ns()) &&
	       sync_node_target(node_of(s), 0) == PEER;
}

static bool log_is_settled(const struct sync_log *log)
{
	return !sync_log_is_due(log) && sync_window_is_empty(&log->window);
}

bool sync_bed_is_acknowledged(const struct sync_bed *s)
{
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		if (!log_is_settled(sync_node_log(node_of(s), slot)))
			return false;
	return log_is_settled(&node_of(s)->dictionary[PEER]);
}

uint64_t sync_bed_offered(const struct sync_bed *s)
{
	uint64_t count = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++)
		count += sync_node_log(node_of(s), slot)->sum.count;
	return count;
}

uint64_t sync_bed_waiting(const struct sync_bed *s)
{
	uint64_t count = 0;
	for (unsigned slot = 0; slot < SY_SLOTS; slot++) {
		const struct sync_log *log = sync_node_log(node_of(s), slot);
		count += log->window.next - log->window.first + sync_log_waiting(log);
	}
	return count;
}

bool sync_bed_settle(struct sync_bed *s, unsigned max_ms)
{
	for (unsigned ms = 0; ms < max_ms; ms++) {
		if (sync_bed_is_acknowledged(s))
			return true;
		sync_bed_run(s, 1);
	}
	fprintf(stderr, "after %u ms %llu changes are not acknowledged\n", max_ms,
	        (unsigned long long)sync_bed_waiting(s));
	return false;
}
