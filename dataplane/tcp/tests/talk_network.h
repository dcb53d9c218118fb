// SPDX-License-Identifier: Apache-2.0
/* A conversation and its network. */
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
	unsigned loss, doubled, late;                /* per mille */
	uint32_t delay_us, jitter_us, late_us, rate; /* rate: bytes per ms; 0: unlimited */
	uint64_t busy;                               /* the link is busy until then */
	uint32_t mtu;
	bool hole;             /* a path MTU black hole */
	bool marks;            /* ECN marks instead of some losses */
	struct packet *packet; /* heap by arrival time */
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
	bool over; /* one side timed out without the other's knowledge */
	bool v4, explain;
	bool joins;                       /* LRO (large.h) */
	struct packet space[2][WIRE_MAX]; /* of both wires */
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
static inline uint32_t some(struct talk *t, uint32_t max)
{
	uint32_t bits = 0;

	while (bits < 31 && max >> bits)
		bits++;
	return below(t, 1u << below(t, bits + 1)) % (max + 1);
}

/* Sends a packet. */
void wire_send(struct talk *t, unsigned from, struct rte_mbuf *m);
/* Delivers packets that have arrived. */
void wire_deliver(struct talk *t, unsigned from);
/* Removes the next packet; the wire must not be empty. */
struct rte_mbuf *wire_take(struct wire *w);

#endif
