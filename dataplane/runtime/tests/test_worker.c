// SPDX-License-Identifier: Apache-2.0
/* Workers over ring ports: hand-over, another worker's transmit queue, neighbours, calls, RCU. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <rte_byteorder.h>

#include <sy_post.h>

#include "runtime_fixture.h"

#define FLOWS   64
#define PACKETS 20000

/* An Ethernet frame with the fields that the pipeline below reads: flow and number after the IPv4
 * header. */
struct frame {
	struct sy_eth eth;
	struct sy_ipv4 ip;
	uint32_t flow, number;
	uint8_t padding[22];
} __attribute__((packed));

static struct ring_port port;
static uint32_t rounds[2], wrong_worker, behind; /* behind: bursts */

#define AHEAD (-5)
static bool ahead; /* the workers' threads began with this nice value */

/* slot = flow; the slot's owner sends the packet on by route. */
static void stage_route(struct sy_worker *w, struct sy_burst *b)
{
	__atomic_fetch_add(&behind, b->behind, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < b->count; i++) {
		const struct frame *f = (const struct frame *)sy_frame(b->mbuf[i]);
		struct sy_addr dst = sy_addr_v4(f->ip.dst);
		b->slot[i] = (uint8_t)f->flow;
		if (sy_slot_worker(w->rt, b->slot[i]) != w->id) {
			if (b->steered)
				__atomic_fetch_add(&wrong_worker, 1, __ATOMIC_RELAXED);
			sy_burst_steer(w, b, i);
			continue;
		}
		b->path[i] = sy_path_lookup(w->rt, &dst);
		b->flow[i] = f->flow;
		b->next[i] = SY_NEXT_TRANSMIT;
	}
}

static void count_round(struct sy_worker *w)
{
	__atomic_fetch_add(&rounds[w->id], 1, __ATOMIC_RELAXED);
}

static const struct sy_stage pipeline[] = {
        {"route", stage_route}, {"transmit", sy_transmit_stage}, {NULL, NULL}};

static struct rte_mbuf *frame_make(struct sy_runtime *rt, const char *dst, uint32_t flow,
                                   uint32_t number, unsigned len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(rt->pool);
	struct frame f = {
	        .eth.type = rte_cpu_to_be_16(SY_ETH_IPV4), .flow = flow, .number = number};
	if (!m)
		return NULL;
	f.ip.dst = addr(dst).w[3];
	memcpy(rte_pktmbuf_append(m, (uint16_t)len), &f, sizeof(f));
	return m;
}

static void inject(struct sy_runtime *rt, const char *dst, unsigned len)
{
	struct rte_mbuf *m = frame_make(rt, dst, 1, 0, len);
	assert_non_null(m);
	assert_int_equal(rte_ring_enqueue(port.rx, m), 0);
}

static struct rte_mbuf *await_frame(struct sy_runtime *rt)
{
	struct rte_mbuf *m;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	while (rte_ring_dequeue(port.tx, (void **)&m))
		runtime_poll(rt, deadline);
	return m;
}

static void await_drop(struct sy_runtime *rt, enum sy_drop reason, uint64_t count)
{
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	while (drops(rt, reason) < count)
		runtime_poll(rt, deadline);
	assert_int_equal(drops(rt, reason), count);
}

/* Fills the ring from worker 0, which does nothing meanwhile, half and two bursts more. */
static void ring_crowd(struct sy_worker *w, void *ctx)
{
	struct ring *ring = w->private->flow_in[0];
	for (unsigned n = 0; n < WORKER_FLOW_RING / 2 + 2 * SY_BURST; n++) {
		struct rte_mbuf *m = frame_make(w->rt, "10.0.0.9", 1, n, 64);
		if (!m || ring_enqueue(ring, &m, 1) != 1)
			rte_pktmbuf_free(m);
	}
}

/* A worker detects that another one's ring is still half full after a burst. */
static void test_crowded_ring(void **state)
{
	struct sy_runtime *rt = *state;
	const uint64_t *in = &rt->worker[1].counters.steered_in;
	uint64_t before = SY_READ(*in), deadline = sy_clock_ns() + WAIT_NS;
	struct rte_mbuf *m;
	behind = 0;
	rt->worker[1].private->excuse_ns = UINT64_MAX; /* a stall of the machine is no excuse */
	worker_run(&rt->worker[1], ring_crowd, NULL);
	while (SY_READ(*in) - before < WORKER_FLOW_RING / 2 + 2 * SY_BURST)
		runtime_poll(rt, deadline);
	assert_int_equal(SY_READ(behind), 2);
	while (rte_mempool_in_use_count(rt->pool))
		if (rte_ring_dequeue(port.tx, (void **)&m))
			runtime_poll(rt, deadline);
		else
			rte_pktmbuf_free(m);
}

/* Every packet leaves once, in its flow's order, whichever workers received and sent it. */
static void test_hand_over(void **state)
{
	struct sy_runtime *rt = *state;
	uint32_t next_in[FLOWS] = {0}, next_out[FLOWS] = {0}, in = 0, out = 0;
	uint64_t deadline = sy_clock_ns() + 4 * WAIT_NS;
	while (out < PACKETS) {
		/* Fewer packets under way than any ring holds: none may be dropped. */
		while (in < PACKETS && in - out < 512) {
			uint32_t flow = in++ % FLOWS;
			struct rte_mbuf *m = frame_make(rt, "10.0.0.9", flow, next_in[flow]++, 64);
			assert_non_null(m);
			assert_int_equal(rte_ring_enqueue(port.rx, m), 0);
		}
		struct rte_mbuf *m;
		if (rte_ring_dequeue(port.tx, (void **)&m)) {
			runtime_poll(rt, deadline);
			continue;
		}
		const struct frame *f = (const struct frame *)sy_frame(m);
		static const uint8_t from[6] = {2, 0, 0, 0, 0, 1}, to[6] = {2, 0, 0, 0, 0, 9};
		assert_memory_equal(f->eth.src, from, 6);
		assert_memory_equal(f->eth.dst, to, 6);
		assert_int_equal(f->number, next_out[f->flow]++);
		rte_pktmbuf_free(m);
		out++;
	}
	assert_int_equal(wrong_worker, 0);
	if (rt->workers > 1) {
		assert_int_equal(SY_READ(rt->worker[0].counters.steered_out), PACKETS / 2);
		assert_int_equal(SY_READ(rt->worker[1].counters.steered_in), PACKETS / 2);
	}
	for (unsigned i = 1; i < SY_DROP_COUNT; i++)
		assert_int_equal(drops(rt, i), 0);
}

static void test_drops(void **state)
{
	struct sy_runtime *rt = *state;
	inject(rt, "10.0.0.9", 1514);
	rte_pktmbuf_free(await_frame(rt));
	inject(rt, "10.0.0.9", 1515);
	await_drop(rt, SY_DROP_TOO_BIG, 1);
	inject(rt, "172.16.0.1", 64);
	await_drop(rt, SY_DROP_NO_ROUTE, 1);
	inject(rt, "10.0.0.77", 64); /* on link, but unknown, and there is no kernel to ask */
	await_drop(rt, SY_DROP_NO_NEIGHBOUR, 1);
	inject(rt, "10.0.0.77", 64); /* now known to be unreachable */
	await_drop(rt, SY_DROP_NO_NEIGHBOUR, 2);
	struct sy_route hole = {
	        .prefix = addr("198.51.100.0"), .prefix_len = 24, .blackhole = true};
	routes_apply(rt, &hole, false);
	inject(rt, "198.51.100.1", 64);
	await_drop(rt, SY_DROP_BLACKHOLE, 1);
}

/* Packets wait while the neighbour is being resolved, up to a limit. */
static void test_waiting(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_neigh unsure = {.addr = addr("10.0.0.50")};
	struct sy_neigh sure = {.addr = unsure.addr, .mac = {2, 0, 0, 0, 0, 50}, .valid = true};
	adjacency_publish(rt, 0, &unsure, false);
	struct adjacency *r =
	        &rt->adjacencies->record[adjacency_find(rt->adjacencies, 0, &unsure.addr)];
	r->requested_s =
	        (uint32_t)(sy_clock_ns() / 1000000000u) + 3600; /* as if the kernel were asked */
	r->managed = true;
	for (unsigned i = 0; i < UNRESOLVED_HOP_MAX + 4; i++)
		inject(rt, "10.0.0.50", 64);
	await_drop(rt, SY_DROP_NEIGHBOUR_QUEUE, 4);
	adjacency_publish(rt, 0, &sure, false);
	for (unsigned i = 0; i < UNRESOLVED_HOP_MAX; i++) {
		struct rte_mbuf *m = await_frame(rt);
		assert_memory_equal(((struct frame *)sy_frame(m))->eth.dst, sure.mac, 6);
		rte_pktmbuf_free(m);
	}
	adjacency_publish(rt, 0, &unsure,
	                  false); /* lost for good: packets wait a second, then drop */
	uint64_t before = drops(rt, SY_DROP_NO_NEIGHBOUR);
	inject(rt, "10.0.0.50", 64);
	await_drop(rt, SY_DROP_NO_NEIGHBOUR, before + 1);
}

#define LATER_NS UINT64_C(10000000000)

/* The control thread has not run since the packet came. */
static void unresolved_unrequested(struct sy_worker *w, void *ctx)
{
	struct sy_addr hop = addr("10.0.0.51");
	struct rte_mbuf *m = frame_make(w->rt, "10.0.0.51", 1, 0, 64);
	uint64_t now_ns = w->now_ns;
	m->port = 0;
	unresolved_add(w, m, &hop);
	w->now_ns += LATER_NS;
	unresolved_update(w);
	*(unsigned *)ctx = w->private->unresolved.count;
	w->now_ns = now_ns;
}

/* The control thread has handled the request, and then last read the socket before the deadline,
 * and after it. */
static void unresolved_overdue(struct sy_worker *w, void *ctx)
{
	struct unresolved *u = &w->private->unresolved;
	unsigned *queued = ctx;
	uint64_t now_ns = w->now_ns, deadline_ns = 0;
	for (unsigned i = 0; i < UNRESOLVED_HOPS; i++)
		if (u->hop[i].count)
			deadline_ns = u->hop[i].deadline_ns;
	w->now_ns = deadline_ns + LATER_NS;
	w->rt->kernel_read_ns = deadline_ns;
	unresolved_update(w);
	queued[0] = u->count;
	w->rt->kernel_read_ns = deadline_ns + 1;
	unresolved_update(w);
	queued[1] = u->count;
	w->now_ns = now_ns;
}

/* The kernel may have resolved the hop long ago: only the control thread's reading shows it. */
static void test_busy_control_thread_drops_nothing(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_neigh unsure = {.addr = addr("10.0.0.51")};
	uint64_t before = drops(rt, SY_DROP_NO_NEIGHBOUR);
	unsigned queued[2];
	adjacency_publish(rt, 0, &unsure, false);
	rt->adjacencies->record[adjacency_find(rt->adjacencies, 0, &unsure.addr)].managed = true;
	worker_run(sy_worker_at(rt, 0), unresolved_unrequested, queued);
	assert_int_equal(queued[0], 1);
	workers_answer(rt);
	worker_run(sy_worker_at(rt, 0), unresolved_overdue, queued);
	assert_int_equal(queued[0], 1);
	assert_int_equal(queued[1], 0);
	assert_int_equal(drops(rt, SY_DROP_NO_NEIGHBOUR), before + 1);
}

static void call_note(struct sy_worker *w, void *ctx)
{
	*(pthread_t *)ctx = pthread_self();
}

static void test_call(void **state)
{
	struct sy_runtime *rt = *state;
	for (unsigned i = 0; i < 200; i++) {
		pthread_t who = pthread_self();
		struct sy_worker *w = sy_worker_at(rt, i % rt->workers);
		worker_run(w, call_note, &who);
		assert_true(pthread_equal(who, w->private->thread));
	}
}

static bool freed, freed_early;

static void note_freed(void *ptr)
{
	freed = true;
	free(ptr);
}

static uint32_t held; /* 1: a worker is in its read section; 2: the worker may leave */

static void *retire_late(void *ctx)
{
	while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) != 1)
		sched_yield();
	struct sy_runtime *rt = ctx;
	sy_rcu_retire(rt, malloc(1), note_freed);
	rcu_poll(rt->rcu);
	freed_early = freed; /* while the worker is still in its read section */
	__atomic_store_n(&held, 2, __ATOMIC_RELEASE);
	return NULL;
}

static void call_hold(struct sy_worker *w, void *ctx)
{
	__atomic_store_n(&held, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) != 2)
		sched_yield();
}

/* An object retired while a worker is busy is kept until the worker continues. The control thread
 * waits in the call meanwhile, so another thread takes its part. */
static void test_rcu(void **state)
{
	struct sy_runtime *rt = *state;
	pthread_t other;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	freed = false;
	held = 0;
	assert_int_equal(pthread_create(&other, NULL, retire_late, rt), 0);
	worker_run(sy_worker_at(rt, 0), call_hold, NULL);
	pthread_join(other, NULL);
	assert_false(freed_early);
	while (!freed)
		runtime_poll(rt, deadline);
}

/* A function posted to a worker, and when the control thread has learned of its end. */
struct posted {
	struct sy_worker_post post;
	unsigned ran, done;
};

static void posted_run(struct sy_worker *w, void *ctx)
{
	struct posted *p = ctx;
	(void)w;
	__atomic_fetch_add(&p->ran, 1, __ATOMIC_RELAXED);
}

static void posted_done(void *ctx)
{
	struct posted *p = ctx;
	p->done++;
}

static void posted_hold(struct sy_worker *w, void *ctx)
{
	call_hold(w, NULL);
	posted_run(w, ctx);
}

#define POSTS 3

/* The control thread continues while a worker does not run what it has posted. */
static void test_posts(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_worker *w = sy_worker_at(rt, 0);
	struct posted first = {.post = {.fn = posted_hold, .done = posted_done, .ctx = &first}};
	struct posted more[POSTS];
	const unsigned turns = 20;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	held = 0;
	assert_false(sy_worker_post(w, &first.post));
	while (__atomic_load_n(&held, __ATOMIC_ACQUIRE) != 1) /* the worker is in it */
		runtime_poll(rt, deadline);
	for (unsigned i = 0; i < POSTS; i++) {
		more[i] = (struct posted){
		        .post = {.fn = posted_run, .done = posted_done, .ctx = &more[i]}};
		assert_false(sy_worker_post(w, &more[i].post));
	}
	for (unsigned i = 0; i < turns; i++)
		runtime_poll(rt, deadline);
	assert_int_equal(first.done + more[0].done + more[1].done + more[2].done, 0);
	__atomic_store_n(&held, 2, __ATOMIC_RELEASE);
	sy_worker_post_wait(rt, &more[1].post); /* the others are done in the loop */
	while (first.done + more[0].done + more[2].done < POSTS)
		runtime_poll(rt, deadline);
	assert_int_equal(first.ran, 1);
	for (unsigned i = 0; i < POSTS; i++)
		assert_int_equal(more[i].ran, 1);
	assert_int_equal(more[1].done, 0);
	assert_null(rt->awaited);
}

/* Rounds also run on a sleeping worker. */
static void test_rounds(void **state)
{
	struct sy_runtime *rt = *state;
	uint64_t deadline = sy_clock_ns() + WAIT_NS;
	for (unsigned i = 0; i < rt->workers; i++) {
		uint32_t before = __atomic_load_n(&rounds[i], __ATOMIC_RELAXED);
		uint64_t slept = SY_READ(rt->worker[i].counters.sleeps);
		while (__atomic_load_n(&rounds[i], __ATOMIC_RELAXED) < before + 3 ||
		       SY_READ(rt->worker[i].counters.sleeps) == slept)
			runtime_poll(rt, deadline);
	}
}

/* Being stopped while waiting is not success. */
static void test_stopped(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_error err = {0};
	assert_int_equal(sy_runtime_wait_synced(rt, 1000, &err), 0);
	rt->synced = false;
	sy_runtime_stop(rt);
	assert_int_equal(sy_runtime_wait_synced(rt, 1000, &err), -ECANCELED);
	assert_string_equal(err.text, "stopped");
	rt->synced = true;
}

struct seat {
	cpu_set_t cpus;
	int nice;
};

static void worker_note(struct sy_worker *w, void *ctx)
{
	struct seat *s = ctx;
	s->nice = getpriority(PRIO_PROCESS, (id_t)gettid());
	assert_int_equal(sched_getaffinity(0, sizeof(s->cpus), &s->cpus), 0);
}

/* Workers use the last CPUs. Those that leave none to the host have no priority over its
 * programs. */
static void test_room_for_the_host(void **state)
{
	struct sy_runtime *rt = *state;
	const unsigned workers = sy_worker_count(rt);
	cpu_set_t all;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	unsigned cpu = CPU_SETSIZE;
	for (unsigned i = workers; i-- > 0;) {
		struct seat s;
		worker_run(sy_worker_at(rt, i), worker_note, &s);
		if (ahead)
			assert_int_equal(s.nice, workers < (unsigned)CPU_COUNT(&all) ? AHEAD : 0);
		if (workers > (unsigned)CPU_COUNT(&all))
			continue; /* not pinned */
		do
			cpu--;
		while (!CPU_ISSET(cpu, &all));
		assert_int_equal(CPU_COUNT(&s.cpus), 1);
		assert_true(CPU_ISSET(cpu, &s.cpus));
	}
}

static int setup(void **state, unsigned workers)
{
	struct sy_runtime_options o;
	struct sy_error err;
	options_init(&o, workers);
	port = ring_port_add(&o, workers == 1 ? "one" : "two");
	options_reach(&o);
	o.pipeline = pipeline;
	o.round = count_round;
	struct sy_runtime *rt = runtime_open(&o);
	*state = rt;
	const int before = getpriority(PRIO_PROCESS, 0);
	ahead = setpriority(PRIO_PROCESS, 0, AHEAD) == 0;
	int rc = sy_runtime_start(rt, &err);
	setpriority(PRIO_PROCESS, 0, before);
	return rc;
}

static int setup_one(void **state)
{
	return setup(state, 1);
}

static int setup_two(void **state)
{
	return setup(state, 2);
}

/* ---- lent to threads of an application ------------------------------------------------------- */

static pthread_t application[2];
static bool application_ends;

static void *application_main(void *arg)
{
	struct sy_worker *w = arg;
	sy_worker_enter(w);
	while (!SY_READ(application_ends)) {
		struct pollfd news = {.fd = sy_worker_descriptor(w), .events = POLLIN};
		sy_worker_poll(w);
		uint64_t ns = sy_worker_sleep(w);
		if (!ns)
			continue;
		assert_true(ns <= SY_ROUND_MS * UINT64_C(1000000) + 1000);
		ppoll(&news, 1, &(struct timespec){.tv_nsec = (long)ns}, NULL);
		sy_worker_awake(w);
	}
	sy_worker_leave(w);
	return NULL;
}

static int setup_lent(void **state)
{
	struct sy_runtime_options o;
	options_init(&o, 2);
	port = ring_port_add(&o, "lent");
	options_reach(&o);
	o.pipeline = pipeline;
	o.round = count_round;
	struct sy_runtime *rt = runtime_open(&o);
	*state = rt;
	application_ends = false;
	sy_runtime_lend(rt);
	for (unsigned i = 0; i < 2; i++)
		if (pthread_create(&application[i], NULL, application_main, &rt->worker[i]))
			return -1;
	return 0;
}

static int teardown(void **state);

static int teardown_lent(void **state)
{
	struct sy_runtime *rt = *state;
	__atomic_store_n(&application_ends, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(application[i], NULL), 0);
		assert_true(rt->worker[i].counters.sleeps > 0);
	}
	return teardown(state);
}

/* After every test: no buffer is lost. */
static int teardown(void **state)
{
	struct sy_runtime *rt = *state;
	workers_stop(rt);
	steer_close(rt);
	assert_int_equal(rte_mempool_in_use_count(rt->pool), 0);
	sy_runtime_close(rt);
	return 0;
}

#define TESTS                                                                                      \
	cmocka_unit_test(test_hand_over), cmocka_unit_test(test_drops),                            \
	        cmocka_unit_test(test_waiting),                                                    \
	        cmocka_unit_test(test_busy_control_thread_drops_nothing),                          \
	        cmocka_unit_test(test_call), cmocka_unit_test(test_posts),                         \
	        cmocka_unit_test(test_rcu), cmocka_unit_test(test_rounds),                         \
	        cmocka_unit_test(test_stopped), cmocka_unit_test(test_room_for_the_host)

int main(void)
{
	const struct CMUnitTest one_worker[] = {TESTS},
	                        two_workers[] = {TESTS, cmocka_unit_test(test_crowded_ring)},
	                        lent[] = {
	                                cmocka_unit_test(test_hand_over),
	                                cmocka_unit_test(test_drops),
	                                cmocka_unit_test(test_waiting),
	                                cmocka_unit_test(test_busy_control_thread_drops_nothing),
	                                cmocka_unit_test(test_call),
	                                cmocka_unit_test(test_posts),
	                                cmocka_unit_test(test_rcu),
	                                cmocka_unit_test(test_rounds),
	                        };
	return cmocka_run_group_tests(one_worker, setup_one, teardown) +
	       cmocka_run_group_tests(two_workers, setup_two, teardown) +
	       cmocka_run_group_tests(lent, setup_lent, teardown_lent);
}
