// SPDX-License-Identifier: Apache-2.0
#include "mirror_store.h"

#include <errno.h>
#include <stdlib.h>

struct link_entry {
	struct table_node node;
	uint8_t gen;
	struct sy_link link;
};

struct addr_entry {
	struct table_node node;
	uint8_t gen;
	struct sy_link_addr addr;
};

struct neigh_entry {
	struct table_node node;
	uint8_t gen;
	struct sy_neigh neigh;
};

int store_init(struct store *s, const struct sy_mirror_handler *handler)
{
	int rc;

	memset(s, 0, sizeof(*s));
	s->handler = *handler;
	rc = sy_hash_key_random(&s->key);
	if (rc == 0 && (table_init(&s->links) || table_init(&s->addrs) || table_init(&s->routes) ||
	                table_init(&s->neighs)))
		rc = -ENOMEM;
	if (rc)
		store_fini(s);
	return rc;
}

/* Frees nodes that begin with their table_node. */
static void table_free_all(struct table *t)
{
	for (uint32_t i = 0; i < t->buckets; i++) {
		for (struct table_node *node = t->bucket[i], *next; node; node = next) {
			next = node->next;
			free(node);
		}
	}
	table_fini(t);
}

void store_fini(struct store *s)
{
	route_free_all(s);
	table_free_all(&s->routes);
	table_free_all(&s->links);
	table_free_all(&s->addrs);
	table_free_all(&s->neighs);
}

/* Allocates a zeroed object that begins with its table_node, and inserts it in the table. */
static void *entry_new(struct store *s, struct table *t, size_t size, uint32_t hash)
{
	struct table_node *node = calloc(1, size);

	if (!node)
		s->out_of_memory = true;
	else
		table_insert(t, node, hash);
	return node;
}

/* ---- links ----------------------------------------------------------------------------------- */

static uint32_t link_hash(const struct store *s, int ifindex)
{
	return store_hash(s, &(struct sy_addr){0}, (uint32_t)ifindex);
}

static struct link_entry *link_find(const struct store *s, int ifindex)
{
	struct table_node *node = table_chain(&s->links, link_hash(s, ifindex));

	for (; node; node = node->next)
		if (((struct link_entry *)node)->link.ifindex == ifindex)
			return (struct link_entry *)node;
	return NULL;
}

static void link_drop(struct store *s, struct link_entry *e)
{
	table_remove(&s->links, &e->node);
	s->vrf_members -= e->link.vrf_member;
	if (s->handler.link)
		s->handler.link(s->handler.ctx, &e->link, true);
	free(e);
}

static bool link_equal(const struct sy_link *a, const struct sy_link *b)
{
	return strcmp(a->name, b->name) == 0 && memcmp(a->mac, b->mac, sizeof(a->mac)) == 0 &&
	       a->mtu == b->mtu && a->up == b->up && a->master == b->master &&
	       a->lower == b->lower && a->vrf_member == b->vrf_member &&
	       strcmp(a->kind, b->kind) == 0;
}

bool store_link(struct store *s, const struct sy_link *link, bool gone)
{
	struct link_entry *e = link_find(s, link->ifindex);
	bool flipped;

	if (gone) {
		if (e)
			link_drop(s, e);
		return e != NULL;
	}
	flipped = !e || e->link.up != link->up;
	if (!e)
		e = entry_new(s, &s->links, sizeof(*e), link_hash(s, link->ifindex));
	if (!e)
		return false;
	e->gen = s->gen[KIND_LINK];
	if (e->link.ifindex && link_equal(&e->link, link))
		return false;
	s->vrf_members += (unsigned)link->vrf_member - e->link.vrf_member;
	e->link = *link;
	if (s->handler.link)
		s->handler.link(s->handler.ctx, link, false);
	return flipped;
}

const struct sy_link *store_find_link(const struct store *s, int ifindex)
{
	const struct link_entry *e = link_find(s, ifindex);

	return e ? &e->link : NULL;
}

const struct sy_link *store_find_vrf_member(const struct store *s,
                                            bool (*uses)(void *ctx, const char *name), void *ctx)
{
	for (uint32_t i = 0; s->vrf_members && i < s->links.buckets; i++)
		for (struct table_node *node = s->links.bucket[i]; node; node = node->next)
			if (((struct link_entry *)node)->link.vrf_member &&
			    (!uses || uses(ctx, ((struct link_entry *)node)->link.name)))
				return &((struct link_entry *)node)->link;
	return NULL;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void addr_drop(struct store *s, struct addr_entry *e)
{
	table_remove(&s->addrs, &e->node);
	if (s->handler.addr)
		s->handler.addr(s->handler.ctx, &e->addr, true);
	free(e);
}

void store_addr(struct store *s, const struct sy_link_addr *addr, bool gone)
{
	uint32_t hash = store_hash(s, &addr->addr, (uint32_t)addr->ifindex);
	struct addr_entry *e = NULL;

	for (struct table_node *n = table_chain(&s->addrs, hash); n && !e; n = n->next) {
		struct addr_entry *at = (struct addr_entry *)n;

		if (at->addr.ifindex == addr->ifindex && at->addr.prefix_len == addr->prefix_len &&
		    sy_addr_equal(&at->addr.addr, &addr->addr))
			e = at;
	}
	if (gone) {
		if (e)
			addr_drop(s, e);
		return;
	}
	if (e) {
		e->gen = s->gen[KIND_ADDR];
		return;
	}
	e = entry_new(s, &s->addrs, sizeof(*e), hash);
	if (!e)
		return;
	e->gen = s->gen[KIND_ADDR];
	e->addr = *addr;
	if (s->handler.addr)
		s->handler.addr(s->handler.ctx, addr, false);
}

/* ---- neighbours ------------------------------------------------------------------------------ */

static void neigh_drop(struct store *s, struct neigh_entry *e)
{
	table_remove(&s->neighs, &e->node);
	if (s->handler.neigh)
		s->handler.neigh(s->handler.ctx, &e->neigh, true);
	free(e);
}

static struct neigh_entry *neigh_find(const struct store *s, int ifindex,
                                      const struct sy_addr *addr)
{
	uint32_t hash = store_hash(s, addr, (uint32_t)ifindex);

	for (struct table_node *n = table_chain(&s->neighs, hash); n; n = n->next) {
		struct neigh_entry *at = (struct neigh_entry *)n;

		if (at->neigh.ifindex == ifindex && sy_addr_equal(&at->neigh.addr, addr))
			return at;
	}
	return NULL;
}

const struct sy_neigh *store_find_neigh(const struct store *s, int ifindex,
                                        const struct sy_addr *addr)
{
	const struct neigh_entry *e = neigh_find(s, ifindex, addr);

	return e ? &e->neigh : NULL;
}

void store_neigh(struct store *s, const struct sy_neigh *neigh, bool gone)
{
	struct neigh_entry *e = neigh_find(s, neigh->ifindex, &neigh->addr);

	if (gone) {
		if (e)
			neigh_drop(s, e);
		return;
	}
	if (!e)
		e = entry_new(s, &s->neighs, sizeof(*e),
		              store_hash(s, &neigh->addr, (uint32_t)neigh->ifindex));
	if (!e)
		return;
	e->gen = s->gen[KIND_NEIGH];
	if (e->neigh.ifindex && e->neigh.valid == neigh->valid &&
	    e->neigh.failed == neigh->failed &&
	    memcmp(e->neigh.mac, neigh->mac, sizeof(neigh->mac)) == 0)
		return;
	e->neigh = *neigh;
	if (s->handler.neigh)
		s->handler.neigh(s->handler.ctx, neigh, false);
}

/* ---- sweep ----------------------------------------------------------------------------------- */

static struct table *sweep_table(struct store *s, enum store_kind kind)
{
	switch (kind) {
	case KIND_LINK:
		return &s->links;
	case KIND_ADDR:
		return &s->addrs;
	case KIND_ROUTE4:
	case KIND_ROUTE6:
		return &s->routes;
	case KIND_NEIGH:
		return &s->neighs;
	default:
		return NULL; /* rules are not stored */
	}
}

bool store_sweep(struct store *s, enum store_kind kind, uint32_t *bucket)
{
	struct table *t = sweep_table(s, kind);
	struct table_node *node, *next;

	if (!t)
		return false;
	node = t->bucket[*bucket];
	if (kind == KIND_ROUTE4 || kind == KIND_ROUTE6) {
		route_sweep_bucket(s, node, kind == KIND_ROUTE6);
		node = NULL;
	}
	for (; node; node = next) {
		next = node->next;
		if (kind == KIND_LINK && ((struct link_entry *)node)->gen != s->gen[kind])
			link_drop(s, (struct link_entry *)node);
		else if (kind == KIND_ADDR && ((struct addr_entry *)node)->gen != s->gen[kind])
			addr_drop(s, (struct addr_entry *)node);
		else if (kind == KIND_NEIGH && ((struct neigh_entry *)node)->gen != s->gen[kind])
			neigh_drop(s, (struct neigh_entry *)node);
	}
	return ++*bucket < t->buckets;
}
