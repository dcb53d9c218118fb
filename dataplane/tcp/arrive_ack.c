// SPDX-License-Identifier: Apache-2.0
/* Step 5: ACK. */
#include "arrive.h"
#include "client.h"
#include "emit.h"
#include "path_probe.h"
#include "recovery.h"
#include "stack.h"
#include "timer.h"
#include "window.h"

/* The handshake's last step (RFC 9293 3.10.7.4, fifth, SYN-RECEIVED). */
static bool syn_acked(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	if (seg->ack != c->snd_una + 1) {
		stack_refuse(s, seg);
		return false;
	}
	if (s->client) /* the load balancer may send the option only here */
		client_arrive(s, c, seg);
	if (c->listener != LISTENER_NONE && !listener_complete(s, c))
		return false; /* the SYN-ACK will be retransmitted */
	connection_established(s, c);
	if (!(c->flags & C_FIN_WANTED))
		return true;
	c->state = SY_STACK_FIN_WAIT_1;
	if (!(c->flags & C_OWNED))
		connection_orphan(s, c);
	return c->state != SY_STACK_CLOSED;
}

/* The peer accepted a zero-window probe byte: adds a range for it. */
static void probe_acked(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	if (!(c->flags & C_PROBED) || seg->ack != c->snd_nxt + 1)
		return;
	if (!sent_add(&flight_begin(s, c)->sent, &s->sent, 1, s->now_ns)) {
		if (c->snd_una == c->snd_nxt)
			flight_end(s, c);
		return;
	}
	sent_mark_ambiguous(&flight_of(s, c)->sent,
	                    &s->sent); /* its transmission time is unknown */
	c->snd_nxt++;
	c->flags &= ~(uint32_t)C_PROBED;
}

void arrive_window(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	uint32_t window = (uint32_t)seg->window << (seg->unscaled ? 0 : c->snd_scale);

	if (!sy_seq_before(c->snd_wl1, seg->seq) &&
	    (c->snd_wl1 != seg->seq || seq_after(c->snd_wl2, seg->ack)))
		return;
	c->snd_wl1 = seg->seq;
	c->snd_wl2 = seg->ack;
	if (window == c->snd_wnd)
		return;
	if (c->snd_wnd == 0 && window > 0 && c->snd_una == c->snd_nxt) {
		c->retries = 0; /* the window has reopened */
		timer_clear(c, TIMER_RETRANSMIT);
	}
	c->snd_wnd = window;
	if (window > c->snd_wnd_max)
		c->snd_wnd_max = window;
	connection_schedule(s, c);
}

/* Returns the end of the clock tick of the echoed timestamp: the acknowledged segment was sent
 * before. 0: no timestamp. */
static uint64_t echo_ns(const struct sy_stack *s, const struct connection *c,
                        const struct segment *seg)
{
	uint32_t ago;

	if (!(c->flags & C_TIMESTAMPS) || !seg->options.echo)
		return 0;
	ago = s->now_ms + c->ts_offset - seg->options.echo;
	return ago < time_ms64(s) ? (time_ms64(s) - ago + 1) * MS_NS : 0;
}

/* Upper bound of the RTT by the echoed timestamp; 0: none. */
static uint32_t echo_us(const struct sy_stack *s, const struct sent_ack *in)
{
	uint64_t us = in->echo_ns ? (s->now_ns + MS_NS - in->echo_ns) / 1000 : 0;
	return us < MAX_RTT_US ? (uint32_t)us : MAX_RTT_US;
}

/* Returns the RTT that made a time-out spurious; 0 if it was not, or if a D-SACK shows that an ACK
 * was lost and this one acknowledges the copy. Unknown without SACK. */
static uint32_t spurious_rtt_us(const struct sy_stack *s, const struct connection *c,
                                const struct sent_outcome *outcome, const struct sent_ack *in)
{
	bool late = c->flags & C_SACK && outcome->spurious && !outcome->dsack;
	return late ? echo_us(s, in) : 0;
}

/* Shares the RTT of a spurious time-out with all connections. The echoed timestamp may be forged,
 * so it counts no more than the time that this stack waited. */
static void spurious_rtt_share(struct sy_stack *s, const struct connection *c, uint32_t us)
{
	uint64_t waited = (uint64_t)(s->now_ms - c->retry_ms + 1) * 1000;

	if (c->retries > 0)
		rto_floor_note_spurious(s, us < waited ? us : (uint32_t)waited);
}

static void rtt_update(struct sy_stack *s, struct connection *c, const struct sent_outcome *outcome,
                       const struct sent_ack *in, uint32_t flight, bool syn)
{
	uint32_t per_window = (flight + 2u * c->mss - 1) / (2u * c->mss);
	uint32_t late = spurious_rtt_us(s, c, outcome, in),
	         us = outcome->rtt_us ? outcome->rtt_us : late;

	if (us)
		rtt_sample(&c->rtt, us, per_window ? per_window : 1, time_ms64(s));
	else
		rtt_restart(&c->rtt);
	if (late) {
		rtt_late(&c->rtt, us);
		spurious_rtt_share(s, c, us);
	} else if (us && us < RTT_MIN_TIMEOUT_MS * 1000) {
		rto_floor_note_quick(s, c, syn);
	}
	if (syn && c->retries > 0 && !outcome->rtt_us)
		rtt_syn_lost(&c->rtt);
	c->retries = 0;
	if (outcome->min_us)
		rtt_min_sample(&c->rtt, outcome->min_us, time_ms64(s));
}

/* Frees acknowledged bytes and notifies connections that wait for space. */
static void bytes_acked(struct sy_stack *s, struct connection *c, uint32_t first)
{
	uint32_t end = seq_after(c->snd_una, c->unsent.end) ? c->unsent.end : c->snd_una;
	uint32_t limit;

	if (!seq_after(end, first))
		return;
	c->bytes_acked += end - first;
	if (c->flags & C_ORPHAN) {
		s->orphans_taken += end - first;
		connection_orphan_progress(s, c);
	}
	send_buffer_free(&c->unsent, &s->chunks, end);
	if (c->flags & C_URGENT_OUT && !sy_seq_before(end, c->urgent_out))
		c->flags &= ~(uint32_t)C_URGENT_OUT;
	limit = window_send_limit(s, c);
	if (c->flags & C_WANTS_SPACE && c->unsent.end - c->snd_una <= limit / 3 * 2 &&
	    s->chunks.used < s->chunks.count) {
		c->flags &= ~(uint32_t)C_WANTS_SPACE;
		connection_notify(s, c, SY_STACK_WRITABLE);
	}
	space_notify(s);
}

/* Our FIN is acknowledged. Returns false if the connection was freed. */
static bool fin_acked(struct sy_stack *s, struct connection *c)
{
	switch (c->state) {
	case SY_STACK_FIN_WAIT_1:
		c->state = SY_STACK_FIN_WAIT_2;
		connection_orphan_over(s, c);
		if (!(c->flags & C_OWNED))
			timer_set(s, c, TIMER_END, FIN_WAIT_2_MS);
		return true;
	case SY_STACK_CLOSING:
		connection_time_wait(s, c);
		return true;
	case SY_STACK_LAST_ACK:
		connection_end(s, c, 0);
		return false;
	}
	return true;
}

static void sent_ack_fill(const struct sy_stack *s, const struct connection *c,
                          const struct segment *seg, struct sent_ack *in)
{
	uint32_t window = (uint32_t)seg->window << (seg->unscaled ? 0 : c->snd_scale);

	*in = (struct sent_ack){
	        .ack = sy_seq_before(seg->ack, c->snd_una) ? c->snd_una : seg->ack,
	        .pure = segment_span(seg) == 0 && window == c->snd_wnd && seg->ack == c->snd_una,
	        .mss = c->mss,
	        .now_ns = s->now_ns,
	        .echo_ns = echo_ns(s, c, seg),
	};
	for (unsigned i = 0; c->flags & C_SACK && i < seg->blocks; i++)
		in->blocks[in->count++] = (struct sack_block){seg->block[i].from, seg->block[i].to};
}

/* Advances SND.UNA, and with it marks that would otherwise wrap around and appear ahead after 2^31
 * bytes. */
static void una_move(struct connection *c, uint32_t una)
{
	c->snd_una = una;
	if (sy_seq_before(c->small_end, una))
		c->small_end = una;
	if (sy_seq_before(c->recover, una))
		c->recover = una;
}

/* syn: the ACK covers our SYN. */
static void ack_process(struct sy_stack *s, struct connection *c, const struct segment *seg,
                        bool syn)
{
	uint32_t before = c->snd_una, flight = c->snd_nxt - before;
	struct sent_outcome outcome = {0};
	struct sent_ack in;

	sent_ack_fill(s, c, seg, &in);
	sent_acked(&flight_of(s, c)->sent, &s->sent, &c->rtt, &in, &outcome);
	if (outcome.acked > 0) {
		una_move(c, in.ack);
		rtt_update(s, c, &outcome, &in, flight, syn);
		bytes_acked(s, c, before + syn);
		path_probe_acked(s, c, outcome.acked);
	} else if (in.pure && flight > 0 && !(c->flags & C_SACK)) {
		outcome.delivered += recovery_duplicate(s, c);
	}
	recovery_acked(s, c, &outcome, seg->flags & TCP_ECE && c->flags & C_ECN);
	if (c->snd_una == c->snd_nxt)
		flight_end(s, c);
	if (outcome.acked > 0)
		timer_retransmit_set(s, c);
}

bool arrive_ack(struct sy_stack *s, struct connection *c, const struct segment *seg)
{
	bool done = connection_fin_sent(c) && c->snd_una == c->snd_nxt;
	bool syn = c->state == SY_STACK_SYN_RECEIVED;

	probe_acked(s, c, seg);
	/* RFC 5961 5.2; also ACKs of unsent data. */
	if (!sy_tcp_check_ack(seg->ack, c->snd_una, c->snd_nxt, c->snd_wnd_max)) {
		arrive_challenge(s, c);
		return false;
	}
	if (syn && !syn_acked(s, c, seg))
		return false;
	segment_accept(s, c, seg);
	/* An ACK ends MSG_MORE's delay, as on Linux. */
	if (seg->ack != c->snd_una || seg->len == 0)
		c->flags &= ~(uint32_t)C_MORE;
	if (c->snd_una != c->snd_nxt)
		ack_process(s, c, seg, syn);
	if (!sy_seq_before(seg->ack, c->snd_una))
		arrive_window(s, c, seg);
	if (!done && connection_fin_sent(c) && c->snd_una == c->snd_nxt)
		return fin_acked(s, c);
	return true;
}
