// SPDX-License-Identifier: Apache-2.0
/* SYN-SENT (RFC 9293 3.10.7.3). */
#include <errno.h>

#include "arrive.h"
#include "emit.h"
#include "stack.h"
#include "timer.h"

/* Takes over sequence number, window and options of the peer's SYN. */
static void syn_process(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	c->rcv_nxt = c->rcv_acked = seg->seq + 1;
	c->rcv_edge += c->rcv_nxt;                 /* was relative to 0 */
	c->snd_wnd = c->snd_wnd_max = seg->window; /* not scaled: RFC 7323 2.2 */
	c->snd_wl1 = seg->seq;
	c->snd_wl2 = seg->ack;
	connection_apply_options(s, c, &seg->options);
	if (c->flags & C_TIMESTAMPS) {
		c->ts_recent = seg->options.time;
		c->ts_recent_ms = s->now_ms;
	}
}

void arrive_syn_sent(struct sy_stack *s, struct connection *c, struct segment *seg)
{
	bool acks = seg->flags & SY_TCP_ACK;

	/* First: ACK. */
	if (acks && (seg->ack == c->snd_una || seg->ack != c->snd_nxt)) {
		stack_refuse(s, seg);
		return;
	}
	/* Second: RST. */
	if (seg->flags & SY_TCP_RST) {
		if (acks) {
			s->counters.resets_in++;
			connection_end(s, c, ECONNREFUSED);
		}
		return;
	}
	/* Fourth: SYN. */
	if (!(seg->flags & SY_TCP_SYN))
		return;
	syn_process(s, c, seg);
	if (!acks) { /* simultaneous open: RFC 9293 3.5 */
		if ((seg->flags & (TCP_ECE | TCP_CWR)) == (TCP_ECE | TCP_CWR))
			c->flags |= C_ECN;
		c->state = SY_STACK_SYN_RECEIVED;
		emit_syn_retransmit(s, c);
		timer_retransmit_set(s, c);
		return;
	}
	if (s->options.ecn && (seg->flags & (TCP_ECE | TCP_CWR)) == TCP_ECE)
		c->flags |= C_ECN;
	/* Strip the SYN, then process the rest of the segment. */
	seg->seq++;
	seg->flags &= (uint8_t) ~(SY_TCP_SYN | TCP_ECE | TCP_CWR);
	seg->unscaled = true;
	c->snd_wl1 = seg->seq;
	c->state = SY_STACK_SYN_RECEIVED;
	ack_schedule(s, c, true);
	if (arrive_ack(s, c, seg))
		arrive_text(s, c, seg);
}
