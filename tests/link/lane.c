// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <time.h>

#include "lane.h"

#define NS_PER_S        1000000000ull
#define RECEIVE_BURST   256u
#define OLDEST          NS_PER_S /* a packet in the ring: older ones mean that the clock was set */
#define TRY_AGAIN       20000u   /* ns until a packet is offered to the kernel once more */
#define GIVE_UP         (NS_PER_S / 5) /* the interface, or its peer, is down */
#define ETHERNET_HEADER 14u
#define TAG             4u
#define ADDRESSES       12u /* bytes of an Ethernet header in front of a tag */

static uint64_t time_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t clock_ns(void)
{
	return time_ns(CLOCK_MONOTONIC);
}

int link_open(struct link *l, uint32_t packets, uint32_t slot, uint64_t seed)
{
	*l = (struct link){0};
	int failed = pool_open(&l->pool, packets, slot);
	if (failed)
		return failed;
	for (int i = 0; i < 2; i++) {
		struct lane *lane = &l->lane[i];
		failed = direction_open(&lane->direction, &l->pool, &l->lane[!i].direction);
		if (failed)
			return failed;
		lane->from = &l->port[i];
		lane->to = &l->port[!i];
	}
	link_seed(l, seed);
	return 0;
}

void link_close(struct link *l)
{
	for (int i = 0; i < 2; i++)
		direction_close(&l->lane[i].direction);
	pool_close(&l->pool);
}

void link_seed(struct link *l, uint64_t seed)
{
	l->seed = seed;
	for (unsigned i = 0; i < 2; i++)
		direction_seed(&l->lane[i].direction, 2 * seed + i);
}

void link_clear(struct link *l)
{
	for (unsigned i = 0; i < 2; i++) {
		struct lane *lane = &l->lane[i];
		uint64_t way = lane_on_the_way(lane);
		lane->direction.counts = (struct direction_counts){.arrived = way, .way_max = way};
		lane->late = (struct lateness){0};
		if (lane->from->name)
			port_lost(lane->from);
		lane->to->waited = 0;
	}
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Why a frame cannot be carried, or DROP_COUNT. */
static enum direction_drop frame_defect(const struct lane *l, const struct port_frame *f)
{
	if (f->length < f->wire || f->length > l->from->mtu + ETHERNET_HEADER + TAG)
		return DROP_OVERSIZE;
	return f->unfinished ? DROP_UNFINISHED : DROP_COUNT;
}

static void frame_copy(struct pool *pool, uint32_t index, const struct port_frame *f)
{
	uint8_t *to = pool_bytes(pool, index);
	pool->packet[index].length = f->length + (f->tag ? TAG : 0);
	if (f->tag == 0) {
		memcpy(to, f->bytes, f->length);
		return;
	}
	memcpy(to, f->bytes, ADDRESSES);
	for (unsigned i = 0; i < TAG; i++)
		to[ADDRESSES + i] = (uint8_t)(f->tag >> (24 - 8 * i));
	memcpy(to + ADDRESSES + TAG, f->bytes + ADDRESSES, f->length - ADDRESSES);
}

static void lane_accept(struct lane *l, const struct port_frame *f, uint64_t arrived)
{
	struct direction *d = &l->direction;
	enum direction_drop defect = frame_defect(l, f);
	uint32_t index = defect == DROP_COUNT ? pool_take(d->pool) : STORE_NONE;
	if (index == STORE_NONE) {
		direction_refuse(d, 1, defect == DROP_COUNT ? DROP_NO_MEMORY : defect);
		return;
	}
	frame_copy(d->pool, index, f);
	/* The kernel's clock may be set; here, time only grows. */
	l->arrived = arrived > l->arrived ? arrived : l->arrived;
	d->pool->packet[index].arrived = l->arrived;
	direction_arrive(d, index);
}

/* The delay counts from the kernel's time stamp. */
bool lane_receive(struct lane *l)
{
	struct port_frame f;
	unsigned count = 0;
	if (!port_receive(l->from, &f))
		return false;
	uint64_t real = time_ns(CLOCK_REALTIME), now = clock_ns();
	do {
		/* Frames that arrived meanwhile are younger than `real`. */
		uint64_t age = f.time < real ? real - f.time : 0;
		lane_accept(l, &f, now - (age < OLDEST ? age : 0));
		port_release(l->from);
	} while (++count < RECEIVE_BURST && port_receive(l->from, &f));
	return true;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void lane_collect(struct lane *l, uint64_t now)
{
	if (l->sent < l->count)
		return;
	l->sent = l->count = 0;
	while (l->count < PORT_BURST) {
		uint32_t index = direction_take(&l->direction, now);
		if (index == STORE_NONE)
			return;
		l->due[l->count++] = index;
	}
}

static void lane_sent(struct lane *l, unsigned count, uint64_t now)
{
	const struct packet *packet = l->direction.pool->packet;
	for (; count; count--) {
		uint32_t index = l->due[l->sent++];
		uint64_t due = packet[index].due;
		lateness_add(&l->late, now > due ? now - due : 0);
		direction_delivered(&l->direction, index);
	}
	l->refused = 0;
}

/* Sends due packets. Returns 0, or the time of the next attempt. */
static uint64_t lane_offer(struct lane *l)
{
	const struct pool *pool = l->direction.pool;
	struct port_bytes frames[PORT_BURST];
	unsigned count = 0;
	for (unsigned i = l->sent; i < l->count; i++)
		frames[count++] = (struct port_bytes){pool_bytes(pool, l->due[i]),
		                                      pool->packet[l->due[i]].length};
	int sent = port_send(l->to, frames, count);
	uint64_t now = clock_ns();
	if (sent > 0) {
		lane_sent(l, (unsigned)sent, now);
		return 0;
	}
	if (l->refused == 0)
		l->refused = now;
	/* A receiver without CPU time may leave its queue full for as long. */
	if (sent == -EAGAIN && (now - l->refused < GIVE_UP || port_is_running(l->to)))
		return now + TRY_AGAIN;
	direction_drop(&l->direction, l->due[l->sent++], DROP_SEND);
	return 0;
}

uint64_t lane_send(struct lane *l)
{
	uint64_t now = clock_ns();
	direction_advance(&l->direction, now);
	lane_collect(l, now);
	if (l->sent < l->count) {
		uint64_t again = lane_offer(l);
		if (again)
			return again;
	}
	return l->sent < l->count ? now : direction_next(&l->direction);
}

uint64_t lane_on_the_way(const struct lane *l)
{
	return direction_on_the_way(&l->direction) + l->count - l->sent;
}
