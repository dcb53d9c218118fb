// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps the kernel's state as the forwarder needs it (design record 0052). Kernel events mark a
 * part as disturbed; parts without events are read once a second; a sweep verifies everything. A
 * verification without differences changes nothing, so own changes cause no loop.
 */
#include <stdio.h>
#include <stdlib.h>

#include "probe.h"
#include "reconcile.h"
#include "runtime.h"

#define PROBLEMS    64
#define SHARE       10 /* verification uses at most 1/SHARE of the thread's time */
#define SWEEP_S     30
#define PARTS_CLAIM (RECONCILE_GUARD | RECONCILE_CLAIMS)

struct problem {
	unsigned part;
	bool seen; /* found by the current verification */
	char text[480];
};

struct reconcile {
	struct sy_runtime *rt;
	unsigned disturbed; /* parts, RECONCILE_… */
	bool stepping;      /* sy_claims_verify_step() is deferred */
	unsigned part;      /* the part being verified */
	uint64_t begin_ns, next_ns[RECONCILE_PARTS], sweep_ns;
	uint64_t restored;
	unsigned restored_now;
	struct problem problem[PROBLEMS];
	unsigned problems;
};

static struct reconcile *reconcile_get(struct sy_runtime *rt)
{
	if (!rt->reconcile && (rt->reconcile = calloc(1, sizeof(*rt->reconcile))))
		rt->reconcile->rt = rt;
	return rt->reconcile;
}

void reconcile_close(struct sy_runtime *rt)
{
	free(rt->reconcile);
	rt->reconcile = NULL;
}

void reconcile_disturb(struct sy_runtime *rt, unsigned parts)
{
	struct reconcile *r = reconcile_get(rt);
	if (r)
		r->disturbed |= parts;
}

/* ---- reports --------------------------------------------------------------------------------- */

static void on_restored(void *ctx, const char *text)
{
	struct reconcile *r = ctx;
	r->restored++;
	r->restored_now++;
	sy_log(SY_LOG_WARN, "runtime", "restored what another program had removed: %s", text);
}

static void on_problem(void *ctx, const char *text)
{
	struct reconcile *r = ctx;
	for (unsigned i = 0; i < r->problems; i++) {
		if (r->problem[i].part == r->part && !strcmp(r->problem[i].text, text)) {
			r->problem[i].seen = true;
			return;
		}
	}
	if (r->problems == PROBLEMS)
		return;
	struct problem *p = &r->problem[r->problems++];
	*p = (struct problem){.part = r->part, .seen = true};
	snprintf(p->text, sizeof(p->text), "%s", text);
	sy_log(SY_LOG_WARN, "runtime", "%s", p->text);
}

static bool is_up(void *ctx, int ifindex)
{
	const struct sy_runtime *rt = ((struct reconcile *)ctx)->rt;
	unsigned port = port_by_ifindex(rt, ifindex);
	return port != SY_PORT_NONE && rt->port[port]->up && !rt->port[port]->gone;
}

static struct sy_verify verify_of(struct reconcile *r)
{
	return (struct sy_verify){
	        .ctx = r, .restored = on_restored, .problem = on_problem, .is_up = is_up};
}

static void part_begin(struct reconcile *r, unsigned part)
{
	r->disturbed &= ~part;
	r->part = part;
	r->restored_now = 0;
	r->begin_ns = sy_clock_ns();
	for (unsigned i = 0; i < r->problems; i++)
		if (r->problem[i].part == part)
			r->problem[i].seen = false;
}

/* Ends the verification of a part. Returns true if a problem of it is over. */
static bool part_end(struct reconcile *r)
{
	unsigned kept = 0, before = r->problems;
	uint64_t now = sy_clock_ns();
	for (unsigned i = 0; i < r->problems; i++) {
		if (r->problem[i].part == r->part && !r->problem[i].seen)
			sy_log(SY_LOG_INFO, "runtime", "no longer: %s", r->problem[i].text);
		else if (kept++ != i)
			r->problem[kept - 1] = r->problem[i];
	}
	r->problems = kept;
	r->next_ns[__builtin_ctz(r->part)] = now + SHARE * (now - r->begin_ns);
	return kept < before;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Verifies the host's addresses that are claimed too: beside a local route of the forwarder, the
 * kernel shows them only to claim_verify(). on_problem() reports equal texts once. */
static void addresses_verify(struct reconcile *r)
{
	const struct sy_runtime *rt = r->rt;
	char text[2 * SY_ADDR_TEXT + 160];
	for (unsigned i = 0; i < rt->connected_count; i++) {
		const struct sy_link_addr *c = &rt->connected[i];
		/* Own IPv6 claims are addresses of this length. */
		if ((!sy_addr_is_v4(&c->addr) && c->prefix_len == 128) ||
		    !sy_claims_has(rt->claims, &c->addr))
			continue;
		sy_claim_describe_double(&c->addr, text, sizeof(text));
		on_problem(r, text);
	}
}

static void claims_step(void *ctx)
{
	struct sy_runtime *rt = ctx;
	struct reconcile *r = rt->reconcile;
	if (!r || !rt->claims)
		return;
	r->part = RECONCILE_CLAIMS;
	struct sy_verify v = verify_of(r);
	if (sy_claims_verify_step(rt->claims, &v)) {
		sy_runtime_defer(rt, claims_step, rt);
		return;
	}
	r->stepping = false;
	addresses_verify(r);
	/* Neighbours may have failed to resolve meanwhile. */
	for (unsigned i = 0; r->restored_now && i < rt->ports; i++)
		if (rt->port[i]->up)
			announce_port(rt, i);
	part_end(r);
}

struct families {
	bool v4, v6;
};

static void claim_family(void *ctx, const struct sy_addr *addr)
{
	struct families *f = ctx;
	f->v4 |= sy_addr_is_v4(addr);
	f->v6 |= !sy_addr_is_v4(addr);
}

static void settings_verify(struct sy_runtime *rt, const struct sy_verify *v)
{
	struct sy_verify_port port[SY_MAX_PORTS];
	struct families claimed = {0};
	unsigned n = 0;
	if (rt->claims)
		sy_claims_each(rt->claims, claim_family, &claimed);
	for (unsigned i = 0; i < rt->ports; i++)
		if (rt->port[i]->ifindex && !rt->port[i]->gone)
			port[n++] =
			        (struct sy_verify_port){rt->port[i]->name, claimed.v4, claimed.v6};
	sy_settings_verify(port, n, sy_check_works(rt), v);
}

static void directors_verify(struct sy_runtime *rt, const struct sy_verify *v)
{
	for (unsigned i = 0; i < rt->ports; i++) {
		struct sy_director *d = port_director(rt->port[i]);
		if (d && rt->port[i]->bound && !rt->port[i]->gone)
			sy_director_verify(d, v);
	}
}

static void part_verify(struct reconcile *r, unsigned part)
{
	struct sy_runtime *rt = r->rt;
	struct sy_verify v = verify_of(r);
	part_begin(r, part);
	switch (part) {
	case RECONCILE_GUARD:
		sy_claims_verify_guard(rt->claims, &v);
		break;
	case RECONCILE_CLAIMS:
		r->stepping = true;
		claims_step(rt);
		return;
	case RECONCILE_CHECKS:
		marks_verify(rt, &v);
		break;
	case RECONCILE_DIRECTORS:
		directors_verify(rt, &v);
		break;
	case RECONCILE_ROUTING:
		for (unsigned i = 0; policy_text(rt, i); i++)
			on_problem(r, policy_text(rt, i));
		break;
	case RECONCILE_OTHERS:
		probes_verify(rt, &v);
		break;
	default:
		settings_verify(rt, &v);
	}
	/* IPv6 is enabled again: addresses can be added again. */
	if (part_end(r) && part == RECONCILE_SETTINGS)
		r->disturbed |= RECONCILE_CLAIMS;
}

/* ---- times ----------------------------------------------------------------------------------- */

void reconcile_tick(struct sy_runtime *rt)
{
	struct reconcile *r = reconcile_get(rt);
	uint64_t now = sy_clock_ns();
	if (!r || rt->quiesced || rt->remembering || r->stepping)
		return;
	for (unsigned i = 0; i < RECONCILE_PARTS && !r->stepping; i++) {
		unsigned part = 1u << i;
		if (!(r->disturbed & part) || now < r->next_ns[i])
			continue;
		if (!rt->claims && (part & PARTS_CLAIM))
			r->disturbed &= ~part;
		else
			part_verify(r, part);
	}
}

void reconcile_others(struct sy_runtime *rt)
{
	struct reconcile *r = reconcile_get(rt);
	if (r && r->stepping) /* its verification continues */
		r->disturbed |= RECONCILE_OTHERS;
	else if (r)
		part_verify(r, RECONCILE_OTHERS);
}

void reconcile_second(struct sy_runtime *rt)
{
	struct reconcile *r = reconcile_get(rt);
	unsigned sweep_s = rt->options.sweep_s ? rt->options.sweep_s : SWEEP_S;
	uint64_t now = sy_clock_ns();
	if (!r || !rt->options.kernel)
		return;
	r->disturbed |= RECONCILE_SILENT;
	if (now < r->sweep_ns)
		return;
	r->sweep_ns = now + sweep_s * UINT64_C(1000000000);
	r->disturbed |= RECONCILE_ALL;
}

static void guard_readable(void *ctx)
{
	struct sy_runtime *rt = ctx;
	if (rt->claims && sy_claims_read(rt->claims))
		reconcile_disturb(rt, RECONCILE_GUARD);
}

int reconcile_watch(struct sy_runtime *rt)
{
	return loop_watch(rt->loop, sy_claims_fd(rt->claims), guard_readable, rt);
}

void reconcile_unwatch(struct sy_runtime *rt)
{
	if (rt->claims)
		loop_unwatch(rt->loop, sy_claims_fd(rt->claims));
}

const char *sy_runtime_problem(const struct sy_runtime *rt, unsigned i)
{
	return rt->reconcile && i < rt->reconcile->problems ? rt->reconcile->problem[i].text : NULL;
}

uint64_t sy_runtime_restored(const struct sy_runtime *rt)
{
	return rt->reconcile ? rt->reconcile->restored : 0;
}

bool sy_runtime_problem_is_contested(const struct sy_runtime *rt, unsigned i)
{
	return sy_runtime_problem(rt, i) && rt->reconcile->problem[i].part == RECONCILE_OTHERS;
}
