// SPDX-License-Identifier: Apache-2.0
/* Builds the table of ranges: the sets' lists become cuts, the cuts blocks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "address_ranges_table.h"

#define ROOT_BITS    16u    /* min bits of the address that index the root */
#define ROOT_MAX     20u    /* max bits */
#define CLASSES      65535u /* max classes */
#define LEVELS       4u
#define FILTER_SMALL 8   /* the logarithm of a filter's lines: 16 kB */
#define FILTER_MIN   64u /* min limit for networks in a filter, if there are few ranges */

/* An address, its first bit highest. IPv4's 32 bits are the highest. */
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

/* Are the words below this level 0? */
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

/* The class of a mask; allocates a new one if necessary. CLASSES: too many. */
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

/* The position in one set's list during the merge. */
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

/* The part of a list with addresses of the family. */
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

/* Cuts that become one block of the next level. */
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

/* Writes a group's block; appends what needs another level to the groups. */
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

/* search_value() may read beyond the last entry */
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

/* About two entries remain to search at each position. */
static int root_make(struct family *f)
{
	unsigned bits = ROOT_BITS;
	while (bits < ROOT_MAX && (UINT32_C(2) << bits) < f->block[0].count)
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

/* The last address of a range. */
static key128 range_last(const struct cuts *cuts, size_t i)
{
	return (i + 1 < cuts->count ? cuts->cut[i + 1].at : 0) - 1;
}

/* The number of networks of this prefix length with an address in a set; or a number above
 * `most`. */
static uint64_t networks_count(const struct cuts *cuts, unsigned bits, uint64_t max)
{
	const unsigned shift = 128 - bits;
	key128 next = 0; /* the first that has not been counted */
	uint64_t count = 0;
	for (size_t i = 0; i < cuts->count && count <= max; i++) {
		key128 first = cuts->cut[i].at >> shift, last = range_last(cuts, i) >> shift;
		if (first < next)
			first = next;
		if (!cuts->cut[i].class || first > last)
			continue;
		count += last - first < max ? (uint64_t)(last - first) + 1 : max + 1;
		next = last + 1;
	}
	return count;
}

/* The longest prefix length with at most `most` such networks. */
static unsigned networks_bits(const struct cuts *cuts, bool v4, uint64_t max)
{
	unsigned low = 1, high = v4 ? 32 : 128;
	for (unsigned at = high; low < high; at = (low + high + 1) / 2)
		if (networks_count(cuts, at, max) <= max)
			low = at;
		else
			high = at - 1;
	return low;
}

/* An address as a look-up sees it. */
static struct sy_addr key_address(key128 k, bool v4)
{
	struct sy_addr a;
	if (v4)
		return sy_addr_v4(htonl(key_word(k, 0)));
	for (unsigned i = 0; i < LEVELS; i++)
		a.w[i] = htonl(key_word(k, i));
	return a;
}

/* Adds all networks of this prefix length. */
static void filter_fill(struct filter *f, const struct cuts *cuts, unsigned bits, bool v4)
{
	const unsigned shift = 128 - bits;
	for (size_t i = 0; i < cuts->count; i++) {
		const key128 last = range_last(cuts, i) >> shift;
		for (key128 net = cuts->cut[i].at >> shift; cuts->cut[i].class; net++) {
			const struct sy_addr a = key_address(net << shift, v4);
			filter_enter(f, filter_hash(f, v4, &a));
			if (net == last)
				break;
		}
	}
}

/* The filter has 16 to 32 bits per network, or 64 if it fits the L1 cache. Networks are as small as
 * possible while there are at most twice as many as ranges: usually the sets' hosts. If more than
 * half of all networks would be in it, it lets all addresses pass. */
static int filter_make(struct filter *f, const struct cuts *cuts, bool v4)
{
	const uint64_t max = FILTER_MIN + 2 * cuts->count;
	const unsigned bits = networks_bits(cuts, v4, max);
	const uint64_t networks = networks_count(cuts, bits, max);
	const bool all = bits < 64 && networks > UINT64_C(1) << bits >> 1;
	const struct sy_addr mask = key_address(~(key128)0 << (128 - bits), v4);
	unsigned lines = 1; /* the logarithm of their number */
	while (!all && UINT64_C(8) << lines < networks &&
	       (lines < FILTER_SMALL || UINT64_C(32) << lines < networks))
		lines++;
	*f = (struct filter){.lines = ((UINT64_C(1) << lines) - 1) * sizeof(*f->line),
	                     .mask = {mask.d[0], mask.d[1]}};
	f->line = array_settle(sizeof(*f->line) << lines);
	if (!f->line)
		return -ENOMEM;
	memset(f->line, all ? 0xff : 0, sizeof(*f->line) << lines);
	if (!all)
		filter_fill(f, cuts, bits, v4);
	return 0;
}

static int family_build(struct family *f, const struct cuts *cuts, bool v4)
{
	struct groups groups = {0};
	int rc = filter_make(&f->filter, cuts, v4);
	if (rc < 0 || cuts->count == 0)
		return rc;
	rc = groups_add(&groups, (struct group){.end = (uint32_t)cuts->count});
	for (size_t n = 0; rc == 0 && n < groups.count; n++)
		rc = block_write(f, cuts->cut, &groups, n);
	free(groups.group);
	if (rc == 0)
		rc = entries_settle(f);
	if (rc == 0)
		rc = root_make(f);
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
	for (unsigned v4 = 0; v4 < 2; v4++)
		r->large |=
		        r->family[v4].filter.lines >> FILTER_SMALL >= sizeof(struct filter_line);
	r->classes = classes.count;
	r->sets = realloc(classes.mask, classes.count * sizeof(uint32_t));
	if (!r->sets)
		r->sets = classes.mask;
	*out = r;
	return 0;
}
