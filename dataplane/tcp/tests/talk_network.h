// SPDX-License-Identifier: Apache-2.0
/* A conversation and the network of it. */
#ifndef TALK_NETWORK_H
#define TALK_NETWORK_H

#include "script.h"

#define MS_NS    UINT64_C(1000000)
#define WIRE_MAX 8192

struct packet {
	uint64_t at;
	uint64_t order;
	struct rte_mbuf *m;
};

/* One direction of the network. */
struct wire {
	unsigned loss, doubled, late;                /* of 1000 packets */
	uint32_t delay_us, jitter_us, late_us, rate; /* rate: bytes in a millisecond; 0: any */
	uint64_t busy;                               /* until when the link sends */
	uint32_t mtu;
	bool hole;             /* nobody tells who sends packets larger than the MTU */
	bool marks;            /* congestion instead of some losses */
	struct packet *packet; /* a heap: what comes first is first */
	unsigned count;
};

struct side {
	struct sy_stack *s;
	sy_stack_id listener, id;
	struct wire out;
	uint32_t to_write, written, to_read, read;
	uint64_t next; /* when the application acts again */
	uint32_t nap_us;
	bool shut, closed, eof, aborts;
};

struct talk {
	uint64_t seed, random, now, order;
	struct side side[2]; /* 0 opens */
	const char *wrong;
	bool over; /* one side was given up, and the other one cannot know */
	bool v4, explain;
	bool joins;                      /* what comes at once is joined (large.h) */
	struct packet room[2][WIRE_MAX]; /* of both wires */
};

static inline uint64_t random64(struct talk *t)
{
	uint64_t z = t->random += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static inline uint32_t below(struct talk *t, uint32_t n)
{
	return (uint32_t)(random64(t) % n);
}

static inline bool chance(struct talk *t, unsigned of_1000)
{
	return below(t, 1000) < of_1000;
}

/* Small numbers as often as large ones. */
static inline uint32_t some(struct talk *t, uint32_t most)
{
	uint32_t bits = 0;

	while (bits < 31 && most >> bits)
		bits++;
	return below(t, 1u << below(t, bits + 1)) % (most + 1);
}

/* A packet of this side goes its way. */
void wire_send(struct talk *t, unsigned from, struct rte_mbuf *m);
/* What has come by now arrives at the other side. */
void wire_deliver(struct talk *t, unsigned from);
/* The next packet of a wire that is not empty. */
struct rte_mbuf *wire_take(struct wire *w);

#endif
