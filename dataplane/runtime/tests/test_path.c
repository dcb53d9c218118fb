// SPDX-License-Identifier: Apache-2.0
/* Routes and the lifecycle of paths, compared with a plain list of routes. */
#include <stdlib.h>
#include <string.h>

#include "../route.h"
#include "runtime_fixture.h"

#define ROUTES   300
#define SESSIONS 400
#define STEPS    1500

struct model_route {
	bool used;
	struct sy_route route;
};

struct session {
	struct sy_addr dst;
	uint16_t path;
};

struct model {
	struct model_route route[ROUTES];
	struct session session[SESSIONS];
};

static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

static void addr_mask(struct sy_addr *a, unsigned bits)
{
	const unsigned whole = (bits + 7) / 8;
	if (bits % 8)
		a->b[bits / 8] &= (uint8_t)(0xff00 >> bits % 8);
	memset(&a->b[whole], 0, sizeof(a->b) - whole);
}

/* Only a few bits vary, so prefixes nest and addresses match them. */
static struct sy_addr draw_addr(bool v4)
{
	struct sy_addr a = addr(v4 ? "10.0.0.0" : "2001:db8::");
	if (v4) {
		a.b[13] = (uint8_t)draw(4);
		a.b[14] = (uint8_t)draw(4);
		a.b[15] = (uint8_t)(draw(4) * 64);
		return a;
	}
	a.b[4] = (uint8_t)draw(4);
	a.b[7] = (uint8_t)draw(4);
	a.b[12] = (uint8_t)draw(4);
	a.b[15] = (uint8_t)draw(4);
	return a;
}

static void draw_route(struct sy_route *out)
{
	bool v4 = draw(2);
	*out = (struct sy_route){.prefix = draw_addr(v4),
	                         .prefix_len = (uint8_t)draw(v4 ? 33 : 129)};
	addr_mask(&out->prefix, out->prefix_len + (v4 ? 96u : 0u));
	out->blackhole = draw(16) == 0;
	out->hop_count = out->blackhole ? 0 : (uint8_t)(1 + draw(3));
	for (unsigned i = 0; i < out->hop_count; i++) {
		out->hop[i] =
		        (struct sy_route_hop){.ifindex = -1, .weight = (uint8_t)(1 + draw(3))};
		out->hop[i].via = addr(v4 ? "192.0.2.0" : "fe80::");
		out->hop[i].via.b[15] = (uint8_t)(1 + draw(6));
	}
}

static const struct sy_route *model_lookup(const struct model *m, const struct sy_addr *dst)
{
	const struct sy_route *best = NULL;
	for (unsigned i = 0; i < ROUTES; i++) {
		const struct sy_route *r = &m->route[i].route;
		bool v4 = sy_addr_is_v4(dst);
		struct sy_addr masked = *dst;
		if (!m->route[i].used || sy_addr_is_v4(&r->prefix) != v4 ||
		    (best && r->prefix_len <= best->prefix_len))
			continue;
		addr_mask(&masked, r->prefix_len + (v4 ? 96u : 0u));
		if (sy_addr_equal(&masked, &r->prefix))
			best = r;
	}
	return best;
}

static void path_check(const struct sy_runtime *rt, uint16_t id, const struct sy_route *want)
{
	if (!want) {
		assert_int_equal(id, SY_PATH_NONE);
		return;
	}
	const struct path *p = path_get(rt, id);
	assert_int_not_equal(id, SY_PATH_NONE);
	assert_non_null(p);
	assert_int_equal(sy_path_is_blackhole(rt, id), want->blackhole);
	assert_int_equal(p->hops, want->hop_count);
	for (unsigned i = 0; i < p->hops; i++) {
		const struct adjacency *a = &rt->adjacencies->record[p->hop[i].adjacency];
		assert_true(sy_addr_equal(&a->addr, &want->hop[i].via));
	}
}

/* Path ids that sessions hold are right or stale; holders of stale ones look up again. */
static void sessions_visit(struct sy_runtime *rt, struct model *m)
{
	for (unsigned i = 0; i < SESSIONS; i++) {
		struct session *s = &m->session[i];
		if (sy_path_is_stale(rt, s->path))
			s->path = sy_path_lookup(rt, &s->dst);
		path_check(rt, s->path, model_lookup(m, &s->dst));
	}
}

static int find_prefix(const struct model *m, const struct sy_route *r)
{
	for (int i = 0; i < ROUTES; i++)
		if (m->route[i].used && m->route[i].route.prefix_len == r->prefix_len &&
		    sy_addr_equal(&m->route[i].route.prefix, &r->prefix))
			return i;
	return -1;
}

static void model_step(struct sy_runtime *rt, struct model *m)
{
	struct sy_route r;
	unsigned i = draw(ROUTES);
	if (m->route[i].used && draw(2)) {
		routes_apply(rt, &m->route[i].route, true);
		m->route[i].used = false;
		return;
	}
	draw_route(&r);
	int same = find_prefix(m, &r);
	if (same >= 0)
		i = (unsigned)same;
	else if (m->route[i].used)
		return;
	m->route[i] = (struct model_route){true, r};
	routes_apply(rt, &r, false);
}

static void sweep(struct sy_runtime *rt, struct model *m)
{
	uint32_t generation = sy_path_generation(rt);
	sessions_visit(rt, m);
	sy_path_sweep_done(rt, generation);
	rcu_poll(rt->rcu);
}

static unsigned nodes_used(const struct lpm *l)
{
	unsigned used = l->high - 1;
	for (uint32_t id = l->free; id; id = l->nodes[(size_t)id * 256])
		used--;
	return used;
}

static void test_random(void **state)
{
	struct sy_runtime *rt = *state;
	struct model *m = calloc(1, sizeof(*m));
	unsigned free_ids = rt->routes->path_free_count, free_groups = rt->routes->group_free_count;
	for (unsigned i = 0; i < SESSIONS; i++)
		m->session[i].dst = draw_addr(i % 2);
	for (unsigned step = 0; step < STEPS; step++) {
		for (unsigned n = 1 + draw(4); n; n--)
			model_step(rt, m);
		routes_flush(rt);
		sessions_visit(rt, m);
		if (draw(50) == 0)
			sweep(rt, m);
	}
	for (unsigned i = 0; i < ROUTES; i++)
		if (m->route[i].used)
			routes_apply(rt, &m->route[i].route, true);
	memset(m->route, 0, sizeof(m->route));
	routes_flush(rt);
	sweep(rt, m);
	assert_int_equal(rt->routes->path_free_count, free_ids);
	assert_int_equal(rt->routes->group_free_count, free_groups);
	assert_int_equal(nodes_used(&rt->routes->v4), 0);
	assert_int_equal(nodes_used(&rt->routes->v6), 0);
	for (unsigned i = 1; i < rt->adjacencies->high; i++)
		assert_int_equal(rt->adjacencies->record[i].refs, 0);
	free(m);
}

/* Id 0 means none. */
static unsigned ids_in_all(const struct sy_runtime *rt)
{
	return rt->options.path_half ? PATH_HALF : PATH_HALF - 1;
}

static struct sy_route route_via(const char *prefix, uint8_t len, const char *via)
{
	return (struct sy_route){.prefix = addr(prefix),
	                         .prefix_len = len,
	                         .hop_count = 1,
	                         .hop = {{.ifindex = -1, .via = addr(via), .weight = 1}}};
}

static void apply(struct sy_runtime *rt, const struct sy_route *r, bool gone)
{
	routes_apply(rt, r, gone);
	routes_flush(rt);
}

static void test_protocol(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_addr dst = addr("10.9.1.1");
	struct sy_route wide = route_via("10.0.0.0", 8, "192.0.2.1");
	struct sy_route narrow = route_via("10.9.0.0", 16, "192.0.2.2");
	apply(rt, &wide, false);
	uint16_t first = sy_path_lookup(rt, &dst);
	assert_false(sy_path_is_stale(rt, first));
	assert_int_equal(sy_path_mtu(rt, first), sy_port_mtu(rt, 0));

	wide = route_via("10.0.0.0", 8, "192.0.2.3"); /* another gateway: the id does not change */
	uint32_t generation = sy_path_generation(rt);
	apply(rt, &wide, false);
	assert_false(sy_path_is_stale(rt, first));
	assert_int_equal(sy_path_lookup(rt, &dst), first);
	assert_int_not_equal(sy_path_generation(rt), generation);
	path_check(rt, first, &wide);

	apply(rt, &narrow, false); /* more specific: stale, and both are found again */
	assert_true(sy_path_is_stale(rt, first));
	path_check(rt, sy_path_lookup(rt, &dst), &narrow);
	struct sy_addr other = addr("10.8.1.1");
	path_check(rt, sy_path_lookup(rt, &other), &wide);

	uint16_t second = sy_path_lookup(rt, &dst);
	routes_refuse(rt, true);
	assert_true(sy_path_is_stale(rt, second));
	assert_int_equal(sy_path_lookup(rt, &dst), SY_PATH_NONE);
	routes_refuse(rt, false);
	second = sy_path_lookup(rt, &dst);

	apply(rt, &narrow, true); /* remove the route */
	assert_true(sy_path_is_stale(rt, second));
	path_check(rt, sy_path_lookup(rt, &dst), &wide);
	apply(rt, &wide, true);
	assert_int_equal(sy_path_lookup(rt, &dst), SY_PATH_NONE);
	sy_path_sweep_done(rt, sy_path_generation(rt));
	rcu_poll(rt->rcu);
	assert_int_equal(rt->routes->path_free_count, ids_in_all(rt));
}

/* Changes outrun the sweep and ids run out: nothing breaks, and the next sweep repairs it. */
static void test_exhaustion(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_addr dst = addr("10.9.1.1");
	struct sy_route wide = route_via("10.0.0.0", 8, "192.0.2.1");
	struct sy_route narrow = route_via("10.9.0.0", 16, "192.0.2.2");
	apply(rt, &wide, false);
	for (unsigned i = 0; i < PATH_HALF; i++) {
		apply(rt, &narrow, false);
		apply(rt, &narrow, true);
	}
	assert_int_equal(rt->routes->path_free_count, 0);
	apply(rt, &narrow, false);
	sy_path_sweep_done(rt, sy_path_generation(rt));
	uint16_t path = sy_path_lookup(rt, &dst);
	assert_false(sy_path_is_stale(rt, path));
	path_check(rt, path, &narrow);
	apply(rt, &narrow, true);
	apply(rt, &wide, true);
	sy_path_sweep_done(rt, sy_path_generation(rt));
	rcu_poll(rt->rcu);
	assert_int_equal(rt->routes->path_free_count, ids_in_all(rt));
}

/* ---- lookups while routes change ------------------------------------------------------------- */

#define FLAPS 5000

static bool flapping;
static unsigned strangers; /* results that belong to another destination */

/* Destinations 10.1.1.1 and 10.2.2.2 belong to gateways 1x and 2x. */
static void *reader_main(void *ctx)
{
	const struct sy_runtime *rt = ctx;
	const struct sy_addr dst[2] = {addr("10.1.1.1"), addr("10.2.2.2")};
	for (unsigned i = 0; __atomic_load_n(&flapping, __ATOMIC_ACQUIRE); i ^= 1) {
		const struct path *p = path_get(rt, sy_path_lookup(rt, &dst[i]));
		const struct adjacency *a = &rt->adjacencies->record[p->hop[0].adjacency];
		if (a->addr.b[15] / 10 != i + 1)
			__atomic_fetch_add(&strangers, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* The long prefixes alternate, so each reuses the node that the other has freed. */
static void test_readers(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_route wide[2] = {route_via("10.1.1.0", 24, "192.0.2.10"),
	                           route_via("10.2.2.0", 24, "192.0.2.20")};
	struct sy_route narrow[2] = {route_via("10.1.1.0", 30, "192.0.2.11"),
	                             route_via("10.2.2.0", 30, "192.0.2.21")};
	pthread_t reader;
	apply(rt, &wide[0], false);
	apply(rt, &wide[1], false);
	flapping = true;
	assert_int_equal(pthread_create(&reader, NULL, reader_main, rt), 0);
	for (unsigned i = 0; i < FLAPS; i++) {
		apply(rt, &narrow[i % 2], false);
		apply(rt, &narrow[i % 2], true);
	}
	__atomic_store_n(&flapping, false, __ATOMIC_RELEASE);
	pthread_join(reader, NULL);
	assert_int_equal(strangers, 0);
	apply(rt, &wide[0], true);
	apply(rt, &wide[1], true);
	sy_path_sweep_done(rt, sy_path_generation(rt));
	rcu_poll(rt->rcu);
	assert_int_equal(rt->routes->path_free_count, ids_in_all(rt));
}

static void test_weights(void **state)
{
	struct sy_runtime *rt = *state;
	struct sy_route r = route_via("10.0.0.0", 8, "192.0.2.1");
	unsigned count[2] = {0};
	r.hop_count = 2;
	r.hop[1] = r.hop[0];
	r.hop[1].via = addr("192.0.2.2");
	r.hop[1].weight = 3;
	apply(rt, &r, false);
	struct sy_addr dst = addr("10.1.1.1");
	const struct path *p = path_get(rt, sy_path_lookup(rt, &dst));
	for (unsigned i = 0; i < PATH_PICKS; i++)
		count[p->pick[i]]++;
	assert_int_equal(count[0], PATH_PICKS / 4);
	assert_int_equal(count[1], PATH_PICKS * 3 / 4);
	apply(rt, &r, true);
}

/* Every id comes from the process's own half. Ids of the other half are always stale. */
static void test_halves(void **state)
{
	struct sy_runtime *rt = *state;
	unsigned half = rt->options.path_half;
	struct sy_addr dst = addr("10.9.1.1");
	struct sy_route narrow = route_via("10.9.0.0", 16, "192.0.2.2");
	bool *seen = calloc(PATHS, sizeof(*seen));
	unsigned different = 0;
	for (unsigned i = 0; i < 2 * PATH_HALF; i++) {
		apply(rt, &narrow, false);
		uint16_t id = sy_path_lookup(rt, &dst);
		assert_int_equal(id / PATH_HALF, half);
		assert_int_not_equal(id, SY_PATH_NONE);
		different += !seen[id];
		seen[id] = true;
		apply(rt, &narrow, true);
		if (i % 1024 == 0)
			sy_path_sweep_done(rt, sy_path_generation(rt));
	}
	assert_int_equal(different, ids_in_all(rt));
	for (unsigned id = 0; id < PATH_HALF; id++)
		assert_true(sy_path_is_stale(rt, (uint16_t)(id + !half * PATH_HALF)));
	sy_path_sweep_done(rt, sy_path_generation(rt));
	rcu_poll(rt->rcu);
	assert_int_equal(rt->routes->path_free_count, ids_in_all(rt));
	free(seen);
}

static int setup(void **state, unsigned half)
{
	struct sy_runtime_options o;
	options_init(&o, 1);
	ring_port_add(&o, half ? "upper" : "lower");
	o.path_half = half;
	*state = runtime_open(&o);
	return 0;
}

static int setup_lower(void **state)
{
	return setup(state, 0);
}

static int setup_upper(void **state)
{
	return setup(state, 1);
}

static int teardown(void **state)
{
	sy_runtime_close(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest lower[] = {
	        cmocka_unit_test(test_protocol),   cmocka_unit_test(test_random),
	        cmocka_unit_test(test_readers),    cmocka_unit_test(test_weights),
	        cmocka_unit_test(test_exhaustion), cmocka_unit_test(test_halves),
	};
	const struct CMUnitTest upper[] = {
	        cmocka_unit_test(test_protocol),
	        cmocka_unit_test(test_exhaustion),
	        cmocka_unit_test(test_halves),
	};
	return cmocka_run_group_tests(lower, setup_lower, teardown) +
	       cmocka_run_group_tests(upper, setup_upper, teardown);
}
