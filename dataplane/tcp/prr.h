// SPDX-License-Identifier: Apache-2.0
/*
 * How much may be sent in fast recovery: proportional rate reduction (RFC 6937, with SafeACK of
 * RFC 9937, which replaces it). What leaves follows what arrives, so that ssthresh is under way
 * when the recovery ends, and nothing is sent in one burst.
 *
 * While more than ssthresh is under way, the reduction is proportional. Below it, each ACK lets
 * pass as much as it delivered (CRB: conservation), and a segment more if it is safe (SSRB: as slow
 * start).
 */
#ifndef TCP_PRR_H
#define TCP_PRR_H

#include <stdbool.h>
#include <stdint.h>

struct prr {
	uint32_t flight; /* RecoverFS */
	uint32_t ssthresh;
	uint32_t delivered, out; /* since the recovery began */
};
_Static_assert(sizeof(struct prr) == 16, "a part of a connection's 512 bytes");

/* A recovery begins. flight: what was under way before the ACK that began it, which counts as the
 * first prr_acked(). */
static inline void prr_begin(struct prr *p, uint32_t flight, uint32_t ssthresh)
{
	*p = (struct prr){.flight = flight ? flight : 1, .ssthresh = ssthresh};
}

/* An ACK in recovery: how many bytes may be sent on it. delivered: sent_news.delivered; in_flight:
 * sent_in_flight() after what is lost was marked. safe: SND.UNA advanced, and nothing more was
 * found to be lost. */
static inline uint32_t prr_acked(struct prr *p, uint32_t delivered, uint32_t in_flight,
                                 uint16_t mss, bool safe)
{
	uint64_t may = 0;
	p->delivered += delivered;
	if (in_flight > p->ssthresh) {
		may = ((uint64_t)p->delivered * p->ssthresh + p->flight - 1) / p->flight;
		may = may > p->out ? may - p->out : 0;
	} else if (delivered > 0) {
		may = p->delivered > p->out ? p->delivered - p->out : 0;
		may = may > delivered ? may : delivered;
		may += safe ? mss : 0;
		may = may < p->ssthresh - in_flight ? may : p->ssthresh - in_flight;
	}
	if (p->out == 0 && may < mss) /* the first retransmission leaves at once */
		may = mss;
	return (uint32_t)may;
}

static inline void prr_sent(struct prr *p, uint32_t bytes)
{
	p->out += bytes;
}

#endif
