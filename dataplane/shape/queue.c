// SPDX-License-Identifier: Apache-2.0
/* A class's queue: admission, and early drops by its mean length (RED, Floyd and Jacobson 1993;
 * weighted by drop precedence). */
#include "shape.h"

/* Each packet moves the mean by 2^-MEAN_SHIFT towards the length. */
#define MEAN_SHIFT 9
#define MEAN_UNIT  256
/* Packets that each queue may have, however long the other queues are. */
#define FEW       4
#define USUAL_LEN 1000 /* assumed bytes of a packet, for the idle time of an empty queue */

void queue_init(struct queue *q, const struct sy_shape_class *c)
{
	static const uint8_t quarters[] = {4, 3, 2};
	*q = (struct queue){.max = c->queue};
	for (unsigned i = 0; i < SY_ARRAY_LEN(quarters) && c->early.percent > 0; i++) {
		uint64_t whole = (uint64_t)c->queue * MEAN_UNIT * quarters[i];
		q->early[i].from = (uint32_t)(whole * c->early.from / 400);
		q->early[i].to = (uint32_t)(whole * c->early.to / 400);
		q->early[i].percent = c->early.percent;
	}
}

static uint32_t random_below(struct sy_shape *s, uint32_t bound)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return (uint32_t)((s->random >> 32) * bound >> 32);
}

static void mean_follow(struct queue *q, uint64_t now_ns, double ns_per_byte)
{
	const uint32_t length = q->count * MEAN_UNIT;
	if (q->count == 0 && q->mean > 0 && now_ns > q->empty_since_ns) {
		/* As if packets of the usual length had arrived while it was empty. */
		double missed = (double)(now_ns - q->empty_since_ns) / (ns_per_byte * USUAL_LEN);
		q->mean = (uint32_t)(q->mean / (1 + missed / (1 << MEAN_SHIFT)));
		q->empty_since_ns = now_ns;
	}
	q->mean += (uint32_t)(((int64_t)length - q->mean) / (1 << MEAN_SHIFT));
}

static bool early_drop(struct sy_shape *s, const struct queue *q, unsigned precedence)
{
	const uint32_t from = q->early[precedence].from, to = q->early[precedence].to;
	if (q->mean < from)
		return false;
	if (q->mean >= to)
		return true;
	return random_below(s, 100 * (to - from)) < q->early[precedence].percent * (q->mean - from);
}

/* May a queue of this length grow? Each has at most twice the remaining capacity (Choudhury and
 * Hahne 1998), so that a few long queues leave space; the last eighth is for short queues. */
static bool has_capacity(const struct sy_shape *s, const struct queue *q)
{
	const uint32_t common = s->capacity - s->capacity / 8;
	if (q->count < FEW)
		return s->waiting < s->capacity;
	return s->waiting < common && q->count < 2 * (common - s->waiting);
}

enum sy_drop queue_check(struct sy_shape *s, struct queue *q, unsigned precedence, uint64_t now_ns,
                         double ns_per_byte)
{
	if (q->early[0].percent > 0) {
		mean_follow(q, now_ns, ns_per_byte);
		if (early_drop(s, q, precedence))
			return SY_DROP_SHAPING_EARLY;
	}
	return q->count < q->max && has_capacity(s, q) ? SY_DROP_NONE : SY_DROP_SHAPING_FULL;
}

void queue_add(struct queue *q, struct rte_mbuf *m)
{
	m->next = NULL;
	if (q->last)
		q->last->next = m;
	else
		q->first = m;
	q->last = m;
	__atomic_store_n(&q->count, q->count + 1, __ATOMIC_RELAXED);
}

struct rte_mbuf *queue_remove(struct queue *q, uint64_t now_ns)
{
	struct rte_mbuf *m = q->first;
	q->first = m->next;
	m->next = NULL; /* single segments: next is NULL */
	if (q->first) {
		__builtin_prefetch(q->first);
	} else {
		q->last = NULL;
		q->empty_since_ns = now_ns;
	}
	__atomic_store_n(&q->count, q->count - 1, __ATOMIC_RELAXED);
	return m;
}
