// SPDX-License-Identifier: Apache-2.0
/*
 * Proportional rate reduction in fast recovery (RFC 9937, which replaces RFC 6937). Sending follows
 * delivery, so that ssthresh is in flight at the end of recovery, without a burst.
 *
 * While more than ssthresh is in flight, the reduction is proportional. Below it, each ACK permits
 * what it delivered (CRB: conservation), plus a segment if it is safe (SSRB: like slow start).
 */
#ifndef TCP_PRR_H
#define TCP_PRR_H

#include <stdbool.h>
#include <stdint.h>

struct prr {
	uint32_t flight; /* RecoverFS */
	uint32_t ssthresh;
	uint32_t delivered, out; /* since recovery began */
};
_Static_assert(sizeof(struct prr) == 16, "a part of a connection's 512 bytes");

/* Starts recovery. flight: in flight before the ACK that starts it, which is also the first
 * prr_acked(). */
static inline void prr_begin(struct prr *p, uint32_t flight, uint32_t ssthresh)
{
	*p = (struct prr){.flight = flight ? flight : 1, .ssthresh = ssthresh};
}

/* Returns how many bytes an ACK in recovery permits. delivered: sent_outcome.delivered; in_flight:
 * sent_in_flight() after loss detection. safe: SND.UNA advanced without further loss. */
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
	if (p->out == 0 && may < mss) /* always permit the first retransmission */
		may = mss;
	return (uint32_t)may;
}

static inline void prr_sent(struct prr *p, uint32_t bytes)
{
	p->out += bytes;
}

#endif
