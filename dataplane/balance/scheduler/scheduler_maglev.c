// SPDX-License-Identifier: Apache-2.0
/*
 * maglev: a table from hashes to servers (Eisenbud et al., NSDI 2016, section 3.4). Servers claim
 * entries round robin, each in an order of its own; heavier servers claim in more of the rounds.
 *
 * All configured servers have entries, up or not. A client whose server accepts no new sessions is
 * hashed again. So the table changes only with the configuration, and a failing server moves only
 * its own clients.
 */
#include <errno.h>
#include <stdlib.h>

#include "scheduler.h"

#define EMPTY UINT16_MAX
#define TRIES 64

struct maglev {
	struct table table;
	uint32_t size;
	uint16_t *place; /* member index */
	/* by member, used until the table is built: */
	struct claimant {
		uint32_t next, step; /* entry to try next, and distance to the following one */
		uint64_t credit;     /* claims an entry when this reaches the heaviest weight */
	} * claimant;
	uint64_t heaviest;
	uint32_t filled, next_member;
};

/* Sizes are prime: every step visits all entries. lightest: the sum of weights divided by the
 * lowest weight, that is, a number of equal servers; each gets many entries. The more entries, the
 * fewer clients of other servers move when one leaves (with 100 servers: 0.25 %). */
static uint32_t maglev_size(uint64_t lightest)
{
	static const struct {
		uint32_t servers, size;
	} step[] = {{8, 2039}, {32, 16381}, {128, 262139}, {1024, 524287}};
	for (size_t i = 0; i < SY_ARRAY_LEN(step); i++)
		if (lightest <= step[i].servers)
			return step[i].size;
	return 2097143;
}
#define UNEQUAL_MAX 32 /* limit on the growth from unequal weights alone: memory */

static void maglev_free(struct table *t)
{
	struct maglev *m = SY_CONTAINER_OF(t, struct maglev, table);
	free(m->place);
	free(m->claimant);
}

static bool maglev_make(struct table *t)
{
	struct maglev *m = SY_CONTAINER_OF(t, struct maglev, table);
	uint64_t sum = 0, min = UINT64_MAX;
	for (uint32_t i = 0; i < t->members; i++) {
		uint64_t weight = t->member[i].weight;
		sum += weight;
		min = weight < min ? weight : min;
		m->heaviest = weight > m->heaviest ? weight : m->heaviest;
	}
	uint64_t lightest = sum / min < UNEQUAL_MAX ? sum / min : UNEQUAL_MAX;
	m->size = maglev_size(lightest > t->members ? lightest : t->members);
	m->place = malloc(m->size * sizeof(*m->place));
	m->claimant = calloc(t->members, sizeof(*m->claimant));
	if (!m->place || !m->claimant) {
		maglev_free(t);
		return false;
	}
	t->bytes = m->size * sizeof(*m->place);
	for (uint32_t i = 0; i < m->size; i++)
		m->place[i] = EMPTY;
	for (uint32_t i = 0; i < t->members; i++) {
		uint64_t h = hash_next(t->member[i].name);
		m->claimant[i].next = (uint32_t)(h >> 32) % m->size;
		m->claimant[i].step = 1 + (uint32_t)h % (m->size - 1);
	}
	return true;
}

/* Continues claiming. Returns true when every entry is claimed. */
static bool maglev_fill(struct maglev *m, int64_t *budget)
{
	while (m->filled<m->size && * budget> 0) {
		uint32_t i = m->next_member;
		struct claimant *c = &m->claimant[i];
		m->next_member = i + 1 < m->table.members ? i + 1 : 0;
		--*budget;
		c->credit += m->table.member[i].weight;
		if (c->credit < m->heaviest)
			continue;
		c->credit -= m->heaviest;
		while (m->place[c->next] != EMPTY) {
			c->next += c->step;
			if (c->next >= m->size)
				c->next -= m->size;
			--*budget;
		}
		m->place[c->next] = (uint16_t)i;
		m->filled++;
	}
	return m->filled == m->size;
}

static int maglev_build(struct pool *p, struct table_cache *s, int64_t *budget)
{
	if (p->members == 0)
		return 0;
	if (!p->made) {
		pool_sort_by_name(p);
		*budget -= 16 * (int64_t)p->members;
		p->made = table_cache_acquire(s, p, sizeof(struct maglev), maglev_make);
		if (!p->made)
			return -ENOMEM;
	}
	struct maglev *m = p->made;
	if (m->table.built)
		return 0;
	if (!maglev_fill(m, budget))
		return 1;
	free(m->claimant);
	m->claimant = NULL;
	m->table.built = true;
	return 0;
}

static void maglev_discard(struct pool *p, struct table_cache *s)
{
	table_cache_release(s, p->made, maglev_free);
}

static uint32_t maglev_pick(const struct pick *p)
{
	const struct maglev *m = p->pool->made;
	uint64_t hash = p->hash;
	uint32_t i = 0;
	if (p->pool->eligible == 0)
		return PICK_NONE;
	for (unsigned n = 0; n < TRIES; n++, hash = hash_next(hash)) {
		i = m->place[hash_below(hash, m->size)];
		if (pick_accepts(p, &p->pool->candidate[i], (uint32_t)hash))
			return i;
	}
	return pick_any(p, i);
}

const struct scheduler_ops scheduler_maglev = {.name = "maglev",
                                               .by_weight = true,
                                               .by_hash = true,
                                               .by_table = true,
                                               .build = maglev_build,
                                               .discard = maglev_discard,
                                               .pick = maglev_pick};
