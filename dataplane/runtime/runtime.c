// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>

#include <sy_phase.h>

#include "probe.h"
#include "reconcile.h"
#include "route.h"

#define BIND_WAIT_NS UINT64_C(2000000000) /* total, for queues that a killed process still has */
#define BIND_STEP_NS UINT64_C(10000000)   /* duration of an attempt plus the pause after it */
#define TICK_MS      100
#define WAITING_MAX  16384 /* buffers for packets in the rings between workers */
#define RCU_WAIT_MS  2     /* between checks of retired objects */

static int options_check(const struct sy_runtime_options *o, struct sy_error *err)
{
	if (o->workers < 1 || o->workers > SY_MAX_WORKERS)
		return sy_fail(err, EINVAL, "%u workers: 1 to %d are possible", o->workers,
		               SY_MAX_WORKERS);
	if (o->ports < 1 || o->ports > SY_MAX_PORTS)
		return sy_fail(err, EINVAL, "%u ports: 1 to %d are possible", o->ports,
		               SY_MAX_PORTS);
	if (o->path_half > 1)
		return sy_fail(err, EINVAL, "half %u of the path ids: must be 0 or 1",
		               o->path_half);
	for (unsigned i = 0; i < o->ports; i++)
		for (unsigned k = 0; k < i; k++)
			if (!strcmp(o->port[i].name, o->port[k].name))
				return sy_fail(err, EINVAL, "port %s is given twice",
				               o->port[i].name);
	return cores_check(o->cores, err);
}

/* The buffers in a port's full transmit queues. The owner of a shaped port keeps these and its tree
 * within the buffers available (shaping.c). */
static unsigned transmit_share(const struct sy_port_options *o, unsigned buffers)
{
	const unsigned usual = port_ops_of(o->backend)->ring;
	return buffers / (usual + port_ring(o)) * usual;
}

static int packets_open(struct sy_runtime *rt, struct sy_error *err)
{
	const struct sy_runtime_options *o = &rt->options;
	/* Buffers in processing by a worker and in its cache, besides those of ports. */
	unsigned total = o->workers * 1536 + o->spare, data_room = 0, held = o->spare;
	for (unsigned i = 0; i < o->ports; i++) {
		const struct sy_port_options *port = &o->port[i];
		struct port_needs needs;
		int rc = port_ops_of(port->backend)->needs(port, o->workers, &needs, err);
		if (rc)
			return rc;
		total += needs.buffers;
		held += needs.buffers - transmit_share(port, needs.buffers);
		data_room = needs.data_room > data_room ? needs.data_room : data_room;
	}
	/* Packets wait in the rings between workers, but hardly ever in all of them. */
	unsigned waiting = o->workers * (o->workers - 1) * WORKER_FLOW_RING;
	total += waiting < WAITING_MAX ? waiting : WAITING_MAX;
	data_room = data_room > 2048 ? data_room : 2048;
	const unsigned max = o->mbufs ? o->mbufs : total;
	rt->spare_buffers = max > held ? max - held : 0;
	rt->pool = pool_open(o->mbufs ? o->mbufs : total, data_room, o->workers, o->huge, err);
	return rt->pool ? 0 : -err->code;
}

static int ports_open(struct sy_runtime *rt, struct sy_error *err)
{
	for (unsigned i = 0; i < rt->options.ports; i++) {
		int rc = port_open(rt, &rt->options.port[i], err);
		if (rc)
			return rc;
	}
	return 0;
}

int claims_open(struct sy_runtime *rt, unsigned wait_ms, struct sy_error *err)
{
	for (unsigned i = 0; i < rt->ports; i++)
		if (rt->options.kernel && rt->port[i]->ifindex) {
			int rc = sy_claims_open(&rt->claims, wait_ms, err);
			if (!rc && (rc = reconcile_watch(rt)))
				sy_fail(err, -rc, "watching nftables: %s", strerror(-rc));
			return rc;
		}
	return 0;
}

/* Notes that all kernel reports before this time were applied. */
static void kernel_read_note(struct sy_runtime *rt)
{
	uint64_t now_ns = sy_clock_ns();
	if (!rt->mirror || sy_mirror_is_current(rt->mirror))
		__atomic_store_n(&rt->kernel_read_ns, now_ns, __ATOMIC_RELEASE);
}

static void tick(void *ctx)
{
	struct sy_runtime *rt = ctx;
	kernel_read_note(rt);
	for (unsigned i = 0; i < rt->ports; i++)
		if (rt->port[i]->bound && rt->port[i]->ops->refresh)
			rt->port[i]->ops->refresh(rt->port[i]);
	ports_tick(rt);
	shaping_tick(rt);
	routes_flush(rt);
	marks_follow(rt);
	probes_tick(rt);
	announcements_tick(rt);
	block_tick(rt);
	reconcile_tick(rt);
}

static void slow_tick(void *ctx)
{
	struct sy_runtime *rt = ctx;
	if (!rt->quiesced) /* otherwise the successor maintains the neighbours */
		adjacencies_tick(rt);
	reconcile_second(rt);
}

static int base_open(struct sy_runtime *rt, struct sy_error *err)
{
	int rc = loop_open(&rt->loop);
	if (!rc)
		rc = rcu_open(rt->options.workers, &rt->rcu);
	if (!rc)
		rc = adjacencies_open(&rt->adjacencies);
	if (!rc)
		rc = loop_every(rt->loop, TICK_MS, tick, rt);
	if (!rc)
		rc = loop_every(rt->loop, 1000, slow_tick, rt);
	return rc ? sy_fail(err, -rc, "starting the runtime: %s", strerror(-rc)) : 0;
}

int sy_runtime_open(const struct sy_runtime_options *options, struct sy_runtime **out,
                    struct sy_error *err)
{
	struct sy_error ignored;
	struct sy_runtime *rt = calloc(1, sizeof(*rt));
	err = err ? err : &ignored;
	if (!rt)
		return sy_fail(err, ENOMEM, "no memory for the runtime");
	rt->options = *options;
	rt->remembering = options->inherit;
	int rc = options_check(options, err);
	if (!rc)
		rc = eal_start(options, err);
	if (!rc)
		rc = base_open(rt, err);
	sy_phase_end(SY_PHASE_EAL);
	if (!rc)
		rc = packets_open(rt, err);
	sy_phase_end(SY_PHASE_PACKETS);
	if (!rc)
		rc = routes_open(rt, err);
	sy_phase_end(SY_PHASE_ROUTES);
	if (!rc)
		rc = ports_open(rt, err);
	sy_phase_end(SY_PHASE_PORTS);
	if (!rc)
		rc = workers_open(rt, err);
	sy_phase_end(SY_PHASE_WORKERS);
	if (!rc)
		rc = options->inherit ? 0 : claims_open(rt, 0, err);
	if (!rc)
		rc = mirror_start(rt, err);
	if (rc) {
		sy_runtime_close(rt);
		return rc;
	}
	*out = rt;
	return 0;
}

int sy_runtime_bind(struct sy_runtime *rt, struct sy_error *err)
{
	struct sy_patience patience = sy_patience_begin(BIND_WAIT_NS, BIND_STEP_NS);
	for (unsigned i = 0; i < rt->ports; i++) {
		int rc = port_bind(rt, i, &patience, err);
		if (rc)
			return rc;
	}
	paths_measure(rt);
	shaping_bind(rt);
	int rc = workers_bind(rt, err);
	sy_phase_end(SY_PHASE_BIND);
	return rc;
}

int sy_runtime_start(struct sy_runtime *rt, struct sy_error *err)
{
	int rc = workers_start(rt, err);
	sy_phase_end(SY_PHASE_START);
	return rc;
}

/* Packets are lost from the first shut port to the successor's first packet: work that can wait is
 * done after the locks are released. */
void sy_runtime_quiesce(struct sy_runtime *rt)
{
	rt->quiesced = true;
	for (unsigned i = 0; i < rt->ports; i++)
		if (rt->port[i]->bound && rt->port[i]->ops->shut)
			rt->port[i]->ops->shut(rt->port[i]);
	workers_stop(rt);
	workers_drain(rt);
	for (unsigned i = 0; i < rt->ports; i++)
		port_release(rt->port[i]);
	reconcile_unwatch(rt);
	sy_claims_close(rt->claims);
	rt->claims = NULL;
}

int sy_runtime_run(struct sy_runtime *rt)
{
	int rc = 0;
	while (!rc && !loop_is_stopped(rt->loop)) {
		rc = loop_poll(rt->loop, rcu_poll(rt->rcu) ? RCU_WAIT_MS : -1);
		workers_answer(rt);
	}
	return rc;
}

int sy_runtime_wait_synced(struct sy_runtime *rt, unsigned timeout_ms, struct sy_error *err)
{
	uint64_t deadline = sy_clock_ns() + timeout_ms * UINT64_C(1000000);
	while (!rt->synced && !loop_is_stopped(rt->loop)) {
		if (sy_clock_ns() > deadline)
			return sy_fail(err, ETIMEDOUT,
			               "the kernel's routes were not complete within %u ms",
			               timeout_ms);
		int rc = loop_poll(rt->loop, RCU_WAIT_MS);
		if (rc)
			return sy_fail(err, -rc, "reading the kernel's routes: %s", strerror(-rc));
	}
	return rt->synced ? 0 : sy_fail(err, ECANCELED, "stopped");
}

void sy_runtime_stop(struct sy_runtime *rt)
{
	loop_stop(rt->loop);
}

void sy_runtime_close(struct sy_runtime *rt)
{
	if (!rt)
		return;
	workers_stop(rt);
	mirror_stop(rt);
	marks_close(rt);
	announcements_close(rt);
	reconcile_unwatch(rt);
	sy_claims_close(rt->claims);
	reconcile_close(rt);
	probes_close(rt);
	addresses_forget(rt);
	block_forget(rt);
	rcu_close(rt->rcu);
	rt->rcu = NULL;
	routes_close(rt);
	workers_close(rt);
	for (unsigned i = 0; i < rt->ports; i++)
		port_close(rt, i);
	adjacencies_close(rt->adjacencies);
	pool_close(rt->pool);
	loop_close(rt->loop);
	free(rt);
}

int sy_runtime_watch(struct sy_runtime *rt, int fd, void (*fn)(void *ctx), void *ctx)
{
	return loop_watch(rt->loop, fd, fn, ctx);
}

void sy_runtime_unwatch(struct sy_runtime *rt, int fd)
{
	loop_unwatch(rt->loop, fd);
}

void sy_runtime_defer(struct sy_runtime *rt, void (*fn)(void *ctx), void *ctx)
{
	loop_defer(rt->loop, fn, ctx);
}

int sy_runtime_every(struct sy_runtime *rt, unsigned period_ms, void (*fn)(void *ctx), void *ctx)
{
	return loop_every(rt->loop, period_ms, fn, ctx);
}

bool sy_runtime_is_synced(const struct sy_runtime *rt)
{
	return rt->synced;
}

const char *sy_runtime_refusal(const struct sy_runtime *rt)
{
	return rt->refusal[0] ? rt->refusal : NULL;
}
