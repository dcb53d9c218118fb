// SPDX-License-Identifier: Apache-2.0
#include "address_ranges.h"

#include <stdlib.h>
#include <string.h>

#include "address_ranges_table.h"

void address_ranges_free(struct address_ranges *r)
{
	if (!r)
		return;
	for (unsigned v4 = 0; v4 < 2; v4++) {
		free(r->family[v4].entry);
		free(r->family[v4].block);
		free(r->family[v4].root);
		free(r->family[v4].filter.line);
	}
	free(r->sets);
	free(r);
}

size_t address_ranges_bytes(const struct address_ranges *r)
{
	size_t bytes = sizeof(*r) + r->classes * sizeof(*r->sets);
	for (unsigned v4 = 0; v4 < 2; v4++) {
		const struct family *f = &r->family[v4];
		bytes += f->entries * sizeof(*f->entry) + f->blocks * sizeof(*f->block);
		bytes += f->filter.lines + sizeof(*f->filter.line);
		if (f->root)
			bytes += ((UINT32_C(1) << (32 - f->root_shift)) + 1) * sizeof(*f->root);
	}
	return bytes;
}

/* ---- look-up --------------------------------------------------------------------------------- */

/* A look-up in progress: the entries that may contain its range. */
struct search {
	const struct family *f;
	const struct sy_addr *addr;
	uint32_t word, at, count;
	uint8_t level, index;
};

/* The value of the last entry whose start is not above the word; the first entry's start never is.
 * Branch-free: branches that depend on the address would be mispredicted half the time. */
static inline uint32_t search_value(const struct search *s)
{
	const struct entry *entry = s->f->entry + s->at;
	uint32_t n = s->count;
	for (; n > RANGES_SEARCH_SHORT; n -= n / 2)
		entry += (entry[n / 2].start <= s->word) * (n / 2);
	uint32_t at = 0;
	for (uint32_t i = 1; i < RANGES_SEARCH_SHORT;
	     i++) /* the array is padded by this many entries */
		at += (i < n) & (entry[i].start <= s->word);
	return entry[at].value;
}

#define LINE_ENTRIES (SY_CACHE_LINE / sizeof(struct entry))

/* Prefetches the lines of a short search; of a long one, the middle. */
static SY_PREFETCH_INLINE void search_prefetch(const struct search *s)
{
	const struct entry *entry = s->f->entry + s->at;
	__builtin_prefetch(entry);
	__builtin_prefetch(entry + s->count - 1);
	if (SY_UNLIKELY(s->count > LINE_ENTRIES))
		__builtin_prefetch(entry + s->count / 2);
}

/* Searches the first level's entries for one address, whose root has been prefetched. */
static inline void search_begin(struct search *s)
{
	const uint32_t *root = &s->f->root[s->word >> s->f->root_shift];
	s->at = root[0];
	s->count = root[1] - root[0] + 1;
	search_prefetch(s);
}

/* Sets the word of the next level for one address, whose block was prefetched. */
static inline void search_descend(struct search *s)
{
	const struct block *b = &s->f->block[s->at];
	s->word = ntohl(s->addr->w[++s->level]);
	s->at = b->at;
	s->count = b->count;
	search_prefetch(s);
}

static void search_all(struct search *search, unsigned left, const uint32_t *of_class,
                       uint32_t *sets)
{
	for (unsigned k = 0; k < left; k++)
		search_begin(&search[k]);
	for (;;) {
		unsigned stay = 0;
		for (unsigned k = 0; k < left; k++) {
			uint32_t value = search_value(&search[k]);
			if (SY_LIKELY(!(value & RANGES_CHILD))) {
				sets[search[k].index] = of_class[value];
				continue;
			}
			search[stay] = search[k];
			search[stay].at = value & ~RANGES_CHILD; /* the block */
			__builtin_prefetch(&search[k].f->block[value & ~RANGES_CHILD]);
			stay++;
		}
		if (SY_LIKELY(stay == 0))
			return;
		left = stay;
		for (unsigned k = 0; k < left; k++)
			search_descend(&search[k]);
	}
}

/* Completes look-ups that have begun. */
static void looks_end(const struct address_ranges *r, const struct address_lookup *lookup,
                      const struct sy_addr *const *addr, uint32_t *sets, unsigned n)
{
	struct search search[ADDRESS_LOOKUPS];
	unsigned left = 0;
	memset(sets, 0, n * sizeof(*sets));
	for (uint64_t pass = address_lookups_pass(lookup, n); pass; pass &= pass - 1) {
		const unsigned k = (unsigned)__builtin_ctzll(pass);
		const bool v4 = sy_addr_is_v4(addr[k]);
		search[left++] = (struct search){.f = &r->family[v4],
		                                 .addr = addr[k],
		                                 .word = ntohl(addr[k]->w[v4 ? 3 : 0]),
		                                 .index = (uint8_t)k};
		address_lookup_continue(r, addr[k]);
	}
	if (left)
		search_all(search, left, r->sets, sets);
}

void address_ranges_find(const struct address_ranges *r, const struct sy_addr *const *addr,
                         uint32_t *sets, unsigned n)
{
	struct address_lookup lookup[ADDRESS_LOOKUPS];
	for (unsigned done = 0, part; done < n; done += part) {
		part = n - done < ADDRESS_LOOKUPS ? n - done : ADDRESS_LOOKUPS;
		for (unsigned k = 0; k < part; k++)
			lookup[k] = address_lookup_begin(r, addr[done + k]);
		looks_end(r, lookup, addr + done, sets + done, part);
	}
}
