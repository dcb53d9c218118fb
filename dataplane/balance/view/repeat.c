// SPDX-License-Identifier: Apache-2.0
#include "repeat.h"

#include <stdlib.h>
#include <string.h>

#include <sy_base.h>

#include "table_map.h"

#define LINES       (1u << 18)
#define GENERATIONS (REPEAT_SECONDS + 1)
#define BITS        80
#define WORD_BITS   16

struct line {
	uint32_t second; /* of the newest generation */
	uint16_t bits[GENERATIONS][BITS / WORD_BITS];
};
_Static_assert(sizeof(struct line) == SY_CACHE_LINE, "one line");

struct repeats {
	struct line *line; /* [LINES] */
};

struct repeats *repeats_create(void)
{
	struct repeats *r = calloc(1, sizeof(*r));
	if (r)
		r->line = table_map(LINES, sizeof(*r->line));
	if (r && r->line)
		return r;
	free(r);
	return NULL;
}

void repeats_destroy(struct repeats *r)
{
	if (r)
		table_unmap(r->line, LINES, sizeof(*r->line));
	free(r);
}

static struct line *line_of(const struct repeats *r, uint64_t hash)
{
	return &r->line[hash % LINES];
}

void repeat_prefetch(const struct repeats *r, uint64_t hash)
{
	__builtin_prefetch(line_of(r, hash), 1);
}

/* Clears the generations between the line's newest second and this one. */
static void line_advance(struct line *line, uint32_t now)
{
	uint32_t passed = now - line->second;
	for (uint32_t k = 0; k < passed && k < GENERATIONS; k++)
		memset(line->bits[(now - k) % GENERATIONS], 0, sizeof(line->bits[0]));
	line->second = now;
}

/* The generation's word with this bit, and its mask. */
static uint16_t *bit_find(struct line *line, uint32_t second, unsigned bit, uint16_t *mask)
{
	*mask = (uint16_t)(1u << bit % WORD_BITS);
	return &line->bits[second % GENERATIONS][bit / WORD_BITS];
}

bool repeat_note(struct repeats *r, uint64_t hash, uint32_t now)
{
	struct line *line = line_of(r, hash);
	/* the low bits chose the line */
	const unsigned bit[2] = {(unsigned)((hash >> 32 & 0xffff) * BITS >> 16),
	                         (unsigned)((hash >> 48) * BITS >> 16)};
	uint16_t mask[2];
	bool again = false;

	if (line->second != now)
		line_advance(line, now);
	for (uint32_t k = 1; k <= REPEAT_SECONDS; k++) {
		bool both = true;
		for (unsigned n = 0; n < 2; n++)
			both &= (*bit_find(line, now - k, bit[n], &mask[n]) & mask[n]) != 0;
		again |= both;
	}
	for (unsigned n = 0; n < 2; n++) {
		uint16_t *word = bit_find(line, now, bit[n], &mask[n]);
		*word |= mask[n];
	}
	return again;
}
