// SPDX-License-Identifier: Apache-2.0
/*
 * Puts a program's blocks into an order in which all jumps lead forward. Clang lets branches share
 * their ends, and then jumps back to one that another branch has reached before: that is no loop.
 * A program without such jumps stays as it is.
 */
#include <errno.h>
#include <stdlib.h>

#include "program.h"

#define NOWHERE UINT32_MAX

enum colour { NEW, OPEN, DONE };

/* At a block's first instruction; a block ends before the next one, or with a jump. */
struct block {
	bool first;
	uint8_t colour;
	uint32_t last;  /* its last instruction */
	uint32_t place; /* of the first instruction, in the new order */
};

struct order {
	const struct ebpf_insn *at;
	uint32_t count;
	struct block *block;
	uint32_t *row; /* blocks as they are done: the reverse is the order */
	uint32_t rows;
};

/* Returns false where something leads nowhere: program_check() says it. */
static bool blocks_find(struct order *o, bool *back)
{
	o->block[0].first = true;
	*back = false;
	for (uint32_t i = 0; i < o->count;) {
		const struct program_next next = program_next(o->at, i);
		bool ends = next.count != 1 || next.at[0] != i + 1 + next.wide;
		for (unsigned n = 0; n < next.count; n++) {
			if (next.at[n] >= o->count)
				return false;
			*back = *back || next.at[n] <= i;
			o->block[next.at[n]].first |= ends;
		}
		i += 1 + next.wide;
		if (ends && i < o->count)
			o->block[i].first = true;
	}
	for (uint32_t i = 0, first = 0; i < o->count;) {
		if (o->block[i].first)
			first = i;
		o->block[first].last = i;
		uint32_t after = i + 1 + program_next(o->at, i).wide;
		if (after == i + 2 && after <= o->count && o->block[i + 1].first)
			return false; /* into the middle of a wide instruction */
		i = after;
	}
	return true;
}

/* Its `n`th successor: what it jumps to first, so that what follows it comes right behind it. */
static uint32_t successor(const struct order *o, uint32_t block, unsigned n)
{
	const struct program_next next = program_next(o->at, o->block[block].last);
	return n < next.count ? next.at[next.count - 1 - n] : NOWHERE;
}

/* Depth first. path: room for each block, with how many successors were looked at. */
static int blocks_walk(struct order *o, uint32_t *path, uint8_t *looked, struct sy_error *err)
{
	uint32_t depth = 1;
	path[0] = 0;
	looked[0] = 0;
	o->block[0].colour = OPEN;
	while (depth > 0) {
		uint32_t block = path[depth - 1], next = successor(o, block, looked[depth - 1]++);
		if (next == NOWHERE) {
			o->block[block].colour = DONE;
			o->row[o->rows++] = block;
			depth--;
		} else if (o->block[next].colour == OPEN) {
			return sy_fail(
			        err, EINVAL,
			        "instruction %u jumps back to %u: a hook must not loop; write "
			        "the steps one after the other (#pragma unroll), or use "
			        "sy_find()",
			        o->block[block].last, next);
		} else if (o->block[next].colour == NEW) {
			o->block[next].colour = OPEN;
			path[depth] = next;
			looked[depth++] = 0;
		}
	}
	return 0;
}

/* Where a block goes on without a jump; NOWHERE: it does not. */
static uint32_t falls_to(const struct order *o, uint32_t block)
{
	uint32_t last = o->block[block].last;
	const struct program_next next = program_next(o->at, last);
	bool jumps = o->at[last].code == (BPF_JMP | BPF_JA);
	return next.count == 0 || jumps ? NOWHERE : next.at[0];
}

/* The row from its end on; a jump is added where the next block is not the one that follows.
 * Without `to` it only finds the places. Returns how many instructions it has. */
static uint32_t blocks_lay(struct order *o, struct ebpf_insn *to)
{
	uint32_t place = 0;
	for (uint32_t n = o->rows; n-- > 0;) {
		uint32_t block = o->row[n], then = falls_to(o, block);
		struct block *b = &o->block[block];
		uint32_t len = b->last + 1 + program_next(o->at, b->last).wide - block;
		uint32_t last = place + (b->last - block);
		const struct program_next next = program_next(o->at, b->last);
		b->place = place;
		if (to)
			memcpy(to + place, o->at + block, len * sizeof(*to));
		place += len;
		uint32_t target = then == NOWHERE && next.count ? next.at[0]
		                  : next.count == 2             ? next.at[1]
		                                                : NOWHERE;
		if (to && target != NOWHERE)
			to[last].off = (int16_t)(o->block[target].place - last - 1);
		if (then == NOWHERE || (n > 0 && o->row[n - 1] == then))
			continue;
		if (to)
			to[place] = (struct ebpf_insn){
			        .code = BPF_JMP | BPF_JA,
			        .off = (int16_t)(o->block[then].place - place - 1)};
		place++;
	}
	return place;
}

static int order_make(struct order *o, struct ebpf_insn **code, uint32_t *count, bool *sorted,
                      struct sy_error *err)
{
	uint32_t *path = calloc(o->count, sizeof(*path));
	uint8_t *looked = calloc(o->count, 1);
	int rc = path && looked ? blocks_walk(o, path, looked, err)
	                        : sy_fail(err, ENOMEM, "no memory to check it");
	free(path);
	free(looked);
	if (rc < 0)
		return rc;
	struct ebpf_insn *to = calloc(blocks_lay(o, NULL), sizeof(*to));
	if (!to)
		return sy_fail(err, ENOMEM, "no memory to check it");
	*count = blocks_lay(o, to);
	free(*code);
	*code = to;
	*sorted = true;
	return 0;
}

int program_order(struct ebpf_insn **code, uint32_t *count, bool *sorted, struct sy_error *err)
{
	struct order o = {.at = *code, .count = *count};
	bool back = false;
	int rc = 0;
	*sorted = false;
	if (*count == 0 || *count > SY_HOOK_LONGEST)
		return 0; /* program_check() says it */
	o.block = calloc(*count, sizeof(*o.block));
	o.row = calloc(*count, sizeof(*o.row));
	if (!o.block || !o.row)
		rc = sy_fail(err, ENOMEM, "no memory to check it");
	else if (blocks_find(&o, &back) && back)
		rc = order_make(&o, code, count, sorted, err);
	free(o.block);
	free(o.row);
	return rc;
}
