// SPDX-License-Identifier: Apache-2.0
/* Common parts of all schedulers: pools, names, hashes, shared tables. */
#include "scheduler.h"

#include <stdlib.h>

const struct scheduler_ops *scheduler_find(uint32_t number)
{
	static const struct scheduler_ops *const by_number[SCHEDULERS + 1] = {NULL,
	                                                                      &scheduler_rr,
	                                                                      &scheduler_wrr,
	                                                                      &scheduler_lc,
	                                                                      &scheduler_wlc,
	                                                                      &scheduler_sed,
	                                                                      &scheduler_sh,
	                                                                      &scheduler_maglev,
	                                                                      &scheduler_conhash,
	                                                                      &scheduler_share,
	                                                                      &scheduler_p2c};
	return number <= SCHEDULERS ? by_number[number] : NULL;
}

/* ---- hashes: unkeyed, as two forwarders must agree ------------------------------------------- */

static uint64_t hash_addr(const struct sy_addr *a, uint16_t port)
{
	uint64_t h = sy_hash_mix(a->d[0] ^ 0x2d358dccaa6c78a5, a->d[1] ^ 0x8bb84b93962eacc9);
	return sy_hash_mix(h ^ 0x4b33a62ed433d4a3, port ^ 0x4d5a2da51de1aa47);
}

uint64_t scheduler_name(const struct sy_addr *addr, uint16_t port)
{
	return hash_addr(addr, port);
}

/* Mixed again: a client may have a server's address. */
uint64_t scheduler_hash(const struct sy_addr *client, uint16_t port, bool with_port)
{
	return hash_next(hash_addr(client, with_port ? port : 0));
}

/* ---- pools ----------------------------------------------------------------------------------- */

struct pool *pool_create(const struct scheduler_ops *ops, uint32_t capacity)
{
	struct pool *p = calloc(1, sizeof(*p) + capacity * sizeof(p->candidate[0]));
	if (p)
		p->ops = ops;
	return p;
}

void pool_add(struct pool *p, uint32_t server, uint64_t name, uint16_t weight, uint16_t share,
              uint32_t limit)
{
	if (weight == 0)
		return;
	p->candidate[p->members++] = (struct candidate){
	        .server = server,
	        .limit = limit,
	        .full = p->ops->by_weight ? weight : 1,
	        .part = USE_ALL / SHARES * share,
	        .share = share,
	        .name = name,
	};
	p->eligible += share > 0;
}

void pool_measure(struct pool *p, uint32_t server, uint64_t name, uint16_t weight,
                  uint32_t measured, uint16_t share, uint32_t limit)
{
	pool_add(p, server, name, weight, share, limit);
	if (weight == 0 || !p->ops->by_weight)
		return;
	p->measured = true;
	struct candidate *c = &p->candidate[p->members - 1];
	if (p->ops->by_table) {
		uint64_t all = (uint64_t)p->ceiling * weight;
		uint64_t part = c->part * (uint64_t)measured / (all > 0 ? all : 1);
		c->part = part == 0 && share > 0 ? 1 : part < c->part ? (uint32_t)part : c->part;
	} else {
		c->full = measured >> MEASURED_SHIFT ? measured >> MEASURED_SHIFT : 1;
	}
}

uint32_t pool_ceiling(uint32_t before, uint32_t largest)
{
	if (before == 0)
		return largest;
	/* a server slightly above it gets slightly less than its share */
	if (largest <= before + before / 16 && largest >= before / 3)
		return before;
	/* Leave headroom for growth, at the cost of one more hash for a quarter of the clients. */
	return largest > UINT32_MAX / 4 * 3 ? UINT32_MAX : largest + largest / 3;
}

/* Uses sixteenths only if a share is partial, to keep sums small. */
static void pool_weigh(struct pool *p)
{
	bool whole = true;
	for (uint32_t i = 0; i < p->members; i++)
		whole &= p->candidate[i].share == 0 || p->candidate[i].share == SHARES;
	p->weight = 0;
	for (uint32_t i = 0; i < p->members; i++) {
		struct candidate *c = &p->candidate[i];
		c->weight = c->full * (whole ? 1 : c->share);
		if (c->share > 0)
			p->weight += c->weight;
	}
}

int pool_build(struct pool *p, struct table_cache *s, int64_t *budget)
{
	if (!p->made)
		pool_weigh(p);
	return p->ops->build ? p->ops->build(p, s, budget) : 0;
}

void pool_free(struct pool *p, struct table_cache *s)
{
	if (p && p->made)
		p->ops->discard(p, s);
	free(p);
}

uint32_t pick_any(const struct pick *p, uint32_t from)
{
	const struct pool *pool = p->pool;
	for (uint32_t n = 0; n < pool->members; n++) {
		uint32_t i = from + n < pool->members ? from + n : from + n - pool->members;
		if (pool->candidate[i].share > 0 && pick_is_below_limit(p, &pool->candidate[i]))
			return i;
	}
	return PICK_NONE;
}

static int compare_names(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	return x->name < y->name ? -1 : x->name > y->name;
}

void pool_sort_by_name(struct pool *p)
{
	qsort(p->candidate, p->members, sizeof(p->candidate[0]), compare_names);
}

/* ---- shared tables --------------------------------------------------------------------------- */

#define TABLE_CACHE_CHAINS 4096

struct table_cache {
	struct table *chain[TABLE_CACHE_CHAINS];
};

struct table_cache *table_cache_create(void)
{
	return calloc(1, sizeof(struct table_cache));
}

void table_cache_destroy(struct table_cache *s)
{
	free(s);
}

void table_cache_measure(const struct table_cache *s, unsigned *tables, uint64_t *bytes)
{
	*tables = 0;
	*bytes = 0;
	for (unsigned i = 0; i < TABLE_CACHE_CHAINS; i++)
		for (const struct table *t = s->chain[i]; t; t = t->next) {
			++*tables;
			*bytes += t->bytes;
		}
}

static uint64_t pool_digest(const struct pool *p)
{
	uint64_t h = p->members;
	for (uint32_t i = 0; i < p->members; i++)
		h = sy_hash_mix(h ^ p->candidate[i].name,
		                0x8ebc6af09c88c6e3 ^ p->candidate[i].full);
	return h;
}

static bool table_fits(const struct table *t, const struct pool *p, uint64_t digest)
{
	if (t->digest != digest || t->ops != p->ops || t->members != p->members)
		return false;
	for (uint32_t i = 0; i < p->members; i++)
		if (t->member[i].name != p->candidate[i].name ||
		    t->member[i].weight != p->candidate[i].full)
			return false;
	return true;
}

struct table *table_cache_acquire(struct table_cache *s, const struct pool *p, size_t size,
                                  bool (*make)(struct table *t))
{
	uint64_t digest = pool_digest(p);
	struct table **chain = &s->chain[digest % TABLE_CACHE_CHAINS];
	for (struct table *t = *chain; t; t = t->next)
		if (table_fits(t, p, digest)) {
			t->references++;
			return t;
		}
	struct table *t = calloc(1, size);
	if (!t)
		return NULL;
	t->ops = p->ops;
	t->digest = digest;
	t->references = 1;
	t->members = p->members;
	t->member = calloc(p->members, sizeof(*t->member));
	for (uint32_t i = 0; t->member && i < p->members; i++)
		t->member[i] = (struct table_member){p->candidate[i].name, p->candidate[i].full};
	if (!t->member || !make(t)) {
		free(t->member);
		free(t);
		return NULL;
	}
	t->bytes += size + p->members * sizeof(*t->member);
	t->next = *chain;
	*chain = t;
	return t;
}

void table_cache_release(struct table_cache *s, struct table *t, void (*free_own)(struct table *t))
{
	if (!t || --t->references > 0)
		return;
	struct table **link = &s->chain[t->digest % TABLE_CACHE_CHAINS];
	while (*link != t)
		link = &(*link)->next;
	*link = t->next;
	free_own(t);
	free(t->member);
	free(t);
}
