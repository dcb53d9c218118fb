// SPDX-License-Identifier: Apache-2.0
/* Nodes: which may send now, in which rings each is, and when that changes with time. */
#include "shape.h"

int64_t rate_credit(struct rate *r, uint64_t now_ns)
{
	const uint64_t volume = sy_limit_volume(&r->line, now_ns);
	int64_t credit = (int64_t)(volume - r->level);
	if (credit > (int64_t)r->line.burst) {
		credit = (int64_t)r->line.burst;
		r->level = volume - r->line.burst;
	}
	return credit;
}

/* The time at which a bucket has more than `least`. */
static uint64_t rate_ready(const struct rate *r, int64_t credit, int64_t min, uint64_t now_ns)
{
	return now_ns + 1 + (uint64_t)((double)(min + 1 - credit) * r->ns_per_byte);
}

/* ---- the heap of those that wait for a time -------------------------------------------------- */

static void heap_put(struct sy_shape *s, uint32_t at, uint32_t index)
{
	s->heap[at] = index;
	s->node[index].heap_at = at;
}

static void heap_up(struct sy_shape *s, uint32_t at)
{
	const uint32_t index = s->heap[at];
	const uint64_t wake = s->node[index].wake_ns;
	for (; at > 0 && s->node[s->heap[(at - 1) / 2]].wake_ns > wake; at = (at - 1) / 2)
		heap_put(s, at, s->heap[(at - 1) / 2]);
	heap_put(s, at, index);
}

static void heap_down(struct sy_shape *s, uint32_t at)
{
	const uint32_t index = s->heap[at];
	const uint64_t wake = s->node[index].wake_ns;
	for (uint32_t child; (child = 2 * at + 1) < s->waits; at = child) {
		if (child + 1 < s->waits &&
		    s->node[s->heap[child + 1]].wake_ns < s->node[s->heap[child]].wake_ns)
			child++;
		if (s->node[s->heap[child]].wake_ns >= wake)
			break;
		heap_put(s, at, s->heap[child]);
	}
	heap_put(s, at, index);
}

static void heap_set(struct sy_shape *s, uint32_t index, uint64_t wake_ns)
{
	struct node *n = &s->node[index];
	const uint32_t at = n->heap_at;
	if (at == NODE_NONE) {
		if (wake_ns == SY_SHAPE_NEVER)
			return;
		n->wake_ns = wake_ns;
		heap_put(s, s->waits++, index);
		heap_up(s, s->waits - 1);
		return;
	}
	if (wake_ns == n->wake_ns)
		return;
	n->wake_ns = wake_ns;
	if (wake_ns != SY_SHAPE_NEVER) {
		heap_up(s, at);
		heap_down(s, n->heap_at);
		return;
	}
	n->heap_at = NODE_NONE;
	const uint32_t last = s->heap[--s->waits];
	if (last == index)
		return;
	heap_put(s, at, last);
	heap_up(s, at);
	heap_down(s, s->node[last].heap_at);
}

/* ---- rings ----------------------------------------------------------------------------------- */

static void ring_add(struct sy_shape *s, struct node *parent, uint32_t index, enum rings ring,
                     unsigned p)
{
	struct node *n = &s->node[index];
	if (!(parent->used[ring] & 1u << p)) {
		parent->used[ring] |= (uint8_t)(1u << p);
		parent->head[ring][p] = n->link[ring][p].next = n->link[ring][p].prev = index;
		return;
	}
	/* Appends at the tail. */
	const uint32_t head = parent->head[ring][p], tail = s->node[head].link[ring][p].prev;
	n->link[ring][p].next = head;
	n->link[ring][p].prev = tail;
	s->node[tail].link[ring][p].next = index;
	s->node[head].link[ring][p].prev = index;
}

static void ring_remove(struct sy_shape *s, struct node *parent, uint32_t index, enum rings ring,
                        unsigned p)
{
	const struct node *n = &s->node[index];
	const uint32_t next = n->link[ring][p].next, prev = n->link[ring][p].prev;
	if (next == index) {
		parent->used[ring] &= (uint8_t) ~(1u << p);
		return;
	}
	s->node[prev].link[ring][p].next = next;
	s->node[next].link[ring][p].prev = prev;
	if (parent->head[ring][p] == index)
		parent->head[ring][p] = next;
}

/* Puts a node into exactly these rings of its parent. */
static void rings_set(struct sy_shape *s, uint32_t index, enum rings ring, uint8_t wanted)
{
	struct node *n = &s->node[index], *parent = &s->node[n->parent];
	uint8_t differ = n->stands[ring] ^ wanted;
	for (; differ; differ &= (uint8_t)(differ - 1)) {
		const unsigned p = (unsigned)__builtin_ctz(differ);
		if (wanted & 1u << p)
			ring_add(s, parent, index, ring, p);
		else
			ring_remove(s, parent, index, ring, p);
	}
	n->stands[ring] = wanted;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Bitmap of the priorities that a node could serve if its own rate allows it. */
static uint8_t node_holds(const struct node *n)
{
	if (n->level != LEVEL_CLASS)
		return n->used[ANY];
	return n->queue.count > 0 ? (uint8_t)(1u << n->priority) : 0;
}

/* Computes in which rings a node with packets of these priorities belongs. *wake_ns: when the
 * result changes. */
static void node_stands(struct node *n, uint8_t holds, uint64_t now_ns, uint8_t stands[RINGS],
                        uint64_t *wake_ns)
{
	int64_t credit;
	memset(stands, 0, RINGS);
	*wake_ns = SY_SHAPE_NEVER;
	if (n->maximum.on && (credit = rate_credit(&n->maximum, now_ns)) <= 0) {
		*wake_ns = rate_ready(&n->maximum, credit, 0, now_ns);
		return;
	}
	stands[ANY] = holds;
	if (!n->guaranteed.on)
		return;
	credit = rate_credit(&n->guaranteed, now_ns);
	const int64_t late = (int64_t)n->guaranteed.line.burst / 2;
	stands[DUE] = credit > 0 ? holds : 0;
	stands[LATE] = credit > late ? holds : 0;
	if (credit <= late)
		*wake_ns = rate_ready(&n->guaranteed, credit, credit > 0 ? late : 0, now_ns);
}

void node_refresh(struct sy_shape *s, uint32_t index, bool whole, uint64_t now_ns)
{
	for (;;) {
		struct node *n = &s->node[index];
		const uint8_t holds = node_holds(n);
		uint8_t stands[RINGS] = {holds};
		uint64_t wake = SY_SHAPE_NEVER;
		if (holds && !s->open)
			node_stands(n, holds, now_ns, stands, &wake);
		n->has = stands[ANY];
		heap_set(s, index, wake);
		if (n->level == LEVEL_PORT)
			return;
		const uint8_t before = s->node[n->parent].used[ANY];
		for (enum rings ring = ANY; ring < RINGS; ring++)
			rings_set(s, index, ring, stands[ring]);
		index = n->parent;
		if (!whole && before == s->node[index].used[ANY])
			return;
	}
}

void nodes_wake(struct sy_shape *s, uint64_t now_ns)
{
	while (s->waits > 0 && s->node[s->heap[0]].wake_ns <= now_ns)
		node_refresh(s, s->heap[0], false, now_ns);
}

uint32_t child_pick(const struct node *n, unsigned *priority, enum rings *ring)
{
	*ring = n->used[LATE] ? LATE : ANY;
	*priority = (unsigned)__builtin_ctz(n->used[*ring]);
	if (*ring == ANY && n->used[DUE] & 1u << *priority)
		*ring = DUE;
	return n->head[*ring][*priority];
}

void child_sent(struct sy_shape *s, struct node *parent, uint32_t child, unsigned priority,
                enum rings ring, uint32_t bytes)
{
	struct node *n = &s->node[child];
	if (ring == ANY) {
		n->deficit[priority] -= (int32_t)bytes;
		if (n->deficit[priority] > 0)
			return;
		/* ends soon: a frame has less than QUANTUM * 5 bytes */
		while (n->deficit[priority] <= 0)
			n->deficit[priority] += n->quantum;
	}
	parent->head[ring][priority] = n->link[ring][priority].next;
}
