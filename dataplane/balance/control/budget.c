// SPDX-License-Identifier: Apache-2.0
#include "budget.h"

#include <stdlib.h>

/* Before each block; keeps the alignment of malloc(). */
struct block {
	size_t size;
	size_t unused;
};
_Static_assert(sizeof(struct block) % _Alignof(max_align_t) == 0, "blocks are aligned");

static void *budget_alloc(void *ctx, size_t size)
{
	struct budget *b = ctx;
	size_t room = b->limit > b->used ? b->limit - b->used : 0;
	struct block *block = NULL;
	if (size < room && sizeof(*block) <= room - size) {
		block = malloc(sizeof(*block) + size);
	} else {
		b->refused = true;
	}
	if (!block)
		return NULL;
	block->size = sizeof(*block) + size;
	b->used += block->size;
	return block + 1;
}

static void budget_free(void *ctx, void *pointer)
{
	struct budget *b = ctx;
	if (!pointer)
		return;
	struct block *block = (struct block *)pointer - 1;
	b->used -= block->size;
	free(block);
}

void budget_init(struct budget *b, size_t request_max, size_t total_max)
{
	*b = (struct budget){
	        .allocator = {budget_alloc, budget_free, b},
	        .request_max = request_max,
	        .total_max = total_max,
	};
}

void budget_begin(struct budget *b)
{
	b->limit = b->used + b->request_max;
	if (b->limit > b->total_max)
		b->limit = b->total_max;
	b->refused = false;
}

bool budget_is_request_too_large(const struct budget *b)
{
	return b->limit < b->total_max;
}
