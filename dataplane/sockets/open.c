// SPDX-License-Identifier: Apache-2.0
/*
 * The library on the runtime: ports, the control thread, and contexts whose threads are workers.
 *
 *   sy_tcp_open() ── starts ──▶ control thread: opens the runtime, claims addresses, runs its loop
 *   sy_tcp_enter() ──▶ the application's thread is a worker:
 *       poll ─▶ receive ─▶ stack ─▶ context_events() ─▶ transmit
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include <sy_port_option.h>
#include <sy_stack_numbers.h>
#include <sy_stack_port.h>

#include "context.h"
#include "setup.h"

#define SYNC_MS           10000
#define EPOLLS            64    /* descriptors besides connections and listeners */
#define UNREAD_OF_PACKETS 3 / 4 /* share for unread data; the rest is for receiving */

_Static_assert(SY_MAX_WORKERS <= MAX_CONTEXTS, "contexts are workers");

/* Driver of one context. */
struct slot {
	struct sy_tcp_library *t;
	struct sy_worker *worker;
	struct sy_tcp_context *context;
	bool taken; /* a thread has entered; set by compare-and-swap */
};

struct sy_tcp_library {
	struct sy_tcp_setup options;
	struct sy_runtime_options runtime;
	struct sy_runtime *rt;
	struct sy_stack_port *port;
	struct sy_hook_registry *hooks;
	struct sy_stack_endpoint address[SETUP_ADDRESSES];
	unsigned addresses, taken; /* taken: claimed from the kernel */
	struct slot slot[SY_MAX_WORKERS];
	char interfaces[512]; /* port names, for reports */
	pthread_t control;
	sem_t opened;
	int rc; /* result of opening, by the control thread */
	struct sy_error err;
};

/* ---- a context on its worker ----------------------------------------------------------------- */

static void serve(struct sy_stack *s, unsigned worker, uint64_t now_ns, void *ctx)
{
	struct sy_tcp_library *t = ctx;
	context_events(t->slot[worker].context);
}

/* Runs what the application has requested since the last poll iteration. */
static bool poll_stack(struct sy_worker *w)
{
	if (!sy_stack_is_sorting(w))
		sy_stack_round(w);
	return false;
}

/* With a packet hook, the driver's ring is drained and sorted before the application runs. */
static bool slot_poll(void *d)
{
	struct slot *p = d;
	struct sy_worker *w = p->worker;
	if (p->context->agent)
		sy_hook_agent_poll(p->context->agent);
	bool work = sy_worker_poll(w);

	while (sy_stack_is_sorting(w))
		work |= sy_worker_poll(w);
	return work;
}

static uint64_t slot_clock(void *d)
{
	return sy_clock_ns();
}

static uint64_t slot_now(void *d)
{
	return ((struct slot *)d)->worker->now_ns;
}

static int slot_fd(void *d)
{
	return sy_worker_descriptor(((struct slot *)d)->worker);
}

static uint64_t slot_sleep(void *d)
{
	struct slot *p = d;
	uint64_t due = sy_stack_advance(p->context->stack, slot_now(d)), now = sy_clock_ns(), ns;

	if (due <= now)
		return 0;
	ns = sy_worker_sleep(p->worker);
	return ns < due - now ? ns : due - now;
}

static void slot_awake(void *d)
{
	sy_worker_awake(((struct slot *)d)->worker);
}

static int slot_wait(void *d, uint64_t max_ns, const sigset_t *mask)
{
	struct pollfd news = {.fd = slot_fd(d), .events = POLLIN};
	uint64_t ns = slot_sleep(d);
	struct timespec time;
	int rc;

	if (!ns)
		return 0;
	ns = ns < max_ns ? ns : max_ns;
	time = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
	rc = ppoll(&news, 1, &time, mask) < 0 ? -errno : 0;
	slot_awake(d);
	return rc;
}

static void slot_wake(void *d)
{
	sy_worker_wake(((struct slot *)d)->worker);
}

/* The first context reports packets missed by ports, for all. */
static uint64_t missed(const struct sy_runtime *rt)
{
	struct sy_port_stats stats;
	uint64_t sum = 0;

	for (unsigned i = 0; i < sy_port_count(rt); i++) {
		sy_port_get_stats(rt, i, &stats);
		sum += stats.rx_missed;
	}
	return sum;
}

static void slot_lost(void *d, struct sy_hook_tally *out)
{
	const struct slot *p = d;
	const struct sy_worker *w = p->worker;
	const uint64_t *drop = w->counters.drop;

	out->missed = w->id == 0 ? missed(p->t->rt) : 0;
	out->unsent = drop[SY_DROP_TX_FULL] + drop[SY_DROP_PORT_DOWN] + sy_worker_unfit(w);
	out->unreachable = drop[SY_DROP_NO_ROUTE] + drop[SY_DROP_BLACKHOLE] +
	                   drop[SY_DROP_NOT_ON_LINK] + drop[SY_DROP_NO_NEIGHBOUR] +
	                   drop[SY_DROP_NEIGHBOUR_QUEUE];
}

/* Does not sleep while completed requests are pending. */
static bool slot_is_idle(const struct sy_worker *w)
{
	const struct sy_tcp_library *t = sy_stack_port_ctx(w);
	return !requests_are_completed(t->slot[w->id].context);
}

static const struct context_driver slot_driver = {
        .poll = slot_poll,
        .sleep = slot_sleep,
        .awake = slot_awake,
        .wait = slot_wait,
        .now = slot_now,
        .clock = slot_clock,
        .fd = slot_fd,
        .wake = slot_wake,
        .lost = slot_lost,
};

/* ---- opening, on the control thread ---------------------------------------------------------- */

/* All options except ports. */
static void runtime_options(struct sy_tcp_library *t)
{
	const struct sy_tcp_setup *o = &t->options;
	struct sy_runtime_options *r = &t->runtime;

	r->workers = o->contexts;
	r->huge = !o->no_huge_pages;
	r->memory_mb = setup_memory_mb(o, r);
	r->spare = o->packets;
	r->pipeline = sy_stack_pipeline;
	r->offloads = true;
	r->poll = poll_stack;
	r->is_idle = slot_is_idle;
	r->app = t->port;
	snprintf(r->instance, sizeof(r->instance), "steelyard-tcp-%d", (int)getpid());
}

static int stacks_open(struct sy_tcp_library *t)
{
	const struct sy_tcp_setup *o = &t->options;
	uint64_t space = (uint64_t)o->packets * 2048 * UNREAD_OF_PACKETS / o->contexts;
	struct sy_stack_options s = {
	        .connections = o->connections,
	        .listeners = o->listeners,
	        .send_all = o->send_bytes,
	        .receive_all =
	                o->receive_bytes && o->receive_bytes < space ? o->receive_bytes : space,
	        .congestion = o->congestion,
	        .port_first = o->port_first,
	        .port_last = o->port_last,
	        .toa = o->toa,
	        .pacing = o->pacing,
	};
	unsigned mtu = 65535;

	for (unsigned i = 0; i < sy_port_count(t->rt); i++)
		mtu = sy_port_mtu(t->rt, i) < mtu ? sy_port_mtu(t->rt, i) : mtu;
	s.mtu = (uint16_t)mtu;
	if (getrandom(s.secret, sizeof(s.secret), 0) != sizeof(s.secret))
		return sy_fail(&t->err, errno, "random numbers: %s", strerror(errno));
	return sy_stack_port_open(t->port, t->rt, &s, &t->err);
}

static int contexts_open(struct sy_tcp_library *t)
{
	const struct sy_tcp_setup *o = &t->options;

	for (unsigned i = 0; i < o->contexts; i++) {
		const struct context_options c = {
		        .stack = sy_stack_port_stack(t->port, i),
		        .driver = &slot_driver,
		        .ctx = &t->slot[i],
		        .address = t->address,
		        .addresses = t->addresses,
		        .descriptors = o->connections + o->listeners + EPOLLS,
		        .congestion = o->congestion,
		        .port_first = o->port_first,
		        .port_last = o->port_last,
		        .number = i,
		};
		t->slot[i] = (struct slot){.t = t, .worker = sy_worker_at(t->rt, i)};
		t->slot[i].context = context_create(&c);
		if (!t->slot[i].context)
			return sy_fail(&t->err, ENOMEM, "no memory for a context");
	}
	return 0;
}

/* The agent's socket wakes a sleeping context. */
static int agent_open(struct sy_tcp_library *t, struct slot *p)
{
	struct epoll_event news = {.events = EPOLLIN};
	struct sy_hook_channel channel;
	int rc = sy_hook_registry_join(t->hooks, getpid(), &channel);

	if (rc < 0)
		return rc;
	rc = context_agent_open(p->context, &channel);
	if (!rc && epoll_ctl(slot_fd(p), EPOLL_CTL_ADD, p->context->agent_socket, &news))
		rc = -errno;
	return rc;
}

static void interfaces_name(struct sy_tcp_library *t)
{
	size_t len = 0;

	for (unsigned i = 0; i < t->runtime.ports && len < sizeof(t->interfaces); i++)
		len += (size_t)snprintf(t->interfaces + len, sizeof(t->interfaces) - len, "%s%s",
		                        i ? "," : "", t->runtime.port[i].name);
}

/* Opens the registry by which `steelyard hook` and `steelyard stack` find all contexts. */
static int hooks_open(struct sy_tcp_library *t)
{
	const struct sy_hook_registry_owner owner = {
	        program_invocation_short_name,  t->interfaces,   sy_stack_numbers,
	        SY_ARRAY_LEN(sy_stack_numbers), sy_stack_states, SY_ARRAY_LEN(sy_stack_states)};
	const char *wanted = t->options.stack;
	char name[SY_HOOK_REGISTRY_NAME];
	int rc;

	if (wanted && !*wanted)
		return 0;
	rc = sy_hook_registry_open(&t->hooks, &t->err);
	for (unsigned i = 0; i < t->options.contexts && !rc; i++)
		rc = agent_open(t, &t->slot[i]);
	if (rc)
		return t->err.text[0] ? rc : sy_fail(&t->err, -rc, "hooks: %s", strerror(-rc));
	snprintf(name, sizeof(name), "%.40s-%d", program_invocation_short_name, (int)getpid());
	interfaces_name(t);
	rc = sy_hook_registry_serve(t->hooks, wanted ? wanted : name, &owner, &t->err);
	if (!rc || wanted)
		return rc;
	sy_log(SY_LOG_INFO, "tcp",
	       "`steelyard hook` and `steelyard stack` do not reach this program: %s", t->err.text);
	t->err = (struct sy_error){0};
	return 0;
}

static int addresses_take(struct sy_tcp_library *t)
{
	for (; t->taken < t->addresses; t->taken++) {
		int rc = sy_address_claim(t->rt, &t->address[t->taken].addr, &t->err);
		if (rc)
			return rc;
	}
	sy_address_settle(t->rt);
	return 0;
}

static int library_open(struct sy_tcp_library *t)
{
	int rc;

	sy_slot_init();
	sy_log_set_level(t->options.verbose ? SY_LOG_INFO : SY_LOG_WARN);
	t->port = sy_stack_port_new(serve, t);
	if (!t->port)
		return sy_fail(&t->err, ENOMEM, "no memory");
	runtime_options(t);
	rc = sy_runtime_open(&t->runtime, &t->rt, &t->err);
	if (!rc)
		rc = sy_runtime_bind(t->rt, &t->err);
	if (!rc)
		rc = stacks_open(t);
	if (!rc)
		rc = contexts_open(t);
	if (!rc)
		rc = hooks_open(t);
	if (!rc && t->runtime.kernel)
		rc = sy_runtime_wait_synced(t->rt, SYNC_MS, &t->err);
	if (!rc)
		rc = addresses_take(t);
	if (!rc)
		sy_runtime_lend(t->rt);
	return rc;
}

/* Closes the library and releases the addresses. */
static void library_close(struct sy_tcp_library *t)
{
	while (t->taken > 0)
		sy_address_release(t->rt, &t->address[--t->taken].addr);
	sy_hook_registry_close(t->hooks);
	for (unsigned i = 0; i < t->options.contexts && t->slot[i].context; i++)
		context_agent_close(t->slot[i].context);
	for (unsigned i = 0; i < t->options.contexts; i++)
		context_destroy(t->slot[i].context);
	sy_stack_port_close(t->port);
	sy_runtime_close(t->rt);
}

static void *control_main(void *arg)
{
	struct sy_tcp_library *t = arg;

	pthread_setname_np(pthread_self(), "sy-control");
	t->rc = library_open(t);
	bool open = t->rc == 0;
	sem_post(&t->opened); /* from here on the opening thread owns t->rc */
	if (open)
		sy_runtime_run(t->rt);
	library_close(t);
	return NULL;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void library_free(struct sy_tcp_library *t)
{
	sem_destroy(&t->opened);
	sy_port_options_free(&t->runtime);
	free(t);
}

static int control_start(struct sy_tcp_library *t)
{
	sigset_t all, before;
	int code;

	sigfillset(&all); /* the application's threads handle signals */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	code = pthread_create(&t->control, NULL, control_main, t);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code ? sy_fail(&t->err, code, "starting a thread: %s", strerror(code)) : 0;
}

int sy_tcp_open(const struct sy_tcp_setup *options, struct sy_tcp_library **out, char *why,
                size_t size)
{
	struct sy_tcp_library *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	sem_init(&t->opened, 0, 0);
	rc = setup_read(options, &t->options, t->address, &t->err);
	t->addresses = t->options.addresses;
	if (!rc)
		rc = setup_ports(&t->options, &t->runtime, &t->err);
	if (!rc)
		rc = control_start(t);
	if (!rc) {
		while (sem_wait(&t->opened)) /* interrupted */
			;
		rc = t->rc;
		if (rc)
			pthread_join(t->control, NULL);
	}
	if (!rc) {
		*out = t;
		return 0;
	}
	if (why && size)
		snprintf(why, size, "%s", t->err.text);
	library_free(t);
	return rc;
}

void sy_tcp_close(struct sy_tcp_library *t)
{
	if (!t)
		return;
	sy_runtime_stop(t->rt);
	pthread_join(t->control, NULL);
	library_free(t);
}

int sy_tcp_enter(struct sy_tcp_library *t, unsigned number, struct sy_tcp_context **out)
{
	struct slot *p = &t->slot[number];
	bool free = false;

	if (number >= t->options.contexts)
		return -EINVAL;
	if (!__atomic_compare_exchange_n(&p->taken, &free, true, false, __ATOMIC_ACQUIRE,
	                                 __ATOMIC_RELAXED))
		return -EBUSY;
	sy_worker_enter(p->worker);
	*out = p->context;
	return 0;
}

void sy_tcp_leave(struct sy_tcp_context *c)
{
	struct slot *p = c->ctx;

	context_close_all(c);
	sy_worker_poll(p->worker); /* sends FINs and resets */
	sy_worker_leave(p->worker);
	__atomic_store_n(&p->taken, false, __ATOMIC_RELEASE);
}

bool sy_tcp_is_local(const struct sy_tcp_library *t, const struct sockaddr *addr, socklen_t len)
{
	struct sy_stack_endpoint e;

	if (len < (socklen_t)sizeof(addr->sa_family) ||
	    address_read(addr->sa_family == AF_INET6, addr, len, &e))
		return false;
	if (address_is_any(&e.addr))
		return true;
	for (unsigned i = 0; i < t->addresses; i++)
		if (sy_addr_equal(&t->address[i].addr, &e.addr))
			return true;
	return false;
}
