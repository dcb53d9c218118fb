// SPDX-License-Identifier: Apache-2.0
/*
 * What was sent and is not acknowledged, from SND.UNA to SND.NXT: the scoreboard of RFC 2018 and
 * 6675, the loss detection of RFC 8985 (RACK-TLP), and the evidence that a loss was none.
 *
 *     una                                        nxt
 *      │ lost │ SACKed │ in flight │ SACKed │ in flight │      ranges, in sequence order
 *                          3            1         2            in the order of sending
 *
 * A range is what was sent at one time and has the same marks. It is split when a part of it is
 * acknowledged, and joined with neighbours that are alike. Ranges in flight are also chained by the
 * time of their last sending, so that finding losses costs as much as there are losses (RFC 8985,
 * 6.2, step 5, walks over all). What is sent within 1/128 of a round trip is one range, with the
 * later time: a window is some hundred ranges at most, however large it is.
 *
 * A peer's SACK blocks cannot cost more: beyond SENT_RANGES they split no range, and each block is
 * looked for from the nearest of both ends and the places of the last ones, SENT_STEPS ranges far.
 * A block that cannot be noted is noted when it is told again, or its data is sent again: nothing
 * worse.
 *
 * Times are nanoseconds, and never go back.
 */
#ifndef TCP_SENT_H
#define TCP_SENT_H

#include <stdbool.h>

#include "pool.h"
#include "rtt.h"
#include "sack.h"

#define SENT_RANGES       1024 /* of a connection; what is sent again may add some */
#define SENT_RANGES_AGAIN 256
#define SENT_RANGES_SURE  16 /* of a connection, in the pool's last quarter too */
#define SENT_NEAR         2  /* retransmissions and new data are SACKed in turns */
/* From range to range, for one block and one search for losses. Tests compare without a bound. */
#ifndef SENT_STEPS
#define SENT_STEPS 64
#endif

enum sent_mark {
	SENT_SACKED = 1,
	SENT_LOST = 2,    /* and not sent again since */
	SENT_AGAIN = 4,   /* more than once */
	SENT_BLURRED = 8, /* its time is not exact: no sample */
};

/* Was a time-out spurious? What the next ACK may say: RFC 5682, 2.1 and 3.1. */
enum frto {
	FRTO_NONE,   /* nothing: recovery is the usual one */
	FRTO_FIRST,  /* the first one since: a part of what was under way may be acknowledged */
	FRTO_SECOND, /* new segments were sent, and it answers them or the first transmissions */
};

/* A cell of the pool. */
struct sent_range {
	uint32_t next, prev;    /* in sequence order */
	uint32_t later, sooner; /* in flight, in the order of sending */
	uint64_t sent_ns;       /* the last time */
	uint32_t from, to;
	uint8_t marks;
};
_Static_assert(sizeof(struct sent_range) == 40, "of a pool of a core");

struct sent {
	uint32_t una, nxt;
	uint32_t first, last;     /* ranges; 0: there are none */
	uint32_t soonest, latest; /* of those in flight */
	uint32_t near[SENT_NEAR]; /* where SACK blocks were found last; 0: nowhere */
	uint32_t lost_at;         /* no range before it is lost; 0: nothing is known */
	uint32_t ranges;
	uint32_t sacked, lost; /* bytes; RFC 6675's pipe is what is neither */
	uint32_t guessed;      /* bytes that duplicate ACKs without SACK stand for */
	uint32_t fack;         /* RACK.fack: the end of all that arrived */
	uint64_t joined_ns;    /* when the last range was begun */

	/* RFC 8985, 5.2 and 5.3 */
	uint64_t rack_ns; /* when the last sent of all that arrived was sent; 0: nothing arrived */
	uint32_t rack_to;
	uint32_t rack_us;     /* RACK.rtt */
	uint32_t dsack_round; /* SND.NXT when D-SACK widened the window */
	uint32_t probe_to;    /* TLP.end_seq */
	uint8_t widened;      /* RACK.reo_wnd_mult */
	uint8_t persist;      /* RACK.reo_wnd_persist */
	bool reordered : 1;
	bool in_dsack_round : 1;
	bool probing : 1;     /* a probe is under way */
	bool probe_again : 1; /* and was a retransmission */
	bool probe_rests : 1; /* no sample came since the last one */
	bool near_turn : 1;   /* which of near[] a search from an end replaces */
	bool timed_out : 1;   /* and timed_out_to is not acknowledged */
	bool blurs : 1;       /* the same, also after recovery has ended */
	uint8_t frto;         /* enum frto */

	/* Was it in vain? Since the recovery began: */
	uint32_t again;        /* bytes sent again that no D-SACK told of */
	uint32_t again_from;   /* SND.UNA then */
	uint32_t timed_out_to; /* SND.NXT when the time passed */
	uint64_t again_ns;     /* when the first was sent again; 0: none was */
};
_Static_assert(sizeof(struct sent) == 112, "less than a quarter of a connection");

/* What an ACK says. */
struct sent_ack {
	uint32_t ack; /* not after SND.NXT */
	struct sack_block blocks[SACK_BLOCKS];
	uint8_t count;
	bool pure; /* without data, and with the same window as before */
	uint16_t mss;
	uint64_t now_ns;
	/* By the timestamp that it echoes, it answers a segment sent before this time: the end of
	 * the clock's tick. 0: no timestamp. */
	uint64_t echo_ns;
};

/* What it meant. */
struct sent_news {
	uint32_t acked;     /* bytes that SND.UNA advanced by */
	uint32_t sacked;    /* bytes marked for the first time */
	uint32_t delivered; /* of both, what was not known to have arrived */
	uint32_t rtt_us;    /* a sample for the time-out, by Karn's rule; 0: none */
	uint32_t least_us;  /* a sample for the least one, without the peer's delay of ACKs */
	bool dsack;
	bool probe_lost; /* the tail probe mended a loss: reduce the window (RFC 8985, 7.4.2) */
	/* The recovery was in vain: undo the reduction. */
	bool undone;   /* all that was sent again arrived twice (RFC 3708) */
	bool spurious; /* by the timestamp, the original was acknowledged (RFC 3522) */
	bool original; /* after a time-out, what was not sent again arrives (RFC 5682, 3.1) */
};

void sent_init(struct sent *s, uint32_t first);
void sent_clear(struct sent *s, struct pool *p);

/* Bytes from SND.NXT on are sent. false: no range is left for them; wait for an ACK. SYN and FIN
 * are a byte. */
bool sent_add(struct sent *s, struct pool *p, uint32_t bytes, uint64_t now_ns);
/* When the last range was sent is not known: it says nothing of the round trip. */
void sent_blur(struct sent *s, struct pool *p);

/* Sent again; SACKed parts in between are left out. */
void sent_again(struct sent *s, struct pool *p, uint32_t from, uint32_t to, uint64_t now_ns);

/* RFC 6675's pipe, in bytes. */
static inline uint32_t sent_in_flight(const struct sent *s)
{
	uint32_t all = s->nxt - s->una, less = s->sacked + s->lost + s->guessed;
	return all > less ? all - less : 0;
}

/* When the first range was sent, the last time; 0: nothing is under way. */
uint64_t sent_first_ns(const struct sent *s, const struct pool *p);

/* The first range that is lost and not sent again since. */
bool sent_next_lost(struct sent *s, const struct pool *p, uint32_t *from, uint32_t *to);

/* ---- sent_ack.c ------------------------------------------------------------------------------ */

void sent_acked(struct sent *s, struct pool *p, const struct rtt *r, const struct sent_ack *in,
                struct sent_news *news);

/* A duplicate ACK of a peer without SACK (RFC 5681, 3.2): a segment has arrived, nobody knows
 * which. Returns how many bytes that are, which count as delivered in prr.h. */
uint32_t sent_duplicate(struct sent *s, uint16_t mss);

/* ---- sent_loss.c ----------------------------------------------------------------------------- */

/* Marks what is lost by now (RFC 8985, 6.2), and returns how many bytes. look_ns: when to look
 * again; 0: not before the next ACK. recovering: in recovery of any kind. */
uint32_t sent_detect(struct sent *s, struct pool *p, const struct rtt *r, uint16_t mss,
                     bool recovering, uint64_t now_ns, uint64_t *look_ns);

/* The first segment is lost: the third duplicate ACK, or a partial one, of a peer without SACK
 * (RFC 6582, 3.2). Returns how many bytes that are. */
uint32_t sent_first_lost(struct sent *s, struct pool *p, uint16_t mss);

/* The retransmission time passed: marks what is lost (RFC 8985, 6.3). repeated: not for the first
 * time. Then, or if the peer has dropped what it had SACKed, all is lost, and SACKs are forgotten
 * (RFC 2018, 8). */
void sent_timed_out(struct sent *s, struct pool *p, const struct rtt *r, uint16_t mss,
                    bool repeated, uint64_t now_ns);

/* What was taken for lost is only late, and under way again: nothing of it is sent again, unless
 * RACK or a time-out finds it lost anew (RFC 4015, 3.2, step 4). */
void sent_found(struct sent *s, struct pool *p);

/* Recovery of any kind ended. */
void sent_recovered(struct sent *s);

/* PTO in nanoseconds (RFC 8985, 7.2), to be bounded by the retransmission time-out; 0: no probe
 * now. Only for peers with SACK, and not in recovery. ack_delay_us: how long the peer delays ACKs.
 */
uint64_t sent_probe_wait(const struct sent *s, const struct rtt *r, uint16_t mss,
                         uint32_t ack_delay_us);

/* A probe is due and there is nothing new to send: the last segment's bytes. Then sent_again(). */
static inline void sent_probe_range(const struct sent *s, uint16_t mss, uint32_t *from,
                                    uint32_t *to)
{
	*to = s->nxt;
	*from = s->nxt - s->una > mss ? s->nxt - mss : s->una;
}

/* After a probe was sent. again: it was a retransmission, not new data. It begins no recovery. */
static inline void sent_probed(struct sent *s, bool again)
{
	s->probe_to = s->nxt;
	s->probing = true;
	s->probe_again = again;
	s->probe_rests = true;
	s->again = 0;
	s->again_ns = 0;
}

#endif
