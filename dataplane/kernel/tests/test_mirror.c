// SPDX-License-Identifier: Apache-2.0
/* The mirror against a live kernel: what iproute2 changes must come out as differences. */
#include "support.h"

#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORLD_ITEMS 512
#define WORLD_BULK  65536 /* 10.x.y.0/24 by x·256 + y */

/* What the handler has been told, as its user would keep it. */
struct world {
	struct sy_mirror *mirror;
	unsigned budget;
	struct sy_link link[WORLD_ITEMS];
	struct sy_link_addr addr[WORLD_ITEMS];
	struct sy_route route[WORLD_ITEMS];
	struct sy_neigh neigh[WORLD_ITEMS];
	unsigned links, addrs, routes, neighs;
	unsigned synced;
	char refused[256];
	bool bulk[WORLD_BULK];
	unsigned bulk_count, bulk_told;
};

static struct world *world;

/* Replaces, adds or removes the object at the index found (or at the end). */
#define WORLD_PUT(array, count, index, object, gone)                                               \
	do {                                                                                       \
		if (gone) {                                                                        \
			assert_true((index) < (count));                                            \
			(array)[index] = (array)[--(count)];                                       \
		} else {                                                                           \
			assert_true((index) < WORLD_ITEMS);                                        \
			(array)[index] = *(object);                                                \
			(count) += (index) == (count);                                             \
		}                                                                                  \
	} while (0)

static void on_link(void *ctx, const struct sy_link *link, bool gone)
{
	struct world *w = ctx;
	unsigned i = 0;

	while (i < w->links && w->link[i].ifindex != link->ifindex)
		i++;
	WORLD_PUT(w->link, w->links, i, link, gone);
}

static void on_addr(void *ctx, const struct sy_link_addr *addr, bool gone)
{
	struct world *w = ctx;
	unsigned i = 0;

	while (i < w->addrs &&
	       !(w->addr[i].ifindex == addr->ifindex && w->addr[i].prefix_len == addr->prefix_len &&
	         sy_addr_equal(&w->addr[i].addr, &addr->addr)))
		i++;
	WORLD_PUT(w->addr, w->addrs, i, addr, gone);
}

static unsigned route_index(const struct world *w, const struct sy_addr *prefix, unsigned len)
{
	unsigned i = 0;

	while (i < w->routes &&
	       !(w->route[i].prefix_len == len && sy_addr_equal(&w->route[i].prefix, prefix)))
		i++;
	return i;
}

static void on_route(void *ctx, const struct sy_route *route, bool gone)
{
	struct world *w = ctx;
	unsigned i;

	if (sy_addr_is_v4(&route->prefix) && route->prefix.b[12] == 10 && route->prefix_len == 24) {
		i = route->prefix.b[13] * 256u + route->prefix.b[14];
		assert_true(w->bulk[i] || !gone);
		w->bulk_count += !gone - w->bulk[i];
		w->bulk[i] = !gone;
		w->bulk_told++;
		return;
	}
	i = route_index(w, &route->prefix, route->prefix_len);
	WORLD_PUT(w->route, w->routes, i, route, gone);
}

static void on_neigh(void *ctx, const struct sy_neigh *neigh, bool gone)
{
	struct world *w = ctx;
	unsigned i = 0;

	while (i < w->neighs && !(w->neigh[i].ifindex == neigh->ifindex &&
	                          sy_addr_equal(&w->neigh[i].addr, &neigh->addr)))
		i++;
	WORLD_PUT(w->neigh, w->neighs, i, neigh, gone);
}

static void on_synced(void *ctx)
{
	((struct world *)ctx)->synced++;
}

static void on_refused(void *ctx, const char *text)
{
	snprintf(((struct world *)ctx)->refused, sizeof(world->refused), "%s", text ? text : "");
}

/* ---- waiting --------------------------------------------------------------------------------- */

typedef bool (*condition)(const void *arg);

/* Serves the mirror until the condition holds. */
static void pump_until_at(condition holds, const void *arg, int line)
{
	const uint64_t end = sy_clock_ns() + SUPPORT_PATIENCE_MS * 1000000ull;

	while (!holds(arg)) {
		struct pollfd fd = {.fd = sy_mirror_fd(world->mirror), .events = POLLIN};

		if (sy_clock_ns() > end)
			fail_msg("what line %d waits for has not come", line);
		if (poll(&fd, 1, 100) > 0)
			assert_true(sy_mirror_process(world->mirror, world->budget) >= 0);
	}
}

#define pump_until(holds, arg) pump_until_at(holds, arg, __LINE__)

static bool world_synced(const void *arg)
{
	return world->synced >= *(const unsigned *)arg;
}

/* A route's first words, as `ip route` would write them: "via A dev B weight N, …", "blackhole",
 * "dead" (no hop lives) or "none". */
static void route_write(const char *prefix, unsigned len, char *out, size_t size)
{
	struct sy_addr addr = addr_of(prefix);
	unsigned i = route_index(world, &addr, len);
	const struct sy_route *r = &world->route[i];
	char via[SY_ADDR_TEXT], dev[IF_NAMESIZE];
	size_t at = 0;

	if (i == world->routes) {
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

struct expected_route {
	const char *prefix;
	unsigned len;
	const char *text;
};

static bool route_is(const void *arg)
{
	const struct expected_route *e = arg;
	char text[1024];

	route_write(e->prefix, e->len, text, sizeof(text));
	return strcmp(text, e->text) == 0;
}

#define expect_route(prefix, len, text)                                                            \
	pump_until(route_is, (&(struct expected_route){prefix, len, text}))

static bool refusal_has(const void *arg)
{
	const char *word = arg;

	return word ? strstr(world->refused, word) != NULL : !world->refused[0];
}

static const struct sy_link *link_named(const char *name)
{
	for (unsigned i = 0; i < world->links; i++)
		if (strcmp(world->link[i].name, name) == 0)
			return &world->link[i];
	return NULL;
}

struct link_state {
	const char *name;
	bool there, up;
};

static bool link_is(const void *arg)
{
	const struct link_state *s = arg;
	const struct sy_link *link = link_named(s->name);

	return s->there ? link && link->up == s->up : !link;
}

#define expect_link(name, there, up) pump_until(link_is, (&(struct link_state){name, there, up}))

/* ---- set-up ---------------------------------------------------------------------------------- */

static void mirror_start(void)
{
	struct sy_mirror_handler handler = {.ctx = world,
	                                    .link = on_link,
	                                    .addr = on_addr,
	                                    .route = on_route,
	                                    .neigh = on_neigh,
	                                    .synced = on_synced,
	                                    .refused = on_refused};
	struct sy_error err;

	assert_int_equal(sy_mirror_open(&handler, &world->mirror, &err), 0);
	pump_until(world_synced, (&(unsigned){1}));
}

static int far_ns, near_ns;

static int setup(void **state)
{
	world = calloc(1, sizeof(*world));
	world->budget = 64;
	far_ns = netns_new();
	near_ns = netns_new();
	veth_new("near0", "far0", far_ns);
	sh("ip addr add 192.0.2.1/24 dev near0; ip addr add 2001:db8::1/64 dev near0 nodad");
	netns_enter(far_ns);
	sh("ip addr add 192.0.2.2/24 dev far0; ip addr add 2001:db8::2/64 dev far0 nodad");
	netns_enter(near_ns);
	return 0;
}

static int teardown(void **state)
{
	sy_mirror_close(world->mirror);
	free(world);
	close(far_ns);
	close(near_ns);
	return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

struct expected_addr {
	const char *text;
	bool there;
};

static bool addr_is(const void *arg)
{
	const struct expected_addr *e = arg;
	struct sy_addr addr = addr_of(e->text);
	bool there = false;

	for (unsigned i = 0; i < world->addrs; i++)
		there |= sy_addr_equal(&world->addr[i].addr, &addr);
	return there == e->there;
}

static void test_links_and_addresses(void **state)
{
	const struct sy_link *link;

	mirror_start();
	link = link_named("near0");
	assert_non_null(link);
	assert_true(link->up);
	assert_string_equal(link->kind, "veth");
	assert_int_equal(link->mtu, 1500);
	assert_true(link->mac[0] & 2); /* locally administered, as veth draws them */
	assert_true(addr_is(&(struct expected_addr){"192.0.2.1", true}));
	assert_true(addr_is(&(struct expected_addr){"2001:db8::1", true}));

	sh("ip addr add 198.51.100.7/25 dev near0; ip addr del 2001:db8::1/64 dev near0");
	pump_until(addr_is, (&(struct expected_addr){"198.51.100.7", true}));
	pump_until(addr_is, (&(struct expected_addr){"2001:db8::1", false}));

	sh("ip link set near0 mtu 1400; ip link set near0 down");
	expect_link("near0", true, false);
	assert_int_equal(link_named("near0")->mtu, 1400);
	sh("ip link set near0 up");
	expect_link("near0", true, true);
	netns_enter(far_ns);
	sh("ip link set far0 down"); /* takes our carrier */
	netns_enter(near_ns);
	expect_link("near0", true, false);

	sh("ip link add br0 type bridge; ip link set near0 master br0");
	expect_link("br0", true, false);
	sh("ip link set near0 nomaster; ip link del br0");
	expect_link("br0", false, false);
	assert_non_null(link_named("near0")); /* leaving a bridge is no farewell */
	sh("ip link del near0");
	expect_link("near0", false, false);
	pump_until(addr_is, (&(struct expected_addr){"198.51.100.7", false}));
}

static void test_routes_of_both_families(void **state)
{
	struct sy_route found;
	struct sy_addr dst;

	sh("ip route add 203.0.113.0/24 via 192.0.2.2");
	mirror_start();
	expect_route("203.0.113.0", 24, "via 192.0.2.2 dev near0 weight 1");
	expect_route("192.0.2.0", 24, "via link dev near0 weight 1");
	expect_route("2001:db8::", 64, "via link dev near0 weight 1");
	/* table local stays with the kernel */
	expect_route("192.0.2.1", 32, "none");

	sh("ip -6 route add default via 2001:db8::2");
	expect_route("::", 0, "via 2001:db8::2 dev near0 weight 1");
	sh("ip -4 route add default via inet6 2001:db8::2 dev near0");
	expect_route("0.0.0.0", 0, "via 2001:db8::2 dev near0 weight 1");
	sh("ip route add blackhole 203.0.113.128/25; ip -6 route add unreachable 2001:db8:9::/48");
	expect_route("203.0.113.128", 25, "blackhole");
	expect_route("2001:db8:9::", 48, "blackhole");
	sh("ip route add 203.0.113.64/26 via 192.0.2.2 table 77");
	sh("ip route add 198.51.100.0/24 via 192.0.2.2 table default");
	expect_route("198.51.100.0", 24, "via 192.0.2.2 dev near0 weight 1");
	expect_route("203.0.113.64", 26, "none");

	dst = addr_of("203.0.113.200");
	assert_true(sy_mirror_lookup(world->mirror, &dst, &found));
	assert_true(found.blackhole);
	dst = addr_of("203.0.113.100");
	assert_true(sy_mirror_lookup(world->mirror, &dst, &found));
	assert_int_equal(found.prefix_len, 24);
	dst = addr_of("8.8.8.8");
	assert_true(sy_mirror_lookup(world->mirror, &dst, &found));
	assert_int_equal(found.prefix_len, 0);
	dst = addr_of("2001:db8:1::1");
	assert_true(sy_mirror_lookup(world->mirror, &dst, &found));
	assert_int_equal(found.prefix_len, 0);

	sh("ip -4 route del default; ip -6 route del default; ip route del 203.0.113.0/24");
	expect_route("0.0.0.0", 0, "none");
	expect_route("::", 0, "none");
	expect_route("203.0.113.0", 24, "none");
	dst = addr_of("8.8.8.8");
	assert_false(sy_mirror_lookup(world->mirror, &dst, &found));
}

static void test_metrics_and_alternates(void **state)
{
	mirror_start();
	sh("ip route add 203.0.113.0/24 via 192.0.2.30 metric 30");
	expect_route("203.0.113.0", 24, "via 192.0.2.30 dev near0 weight 1");
	sh("ip route add 203.0.113.0/24 via 192.0.2.10 metric 10");
	expect_route("203.0.113.0", 24, "via 192.0.2.10 dev near0 weight 1");
	sh("ip route add 203.0.113.0/24 via 192.0.2.5 table default metric 5");
	sh("ip route add 203.0.113.0/24 via 192.0.2.20 metric 20");
	sh("ip route del 203.0.113.0/24 metric 10");
	expect_route("203.0.113.0", 24, "via 192.0.2.20 dev near0 weight 1");
	/* same prefix, same metric: the first one wins */
	sh("ip route append 203.0.113.0/24 via 192.0.2.21 metric 20");
	sh("ip route prepend 203.0.113.0/24 via 192.0.2.19 metric 20");
	expect_route("203.0.113.0", 24, "via 192.0.2.19 dev near0 weight 1");
	sh("ip route del 203.0.113.0/24 via 192.0.2.19 metric 20");
	expect_route("203.0.113.0", 24, "via 192.0.2.20 dev near0 weight 1");
	sh("ip route del 203.0.113.0/24 via 192.0.2.20 metric 20");
	expect_route("203.0.113.0", 24, "via 192.0.2.21 dev near0 weight 1");
	sh("ip route replace 203.0.113.0/24 via 192.0.2.22 metric 20");
	expect_route("203.0.113.0", 24, "via 192.0.2.22 dev near0 weight 1");
	sh("ip route del 203.0.113.0/24 metric 20; ip route del 203.0.113.0/24 metric 30");
	expect_route("203.0.113.0", 24, "via 192.0.2.5 dev near0 weight 1");

	sh("ip -6 route add 2001:db8:5::/48 via 2001:db8::30 metric 30");
	sh("ip -6 route add 2001:db8:5::/48 via 2001:db8::10 metric 10");
	expect_route("2001:db8:5::", 48, "via 2001:db8::10 dev near0 weight 1");
	sh("ip -6 route del 2001:db8:5::/48 metric 10");
	expect_route("2001:db8:5::", 48, "via 2001:db8::30 dev near0 weight 1");
}

static void test_multipath(void **state)
{
	mirror_start();
	sh("ip route add 203.0.113.0/24 nexthop via 192.0.2.3 weight 2 nexthop via 192.0.2.2");
	expect_route("203.0.113.0", 24,
	             "via 192.0.2.2 dev near0 weight 1, via 192.0.2.3 dev near0 weight 2");
	sh("ip -6 route add 2001:db8:5::/48 nexthop via 2001:db8::2 nexthop via 2001:db8::3");
	expect_route("2001:db8:5::", 48,
	             "via 2001:db8::2 dev near0 weight 1, via 2001:db8::3 dev near0 weight 1");
	sh("ip -6 route append 2001:db8:5::/48 via 2001:db8::4");
	expect_route("2001:db8:5::", 48,
	             "via 2001:db8::2 dev near0 weight 1, via 2001:db8::3 dev near0 weight 1, "
	             "via 2001:db8::4 dev near0 weight 1");
	sh("ip -6 route del 2001:db8:5::/48 via 2001:db8::3");
	expect_route("2001:db8:5::", 48,
	             "via 2001:db8::2 dev near0 weight 1, via 2001:db8::4 dev near0 weight 1");
	sh("ip -6 route replace 2001:db8:5::/48 via 2001:db8::9");
	expect_route("2001:db8:5::", 48, "via 2001:db8::9 dev near0 weight 1");
	sh("ip -6 route del 2001:db8:5::/48");
	expect_route("2001:db8:5::", 48, "none");
}

static void test_nexthop_objects(void **state)
{
	mirror_start();
	sh("ip nexthop add id 1 via 192.0.2.7 dev near0; ip nexthop add id 2 via 192.0.2.8 dev "
	   "near0; ip nexthop add id 10 group 1/2,3");
	sh("ip route add 203.0.113.0/24 nhid 10");
	expect_route("203.0.113.0", 24,
	             "via 192.0.2.7 dev near0 weight 1, via 192.0.2.8 dev near0 weight 3");
	sh("ip nexthop del id 1");
	expect_route("203.0.113.0", 24, "via 192.0.2.8 dev near0 weight 1");
	sh("ip nexthop replace id 2 via 192.0.2.9 dev near0");
	expect_route("203.0.113.0", 24, "via 192.0.2.9 dev near0 weight 1");
	sh("ip nexthop del id 10");
	expect_route("203.0.113.0", 24, "none");

	sh("sysctl -qw net.ipv4.nexthop_compat_mode=0; ip route add 203.0.113.0/24 nhid 2");
	pump_until(refusal_has, "nexthop_compat_mode");
	sh("ip route del 203.0.113.0/24");
	pump_until(refusal_has, NULL);
}

static void test_link_down_takes_routes(void **state)
{
	veth_new("near1", "far1", far_ns);
	sh("ip addr add 198.51.100.1/24 dev near1");
	mirror_start();
	sh("ip route add 203.0.113.0/24 nexthop via 192.0.2.2 nexthop via 198.51.100.2");
	sh("ip route add 203.0.112.0/24 via 192.0.2.2 metric 5");
	sh("ip route add 203.0.112.0/24 via 198.51.100.2 metric 9");
	expect_route("203.0.113.0", 24,
	             "via 192.0.2.2 dev near0 weight 1, via 198.51.100.2 dev near1 weight 1");
	expect_route("203.0.112.0", 24, "via 192.0.2.2 dev near0 weight 1");
	/* carrier: the kernel only marks the hops */
	netns_enter(far_ns);
	sh("ip link set far0 down");
	netns_enter(near_ns);
	expect_route("203.0.113.0", 24, "via 198.51.100.2 dev near1 weight 1");
	expect_route("203.0.112.0", 24, "via 198.51.100.2 dev near1 weight 1");
	expect_route("192.0.2.0", 24, "dead");
	netns_enter(far_ns);
	sh("ip link set far0 up");
	netns_enter(near_ns);
	expect_route("203.0.112.0", 24, "via 192.0.2.2 dev near0 weight 1");
	expect_route("192.0.2.0", 24, "via link dev near0 weight 1");
	/* the switch: the kernel forgets the routes without a word */
	sh("ip link set near0 down");
	expect_route("203.0.113.0", 24, "via 198.51.100.2 dev near1 weight 1");
	expect_route("203.0.112.0", 24, "via 198.51.100.2 dev near1 weight 1");
	expect_route("192.0.2.0", 24, "none");
	expect_route("2001:db8::", 64, "none");
	sh("ip link set near0 up");
	expect_route("203.0.113.0", 24,
	             "via 192.0.2.2 dev near0 weight 1, via 198.51.100.2 dev near1 weight 1");
	/* the device: the kernel drops multipath routes whole */
	sh("ip link del near1");
	expect_route("203.0.113.0", 24, "none");
	expect_route("203.0.112.0", 24, "none");
}

static void test_source_address_takes_routes(void **state)
{
	sh("ip addr add 192.0.2.77/32 dev near0");
	mirror_start();
	sh("ip route add 203.0.113.0/24 via 192.0.2.2 src 192.0.2.77");
	expect_route("203.0.113.0", 24, "via 192.0.2.2 dev near0 weight 1");
	sh("ip addr del 192.0.2.77/32 dev near0");
	expect_route("203.0.113.0", 24, "none");
}

static void test_policy_routing_is_refused(void **state)
{
	mirror_start();
	assert_true(refusal_has(NULL));
	sh("ip rule add from 192.0.2.9 table 77 pref 100");
	pump_until(refusal_has, "IPv4 rule with priority 100");
	sh("ip rule del pref 100");
	pump_until(refusal_has, NULL);
	sh("ip -6 rule add fwmark 1 table 254 pref 32766");
	pump_until(refusal_has, "IPv6 rule with priority 32766");
	sh("ip -6 rule del fwmark 1 pref 32766");
	pump_until(refusal_has, NULL);
	sh("ip rule add iif lo table main pref 32766");
	pump_until(refusal_has, "IPv4 rule");
	sh("ip rule del iif lo pref 32766");
	pump_until(refusal_has, NULL);
	sh("ip route add 203.0.113.0/24 tos 0x10 via 192.0.2.2");
	pump_until(refusal_has, "tos");
	expect_route("203.0.113.0", 24, "none");
	sh("ip route del 203.0.113.0/24 tos 0x10");
	pump_until(refusal_has, NULL);
	sh("ip -6 route add 2001:db8:5::/48 from 2001:db8:6::/48 via 2001:db8::2");
	pump_until(refusal_has, "source");
	sh("ip -6 route del 2001:db8:5::/48 from 2001:db8:6::/48");
	pump_until(refusal_has, NULL);
}

static void test_policy_routing_from_before(void **state)
{
	sh("ip rule add to 192.0.2.9 table 77 pref 100");
	mirror_start();
	assert_non_null(strstr(world->refused, "ip rule del pref 100"));
}

static void test_vrf_is_refused(void **state)
{
	if (!sh_ok("ip link add vrf0 type vrf table 77 2>/dev/null"))
		skip(); /* a kernel without VRF */
	mirror_start();
	sh("ip link set near0 master vrf0");
	pump_until(refusal_has, "near0 belongs to a VRF");
	sh("ip link del vrf0; ip rule del pref 1000; ip -6 rule del pref 1000");
	pump_until(refusal_has, NULL);
}

/* ---- many routes, overruns ------------------------------------------------------------------- */

static void bulk_change(const char *verb, unsigned from, unsigned to)
{
	FILE *batch = popen("ip -force -batch -", "w");

	assert_non_null(batch);
	for (unsigned i = from; i < to; i++)
		fprintf(batch, "route %s 10.%u.%u.0/24 via 192.0.2.2\n", verb, i / 256, i % 256);
	assert_int_equal(pclose(batch), 0);
}

static bool bulk_is(const void *arg)
{
	return world->bulk_count == *(const unsigned *)arg;
}

static void assert_bulk(unsigned from, unsigned to)
{
	for (unsigned i = 0; i < WORLD_BULK; i++)
		assert_int_equal(world->bulk[i], i >= from && i < to);
}

static void test_overrun_tells_only_differences(void **state)
{
	bulk_change("add", 0, 4000);
	mirror_start();
	assert_bulk(0, 4000);
	assert_int_equal(world->bulk_told, 4000);
	assert_int_equal(sy_mirror_set_buffer(world->mirror, 4096), 0);

	/* Nobody reads meanwhile: nearly all of these events are lost. */
	bulk_change("del", 0, 1000);
	bulk_change("add", 4000, 7000);
	sh("ip addr add 198.51.100.7/25 dev near0; ip rule add to 192.0.2.9 table 77 pref 100");
	pump_until(world_synced, (&(unsigned){2}));
	pump_until(bulk_is, (&(unsigned){6000}));
	assert_bulk(1000, 7000);
	assert_int_equal(world->bulk_told, 4000 + 1000 + 3000);
	assert_true(addr_is(&(struct expected_addr){"198.51.100.7", true}));
	assert_true(refusal_has("priority 100"));
}

static void churn(void *arg)
{
	for (unsigned round = 0; round < 4; round++) {
		bulk_change("add", 2000, 6000);
		bulk_change("del", 2000, 6000);
	}
	bulk_change("del", 0, 500);
	bulk_change("add", 2000, 2500);
}

static bool child_gone(const void *arg)
{
	return waitpid(*(const int *)arg, NULL, WNOHANG) > 0;
}

static void test_changes_during_dumps(void **state)
{
	int child;

	bulk_change("add", 0, 2000);
	mirror_start();
	assert_int_equal(sy_mirror_set_buffer(world->mirror, 16384), 0);
	world->budget = 7;
	child = child_start(churn, NULL);
	pump_until(child_gone, &child);
	pump_until(bulk_is, (&(unsigned){2000}));
	assert_bulk(500, 2500);
}

static void test_budget_is_kept(void **state)
{
	bulk_change("add", 0, 3000);
	mirror_start();
	bulk_change("del", 0, 3000);
	while (world->bulk_count) {
		unsigned before = world->bulk_told;
		struct pollfd fd = {.fd = sy_mirror_fd(world->mirror), .events = POLLIN};
		int n;

		assert_int_equal(poll(&fd, 1, SUPPORT_PATIENCE_MS), 1);
		n = sy_mirror_process(world->mirror, 5);
		assert_in_range(n, 0, 5);
		assert_true(world->bulk_told - before <= 5);
	}
}

/* ---- neighbours ------------------------------------------------------------------------------ */

struct expected_neigh {
	const char *text;
	bool valid, failed;
};

static bool neigh_is(const void *arg)
{
	const struct expected_neigh *e = arg;
	struct sy_addr addr = addr_of(e->text);

	for (unsigned i = 0; i < world->neighs; i++)
		if (sy_addr_equal(&world->neigh[i].addr, &addr))
			return world->neigh[i].valid == e->valid &&
			       world->neigh[i].failed == e->failed;
	return !e->valid && !e->failed;
}

static bool neigh_is_managed(const char *text)
{
	/* iproute2 writes the extended flag since 5.16. */
	return sh_ok("ip -d neigh show %s dev near0 | grep -q managed", text);
}

static void test_neighbours_are_managed(void **state)
{
	int ifindex = (int)if_nametoindex("near0");
	struct sy_addr v4 = addr_of("192.0.2.2"), v6 = addr_of("2001:db8::2"),
	               nobody = addr_of("192.0.2.99");

	/* The kernel gives up after one probe of 20 ms. */
	sh("sysctl -qw net.ipv4.neigh.near0.mcast_solicit=1 net.ipv4.neigh.near0.retrans_time_ms="
	   "20");
	mirror_start();
	assert_int_equal(sy_mirror_neigh_manage(world->mirror, ifindex, &v4), 0);
	assert_int_equal(sy_mirror_neigh_manage(world->mirror, ifindex, &v6), 0);
	assert_int_equal(sy_mirror_neigh_manage(world->mirror, ifindex, &nobody), 0);
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", true, false}));
	pump_until(neigh_is, (&(struct expected_neigh){"2001:db8::2", true, false}));
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.99", false, true}));
	assert_true(neigh_is_managed("192.0.2.2"));
	assert_true(neigh_is_managed("2001:db8::2"));

	/* Flushed by hand or by the link's fall, it comes back by itself. */
	sh("ip neigh flush dev near0; ip neigh del 192.0.2.2 dev near0 2>/dev/null || true");
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", true, false}));
	sh("ip link set near0 down");
	expect_link("near0", true, false);
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", false, false}));
	sh("ip link set near0 up");
	expect_link("near0", true, true);
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", true, false}));
	assert_true(neigh_is_managed("192.0.2.2"));

	assert_int_equal(sy_mirror_neigh_release(world->mirror, ifindex, &v4), 0);
	assert_false(neigh_is_managed("192.0.2.2"));
	assert_int_equal(sy_mirror_neigh_release(world->mirror, ifindex, &v4), 0);
}

static void test_neighbour_changes_its_mac(void **state)
{
	struct sy_addr v4 = addr_of("192.0.2.2");
	static const uint8_t mac[6] = {2, 0, 0, 0, 0, 9};

	mirror_start();
	sh("ip neigh add 192.0.2.2 dev near0 lladdr 02:00:00:00:00:01 nud permanent");
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", true, false}));
	sh("ip neigh replace 192.0.2.2 dev near0 lladdr 02:00:00:00:00:09 nud permanent; "
	   "ip neigh add 192.0.2.3 dev near0 lladdr 02:00:00:00:00:03 nud permanent");
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.3", true, false}));
	for (unsigned i = 0; i < world->neighs; i++)
		if (sy_addr_equal(&world->neigh[i].addr, &v4))
			assert_memory_equal(world->neigh[i].mac, mac, sizeof(mac));
	sh("ip neigh del 192.0.2.2 dev near0");
	pump_until(neigh_is, (&(struct expected_neigh){"192.0.2.2", false, false}));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_links_and_addresses),
	        TEST(test_routes_of_both_families),
	        TEST(test_metrics_and_alternates),
	        TEST(test_multipath),
	        TEST(test_nexthop_objects),
	        TEST(test_link_down_takes_routes),
	        TEST(test_source_address_takes_routes),
	        TEST(test_policy_routing_is_refused),
	        TEST(test_policy_routing_from_before),
	        TEST(test_vrf_is_refused),
	        TEST(test_overrun_tells_only_differences),
	        TEST(test_changes_during_dumps),
	        TEST(test_budget_is_kept),
	        TEST(test_neighbours_are_managed),
	        TEST(test_neighbour_changes_its_mac),
	};

	return cmocka_run_group_tests_name("mirror", tests, NULL, NULL);
}
