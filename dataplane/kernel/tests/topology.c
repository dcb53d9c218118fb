// SPDX-License-Identifier: Apache-2.0
#include "topology.h"

#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct topology *topology;

/* Replaces, adds or removes the object at the index found (or at the end). */
#define TOPOLOGY_PUT(array, count, index, object, gone)                                            \
	do {                                                                                       \
		if (gone) {                                                                        \
			assert_true((index) < (count));                                            \
			(array)[index] = (array)[--(count)];                                       \
		} else {                                                                           \
			assert_true((index) < TOPOLOGY_ITEMS);                                     \
			(array)[index] = *(object);                                                \
			(count) += (index) == (count);                                             \
		}                                                                                  \
	} while (0)

static void on_link(void *ctx, const struct sy_link *link, bool gone)
{
	struct topology *w = ctx;
	unsigned i = 0;

	while (i < w->links && w->link[i].ifindex != link->ifindex)
		i++;
	TOPOLOGY_PUT(w->link, w->links, i, link, gone);
}

static void on_addr(void *ctx, const struct sy_link_addr *addr, bool gone)
{
	struct topology *w = ctx;
	unsigned i = 0;

	while (i < w->addrs &&
	       !(w->addr[i].ifindex == addr->ifindex && w->addr[i].prefix_len == addr->prefix_len &&
	         sy_addr_equal(&w->addr[i].addr, &addr->addr)))
		i++;
	TOPOLOGY_PUT(w->addr, w->addrs, i, addr, gone);
}

static unsigned route_index(const struct topology *w, const struct sy_addr *prefix, unsigned len)
{
	unsigned i = 0;

	while (i < w->routes &&
	       !(w->route[i].prefix_len == len && sy_addr_equal(&w->route[i].prefix, prefix)))
		i++;
	return i;
}

static void on_route(void *ctx, const struct sy_route *route, bool gone)
{
	struct topology *w = ctx;
	unsigned i;

	if (sy_addr_is_v4(&route->prefix) && route->prefix.b[12] == 10 && route->prefix_len == 24) {
		i = route->prefix.b[13] * 256u + route->prefix.b[14];
		assert_true(w->bulk[i] || !gone);
		w->bulk_count += !gone - w->bulk[i];
		w->bulk[i] = !gone;
		w->bulk_reported++;
		return;
	}
	i = route_index(w, &route->prefix, route->prefix_len);
	TOPOLOGY_PUT(w->route, w->routes, i, route, gone);
}

static void on_neigh(void *ctx, const struct sy_neigh *neigh, bool gone)
{
	struct topology *w = ctx;
	unsigned i = 0;

	while (i < w->neighs && !(w->neigh[i].ifindex == neigh->ifindex &&
	                          sy_addr_equal(&w->neigh[i].addr, &neigh->addr)))
		i++;
	TOPOLOGY_PUT(w->neigh, w->neighs, i, neigh, gone);
}

static void on_synced(void *ctx)
{
	((struct topology *)ctx)->synced++;
}

static void on_refused(void *ctx, const char *text)
{
	snprintf(((struct topology *)ctx)->refused, sizeof(topology->refused), "%s",
	         text ? text : "");
}

static void on_policies(void *ctx, const struct sy_policy *list, unsigned count)
{
	struct topology *t = ctx;

	t->policies[0] = 0;
	t->all_refused = false;
	for (unsigned i = 0; i < count; i++) {
		strncat(t->policies, list[i].text, sizeof(t->policies) - strlen(t->policies) - 1);
		t->all_refused |= !list[i].from_bits && !list[i].to_bits && !list[i].tos &&
		                  !list[i].proto && !list[i].sport[1] && !list[i].dport[1];
	}
}

/* ---- waiting --------------------------------------------------------------------------------- */

void pump_until_at(condition holds, const void *arg, int line)
{
	const uint64_t end = sy_clock_ns() + SUPPORT_PATIENCE_MS * 1000000ull;

	while (!holds(arg)) {
		struct pollfd fd = {.fd = sy_mirror_fd(topology->mirror), .events = POLLIN};

		if (sy_clock_ns() > end)
			fail_msg("what line %d waits for has not come", line);
		if (poll(&fd, 1, 100) > 0)
			assert_true(sy_mirror_process(topology->mirror, topology->budget) >= 0);
	}
}

bool topology_synced(const void *arg)
{
	return topology->synced >= *(const unsigned *)arg;
}

/* Writes a route like `ip route`: "via A dev B weight N, …", "blackhole", "dead" (no live hop) or
 * "none". */
static void route_write(const char *prefix, unsigned len, char *out, size_t size)
{
	struct sy_addr addr = addr_of(prefix);
	unsigned i = route_index(topology, &addr, len);
	const struct sy_route *r = &topology->route[i];
	char via[SY_ADDR_TEXT], dev[IF_NAMESIZE];
	size_t at = 0;

	if (i == topology->routes) {
		snprintf(out, size, "none");
		return;
	}
	snprintf(out, size, r->blackhole ? "blackhole" : "dead");
	for (unsigned k = 0; k < r->hop_count; k++) {
		static const struct sy_addr none;
		const struct sy_route_hop *hop = &r->hop[k];

		at += (size_t)snprintf(
		        out + at, size - at, "%svia %s dev %s weight %u", k ? ", " : "",
		        sy_addr_equal(&hop->via, &none) ? "link" : sy_addr_format(&hop->via, via),
		        if_indextoname((unsigned)hop->ifindex, dev) ? dev : "?", hop->weight);
	}
}

bool route_is(const void *arg)
{
	const struct expected_route *e = arg;
	char text[1024];

	route_write(e->prefix, e->len, text, sizeof(text));
	return strcmp(text, e->text) == 0;
}

bool refusal_has(const void *arg)
{
	const char *word = arg;

	return word ? strstr(topology->refused, word) || strstr(topology->policies, word)
	            : !topology->refused[0] && !topology->policies[0];
}

const struct sy_link *link_named(const char *name)
{
	for (unsigned i = 0; i < topology->links; i++)
		if (strcmp(topology->link[i].name, name) == 0)
			return &topology->link[i];
	return NULL;
}

bool link_is(const void *arg)
{
	const struct link_state *s = arg;
	const struct sy_link *link = link_named(s->name);

	return s->there ? link && link->up == s->up : !link;
}

bool addr_is(const void *arg)
{
	const struct expected_addr *e = arg;
	struct sy_addr addr = addr_of(e->text);
	bool there = false;

	for (unsigned i = 0; i < topology->addrs; i++)
		there |= sy_addr_equal(&topology->addr[i].addr, &addr);
	return there == e->there;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

void mirror_start(void)
{
	struct sy_mirror_handler handler = {.ctx = topology,
	                                    .link = on_link,
	                                    .addr = on_addr,
	                                    .route = on_route,
	                                    .neigh = on_neigh,
	                                    .synced = on_synced,
	                                    .refused = on_refused,
	                                    .policies = on_policies};
	struct sy_error err;

	assert_int_equal(sy_mirror_open(&handler, &topology->mirror, &err), 0);
	pump_until(topology_synced, (&(unsigned){1}));
}

int far_ns, near_ns;

int topology_setup(void **state)
{
	topology = calloc(1, sizeof(*topology));
	topology->budget = 64;
	far_ns = netns_new();
	near_ns = netns_new();
	veth_new("near0", "far0", far_ns);
	sh("ip addr add 192.0.2.1/24 dev near0; ip addr add 2001:db8::1/64 dev near0 nodad");
	netns_enter(far_ns);
	sh("ip addr add 192.0.2.2/24 dev far0; ip addr add 2001:db8::2/64 dev far0 nodad");
	netns_enter(near_ns);
	return 0;
}

int topology_teardown(void **state)
{
	sy_mirror_close(topology->mirror);
	free(topology);
	close(far_ns);
	close(near_ns);
	return 0;
}
