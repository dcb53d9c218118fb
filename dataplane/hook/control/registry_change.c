// SPDX-License-Identifier: Apache-2.0
/* Changes by users: verified, stored, sent to stacks. */
#include "registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct registry_hook *hook_find(struct sy_hook_registry *d, const char *name)
{
	for (unsigned i = 0; i < SY_HOOKS; i++)
		if (d->hook[i].name[0] && !strcmp(d->hook[i].name, name))
			return &d->hook[i];
	return NULL;
}

static struct registry_hook *hook_free(struct sy_hook_registry *d)
{
	for (unsigned i = 0; i < SY_HOOKS; i++)
		if (!d->hook[i].name[0])
			return &d->hook[i];
	return NULL;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Runs the checks that each stack will run, so that no stack refuses the hook. */
static int change_check(const struct sy_hook_change *w, struct sy_hook_info *info,
                        struct sy_error *err)
{
	struct sy_hook_source source = {.object = w->object, .object_len = w->object_len};
	struct sy_hooks *scratch = sy_hooks_create();
	if (!scratch)
		return sy_fail(err, ENOMEM, "no memory for a hook");
	int rc = w->object_len > SY_HOOK_OBJECT_MAX
	                 ? sy_fail(err, EINVAL, "an object of %zu bytes: at most %d", w->object_len,
	                           SY_HOOK_OBJECT_MAX)
	                 : sy_hooks_load(scratch, w->name, &source, err);
	if (rc > 0)
		sy_hooks_info(scratch, (unsigned)rc, info);
	sy_hooks_destroy(scratch);
	for (unsigned i = 0; i < w->places && rc > 0; i++)
		if (info->kind == SY_HOOK_PACKET && w->place[i].port)
			return sy_fail(err, EINVAL,
			               "it is for packets, which have no listener yet: a packet "
			               "hook is the stack's own; segment hooks may be a "
			               "listener's");
	return rc < 0 ? rc : 0;
}

static bool place_equal(const struct sy_hook_place *a, const struct sy_hook_place *b)
{
	return sy_addr_equal(&a->addr, &b->addr) && a->port == b->port;
}

static int places_add(struct registry_hook *h, const struct sy_hook_change *w, struct sy_error *err)
{
	for (unsigned i = 0; i < w->places; i++) {
		bool there = false;
		for (unsigned k = 0; k < h->places; k++)
			there = there || place_equal(&h->place[k], &w->place[i]);
		if (!there && h->places == SY_HOOK_PLACES)
			return sy_fail(err, ENOSPC, "a hook has at most %d places", SY_HOOK_PLACES);
		if (!there)
			h->place[h->places++] = w->place[i];
	}
	return 0;
}

/* One hook per place and kind: removes the places of `from` from other hooks. */
static void places_reassign(struct sy_hook_registry *d, const struct registry_hook *from)
{
	for (unsigned i = 0; i < SY_HOOKS; i++) {
		struct registry_hook *h = &d->plan[i];
		if (!h->name[0] || h->info.kind != from->info.kind || !strcmp(h->name, from->name))
			continue;
		for (unsigned k = 0; k < h->places;) {
			bool taken = false;
			for (unsigned n = 0; n < from->places; n++)
				taken = taken || place_equal(&h->place[k], &from->place[n]);
			if (taken)
				h->place[k] = h->place[--h->places];
			else
				k++;
		}
	}
}

/* ---- objects --------------------------------------------------------------------------------- */

static int object_seal(const struct sy_hook_change *w)
{
	int fd = memfd_create(w->name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (write(fd, w->object, w->object_len) != (ssize_t)w->object_len ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)) {
		int rc = -errno;
		close(fd);
		return rc ? rc : -ENOMEM;
	}
	return fd;
}

/* ---- reports --------------------------------------------------------------------------------- */

struct report_sum {
	struct sy_hook_report *report;
	unsigned count, max;
	struct sy_hook_stack *stack; /* of each that answered; may be NULL */
	unsigned stacks;
	const struct sy_hook_registry *d;
};

static struct sy_hook_report *report_for(struct report_sum *g, const struct sy_hook_info *info)
{
	for (unsigned i = 0; i < g->count; i++)
		if (!strcmp(g->report[i].info.name, info->name))
			return &g->report[i];
	if (g->count == g->max)
		return NULL;
	struct sy_hook_report *r = &g->report[g->count++];
	*r = (struct sy_hook_report){.info = *info};
	r->info.calls = r->info.wrong = r->info.timed = r->info.cycles = 0;
	memset(r->info.level, 0, sizeof(r->info.level));
	return r;
}

static void report_place(struct sy_hook_report *r, const struct sy_hook_place *place, bool idle)
{
	unsigned i = 0;
	while (i < r->places && !place_equal(&r->place[i], place))
		i++;
	if (i == SY_HOOK_PLACES)
		return;
	if (i == r->places) {
		r->place[r->places++] = *place;
		r->idle |= (uint32_t)idle << i;
	} else if (!idle) {
		r->idle &= ~(UINT32_C(1) << i);
	}
}

static void report_add(void *ctx, unsigned number, const struct answer *a)
{
	struct report_sum *g = ctx;
	if (g->stack)
		g->stack[g->stacks++] =
		        (struct sy_hook_stack){number, g->d->stack[number].pid, a->tally};
	for (uint32_t i = 0; i < a->hooks; i++) {
		const struct answer_hook *h = &a->hook[i];
		struct sy_hook_report *r = report_for(g, &h->info);
		if (!r)
			continue;
		r->stacks++;
		r->number = h->number;
		r->info.calls += h->info.calls;
		r->info.wrong += h->info.wrong;
		r->info.timed += h->info.timed;
		r->info.cycles += h->info.cycles;
		for (unsigned n = 0; n < SY_PRIORITIES; n++)
			r->info.level[n] += h->info.level[n];
		for (uint32_t n = 0; n < a->places; n++)
			if (h->places >> n & 1)
				report_place(r, &a->place[n], a->idle >> n & 1);
	}
}

/* Sends a change and collects places without listeners. */
static void change_order(struct sy_hook_registry *d, struct order *o, int object,
                         struct sy_hook_count *count)
{
	struct sy_hook_report report;
	struct report_sum g = {.report = &report, .max = 1};
	registry_order(d, o, object, count, report_add, &g);
	for (unsigned i = 0; g.count && i < report.places; i++)
		if (report.idle >> i & 1)
			count->idle[count->idles++] = report.place[i];
}

/* ---- changes --------------------------------------------------------------------------------- */

static void order_fill(struct order *o, const struct sy_hook_change *w)
{
	*o = (struct order){.type = ORDER_LOAD,
	                    .must = w->swap ? ORDER_SWAP : ORDER_NEW,
	                    .object_len = (uint32_t)w->object_len,
	                    .params = w->params,
	                    .places = w->places};
	snprintf(o->name, sizeof(o->name), "%s", w->name);
	memcpy(o->param, w->param, sizeof(o->param));
	memcpy(o->place, w->place, sizeof(o->place));
}

/* Rolls a load back: restores the hook, and the places it took over, in stacks that applied it. An
 * application's own hook that was swapped keeps the new code: the registry does not have the old.
 */
static void load_undo(struct sy_hook_registry *d, unsigned number, const struct sy_hook_change *w)
{
	const struct registry_hook *was = &d->before[number];
	struct order o = {.type = ORDER_REMOVE};
	uint32_t others = 0;
	int object = d->plan[number].object;
	for (unsigned i = 0; i < SY_HOOKS; i++)
		others |= (uint32_t)(i != number && d->plan[i].places != d->before[i].places) << i;
	memcpy(o.name, d->plan[number].name, sizeof(o.name));
	pthread_mutex_lock(&d->lock);
	memcpy(d->plan, d->before, sizeof(d->plan));
	memcpy(d->hook, d->plan, sizeof(d->hook));
	pthread_mutex_unlock(&d->lock);
	if (was->name[0]) {
		registry_hook_order(was, number, &o);
		o.must = ORDER_SWAP | ORDER_ONLY;
		o.params = w->params;
	}
	if (was->name[0] || !w->swap)
		registry_undo(d, &o, was->name[0] ? was->object : -1);
	for (unsigned i = 0; i < SY_HOOKS; i++) {
		if (!(others >> i & 1))
			continue;
		registry_hook_order(&d->hook[i], i, &o);
		o.must = ORDER_SWAP | ORDER_ONLY;
		o.object_len = o.params = 0;
		registry_undo(d, &o, -1);
	}
	close(object);
}

/* Dry run in all stacks before the first applies it. */
static int load_precheck(struct sy_hook_registry *d, const struct order *wanted, bool known,
                         struct sy_hook_count *count, struct sy_error *err)
{
	struct order o = *wanted;
	o.must |= ORDER_CHECK;
	d->follows = false;
	registry_order(d, &o, -1, count, NULL, NULL);
	if (d->refused)
		return sy_fail(err, -d->refused, "%s", d->text);
	if (o.must & ORDER_SWAP && !known && count->stacks + count->silent == 0)
		return sy_fail(err, ENOENT, "there is no hook %s", o.name);
	return 0;
}

static int load_order(struct sy_hook_registry *d, struct order *o, const struct registry_hook *next,
                      const struct sy_hook_change *w, struct sy_hook_count *count,
                      struct sy_error *err)
{
	unsigned number = SY_HOOKS - o->number;
	int rc = load_precheck(d, o, d->hook[number].name[0], count, err);
	if (rc) {
		close(next->object);
		return rc;
	}
	memcpy(d->before, d->hook, sizeof(d->before));
	d->plan[number] = *next;
	places_reassign(d, next);
	d->follows = true;
	change_order(d, o, next->object, count);
	if (d->refused) { /* a stack changed since the dry run, or has no memory */
		rc = sy_fail(err, -d->refused, "%s", d->text);
		load_undo(d, number, w);
	} else if (d->before[number].name[0]) {
		close(d->before[number].object);
	}
	d->follows = false;
	return rc;
}

static void params_store(struct registry_hook *h, const struct sy_hook_change *w)
{
	for (unsigned i = 0; i < SY_HOOK_PARAMS; i++)
		if (w->params >> i & 1)
			h->info.param[i] = w->param[i];
	h->params |= w->params;
}

/* New code for a new or stored hook. */
static int code_load(struct sy_hook_registry *d, const struct sy_hook_change *w,
                     struct sy_hook_count *count, struct sy_error *err)
{
	struct registry_hook *h = hook_find(d, w->name), before, next;
	struct sy_hook_info info;
	struct order o;
	if (h && !w->swap)
		return sy_fail(err, EEXIST, "hook %s exists; swap it, or use another name",
		               w->name);
	h = h ? h : hook_free(d);
	if (!h)
		return sy_fail(err, ENOSPC, "all %d hook numbers are in use; remove a hook",
		               SY_HOOKS);
	before = next = *h;
	snprintf(next.name, sizeof(next.name), "%s", w->name);
	int rc = change_check(w, &info, err);
	if (!rc && before.name[0] && info.kind != before.info.kind)
		rc = sy_fail(err, EEXIST, "%s is a %s hook and this is a %s hook; use another name",
		             w->name, sy_hook_kind_name(before.info.kind),
		             sy_hook_kind_name(info.kind));
	if (!rc)
		rc = places_add(&next, w, err);
	if (rc)
		return rc;
	next.object = object_seal(w);
	if (next.object < 0)
		return sy_fail(err, -next.object, "no memory for a hook");
	next.object_len = (uint32_t)w->object_len;
	memcpy(info.param, before.info.param, sizeof(info.param));
	next.info = info;
	params_store(&next, w);
	order_fill(&o, w);
	o.number = (uint32_t)(SY_HOOKS - (h - d->hook));
	o.kind = next.info.kind;
	return load_order(d, &o, &next, w, count, err);
}

/* Sets parameters, also of hooks that the application loaded. */
static int params_set(struct sy_hook_registry *d, const struct sy_hook_change *w,
                      struct sy_hook_count *count, struct sy_error *err)
{
	struct registry_hook *h = hook_find(d, w->name);
	struct order o;
	order_fill(&o, w);
	o.must = ORDER_SWAP;
	if (h)
		params_store(&d->plan[h - d->hook], w);
	change_order(d, &o, -1, count);
	if (count->stacks + count->silent || h)
		return 0;
	return sy_fail(err, ENOENT, "there is no hook %s", w->name);
}

int sy_hook_registry_load(struct sy_hook_registry *d, const struct sy_hook_change *w,
                          struct sy_hook_count *count, struct sy_error *err)
{
	pthread_mutex_lock(&d->change);
	int rc = registry_backlog_check(d, err);
	if (!rc)
		rc = w->object ? code_load(d, w, count, err) : params_set(d, w, count, err);
	pthread_mutex_unlock(&d->change);
	return rc;
}

static int hook_remove(struct sy_hook_registry *d, const char *name, struct sy_hook_count *count,
                       struct sy_error *err)
{
	struct order o = {.type = ORDER_REMOVE};
	struct registry_hook *h = hook_find(d, name);
	int object = h ? h->object : -1;
	snprintf(o.name, sizeof(o.name), "%s", name);
	if (h)
		d->plan[h - d->hook] = (struct registry_hook){0};
	registry_order(d, &o, -1, count, NULL, NULL);
	if (h)
		close(object);
	if (!h && count->stacks + count->silent == 0)
		return sy_fail(err, ENOENT, "there is no hook %s", name);
	return 0;
}

int sy_hook_registry_remove(struct sy_hook_registry *d, const char *name,
                            struct sy_hook_count *count, struct sy_error *err)
{
	pthread_mutex_lock(&d->change);
	int rc = registry_backlog_check(d, err);
	if (!rc)
		rc = hook_remove(d, name, count, err);
	pthread_mutex_unlock(&d->change);
	return rc;
}

/* ---- listing --------------------------------------------------------------------------------- */

/* Adds a stored hook that no stack reported. */
static void report_ordered(struct report_sum *g, const struct registry_hook *h, unsigned number)
{
	struct sy_hook_report *r = report_for(g, &h->info);
	if (!r || r->stacks)
		return;
	r->number = number;
	for (unsigned i = 0; i < h->places; i++)
		report_place(r, &h->place[i], false); /* unknown without a stack */
}

static int stack_compare(const void *a, const void *b)
{
	const struct sy_hook_stack *x = a, *y = b;
	return x->number < y->number ? -1 : x->number > y->number;
}

unsigned sy_hook_registry_report(struct sy_hook_registry *d, struct sy_hook_report *report,
                                 unsigned max, struct sy_hook_stack stack[SY_HOOK_REGISTRY_STACKS],
                                 struct sy_hook_count *count)
{
	struct report_sum g = {.report = report, .max = max, .stack = stack, .d = d};
	struct order o = {.type = ORDER_REPORT};
	pthread_mutex_lock(&d->change);
	registry_order(d, &o, -1, count, report_add, &g);
	if (stack)
		qsort(stack, g.stacks, sizeof(*stack), stack_compare);
	for (unsigned i = 0; i < SY_HOOKS; i++)
		if (d->hook[i].name[0])
			report_ordered(&g, &d->hook[i], SY_HOOKS - i);
	pthread_mutex_unlock(&d->change);
	return g.count;
}

void sy_hook_registry_note(struct sy_hook_registry *d, unsigned place, const char *text)
{
	pthread_mutex_lock(&d->lock);
	text_copy_printable(d->note[place], text, sizeof(d->note[place]));
	pthread_mutex_unlock(&d->lock);
}

/* ---- connections ----------------------------------------------------------------------------- */

struct walk {
	struct sy_hook_registry *d;
	sy_hook_connections_fn *take;
	void *ctx;
	bool more, enough;
};

static void connections_add(void *ctx, unsigned number, const struct answer *a)
{
	struct walk *w = ctx;
	const struct sy_hook_stack stack = {.number = number, .pid = w->d->stack[number].pid};
	w->d->stack[number].walked = !a->more;
	w->more |= a->more;
	if (a->connections && !w->enough)
		w->enough = !w->take(w->ctx, &stack, a->connection, a->connections);
}

enum sy_hook_walk sy_hook_registry_connections(struct sy_hook_registry *d,
                                               sy_hook_connections_fn *take, void *ctx,
                                               struct sy_hook_count *count)
{
	struct walk w = {.d = d, .take = take, .ctx = ctx};
	struct order o = {.type = ORDER_CONNECTIONS};
	uint64_t until = sy_clock_ns() + d->walk_ms * UINT64_C(1000000);
	struct sy_hook_count all = {0};
	pthread_mutex_lock(&d->change);
	do {
		w.more = false;
		registry_order(d, &o, -1, count, connections_add, &w);
		for (unsigned i = 0; i < count->silent && all.silent < SY_HOOK_REGISTRY_STACKS; i++)
			all.silent_pid[all.silent++] =
			        count->silent_pid[i]; /* later batches skip it */
		o.type = ORDER_CONNECTIONS_MORE;
	} while (w.more && !w.enough && sy_clock_ns() < until);
	*count = all;
	pthread_mutex_unlock(&d->change);
	return w.enough ? SY_HOOK_WALK_ENOUGH : w.more ? SY_HOOK_WALK_LATE : SY_HOOK_WALK_ALL;
}
