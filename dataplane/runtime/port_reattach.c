// SPDX-License-Identifier: Apache-2.0
/*
 * Interfaces that are deleted and recreated while the forwarder runs. Meanwhile the port is down
 * and reports why; sessions stay. Workers never stop: between two bursts, each removes the port's
 * queues, and later adds the new ones.
 *
 * bound ── deleted ──► gone, in_use ── workers removed it ──► gone ── recreated ──► bound
 */
#include <net/if.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "route.h"

/* ---- workers --------------------------------------------------------------------------------- */

static void worker_leave(struct sy_worker *w, void *ctx)
{
	struct sy_worker_private *p = w->private;
	struct port *port = ctx;
	struct sy_gather *g = &p->transmit[port->id];
	unsigned kept = 0;
	for (unsigned i = 0; i < p->sources; i++) {
		const struct worker_source *s = &p->source[i];
		int fd = s->port == port ? port->ops->descriptor(port, s->queue) : -1;
		if (fd >= 0)
			epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		if (s->port != port)
			p->source[kept++] = *s;
	}
	p->sources = kept;
	for (; g->count; g->count--)
		sy_packet_drop(w, g->mbuf[g->count - 1], SY_DROP_PORT_DOWN);
}

struct joining {
	struct port *port;
	int rc;
};

static void worker_join(struct sy_worker *w, void *ctx)
{
	struct joining *j = ctx;
	for (unsigned q = w->id; q < j->port->queues; q += w->rt->workers) {
		int rc = worker_source_add(w, j->port, q);
		j->rc = j->rc ? j->rc : rc;
	}
}

static int workers_call(struct sy_runtime *rt, void (*fn)(struct sy_worker *w, void *ctx),
                        void *ctx)
{
	for (unsigned i = 0; i < rt->workers; i++) {
		int rc = sy_worker_call(&rt->worker[i], fn, ctx);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- ports ----------------------------------------------------------------------------------- */

/* An attempt uses buffers and the control thread's time: retry after 0.1 s, then with exponential
 * back-off up to 13 s. */
#define RETRY_NS    UINT64_C(100000000)
#define RETRY_STEPS 7

static void port_say(struct port *p, const char *text)
{
	if (strcmp(p->problem, text))
		sy_log(SY_LOG_ERROR, "runtime", "port %s: %s", p->name, text);
	snprintf(p->problem, sizeof(p->problem), "%.255s", text);
}

void port_lose(struct sy_runtime *rt, struct port *p)
{
	__atomic_store_n(&p->up, false, __ATOMIC_RELAXED);
	if (!p->gone)
		p->claimed = p->ifindex;
	p->ifindex = 0;
	if (!p->bound || !p->ops->lose) {
		sy_log(SY_LOG_ERROR, "runtime", "port %s: the interface was deleted", p->name);
		return;
	}
	p->ops->stats(p, &p->last);
	p->bound = false;
	p->gone = p->in_use = true;
	adjacencies_lose(rt, p->id);
	port_say(p, "the interface was deleted; it is taken again as soon as one of its name is "
	            "there");
}

/* Workers poll the port again. Its sessions still exist. */
static void port_reattached(struct sy_runtime *rt, struct port *p, bool up)
{
	int rc;
	__atomic_store_n(&p->up, up, __ATOMIC_RELAXED);
	p->bound = true;
	p->gone = false;
	p->attempts = 0;
	p->retry_ns = 0;
	p->problem[0] = '\0';
	workers_note_queues(rt);
	paths_measure(rt);
	adjacencies_tick(rt);
	marks_reattach(rt);
	if (rt->claims)
		sy_claims_move(rt->claims, p->claimed, p->ifindex);
	rc = p->up && rt->claims ? sy_claims_renew(rt->claims, p->ifindex) : 0;
	if (rc)
		sy_log(SY_LOG_ERROR, "runtime",
		       "port %s: the kernel does not answer for its IPv6 VIPs: %s", p->name,
		       strerror(-rc));
	__atomic_fetch_add(&rt->links_changed, 1, __ATOMIC_RELEASE);
	sy_log(SY_LOG_INFO, "runtime", "port %s: in use again: %s, %u queue%s, MTU %u", p->name,
	       p->backend, p->queues, p->queues == 1 ? "" : "s", p->mtu);
	if (p->up)
		announce_port(rt, p->id);
}

static void port_reattach(struct sy_runtime *rt, struct port *p)
{
	struct sy_error err = {0};
	struct joining joining = {.port = p};
	bool up = false;
	if (p->in_use && workers_call(rt, worker_leave, p))
		return; /* a worker is busy: retry at the next tick */
	if (p->in_use)
		p->ops->lose(p);
	p->in_use = false;
	if (!p->ifindex || !if_nametoindex(p->name))
		return;
	int rc = p->ops->reattach(rt, p, &rt->options.port[p->id], &up, &err);
	if (!rc) {
		rc = shaping_reattach(rt, p);
		rc = rc ? rc : workers_call(rt, worker_join, &joining);
		rc = rc ? rc : joining.rc;
		if (rc)
			sy_fail(&err, -rc, "a worker cannot poll it: %s", strerror(-rc));
	}
	if (!rc) {
		port_reattached(rt, p, up);
		return;
	}
	p->in_use = true;
	p->retry_ns = sy_clock_ns() +
	              (RETRY_NS << (p->attempts < RETRY_STEPS ? p->attempts++ : RETRY_STEPS));
	sy_fail_in(&err, "the interface exists again, but cannot be used");
	port_say(p, err.text);
}

void ports_tick(struct sy_runtime *rt)
{
	uint64_t now = sy_clock_ns();
	for (unsigned i = 0; i < rt->ports; i++)
		if (rt->port[i]->gone && !rt->quiesced && rt->port[i]->retry_ns <= now)
			port_reattach(rt, rt->port[i]);
}
