// SPDX-License-Identifier: Apache-2.0
/*
 * Routes: one node per prefix, with its alternates in the kernel's order of preference: main table
 * first, then the lowest metric, then the order of insertion. The handler gets only the best one.
 * Comparing the best before and after detects a change.
 */
#include "mirror_store.h"

#include <linux/rtnetlink.h>
#include <stdlib.h>

struct route_alt {
	struct route_alt *next;
	uint32_t table, metric, unsupported_id;
	uint8_t gen, unsupported, hop_count;
	bool blackhole, by_object;
	struct route_hop hop[];
};

struct route_node {
	struct table_node node;
	struct sy_addr prefix;
	uint8_t prefix_len;
	struct route_alt *first;
};

static enum store_kind route_kind(bool v6)
{
	return v6 ? KIND_ROUTE6 : KIND_ROUTE4;
}

static struct route_node *node_find(const struct store *s, const struct sy_addr *prefix,
                                    uint8_t prefix_len, uint32_t hash)
{
	for (struct table_node *n = table_chain(&s->routes, hash); n; n = n->next) {
		struct route_node *at = (struct route_node *)n;

		if (at->node.hash == hash && at->prefix_len == prefix_len &&
		    sy_addr_equal(&at->prefix, prefix))
			return at;
	}
	return NULL;
}

/* ---- alternates ------------------------------------------------------------------------------ */

static int alt_compare(const struct route_alt *alt, const struct route_msg *msg)
{
	if (alt->table != msg->table)
		return alt->table == RT_TABLE_MAIN ? -1 : 1;
	if (alt->metric != msg->metric)
		return alt->metric < msg->metric ? -1 : 1;
	if (alt->unsupported_id != msg->unsupported_id)
		return alt->unsupported_id < msg->unsupported_id ? -1 : 1;
	return 0;
}

static bool hop_equal(const struct route_hop *a, const struct route_hop *b)
{
	return a->ifindex == b->ifindex && sy_addr_equal(&a->via, &b->via);
}

/* Does the message name this alternate? IPv6 has no two routes with a common hop under one key, and
 * reports removed hops of an ECMP route one by one. An IPv4 route includes all its hops. */
static bool alt_is(const struct route_alt *alt, const struct route_msg *msg)
{
	if (alt->blackhole != msg->blackhole)
		return false;
	if (!alt->hop_count && !msg->hop_count)
		return true;
	if (!msg->v6 && alt->hop_count != msg->hop_count)
		return false;
	if (!msg->v6) {
		for (unsigned i = 0; i < alt->hop_count; i++)
			if (!hop_equal(&alt->hop[i], &msg->hop[i]) ||
			    alt->hop[i].weight != msg->hop[i].weight)
				return false;
		return true;
	}
	for (unsigned i = 0; i < alt->hop_count; i++)
		for (unsigned k = 0; k < msg->hop_count; k++)
			if (hop_equal(&alt->hop[i], &msg->hop[k]))
				return true;
	return false;
}

static void alt_policy_add(struct store *s, const struct route_alt *alt,
                           const struct route_msg *msg)
{
	s->policies_changed |= alt->unsupported != ROUTE_PLAIN;
	if (alt->unsupported != ROUTE_BY_TOS && alt->unsupported != ROUTE_BY_SOURCE)
		return;
	if (s->policies == STORE_POLICIES) {
		s->policies_lost++;
		return;
	}
	s->policy[s->policies].route = alt;
	route_policy(msg, &s->policy[s->policies++].policy);
}

static void alt_policy_remove(struct store *s, const struct route_alt *alt)
{
	s->policies_changed |= alt->unsupported != ROUTE_PLAIN;
	if (alt->unsupported != ROUTE_BY_TOS && alt->unsupported != ROUTE_BY_SOURCE)
		return;
	for (unsigned i = 0; i < s->policies; i++) {
		if (s->policy[i].route == alt) {
			s->policy[i] = s->policy[--s->policies];
			return;
		}
	}
	s->policies_lost--;
}

static struct route_alt *alt_new(struct store *s, const struct route_msg *msg)
{
	size_t hops = msg->hop_count * sizeof(msg->hop[0]);
	struct route_alt *alt = malloc(sizeof(*alt) + hops);

	if (!alt) {
		s->out_of_memory = true;
		return NULL;
	}
	*alt = (struct route_alt){
	        .table = msg->table,
	        .metric = msg->metric,
	        .unsupported_id = msg->unsupported_id,
	        .gen = s->gen[route_kind(msg->v6)],
	        .unsupported = (uint8_t)msg->unsupported,
	        .hop_count = msg->hop_count,
	        .blackhole = msg->blackhole,
	        .by_object = msg->by_object,
	};
	memcpy(alt->hop, msg->hop, hops);
	s->unsupported_routes[alt->unsupported]++;
	s->object_routes += alt->by_object;
	alt_policy_add(s, alt, msg);
	return alt;
}

static void alt_unlink(struct store *s, struct route_alt **link)
{
	struct route_alt *alt = *link;

	*link = alt->next;
	s->unsupported_routes[alt->unsupported]--;
	s->object_routes -= alt->by_object;
	alt_policy_remove(s, alt);
	free(alt);
}

/* ---- the best of a prefix -------------------------------------------------------------------- */

static unsigned alt_live_hops(const struct route_alt *alt)
{
	unsigned live = 0;

	for (unsigned i = 0; i < alt->hop_count; i++)
		live += !alt->hop[i].dead;
	return live;
}

/* Chooses the first alternate with a live hop or a blackhole; otherwise the first one, without
 * hops. Also without hops if only the kernel can send its packets. Packets outside a policy follow
 * the plain alternates. */
static bool node_best(const struct route_node *node, struct sy_route *out)
{
	const struct route_alt *best = NULL;

	for (const struct route_alt *alt = node->first; alt; alt = alt->next) {
		if (alt->unsupported == ROUTE_BY_TOS || alt->unsupported == ROUTE_BY_SOURCE)
			continue;
		if (!best)
			best = alt;
		if (alt->unsupported != ROUTE_PLAIN)
			break;
		if (alt->blackhole || alt_live_hops(alt)) {
			best = alt;
			break;
		}
	}
	if (!best)
		return false;
	out->prefix = node->prefix;
	out->prefix_len = node->prefix_len;
	out->blackhole = best->blackhole;
	out->metric = best->metric;
	out->hop_count = 0;
	for (unsigned i = 0; best->unsupported == ROUTE_PLAIN && i < best->hop_count; i++)
		if (!best->hop[i].dead)
			out->hop[out->hop_count++] =
			        (struct sy_route_hop){.ifindex = best->hop[i].ifindex,
			                              .via = best->hop[i].via,
			                              .weight = best->hop[i].weight};
	return true;
}

static bool route_equal(const struct sy_route *a, const struct sy_route *b)
{
	if (a->blackhole != b->blackhole || a->metric != b->metric || a->hop_count != b->hop_count)
		return false;
	for (unsigned i = 0; i < a->hop_count; i++)
		if (a->hop[i].ifindex != b->hop[i].ifindex ||
		    a->hop[i].weight != b->hop[i].weight ||
		    !sy_addr_equal(&a->hop[i].via, &b->hop[i].via))
			return false;
	return true;
}

/* Ends a change of a node: removes it if it is empty, and reports a difference from `before`. */
static void node_settle(struct store *s, struct route_node *node, bool v6, bool had,
                        const struct sy_route *before)
{
	struct sy_route after;
	bool has = node_best(node, &after);

	if (!node->first) {
		table_remove(&s->routes, &node->node);
		s->prefixes[v6][node->prefix_len]--;
		free(node);
	}
	if (!s->handler.route)
		return;
	if (has && !(had && route_equal(before, &after)))
		s->handler.route(s->handler.ctx, &after, false);
	else if (had && !has)
		s->handler.route(s->handler.ctx, before, true);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* First alternate of the message's key, or the place for it. */
static struct route_alt **run_begin(struct route_node *node, const struct route_msg *msg)
{
	struct route_alt **link = &node->first;

	while (*link && alt_compare(*link, msg) < 0)
		link = &(*link)->next;
	return link;
}

static unsigned run_length(struct route_alt *const *link, const struct route_msg *msg)
{
	unsigned n = 0;

	for (struct route_alt *alt = *link; alt && alt_compare(alt, msg) == 0; alt = alt->next)
		n++;
	return n;
}

/* Removes the message's alternates. Returns the place of the first one; NULL: there was none. */
static struct route_alt **run_remove(struct store *s, struct route_node *node,
                                     const struct route_msg *msg)
{
	struct route_alt **link = run_begin(node, msg), **first = NULL;

	while (*link && alt_compare(*link, msg) == 0) {
		if (alt_is(*link, msg)) {
			alt_unlink(s, link);
			first = first ? first : link;
		} else {
			link = &(*link)->next;
		}
	}
	return first;
}

/*
 * Place for the message's alternate. A dump confirms alternates in the kernel's order: each one
 * goes after those already confirmed, and those that the dump leaves out remain for the sweep.
 */
static struct route_alt **run_place(struct route_node *node, const struct route_msg *msg,
                                    enum route_change how, uint8_t gen)
{
	struct route_alt **link = run_begin(node, msg), **place = link;

	if (how == ROUTE_PREPENDED)
		return link;
	for (; *link && alt_compare(*link, msg) == 0; link = &(*link)->next)
		if (how == ROUTE_APPENDED || (*link)->gen == gen)
			place = &(*link)->next;
	return place;
}

/* Removes the message's hops (IPv6) or the whole route. True if nothing is left of it. */
static bool alt_subtract(struct store *s, struct route_alt **link, const struct route_msg *msg)
{
	struct route_alt *alt = *link;
	unsigned kept = 0;

	for (unsigned i = 0; i < alt->hop_count; i++) {
		bool leaves = false;

		for (unsigned k = 0; k < msg->hop_count; k++)
			leaves |= hop_equal(&alt->hop[i], &msg->hop[k]);
		if (!leaves)
			alt->hop[kept++] = alt->hop[i];
	}
	alt->hop_count = (uint8_t)kept;
	if (!kept)
		alt_unlink(s, link);
	return !kept;
}

/* Removes the message's alternate. True if the key is known, but not this alternate. */
static bool run_delete(struct store *s, struct route_node *node, const struct route_msg *msg)
{
	struct route_alt **link = run_begin(node, msg);
	bool known = false, found = false;

	while (*link && alt_compare(*link, msg) == 0) {
		bool hit = alt_is(*link, msg);

		known = true;
		found |= hit;
		if (!hit || !alt_subtract(s, link, msg))
			link = &(*link)->next;
		if (hit && !msg->v6)
			break;
	}
	return known && !found;
}

static struct route_node *node_new(struct store *s, const struct route_msg *msg, uint32_t hash)
{
	struct route_node *node = calloc(1, sizeof(*node));

	if (!node) {
		s->out_of_memory = true;
		return NULL;
	}
	node->prefix = msg->prefix;
	node->prefix_len = msg->prefix_len;
	table_insert(&s->routes, &node->node, hash);
	s->prefixes[msg->v6][msg->prefix_len]++;
	return node;
}

/* Puts the alternate in its place and removes its old version. True: see store_route(). */
static bool node_put(struct store *s, struct route_node *node, const struct route_msg *msg,
                     enum route_change how)
{
	struct route_alt *alt = alt_new(s, msg), **place = NULL;
	bool ambiguous = false;

	if (!alt)
		return false;
	if (how == ROUTE_REPLACED) {
		place = run_begin(node, msg);
		ambiguous = run_length(place, msg) > 1;
		if (*place && alt_compare(*place, msg) == 0)
			alt_unlink(s, place);
	} else {
		place = run_remove(s, node, msg);
	}
	if (!place || how == ROUTE_DUMPED)
		place = run_place(node, msg, how, alt->gen);
	alt->next = *place;
	*place = alt;
	return ambiguous;
}

bool store_route(struct store *s, const struct route_msg *msg, enum route_change how)
{
	uint32_t hash = store_hash(s, &msg->prefix, msg->prefix_len);
	struct route_node *node = node_find(s, &msg->prefix, msg->prefix_len, hash);
	struct sy_route before;
	bool had, ambiguous;

	if (!node && how == ROUTE_DELETED)
		return false;
	if (!node)
		node = node_new(s, msg, hash);
	if (!node)
		return false;
	had = node_best(node, &before);
	if (how == ROUTE_DELETED)
		ambiguous = run_delete(s, node, msg);
	else
		ambiguous = node_put(s, node, msg, how);
	node_settle(s, node, msg->v6, had, &before);
	return ambiguous;
}

void route_sweep_bucket(struct store *s, struct table_node *first, bool v6)
{
	uint8_t gen = s->gen[route_kind(v6)];

	for (struct table_node *n = first, *next; n; n = next) {
		struct route_node *node = (struct route_node *)n;
		struct route_alt **link = &node->first;
		struct sy_route before;
		bool had;

		next = n->next;
		if (sy_addr_is_v4(&node->prefix) == v6)
			continue;
		had = node_best(node, &before);
		while (*link) {
			if ((*link)->gen != gen)
				alt_unlink(s, link);
			else
				link = &(*link)->next;
		}
		node_settle(s, node, v6, had, &before);
	}
}

void route_free_all(struct store *s)
{
	for (uint32_t i = 0; i < s->routes.buckets; i++)
		for (struct table_node *n = s->routes.bucket[i]; n; n = n->next)
			while (((struct route_node *)n)->first)
				alt_unlink(s, &((struct route_node *)n)->first);
}

/* ---- look-up --------------------------------------------------------------------------------- */

static void addr_mask(struct sy_addr *a, unsigned bits)
{
	for (unsigned i = 0; i < 16; i++) {
		unsigned keep = bits > i * 8 ? bits - i * 8 : 0;

		if (keep < 8)
			a->b[i] &= (uint8_t)(0xff00 >> keep);
	}
}

bool store_lookup(const struct store *s, const struct sy_addr *dst, struct sy_route *out)
{
	bool v6 = !sy_addr_is_v4(dst);
	struct sy_addr prefix = *dst;

	for (int len = v6 ? 128 : 32; len >= 0; len--) {
		const struct route_node *node;

		if (!s->prefixes[v6][len])
			continue;
		addr_mask(&prefix, (unsigned)len + (v6 ? 0 : 96));
		node = node_find(s, &prefix, (uint8_t)len, store_hash(s, &prefix, (uint32_t)len));
		if (node && node_best(node, out))
			return true;
	}
	return false;
}
