// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "receive_level.h"

int receive_levels_init(struct receive_levels *r, uint32_t max)
{
	uint32_t buckets = 64;

	while (buckets < 2 * max)
		buckets *= 2;
	*r = (struct receive_levels){.max = max, .mask = buckets - 1};
	r->cell = malloc(max * sizeof(*r->cell));
	r->last_of_flow = malloc(buckets * sizeof(*r->last_of_flow));
	if (!r->cell || !r->last_of_flow) {
		receive_levels_close(r);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < max; i++)
		r->cell[i].after = i + 1 < max ? i + 1 : WAITING_NONE;
	for (uint32_t i = 0; i < buckets; i++)
		r->last_of_flow[i] = WAITING_NONE;
	for (unsigned i = 0; i < SY_PRIORITIES; i++)
		r->level[i].first = r->level[i].last = WAITING_NONE;
	return 0;
}

/* ---- the lists ------------------------------------------------------------------------------- */

static void level_append(struct receive_levels *r, uint32_t index, unsigned level)
{
	struct waiting *w = &r->cell[index];
	uint32_t last = r->level[level].last;

	w->level = (uint16_t)level;
	w->before = last;
	w->after = WAITING_NONE;
	if (last == WAITING_NONE)
		r->level[level].first = index;
	else
		r->cell[last].after = index;
	r->level[level].last = index;
	r->level[level].count++;
	r->used |= 1u << level;
}

static void level_remove(struct receive_levels *r, uint32_t index)
{
	const struct waiting *w = &r->cell[index];
	unsigned level = w->level;

	if (w->before == WAITING_NONE)
		r->level[level].first = w->after;
	else
		r->cell[w->before].after = w->after;
	if (w->after == WAITING_NONE)
		r->level[level].last = w->before;
	else
		r->cell[w->after].before = w->before;
	if (--r->level[level].count == 0)
		r->used &= ~(1u << level);
}

static void flow_append(struct receive_levels *r, uint32_t index)
{
	struct waiting *w = &r->cell[index];
	uint32_t *last = &r->last_of_flow[w->flow & r->mask];

	w->flow_before = *last;
	w->flow_after = WAITING_NONE;
	if (*last != WAITING_NONE)
		r->cell[*last].flow_after = index;
	*last = index;
}

static void flow_remove(struct receive_levels *r, uint32_t index)
{
	const struct waiting *w = &r->cell[index];

	if (w->flow_before != WAITING_NONE)
		r->cell[w->flow_before].flow_after = w->flow_after;
	if (w->flow_after != WAITING_NONE)
		r->cell[w->flow_after].flow_before = w->flow_before;
	else
		r->last_of_flow[w->flow & r->mask] = w->flow_before;
}

static struct rte_mbuf *cell_give(struct receive_levels *r, uint32_t index)
{
	struct rte_mbuf *m = r->cell[index].packet;

	level_remove(r, index);
	flow_remove(r, index);
	r->cell[index].after = r->free;
	r->free = index;
	r->count--;
	r->buffers -= r->cell[index].buffers;
	return m;
}

void receive_levels_close(struct receive_levels *r)
{
	while (r->used)
		rte_pktmbuf_free(receive_level_take(r));
	free(r->cell);
	free(r->last_of_flow);
	*r = (struct receive_levels){0};
}

/* ---- enqueue and dequeue --------------------------------------------------------------------- */

/* Raises the flow's less urgent packets, which are its last ones, oldest first. */
static void flow_rise(struct receive_levels *r, uint32_t flow, unsigned level)
{
	uint32_t at = r->last_of_flow[flow & r->mask], first = WAITING_NONE;

	for (; at != WAITING_NONE; at = r->cell[at].flow_before) {
		if (r->cell[at].flow != flow)
			continue;
		if (r->cell[at].level <= level)
			break;
		first = at;
	}
	for (at = first; at != WAITING_NONE; at = r->cell[at].flow_after) {
		if (r->cell[at].flow != flow)
			continue;
		level_remove(r, at);
		level_append(r, at, level);
		r->risen++;
	}
}

struct rte_mbuf *receive_level_add(struct receive_levels *r, struct rte_mbuf *m, uint32_t flow,
                                   unsigned level)
{
	uint32_t index;

	if (r->count > 0)
		flow_rise(r, flow, level);
	/* Each packet has at least one buffer, so a free buffer implies a free cell. */
	if (r->buffers + m->nb_segs > r->max) {
		unsigned lowest = r->used ? 31 - (unsigned)__builtin_clz(r->used) : 0;
		if (lowest <= level || m->nb_segs > r->max) {
			r->dropped[level]++;
			return m;
		}
		r->dropped[lowest]++;
		return cell_give(r, r->level[lowest].last);
	}
	index = r->free;
	r->free = r->cell[index].after;
	r->cell[index].packet = m;
	r->cell[index].flow = flow;
	r->cell[index].buffers = m->nb_segs;
	level_append(r, index, level);
	flow_append(r, index);
	r->count++;
	r->buffers += m->nb_segs;
	return NULL;
}

struct rte_mbuf *receive_level_take(struct receive_levels *r)
{
	unsigned level = receive_level_next(r);

	r->taken[level]++;
	return cell_give(r, r->level[level].first);
}
