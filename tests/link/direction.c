// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "direction.h"
#include "link_chance.h"
#include "link_frame.h"

#define NS_PER_S 1000000000ull

int direction_open(struct direction *d, struct pool *pool, struct direction *back)
{
	*d = (struct direction){.pool = pool, .back = back};
	params_default(&d->params);
	queue_clear(&d->queue);
	return heap_open(&d->wire, pool->count);
}

void direction_close(struct direction *d)
{
	heap_close(&d->wire);
}

void direction_seed(struct direction *d, uint64_t seed)
{
	d->seed = seed;
	d->numbered = 0;
	d->bad = false;
}

/* Only jitter waits for earlier packets: a shorter delay is another path. */
void direction_set(struct direction *d, const struct params *p)
{
	d->params = *p;
	d->last_due = 0;
}

const char *direction_drop_name(enum direction_drop why)
{
	static const char *const names[] = {
#define X(name, text) text,
	        DIRECTION_DROPS(X)
#undef X
	};
	return names[why];
}

uint64_t direction_on_the_way(const struct direction *d)
{
	return (uint64_t)d->queue.packets + d->wire.count + d->held_count;
}

void direction_drop(struct direction *d, uint32_t index, enum direction_drop why)
{
	d->counts.drop[why]++;
	pool_give(d->pool, index);
}

void direction_refuse(struct direction *d, uint64_t packets, enum direction_drop why)
{
	d->counts.arrived += packets;
	d->counts.drop[why] += packets;
}

void direction_delivered(struct direction *d, uint32_t index)
{
	d->counts.delivered++;
	d->counts.delivered_bytes += d->pool->packet[index].length;
	pool_give(d->pool, index);
}

static struct frame frame_of(const struct direction *d, uint32_t index)
{
	return frame_look(pool_bytes(d->pool, index), d->pool->packet[index].length);
}

static bool is_hit(const struct direction *d, double share, unsigned purpose, uint64_t number)
{
	return share > 0 && chance_hits(share, chance_draw(d->seed, purpose, number));
}

/* ---- the wire -------------------------------------------------------------------------------- */

static void wire_put(struct direction *d, uint32_t index, uint64_t due)
{
	d->pool->packet[index].due = due;
	heap_put(&d->wire, due, index);
	uint64_t way = direction_on_the_way(d);
	if (way > d->counts.way_max)
		d->counts.way_max = way;
}

static void opening_queue_release(struct direction *d, uint32_t place, uint64_t due)
{
	uint32_t index = d->held[place];
	d->held[place] = d->held[--d->held_count];
	wire_put(d, index, due);
}

/* Sends a packet that is not reordered, followed by reordered packets for which it was the last to
 * wait for. */
static void wire_pass(struct direction *d, uint32_t index, uint64_t due)
{
	if (d->params.order == ORDER_KEEP && due < d->last_due)
		due = d->last_due;
	d->last_due = due;
	d->passed++;
	wire_put(d, index, due);
	for (uint32_t i = 0; i < d->held_count;) {
		struct packet *held = &d->pool->packet[d->held[i]];
		if (held->follow > d->passed) {
			i++;
			continue;
		}
		opening_queue_release(d, i, due > held->due ? due : held->due);
	}
}

static void wire_hold(struct direction *d, uint32_t index, uint64_t due)
{
	struct packet *p = &d->pool->packet[index];
	bool waits = d->params.reorder_distance > 0;
	if (waits && d->held_count == HELD_MAX) {
		wire_pass(d, index, due);
		return;
	}
	d->counts.reordered++;
	p->due = due;
	if (!waits) {
		wire_put(d, index, due + d->params.reorder_delay);
		return;
	}
	p->follow = d->passed + d->params.reorder_distance;
	d->held[d->held_count++] = index;
}

static bool is_lost(struct direction *d, uint64_t number, enum direction_drop *why)
{
	const struct params *p = &d->params;
	if (is_hit(d, d->bad ? p->burst_leave : p->burst_enter, CHANCE_STATE, number)) {
		d->bad = !d->bad;
		d->counts.bursts += d->bad;
	}
	*why = d->bad ? DROP_BURST : DROP_LOSS;
	return is_hit(d, d->bad ? p->burst_loss : p->loss, CHANCE_LOSS, number);
}

static uint64_t jitter_of(const struct direction *d, uint64_t number)
{
	if (d->params.jitter == 0)
		return 0;
	double at = d->params.distribution == JITTER_NORMAL
	                    ? chance_normal(d->seed, CHANCE_JITTER, number)
	                    : chance_uniform(d->seed, CHANCE_JITTER, number);
	return (uint64_t)((double)d->params.jitter * at);
}

/* The copy of a packet that arrives twice; STORE_NONE: there is no memory for it. */
static uint32_t packet_copy(struct direction *d, uint32_t index)
{
	uint32_t copy = pool_take(d->pool);
	if (copy == STORE_NONE) {
		d->counts.drop[DROP_NO_MEMORY]++;
		return copy;
	}
	d->pool->packet[copy] = d->pool->packet[index];
	memcpy(pool_bytes(d->pool, copy), pool_bytes(d->pool, index),
	       d->pool->packet[index].length);
	return copy;
}

/* A packet has left the transmitter. */
static void wire_enter(struct direction *d, uint32_t index, uint64_t at)
{
	const struct params *p = &d->params;
	enum direction_drop why;
	uint32_t copy = STORE_NONE;

	uint64_t number = d->numbered++;
	d->counts.transmitted++;
	d->counts.transmitted_bytes += d->pool->packet[index].length;
	if (is_lost(d, number, &why)) {
		direction_drop(d, index, why);
		return;
	}
	if (is_hit(d, p->duplicate, CHANCE_DUPLICATE, number)) {
		d->counts.duplicated++;
		copy = packet_copy(d, index);
	}
	if (is_hit(d, p->corrupt, CHANCE_CORRUPT, number)) {
		struct frame f = frame_of(d, index);
		d->counts.corrupted++;
		frame_flip(&f, chance_draw(d->seed, CHANCE_BIT, number));
	}
	uint64_t due = at + p->delay + jitter_of(d, number);
	if (is_hit(d, p->reorder, CHANCE_REORDER, number))
		wire_hold(d, index, due);
	else
		wire_pass(d, index, due);
	if (copy != STORE_NONE)
		wire_put(d, copy, d->last_due > due ? d->last_due : due);
}

/* ---- queue and transmitter ------------------------------------------------------------------- */

static uint64_t transmission(const struct direction *d, uint32_t length)
{
	if (d->params.rate == 0)
		return 0;
	unsigned __int128 bits = (unsigned __int128)(length + d->params.overhead) * 8;
	/* Rounded up: never faster than the rate. */
	return (uint64_t)((bits * NS_PER_S + d->params.rate - 1) / d->params.rate);
}

void direction_advance(struct direction *d, uint64_t now)
{
	while (d->queue.packets && d->free_at <= now) {
		uint32_t index = queue_take(&d->queue, d->pool);
		struct packet *p = &d->pool->packet[index];
		uint64_t start = d->free_at > p->arrived ? d->free_at : p->arrived;
		d->free_at = start + transmission(d, p->length);
		wire_enter(d, index, d->free_at);
	}
	for (uint32_t i = 0; i < d->held_count;) {
		uint64_t due = d->pool->packet[d->held[i]].due + d->params.reorder_delay;
		if (due > now) {
			i++;
			continue;
		}
		opening_queue_release(d, i, due);
	}
}

/* The share of packets to drop or mark, by the bytes that wait. */
static double red_share(const struct params *p, uint64_t waiting)
{
	if (p->red_max == 0 || waiting < p->red_min)
		return 0;
	if (waiting >= p->red_max)
		return 1;
	return p->red_probability * (double)(waiting - p->red_min) /
	       (double)(p->red_max - p->red_min);
}

static void queue_enter(struct direction *d, uint32_t index)
{
	const struct params *p = &d->params;
	struct packet *packet = &d->pool->packet[index];
	struct frame f = frame_of(d, index);

	if (f.spared) {
		d->counts.spared++;
		wire_put(d, index, packet->arrived + p->delay);
		return;
	}
	if ((p->queue_packets && d->queue.packets >= p->queue_packets) ||
	    (p->queue_bytes && d->queue.bytes + packet->length > p->queue_bytes)) {
		direction_drop(d, index, DROP_TAIL);
		return;
	}
	if (is_hit(d, red_share(p, d->queue.bytes), CHANCE_QUEUE, d->counts.arrived)) {
		if (!p->ecn || !frame_mark(&f)) {
			direction_drop(d, index, DROP_RED);
			return;
		}
		d->counts.marked++;
	}
	queue_put(&d->queue, d->pool, index);
	uint64_t way = direction_on_the_way(d);
	if (way > d->counts.way_max)
		d->counts.way_max = way;
}

/* ---- MTU ------------------------------------------------------------------------------------- */

/* The router is at the sender's end of the link: its answer takes no link time. */
static void answer(struct direction *d, const struct frame *f, uint64_t now)
{
	const struct params *p = &d->params;
	uint8_t bytes[FRAME_ANSWER];
	uint32_t length = frame_too_big(f, (uint32_t)p->mtu, &p->router4, &p->router6, bytes);
	uint32_t index = length ? pool_take(d->pool) : STORE_NONE;
	if (index == STORE_NONE)
		return;
	memcpy(pool_bytes(d->pool, index), bytes, length);
	d->pool->packet[index].length = length;
	d->pool->packet[index].arrived = now;
	d->back->counts.answers++;
	wire_put(d->back, index, now);
}

static void fragment(struct direction *d, uint32_t index)
{
	struct frame f = frame_of(d, index);
	uint32_t offset = 0;
	d->counts.fragmented++;
	do {
		uint32_t part = pool_take(d->pool);
		if (part == STORE_NONE) {
			d->counts.drop[DROP_NO_MEMORY]++;
			d->counts.fragments++;
			break;
		}
		struct packet *p = &d->pool->packet[part];
		p->arrived = d->pool->packet[index].arrived;
		p->length = frame_fragment(&f, (uint32_t)d->params.mtu, &offset,
		                           pool_bytes(d->pool, part));
		d->counts.fragments++;
		queue_enter(d, part);
	} while (offset);
	pool_give(d->pool, index);
}

void direction_arrive(struct direction *d, uint32_t index)
{
	const struct packet *p = &d->pool->packet[index];
	uint64_t now = p->arrived;

	d->counts.arrived++;
	d->counts.arrived_bytes += p->length;
	direction_advance(d, now);
	if (d->params.mtu) {
		struct frame f = frame_of(d, index);
		if (f.version && !f.spared && f.length > d->params.mtu) {
			if (frame_may_fragment(&f)) {
				fragment(d, index);
			} else {
				if (d->params.too_big == TOO_BIG_ICMP)
					answer(d, &f, now);
				direction_drop(d, index, DROP_MTU);
			}
			direction_advance(d, now);
			return;
		}
	}
	queue_enter(d, index);
	direction_advance(d, now);
}

/* ---- time ------------------------------------------------------------------------------------ */

uint64_t direction_next(const struct direction *d)
{
	uint64_t next = heap_due(&d->wire);
	if (d->queue.packets && d->free_at < next)
		next = d->free_at;
	for (uint32_t i = 0; i < d->held_count; i++) {
		uint64_t due = d->pool->packet[d->held[i]].due + d->params.reorder_delay;
		next = due < next ? due : next;
	}
	return next;
}

uint32_t direction_take(struct direction *d, uint64_t now)
{
	return heap_due(&d->wire) <= now ? heap_take(&d->wire) : STORE_NONE;
}

void direction_hurry(struct direction *d, uint64_t now)
{
	struct queue all;
	while (d->queue.packets) {
		d->free_at = d->free_at < now ? d->free_at : now;
		direction_advance(d, now);
	}
	while (d->held_count)
		opening_queue_release(d, 0,
		                      d->pool->packet[d->held[0]].due + d->params.reorder_delay);
	queue_clear(&all);
	while (d->wire.count)
		queue_put(&all, d->pool, heap_take(&d->wire));
	while (all.packets)
		wire_put(d, queue_take(&all, d->pool), now);
	d->last_due = d->last_due < now ? d->last_due : now;
	d->free_at = d->free_at < now ? d->free_at : now;
}
