// SPDX-License-Identifier: Apache-2.0
/*
 * Shaped ports: packets wait in a tree (sy_shape.h). One worker owns it: of the workers with a
 * transmit queue of the port, number (port modulo their count).
 *
 *   transmit_flush() ─► owner:   shaping_enter() ─► tree ─► shaping_poll() ─► the port
 *                       others:  steer_transmit() ─► owner
 *
 * The control thread builds a tree. Between two bursts the owner replaces its tree by the new one,
 * and moves the waiting packets.
 */
#include <errno.h>
#include <stdlib.h>

#include <sy_shaping.h>

#include "runtime.h"

/* Max bursts dequeued per poll, so that reception does not wait. A tree that ends also sends as
 * many packets as have arrived since the last poll: otherwise it would never be empty. */
#define POLL_BURSTS 4
/* Shorter sleeps are skipped: waking takes longer. */
#define SLEEP_MIN_NS 20000
/* Retry interval while the device is full. */
#define RETRY_NS 50000
/* A port that is no longer shaped may get more packets than it can send. It keeps the packets that
 * waited for this long: they may exceed what the device accepts at once. */
#define END_NS UINT64_C(100000000)
/* The process ends and the device accepts nothing: number of tries and time after which the rest is
 * dropped. */
#define DRAIN_TRIES 64
#define DRAIN_NS    UINT64_C(20000000)

static unsigned owner_of(const struct sy_runtime *rt, const struct port *p)
{
	const unsigned shaper = SY_READ(p->shaper);
	if (shaper > 0) /* while it is shaped */
		return shaper - 1;
	const unsigned queues = p->queues > 0 ? p->queues : 1; /* 0: not bound yet */
	return p->id % (queues < rt->workers ? queues : rt->workers);
}

/* ---- the workers' side ----------------------------------------------------------------------- */

unsigned shaping_way(struct sy_worker *w, struct port *port, struct sy_gather *g)
{
	const unsigned shaper = SY_READ(port->shaper);
	if (shaper != 0 || g->owner == 0)
		return shaper;
	if (!steer_transmitted(w, g->owner - 1u, g->mark))
		return g->owner;
	g->owner = 0;
	/* Read again: the packets may have left for a newer tree. */
	return __atomic_load_n(&port->shaper, __ATOMIC_ACQUIRE);
}

static void packet_enter(struct sy_worker *w, const struct shaping *s, struct rte_mbuf *m)
{
	const uint32_t service = sy_packet_service(m);
	const unsigned branch = service < s->branches ? SY_READ(s->branch[service]) : 0;
	enum sy_drop reason = sy_shape_put(s->tree, m, branch, w->now_ns);
	if (SY_LIKELY(reason == SY_DROP_NONE))
		return;
	if (service != 0 && w->rt->options.refused)
		w->rt->options.refused(w, service, reason);
	sy_packet_drop(w, m, reason);
}

void shaping_enter(struct sy_worker *w, struct port *port, unsigned owner, struct sy_gather *g)
{
	if (owner == w->id) {
		for (unsigned i = 0; i < g->count; i++)
			packet_enter(w, &port->shaping, g->mbuf[i]);
	} else {
		for (unsigned i = 0; i < g->count; i++)
			g->mark = steer_transmit(w, owner, g->mbuf[i]);
		g->owner = owner + 1;
	}
	g->count = 0;
}

static void pending_drop(struct sy_worker *w, struct shaping *s, enum sy_drop reason)
{
	for (unsigned i = 0; i < s->pending; i++)
		sy_packet_drop(w, s->pending_packet[i], reason);
	s->pending = 0;
}

/* Sends pending packets; those that the device refuses stay pending. */
static bool pending_send(struct sy_worker *w, struct port *port)
{
	struct shaping *s = &port->shaping;
	if (!SY_READ(port->up) || w->id >= port->queues) {
		pending_drop(w, s, SY_DROP_PORT_DOWN);
		return true;
	}
	const unsigned sent = transmit_now(w, port, s->pending_packet, s->pending);
	s->pending -= sent;
	memmove(s->pending_packet, s->pending_packet + sent,
	        s->pending * sizeof(s->pending_packet[0]));
	if (sent > 0)
		s->refused = 0;
	else if (s->refused++ == 0)
		s->refused_ns = w->now_ns;
	/* at the end of a process, waiting for the device is work */
	return sent > 0 ||
	       (s->drains && (s->refused < DRAIN_TRIES || w->now_ns - s->refused_ns < DRAIN_NS));
}

/* Drops pending packets if the tree ends and the device has refused them for too long. */
static bool pending_expire(struct sy_worker *w, struct port *port)
{
	struct shaping *s = &port->shaping;
	if (s->pending == 0 || !s->ends || s->drains || w->now_ns < s->ends_ns)
		return false;
	SY_COUNT(port->counters[w->id].tx_failed, s->pending);
	pending_drop(w, s, SY_DROP_TX_FULL);
	return true;
}

static unsigned poll_max_bursts(const struct shaping *s)
{
	const unsigned waiting = sy_shape_waiting(s->tree);
	if (SY_LIKELY(!s->ends) || waiting <= s->left)
		return POLL_BURSTS;
	return POLL_BURSTS + (waiting - s->left + SY_BURST - 1) / SY_BURST;
}

static bool shaping_port_poll(struct sy_worker *w, struct port *port)
{
	struct shaping *s = &port->shaping;
	bool work = false;
	for (unsigned bursts = poll_max_bursts(s); bursts > 0; bursts--) {
		if (s->pending == 0)
			s->pending =
			        sy_shape_dequeue(s->tree, s->pending_packet, SY_BURST, w->now_ns);
		if (s->pending == 0)
			break;
		work |= pending_send(w, port);
		work |= pending_expire(w, port);
		if (s->pending > 0)
			break;
	}
	s->left = sy_shape_waiting(s->tree);
	if (SY_LIKELY(w->id < port->queues))
		sy_shape_hold(s->tree, s->pending + port->ops->sending(port, w->id));
	if (SY_UNLIKELY(s->ends) && s->pending == 0 && s->left == 0) {
		w->private->shaped &= ~(1u << port->id);
		__atomic_store_n(&port->shaper, 0, __ATOMIC_RELEASE);
	}
	return work;
}

bool shaping_poll(struct sy_worker *w)
{
	bool work = false;
	for (uint32_t left = w->private->shaped; left; left &= left - 1)
		work |= shaping_port_poll(w, w->rt->port[__builtin_ctz(left)]);
	return work;
}

uint64_t shaping_sleep_ns(struct sy_worker *w, uint64_t longest)
{
	worker_clock_read(w);
	for (uint32_t left = w->private->shaped; left; left &= left - 1) {
		const struct shaping *s = &w->rt->port[__builtin_ctz(left)]->shaping;
		uint64_t next = s->pending > 0 ? w->now_ns + RETRY_NS : sy_shape_next(s->tree);
		uint64_t wait = next > w->now_ns ? next - w->now_ns : 0;
		longest = wait < longest ? wait : longest;
	}
	return longest < SLEEP_MIN_NS ? 0 : longest;
}

/* ---- the control thread's side --------------------------------------------------------------- */

struct change {
	struct port *port;
	struct shaping to; /* input: the new tree; output: the replaced one */
};

/* On the owner, between two bursts. */
static void tree_swap(struct sy_worker *w, void *ctx)
{
	struct change *change = ctx;
	struct shaping *s = &change->port->shaping, was = *s;
	if (was.tree) /* otherwise nothing waits */
		sy_shape_move(change->to.tree, was.tree, w->now_ns);
	s->tree = change->to.tree;
	s->branch = change->to.branch;
	s->branches = change->to.branches;
	s->ends = s->moves = false;
	change->to = was;
	w->private->shaped |= 1u << change->port->id;
	__atomic_store_n(&change->port->shaper, (uint8_t)(w->id + 1), __ATOMIC_RELEASE);
}

static void tree_end(struct sy_worker *w, void *ctx)
{
	struct port *port = ctx;
	struct shaping *s = &port->shaping;
	if (s->ends || (SY_READ(port->shaper) == 0 && !s->moves))
		return;
	sy_shape_open(s->tree);
	s->ends = true;
	s->ends_ns = w->now_ns + END_NS;
}

static void marks_set(struct sy_runtime *rt, bool any)
{
	__atomic_store_n(&rt->shaping, any, __ATOMIC_RELAXED);
	workers_note_queues(rt);
}

/* Sets whether received packets must carry no service id from before. Workers forward packets of
 * remote-owned sessions only while no port is shaped. */
static void marks_count(struct sy_runtime *rt)
{
	bool any = false;
	for (unsigned i = 0; i < rt->ports; i++)
		any |= rt->port[i]->shaping.tree != NULL;
	marks_set(rt, any);
}

int sy_port_shape(struct sy_runtime *rt, unsigned port, const struct sy_shape_config *c,
                  uint16_t *branch, uint32_t branches, struct sy_error *err)
{
	struct port *p = rt->port[port];
	struct change change = {.port = p, .to = {.branch = branch, .branches = branches}};
	shaping_tick(rt);
	int rc = sy_shape_create(c, sy_port_shape_capacity(rt, port), sy_clock_ns(),
	                         &change.to.tree, err);
	if (rc == 0 && p->shaping.tree)
		rc = sy_shape_follow(change.to.tree, p->shaping.tree, err);
	marks_set(rt, true);
	if (rc == 0 && sy_worker_call(&rt->worker[owner_of(rt, p)], tree_swap, &change) < 0)
		rc = sy_fail(err, ETIMEDOUT, "worker %u does not answer", owner_of(rt, p));
	sy_shape_destroy(change.to.tree);
	free(change.to.branch);
	marks_count(rt);
	return rc < 0 ? sy_fail_in(err, "shaping of port %s", p->name) : 0;
}

int sy_port_unshape(struct sy_runtime *rt, unsigned port, struct sy_error *err)
{
	struct port *p = rt->port[port];
	if (!p->shaping.tree)
		return 0;
	if (sy_worker_call(&rt->worker[owner_of(rt, p)], tree_end, p) < 0)
		return sy_fail(err, ETIMEDOUT, "shaping of port %s: worker %u does not answer",
		               p->name, owner_of(rt, p));
	return 0;
}

void sy_port_shape_service(struct sy_runtime *rt, unsigned port, uint32_t service, uint16_t branch)
{
	struct shaping *s = &rt->port[port]->shaping;
	if (s->tree && service < s->branches)
		__atomic_store_n(&s->branch[service], branch, __ATOMIC_RELAXED);
}

const struct sy_shape *sy_port_shape_get(const struct sy_runtime *rt, unsigned port)
{
	const struct shaping *s = &rt->port[port]->shaping;
	return s->ends ? NULL : s->tree;
}

/* Buffers available to the tree: not those of receive queues. Some are being processed by workers,
 * some are in the port's transmit queue: sy_shape_hold(). */
unsigned sy_port_shape_capacity(const struct sy_runtime *rt, unsigned port)
{
	const unsigned room = rt->spare_buffers / 4 * 3 / rt->ports;
	return room > SY_BURST ? room : SY_BURST;
}

unsigned sy_port_shape_worker(const struct sy_runtime *rt, unsigned port)
{
	return owner_of(rt, rt->port[port]);
}

void shaping_bind(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < rt->ports; i++) {
		struct port *p = rt->port[i];
		if (p->shaper == 0)
			continue;
		rt->worker[p->shaper - 1].private->shaped &= ~(1u << i);
		p->shaper = 0;
		const unsigned owner = owner_of(rt, p);
		p->shaper = (uint8_t)(owner + 1);
		rt->worker[owner].private->shaped |= 1u << i;
	}
}

static void tree_leave(struct sy_worker *w, void *ctx)
{
	struct port *port = ctx;
	w->private->shaped &= ~(1u << port->id);
	__atomic_store_n(&port->shaper, 0, __ATOMIC_RELEASE);
}

static void tree_join(struct sy_worker *w, void *ctx)
{
	struct port *port = ctx;
	w->private->shaped |= 1u << port->id;
	__atomic_store_n(&port->shaper, (uint8_t)(w->id + 1), __ATOMIC_RELEASE);
}

int shaping_reattach(struct sy_runtime *rt, struct port *port)
{
	struct shaping *s = &port->shaping;
	const unsigned shaper = SY_READ(port->shaper);
	int rc = 0;
	if (shaper > port->queues) {
		rc = sy_worker_call(&rt->worker[shaper - 1], tree_leave, port);
		s->moves = rc == 0;
	}
	if (s->moves) {
		rc = sy_worker_call(&rt->worker[owner_of(rt, port)], tree_join, port);
		s->moves = rc < 0;
	}
	return rc;
}

void shaping_open_all(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < rt->ports; i++)
		if (rt->port[i]->shaping.tree &&
		    (rt->port[i]->shaper || rt->port[i]->shaping.moves)) {
			sy_shape_open(rt->port[i]->shaping.tree);
			rt->port[i]->shaping.ends = true;
			rt->port[i]->shaping.drains = true;
			rt->port[i]->shaping.refused = 0;
		}
}

void shaping_drop_all(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < rt->ports; i++) {
		struct port *p = rt->port[i];
		struct shaping *s = &p->shaping;
		struct sy_worker *w = &rt->worker[owner_of(rt, p)];
		while (s->tree && (s->pending > 0 || sy_shape_waiting(s->tree) > 0)) {
			SY_COUNT(p->counters[w->id].tx_failed, s->pending);
			pending_drop(w, s, SY_DROP_TX_FULL);
			s->pending =
			        sy_shape_dequeue(s->tree, s->pending_packet, SY_BURST, w->now_ns);
		}
	}
}

void shaping_close(struct port *port)
{
	struct shaping *s = &port->shaping;
	for (unsigned i = 0; i < s->pending; i++)
		rte_pktmbuf_free(s->pending_packet[i]);
	sy_shape_destroy(s->tree);
	free(s->branch);
	*s = (struct shaping){0};
}

struct settling {
	struct port *port;
	bool settled;
};

static void way_settle(struct sy_worker *w, void *ctx)
{
	struct settling *s = ctx;
	struct sy_gather *g = &w->private->transmit[s->port->id];
	(void)shaping_way(w, s->port, g);
	s->settled = g->owner == 0;
}

/* Does every worker send to the port itself again? */
static bool ways_settle(struct sy_runtime *rt, struct port *port)
{
	struct settling s = {.port = port, .settled = true};
	for (unsigned i = 0; i < rt->workers && s.settled; i++)
		if (sy_worker_call(&rt->worker[i], way_settle, &s) < 0)
			return false;
	return s.settled;
}

void shaping_tick(struct sy_runtime *rt)
{
	for (unsigned i = 0; i < rt->ports; i++) {
		struct port *p = rt->port[i];
		if (!p->shaping.tree || p->shaping.moves ||
		    __atomic_load_n(&p->shaper, __ATOMIC_ACQUIRE) != 0 || !ways_settle(rt, p))
			continue;
		shaping_close(p);
		marks_count(rt);
	}
}
