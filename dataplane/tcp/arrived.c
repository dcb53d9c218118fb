// SPDX-License-Identifier: Apache-2.0
#include "arrived.h"

#include <sy_base.h>

static union arrived_cell *cell_at(const struct pool *p, uint32_t index)
{
	return (union arrived_cell *)p->cells + index;
}

static struct arrived_block *block_at(const struct pool *p, uint32_t index)
{
	return &cell_at(p, index)->block;
}

static struct arrived_piece *piece_at(const struct pool *p, uint32_t index)
{
	return &cell_at(p, index)->piece;
}

static uint32_t sooner(uint32_t a, uint32_t b)
{
	return sy_seq_before(a, b) ? a : b;
}

static uint32_t later(uint32_t a, uint32_t b)
{
	return sy_seq_before(a, b) ? b : a;
}

/* ---- a segment ------------------------------------------------------------------------------- */

/* A segment being inserted into gaps. */
struct filling {
	struct arrived *a;
	struct pool *p;
	uint32_t from, to; /* the rest of it */
	uint32_t origin;
	void *buffer;
	struct arrived_news outcome;
};

/* The bytes until `end` are duplicates. Only the first such part is reported. */
static void pass_over(struct filling *f, uint32_t end)
{
	end = sooner(end, f->to);
	if (!sy_seq_before(f->from, end))
		return;
	if (!f->outcome.duplicate)
		arrived_duplicate(f->a, f->from, end);
	f->outcome.duplicate = true;
	f->from = end;
}

/* Creates a piece up to `end`; POOL_NONE: no cell. */
static uint32_t piece_new(struct filling *f, uint32_t end)
{
	uint32_t index = pool_alloc(f->p);
	if (index == POOL_NONE) {
		f->outcome.refused = true;
		return POOL_NONE;
	}
	*piece_at(f->p, index) = (struct arrived_piece){
	        .from = f->from, .to = end, .origin = f->origin, .buffer = f->buffer};
	f->from = end;
	f->outcome.kept++;
	f->a->pieces++;
	return index;
}

/* Inserts a block after `before`; 0: at the front. */
static void block_new(struct filling *f, uint32_t before)
{
	if (f->a->blocks >= ARRIVED_BLOCKS || pool_left(f->p) < 2) {
		f->outcome.refused = true;
		return;
	}
	uint32_t index = pool_alloc(f->p);
	struct arrived_block *b = block_at(f->p, index);
	*b = (struct arrived_block){.from = f->from, .to = f->to, .touched = f->a->touches};
	uint32_t *link = before ? &block_at(f->p, before)->next : &f->a->first;
	b->next = *link;
	*link = index;
	f->a->last = b->next ? f->a->last : index;
	f->a->blocks++;
	b->first = b->last = piece_new(f, f->to);
}

/* Extends a block at its front. */
static bool block_precede(struct filling *f, struct arrived_block *b)
{
	uint32_t from = f->from, piece = piece_new(f, b->from);
	if (piece == POOL_NONE)
		return false;
	piece_at(f->p, piece)->next = b->first;
	b->first = piece;
	b->from = from;
	return true;
}

/* Extends a block at its end, and merges it with the next if the gap is closed. */
static bool block_follow(struct filling *f, uint32_t index)
{
	struct arrived_block *b = block_at(f->p, index);
	uint32_t then_index = b->next, end = f->to;
	struct arrived_block *then = then_index ? block_at(f->p, then_index) : NULL;
	if (then)
		end = sooner(end, then->from);
	uint32_t piece = piece_new(f, end);
	if (piece == POOL_NONE)
		return false;
	piece_at(f->p, b->last)->next = piece;
	b->last = piece;
	b->to = end;
	if (!then || then->from != end)
		return true;
	piece_at(f->p, piece)->next = then->first;
	b->last = then->last;
	b->to = then->to;
	b->next = then->next;
	f->a->last = b->next ? f->a->last : index;
	f->a->blocks--;
	pool_free(f->p, then_index);
	return true;
}

/* Returns the first block that ends at or after `from`; 0: none. before: its predecessor. */
static uint32_t block_find(const struct arrived *a, const struct pool *p, uint32_t from,
                           uint32_t *before)
{
	uint32_t index = a->first;
	*before = 0;
	if (a->last && !sy_seq_before(from, block_at(p, a->last)->from)) {
		/* The predecessor is not needed: nothing is inserted before it. */
		if (!sy_seq_before(block_at(p, a->last)->to, from))
			return a->last;
		*before = a->last;
		return 0;
	}
	while (index && sy_seq_before(block_at(p, index)->to, from)) {
		*before = index;
		index = block_at(p, index)->next;
	}
	return index;
}

struct arrived_news arrived_add(struct arrived *a, struct pool *p, uint32_t next, uint32_t from,
                                uint32_t to, void *buffer)
{
	struct filling f = {
	        .a = a, .p = p, .from = from, .to = to, .origin = from, .buffer = buffer};
	uint32_t before, index;

	pass_over(&f, next);
	if (!sy_seq_before(f.from, to))
		return f.outcome;
	a->touches++;
	index = block_find(a, p, f.from, &before);
	while (sy_seq_before(f.from, to)) {
		struct arrived_block *b = index ? block_at(p, index) : NULL;
		if (!b || sy_seq_before(to, b->from)) {
			block_new(&f, before);
			break;
		}
		b->touched = a->touches;
		if (sy_seq_before(f.from, b->from) && !block_precede(&f, b))
			break;
		pass_over(&f, b->to);
		if (sy_seq_before(f.from, to) && !block_follow(&f, index))
			break;
	}
	return f.outcome;
}

/* ---- removal --------------------------------------------------------------------------------- */

static void block_remove(struct arrived *a, struct pool *p, uint32_t index)
{
	uint32_t next = block_at(p, index)->next;
	if (a->first == index) {
		a->first = next;
		a->last = next ? a->last : 0;
	} else {
		uint32_t before = a->first;
		while (block_at(p, before)->next != index)
			before = block_at(p, before)->next;
		block_at(p, before)->next = next;
		a->last = next ? a->last : before;
	}
	a->blocks--;
	pool_free(p, index);
}

/* Removes a block's first piece. */
static struct arrived_piece piece_take(struct arrived *a, struct pool *p, uint32_t index)
{
	struct arrived_block *b = block_at(p, index);
	uint32_t at = b->first;
	struct arrived_piece piece = *piece_at(p, at);
	pool_free(p, at);
	a->pieces--;
	b->first = piece.next;
	b->from = piece.to;
	if (b->first == 0)
		block_remove(a, p, index);
	return piece;
}

void *arrived_take(struct arrived *a, struct pool *p, uint32_t next, struct arrived_cut *cut)
{
	if (a->first == 0 || sy_seq_before(next, block_at(p, a->first)->from))
		return NULL;
	struct arrived_piece piece = piece_take(a, p, a->first);
	uint32_t from = later(piece.from, next);
	*cut = (struct arrived_cut){.skip = from - piece.origin};
	if (sy_seq_before(from, piece.to))
		cut->length = piece.to - from;
	return piece.buffer;
}

void *arrived_drop(struct arrived *a, struct pool *p)
{
	return a->last ? piece_take(a, p, a->last).buffer : NULL;
}

/* ---- SACK blocks ----------------------------------------------------------------------------- */

unsigned arrived_blocks(struct arrived *a, const struct pool *p, struct sack_block *out,
                        unsigned max)
{
	uint32_t touched[SACK_BLOCKS];
	unsigned count = 0, n = 0;

	max = max < SACK_BLOCKS ? max : SACK_BLOCKS;
	if (max > 0 && a->duplicate.from != a->duplicate.to) {
		out[count++] = a->duplicate;
		a->duplicate = (struct sack_block){0};
	}
	out += count;
	max -= count;
	/* Insertion sort by the last change. */
	for (uint32_t index = a->first; index && max > 0; index = block_at(p, index)->next) {
		const struct arrived_block *b = block_at(p, index);
		unsigned at = n < max ? n++ : max;
		for (; at > 0 && sy_seq_before(touched[at - 1], b->touched); at--) {
			if (at == max)
				continue;
			touched[at] = touched[at - 1];
			out[at] = out[at - 1];
		}
		if (at < max) {
			touched[at] = b->touched;
			out[at] = (struct sack_block){b->from, b->to};
		}
	}
	return count + n;
}
