// SPDX-License-Identifier: Apache-2.0
/*
 * Topological order of basic blocks, so that all jumps are forward. Clang merges common tails of
 * branches and then jumps backward to them without a loop. A program without backward jumps is left
 * unchanged.
 */
#include <errno.h>
#include <stdlib.h>

#include "program.h"

#define NOWHERE UINT32_MAX

enum colour { NEW, OPEN, DONE };

/* Valid at the index of a block's first instruction. A block ends before the next one, or with a
 * jump. */
struct block {
	bool first;
	uint8_t colour;
	uint32_t last;   /* its last instruction */
	uint32_t offset; /* index of its first instruction in the new order */
};

struct layout {
	const struct ebpf_insn *at;
	uint32_t count;
	struct block *block;
	uint32_t *post_order; /* blocks in post-order; its reverse is the new order */
	uint32_t done;
};

/* Finds the blocks. *back: a jump goes backward. Returns false if a jump leaves the program or
 * enters a 16-byte instruction: program_check() reports it. */
static bool blocks_find(struct layout *o, bool *back)
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
			return false; /* into the middle of a 16-byte instruction */
		i = after;
	}
	return true;
}

/* Returns the nth successor, jump target first, so that the fall-through block directly follows in
 * the new order. */
static uint32_t successor(const struct layout *o, uint32_t block, unsigned n)
{
	const struct program_next next = program_next(o->at, o->block[block].last);
	return n < next.count ? next.at[next.count - 1 - n] : NOWHERE;
}

/* Depth-first search. path and visited: scratch for o->count entries; visited counts a block's
 * tried successors. */
static int blocks_walk(struct layout *o, uint32_t *path, uint8_t *visited, struct sy_error *err)
{
	uint32_t depth = 1;
	path[0] = 0;
	visited[0] = 0;
	o->block[0].colour = OPEN;
	while (depth > 0) {
		uint32_t block = path[depth - 1], next = successor(o, block, visited[depth - 1]++);
		if (next == NOWHERE) {
			o->block[block].colour = DONE;
			o->post_order[o->done++] = block;
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
			visited[depth++] = 0;
		}
	}
	return 0;
}

/* Returns the block that follows without a jump, or NOWHERE. */
static uint32_t falls_to(const struct layout *o, uint32_t block)
{
	uint32_t last = o->block[block].last;
	const struct program_next next = program_next(o->at, last);
	bool jumps = o->at[last].code == (BPF_JMP | BPF_JA);
	return next.count == 0 || jumps ? NOWHERE : next.at[0];
}

/* Emits the blocks in reverse post-order, and a jump where a block's fall-through is not the next
 * block. With to == NULL, only assigns offsets. Returns the number of instructions. */
static uint32_t blocks_emit(struct layout *o, struct ebpf_insn *to)
{
	uint32_t offset = 0;
	for (uint32_t n = o->done; n-- > 0;) {
		uint32_t block = o->post_order[n], then = falls_to(o, block);
		struct block *b = &o->block[block];
		uint32_t len = b->last + 1 + program_next(o->at, b->last).wide - block;
		uint32_t last = offset + (b->last - block);
		const struct program_next next = program_next(o->at, b->last);
		b->offset = offset;
		if (to)
			memcpy(to + offset, o->at + block, len * sizeof(*to));
		offset += len;
		uint32_t target = then == NOWHERE && next.count ? next.at[0]
		                  : next.count == 2             ? next.at[1]
		                                                : NOWHERE;
		if (to && target != NOWHERE)
			to[last].off = (int16_t)(o->block[target].offset - last - 1);
		if (then == NOWHERE || (n > 0 && o->post_order[n - 1] == then))
			continue;
		if (to)
			to[offset] = (struct ebpf_insn){
			        .code = BPF_JMP | BPF_JA,
			        .off = (int16_t)(o->block[then].offset - offset - 1)};
		offset++;
	}
	return offset;
}

static int layout_build(struct layout *o, struct ebpf_insn **code, uint32_t *count, bool *sorted,
                        struct sy_error *err)
{
	uint32_t *path = calloc(o->count, sizeof(*path));
	uint8_t *visited = calloc(o->count, 1);
	int rc = path && visited ? blocks_walk(o, path, visited, err)
	                         : sy_fail(err, ENOMEM, "no memory to check it");
	free(path);
	free(visited);
	if (rc < 0)
		return rc;
	struct ebpf_insn *to = calloc(blocks_emit(o, NULL), sizeof(*to));
	if (!to)
		return sy_fail(err, ENOMEM, "no memory to check it");
	*count = blocks_emit(o, to);
	free(*code);
	*code = to;
	*sorted = true;
	return 0;
}

int program_order(struct ebpf_insn **code, uint32_t *count, bool *sorted, struct sy_error *err)
{
	struct layout o = {.at = *code, .count = *count};
	bool back = false;
	int rc = 0;
	*sorted = false;
	if (*count == 0 || *count > SY_HOOK_MAX_INSTRUCTIONS)
		return 0; /* program_check() reports it */
	o.block = calloc(*count, sizeof(*o.block));
	o.post_order = calloc(*count, sizeof(*o.post_order));
	if (!o.block || !o.post_order)
		rc = sy_fail(err, ENOMEM, "no memory to check it");
	else if (blocks_find(&o, &back) && back)
		rc = layout_build(&o, code, count, sorted, err);
	free(o.block);
	free(o.post_order);
	return rc;
}
