// SPDX-License-Identifier: Apache-2.0
/* Health checks: marks of servers, and the interfaces towards them. */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime.h"

struct mark {
	uint32_t mark;
	struct sy_check check;
	uint64_t transaction;
};

struct marks {
	struct sy_checks *checks; /* NULL: unavailable */
	void *tree;               /* of struct mark */
	uint32_t generation;      /* generation of the routes that were last resolved */
	bool attached;
	char refusal[300]; /* empty: none */
};

static void refuse(struct marks *m, const char *text)
{
	snprintf(m->refusal, sizeof(m->refusal), "%s", text);
	sy_log(SY_LOG_WARN, "runtime", "%s", text);
}

static int mark_compare(const void *a, const void *b)
{
	const struct mark *x = a, *y = b;
	return x->mark < y->mark ? -1 : x->mark > y->mark;
}

/* The kernel interfaces among the ports. */
static unsigned interfaces_list(const struct sy_runtime *rt, int ifindex[SY_MAX_PORTS])
{
	unsigned n = 0;
	for (unsigned i = 0; i < rt->ports; i++)
		if (rt->port[i]->ifindex)
			ifindex[n++] = rt->port[i]->ifindex;
	return n;
}

/* The interface by which a client's packet leaves for the server; 0: none, or no kernel
 * interface. */
static int interface_find(const struct sy_runtime *rt, const struct sy_check *c)
{
	static const struct sy_addr none;
	struct sy_route route;
	if (rt->refusal[0] || !rt->mirror || !sy_mirror_lookup(rt->mirror, &c->server, &route) ||
	    route.blackhole)
		return 0;
	bool direct = sy_addr_equal(&c->source, &none);
	for (unsigned i = 0; i < route.hop_count; i++)
		if (port_by_ifindex(rt, route.hop[i].ifindex) != SY_PORT_NONE &&
		    (!direct || sy_addr_equal(&route.hop[i].via, &none)))
			return route.hop[i].ifindex;
	return 0;
}

static void mark_write(struct marks *m, const struct mark *one)
{
	int rc = sy_checks_set(m->checks, one->mark, &one->check);
	if (rc)
		sy_log(SY_LOG_WARN, "runtime", "a server's health checks cannot be directed: %s",
		       strerror(-rc));
}

void marks_attach(struct sy_runtime *rt)
{
	struct marks *m = rt->marks;
	struct sy_error err = {0};
	int ifindex[SY_MAX_PORTS];
	if (!m || !m->checks || m->attached || rt->remembering)
		return;
	m->attached = sy_checks_attach(m->checks, ifindex, interfaces_list(rt, ifindex), &err) == 0;
	if (!m->attached)
		refuse(m, err.text);
}

void marks_reattach(struct sy_runtime *rt)
{
	if (rt->marks)
		rt->marks->attached = false;
	marks_attach(rt);
}

void marks_verify(struct sy_runtime *rt, const struct sy_verify *v)
{
	const struct marks *m = rt->marks;
	int ifindex[SY_MAX_PORTS];
	if (m && m->checks && m->attached)
		sy_checks_verify(m->checks, ifindex, interfaces_list(rt, ifindex), v);
}

/* Returns NULL without memory. */
static struct marks *marks_get(struct sy_runtime *rt)
{
	struct sy_error err = {0};
	int ifindex[SY_MAX_PORTS];
	if (rt->marks)
		return rt->marks;
	rt->marks = calloc(1, sizeof(*rt->marks));
	if (!rt->marks)
		return NULL;
	if (!rt->options.kernel || interfaces_list(rt, ifindex) < rt->ports)
		refuse(rt->marks, "servers cannot be checked on the VIP: a port is no interface "
		                  "of the kernel's");
	else if (sy_checks_open(&rt->marks->checks, &err))
		refuse(rt->marks, err.text);
	marks_attach(rt);
	return rt->marks;
}

void sy_check_set(struct sy_runtime *rt, uint32_t mark, const struct sy_check *check,
                  uint64_t transaction)
{
	struct marks *m = marks_get(rt);
	struct mark *one = m && m->checks ? malloc(sizeof(*one)) : NULL, **place;
	if (!one)
		return;
	*one = (struct mark){.mark = mark, .check = *check, .transaction = transaction};
	one->check.ifindex = interface_find(rt, check);
	place = tsearch(one, &m->tree, mark_compare);
	if (!place) {
		free(one);
		return;
	}
	if (*place != one) {
		struct mark *old = *place;
		bool same = !memcmp(&old->check, &one->check, sizeof(one->check));
		*place = one;
		free(old);
		if (same)
			return;
	}
	mark_write(m, one);
}

void sy_check_clear(struct sy_runtime *rt, uint32_t mark, uint64_t transaction)
{
	struct marks *m = rt->marks;
	const struct mark key = {.mark = mark};
	struct mark **place = m ? tfind(&key, &m->tree, mark_compare) : NULL;
	if (!place || (*place)->transaction == transaction)
		return;
	struct mark *one = *place;
	tdelete(&key, &m->tree, mark_compare);
	free(one);
	sy_checks_set(m->checks, mark, NULL);
}

static void mark_follow(const void *node, VISIT visit, void *ctx)
{
	struct sy_runtime *rt = ctx;
	struct mark *one = *(struct mark *const *)node;
	if (visit != postorder && visit != leaf)
		return;
	int ifindex = interface_find(rt, &one->check);
	if (ifindex == one->check.ifindex)
		return;
	one->check.ifindex = ifindex;
	mark_write(rt->marks, one);
}

void marks_follow(struct sy_runtime *rt)
{
	struct marks *m = rt->marks;
	uint32_t generation = m && m->checks ? sy_path_generation(rt) : 0;
	if (!m || generation == m->generation)
		return;
	m->generation = generation;
	twalk_r(m->tree, mark_follow, rt);
}

void marks_close(struct sy_runtime *rt)
{
	if (!rt->marks)
		return;
	sy_checks_close(rt->marks->checks);
	tdestroy(rt->marks->tree, free);
	free(rt->marks);
	rt->marks = NULL;
}

bool sy_check_works(const struct sy_runtime *rt)
{
	return rt->marks && rt->marks->attached;
}

const char *sy_check_refusal(const struct sy_runtime *rt)
{
	return rt->marks && rt->marks->refusal[0] ? rt->marks->refusal : NULL;
}
