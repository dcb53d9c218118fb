// SPDX-License-Identifier: Apache-2.0
/*
 * Sent, unacknowledged data from SND.UNA to SND.NXT: the scoreboard of RFC 2018 and RFC 6675, loss
 * detection by RACK-TLP (RFC 8985), and evidence of spurious losses.
 *
 *     una                                        nxt
 *      │ lost │ SACKed │ in flight │ SACKed │ in flight │      ranges, in sequence order
 *                          3            1         2            in the order of transmission
 *
 * A range is data sent at one time with equal marks. It is split when a part of it is acknowledged,
 * and merged with equal neighbours. Ranges in flight are also linked by the time of their last
 * transmission, so that loss detection costs O(losses); RFC 8985 6.2 step 5 walks over all
 * segments. Data sent within 1/128 of the RTT shares a range, with the later time: so a window has
 * some hundred ranges at most, however large it is.
 *
 * A peer's SACK blocks have bounded cost: beyond SENT_RANGES they split no range; each block is
 * searched from the nearest of both ends and recent positions, at most SENT_STEPS ranges far. A
 * block that is not applied is applied when it is reported again, or its data is retransmitted.
 *
 * Times are nanoseconds and never decrease.
 */
#ifndef TCP_SENT_H
#define TCP_SENT_H

#include <stdbool.h>

#include "pool.h"
#include "rtt.h"
#include "sack.h"

#define SENT_RANGES            1024 /* per connection; retransmissions may add some */
#define SENT_RANGES_RETRANSMIT 256
#define SENT_RANGES_RESERVED   16 /* per connection, from the pool's reserve, too */
#define SENT_NEAR              2  /* SACKs alternate between retransmissions and new data */
/* Steps over ranges, per block and per loss detection. Tests set it to unlimited. */
#ifndef SENT_STEPS
#define SENT_STEPS 64
#endif

enum sent_mark {
	SENT_SACKED = 1,
	SENT_LOST = 2,          /* and not retransmitted since */
	SENT_RETRANSMITTED = 4, /* retransmitted */
	SENT_AMBIGUOUS = 8,     /* its transmission time is inexact: no RTT sample */
};

/* F-RTO: what the next ACK can prove about an RTO (RFC 5682 2.1 and 3.1). */
enum frto {
	FRTO_NONE,   /* nothing: conventional recovery */
	FRTO_FIRST,  /* first ACK: may cover a part of the flight */
	FRTO_SECOND, /* second ACK: caused by new segments or by the first transmissions */
};

/* A cell of the pool. */
struct sent_range {
	uint32_t next, prev;    /* in sequence order */
	uint32_t later, sooner; /* of ranges in flight, in the order of transmission */
	uint64_t sent_ns;       /* of the last transmission */
	uint32_t from, to;
	uint8_t marks;
};
_Static_assert(sizeof(struct sent_range) == 40, "of a pool of a core");

struct sent {
	uint32_t una, nxt;
	uint32_t first, last;     /* ranges; 0: none */
	uint32_t soonest, latest; /* of those in flight */
	uint32_t near[SENT_NEAR]; /* positions of recent SACK blocks; 0: none */
	uint32_t lost_at;         /* no range before it is lost; 0: unknown */
	uint32_t ranges;
	uint32_t sacked, lost; /* bytes; RFC 6675's pipe is the rest */
	uint32_t guessed;      /* bytes inferred from duplicate ACKs without SACK */
	uint32_t fack;         /* RACK.fack: highest end delivered */
	uint64_t joined_ns;    /* when the last range began */

	/* RFC 8985, 5.2 and 5.3 */
	uint64_t rack_ns; /* RACK.xmit_ts: transmission time of the most recently sent delivered
	                     data; 0: none */
	uint32_t rack_to;
	uint32_t rack_us;     /* RACK.rtt */
	uint32_t dsack_round; /* SND.NXT when a D-SACK widened the window */
	uint32_t probe_to;    /* TLP.end_seq */
	uint8_t widened;      /* RACK.reo_wnd_mult */
	uint8_t persist;      /* RACK.reo_wnd_persist */
	bool reordered : 1;
	bool in_dsack_round : 1;
	bool probing : 1;                 /* a tail loss probe is in flight */
	bool probe_is_retransmission : 1; /* of that probe */
	bool probe_unsampled : 1;         /* no RTT sample since the last probe */
	bool near_turn : 1;               /* index of the entry of near[] to replace next */
	bool timed_out : 1; /* from an RTO until timed_out_to is acknowledged or recovery ends */
	bool rto_ambiguous : 1; /* from an RTO until timed_out_to is acknowledged */
	uint8_t frto;           /* enum frto */

	/* Evidence of a spurious recovery, since its begin: */
	uint32_t undo_bytes;   /* retransmitted bytes without a D-SACK */
	uint32_t undo_from;    /* SND.UNA at its begin */
	uint32_t timed_out_to; /* SND.NXT at the RTO */
	uint64_t undo_ns;      /* time of the first retransmission; 0: none */
};
_Static_assert(sizeof(struct sent) == 112, "less than a quarter of a connection");

/* A parsed ACK. */
struct sent_ack {
	uint32_t ack; /* at most SND.NXT */
	struct sack_block blocks[SACK_BLOCKS];
	uint8_t count;
	bool pure; /* without data, and with an unchanged window */
	uint16_t mss;
	uint64_t now_ns;
	/* Upper bound of the transmission time of the echoed timestamp: the end of its clock tick.
	 * 0: no timestamp. */
	uint64_t echo_ns;
};

/* The result of an ACK. */
struct sent_outcome {
	uint32_t acked;     /* bytes cumulatively acknowledged */
	uint32_t sacked;    /* bytes newly SACKed */
	uint32_t delivered; /* newly delivered bytes */
	uint32_t rtt_us;    /* RTT sample by Karn's algorithm; 0: none */
	uint32_t min_us;    /* RTT sample for the minimum, without the delay of delayed ACKs */
	bool dsack;
	bool probe_lost; /* the tail loss probe repaired a loss: reduce the window (RFC 8985 7.4.2)
	                  */
	/* The recovery was spurious: undo the reduction. */
	bool undone;   /* all retransmissions were D-SACKed (RFC 3708) */
	bool spurious; /* the timestamp proves that the original was acknowledged (RFC 3522) */
	bool original; /* after an RTO, data that was not retransmitted is acknowledged (RFC
	                  5682 3.1) */
};

void sent_init(struct sent *s, uint32_t first);
void sent_clear(struct sent *s, struct pool *p);

/* Records new bytes sent from SND.NXT on; SYN and FIN count as one. Returns false if there is no
 * free range: wait for an ACK. */
bool sent_add(struct sent *s, struct pool *p, uint32_t bytes, uint64_t now_ns);
/* Marks the last range's transmission time as inexact: no RTT sample. */
void sent_mark_ambiguous(struct sent *s, struct pool *p);

/* Records a retransmission; skips SACKed parts. */
void sent_retransmitted(struct sent *s, struct pool *p, uint32_t from, uint32_t to,
                        uint64_t now_ns);

/* RFC 6675's pipe, in bytes. */
static inline uint32_t sent_in_flight(const struct sent *s)
{
	uint32_t all = s->nxt - s->una, less = s->sacked + s->lost + s->guessed;
	return all > less ? all - less : 0;
}

/* Returns the last transmission time of the first range; 0: nothing in flight. */
uint64_t sent_first_ns(const struct sent *s, const struct pool *p);

/* Returns the first range to retransmit. */
bool sent_next_lost(struct sent *s, const struct pool *p, uint32_t *from, uint32_t *to);

/* ---- sent_ack.c ------------------------------------------------------------------------------ */

void sent_acked(struct sent *s, struct pool *p, const struct rtt *r, const struct sent_ack *in,
                struct sent_outcome *outcome);

/* Processes a duplicate ACK without SACK (RFC 5681 3.2): an unknown segment has arrived. Returns
 * the bytes to count as delivered in prr.h. */
uint32_t sent_duplicate(struct sent *s, uint16_t mss);

/* ---- sent_loss.c ----------------------------------------------------------------------------- */

/* Marks lost ranges (RFC 8985 6.2) and returns their bytes. recheck_ns: time of the next call; 0:
 * at the next ACK. recovering: in any recovery. */
uint32_t sent_detect(struct sent *s, struct pool *p, const struct rtt *r, uint16_t mss,
                     bool recovering, uint64_t now_ns, uint64_t *recheck_ns);

/* Marks the first segment as lost after the third duplicate or a partial ACK without SACK (RFC
 * 6582 3.2). Returns its bytes. */
uint32_t sent_first_lost(struct sent *s, struct pool *p, uint16_t mss);

/* The RTO expired: marks losses (RFC 8985 6.3). repeated: not the first RTO. Then, or if the peer
 * has reneged, everything is lost and SACKs are discarded (RFC 2018 8). */
void sent_timed_out(struct sent *s, struct pool *p, const struct rtt *r, uint16_t mss,
                    bool repeated, uint64_t now_ns);

/* The losses were spurious: the data is in flight again and not retransmitted, unless RACK or an
 * RTO marks it again (RFC 4015 3.2 step 4). */
void sent_undo_losses(struct sent *s, struct pool *p);

/* Any recovery ended. */
void sent_recovered(struct sent *s);

/* Returns the PTO in ns (RFC 8985 7.2), to be bounded by the RTO; 0: no probe now. Only with SACK
 * and outside recovery. ack_delay_us: the peer's max. ACK delay. */
uint64_t sent_probe_wait(const struct sent *s, const struct rtt *r, uint16_t mss,
                         uint32_t ack_delay_us);

/* Returns the last segment's bytes, to probe without new data. Then call sent_retransmitted(). */
static inline void sent_probe_range(const struct sent *s, uint16_t mss, uint32_t *from,
                                    uint32_t *to)
{
	*to = s->nxt;
	*from = s->nxt - s->una > mss ? s->nxt - mss : s->una;
}

/* Records a tail loss probe. Begins no recovery. */
static inline void sent_probed(struct sent *s, bool is_retransmission)
{
	s->probe_to = s->nxt;
	s->probing = true;
	s->probe_is_retransmission = is_retransmission;
	s->probe_unsampled = true;
	s->undo_bytes = 0;
	s->undo_ns = 0;
}

#endif
