// SPDX-License-Identifier: Apache-2.0
/* A sender with segments of one size, for tests of sent*.c. */
#ifndef TCP_TESTS_SENDER_H
#define TCP_TESTS_SENDER_H

#include "sent.h"

#define MS     UINT64_C(1000000)
#define MSS    1000
#define ISS    (UINT32_MAX - 5000) /* wraps around soon */
#define RTT_MS 100

/* A sender, whose segments are numbered from 1 and have MSS bytes. */
struct sender {
	struct sent s;
	struct pool pool;
	struct sent_range cells[4 * SENT_RANGES];
	struct rtt rtt;
	struct sent_outcome outcome;
	uint64_t now, look;
};

static struct sender sender;

static inline uint32_t segment(unsigned n)
{
	return ISS + MSS * (n - 1);
}

/* Has sent `count` segments 1 ms apart; the RTT of 100 ms is known. */
static inline struct sender *sender_new(unsigned count)
{
	struct sender *o = &sender;
	*o = (struct sender){.now = 1000 * MS};
	pool_init(&o->pool, o->cells, sizeof(*o->cells), 4 * SENT_RANGES);
	sent_init(&o->s, ISS);
	rtt_init(&o->rtt);
	rtt_sample(&o->rtt, RTT_MS * 1000, 1, 0);
	for (unsigned n = 0; n < count; n++, o->now += MS)
		assert_true(sent_add(&o->s, &o->pool, MSS, o->now));
	return o;
}

static inline void sender_ack(struct sender *o, const struct sent_ack *in)
{
	struct sent_ack ack = *in;
	ack.now_ns = o->now;
	ack.mss = MSS;
	sent_acked(&o->s, &o->pool, &o->rtt, &ack, &o->outcome);
}

/* An ACK of the segments before `ack`, and a SACK block of segments from..to - 1. */
static inline void sender_sack(struct sender *o, unsigned ack, unsigned from, unsigned to)
{
	struct sent_ack in = {.ack = segment(ack), .count = from < to};
	in.blocks[0] = (struct sack_block){segment(from), segment(to)};
	sender_ack(o, &in);
}

static inline uint32_t sender_detect(struct sender *o, bool recovering)
{
	return sent_detect(&o->s, &o->pool, &o->rtt, MSS, recovering, o->now, &o->look);
}

static inline unsigned lost_first(struct sender *o)
{
	uint32_t from, to;
	return sent_next_lost(&o->s, &o->pool, &from, &to) ? (from - ISS) / MSS + 1 : 0;
}

static inline void sender_again(struct sender *o, unsigned n)
{
	sent_retransmitted(&o->s, &o->pool, segment(n), segment(n + 1), o->now);
}

#endif
