// SPDX-License-Identifier: Apache-2.0
/* Builds the table of ranges: the sets' lists become cuts, the cuts blocks. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "address_ranges_table.h"

#define ROOT_BITS    16u    /* of the address that the root is indexed by, at least */
#define ROOT_MOST    20u    /* and at most */
#define CLASSES      65535u /* at most */
#define LEVELS       4u
#define FILTER_LEAST 8192u      /* ranges: with fewer the root alone fits the caches */
#define FILTER_MOST  (8u << 20) /* networks */

/* An address, its first bit highest. IPv4's 32 bits stand at the top. */
typedef unsigned __int128 key128;

static key128 key_of(const struct sy_addr *a)
{
	if (sy_addr_is_v4(a))
		return (key128)ntohl(a->w[3]) << 96;
	key128 k = 0;
	for (unsigned i = 0; i < LEVELS; i++)
		k = k << 32 | ntohl(a->w[i]);
	return k;
}

static inline uint32_t key_word(key128 k, unsigned level)
{
	return (uint32_t)(k >> (96 - 32 * level));
}

/* Whether the words below this level are 0. */
static inline bool key_ends(key128 k, unsigned level)
{
	return level == LEVELS - 1 || (k << (32 * level + 32)) == 0;
}

static key128 prefix_last(const struct sy_prefix *p)
{
	return p->bits >= 128 ? key_of(&p->addr) : key_of(&p->addr) | ~(key128)0 >> p->bits;
}

bool prefix_list_is_sorted(const struct prefix_list *list, uint32_t *bad)
{
	for (uint32_t i = 0; i < list->count; i++) {
		const struct sy_prefix *p = &list->at[i];
		const bool v4 = sy_addr_is_v4(&p->addr);
		*bad = i;
		if (p->bits > (v4 ? 32 : 128))
			return false;
		if (p->bits < 128 && key_of(&p->addr) & ~(key128)0 >> p->bits)
			return false;
		if (i == 0)
			continue;
		const struct sy_prefix *before = &list->at[i - 1];
		const bool v4_before = sy_addr_is_v4(&before->addr);
		/* IPv4 comes first. */
		if (v4 > v4_before || (v4 == v4_before && key_of(&p->addr) <= prefix_last(before)))
			return false;
	}
	return true;
}

/* ---- cuts: where membership changes ---------------------------------------------------------- */

struct cut {
	key128 at;
	uint16_t class;
};

struct cuts {
	struct cut *cut;
	size_t count, capacity;
};

/* Masks and their classes while the table is built. */
struct classes {
	uint32_t *mask;  /* by class */
	uint32_t *place; /* open addressing: class + 1; 0: free */
	unsigned count;
};
#define CLASS_PLACES 131072u

/* Arrays of the table on huge pages, where the kernel has them. */
static void *array_grow(void *from, size_t *capacity, size_t need, size_t size)
{
	size_t now = *capacity;
	if (need <= now)
		return from;
	while (now < need)
		now = now ? now + now / 2 : 256;
	void *p = realloc(from, now * size);
	if (p)
		*capacity = now;
	return p;
}

/* The class of a mask; a new one if need be. CLASSES: too many. */
static unsigned class_of(struct classes *c, uint32_t mask)
{
	uint32_t at = mask * UINT32_C(0x9e3779b1) >> 15;
	for (;; at = (at + 1) % CLASS_PLACES) {
		if (c->place[at] && c->mask[c->place[at] - 1] == mask)
			return c->place[at] - 1;
		if (!c->place[at])
			break;
	}
	if (c->count == CLASSES)
		return CLASSES;
	c->mask[c->count] = mask;
	c->place[at] = ++c->count;
	return c->count - 1;
}

/* The position in one set's list while all are merged. */
struct cursor {
	const struct sy_prefix *at, *end;
	bool inside, over;
	key128 next; /* where membership changes next */
};

static void cursor_settle(struct cursor *c)
{
	if (c->inside) {
		c->next = prefix_last(c->at) + 1;
		c->over = c->next == 0; /* up to the last address */
	} else if (c->at == c->end) {
		c->over = true;
	} else {
		c->next = key_of(&c->at->addr);
	}
}

static void cursor_step(struct cursor *c)
{
	if (c->inside)
		c->at++;
	c->inside = !c->inside;
	cursor_settle(c);
}

/* The part of a list that is of the family. */
static struct cursor cursor_open(const struct prefix_list *list, bool v4)
{
	uint32_t low = 0, high = list->count; /* IPv4 comes first: the first IPv6 one */
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (sy_addr_is_v4(&list->at[middle].addr))
			low = middle + 1;
		else
			high = middle;
	}
	struct cursor c = {0};
	if (list->count > 0) /* else `at` may be NULL */
		c = (struct cursor){.at = list->at + (v4 ? 0 : low),
		                    .end = list->at + (v4 ? low : list->count)};
	cursor_settle(&c);
	return c;
}

static int cuts_add(struct cuts *out, key128 at, unsigned class)
{
	if (out->count && out->cut[out->count - 1].class == class)
		return 0;
	if (out->count == 0 && class == 0)
		return 0;
	struct cut *grown = array_grow(out->cut, &out->capacity, out->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	out->cut = grown;
	out->cut[out->count++] = (struct cut){at, (uint16_t) class};
	return 0;
}

/* Merges the sets' lists of one family. */
static int cuts_make(const struct prefix_list *sets, unsigned count, bool v4,
                     struct classes *classes, struct cuts *out)
{
	struct cursor c[ADDRESS_SETS];
	uint32_t mask = 0;
	for (unsigned i = 0; i < count; i++)
		c[i] = cursor_open(&sets[i], v4);
	for (;;) {
		unsigned first = count;
		for (unsigned i = 0; i < count; i++)
			if (!c[i].over && (first == count || c[i].next < c[first].next))
				first = i;
		if (first == count)
			return 0;
		const key128 at = c[first].next;
		for (unsigned i = first; i < count; i++)
			while (!c[i].over && c[i].next == at) {
				mask ^= UINT32_C(1) << i;
				cursor_step(&c[i]);
			}
		unsigned class = class_of(classes, mask);
		if (class == CLASSES)
			return -E2BIG;
		int rc = cuts_add(out, at, class);
		if (rc < 0)
			return rc;
	}
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Cuts that become a block of the next level. */
struct group {
	uint32_t first, end; /* of the cuts */
	uint16_t class;      /* before the first one */
	uint8_t level;
};

struct groups {
	struct group *group;
	size_t count, capacity;
};

static int groups_add(struct groups *g, struct group one)
{
	struct group *grown = array_grow(g->group, &g->capacity, g->count + 1, sizeof(one));
	if (!grown)
		return -ENOMEM;
	g->group = grown;
	g->group[g->count++] = one;
	return 0;
}

static int entry_add(struct family *f, uint32_t start, uint32_t value)
{
	struct entry *grown =
	        array_grow(f->entry, &f->entry_capacity, f->entries + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	f->entry = grown;
	f->entry[f->entries++] = (struct entry){start, value};
	return 0;
}

/* Writes a group's block; what needs another level is appended to the groups. */
static int block_write(struct family *f, const struct cut *cut, struct groups *groups, size_t n)
{
	const struct group g = groups->group[n];
	uint32_t class = g.class;
	struct block *grown =
	        array_grow(f->block, &f->block_capacity, f->blocks + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	f->block = grown;
	const size_t begin = f->entries;
	int rc = 0;
	if (g.first == g.end || key_word(cut[g.first].at, g.level) != 0)
		rc = entry_add(f, 0, class);
	for (uint32_t i = g.first, end; rc == 0 && i < g.end; i = end) {
		const uint32_t word = key_word(cut[i].at, g.level);
		for (end = i + 1; end < g.end && key_word(cut[end].at, g.level) == word; end++)
			;
		if (end == i + 1 && key_ends(cut[i].at, g.level)) {
			class = cut[i].class;
			rc = entry_add(f, word, class);
			continue;
		}
		rc = entry_add(f, word, RANGES_CHILD | (uint32_t)groups->count);
		if (rc == 0)
			rc = groups_add(groups, (struct group){i, end, (uint16_t) class,
			                                       (uint8_t)(g.level + 1)});
		class = cut[end - 1].class;
		if (rc == 0 && word != UINT32_MAX &&
		    (end == g.end || key_word(cut[end].at, g.level) != word + 1))
			rc = entry_add(f, word + 1, class);
	}
	f->block[f->blocks++] = (struct block){(uint32_t)begin, (uint32_t)(f->entries - begin)};
	return rc;
}

/* Memory that may have huge pages: a look-up is a random access. */
static void *array_settle(size_t len)
{
	const size_t huge = 2u << 20, align = len < huge ? SY_CACHE_LINE : huge;
	void *p = aligned_alloc(align, (len + align - 1) / align * align);
	if (p && len >= huge)
		madvise(p, len, MADV_HUGEPAGE);
	return p;
}

/* search_value() may read behind the last entry. */
static int entries_settle(struct family *f)
{
	struct entry *settled = array_settle((f->entries + RANGES_SEARCH_SHORT) * sizeof(*settled));
	if (!settled)
		return -ENOMEM;
	memcpy(settled, f->entry, f->entries * sizeof(*settled));
	memset(settled + f->entries, 0, RANGES_SEARCH_SHORT * sizeof(*settled));
	free(f->entry);
	f->entry = settled;
	return 0;
}

/* About two entries are left to search behind each position. */
static int root_make(struct family *f)
{
	unsigned bits = ROOT_BITS;
	while (bits < ROOT_MOST && (UINT32_C(2) << bits) < f->block[0].count)
		bits++;
	const uint32_t positions = UINT32_C(1) << bits;
	f->root_shift = 32 - bits;
	f->root = array_settle((positions + 1) * sizeof(*f->root));
	if (!f->root)
		return -ENOMEM;
	uint32_t at = 0;
	for (uint32_t upper = 0; upper < positions; upper++) {
		while (at + 1 < f->block[0].count &&
		       f->entry[at + 1].start <= upper << f->root_shift)
			at++;
		f->root[upper] = at;
	}
	f->root[positions] = f->block[0].count - 1;
	return 0;
}

static void filter_set(uint64_t *filter, uint64_t place)
{
	filter[place / 64] |= UINT64_C(1) << place % 64;
}

/* The networks (/24 or /48) in which a range has addresses; last: of the range. */
static inline uint64_t network_of(key128 address, bool v4)
{
	return (uint64_t)(address >> (128 - (v4 ? RANGES_FILTER4 : RANGES_FILTER6)));
}

/* Makes the filter, unless it is of no use: too few ranges, or too many networks. */
static int filter_make(struct family *f, const struct cuts *cuts, bool v4)
{
	uint64_t networks = 0;
	if (cuts->count < FILTER_LEAST)
		return 0;
	for (size_t i = 0; i < cuts->count; i++) {
		key128 last = (i + 1 < cuts->count ? cuts->cut[i + 1].at : 0) - 1;
		if (cuts->cut[i].class)
			networks += network_of(last, v4) - network_of(cuts->cut[i].at, v4) + 1;
	}
	if (networks > FILTER_MOST)
		return 0;
	unsigned bits = RANGES_FILTER4;
	for (; !v4 && bits < 26 && UINT64_C(1) << bits < 16 * networks; bits++)
		;
	f->filter_shift = 64 - bits;
	f->filter = array_settle((size_t)1 << (bits - 3));
	if (!f->filter)
		return -ENOMEM;
	memset(f->filter, 0, (size_t)1 << (bits - 3));
	for (size_t i = 0; i < cuts->count; i++) {
		key128 last = (i + 1 < cuts->count ? cuts->cut[i + 1].at : 0) - 1;
		if (!cuts->cut[i].class)
			continue;
		for (uint64_t n = network_of(cuts->cut[i].at, v4), end = network_of(last, v4);
		     n <= end; n++)
			filter_set(f->filter, v4 ? n : filter_place(n, f->filter_shift));
	}
	return 0;
}

static int family_build(struct family *f, const struct cuts *cuts, bool v4)
{
	struct groups groups = {0};
	if (cuts->count == 0)
		return 0;
	int rc = groups_add(&groups, (struct group){.end = (uint32_t)cuts->count});
	for (size_t n = 0; rc == 0 && n < groups.count; n++)
		rc = block_write(f, cuts->cut, &groups, n);
	free(groups.group);
	if (rc == 0) {
		rc = entries_settle(f);
	}
	if (rc == 0) {
		rc = root_make(f);
	}
	if (rc == 0)
		rc = filter_make(f, cuts, v4);
	return rc;
}

int address_ranges_build(const struct prefix_list *sets, unsigned count,
                         struct address_ranges **out)
{
	struct address_ranges *r = calloc(1, sizeof(*r));
	struct classes classes = {
	        .mask = malloc(CLASSES * sizeof(uint32_t)),
	        .place = calloc(CLASS_PLACES, sizeof(uint32_t)),
	};
	int rc = r && classes.mask && classes.place ? 0 : -ENOMEM;
	if (rc == 0)
		class_of(&classes, 0);
	for (unsigned v4 = 0; rc == 0 && v4 < 2; v4++) {
		struct cuts cuts = {0};
		rc = cuts_make(sets, count, v4, &classes, &cuts);
		if (rc == 0)
			rc = family_build(&r->family[v4], &cuts, v4);
		free(cuts.cut);
	}
	free(classes.place);
	if (rc < 0) {
		free(classes.mask);
		address_ranges_free(r);
		return rc;
	}
	r->classes = classes.count;
	r->sets = realloc(classes.mask, classes.count * sizeof(uint32_t));
	if (!r->sets)
		r->sets = classes.mask;
	*out = r;
	return 0;
}
