// SPDX-License-Identifier: Apache-2.0
/* What a segment is due by the RFCs' checks, from the connection's numbers alone. */
#ifndef ACCEPTABILITY_MODEL_H
#define ACCEPTABILITY_MODEL_H

#include "../stack.h"

enum answer { NOTHING, ACKNOWLEDGED, RESET, ACCEPTED };

struct sent_segment {
	uint32_t seq, ack, len, time;
	uint16_t window;
	uint8_t flags;
	bool timestamps;
};

static inline bool lies_between(uint32_t from, uint32_t at, uint32_t to)
{
	return at - from <= to - from;
}

static inline bool is_after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* RFC 9293 3.10.7.3. */
static inline enum answer model_syn_sent(const struct connection *c, const struct sent_segment *in)
{
	if (in->flags & SY_TCP_ACK && in->ack != c->snd_nxt)
		return in->flags & SY_TCP_RST ? NOTHING : RESET;
	if (in->flags & SY_TCP_RST)
		return in->flags & SY_TCP_ACK ? ACCEPTED : NOTHING;
	return in->flags & SY_TCP_SYN ? ACCEPTED : NOTHING;
}

/* RFC 9293 3.4's table; at RCV.NXT a segment is looked at whatever the window is. */
static inline bool model_in_window(const struct connection *c, uint32_t seq, uint32_t span)
{
	uint32_t next = c->rcv_nxt, edge = c->rcv_edge;

	if (seq == next)
		return true;
	if (span == 0)
		return lies_between(next, seq, edge);
	return edge != next &&
	       (lies_between(next, seq, edge - 1) || lies_between(next, seq + span - 1, edge - 1));
}

static inline bool model_acks(const struct connection *c, const struct sent_segment *in)
{
	return in->flags & SY_TCP_ACK &&
	       lies_between(c->snd_una - c->snd_wnd_max, in->ack, c->snd_nxt);
}

/* What is outside of the window, and not for nothing there: section by section. */
static inline bool model_excepted(const struct connection *c, const struct sent_segment *in,
                                  uint32_t span, uint32_t peer_next)
{
	uint32_t state = c->state;

	/* RFC 9293 3.10.7.4: a retransmitted SYN, in SYN-RECEIVED. */
	if (state == SY_STACK_SYN_RECEIVED && in->flags & SY_TCP_SYN && in->seq == peer_next - 1)
		return true;
	if (in->flags & (SY_TCP_RST | SY_TCP_SYN))
		return false;
	/* A retransmitted FIN, in TIME-WAIT. */
	if (state == SY_STACK_TIME_WAIT && in->flags & SY_TCP_FIN && in->seq + span == peer_next)
		return model_acks(c, in);
	/* A keepalive probe, or an acknowledgement beside a probe's byte (docs/design/0036). */
	if (in->seq + 1 == c->rcv_nxt && in->len <= 1 && !(in->flags & SY_TCP_FIN))
		return model_acks(c, in) ||
		       (c->flags & C_PROBED && span == 0 && in->ack == c->snd_nxt + 1);
	return false;
}

static inline bool model_opens_anew(const struct connection *c,
                                    const struct sent_segment *in) /* RFC 6191 2 */
{
	if (c->state != SY_STACK_TIME_WAIT ||
	    (in->flags & (SY_TCP_SYN | SY_TCP_ACK | SY_TCP_RST)) != SY_TCP_SYN)
		return false;
	if (c->flags & C_TIMESTAMPS && in->timestamps && in->time != c->ts_recent)
		return is_after(in->time, c->ts_recent);
	return is_after(in->seq, c->rcv_nxt);
}

/* RFC 9293 3.10.7.4, RFC 7323 5.3, RFC 5961. peer_next: the peer's SND.NXT. */
static inline enum answer model(const struct connection *c, const struct sent_segment *in,
                                uint32_t peer_next)
{
	uint32_t span = in->len + !!(in->flags & SY_TCP_SYN) + !!(in->flags & SY_TCP_FIN);

	if (c->state == SY_STACK_SYN_SENT)
		return model_syn_sent(c, in);
	if (model_opens_anew(c, in))
		return ACCEPTED;
	if (c->flags & C_TIMESTAMPS && !(in->flags & SY_TCP_RST)) {
		if (!in->timestamps)
			return NOTHING;
		if (is_after(c->ts_recent, in->time))
			return ACKNOWLEDGED;
	}
	if (model_excepted(c, in, span, peer_next))
		return ACCEPTED;
	if (!model_in_window(c, in->seq, span))
		return in->flags & SY_TCP_RST ? NOTHING : ACKNOWLEDGED;
	if (in->flags & SY_TCP_RST)
		return in->seq == c->rcv_nxt ? ACCEPTED : ACKNOWLEDGED;
	if (in->flags & SY_TCP_SYN)
		return ACKNOWLEDGED;
	if (!(in->flags & SY_TCP_ACK))
		return NOTHING;
	if (c->flags & C_PROBED && in->ack == c->snd_nxt + 1)
		return ACCEPTED;
	if (!model_acks(c, in))
		return ACKNOWLEDGED;
	if (c->state == SY_STACK_SYN_RECEIVED && in->ack != c->snd_nxt)
		return RESET;
	return ACCEPTED;
}

#endif
