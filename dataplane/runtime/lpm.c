// SPDX-License-Identifier: Apache-2.0
/* Longest prefix match from an address to a group, lock-free for readers: see lpm.h. */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

#include "lpm.h"

#define ROOT_SIZE  (65536 * sizeof(uint32_t))
#define NODES_SIZE ((size_t)LPM_NODES * 256 * sizeof(uint32_t))
#define STEPS_MAX  14 /* nodes along the path to a 16-byte address */

static void *reserve(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

int lpm_open(struct lpm *l, unsigned bytes)
{
	*l = (struct lpm){.bytes = bytes, .high = 1};
	l->root = reserve(ROOT_SIZE);
	l->nodes = reserve(NODES_SIZE);
	if (l->root && l->nodes)
		return 0;
	lpm_close(l);
	return -ENOMEM;
}

void lpm_close(struct lpm *l)
{
	if (l->root)
		munmap(l->root, ROOT_SIZE);
	if (l->nodes)
		munmap(l->nodes, NODES_SIZE);
	l->root = l->nodes = NULL;
}

static uint32_t *node_at(struct lpm *l, uint32_t entry)
{
	return l->nodes + (size_t)(entry & ~LPM_CHILD) * 256;
}

static void entry_put(uint32_t *at, uint32_t entry)
{
	__atomic_store_n(at, entry, __ATOMIC_RELEASE);
}

/* Replaces a leaf by a node that has this leaf in all entries. */
static bool node_grow(struct lpm *l, uint32_t *at)
{
	uint32_t id = l->free;
	if (!id && l->high == LPM_NODES)
		return false;
	uint32_t *node = node_at(l, id ? id : l->high);
	if (id)
		l->free = node[0];
	else
		id = l->high++;
	for (unsigned i = 0; i < 256; i++)
		entry_put(&node[i], *at);
	entry_put(at, LPM_CHILD | id);
	return true;
}

/* Reverts node_grow() if no prefix in the node is longer than `bits`, the path to the node. */
static bool node_shrink(struct lpm *l, uint32_t *at, unsigned bits)
{
	uint32_t *node = node_at(l, *at), id = *at & ~LPM_CHILD, leaf = node[0];
	if (leaf & LPM_CHILD || leaf >> 16 > bits)
		return false;
	for (unsigned i = 1; i < 256; i++)
		if (node[i] != leaf)
			return false;
	entry_put(at, leaf);
	entry_put(&node[0], l->free);
	l->free = id;
	return true;
}

/* Writes the leaf over all leaves with prefix lengths from `shortest` to `longest`, in children
 * too. */
static void entries_fill(struct lpm *l, uint32_t *at, unsigned count, uint32_t leaf,
                         unsigned shortest, unsigned longest)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned len = at[i] >> 16;
		if (at[i] & LPM_CHILD)
			entries_fill(l, node_at(l, at[i]), 256, leaf, shortest, longest);
		else if (len >= shortest && len <= longest)
			entry_put(&at[i], leaf);
	}
}

/* The entries of a prefix, and the nodes on the path to them. */
struct descent {
	uint32_t *entry[STEPS_MAX]; /* each refers to a node */
	unsigned steps;
	uint32_t *first;
	unsigned count;
};

static bool descent_find(struct lpm *l, const uint8_t *prefix, unsigned len, struct descent *w)
{
	unsigned bits = 16, at = (unsigned)prefix[0] << 8 | prefix[1];
	w->steps = 0;
	w->first = &l->root[at];
	while (len > bits) {
		if (!(*w->first & LPM_CHILD) && !node_grow(l, w->first))
			return false;
		w->entry[w->steps++] = w->first;
		w->first = node_at(l, *w->first) + prefix[bits / 8];
		bits += 8;
	}
	w->count = 1u << (bits - len);
	return true;
}

static void descent_shrink(struct lpm *l, const struct descent *w)
{
	for (unsigned i = w->steps; i && node_shrink(l, w->entry[i - 1], 16 + 8 * (i - 1)); i--)
		;
}

int lpm_set(struct lpm *l, const uint8_t *prefix, unsigned len, uint16_t value)
{
	struct descent w;
	if (!descent_find(l, prefix, len, &w)) {
		descent_shrink(l, &w);
		return -ENOSPC;
	}
	entries_fill(l, w.first, w.count, len << 16 | value, 0, len);
	return 0;
}

void lpm_unset(struct lpm *l, const uint8_t *prefix, unsigned len, unsigned outer_len,
               uint16_t outer_value)
{
	struct descent w;
	if (!descent_find(l, prefix, len, &w))
		return; /* unreachable: a prefix that was set has its nodes */
	entries_fill(l, w.first, w.count, outer_len << 16 | outer_value, len, len);
	descent_shrink(l, &w);
}
